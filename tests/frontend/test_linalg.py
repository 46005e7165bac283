"""`td.linalg` and `td.fft` against NumPy, eagerly and compiled; what they refuse."""

import numpy as np
import pytest

import treadle as td

RNG = np.random.default_rng(3)
A = RNG.standard_normal((4, 4)) + 4 * np.eye(4)
TALL = RNG.standard_normal((2, 5, 3))
SPD = A @ A.T
C = RNG.standard_normal((3, 3)) + 1j * RNG.standard_normal((3, 3))
B = RNG.standard_normal((4, 2))

SAME = {
    "cholesky": (SPD,),
    "inv": (A,),
    "det": (A,),
    "slogdet": (A,),
    "solve": (A, B),
    "eigvalsh": (SPD,),
    "svdvals": (TALL,),
    "pinv": (TALL,),
    "matrix_rank": (TALL,),
    "cond": (A,),
    "trace": (TALL,),
    "cross": (TALL, TALL[::-1]),
    "vecdot": (C, C.T),
    "multi_dot": ([B.T, A, SPD, B],),
}


@pytest.mark.parametrize("name", SAME)
def test_as_numpy(name):
    ours, args = getattr(td.linalg, name), SAME[name]
    wanted = getattr(np.linalg, name)(*args)
    given = [[td.tensor(x) for x in a] if isinstance(a, list) else td.tensor(a) for a in args]
    for found in (ours(*given), td.jit(ours)(*given)):
        parts = found if isinstance(found, tuple) else (found,)
        for f, w in zip(parts, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
            np.testing.assert_allclose(f.numpy(), w, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("x", [A, TALL, C], ids=["square", "tall", "complex"])
def test_factors_multiply_to_the_matrix(x):
    q, r = [t.numpy() for t in td.linalg.qr(td.tensor(x))]
    np.testing.assert_allclose(q @ r, x, atol=1e-12)
    u, s, vh = [t.numpy() for t in td.linalg.svd(td.tensor(x))]
    np.testing.assert_allclose(u * s[..., None, :] @ vh, x, atol=1e-12)
    if x.ndim == 2:
        w, v = [t.numpy() for t in td.linalg.eig(td.tensor(x))]
        np.testing.assert_allclose(x @ v, v * w, atol=1e-12)
        w, v = [t.numpy() for t in td.linalg.eigh(td.tensor(x + x.conj().T))]
        np.testing.assert_allclose((x + x.conj().T) @ v, v * w, atol=1e-12)


def test_vectors_have_their_fixed_factor():
    v = td.linalg.eigh(td.tensor(SPD))[1].numpy()
    first = np.argmax(np.abs(v) >= 0.9 * np.abs(v).max(axis=0), axis=0)
    assert (v[first, np.arange(4)] > 0).all()


def test_least_squares():
    a, b = TALL[0], RNG.standard_normal((5, 2))
    np.testing.assert_allclose(td.linalg.lstsq(td.tensor(a), td.tensor(b)).numpy(), np.linalg.lstsq(a, b)[0], rtol=1e-9)
    low = np.outer(np.arange(1.0, 5.0), np.arange(1.0, 4.0))
    found = td.linalg.lstsq(td.tensor(low), td.tensor(np.ones(4))).numpy()
    np.testing.assert_allclose(found, np.linalg.lstsq(low, np.ones(4), rcond=1e-12)[0], rtol=1e-8)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 30.0])
def test_matrix_exponential(scale):
    x = scale * (A - A.T)
    w, v = np.linalg.eigh(1j * x)
    wanted = (v * np.exp(-1j * w) @ v.conj().T).real
    np.testing.assert_allclose(td.linalg.matrix_exp(td.tensor(x)).numpy(), wanted, atol=1e-11)


@pytest.mark.parametrize("n", [-2, 0, 1, 5])
def test_matrix_power(n):
    found = td.linalg.matrix_power(td.tensor(A), n).numpy()
    np.testing.assert_allclose(found, np.linalg.matrix_power(A, n), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("ord", [None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
@pytest.mark.parametrize("keepdims", [False, True])
def test_matrix_norms(ord, keepdims):
    found = td.linalg.norm(td.tensor(TALL), ord, (0, 2), keepdims).numpy()
    np.testing.assert_allclose(found, np.linalg.norm(TALL, ord, (0, 2), keepdims), rtol=1e-10)


@pytest.mark.parametrize("ord", [None, 0, 1, 2, 3, np.inf, -np.inf])
def test_vector_norms(ord):
    found = td.linalg.norm(td.tensor(TALL), ord, 1).numpy()
    np.testing.assert_allclose(found, np.linalg.norm(TALL, ord, 1), rtol=1e-10)


def test_what_has_no_answer_is_nan_or_infinite():
    assert np.isnan(td.linalg.cholesky(td.tensor(-np.eye(2))).numpy()[np.tril_indices(2)]).all()
    assert not np.isfinite(td.linalg.inv(td.tensor(np.zeros((2, 2)))).numpy()).any()
    assert [t.item() for t in td.linalg.slogdet(td.tensor(np.ones((2, 2))))] == [0.0, -np.inf]
    nan = np.full((2, 2), np.nan)
    assert all(np.isnan(t.numpy()).all() for t in td.linalg.svd(td.tensor(nan)))


def test_equal_eigenvalues_have_a_finite_gradient():
    """The sum of the eigenvalues does not depend on the choice of their vectors: its gradient is the identity."""
    grad = td.grad(lambda x: (td.linalg.eigh(x)[0]).sum())(td.tensor(np.eye(3)))
    np.testing.assert_allclose(grad.numpy(), np.eye(3), atol=1e-12)


def test_gradient_of_the_logarithm_of_the_determinant():
    grad = td.grad(lambda x: td.linalg.slogdet(x)[1])(td.tensor(A)).numpy()
    np.testing.assert_allclose(grad, np.linalg.inv(A).T, rtol=1e-9)


def test_one_vmapped_solution_per_lane():
    many = np.stack([A, SPD])
    found = td.vmap(td.linalg.solve, in_axes=(0, None))(td.tensor(many), td.tensor(B)).numpy()
    np.testing.assert_allclose(found, np.linalg.solve(many, B[None]), rtol=1e-9)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: td.linalg.inv(td.ones((2, 3))), "E0180"),
        (lambda: td.linalg.svd(td.ones(3)), "E0180"),
        (lambda: td.linalg.cholesky(td.ones((2, 2), dtype=td.float16)), "E0181"),
        (lambda: td.linalg.qr(td.ones((2, 2)), mode="full"), "E0103"),
        (lambda: td.linalg.matrix_norm(td.ones((2, 2)), "max"), "E0103"),
        (lambda: td.linalg.multi_dot([td.ones((2, 2))]), "E0103"),
        (lambda: td.linalg.norm(td.ones((2, 2, 2)), 2), "E0103"),
        (lambda: td.linalg.norm(td.ones((2, 2, 2)), 2, (0, 1, 2)), "E0107"),
        (lambda: td.linalg.matrix_power(td.ones((2, 3)), 2), "E0180"),
        (lambda: td.linalg.cross(td.ones(2), td.ones(2)), "E0103"),
        (lambda: td.fft.fft(td.ones((2, 0))), "E0182"),
        (lambda: td.fft.fft(td.ones(3), norm="both"), "E0103"),
        (lambda: td.fft.fftn(td.ones((2, 2)), s=(2,), axes=(0, 1)), "E0103"),
        (lambda: td.fft.rfft(td.ones(3).astype(td.complex64)), "E0106"),
    ],
)
def test_mistakes(call, code):
    with pytest.raises(td.UserError) as caught:
        call()
    assert caught.value.code == code, caught.value


# --- Fourier ----------------------------------------------------------------------------------------------------------

X = RNG.standard_normal((4, 5, 6))
Z = X + 1j * RNG.standard_normal(X.shape)


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft"])
@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
@pytest.mark.parametrize(("n", "axis"), [(None, -1), (4, 1), (9, 0)])
def test_transform_as_numpy(name, norm, n, axis):
    x = X if name == "rfft" else Z
    found = getattr(td.fft, name)(td.tensor(x), n, axis, norm).numpy()
    np.testing.assert_allclose(found, getattr(np.fft, name)(x, n, axis, norm), atol=1e-12)


@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2"])
def test_transform_of_several_axes_as_numpy(name):
    x = X if name.startswith("r") else Z
    ours, numpys = getattr(td.fft, name), getattr(np.fft, name)
    np.testing.assert_allclose(ours(td.tensor(x)).numpy(), numpys(x), atol=1e-11)
    np.testing.assert_allclose(ours(td.tensor(x), (3, 8), (2, 0)).numpy(), numpys(x, (3, 8), (2, 0)), atol=1e-11)


def test_shifts_and_frequencies():
    for n in (4, 5):
        x = np.arange(3.0 * n).reshape(3, n)
        for name in ("fftshift", "ifftshift"):
            assert np.array_equal(getattr(td.fft, name)(td.tensor(x)).numpy(), getattr(np.fft, name)(x))
            assert np.array_equal(getattr(td.fft, name)(td.tensor(x), 1).numpy(), getattr(np.fft, name)(x, 1))
        for name in ("fftfreq", "rfftfreq"):
            found = getattr(td.fft, name)(n, 0.5, dtype=td.float64)
            assert np.array_equal(found.numpy(), getattr(np.fft, name)(n, 0.5))


def test_types_of_transforms():
    assert td.fft.fft(td.ones(4)).dtype is td.complex64
    assert td.fft.rfft(td.tensor([1, 2, 3])).dtype is td.complex64
    assert td.fft.irfft(td.fft.rfft(td.ones(4, dtype=td.float64))).dtype is td.float64
