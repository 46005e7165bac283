"""Sums, extremes, statistics, running sums, order and differences, with the standard's arguments."""

from __future__ import annotations

from typing import Any

from treadle.array._shaping import _only_axis, concat
from treadle.base import dtypes
from treadle.frontend import functions as td
from treadle.frontend.create import full
from treadle.frontend.lift import cast, integer, lift, one_axis
from treadle.frontend.shaping import cut

Axes = int | tuple[int, ...] | None


def sum(x: Any, /, *, axis: Axes = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """The sum over axes (all unless named): 64 bits for integers, unless `dtype` is given."""
    return td.sum(x, axis, keepdims, dtype=dtype)


def prod(x: Any, /, *, axis: Axes = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """The product over axes (all unless named): 64 bits for integers, unless `dtype` is given."""
    return td.prod(x, axis, keepdims, dtype=dtype)


def mean(x: Any, /, *, axis: Axes = None, keepdims: bool = False) -> Any:
    """The mean over axes (all unless named)."""
    return td.mean(x, axis, keepdims)


def var(x: Any, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    """The variance over axes: the sum of squared distances from the mean / (count - correction)."""
    return td.var(x, axis, keepdims, correction=correction)


def std(x: Any, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    """The root of `var`."""
    return td.std(x, axis, keepdims, correction=correction)


def max(x: Any, /, *, axis: Axes = None, keepdims: bool = False) -> Any:
    """The largest element over axes; NaN if there is one. Raises E0130 for none."""
    return td.max(x, axis, keepdims)


def min(x: Any, /, *, axis: Axes = None, keepdims: bool = False) -> Any:
    """The smallest element over axes; NaN if there is one. Raises E0130 for none."""
    return td.min(x, axis, keepdims)


def all(x: Any, /, *, axis: Axes = None, keepdims: bool = False) -> Any:
    """Whether all elements over axes are true (not zero); true of none."""
    return td.all(x, axis, keepdims)


def any(x: Any, /, *, axis: Axes = None, keepdims: bool = False) -> Any:
    """Whether any element over axes is true (not zero); false of none."""
    return td.any(x, axis, keepdims)


def count_nonzero(x: Any, /, *, axis: Axes = None, keepdims: bool = False) -> Any:
    """How many elements over axes are not zero, int64."""
    return td.sum(td.not_equal(x, 0) if x.dtype is not dtypes.bool_ else x, axis, keepdims)


def argmax(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
    """The position (int64) of the largest element along an axis, or of all in row order; the first among equals."""
    return cast(td.argmax(x, axis, keepdims), dtypes.int64)


def argmin(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
    """The position (int64) of the smallest element along an axis, or of all in row order; the first among equals."""
    return cast(td.argmin(x, axis, keepdims), dtypes.int64)


def sort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """The elements in order along an axis; always stable."""
    return td.sort(x, axis, descending)


def argsort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """The positions (int64) that sort x along an axis; always stable."""
    return cast(td.argsort(x, axis, descending), dtypes.int64)


def _running(f: Any, x: Any, axis: int | None, dtype: Any, first: int | None) -> Any:
    x = lift(x)
    wide = {"b": dtypes.int64, "i": dtypes.int64, "u": dtypes.uint64}.get(x.dtype.kind, x.dtype)
    x = cast(x, wide if dtype is None else dtypes.of(dtype))
    place = one_axis(_only_axis(x, axis), x.ndim)
    out = f(x, place, dtype=x.dtype)
    if first is None:
        return out
    start = full(tuple([1 if i == place else n for i, n in enumerate(x.shape)]), first, x.dtype)
    return td.concatenate([start, out], place)


def cumulative_sum(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
    """Running sum along an axis, which only vectors may leave out (E0107); with a 0 in front if `include_initial`."""
    return _running(td.cumsum, x, axis, dtype, 0 if include_initial else None)


def cumulative_prod(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
    """Running product along an axis, which only vectors may leave out (E0107); with a 1 in front if
    `include_initial`."""
    return _running(td.cumprod, x, axis, dtype, 1 if include_initial else None)


def diff(x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Any:
    """n times: each element along the axis less the one before it; of x with `prepend` before and `append` after."""
    place = one_axis(axis, x.ndim)
    x = concat([part for part in (prepend, x, append) if part is not None], axis=place)
    for _ in range(integer(n, "n")):
        size = x.shape[place]
        if size == 0:
            break
        later, earlier = cut(x, place, 1, size), cut(x, place, 0, size - 1)
        x = td.not_equal(later, earlier) if x.dtype is dtypes.bool_ else later - earlier
    return x
