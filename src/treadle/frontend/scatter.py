"""Writing at positions: PyTorch's scatter family, `put_along_axis`, masks, and `x.at[i].add(v)`. All give new tensors.

Negative positions count from the back. Numbers that are known are checked (E0506); those of traced tensors are clamped
into range. Where one place is named several times: sums, products and extremes take all, replacing takes the last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from treadle.base import dtypes
from treadle.base.dtypes import DType
from treadle.base.errors import UserError
from treadle.frontend import elementwise, indexing
from treadle.frontend import trace as tracing
from treadle.frontend.lift import (
    cast,
    either,
    is_array,
    is_number,
    is_tensor,
    lift,
    literal,
    make_tensor,
    one_axis,
    operand,
    positions,
    weak_type,
)  # fmt: skip
from treadle.frontend.logic import where
from treadle.frontend.shaping import broadcast_to, reshape, window
from treadle.ops import compare, index, reduce
from treadle.ops import scatter as ops
from treadle.ops._types import broadcast_shapes
from treadle.ops.dynamic import dynamic_update_slice

__all__ = [
    "index_add", "index_copy", "index_fill", "index_reduce", "masked_fill", "masked_scatter", "put_along_axis",
    "scatter", "scatter_add", "scatter_reduce",
]  # fmt: skip


class Way(NamedTuple):
    """How what is written joins what is there: the ops for slices and for single elements."""

    slices: Any
    along: Any


SET = Way(ops.index_set, ops.scatter_set_along)
SUM = Way(index.index_add, index.scatter_add_along)
PRODUCT = Way(ops.index_mul, ops.scatter_mul_along)
LARGEST = Way(ops.index_max, ops.scatter_max_along)
SMALLEST = Way(ops.index_min, ops.scatter_min_along)
_NAMES = (
    (("sum", "add"), SUM, 0),
    (("prod", "multiply", "mul"), PRODUCT, 1),
    (("amax", "max"), LARGEST, "least"),
    (("amin", "min"), SMALLEST, "most"),
    (("mean",), None, 0),
)


def _way(name: Any) -> tuple[Way | None, Any]:
    """What PyTorch's or NumPy's name of a reduction means, and the number that changes nothing. None: the mean."""
    for names, way, start in _NAMES:
        if name in names:
            return way, start
    raise UserError("E0103", f"reduce={name!r}", fix="use 'sum', 'prod', 'mean', 'amax' or 'amin'")


def neutral(start: Any, dtype: DType) -> Any:
    """The number that changes nothing, of an element type."""
    if not isinstance(start, str):
        return start
    if dtype.is_float:
        return float("-inf") if start == "least" else float("inf")
    if dtype.kind not in "iu":
        raise UserError("E0106", f"the order of {dtype} elements", fix="cast them first: x.astype(td.float32)")
    limits = np.iinfo(dtype.np)
    return int(limits.min if start == "least" else limits.max)


def filled(number: Any, shape: Any, dtype: DType) -> Any:
    """A tensor of one number."""
    return broadcast_to(make_tensor(number, dtype), shape)


def known(x: Any) -> Any:
    """The numbers of x as an array; None for a tensor while a function is traced."""
    if not is_tensor(x):
        return np.asarray(x)
    return x.numpy() if tracing.current() is None and hasattr(x, "numpy") else None


# ------------------------------------------------------------------------------------------- one element per position
class _Elements:
    """x cut to the sizes of the indices on the other axes, and what is to be written there."""

    def __init__(self, x: Any, axis: int, indices: Any, values: Any) -> None:
        places = positions(indices, x.shape[axis])
        shape = tuple(places.shape)
        if len(shape) != x.ndim:
            raise UserError("E0140", f"x has {x.ndim} axes, the index {len(shape)}", fix="give it as many axes")
        if any(n > x.shape[i] for i, n in enumerate(shape) if i != axis):
            why = f"the index {list(shape)} is larger than x {list(x.shape)} on an axis other than {axis}"
            raise UserError("E0140", why, fix="cut the index, or broadcast x first")
        values = indexing.elements(values, x.dtype)
        if values.ndim == 0:
            values = broadcast_to(values, shape)
        if values.ndim != len(shape) or any(n > m for n, m in zip(shape, values.shape, strict=True)):
            why = f"the index is {list(shape)}, but only {list(values.shape)} values are given"
            raise UserError("E0140", why, fix="give a value for each index, or one number")
        self.x, self.axis, self.places = x, axis, operand(places)
        self.sizes = tuple([n if i == axis else shape[i] for i, n in enumerate(x.shape)])
        self.values = _corner(values, shape)

    def run(self, change: Callable[[Any, Any, Any, int], Any]) -> Any:
        """x with change(part of x, places, values, axis) in the place of the part."""
        part = change(_corner(self.x, self.sizes), self.places, self.values, self.axis)
        if self.sizes == tuple(self.x.shape):
            return part
        return dynamic_update_slice(self.x, part, *[literal(np.zeros((), np.int32))] * self.x.ndim)


def _corner(x: Any, sizes: tuple[int, ...]) -> Any:
    """The first elements of each axis."""
    return window(x, (0,) * x.ndim, sizes)


def _reduced(form: int, way: Way | None, start: Any, include_self: bool) -> Callable[[Any, Any, Any, int], Any]:
    """How x is reduced with the values that go to each place; form: which op of a `Way`."""

    def change(x: Any, places: Any, values: Any, axis: int) -> Any:
        base = x
        if not include_self:
            no, yes = filled(False, x.shape, dtypes.bool_), filled(True, values.shape, dtypes.bool_)
            touched = SET[form](no, places, yes, axis=axis)
            base = compare.select(touched, filled(neutral(start, x.dtype), x.shape, x.dtype), x)
        if way is not None:
            return way[form](base, places, values, axis=axis)
        counts = filled(1 if include_self else 0, x.shape, x.dtype)
        counts = SUM[form](counts, places, filled(1, values.shape, x.dtype), axis=axis)
        total, counts = SUM[form](base, places, values, axis=axis), elementwise.maximum(counts, 1)
        return elementwise.divide(total, counts) if x.dtype.is_inexact else elementwise.floor_divide(total, counts)

    return change


def _plain(form: int, way: Way) -> Callable[[Any, Any, Any, int], Any]:
    return lambda x, places, values, axis: way[form](x, places, values, axis=axis)


def scatter(
    x: Any,
    axis: Any = None,
    indices: Any = None,
    src: Any = None,
    *,
    dim: Any = None,
    index: Any = None,
    value: Any = None,
    reduce: str | None = None,
) -> Any:
    """x with src[.., i, ..] at [.., indices[.., i, ..], ..]; of several for one place the last. src may be a number.

    indices may be smaller than src, and than x on the other axes. The result has the type of x. reduce: "add" or
    "multiply" joins src to what is there. Raises E0138, E0140, E0506.
    """
    x, axis = lift(x), either("axis", axis, "dim", dim)
    where_to, src = either("indices", indices, "index", index), either("src", src, "value", value)
    if reduce is not None:
        return scatter_reduce(x, axis, where_to, src, reduce)
    return _Elements(x, one_axis(axis, x.ndim), where_to, src).run(_plain(1, SET))


def scatter_add(
    x: Any, axis: Any = None, indices: Any = None, src: Any = None, *, dim: Any = None, index: Any = None
) -> Any:
    """x with src[.., i, ..] added at [.., indices[.., i, ..], ..], as often as a place is named. Like `scatter`."""
    x, axis = lift(x), either("axis", axis, "dim", dim)
    where_to = either("indices", indices, "index", index)
    return _Elements(x, one_axis(axis, x.ndim), where_to, src).run(_plain(1, SUM))


def scatter_reduce(
    x: Any,
    axis: Any = None,
    indices: Any = None,
    src: Any = None,
    reduce: str = "sum",
    *,
    include_self: bool = True,
    dim: Any = None,
    index: Any = None,
) -> Any:
    """x reduced with the src that go to each place by "sum", "prod", "mean", "amax" or "amin". Like `scatter`.

    include_self=False: the element of x does not count where something is written. Means of integers round down.
    The gradient of amax and amin is shared equally among all that are it. Raises E0103 for another reduction.
    """
    x, axis = lift(x), either("axis", axis, "dim", dim)
    where_to = either("indices", indices, "index", index)
    change = _reduced(1, *_way(reduce), include_self)
    return _Elements(x, one_axis(axis, x.ndim), where_to, src).run(change)


def put_along_axis(x: Any, indices: Any, values: Any, axis: Any = None, *, dim: Any = None) -> Any:
    """x with values at indices along an axis, as `numpy.put_along_axis`, but a new tensor; the last one counts.

    indices and values broadcast to x on the other axes. Without an axis: on all elements in row order.
    """
    x, axis = lift(x), either("axis", axis, "dim", dim)
    if axis is None:
        flat = put_along_axis(reshape(x, (x.size,)), reshape(_flat(indices), (-1,)), values, 0)
        return reshape(flat, x.shape)
    place = one_axis(axis, x.ndim)
    places = operand(positions(indices, x.shape[place]))
    if places.ndim != x.ndim:
        raise UserError("E0140", f"x has {x.ndim} axes, the index {places.ndim}", fix="give it as many axes")
    others = [1 if i == place else n for i, n in enumerate(x.shape)]
    shape = broadcast_shapes(tuple(places.shape), tuple(others))
    values = broadcast_to(indexing.elements(values, x.dtype), shape)
    return ops.scatter_set_along(x, broadcast_to(lift(places), shape), values, axis=place)


def _flat(indices: Any) -> Any:
    return indices if is_tensor(indices) else lift(np.asarray(indices))


# ----------------------------------------------------------------------------------------------- slices along an axis
def _line(x: Any, axis: Any, indices: Any) -> tuple[int, Any]:
    """The axis counted from the front, and one line of positions there."""
    place = one_axis(axis, x.ndim)
    places = operand(positions(indices, x.shape[place]))
    if places.ndim > 1:
        raise UserError("E0140", f"the index has {places.ndim} axes", fix="give one line of positions")
    return place, places if places.ndim else reshape(lift(places), (1,))


def _slices(x: Any, axis: Any, indices: Any, source: Any) -> tuple[int, Any, Any]:
    place, places = _line(x, axis, indices)
    source = indexing.elements(source, x.dtype)
    wanted = (*x.shape[:place], places.shape[0], *x.shape[place + 1 :])
    if tuple(source.shape) != wanted:
        raise UserError("E0140", f"the source is {list(source.shape)}", fix=f"make it {list(wanted)}")
    return place, places, source


def index_add(
    x: Any,
    axis: Any = None,
    indices: Any = None,
    source: Any = None,
    *,
    alpha: Any = 1,
    dim: Any = None,
    index: Any = None,
) -> Any:
    """x with alpha * source[.., i, ..] added at [.., indices[i], ..]: whole slices along an axis. Raises E0140."""
    x, axis = lift(x), either("axis", axis, "dim", dim)
    place, places, source = _slices(x, axis, either("indices", indices, "index", index), source)
    if not (is_number(alpha) and alpha == 1):
        source = cast(elementwise.multiply(source, alpha), x.dtype)
    return SUM.slices(x, places, source, axis=place)


def index_copy(
    x: Any, axis: Any = None, indices: Any = None, source: Any = None, *, dim: Any = None, index: Any = None
) -> Any:
    """x with source[.., i, ..] at [.., indices[i], ..]; of several for one place the last. Raises E0140."""
    x, axis = lift(x), either("axis", axis, "dim", dim)
    place, places, source = _slices(x, axis, either("indices", indices, "index", index), source)
    return SET.slices(x, places, source, axis=place)


def index_fill(
    x: Any, axis: Any = None, indices: Any = None, value: Any = None, *, dim: Any = None, index: Any = None
) -> Any:
    """x with one number in its slices at indices along an axis."""
    x, axis = lift(x), either("axis", axis, "dim", dim)
    place, places = _line(x, axis, either("indices", indices, "index", index))
    number = indexing.elements(value, x.dtype)
    if number.ndim:
        raise UserError("E0140", f"the value has shape {list(number.shape)}", fix="give one number, or use index_copy")
    shape = (*x.shape[:place], places.shape[0], *x.shape[place + 1 :])
    return SET.slices(x, places, broadcast_to(number, shape), axis=place)


def index_reduce(
    x: Any,
    axis: Any = None,
    indices: Any = None,
    source: Any = None,
    reduce: str = "sum",
    *,
    include_self: bool = True,
    dim: Any = None,
    index: Any = None,
) -> Any:
    """x with its slices at indices reduced with those of source: the reductions of `scatter_reduce`. Raises E0140."""
    x, axis = lift(x), either("axis", axis, "dim", dim)
    place, places, source = _slices(x, axis, either("indices", indices, "index", index), source)
    return _reduced(0, *_way(reduce), include_self)(x, places, source, place)


# --------------------------------------------------------------------------------------------------------------- masks
def mask_of(mask: Any) -> Any:
    """A mask as a tensor. Raises E0106 for what is not bool."""
    mask = lift(mask)
    if mask.dtype is not dtypes.bool_:
        raise UserError("E0106", f"the mask is {mask.dtype}, not bool", fix="compare first: mask != 0")
    return mask


def masked_fill(x: Any, mask: Any, value: Any) -> Any:
    """x with one number where mask (which broadcasts to x) is true. The result has the type of x. Raises E0106."""
    x = lift(x)
    number = indexing.elements(checked_kind(x, value), x.dtype)
    if number.ndim:
        raise UserError("E0140", f"the value has shape {list(number.shape)}", fix="give one number, or use td.where")
    return where(mask_of(mask), number, x)


def masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    """x with the elements of source, in row order, where mask (which broadcasts to x) is true. Raises E0106, E0140.

    While traced it cannot be seen whether source has enough elements; if not, its last one is used for the rest.
    """
    x, mask, source = lift(x), mask_of(mask), lift(source)
    shape = broadcast_shapes(tuple(x.shape), tuple(mask.shape))
    x, mask = broadcast_to(x, shape), reshape(broadcast_to(mask, shape), (-1,))
    if mask.shape[0] == 0:
        return x
    order = reduce.cumsum(cast(mask, dtypes.int32), axis=0, reverse=False)
    wanted = known(order[-1])
    if wanted is not None and int(wanted) > source.size:
        raise UserError("E0140", f"{wanted} places for {source.size} elements", fix="give an element for each place")
    if source.size == 0:
        return x
    flat = reshape(cast(source, x.dtype), (-1,))
    found = index.take(flat, order - 1, axis=0)
    return reshape(compare.select(mask, found, reshape(x, (-1,))), shape)


# ---------------------------------------------------------------------------------------------------------- x.at[i]
KINDS = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}


def checked_kind(x: Any, value: Any) -> Any:
    """The value, unless x cannot hold such numbers at all: floats among integers (E0504)."""
    found = weak_type(value) or type(value)
    if is_number(value) or weak_type(value) is not None:
        kind = {bool: "b", int: "i", float: "f"}.get(found, "c")
    elif is_tensor(value) or is_array(value):
        kind = dtypes.of(value.dtype).kind
    else:
        kind = lift(value).dtype.kind
    if KINDS[kind] > KINDS[x.dtype.kind]:
        why = f"{value!r} cannot be an element of a tensor of {x.dtype}"
        raise UserError("E0504", why, fix="cast the tensor first: x.astype(td.float32)")
    return value


class At:
    """`x.at`: what `x.at[index]` stands for can be joined with a value, which gives a new tensor."""

    __slots__ = ("_x",)

    def __init__(self, x: Any) -> None:
        self._x = x

    def __getitem__(self, index: Any) -> Place:
        return Place(self._x, index)


class Place:
    """Places of a tensor, by any index that `x[index]` takes. The methods give x with a value there, a new tensor.

    The value broadcasts, and takes the type of x (E0504 for floats among integers, but not in `set`). Places that
    index arrays name several times are joined with each of the values; `set` takes the last.
    """

    __slots__ = ("_index", "_x")

    def __init__(self, x: Any, index: Any) -> None:
        self._x, self._index = x, index

    def get(self) -> Any:
        """x[index]."""
        return indexing.get(self._x, self._index)

    def set(self, value: Any) -> Any:
        """x with the value at index; of several the last."""
        return indexing.put(self._x, self._index, value)

    def _joined(self, value: Any, way: Way, join: Any) -> Any:
        return indexing.put(self._x, self._index, checked_kind(self._x, value), way.slices, join)

    def add(self, value: Any) -> Any:
        """x with the value added at index."""
        return self._joined(value, SUM, elementwise.add)

    def subtract(self, value: Any) -> Any:
        """x with the value taken away at index."""
        return self.add(elementwise.negative(indexing.elements(checked_kind(self._x, value), self._x.dtype)))

    def multiply(self, value: Any) -> Any:
        """x multiplied by the value at index."""
        return self._joined(value, PRODUCT, elementwise.multiply)

    mul = multiply

    def divide(self, value: Any) -> Any:
        """x divided by the value at index. Raises E0106 for integers."""
        if not self._x.dtype.is_inexact:
            raise UserError("E0106", f"a quotient in a tensor of {self._x.dtype}", fix="cast it first")
        ones = filled(1, self._x.shape, self._x.dtype)
        return elementwise.divide(self._x, Place(ones, self._index).multiply(value))

    def max(self, value: Any) -> Any:
        """x with the larger of it and the value at index."""
        return self._joined(value, LARGEST, elementwise.maximum)

    def min(self, value: Any) -> Any:
        """x with the smaller of it and the value at index."""
        return self._joined(value, SMALLEST, elementwise.minimum)
