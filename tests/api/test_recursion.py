"""Python functions that call themselves where tensors decide: compiled as one loop, with gradients, equal to eager."""

import numpy as np
import pytest

import treadle as td
from treadle import driver, nn
from treadle.base.errors import UserError


def t(value, dtype="i4"):
    return td.Tensor(np.asarray(value, dtype))


def close(a, b, rtol=1e-6):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=rtol)


# ----------------------------------------------------------------------------------------------------------- Tree-LSTM
D, H, SIZE = 3, 4, 16


def node(i, left, right, x, w, u, b):
    """h and c of node i of a binary tree: Tai, Socher & Manning 2015, in its N-ary form."""
    if left[i] < 0:
        leaf = x[i] @ w + b[: 3 * H]
        start = td.sigmoid(leaf[:H]) * td.tanh(leaf[H : 2 * H])
        return td.sigmoid(leaf[2 * H : 3 * H]) * td.tanh(start), start
    hl, cl = node(left[i], left, right, x, w, u, b)
    hr, cr = node(right[i], left, right, x, w, u, b)
    z = td.concatenate([hl, hr], axis=0) @ u + b
    kept = td.sigmoid(z[3 * H : 4 * H]) * cl + td.sigmoid(z[4 * H :]) * cr
    c = td.sigmoid(z[:H]) * td.tanh(z[H : 2 * H]) + kept
    return td.sigmoid(z[2 * H : 3 * H]) * td.tanh(c), c


def loss(w, u, b, i, left, right, x):
    h, c = node(i, left, right, x, w, u, b)
    return (h * h + c).sum()


def tree(seed, leaves):
    """A random binary tree: its root, children by index (-1 at leaves), inputs."""
    rng = np.random.default_rng(seed)
    children, open_ = [(-1, -1)] * leaves, list(range(leaves))
    while len(open_) > 1:
        children.append((open_.pop(rng.integers(len(open_))), open_.pop(rng.integers(len(open_)))))
        open_.append(len(children) - 1)
    sides = np.full((2, SIZE), -1, np.int32)
    sides[:, : len(children)] = np.transpose(children)
    return [t(len(children) - 1), t(sides[0]), t(sides[1]), t(rng.normal(size=(SIZE, D)), "f8")]


def weights():
    rng = np.random.default_rng(0)
    return [t(rng.normal(size=s) * 0.5, "f8") for s in ((D, 3 * H), (2 * H, 5 * H), (5 * H,))]


def test_one_program_for_trees_of_all_shapes(monkeypatch):
    compiled = []
    real = driver.compile_module
    monkeypatch.setattr(driver, "compile_module", lambda *a, **k: compiled.append(1) or real(*a, **k))
    step = td.value_and_grad(loss, wrt=(0, 1, 2))
    jitted = td.jit(step)
    given = weights()
    trees = [tree(seed, leaves) for seed, leaves in enumerate((1, 2, 3, 5, 8, 8))]
    found = [jitted(*given, *one) for one in trees]
    assert len(compiled) == 1
    for one, (value, grads) in zip(trees, found):
        wanted, slopes = step(*given, *one)
        close(value, wanted, 1e-10)
        for a, b in zip(grads, slopes, strict=True):
            close(a, b, 1e-10)


# ------------------------------------------------------------------------------------------------------ small functions
def power(x, n):
    if n == 0:
        return x * 0 + 1
    half = power(x, n // 2)
    if n % 2 == 1:
        return half * half * x
    return half * half


def test_derivatives_of_a_power():
    x, n = t(1.1, "f8"), t(13)

    def all_(x, n):
        slope = td.grad(power)(x, n)
        _, pushed = td.jvp(power, (x, n), (td.ones_like(x), None))
        return power(x, n), slope, pushed, td.grad(td.grad(power))(x, n)

    want = [1.1**13, 13 * 1.1**12, 13 * 1.1**12, 13 * 12 * 1.1**11]
    for a, b in zip(td.jit(all_)(x, n), want, strict=True):
        close(a, b, 1e-10)


def test_a_batch_of_powers():
    x, n = t([1.1, 0.5, 2.0, 3.0], "f8"), t([13, 2, 0, 3])
    value, slope = td.jit(td.vmap(td.value_and_grad(power)))(x, n)
    close(value, x.numpy() ** n.numpy(), 1e-10)
    close(slope, n.numpy() * x.numpy() ** (n.numpy() - 1.0), 1e-10)


def even(n):
    if n == 0:
        return True
    return odd(n - 1)


def odd(n):
    if n == 0:
        return False
    return even(n - 1)


def test_functions_that_call_each_other():
    both = td.jit(lambda n: (even(n), odd(n)))
    assert [bool(x) for x in both(t(10))] == [True, False]
    assert [bool(x) for x in both(t(7))] == [False, True]
    assert bool(both(t(100_001))[1]), "tail calls have no depth"


def ackermann(m, n):
    if m == 0:
        return n + 1
    if n == 0:
        return ackermann(m - 1, 1)
    return ackermann(m - 1, ackermann(m, n - 1))


def test_ackermann():
    assert int(td.jit(ackermann)(td.Tensor(2), td.Tensor(3))) == 9


def sums(n, x):
    """A recursion with another one inside, whose argument is a third."""
    if n <= 0:
        return x
    return power(x, n) + sums(n - 1, power(x, n - 1) * 0.5)


def test_recursion_inside_recursion():
    given = t(1.1, "f8"), t(4)
    both = td.value_and_grad(lambda x, n: sums(n, x))
    for a, b in zip(td.jit(both)(*given), both(*given), strict=True):
        close(a, b, 1e-10)


def in_a_loop(n):
    s = n
    for _ in range(2):
        if n > 0:
            s = s + in_a_loop(n - 1)
    return s


def test_calls_in_a_loop():
    jitted = td.jit(in_a_loop)
    for n in (0, 1, 4):
        assert int(jitted(td.Tensor(n))) == int(in_a_loop(td.Tensor(n)))


def count_down(n):
    if n <= 0:
        return n
    print("down", n)
    below = count_down(n - 1)
    print("up", n)
    return below + 1


def test_prints_come_in_order(capsys):
    count_down(td.Tensor(3))
    wanted = capsys.readouterr().out
    assert int(td.jit(count_down)(td.Tensor(3))) == 3
    assert capsys.readouterr().out == wanted


class Down(nn.Cell):
    """A layer applied n times, by recursion."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x, n):
        if n <= 0:
            return x
        return td.tanh(self.layer(self.forward(x, n - 1))) + x


def test_parameters_of_a_cell():
    td.manual_seed(1)
    net, x = Down(), t(np.linspace(-1, 1, 6).reshape(2, 3), "f4")

    def step(x, n):
        return td.value_and_grad(lambda: net(x, n).sum(), wrt=net.parameters())()

    jitted = td.jit(step)
    for n in (0, 3):
        (value, grads), (wanted, slopes) = jitted(x, t(n)), step(x, t(n))
        close(value, wanted, 1e-5)
        for a, b in zip(grads, slopes, strict=True):
            close(a, b, 1e-5)


def factorial(n):
    if n <= 1:
        return n * 0 + 1
    return n * factorial(n - 1)


def test_too_deep_is_an_error():
    jitted = td.jit(factorial)
    assert int(jitted(td.Tensor(20))) == 2432902008176640000
    with pytest.raises(UserError, match=r"E0312.*factorial called itself more than 1024 deep"):
        int(jitted(td.Tensor(2000)))
    assert int(jitted(td.Tensor(1))) == 1


def total(i, first, after, v):
    """A tree whose nodes have any number of children: the recursion ends where a loop makes no trip."""
    s = td.sin(v[i])
    child = first[i]
    while child >= 0:
        s = s + total(child, first, after, v) * v[i]
        child = after[child]
    return s


def test_any_number_of_children():
    jitted = td.jit(td.value_and_grad(total, 3))
    for first, after in (
        ([1, 3, -1, -1, -1], [-1, 2, -1, 4, -1]),
        ([1, -1, -1, -1, -1], [-1, 2, 3, 4, -1]),
        ([-1] * 5, [-1] * 5),
    ):
        given = t(0), t(first), t(after), t([0.1, 0.7, 0.3, 0.4, 0.5], "f8")
        value, slope = jitted(*given)
        wanted, slopes = td.value_and_grad(total, 3)(*given)
        close(value, wanted, 1e-10)
        close(slope, slopes, 1e-10)


OUTSIDE = t([2.0, 3.0, 4.0], "f8")


def scaled(n, x):
    inside = td.tensor([1.0, 2.0, 3.0], dtype="float64")
    if n <= 0:
        return x * inside
    return scaled(n - 1, x * 0.5) * OUTSIDE + td.tensor([0.5, 0.25, 1.0], dtype="float64")


def test_tensors_made_inside_and_read_from_outside():
    def step(n, x):
        return td.value_and_grad(lambda: scaled(n, x).sum(), [OUTSIDE])()

    given = t(3), t([1.0, 1.5, -2.0], "f8")
    (value, (slope,)), (wanted, (slopes,)) = td.jit(step)(*given), step(*given)
    close(value, wanted, 1e-10)
    close(slope, slopes, 1e-10)


def growing(n, x):
    if n <= 0:
        return [x]
    return [*growing(n - 1, x), x]


def test_a_result_of_changing_form_is_refused():
    with pytest.raises(UserError, match=r"E0244|E0221"):
        td.jit(growing)(td.Tensor(2), t(1.0, "f4"))
