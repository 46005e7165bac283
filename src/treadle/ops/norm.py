"""Normalisations: `softmax` and `log_softmax` along one axis, `layer_norm` and `rms_norm` over the last axes.

Each is one node, and so is its gradient. Statistics are in float32 for 16-bit floats, else in the type of x, and taken
in two passes (the mean, then the squares of the differences), so a large mean costs no accuracy. `scale` and `bias` are
of x's type or of the type of the statistics.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.ir.node import Value
from treadle.ir.types import TensorType, bf16, f16, f32, f64, i32
from treadle.ops import _padding
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._formulas import folded
from treadle.ops._types import normal_axis, same_float
from treadle.ops.casting import cast
from treadle.ops.elementwise import reciprocal
from treadle.ops.functions import exp, log, rsqrt
from treadle.ops.reduce import (
    broadcast_to,
    keep_axes_whole,
    onnx_reduce,
    reduce_sum,
    reduced,
    wide,
    wide_array,
    wide_dtype,
    widen,
)
from treadle.ops.shape import LETTERS

Ints = tuple[int, ...]
GRAD_ONNX = "expand"


# ---------------------------------------------------------------------------------------------------- softmax


def _along(x: TensorType, *more: TensorType, axis: int) -> TensorType:
    if normal_axis(axis, same_float(x, *more).rank) != axis:
        raise UserError("E0107", f"axis {axis} is counted from the back", fix=f"use {axis % x.rank}")
    return x


def _one_axis_whole(*types: TensorType, axis: int) -> str:
    names = " ".join("!" * (i == axis) + n for i, n in enumerate(LETTERS[: types[0].rank]))
    return ", ".join([names] * len(types)) + f" -> {names}"


def _axis_samples(count: int) -> Any:
    def make(s: Samples) -> Iterator[Sample]:
        for t, axis in ((f64[3], 0), (f64[2, 3], 0), (f64[2, 3, 4], 1), (f64[2, 1], 1), (f64[0, 3], 1), (f64[3, 0], 1)):
            yield s(*[t] * count, axis=axis)
        yield s(*[f32[2, 3]] * count, axis=1)
        yield s(*[bf16[2, 3]] * count, axis=1)
        yield s(*[f16[2, 3]] * count, axis=0)
        yield s(*[f64[2, 3]] * count, axis=-1, bad="E0107")
        yield s(*[f64[()]] * count, axis=0, bad="E0107")
        yield s(*[i32[2, 3]] * count, axis=1, bad="E0106")

    return make


def _shift_type(x: TensorType, *, axes: Ints) -> TensorType:
    return reduced(same_float(x), axes=axes)


@op(
    batch="shift axes", formula=folded("maximum"), type=_shift_type, axes=keep_axes_whole,
    onnx=onnx_reduce("ReduceMax"),
)  # fmt: skip
def exp_shift(x: Value, *, axes: Ints) -> Any:
    """What to subtract from x before exp(x): the largest element over `axes`, -inf of none, any number beside a NaN.

    Only for formulas whose result does not depend on it (softmax), so its gradient is taken as 0. Unlike `reduce_max`
    it leaves NaN to those formulas, so XLA's CPU back end may use its library. Raises E0106 for integers, E0107.
    """


exp_shift.padded(_padding.filled(_padding.least))


@exp_shift.ref
def _(x: Any, *, axes: Ints) -> Any:
    return np.max(wide_array(x), axis=axes, initial=-np.inf).astype(x.dtype)


@exp_shift.hlo
def _(b: Any, x: Any, *, axes: Ints) -> Any:
    return b.reduce("maximum", x, b.types[0], axes, init=-math.inf)


@exp_shift.grad
def _(x: Value, out: Value, d: Value, *, axes: Ints) -> tuple[None]:
    return (None,)


@exp_shift.samples
def _(s: Samples) -> Iterator[Sample]:
    for t, axes in ((f64[2, 3], (0,)), (f64[2, 3, 4], (0, 2)), (f64[()], ()), (f64[2, 1], (1,)), (f64[0, 3], (0,))):
        yield s(t, axes=axes, gradient=False)
    for t in (f32[2, 3], bf16[2, 3], f16[2, 3]):
        yield s(t, axes=(1,), gradient=False)
    yield s(f64[2, 3], axes=(1, 0), bad="E0107")
    yield s(i32[2, 3], axes=(1,), bad="E0106")


def _shifted(x: Value, axis: int) -> Value:
    """x - max(x), in the type that sums are kept in."""
    y = wide(x)
    return y - widen(exp_shift(y, axes=(axis,)), y, (axis,))


@op(group="row", amp="wide", batch="shift axis", type=_along, axes=_one_axis_whole, samples=_axis_samples(1))
def softmax(x: Value, *, axis: int) -> Any:
    """exp(x) / sum(exp(x)) along `axis`, without overflow: the largest element is taken out first.

    x: float[...]. -inf everywhere gives NaN. Raises E0106 for integers, E0107 for a wrong axis.
    """


@softmax.ref
def _(x: Any, *, axis: int) -> Any:
    if x.size == 0:
        return x
    e = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True).astype(np.float64))
    return (e / e.sum(axis, keepdims=True)).astype(x.dtype)


@softmax.expand
def _(x: Value, *, axis: int) -> Any:
    if x.shape[axis] == 0:
        return x
    e = exp(_shifted(x, axis))
    each = reciprocal(reduce_sum(e, axes=(axis,)))  # of a number from 1 on, or NaN
    return cast(e * widen(each, e, (axis,)), dtype=x.dtype)


@softmax.grad
def _(x: Value, y: Value, d: Value, *, axis: int) -> tuple[Value]:
    return (softmax_grad(y, d, axis=axis),)


@softmax.onnx
def _(g: Any, x: str, *, axis: int) -> Any:
    return g.node("Softmax", x, axis=axis)


@op(group="row", batch="shift axis", type=_along, axes=_one_axis_whole, onnx=GRAD_ONNX, samples=_axis_samples(2))
def softmax_grad(y: Value, d: Value, *, axis: int) -> Any:
    """y * (d - sum(y * d)): the gradient of softmax whose result was y. Raises E0105, E0106, E0107."""


@softmax_grad.expand
def _(y: Value, d: Value, *, axis: int) -> Any:
    p, dp = wide(y), wide(d)
    return cast(p * (dp - widen(reduce_sum(p * dp, axes=(axis,)), p, (axis,))), dtype=y.dtype)


@op(group="row", amp="wide", batch="shift axis", type=_along, axes=_one_axis_whole, samples=_axis_samples(1))
def log_softmax(x: Value, *, axis: int) -> Any:
    """x - log(sum(exp(x))) along `axis`, without overflow. x: float[...]. Raises as `softmax`."""


@log_softmax.ref
def _(x: Any, *, axis: int) -> Any:
    if x.size == 0:
        return x
    shifted = x.astype(np.float64) - x.max(axis, keepdims=True).astype(np.float64)
    return (shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))).astype(x.dtype)


@log_softmax.expand
def _(x: Value, *, axis: int) -> Any:
    if x.shape[axis] == 0:
        return x
    shifted = _shifted(x, axis)
    return cast(shifted - widen(log(reduce_sum(exp(shifted), axes=(axis,))), shifted, (axis,)), dtype=x.dtype)


@log_softmax.grad
def _(x: Value, y: Value, d: Value, *, axis: int) -> tuple[Value]:
    return (log_softmax_grad(y, d, axis=axis),)


@log_softmax.onnx
def _(g: Any, x: str, *, axis: int) -> Any:
    return g.node("LogSoftmax", x, axis=axis)


@op(group="row", batch="shift axis", type=_along, axes=_one_axis_whole, onnx=GRAD_ONNX, samples=_axis_samples(2))
def log_softmax_grad(y: Value, d: Value, *, axis: int) -> Any:
    """d - exp(y) * sum(d): the gradient of log_softmax whose result was y. Raises E0105, E0106, E0107."""


@log_softmax_grad.expand
def _(y: Value, d: Value, *, axis: int) -> Any:
    dp = wide(d)
    return cast(dp - exp(wide(y)) * widen(reduce_sum(dp, axes=(axis,)), dp, (axis,)), dtype=y.dtype)


# ---------------------------------------------------------------------------- over the last axes: layer_norm, rms_norm


def _lead(x: TensorType, axes_count: int, *params: TensorType) -> TensorType:
    """The type of the statistics. Raises E0154 for a wrong count, E0155 for parameters that do not fit."""
    if not isinstance(axes_count, int) or not 1 <= axes_count <= same_float(x).rank:
        raise UserError("E0154", f"axes_count {axes_count} of {x}", fix=f"use 1 to {x.rank}: the last axes form a row")
    _parameters(x, x.shape[x.rank - axes_count :], *params)
    return TensorType(wide_dtype(x.dtype), x.shape[: x.rank - axes_count])


def _parameters(x: TensorType, shape: Ints, *params: TensorType) -> None:
    for p in params:
        if p.shape != shape or p.dtype not in (x.dtype, wide_dtype(x.dtype)) or p.dtype is not params[0].dtype:
            why = f"x is {x}, a scale or bias {p}"
            raise UserError("E0155", why, fix=f"give both the shape {list(shape)} and the element type {x.dtype}")


def _same_as(wanted: TensorType, *found: TensorType) -> None:
    """E0156 for statistics or cotangents of other types than the forward op gives."""
    for t in found:
        if t != wanted:
            raise UserError("E0156", f"got {t} where the forward op gives {wanted}", fix="pass what it gave")


def _last(x: Any, axes_count: int) -> Ints:
    return tuple(range(x.ndim - axes_count, x.ndim))


def _row_axes(operands: str, results: str) -> Any:
    """An axes rule in words: x and y are whole tensors, p a parameter, s a statistic."""

    def rule(x: TensorType, *_: TensorType, axes_count: int, **__: Any) -> str:
        lead = x.rank - axes_count
        a, b = " ".join(LETTERS[:lead]), " ".join("!" + n for n in LETTERS[lead : x.rank])
        text = {"x": f"{a} {b}", "p": b, "s": a}
        return ", ".join(text[c] for c in operands) + " -> " + ", ".join(text[c] for c in results)

    return rule


def _over_lead(x: Value, axes_count: int, like: Value) -> Value:
    """x summed over all but its last axes, as the parameter `like`."""
    summed: Value = cast(reduce_sum(x, axes=tuple(range(x.ndim - axes_count))), dtype=like.dtype)
    return summed


def _mean(x: Value, axes: Ints) -> Value:
    return reduce_sum(x, axes=axes) / float(math.prod([x.shape[a] for a in axes]))  # type: ignore[no-any-return]


def _as_rows(parameter: Value, like: Value) -> Value:
    spread: Value = broadcast_to(wide(parameter), shape=like.shape)
    return spread


@op(group="row", batch="leading 1", axes=_row_axes("xpp", "x"))
def layer_norm(x: Value, scale: Value, bias: Value, *, axes_count: int, eps: float) -> Any:
    """(x - mean) / sqrt(var + eps) * scale + bias, with mean and variance over the last `axes_count` axes of x.

    x: float[..., *n], scale and bias: float[*n]. Source: Ba et al. 2016, arXiv:1607.06450.
    Raises E0106 for integers, E0154 for a wrong count, E0155 for parameters that do not fit.
    """


@layer_norm.type
def _(x: TensorType, scale: TensorType, bias: TensorType, *, axes_count: int, eps: float) -> TensorType:
    _lead(x, axes_count, scale, bias)
    return x


@layer_norm.ref
def _(x: Any, scale: Any, bias: Any, *, axes_count: int, eps: float) -> Any:
    axes, w = _last(x, axes_count), x.astype(np.float64)
    centred = w - w.mean(axes, keepdims=True) if x.size else w
    rstd = 1 / np.sqrt((centred**2).mean(axes, keepdims=True) + eps) if x.size else 1
    return (centred * rstd * scale.astype(np.float64) + bias.astype(np.float64)).astype(x.dtype)


@layer_norm.expand
def _(x: Value, scale: Value, bias: Value, *, axes_count: int, eps: float) -> Any:
    return layer_norm_fwd(x, scale, bias, axes_count=axes_count, eps=eps)[0]


@layer_norm.saved
def _(x: Value, scale: Value, bias: Value, **attrs: Any) -> Any:
    y, mean, rstd = layer_norm_fwd(x, scale, bias, **attrs)
    return (y,), (mean, rstd)


@layer_norm.grad
def _(
    x: Value, scale: Value, bias: Value, y: Value, saved: tuple[Value, Value], d: Value, *, axes_count: int, eps: float
) -> Any:
    dx, dscale, dbias = layer_norm_grad(x, scale, *saved, d, axes_count=axes_count)
    return dx, dscale, dbias


@layer_norm.onnx
def _(g: Any, x: str, scale: str, bias: str, *, axes_count: int, eps: float) -> Any:
    if g.types[0].dtype is not g.types[1].dtype:
        scale, bias = (g.node("CastLike", p, x) for p in (scale, bias))
    return g.node("LayerNormalization", x, scale, bias, axis=-axes_count, epsilon=eps)


def _norm_samples(params: int, **attrs: Any) -> Any:
    """Samples of a norm over the last axes with so many parameters."""

    def make(s: Samples) -> Iterator[Sample]:
        for shape, k in (((2, 3), 1), ((2, 3, 4), 2), ((2, 3, 4), 1), ((3,), 1), ((2, 1, 2), 2), ((0, 3), 1)):
            yield s(f64[shape], *[f64[shape[len(shape) - k :]]] * params, axes_count=k, **attrs)
        yield s(f32[2, 5], *[f32[5]] * params, axes_count=1, **attrs)
        yield s(bf16[2, 5], *[bf16[5]] * params, axes_count=1, **attrs)
        yield s(f16[2, 5], *[f32[5]] * params, axes_count=1, **attrs)
        yield s(f64[2, 3], *[f64[3]] * params, axes_count=3, **attrs, bad="E0154")
        yield s(f64[2, 3], *[f64[2]] * params, axes_count=1, **attrs, bad="E0155")
        yield s(i32[2, 3], *[i32[3]] * params, axes_count=1, **attrs, bad="E0106")

    return make


def _grad_samples(statistics: int) -> Any:
    """Samples of a gradient op: x, scale, statistics, d."""

    def make(s: Samples) -> Iterator[Sample]:
        def one(t: TensorType, k: int, param: Any, stat: Any, **more: Any) -> Sample:
            lead, row = t.shape[: t.rank - k], t.shape[t.rank - k :]
            stats = [s.uniform(stat[lead], 0.5, 1.5) for _ in range(statistics)]
            return s(t, param[row], *stats, t, axes_count=k, **more)

        for t, k in ((f64[2, 3], 1), (f64[2, 3, 4], 2), (f64[3], 1), (f64[2, 1], 1), (f64[0, 3], 1)):
            yield one(t, k, f64, f64)
        yield one(f32[2, 5], 1, f32, f32)
        yield one(bf16[2, 5], 1, bf16, f32)
        yield one(f16[2, 5], 1, f32, f32)
        yield one(f64[2, 3], 1, f32, f64, bad="E0155")
        yield one(f64[2, 3], 1, f64, f32, bad="E0156")
        yield s(f64[2, 3], f64[3], *[f64[2]] * statistics, f64[2, 3], axes_count=0, bad="E0154")
        yield s(i32[2, 3], i32[3], *[i32[2]] * statistics, i32[2, 3], axes_count=1, bad="E0106")

    return make


layer_norm.samples(_norm_samples(2, eps=1e-3))


@op(group="row", batch="leading 1", axes=_row_axes("xpp", "xss"), onnx="expand", samples=_norm_samples(2, eps=1e-3))
def layer_norm_fwd(x: Value, scale: Value, bias: Value, *, axes_count: int, eps: float) -> Any:
    """`layer_norm` that also gives mean and 1 / sqrt(var + eps), float[...], for the gradient. Raises as it."""


@layer_norm_fwd.type
def _(x: TensorType, scale: TensorType, bias: TensorType, *, axes_count: int, eps: float) -> Any:
    stat = _lead(x, axes_count, scale, bias)
    return x, stat, stat


@layer_norm_fwd.expand
def _(x: Value, scale: Value, bias: Value, *, axes_count: int, eps: float) -> Any:
    axes, w = _last(x, axes_count), wide(x)
    mean = _mean(w, axes)
    centred = w - widen(mean, w, axes)
    rstd = rsqrt(_mean(centred * centred, axes) + eps)
    y = centred * widen(rstd, w, axes) * _as_rows(scale, w) + _as_rows(bias, w)
    return cast(y, dtype=x.dtype), mean, rstd


@op(group="row", axes=_row_axes("xpssx", "xpp"), onnx=GRAD_ONNX, samples=_grad_samples(2))
def layer_norm_grad(x: Value, scale: Value, mean: Value, rstd: Value, d: Value, *, axes_count: int) -> Any:
    """The gradients of `layer_norm` for x, scale and bias. Raises as it, and E0156 for wrong statistics or d."""


@layer_norm_grad.type
def _(x: TensorType, scale: TensorType, mean: TensorType, rstd: TensorType, d: TensorType, *, axes_count: int) -> Any:
    _same_as(_lead(x, axes_count, scale), mean, rstd)
    _same_as(x, d)
    return x, scale, scale


@layer_norm_grad.expand
def _(x: Value, scale: Value, mean: Value, rstd: Value, d: Value, *, axes_count: int) -> Any:
    axes, w, dy = _last(x, axes_count), wide(x), wide(d)
    spread = widen(rstd, w, axes)
    normal = (w - widen(mean, w, axes)) * spread
    g = dy * _as_rows(scale, w)
    dx = spread * (g - widen(_mean(g, axes), w, axes) - normal * widen(_mean(g * normal, axes), w, axes))
    return cast(dx, dtype=x.dtype), _over_lead(dy * normal, axes_count, scale), _over_lead(dy, axes_count, scale)


@op(group="row", batch="leading 1", axes=_row_axes("xp", "x"), onnx="expand", samples=_norm_samples(1, eps=1e-3))
def rms_norm(x: Value, scale: Value, *, axes_count: int, eps: float) -> Any:
    """x / sqrt(mean(x**2) + eps) * scale, the mean over the last `axes_count` axes of x.

    x: float[..., *n], scale: float[*n]. Source: Zhang & Sennrich 2019, arXiv:1910.07467. Raises as `layer_norm`.
    """


@rms_norm.type
def _(x: TensorType, scale: TensorType, *, axes_count: int, eps: float) -> TensorType:
    _lead(x, axes_count, scale)
    return x


@rms_norm.ref
def _(x: Any, scale: Any, *, axes_count: int, eps: float) -> Any:
    axes, w = _last(x, axes_count), x.astype(np.float64)
    rstd = 1 / np.sqrt((w**2).mean(axes, keepdims=True) + eps) if x.size else 1
    return (w * rstd * scale.astype(np.float64)).astype(x.dtype)


@rms_norm.expand
def _(x: Value, scale: Value, *, axes_count: int, eps: float) -> Any:
    return rms_norm_fwd(x, scale, axes_count=axes_count, eps=eps)[0]


@rms_norm.saved
def _(x: Value, scale: Value, **attrs: Any) -> Any:
    y, rstd = rms_norm_fwd(x, scale, **attrs)
    return (y,), (rstd,)


@rms_norm.grad
def _(x: Value, scale: Value, y: Value, saved: tuple[Value], d: Value, *, axes_count: int, eps: float) -> Any:
    dx, dscale = rms_norm_grad(x, scale, *saved, d, axes_count=axes_count)
    return dx, dscale


@op(group="row", batch="leading 1", axes=_row_axes("xp", "xs"), onnx="expand", samples=_norm_samples(1, eps=1e-3))
def rms_norm_fwd(x: Value, scale: Value, *, axes_count: int, eps: float) -> Any:
    """`rms_norm` that also gives 1 / sqrt(mean(x**2) + eps), float[...], for the gradient. Raises as `layer_norm`."""


@rms_norm_fwd.type
def _(x: TensorType, scale: TensorType, *, axes_count: int, eps: float) -> Any:
    return x, _lead(x, axes_count, scale)


@rms_norm_fwd.expand
def _(x: Value, scale: Value, *, axes_count: int, eps: float) -> Any:
    axes, w = _last(x, axes_count), wide(x)
    rstd = rsqrt(_mean(w * w, axes) + eps)
    return cast(w * widen(rstd, w, axes) * _as_rows(scale, w), dtype=x.dtype), rstd


@op(group="row", axes=_row_axes("xpsx", "xp"), onnx=GRAD_ONNX, samples=_grad_samples(1))
def rms_norm_grad(x: Value, scale: Value, rstd: Value, d: Value, *, axes_count: int) -> Any:
    """The gradients of `rms_norm` for x and scale. Raises as `layer_norm_grad`."""


@rms_norm_grad.type
def _(x: TensorType, scale: TensorType, rstd: TensorType, d: TensorType, *, axes_count: int) -> Any:
    _same_as(_lead(x, axes_count, scale), rstd)
    _same_as(x, d)
    return x, scale


@rms_norm_grad.expand
def _(x: Value, scale: Value, rstd: Value, d: Value, *, axes_count: int) -> Any:
    axes, w, dy = _last(x, axes_count), wide(x), wide(d)
    spread = widen(rstd, w, axes)
    normal, g = w * spread, dy * _as_rows(scale, w)
    dx = spread * (g - normal * widen(_mean(g * normal, axes), w, axes))
    return cast(dx, dtype=x.dtype), _over_lead(dy * normal, axes_count, scale)
