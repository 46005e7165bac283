"""Signs and neighbours of floats, and common divisors of integers, of each element."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle.base.dtypes import uint16, uint32, uint64
from treadle.ir.node import Value
from treadle.ir.op import No
from treadle.ir.types import f32, f64, i32
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._regions import region, types_of
from treadle.ops._types import floats, integers, promoted, same_float, same_kind
from treadle.ops.bits import bit_and, bit_or, bitcast, shift_left
from treadle.ops.compare import equal, not_equal, select
from treadle.ops.control import while_
from treadle.ops.creation import full
from treadle.ops.elementwise import abs, truncated_div, truncated_remainder
from treadle.ops.reduce import reduce_or

Grads = tuple[Value | None, ...]
BINARY = "..., ... -> ..."
same_whole = same_kind("iu", "integer")
WORDS = {16: uint16, 32: uint32, 64: uint64}


@op(
    type=same_float, prepare=promoted, ref=np.copysign, axes=BINARY, onnx=No("ONNX does not read the sign of a zero")
)  # fmt: skip
def copysign(x: Value, y: Value) -> Any:
    """The size of x with the sign of y, also of a zero or a NaN, of each element; no derivative for y.

    Raises E0106 for integers, E0108 when the shapes do not broadcast.
    """


@copysign.expand
def _(x: Value, y: Value) -> Any:
    bits = WORDS[x.dtype.bits]
    one: Value = full(value=1, shape=x.shape, dtype=bits)
    sign = shift_left(one, full(value=x.dtype.bits - 1, shape=x.shape, dtype=bits))
    size = bit_and(bitcast(x, dtype=bits), sign - 1)
    return bitcast(bit_or(size, bit_and(bitcast(y, dtype=bits), sign)), dtype=x.dtype)


@copysign.grad
def _(x: Value, y: Value, out: Value, d: Value) -> Grads:
    return d * (copysign(1, x) * copysign(1, y)), None


@copysign.samples
def _(s: Samples) -> Iterator[Sample]:
    yield from floats(2)(s)
    yield s(f64[2], f64[3], bad="E0108")


def _next(x: Any, y: Any) -> Any:
    """np.nextafter, also of 16-bit zeros as C has it: y where the two are equal."""
    return np.where(x == y, y, np.nextafter(x, y))


@op(
    type=same_float, prepare=promoted, ref=_next, axes=BINARY, hlo="chlo.next_after",
    grad=No("the numbers beside it make a staircase"), onnx=No("ONNX has no such operator"),
)  # fmt: skip
def nextafter(x: Value, y: Value) -> Any:
    """The number beside x in the direction of y, of each element, in its own type; y where they are equal.

    Raises E0106 for integers, E0108 when the shapes do not broadcast.
    """


@nextafter.samples
def _(s: Samples) -> Iterator[Sample]:
    yield from floats(2)(s)
    yield s(np.array([0.0, -0.0, 1.0, np.inf]), np.array([1.0, -1.0, 1.0, 0.0]))
    yield s(f32[2], f32[3], bad="E0108")


def _magnitude(x: Value) -> Value:
    size: Value = x if x.dtype.kind == "u" else abs(x)
    return size


def _whole_samples(s: Samples) -> Iterator[Sample]:
    yield from integers(2)(s)
    yield s(np.array([12, -18, 0, 0, 7, -(2**31)], np.int32), np.array([18, 12, 5, 0, 7, 6], np.int32))
    yield s(i32[2], i32[3], bad="E0108")


@op(
    type=same_whole, prepare=promoted, ref=np.gcd, axes=BINARY, samples=_whole_samples,
    grad=No("whole numbers have no derivative"), onnx=No("ONNX has no such operator"),
)  # fmt: skip
def gcd(x: Value, y: Value) -> Any:
    """The greatest common divisor of each pair of integers, >= 0; gcd(0, 0) is 0. Euclid's algorithm, in a loop.

    Raises E0106 for tensors that are not integer, E0108 when the shapes do not broadcast.
    """


@gcd.expand
def _(x: Value, y: Value) -> Any:
    types = types_of((x, y))

    def more(a: Value, b: Value) -> Any:
        return reduce_or(not_equal(b, 0), axes=tuple(range(b.ndim)))

    def step(a: Value, b: Value) -> tuple[Value, Value]:
        done = equal(b, 0)
        return select(done, a, b), select(done, 0, truncated_remainder(a, select(done, 1, b)))

    bodies = {"cond": region(more, types, "more"), "body": region(step, types, "euclid")}
    return _magnitude(while_(_magnitude(x), _magnitude(y), **bodies, n_consts=0)[0])


@op(
    type=same_whole, prepare=promoted, ref=np.lcm, axes=BINARY, samples=_whole_samples,
    grad=No("whole numbers have no derivative"), onnx=No("ONNX has no such operator"),
)  # fmt: skip
def lcm(x: Value, y: Value) -> Any:
    """The least common multiple of each pair of integers, >= 0; 0 if one is 0; one too large wraps around.

    Raises E0106 for tensors that are not integer, E0108 when the shapes do not broadcast.
    """


@lcm.expand
def _(x: Value, y: Value) -> Any:
    common = gcd(x, y)
    return truncated_div(_magnitude(x), select(equal(common, 0), 1, common)) * _magnitude(y)
