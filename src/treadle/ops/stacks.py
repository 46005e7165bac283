"""`exchange`: read a row of a stack and write another in its place, as one op.

Reading and writing by `dynamic_slice` and `dynamic_update_slice` would give the stack two cotangents, and their sum
costs as much as the whole stack. The gradient of an exchange is an exchange, so a loop with a stack has a gradient that
touches one row a trip.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle.base.dtypes import bool_
from treadle.base.errors import UserError
from treadle.ir.node import Value
from treadle.ir.types import TensorType, f32, f64, i32
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._regions import peek, push
from treadle.ops.shape import LETTERS


@op(jvp="linear", onnx="expand")
def exchange(stack: Value, item: Value, index: Value) -> Any:
    """(stack[index], the stack with item there instead).

    stack: [n, ...]; item: [...]; index: int32[], clamped to 0..n-1. Raises E0105 when the element types differ, E0138
    for another index, E0141 for an item of another shape or an empty stack.
    """


@exchange.type
def _(stack: TensorType, item: TensorType, index: TensorType) -> tuple[TensorType, TensorType]:
    if stack.dtype is not item.dtype:
        raise UserError("E0105", f"the types differ: {stack} and {item}", fix="cast one of them")
    if index != i32[()]:
        raise UserError("E0138", f"the index is {index}", fix="give a 0-d int32 tensor")
    if stack.rank == 0 or stack.shape[0] == 0 or stack.shape[1:] != item.shape:
        raise UserError("E0141", f"{item} is no row of {stack}", fix="give an item of the shape of stack[0]")
    return item, stack


@exchange.expand
def _(stack: Value, item: Value, index: Value) -> tuple[Value, Value]:
    return peek(stack, index), push(stack, item, index)


@exchange.hlo
def _(b: Any, stack: Any, item: Any, index: Any) -> Any:
    """Both rows go through a branch, of which always the same side is taken: so XLA sees that the row is read before it
    is written, and copies no stack."""
    of_stack, of_item, of_index = b.types
    row, zeros = of_stack.with_shape((1, *of_item.shape)), [b.splat(0, of_index)] * of_item.rank
    old = b.op("dynamic_slice", stack, index, *zeros, slice_sizes=row.shape, types=row)
    new = b.op("reshape", item, types=row)
    ge = "#stablehlo<comparison_direction GE>"
    usual = b.op("compare", index, b.splat(-1, of_index), types=of_index.with_dtype(bool_), comparison_direction=ge)
    sides = [b.region((), lambda inner: (old, new)), b.region((), lambda inner: (new, old))]
    old, new = b.op("if", usual, regions=sides, types=(row, row))
    pushed = b.op("dynamic_update_slice", stack, new, index, *zeros, types=of_stack)
    return b.op("reshape", old, types=of_item), pushed


@exchange.axes
def _(stack: TensorType, item: TensorType, index: TensorType) -> str:
    row = " ".join(LETTERS[1 : stack.rank])
    return f"!a {row}, {row}, -> {row}, !a {row}"


@exchange.grad
def _(stack: Value, item: Value, index: Value, old: Value, new: Value, dold: Value, dnew: Value) -> Any:
    ditem, dstack = exchange(dnew, dold, index)
    return dstack, ditem, None


@exchange.samples
def _(s: Samples) -> Iterator[Sample]:
    yield s(f64[4, 2, 3], f64[2, 3], np.int32(2))
    yield s(f64[3], f64[()], np.int32(9))
    yield s(f64[1, 2], f64[2], np.int32(0))
    yield s(f64[2, 0], f64[0], np.int32(1))
    yield s(np.array([True, False]), np.array(True), np.int32(1))
    yield s(i32[3], i32[()], np.int32(0))
    yield s(f64[3], f32[()], np.int32(1), bad="E0105")
    yield s(f64[3], f64[()], np.int64(1), bad="E0138")
    yield s(f64[3, 2], f64[3], np.int32(1), bad="E0141")
    yield s(f64[0], f64[()], np.int32(1), bad="E0141")
