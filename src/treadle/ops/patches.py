"""The elements under a sliding window, taken apart (im2col) and added up again: each other's gradients to any order.

Attributes, one entry per spatial axis: `window`, `stride`, `padding` as (low, high) pairs of 0 or more, `dilation`.
There may be any number of axes before the spatial ones. Both work axis by axis, so that the number of slices is the
sum, not the product, of the window's sizes. Sums of 16-bit floats are kept in float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.ir.node import Value
from treadle.ir.types import TensorType, bf16, bool_, c64, f16, f32, f64, i32
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._types import same_number
from treadle.ops._windows import (
    Ints,
    Pairs,
    check_windows,
    dilated,
    letters,
    offsets,
    opposite,
    out_sizes,
    padded,
    strided,
)
from treadle.ops.casting import cast
from treadle.ops.reduce import wide, wide_array
from treadle.ops.shape import concatenate, pad, reshape, slice_, transpose


@op(jvp="linear", batch="leading", onnx="expand")
def unfold(x: Value, *, window: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> Any:
    """The elements under each element of the window at each of its places; padding counts as zeros.

    x: number[..., *s] -> number[..., *window, *t]. Raises E0147 for wrong attributes, E0148 when no window fits, E0150
    for too few axes.
    """


@op(jvp="linear", batch="leading", onnx="expand")
def fold(y: Value, *, size: Ints, window: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> Any:
    """What `unfold` took apart added up again at its places in a tensor of spatial sizes `size`; not its inverse.

    y: number[..., *window, *t] -> number[..., *size]. Raises as `unfold`, and E0149 when y has other sizes.
    """


def _places(size: Ints, window: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> Ints:
    check_windows(len(window), window, stride, padding, dilation)
    if any(p < 0 for pair in padding for p in pair):
        raise UserError("E0147", f"padding {padding} cuts elements off", fix="use 0 or more")
    return out_sizes(size, window, stride, padding, dilation)


def _lead(x: TensorType, spatial: int) -> Ints:
    """The axes before the spatial ones."""
    if not 0 < spatial <= x.rank:
        raise UserError("E0150", f"{spatial} axes of windows for {x}", fix="give a window of 1 axis up to all of x")
    return x.shape[: x.rank - spatial]


@unfold.type
def _(x: TensorType, *, window: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> TensorType:
    lead = _lead(same_number(x), len(window))
    return x.with_shape(lead + window + _places(x.shape[len(lead) :], window, stride, padding, dilation))


@fold.type
def _(y: TensorType, *, size: Ints, window: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> TensorType:
    lead = _lead(same_number(y), 2 * len(window))
    wanted = lead + window + _places(size, window, stride, padding, dilation)
    if y.shape != wanted or len(size) != len(window):
        why = f"y is {y}, but a window {window} over sizes {size} gives {y.with_shape(wanted)}"
        raise UserError("E0149", why, fix="pass y of this type")
    return y.with_shape(lead + size)


@unfold.ref
def _(x: Any, *, window: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> Any:
    lead, wide_x = x.shape[: x.ndim - len(window)], padded(x, padding)
    out = out_sizes(x.shape[len(lead) :], window, stride, padding, dilation)
    parts = [wide_x[strided(at, out, stride, dilation)] for at in offsets(window)]
    return np.stack(parts, len(lead)).reshape(lead + window + out)


@fold.ref
def _(y: Any, *, size: Ints, window: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> Any:
    rank = len(window)
    lead, out = y.shape[: y.ndim - 2 * rank], y.shape[y.ndim - rank :]
    wide_y = wide_array(y)
    room = tuple([n + low + high for n, (low, high) in zip(size, padding)])
    total = np.zeros(lead + room, wide_y.dtype)
    for at in offsets(window):
        total[strided(at, out, stride, dilation)] += wide_y[(..., *at, *[slice(None)] * rank)]
    return padded(total, opposite(padding)).astype(y.dtype)


def _unfolded(x: Value, axis: int, window: int, stride: int, pair: tuple[int, int], dilation: int) -> Value:
    """One axis: [.., n, ..] -> [.., window, t, ..]."""
    count = (x.shape[axis] + sum(pair) - dilated(window, dilation)) // stride + 1
    x = _edged(x, axis, pair[0], pair[1], 0)
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    if stride == window and dilation == 1:  # the windows stand side by side
        side = reshape(_cut(x, axis, 0, count * window, 1), shape=(*before, count, window, *after))
        return _swapped(side, axis)
    reach = dilated(count, stride)
    parts = [_cut(x, axis, k * dilation, k * dilation + reach, stride) for k in range(window)]
    parts = [reshape(p, shape=(*before, 1, count, *after)) for p in parts]
    made: Value = parts[0] if window == 1 else concatenate(*parts, axis=axis)
    return made


def _folded(y: Value, axis: int, size: int, stride: int, pair: tuple[int, int], dilation: int) -> Value:
    """One axis: [.., window, t, ..] -> [.., size, ..]."""
    window, count = y.shape[axis : axis + 2]
    before, after = y.shape[:axis], y.shape[axis + 2 :]
    room = size + sum(pair)
    if stride == window and dilation == 1:
        side = reshape(_swapped(y, axis), shape=(*before, count * window, *after))
        total: Any = _edged(side, axis, 0, room - count * window, 0)
    else:
        total = None
        for k in range(window):
            part = reshape(_cut(y, axis, k, k + 1, 1), shape=(*before, count, *after))
            low = k * dilation
            part = _edged(part, axis, low, room - low - dilated(count, stride), stride - 1)
            total = part if total is None else total + part
    return _cut(total, axis, pair[0], pair[0] + size, 1)


def _edged(x: Value, axis: int, low: int, high: int, interior: int) -> Value:
    """Zeros before, after and between the elements along the axis."""
    if not (low or high or interior):
        return x
    counts = {"low": low, "high": high, "interior": interior}
    made: Value = pad(x, 0, **{k: tuple([n if i == axis else 0 for i in range(x.ndim)]) for k, n in counts.items()})
    return made


def _cut(x: Value, axis: int, start: int, limit: int, stride: int) -> Value:
    if (start, limit, stride) == (0, x.shape[axis], 1):
        return x
    sides = [(start, limit, stride) if i == axis else (0, n, 1) for i, n in enumerate(x.shape)]
    starts, limits, strides = zip(*sides, strict=True)
    made: Value = slice_(x, starts=starts, limits=limits, strides=strides)
    return made


def _swapped(x: Value, axis: int) -> Value:
    """x with the axis and the next one changed round."""
    made: Value = transpose(x, perm=(*range(axis), axis + 1, axis, *range(axis + 2, x.ndim)))
    return made


@unfold.expand
def _(x: Value, *, window: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> Value:
    rank, lead = len(window), x.ndim - len(window)
    for i in reversed(range(rank)):
        x = _unfolded(x, lead + i, window[i], stride[i], padding[i], dilation[i])
    pairs = range(lead, lead + 2 * rank)
    made: Value = transpose(x, perm=(*range(lead), *pairs[::2], *pairs[1::2])) if rank > 1 else x
    return made


@fold.expand
def _(y: Value, *, size: Ints, window: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> Value:
    rank, lead, x = len(window), y.ndim - 2 * len(window), wide(y)
    if rank > 1:
        woven = [axis for i in range(rank) for axis in (lead + i, lead + rank + i)]
        x = transpose(x, perm=(*range(lead), *woven))
    for i in range(rank):
        x = _folded(x, lead + i, size[i], stride[i], padding[i], dilation[i])
    rounded: Value = cast(x, dtype=y.dtype)
    return rounded


@unfold.grad
def _(x: Value, y: Value, d: Value, *, window: Ints, **how: Any) -> tuple[Value]:
    return (fold(d, size=x.shape[x.ndim - len(window) :], window=window, **how),)


@fold.grad
def _(y: Value, x: Value, d: Value, *, size: Ints, **how: Any) -> tuple[Value]:
    return (unfold(d, **how),)


@unfold.axes
def _(x: TensorType, *, window: Ints, **_: Any) -> str:
    s, k, t = (letters(m, len(window)) for m in "skt")
    return f"... {s} -> ... {k} {t}"


@fold.axes
def _(y: TensorType, *, window: Ints, **_: Any) -> str:
    s, k, t = (letters(m, len(window)) for m in "skt")
    return f"... {k} {t} -> ... {s}"


def _plain(rank: int, window: Ints, **other: Any) -> dict[str, Any]:
    ones = (1,) * rank
    return {"window": window, "stride": ones, "padding": ((0, 0),) * rank, "dilation": ones} | other


_CASES = (  # (spatial sizes, how)
    ((7,), _plain(1, (3,), stride=(2,), padding=((1, 0),))),
    ((7,), _plain(1, (3,), stride=(3,), padding=((0, 1),))),
    ((5, 6), _plain(2, (2, 3), padding=((1, 1), (0, 2)))),
    ((7, 6), _plain(2, (2, 2), stride=(2, 1), dilation=(3, 2))),
    ((4, 4), _plain(2, (2, 2), stride=(2, 2))),
    ((3, 4, 3), _plain(3, (2, 1, 2), stride=(1, 2, 1))),
    ((1,), _plain(1, (1,))),
)


@unfold.samples
def _(s: Samples) -> Iterator[Sample]:
    for size, how in _CASES:
        yield s(f64[(2, *size)], **how)
    how = _plain(1, (2,))
    for t in (f64[5], f64[0, 4], f32[2, 3], bf16[2, 3], f16[2, 3], i32[4], c64[3]):
        yield s(t, **how)
    yield s(f64[7], **_plain(1, (2,), stride=(0,)), bad="E0147")
    yield s(f64[7], **_plain(1, (2,), padding=((-1, 0),)), bad="E0147")
    yield s(f64[7], **_plain(1, (8,)), bad="E0148")
    yield s(f64[7], **_plain(2, (2, 2)), bad="E0150")
    yield s(bool_[7], **how, bad="E0106")


@fold.samples
def _(s: Samples) -> Iterator[Sample]:
    for size, how in _CASES:
        yield s(f64[(2, *how["window"], *out_sizes(size, **how))], size=size, **how)
    how = _plain(1, (2,), size=(4,))
    for t in (f64[2, 3], f64[0, 2, 3], f32[2, 3], bf16[2, 3], f16[2, 3], i32[2, 3], c64[2, 3]):
        yield s(t, **how)
    yield s(f64[2, 3], **how | {"dilation": (0,)}, bad="E0147")
    yield s(f64[2, 3], **how | {"size": (1,)}, bad="E0148")
    yield s(f64[2, 4], **how, bad="E0149")
    yield s(f64[3], **how, bad="E0150")
    yield s(bool_[2, 3], **how, bad="E0106")
