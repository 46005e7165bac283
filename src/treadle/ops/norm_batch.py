"""Normalisation of each channel over the batch and the spatial axes: x [N, C, *spatial], parameters and statistics [C].

Statistics are in float32 for 16-bit floats, else in the type of x, and taken in two passes. `scale` and `bias` are of
x's type or of the type of the statistics. Source: Ioffe & Szegedy 2015, arXiv:1502.03167.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.ir.node import Value
from treadle.ir.types import TensorType, bf16, f16, f32, f64, i32
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._types import same_float
from treadle.ops._windows import letters
from treadle.ops.casting import cast
from treadle.ops.functions import rsqrt
from treadle.ops.reduce import reduce_sum, wide, wide_dtype, widen


@op(images=((0,), (0,)), group="row", onnx="expand")
def batch_norm(x: Value, scale: Value, bias: Value, *, eps: float) -> Any:
    """y = (x - mean) / sqrt(var + eps) * scale + bias, with mean and var of this batch: (y, mean, var).

    x: float[N, C, *s], scale and bias: float[C] -> y: float[N, C, *s], mean and var: float[C]; var is the biased one.
    Raises E0106 for integers, E0157 for fewer than two axes, E0155 for parameters that do not fit.
    """


@op(images=((0,), (0,)), group="expand")
def batch_norm_inference(x: Value, scale: Value, bias: Value, mean: Value, var: Value, *, eps: float) -> Any:
    """(x - mean) / sqrt(var + eps) * scale + bias with given statistics.

    x: float[N, C, *s], the others float[C]. Raises as `batch_norm`, and E0156 for statistics of another type.
    """


@op(group="moments", onnx="expand")
def channel_moments(x: Value, *, axis: int) -> Any:
    """Mean and variance (the biased one) of x over all axes but `axis`: (mean, var).

    x: float[*s] -> mean, var: float[s[axis]], of the type of the statistics. `transforms/fuse` makes it of `batch_norm`
    where the convolution before can give them. Raises E0106 for integers, E0157 for an axis that x does not have.
    """


@op(images=((0, 4), (0,)), group="row", onnx="expand")
def batch_norm_grad(
    x: Value, scale: Value, mean: Value, var: Value, dy: Value, dmean: Value, dvar: Value, *, eps: float
) -> Any:
    """The gradients of `batch_norm` for x, scale and bias, given those of its three results.

    Raises as `batch_norm`, and E0156 for statistics or cotangents of other types than `batch_norm` gives.
    """


@op(group="moments", onnx="expand")
def channel_sums(dy: Value, x: Value, mean: Value, *, axis: int) -> Any:
    """Sums of dy, and of dy * (x - mean), over all axes but `axis`: what `batch_norm_grad` needs of whole images.

    dy, x: float[*s], mean: float[s[axis]] -> two of mean's type, that of the statistics. `transforms/fuse` makes it of
    `batch_norm_grad` where the convolution that gives dy can give them. Raises as `channel_moments`, E0156.
    """


@op(images=((0, 4), (0,)), group="row", onnx="expand")
def batch_norm_grad_summed(
    x: Value, scale: Value, mean: Value, var: Value, dy: Value, dmean: Value, dvar: Value, total: Value, along: Value,
    *, eps: float,
) -> Any:  # fmt: skip
    """`batch_norm_grad`, given the sums `total` and `along` that `channel_sums` takes of dy, x and mean.

    Raises as `batch_norm_grad`.
    """


def _statistic(x: TensorType, *params: TensorType) -> TensorType:
    """The type of mean and var."""
    if same_float(x).rank < 2:
        raise UserError("E0157", f"x is {x}, without a channel axis", fix="shape it [N, C] or [N, C, *spatial]")
    wanted = wide_dtype(x.dtype)
    for p in params:
        if p.shape != (x.shape[1],) or p.dtype not in (x.dtype, wanted) or p.dtype is not params[0].dtype:
            why = f"x is {x}, a scale or bias {p}"
            raise UserError("E0155", why, fix=f"give both the shape [{x.shape[1]}] and the element type {x.dtype}")
    return TensorType(wanted, (x.shape[1],))


def _same_as(wanted: TensorType, *found: TensorType) -> None:
    for t in found:
        if t != wanted:
            raise UserError("E0156", f"got {t} where {wanted} is needed", fix="cast or reshape it")


@batch_norm.type
def _(x: TensorType, scale: TensorType, bias: TensorType, *, eps: float) -> Any:
    stat = _statistic(x, scale, bias)
    return x, stat, stat


@batch_norm_inference.type
def _(x: TensorType, scale: TensorType, bias: TensorType, mean: TensorType, var: TensorType, *, eps: float) -> Any:
    _same_as(_statistic(x, scale, bias), mean, var)
    return x


@batch_norm_grad.type
def _(x: TensorType, scale: TensorType, *given: TensorType, eps: float) -> Any:
    mean, var, dy, dmean, dvar = given
    _same_as(_statistic(x, scale), mean, var, dmean, dvar)
    _same_as(x, dy)
    return x, scale, scale


@batch_norm_grad_summed.type
def _(x: TensorType, scale: TensorType, *given: TensorType, eps: float) -> Any:
    mean, var, dy, *sums = given
    _same_as(_statistic(x, scale), mean, var, *sums)
    _same_as(x, dy)
    return x, scale, scale


@channel_moments.type
def _(x: TensorType, *, axis: int) -> Any:
    if not 0 <= axis < same_float(x).rank:
        raise UserError("E0157", f"x is {x}, without an axis {axis}", fix="count the channels' axis from the front")
    stat = TensorType(wide_dtype(x.dtype), (x.shape[axis],))
    return stat, stat


@channel_sums.type
def _(dy: TensorType, x: TensorType, mean: TensorType, *, axis: int) -> Any:
    if not 0 <= axis < same_float(x).rank:
        raise UserError("E0157", f"x is {x}, without an axis {axis}", fix="count the channels' axis from the front")
    stat = TensorType(wide_dtype(x.dtype), (x.shape[axis],))
    _same_as(x, dy)
    _same_as(stat, mean)
    return stat, stat


@batch_norm.axes
def _(x: TensorType, *_: TensorType, eps: float) -> str:
    whole = f"!n c {letters('s', x.rank - 2)}"
    return f"{whole}, c, c -> {whole}, c, c"


@channel_moments.axes
def _(x: TensorType, *, axis: int) -> str:
    whole = " ".join(["c" if i == axis else f"!s{i}" for i in range(x.rank)])
    return f"{whole} -> c, c"


@channel_sums.axes
def _(dy: TensorType, x: TensorType, _: TensorType, *, axis: int) -> str:
    whole = " ".join(["c" if i == axis else f"!s{i}" for i in range(x.rank)])
    return f"{whole}, {whole}, c -> c, c"


@batch_norm_inference.axes
def _(x: TensorType, *_: TensorType, eps: float) -> str:
    names = " ".join(["n", "c", *[f"s{i}" for i in range(x.rank - 2)]])
    return f"{names}, c, c, c, c -> {names}"


@batch_norm_grad.axes
def _(x: TensorType, *_: TensorType, eps: float) -> str:
    whole = f"!n c {letters('s', x.rank - 2)}"
    return f"{whole}, c, c, c, {whole}, c, c -> {whole}, c, c"


@batch_norm_grad_summed.axes
def _(x: TensorType, *_: TensorType, eps: float) -> str:
    whole = f"!n c {letters('s', x.rank - 2)}"  # the number of places counts
    return f"{whole}, c, c, c, {whole}, c, c, c, c -> {whole}, c, c"


def _others(x: Any) -> tuple[int, ...]:
    """All axes but that of the channels."""
    return (0, *range(2, x.ndim))


def _count(x: Value) -> float:
    return float(x.type.size // x.shape[1]) if x.type.size else 0.0


@batch_norm.ref
def _(x: Any, scale: Any, bias: Any, *, eps: float) -> Any:
    w, stat = x.astype(np.float64), np.float32 if x.dtype.itemsize == 2 else x.dtype
    n = np.float64(w.size / x.shape[1] if w.size else 0)
    mean = w.sum(_others(x), keepdims=True) / n
    var = ((w - mean) ** 2).sum(_others(x), keepdims=True) / n
    scale, bias = (p.astype(np.float64).reshape(mean.shape) for p in (scale, bias))
    y = (w - mean) / np.sqrt(var + eps) * scale + bias
    return y.astype(x.dtype), mean.reshape(-1).astype(stat), var.reshape(-1).astype(stat)


@batch_norm.expand
def _(x: Value, scale: Value, bias: Value, *, eps: float) -> Any:
    axes, w, n = _others(x), wide(x), _count(x)
    mean = reduce_sum(w, axes=axes) / n
    centred = w - widen(mean, w, axes)
    var = reduce_sum(centred * centred, axes=axes) / n
    y = centred * widen(rsqrt(var + eps) * wide(scale), w, axes) + widen(wide(bias), w, axes)
    return cast(y, dtype=x.dtype), mean, var


@channel_moments.ref
def _(x: Any, *, axis: int) -> Any:
    w, others = x.astype(np.float64), tuple([i for i in range(x.ndim) if i != axis])
    stat = np.float32 if x.dtype.itemsize == 2 else x.dtype
    n = np.float64(w.size / x.shape[axis] if w.size else 0)
    mean = w.sum(others, keepdims=True) / n
    var = ((w - mean) ** 2).sum(others) / n
    return mean.reshape(-1).astype(stat), var.astype(stat)


@channel_moments.expand
def _(x: Value, *, axis: int) -> Any:
    axes, w = tuple([i for i in range(x.ndim) if i != axis]), wide(x)
    n = float(x.type.size // x.shape[axis]) if x.type.size else 0.0
    mean = reduce_sum(w, axes=axes) / n
    centred = w - widen(mean, w, axes)
    return mean, reduce_sum(centred * centred, axes=axes) / n


@channel_sums.ref
def _(dy: Any, x: Any, mean: Any, *, axis: int) -> Any:
    others, shape = tuple([i for i in range(x.ndim) if i != axis]), [-1 if i == axis else 1 for i in range(x.ndim)]
    d, centred = dy.astype(np.float64), x.astype(np.float64) - mean.astype(np.float64).reshape(shape)
    return d.sum(others).astype(mean.dtype), (d * centred).sum(others).astype(mean.dtype)


@channel_sums.expand
def _(dy: Value, x: Value, mean: Value, *, axis: int) -> Any:
    axes, d, w = tuple([i for i in range(x.ndim) if i != axis]), wide(dy), wide(x)
    return reduce_sum(d, axes=axes), reduce_sum(d * (w - widen(mean, w, axes)), axes=axes)


@batch_norm.grad
def _(x: Value, scale: Value, bias: Value, y: Value, mean: Value, var: Value, *cts: Value, eps: float) -> Any:
    return batch_norm_grad(x, scale, mean, var, *cts, eps=eps)


@batch_norm_grad.expand
def _(x: Value, scale: Value, mean: Value, var: Value, dy: Value, dmean: Value, dvar: Value, *, eps: float) -> Any:
    axes, w, d = _others(x), wide(x), wide(dy)
    rstd = rsqrt(var + eps)
    centred = w - widen(mean, w, axes)
    along, total = reduce_sum(d * centred, axes=axes), reduce_sum(d, axes=axes)  # in one pass: neither waits for rstd
    return _gradients(d, centred, rstd, scale, (dmean, dvar), (along * rstd, total), x)


@batch_norm_grad_summed.expand
def _(
    x: Value, scale: Value, mean: Value, var: Value, dy: Value, dmean: Value, dvar: Value, total: Value, along: Value,
    *, eps: float,
) -> Any:  # fmt: skip
    w, rstd = wide(x), rsqrt(var + eps)
    centred = w - widen(mean, w, _others(x))
    return _gradients(wide(dy), centred, rstd, scale, (dmean, dvar), (along * rstd, total), x)


def _gradients(
    d: Value, centred: Value, rstd: Value, scale: Value, ct: tuple[Value, Value], sums: tuple[Value, Value], x: Value
) -> Any:
    """dx = slope * dy + (x - mean) * tilt + shift, so the cotangents `ct` of mean and var cost nothing per element;
    sums: dscale and dbias, of the type of the statistics."""
    axes, n, (dmean, dvar), (dscale, dbias) = _others(x), _count(x), ct, sums
    slope = rstd * wide(scale)
    tilt = (2.0 * dvar - slope * rstd * dscale) / n
    shift = (dmean - slope * dbias) / n
    dx = d * widen(slope, d, axes) + centred * widen(tilt, d, axes) + widen(shift, d, axes)
    return cast(dx, dtype=x.dtype), cast(dscale, dtype=scale.dtype), cast(dbias, dtype=scale.dtype)


@batch_norm_inference.ref
def _(x: Any, scale: Any, bias: Any, mean: Any, var: Any, *, eps: float) -> Any:
    shape = [-1 if i == 1 else 1 for i in range(x.ndim)]
    scale, bias, mean, var = (p.astype(np.float64).reshape(shape) for p in (scale, bias, mean, var))
    return ((x.astype(np.float64) - mean) / np.sqrt(var + eps) * scale + bias).astype(x.dtype)


@batch_norm_inference.expand
def _(x: Value, scale: Value, bias: Value, mean: Value, var: Value, *, eps: float) -> Any:
    axes, w = _others(x), wide(x)
    slope = rsqrt(var + eps) * wide(scale)
    y = (w - widen(mean, w, axes)) * widen(slope, w, axes) + widen(wide(bias), w, axes)
    return cast(y, dtype=x.dtype)


@batch_norm_inference.onnx
def _(g: Any, x: str, scale: str, bias: str, mean: str, var: str, *, eps: float) -> Any:
    return g.node("BatchNormalization", x, scale, bias, mean, var, epsilon=eps)


_SHAPES = ((4, 3), (3, 2, 4), (2, 3, 2, 2), (2, 1, 3), (2, 2, 1, 2, 2), (2, 0, 3), (0, 2, 3))


def _typed() -> Iterator[tuple[TensorType, Any, Any]]:
    """x, and makers of its parameters and statistics."""
    for shape in _SHAPES:
        yield f64[shape], f64, f64
    yield f32[4, 2, 3], f32, f32
    yield bf16[4, 2], bf16, f32
    yield f16[4, 2], f32, f32


@batch_norm.samples
def _(s: Samples) -> Iterator[Sample]:
    for t, param, _stat in _typed():
        yield s(t, *[param[t.shape[1]]] * 2, eps=1e-3, gradient=t.shape[0] > 0)  # of no samples, statistics are NaN
    yield s(f64[3], f64[3], f64[3], eps=1e-3, bad="E0157")
    yield s(f64[2, 3], f64[2], f64[2], eps=1e-3, bad="E0155")
    yield s(f64[2, 3], f32[3], f32[3], eps=1e-3, bad="E0155")
    yield s(i32[2, 3], i32[3], i32[3], eps=1e-3, bad="E0106")


@channel_moments.samples
def _(s: Samples) -> Iterator[Sample]:
    for shape in _SHAPES:
        for axis in {1, len(shape) - 1}:
            yield s(f64[shape], axis=axis, gradient=0 not in shape)  # of no numbers, statistics are NaN
    for kind in (f32, bf16, f16):
        yield s(kind[4, 2, 3], axis=2)
    yield s(f64[3], axis=0)
    yield s(f64[2, 3], axis=2, bad="E0157")
    yield s(i32[2, 3], axis=1, bad="E0106")


@channel_sums.samples
def _(s: Samples) -> Iterator[Sample]:
    for shape in _SHAPES:
        for axis in {1, len(shape) - 1}:
            yield s(f64[shape], f64[shape], f64[shape[axis]], axis=axis)
    for kind in (f32, bf16, f16):
        yield s(kind[4, 2, 3], kind[4, 2, 3], f32[3], axis=2)
    yield s(f64[3], f64[3], f64[3], axis=0)
    yield s(f64[2, 3], f64[2, 3], f64[3], axis=2, bad="E0157")
    yield s(f64[2, 3], f64[3, 2], f64[3], axis=1, bad="E0156")
    yield s(f64[2, 3], f64[2, 3], f64[2], axis=1, bad="E0156")
    yield s(i32[2, 3], i32[2, 3], i32[3], axis=1, bad="E0106")


@batch_norm_inference.samples
def _(s: Samples) -> Iterator[Sample]:
    for t, param, stat in _typed():
        c = t.shape[1]
        yield s(t, param[c], param[c], stat[c], s.uniform(stat[c], 0.5, 1.5), eps=1e-3)
    yield s(f64[3], *[f64[3]] * 4, eps=1e-3, bad="E0157")
    yield s(f64[2, 3], *[f64[2]] * 4, eps=1e-3, bad="E0155")
    yield s(f64[2, 3], f64[3], f64[3], f32[3], f32[3], eps=1e-3, bad="E0156")
    yield s(i32[2, 3], *[i32[3]] * 4, eps=1e-3, bad="E0106")


@batch_norm_grad.samples
def _(s: Samples) -> Iterator[Sample]:
    for t, param, stat in _typed():
        c = t.shape[1]
        var, enough = s.uniform(stat[c], 0.5, 1.5), t.shape[0] > 0
        yield s(t, param[c], stat[c], var, t, stat[c], stat[c], eps=1e-3, gradient=enough)
    yield s(f64[3], *[f64[3]] * 3, f64[3], *[f64[3]] * 2, eps=1e-3, bad="E0157")
    yield s(f64[2, 3], *[f64[2]] * 3, f64[2, 3], *[f64[2]] * 2, eps=1e-3, bad="E0155")
    yield s(f64[2, 3], *[f64[3]] * 3, f64[3, 2], *[f64[3]] * 2, eps=1e-3, bad="E0156")
    yield s(i32[2, 3], *[i32[3]] * 3, i32[2, 3], *[i32[3]] * 2, eps=1e-3, bad="E0106")


@batch_norm_grad_summed.samples
def _(s: Samples) -> Iterator[Sample]:
    for t, param, stat in _typed():
        c = t.shape[1]
        var, enough = s.uniform(stat[c], 0.5, 1.5), t.shape[0] > 0
        yield s(t, param[c], stat[c], var, t, *[stat[c]] * 4, eps=1e-3, gradient=enough)
    yield s(f64[3], *[f64[3]] * 3, f64[3], *[f64[3]] * 4, eps=1e-3, bad="E0157")
    yield s(f64[2, 3], *[f64[2]] * 3, f64[2, 3], *[f64[2]] * 4, eps=1e-3, bad="E0155")
    yield s(f64[2, 3], *[f64[3]] * 3, f64[3, 2], *[f64[3]] * 4, eps=1e-3, bad="E0156")
    yield s(f64[2, 3], *[f64[3]] * 3, f64[2, 3], *[f64[3]] * 3, f64[2], eps=1e-3, bad="E0156")
    yield s(i32[2, 3], *[i32[3]] * 3, i32[2, 3], *[i32[3]] * 4, eps=1e-3, bad="E0106")
