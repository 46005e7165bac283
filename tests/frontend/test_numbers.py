"""Python numbers give the same element types eager and traced: every public function, every operator, the tools."""

import inspect
import math

import ml_dtypes
import numpy as np
import pytest
from tests.frontend.surface import interpreted

import treadle as td
from treadle import Tensor, UserError
from treadle.frontend import create, fft, functions, linalg, tree
from treadle.frontend import trace as tracing
from treadle.frontend.tensor import make_tensor
from treadle.nn import functional

TENSORS = [
    Tensor((np.arange(4).reshape(2, 2) + 1).astype(kind))
    for kind in (np.int8, np.bool_, ml_dtypes.bfloat16, np.float32, np.float64, np.complex64)
]
FORMS = [
    lambda f, s, x: f(s),
    lambda f, s, x: f(x, s),
    lambda f, s, x: f(s, x),
    lambda f, s, x: f(s, 2),
    lambda f, s, x: f(1.0, s),
    lambda f, s, x: f(s, s),
    lambda f, s, x: f(x, s, s),
    lambda f, s, x: f(x, x, s),
    lambda f, s, x: f(td.equal(x, x), s, x),
    lambda f, s, x: f(td.equal(x, x), s, s),
    lambda f, s, x: f([s, s]),
    lambda f, s, x: f([x, s]),
    lambda f, s, x: f((2, 2), s),
]


def kinds(result):
    """Type and shape of each leaf; a Python number, or what stands for one, by its Python type."""
    found = []
    for leaf in tree.flatten(result)[0]:
        if tracing.is_tensor(leaf):
            found.append((leaf.dtype.name if leaf._weak is None else leaf._weak.__name__, leaf.shape))
        else:
            found.append((type(leaf).__name__, ()))
    return found


def both(function, *args):
    """`kinds` of the result eager and traced; None where the call fails, the error code where it is refused."""
    seen = []

    def call(*given):
        seen.append(kinds(function(*given)))

    def attempt(run):
        seen.clear()
        try:
            run()
        except UserError as error:
            return error.code
        except (TypeError, ValueError, AttributeError, IndexError, ZeroDivisionError):
            return None
        return seen[0]

    with interpreted():
        eager = attempt(lambda: call(*args))
    return eager, attempt(lambda: tracing.trace(call, args, {}, make_tensor))


def public(module):
    for name in sorted(module.__all__):
        function = getattr(module, name)
        if callable(function) and not inspect.isclass(function):
            yield name, function


def keywords(function):
    """The function with x first and the number as one of its other arguments."""
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            yield lambda f, s, x, name=name: f(x, **{name: s})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("module", [create, functions, linalg, fft, functional], ids=lambda m: m.__name__)
def test_every_function_of_a_number(module):
    """Where eager mode gives a result, the traced function gives the same types, or refuses: its number is not known
    yet, and some functions must know it (a count, an order)."""
    compared, wrong = 0, []
    for name, function in public(module):
        for form in [*FORMS, *keywords(function)]:
            for x in TENSORS:
                eager, traced = both(lambda s, x, f=function, form=form: form(f, s, x), 0.5, x)
                if isinstance(eager, list):
                    compared += isinstance(traced, list)
                    if eager != traced and not isinstance(traced, str):
                        wrong.append((name, x.dtype.name, eager, traced))
    assert not wrong
    assert compared > 50


OPERATORS = [
    lambda s: s,
    lambda s: +s,
    lambda s: -s,
    abs,
    lambda s: s * 2,
    lambda s: 2 * s - 1,
    lambda s: 2**s,
    lambda s: s**2,
    lambda s: s / 3,
    lambda s: 1 / s,
    lambda s: s // 1,
    lambda s: 7 // s,
    lambda s: s % 2,
    lambda s: divmod(s, 2),
    lambda s: s < 1,
    lambda s: (s < 1) + 1,
    lambda s: (s >= 1) * 2.0,
    lambda s: (s == 1, s != 1, s <= 1, s > 1),
    round,
    math.floor,
    math.ceil,
    math.trunc,
    lambda s: math.floor(s) / 2,
    lambda s: s * 1j,
    td.stop_gradient,
    lambda s: td.stop_gradient({"a": (s, s + 1)}),
]


@pytest.mark.parametrize("x", TENSORS, ids=lambda x: x.dtype.name)
def test_operators_on_numbers_give_numbers(x):
    for function in OPERATORS:
        eager, traced = both(function, 1.5)
        assert isinstance(eager, list)
        assert eager == traced
        eager, traced = both(
            lambda s, x, f=function: [td.where(td.equal(x, x), x, part) for part in tree.flatten(f(s))[0]], 1.5, x
        )
        assert isinstance(eager, list)
        assert eager == traced


def test_a_number_keeps_its_value_in_double_precision():
    def f(x, s):
        y = td.stop_gradient(s) / 3 + math.floor(s)
        y += 2
        return x * y, td.full_like(x, s), td.dot(x, s)

    for kind in (np.float64, np.float32):
        x = np.ones(2, kind)
        for compiled, eager in zip(td.jit(f)(x, 1.7), f(Tensor(x), 1.7), strict=True):
            np.testing.assert_allclose(compiled.numpy(), eager.numpy(), rtol=2 * np.finfo(kind).eps)
            assert compiled.dtype is eager.dtype


def test_rounding_to_decimals_is_refused():
    with pytest.raises(UserError, match="E0206"):
        td.jit(lambda x, s: x * round(s, 2))(np.ones(2), 1.234)


TOOLS = {
    "cond": lambda x, s: td.cond(td.Tensor(True), lambda y, t: y * t, lambda y, t: y, x, s),
    "cond of numbers": lambda x, s: x * td.cond(td.Tensor(True), lambda t: t, lambda t: t + 1, s),
    "cond from outside": lambda x, s: td.cond(td.Tensor(True), lambda: x * s, lambda: x),
    "cond by a bool": lambda x, s: x * td.cond(True, lambda t: t, lambda t: t + 1, s),
    "while_loop": lambda x, s: td.while_loop(lambda c: c[1] < 3, lambda c: (c[0] * s, c[1] + 1), (x, 0)),
    "carried number": lambda x, s: td.while_loop(lambda c: c < 3.0, lambda c: c + 1.0, s),
    "scan": lambda x, s: td.scan(lambda c, y: (c, y * s), x, x),
    "checkpoint": lambda x, s: td.checkpoint(lambda y, t: y * t)(x, s),
    "vmap": lambda x, s: td.vmap(lambda y, t: y * t, in_axes=(0, None))(x, s),
    "vjp": lambda x, s: td.vjp(lambda y: y * s, x)[0],
    "jvp": lambda x, s: td.jvp(lambda y: y * s, (x,), (x,)),
    "gradient": lambda x, s: td.value_and_grad(lambda y: td.sum(y * td.stop_gradient(s)))(x),
}


@pytest.mark.parametrize("name", TOOLS)
def test_tools_take_numbers_alike(name):
    x = Tensor(np.ones(2, ml_dtypes.bfloat16))
    assert kinds(td.jit(TOOLS[name])(x, 0.5)) == kinds(TOOLS[name](x, 0.5))
