"""Derivatives to order 8 beside Taylor coefficients that are known in closed form, in float64."""

import math

import numpy as np
import pytest

import treadle as td
from treadle import driver
from treadle.ir import interp

ORDER = 8
PLACE = 0.7


def product(a, b):
    """Coefficients of the product of two power series."""
    return np.convolve(a, b)[: len(a)]


def composed(f, g):
    """Coefficients of f(g(x)), g without its constant term (which f's are at)."""
    inner = np.array([0.0, *g[1:]])
    power, total = np.eye(len(g))[0], np.zeros(len(g))
    for c in f:
        total, power = total + c * power, product(power, inner)
    return total


def exp_at(a):
    return np.array([math.exp(a) / math.factorial(k) for k in range(ORDER + 1)])


def sin_at(a, shift=0):
    cycle = [math.sin(a), math.cos(a), -math.sin(a), -math.cos(a)]
    return np.array([cycle[(k + shift) % 4] / math.factorial(k) for k in range(ORDER + 1)])


def log_at(a):
    return np.array([math.log(a), *[(-1) ** (k + 1) / (k * a**k) for k in range(1, ORDER + 1)]])


def power_at(a, p):
    return np.array([math.prod((p - j) / (j + 1) for j in range(k)) * a ** (p - k) for k in range(ORDER + 1)])


def integral(derivative, first):
    """Coefficients of a function, given those of its derivative and its value."""
    return np.array([first, *[derivative[k - 1] / k for k in range(1, ORDER + 1)]])


def erf_at(a):
    """erf' = 2/sqrt(pi) exp(-x^2), by composing with -(a + h)^2 = -a^2 - 2ah - h^2."""
    square = np.zeros(ORDER + 1)
    square[:3] = -a * a, -2 * a, -1
    return integral(2 / math.sqrt(math.pi) * composed(exp_at(-a * a), square), math.erf(a))


def tanh_at(a):
    """y' = 1 - y^2, coefficient by coefficient."""
    y = np.zeros(ORDER + 1)
    y[0] = math.tanh(a)
    for k in range(ORDER):
        y[k + 1] = ((k == 0) - sum(y[j] * y[k - j] for j in range(k + 1))) / (k + 1)
    return y


def sigmoid_at(a):
    half = np.array([0.5**k for k in range(ORDER + 1)])
    return 0.5 * (tanh_at(a / 2) * half + np.eye(ORDER + 1)[0])


FUNCTIONS = {
    "exp": (td.exp, exp_at),
    "sin": (td.sin, sin_at),
    "cos": (td.cos, lambda a: sin_at(a, 1)),
    "log": (td.log, log_at),
    "tanh": (td.tanh, tanh_at),
    "sigmoid": (td.sigmoid, sigmoid_at),
    "x**2.5": (lambda x: x**2.5, lambda a: power_at(a, 2.5)),
    "x**3": (lambda x: x**3, lambda a: power_at(a, 3)),
    "1/x": (lambda x: 1 / x, lambda a: power_at(a, -1)),
    "sqrt": (td.sqrt, lambda a: power_at(a, 0.5)),
    "rsqrt": (td.rsqrt, lambda a: power_at(a, -0.5)),
    "erf": (td.erf, erf_at),
    "exp(sin(x))": (lambda x: td.exp(td.sin(x)), lambda a: composed(exp_at(math.sin(a)), sin_at(a))),
    "sin(x)/x": (lambda x: td.sin(x) / x, lambda a: product(sin_at(a), power_at(a, -1))),
    "log(cosh)": (lambda x: td.log(td.cosh(x)), lambda a: integral(tanh_at(a), math.log(math.cosh(a)))),
}


def repeated(step, f, order):
    for _ in range(order):
        f = step(f)
    return f


def tangent(f):
    return lambda x: td.jvp(f, (x,), (td.ones_like(x),))[1]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_forward_mode_to_order_8(name):
    """All derivatives, nested forward mode, in one program."""
    f, coefficients = FUNCTIONS[name]
    check(lambda x: [repeated(tangent, f, k)(x) for k in range(ORDER + 1)], coefficients)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_reverse_mode_to_order_8(name):
    f, coefficients = FUNCTIONS[name]
    check(lambda x: [repeated(td.grad, f, k)(x) for k in range(ORDER + 1)], coefficients)


def test_forward_over_reverse_and_reverse_over_forward():
    f, coefficients = FUNCTIONS["exp(sin(x))"]
    mixed = lambda k: repeated(tangent, repeated(td.grad, f, k), k)
    check(lambda x: [f(x), td.grad(f)(x), mixed(1)(x), tangent(mixed(1))(x), mixed(2)(x)], coefficients)
    turned = lambda k: repeated(td.grad, repeated(tangent, f, k), k)
    check(lambda x: [f(x), tangent(f)(x), turned(1)(x), td.grad(turned(1))(x), turned(2)(x)], coefficients)


def test_order_8_compiled():
    f, coefficients = FUNCTIONS["tanh"]
    found = td.jit(lambda x: [repeated(td.grad, f, k)(x) for k in range(ORDER + 1)])(np.array(PLACE))
    compare(np.array([y.item() for y in found]), coefficients)


def test_each_order_adds_nodes_and_does_not_multiply_them():
    for step in (td.grad, tangent):
        sizes = [len(td.trace_module(repeated(step, td.exp, k), np.array(PLACE)).main.nodes) for k in (4, 8)]
        assert sizes[1] < 3 * sizes[0]


def check(function, coefficients):
    """The function's results, run by the interpreter, are k! times the coefficients."""
    module = driver.optimise(td.trace_module(function, np.array(PLACE)), "cse,dce")
    compare(np.array([float(y) for y in interp.run(module, np.array(PLACE))]), coefficients)


def compare(found, coefficients):
    wanted = coefficients(PLACE) * [math.factorial(k) for k in range(ORDER + 1)]
    wanted = wanted[: len(found)]
    assert (np.abs(found - wanted) <= 1e-9 * np.maximum(np.abs(wanted), 1e-3)).all(), (found, wanted)
