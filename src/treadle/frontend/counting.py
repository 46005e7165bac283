"""Where elements are and which there are: nonzero, unique, masked_select, searchsorted, digitize.

Some of these results have a size that depends on numbers. Eagerly it is what it is. While a function is traced it must
be given (`size=`, else E0507): the result then has that size, the places that are not needed hold `fill_value`, and
what does not fit is left out.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.frontend import elementwise, indexing
from treadle.frontend.elementwise import is_weak
from treadle.frontend.functions import sum as total
from treadle.frontend.lift import (
    cast,
    either,
    index_along,
    integer,
    is_array,
    lift,
    literal,
    make_tensor,
    one_axis,
    operand,
    positions,
    weak_type,
)  # fmt: skip
from treadle.frontend.logic import isnan, truth, where
from treadle.frontend.scatter import filled, known, mask_of
from treadle.frontend.shaping import broadcast_to, concatenate, cut, flip, moveaxis, reshape, stack
from treadle.ops import compare, index, reduce, searching, sorting
from treadle.ops._types import broadcast_shapes

__all__ = [
    "argwhere", "bucketize", "count_nonzero", "digitize", "flatnonzero", "masked_select", "nonzero", "searchsorted",
    "unique",
]  # fmt: skip


def _size(given: Any, found: Any, what: str) -> int:
    """The size of a result: as given, else `found`, which is None while traced (E0507)."""
    if given is not None:
        size = integer(given, "size")
        if size < 0:
            raise UserError("E0109", f"size is {size}", fix="give 0 or more")
        return size
    if found is None:
        why = f"how many elements {what} has depends on numbers, which are not known during tracing"
        raise UserError("E0507", why, fix="give the size of the result, as size=10, or mask with td.where(...)")
    return int(found)


# ------------------------------------------------------------------------------------------------------- true places
def count_nonzero(x: Any, axis: Any = None, keepdims: bool = False, *, dim: Any = None) -> Any:
    """How many elements over axes are not zero, int64."""
    return total(truth(x), axis, keepdims, dim=dim)


def _true_places(mask: Any, size: Any, what: str) -> tuple[Any, Any]:
    """Positions (int32) of the first true elements of a line, and which of them there are, both of the size."""
    found = known(mask)
    if size is None and found is not None:
        places = np.flatnonzero(found).astype(np.int32)
        return make_tensor(places), None
    count, mask = _size(size, None, what), lift(mask)
    if mask.shape[0] == 0:
        return filled(0, (count,), dtypes.int32), filled(False, (count,), dtypes.bool_)
    order = reduce.cumsum(cast(mask, dtypes.int32), axis=0, reverse=False)
    wanted = lift(literal(np.arange(1, count + 1, dtype=np.int32)))
    return searching.searchsorted(order, wanted, right=False), compare.less_equal(wanted, order[-1])


def _line(x: Any) -> Any:
    """Whether each element is true, in row order, as an array where x is one."""
    return np.asarray(x).astype(bool).ravel() if is_array(x) else reshape(truth(x), (lift(x).size,))


def _filled_up(values: Any, there: Any, fill_value: Any) -> Any:
    """Values, with fill_value where there is none; `there` is None where all are."""
    if there is None:
        return values
    there = reshape(there, (*there.shape, *[1] * (values.ndim - 1)))
    return where(there, values, indexing.elements(fill_value, values.dtype))


def flatnonzero(x: Any, *, size: int | None = None, fill_value: Any = 0) -> Any:
    """Positions (int32) of the elements that are not zero, in row order, all axes as one. Raises E0507."""
    places, there = _true_places(_line(x), size, "flatnonzero")
    return _filled_up(places, there, fill_value)


def nonzero(x: Any, *, size: int | None = None, fill_value: Any = 0, as_tuple: bool = True) -> Any:
    """Positions (int32) of the elements that are not zero, in row order: a tensor per axis. as_tuple=False: `argwhere`.

    Raises E0107 for a 0-d tensor, E0507 while traced without a size.
    """
    x = x if is_array(x) else lift(x)
    if x.ndim == 0:
        raise UserError("E0107", "positions in a tensor without axes", fix="reshape it: x.reshape(1)")
    rest, there = _true_places(_line(x), size, "nonzero")
    columns = []
    for n in reversed(x.shape):
        columns.append(elementwise.remainder(rest, max(n, 1)))
        rest = elementwise.floor_divide(rest, max(n, 1))
    made = tuple([_filled_up(c, there, fill_value) for c in reversed(columns)])
    return made if as_tuple else stack(made, -1)


def argwhere(x: Any, *, size: int | None = None, fill_value: Any = 0) -> Any:
    """Positions (int32) of the elements that are not zero, in row order: a row for each, a column per axis."""
    return nonzero(x, size=size, fill_value=fill_value, as_tuple=False)


def masked_select(x: Any, mask: Any, *, size: int | None = None, fill_value: Any = 0) -> Any:
    """The elements of x where mask is true, in row order, as one line; x and mask broadcast. Raises E0106, E0507."""
    x, given = lift(x), mask_of(mask)
    shape = broadcast_shapes(tuple(x.shape), tuple(given.shape))
    wide = np.broadcast_to(mask, shape) if is_array(mask) else broadcast_to(given, shape)
    places, there = _true_places(_line(wide), size, "masked_select")
    flat = reshape(broadcast_to(x, shape), (math.prod(shape),))
    if flat.shape[0] == 0:
        return filled(fill_value, (places.shape[0],), x.dtype)
    return _filled_up(index.take(flat, places, axis=0), there, fill_value)


# ------------------------------------------------------------------------------------------------------------ unique
def unique(
    x: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: Any = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: Any = None,
    dim: Any = None,
) -> Any:
    """The different elements in ascending order (with an axis: the different slices, compared element by element).

    return_index: the first position of each; return_inverse: for each element its number in the result, so that
    result[inverse] is x; return_counts: how often each occurs; all int32. As NumPy; NaN is last, and one unless
    equal_nan=False. With size=: fill_value (unless given, the first element) fills the rest, where counts are 0 and
    positions those of the first element; numbers in inverse are not bounded by size. Raises E0106 for complex, E0507.
    """
    x, axis = lift(x), either("axis", axis, "dim", dim)
    if axis is None:
        rows, shape = reshape(x, (x.size, 1)), tuple(x.shape)
    else:
        rows = moveaxis(x, one_axis(axis, x.ndim), 0)
        rest, shape = tuple(rows.shape[1:]), (rows.shape[0],)
        rows = reshape(rows, (rows.shape[0], math.prod(rest)))
    n = rows.shape[0]
    order = _row_order(rows)
    found = index.take(rows, order, axis=0) if rows.size else rows
    first = _begins(found, equal_nan)
    starts, there = _true_places(first, size, "unique")
    number = reduce.cumsum(cast(first, dtypes.int32), axis=0, reverse=False) - 1
    values = _shaped(found, starts, there, fill_value)
    values = reshape(values, (-1,)) if axis is None else values
    if axis is not None:
        values = moveaxis(reshape(values, (values.shape[0], *rest)), 0, one_axis(axis, x.ndim))
    made = [values]
    if return_index:
        made.append(_filled_up(index.take(order, starts, axis=0) if n else starts, there, order[0] if n else 0))
    if return_inverse:
        made.append(reshape(index.index_sum(order, number, axis=0, size=n), shape))
    if return_counts:
        made.append(_occurrences(number, starts.shape[0]))
    return tuple(made) if len(made) > 1 else values


def _row_order(rows: Any) -> Any:
    """The positions (int32) that sort the rows, by the first column first; equal rows keep their order."""
    keys = cast(rows, dtypes.uint8) if rows.dtype is dtypes.bool_ else rows
    order = lift(index_along((rows.shape[0],), 0))
    for column in reversed(range(rows.shape[1])):
        if rows.shape[0] == 0:
            break
        key = index.take(reshape(cut(keys, 1, column, column + 1), (-1,)), order, axis=0)
        order = index.take(order, sorting.argsort(key, axis=0, descending=False), axis=0)
    return order


def _begins(rows: Any, equal_nan: bool) -> Any:
    """Whether each of the sorted rows differs from the one before."""
    n = rows.shape[0]
    if n == 0:
        return filled(False, (0,), dtypes.bool_)
    before, after = cut(rows, 0, 0, n - 1), cut(rows, 0, 1, n)
    other = compare.not_equal(before, after)
    if equal_nan and rows.dtype.is_float:
        other = compare.logical_and(other, compare.logical_not(compare.logical_and(isnan(before), isnan(after))))
    return concatenate([filled(True, (1,), dtypes.bool_), reduce.reduce_or(other, axes=(1,))], 0)


def _shaped(rows: Any, starts: Any, there: Any, fill_value: Any) -> Any:
    """The rows at starts, and the filling where there are none."""
    count = starts.shape[0]
    if rows.size == 0:
        return filled(0 if fill_value is None else fill_value, (count, rows.shape[1]), rows.dtype)
    fill = cut(rows, 0, 0, 1) if fill_value is None else indexing.elements(fill_value, rows.dtype)
    values = index.take(rows, starts, axis=0)
    return values if there is None else where(reshape(there, (count, 1)), values, fill)


def _occurrences(number: Any, count: int) -> Any:
    """How often each of the numbers 0 to count - 1 occurs, int32."""
    places = where(compare.less(number, count), number, count)
    ones = filled(1, number.shape, dtypes.int32)
    return cut(index.index_sum(places, ones, axis=0, size=count + 1), 0, 0, count)


# ------------------------------------------------------------------------------------------------------- sorted lines
def searchsorted(line: Any, values: Any, side: str = "left", *, right: bool | None = None, sorter: Any = None) -> Any:
    """Where values belong in a sorted line: how many of its elements are smaller (side="right": or equal), int32.

    line [n] with values of any shape, or line [..., n] with values [..., m]. NaN counts as the greatest. right=True is
    side="right". sorter: positions that sort the line. Raises E0103, E0106, E0107, E0140.
    """
    if side not in ("left", "right") or (right is not None and side == "right" and not right):
        raise UserError("E0103", f"side={side!r}, right={right}", fix="use side='left' or side='right'")
    line = lift(line)
    if sorter is not None:
        line = index.take_along_axis(line, operand(positions(sorter, line.shape[-1])), axis=line.ndim - 1)
    line, values = _together(line, values)
    is_right = side == "right" if right is None else bool(right)
    if line.ndim != 1:
        return searching.searchsorted(line, values, right=is_right)
    found = searching.searchsorted(line, reshape(values, (values.size,)), right=is_right)
    return reshape(found, tuple(values.shape))


def _together(line: Any, values: Any) -> tuple[Any, Any]:
    """Both in one element type that has an order."""
    if is_weak(values):
        target = dtypes.promote_scalar(line.dtype, weak_type(values) or type(values))
        values = indexing.elements(values, target)
    else:
        values = lift(values)
        target = dtypes.promote(line.dtype, values.dtype)
    target = dtypes.uint8 if target is dtypes.bool_ else target
    return cast(line, target), cast(values, target)


def digitize(x: Any, bins: Any, right: bool = False) -> Any:
    """The number i of the bin of each element, int32: bins[i - 1] <= x < bins[i], with `right` the other
    end belongs to it: bins[i - 1] < x <= bins[i].

    bins: one line that rises, or falls (then the signs above are turned round). Raises E0103 where it does neither.
    """
    bins, side = lift(bins), "left" if right else "right"
    if bins.ndim != 1:
        raise UserError("E0103", f"bins of shape {list(bins.shape)}", fix="give one line of edges")
    found = known(bins)
    if found is not None:
        steps = np.diff(found.astype(np.float64))
        if (steps < 0).any() and (steps > 0).any():
            raise UserError("E0103", "the bins neither rise nor fall", fix="sort them")
    n = bins.shape[0]
    rising = searchsorted(bins, x, side)
    if n < 2:
        return rising
    falling = n - searchsorted(flip(bins, 0), x, side)
    return where(compare.greater(bins[0], bins[-1]), falling, rising)


def bucketize(x: Any, boundaries: Any, *, right: bool = False) -> Any:
    """The number of the bucket of each element, int32: boundaries[i - 1] < x <= boundaries[i], with `right`
    boundaries[i - 1] <= x < boundaries[i]; `searchsorted` with PyTorch's arguments."""
    return searchsorted(boundaries, x, right=right)
