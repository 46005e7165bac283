"""A batch norm in evaluation folded into the layer before it: one layer fewer to run, the same function."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.nn.cell import Cell, Parameter


def fuse_conv_bn_eval(conv: Any, norm: Any, transpose: bool = False) -> Any:
    """A copy of the convolution that does what conv and then norm do; both must be in evaluation (E0566).

    transpose: for transposed convolutions, whose output channels are axis 1 of the weight.
    """
    return _fused(conv, norm, 1 if transpose else 0)


def fuse_linear_bn_eval(linear: Any, norm: Any) -> Any:
    """A copy of the linear layer that does what linear and then norm do; both must be in evaluation (E0566)."""
    return _fused(linear, norm, 0)


def _fused(layer: Cell, norm: Any, axis: int) -> Cell:
    weight: Any = layer.weight  # type: ignore[attr-defined]
    channels = weight.shape[axis] * (getattr(layer, "groups", 1) if axis else 1)
    if layer.training or norm.training or norm.running_mean is None:
        why = f"{type(layer).__name__} and {type(norm).__name__} in training, or without running statistics"
        raise UserError("E0566", why, fix="call net.eval() first")
    if norm.num_features != channels:
        why = f"a norm of {norm.num_features} channels after {type(layer).__name__} with {channels}"
        raise UserError("E0566", why, fix="fuse layers that follow each other")
    mean, var = (t.numpy().astype(np.float64) for t in (norm.running_mean, norm.running_var))
    gain = 1 if norm.weight is None else norm.weight.numpy().astype(np.float64)
    shift = 0 if norm.bias is None else norm.bias.numpy().astype(np.float64)
    scale = gain / np.sqrt(var + norm.eps)
    bias: Any = layer.bias  # type: ignore[attr-defined]
    start = 0 if bias is None else bias.numpy().astype(np.float64)
    made: Any = copy.deepcopy(layer)
    made.weight.assign((weight.numpy().astype(np.float64) * _along(scale, weight, axis, layer)).astype(weight.dtype.np))
    made.bias = Parameter(((start - mean) * scale + shift).astype(weight.dtype.np))
    return made  # type: ignore[no-any-return]


def _along(scale: Any, weight: Any, axis: int, layer: Cell) -> Any:
    """The scale of each output channel in the shape of the weight."""
    if axis == 0:
        return scale.reshape((-1, *[1] * (weight.ndim - 1)))
    groups = getattr(layer, "groups", 1)  # rows of the weight are input channels, group by group
    rows = np.repeat(scale.reshape(groups, -1), weight.shape[0] // groups, 0)
    return rows.reshape((*rows.shape, *[1] * (weight.ndim - 2)))
