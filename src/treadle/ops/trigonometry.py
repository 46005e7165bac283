"""Hyperbolic functions, inverse circular and hyperbolic ones, and exponentials and logarithms to base 2 and 10.

Of each element, angles in radians. 16-bit floats are computed in float32 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from treadle.base.dtypes import float32
from treadle.ir.node import Value
from treadle.ir.types import TensorType
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._types import floats, in_float32, promoted, same_float, same_inexact, widened
from treadle.ops.compare import equal, greater, is_inf, less, logical_and, logical_or, select
from treadle.ops.creation import full
from treadle.ops.elementwise import abs, maximum, minimum, round
from treadle.ops.functions import exp, inexact, log1p, sigmoid, sin, sqrt

Grads = tuple[Value | None, ...]
UNARY, BINARY = "... -> ...", "..., ... -> ..."
LN2, LN10 = math.log(2), math.log(10)


def wide_hlo(name: str) -> Callable[..., Any]:
    """The lowering of an elementwise function that XLA computes too coarsely in 16 bits: there in float32."""

    def rule(b: Any, *operands: Any) -> Any:
        type: TensorType = b.types[0]
        if type.dtype.bits != 16 or not type.dtype.is_float:
            return b.op(name, *operands)
        work = type.with_dtype(float32)
        return b.convert(b.op(name, *[b.convert(x, type, work) for x in operands], types=work), work, type)

    return rule


@op(
    amp="wide",
    type=same_inexact, ref=widened(np.sinh), axes=UNARY, hlo=wide_hlo("chlo.sinh"), onnx="Sinh", samples=inexact()
)  # fmt: skip
def sinh(x: Value) -> Any:
    """(exp(x) - exp(-x)) / 2 of each element, exact near 0. Raises E0106 for integers."""


sinh.kernel(lambda b, x: b.by_lanes("sinh", x))


@sinh.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    return (d * cosh(x),)


@op(
    amp="wide",
    type=same_inexact, ref=widened(np.cosh), axes=UNARY, hlo=wide_hlo("chlo.cosh"), onnx="Cosh", samples=inexact()
)  # fmt: skip
def cosh(x: Value) -> Any:
    """(exp(x) + exp(-x)) / 2 of each element. Raises E0106 for integers."""


cosh.kernel(lambda b, x: b.by_lanes("cosh", x))


@cosh.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    return (d * sinh(x),)


@op(
    amp="wide",
    type=same_float, ref=widened(np.arcsin), axes=UNARY, hlo=wide_hlo("chlo.asin"), onnx="Asin",
    samples=floats(1, -0.9, 0.9),
)  # fmt: skip
def asin(x: Value) -> Any:
    """The angle from -pi/2 to pi/2 whose sine is x, of each element; NaN beyond -1 to 1. Raises E0106 for integers."""


asin.kernel(lambda b, x: b.by_lanes("asin", x))


@asin.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    return (d / sqrt((1 - x) * (1 + x)),)


@op(
    amp="wide",
    type=same_float, ref=widened(np.arccos), axes=UNARY, hlo=wide_hlo("chlo.acos"), onnx="Acos",
    samples=floats(1, -0.9, 0.9),
)  # fmt: skip
def acos(x: Value) -> Any:
    """The angle from 0 to pi whose cosine is x, of each element; NaN beyond -1 to 1. Raises E0106 for integers."""


acos.kernel(lambda b, x: b.by_lanes("acos", x))


@acos.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    return (-d / sqrt((1 - x) * (1 + x)),)


@op(type=same_float, ref=widened(np.arctan), axes=UNARY, hlo=wide_hlo("chlo.atan"), onnx="Atan", samples=floats(1))
def atan(x: Value) -> Any:
    """The angle from -pi/2 to pi/2 whose tangent is x, of each element. Raises E0106 for integers."""


atan.kernel(lambda b, x: b.by_lanes("atan", x))


@atan.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    return (d / (1 + x * x),)


@op(
    type=same_float, ref=widened(np.arcsinh), axes=UNARY, hlo=wide_hlo("chlo.asinh"), onnx="Asinh", samples=floats(1)
)  # fmt: skip
def asinh(x: Value) -> Any:
    """The number whose hyperbolic sine is x, of each element. Raises E0106 for integers."""


asinh.kernel(lambda b, x: b.by_lanes("asinh", x))


@asinh.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    return (d / sqrt(1 + x * x),)


@op(
    amp="wide",
    type=same_float, ref=widened(np.arccosh), axes=UNARY, hlo=wide_hlo("chlo.acosh"), onnx="Acosh",
    samples=floats(1, 1.2, 3.0),
)  # fmt: skip
def acosh(x: Value) -> Any:
    """The number >= 0 whose hyperbolic cosine is x, of each element; NaN below 1. Raises E0106 for integers."""


acosh.kernel(lambda b, x: b.by_lanes("acosh", x))


@acosh.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    return (d / (sqrt(x - 1) * sqrt(x + 1)),)


@op(
    amp="wide",
    type=same_float, ref=widened(np.arctanh), axes=UNARY, hlo=wide_hlo("chlo.atanh"), onnx="Atanh",
    samples=floats(1, -0.8, 0.8),
)  # fmt: skip
def atanh(x: Value) -> Any:
    """The number whose hyperbolic tangent is x, of each element; infinite at -1 and 1, NaN beyond.

    Raises E0106 for integers.
    """


atanh.kernel(lambda b, x: b.by_lanes("atanh", x))


@atanh.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    return (d / ((1 - x) * (1 + x)),)


@op(amp="wide", type=same_float, ref=widened(np.exp2), axes=UNARY, samples=floats(1))
def exp2(x: Value) -> Any:
    """2 ** x of each element. Raises E0106 for integers."""


exp2.kernel(lambda b, x: b.by_lanes("exp2", x))


@exp2.hlo
def _(b: Any, x: Any) -> Any:
    return b.op("power", b.splat(2, b.types[0]), x)


@exp2.onnx
def _(g: Any, x: Any) -> Any:
    return g.node("Pow", g.const(np.array(2, g.types[0].dtype.np)), x)


@exp2.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    return (d * (LN2 * y),)


def _scaled_log(base: float) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The lowering and the ONNX form of the logarithm to a base."""

    def hlo(b: Any, x: Any) -> Any:
        type = b.types[0]
        work = type.with_dtype(float32) if type.dtype.bits == 16 else type
        natural = b.op("log", b.convert(x, type, work), types=work)
        return b.convert(b.op("divide", natural, b.splat(math.log(base), work), types=work), work, type)

    def onnx(g: Any, x: Any) -> Any:
        return g.node("Div", g.node("Log", x), g.const(np.array(math.log(base), g.types[0].dtype.np)))

    return hlo, onnx


_log2_hlo, _log2_onnx = _scaled_log(2)
_log10_hlo, _log10_onnx = _scaled_log(10)


@op(
    amp="wide",
    type=same_inexact, ref=widened(np.log2), axes=UNARY, hlo=_log2_hlo, onnx=_log2_onnx, samples=inexact(0.2)
)  # fmt: skip
def log2(x: Value) -> Any:
    """Logarithm to base 2 of each element; -inf at 0, NaN below. Raises E0106 for integers."""


log2.kernel(lambda b, x: b.by_lanes("log2", x))


@log2.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    return (d / (LN2 * x),)


@op(
    amp="wide",
    type=same_inexact, ref=widened(np.log10), axes=UNARY, hlo=_log10_hlo, onnx=_log10_onnx, samples=inexact(0.2)
)  # fmt: skip
def log10(x: Value) -> Any:
    """Logarithm to base 10 of each element; -inf at 0, NaN below. Raises E0106 for integers."""


log10.kernel(lambda b, x: b.by_lanes("log10", x))


@log10.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    return (d / (LN10 * x),)


@op(amp="wide", type=same_float, prepare=promoted, ref=widened(np.hypot), axes=BINARY, onnx="expand", samples=floats(2))
def hypot(x: Value, y: Value) -> Any:
    """sqrt(x * x + y * y) of each element, without overflow; infinite if one is, also beside NaN.

    The derivative at (0, 0) is taken as 0. Raises E0106 for integers, E0108 when the shapes do not broadcast.
    """


@hypot.expand
@in_float32
def _(x: Value, y: Value) -> Any:
    x, y = abs(x), abs(y)
    large, small = maximum(x, y), minimum(x, y)
    ratio = small / select(equal(large, 0), 1, large)
    result = large * sqrt(1 + ratio * ratio)
    return select(logical_or(is_inf(x), is_inf(y)), math.inf, result)


@hypot.grad
def _(x: Value, y: Value, out: Value, d: Value) -> Grads:
    share = d / select(equal(out, 0), 1, out)
    return x * share, y * share


@op(
    amp="wide",
    type=same_float,
    prepare=promoted,
    ref=widened(np.logaddexp),
    axes=BINARY,
    onnx="expand",
    samples=floats(2),
)
def logaddexp(x: Value, y: Value) -> Any:
    """log(exp(x) + exp(y)) of each element, without overflow.

    Raises E0106 for integers, E0108 when the shapes do not broadcast.
    """


def _gap(x: Value, y: Value) -> Value:
    """x - y, but 0 for two equal infinities."""
    alike = logical_and(equal(x, y), is_inf(x))
    gap: Value = select(alike, 0, x) - select(alike, 0, y)
    return gap


@logaddexp.expand
@in_float32
def _(x: Value, y: Value) -> Any:
    return maximum(x, y) + log1p(exp(-abs(_gap(x, y))))


@logaddexp.grad
def _(x: Value, y: Value, out: Value, d: Value) -> Grads:
    gap = _gap(x, y)
    return d * sigmoid(gap), d * sigmoid(-gap)


def _sinc_of(x: Any) -> Any:
    """sin(pi * x) / (pi * x) of a NumPy array, exactly 0 at whole numbers but 0."""
    turn = x - 2 * np.round(x / 2)
    turn = np.where(np.abs(turn) > 0.5, np.copysign(1, turn) - turn, turn)
    pi = x.dtype.type(np.pi)
    return np.where(x == 0, 1, np.sin(pi * turn) / (pi * np.where(x == 0, 1, x)))


@op(type=same_float, ref=widened(_sinc_of), axes=UNARY, onnx="expand")
def sinc(x: Value) -> Any:
    """sin(pi * x) / (pi * x) of each element, 1 at 0 and 0 at other whole numbers. Raises E0106 for integers.

    Near 0 its power series is summed, so that derivatives of any order keep their digits there.
    """


@sinc.expand
@in_float32
def _(x: Value) -> Any:
    near = less(abs(x), 0.5)
    square = select(near, x * x, 0)
    series: Any = full(value=_SINC[-1], shape=x.shape, dtype=x.dtype)
    for coefficient in _SINC[-2::-1]:
        series = series * square + coefficient
    far = select(near, 1, x)
    turn = far - 2 * round(far / 2)
    over = greater(abs(turn), 0.5)
    turn = select(over, select(less(turn, 0), -1 - turn, 1 - turn), turn)
    return select(near, series, sin(math.pi * turn) / (math.pi * far))


_SINC = [(-1) ** k * math.pi ** (2 * k) / math.factorial(2 * k + 1) for k in range(15)]


@sinc.samples
def _(s: Samples) -> Iterator[Sample]:
    yield from floats(1)(s)
    yield s(np.array([0.0, 1e-9, 1e-3, -0.3, 1.2, -7.3, 2.0]))
