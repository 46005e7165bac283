"""x[index] and x[index] = v with NumPy's rules: ints, slices of any step, ..., None, tensors, arrays, concrete masks.

An index is parsed into a `Plan`. Reading takes the `view` of its ints and slices, then looks up its arrays; writing
changes the view and puts it back. Arrays and Python ints out of range raise E0506; the numbers of tensors may be
unknown, so a tensor's indices are clamped into range. Where one place is written several times, the last one counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from treadle.base import arguments, dtypes
from treadle.base.errors import UserError, UserIndexError
from treadle.frontend import trace as tracing
from treadle.frontend.lift import (
    any_tensor,
    cast,
    integer,
    is_array,
    is_tensor,
    lift,
    literal,
    make_tensor,
    operand,
    positions,
)  # fmt: skip
from treadle.frontend.shaping import broadcast_to, permute, reshape, window
from treadle.ops import compare, elementwise, scatter, shape
from treadle.ops import index as ops
from treadle.ops._types import broadcast_shapes
from treadle.ops.dynamic import dynamic_slice, dynamic_update_slice

Ints = tuple[int, ...]


@dataclass
class Axis:
    """What an index takes of one axis of x: `count` positions start, start + step, ... (step may be negative), or the
    position of a 0-d tensor (`at`). `dropped`: a single position, which leaves no axis."""

    start: int
    count: int
    step: int = 1
    dropped: bool = False
    at: Any = None


@dataclass
class Plan:
    """A parsed index. `axes`: one entry per axis of x; `view`: the sizes after ints, slices and new axes; `arrays`:
    index arrays by axis of the view; `place`: where their axes go in the result (None: there are no arrays)."""

    axes: list[Axis] = field(default_factory=list)
    view: list[int] = field(default_factory=list)
    arrays: dict[int, Any] = field(default_factory=dict)
    place: int | None = None


def get(x: Any, index: Any) -> Any:
    """x[index], a new tensor."""
    if _is_flag(index):
        known = bool(index)
        return broadcast_to(reshape(x, (1, *x.shape)), (int(known), *x.shape))
    plan = _parse(tuple(x.shape), index)
    return _look_up(_view(x, plan), plan)


def put(x: Any, index: Any, value: Any, op: Any = None, join: Any = None) -> Any:
    """x with value (cast to its type, broadcast) at index, a new tensor. Raises E0108 when it does not broadcast.

    With join(old, new) what is there is joined with the value instead of replaced; op: the scatter op that does the
    same for slices, once for each time that a place is named.
    """
    value = elements(value, x.dtype)
    if isinstance(index, tuple) and len(index) == 1:
        index = index[0]
    if _is_mask(index) and tuple(index.shape) == tuple(x.shape)[: index.ndim] and value.ndim <= x.ndim - index.ndim:
        wide = reshape(lift(index), (*index.shape, *[1] * (x.ndim - index.ndim)))
        new = broadcast_to(value, x.shape)
        return compare.select(broadcast_to(wide, x.shape), new if join is None else join(x, new), x)
    if _is_flag(index):
        new = broadcast_to(value, x.shape)
        return compare.select(lift(index), new if join is None else join(x, new), x)
    plan = _parse(tuple(x.shape), index)
    if plan.place is None:
        new = _fit(value, tuple(plan.view))
        return _put_back(x, plan, new if join is None else join(_view(x, plan), new))
    view = _view(x, plan)
    return _put_back(x, plan, _written(view, plan, value, op))


def elements(value: Any, dtype: dtypes.DType) -> Any:
    """What is to be written, as a tensor of that type. Python numbers, also in lists, are rounded once."""
    if is_tensor(value) or is_array(value) or any_tensor(value):
        return cast(lift(value), dtype)
    lost = arguments.array(value, "the value").dtype.kind == "c" and dtype.kind != "c"
    return cast(lift(value), dtype) if lost else make_tensor(value, dtype)


def _fit(value: Any, shape: Ints) -> Any:
    """The value broadcast to the place it is written to; leading axes of size 1 too many are dropped, as in NumPy."""
    extra = value.ndim - len(shape)
    if extra > 0 and tuple(value.shape[:extra]) == (1,) * extra:
        value = reshape(value, value.shape[extra:])
    return broadcast_to(value, shape)


# --------------------------------------------------------------------------------------------------------- parsing
def _is_mask(item: Any) -> bool:
    return (is_tensor(item) or isinstance(item, np.ndarray)) and dtypes.of(item.dtype) is dtypes.bool_ and item.ndim > 0


def _is_flag(item: Any) -> bool:
    """A mask without axes: a tensor or array, for a plain True is taken for a mistake."""
    is_one = (is_tensor(item) or isinstance(item, np.ndarray)) and item.ndim == 0
    return is_one and dtypes.of(item.dtype) is dtypes.bool_


def _parse(sizes: Ints, index: Any) -> Plan:
    """The plan of an index. Raises E0506 for positions out of range and wrong items, E0507 for a traced mask."""
    items = [_plain(item) for item in (index if isinstance(index, tuple) else (index,))]
    used = sum([_axes_used(item) for item in items])
    if used > len(sizes):
        raise UserIndexError("E0506", f"{used} indices for shape {list(sizes)}", fix=f"give {len(sizes)} at most")
    if sum(item is Ellipsis for item in items) > 1:
        raise UserIndexError("E0506", "an index with more than one ...", fix="write : for single axes")
    at = next((i for i, item in enumerate(items) if item is Ellipsis), len(items))
    items[at : at + 1] = [slice(None)] * (len(sizes) - used)
    return _plan(sizes, [part for item in items for part in (_nonzero(item) if _is_mask(item) else [item])])


def _axes_used(item: Any) -> int:
    """How many axes of x an item stands for."""
    return 0 if item is None or item is Ellipsis else item.ndim if _is_mask(item) else 1


def _plain(item: Any) -> Any:
    """Lists as arrays, NumPy's scalars and eager 0-d tensors kept; E0506 for what is no index."""
    if isinstance(item, list | range):
        if any_tensor(item):
            return make_tensor(item)
        array = arguments.array(item, "an index")
        return array.astype(np.int64) if array.size == 0 else array
    if item is None or item is Ellipsis or isinstance(item, slice) or is_tensor(item):
        return item
    if isinstance(item, np.ndarray) and item.ndim > 0:
        return item
    is_bool = isinstance(item, bool) or (is_array(item) and item.dtype == bool)
    if is_bool or not hasattr(item, "__index__"):
        why = f"{item!r} of type {type(item).__name__} is no index"
        raise UserIndexError("E0506", why, fix="use ints, slices, arrays, None or ...")
    return integer(item, "an index")


def _nonzero(mask: Any) -> list[Any]:
    """The positions of a mask's true elements, one array per axis. Raises E0507 while their number is unknown."""
    if not is_array(mask):
        if tracing.current() is not None or not hasattr(mask, "numpy"):
            raise UserError(
                "E0507",
                f"a mask of shape {list(mask.shape)} as index: how many elements it takes is not known during tracing",
                fix="use td.where(mask, x, 0), td.masked_select(x, mask, size=10), or a fixed NumPy mask",
            )
        mask = mask.numpy()
    return [_Found(places, size) for places, size in zip(np.nonzero(mask), mask.shape, strict=True)]


@dataclass
class _Found:
    """Positions of a mask along one axis, and the size that this axis must have."""

    places: Any
    size: int


def _plan(sizes: Ints, items: Sequence[Any]) -> Plan:
    plan, rest, kinds = Plan(), iter(sizes), []
    for item in items:
        if item is None:
            plan.view.append(1)
            kinds.append("new")
            continue
        size = next(rest)
        axis = _axis(item, size)
        if axis is None:
            plan.arrays[len(plan.view)] = _positions(item, size)
            axis = Axis(0, size)
            kinds.append("array")
        else:
            kinds.append("int" if axis.dropped else "slice")
        plan.axes.append(axis)
        if not axis.dropped:
            plan.view.append(axis.count)
    if plan.arrays:
        plan.place = _place(kinds)
    return plan


def _place(kinds: Sequence[str]) -> int:
    """Where the arrays' axes go: to their own place if the arrays (and ints) stand together, else to the front."""
    advanced = [i for i, kind in enumerate(kinds) if kind in ("array", "int")]
    together = advanced[-1] - advanced[0] == len(advanced) - 1
    return sum(kind in ("slice", "new") for kind in kinds[: advanced[0]]) if together else 0


def _positions(item: Any, size: int) -> Any:
    if isinstance(item, _Found):
        if item.size not in (size, 0):
            why = f"a mask of size {item.size} on an axis of size {size}"
            raise UserIndexError("E0506", why, fix="make them equal")
        return item.places.astype(np.int32)
    return positions(item, size)


def _axis(item: Any, size: int) -> Axis | None:
    """What an int, a slice or a 0-d tensor takes; None for an array."""
    if isinstance(item, slice):
        if item.step is not None and integer(item.step, "a step") == 0:
            raise UserIndexError("E0506", "a slice with step 0", fix="use another step")
        for end in (item.start, item.stop):
            if end is not None:
                integer(end, "the end of a slice")
        taken = range(*item.indices(size))
        return Axis(taken.start if len(taken) else 0, len(taken), taken.step if len(taken) > 1 else 1)
    if isinstance(item, int):
        if not -size <= item < size:
            raise UserIndexError("E0506", f"index {item} on an axis of size {size}", fix=f"use {-size} to {size - 1}")
        return Axis(item % size, 1, dropped=True)
    if is_tensor(item) and item.ndim == 0:
        if size == 0:
            raise UserIndexError("E0506", "an element of an axis of size 0", fix="keep empty tensors out")
        return Axis(0, 1, dropped=True, at=positions(item, size))
    return None


# ------------------------------------------------------------------------------------------------- ints and slices
def _starts(plan: Plan) -> tuple[list[Any], Any]:
    """A start for every axis as operands of one type: 0-d tensors where they are dynamic, else 0; and that type."""
    dynamic = [a.at for a in plan.axes if a.at is not None]
    kind = dynamic[0].dtype if all(d.dtype is dynamic[0].dtype for d in dynamic) else dtypes.int64
    return [literal(np.zeros((), kind.np)) if a.at is None else cast(a.at, kind) for a in plan.axes], kind


def _row(x: Any, plan: Plan) -> Any:
    """x at the dynamic positions, with axes of size 1 for them; the other axes whole."""
    if all(a.at is None for a in plan.axes):
        return x
    sizes = tuple([n if a.at is None else 1 for a, n in zip(plan.axes, x.shape, strict=True)])
    return dynamic_slice(x, *_starts(plan)[0], sizes=sizes)


def _spans(axes: Sequence[Axis]) -> list[tuple[int, int, int]]:
    """(first, limit, stride > 0) of each axis, counted from the front."""
    spans = []
    for a in axes:
        end = a.start + (a.count - 1) * a.step
        spans.append((min(a.start, end), max(a.start, end) + 1, abs(a.step)) if a.count else (0, 0, 1))
    return spans


def _reversed(plan: Plan) -> Ints:
    return tuple([i for i, a in enumerate(plan.axes) if a.step < 0])


def _view(x: Any, plan: Plan) -> Any:
    """What the ints, slices and new axes make of x."""
    row = _row(x, plan)
    spans = _spans(plan.axes)
    starts, limits, strides = (tuple([s[k] for s in spans]) for k in range(3))
    if all(s == 1 for s in strides):
        row = window(row, starts, limits)
    else:
        row = shape.slice_(row, starts=starts, limits=limits, strides=strides)
    if back := _reversed(plan):
        row = shape.reverse(row, axes=back)
    return reshape(row, tuple(plan.view))


def _put_back(x: Any, plan: Plan, view: Any) -> Any:
    """x with the view that the plan's ints, slices and new axes make replaced."""
    part = reshape(view, tuple([a.count for a in plan.axes]))
    if math.prod(part.shape) == 0:
        return x
    if back := _reversed(plan):
        part = shape.reverse(part, axes=back)
    row = _row(x, plan)
    spans = _spans(plan.axes)
    if all(s == 1 for _, _, s in spans):
        whole = tuple(part.shape) == tuple(row.shape)
        starts = [literal(np.asarray(start, np.int32)) for start, _, _ in spans]
        row = part if whole else dynamic_update_slice(row, part, *starts)
    else:
        row = _interleaved(row, part, spans)
    if all(a.at is None for a in plan.axes):
        return row
    return dynamic_update_slice(x, row, *_starts(plan)[0])


def _interleaved(row: Any, part: Any, spans: Sequence[tuple[int, int, int]]) -> Any:
    """row with the elements of part at first, first + stride, ..."""
    low = tuple([s[0] for s in spans])
    gaps = tuple([s[2] - 1 for s in spans])
    high = tuple([n - s[1] for n, s in zip(row.shape, spans, strict=True)])
    wide = shape.pad(part, literal(np.zeros((), row.dtype.np)), low=low, high=high, interior=gaps)
    inside: Any = None
    for axis, (first, limit, stride) in enumerate(spans):
        if (first, limit, stride) == (0, row.shape[axis], 1):
            continue
        taken = np.zeros(row.shape[axis], bool)
        taken[first:limit:stride] = True
        column = literal(taken.reshape([-1 if i == axis else 1 for i in range(row.ndim)]))
        both = compare.logical_and if is_tensor(column) else np.logical_and
        inside = column if inside is None else both(column, inside)
    return compare.select(inside, wide, row)


# ---------------------------------------------------------------------------------------------------- index arrays
def _array_shape(plan: Plan) -> Ints:
    """The broadcast shape of the index arrays."""
    return broadcast_shapes(*[tuple(a.shape) for a in plan.arrays.values()])


def _flat(view: Any, plan: Plan) -> tuple[Any, Ints]:
    """The view with the axes that are looked up made one, in front; and the permutation that brings them there."""
    perm = (*plan.arrays, *[i for i in range(view.ndim) if i not in plan.arrays])
    rest = [view.shape[i] for i in perm[len(plan.arrays) :]]
    return reshape(permute(view, perm), (math.prod([view.shape[i] for i in plan.arrays]), *rest)), perm


def _flat_positions(view: Any, plan: Plan, together: Ints) -> Any:
    """Positions on the first axis of the flat view: an array if all index arrays are, else a tensor, within range."""
    sizes = [view.shape[i] for i in plan.arrays]
    wide = dtypes.int64 if math.prod(sizes) >= 2**31 else dtypes.int32
    known = not any(map(is_tensor, plan.arrays.values()))
    total: Any = 0
    for places, size in zip(plan.arrays.values(), sizes, strict=True):
        if known:
            total = total * size + places.astype(wide.np)
            continue
        inside = elementwise.clamp(0, places, max(size - 1, 0)) if is_tensor(places) else operand(places)
        step = broadcast_to(lift(inside), together)
        step = cast(step, wide) if step.dtype.bits < wide.bits else step
        total = step if isinstance(total, int) else elementwise.add(elementwise.mul(total, size), step)
    return np.broadcast_to(total, together) if known else total


def _look_up(view: Any, plan: Plan) -> Any:
    """The view with its index arrays looked up."""
    if plan.place is None:
        return view
    if len(plan.arrays) == 1:
        ((axis, places),) = plan.arrays.items()
        out = ops.take(view, operand(places), axis=axis)
        return _moved(out, axis, plan.place, len(places.shape))
    together = _array_shape(plan)
    flat, _ = _flat(view, plan)
    out = ops.take(flat, operand(_flat_positions(view, plan, together)), axis=0)
    return _moved(out, 0, plan.place, len(together))


def _moved(x: Any, source: int, place: int, count: int) -> Any:
    """x with `count` axes that begin at `source` moved so that they begin at `place`."""
    rest = [i for i in range(x.ndim) if not source <= i < source + count]
    return permute(x, (*rest[:place], *range(source, source + count), *rest[place:]))


def _written(view: Any, plan: Plan, value: Any, op: Any = None) -> Any:
    """The view with the value at the places that the index arrays name, joined with what is there if there is an op."""
    together, place = _array_shape(plan), plan.place or 0
    flat, perm = _flat(view, plan)
    rest = tuple(flat.shape[1:])
    value = _moved(_fit(value, (*rest[:place], *together, *rest[place:])), place, 0, len(together))
    count = math.prod(together)
    if count == 0 or math.prod(flat.shape) == 0:
        return view
    places = _flat_positions(view, plan, together)
    places = reshape(places, (count,)) if is_tensor(places) else places.ravel()
    value = reshape(value, (count, *rest))
    if op is None and not is_tensor(places):
        flat = _replaced(flat, places, value)
    else:
        flat = (op or scatter.index_set)(flat, operand(places), value, axis=0)
    back = reshape(flat, tuple([view.shape[i] for i in perm]))
    return permute(back, tuple([perm.index(i) for i in range(view.ndim)]))


def _replaced(flat: Any, places: Any, value: Any) -> Any:
    """flat with its first axis at known places replaced, of several values at one place by the last."""
    source, hit = np.zeros(flat.shape[0], np.int32), np.zeros((flat.shape[0], *[1] * (flat.ndim - 1)), bool)
    source[places] = np.arange(places.size)
    hit[places] = True
    return compare.select(literal(hit), ops.take(value, literal(source), axis=0), flat)
