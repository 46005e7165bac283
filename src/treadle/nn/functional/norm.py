"""Normalisations. Float tensors in, tensors of the same type and shape out; 16-bit floats keep float32 sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.frontend.lift import cast, lift
from treadle.frontend.tensor import Tensor
from treadle.ops import norm as ops
from treadle.ops.norm_batch import batch_norm as batch_norm_op
from treadle.ops.norm_batch import batch_norm_inference
from treadle.ops.reduce import wide_dtype
from treadle.ops.shape import reshape


def _shape_of(normalized_shape: Any) -> tuple[int, ...]:
    return (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)


def _check(x: Tensor, shape: tuple[int, ...]) -> None:
    if not shape or x.shape[x.ndim - len(shape) :] != shape or x.ndim < len(shape):
        raise UserError("E0544", f"normalized_shape is {list(shape)}, x is {x.type}", fix="give the last sizes of x")


def layer_norm(x: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias, mean and variance over the last axes, of sizes `normalized_shape`.

    Source: Ba et al. 2016, arXiv:1607.06450. Raises E0544 when x does not end in normalized_shape.
    """
    x, shape = lift(x), _shape_of(normalized_shape)
    _check(x, shape)
    scale = np.ones(shape, x.dtype.np) if weight is None else lift(weight)
    shift = np.zeros(shape, x.dtype.np) if bias is None else lift(bias)
    y: Tensor = ops.layer_norm(x, scale, shift, axes_count=len(shape), eps=float(eps))
    return y


def rms_norm(x: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Tensor:
    """x / sqrt(mean(x**2) + eps) * weight over the last axes, of sizes `normalized_shape`. eps None: machine epsilon.

    Source: Zhang & Sennrich 2019, arXiv:1910.07467. Raises E0544 when x does not end in normalized_shape.
    """
    x, shape = lift(x), _shape_of(normalized_shape)
    _check(x, shape)
    scale = np.ones(shape, x.dtype.np) if weight is None else lift(weight)
    small = float(np.finfo(wide_dtype(x.dtype).np).eps) if eps is None else float(eps)
    y: Tensor = ops.rms_norm(x, scale, axes_count=len(shape), eps=small)
    return y


def group_norm(x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    """Mean and variance over each of `num_groups` groups of channels and all spatial axes. x: float[N, C, *s].

    weight, bias: float[C]. Source: Wu & He 2018, arXiv:1803.08494. Raises E0545 when the groups do not divide C.
    """
    x = lift(x)
    if x.ndim < 2 or num_groups < 1 or x.shape[1] % num_groups:
        why = f"{num_groups} groups of the channels of {x.type}"
        raise UserError("E0545", why, fix="use groups that divide axis 1")
    grouped = reshape(x, shape=(x.shape[0], num_groups, x.size // max(x.shape[0] * num_groups, 1)))
    y: Tensor = reshape(layer_norm(grouped, grouped.shape[2:], eps=eps), shape=x.shape)
    spatial = (1,) * (x.ndim - 2)
    if weight is not None:
        y = y * reshape(lift(weight), shape=(x.shape[1], *spatial))
    return y if bias is None else y + reshape(lift(bias), shape=(x.shape[1], *spatial))


def batch_norm(
    x: Any,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias for each channel. x: float[N, C, *s], the others float[C].

    training: statistics of this batch, and the running ones become (1 - momentum) * old + momentum * new, the variance
    with n - 1 in the divisor; else the running statistics are used. Source: Ioffe & Szegedy 2015, arXiv:1502.03167.
    Raises E0546 when statistics are wanted that are not there, or of a single value.
    """
    x = lift(x)
    channels = x.shape[1:2]
    stat = wide_dtype(x.dtype)
    scale = np.ones(channels, stat.np) if weight is None else lift(weight)
    shift = np.zeros(channels, stat.np) if bias is None else lift(bias)
    if not training:
        if running_mean is None or running_var is None:
            raise UserError("E0546", "batch_norm without running statistics", fix="pass them, or training=True")
        mean, var = cast(running_mean, stat), cast(running_var, stat)
        fixed: Tensor = batch_norm_inference(x, scale, shift, mean, var, eps=float(eps))
        return fixed
    count = x.size // max(channels[0] if channels else 1, 1)
    if count == 1:
        raise UserError("E0546", f"batch statistics of one value per channel: x is {x.type}", fix="use a larger batch")
    y, mean, var = batch_norm_op(x, scale, shift, eps=float(eps))
    if running_mean is not None and running_var is not None and count:
        running_mean.assign(running_mean * (1 - momentum) + mean * momentum)
        running_var.assign(running_var * (1 - momentum) + var * (momentum * count / (count - 1)))
    made: Tensor = y
    return made
