"""Reductions, places and order, as `mindspore.ops` has them."""

from __future__ import annotations

from typing import Any

from treadle.base import dtypes
from treadle.compat.mindspore._missing import not_covered
from treadle.compat.mindspore._tensor import every_axis, tag
from treadle.frontend import functions as fn
from treadle.frontend.create import zeros
from treadle.frontend.lift import lift


def reduce_sum(x: Any, axis: Any = (), keep_dims: bool = False) -> Any:
    """The sum over axes, in the type of x."""
    x = lift(x)
    return tag(fn.sum(x, every_axis(axis), keep_dims).astype(x.dtype))


def reduce_mean(x: Any, axis: Any = (), keep_dims: bool = False) -> Any:
    """The mean over axes."""
    return tag(fn.mean(x, every_axis(axis), keep_dims))


def reduce_prod(x: Any, axis: Any = (), keep_dims: bool = False) -> Any:
    """The product over axes."""
    return tag(fn.prod(x, every_axis(axis), keep_dims))


def reduce_max(x: Any, axis: Any = (), keep_dims: bool = False) -> Any:
    """The largest element over axes."""
    return tag(fn.max(x, every_axis(axis), keep_dims))


def reduce_min(x: Any, axis: Any = (), keep_dims: bool = False) -> Any:
    """The smallest element over axes."""
    return tag(fn.min(x, every_axis(axis), keep_dims))


def reduce_all(x: Any, axis: Any = (), keep_dims: bool = False) -> Any:
    """Whether all elements over axes are true."""
    return tag(fn.all(x, every_axis(axis), keep_dims))


def reduce_any(x: Any, axis: Any = (), keep_dims: bool = False) -> Any:
    """Whether any element over axes is true."""
    return tag(fn.any(x, every_axis(axis), keep_dims))


def sum(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """The sum over axes, in `dtype` if given; 64 bits of integers."""
    x = lift(input) if dtype is None else lift(input).astype(dtypes.of(dtype))
    return tag(fn.sum(x, every_axis(dim), keepdim))


mean, prod, amax, amin, all, any = reduce_mean, reduce_prod, reduce_max, reduce_min, reduce_all, reduce_any


def _with_place(values: Any, places: Any, x: Any, axis: Any, keep: bool) -> Any:
    """(values, places) along an axis; without one the value of all and place 0."""
    x = lift(x)
    if axis is None:
        return tag((values(x), zeros((), dtype=dtypes.int64)))
    return tag((values(x, axis, keep), places(x, axis, keep).astype(dtypes.int64)))


def max(input: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """(largest elements, their places) along an axis; without one the largest of all and 0."""
    return _with_place(fn.max, fn.argmax, input, axis, keepdims)


def min(input: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """(smallest elements, their places) along an axis; without one the smallest of all and 0."""
    return _with_place(fn.min, fn.argmin, input, axis, keepdims)


def argmax(input: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """The place of the largest element, int64; of the flat tensor without an axis."""
    return tag(fn.argmax(input, dim, keepdim).astype(dtypes.int64))


def argmin(input: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """The place of the smallest element, int64; of the flat tensor without an axis."""
    return tag(fn.argmin(input, axis, keepdims).astype(dtypes.int64))


def argmax_typed(x: Any, axis: int = -1, output_type: Any = dtypes.int32) -> Any:
    """The place of the largest element along an axis, in this integer type."""
    return tag(fn.argmax(x, axis).astype(output_type))


def argmin_typed(x: Any, axis: int = -1, output_type: Any = dtypes.int32) -> Any:
    """The place of the smallest element along an axis, in this integer type."""
    return tag(fn.argmin(x, axis).astype(output_type))


def argmax_with_value(x: Any, axis: int = 0, keep_dims: bool = False) -> Any:
    """(places int32, largest elements) along an axis."""
    return tag((fn.argmax(x, axis, keep_dims).astype(dtypes.int32), fn.max(x, axis, keep_dims)))


def argmin_with_value(x: Any, axis: int = 0, keep_dims: bool = False) -> Any:
    """(places int32, smallest elements) along an axis."""
    return tag((fn.argmin(x, axis, keep_dims).astype(dtypes.int32), fn.min(x, axis, keep_dims)))


def std(input: Any, axis: Any = None, ddof: float = 0, keepdims: bool = False) -> Any:
    """The standard deviation over axes."""
    return tag(fn.std(input, every_axis(axis), keepdims, ddof=ddof))


def var(input: Any, axis: Any = None, ddof: float = 0, keepdims: bool = False) -> Any:
    """The variance over axes."""
    return tag(fn.var(input, every_axis(axis), keepdims, ddof=ddof))


def cumsum(x: Any, axis: int, dtype: Any = None) -> Any:
    """The running sum along an axis."""
    return tag(fn.cumsum(x, axis, dtype=dtype))


def cumprod(input: Any, dim: int, dtype: Any = None) -> Any:
    """The running product along an axis."""
    return tag(fn.cumprod(input, dim, dtype=dtype))


def logsumexp(input: Any, axis: Any, keep_dims: bool = False) -> Any:
    """log(sum(exp(input))) over axes."""
    return tag(fn.logsumexp(input, every_axis(axis), keep_dims))


def norm(A: Any, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """The vector norm over axes, 2 unless told; of the flat tensor without an axis."""
    if isinstance(ord, str) and ord != "fro":
        not_covered(f"norm of order {ord!r}", "use td.linalg.norm")
    return tag(fn.norm(A if dtype is None else lift(A).astype(dtype), 2 if ord is None else ord, dim, keepdim))


def topk(input: Any, k: int, dim: int | None = None, largest: bool = True, sorted: bool = True) -> Any:
    """(the k largest or smallest elements along an axis, their places int32)."""
    values, places = fn.topk(input, k, -1 if dim is None else dim, largest)
    return tag((values, places.astype(dtypes.int32)))


def sort(input_x: Any, axis: int = -1, descending: bool = False) -> Any:
    """(elements in order along an axis, their places int32)."""
    places = fn.argsort(input_x, axis, descending)
    return tag((fn.take_along_axis(input_x, places, axis), places.astype(dtypes.int32)))


def argsort(input: Any, axis: int = -1, descending: bool = False) -> Any:
    """The places of the elements in order along an axis, int32."""
    return tag(fn.argsort(input, axis, descending).astype(dtypes.int32))


def count_nonzero(x: Any, axis: Any = (), keep_dims: bool = False, dtype: Any = dtypes.int32) -> Any:
    """How many elements over axes are not zero."""
    x = lift(x)
    return tag(fn.sum((x != 0).astype(dtypes.of(dtype)), every_axis(axis), keep_dims).astype(dtype))


__all__ = [
    "all", "amax", "amin", "any", "argmax", "argmin", "argsort", "count_nonzero", "cumprod", "cumsum", "logsumexp",
    "max", "mean", "min", "norm", "prod", "reduce_all", "reduce_any", "reduce_max", "reduce_mean", "reduce_min",
    "reduce_prod", "reduce_sum", "sort", "std", "sum", "topk", "var",
]  # fmt: skip
