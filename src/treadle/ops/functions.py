"""Powers, exponentials, logarithms, roots, circular and error functions of each element.

16-bit floats are computed in float32 and rounded once. ONNX lacks some functions; there digits are lost near 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from treadle.base.dtypes import bool_ as bool8
from treadle.base.errors import UserError
from treadle.ir.node import Value
from treadle.ir.op import No
from treadle.ir.types import TensorType, bf16, bool_, c64, c128, f16, f32, f64, i32, u8
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._types import floats, in_float32, promoted, same_float, same_inexact, same_number, same_real, widened
from treadle.ops.compare import equal, greater, select
from treadle.ops.creation import full

Grads = tuple[Value | None, ...]
UNARY, BINARY = "... -> ...", "..., ... -> ..."
_2_BY_ROOT_PI = 2 / math.sqrt(math.pi)
NO_ONNX = No("ONNX has no such operator")


def inexact(low: float | None = None) -> Callable[[Samples], Iterator[Sample]]:
    """Samples of one float or complex tensor."""

    def make(s: Samples) -> Iterator[Sample]:
        yield from floats(1, low)(s)
        yield s(c64[2, 2])
        yield s(c128[3])

    return make


@op(amp="wide", type=same_real, prepare=promoted, axes=BINARY, onnx="Pow")
def pow(x: Value, y: Value) -> Any:
    """x ** y of each element. Integers to negative powers give 0 (1 or -1 where x is); negative to broken ones NaN.

    d/dx is finite at x = 0 for y >= 1 and for y = 0; d/dy is taken as 0 where x <= 0, where it does not exist.
    Raises E0106 for bool and complex tensors, E0108 when the shapes do not broadcast.
    """


pow.kernel(lambda b, x, y: b.by_lanes("pow", x, y))


@pow.ref
@widened
def _(x: Any, y: Any) -> Any:
    if x.dtype.kind != "i":
        return np.power(x, y)
    odd = np.where(y % 2 != 0, x, 1)
    return np.where(y >= 0, np.power(x, np.maximum(y, 0)), np.where(np.abs(x) == 1, odd, 0))


@pow.hlo
def _(b: Any, x: Any, y: Any) -> Any:
    """Integers in steps of 5 bits of the exponent: XLA's own power of integers reads the last 6 bits only."""
    t = b.types[0]
    if t.dtype.is_float:
        return b.op("power", x, y)
    if t.dtype.kind == "u":
        return _integer_power(b, x, y)
    one, zero = b.splat(1, t), b.splat(0, t)
    negative, unit = _compared(b, y, zero, "LT"), _compared(b, b.op("abs", x), one, "EQ")
    odd = _compared(b, b.op("and", y, one), one, "EQ")
    inverse = b.op("select", unit, b.op("select", odd, x, one), zero)
    return b.op("select", negative, inverse, _integer_power(b, x, b.op("select", negative, zero, y)))


def _compared(b: Any, x: Any, y: Any, direction: str) -> Any:
    flags = b.types[0].with_dtype(bool8)
    return b.op("compare", x, y, types=flags, comparison_direction=f"#stablehlo<comparison_direction {direction}>")


def _integer_power(b: Any, x: Any, y: Any) -> Any:
    """x ** y of integers, y >= 0; wraps around."""
    t = b.types[0]
    step, mask, result = b.splat(5, t), b.splat(31, t), None
    for place in range(0, t.dtype.bits, 5):
        part = b.op("power", x, b.op("and", y, mask))
        result = part if result is None else b.op("multiply", result, part)
        if place + 5 < t.dtype.bits:
            x, y = b.op("power", x, b.splat(32, t)), b.op("shift_right_logical", y, step)
    return result


@pow.grad
def _(x: Value, y: Value, out: Value, d: Value) -> Grads:
    zero, positive = equal(y, 0), greater(x, 0)
    dx = select(zero, 0, y * pow(x, select(zero, 1, y - 1)))
    dy = select(positive, out * log(select(positive, x, 1)), 0)
    return d * dx, d * dy


@pow.samples
def _(s: Samples) -> Iterator[Sample]:
    for t in (f64[()], f64[2, 3], f64[1, 3], f64[0, 3], f32[2, 2], f16[3], bf16[3]):
        yield s(s.uniform(t, 0.2, 1.5), t)
    special = np.array([0.0, 0.0, -2.0, -2.0, -2.0, np.inf, np.nan]), np.array([0.0, 2.0, 3.0, 0.5, -1.0, -1.0, 0.0])
    yield s(*special, gradient=False)
    yield s(np.array([2, -3, 0, -1, 1, 5], np.int32), np.array([3, 3, 0, 3, 2, 1], np.int32))
    yield s(np.array([2, 3, 5], np.uint8), np.array([7, 2, 255], np.uint8))
    yield s(np.array([2, -3, 7, -1, 5, 0], np.int64), np.array([64, 1000, 2**40 + 1, -3, -1, -2]))
    yield s(bool_[3], bool_[3], bad="E0106")
    yield s(f64[2], f64[3], bad="E0108")


@op(amp="wide", axes=UNARY, onnx="expand")
def integer_pow(x: Value, *, exponent: int) -> Any:
    """x ** exponent of each element, by repeated products.

    Raises E0106 for bool, E0120 for integers to negative powers.
    """


@integer_pow.type
def _(x: TensorType, *, exponent: int) -> TensorType:
    if exponent < 0 and x.dtype.is_integer:
        raise UserError("E0120", f"{x} to the power {exponent} is not whole", fix="cast it to a float type first")
    return same_number(x)


@integer_pow.ref
@widened
def _(x: Any, *, exponent: int) -> Any:
    return np.power(x, x.dtype.type(exponent))


@integer_pow.expand
@in_float32
def _(x: Value, *, exponent: int) -> Any:
    result, square, left = None, x, abs(exponent)
    while left:
        if left % 2:
            result = square if result is None else result * square
        left //= 2
        square = square * square if left else square
    if result is None:
        return full(value=1, shape=x.shape, dtype=x.dtype)
    return 1 / result if exponent < 0 else result


@integer_pow.grad
def _(x: Value, out: Value, d: Value, *, exponent: int) -> Grads:
    if not exponent:
        return (None,)
    return (d * (exponent * (x if exponent == 2 else integer_pow(x, exponent=exponent - 1))),)


@integer_pow.samples
def _(s: Samples) -> Iterator[Sample]:
    for exponent in (-3, -1, 0, 1, 2, 3, 6):
        yield s(f64[2, 3], exponent=exponent)
    for t in (f64[()], f64[0, 3], f64[1, 2], f32[3], f16[3], bf16[3], i32[3], u8[2]):
        yield s(t, exponent=3)
    yield s(c64[2], exponent=2)
    yield s(c128[2], exponent=-3)
    yield s(np.array([0.0, np.nan, np.inf, -2.0]), exponent=0, gradient=False)
    yield s(i32[2], exponent=-1, bad="E0120")
    yield s(bool_[2], exponent=2, bad="E0106")


def _one_of(g: Any) -> Any:
    return g.const(np.ones((), g.types[0].dtype.np))


@op(amp="wide", type=same_inexact, ref=np.exp, axes=UNARY, hlo="exponential", onnx="Exp", samples=inexact())
def exp(x: Value) -> Any:
    """e ** x of each element. Raises E0106 for integers."""


exp.kernel(lambda b, x: b.exp(x))


@exp.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    return (d * y,)


@op(amp="wide", type=same_float, ref=widened(np.expm1), axes=UNARY, hlo="exponential_minus_one", samples=floats(1))
def expm1(x: Value) -> Any:
    """e ** x - 1 of each element, exact near 0. Raises E0106 for integers."""


expm1.kernel(lambda b, x: b.expm1(x))


@expm1.onnx
def _(g: Any, x: Any) -> Any:
    return g.node("Sub", g.node("Exp", x), _one_of(g))


@expm1.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    return (d * (y + 1),)


@op(amp="wide", type=same_inexact, ref=np.log, axes=UNARY, hlo="log", onnx="Log", samples=inexact(0.2))
def log(x: Value) -> Any:
    """Natural logarithm of each element; -inf at 0, NaN below. Raises E0106 for integers."""


log.kernel(lambda b, x: b.log(x))


@log.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    return (d / x,)


@op(amp="wide", type=same_float, ref=widened(np.log1p), axes=UNARY, hlo="log_plus_one", samples=floats(1, -0.7))
def log1p(x: Value) -> Any:
    """log(1 + x) of each element, exact near 0. Raises E0106 for integers."""


log1p.kernel(lambda b, x: b.log1p(x))


@log1p.onnx
def _(g: Any, x: Any) -> Any:
    return g.node("Log", g.node("Add", x, _one_of(g)))


@log1p.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    return (d / (1 + x),)


@op(type=same_float, ref=np.sqrt, axes=UNARY, hlo="sqrt", onnx="Sqrt", samples=floats(1, 0.2))
def sqrt(x: Value) -> Any:
    """Square root of each element; NaN below 0; the derivative at 0 is infinite. Raises E0106 for integers."""


sqrt.kernel(lambda b, x: b.sqrt(x))


@sqrt.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    return (0.5 * d / y,)


@op(amp="wide", type=same_float, ref=widened(lambda x: 1 / np.sqrt(x)), axes=UNARY, hlo="rsqrt", samples=floats(1, 0.2))
def rsqrt(x: Value) -> Any:
    """1 / sqrt(x) of each element; infinite at 0, NaN below. Raises E0106 for integers."""


rsqrt.kernel(lambda b, x: b.rsqrt(x))


@rsqrt.onnx
def _(g: Any, x: Any) -> Any:
    return g.node("Reciprocal", g.node("Sqrt", x))


@rsqrt.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    return (-0.5 * d * (y / x),)


@op(type=same_float, ref=widened(np.cbrt), axes=UNARY, hlo="cbrt", onnx=NO_ONNX, samples=floats(1))
def cbrt(x: Value) -> Any:
    """Cube root of each element, negative for negative ones. Raises E0106 for integers."""


cbrt.kernel(lambda b, x: b.by_lanes("cbrt", x))


@cbrt.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    return (d / (3 * (y * y)),)


@op(type=same_float, ref=widened(np.sin), axes=UNARY, hlo="sine", onnx="Sin", samples=floats(1))
def sin(x: Value) -> Any:
    """Sine of each element, in radians. Raises E0106 for integers."""


sin.kernel(lambda b, x: b.sin(x))


@sin.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    return (d * cos(x),)


@op(type=same_float, ref=widened(np.cos), axes=UNARY, hlo="cosine", onnx="Cos", samples=floats(1))
def cos(x: Value) -> Any:
    """Cosine of each element, in radians. Raises E0106 for integers."""


cos.kernel(lambda b, x: b.cos(x))


@cos.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    return (-d * sin(x),)


@op(amp="wide", type=same_float, ref=widened(np.tan), axes=UNARY, hlo="tan", onnx="Tan", samples=floats(1, -1.2, 1.2))
def tan(x: Value) -> Any:
    """Tangent of each element, in radians. Raises E0106 for integers."""


tan.kernel(lambda b, x: b.by_lanes("tan", x))


@tan.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    return (d * (1 + y * y),)


@op(
    amp="wide",
    type=same_float, prepare=promoted, ref=widened(np.arctan2), axes=BINARY, hlo="atan2", onnx=NO_ONNX,
    samples=floats(2),
)  # fmt: skip
def atan2(y: Value, x: Value) -> Any:
    """The angle of the point (x, y) from the x axis, -pi to pi radians.

    Raises E0106 for integers, E0108 when the shapes do not broadcast.
    """


atan2.kernel(lambda b, y, x: b.by_lanes("atan2", y, x))


@atan2.grad
def _(y: Value, x: Value, out: Value, d: Value) -> Grads:
    by_square = d / (x * x + y * y)
    return x * by_square, -y * by_square


@op(type=same_inexact, ref=np.tanh, axes=UNARY, hlo="tanh", onnx="Tanh", samples=inexact())
def tanh(x: Value) -> Any:
    """Hyperbolic tangent of each element. x: float[...] or complex[...]. Raises E0106 for integers."""


tanh.kernel(lambda b, x: b.tanh(x))


@tanh.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    return (d * (1 - y * y),)


@op(
    type=same_float, ref=widened(lambda x: 1 / (1 + np.exp(-x))), axes=UNARY, hlo="logistic", onnx="Sigmoid",
    samples=floats(1),
)  # fmt: skip
def sigmoid(x: Value) -> Any:
    """1 / (1 + exp(-x)) of each element. Raises E0106 for integers."""


sigmoid.kernel(lambda b, x: b.sigmoid(x))


@sigmoid.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    return (d * (y * (1 - y)),)


def erf_of(x: Any) -> Any:
    """The error function of a NumPy array, in float64."""
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x.astype(np.float64)), np.float64)


@op(type=same_float, ref=lambda x: erf_of(x).astype(x.dtype), axes=UNARY, hlo="chlo.erf", onnx="Erf", samples=floats(1))
def erf(x: Value) -> Any:
    """2 / sqrt(pi) times the integral of exp(-t * t) from 0 to each element. Raises E0106 for integers."""


erf.kernel(lambda b, x: b.erf(x))


@erf.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    return (d * (_2_BY_ROOT_PI * exp(-(x * x))),)


@op(amp="wide", type=same_float, axes=UNARY, hlo="chlo.erf_inv", onnx=NO_ONNX, samples=floats(1, -0.9, 0.9))
def erf_inv(x: Value) -> Any:
    """The y with erf(y) = x of each element; infinite at -1 and 1, NaN beyond. Raises E0106 for integers.

    The reference has all digits; XLA's float64 is off by up to 1e-10 of the result near y = 4.
    """


@erf_inv.ref
def _(x: Any) -> Any:
    """Winitzki's approximation (2e-3), then three of Halley's steps, beyond 0.5 on erfc: it keeps its digits near 1."""
    target = np.abs(x.astype(np.float64)).reshape(-1)
    small, erfc = target < 0.5, np.frompyfunc(math.erfc, 1, 1)
    rest = 1 - target
    half_log, a = np.log(rest * (1 + target)) / 2, 2 / (math.pi * 0.147)
    y = np.sqrt(np.sqrt((a + half_log) ** 2 - 2 * half_log / 0.147) - (a + half_log))
    error = np.empty(y.shape)
    for _ in range(3):
        error[small] = erf_of(y[small]) - target[small]
        error[~small] = rest[~small] - erfc(y[~small]).astype(np.float64)
        step = error / (_2_BY_ROOT_PI * np.exp(-y * y))
        y = y - np.where(target < 1, step / (1 + y * step), 0)
    return np.copysign(np.where(target == 1, np.inf, y).reshape(x.shape), x.astype(np.float64)).astype(x.dtype)


@erf_inv.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    return (d * (exp(y * y) / _2_BY_ROOT_PI),)
