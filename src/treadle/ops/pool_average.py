"""The mean of windows that slide over the trailing axes of [..., *spatial], and its gradient, which is linear like it.

Attributes as of `max_pool`, and `count_include_pad`: whether padding counts as zeros or not at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.ir.interp import expansion
from treadle.ir.node import Value
from treadle.ir.op import No
from treadle.ir.types import Literal, TensorType, bf16, f32, f64, i32
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._pooling import (
    WINDOWS,
    bad_pools,
    binary,
    in_sum_type,
    is_small,
    onnx_pool,
    parts_of,
    plain_pool,
    pool_type,
    pooled,
    positions,
    spatial_sizes,
    spread,
    sum_dtype,
    total_of,
    window_attributes,
)
from treadle.ops._types import same_float
from treadle.ops._windows import Ints, Pairs, letters, offsets, opposite, padded, strided
from treadle.ops.casting import cast
from treadle.ops.creation import constant


@op(group="pool", jvp="linear", batch="leading")
def avg_pool(x: Value, *, window: Ints, stride: Ints, padding: Pairs, count_include_pad: bool) -> Any:
    """The mean of each window; padding counts as zeros, or not at all. x: float[..., *s] -> float[..., *t].

    16-bit floats are summed in float32. Raises as `max_pool`.
    """


@op(group="pool", jvp="linear", batch="leading", onnx=No("ONNX has the forward operator only"))
def avg_pool_grad(
    dy: Value, *, input_size: Ints, window: Ints, stride: Ints, padding: Pairs, count_include_pad: bool
) -> Any:
    """The gradient of `avg_pool` for an input of spatial sizes `input_size`: each dy spread evenly over its window.

    dy: float[..., *t] -> float[..., *input_size]. Raises as `max_pool`, and E0149 when dy does not fit.
    """


@avg_pool.type
def _(x: TensorType, *, window: Ints, stride: Ints, padding: Pairs, count_include_pad: bool) -> TensorType:
    return pool_type(same_float(x), window, stride, padding)


@avg_pool_grad.type
def _(
    dy: TensorType, *, input_size: Ints, window: Ints, stride: Ints, padding: Pairs, count_include_pad: bool
) -> TensorType:
    found, wanted = spatial_sizes(same_float(dy), window), pooled(input_size, window, stride, padding)
    if found != wanted:
        why = f"dy is {dy}, but pooling spatial sizes {list(input_size)} gives {list(wanted)}"
        raise UserError("E0149", why, fix="pass dy of these sizes")
    return dy.with_shape((*dy.shape[: dy.rank - len(window)], *input_size))


@avg_pool.axes
def _(x: TensorType, *, window: Ints, **_: Any) -> str:
    return f"... {letters('s', len(window))} -> ... {letters('t', len(window))}"


@avg_pool_grad.axes
def _(dy: TensorType, *, window: Ints, **_: Any) -> str:
    return f"... {letters('t', len(window))} -> ... {letters('s', len(window))}"


def _counts(size: Ints, window: Ints, stride: Ints, padding: Pairs, count_include_pad: bool) -> Any:
    """By how many elements each window is divided: a number, or an array over the windows."""
    if count_include_pad or not any(p for pair in padding for p in pair):
        return float(math.prod(window))
    counts: Any = sum(positions(np.ones(size, np.float64), window, stride, padding, 0))
    return counts


@avg_pool.ref
def _(x: Any, *, window: Ints, stride: Ints, padding: Pairs, count_include_pad: bool) -> Any:
    wide = x.astype(np.float32) if x.dtype.itemsize == 2 else x
    size = x.shape[x.ndim - len(window) :]
    total: Any = sum(positions(wide, window, stride, padding, 0))
    return (total / _counts(size, window, stride, padding, count_include_pad)).astype(x.dtype)


@avg_pool_grad.ref
def _(dy: Any, *, input_size: Ints, window: Ints, stride: Ints, padding: Pairs, count_include_pad: bool) -> Any:
    rank, wide = len(window), dy.astype(np.float32) if dy.dtype.itemsize == 2 else dy
    share = wide / _counts(input_size, window, stride, padding, count_include_pad)
    room = [n + low + high for n, (low, high) in zip(input_size, padding)]
    dx = np.zeros((*dy.shape[: dy.ndim - rank], *room), wide.dtype)
    for at in offsets(window):
        dx[strided(at, dy.shape[dy.ndim - rank :], stride, (1,) * rank)] += share
    return padded(dx, opposite(padding)).astype(dy.dtype)


def _divided(x: Value, counts: Any) -> Any:
    """x divided by a number, or by an array over its trailing axes."""
    if isinstance(counts, float):
        return x / counts
    return x / constant(value=Literal(counts.astype(x.dtype.np)))


@avg_pool.expand
def _(x: Value, *, window: Ints, stride: Ints, padding: Pairs, count_include_pad: bool) -> Any:
    total = total_of(parts_of(in_sum_type(x), window, stride, padding, 0))
    counts = _counts(x.shape[-len(window) :], window, stride, padding, count_include_pad)
    return cast(_divided(total, counts), dtype=x.dtype)


@avg_pool_grad.expand
def _(dy: Value, *, input_size: Ints, window: Ints, stride: Ints, padding: Pairs, count_include_pad: bool) -> Any:
    share = _divided(in_sum_type(dy), _counts(input_size, window, stride, padding, count_include_pad))
    dx = spread([(share, 0)], lambda at, share: share, input_size, window, stride, padding)
    return cast(dx, dtype=dy.dtype)


@avg_pool.grad
def _(x: Value, y: Value, d: Value, *, window: Ints, **attrs: Any) -> tuple[Value]:
    return (avg_pool_grad(d, input_size=x.shape[-len(window) :], window=window, **attrs),)


@avg_pool_grad.grad
def _(dy: Value, dx: Value, d: Value, *, input_size: Ints, **attrs: Any) -> tuple[Value]:
    return (avg_pool(d, **attrs),)


def _hlo_sums(b: Any, x: Any, t: TensorType, out: Ints, **attrs: Any) -> Any:
    """The sums of the windows of x, of type t, which is wide enough to sum in."""
    result = t.with_shape((*t.shape[: t.rank - len(out)], *out))
    init, region = b.splat(0, t.with_shape(())), binary(b, "add", t.dtype)
    return b.op("reduce_window", x, init, types=result, regions=(region,), **window_attributes(t.rank, **attrs))


def _hlo_divided(b: Any, x: Any, t: TensorType, counts: Any) -> Any:
    if isinstance(counts, float):
        return b.op("divide", x, b.splat(counts, t), types=t)
    small = TensorType(t.dtype, counts.shape)
    return b.op("divide", x, b.broadcast(b.constant(counts.astype(t.dtype.np)), small, t), types=t)


@avg_pool.hlo
def _(b: Any, x: Any, **attrs: Any) -> Any:
    if is_small(attrs["window"]):
        return b.inline(expansion(avg_pool, b.types, attrs), x)
    ((narrow,), (result,)), rank = (b.types, b.out), len(attrs["window"])
    t, wide_result = (u.with_dtype(sum_dtype(u.dtype)) for u in (narrow, result))
    counts = _counts(t.shape[-rank:], **attrs)
    del attrs["count_include_pad"]
    total = _hlo_sums(b, b.convert(x, narrow, t), t, result.shape[-rank:], **attrs)
    return b.convert(_hlo_divided(b, total, wide_result, counts), wide_result, result)


@avg_pool_grad.hlo
def _(b: Any, dy: Any, **attrs: Any) -> Any:
    if is_small(attrs["window"], attrs["stride"]):
        return b.inline(expansion(avg_pool_grad, b.types, attrs), dy)
    ((narrow,), (result,)), size = (b.types, b.out), attrs.pop("input_size")
    t, rank = narrow.with_dtype(sum_dtype(narrow.dtype)), len(size)
    share = _hlo_divided(b, b.convert(dy, narrow, t), t, _counts(size, **attrs))
    lead, window, stride = (0,) * (t.rank - rank), attrs["window"], attrs["stride"]
    spans = [(n - 1) * s + 1 for n, s in zip(t.shape[-rank:], stride)]
    low = tuple([w - 1 - pair[0] for w, pair in zip(window, attrs["padding"])])
    high = tuple([n + w - 1 - span - a for n, w, span, a in zip(size, window, spans, low)])
    apart = t.with_shape(t.shape[: t.rank - rank] + tuple([n + w - 1 for n, w in zip(size, window)]))
    edges = {"edge_padding_low": lead + low, "edge_padding_high": lead + high}
    inner = lead + tuple([s - 1 for s in stride])
    wide = b.op("pad", share, b.splat(0, t.with_shape(())), types=apart, interior_padding=inner, **edges)
    dx = _hlo_sums(b, wide, apart, size, window=window, stride=(1,) * rank, padding=((0, 0),) * rank)
    return b.convert(dx, result.with_dtype(t.dtype), result)


@avg_pool.onnx
def _(g: Any, x: str, *, window: Ints, stride: Ints, padding: Pairs, count_include_pad: bool) -> Any:
    return onnx_pool(g, "AveragePool", x, window, stride, padding, count_include_pad=int(count_include_pad))


@avg_pool.samples
def _(s: Samples) -> Iterator[Sample]:
    for size, attrs in WINDOWS:
        for count in (True, False):
            yield s(f64[2, 1, *size], **attrs, count_include_pad=count)
    yield s(f64[5], **plain_pool(1, (2,)), count_include_pad=True)
    yield s(f64[0, 2, 4], **plain_pool(1, (2,)), count_include_pad=True)
    yield s(f32[2, 4], **plain_pool(1, (2,), padding=((1, 1),)), count_include_pad=False)
    yield s(bf16[2, 4], **plain_pool(1, (2,)), count_include_pad=True)
    yield from bad_pools(s, count_include_pad=True)
    yield s(i32[2, 5], **plain_pool(1, (3,)), count_include_pad=True, bad="E0106")


@avg_pool_grad.samples
def _(s: Samples) -> Iterator[Sample]:
    for size, attrs in WINDOWS:
        out = pooled(size, attrs["window"], attrs["stride"], attrs["padding"])
        for count in (True, False):
            yield s(f64[2, 1, *out], **attrs, count_include_pad=count, input_size=size)
    yield s(f64[0, 3], **plain_pool(1, (2,)), count_include_pad=True, input_size=(4,))
    yield s(f32[2, 3], **plain_pool(1, (2,)), count_include_pad=False, input_size=(4,))
    yield s(bf16[2, 3], **plain_pool(1, (2,)), count_include_pad=True, input_size=(4,))
    yield s(f64[2, 4], **plain_pool(1, (2,)), count_include_pad=True, input_size=(4,), bad="E0149")
    yield from bad_pools(s, count_include_pad=True, input_size=(7,))
    yield s(i32[2, 3], **plain_pool(1, (2,)), count_include_pad=True, input_size=(4,), bad="E0106")
