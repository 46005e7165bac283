"""Bits of integers: logic, shifts, counts, and the same bits as another type.

A shift by the width or more (or by a negative amount, taken as unsigned) gives 0, or -1 for an arithmetic shift of a
negative number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle.base.dtypes import DType, bfloat16, bool_, complex64, float16, float32, int16, of, uint32, uint64
from treadle.base.errors import UserError
from treadle.ir.node import Value
from treadle.ir.op import No
from treadle.ir.types import TensorType, bf16, f16, f32, f64, i32, u32
from treadle.ir.types import bool_ as boolean
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._types import integers, promoted, same_bits, same_kind

NO_GRAD = No("bits have no derivative")
NO_ONNX = No("ONNX has no such operator")
UNARY, BINARY = "... -> ...", "..., ... -> ..."
same_integer = same_kind("iu", "integer")


def _by_kind(number: str, logic: str) -> Any:
    """ONNX has other operators for bools."""
    return lambda g, *xs: g.node(logic if g.types[0].dtype is bool_ else number, *xs)


@op(
    type=same_bits, prepare=promoted, ref=np.bitwise_and, grad=NO_GRAD, axes=BINARY, hlo="and",
    onnx=_by_kind("BitwiseAnd", "And"), samples=integers(2, with_bool=True),
)  # fmt: skip
def bit_and(x: Value, y: Value) -> Any:
    """Bits set in both, of each element. Raises E0106 for floats."""


bit_and.kernel(lambda b, x, y: x & y)


@op(
    type=same_bits, prepare=promoted, ref=np.bitwise_or, grad=NO_GRAD, axes=BINARY, hlo="or",
    onnx=_by_kind("BitwiseOr", "Or"), samples=integers(2, with_bool=True),
)  # fmt: skip
def bit_or(x: Value, y: Value) -> Any:
    """Bits set in one or both, of each element. Raises E0106 for floats."""


bit_or.kernel(lambda b, x, y: x | y)


@op(
    type=same_bits, prepare=promoted, ref=np.bitwise_xor, grad=NO_GRAD, axes=BINARY, hlo="xor",
    onnx=_by_kind("BitwiseXor", "Xor"), samples=integers(2, with_bool=True),
)  # fmt: skip
def bit_xor(x: Value, y: Value) -> Any:
    """Bits set in one but not both, of each element. Raises E0106 for floats."""


bit_xor.kernel(lambda b, x, y: x ^ y)


@op(
    type=same_bits, ref=np.invert, grad=NO_GRAD, axes=UNARY, hlo="not", onnx=_by_kind("BitwiseNot", "Not"),
    samples=integers(1, with_bool=True),
)  # fmt: skip
def bit_not(x: Value) -> Any:
    """Every bit turned over, of each element. Raises E0106 for floats."""


bit_not.kernel(lambda b, x: x ^ (-1 if b.dtype.bits > 1 else 1))


@op(type=same_integer, grad=NO_GRAD, axes=UNARY, hlo="popcnt", onnx=NO_ONNX, samples=integers(1))
def popcount(x: Value) -> Any:
    """How many bits are set, of each element, in its own type. Raises E0106 for floats and bools."""


popcount.kernel(lambda b, x: b.call("llvm.ctpop", x))


@popcount.ref
def _(x: Any) -> Any:
    return np.bitwise_count(_unsigned(x)).astype(x.dtype)


def _unsigned(x: Any) -> Any:
    return x.view(f"u{x.dtype.itemsize}")


def shifts(s: Samples) -> Iterator[Sample]:
    """Integers and shift amounts up to past the width; floats are wrong."""
    for kind in (np.int32, np.int8, np.uint8, np.uint32, np.int64):
        bits = np.dtype(kind).itemsize * 8
        x = np.array([1, 100, 100, -1 if np.dtype(kind).kind == "i" else 255, np.iinfo(kind).min, 7])
        yield s(x.astype(kind), np.array([0, 1, bits - 1, 3, bits, bits + 1], kind))
    yield s(np.array([5, -5], np.int32), np.array([-1, -1], np.int32))
    yield s(np.int32(5), np.int32(1))
    for t in (i32[0, 2], u32[1, 3]):
        yield s(t, t)
    yield s(f64[3], f64[3], bad="E0106")
    yield s(i32[2], i32[3], bad="E0108")


def _onnx_shift(direction: str) -> Any:
    """ONNX shifts unsigned integers only."""

    def write(g: Any, x: Any, y: Any) -> Any:
        dtype = g.types[0].dtype
        if dtype.kind == "u":
            return g.node("BitShift", x, y, direction=direction)
        unsigned = of(f"uint{dtype.bits}")
        x, y = g.node("Cast", x, to=unsigned), g.node("Cast", y, to=unsigned)
        return g.node("Cast", g.node("BitShift", x, y, direction=direction), to=dtype)

    return write


@op(
    type=same_integer, prepare=promoted, grad=NO_GRAD, axes=BINARY, hlo="shift_left", onnx=_onnx_shift("LEFT"),
    samples=shifts,
)  # fmt: skip
def shift_left(x: Value, y: Value) -> Any:
    """Bits of x moved up by y places, of each element; zeros come in. Raises E0106 for floats and bools, E0108."""


shift_left.kernel(lambda b, x, y: b.shift("shl", x, y))


@shift_left.ref
def _(x: Any, y: Any) -> Any:
    return np.left_shift(_unsigned(x), _unsigned(y)).view(x.dtype)


@op(
    type=same_integer, prepare=promoted, grad=NO_GRAD, axes=BINARY, hlo="shift_right_logical",
    onnx=_onnx_shift("RIGHT"), samples=shifts,
)  # fmt: skip
def shift_right_logical(x: Value, y: Value) -> Any:
    """Bits of x moved down by y places, of each element; zeros come in. Raises E0106 for floats and bools, E0108."""


shift_right_logical.kernel(lambda b, x, y: b.shift("lshr", x, y))


@shift_right_logical.ref
def _(x: Any, y: Any) -> Any:
    return np.right_shift(_unsigned(x), _unsigned(y)).view(x.dtype)


@op(
    type=same_integer, prepare=promoted, grad=NO_GRAD, axes=BINARY, hlo="shift_right_arithmetic", onnx=NO_ONNX,
    samples=shifts,
)  # fmt: skip
def shift_right_arithmetic(x: Value, y: Value) -> Any:
    """Bits of x moved down by y places, of each element; copies of the top bit come in, for unsigned types too.

    Raises E0106 for floats and bools, E0108 when the shapes do not broadcast.
    """


shift_right_arithmetic.kernel(lambda b, x, y: b.shift("ashr", x, y))


@shift_right_arithmetic.ref
def _(x: Any, y: Any) -> Any:
    bits = x.dtype.itemsize * 8
    places = np.minimum(_unsigned(y), bits - 1).astype(f"i{x.dtype.itemsize}")
    return np.right_shift(x.view(places.dtype), places).view(x.dtype)


@op(axes=UNARY, grad=NO_GRAD, hlo=lambda b, x, *, dtype: b.op("bitcast_convert", x), onnx=NO_ONNX)
def bitcast(x: Value, *, dtype: DType) -> Any:
    """The bits of each element read as `dtype`, of the same width. Raises E0122 when the widths differ or x is bool."""


bitcast.kernel(lambda b, x, *, dtype: b.bits_as(x, dtype))


@bitcast.type
def _(x: TensorType, *, dtype: DType) -> TensorType:
    if x.dtype.bits != dtype.bits or "c" in (x.dtype.kind, dtype.kind) or dtype.bits == 1:
        raise UserError("E0122", f"the bits of {x} are none of {dtype}", fix="use a real type of the same width")
    return x.with_dtype(dtype)


@bitcast.ref
def _(x: Any, *, dtype: DType) -> Any:
    return np.ascontiguousarray(x).reshape(x.shape).view(dtype.np)


@bitcast.samples
def _(s: Samples) -> Iterator[Sample]:
    yield s(f32[2, 3], dtype=uint32)
    yield s(np.array([0, 0x3F800000, 0xFF800000], np.uint32), dtype=float32)
    yield s(f64[()], dtype=uint64)
    yield s(bf16[3], dtype=int16)
    yield s(f16[1, 2], dtype=bfloat16)
    yield s(bf16[2], dtype=float16)
    yield s(i32[0, 2], dtype=uint32)
    yield s(f64[2], dtype=float32, bad="E0122")
    yield s(f64[2], dtype=complex64, bad="E0122")
    yield s(boolean[2], dtype=bool_, bad="E0122")
