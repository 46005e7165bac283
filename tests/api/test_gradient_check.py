"""`td.check_gradients`: right derivatives pass, each kind of wrong one is found and named."""

import re

import numpy as np
import pytest

import treadle as td
from treadle import UserError


def points(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


@td.custom_gradient
def slope_off(x):
    """Squares whose gradient is wrong in the last element."""
    factor = td.tensor(np.array([2.0, 2.0, 2.5]))
    return x * x, lambda d: d * factor * x


def test_containers_numbers_and_integers():
    def f(p, k, scale):
        return {"a": td.sin(p["w"] @ p["b"][0]) * scale, "n": td.argmax(p["w"]), "k": k * td.exp(p["b"][0])}

    args = {"w": points(2, 3), "b": (points(3, seed=1),)}, td.tensor([2, 3, 4]), 1.5
    report = td.check_gradients(f, *args)
    assert len(report.rows) == 8
    assert report.largest_error < 1e-9
    assert "order 2 by reverse, forward" in str(report)


def test_parameters_are_checked_in_double_and_come_back():
    net = td.nn.Sequential(td.nn.Linear(3, 4), td.nn.Tanh(), td.nn.Linear(4, 1))
    params, x = list(net.parameters()), points(2, 3).astype(np.float32)
    before = [p.numpy() for p in params]
    report = td.check_gradients(lambda x: net(x).square().mean(), x, wrt=params, directions=1)
    assert report.largest_error < 1e-9
    for p, old in zip(params, before, strict=True):
        assert p.dtype is td.float32
        assert np.array_equal(p.numpy(), old)
    compiled = td.jit(lambda x: net(x).square().mean())
    assert td.check_gradients(compiled, x, wrt=params, directions=1, order=1).largest_error < 1e-9


def test_complex_arguments_and_results():
    z = points(2) + 1j * points(2, seed=1)
    td.check_gradients(lambda z, x: (td.exp(z * x), td.abs(z)), z, points(2, seed=2))


def test_loops_and_branches():
    def f(x):
        go, step = lambda s: s[0] < 4, lambda s: (s[0] + 1, td.cond(s[1] > 0, lambda: s[1] * x, lambda: td.sin(x)))
        return td.while_loop(go, step, (td.tensor(0), x))[1]

    td.check_gradients(f, np.array(0.7), directions=1)


def test_third_order_of_one_mode():
    report = td.check_gradients(lambda x: x**5, np.array(1.2), order=3, modes=["reverse"], directions=1)
    assert [row[:2] for row in report.rows] == [(1, "reverse"), (2, "reverse"), (3, "reverse")]


def test_a_wrong_gradient_is_named():
    x = np.array([1.0, 2.0, 3.0])
    with pytest.raises(UserError, match="E0321") as caught:
        td.check_gradients(lambda p: slope_off(p["x"] + 0.0).sum(), {"x": x}, modes=["reverse"])
    text = str(caught.value)
    assert "order 1 by argument 0['x'], element (2,)" in text
    found, wanted = map(float, re.search(r"is (\S+) by reverse mode, (\S+) by", text).groups())
    assert found / wanted == pytest.approx(2.5 / 2)


def test_a_wrong_gradient_of_a_parameter_is_named():
    w = td.tensor(np.array([1.0, 2.0, 3.0], np.float32))
    with pytest.raises(UserError, match=r"E0321(.|\n)*wrt\[0\], element \(2,\)"):
        td.check_gradients(lambda: slope_off(w).sum(), wrt=[w], order=1)
    assert w.tolist() == [1, 2, 3]
    assert w.dtype is td.float32


def test_a_wrong_second_derivative_is_found():
    """The gradient is right and says that it has no derivative."""

    @td.custom_gradient
    def square(x):
        return x * x, lambda d: d * 2 * td.stop_gradient(x)

    td.check_gradients(square, np.array(2.0), order=1, modes=["reverse"])
    with pytest.raises(UserError, match=r"E0321(.|\n)*order 2 by argument 0 "):
        td.check_gradients(square, np.array(2.0), modes=["reverse"])


@pytest.mark.parametrize(
    "call",
    [
        lambda: td.check_gradients(lambda x: x, td.tensor([1, 2])),
        lambda: td.check_gradients(lambda x: td.argmax(x), np.ones(2)),
        lambda: td.check_gradients(lambda x: x, np.ones(2), modes=["sideways"]),
        lambda: td.check_gradients(lambda x: x, np.ones(2), order=0),
        lambda: td.check_gradients(lambda x: x, np.ones(2), wrt=[td.tensor([1])]),
    ],
)
def test_wrong_use(call):
    with pytest.raises(UserError, match="E0321"):
        call()
