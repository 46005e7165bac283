"""The generated tests find planted faults: an op with one wrong rule fails the test about that rule, and only it."""

import numpy as np
import pytest
from tests.ops import test_generated as generated

from treadle.base.dtypes import float32
from treadle.base.errors import InternalError, UserError
from treadle.ir.op import OPS, Op
from treadle.ir.types import f64, i32
from treadle.ops import exp, reduce_sum, square
from treadle.ops._declare import op

COUNT = 0
TESTS = {
    "type": generated.test_the_type_rule_gives_the_type_of_the_numbers,
    "expand": generated.test_the_expansion_is_the_reference,
    "back end": generated.test_the_back_end_agrees,
    "gradient": generated.test_gradients_are_those_of_central_differences,
    "forward": generated.test_forward_mode_is_reverse_mode_transposed,
    "axes": generated.test_the_axes_rule_is_true,
    "batch": generated.test_batching_is_a_python_loop,
    "onnx": generated.test_onnx_gives_the_same_numbers,
    "bad": generated.test_bad_samples_raise_their_code,
    "declaration": generated.test_declaration_is_complete,
}


def _type(x):
    if not x.dtype.is_float:
        raise UserError("E0106", f"x is {x}", fix="cast it")
    return x.with_shape(x.shape[:-1])


def _samples(s):
    yield s(f64[4, 3])
    yield s(f64[0, 3])
    yield s(i32[3], bad="E0106")


GOOD = {
    "type": _type,
    "ref": lambda x: np.sum(np.exp(x), axis=-1),
    "expand": lambda x: reduce_sum(exp(x), axes=(x.ndim - 1,)),
    "hlo": lambda b, x: b.inline(reduce_exp(b), x)[0],
    "grad": lambda x, out, d: (exp(x) * _widen(d, x),),
    "axes": "... k -> ...",
    "onnx": lambda g, x: g.node("ReduceSum", g.node("Exp", x), g.const(np.array([-1])), keepdims=0),
    "samples": _samples,
}


def _widen(d, x):
    return OPS["broadcast_to"](OPS["reshape"](d, shape=(*d.shape, 1)), shape=x.shape)


def reduce_exp(b):
    from treadle.ir import build

    return build.trace(lambda x: reduce_sum(exp(x), axes=(x.ndim - 1,)), b.types)


@pytest.fixture
def planted():
    """`planted(rule=...)` declares a good op but for these rules and gives its name."""
    names = []

    def plant(**rules) -> str:
        global COUNT
        COUNT += 1

        def head(x):
            """Sum of exp(x) over the last axis."""

        head.__name__ = f"planted{COUNT}"
        made: Op = op(**{**GOOD, **rules})(head)
        names.append(made.name)
        return made.name

    yield plant
    for name in names:
        del OPS[name]


def failing(name: str) -> set[str]:
    """The kinds of tests that the op fails."""
    found = set()
    for kind, test in TESTS.items():
        try:
            test(name)
        except (AssertionError, InternalError):
            found.add(kind)
    return found


def test_a_good_op_passes(planted):
    assert failing(planted()) == set()


@pytest.mark.parametrize(
    "rules, kinds",
    [
        ({"ref": lambda x: np.sum(np.exp(x), axis=-1) * (1 + 1e-10)}, {"expand", "back end"}),
        ({"ref": lambda x: np.sum(np.exp(x), axis=-1) * 1.001}, {"expand", "back end", "gradient", "onnx"}),
        ({"type": lambda x: _type(x).with_dtype(float32)}, {"type", "expand", "back end", "onnx"}),
        ({"expand": lambda x: reduce_sum(x, axes=(x.ndim - 1,))}, {"expand"}),
        ({"hlo": lambda b, x: b.reduce("add", x, b.types[0], (1,), 0)}, {"back end"}),
        ({"grad": lambda x, out, d: (x * _widen(d, x),)}, {"gradient"}),
        ({"grad": lambda x, out, d: (_no_second(x) * _widen(d, x),)}, {"gradient"}),
        ({"grad": lambda x, out, d: (exp(x) * _widen(d, x) * 1.00001,)}, {"gradient"}),
        ({"axes": "k ... -> ..."}, {"axes"}),
        ({"axes": "a k -> k"}, {"axes"}),
        ({"jvp": lambda run, xs, ts: ([_again(*xs)], [reduce_sum(*ts, axes=(xs[0].ndim - 1,))])}, {"forward"}),
        ({"jvp": "linear"}, {"forward"}),
        ({"batch": lambda run, xs, flags: ([OPS["neg"](_again(*xs))], [True])}, {"batch"}),
        ({"batch": lambda run, xs, flags: ([_again(*xs)], [False])}, {"batch"}),
        ({"onnx": lambda g, x: g.node("ReduceSum", x, g.const(np.array([-1])), keepdims=0)}, {"onnx"}),
        ({"samples": lambda s: iter([s(f64[4, 3]), s(f64[0, 3]), s(i32[3], bad="E0105")])}, {"bad"}),
        ({"samples": lambda s: iter([s(f64[4, 3])])}, {"declaration"}),
    ],
)
def test_faults_are_found(planted, rules, kinds):
    assert failing(planted(**rules)) == kinds


def _again(x):
    return reduce_sum(exp(x), axes=(x.ndim - 1,))


def _no_second(x):
    """exp(x), whose derivative is taken to be zero."""
    return OPS["stop_gradient"](exp(x)) + 0 * square(x)
