"""The rest of `td.linalg` beside NumPy, eagerly and compiled: complex numbers, batches, empty ones, gradients."""

import numpy as np
import pytest

import treadle as td

RNG = np.random.default_rng(8)
A = RNG.standard_normal((4, 4)) + 4 * np.eye(4)
C = RNG.standard_normal((3, 3)) + 1j * RNG.standard_normal((3, 3)) + 3 * np.eye(3)
TALL = RNG.standard_normal((5, 3))
MANY = RNG.standard_normal((2, 3, 3)) + 3 * np.eye(3)
H = C @ C.conj().T
LOW = RNG.standard_normal((4, 2)) @ RNG.standard_normal((2, 4))
B = RNG.standard_normal((4, 2))
L = td.linalg

# name: (ours, NumPy's, arguments)
SAME = {
    "cholesky of complex": (L.cholesky, np.linalg.cholesky, (H,)),
    "cholesky, upper": (lambda x: L.cholesky(x, upper=True), lambda x: np.linalg.cholesky(x, upper=True), (H,)),
    "cholesky_solve": (lambda b, x: L.cholesky_solve(b, L.cholesky(x)), lambda b, x: np.linalg.solve(x, b), (C, H)),
    "cholesky_solve, upper, a vector": (
        lambda b, x: L.cholesky_solve(b, L.cholesky(x, upper=True), upper=True),
        lambda b, x: np.linalg.solve(x, b),
        (C[0], H),
    ),
    "cholesky_inverse": (lambda x: L.cholesky_inverse(L.cholesky(x)), np.linalg.inv, (H,)),
    "lu_solve": (lambda a, b: L.lu_solve(*L.lu_factor(a), b), np.linalg.solve, (A, B)),
    "lu_solve of a batch": (lambda a, b: L.lu_solve(*L.lu_factor(a), b), np.linalg.solve, (MANY, MANY[0])),
    "solve of complex": (L.solve, np.linalg.solve, (C, H)),
    "solve of many vectors": (L.solve, np.linalg.solve, (MANY, C[0])),
    "det of complex": (L.det, np.linalg.det, (C,)),
    "det of nothing": (L.det, np.linalg.det, (np.zeros((2, 0, 0)),)),
    "slogdet of complex": (L.slogdet, np.linalg.slogdet, (C,)),
    "inv of many": (L.inv, np.linalg.inv, (MANY,)),
    "eigvalsh, upper": (lambda x: L.eigvalsh(x, "U"), lambda x: np.linalg.eigvalsh(x, "U"), (C,)),
    "svdvals of complex": (L.svdvals, lambda x: np.linalg.svd(x, compute_uv=False), (C,)),
    "pinv of rank 2": (lambda x: L.pinv(x, rtol=1e-10), lambda x: np.linalg.pinv(x, rcond=1e-10), (LOW,)),
    "pinv of complex": (L.pinv, np.linalg.pinv, (C[:2],)),
    "pinv of Hermitian": (lambda x: L.pinv(x, hermitian=True), lambda x: np.linalg.pinv(x, hermitian=True), (H - 2 * np.eye(3),)),  # noqa: E501
    "pinv of nothing": (L.pinv, np.linalg.pinv, (np.zeros((3, 0)),)),
    "matrix_rank": (lambda x: L.matrix_rank(x, rtol=1e-10), np.linalg.matrix_rank, (LOW,)),
    "matrix_rank of Hermitian": (lambda x: L.matrix_rank(x, atol=1e-9, hermitian=True), np.linalg.matrix_rank, (LOW @ LOW.T,)),  # noqa: E501
    "lstsq of too many": (L.lstsq, lambda a, b: np.linalg.lstsq(a, b)[0], (TALL, TALL[:, :2])),
    "lstsq of too few": (L.lstsq, lambda a, b: np.linalg.lstsq(a, b)[0], (TALL.T, TALL[0])),
    "lstsq of complex": (L.lstsq, lambda a, b: np.linalg.lstsq(a, b)[0], (C[:, :2], C)),
    "matrix_power of complex": (lambda x: L.matrix_power(x, -3), lambda x: np.linalg.matrix_power(x, -3), (C,)),
    "cross, broadcast": (L.cross, np.linalg.cross, (MANY, MANY[0, 0])),
    "vecdot, another axis": (lambda x, y: L.vecdot(x, y, axis=0), lambda x, y: np.linalg.vecdot(x, y, axis=0), (C, H)),
    "kron": (L.kron, np.kron, (B, TALL)),
    "kron of other ranks": (L.kron, np.kron, (C[0], MANY)),
    "kron of many axes": (L.kron, np.kron, (MANY, B)),
    "vander": (L.vander, lambda x: np.vander(x, increasing=True), (B[:, 0],)),
    "vander of complex": (lambda x: L.vander(x, 5), lambda x: np.vander(x, 5, increasing=True), (C[0],)),
    "tensorsolve": (L.tensorsolve, np.linalg.tensorsolve, (RNG.standard_normal((2, 3, 6)), TALL[:2])),
    "tensorsolve with axes": (
        lambda a, b: L.tensorsolve(a, b, axes=(0,)),
        lambda a, b: np.linalg.tensorsolve(a, b, axes=(0,)),
        (RNG.standard_normal((6, 2, 3)), TALL[:2]),
    ),
    "tensorinv": (L.tensorinv, np.linalg.tensorinv, (RNG.standard_normal((4, 6, 8, 3)),)),
    "tensorinv, ind=1": (lambda x: L.tensorinv(x, 1), lambda x: np.linalg.tensorinv(x, 1), (RNG.standard_normal((6, 2, 3)),)),  # noqa: E501
    "diagonal above": (lambda x: L.diagonal(x, 1), lambda x: np.linalg.diagonal(x, offset=1), (MANY,)),
    "diagonal far below": (lambda x: L.diagonal(x, -4), lambda x: np.linalg.diagonal(x, offset=-4), (TALL,)),
    "trace below": (lambda x: L.trace(x, -1), lambda x: np.linalg.trace(x, offset=-1), (TALL,)),
    "outer": (L.outer, np.linalg.outer, (C[0], C[1])),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_as_numpy(name):
    ours, numpys, args = SAME[name]
    wanted = numpys(*args)
    given = [td.tensor(a) for a in args]
    for found in (ours(*given), td.jit(ours)(*given)):
        parts = found if isinstance(found, tuple) else (found,)
        for f, w in zip(parts, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
            assert f.shape == w.shape
            np.testing.assert_allclose(f.numpy(), w, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("p", [None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
@pytest.mark.parametrize("x", [A, C, MANY], ids=["real", "complex", "many"])
def test_condition(p, x):
    np.testing.assert_allclose(L.cond(td.tensor(x), p).numpy(), np.linalg.cond(x, p), rtol=1e-9)


def test_condition_of_a_singular_matrix_is_infinite():
    one = td.tensor(np.ones((2, 2)))
    assert L.cond(one, 1).item() == np.inf
    assert L.cond(one).item() > 1e15


@pytest.mark.parametrize("ord", [None, 0, 1, -1, 2, -2, 3, 0.5, np.inf, -np.inf])
def test_vector_norms_of_complex(ord):
    np.testing.assert_allclose(L.norm(td.tensor(C[0]), ord).numpy(), np.linalg.norm(C[0], ord), rtol=1e-10)


@pytest.mark.parametrize("ord", [None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
def test_matrix_norms_of_complex(ord):
    np.testing.assert_allclose(L.norm(td.tensor(C), ord).numpy(), np.linalg.norm(C, ord), rtol=1e-10)


SHAPES = {"square": A, "tall": TALL, "wide": TALL.T, "many": MANY[:, :2], "complex": C, "complex tall": C[:, :2],
          "rank 2": LOW, "empty": np.zeros((2, 0))}  # fmt: skip


@pytest.mark.parametrize("x", SHAPES.values(), ids=SHAPES.keys())
def test_all_of_the_factors(x):
    t = td.tensor(x)
    m, n = x.shape[-2:]
    k = min(m, n)
    p, low, up = [f.numpy() for f in L.lu(t)]
    np.testing.assert_allclose(p @ low @ up, x, atol=1e-12)
    assert p.shape[-2:] == (m, m)
    assert (p.sum(-1) == 1).all()
    assert (p.sum(-2) == 1).all()
    np.testing.assert_array_equal(np.tril(low, -1) + np.eye(m, k), low)
    np.testing.assert_array_equal(np.triu(up), up)
    u, s, vh = [f.numpy() for f in L.svd(t, full_matrices=True)]
    middle = np.zeros(x.shape, s.dtype)
    middle[..., range(k), range(k)] = s
    np.testing.assert_allclose(u @ middle @ vh, x, atol=1e-12)
    q, r = [f.numpy() for f in L.qr(t, mode="complete")]
    np.testing.assert_allclose(q @ r, x, atol=1e-12)
    for square, size in ((u, m), (vh, n), (q, m)):
        assert square.shape[-2:] == (size, size)
        np.testing.assert_allclose(
            square @ np.conj(np.swapaxes(square, -1, -2)), np.broadcast_to(np.eye(size), square.shape), atol=1e-12
        )


def test_product_of_reflections():
    """Against the product of the matrices themselves; k = 2 of 3 columns."""
    for vectors in (TALL, TALL + 1j * RNG.standard_normal((5, 3))):
        tau = np.array([0.7, -1.2]) if np.isrealobj(vectors) else np.array([0.7 + 0.1j, -1.2j])
        wanted = np.eye(5)
        for i, scale in enumerate(tau):
            v = np.concatenate([np.zeros(i), [1], vectors[i + 1 :, i]])
            wanted = wanted @ (np.eye(5) - scale * np.outer(v, v.conj()))
        found = L.householder_product(td.tensor(vectors), td.tensor(tau)).numpy()
        np.testing.assert_allclose(found, wanted[:, :3], atol=1e-12)


SPD = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 2.0]])
GRADIENTS = {
    "lu": lambda x: sum((f * f * f).sum() for f in L.lu(x)[1:]),
    "lu_solve": lambda x: (L.lu_solve(*L.lu_factor(x), x * x) ** 2).sum(),
    "cholesky_solve": lambda x: (L.cholesky_solve(x, L.cholesky(x @ x.T)) ** 2).sum(),
    "householder_product": lambda x: (L.householder_product(x, x[0, :2]) ** 3).sum(),
    "cond": lambda x: L.cond(x, 1) + L.cond(x),
    "pinv": lambda x: (L.pinv(x[:, :2]) ** 2).sum(),
    "lstsq": lambda x: (L.lstsq(x[:2], x[:2, 0]) ** 2).sum(),
    "kron": lambda x: (L.kron(x, x[:2]) ** 2).sum(),
    "vander": lambda x: (L.vander(x) ** 2).sum(),
    "qr complete": lambda x: sum((f * f * f).sum() for f in L.qr(x)),
    "expm": lambda x: L.expm(x / 4).sum(),
    "norms": lambda x: L.norm(x, "nuc") + L.norm(x, 2) + L.norm(x) + L.matrix_norm(x, 1) + L.vector_norm(x, 3),
    "slogdet": lambda x: L.slogdet(x)[1],
    "tensorsolve": lambda x: (L.tensorsolve(x.reshape(3, 1, 3), x[:, :1]) ** 2).sum(),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_by_central_differences(name):
    f = GRADIENTS[name]
    x = SPD + np.array([[0.3, -0.2, 0.1], [0.4, 0.1, -0.3], [-0.1, 0.2, 0.25]])
    v = RNG.standard_normal(x.shape)
    slope = (td.grad(f)(td.tensor(x)).numpy() * v).sum()
    h = 1e-5
    wanted = (f(td.tensor(x + h * v)).item() - f(td.tensor(x - h * v)).item()) / (2 * h)
    np.testing.assert_allclose(slope, wanted, rtol=2e-7, atol=1e-8)


def test_gradient_of_tall_lu():
    f = lambda x: sum((f * f * f).sum() for f in L.lu(x)[1:])
    v = RNG.standard_normal(TALL.shape)
    slope = (td.grad(f)(td.tensor(TALL)).numpy() * v).sum()
    wanted = (f(td.tensor(TALL + 1e-6 * v)).item() - f(td.tensor(TALL - 1e-6 * v)).item()) / 2e-6
    np.testing.assert_allclose(slope, wanted, rtol=1e-6)


def test_the_norm_of_zero_has_a_gradient():
    assert (td.grad(lambda x: L.norm(x))(td.zeros(3)).numpy() == 0).all()


def test_one_vmapped_factor_per_lane():
    found = td.vmap(lambda x: L.kron(x, x) @ L.kron(L.inv(x), L.inv(x)))(td.tensor(MANY)).numpy()
    np.testing.assert_allclose(found, np.broadcast_to(np.eye(9), (2, 9, 9)), atol=1e-10)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: L.lu(td.ones(3)), "E0180"),
        (lambda: L.qr(td.ones((2, 2)), mode="raw"), "E0103"),
        (lambda: L.eigh(td.ones((2, 2)), UPLO="X"), "E0103"),
        (lambda: L.householder_product(td.ones((2, 3)), td.ones(2)), "E0180"),
        (lambda: L.tensorsolve(td.ones((2, 3)), td.ones(2)), "E0180"),
        (lambda: L.tensorinv(td.ones((2, 3)), 1), "E0180"),
        (lambda: L.tensorinv(td.ones((2, 2)), 0), "E0103"),
        (lambda: L.vander(td.tensor(1.0)), "E0107"),
        (lambda: L.vander(td.ones(2), -1), "E0109"),
        (lambda: L.cholesky_solve(td.ones((3, 1)), td.ones((2, 2))), "E0180"),
        (lambda: L.cond(td.ones((2, 3)), 1), "E0180"),
    ],
)
def test_mistakes(call, code):
    with pytest.raises(td.UserError) as caught:
        call()
    assert caught.value.code == code, caught.value
