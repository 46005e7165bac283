"""Slices whose position is computed: `dynamic_slice` reads one, `dynamic_update_slice` replaces one.

Starts are 0-d int32 or int64 tensors, one per axis; a start that would leave the tensor is clamped, as XLA does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle.base.dtypes import bool_, int32
from treadle.base.errors import UserError
from treadle.ir import build
from treadle.ir.node import Value
from treadle.ir.types import TensorType, bf16, f32, f64, i32, i64
from treadle.ops import _padding
from treadle.ops._declare import Sample, Samples, op
from treadle.ops.compare import greater_equal, less, logical_and, select
from treadle.ops.creation import full, iota
from treadle.ops.elementwise import clamp
from treadle.ops.index import take
from treadle.ops.reduce import broadcast_to
from treadle.ops.shape import LETTERS, reshape, zeros_like

Ints = tuple[int, ...]


def _check(x: TensorType, sizes: Ints, starts: tuple[TensorType, ...]) -> None:
    for t in starts:
        if t.rank or t.dtype.kind != "i" or t.dtype.bits < 32 or t != starts[0]:
            text = ", ".join(map(str, starts))
            raise UserError("E0138", f"starts are {text}", fix="give 0-d int32 or int64 tensors, all alike")
    if not len(starts) == len(sizes) == x.rank or any(not 0 <= k <= n for k, n in zip(sizes, x.shape, strict=True)):
        why = f"sizes {sizes} at {len(starts)} starts in {x}"
        raise UserError("E0141", why, fix="give a start and a size within the tensor's for every axis")


def _region(shape: Ints, sizes: Ints, starts: tuple[Any, ...]) -> tuple[slice, ...]:
    """The clamped slices of NumPy arrays."""
    firsts = [min(max(int(s), 0), max(n - k, 0)) for s, n, k in zip(starts, shape, sizes, strict=True)]
    return tuple([slice(s, s + k) for s, k in zip(firsts, sizes, strict=True)])


def _names(shape: Ints, sizes: Ints) -> tuple[str, str]:
    """Axis names of the tensor and of the slice: an axis that is taken whole passes through, whatever its start."""
    pairs = [(c, c) if n == k else (f"!{c}", f"!{c}2") for c, n, k in zip(LETTERS, shape, sizes, strict=False)]
    return " ".join(a for a, _ in pairs), " ".join(b for _, b in pairs)


def _onnx_starts(g: Any, shape: Ints, sizes: Ints, starts: tuple[str, ...]) -> Any:
    """The clamped starts as one int64 vector."""
    one = g.const(np.array([1], np.int64))
    flat = [g.node("Reshape", g.node("Cast", s, to=7), one) for s in starts]
    together = g.node("Concat", *flat, axis=0)
    room = np.array([n - k for n, k in zip(shape, sizes, strict=True)], np.int64)
    return g.node("Max", g.node("Min", together, g.const(room)), g.const(np.zeros_like(room)))


@op(jvp="linear")
def dynamic_slice(x: Value, *starts: Value, sizes: Ints) -> Any:
    """The part of x with `sizes` that begins at `starts` (0-d tensors), clamped so that it lies inside.

    Raises E0138 for starts that are not 0-d int32 or int64, E0141 for sizes that do not fit.
    """


dynamic_slice.padded(_padding.dynamic_slice)


@dynamic_slice.type
def _(x: TensorType, *starts: TensorType, sizes: Ints) -> TensorType:
    _check(x, sizes, starts)
    return x.with_shape(sizes)


@dynamic_slice.ref
def _(x: Any, *starts: Any, sizes: Ints) -> Any:
    return x[_region(x.shape, sizes, starts)]


@dynamic_slice.axes
def _(x: TensorType, *starts: TensorType, sizes: Ints) -> str:
    of_x, of_part = _names(x.shape, sizes)
    return of_x + ", " * len(starts) + " -> " + of_part


@dynamic_slice.hlo
def _(b: Any, x: Any, *starts: Any, sizes: Ints) -> Any:
    return b.op("dynamic_slice", x, *starts, slice_sizes=sizes) if starts else x  # the text form wants a start


@dynamic_slice.grad
def _(*args: Value, sizes: Ints) -> tuple[Value | None, ...]:
    x, starts, d = args[0], args[1:-2], args[-1]
    return dynamic_update_slice(zeros_like(x), d, *starts), *[None] * len(starts)


@dynamic_slice.onnx
def _(g: Any, x: str, *starts: str, sizes: Ints) -> Any:
    if not starts:
        return g.node("Identity", x)
    first = _onnx_starts(g, g.types[0].shape, sizes, starts)
    end = g.node("Add", first, g.const(np.array(sizes, np.int64)))
    return g.node("Slice", x, first, end, g.const(np.arange(len(sizes))))


@dynamic_slice.batch
def _(run: Any, inputs: Any, flags: Any, *, sizes: Ints) -> Any:
    """Where the starts differ between lanes, each axis is read by its indices."""
    if any(flags[1:]):
        return run.replay(
            build.trace(lambda x, *starts: _taken(x, starts, sizes), _lane(inputs, flags), "slice"), inputs, flags
        )
    x, *starts = inputs
    return [dynamic_slice(x, _first(starts), *starts, sizes=(run.size, *sizes))], [True]


def _lane(values: Any, flags: Any) -> list[TensorType]:
    """The types of one lane."""
    return [v.type.with_shape(v.shape[1:]) if f else v.type for v, f in zip(values, flags, strict=True)]


def _taken(x: Value, starts: Any, sizes: Ints) -> Value:
    """`dynamic_slice` by indices."""
    for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        if size < x.shape[axis]:
            inside = clamp(0, start, x.shape[axis] - size)
            x = take(x, inside + iota(shape=(size,), axis=0, dtype=start.dtype), axis=axis)
    return x


def _replaced(x: Value, update: Value, *starts: Value) -> Value:
    """`dynamic_update_slice` by indices: what `update` holds at the element's place in it, where it has that place."""
    if update.type.size == 0:
        return x
    there = full(value=True, shape=x.shape, dtype=bool_)
    for axis, (start, n) in enumerate(zip(starts, x.shape, strict=True)):
        size = update.shape[axis]
        if size < n:
            place = iota(shape=(n,), axis=0, dtype=start.dtype) - clamp(0, start, n - size)
            hit = logical_and(greater_equal(place, 0), less(place, size))
            column = reshape(hit, shape=(n, *[1] * (x.ndim - axis - 1)))
            there = logical_and(there, broadcast_to(column, shape=x.shape))
            update = take(update, place, axis=axis)
    chosen: Value = select(there, update, x)
    return chosen


def _first(starts: Any) -> Value:
    """A start 0 of the type of the others."""
    made: Value = full(value=0, shape=(), dtype=starts[0].dtype if starts else int32)
    return made


@dynamic_slice.samples
def _(s: Samples) -> Iterator[Sample]:
    yield s(f64[5], np.int32(2), sizes=(3,))
    yield s(f64[5, 3], np.int32(9), np.int32(-4), sizes=(2, 2))
    yield s(f64[4, 3], np.int64(1), np.int64(0), sizes=(1, 3))
    yield s(f64[()], sizes=())
    yield s(f64[0, 3], np.int32(0), np.int32(1), sizes=(0, 2))
    yield s(bf16[3], np.int32(1), sizes=(0,))
    yield s(np.array([True, False]), np.int32(1), sizes=(1,))
    yield s(i32[3], np.int64(1), sizes=(2,))
    yield s(f64[3], np.float32(1), sizes=(2,), bad="E0138")
    yield s(f64[3], i32[1], sizes=(2,), bad="E0138")
    yield s(f64[3, 3], i32[()], i64[()], sizes=(2, 2), bad="E0138")
    yield s(f64[3], i32[()], sizes=(4,), bad="E0141")
    yield s(f64[3, 2], i32[()], sizes=(1,), bad="E0141")


@op(jvp="linear")
def dynamic_update_slice(x: Value, update: Value, *starts: Value) -> Any:
    """x with the part that begins at `starts` (0-d tensors) replaced by `update`, clamped so that it lies inside.

    Raises E0105 when the element types differ, E0138 for starts that are not 0-d int32 or int64, E0141 for sizes that
    do not fit.
    """


dynamic_update_slice.padded(_padding.dynamic_update_slice)


@dynamic_update_slice.type
def _(x: TensorType, update: TensorType, *starts: TensorType) -> TensorType:
    if x.dtype is not update.dtype:
        raise UserError("E0105", f"the types differ: {x} and {update}", fix="cast one of them")
    _check(x, update.shape, starts)
    return x


@dynamic_update_slice.ref
def _(x: Any, update: Any, *starts: Any) -> Any:
    out = np.array(x)
    out[_region(x.shape, update.shape, starts)] = update
    return out


@dynamic_update_slice.axes
def _(x: TensorType, update: TensorType, *starts: TensorType) -> str:
    of_x, of_part = _names(x.shape, update.shape)
    return f"{of_x}, {of_part}" + ", " * len(starts) + f" -> {of_x}"


@dynamic_update_slice.hlo
def _(b: Any, x: Any, update: Any, *starts: Any) -> Any:
    return b.op("dynamic_update_slice", x, update, *starts) if starts else update


@dynamic_update_slice.grad
def _(*args: Value) -> tuple[Value | None, ...]:
    update, starts, d = args[1], args[2:-2], args[-1]
    dx = dynamic_update_slice(d, zeros_like(update), *starts)
    return dx, dynamic_slice(d, *starts, sizes=update.shape), *[None] * len(starts)


@dynamic_update_slice.onnx
def _(g: Any, x: str, update: str, *starts: str) -> Any:
    """Pad the update to the size of x, and take it where a padded mask is set."""
    if not starts:
        return g.node("Identity", update)
    whole, part = g.types[0], g.types[1]
    low = _onnx_starts(g, whole.shape, part.shape, starts)
    room = np.array([n - k for n, k in zip(whole.shape, part.shape, strict=True)], np.int64)
    pads = g.node("Concat", low, g.node("Sub", g.const(room), low), axis=0)
    there = g.node("Pad", g.const(np.ones(part.shape, np.int32)), pads, g.const(np.array(0, np.int32)))
    zero = g.const(np.zeros((), part.dtype.np))
    return g.node("Where", g.node("Cast", there, to=9), g.node("Pad", update, pads, zero), x)


@dynamic_update_slice.batch
def _(run: Any, inputs: Any, flags: Any) -> Any:
    """Where the starts differ between lanes, every element is chosen by its index."""
    if any(flags[2:]):
        return run.replay(build.trace(_replaced, _lane(inputs, flags), "update"), inputs, flags)
    x, update = run.all(inputs[:2], flags[:2])
    return [dynamic_update_slice(x, update, _first(inputs[2:]), *inputs[2:])], [True]


@dynamic_update_slice.samples
def _(s: Samples) -> Iterator[Sample]:
    yield s(f64[5], f64[3], np.int32(2))
    yield s(f64[5, 3], f64[2, 2], np.int32(9), np.int32(-4))
    yield s(f64[4, 3], f64[1, 3], np.int64(1), np.int64(0))
    yield s(f64[()], f64[()])
    yield s(f64[0, 3], f64[0, 2], np.int32(0), np.int32(1))
    yield s(bf16[3], bf16[0], np.int32(1))
    yield s(np.array([True, False]), np.array([True]), np.int32(1))
    yield s(i32[3], i32[2], np.int64(1))
    yield s(f64[3], f32[2], np.int32(1), bad="E0105")
    yield s(f64[3], f64[2], np.float32(1), bad="E0138")
    yield s(f64[3], f64[4], np.int32(1), bad="E0141")
    yield s(f64[3, 2], f64[1], np.int32(1), bad="E0141")
