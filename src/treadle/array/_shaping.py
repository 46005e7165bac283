"""Functions that move elements, and those that pick them by position, with the standard's arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle.array._types import result_type
from treadle.base.errors import UserError, UserIndexError, UserValueError
from treadle.frontend import functions as td
from treadle.frontend.lift import cast, integer, is_tensor, lift, many_axes, one_axis
from treadle.ops._types import broadcast_shapes

Axes = int | tuple[int, ...]


def broadcast_arrays(*arrays: Any) -> list[Any]:
    """The arrays repeated to one shape. Raises E0108 when they do not fit."""
    shape = broadcast_shapes(*[tuple(x.shape) for x in arrays])
    return [td.broadcast_to(x, shape) for x in arrays]


def broadcast_to(x: Any, /, shape: tuple[int, ...]) -> Any:
    """x repeated to `shape`. Raises E0108 when it does not fit."""
    return td.broadcast_to(x, shape)


def concat(arrays: Sequence[Any], /, *, axis: int | None = 0) -> Any:
    """Arrays joined along an axis; without one all are flattened first. Raises E0132 when other sizes differ."""
    kind = result_type(*arrays)
    parts = [cast(lift(x), kind) for x in arrays]
    parts = [_flat(x) for x in parts] if axis is None else parts
    return td.concatenate(parts, 0 if axis is None else axis)


def _flat(x: Any) -> Any:
    return td.reshape(x, (math.prod(x.shape),))


def stack(arrays: Sequence[Any], /, *, axis: int = 0) -> Any:
    """Arrays of one shape joined along a new axis. Raises E0132 when the shapes differ."""
    kind = result_type(*arrays)
    return td.stack([cast(lift(x), kind) for x in arrays], axis)


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    """The slices of x along an axis."""
    place = one_axis(axis, x.ndim)
    return tuple([td.squeeze(part, place) for part in td.split(x, [1] * x.shape[place], place)])


def expand_dims(x: Any, /, axis: int = 0) -> Any:
    """x with a new axis of size 1. Raises E0107, an IndexError too, for a place that is not there."""
    if not -x.ndim - 1 <= axis <= x.ndim:
        why = f"a new axis {axis} of a tensor with {x.ndim} axes"
        raise UserIndexError("E0107", why, fix=f"use {-x.ndim - 1} to {x.ndim}")
    return td.expand_dims(x, axis)


def squeeze(x: Any, /, axis: Axes) -> Any:
    """x without these axes of size 1. Raises E0107, a ValueError too, for another size."""
    for i in many_axes(axis, x.ndim):
        if x.shape[i] != 1:
            raise UserValueError("E0107", f"axis {i} of shape {list(x.shape)} has not size 1", fix="index it: x[:, 0]")
    return td.squeeze(x, axis)


def flip(x: Any, /, *, axis: Axes | None = None) -> Any:
    """x with the elements along the axes (all unless named) in the opposite order."""
    return td.flip(x, axis)


def moveaxis(x: Any, source: Axes, destination: Axes, /) -> Any:
    """x with axes moved to other places. Raises E0107."""
    return td.moveaxis(x, source, destination)


def permute_dims(x: Any, /, axes: tuple[int, ...]) -> Any:
    """Axis i of the result is axis axes[i] of x. Raises E0113 if axes is no permutation."""
    return td.permute(x, axes)


def reshape(x: Any, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Any:
    """The elements in another shape. Tensors never share memory that can be written, so that copy=False cannot be had:
    it raises E0103, a ValueError too, unless the shape is that of x."""
    if copy is False:
        if tuple(shape) == tuple(x.shape):
            return x
        raise UserValueError("E0103", "reshape: another shape is another tensor", fix="leave copy=False out")
    return td.reshape(x, shape)


def roll(x: Any, /, shift: Axes, *, axis: Axes | None = None) -> Any:
    """x with the elements moved along axes, around their ends. Raises E0103 when shifts and axes differ in count."""
    if axis is None:
        return td.roll(x, shift)  # type: ignore[arg-type]
    shifts, axes = [v if isinstance(v, tuple) else (v,) for v in (shift, axis)]
    shifts = shifts * len(axes) if len(shifts) == 1 else shifts
    if len(shifts) != len(axes):
        raise UserError("E0103", f"{len(shifts)} shifts for {len(axes)} axes", fix="give one shift per axis")
    for by, along in zip(shifts, axes, strict=True):
        x = td.roll(x, by, along)
    return x


def repeat(x: Any, repeats: Any, /, *, axis: int | None = None) -> Any:
    """Each element (or slice along the axis) repeated in place. repeats: an int, or an array with a count for each,
    whose numbers must be known: E0204 in a traced function."""
    x, axis = (_flat(x), 0) if axis is None else (x, axis)
    if not is_tensor(repeats) or repeats.ndim == 0:
        return td.repeat_interleave(x, integer(repeats, "the count"), axis)
    place = one_axis(axis, x.ndim)
    counts = np.broadcast_to(repeats.numpy(), (x.shape[place],))
    return td.take(x, np.repeat(np.arange(x.shape[place]), counts), place)


def tile(x: Any, repetitions: tuple[int, ...], /) -> Any:
    """x repeated as a whole along each axis."""
    return td.tile(x, repetitions)


def take(x: Any, indices: Any, /, *, axis: int | None = None) -> Any:
    """Slices of x at a vector of indices. The axis may be left out for vectors only (E0107)."""
    return td.take(x, indices, _only_axis(x, axis))


def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Any:
    """result[.., i, ..] = x[.., indices[.., i, ..], ..]; the other axes broadcast."""
    place = one_axis(axis, x.ndim)
    sizes = [tuple([1 if i == place else n for i, n in enumerate(v.shape)]) for v in (x, indices)]
    shape = list(broadcast_shapes(*sizes))
    wide = [td.broadcast_to(v, (*shape[:place], v.shape[place], *shape[place + 1 :])) for v in (x, indices)]
    return td.take_along_axis(wide[0], wide[1], place)


def _only_axis(x: Any, axis: int | None) -> int:
    if axis is None and x.ndim != 1:
        raise UserError("E0107", f"no axis for a tensor of shape {list(x.shape)}", fix="name the axis")
    return 0 if axis is None else axis
