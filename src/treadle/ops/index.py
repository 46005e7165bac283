"""Reading and adding at positions that are themselves tensors: take, take_along_axis, their opposites, one_hot.

Indices are int32 or int64. An index out of range is clamped into it, as XLA does: counting from the back (negative
indices) is the surface's business. `one_hot` alone gives zeros for an index that is out of range.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle.base.dtypes import DType, float32, float64, int32
from treadle.base.errors import UserError
from treadle.ir.node import Value
from treadle.ir.types import TensorType, bf16, f32, f64, i32, i64
from treadle.ops import _formulas, _padding
from treadle.ops._batching import merged, moved, own_places, parted
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._types import normal_axis, same_number
from treadle.ops.casting import cast
from treadle.ops.compare import equal
from treadle.ops.creation import iota
from treadle.ops.reduce import broadcast_to, wide_array, wide_dtype
from treadle.ops.shape import LETTERS, reshape, zeros_like

Ints = tuple[int, ...]


def _check_index(*types: TensorType) -> None:
    for t in types:
        if t.dtype.kind != "i" or t.dtype.bits < 32:
            raise UserError("E0138", f"indices are {t}, not int32 or int64", fix="cast them: i.astype(td.int32)")


def _check_axis(axis: int, x: TensorType, indices: TensorType) -> None:
    """An axis counted from the front, not empty unless nothing is looked up there."""
    if normal_axis(axis, x.rank) != axis:
        raise UserError("E0107", f"axis {axis} is counted from the back", fix=f"use {axis % x.rank}")
    if x.shape[axis] == 0 and indices.size > 0:
        raise UserError("E0139", f"{indices} positions on the empty axis {axis} of {x}", fix="give x an element there")


def _inside(indices: Any, size: int) -> Any:
    """Indices clamped to 0..size-1, as NumPy integers."""
    return np.clip(indices.astype(np.int64), 0, max(size - 1, 0))


def _hlo_inside(b: Any, indices: Any, type: TensorType, size: int) -> Any:
    """The same in StableHLO: scatter would drop what is out of range."""
    scalar = type.with_shape(())
    return b.op("clamp", b.splat(0, scalar), indices, b.splat(max(size - 1, 0), scalar), types=type)


def _onnx_inside(g: Any, indices: str, type: TensorType, size: int) -> Any:
    low, high = np.array(0, type.dtype.np), np.array(max(size - 1, 0), type.dtype.np)
    return g.node("Clip", indices, g.const(low), g.const(high))


def _hlo_scatter_add(b: Any, x: Any, indices: Any, updates: Any, numbers: str) -> Any:
    """x (the node's result in type) with updates added at indices; 16-bit floats are added in float32."""
    narrow = b.out[0]
    work = narrow.with_dtype(wide_dtype(narrow.dtype))
    scalar, change = work.with_shape(()), b.types[-1]
    total = b.op(
        "scatter",
        b.convert(x, narrow, work),
        indices,
        b.convert(updates, change, change.with_dtype(work.dtype)),
        types=work,
        regions=(b.region((scalar, scalar), lambda b, p, q: b.op("add", p, q, types=scalar)),),
        scatter_dimension_numbers=f"#stablehlo.scatter<{numbers}>",
        indices_are_sorted=False,
        unique_indices=False,
    )
    return b.convert(total, work, narrow)


# --- whole slices along one axis --------------------------------------------------------------------------------------


def _taken(x: TensorType, indices: TensorType, axis: int) -> TensorType:
    return x.with_shape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


def _take_names(x: int, indices: int, axis: int, mark: str = "") -> tuple[str, str, str]:
    """Axis names of x, indices and the taken slices, given the ranks; `mark` goes on those of the indices."""
    names, index = list(LETTERS[:x]), [f"{mark}i{k}" for k in range(indices)]
    whole = [*names[:axis], "!" + names[axis], *names[axis + 1 :]]
    return " ".join(whole), " ".join(index), " ".join([*names[:axis], *index, *names[axis + 1 :]])


@op(formula=_formulas.take, jvp="linear")
def take(x: Value, indices: Value, *, axis: int) -> Any:
    """Slices of x at `indices` along `axis`: the axis is replaced by the axes of indices, as `numpy.take`.

    Indices are clamped. Raises E0107 for a wrong axis, E0138 for indices that are not int32 or int64, E0139 for an
    empty axis.
    """


take.padded(_padding.take)


@take.type
def _(x: TensorType, indices: TensorType, *, axis: int) -> TensorType:
    _check_index(indices)
    _check_axis(axis, x, indices)
    return _taken(x, indices, axis)


@take.ref
def _(x: Any, indices: Any, *, axis: int) -> Any:
    if x.shape[axis] == 0:
        return np.zeros((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype)
    return np.take(x, _inside(indices, x.shape[axis]), axis)


@take.axes
def _(x: TensorType, indices: TensorType, *, axis: int) -> str:
    of_x, of_i, of_out = _take_names(x.rank, indices.rank, axis)
    return f"{of_x}, {of_i} -> {of_out}"


@take.hlo
def _(b: Any, x: Any, indices: Any, *, axis: int) -> Any:
    if b.out[0].size == 0:
        return b.splat(0, b.out[0])
    of_x, of_i = b.types
    offset = [*range(axis), *range(axis + of_i.rank, b.out[0].rank)]
    numbers = (
        f"offset_dims = {offset}, collapsed_slice_dims = [{axis}], start_index_map = [{axis}], "
        f"index_vector_dim = {of_i.rank}"
    )
    sizes = tuple([1 if i == axis else n for i, n in enumerate(of_x.shape)])
    text = f"#stablehlo.gather<{numbers}>"
    return b.op("gather", x, indices, dimension_numbers=text, slice_sizes=sizes, indices_are_sorted=False)


@take.grad
def _(x: Value, indices: Value, out: Value, d: Value, *, axis: int) -> tuple[Value, None]:
    return index_sum(indices, d, axis=axis, size=x.shape[axis]), None


@take.onnx
def _(g: Any, x: str, indices: str, *, axis: int) -> Any:
    return g.node("Gather", x, _onnx_inside(g, indices, g.types[1], g.types[0].shape[axis]), axis=axis)


@take.batch
def _(run: Any, inputs: Any, flags: Any, *, axis: int) -> Any:
    x, indices = inputs
    if not flags[1]:
        return [take(x, indices, axis=axis + 1)], [True]
    if not flags[0]:
        return [moved(take(x, indices, axis=axis), axis, 0)], [True]
    if x.shape[axis + 1] == 0:
        return NotImplemented
    own = own_places(indices, x.shape[axis + 1])
    return [moved(take(merged(x, axis), own, axis=axis), axis, 0)], [True]


@take.samples
def _(s: Samples) -> Iterator[Sample]:
    yield s(f64[5, 3], i32[4], axis=0)
    yield s(f64[2, 5, 3], i64[2, 2], axis=1)
    yield s(f64[2, 5], i32[()], axis=1)
    yield s(f64[5, 2], np.array([-1, 7, 2, 2], np.int32), axis=0)
    yield s(f64[1, 1], i32[1], axis=0)
    yield s(f64[5, 3], i32[0], axis=0)
    yield s(f64[5, 0], i32[2], axis=0)
    yield s(f64[0, 3], i32[0, 2], axis=0)
    yield s(bf16[5, 2], i32[3], axis=0)
    yield s(i32[5], i32[3], axis=0)
    yield s(np.array([True, False, True, True, False]), i32[3], axis=0)
    yield s(f64[5], f64[3], axis=0, bad="E0138")
    yield s(f64[5], i32[3], axis=1, bad="E0107")
    yield s(f64[0, 3], i32[2], axis=0, bad="E0139")


@op(group="row", jvp="linear")
def index_sum(indices: Value, updates: Value, *, axis: int, size: int) -> Any:
    """Zeros with `size` slices along `axis`, to which each slice of updates is added at its index; opposite of take.

    updates: the type that `take` gives, the axes of indices in the place of `axis`. Indices are clamped; equal ones add
    up. Raises E0107, E0138, E0139 and E0140 where indices and updates do not fit.
    """


index_sum.padded(_padding.index_sum)


@index_sum.type
def _(indices: TensorType, updates: TensorType, *, axis: int, size: int) -> TensorType:
    _check_index(indices)
    same_number(updates)
    if size < 0:
        raise UserError("E0109", f"size {size} is negative", fix="give the size of the axis of the result")
    lead, rest = updates.shape[:axis], updates.shape[axis + indices.rank :]
    if updates.shape != (*lead, *indices.shape, *rest):
        raise UserError("E0140", f"updates are {updates}, indices {indices}", fix=f"put the latter at axis {axis}")
    out = updates.with_shape((*lead, size, *rest))
    _check_axis(axis, out, indices)
    return out


@index_sum.ref
def _(indices: Any, updates: Any, *, axis: int, size: int) -> Any:
    shape = (*updates.shape[:axis], size, *updates.shape[axis + indices.ndim :])
    return _added(np.zeros(shape, updates.dtype), indices, updates, axis)


def _added(x: Any, indices: Any, updates: Any, axis: int) -> Any:
    """x with the slices of updates added at indices along the axis."""
    total = np.array(wide_array(x))
    if updates.size:
        np.add.at(total, (*[slice(None)] * axis, _inside(indices, x.shape[axis])), wide_array(updates))
    return total.astype(x.dtype)


@index_sum.axes
def _(indices: TensorType, updates: TensorType, *, axis: int, size: int) -> str:
    of_x, of_i, of_updates = _take_names(updates.rank - indices.rank + 1, indices.rank, axis)
    return f"{of_i}, {of_updates} -> {of_x}"


@index_sum.hlo
def _(b: Any, indices: Any, updates: Any, *, axis: int, size: int) -> Any:
    return _hlo_index_add(b, b.splat(0, b.out[0]), indices, updates, b.types[0], axis)


def _hlo_index_add(b: Any, x: Any, indices: Any, updates: Any, of_i: TensorType, axis: int) -> Any:
    if b.types[-1].size == 0:
        return x
    window = [*range(axis), *range(axis + of_i.rank, b.types[-1].rank)]
    numbers = (
        f"update_window_dims = {window}, inserted_window_dims = [{axis}], scatter_dims_to_operand_dims = [{axis}], "
        f"index_vector_dim = {of_i.rank}"
    )
    return _hlo_scatter_add(b, x, _hlo_inside(b, indices, of_i, b.out[0].shape[axis]), updates, numbers)


@index_sum.grad
def _(indices: Value, updates: Value, out: Value, d: Value, *, axis: int, size: int) -> tuple[None, Value]:
    if size == 0:
        return None, zeros_like(updates)
    return None, take(d, indices, axis=axis)


@index_sum.onnx
def _(g: Any, indices: str, updates: str, *, axis: int, size: int) -> Any:
    zeros = g.const(np.zeros(g.out[0].shape, g.out[0].dtype.np))
    return _onnx_index_add(g, zeros, indices, updates, g.types[0], axis)


def _onnx_index_add(g: Any, x: str, indices: str, updates: str, of_i: TensorType, axis: int) -> Any:
    """ScatterElements wants an index for every element of updates."""
    flat = [of_i.size if i == axis else n for i, n in enumerate(g.out[0].shape)]
    column = [of_i.size if i == axis else 1 for i in range(len(flat))]
    indices = _onnx_inside(g, indices, of_i, g.out[0].shape[axis])
    indices = g.node("Reshape", indices, g.const(np.array(column, np.int64)))
    indices = g.node("Expand", indices, g.const(np.array(flat, np.int64)))
    updates = g.node("Reshape", updates, g.const(np.array(flat, np.int64)), allowzero=1)
    return g.node("ScatterElements", x, indices, updates, axis=axis, reduction="add")


@index_sum.batch
def _(run: Any, inputs: Any, flags: Any, *, axis: int, size: int) -> Any:
    indices, updates = inputs
    if not flags[0]:
        return [index_sum(indices, updates, axis=axis + 1, size=size)], [True]
    if size == 0:
        return NotImplemented
    indices, updates = run.all(inputs, flags)
    total = index_sum(own_places(indices, size), moved(updates, 0, axis), axis=axis, size=run.size * size)
    return [parted(total, axis, run.size)], [True]


@index_sum.samples
def _(s: Samples) -> Iterator[Sample]:
    yield s(i32[4], f64[4, 3], axis=0, size=5)
    yield s(i64[2, 2], f64[2, 2, 2, 3], axis=1, size=5)
    yield s(i32[()], f64[2], axis=1, size=5)
    yield s(np.array([-1, 7, 2, 2], np.int32), f64[4, 2], axis=0, size=4)
    yield s(i32[0], f64[0, 3], axis=0, size=2)
    yield s(i32[0], f64[0, 3], axis=0, size=0)
    yield s(i32[1], f64[1, 1], axis=0, size=1)
    yield s(i32[3], bf16[3, 2], axis=0, size=4)
    yield s(i32[3], i32[3], axis=0, size=5)
    yield s(f64[3], f64[3], axis=0, size=4, bad="E0138")
    yield s(i32[3], f64[2], axis=0, size=4, bad="E0140")
    yield s(i32[3], f64[3], axis=0, size=-1, bad="E0109")
    yield s(i32[3], f64[3], axis=0, size=0, bad="E0139")
    yield s(i32[()], f64[2], axis=2, size=3, bad="E0107")
    yield s(i32[1], np.array([True]), axis=0, size=3, bad="E0106")


@op(jvp="linear")
def index_add(x: Value, indices: Value, updates: Value, *, axis: int) -> Any:
    """x with each slice of updates added at its index along `axis`; indices are clamped, equal ones add up.

    updates: what `take(x, indices)` gives. Raises E0107, E0138, E0139, E0140 as `index_sum`, E0105 for other types.
    """


index_add.padded(_padding.scatter_add)


@index_add.type
def _(x: TensorType, indices: TensorType, updates: TensorType, *, axis: int) -> TensorType:
    _check_index(indices)
    same_number(x)
    _check_axis(axis, x, indices)
    if updates != _taken(x, indices, axis):
        raise UserError("E0140", f"updates are {updates}", fix=f"make them {_taken(x, indices, axis)}")
    return x


@index_add.ref
def _(x: Any, indices: Any, updates: Any, *, axis: int) -> Any:
    return _added(x, indices, updates, axis)


@index_add.axes
def _(x: TensorType, indices: TensorType, updates: TensorType, *, axis: int) -> str:
    """The axes of the indices stay whole: x would be added twice."""
    of_x, of_i, of_updates = _take_names(x.rank, indices.rank, axis, "!")
    return f"{of_x}, {of_i}, {of_updates} -> {of_x}"


@index_add.hlo
def _(b: Any, x: Any, indices: Any, updates: Any, *, axis: int) -> Any:
    return _hlo_index_add(b, x, indices, updates, b.types[1], axis)


@index_add.grad
def _(x: Value, indices: Value, updates: Value, out: Value, d: Value, *, axis: int) -> tuple[Value, None, Value]:
    return d, None, zeros_like(updates) if updates.type.size == 0 else take(d, indices, axis=axis)


@index_add.onnx
def _(g: Any, x: str, indices: str, updates: str, *, axis: int) -> Any:
    return _onnx_index_add(g, x, indices, updates, g.types[1], axis)


@index_add.batch
def _(run: Any, inputs: Any, flags: Any, *, axis: int) -> Any:
    x, indices, updates = inputs
    if not flags[1]:
        x, updates = run.all((x, updates), (flags[0], flags[2]))
        return [index_add(x, indices, updates, axis=axis + 1)], [True]
    x, indices, updates = run.all(inputs, flags)
    count = x.shape[axis + 1]
    if count == 0:
        return NotImplemented
    total = index_add(merged(x, axis), own_places(indices, count), moved(updates, 0, axis), axis=axis)
    return [parted(total, axis, run.size)], [True]


@index_add.samples
def _(s: Samples) -> Iterator[Sample]:
    yield s(f64[5, 3], i32[4], f64[4, 3], axis=0)
    yield s(f64[2, 5], i64[2, 2], f64[2, 2, 2], axis=1)
    yield s(f64[2, 5], i32[()], f64[2], axis=1)
    yield s(f64[4], np.array([-1, 9, 2, 2], np.int32), f64[4], axis=0)
    yield s(f64[0, 3], i32[0], f64[0, 3], axis=0)
    yield s(f32[1, 1], i32[1], f32[1, 1], axis=1)
    yield s(bf16[3], i32[2], bf16[2], axis=0)
    yield s(i32[3], i32[2], i32[2], axis=0)
    yield s(f64[3], f64[2], f64[2], axis=0, bad="E0138")
    yield s(f64[3], i32[2], f64[3], axis=0, bad="E0140")
    yield s(f64[0], i32[2], f64[2], axis=0, bad="E0139")
    yield s(f64[3], i32[2], f64[2], axis=1, bad="E0107")
    yield s(np.array([True]), i32[1], np.array([True]), axis=0, bad="E0106")


# --- one element per position -----------------------------------------------------------------------------------------


def _check_along(x: TensorType, indices: TensorType, axis: int) -> None:
    _check_index(indices)
    if x.rank != indices.rank or any(a != b for i, (a, b) in enumerate(zip(x.shape, indices.shape)) if i != axis):
        why = f"x is {x}, indices {indices}: all sizes but that of axis {axis} must be equal"
        raise UserError("E0140", why, fix="broadcast one of them first")
    _check_axis(axis, x, indices)


def _along_names(rank: int, axis: int) -> tuple[str, str]:
    """Axis names of x and of indices."""
    names = list(LETTERS[:rank])
    return tuple(" ".join([*names[:axis], whole, *names[axis + 1 :]]) for whole in ("!x", "!i"))  # type: ignore[return-value]


@op(formula=_formulas.take_along_axis, jvp="linear", batch="shift axis")
def take_along_axis(x: Value, indices: Value, *, axis: int) -> Any:
    """result[.., i, ..] = x[.., indices[.., i, ..], ..]: along `axis`, an own index for each place.

    indices: int32 or int64, sizes as those of x but along `axis`; clamped. Raises E0107, E0138, E0139, E0140.
    """


take_along_axis.padded(_padding.take_along_axis)


@take_along_axis.type
def _(x: TensorType, indices: TensorType, *, axis: int) -> TensorType:
    _check_along(x, indices, axis)
    return x.with_shape(indices.shape)


@take_along_axis.ref
def _(x: Any, indices: Any, *, axis: int) -> Any:
    return np.take_along_axis(x, _inside(indices, x.shape[axis]), axis)


@take_along_axis.axes
def _(x: TensorType, indices: TensorType, *, axis: int) -> str:
    of_x, of_i = _along_names(x.rank, axis)
    return f"{of_x}, {of_i} -> {of_i}"


@take_along_axis.hlo
def _(b: Any, x: Any, indices: Any, *, axis: int) -> Any:
    return hlo_take_along(b, x, indices, b.types[0], b.out[0], axis)


def hlo_take_along(b: Any, x: Any, indices: Any, of_x: TensorType, out: TensorType, axis: int) -> Any:
    """x, of type `of_x`, at indices along the axis."""
    if out.size == 0:
        return b.splat(0, out)
    rank = of_x.rank
    rest = [i for i in range(rank) if i != axis]
    numbers = (
        f"offset_dims = [], collapsed_slice_dims = [{axis}], operand_batching_dims = {rest}, "
        f"start_indices_batching_dims = {rest}, start_index_map = [{axis}], index_vector_dim = {rank}"
    )
    text = f"#stablehlo.gather<{numbers}>"
    sizes = (1,) * rank
    return b.op("gather", x, indices, types=out, dimension_numbers=text, slice_sizes=sizes, indices_are_sorted=False)


@take_along_axis.grad
def _(x: Value, indices: Value, out: Value, d: Value, *, axis: int) -> tuple[Value, None]:
    return scatter_add_along(zeros_like(x), indices, d, axis=axis), None


@take_along_axis.onnx
def _(g: Any, x: str, indices: str, *, axis: int) -> Any:
    return g.node("GatherElements", x, _onnx_inside(g, indices, g.types[1], g.types[0].shape[axis]), axis=axis)


@take_along_axis.samples
def _(s: Samples) -> Iterator[Sample]:
    yield s(f64[3, 5], i32[3, 2], axis=1)
    yield s(f64[5, 2, 3], i64[4, 2, 3], axis=0)
    yield s(f64[4], np.array([-2, 9, 1], np.int32), axis=0)
    yield s(f64[1, 1], i32[1, 1], axis=0)
    yield s(f64[0, 3], i32[0, 1], axis=1)
    yield s(f64[2, 0], i32[2, 0], axis=1)
    yield s(bf16[5], i32[2], axis=0)
    yield s(i32[5], i32[2], axis=0)
    yield s(f64[5], f64[2], axis=0, bad="E0138")
    yield s(f64[5, 2], i32[5, 3], axis=0, bad="E0140")
    yield s(f64[0], i32[2], axis=0, bad="E0139")
    yield s(f64[3], i32[3], axis=1, bad="E0107")


@op(jvp="linear", batch="shift axis")
def scatter_add_along(x: Value, indices: Value, updates: Value, *, axis: int) -> Any:
    """x with updates[.., i, ..] added at [.., indices[.., i, ..], ..]; indices are clamped, equal ones add up.

    The opposite of `take_along_axis`. updates: the shape of indices. Raises E0107, E0138, E0139, E0140.
    """


scatter_add_along.padded(_padding.scatter_add)


@scatter_add_along.type
def _(x: TensorType, indices: TensorType, updates: TensorType, *, axis: int) -> TensorType:
    same_number(x)
    _check_along(x, indices, axis)
    if updates != x.with_shape(indices.shape):
        raise UserError("E0140", f"updates are {updates}", fix=f"make them {x.with_shape(indices.shape)}")
    return x


@scatter_add_along.ref
def _(x: Any, indices: Any, updates: Any, *, axis: int) -> Any:
    places = list(np.indices(indices.shape))
    places[axis] = _inside(indices, x.shape[axis])
    total = np.array(wide_array(x))
    np.add.at(total, tuple(places), wide_array(updates))
    return total.astype(x.dtype)


@scatter_add_along.axes
def _(x: TensorType, indices: TensorType, updates: TensorType, *, axis: int) -> str:
    of_x, of_i = _along_names(x.rank, axis)
    return f"{of_x}, {of_i}, {of_i} -> {of_x}"


@scatter_add_along.hlo
def _(b: Any, x: Any, indices: Any, updates: Any, *, axis: int) -> Any:
    of_x, of_i, _ = b.types
    if of_i.size == 0:
        return x
    rank = of_x.rank
    rest = [i for i in range(rank) if i != axis]
    numbers = (
        f"update_window_dims = [], inserted_window_dims = [{axis}], input_batching_dims = {rest}, "
        f"scatter_indices_batching_dims = {rest}, scatter_dims_to_operand_dims = [{axis}], index_vector_dim = {rank}"
    )
    return _hlo_scatter_add(b, x, _hlo_inside(b, indices, of_i, of_x.shape[axis]), updates, numbers)


@scatter_add_along.grad
def _(x: Value, indices: Value, updates: Value, out: Value, d: Value, *, axis: int) -> tuple[Value, None, Value]:
    return d, None, take_along_axis(d, indices, axis=axis)


@scatter_add_along.onnx
def _(g: Any, x: str, indices: str, updates: str, *, axis: int) -> Any:
    inside = _onnx_inside(g, indices, g.types[1], g.types[0].shape[axis])
    return g.node("ScatterElements", x, inside, updates, axis=axis, reduction="add")


@scatter_add_along.samples
def _(s: Samples) -> Iterator[Sample]:
    yield s(f64[3, 5], i32[3, 2], f64[3, 2], axis=1)
    yield s(f64[5, 2, 3], i64[4, 2, 3], f64[4, 2, 3], axis=0)
    yield s(f64[4], np.array([-2, 9, 1, 1], np.int32), f64[4], axis=0)
    yield s(f64[1, 1], i32[1, 1], f64[1, 1], axis=0)
    yield s(f64[2, 0], i32[2, 0], f64[2, 0], axis=1)
    yield s(bf16[5], i32[2], bf16[2], axis=0)
    yield s(i32[5], i32[2], i32[2], axis=0)
    yield s(f64[5], f64[2], f64[2], axis=0, bad="E0138")
    yield s(f64[5, 2], i32[5, 3], f64[5, 3], axis=0, bad="E0140")
    yield s(f64[5], i32[3], f64[2], axis=0, bad="E0140")
    yield s(f64[0], i32[2], f64[2], axis=0, bad="E0139")
    yield s(f64[3], i32[3], f64[3], axis=1, bad="E0107")
    yield s(np.array([True]), i32[1], np.array([True]), axis=0, bad="E0106")


@op(formula=_formulas.one_hot, batch="leading", onnx="expand")
def one_hot(indices: Value, *, depth: int, dtype: DType) -> Any:
    """result[..., k] = 1 where indices[...] == k, else 0, for k below `depth`; an index out of range gives zeros.

    Raises E0138 for indices that are not int32 or int64, E0109 for a negative depth.
    """


@one_hot.type
def _(indices: TensorType, *, depth: int, dtype: DType) -> TensorType:
    _check_index(indices)
    if depth < 0:
        raise UserError("E0109", f"depth {depth} is negative", fix="give the number of classes")
    return TensorType(dtype, (*indices.shape, depth))


@one_hot.ref
def _(indices: Any, *, depth: int, dtype: DType) -> Any:
    return (indices[..., None] == np.arange(depth)).astype(dtype.np)


@one_hot.expand
def _(indices: Value, *, depth: int, dtype: DType) -> Value:
    shape = (*indices.shape, depth)
    wide = broadcast_to(reshape(indices, shape=(*indices.shape, 1)), shape=shape)
    hit = equal(wide, iota(shape=shape, axis=indices.ndim, dtype=indices.dtype))
    made: Value = cast(hit, dtype=dtype)
    return made


@one_hot.axes
def _(indices: TensorType, *, depth: int, dtype: DType) -> str:
    names = " ".join(LETTERS[: indices.rank])
    return f"{names} -> {names} !k"


@one_hot.samples
def _(s: Samples) -> Iterator[Sample]:
    yield s(i32[3], depth=5, dtype=float32)
    yield s(i64[2, 2], depth=3, dtype=float64)
    yield s(np.array([-1, 0, 7], np.int32), depth=2, dtype=float32)
    yield s(i32[()], depth=1, dtype=int32)
    yield s(i32[0], depth=2, dtype=float32)
    yield s(i32[2], depth=0, dtype=float32)
    yield s(f64[2], depth=2, dtype=float32, bad="E0138")
    yield s(i32[2], depth=-1, dtype=float32, bad="E0109")
