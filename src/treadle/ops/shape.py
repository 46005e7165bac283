"""Same elements, other shape, order or place: reshape, transpose, reverse, slice, pad, concatenate.

Attributes are complete: axes counted from the front, every axis listed. Convenient spellings belong to the surface.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle.base.dtypes import bool_
from treadle.base.errors import UserError
from treadle.ir import op as op_table
from treadle.ir.node import Value
from treadle.ir.types import TensorType, bf16, f32, f64, i32
from treadle.ops import _formulas, _padding
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._types import cast_together, is_scalar, normal_axes, normal_axis
from treadle.ops.creation import full

LETTERS = "abcdefghijklmnopqrstuvwxyz"
Ints = tuple[int, ...]


def zeros_like(x: Value, shape: Ints | None = None) -> Value:
    """Zeros of the type of x, of another shape if one is given."""
    made: Value = full(value=0, shape=x.shape if shape is None else shape, dtype=x.dtype)
    return made


@op(
    group="move", formula=_formulas.reshape,
    jvp="linear",
    ref=lambda x, *, shape: np.reshape(x, shape),
    hlo=lambda b, x, *, shape: b.op("reshape", x),
)
def reshape(x: Value, *, shape: Ints) -> Any:
    """The elements of x, row by row, in another shape. Raises E0112 when the counts differ or a size is negative."""


reshape.padded(_padding.reshape)


@reshape.type
def _(x: TensorType, *, shape: Ints) -> TensorType:
    if math.prod(shape) != x.size or any(n < 0 for n in shape):
        raise UserError("E0112", f"{x} does not fit shape {list(shape)}", fix=f"keep the {x.size} elements")
    return x.with_shape(shape)


@reshape.axes
def _(x: TensorType, *, shape: Ints) -> str:
    """Leading axes that stay the same pass through; the rest is needed whole."""
    same = 0
    while same < min(x.rank, len(shape)) and x.shape[same] == shape[same]:
        same += 1
    lead = list(LETTERS[:same])
    ins = lead + [f"!x{i}" for i in range(same, x.rank)]
    outs = lead + [f"!y{i}" for i in range(same, len(shape))]
    return " ".join(ins) + " -> " + " ".join(outs)


@reshape.onnx
def _(g: Any, x: str, *, shape: Ints) -> Any:
    return g.node("Reshape", x, g.const(np.array(shape, np.int64)), allowzero=1)


@reshape.grad
def _(x: Value, out: Value, d: Value, *, shape: Ints) -> tuple[Value]:
    return (reshape(d, shape=x.shape),)


@reshape.batch
def _(run: Any, inputs: Any, flags: Any, *, shape: Ints) -> Any:
    return [reshape(*inputs, shape=(run.size, *shape))], [True]


@reshape.samples
def _(s: Samples) -> Iterator[Sample]:
    yield s(f64[2, 3], shape=(6,))
    yield s(f64[2, 3, 4], shape=(2, 12))
    yield s(f64[()], shape=(1, 1))
    yield s(f64[0, 3], shape=(3, 0, 2))
    yield s(bf16[4], shape=(2, 2))
    yield s(f64[2, 3], shape=(4,), bad="E0112")


@op(formula=_formulas.transpose, group="move", jvp="linear", ref=lambda x, *, perm: np.transpose(x, perm))
def transpose(x: Value, *, perm: Ints) -> Any:
    """Axes of x reordered: result.shape[i] == x.shape[perm[i]]. Raises E0113 if perm is no permutation."""


@transpose.type
def _(x: TensorType, *, perm: Ints) -> TensorType:
    if sorted(perm) != list(range(x.rank)):
        raise UserError("E0113", f"perm {perm} does not reorder the {x.rank} axes of {x}", fix="name each axis once")
    return x.with_shape(tuple([x.shape[p] for p in perm]))


@transpose.axes
def _(x: TensorType, *, perm: Ints) -> str:
    names = LETTERS[: x.rank]
    return " ".join(names) + " -> " + " ".join(names[p] for p in perm)


@transpose.hlo
def _(b: Any, x: Any, *, perm: Ints) -> Any:
    return b.op("transpose", x, permutation=perm)


@transpose.onnx
def _(g: Any, x: str, *, perm: Ints) -> Any:
    return g.node("Transpose", x, perm=perm) if perm else g.node("Identity", x)


@transpose.grad
def _(x: Value, out: Value, d: Value, *, perm: Ints) -> tuple[Value]:
    return (transpose(d, perm=tuple([perm.index(i) for i in range(len(perm))])),)


@transpose.batch
def _(run: Any, inputs: Any, flags: Any, *, perm: Ints) -> Any:
    return [transpose(*inputs, perm=(0, *[p + 1 for p in perm]))], [True]


@transpose.samples
def _(s: Samples) -> Iterator[Sample]:
    yield s(f64[2, 3], perm=(1, 0))
    yield s(f64[2, 3, 4], perm=(2, 0, 1))
    yield s(f64[2, 2, 2], perm=(1, 2, 0))
    yield s(f64[()], perm=())
    yield s(f64[0, 3], perm=(1, 0))
    yield s(f32[1, 3], perm=(1, 0))
    yield s(f64[2, 3], perm=(0, 0), bad="E0113")


@op(
    jvp="linear", formula=_formulas.reverse,
    batch="shift axes",
    ref=lambda x, *, axes: np.flip(x, axes),
    hlo=lambda b, x, *, axes: b.op("reverse", x, dimensions=axes),
)
def reverse(x: Value, *, axes: Ints) -> Any:
    """x with the elements along `axes` in the opposite order. Raises E0107 for axes that are absent or not sorted."""


reverse.padded(_padding.reverse)


@reverse.type
def _(x: TensorType, *, axes: Ints) -> TensorType:
    if normal_axes(axes, x.rank) != axes:
        raise UserError("E0107", f"axes {axes} are not sorted and counted from the front", fix="sort them")
    return x


@reverse.axes
def _(x: TensorType, *, axes: Ints) -> str:
    names = " ".join("!" * (i in axes) + n for i, n in enumerate(LETTERS[: x.rank]))
    return f"{names} -> {names}"


@reverse.grad
def _(x: Value, out: Value, d: Value, *, axes: Ints) -> tuple[Value]:
    return (reverse(d, axes=axes),)


@reverse.onnx
def _(g: Any, x: str, *, axes: Ints) -> Any:
    n, least = len(axes), np.iinfo(np.int64).min
    ints = [np.full(n, -1), np.full(n, least), np.array(axes), np.full(n, -1)]
    return g.node("Slice", x, *[g.const(i.astype(np.int64)) for i in ints])


@reverse.samples
def _(s: Samples) -> Iterator[Sample]:
    yield s(f64[3], axes=(0,))
    yield s(f64[2, 3, 2], axes=(0, 2))
    yield s(f64[()], axes=())
    yield s(f32[0, 3], axes=(0, 1))
    yield s(i32[1, 3], axes=(1,))
    yield s(f64[2], axes=(1,), bad="E0107")


@op(formula=_formulas.slice_, group="move", jvp="linear")
def slice_(x: Value, *, starts: Ints, limits: Ints, strides: Ints) -> Any:
    """x[start:limit:stride] of every axis, 0 <= start <= limit <= size, stride >= 1. Raises E0134 for other numbers."""


slice_.padded(_padding.slice_)


@slice_.type
def _(x: TensorType, *, starts: Ints, limits: Ints, strides: Ints) -> TensorType:
    if not len(starts) == len(limits) == len(strides) == x.rank:
        raise UserError("E0134", f"{x} has {x.rank} axes, {starts}:{limits}:{strides} has not", fix="name every axis")
    for n, start, limit, stride in zip(x.shape, starts, limits, strides, strict=True):
        if not 0 <= start <= limit <= n or stride < 1:
            raise UserError("E0134", f"{start}:{limit}:{stride} of an axis of size {n}", fix=f"stay within 0 to {n}")
    return x.with_shape(tuple([-(-(b - a) // c) for a, b, c in zip(starts, limits, strides, strict=True)]))


@slice_.ref
def _(x: Any, *, starts: Ints, limits: Ints, strides: Ints) -> Any:
    return x[tuple([slice(*part) for part in zip(starts, limits, strides, strict=True)])]


@slice_.axes
def _(x: TensorType, *, starts: Ints, limits: Ints, strides: Ints) -> str:
    """An axis that is taken whole passes through; a cut one is needed whole."""
    ins, outs = [], []
    for name, n, *part in zip(LETTERS, x.shape, starts, limits, strides, strict=False):
        whole = part == [0, n, 1]
        ins.append(name if whole else f"!{name}")
        outs.append(name if whole else f"!{name}2")
    return f"{' '.join(ins)} -> {' '.join(outs)}"


@slice_.hlo
def _(b: Any, x: Any, *, starts: Ints, limits: Ints, strides: Ints) -> Any:
    return b.op("slice", x, start_indices=starts, limit_indices=limits, strides=strides)


@slice_.grad
def _(x: Value, out: Value, d: Value, *, starts: Ints, limits: Ints, strides: Ints) -> tuple[Value]:
    spans = [max(0, (n - 1) * stride + 1) for n, stride in zip(out.shape, strides, strict=True)]
    high = tuple([n - start - span for n, start, span in zip(x.shape, starts, spans, strict=True)])
    return (pad(d, 0, low=starts, high=high, interior=tuple([stride - 1 for stride in strides])),)


@slice_.onnx
def _(g: Any, x: str, *, starts: Ints, limits: Ints, strides: Ints) -> Any:
    ints = [starts, limits, tuple(range(len(starts))), strides]
    return g.node("Slice", x, *[g.const(np.array(i, np.int64)) for i in ints]) if starts else g.node("Identity", x)


@slice_.batch
def _(run: Any, inputs: Any, flags: Any, *, starts: Ints, limits: Ints, strides: Ints) -> Any:
    return [slice_(*inputs, starts=(0, *starts), limits=(run.size, *limits), strides=(1, *strides))], [True]


@slice_.samples
def _(s: Samples) -> Iterator[Sample]:
    yield s(f64[5], starts=(1,), limits=(4,), strides=(1,))
    yield s(f64[3, 8], starts=(0, 1), limits=(3, 7), strides=(1, 4))
    yield s(f64[4, 6], starts=(1, 0), limits=(4, 6), strides=(2, 3))
    yield s(f64[()], starts=(), limits=(), strides=())
    yield s(f64[0, 3], starts=(0, 2), limits=(0, 2), strides=(1, 2))
    yield s(bf16[1, 3], starts=(0, 0), limits=(1, 2), strides=(1, 1))
    yield s(i32[3], starts=(0,), limits=(2,), strides=(1,))
    yield s(f64[3], starts=(0,), limits=(4,), strides=(1,), bad="E0134")
    yield s(f64[3], starts=(0,), limits=(2,), strides=(0,), bad="E0134")
    yield s(f64[3, 2], starts=(0,), limits=(2,), strides=(1,), bad="E0134")


@op(formula=_formulas.pad, jvp="linear")
def pad(x: Value, value: Value, *, low: Ints, high: Ints, interior: Ints) -> Any:
    """x with `low` elements before, `high` after and `interior` between its elements, all equal to `value` (0-d).

    `value` may be a Python number. Raises E0135 for negative counts or another number of axes, E0105 for another type.
    """


pad.padded(_padding.pad)


@pad.prepare
def _(x: Any, value: Any) -> tuple[Any, ...]:
    return (x, full(value=value, shape=(), dtype=x.dtype) if is_scalar(value) and isinstance(x, Value) else value)


@pad.type
def _(x: TensorType, value: TensorType, *, low: Ints, high: Ints, interior: Ints) -> TensorType:
    if value != x.with_shape(()):
        raise UserError("E0105", f"x is {x}, the padding value {value}", fix=f"give a value of type {x.with_shape(())}")
    if not len(low) == len(high) == len(interior) == x.rank or min((0, *low, *high, *interior)) < 0:
        raise UserError("E0135", f"pad {x} by {low}, {high}, {interior}", fix="give one count >= 0 for every axis")
    parts = zip(x.shape, low, high, interior, strict=True)
    return x.with_shape(tuple([a + n + max(0, n - 1) * c + b for n, a, b, c in parts]))


@pad.ref
def _(x: Any, value: Any, *, low: Ints, high: Ints, interior: Ints) -> Any:
    parts = list(zip(x.shape, low, high, interior, strict=True))
    out = np.full([a + n + max(0, n - 1) * c + b for n, a, b, c in parts], value, x.dtype)
    out[tuple([_places(a, n, c) for n, a, _, c in parts])] = x
    return out


def _places(low: int, count: int, interior: int) -> slice:
    """Where the elements of the padded tensor lie in the result."""
    return slice(low, low + max(0, (count - 1) * (interior + 1) + 1), interior + 1)


@pad.axes
def _(x: TensorType, value: TensorType, *, low: Ints, high: Ints, interior: Ints) -> str:
    """An axis without padding passes through."""
    cut = [bool(a or b or c) for a, b, c in zip(low, high, interior, strict=True)]
    ins = " ".join("!" * c + n for n, c in zip(LETTERS, cut, strict=False))
    outs = " ".join(f"!{n}2" if c else n for n, c in zip(LETTERS, cut, strict=False))
    return f"{ins}, -> {outs}"


@pad.hlo
def _(b: Any, x: Any, value: Any, *, low: Ints, high: Ints, interior: Ints) -> Any:
    return b.op("pad", x, value, edge_padding_low=low, edge_padding_high=high, interior_padding=interior)


@pad.grad
def _(x: Value, value: Value, out: Value, d: Value, *, low: Ints, high: Ints, interior: Ints) -> tuple[Value, Value]:
    """The elements of x get theirs; the value gets the sum of the rest (selected, so that inf - inf cannot arise)."""
    places = [_places(*part) for part in zip(low, x.shape, interior, strict=True)]
    strides = tuple([p.step for p in places])
    dx = slice_(d, starts=tuple([p.start for p in places]), limits=tuple([p.stop for p in places]), strides=strides)
    inside = full(value=False, shape=x.shape, dtype=bool_)
    border = pad(inside, True, low=low, high=high, interior=interior)
    rest = op_table.get("select")(border, d, zeros_like(d))
    return dx, op_table.get("reduce_sum")(rest, axes=tuple(range(d.ndim)))


@pad.onnx
def _(g: Any, x: str, value: str, *, low: Ints, high: Ints, interior: Ints) -> Any:
    """ONNX Pad knows no interior: each element becomes a row [x, value, ...], whose tail is cut off at the end."""
    shape = list(g.types[0].shape)
    for axis, gap in enumerate(interior):
        if gap and shape[axis] > 1:
            one = [*shape[: axis + 1], 1, *shape[axis + 1 :]]
            wide = g.node("Reshape", x, g.const(np.array(one, np.int64)), allowzero=1)
            rows = [0] * (2 * len(one))
            rows[len(one) + axis + 1] = gap
            wide = g.node("Pad", wide, g.const(np.array(rows, np.int64)), value, mode="constant")
            shape[axis] *= gap + 1
            wide = g.node("Reshape", wide, g.const(np.array(shape, np.int64)), allowzero=1)
            shape[axis] -= gap
            ints = ([0], [shape[axis]], [axis])
            x = g.node("Slice", wide, *[g.const(np.array(i, np.int64)) for i in ints])
    return g.node("Pad", x, g.const(np.array([*low, *high], np.int64)), value, mode="constant") if low else x


@pad.batch
def _(run: Any, inputs: Any, flags: Any, *, low: Ints, high: Ints, interior: Ints) -> Any:
    """Where each lane has its own value, it is put into the border afterwards."""
    x, value = run.all(inputs[:1], flags[:1])[0], inputs[1]
    counts = {"low": (0, *low), "high": (0, *high), "interior": (0, *interior)}
    if not flags[1]:
        return [pad(x, value, **counts)], [True]
    padded = pad(x, full(value=0, shape=(), dtype=x.dtype), **counts)
    border = pad(full(value=False, shape=x.shape, dtype=bool_), True, **counts)
    column = reshape(value, shape=(run.size, *[1] * (x.ndim - 1)))
    own = op_table.get("broadcast_to")(column, shape=padded.shape)
    return [op_table.get("select")(border, own, padded)], [True]


@pad.samples
def _(s: Samples) -> Iterator[Sample]:
    yield s(f64[3], f64[()], low=(1,), high=(2,), interior=(0,))
    yield s(f64[2, 3], f64[()], low=(0, 1), high=(0, 2), interior=(0, 2))
    yield s(f64[1, 2], f64[()], low=(0, 0), high=(0, 0), interior=(3, 0))
    yield s(f64[()], f64[()], low=(), high=(), interior=())
    yield s(f64[0, 2], f64[()], low=(1, 0), high=(1, 0), interior=(2, 0))
    yield s(bf16[2], bf16[()], low=(1,), high=(0,), interior=(0,))
    yield s(np.array([True, False]), np.array(True), low=(1,), high=(0,), interior=(1,))
    yield s(i32[2], i32[()], low=(0,), high=(1,), interior=(0,))
    yield s(f64[2], f64[()], low=(-1,), high=(0,), interior=(0,), bad="E0135")
    yield s(f64[2], f64[()], low=(), high=(), interior=(), bad="E0135")
    yield s(f64[2], f32[()], low=(0,), high=(0,), interior=(0,), bad="E0105")


@op(
    jvp="linear", formula=_formulas.concatenate,
    batch="shift axis",
    prepare=cast_together,
    ref=lambda *xs, axis: np.concatenate(xs, axis),
    hlo=lambda b, *xs, axis: b.op("concatenate", *xs, dimension=axis),
    onnx=lambda g, *xs, axis: g.node("Concat", *xs, axis=axis),
)
def concatenate(*xs: Value, axis: int) -> Any:
    """One or more tensors joined along `axis`. Raises E0132 when other sizes or ranks differ, E0107 for the axis."""


concatenate.padded(_padding.concatenate)


@concatenate.type
def _(*xs: TensorType, axis: int) -> TensorType:
    first = xs[0]
    if normal_axis(axis, first.rank) != axis:
        raise UserError("E0107", f"axis {axis} is counted from the back", fix=f"use {axis % first.rank}")
    rest = [(x.dtype, x.shape[:axis], x.shape[axis + 1 :]) for x in xs]
    if any(r != rest[0] for r in rest) or any(x.rank != first.rank for x in xs):
        text = " and ".join(map(str, xs))
        raise UserError("E0132", f"{text} do not join along axis {axis}", fix="make all other sizes equal")
    return first.with_shape((*first.shape[:axis], sum(x.shape[axis] for x in xs), *first.shape[axis + 1 :]))


@concatenate.axes
def _(*xs: TensorType, axis: int) -> str:
    def names(joined: str) -> str:
        return " ".join(joined if i == axis else n for i, n in enumerate(LETTERS[: xs[0].rank]))

    return ", ".join(names(f"!x{k}") for k in range(len(xs))) + " -> " + names("!y")


@concatenate.grad
def _(*args: Value, axis: int) -> tuple[Value, ...]:
    xs, d = args[:-2], args[-1]
    parts, start = [], 0
    for x in xs:
        starts = tuple([start if i == axis else 0 for i in range(d.ndim)])
        limits = tuple([a + n for a, n in zip(starts, x.shape, strict=True)])
        parts.append(slice_(d, starts=starts, limits=limits, strides=(1,) * d.ndim))
        start += x.shape[axis]
    return tuple(parts)


@concatenate.samples
def _(s: Samples) -> Iterator[Sample]:
    yield s(f64[2], f64[3], axis=0)
    yield s(f64[2, 1], f64[2, 3], f64[2, 2], axis=1)
    yield s(f64[2, 3], axis=0)
    yield s(f64[0, 3], f64[2, 3], axis=0)
    yield s(bf16[2], bf16[1], axis=0)
    yield s(i32[1, 2], i32[1, 2], axis=0)
    yield s(f64[2, 3], f64[2, 2], axis=0, bad="E0132")
    yield s(f64[2], f64[2, 2], axis=0, bad="E0132")
    yield s(f64[()], f64[()], axis=0, bad="E0107")
