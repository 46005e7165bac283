"""`treadle.array` against array-api-strict, which is NumPy with the standard's types: same shapes, types and elements.

Each case is a function of a namespace and of arrays; hypothesis draws their shapes, types and elements.
"""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import treadle as td
import treadle.array as ours
from treadle.base.errors import UserError

strict = pytest.importorskip("array_api_strict", reason="pip install treadle[dev] brings array-api-strict")

INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS, COMPLEX = ("float32", "float64"), ("complex64", "complex128")
NUMBERS, REAL = (*INTS, *FLOATS, *COMPLEX), (*INTS, *FLOATS)
ALL, INEXACT = ("bool", *NUMBERS), (*FLOATS, *COMPLEX)
SHAPES = [(), (0,), (1,), (5,), (2, 3), (3, 0), (1, 4), (2, 1, 3)]
PAIRS = [((), ()), ((3,), (3,)), ((2, 3), (3,)), ((2, 1), (1, 4)), ((0, 2), (1,)), ((), (2, 2))]


@pytest.fixture(scope="module", autouse=True)
def version():
    strict.set_array_api_strict_flags(api_version="2024.12")
    yield
    strict.reset_array_api_strict_flags()


def draw(rng, shape, dtype, low=-4, high=5, special=True):
    """An array; floats have infinities and NaN now and then."""
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if kind in "iu":
        return rng.integers(max(low, 0) if kind == "u" else low, high, shape).astype(dtype)
    if kind == "c":
        return (rng.uniform(low, high, shape) + 1j * rng.uniform(low, high, shape)).astype(dtype)
    x = np.asarray(rng.uniform(low, high, shape))
    if special and rng.integers(4) == 0:
        x = np.where(rng.random(shape) < 0.3, rng.choice([0.0, -0.0, np.nan, np.inf, -np.inf], shape), x)
    return x.astype(dtype)


def same(mine, theirs, tolerance=None):
    """Whether the results are equal: arrays, or sequences of them."""
    if isinstance(theirs, tuple | list):
        assert len(mine) == len(theirs)
        for a, b in zip(mine, theirs):
            same(a, b, tolerance)
        return
    want = np.asarray(theirs)
    assert isinstance(mine, td.Tensor)
    assert (mine.dtype.name, mine.shape) == (want.dtype.name, want.shape)
    if want.dtype.kind not in "fc":
        np.testing.assert_array_equal(mine.numpy(), want)
    else:
        # float32 of another library's sines differs by some units in the last place
        rtol = tolerance or (1e-5 if want.dtype.name in ("float32", "complex64") else 1e-12)
        np.testing.assert_allclose(mine.numpy(), want, rtol=rtol, atol=rtol)


def run(f, arrays, tolerance=None):
    with np.errstate(all="ignore"):
        theirs = f(strict, *[strict.asarray(a) for a in arrays])
    same(f(ours, *[ours.asarray(a) for a in arrays]), theirs, tolerance)


# name -> types, bounds of the elements
UNARY = {
    **dict.fromkeys(("abs", "positive", "square"), (NUMBERS, -4, 5)),
    **dict.fromkeys(("sign",), (REAL, -4, 5)),
    **dict.fromkeys(("negative",), (("int8", "int32", "int64", *INEXACT), -4, 5)),
    **dict.fromkeys(("ceil", "floor", "trunc"), (REAL, -4, 5)),
    **dict.fromkeys(("round", "isfinite", "isinf", "isnan"), (NUMBERS, -4, 5)),
    **dict.fromkeys(("exp", "expm1", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asinh", "sqrt"), (INEXACT, -3, 3)),
    **dict.fromkeys(("log", "log2", "log10", "log1p", "reciprocal", "acosh", "atan"), (INEXACT, 1.1, 4)),
    **dict.fromkeys(("asin", "acos", "atanh"), (INEXACT, -0.9, 0.9)),
    **dict.fromkeys(("real", "imag"), (COMPLEX, -3, 3)),
    "conj": (COMPLEX, -3, 3),
    "signbit": (FLOATS, -3, 3),
    "logical_not": (("bool",), 0, 1),
    "bitwise_invert": (("bool", *INTS), -4, 5),
}
BINARY = {
    **dict.fromkeys(("add", "subtract", "multiply"), (NUMBERS, -4, 5)),
    "divide": (INEXACT, 0.5, 4),
    "pow": (FLOATS, 0.5, 3),
    **dict.fromkeys(("floor_divide", "remainder"), (REAL, 1, 9)),
    **dict.fromkeys(("maximum", "minimum", "less", "less_equal", "greater", "greater_equal"), (REAL, -4, 5)),
    **dict.fromkeys(("equal", "not_equal"), (ALL, -4, 5)),
    **dict.fromkeys(("atan2", "hypot", "logaddexp", "copysign", "nextafter"), (FLOATS, -4, 5)),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor"), (("bool",), 0, 1)),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), (("bool", *INTS), -4, 5)),
    **dict.fromkeys(("bitwise_left_shift", "bitwise_right_shift"), (INTS, 0, 5)),
}
seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=12, deadline=None)


@pytest.mark.parametrize("name", UNARY)
@given(data=st.data(), seed=seeds)
@few
def test_one_array(name, data, seed):
    kinds, low, high = UNARY[name]
    shape, kind = data.draw(st.sampled_from(SHAPES)), data.draw(st.sampled_from(kinds))
    x = draw(np.random.default_rng(seed), shape, kind, low, high)
    run(lambda xp, x: getattr(xp, name)(x), [x])


@pytest.mark.parametrize("name", BINARY)
@given(data=st.data(), seed=seeds)
@few
def test_two_arrays(name, data, seed):
    kinds, low, high = BINARY[name]
    first = data.draw(st.sampled_from(kinds))
    together = [k for k in kinds if np.dtype(k).kind == np.dtype(first).kind]  # the standard does not mix kinds
    rng = np.random.default_rng(seed)
    pair = zip(data.draw(st.sampled_from(PAIRS)), (first, data.draw(st.sampled_from(together))))
    arrays = [draw(rng, shape, kind, low, high) for shape, kind in pair]
    run(lambda xp, x, y: getattr(xp, name)(x, y), arrays)


@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "equal", "less", "subtract"])
@given(data=st.data(), seed=seeds)
@few
def test_a_python_number_takes_the_type_of_the_array(name, data, seed):
    x = draw(np.random.default_rng(seed), (3,), data.draw(st.sampled_from(REAL)))
    run(lambda xp, x: getattr(xp, name)(x, 2), [x])
    run(lambda xp, x: getattr(xp, name)(3, x), [x])


REDUCTIONS = {
    "sum": NUMBERS, "prod": NUMBERS, "mean": FLOATS, "var": FLOATS, "std": FLOATS, "max": REAL, "min": REAL, "all": ALL,
    "any": ALL, "count_nonzero": ALL,
}  # fmt: skip


@pytest.mark.parametrize("name", REDUCTIONS)
@given(data=st.data(), seed=seeds, keepdims=st.booleans())
@few
def test_reductions(name, data, seed, keepdims):
    shape = data.draw(st.sampled_from([(5,), (2, 3), (1, 4), (2, 1, 3)]))
    axes = [None, *range(-len(shape), len(shape)), tuple(range(len(shape)))]
    axis = data.draw(st.sampled_from(axes))
    x = draw(np.random.default_rng(seed), shape, data.draw(st.sampled_from(REDUCTIONS[name])))
    run(lambda xp, x: getattr(xp, name)(x, axis=axis, keepdims=keepdims), [x], 1e-4 if x.dtype.itemsize == 4 else None)


# What a function does with a matrix x of [3, 4] and a vector y of [4] of one type.
MOVES = {
    "argmax": lambda xp, x, y: xp.argmax(x, axis=1, keepdims=True),
    "argmin of all": lambda xp, x, y: xp.argmin(x),
    "argsort": lambda xp, x, y: xp.argsort(x, axis=0, descending=True),
    "sort": lambda xp, x, y: xp.sort(x, axis=-1, descending=False),
    "cumulative_sum": lambda xp, x, y: xp.cumulative_sum(x, axis=1, include_initial=True),
    "cumulative_prod": lambda xp, x, y: xp.cumulative_prod(y),
    "cumulative_sum of int8": lambda xp, x, y: xp.cumulative_sum(xp.astype(x, xp.int8), axis=0, dtype=xp.int8),
    "diff": lambda xp, x, y: xp.diff(x, axis=0, n=2, append=x),
    "take": lambda xp, x, y: xp.take(x, xp.asarray([2, 0, 1]), axis=1),
    "take_along_axis": lambda xp, x, y: xp.take_along_axis(x, xp.asarray([[1, 0]]), axis=1),
    "nonzero": lambda xp, x, y: xp.nonzero(x),
    "searchsorted": lambda xp, x, y: xp.searchsorted(xp.sort(y), x, side="right"),
    "searchsorted by order": lambda xp, x, y: xp.searchsorted(y, x, sorter=xp.argsort(y)),
    "where": lambda xp, x, y: xp.where(x > y, x, y),
    "where of a number": lambda xp, x, y: xp.where(x > y, x, 1),
    "clip": lambda xp, x, y: xp.clip(x, y, y + 2),
    "clip of nothing": lambda xp, x, y: xp.clip(x),
    "unique_all": lambda xp, x, y: tuple(xp.unique_all(x)),
    "unique_counts": lambda xp, x, y: tuple(xp.unique_counts(x)),
    "unique_inverse": lambda xp, x, y: tuple(xp.unique_inverse(x)),
    "unique_values": lambda xp, x, y: xp.unique_values(x),
    "broadcast_arrays": lambda xp, x, y: xp.broadcast_arrays(x, y),
    "broadcast_to": lambda xp, x, y: xp.broadcast_to(y, (2, 4)),
    "concat": lambda xp, x, y: xp.concat([x, x * x], axis=-1),
    "concat flat": lambda xp, x, y: xp.concat((x, y), axis=None),
    "stack": lambda xp, x, y: xp.stack([y, y, y], axis=-1),
    "unstack": lambda xp, x, y: xp.unstack(x, axis=1),
    "expand_dims": lambda xp, x, y: xp.expand_dims(x, axis=-1),
    "squeeze": lambda xp, x, y: xp.squeeze(x[:1, None, :], (0, 1)),
    "flip": lambda xp, x, y: xp.flip(x, axis=(0, 1)),
    "moveaxis": lambda xp, x, y: xp.moveaxis(x, 0, -1),
    "permute_dims": lambda xp, x, y: xp.permute_dims(x, (1, 0)),
    "reshape": lambda xp, x, y: xp.reshape(x, (2, -1)),
    "roll": lambda xp, x, y: xp.roll(x, (1, -5), axis=(0, 1)),
    "roll flat": lambda xp, x, y: xp.roll(x, 3),
    "repeat": lambda xp, x, y: xp.repeat(x, 2, axis=1),
    "repeat by array": lambda xp, x, y: xp.repeat(x, xp.asarray([0, 2, 1]), axis=0),
    "tile": lambda xp, x, y: xp.tile(y, (2, 2)),
    "meshgrid": lambda xp, x, y: xp.meshgrid(y, y[:2]),
    "meshgrid ij": lambda xp, x, y: xp.meshgrid(y, y[:2], indexing="ij"),
    "tril": lambda xp, x, y: xp.tril(x, k=-1),
    "triu": lambda xp, x, y: xp.triu(x, k=1),
    "zeros_like": lambda xp, x, y: [xp.zeros_like(x), xp.ones_like(y), xp.full_like(x, 3)],
    "T": lambda xp, x, y: [x.T, x.mT],
    "mask": lambda xp, x, y: [x[x > 0], x[xp.asarray(True)], x[xp.asarray(False)]],
    "diagonal": lambda xp, x, y: [xp.linalg.diagonal(x, offset=k) for k in (-3, -1, 0, 2, 3)],
    "trace": lambda xp, x, y: xp.linalg.trace(x, offset=1),
    "matmul": lambda xp, x, y: [xp.matmul(x, y), x @ xp.matrix_transpose(x)],
    "tensordot": lambda xp, x, y: xp.tensordot(x, x, axes=((1,), (1,))),
    "vecdot": lambda xp, x, y: xp.vecdot(x, y),
    "outer": lambda xp, x, y: xp.linalg.outer(y, y),
    "cross": lambda xp, x, y: xp.linalg.cross(x, xp.flip(x, axis=1), axis=-2),
}


@pytest.mark.parametrize("name", MOVES)
@given(kind=st.sampled_from(REAL), seed=seeds)
@few
def test_moves(name, kind, seed):
    rng = np.random.default_rng(seed)
    run(MOVES[name], [draw(rng, shape, kind, special=False) for shape in ((3, 4), (4,))])


NORMS = ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)
LINALG = {
    "cholesky": lambda xp, x: [xp.linalg.cholesky(_square(xp, x), upper=u) for u in (False, True)],
    "det": lambda xp, x: [xp.linalg.det(_square(xp, x)), *xp.linalg.slogdet(_square(xp, x))],
    "eigvalsh": lambda xp, x: [xp.linalg.eigvalsh(_square(xp, x)), xp.linalg.eigh(_square(xp, x)).eigenvalues],
    "inv": lambda xp, x: [xp.linalg.inv(_square(xp, x)), xp.linalg.matrix_power(_square(xp, x), -2)],
    "solve": lambda xp, x: [xp.linalg.solve(_square(xp, x), x.mT), xp.linalg.solve(_square(xp, x), x[0, :])],
    "matrix_norm": lambda xp, x: [xp.linalg.matrix_norm(x, ord=k) for k in NORMS],
    "vector_norm": lambda xp, x: [xp.linalg.vector_norm(x, axis=1, ord=k) for k in (0, 1, 2, 3, np.inf, -np.inf)],
    "matrix_rank": lambda xp, x: xp.linalg.matrix_rank(x),
    "pinv": lambda xp, x: xp.linalg.pinv(x),
    "qr": lambda xp, x: [_product(*xp.linalg.qr(x, mode=m)) for m in ("reduced", "complete")],
    "sizes of qr": lambda xp, x: [xp.abs(r) for r in xp.linalg.qr(x, mode="complete")],
    "svdvals": lambda xp, x: [xp.linalg.svdvals(x), xp.linalg.svd(x).S],
    "full svd": lambda xp, x: [_gram(xp, xp.linalg.svd(x).U), _gram(xp, xp.linalg.svd(x).Vh)],
}


def _square(xp, x):
    return xp.matmul(xp.conj(x.mT), x) + 3 * xp.eye(x.shape[-1], dtype=x.dtype)


def _product(q, r):
    return q @ r


def _gram(xp, q):
    return xp.conj(q.mT) @ q


@pytest.mark.parametrize("name", LINALG)
@given(kind=st.sampled_from(("float64", "complex128")), seed=seeds)
@settings(max_examples=4, deadline=None)
def test_linalg(name, kind, seed):
    run(LINALG[name], [draw(np.random.default_rng(seed), (4, 3), kind, special=False)], 1e-8)


FFT = {
    "fft": lambda xp, x: [xp.fft.fft(x, n=n, norm=m) for n in (None, 3, 7) for m in ("backward", "ortho", "forward")],
    "ifft": lambda xp, x: xp.fft.ifft(x, n=3, axis=0),
    "hfft": lambda xp, x: [xp.fft.hfft(x, n=n, norm=m) for n in (None, 3) for m in ("backward", "ortho", "forward")],
    "irfft": lambda xp, x: xp.fft.irfft(x, n=5),
    "fftn": lambda xp, x: [xp.fft.fftn(x, s=(3, 3), axes=(0, 1)), xp.fft.ifftn(x)],
    "irfftn": lambda xp, x: xp.fft.irfftn(x),
    "rfft": lambda xp, x: [xp.fft.rfft(xp.real(x)), xp.fft.rfftn(xp.real(x))],
    "ihfft": lambda xp, x: [xp.fft.ihfft(xp.real(x), norm=m) for m in ("backward", "ortho", "forward")],
    "shift": lambda xp, x: [xp.fft.fftshift(x), xp.fft.ifftshift(x, axes=1)],
    "freq": lambda xp, x: [xp.fft.fftfreq(5, d=0.5, dtype=xp.float64), xp.fft.rfftfreq(6, dtype=xp.float32)],
}


@pytest.mark.parametrize("name", FFT)
@given(kind=st.sampled_from(COMPLEX), seed=seeds)
@settings(max_examples=4, deadline=None)
def test_fft(name, kind, seed):
    run(FFT[name], [draw(np.random.default_rng(seed), (3, 4), kind)], 2e-4 if kind == "complex64" else 1e-10)


CREATION = {
    "arange": lambda xp: [xp.arange(3, 20, 4), xp.arange(5, dtype=xp.float64), xp.arange(9, 1, -3, dtype=xp.int16)],
    "asarray": lambda xp: [xp.asarray([1, 2]), xp.asarray(True), xp.asarray([[1.5]], dtype=xp.float64)],
    "eye": lambda xp: [xp.eye(3, 4, k=k, dtype=xp.int32) for k in (-7, -1, 0, 2, 9)],
    "full": lambda xp: [xp.full((2, 3), 7), xp.full(3, True), xp.full((), 2.5, dtype=xp.float64)],
    "linspace": lambda xp: [xp.linspace(0, 1, n, endpoint=e, dtype=xp.float64) for n in (1, 7) for e in (True, False)],
    "linspace of complex": lambda xp: xp.linspace(0j, 1 + 2j, 5, dtype=xp.complex128),
    "zeros": lambda xp: [xp.zeros((2, 0), dtype=xp.uint8), xp.ones(3, dtype=xp.float64)],
}


@pytest.mark.parametrize("name", CREATION)
def test_creation(name):
    run(CREATION[name], [])


@given(st.sampled_from(ALL), st.sampled_from(ALL))
@settings(max_examples=60, deadline=None)
def test_types(first, second):
    mine, theirs = [[getattr(xp, name) for name in (first, second)] for xp in (ours, strict)]
    assert ours.can_cast(*mine) == bool(np.can_cast(first, second))
    if np.dtype(first).kind == np.dtype(second).kind:
        assert ours.result_type(*mine).name == np.dtype(np.result_type(first, second)).name
    kinds = ("bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric")
    for kind in kinds:
        assert ours.isdtype(mine[0], kind) == strict.isdtype(theirs[0], kind)
    if np.dtype(first).kind in "iu":
        a, b = ours.iinfo(mine[0]), strict.iinfo(theirs[0])
        assert (a.bits, a.max, a.min, a.dtype) == (b.bits, b.max, b.min, mine[0])
    elif first != "bool":
        a, b = ours.finfo(mine[0]), strict.finfo(theirs[0])
        assert (a.bits // (1 + (first in COMPLEX)), a.eps, a.max) == (b.bits // (1 + (first in COMPLEX)), b.eps, b.max)
        assert a.smallest_normal == b.smallest_normal


def test_16_bit_floats_have_limits_too():
    info = ours.finfo(ours.bfloat16)
    assert (info.bits, info.eps, info.dtype) == (16, 2.0**-7, ours.bfloat16)
    assert info.max == float(td.tensor(info.max, td.bfloat16).item()) and info.min == -info.max


def test_the_namespace_of_a_tensor_and_its_facts():
    x = td.ones(2)
    assert x.__array_namespace__(api_version="2022.12") is ours
    info = ours.__array_namespace_info__()
    assert x.device == info.default_device() and info.devices() == [x.device]
    assert x.to_device(x.device) is not x
    assert info.default_dtypes()["real floating"] is td.float32
    assert set(info.dtypes(kind="integral")) == set(INTS) and set(info.dtypes()) == set(ALL)
    assert ours.zeros(2, device=x.device).shape == (2,)
    later = {"broadcast_shapes", "isin", "Device"}  # of 2025.12, or no part of the standard
    assert set(ours.__all__) >= {n for n in strict.__all__ if n[0] != "_" and "strict" not in n.lower()} - later


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (lambda: ours.zeros(2, device="mars"), "E0103"),
        (lambda: td.ones(2).to_device("mars"), "E0103"),
        (lambda: td.ones(2).__array_namespace__(api_version="1999.01"), "E0103"),
        (lambda: ours.asarray([1], copy=False), "E0103"),
        (lambda: ours.asarray(td.ones(2), dtype=td.float64, copy=False), "E0103"),
        (lambda: ours.reshape(td.ones(4), (2, 2), copy=False), "E0103"),
        (lambda: ours.isdtype(td.float32, "floating"), "E0103"),
        (lambda: ours.result_type(1, 2.0), "E0103"),
        (lambda: ours.finfo(td.int32), "E0106"),
        (lambda: ours.iinfo(td.float32), "E0106"),
        (lambda: ours.squeeze(td.ones(2), 0), "E0107"),
        (lambda: ours.expand_dims(td.ones(2), axis=3), "E0107"),
        (lambda: ours.take(td.ones(2, 2), td.tensor([0])), "E0107"),
        (lambda: ours.linalg.cross(td.ones(2), td.ones(2)), "E0103"),
        (lambda: ours.linalg.qr(td.ones(2, 2), mode="r"), "E0103"),
        (lambda: ours.linalg.diagonal(td.ones(2)), "E0107"),
        (lambda: ours.linalg.vecdot(td.ones(2), td.ones(3)), "E0114"),
        (lambda: ours.meshgrid(td.ones(2), indexing="yx"), "E0103"),
        (lambda: ours.roll(td.ones(2, 2), (1, 2, 3), axis=(0, 1)), "E0103"),
    ],
)
def test_errors(wrong, code):
    with pytest.raises(UserError) as caught:
        wrong()
    assert caught.value.code == code


def test_errors_that_the_standard_names():
    with pytest.raises(ValueError):
        ours.squeeze(td.ones(2), 0)
    with pytest.raises(IndexError):
        ours.expand_dims(td.ones(2), 9)
    with pytest.raises(IndexError):
        td.ones(2)[5]


def test_functions_compile_and_have_derivatives():
    def f(z):
        return ours.sum(ours.real(ours.asin(z) * ours.sqrt(z) + ours.atanh(z)))

    z = td.tensor(np.array([0.3 + 0.4j, -0.2 + 0.1j], np.complex128))
    np.testing.assert_allclose(td.jit(f)(z).item(), f(z).item(), rtol=1e-12)
    slope = td.grad(lambda t: f(z * t))(td.tensor(1.0, td.float64)).item()
    step = 1e-6
    numeric = (f(z * (1 + step)).item() - f(z * (1 - step)).item()) / (2 * step)
    np.testing.assert_allclose(slope, numeric, rtol=1e-6)


OF_COMPLEX = (
    "sqrt", "exp", "expm1", "log", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan",
    "asinh", "acosh", "atanh", "sign", "isfinite", "isinf", "isnan", "abs", "square", "round",
)  # fmt: skip


def test_complex_functions_are_the_same_compiled_and_on_the_host():
    edges = np.array([-np.inf, -2.0, -0.0, 0.0, 0.5, 1e200, np.inf, np.nan])
    z = np.zeros((8, 8), np.complex128)
    z.real, z.imag = edges[:, None], edges

    def every(z):
        return [getattr(ours, name)(z) for name in OF_COMPLEX]

    compiled, host = td.jit(every)(td.from_numpy(z)), every(td.from_numpy(z))
    for name, a, b in zip(OF_COMPLEX, compiled, host):
        for part in ("real", "imag"):
            left, right = (getattr(np, part)(x.numpy()) for x in (a, b))
            np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-15, err_msg=f"{name}, {part}")


@pytest.mark.parametrize("name", OF_COMPLEX[: OF_COMPLEX.index("sign") + 1])
def test_derivatives_of_complex_functions(name):
    points = np.array([0.3, 0.5j, 0.3 - 0.4j, 1e-3 + 0.2j, -0.2 if name not in ("sqrt", "log") else 2.0])
    z = points + (2 if name == "acosh" else 0)  # away from the branch cut

    def f(t, step, part):
        return part(getattr(ours, name)(td.from_numpy(z) + t * td.tensor(step, td.complex128)))

    h, zero = 1e-6, td.zeros(5, dtype=td.float64)
    for step in (1 + 0j, 1j):
        for part in (ours.real, ours.imag):
            numeric = (f(zero + h, step, part).numpy() - f(zero - h, step, part).numpy()) / (2 * h)
            found = td.grad(lambda t: ours.sum(f(t, step, part)))(zero).numpy()  # noqa: B023
            np.testing.assert_allclose(found, numeric, rtol=1e-6, atol=1e-8, err_msg=f"{step} {part.__name__}")


@pytest.mark.parametrize("dtype", COMPLEX)
def test_powers_of_complex_numbers(dtype):
    x, y = (np.array(v, dtype) for v in ([1 + 2j, -1, 0, 0.5j], [0.5, 1j, 0, 2 - 1j]))
    tolerance = 1e-5 if dtype == "complex64" else 1e-12
    for f in (lambda x, y: x**y, lambda x, y: x**0.5, lambda x, y: 2.0**x, lambda x, y: x**2):
        expected = f(x, y)
        for run in (f, td.jit(f)):
            found = run(td.from_numpy(x), td.from_numpy(y))
            assert found.dtype.name == expected.dtype.name
            np.testing.assert_allclose(found.numpy(), expected, rtol=tolerance, atol=tolerance)


def test_a_complex_number_is_written_in_full():
    x = td.zeros(1, dtype=td.complex128)
    x[0] = 16777217j
    assert x[0].item() == 16777217j


def test_the_package_is_enough():
    program = "import treadle.array as xp; print(int(xp.sum(xp.asarray([1, 2]))))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout.split() == [b"3"]


def test_sizes_that_depend_on_numbers_are_refused_in_a_trace():
    with pytest.raises(UserError) as caught:
        td.jit(ours.unique_values)(td.ones(3))
    assert caught.value.code == "E0204"
