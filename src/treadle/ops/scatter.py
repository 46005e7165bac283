"""Writing at positions that are themselves tensors, by maximum, minimum, product or replacement; adding is in `index`.

`index_*` writes slices at indices along one axis, `scatter_*_along` one element per index. Indices are int32 or int64,
clamped into range. The result does not depend on the order in which a device writes: where several updates replace one
place, the last of them in row order counts (`is_last_along` says which those are).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle.base.dtypes import bool_, int32
from treadle.base.errors import UserError
from treadle.ir.interp import expansion
from treadle.ir.node import Value
from treadle.ir.op import No
from treadle.ir.types import TensorType, f64, i32, i64
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._scatter import (
    ALONG,
    SLICES,
    Form,
    Grads,
    check,
    extreme_grad,
    hlo_inside,
    hlo_rule,
    hlo_scatter,
    inside,
    mul_grad,
    onnx_rule,
    ref_rule,
    slices_batch,
    type_rule,
)  # fmt: skip
from treadle.ops._types import same_number, same_real
from treadle.ops.compare import equal, greater_equal, select
from treadle.ops.creation import full, iota
from treadle.ops.index import take_along_axis
from treadle.ops.shape import LETTERS, reshape, zeros_like


def _bool_is_wrong(s: Samples) -> Sample:
    return s(np.array([True]), i32[1], np.array([True]), axis=0, bad="E0106")


def _slices(s: Samples) -> Iterator[Sample]:
    yield from SLICES.samples(s)
    yield _bool_is_wrong(s)


def _along(s: Samples) -> Iterator[Sample]:
    yield from ALONG.samples(s)
    yield _bool_is_wrong(s)


def _zeros_among_updates(s: Samples) -> Iterator[Sample]:
    """What the gradient of a product must get right: no, one and two zeros at a place, also in x."""
    x, places = np.array([2.0, 3.0, 0.0, -1.5]), np.array([3, 1, 1, 3, 0, 1, 3, 2, 2], np.int32)
    yield s(x, places, np.array([2.0, 0.0, 0.0, 0.5, 0.0, 3.0, -2.0, 1.5, 2.0]), axis=0)


# --- slices along an axis ---------------------------------------------------------------------------------------------


@op(
    type=type_rule(SLICES, same_real),
    ref=ref_rule(SLICES, np.maximum),
    axes=SLICES.axes,
    grad=extreme_grad(SLICES),
    hlo=hlo_rule(SLICES, "maximum"),
    onnx=onnx_rule(SLICES, "max"),
    batch=slices_batch("index_max"),
    samples=_slices,
)
def index_max(x: Value, indices: Value, updates: Value, *, axis: int) -> Any:
    """x with its slice at each index along `axis` replaced by the elementwise maximum with the slices of updates there.

    updates: what `take(x, indices)` gives; indices are clamped; NaN wins. The gradient is shared equally among x and
    the updates that are the maximum. Raises E0106 for bool or complex, E0107, E0138, E0139, E0140.
    """


@op(
    type=type_rule(SLICES, same_real),
    ref=ref_rule(SLICES, np.minimum),
    axes=SLICES.axes,
    grad=extreme_grad(SLICES),
    hlo=hlo_rule(SLICES, "minimum"),
    onnx=onnx_rule(SLICES, "min"),
    batch=slices_batch("index_min"),
    samples=_slices,
)
def index_min(x: Value, indices: Value, updates: Value, *, axis: int) -> Any:
    """x with its slice at each index along `axis` replaced by the elementwise minimum with the slices of updates there.

    updates: what `take(x, indices)` gives; indices are clamped; NaN wins. The gradient is shared equally among x and
    the updates that are the minimum. Raises E0106 for bool or complex, E0107, E0138, E0139, E0140.
    """


@op(
    type=type_rule(SLICES, same_number),
    ref=ref_rule(SLICES, np.multiply),
    axes=SLICES.axes,
    grad=mul_grad(SLICES, "index_mul"),
    hlo=hlo_rule(SLICES, "multiply"),
    onnx=onnx_rule(SLICES, "mul"),
    batch=slices_batch("index_mul"),
)
def index_mul(x: Value, indices: Value, updates: Value, *, axis: int) -> Any:
    """x with its slice at each index along `axis` multiplied by the slices of updates that go there.

    updates: what `take(x, indices)` gives; indices are clamped. 16-bit floats are multiplied in float32. The gradient
    is right where numbers are zero, to any order. Raises E0106 for bool, E0107, E0138, E0139, E0140.
    """


@index_mul.samples
def _(s: Samples) -> Iterator[Sample]:
    yield from _slices(s)
    yield from _zeros_among_updates(s)


@op(
    jvp="linear",
    type=type_rule(SLICES),
    ref=ref_rule(SLICES, None),
    axes=SLICES.axes,
    onnx="expand",
    batch=slices_batch("index_set"),
)
def index_set(x: Value, indices: Value, updates: Value, *, axis: int) -> Any:
    """x with its slice at each index along `axis` replaced by that of updates; of several the last in row order.

    updates: what `take(x, indices)` gives; indices are clamped. What is overwritten gets no gradient. Raises E0107,
    E0138, E0139, E0140.
    """


@index_set.expand
def _(x: Value, indices: Value, updates: Value, *, axis: int) -> Value:
    n = indices.type.size
    if updates.type.size == 0:
        return x
    line, slices, _ = SLICES.lined(indices, updates, axis)
    none = full(value=-1, shape=(x.shape[axis],), dtype=int32)
    last = index_max(none, line, iota(shape=(n,), axis=0, dtype=int32), axis=0)
    made: Value = select(SLICES.spread(greater_equal(last, 0), x, axis), SLICES.read(slices, last, axis), x)
    return made


@index_set.hlo
def _(b: Any, x: Any, indices: Any, updates: Any, *, axis: int) -> Any:
    of_x, of_i, of_updates = b.types
    if of_updates.size == 0:
        return x
    line = of_i.with_shape((of_i.size,))
    last = _hlo_is_last(b, b.op("reshape", indices, types=line), line, 0, of_x.shape[axis])
    last = b.op("reshape", last, types=of_i.with_dtype(bool_))
    return _hlo_set(SLICES, b, x, indices, last, updates, axis)


def _hlo_is_last(b: Any, indices: Any, type: TensorType, axis: int, size: int) -> Any:
    return b.inline(expansion(is_last_along, (type,), {"axis": axis, "size": size}), indices)[0]


def _hlo_set(form: Form, b: Any, x: Any, indices: Any, last: Any, updates: Any, axis: int) -> Any:
    """x with the updates that are `last` at their indices: the others are sent out of range, where they are dropped."""
    of_x, of_i, _ = b.types
    size = of_x.shape[axis]
    places = hlo_inside(b, indices, of_i, size)
    places = b.op("select", last, places, b.splat(size, of_i), types=of_i)
    return hlo_scatter(form, b, x, places, updates, axis, "set")


def _set_grad(op: Any, form: Form, x: Value, indices: Value, updates: Value, d: Value, axis: int) -> Grads:
    if updates.type.size == 0:
        return d, None, zeros_like(updates)
    line, _, along = form.lined(indices, updates, axis)
    last = reshape(is_last_along(line, axis=along, size=x.shape[axis]), shape=indices.shape)
    back = select(form.spread(last, updates, axis), form.read(d, indices, axis), zeros_like(updates))
    return op(d, indices, zeros_like(updates), axis=axis), None, back


@index_set.grad
def _(x: Value, indices: Value, updates: Value, out: Value, d: Value, *, axis: int) -> Grads:
    return _set_grad(index_set, SLICES, x, indices, updates, d, axis)


@index_set.samples
def _(s: Samples) -> Iterator[Sample]:
    yield from SLICES.samples(s)
    yield s(np.array([True, False, True]), np.array([0, 0, 2], np.int32), np.array([True, False, False]), axis=0)


# --- one element per position -----------------------------------------------------------------------------------------


@op(
    type=type_rule(ALONG, same_real),
    ref=ref_rule(ALONG, np.maximum),
    axes=ALONG.axes,
    grad=extreme_grad(ALONG),
    hlo=hlo_rule(ALONG, "maximum"),
    onnx=onnx_rule(ALONG, "max"),
    batch="shift axis",
    samples=_along,
)
def scatter_max_along(x: Value, indices: Value, updates: Value, *, axis: int) -> Any:
    """x with the element at [.., indices[.., i, ..], ..] replaced by the maximum of it and updates[.., i, ..].

    updates: the shape of indices, which is that of x but along `axis`; indices are clamped; NaN wins. The gradient is
    shared equally among x and the updates that are the maximum. Raises E0106 for bool or complex, E0107, E0138 to
    E0140.
    """


@op(
    type=type_rule(ALONG, same_real),
    ref=ref_rule(ALONG, np.minimum),
    axes=ALONG.axes,
    grad=extreme_grad(ALONG),
    hlo=hlo_rule(ALONG, "minimum"),
    onnx=onnx_rule(ALONG, "min"),
    batch="shift axis",
    samples=_along,
)
def scatter_min_along(x: Value, indices: Value, updates: Value, *, axis: int) -> Any:
    """x with the element at [.., indices[.., i, ..], ..] replaced by the minimum of it and updates[.., i, ..].

    updates: the shape of indices, which is that of x but along `axis`; indices are clamped; NaN wins. The gradient is
    shared equally among x and the updates that are the minimum. Raises E0106 for bool or complex, E0107, E0138 to
    E0140.
    """


@op(
    type=type_rule(ALONG, same_number),
    ref=ref_rule(ALONG, np.multiply),
    axes=ALONG.axes,
    grad=mul_grad(ALONG, "scatter_mul_along"),
    hlo=hlo_rule(ALONG, "multiply"),
    onnx=onnx_rule(ALONG, "mul"),
    batch="shift axis",
)
def scatter_mul_along(x: Value, indices: Value, updates: Value, *, axis: int) -> Any:
    """x with the element at [.., indices[.., i, ..], ..] multiplied by updates[.., i, ..].

    updates: the shape of indices, which is that of x but along `axis`; indices are clamped. 16-bit floats are
    multiplied in float32. The gradient is right where numbers are zero, to any order. Raises E0106 for bool, E0107,
    E0138, E0139, E0140.
    """


@scatter_mul_along.samples
def _(s: Samples) -> Iterator[Sample]:
    yield from _along(s)
    yield from _zeros_among_updates(s)


@op(
    jvp="linear",
    type=type_rule(ALONG),
    ref=ref_rule(ALONG, None),
    axes=ALONG.axes,
    onnx="expand",
    batch="shift axis",
)
def scatter_set_along(x: Value, indices: Value, updates: Value, *, axis: int) -> Any:
    """x with the element at [.., indices[.., i, ..], ..] replaced by updates[.., i, ..]; of several by the last.

    updates: the shape of indices, which is that of x but along `axis`; indices are clamped. What is overwritten gets
    no gradient. Raises E0107, E0138, E0139, E0140.
    """


@scatter_set_along.expand
def _(x: Value, indices: Value, updates: Value, *, axis: int) -> Value:
    if updates.type.size == 0:
        return x
    none = full(value=-1, shape=x.shape, dtype=int32)
    order = iota(shape=indices.shape, axis=axis, dtype=int32)
    last = scatter_max_along(none, indices, order, axis=axis)
    made: Value = select(greater_equal(last, 0), take_along_axis(updates, last, axis=axis), x)
    return made


@scatter_set_along.hlo
def _(b: Any, x: Any, indices: Any, updates: Any, *, axis: int) -> Any:
    of_x, of_i, of_updates = b.types
    if of_updates.size == 0:
        return x
    last = _hlo_is_last(b, indices, of_i, axis, of_x.shape[axis])
    return _hlo_set(ALONG, b, x, indices, last, updates, axis)


@scatter_set_along.grad
def _(x: Value, indices: Value, updates: Value, out: Value, d: Value, *, axis: int) -> Grads:
    return _set_grad(scatter_set_along, ALONG, x, indices, updates, d, axis)


@scatter_set_along.samples
def _(s: Samples) -> Iterator[Sample]:
    yield from ALONG.samples(s)
    yield s(np.array([True, False, True]), np.array([0, 0, 2], np.int32), np.array([True, False, False]), axis=0)


# --- who writes last --------------------------------------------------------------------------------------------------


@op(grad=No("the result is a truth value"), batch="shift axis", onnx="expand")
def is_last_along(indices: Value, *, axis: int, size: int) -> Any:
    """Whether no later index along `axis` is the same: bool of the shape of indices.

    Indices count as clamped to 0..size-1. Raises E0138 for indices that are not int32 or int64, E0107 for a wrong
    axis, E0109 for a negative size, E0139 for a size of 0 when there are indices.
    """


@is_last_along.type
def _(indices: TensorType, *, axis: int, size: int) -> TensorType:
    if size < 0:
        raise UserError("E0109", f"size {size} is negative", fix="give the size of the axis that is written to")
    check(axis, indices.with_shape(tuple([size if i == axis else n for i, n in enumerate(indices.shape)])), indices)
    return indices.with_dtype(bool_)


@is_last_along.ref
def _(indices: Any, *, axis: int, size: int) -> Any:
    """An index is the last if it is the first from behind."""
    places = inside(indices, size)
    order = np.argsort(np.flip(places, axis), axis, kind="stable")
    ranked = np.take_along_axis(np.flip(places, axis), order, axis)
    first = np.ones(indices.shape, bool)
    rest = (*[slice(None)] * axis, slice(1, None))
    first[rest] = np.diff(ranked, axis=axis) != 0
    last = np.empty_like(first)
    np.put_along_axis(last, order, first, axis)
    return np.flip(last, axis)


@is_last_along.expand
def _(indices: Value, *, axis: int, size: int) -> Value:
    order = iota(shape=indices.shape, axis=axis, dtype=int32)
    shape = tuple([size if i == axis else n for i, n in enumerate(indices.shape)])
    last = scatter_max_along(full(value=-1, shape=shape, dtype=int32), indices, order, axis=axis)
    made: Value = equal(take_along_axis(last, indices, axis=axis), order)
    return made


@is_last_along.axes
def _(indices: TensorType, *, axis: int, size: int) -> str:
    names = " ".join("!" * (i == axis) + n for i, n in enumerate(LETTERS[: indices.rank]))
    return f"{names} -> {names}"


@is_last_along.samples
def _(s: Samples) -> Iterator[Sample]:
    yield s(i32[6], axis=0, size=5)
    yield s(i64[4, 3], axis=1, size=3)
    yield s(i32[5, 2, 2], axis=0, size=2)
    yield s(np.array([-1, 7, 2, 0, 9], np.int32), axis=0, size=4)
    yield s(i32[1, 1], axis=1, size=1)
    yield s(i32[0, 2], axis=0, size=0)
    yield s(i32[0, 2], axis=1, size=3)
    yield s(f64[2], axis=0, size=3, bad="E0138")
    yield s(i32[2], axis=1, size=3, bad="E0107")
    yield s(i32[2], axis=0, size=-1, bad="E0109")
    yield s(i32[2], axis=0, size=0, bad="E0139")
