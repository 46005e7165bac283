"""`td.sparse` beside the same sums with dense NumPy arrays, eagerly, compiled and differentiated."""

import numpy as np
import pytest

import treadle as td

RNG = np.random.default_rng(2)


def some(*shape, dtype=np.float64, share=0.4):
    return (RNG.standard_normal(shape) * (RNG.random(shape) < share)).astype(dtype)


A = some(5, 4)
B = some(5, 4)
REPEATED = td.sparse.coo([[0, 2, 0, -1], [1, 1, 1, 3]], np.array([1.0, 2.0, 10.0, 4.0]), (5, 4))
REPEATED_DENSE = np.zeros((5, 4))
np.add.at(REPEATED_DENSE, ([0, 2, 0, 4], [1, 1, 1, 3]), [1.0, 2.0, 10.0, 4.0])


def layouts():
    """The same matrix in every form: (name, sparse, dense)."""
    t = td.tensor(A)
    yield "coo", td.sparse.from_dense(t), A
    yield "csr", td.sparse.from_dense(t, layout="csr"), A
    yield "with room", td.sparse.from_dense(t, nse=18), A
    yield "csr with room", td.sparse.from_dense(t, nse=18, layout="csr"), A
    yield "repeated", REPEATED, REPEATED_DENSE
    yield "repeated csr", REPEATED.to_csr(), REPEATED_DENSE
    yield "empty", td.sparse.from_dense(td.zeros((5, 4), dtype=td.float64)), np.zeros((5, 4))


FORMS = list(layouts())
every_form = pytest.mark.parametrize(("s", "x"), [f[1:] for f in FORMS], ids=[f[0] for f in FORMS])
close = lambda found, wanted: np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-12, atol=1e-12)


@every_form
def test_there_and_back(s, x):
    close(s.to_dense(), x)
    assert s.shape == (5, 4)
    assert s.dtype is td.float64
    close(s.to_coo().to_dense(), x)
    close(s.to_csr().to_dense(), x)
    close(s.to_coo().coalesce().to_dense(), x)
    assert str(s.nse) in repr(s)


@every_form
def test_products(s, x):
    for right in (RNG.standard_normal(4), RNG.standard_normal((4, 3)), RNG.standard_normal((2, 4, 3))):
        close(s @ td.tensor(right), x @ right)
        close(s @ right, x @ right)
        close(td.jit(lambda a, b: a @ b)(s, td.tensor(right)), x @ right)
    for left in (RNG.standard_normal(5), RNG.standard_normal((3, 5)), RNG.standard_normal((2, 3, 5))):
        close(td.tensor(left) @ s, left @ x)
        close(left @ s, left @ x)


@every_form
def test_elementwise(s, x):
    close((s * 3).to_dense(), x * 3)
    close((2 * s / 4).to_dense(), x / 2)
    close((-s).to_dense(), -x)
    for dense in (B + 2, B[:, :1] + 2, B[0] + 2):
        close((s * td.tensor(dense)).to_dense(), x * dense)
        close((dense * s).to_dense(), x * dense)
        close((s / dense).to_dense(), x / dense)
    close(s + td.tensor(B), x + B)
    close(B - s, B - x)
    for other in (td.sparse.from_dense(td.tensor(B), nse=19), REPEATED):
        y = other.to_dense().numpy()
        close((s + other).to_dense(), x + y)
        close((s - other).to_dense(), x - y)
        close((s * other).to_dense(), x * y)
        close((other * s).to_dense(), x * y)


@every_form
def test_sums_and_transposes(s, x):
    close(s.sum(), x.sum())
    close(s.sum(0), x.sum(0))
    close(s.sum(-1), x.sum(-1))
    close(s.T.to_dense(), x.T)
    close(s.T @ x, x.T @ x)
    assert s.astype(td.float32).dtype is td.float32


def test_more_axes():
    x, y = some(2, 3, 4), some(2, 3, 4)
    s = td.sparse.from_dense(td.tensor(x))
    close(s.to_dense(), x)
    close(s.sum((0, 2)), x.sum((0, 2)))
    close(s.transpose(2, 0, 1).to_dense(), x.transpose(2, 0, 1))
    close((s * y[:, :1]).to_dense(), x * y[:, :1])
    close((s + td.sparse.from_dense(td.tensor(y))).to_dense(), x + y)
    line = td.sparse.from_dense(td.tensor([0, 3, 0, 5]))
    assert line.to_dense().tolist() == [0, 3, 0, 5]
    assert line.sum().item() == 8


def test_repeated_elements_add_up_where_they_meet():
    s = REPEATED.coalesce()
    assert s.values.tolist() == [11.0, 2.0, 4.0, 0.0]
    assert s.indices.tolist() == [[0, 2, 4, 4], [1, 1, 3, 3]]


def test_csr_from_its_parts():
    s = td.sparse.csr([0, 1, 1, 3], [2, 0, -1], [1.0, 2.0, 3.0], (3, 4))
    close(s.to_dense(), [[0, 0, 1, 0], [0, 0, 0, 0], [2, 0, 0, 3]])
    close(td.sparse.identity(3) @ np.eye(3, dtype=np.float32), np.eye(3))


def test_complex_and_integers():
    z = some(3, 3) + 1j * some(3, 3)
    close(td.sparse.from_dense(td.tensor(z)) @ z, z @ z)
    n = td.sparse.from_dense(td.tensor([[0, 2], [3, 0]]))
    assert (n @ td.tensor([1, 10])).tolist() == [20, 3]


def test_in_and_out_of_jit():
    s = td.sparse.from_dense(td.tensor(A), layout="csr")
    double = td.jit(lambda a: (a * 2, a.sum()))
    made, total = double(s)
    assert isinstance(made, td.sparse.CSR)
    close(made.to_dense(), 2 * A)
    close(total, A.sum())
    close(td.jit(lambda x: td.sparse.from_dense(x, nse=20).T @ x)(td.tensor(A)), A.T @ A)


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_gradients(layout):
    s = td.sparse.from_dense(td.tensor(A), layout=layout)
    x, y = RNG.standard_normal((4, 3)), RNG.standard_normal((5, 3))

    def loss(values, x):
        return ((s.with_values(values) @ x - y) ** 2).sum() + (s.with_values(values) * B).sum()

    by_values, by_x = td.grad(loss, argnums=(0, 1))(s.values, td.tensor(x))
    rest = 2 * (A @ x - y)
    close(by_x, A.T @ rest)
    dense = rest @ x.T + B
    close(by_values, dense[A != 0])
    curve = td.grad(lambda v: td.grad(loss)(v, td.tensor(x)).sum())(s.values)
    wanted = 2 * ((A != 0) @ (x @ x.T))[A != 0]
    close(curve, wanted)


def test_product_at_some_places():
    s = td.sparse.from_dense(td.tensor(A), layout="csr")
    x, y = RNG.standard_normal((5, 3)), RNG.standard_normal((3, 4))
    close(td.sparse.sampled_matmul(s, x, y).to_dense(), (x @ y) * (A != 0))


def test_a_vmapped_product():
    s = td.sparse.from_dense(td.tensor(A))
    many = RNG.standard_normal((3, 4))
    close(td.vmap(lambda v: s @ v)(td.tensor(many)), many @ A.T)


S = FORMS[0][1]


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: td.sparse.coo([[0, 1]], [1.0, 2.0], (2, 2)), "E0103"),
        (lambda: td.sparse.coo([[0, 1], [0]], [1.0, 2.0], (2, 2)), "E0103"),
        (lambda: td.sparse.coo([[0, 2], [0, 0]], [1.0, 2.0], (2, 2)), "E0506"),
        (lambda: td.sparse.coo([[0.5], [0]], [1.0], (2, 2)), "E0138"),
        (lambda: td.sparse.csr([0, 2, 1], [0], [1.0], (2, 2)), "E0506"),
        (lambda: td.sparse.csr([0, 1, 0], [0], [1.0], (2, 2)), "E0103"),
        (lambda: td.sparse.csr([0, 1], [0], [1.0], (1, 2, 3)), "E0103"),
        (lambda: td.sparse.from_dense(td.tensor(1.0)), "E0107"),
        (lambda: td.sparse.from_dense(td.ones(2), layout="csc"), "E0103"),
        (lambda: td.jit(lambda x: td.sparse.from_dense(x).sum())(td.ones(3)), "E0507"),
        (lambda: S @ td.ones(5), "E0114"),
        (lambda: td.ones(4) @ S, "E0114"),
        (lambda: S @ S.T, "E0114"),
        (lambda: S + S.T, "E0108"),
        (lambda: S * S.T, "E0108"),
        (lambda: S * td.ones(5), "E0108"),
        (lambda: S / S, "E0103"),
        (lambda: bool(S), "E0103"),
        (lambda: S.with_values(td.ones(1)), "E0103"),
        (lambda: S.transpose(0, 0), "E0113"),
        (lambda: td.sparse.sampled_matmul(S, td.ones((2, 2)), td.ones((2, 2))), "E0114"),
        (lambda: td.sparse.from_dense(td.ones((2, 2, 2))).to_csr(), "E0103"),
    ],
)
def test_mistakes(call, code):
    with pytest.raises(td.UserError) as caught:
        call()
    assert caught.value.code == code, caught.value
