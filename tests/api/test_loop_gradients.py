"""Derivatives through Python's own loops, compiled: trip counts that data decides (none, one, many, more than are
kept), break and continue, closures over parameters, nesting; beside closed forms and central differences, float64."""

import numpy as np
import pytest

import treadle as td

W = td.tensor(np.array([0.9, 1.1]))


def newton(a):
    """sqrt(a) until it is exact enough: the derivative is 1 / (2 sqrt(a))."""
    x = a * 1.0
    while abs(x * x - a) > 1e-14 * a:
        x = (x + a / x) / 2
    return x


def collatz_like(x):
    """Grows or shrinks by what it is; a counter decides with it."""
    n = 0
    while x > 1 and n < 9:
        if x > 3:
            x = x / 2.5
        else:
            x = x * x / 2 - 0.4 * x
        n += 1
    return x


def broken(x):
    total = x * 0.0
    n = 0
    while True:
        n += 1
        if n % 3 == 0:
            continue
        total = total + td.sin(x * n) * W.sum()
        if total > 3 or n > 7:
            break
    return total * x


def triangle(x):
    """A loop in a loop whose length is the outer counter's and the data's."""
    total = x * 0.0
    i = 0
    while total < 4 and i < 5:
        j = 0
        y = x
        while j < i and y < 2:
            y = y * 1.2 + x * 0.1
            j += 1
        total = total + y * y
        i += 1
    return total


def closure(x):
    """Parameters from outside, read in a loop that ends by them."""
    h = x
    while (h * W).sum() < 5:
        h = h * W + x
    return (h * h).sum()


CASES = [
    (newton, [0.2, 2.0, 50.0]),
    (collatz_like, [0.5, 2.1, 2.9, 20.0]),
    (broken, [0.3, 0.8, 1.9]),
    (triangle, [0.11, 0.9, 3.0]),
]


@pytest.mark.parametrize("f, points", CASES, ids=lambda v: getattr(v, "__name__", ""))
def test_first_and_second_order_beside_differences(f, points):
    """One compiled program for all points, whose loops take other trips at each."""
    first, forward = td.grad(f), lambda x: td.jvp(f, (x,), (td.ones_like(x),))[1]
    run = td.jit(lambda x: (f(x), first(x), td.grad(first)(x), forward(x)))
    h = 1e-4
    for x in points:
        _, slope, bend, pushed = [y.item() for y in run(np.array(x))]
        values = [run(np.array(x + s * h)) for s in (-2, -1, 1, 2)]
        for order, found in ((0, slope), (1, bend)):
            a, b, c, d = [v[order].item() for v in values]
            wanted = (8 * (c - b) - (d - a)) / (12 * h)
            assert found == pytest.approx(wanted, rel=1e-6, abs=1e-7), (x, order)
        assert pushed == pytest.approx(slope, rel=1e-12)
    assert len(run.programs()) == 1


def test_newton_in_closed_form():
    run = td.jit(lambda a: (td.grad(newton)(a), td.grad(td.grad(newton))(a)))
    for a in (0.2, 2.0, 50.0):
        first, second = run(np.array(a))
        assert first.item() == pytest.approx(0.5 / a**0.5, rel=1e-7)
        assert second.item() == pytest.approx(-0.25 / a**1.5, rel=1e-4)


def test_parameters_of_a_closure():
    report = td.check_gradients(td.jit(closure), np.array([0.5, 0.3]), wrt=[W], order=1)
    assert report.largest_error < 1e-8
    assert td.check_gradients(closure, np.array([0.5, 0.3]), wrt=[W], directions=1).largest_error < 1e-8


@pytest.mark.parametrize("capacity", [1, 4, 16])
def test_powers_in_closed_form(capacity):
    """x**n by a loop of n trips beside n x**(n-1) and n (n-1) x**(n-2), within the capacity and beyond."""

    def power(x, n):
        start = (td.zeros((), dtype=td.int32), td.ones(()).double())
        return td.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * x), start, capacity=capacity)[1]

    first = td.grad(power)
    run = td.jit(lambda x, n: (power(x, n), first(x, n), td.grad(first)(x, n)))
    for n in (0, 1, 2, 3, 4, 5, 9, 17):
        x = 1.1
        value, slope, bend = [y.item() for y in run(np.array(x), np.int32(n))]
        assert value == pytest.approx(x**n, rel=1e-12)
        assert slope == pytest.approx(n * x ** (n - 1), rel=1e-12)
        assert bend == pytest.approx(n * (n - 1) * x ** (n - 2), rel=1e-12)


@pytest.mark.parametrize("capacity", [1, 4])
def test_recurrence_in_closed_form(capacity):
    """y -> exp(y * x) reads its carry before (x's gradient) and after the trip (exp's): dy' = y' (x dy + y dx)."""

    def tower(x, n):
        start = (td.zeros((), dtype=td.int32), td.ones(()).double())
        return td.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, td.exp(s[1] * x)), start, capacity=capacity)[1]

    run = td.jit(td.value_and_grad(tower))
    x = 0.3
    for n in range(10):
        y, slope = 1.0, 0.0
        for _ in range(n):
            new = np.exp(y * x)
            y, slope = new, new * (x * slope + y)
        value, found = run(np.array(x), np.int32(n))
        assert value.item() == pytest.approx(y, rel=1e-12)
        assert found.item() == pytest.approx(slope, rel=1e-11)


def test_what_a_carry_is_before_and_after_a_trip_is_kept_once():
    """The state of a recurrent loop is read before and after each trip; a stack holds it once."""
    x = td.tensor(np.ones(1024, np.float32))

    def loss(w):
        start = (td.zeros((), dtype=td.int32), x)
        step = lambda s: (s[0] + 1, td.tanh(s[1] * w))
        return td.while_loop(lambda s: s[0] < 200, step, start, capacity=256)[1].sum()

    gradient = td.jit(td.grad(loss))
    gradient(x)
    stack = 256 * 4 * 1024
    assert stack <= gradient.programs()[0].executable.memory().temporaries < 1.2 * stack
