"""The maximum of windows that slide over the trailing axes of [N, C, *spatial], with its gradients.

There may be any number of leading axes.

Attributes, one entry per spatial axis: `window`, `stride`, `padding` as (low, high) pairs, each less than the window.
Padding never wins, NaN does, and of equal maxima the first (row by row) takes the whole gradient.

Windows of few elements become slices combined element by element, which XLA's CPU back end runs 1.3 to 3 times
(forward) and 3.5 to 25 times (gradient) as fast as its own reduce_window and select_and_scatter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle.base.dtypes import DType, bool_, int32
from treadle.base.errors import UserError
from treadle.ir.interp import expansion
from treadle.ir.node import Value
from treadle.ir.op import No
from treadle.ir.types import Literal, TensorType, bf16, c64, f16, f32, f64, i32
from treadle.ops import _formulas
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
    spread,
    sum_dtype,
    window_attributes,
)
from treadle.ops._types import same_float, same_real
from treadle.ops._windows import Ints, Pairs, letters, offsets, opposite, padded, strided
from treadle.ops.casting import cast
from treadle.ops.compare import equal, greater_equal, logical_and, logical_not, select
from treadle.ops.creation import constant, full
from treadle.ops.elementwise import maximum
from treadle.ops.reduce import broadcast_to, extreme_region
from treadle.ops.shape import transpose


def _group(node: Any) -> str:
    """Windows side by side are worth a kernel: each element looks at its own; and windows over images that have their
    channels last in memory. Of others that overlap, XLA's slices, which find each window's maximum once, do less."""
    attrs, x = node.attrs, node.inputs[0]
    apart = attrs["window"] == attrs["stride"] and not any(map(any, attrs["padding"]))
    last = x.node is not None and x.node.op is transpose and x.node.attrs["perm"] == (0, 3, 1, 2)
    return "pool" if apart or (last and len(attrs["window"]) == 2) else ""


@op(images=((0,), (0,)), group=_group, batch="leading")
def max_pool(x: Value, *, window: Ints, stride: Ints, padding: Pairs) -> Any:
    """The largest element of each window. x: integer or float[..., *s] -> [..., *t].

    Raises E0147 for wrong attributes, E0148 when no window fits, E0150 for too few axes, E0151 for padding that is
    negative or not less than the window.
    """


@op(
    images=((0, 1), (0,)), formula=_formulas.max_pool_grad, group=_group, batch="leading",
    onnx=No("ONNX has the forward operator only"),
)  # fmt: skip
def max_pool_grad(x: Value, dy: Value, *, window: Ints, stride: Ints, padding: Pairs) -> Any:
    """The gradient of `max_pool` for x: each dy goes to the first maximum of its window, sums where windows overlap.

    x: float[..., *s], dy: float[..., *t] -> float[..., *s]. Raises as `max_pool`, and E0149 when dy does not fit.
    """


@op(batch="leading", onnx=No("ONNX has the forward operator only"))
def max_pool_take(x: Value, d: Value, *, window: Ints, stride: Ints, padding: Pairs) -> Any:
    """The element of d where x has the first maximum of each window: the gradient of `max_pool_grad` for dy.

    x, d: float[..., *s] -> float[..., *t]. Raises as `max_pool`.
    """


# Types.


@max_pool.type
def _(x: TensorType, *, window: Ints, stride: Ints, padding: Pairs) -> TensorType:
    return pool_type(same_real(x), window, stride, padding)


@max_pool_grad.type
def _(x: TensorType, dy: TensorType, *, window: Ints, stride: Ints, padding: Pairs) -> TensorType:
    wanted = pool_type(same_float(x), window, stride, padding)
    if dy != wanted:
        raise UserError("E0149", f"dy is {dy}, but pooling {x} gives {wanted}", fix="pass dy of this type")
    return x


@max_pool_take.type
def _(x: TensorType, d: TensorType, *, window: Ints, stride: Ints, padding: Pairs) -> TensorType:
    return pool_type(same_float(x, d), window, stride, padding)


@max_pool.axes
def _(x: TensorType, *, window: Ints, **_: Any) -> str:
    return f"... {letters('s', len(window))} -> ... {letters('t', len(window))}"


@max_pool_grad.axes
def _(x: TensorType, dy: TensorType, *, window: Ints, **_: Any) -> str:
    s, t = letters("s", len(window)), letters("t", len(window))
    return f"... {s}, ... {t} -> ... {s}"


@max_pool_take.axes
def _(x: TensorType, d: TensorType, *, window: Ints, **_: Any) -> str:
    s, t = letters("s", len(window)), letters("t", len(window))
    return f"... {s}, ... {s} -> ... {t}"


# The meaning, in NumPy: one step per position of the window.


def _lowest(dtype: DType) -> Any:
    return -math.inf if dtype.is_float else int(np.iinfo(dtype.np).min)


def _first_maximum(x: Any, window: Ints, stride: Ints, padding: Pairs) -> Any:
    """The position of the first maximum (or first NaN) in each window, counted row by row."""
    stack = np.stack(list(positions(x, window, stride, padding, -np.inf)))
    start = _first_element(x.shape[x.ndim - len(window) :], window, stride, padding)
    return np.where(np.all(stack == -np.inf, axis=0), start, np.argmax(stack, axis=0))


def _first_element(size: Ints, window: Ints, stride: Ints, padding: Pairs) -> Any:
    """The position of the first element that is no padding in each window, int32."""
    out = pooled(size, window, stride, padding)
    at = np.zeros(out, np.int32)
    for axis, (w, s, (low, _)) in enumerate(zip(window, stride, padding)):
        skipped = np.maximum(low - s * np.arange(out[axis]), 0)
        at = at * w + skipped.reshape([-1 if i == axis else 1 for i in range(len(out))])
    return at.astype(np.int32)


@max_pool.ref
def _(x: Any, *, window: Ints, stride: Ints, padding: Pairs) -> Any:
    fill = -np.inf if x.dtype.kind not in "iu" else np.iinfo(x.dtype).min
    return np.max(np.stack(list(positions(x, window, stride, padding, fill))), axis=0)


@max_pool_grad.ref
def _(x: Any, dy: Any, *, window: Ints, stride: Ints, padding: Pairs) -> Any:
    first, rank = _first_maximum(x, window, stride, padding), len(window)
    dx = np.zeros_like(padded(x, padding), dtype=np.float32 if x.dtype.itemsize == 2 else x.dtype)
    for k, at in enumerate(offsets(window)):
        dx[strided(at, dy.shape[dy.ndim - rank :], stride, (1,) * rank)] += np.where(first == k, dy, 0)
    return padded(dx, opposite(padding)).astype(x.dtype)


@max_pool_take.ref
def _(x: Any, d: Any, *, window: Ints, stride: Ints, padding: Pairs) -> Any:
    first = _first_maximum(x, window, stride, padding)
    return np.take_along_axis(np.stack(list(positions(d, window, stride, padding, 0))), first[None], axis=0)[0]


# In other ops.


def _later(best: Value, part: Value) -> Any:
    """Where `part` beats the best so far: it is larger or NaN, and the best is not NaN."""
    return logical_and(logical_not(greater_equal(best, part)), equal(best, best))


def _first(x: Value, window: Ints, stride: Ints, padding: Pairs) -> Any:
    """The position of the first maximum in each window, int32."""
    parts = parts_of(x, window, stride, padding, -math.inf)
    best, first = parts[0], full(value=0, shape=parts[0].shape, dtype=int32)
    for k, part in enumerate(parts[1:], 1):
        wins = _later(best, part)
        best = select(wins, part, best)
        first = select(wins, full(value=k, shape=best.shape, dtype=int32), first)
    if not any(p for pair in padding for p in pair):
        return first
    start = constant(value=Literal(_first_element(x.shape[-len(window) :], window, stride, padding)))
    return select(equal(best, -math.inf), broadcast_to(start, shape=first.shape), first)


@max_pool.expand
def _(x: Value, *, window: Ints, stride: Ints, padding: Pairs) -> Any:
    parts = parts_of(x, window, stride, padding, _lowest(x.dtype))
    best = parts[0]
    for part in parts[1:]:
        best = maximum(best, part)
    return best


@max_pool_take.expand
def _(x: Value, d: Value, *, window: Ints, stride: Ints, padding: Pairs) -> Any:
    first, (taken, *rest) = _first(x, window, stride, padding), parts_of(d, window, stride, padding, 0)
    for k, part in enumerate(rest, 1):
        taken = select(equal(first, k), part, taken)
    return taken


@max_pool_grad.expand
def _(x: Value, dy: Value, *, window: Ints, stride: Ints, padding: Pairs) -> Any:
    first, d = _first(x, window, stride, padding), in_sum_type(dy)
    order = {at: k for k, at in enumerate(offsets(window))}

    def give(at: Ints, first: Value, d: Value) -> Value:
        chosen: Value = select(equal(first, order[at]), d, full(value=0, shape=d.shape, dtype=d.dtype))
        return chosen

    dx = spread([(first, -1), (d, 0)], give, x.shape[-len(window) :], window, stride, padding)
    return cast(dx, dtype=x.dtype)


@max_pool.grad
def _(x: Value, y: Value, d: Value, **attrs: Any) -> tuple[Value]:
    return (max_pool_grad(x, d, **attrs),)


@max_pool_grad.grad
def _(x: Value, dy: Value, dx: Value, d: Value, **attrs: Any) -> tuple[None, Value]:
    return None, max_pool_take(x, d, **attrs)


@max_pool_take.grad
def _(x: Value, d: Value, y: Value, ct: Value, **attrs: Any) -> tuple[None, Value]:
    return None, max_pool_grad(x, ct, **attrs)


# StableHLO: slices for small windows; XLA's window operations for large ones, so that programs stay small.


@max_pool.hlo
def _(b: Any, x: Any, *, window: Ints, stride: Ints, padding: Pairs) -> Any:
    attrs: dict[str, Any] = {"window": window, "stride": stride, "padding": padding}
    if is_small(window):
        return b.inline(expansion(max_pool, b.types, attrs), x)
    (t,) = b.types
    init = b.splat(_lowest(t.dtype), t.with_shape(()))
    region = extreme_region(b, t.dtype, "GT") if t.dtype.is_float else binary(b, "maximum", t.dtype)
    return b.op("reduce_window", x, init, regions=(region,), **window_attributes(t.rank, **attrs))


@max_pool_grad.hlo
def _(b: Any, x: Any, dy: Any, *, window: Ints, stride: Ints, padding: Pairs) -> Any:
    attrs: dict[str, Any] = {"window": window, "stride": stride, "padding": padding}
    if is_small(window):
        return b.inline(expansion(max_pool_grad, b.types, attrs), x, dy)
    t, (narrow, given) = b.types[0].with_dtype(sum_dtype(b.types[0].dtype)), b.types
    scalar, truth = t.with_shape(()), TensorType(bool_, ())

    def keep(b: Any, p: Any, q: Any) -> Any:
        larger = b.op("compare", p, q, types=truth, comparison_direction="#stablehlo<comparison_direction GE>")
        is_nan = b.op("compare", p, p, types=truth, comparison_direction="#stablehlo<comparison_direction NE>")
        return b.op("or", larger, is_nan, types=truth)

    x, dy = b.convert(x, narrow, t), b.convert(dy, given, given.with_dtype(t.dtype))
    regions = (b.region((scalar, scalar), keep), binary(b, "add", t.dtype))
    windows = window_attributes(t.rank, **attrs)
    dx = b.op("select_and_scatter", x, dy, b.splat(0, scalar), types=t, regions=regions, **windows)
    return b.convert(dx, t, narrow)


@max_pool.onnx
def _(g: Any, x: str, *, window: Ints, stride: Ints, padding: Pairs) -> Any:
    return onnx_pool(g, "MaxPool", x, window, stride, padding)


def _distinct(s: Samples, shape: Ints) -> Any:
    """Numbers that differ by 0.03 at least, so that a small step changes no maximum."""
    return s.rng.permutation(np.arange(math.prod(shape)) * 0.03 + 0.1).reshape(shape)


@max_pool.samples
def _(s: Samples) -> Iterator[Sample]:
    for size, attrs in WINDOWS:
        yield s(_distinct(s, (2, 3, *size)), **attrs)
    yield s(_distinct(s, (5,)), **plain_pool(1, (2,)))
    yield s(f64[0, 2, 4], **plain_pool(1, (2,)))
    yield s(f64[1, 1, 1], **plain_pool(1, (1,)))
    yield s(np.array([1.0, np.nan, 3.0, -np.inf, -np.inf]), **plain_pool(1, (2,)), gradient=False)
    yield s(i32[2, 5], **plain_pool(1, (3,), padding=((1, 1),)))
    for t in (f32[2, 5], bf16[2, 5], f16[2, 5]):
        yield s(t, **plain_pool(1, (3,), stride=(2,), padding=((1, 1),)), gradient=False)
    yield from bad_pools(s)
    yield s(c64[2, 5], **plain_pool(1, (3,)), bad="E0106")


@max_pool_grad.samples
def _(s: Samples) -> Iterator[Sample]:
    for size, attrs in WINDOWS:
        out = pooled(size, attrs["window"], attrs["stride"], attrs["padding"])
        yield s(_distinct(s, (2, 1, *size)), f64[2, 1, *out], **attrs)
    yield s(np.array([1.0, 1.0, 0.0, 2.0, 2.0, np.nan, 4.0]), f64[5], **plain_pool(1, (3,)), gradient=False)
    yield s(np.full(3, -np.inf), f64[4], **plain_pool(1, (3,), padding=((2, 1),)), gradient=False)
    yield s(f64[0, 2, 4], f64[0, 2, 3], **plain_pool(1, (2,)))
    yield s(f32[2, 4], f32[2, 3], **plain_pool(1, (2,)), gradient=False)
    yield s(bf16[2, 4], bf16[2, 3], **plain_pool(1, (2,)), gradient=False)
    yield s(f64[2, 4], f64[2, 4], **plain_pool(1, (2,)), bad="E0149")
    yield from bad_pools(s, f64[2, 6])
    yield s(i32[2, 4], i32[2, 3], **plain_pool(1, (2,)), bad="E0106")


@max_pool_take.samples
def _(s: Samples) -> Iterator[Sample]:
    for size, attrs in WINDOWS:
        yield s(_distinct(s, (2, 1, *size)), f64[2, 1, *size], **attrs)
    yield s(f64[0, 2, 4], f64[0, 2, 4], **plain_pool(1, (2,)))
    yield s(f32[2, 4], f32[2, 4], **plain_pool(1, (2,)), gradient=False)
    yield s(f64[2, 4], f64[2, 5], **plain_pool(1, (2,)), bad="E0105")
    yield from bad_pools(s, f64[2, 7])
    yield s(i32[2, 4], i32[2, 4], **plain_pool(1, (2,)), bad="E0106")
