"""docs/tiny.py says what Treadle does, in one file: both give the same numbers, gradients and second gradients."""

import importlib.util
import inspect
import sys
from pathlib import Path

import numpy as np
import pytest

import treadle as td
from treadle.ir import interp
from treadle.transforms.grad import value_and_vjp

FILE = Path(__file__).resolve().parents[1] / "docs" / "tiny.py"


def load():
    spec = importlib.util.spec_from_file_location("tiny", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["tiny"] = module
    spec.loader.exec_module(module)
    return module


tiny = load()


class Real:
    """The names of tiny.py, in Treadle."""

    tanh, exp, sin, cos, total, transpose = td.tanh, td.exp, td.sin, td.cos, td.sum, td.transpose


def product(of, x, w):
    return of.total(of.tanh(x @ w))


def curve(of, x):
    y = x * 2.0 - 1.0
    return of.total(of.sin(y) * of.exp(-1.0 * y) + 3.0 * y + (2.0 - of.cos(x)))


def reused(of, x, w):
    y = x @ w
    return of.total(y * y + y) * 1.0


def one_of_two(of, x, w):
    return of.total(-x) + 0.5 * of.total(of.exp(x) * x)


def power(of, x):
    y = x
    for _ in range(5):
        y = y * x
    return of.total(y)


FUNCTIONS = [product, curve, reused, one_of_two, power]


def arguments(function):
    rng = np.random.default_rng(0)
    shapes = {"x": (2, 3), "w": (3, 4)}
    return [rng.normal(size=shapes[name]) for name in list(inspect.signature(function).parameters)[1:]]


def programs(function):
    """The arguments, tiny's program and Treadle's, both in float64."""
    arrays = arguments(function)
    small = tiny.trace(lambda *xs: function(tiny, *xs), *[tiny.Type(a.shape) for a in arrays])
    real = td.trace_module(lambda *xs: function(Real, *xs), *[td.tensor(a) for a in arrays])
    return arrays, small, real


@pytest.mark.parametrize("function", FUNCTIONS)
def test_numbers_are_equal(function):
    arrays, small, real = programs(function)
    np.testing.assert_allclose(tiny.run(small, *arrays), interp.run(real, *arrays), rtol=1e-13)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_gradients_are_equal(function):
    arrays, small, real = programs(function)
    joint = value_and_vjp(real.main, range(len(arrays)), seeds="ones")
    wanted = interp.run(joint, *arrays)[1:]
    found = tiny.run(tiny.gradient(small), *arrays)
    assert len(found) == len(wanted) == len(arrays)
    for a, b in zip(found, wanted):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def test_compiled_gradient_is_equal():
    arrays, small, _ = programs(product)
    found = td.jit(td.grad(lambda x, w: product(Real, x, w), argnums=(0, 1)))(*map(td.tensor, arrays))
    for a, b in zip(tiny.run(tiny.gradient(small), *arrays), found):
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-12)


def test_second_gradients_are_equal():
    x = np.float64(0.3)
    first = tiny.gradient(tiny.trace(lambda x: tiny.sin(x * x) * tiny.tanh(x), tiny.Type()))
    (found,) = tiny.run(tiny.gradient(first), x)
    wanted = td.grad(td.grad(lambda x: td.sin(x * x) * td.tanh(x)))(td.tensor(x))
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-12)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_simplify_keeps_the_numbers_and_removes_nodes(function):
    arrays, small, _ = programs(function)
    before = tiny.gradient(small)
    after = tiny.simplify(before)
    assert len(after.nodes) < len(before.nodes)
    assert "number=1.0" not in tiny.show(tiny.simplify(tiny.gradient(tiny.trace(lambda x: x * x, tiny.Type()))))
    for a, b in zip(tiny.run(after, *arrays), tiny.run(before, *arrays)):
        np.testing.assert_array_equal(a, b)


def test_text_is_that_of_treadle():
    """For a program of ops that both have, the text differs in the element type only."""
    small = tiny.trace(lambda x, y: (x * y, tiny.tanh(y)), tiny.Type((3,)), tiny.Type((3,)))
    real = td.trace_module(lambda x, y: (x * y, td.tanh(y)), *[td.tensor(np.ones(3))] * 2)
    assert tiny.show(small).split("\n", 1)[1] == str(real).strip().split("\n\n", 1)[1].split("\n", 1)[1]


def test_wrong_programs_are_refused():
    with pytest.raises(TypeError, match="does not fit"):
        tiny.trace(lambda x, y: x @ y, tiny.Type((2, 3)), tiny.Type((2, 3)))
    with pytest.raises(TypeError, match="truth value"):
        tiny.trace(lambda x: x if x else -x, tiny.Type())
    with pytest.raises(TypeError, match="single number"):
        tiny.gradient(tiny.trace(lambda x: x * x, tiny.Type((2,))))
    with pytest.raises(TypeError, match="no function is being traced"):
        tiny.constant(number=1.0)


def test_it_is_short():
    assert len(FILE.read_text().splitlines()) <= 360
