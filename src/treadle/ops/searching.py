"""Where numbers belong in a sorted line: searchsorted, by bisection. NaN counts as the greatest number, as in sort."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle.base.dtypes import int32
from treadle.base.errors import UserError
from treadle.ir.node import Value
from treadle.ir.op import No
from treadle.ir.types import TensorType, bf16, f32, f64, u8
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._types import same_real
from treadle.ops.compare import is_nan, less, logical_and, logical_not, logical_or, select
from treadle.ops.creation import full
from treadle.ops.index import take_along_axis
from treadle.ops.reduce import wide_array
from treadle.ops.shape import reshape

_LIMIT = 2**31 - 1


@op(grad=No("the result is an index"), onnx="expand")
def searchsorted(line: Value, values: Value, *, right: bool) -> Any:
    """How many elements of the sorted last axis of `line` come before each of `values`; with `right`, before or equal.

    line [..., n] ascending, values [..., m] of the same element type and leading sizes; result int32 [..., m]. What a
    line that is not sorted gives is not defined. Raises E0105 where the types differ, E0106 for bool or complex, E0107
    for 0-d operands, E0131 for a line of 2**31 elements or more, E0140 where leading sizes differ.
    """


@searchsorted.type
def _(line: TensorType, values: TensorType, *, right: bool) -> TensorType:
    same_real(line)
    if line.dtype is not values.dtype:
        raise UserError("E0105", f"the line is {line}, the values {values}", fix="cast one of them")
    if line.rank == 0 or values.rank == 0:
        raise UserError("E0107", f"the line is {line}, the values {values}: each needs an axis", fix="reshape it")
    if line.shape[:-1] != values.shape[:-1]:
        why = f"the line is {line}, the values {values}: all sizes but the last must be equal"
        raise UserError("E0140", why, fix="broadcast one of them first")
    if line.shape[-1] > _LIMIT:
        raise UserError("E0131", f"an int32 index does not reach the end of {line}", fix="split it")
    return values.with_dtype(int32)


@searchsorted.ref
def _(line: Any, values: Any, *, right: bool) -> Any:
    found = np.zeros(values.shape, np.int32)
    for row in np.ndindex(*values.shape[:-1]):
        found[row] = np.searchsorted(wide_array(line)[row], wide_array(values)[row], "right" if right else "left")
    return found


@searchsorted.expand
def _(line: Value, values: Value, *, right: bool) -> Value:
    """Bisection: a power of two after the other is added to the count while the element before it still comes first."""
    n, axis = line.shape[-1], line.ndim - 1
    count: Value = full(value=0, shape=values.shape, dtype=int32)
    if values.type.size == 0:
        return count
    step = 1 << n.bit_length() >> 1
    while step:
        more = count + step
        element = take_along_axis(line, more - 1, axis=axis)
        before = logical_not(_less(values, element)) if right else _less(element, values)
        count = select(logical_and(before, more <= n), more, count)
        step //= 2
    return count


def _less(x: Value, y: Value) -> Value:
    """x < y, with NaN the greatest."""
    smaller: Value = less(x, y)
    if not x.dtype.is_float:
        return smaller
    made: Value = logical_or(smaller, logical_and(is_nan(y), logical_not(is_nan(x))))
    return made


@searchsorted.axes
def _(line: TensorType, values: TensorType, *, right: bool) -> str:
    return "... !n, ... m -> ... m"


@searchsorted.batch
def _(run: Any, inputs: Any, flags: Any, *, right: bool) -> Any:
    line, values = inputs
    if flags[0] or line.ndim > 1:
        return [searchsorted(*run.all(inputs, flags), right=right)], [True]
    found = searchsorted(line, reshape(values, shape=(values.type.size,)), right=right)
    return [reshape(found, shape=values.shape)], [True]


def _sorted(s: Samples, type: TensorType) -> Any:
    return np.sort(wide_array(s.draw(type)), -1).astype(type.dtype.np)


@searchsorted.samples
def _(s: Samples) -> Iterator[Sample]:
    for right in (False, True):
        for n in (1, 2, 3, 4, 7, 8, 9):
            yield s(_sorted(s, f64[n]), f64[5], right=right)
        yield s(np.array([1, 1, 2, 2, 2, 5], np.int32), np.arange(7, dtype=np.int32), right=right)
        yield s(_sorted(s, f32[2, 6]), f32[2, 3], right=right)
        yield s(_sorted(s, bf16[5]), bf16[4], right=right)
        yield s(_sorted(s, u8[3, 1, 4]), u8[3, 1, 2], right=right)
        yield s(f64[0], f64[3], right=right)
        yield s(np.array([1.0, 2.0]), f64[0], right=right)
        yield s(f64[0, 4], f64[0, 2], right=right)
        line = np.array([-np.inf, -0.0, 0.0, np.inf, np.nan, np.nan])
        yield s(line, np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0]), right=right)
    yield s(f64[3], f32[3], right=False, bad="E0105")
    yield s(np.array([True]), np.array([True]), right=False, bad="E0106")
    yield s(f64[3], f64[()], right=False, bad="E0107")
    yield s(f64[2, 3], f64[3, 3], right=False, bad="E0140")
