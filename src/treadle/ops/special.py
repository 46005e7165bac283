"""The gamma function's family, the complement of the error function and Bessel functions, of each element.

Formulas have their numbers in the NIST Digital Library of Mathematical Functions (DLMF, https://dlmf.nist.gov). 16-bit
floats are computed in float32 and rounded once. References work in float64, correct to about 3e-14 relative to the
larger of the result and 1.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from treadle.base.dtypes import bool_ as _bool
from treadle.base.errors import UserError
from treadle.ir.node import Value
from treadle.ir.types import TensorType, bf16, f16, f32, f64, i32
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._types import floats, in_float32, same_float
from treadle.ops.compare import equal, less, select
from treadle.ops.creation import full
from treadle.ops.elementwise import abs, maximum, minimum, round, sign
from treadle.ops.functions import NO_ONNX, cos, exp, integer_pow, sin, sqrt
from treadle.ops.trigonometry import wide_hlo

Grads = tuple[Value | None, ...]
UNARY = "... -> ..."
_2_BY_ROOT_PI = 2 / math.sqrt(math.pi)
BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330, 854513 / 138,
    -236364091 / 2730,
)  # fmt: skip
MAX_ORDER = 100


def in_float64(ref: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A reference of one array that is computed in float64 and rounded once."""

    def rule(x: Any) -> Any:
        return np.asarray(ref(x.astype(np.float64))).astype(x.dtype)

    return rule


# --------------------------------------------------------------------------------------------------------------- gamma
def _lgamma_of_one(x: float) -> float:
    infinite = math.fabs(x) > 2.5e305 or (x <= 0 and x == math.floor(x))
    return math.inf if infinite else math.lgamma(x)


def _samples(s: Samples) -> Iterator[Sample]:
    yield from floats(1, 0.3, 4.0)(s)
    yield s(np.array([-0.6, -2.3, 7.7, 25.0]))
    yield s(np.array([0.0, -0.0, -3.0, np.inf, np.nan]), gradient=False)


@op(
    amp="wide",
    type=same_float, axes=UNARY, onnx=NO_ONNX, samples=_samples,
    ref=in_float64(lambda x: np.frompyfunc(_lgamma_of_one, 1, 1)(x)),
)  # fmt: skip
def lgamma(x: Value) -> Any:
    """log(abs(gamma(x))) of each element; infinite at 0 and at negative whole numbers. Raises E0106 for integers.

    XLA's float32 is off by up to 3e-6 of the larger of the result and 1.
    """


@lgamma.hlo
def _(b: Any, x: Any) -> Any:
    """Exactly 0 at 1 and 2, where XLA's float32 is not."""
    type = b.types[0]
    result = wide_hlo("chlo.lgamma")(b, x)
    for root in (1, 2):
        result = b.op("select", _hit(b, x, root), b.splat(0, type), result)
    return result


def _hit(b: Any, x: Any, number: float) -> Any:
    """Whether x equals the number."""
    type = b.types[0]
    flags = type.with_dtype(_bool)
    direction = "#stablehlo<comparison_direction EQ>"
    return b.op("compare", x, b.splat(number, type), types=flags, comparison_direction=direction)


@lgamma.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    return (d * digamma(x),)


@in_float64
def _digamma_of(x: Any) -> Any:
    """Recurrence to 10 and beyond (DLMF 5.5.2), the asymptotic series (5.11.2), reflection for x < 0 (5.5.4)."""
    mirrored = np.where(x < 0, 1 - x, np.where(x == 0, 1, x))
    far = mirrored + 10
    series = sum(b / (2 * k * far ** (2 * k)) for k, b in enumerate(BERNOULLI, 1))
    value = np.log(far) - 0.5 / far - series - sum(1 / (mirrored + k) for k in range(10))
    rest = x - np.round(x)
    pole = np.where((x < 0) & (rest == 0), np.nan, np.pi / np.tan(np.pi * rest))
    return np.where(x == 0, -1 / x, np.where(x < 0, value - pole, value))


@op(amp="wide", type=same_float, ref=_digamma_of, axes=UNARY, onnx=NO_ONNX, samples=_samples)
def digamma(x: Value) -> Any:
    """The derivative of lgamma, of each element; infinite at 0, NaN at negative whole numbers.

    Raises E0106 for integers.
    """


@digamma.hlo
def _(b: Any, x: Any) -> Any:
    pole = b.op("divide", b.splat(-1, b.types[0]), x)
    return b.op("select", _hit(b, x, 0), pole, wide_hlo("chlo.digamma")(b, x))


@digamma.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    return (d * polygamma(x, order=1),)


@op(amp="wide", axes=UNARY, onnx="expand")
def polygamma(x: Value, *, order: int) -> Any:
    """The derivative of digamma of this order, 1 to 100, of each element; infinite at 0 and negative whole numbers.

    order! times the Hurwitz zeta function (DLMF 25.11.12), that by its first terms and the series of Euler and
    Maclaurin (25.11.5); the reflection formula (5.15.6) for x < 0. float32 overflows from order 34 on.
    Raises E0106 for integers, E0128 for another order.
    """


@polygamma.type
def _(x: TensorType, *, order: int) -> TensorType:
    if not 1 <= order <= MAX_ORDER:
        raise UserError("E0128", f"polygamma of order {order}", fix=f"use 1 to {MAX_ORDER}; order 0 is digamma")
    return same_float(x)


@polygamma.expand
@in_float32
def _(x: Value, *, order: int) -> Any:
    negative = less(x, 0)
    value = _zeta(order + 1, select(negative, 1 - x, abs(x))) * ((-1.0) ** (order + 1) * math.factorial(order))
    rest = x - round(x)
    cot = cos(math.pi * rest) / sin(math.pi * rest)
    return select(negative, (-1.0) ** order * value - _cot_derivative(order, cot), value)


def _zeta(s: int, x: Value) -> Value:
    """The sum of 1 / (x + k)**s over all k >= 0, for x >= 0."""
    count = 10 + s
    last = 1 / (x + count)
    total: Value = integer_pow(last, exponent=s - 1) * (1 / (s - 1)) + 0.5 * integer_pow(last, exponent=s)
    weight = 1.0
    for j, bernoulli in enumerate(BERNOULLI, 1):
        weight *= s / 2 if j == 1 else (s + 2 * j - 3) * (s + 2 * j - 2) / ((2 * j - 1) * (2 * j))
        total = total + (bernoulli * weight) * integer_pow(last, exponent=s + 2 * j - 1)
    for k in range(count - 1, -1, -1):  # the smallest first
        total = total + integer_pow(1 / (x + k), exponent=s)
    return total


def _cot_derivative(order: int, cot: Value) -> Value:
    """The derivative of pi * cot(pi * x) of this order: a polynomial of cot, as d cot(u) / du = -(1 + cot(u)**2)."""
    polynomial = [0, 1]  # exact integers, by rising powers
    for _ in range(order):
        slopes = [-k * c for k, c in enumerate(polynomial)][1:]
        polynomial = [a + b for a, b in zip([*slopes, 0, 0], [0, 0, *slopes], strict=True)]
    odd = len(polynomial) % 2 == 0
    scale = math.pi ** (order + 1)
    square = cot * cot
    result: Any = full(value=polynomial[-1] * scale, shape=cot.shape, dtype=cot.dtype)
    for c in polynomial[-3::-2]:
        result = result * square + c * scale
    derivative: Value = result * cot if odd else result
    return derivative


@polygamma.grad
def _(x: Value, y: Value, d: Value, *, order: int) -> Grads:
    return (d * polygamma(x, order=order + 1),)


@polygamma.samples
def _(s: Samples) -> Iterator[Sample]:
    for t in (f64[()], f64[2, 3], f64[1, 2], f64[0, 3], f32[3], f16[3], bf16[3]):
        yield s(s.uniform(t, 0.5, 4.0), order=1)
    yield s(np.array([-0.6, -2.3, 7.7, 25.0]), order=2)
    yield s(s.uniform(f64[4], 0.5, 4.0), order=5)
    yield s(np.array([0.0, -3.0, np.inf, np.nan]), order=1, gradient=False)
    yield s(i32[2], order=1, bad="E0106")
    yield s(f32[2], order=0, bad="E0128")


# --------------------------------------------------------------------------------------------------------------- error
@op(
    amp="wide",
    type=same_float, axes=UNARY, hlo=wide_hlo("chlo.erfc"), samples=floats(1),
    ref=in_float64(lambda x: np.frompyfunc(math.erfc, 1, 1)(x)),
)  # fmt: skip
def erfc(x: Value) -> Any:
    """1 - erf(x) of each element, which keeps its digits where erf(x) is near 1. Raises E0106 for integers."""


@erfc.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    return (d * (-_2_BY_ROOT_PI * exp(-(x * x))),)


@erfc.onnx
def _(g: Any, x: Any) -> Any:
    return g.node("Sub", g.const(np.array(1, g.types[0].dtype.np)), g.node("Erf", x))


# -------------------------------------------------------------------------------------------------------------- Bessel
def _scaled_bessel(x: Any, n: int) -> Any:
    """exp(-abs(x)) times the modified Bessel function I of order n = 0 or 1, of a float64 array.

    The power series (DLMF 10.25.2) below 1, the integral (10.32.3) by the trapezoid rule, whose error for a periodic
    function is below 1e-20 here, up to 700, then the asymptotic series (10.40.1).
    """
    size = np.abs(x).reshape(-1)
    small, middle = np.minimum(size, 1), np.minimum(size, 700)
    near = sum((small / 2) ** (2 * k + n) / (math.factorial(k) * math.factorial(k + n)) for k in range(14))
    angles = np.arange(300) * (2 * np.pi / 300)
    weights = np.cos(n * angles) / 300
    centre = np.exp(middle[:, None] * (np.cos(angles) - 1)) @ weights
    terms = [1.0]
    for k in range(1, 16):
        terms.append(terms[-1] * ((2 * k - 1) ** 2 - 4 * n * n) / (8 * k))
    large = np.maximum(size, 700)
    far = sum(a / large**k for k, a in enumerate(terms)) / (np.sqrt(2 * np.pi) * np.sqrt(large))
    result = np.where(size < 1, near * np.exp(-small), np.where(size <= 700, centre, far)).reshape(x.shape)
    result = np.where(np.isnan(x), np.nan, result)
    return np.copysign(result, x) if n else result


@functools.cache
def _bessel_series(n: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Chebyshev coefficients on (0, 8) in x / 4 - 1 (of i1e / x for n = 1) and on (8, inf), of sqrt(x) times it, in
    16 / x - 1."""
    near = _chebyshev(lambda t: _scaled_bessel(4 * (t + 1), n) / (4 * (t + 1)) ** n, 32)
    far = _chebyshev(lambda t: _scaled_bessel(16 / (t + 1), n) * np.sqrt(16 / (t + 1)), 28)
    return near, far


def _chebyshev(f: Callable[[Any], Any], count: int) -> tuple[float, ...]:
    """The coefficients of f on (-1, 1), by interpolation at the zeros of a Chebyshev polynomial (DLMF 3.11.11)."""
    angles = np.pi * (np.arange(count) + 0.5) / count
    values = f(np.cos(angles))
    return tuple([float(2 / count * (values @ np.cos(j * angles))) for j in range(count)])


def _clenshaw(coefficients: tuple[float, ...], t: Value) -> Value:
    """The Chebyshev series at t (DLMF 3.11.16), its first coefficient halved."""
    zero: Any = full(value=0, shape=t.shape, dtype=t.dtype)
    now, before, older = zero, zero, zero
    for c in coefficients[::-1]:
        now, before, older = 2 * t * now - before + c, now, before
    result: Value = 0.5 * (now - older)
    return result


def _bessel_parts(x: Value, n: int) -> tuple[Value, Value, Value]:
    """abs(x) < 8, the value where it is (over x for n = 1), and the value elsewhere, all of abs(x)."""
    near, far = _bessel_series(n)
    size = abs(x)
    large = maximum(size, 8)
    inner = _clenshaw(near, minimum(size, 8) / 4 - 1)
    return less(size, 8), inner, _clenshaw(far, 16 / large - 1) / sqrt(large)


@op(type=same_float, ref=in_float64(lambda x: _scaled_bessel(x, 0)), axes=UNARY, onnx="expand", samples=_samples)
def bessel_i0e(x: Value) -> Any:
    """exp(-abs(x)) times the modified Bessel function of order 0, of each element. Raises E0106 for integers."""


@bessel_i0e.expand
@in_float32
def _(x: Value) -> Any:
    return select(*_bessel_parts(x, 0))


@bessel_i0e.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    return (d * (bessel_i1e(x) - sign(x) * y),)


@op(type=same_float, ref=in_float64(lambda x: _scaled_bessel(x, 1)), axes=UNARY, onnx="expand", samples=_samples)
def bessel_i1e(x: Value) -> Any:
    """exp(-abs(x)) times the modified Bessel function of order 1, of each element. Raises E0106 for integers."""


@bessel_i1e.expand
@in_float32
def _(x: Value) -> Any:
    near, inner, outer = _bessel_parts(x, 1)
    return select(near, x * inner, select(less(x, 0), -outer, outer))


@bessel_i1e.grad
def _(x: Value, y: Value, d: Value) -> Grads:
    zero = equal(x, 0)
    slope = bessel_i0e(x) - sign(x) * y - y / select(zero, 1, x)
    return (d * select(zero, 0.5, slope),)
