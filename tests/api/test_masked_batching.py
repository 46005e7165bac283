"""`vmap` over decisions and loops whose course differs between lanes: values, derivatives of both orders, and how often
bodies run, beside a Python loop over the lanes."""

import re

import numpy as np
import pytest

import treadle as td

STARTS = np.array([0.43, 5.1, -0.83, 1.63, 2.91])


def zero():
    return td.zeros((), dtype=td.int32)


def halve(x):
    """While x > 1: x = x * x / (x + 2); from 0 to 6 trips."""
    return td.while_loop(lambda x: x > 1, lambda x: x * x / (x + 2), x)


def halve_count(x):
    """The same by Python's own while, with its count."""
    n = 0
    while x > 1:
        x = x * x / (x + 2)
        n += 1
    return x * n + x


def nested(x):
    """A loop of data-dependent length in a loop of data-dependent length, around a branch."""

    def outer(s):
        i, y = s
        inner = td.while_loop(lambda t: t[0] < i, lambda t: (t[0] + 1, t[1] * 0.9 + td.sin(x)), (zero(), y))[1]
        return i + 1, td.cond(inner > 1, lambda: inner / x, lambda: inner + x * x)

    return td.while_loop(lambda s: (s[0] < 4) & (s[1] < 2), outer, (zero(), x))[1]


def breaking(x):
    """break, continue and else in Python's loops."""
    total = x * 0.0
    for i in range(6):
        if x * i > 6:
            break
        if (x * i) % 2 > 1:
            continue
        total = total + td.sin(x * i)
    else:
        total = total * 2
    return total + x


def branches(x):
    if x < 0:
        return td.exp(x)
    elif x < 2:
        return x**3
    return td.log(x)


FUNCTIONS = [halve, halve_count, nested, breaking, branches]


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_lanes_are_what_they_are_alone(f):
    def both(x):
        return *td.value_and_grad(f)(x), td.jvp(f, (x,), (td.ones_like(x),))[1]

    alone, together = td.jit(both), td.jit(td.vmap(both))
    found = together(STARTS)
    for i, x in enumerate(STARTS):
        for a, b in zip(found, alone(x), strict=True):
            np.testing.assert_allclose(a.numpy()[i], b.numpy(), rtol=1e-10, atol=1e-12)
        h = 1e-6
        slope = (f(td.tensor(x + h)).item() - f(td.tensor(x - h)).item()) / (2 * h)
        np.testing.assert_allclose(found[1].numpy()[i], slope, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("f", [halve, branches], ids=lambda f: f.__name__)
def test_second_derivatives_of_lanes(f):
    second = td.grad(lambda x: td.grad(f)(x) ** 2)
    alone, found = td.jit(second), td.jit(td.vmap(second))(STARTS)
    np.testing.assert_allclose(found.numpy(), [alone(x).item() for x in STARTS], rtol=1e-10)


def test_lanes_in_lanes():
    grid = STARTS[:4].reshape(2, 2)
    both = td.jit(td.vmap(td.vmap(td.grad(halve))))(grid)
    np.testing.assert_allclose(both.numpy().ravel(), td.vmap(td.grad(halve))(grid.ravel()).numpy(), rtol=1e-12)


def test_gradients_through_lanes():
    """grad of vmap, by what lanes have and by what they share."""

    def loss(scale, xs):
        run = lambda x: td.while_loop(lambda y: y < 10, lambda y: y * scale, x)
        return td.vmap(run)(xs).sum()

    scale, xs = td.tensor(np.array(1.5)), td.tensor(np.array([1.0, 4.0, 20.0]))
    by_scale, by_xs = td.jit(td.grad(loss, (0, 1)))(scale, xs)
    trips = np.array([6, 3, 0])
    np.testing.assert_allclose(by_xs.numpy(), 1.5**trips, rtol=1e-12)
    np.testing.assert_allclose(by_scale.item(), (xs.numpy() * trips * 1.5 ** (trips - 1)).sum(), rtol=1e-12)


def test_a_lane_that_is_done_has_no_say():
    """What a finished lane would compute (a division by 0, a NaN) reaches neither values nor gradients."""

    def f(x):
        return td.while_loop(lambda y: y > 0.5, lambda y: y - 1 / td.sqrt(y - 0.5), x)

    xs = np.array([0.5, 0.2, 3.0])
    values, slopes = td.jit(td.vmap(td.value_and_grad(f)))(xs)
    assert np.isfinite(values.numpy()).all()
    assert slopes.numpy()[:2].tolist() == [1, 1]
    assert slopes.numpy()[2] == pytest.approx(td.grad(f)(td.tensor(np.array(3.0))).item(), rel=1e-12)


@pytest.mark.parametrize("wrap", [lambda f: f, td.jit], ids=["eager", "jit"])
def test_effects_happen_once_for_each_trip_of_each_lane(wrap, capsys):
    def f(x):
        def body(y):
            td.debug_print("at {}", y)
            return y - 1

        return td.while_loop(lambda y: y > 0, body, x)

    found = wrap(td.vmap(td.value_and_grad(f)))(np.array([2.0, -1.0, 3.0]))
    assert [x.tolist() for x in found] == [[0, -1, 0], [1, 1, 1]]
    printed = [float(x) for x in re.findall(r"at \D*(\d\.?\d*)", capsys.readouterr().out)]
    assert sorted(printed) == [1, 1, 2, 2, 3]


def test_no_lane_and_no_trip():
    assert td.vmap(td.grad(halve))(np.zeros(0)).shape == (0,)
    assert td.jit(td.vmap(td.grad(halve)))(np.array([0.5, -3.0])).tolist() == [1, 1]
