"""Arithmetic on each element. Binary ops promote and broadcast at the call; the nodes themselves take one type.

Reference rules are NumPy's: integer division by zero gives 0. Exponentials, roots, sines and the like stand in
`functions.py`. Cotangents pair with complex inputs without conjugation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle.base import dtypes
from treadle.ir.node import Value
from treadle.ir.op import No
from treadle.ir.types import TensorType, bf16, bool_, c64, c128, f16, f32, f64, i32, i64, u8
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._types import (
    floats,
    in_float32,
    numbers,
    promoted,
    same_float,
    same_inexact,
    same_kind,
    same_number,
    same_real,
    widened,
)  # fmt: skip
from treadle.ops.casting import cast
from treadle.ops.compare import equal, greater, less, logical_and, logical_or, logical_xor, not_equal, select
from treadle.ops.complex import conj, part_type

Grads = tuple[Value | None, ...]
UNARY, BINARY = "... -> ...", "..., ... -> ..."
same_ordered = same_kind("biuf", "bool or real number")
same_integer = same_kind("iu", "integer")


@op(type=same_number, prepare=promoted, ref=np.add, axes=BINARY, hlo="add", onnx="Add", samples=numbers(2))
def add(x: Value, y: Value) -> Any:
    """x + y of each element. Raises E0106 for bool tensors, E0108 when the shapes do not broadcast."""


add.kernel(lambda b, x, y: x + y)


@add.grad
def _(x: Value, y: Value, out: Value, d: Value) -> Grads:
    return d, d


@op(type=same_number, prepare=promoted, ref=np.subtract, axes=BINARY, hlo="subtract", onnx="Sub", samples=numbers(2))
def sub(x: Value, y: Value) -> Any:
    """x - y of each element. Raises E0106 for bool tensors, E0108 when the shapes do not broadcast."""


sub.kernel(lambda b, x, y: x - y)


@sub.grad
def _(x: Value, y: Value, out: Value, d: Value) -> Grads:
    return d, -d


@op(type=same_number, prepare=promoted, ref=np.multiply, axes=BINARY, hlo="multiply", onnx="Mul", samples=numbers(2))
def mul(x: Value, y: Value) -> Any:
    """x * y of each element. Raises E0106 for bool tensors, E0108 when the shapes do not broadcast."""


mul.kernel(lambda b, x, y: x * y)


@mul.grad
def _(x: Value, y: Value, out: Value, d: Value) -> Grads:
    return d * y, d * x


def _promoted_to_float(x: Any, y: Any) -> tuple[Value, ...]:
    """Integers and bools become float32, the type of `integer tensor * python float`."""
    x, y = promoted(x, y)
    if x.dtype.is_inexact:
        return x, y
    return cast(x, dtype=dtypes.float32), cast(y, dtype=dtypes.float32)


@op(type=same_inexact, prepare=_promoted_to_float, ref=np.divide, axes=BINARY, hlo="divide", onnx="Div")
def div(x: Value, y: Value) -> Any:
    """x / y of each element; integers and bools are divided as float32. Raises E0108 when shapes do not broadcast."""


div.kernel(lambda b, x, y: x / y)


@div.grad
def _(x: Value, y: Value, out: Value, d: Value) -> Grads:
    dx = d / y
    return dx, -(dx * out)


@div.samples
def _(s: Samples) -> Iterator[Sample]:
    for t in (f64[()], f64[2, 3], f64[1, 3], f64[0, 3], f32[2, 2], f16[3], bf16[3]):
        yield s(t, t)
    yield s(c64[2, 2], c64[2, 2])
    yield s(c128[3], c128[3])
    yield s(np.array([1, -7, 0], np.int32), np.array([2, 2, 0], np.int32))
    yield s(np.array([0.0, 1.0, -1.0, np.inf]), np.array([0.0, 0.0, 0.0, np.inf]), gradient=False)
    yield s(f64[2], f64[3], bad="E0108")


@op(type=same_number, ref=np.negative, axes=UNARY, hlo="negate", onnx="Neg", samples=numbers(1))
def neg(x: Value) -> Any:
    """-x of each element; unsigned integers wrap around. Raises E0106 for bool tensors."""


neg.kernel(lambda b, x: b.exact(-x))


@neg.grad
def _(x: Value, out: Value, d: Value) -> Grads:
    return (-d,)


@op(ref=np.abs, axes=UNARY, onnx="Abs", samples=numbers(1))
def abs(x: Value) -> Any:
    """Absolute value of each element, real also for complex ones; its derivative at 0 is 0. Raises E0106 for bool."""


abs.kernel(lambda b, x: b.exact(b.magnitude(x) if b.dtype.kind != "u" else x))


@abs.type
def _(x: TensorType) -> TensorType:
    return part_type(x) if x.dtype.kind == "c" else same_number(x)


@abs.hlo
def _(b: Any, x: Any) -> Any:
    return x if b.types[0].dtype.kind == "u" else b.op("abs", x)


@abs.grad
def _(x: Value, out: Value, d: Value) -> Grads:
    if x.dtype.kind != "c":
        return (d * sign(x),)
    return (cast(d / select(equal(out, 0), 1, out), dtype=x.dtype) * conj(x),)


@op(type=same_real, axes=UNARY, onnx="Sign", samples=numbers(1, with_complex=False))
def sign(x: Value) -> Any:
    """-1, 0 or 1 of each element's type; NaN and -0.0 stay. Raises E0106 for bool and complex tensors."""


sign.kernel(lambda b, x: b.exact(b.select(b.compare("gt", x, 0), 1, b.select(b.compare("lt", x, 0), -1, x))))


@sign.ref
def _(x: Any) -> Any:
    return np.where(x == 0, x, np.sign(x))


@sign.hlo
def _(b: Any, x: Any) -> Any:
    if b.types[0].dtype.kind == "u":
        return b.op("minimum", x, b.splat(1, b.types[0]))
    return b.op("sign", x)


@sign.grad
def _(x: Value, out: Value, d: Value) -> Grads:
    return (None,)


def divisions(s: Samples) -> Iterator[Sample]:
    """Pairs for divisions with a remainder: every combination of signs, zero divisors, floats away from steps."""
    grid = np.array([-7, -4, -1, 0, 1, 4, 7]), np.array([-4, -2, 2, 3, 0])
    x, y = (a.ravel() for a in np.meshgrid(*grid))
    for kind in (np.int32, np.int8, np.float32, np.float64):
        yield s(x.astype(kind), y.astype(kind), gradient=False)
    yield s(np.array([200, 7, 0, 9], np.uint8), np.array([3, 200, 5, 0], np.uint8))
    special = np.array([1.0, -1.0, np.inf, np.nan, 1.0, 0.0]), np.array([np.inf, np.inf, 2.0, 1.0, np.nan, 0.0])
    yield s(*special, gradient=False)
    yield s(np.array([5.3, -5.3, 5.3, -5.3]), np.array([1.5, 1.5, -1.5, -1.5]))
    for t in (f64[()], f64[0, 3], f16[3], bf16[1, 3], i64[2]):
        yield s(t, t, gradient=False)
    yield s(bool_[3], bool_[3], bad="E0106")
    yield s(f64[2], f64[3], bad="E0108")


def _guarded(b: Any, name: str, x: Any, y: Any) -> Any:
    """An integer division that gives 0 where the divisor is 0, which is undefined on some back ends."""
    t = b.types[0]
    direction = "#stablehlo<comparison_direction EQ>"
    by_zero = b.op("compare", y, b.splat(0, t), types=t.with_dtype(dtypes.bool_), comparison_direction=direction)
    return b.op("select", by_zero, b.splat(0, t), b.op(name, x, b.op("select", by_zero, b.splat(1, t), y)))


@op(type=same_real, prepare=promoted, ref=widened(np.fmod), axes=BINARY, samples=divisions)
def truncated_remainder(x: Value, y: Value) -> Any:
    """The rest of x / y cut toward zero, with the sign of x, as C's fmod and %; integers by 0 give 0.

    Raises E0106 for bool and complex tensors, E0108 when the shapes do not broadcast.
    """


truncated_remainder.kernel(lambda b, x, y: x % y if x.is_float else b.whole_division(x, y)[1])


@truncated_remainder.hlo
def _(b: Any, x: Any, y: Any) -> Any:
    return b.op("remainder", x, y) if b.types[0].dtype.is_float else _guarded(b, "remainder", x, y)


@truncated_remainder.onnx
def _(g: Any, x: Any, y: Any) -> Any:
    return g.node("Mod", x, y, fmod=1)


@truncated_remainder.grad
def _(x: Value, y: Value, out: Value, d: Value) -> Grads:
    return d, -d * round((x - out) / y)


def _wrong_side(rest: Value, y: Value) -> Value:
    """Where a truncated remainder has the other sign than the divisor, so that the floor is one lower."""
    wrong: Value = logical_and(not_equal(rest, 0), logical_xor(less(rest, 0), less(y, 0)))
    return wrong


@op(type=same_real, prepare=promoted, ref=widened(np.remainder), axes=BINARY, onnx="expand", samples=divisions)
def remainder(x: Value, y: Value) -> Any:
    """x - y * floor(x / y), with the sign of y, as Python's %; integers by 0 give 0, floats NaN.

    Raises E0106 for bool and complex tensors, E0108 when the shapes do not broadcast.
    """


@remainder.expand
def _(x: Value, y: Value) -> Any:
    rest = truncated_remainder(x, y)
    if x.dtype.kind == "u":
        return rest
    rest = select(_wrong_side(rest, y), rest + y, rest)
    if x.dtype.is_float:  # a rest of 0 has the sign of y too
        rest = select(equal(rest, 0), 0 * sign(y), rest)
    return rest


@remainder.grad
def _(x: Value, y: Value, out: Value, d: Value) -> Grads:
    return d, -d * floor_div(x, y)


@op(type=same_real, prepare=promoted, ref=widened(np.floor_divide), axes=BINARY, onnx="expand", samples=divisions)
def floor_div(x: Value, y: Value) -> Any:
    """The largest whole number not above x / y, as Python's //; integers by 0 give 0. Its derivative is 0.

    Raises E0106 for bool and complex tensors, E0108 when the shapes do not broadcast.
    """


@floor_div.expand
def _(x: Value, y: Value) -> Any:
    if x.dtype.is_float:
        return _float_floor_div(x, y)
    whole: Value = truncated_div(x, y)
    return whole if x.dtype.kind == "u" else select(_wrong_side(truncated_remainder(x, y), y), whole - 1, whole)


@in_float32
def _float_floor_div(x: Value, y: Value) -> Any:
    """From the exact remainder, so that rounding of x / y cannot cross a whole number."""
    rest = truncated_remainder(x, y)
    whole = (x - rest) / y
    whole = select(_wrong_side(rest, y), whole - 1, whole)
    ratio, down = x / y, floor(whole)
    down = select(greater(whole - down, 0.5), down + 1, down)
    return select(equal(y, 0), ratio, select(equal(whole, 0), 0 * ratio, down))


@floor_div.grad
def _(x: Value, y: Value, out: Value, d: Value) -> Grads:
    return None, None


@op(type=same_integer, prepare=promoted, axes=BINARY, grad=No("the result is an integer"), onnx="Div")
def truncated_div(x: Value, y: Value) -> Any:
    """x / y of integers cut toward zero, as C's /; by 0 it gives 0. Raises E0106 for tensors that are not integer."""


truncated_div.kernel(lambda b, x, y: b.whole_division(x, y)[0])


@truncated_div.ref
def _(x: Any, y: Any) -> Any:
    down, rest = np.floor_divide(x, y), np.remainder(x, y)
    return np.where((rest != 0) & ((x < 0) != (y < 0)), down + 1, down)


@truncated_div.hlo
def _(b: Any, x: Any, y: Any) -> Any:
    return _guarded(b, "divide", x, y)


@truncated_div.samples
def _(s: Samples) -> Iterator[Sample]:
    yield s(np.array([-7, -6, 7, 7, 5], np.int32), np.array([2, 2, -2, 2, 0], np.int32))
    yield s(np.array([200, 5], np.uint8), np.array([3, 0], np.uint8))
    yield s(i64[0, 2], i64[0, 2])
    yield s(np.int32(9), np.int32(4))
    yield s(f64[2], f64[2], bad="E0106")


def ordered(n: int) -> Any:
    """Samples of min and max: numbers, bools, NaN on either side; complex tensors are wrong."""

    def make(s: Samples) -> Iterator[Sample]:
        for t in (f64[()], f64[2, 3], f64[1, 3], f64[0, 3], f32[2, 2], f16[3], bf16[3], i32[3], u8[4], bool_[4]):
            yield s(*[t] * n)
        yield s(*[np.roll([np.nan, 1.0, 2.0, -np.inf], i) for i in range(n)], gradient=False)
        yield s(*[c64[2]] * n, bad="E0106")
        yield s(f64[2], *[f64[3]] * (n - 1), bad="E0108")

    return make


def largest(x: Any, y: Any) -> Any:
    """np.maximum, with 0.0 above -0.0 as IEEE 754-2019 has it (NumPy takes either)."""
    return np.maximum(x, y) if x.dtype.kind in "biu" else np.where((x == 0) & (y == 0), x + y, np.maximum(x, y))


def smallest(x: Any, y: Any) -> Any:
    """np.minimum, with -0.0 below 0.0."""
    return np.minimum(x, y) if x.dtype.kind in "biu" else -largest(-x, -y)


def _share(x: Value, y: Value, d: Value, wins: Value) -> Value:
    """d where x wins, half of it at ties, else 0."""
    shared: Value = select(equal(x, y), d * 0.5, select(wins, d, 0))
    return shared


def _by_kind(number: str, logic: str) -> Any:
    """ONNX has other operators for bools."""
    return lambda g, *xs: g.node(logic if g.types[0].dtype is dtypes.bool_ else number, *xs)


@op(
    type=same_ordered, prepare=promoted, ref=largest, axes=BINARY, hlo="maximum", onnx=_by_kind("Max", "Or"),
    samples=ordered(2),
)  # fmt: skip
def maximum(x: Value, y: Value) -> Any:
    """The larger of each pair; NaN if either is. At ties each side gets half of the derivative.

    Raises E0106 for complex tensors, E0108 when the shapes do not broadcast.
    """


maximum.kernel(lambda b, x, y: b.larger(x, y))


@maximum.grad
def _(x: Value, y: Value, out: Value, d: Value) -> Grads:
    return _share(x, y, d, greater(x, y)), _share(x, y, d, less(x, y))


@op(
    type=same_ordered, prepare=promoted, ref=smallest, axes=BINARY, hlo="minimum", onnx=_by_kind("Min", "And"),
    samples=ordered(2),
)  # fmt: skip
def minimum(x: Value, y: Value) -> Any:
    """The smaller of each pair; NaN if either is. At ties each side gets half of the derivative.

    Raises E0106 for complex tensors, E0108 when the shapes do not broadcast.
    """


minimum.kernel(lambda b, x, y: b.smaller(x, y))


@minimum.grad
def _(x: Value, y: Value, out: Value, d: Value) -> Grads:
    return _share(x, y, d, less(x, y)), _share(x, y, d, greater(x, y))


@op(type=same_real, prepare=promoted, axes="..., ..., ... -> ...", hlo="clamp")
def clamp(low: Value, x: Value, high: Value) -> Any:
    """min(max(x, low), high) of each element; NaN stays. The derivative goes to x where low <= x <= high.

    Raises E0106 for bool and complex tensors, E0108 when the shapes do not broadcast.
    """


clamp.kernel(lambda b, low, x, high: b.smaller(b.larger(x, low), high))


@clamp.ref
def _(low: Any, x: Any, high: Any) -> Any:
    return smallest(largest(x, low), high)


@clamp.onnx
def _(g: Any, low: Any, x: Any, high: Any) -> Any:
    return g.node("Min", g.node("Max", x, low), high)


@clamp.grad
def _(low: Value, x: Value, high: Value, out: Value, d: Value) -> Grads:
    below, above = less(x, low), greater(x, high)
    return select(below, d, 0), select(logical_or(below, above), 0, d), select(above, d, 0)


@clamp.samples
def _(s: Samples) -> Iterator[Sample]:
    for t in (f64[()], f64[2, 3], f32[3], bf16[3], f16[1, 3], f64[0, 3], i32[4]):
        yield s(np.full(t.shape, -1, t.dtype.np), t, np.full(t.shape, 1, t.dtype.np), tol=1e-6)
    yield s(np.full(3, -1.0), np.array([np.nan, np.inf, -np.inf]), np.full(3, 1.0), gradient=False)
    yield s(bool_[3], bool_[3], bool_[3], bad="E0106")
    yield s(f64[2], f64[3], f64[2], bad="E0108")


@op(type=same_float, ref=np.floor, axes=UNARY, hlo="floor", onnx="Floor", samples=floats(1))
def floor(x: Value) -> Any:
    """The largest whole number not above each element; its derivative is 0. Raises E0106 for integers."""


floor.kernel(lambda b, x: b.exact(b.call("llvm.floor", x)))


@floor.grad
def _(x: Value, out: Value, d: Value) -> Grads:
    return (None,)


@op(type=same_float, ref=np.ceil, axes=UNARY, hlo="ceil", onnx="Ceil", samples=floats(1))
def ceil(x: Value) -> Any:
    """The smallest whole number not below each element; its derivative is 0. Raises E0106 for integers."""


ceil.kernel(lambda b, x: b.exact(b.call("llvm.ceil", x)))


@ceil.grad
def _(x: Value, out: Value, d: Value) -> Grads:
    return (None,)


@op(type=same_float, ref=np.rint, axes=UNARY, hlo="round_nearest_even", onnx="Round", samples=floats(1))
def round(x: Value) -> Any:
    """The nearest whole number, of two the even one; its derivative is 0. Raises E0106 for integers."""


round.kernel(lambda b, x: b.exact(b.call("llvm.rint", x)))


@round.grad
def _(x: Value, out: Value, d: Value) -> Grads:
    return (None,)


@op(type=same_float, ref=widened(np.trunc), axes=UNARY, onnx="expand", samples=floats(1))
def trunc(x: Value) -> Any:
    """Each element cut toward zero to a whole number; its derivative is 0. Raises E0106 for integers."""


trunc.kernel(lambda b, x: b.exact(b.call("llvm.trunc", x)))


@trunc.expand
def _(x: Value) -> Any:
    return select(less(x, 0), ceil(x), floor(x))


@trunc.grad
def _(x: Value, out: Value, d: Value) -> Grads:
    return (None,)


@op(amp="wide", type=same_number, ref=np.square, axes=UNARY, onnx="expand", samples=numbers(1), expand=lambda x: x * x)
def square(x: Value) -> Any:
    """x * x of each element. Raises E0106 for bool tensors."""


@square.grad
def _(x: Value, out: Value, d: Value) -> Grads:
    return (d * (2 * x),)


@op(
    amp="wide",
    type=same_inexact, ref=widened(np.reciprocal), axes=UNARY, onnx="Reciprocal", samples=floats(1),
    expand=lambda x: 1 / x,
)  # fmt: skip
def reciprocal(x: Value) -> Any:
    """1 / x of each element. Raises E0106 for integers."""


@reciprocal.grad
def _(x: Value, out: Value, d: Value) -> Grads:
    return (-d * (out * out),)
