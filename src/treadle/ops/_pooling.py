"""What the poolings share: types, positions of windows as slices, the way back, StableHLO, ONNX, samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np

from treadle.base.dtypes import DType, float32
from treadle.base.errors import UserError
from treadle.ir.node import Value
from treadle.ir.types import TensorType, f64
from treadle.ops._declare import Sample, Samples
from treadle.ops._windows import Ints, Pairs, check_windows, offsets, out_sizes, padded, strided
from treadle.ops.casting import cast
from treadle.ops.creation import full
from treadle.ops.shape import concatenate, pad, reshape, slice_, transpose

UNROLLED = 64  # elements of a window up to which it becomes slices


def pooled(size: Ints, window: Ints, stride: Ints, padding: Pairs) -> Ints:
    """How many windows there are along each spatial axis."""
    rank = len(window)
    check_windows(rank, window, stride, padding, (1,) * rank)
    if any(not 0 <= p < w for w, pair in zip(window, padding) for p in pair):
        why = f"padding {padding} for a window of {window}"
        raise UserError("E0151", why, fix="pad by 0 to window - 1, else some windows hold nothing but padding")
    return out_sizes(size, window, stride, padding, (1,) * rank)


def spatial_sizes(x: TensorType, window: Ints) -> Ints:
    if not 1 <= len(window) <= x.rank:
        raise UserError("E0150", f"x is {x}, the window {window}", fix="give a window of 1 axis up to all of x")
    return x.shape[x.rank - len(window) :]


def pool_type(x: TensorType, window: Ints, stride: Ints, padding: Pairs) -> TensorType:
    size = spatial_sizes(x, window)
    return x.with_shape((*x.shape[: x.rank - len(size)], *pooled(size, window, stride, padding)))


def positions(x: Any, window: Ints, stride: Ints, padding: Pairs, fill: Any) -> Iterator[Any]:
    """The elements at each position of the windows."""
    rank, wide = len(window), padded(x, padding, fill)
    out = pooled(x.shape[x.ndim - rank :], window, stride, padding)
    for at in offsets(window):
        yield wide[strided(at, out, stride, (1,) * rank)]


def is_small(*sizes: Ints) -> bool:
    return max(math.prod(s) for s in sizes) <= UNROLLED


def window_attributes(rank: int, window: Ints, stride: Ints, padding: Pairs) -> dict[str, Any]:
    """The attributes of a window operation over all axes of a tensor."""
    lead = rank - len(window)
    ones = (1,) * lead
    return {
        "window_dimensions": ones + window,
        "window_strides": ones + stride,
        "padding": ((0, 0),) * lead + padding,
    }


def binary(b: Any, kind: str, dtype: DType) -> Any:
    scalar = TensorType(dtype, ())
    return b.region((scalar, scalar), lambda b, p, q: b.op(kind, p, q, types=scalar))


def onnx_pool(g: Any, kind: str, x: str, window: Ints, stride: Ints, padding: Pairs, **more: Any) -> Any:
    (t,), (out,), rank = g.types, g.out, len(window)
    folded = t.rank != rank + 2
    if folded:
        shape = (math.prod(t.shape[:-rank]), 1, *t.shape[-rank:])
        x = g.node("Reshape", x, g.const(np.array(shape, np.int64)), allowzero=1)
    pads = [pair[0] for pair in padding] + [pair[1] for pair in padding]
    y = g.node(kind, x, kernel_shape=list(window), strides=list(stride), pads=pads, **more)
    return g.node("Reshape", y, g.const(np.array(out.shape, np.int64)), allowzero=1) if folded else y


def plain_pool(rank: int, window: Ints, **other: Any) -> dict[str, Any]:
    return {"window": window, "stride": (1,) * rank, "padding": ((0, 0),) * rank} | other


WINDOWS = (  # (spatial sizes, attributes)
    ((7,), plain_pool(1, (2,), stride=(3,))),
    ((5, 6), plain_pool(2, (3, 2), stride=(2, 1), padding=((1, 1), (0, 1)))),
    ((7, 4), plain_pool(2, (3, 3), stride=(2, 2), padding=((1, 0), (2, 1)))),
    ((4, 3, 3), plain_pool(3, (2, 2, 1), stride=(2, 1, 2))),
    ((20, 9), plain_pool(2, (9, 8), stride=(3, 2), padding=((4, 2), (3, 5)))),
)


def bad_pools(s: Samples, *more: TensorType, **attrs: Any) -> Iterator[Sample]:
    """Wrong calls of an op that takes x f64[2, 7] (and `more`)."""
    yield s(f64[2, 7], *more, **plain_pool(1, (2,), stride=(0,)), **attrs, bad="E0147")
    yield s(f64[2, 7], *more, **plain_pool(1, (8,)), **attrs, bad="E0148")
    yield s(f64[2, 7], *more, **plain_pool(3, (2, 2, 2)), **attrs, bad="E0150")
    yield s(f64[2, 7], *more, **plain_pool(1, (2,), padding=((2, 0),)), **attrs, bad="E0151")


def parts_of(x: Value, window: Ints, stride: Ints, padding: Pairs, fill: Any) -> list[Value]:
    """The elements of x at each position of the windows, as slices of x padded with `fill`."""
    lead = x.ndim - len(window)
    out = pooled(x.shape[lead:], window, stride, padding)
    zeros = (0,) * lead
    if any(p for pair in padding for p in pair):
        low, high = (zeros + tuple([pair[i] for pair in padding]) for i in (0, 1))
        x = pad(x, fill, low=low, high=high, interior=(0,) * x.ndim)
    strides = (1,) * lead + stride
    parts = []
    for at in offsets(window):
        limits = x.shape[:lead] + tuple([a + (t - 1) * s + 1 for a, t, s in zip(at, out, stride)])
        parts.append(slice_(x, starts=zeros + at, limits=limits, strides=strides))
    return parts


def total_of(parts: list[Value]) -> Value:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def spread(
    grids: list[tuple[Value, Any]], give: Callable[..., Value], size: Ints, window: Ints, stride: Ints, padding: Pairs
) -> Value:
    """What `give(position, *grids)` sends from each window to its element at each position, summed at the elements.

    grids: tensors [..., *t], each with what stands for windows that do not exist. The elements fall into prod(stride)
    phases; within one, a position of the window means a shifted slice of the grids. The phases are then interleaved.
    """
    rank = len(window)
    lead, out = grids[0][0].shape[:-rank], grids[0][0].shape[-rank:]
    zeros, ones = (0,) * len(lead), (1,) * (len(lead) + rank)
    low = tuple([(w - 1) // s for w, s in zip(window, stride)])
    cover = tuple([-(-(n + pair[0]) // s) for n, pair, s in zip(size, padding, stride)])
    high = tuple([max(c - t, 0) for c, t in zip(cover, out)])
    wide = [pad(g, fill, low=zeros + low, high=zeros + high, interior=(0,) * g.ndim) for g, fill in grids]
    phases = []
    for phase in offsets(stride):
        terms = []
        for at in product(*[range(first, w, s) for first, w, s in zip(phase, window, stride)]):
            starts = tuple([a - k // s for a, k, s in zip(low, at, stride)])
            limits = lead + tuple([a + c for a, c in zip(starts, cover)])
            terms.append(give(at, *[slice_(g, starts=zeros + starts, limits=limits, strides=ones) for g in wide]))
        phases.append(total_of(terms) if terms else full(value=0, shape=lead + cover, dtype=grids[-1][0].dtype))
    dx = _interleaved(phases, stride, lead, cover)
    starts = tuple([pair[0] for pair in padding])
    limits = lead + tuple([a + n for a, n in zip(starts, size)])
    spread: Value = slice_(dx, starts=zeros + starts, limits=limits, strides=ones)
    return spread


def _interleaved(phases: list[Value], stride: Ints, lead: Ints, cover: Ints) -> Any:
    """The tensor whose elements at place p modulo `stride` are phases[p], p counted row by row."""
    if len(phases) == 1:
        return phases[0]
    stacked = concatenate(*[reshape(p, shape=(1, *p.shape)) for p in phases], axis=0)
    apart = reshape(stacked, shape=stride + lead + cover)
    rank, first = len(stride), len(stride) + len(lead)
    perm = [*range(rank, first)]
    for i in range(rank):
        perm += [first + i, i]
    woven: Value = transpose(apart, perm=tuple(perm))
    return reshape(woven, shape=lead + tuple([c * s for c, s in zip(cover, stride)]))


def sum_dtype(dtype: DType) -> DType:
    """What elements of this type are summed in."""
    return float32 if dtype.bits == 16 else dtype


def in_sum_type(x: Value) -> Any:
    """Sums of 16-bit floats are kept in float32."""
    return cast(x, dtype=sum_dtype(x.dtype))
