"""Linear algebra as it is lowered for devices without LAPACK, run here on the CPU, beside NumPy's LAPACK."""

import numpy as np
import pytest

from treadle import ops
from treadle.ir import build, interp
from treadle.ir.node import Module
from treadle.ir.types import f64
from treadle.lower.stablehlo import lower_module, to_text
from treadle.runtime import pjrt
from treadle.runtime.executable import Executable
from treadle.transforms.grad import vjp

RNG = np.random.default_rng(11)
QUICK = {"xla_backend_optimization_level": 0}  # the programs are long and run once


def portable(module, overrides=QUICK):
    """The program of a module without a call of LAPACK."""
    with pjrt.mlir_context() as context:
        lowered = lower_module(module, context, lapack=False)
        assert "lapack" not in to_text(lowered)
        return Executable(lowered, module.main.in_types, module.main.out_types, overrides=overrides)


def run(function, *arrays):
    module = Module.of(build.trace(function, [interp.type_of(a) for a in arrays]))
    return [pjrt.to_numpy(a) for a in portable(module).call(list(arrays))]


def adjoint(x):
    return np.conj(np.swapaxes(x, -1, -2))


def matrices(*shape, complex=False):
    x = RNG.standard_normal(shape)
    return x + 1j * RNG.standard_normal(shape) if complex else x


def of_rank(m, n, rank):
    return matrices(m, rank) @ matrices(rank, n)


KINDS = np.stack([matrices(5, 5), of_rank(5, 5, 2), np.zeros((5, 5)), 1e200 * matrices(5, 5), 1e-180 * matrices(5, 5)])
SQUARE = {
    "0x0": matrices(0, 0),
    "random, of rank 2, zero, huge, tiny": KINDS,
    "complex 2x2": matrices(2, 2, complex=True),
    "17x17": matrices(17, 17),
}
ANY = SQUARE | {
    "7x4 of rank 2": of_rank(7, 4, 2),
    "complex 2x2x5": matrices(2, 2, 5, complex=True),
    "0 columns": matrices(3, 0),
}
square = pytest.mark.parametrize("x", SQUARE.values(), ids=SQUARE.keys())
of_any_shape = pytest.mark.parametrize("x", ANY.values(), ids=ANY.keys())


def close(found, wanted, x):
    """Up to 1e-14 of the size of each matrix of x and of its number of columns."""
    scale = np.max(np.abs(x), axis=(-2, -1), initial=0, keepdims=True) + (x == 0).all((-2, -1), keepdims=True)
    scale = scale if found.ndim == x.ndim else scale[..., 0]
    np.testing.assert_allclose(found / scale, wanted / scale, atol=2e-14 * (5 + x.shape[-1]))


def assert_orthonormal(q):
    wanted = np.broadcast_to(np.eye(q.shape[-1]), (*q.shape[:-2], q.shape[-1], q.shape[-1]))
    np.testing.assert_allclose(adjoint(q) @ q, wanted, atol=1e-13)


@square
def test_lu(x):
    factors, pivots, order = run(lambda x: (*ops.lu(x), ops.permutation_of_pivots(ops.lu(x)[1])), x)
    lower = np.tril(factors, -1) + np.eye(x.shape[-1])
    close(lower @ np.triu(factors), np.take_along_axis(x, order[..., None], -2), x)
    assert (np.abs(lower) <= 1 + 1e-9).all() or np.iscomplexobj(x)
    assert (pivots >= np.arange(x.shape[-1])).all()


@of_any_shape
def test_qr(x):
    q, r = run(ops.qr, x)
    assert_orthonormal(q)
    close(q @ r, x, x)
    assert np.array_equal(r, np.triu(r))
    assert np.isrealobj(r) or np.abs(np.diagonal(r, axis1=-2, axis2=-1).imag).max() == 0


@square
def test_eigh(x):
    """Only the lower triangle is read."""
    x = x / 2 + adjoint(x) / 2
    w, v = run(ops.eigh, np.tril(x) + np.triu(x * 3, 1))
    assert_orthonormal(v)
    close(x @ v, v * w[..., None, :], x)
    close(w, np.linalg.eigvalsh(x), x)


def test_equal_eigenvalues():
    q, _ = np.linalg.qr(matrices(6, 6))
    x = (q * np.array([1.0, 1, 1, 2, 2, 5])) @ q.T
    w, v = run(ops.eigh, (x + x.T) / 2)
    assert_orthonormal(v)
    close(w, np.array([1.0, 1, 1, 2, 2, 5]), x)


@of_any_shape
def test_svd(x):
    u, s, vh = run(ops.svd, x)
    assert_orthonormal(u)
    assert_orthonormal(adjoint(vh))
    assert (s >= 0).all()
    close((u * s[..., None, :]) @ vh, x, x)
    close(s, np.linalg.svd(x, compute_uv=False), x)


def matched(found, wanted):
    """The largest distance, when each wanted number takes the nearest one of those found that are left."""
    left, worst = list(found), 0.0
    for w in wanted:
        worst = max(worst, abs(w - left.pop(int(np.argmin(np.abs(np.array(left) - w))))))
    return worst


JORDAN = 2 * np.eye(4) + np.eye(4, k=1)
GENERAL = np.stack(
    [matrices(4, 4), np.roll(np.eye(4), 1, 0), np.zeros((4, 4)), JORDAN, of_rank(4, 4, 2), 1e200 * matrices(4, 4)]
)


@pytest.mark.parametrize("x", [GENERAL, matrices(17, 17)], ids=["many kinds, one not finite", "17x17"])
def test_eig(x):
    lanes = np.concatenate([x, np.full((1, 4, 4), np.nan)]) if x.ndim > 2 else x
    w, v = run(ops.eig, lanes)
    if x.ndim > 2:
        assert np.isnan(w[-1]).all()
        assert np.isnan(v[-1]).all()
        w, v = w[:-1], v[:-1]
    close(x @ v, v * w[..., None, :], x)
    np.testing.assert_allclose(np.linalg.norm(v, axis=-2), 1, rtol=1e-13)
    n = x.shape[-1]
    for a, found in zip(x.reshape(-1, n, n), w.reshape(-1, n), strict=True):
        size = np.abs(a).max() or 1.0
        assert matched(found / size, np.linalg.eigvals(a) / size) < 1e-12


def test_singular_values_far_apart():
    u, _ = np.linalg.qr(matrices(6, 6))
    v, _ = np.linalg.qr(matrices(6, 6))
    x = (u * 10.0 ** -np.arange(0, 18, 3)) @ v.T
    left, s, right = run(ops.svd, x)
    assert_orthonormal(left)
    assert_orthonormal(right.T)
    close(s, np.linalg.svd(x, compute_uv=False), x)


def test_one_matrix_that_is_not_finite_leaves_the_others_alone():
    x = np.stack([np.eye(3), np.full((3, 3), np.nan), np.diag([3.0, 2.0, np.inf])])
    for results in (run(ops.eigh, x), run(ops.svd, x)):
        for r in results:
            assert np.isfinite(r[0]).all()
            assert np.isnan(r[1:]).all()


def test_of_32_bits():
    x = matrices(9, 6, complex=True).astype(np.complex64)
    u, s, vh = run(ops.svd, x)
    assert u.dtype == vh.dtype == np.complex64
    assert s.dtype == np.float32
    np.testing.assert_allclose((u * s) @ vh, x, atol=3e-6)
    np.testing.assert_allclose(s, np.linalg.svd(x, compute_uv=False), rtol=2e-6)


@pytest.mark.parametrize("name", ["solve", "cholesky"])
def test_what_is_made_of_factors_and_its_gradient(name):
    """The same numbers, forward and backward, as the interpreter's."""
    x = matrices(4, 4) + 4 * np.eye(4)
    x = x @ x.T if name == "cholesky" else x
    op = (lambda x: ops.solve(x, x * x)) if name == "solve" else getattr(ops, name)
    fn = build.trace(op, [f64[4, 4]])
    module = vjp(fn)
    given = [x, *[np.asarray(RNG.standard_normal(t.shape)) for t in fn.out_types]]
    for m, arrays in ((Module.of(fn), [x]), (module, given)):
        for found, wanted in zip(portable(m).call(arrays), interp.run(m, *arrays), strict=True):
            np.testing.assert_allclose(pjrt.to_numpy(found), wanted, rtol=1e-9, atol=1e-9 * np.abs(wanted).max())


@pytest.mark.parametrize("name", ["qr", "svd", "eigh"])
def test_gradients_of_spectra(name):
    """As fast code, in which numbers that are computed twice may be rounded differently."""
    x = matrices(4, 4) + np.diag([3.0, 6.0, 9.0, 12.0])
    fn = build.trace(getattr(ops, name), [f64[4, 4]])
    arrays = [x, *[np.asarray(RNG.standard_normal(t.shape)) for t in fn.out_types]]
    module = vjp(fn)
    found, wanted = pjrt.to_numpy(portable(module, None).call(arrays)[0]), interp.run(module, *arrays)[0]
    np.testing.assert_allclose(found, wanted, atol=1e-9 * np.abs(wanted).max())
