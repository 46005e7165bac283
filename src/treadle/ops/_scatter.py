"""Rules that the scatter ops share: writing by maximum, minimum, product or replacement, in two forms.

A form says where updates go: `SLICES` writes whole slices at indices along one axis (opposite of `take`), `ALONG` one
element per index (opposite of `take_along_axis`). Indices out of range are clamped. A rule here takes the form first,
then what the op's rule takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.ir import op as op_table
from treadle.ir.node import Value
from treadle.ir.types import TensorType, bf16, f32, f64, i32, i64
from treadle.ops._batching import merged, moved, own_places, parted
from treadle.ops._declare import Sample, Samples
from treadle.ops._types import normal_axis
from treadle.ops.casting import cast
from treadle.ops.compare import equal, select
from treadle.ops.creation import full
from treadle.ops.elementwise import clamp
from treadle.ops.index import index_sum, scatter_add_along, take, take_along_axis
from treadle.ops.reduce import broadcast_to, extreme_region, wide, wide_array, wide_dtype
from treadle.ops.shape import LETTERS, concatenate, reshape, slice_, zeros_like
from treadle.ops.shape import reverse as flip
from treadle.ops.sorting import argsort

Grads = tuple[Value, None, Value]


def check(axis: int, x: TensorType, indices: TensorType) -> None:
    """An axis counted from the front (E0107) with an element to write to (E0139), indices int32 or int64 (E0138)."""
    if indices.dtype.kind != "i" or indices.dtype.bits < 32:
        raise UserError("E0138", f"indices are {indices}, not int32 or int64", fix="cast them: i.astype(td.int32)")
    if normal_axis(axis, x.rank) != axis:
        raise UserError("E0107", f"axis {axis} is counted from the back", fix=f"use {axis % x.rank}")
    if x.shape[axis] == 0 and indices.size > 0:
        raise UserError("E0139", f"{indices} positions on the empty axis {axis} of {x}", fix="give x an element there")


def inside(indices: Any, size: int) -> Any:
    """Indices clamped to 0..size-1, as NumPy integers."""
    return np.clip(indices.astype(np.int64), 0, max(size - 1, 0))


class Slices:
    """updates has the axes of indices in the place of the axis of x."""

    def updates(self, x: TensorType, indices: TensorType, axis: int) -> TensorType:
        """The type that updates must have."""
        check(axis, x, indices)
        return x.with_shape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))

    def places(self, x: Any, indices: Any, axis: int) -> Any:
        """Of each update, the number of the element of x that it goes to, in row order."""
        numbers = np.arange(x.size).reshape(x.shape)
        return np.take(numbers, inside(indices, x.shape[axis]), axis).ravel()

    def read(self, x: Value, indices: Value, axis: int) -> Value:
        """x at the places of the updates."""
        found: Value = take(x, indices, axis=axis)
        return found

    def total(self, x: Value, indices: Value, updates: Value, axis: int) -> Value:
        """The sum of the updates at each place of x."""
        made: Value = index_sum(indices, updates, axis=axis, size=x.shape[axis])
        return made

    def lined(self, indices: Value, updates: Value, axis: int) -> tuple[Value, Value, int]:
        """Indices as one line, the updates with one axis for it, and the axis of the line."""
        rest = updates.shape[axis + indices.ndim :]
        n = indices.type.size
        return reshape(indices, shape=(n,)), reshape(updates, shape=(*updates.shape[:axis], n, *rest)), 0

    def spread(self, line: Value, updates: Value, axis: int) -> Value:
        """What belongs to each index (the shape of indices, or of their line), for each update."""
        column = [1] * axis + [*line.shape] + [1] * (updates.ndim - axis - line.ndim)
        made: Value = broadcast_to(reshape(line, shape=tuple(column)), shape=updates.shape)
        return made

    def axes(self, x: TensorType, indices: TensorType, updates: TensorType, *, axis: int) -> str:
        """The axes rule. The axes of the indices stay whole: x would be written twice."""
        names, index = list(LETTERS[: x.rank]), [f"!i{k}" for k in range(indices.rank)]
        of_x = " ".join([*names[:axis], "!" + names[axis], *names[axis + 1 :]])
        return f"{of_x}, {' '.join(index)}, {' '.join([*names[:axis], *index, *names[axis + 1 :]])} -> {of_x}"

    def numbers(self, x: TensorType, indices: TensorType, axis: int) -> str:
        """How StableHLO's scatter says it."""
        window = [*range(axis), *range(axis + indices.rank, x.rank - 1 + indices.rank)]
        return (
            f"update_window_dims = {window}, inserted_window_dims = [{axis}], "
            f"scatter_dims_to_operand_dims = [{axis}], index_vector_dim = {indices.rank}"
        )

    def onnx(self, g: Any, indices: str, updates: str, axis: int) -> tuple[str, str]:
        """Indices and updates of equal shape, as ONNX's ScatterElements wants them."""
        count = g.types[1].size
        flat = [count if i == axis else n for i, n in enumerate(g.out[0].shape)]
        column = [count if i == axis else 1 for i in range(len(flat))]
        indices = g.node("Reshape", indices, g.const(np.array(column, np.int64)), allowzero=1)
        indices = g.node("Expand", indices, g.const(np.array(flat, np.int64)))
        return indices, g.node("Reshape", updates, g.const(np.array(flat, np.int64)), allowzero=1)

    def samples(self, s: Samples) -> Iterator[Sample]:
        yield s(f64[5, 3], i32[4], f64[4, 3], axis=0)
        yield s(f64[2, 5], i64[2, 2], f64[2, 2, 2], axis=1)
        yield s(f64[2, 5], i32[()], f64[2], axis=1)
        yield s(f64[4], np.array([-1, 9, 2, 2, 2], np.int32), f64[5], axis=0)
        yield s(f64[0, 3], i32[0], f64[0, 3], axis=0)
        yield s(f64[3, 0], i32[2], f64[2, 0], axis=0)
        yield s(f32[1, 1], i32[1], f32[1, 1], axis=1)
        yield s(bf16[3], i32[2], bf16[2], axis=0)
        yield s(i32[3], i32[2], i32[2], axis=0)
        yield s(f64[3], f64[2], f64[2], axis=0, bad="E0138")
        yield s(f64[3], i32[2], f64[3], axis=0, bad="E0140")
        yield s(f64[0], i32[2], f64[2], axis=0, bad="E0139")
        yield s(f64[3], i32[2], f64[2], axis=1, bad="E0107")


class Along:
    """updates has the shape of indices, which is that of x but along the axis."""

    def updates(self, x: TensorType, indices: TensorType, axis: int) -> TensorType:
        if x.rank != indices.rank or any(a != b for i, (a, b) in enumerate(zip(x.shape, indices.shape)) if i != axis):
            why = f"x is {x}, indices {indices}: all sizes but that of axis {axis} must be equal"
            raise UserError("E0140", why, fix="broadcast one of them first")
        check(axis, x, indices)
        return x.with_shape(indices.shape)

    def places(self, x: Any, indices: Any, axis: int) -> Any:
        numbers = np.arange(x.size).reshape(x.shape)
        return np.take_along_axis(numbers, inside(indices, x.shape[axis]), axis).ravel()

    def read(self, x: Value, indices: Value, axis: int) -> Value:
        found: Value = take_along_axis(x, indices, axis=axis)
        return found

    def total(self, x: Value, indices: Value, updates: Value, axis: int) -> Value:
        made: Value = scatter_add_along(zeros_like(x), indices, updates, axis=axis)
        return made

    def lined(self, indices: Value, updates: Value, axis: int) -> tuple[Value, Value, int]:
        return indices, updates, axis

    def spread(self, line: Value, updates: Value, axis: int) -> Value:
        return line

    def axes(self, x: TensorType, indices: TensorType, updates: TensorType, *, axis: int) -> str:
        of_x, of_i = [" ".join(w if i == axis else n for i, n in enumerate(LETTERS[: x.rank])) for w in ("!x", "!i")]
        return f"{of_x}, {of_i}, {of_i} -> {of_x}"

    def numbers(self, x: TensorType, indices: TensorType, axis: int) -> str:
        rest = [i for i in range(x.rank) if i != axis]
        return (
            f"update_window_dims = [], inserted_window_dims = [{axis}], input_batching_dims = {rest}, "
            f"scatter_indices_batching_dims = {rest}, scatter_dims_to_operand_dims = [{axis}], "
            f"index_vector_dim = {x.rank}"
        )

    def onnx(self, g: Any, indices: str, updates: str, axis: int) -> tuple[str, str]:
        return indices, updates

    def samples(self, s: Samples) -> Iterator[Sample]:
        yield s(f64[3, 5], i32[3, 4], f64[3, 4], axis=1)
        yield s(f64[5, 2, 3], i64[4, 2, 3], f64[4, 2, 3], axis=0)
        yield s(f64[4], np.array([-2, 9, 1, 1, 1], np.int32), f64[5], axis=0)
        yield s(f64[1, 1], i32[1, 1], f64[1, 1], axis=0)
        yield s(f64[2, 0], i32[2, 0], f64[2, 0], axis=1)
        yield s(f64[0, 3], i32[0, 1], f64[0, 1], axis=1)
        yield s(f32[2, 2], i32[3, 2], f32[3, 2], axis=0)
        yield s(bf16[5], i32[2], bf16[2], axis=0)
        yield s(i32[5], i32[2], i32[2], axis=0)
        yield s(f64[5], f64[2], f64[2], axis=0, bad="E0138")
        yield s(f64[5, 2], i32[5, 3], f64[5, 3], axis=0, bad="E0140")
        yield s(f64[5], i32[3], f64[2], axis=0, bad="E0140")
        yield s(f64[0], i32[2], f64[2], axis=0, bad="E0139")
        yield s(f64[3], i32[3], f64[3], axis=1, bad="E0107")


Form = Slices | Along
SLICES, ALONG = Slices(), Along()


def type_rule(form: Form, kind: Callable[..., Any] | None = None) -> Callable[..., TensorType]:
    """x, whose elements `kind` checks."""

    def rule(x: TensorType, indices: TensorType, updates: TensorType, *, axis: int) -> TensorType:
        if kind is not None:
            kind(x)
        wanted = form.updates(x, indices, axis)
        if updates != wanted:
            raise UserError("E0140", f"updates are {updates}", fix=f"make them {wanted}")
        return x

    return rule


def ref_rule(form: Form, combine: np.ufunc | None) -> Callable[..., Any]:
    """combine: of the old number and the update; None: the update, of several the last."""

    def rule(x: Any, indices: Any, updates: Any, *, axis: int) -> Any:
        total = np.array(wide_array(x), order="C")
        flat, places, change = total.reshape(-1), form.places(x, indices, axis), wide_array(updates).ravel()
        if combine is None:
            flat[places] = change
        else:
            combine.at(flat, places, change)
        return total.astype(x.dtype)

    return rule


# --------------------------------------------------------------------------------------------------------- StableHLO
def hlo_scatter(form: Form, b: Any, x: Any, places: Any, updates: Any, axis: int, kind: str) -> Any:
    """x with updates at places, combined by `kind` (an op of StableHLO, or "set"). Places out of range are dropped."""
    narrow, change = b.out[0], b.types[2]
    work = narrow.with_dtype(wide_dtype(narrow.dtype)) if kind == "multiply" else narrow
    scalar = work.with_shape(())
    if kind == "set":
        region = b.region((scalar, scalar), lambda b, old, new: new)
    elif kind == "multiply" or not work.dtype.is_float:
        region = b.region((scalar, scalar), lambda b, old, new: b.op(kind, old, new, types=scalar))
    else:
        region = extreme_region(b, work.dtype, "GT" if kind == "maximum" else "LT")
    total = b.op(
        "scatter",
        b.convert(x, narrow, work),
        places,
        b.convert(updates, change, change.with_dtype(work.dtype)),
        types=work,
        regions=(region,),
        scatter_dimension_numbers=f"#stablehlo.scatter<{form.numbers(b.types[0], b.types[1], axis)}>",
        indices_are_sorted=False,
        unique_indices=False,
    )
    return b.convert(total, work, narrow)


def hlo_inside(b: Any, indices: Any, type: TensorType, size: int) -> Any:
    """Indices clamped to 0..size-1."""
    scalar = type.with_shape(())
    return b.op("clamp", b.splat(0, scalar), indices, b.splat(max(size - 1, 0), scalar), types=type)


def hlo_rule(form: Form, kind: str) -> Callable[..., Any]:
    """Combined by an op of StableHLO."""

    def rule(b: Any, x: Any, indices: Any, updates: Any, *, axis: int) -> Any:
        if b.types[2].size == 0:
            return x
        places = hlo_inside(b, indices, b.types[1], b.types[0].shape[axis])
        return hlo_scatter(form, b, x, places, updates, axis, kind)

    return rule


def onnx_rule(form: Form, reduction: str) -> Callable[..., Any]:
    """ONNX's ScatterElements."""

    def rule(g: Any, x: str, indices: str, updates: str, *, axis: int) -> Any:
        of_i, size = g.types[1], g.out[0].shape[axis]
        low, high = np.array(0, of_i.dtype.np), np.array(max(size - 1, 0), of_i.dtype.np)
        indices = g.node("Clip", indices, g.const(low), g.const(high))
        indices, updates = form.onnx(g, indices, updates, axis)
        return g.node("ScatterElements", x, indices, updates, axis=axis, reduction=reduction)

    return rule


# --------------------------------------------------------------------------------------------------------- gradients
def extreme_grad(form: Form) -> Callable[..., Grads]:
    """Of a maximum or minimum: shared equally among x and the updates that are it."""

    def rule(x: Value, indices: Value, updates: Value, out: Value, d: Value, *, axis: int) -> Grads:
        if updates.type.size == 0:
            return d, None, zeros_like(updates)
        dtype = wide_dtype(x.dtype)
        old = cast(equal(x, out), dtype=dtype)
        new = cast(equal(updates, form.read(out, indices, axis)), dtype=dtype)
        share = wide(d) / (old + form.total(old, indices, new, axis))
        back = form.read(share, indices, axis) * new
        return cast(share * old, dtype=x.dtype), None, cast(back, dtype=x.dtype)

    return rule


def mul_grad(form: Form, op: str) -> Callable[..., Grads]:
    """Of a product: the product of the others, without dividing, so that zeros are right to any order.

    op: the name of the op itself.
    """

    def rule(x: Value, indices: Value, updates: Value, out: Value, d: Value, *, axis: int) -> Grads:
        if updates.type.size == 0:
            return d, None, zeros_like(updates)
        ones = full(value=1, shape=x.shape, dtype=x.dtype)
        line, change, along = form.lined(indices, wide(updates), axis)
        others = reshape(_others(form, line, change, along, axis, x.shape[axis]), shape=updates.shape)
        back = form.read(wide(d) * wide(x), indices, axis) * others
        return d * op_table.get(op)(ones, indices, updates, axis=axis), None, cast(back, dtype=x.dtype)

    return rule


def _others(form: Form, line: Value, updates: Value, along: int, axis: int, size: int) -> Value:
    """For each update the product of the other ones that go to its place.

    The updates are sorted by place; there, running products from both sides that begin anew at each place are made by
    doubling (Hillis & Steele 1986, doi:10.1145/7902.7903).
    """
    places = clamp(0, line, max(size - 1, 0))
    order = argsort(places, axis=along, descending=False)
    sorted_places = form.spread(take_along_axis(places, order, axis=along), updates, axis)
    sorted_updates = form.read(updates, order, axis)
    before = _running(sorted_places, sorted_updates, axis)
    after = _running(flip(sorted_places, axes=(axis,)), flip(sorted_updates, axes=(axis,)), axis)
    return form.total(updates, order, before * flip(after, axes=(axis,)), axis)


def _running(places: Value, updates: Value, axis: int) -> Value:
    """The product of the earlier elements with the same (sorted) place."""
    n = updates.shape[axis]
    ones = full(value=1, shape=updates.shape, dtype=updates.dtype)
    part = partial(_part, axis=axis)
    same = equal(part(places, 0, n - 1), part(places, 1, n))
    shifted = select(same, part(updates, 0, n - 1), part(ones, 1, n))
    total: Value = concatenate(part(ones, 0, 1), shifted, axis=axis)
    step = 1
    while step < n - 1:
        same = equal(part(places, 0, n - step), part(places, step, n))
        later = part(total, step, n)
        joined = select(same, part(total, 0, n - step) * later, later)
        total = concatenate(part(total, 0, step), joined, axis=axis)
        step *= 2
    return total


def _part(x: Value, first: int, last: int, axis: int) -> Value:
    """x[first:last] along the axis."""
    starts = tuple([first if i == axis else 0 for i in range(x.ndim)])
    limits = tuple([last if i == axis else n for i, n in enumerate(x.shape)])
    part: Value = slice_(x, starts=starts, limits=limits, strides=(1,) * x.ndim)
    return part


# ---------------------------------------------------------------------------------------------------------- batching
def slices_batch(op: str) -> Callable[..., Any]:
    """Of the op of this name, in the form SLICES: lanes with indices of their own write to a merged axis."""

    def rule(run: Any, inputs: Any, flags: Any, *, axis: int) -> Any:
        x, indices, updates = inputs
        if not flags[1]:
            x, updates = run.all((x, updates), (flags[0], flags[2]))
            return [op_table.get(op)(x, indices, updates, axis=axis + 1)], [True]
        x, indices, updates = run.all(inputs, flags)
        count = x.shape[axis + 1]
        if count == 0:
            return NotImplemented
        total = op_table.get(op)(merged(x, axis), own_places(indices, count), moved(updates, 0, axis), axis=axis)
        return [parted(total, axis, run.size)], [True]

    return rule
