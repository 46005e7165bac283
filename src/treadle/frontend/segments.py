"""Sums, products, means and extremes of the rows of each segment; counts; histograms.

A segment is named by a number from 0 on; rows whose number is below 0 or too large belong to none and are left out (so
padding can be marked by -1). How many segments there are is the size of the result: a traced function must name it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.frontend import elementwise
from treadle.frontend.counting import searchsorted
from treadle.frontend.functions import max as largest
from treadle.frontend.functions import min as smallest
from treadle.frontend.functions import sum as total
from treadle.frontend.lift import cast, floating, integer, is_tensor, lift, literal, make_tensor
from treadle.frontend.logic import isnan, where
from treadle.frontend.scatter import LARGEST, PRODUCT, SMALLEST, SUM, Way, filled, known, neutral
from treadle.frontend.shaping import concatenate, cut, reshape
from treadle.ops import compare

__all__ = [
    "bincount", "histogram", "histogram_bin_edges", "segment_max", "segment_mean", "segment_min", "segment_prod",
    "segment_sum",
]  # fmt: skip


def _count(numbers: Any, given: Any, name: str) -> int:
    """How many segments there are: as given, else one more than the largest number. Raises E0507 while traced."""
    if given is not None:
        count = integer(given, name)
        if count < 0:
            raise UserError("E0109", f"{name} is {count}", fix="give 0 or more")
        return count
    found = known(numbers)
    if found is None:
        why = f"the size of the result depends on numbers, which are not known during tracing: {name} is not given"
        raise UserError("E0507", why, fix=f"give it: {name}=10")
    return int(found.max()) + 1 if found.size and found.max() >= 0 else 0


def _segment_ids(ids: Any) -> Any:
    ids = lift(ids)
    if not ids.dtype.is_integer:
        raise UserError("E0138", f"segment numbers are {ids.dtype}", fix="cast them: i.astype(td.int32)")
    wide = ids.dtype.bits >= 32 and (ids.dtype.kind == "i" or ids.dtype.bits > 32)
    return ids if wide else cast(ids, dtypes.int64 if ids.dtype.bits == 32 else dtypes.int32)


def _segments(way: Way, start: Any, data: Any, ids: Any, count: int) -> Any:
    """The rows of data reduced by segment; `start` is what a segment without rows is. One more segment takes the rows
    that belong to none."""
    data, ids = lift(data), _segment_ids(ids)
    if ids.ndim == 0 or tuple(ids.shape) != tuple(data.shape[: ids.ndim]):
        why = f"segment numbers {list(ids.shape)} for data {list(data.shape)}"
        raise UserError("E0140", why, fix="give a number for each row of the data")
    inside = compare.logical_and(compare.greater_equal(ids, 0), compare.less(ids, count))
    places = where(inside, ids, count)
    rest = tuple(data.shape[ids.ndim :])
    made = way.slices(filled(neutral(start, data.dtype), (count + 1, *rest), data.dtype), places, data, axis=0)
    return cut(made, 0, 0, count)


def segment_sum(data: Any, segment_ids: Any, num_segments: int | None = None) -> Any:
    """Row s of the result is the sum of the rows of data [n, ...] whose number in segment_ids [n] is s; 0 of none.

    segment_ids may have more axes, as many first axes as data. Raises E0138, E0140, and E0507 when num_segments is not
    given while traced.
    """
    return _segments(SUM, 0, data, segment_ids, _count(segment_ids, num_segments, "num_segments"))


def segment_prod(data: Any, segment_ids: Any, num_segments: int | None = None) -> Any:
    """The product of the rows of each segment; 1 of none. Like `segment_sum`."""
    return _segments(PRODUCT, 1, data, segment_ids, _count(segment_ids, num_segments, "num_segments"))


def segment_max(data: Any, segment_ids: Any, num_segments: int | None = None) -> Any:
    """The elementwise maximum of the rows of each segment; -inf (or the smallest integer) of none.

    The gradient is shared equally among equal largest elements. Like `segment_sum`.
    """
    return _segments(LARGEST, "least", data, segment_ids, _count(segment_ids, num_segments, "num_segments"))


def segment_min(data: Any, segment_ids: Any, num_segments: int | None = None) -> Any:
    """The elementwise minimum of the rows of each segment; inf (or the largest integer) of none. Like `segment_max`."""
    return _segments(SMALLEST, "most", data, segment_ids, _count(segment_ids, num_segments, "num_segments"))


def segment_mean(data: Any, segment_ids: Any, num_segments: int | None = None) -> Any:
    """The mean of the rows of each segment, float32 of integers; 0 of none. Like `segment_sum`."""
    data, ids = floating(data), _segment_ids(segment_ids)
    count = _count(ids, num_segments, "num_segments")
    added = _segments(SUM, 0, data, ids, count)
    rows = _segments(SUM, 0, filled(1, ids.shape, dtypes.int32), ids, count)
    rows = reshape(elementwise.maximum(rows, 1), (count, *[1] * (added.ndim - 1)))
    return elementwise.divide(added, cast(rows, added.dtype))


def bincount(x: Any, weights: Any = None, minlength: int = 0, *, length: int | None = None) -> Any:
    """How often each number from 0 on occurs in x (int64), or the sum of the weights where it does, as NumPy.

    length: how many numbers are counted; the others are left out. It must be given while traced (E0507). Without it
    there are as many as x needs, but at least minlength; negative numbers raise E0506. Raises E0138 for floats.
    """
    x = _segment_ids(x)
    if length is None:
        found = known(x)
        if found is not None and found.size and found.min() < 0:
            raise UserError("E0506", f"{found.min()} among the numbers to count", fix="give length= to leave it out")
        length = max(_count(x, None, "length"), integer(minlength, "minlength"))
    flat = reshape(x, (x.size,))
    ones = filled(1, flat.shape, dtypes.int64) if weights is None else reshape(lift(weights), (-1,))
    return _segments(SUM, 0, ones, flat, _count(x, length, "length"))


def histogram_bin_edges(x: Any, bins: Any = 10, range: Any = None) -> Any:
    """The edges of `bins` bins of equal width from range[0] to range[1] (else from the smallest to the largest of x).

    Bins that are a line of edges are these edges. Raises E0103 for no bins, edges that fall, or a range that does.
    """
    x = lift(x)
    dtype = x.dtype if x.dtype.is_float else dtypes.float64 if x.dtype.bits > 32 else dtypes.float32
    if not hasattr(bins, "__index__") or getattr(bins, "ndim", 0) > 0:
        return _edges(bins, dtype)
    count = integer(bins, "bins")
    if count < 1:
        raise UserError("E0103", f"{count} bins", fix="give 1 or more, or a line of edges")
    if range is not None:
        low, high = range
        if not (is_tensor(low) or is_tensor(high)):
            return make_tensor(_even_edges(float(low), float(high), count), dtype)
        low, high = cast(lift(low), dtype), cast(lift(high), dtype)
    elif x.size == 0:
        low, high = make_tensor(0, dtype), make_tensor(1, dtype)
    else:
        low, high = cast(smallest(x), dtype), cast(largest(x), dtype)
    same = compare.equal(low, high)
    low, high = where(same, low - 0.5, low), where(same, high + 0.5, high)
    parts = literal(np.arange(count).astype(dtype.np))
    inner = elementwise.add(elementwise.multiply(lift(parts), (high - low) / count), low)
    return concatenate([inner, reshape(high, (1,))], 0)


def _even_edges(low: float, high: float, count: int) -> Any:
    if not (math.isfinite(low) and math.isfinite(high)) or high < low:
        raise UserError("E0103", f"the range {low} to {high}", fix="give two finite numbers, the smaller first")
    low, high = (low - 0.5, high + 0.5) if low == high else (low, high)
    return np.linspace(low, high, count + 1)


def _edges(bins: Any, dtype: dtypes.DType) -> Any:
    edges = lift(bins)
    if edges.ndim != 1 or edges.shape[0] < 2:
        raise UserError("E0103", f"edges of shape {list(edges.shape)}", fix="give one line of 2 edges or more")
    found = known(edges)
    if found is not None and (np.diff(found.astype(np.float64)) < 0).any():
        raise UserError("E0103", "the edges of the bins fall", fix="sort them")
    return cast(edges, dtypes.promote(edges.dtype, dtype)) if edges.dtype.is_float else cast(edges, dtype)


def histogram(x: Any, bins: Any = 10, range: Any = None, weights: Any = None, density: bool = False) -> tuple[Any, Any]:
    """How many elements of x lie in each bin (int64), or the sum of their weights; and the edges. As NumPy.

    bins: a number of bins (see `histogram_bin_edges`) or a line of edges. Bin i holds edges[i] <= x < edges[i + 1], the
    last one its right edge too; other elements and NaN are left out. density: divided by the total and the widths.
    """
    x = lift(x)
    edges = histogram_bin_edges(x, bins, range)
    count = edges.shape[0] - 1
    flat = cast(reshape(x, (x.size,)), edges.dtype)
    place = searchsorted(edges, flat, right=True) - 1
    last = compare.equal(flat, edges[-1])
    place = where(last, count - 1, where(isnan(flat), -1, place))
    ones = filled(1, flat.shape, dtypes.int64) if weights is None else reshape(lift(weights), (-1,))
    found = _segments(SUM, 0, ones, place, count)
    if not density:
        return found, edges
    widths = edges[1:] - edges[:-1]
    return cast(found, edges.dtype) / (widths * cast(total(found), edges.dtype)), edges
