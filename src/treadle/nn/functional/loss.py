"""Losses. reduction: "mean" (over all elements or samples), "sum", or "none" (one number each). Targets must have the
shape that the loss says; they are not broadcast."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.frontend import functions as fn
from treadle.frontend.lift import cast, lift
from treadle.frontend.shaping import moveaxis, reshape
from treadle.frontend.tensor import Tensor
from treadle.ops import loss as loss_ops
from treadle.ops.activation import softplus
from treadle.ops.compare import equal, less_equal, select
from treadle.ops.elementwise import abs


def _reduced(loss: Any, reduction: str) -> Tensor:
    if reduction not in ("mean", "sum", "none"):
        raise UserError("E0556", f"reduction is {reduction!r}", fix="use 'mean', 'sum' or 'none'")
    made: Tensor = {"mean": fn.mean, "sum": fn.sum}[reduction](loss) if reduction != "none" else loss
    return made


def _pair(x: Any, target: Any, name: str) -> tuple[Tensor, Tensor]:
    x, target = lift(x), lift(target)
    if x.shape != target.shape:
        why = f"{name}: the input is {x.type}, the target {target.type}"
        raise UserError("E0555", why, fix="make the shapes equal")
    return x, cast(target, x.dtype) if x.dtype.is_float else target


def mse_loss(x: Any, target: Any, reduction: str = "mean") -> Tensor:
    """(x - target) ** 2. Raises E0555 when the shapes differ, E0556 for another reduction."""
    x, target = _pair(x, target, "mse_loss")
    difference = x - target
    return _reduced(difference * difference, reduction)


def l1_loss(x: Any, target: Any, reduction: str = "mean") -> Tensor:
    """|x - target|. Raises as `mse_loss`."""
    x, target = _pair(x, target, "l1_loss")
    return _reduced(abs(x - target), reduction)


def huber_loss(x: Any, target: Any, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """d**2 / 2 where |d| <= delta, else delta * (|d| - delta / 2), with d = x - target. Raises as `mse_loss`.

    Source: Huber 1964, doi:10.1214/aoms/1177703732.
    """
    x, target = _pair(x, target, "huber_loss")
    size = abs(x - target)
    return _reduced(select(less_equal(size, delta), size * size * 0.5, (size - delta / 2) * delta), reduction)


def binary_cross_entropy_with_logits(
    x: Any, target: Any, weight: Any = None, reduction: str = "mean", pos_weight: Any = None
) -> Tensor:
    """-target * log(p) - (1 - target) * log(1 - p) with p = sigmoid(x), without overflow. Raises as `mse_loss`.

    weight multiplies the loss of each element, pos_weight that of the positive targets.
    """
    x, target = _pair(x, target, "binary_cross_entropy_with_logits")
    negative = softplus(-x)
    if pos_weight is not None:
        negative = negative * (1 + (lift(pos_weight) - 1) * target)
    loss = (1 - target) * x + negative
    return _reduced(loss if weight is None else loss * lift(weight), reduction)


def _classes_last(x: Tensor, target: Tensor, name: str) -> Tensor:
    """x with its class axis (1, or 0 of a single sample) at the end. Raises E0555 when the target does not fit."""
    axis = min(1, x.ndim - 1)
    if x.ndim == 0 or (*x.shape[:axis], *x.shape[axis + 1 :]) != target.shape:
        fix = "give x as [N, C, ...] and the target as [N, ...], class indices"
        raise UserError("E0555", f"{name}: the input is {x.type}, the target {target.type}", fix=fix)
    moved: Tensor = x if axis == x.ndim - 1 else moveaxis(x, axis, -1)
    return moved


def nll_loss(
    x: Any, target: Any, weight: Any = None, ignore_index: int | None = -100, reduction: str = "mean"
) -> Tensor:
    """-x[n, target[n]]: x holds log-probabilities, float[N, C, ...]; target: int[N, ...].

    weight: float[C], one per class; the mean is over the weights of the samples. Samples whose target is `ignore_index`
    do not count. Another target outside 0..C-1 gives NaN. Raises E0555, E0556.
    """
    x, target = lift(x), lift(target)
    return _picked(_classes_last(x, target, "nll_loss"), target, weight, ignore_index, reduction, 0.0)


def cross_entropy(
    x: Any,
    target: Any,
    weight: Any = None,
    ignore_index: int | None = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """-log(softmax(x))[n, target[n]]. x: float[N, C, ...] logits; target: int[N, ...], or probabilities of x's shape.

    weight, ignore_index and targets out of range: as `nll_loss`. label_smoothing: this share of each target is spread
    over all classes (Szegedy et al. 2016, arXiv:1512.00567). 16-bit logits give a float32 loss. Raises E0555, E0556.
    """
    x, target = lift(x), lift(target)
    if target.dtype.is_float:
        return _soft_cross_entropy(x, target, weight, reduction, label_smoothing)
    logits = _classes_last(x, target, "cross_entropy")
    if weight is not None or label_smoothing:
        wide = cast(logits, dtypes.float32) if logits.dtype.bits == 16 else logits
        return _picked(fn.log_softmax(wide, -1), target, weight, ignore_index, reduction, label_smoothing)
    loss = loss_ops.cross_entropy(logits, target, ignore_index=ignore_index)
    if ignore_index is None or reduction != "mean":
        return _reduced(loss, reduction)
    counted = select(equal(target, ignore_index), np.zeros((), loss.dtype.np), np.ones((), loss.dtype.np))
    mean: Tensor = fn.sum(loss) / fn.sum(counted)
    return mean


def _soft_cross_entropy(x: Tensor, target: Tensor, weight: Any, reduction: str, smoothing: float) -> Tensor:
    """Against probabilities of each class."""
    x, target = _pair(x, target, "cross_entropy")
    axis = min(1, x.ndim - 1)
    if smoothing:
        target = target * (1 - smoothing) + smoothing / x.shape[axis]
    logs = fn.log_softmax(x, axis)
    if weight is not None:
        logs = logs * reshape(lift(weight), [-1 if i == axis else 1 for i in range(x.ndim)])
    return _reduced(-fn.sum(target * logs, axis), reduction)


def _picked(
    logs: Tensor, target: Tensor, weight: Any, ignore_index: int | None, reduction: str, smoothing: float
) -> Tensor:
    """Losses from log-probabilities, classes last."""
    classes = logs.shape[-1]
    weights = np.ones(classes, logs.dtype.np) if weight is None else cast(lift(weight), logs.dtype)
    chosen = fn.one_hot(target, classes, logs.dtype)
    weight_n = fn.sum(chosen * weights, -1)
    loss = -fn.sum(select(equal(chosen, 1), logs, 0) * weights, -1)
    if smoothing:
        even = -fn.sum(logs * weights, -1)
        loss = loss * (1 - smoothing) + even * (smoothing / classes)
    known = equal(fn.sum(chosen, -1), 1)
    zero, nan = np.zeros((), logs.dtype.np), np.asarray(np.nan, logs.dtype.np)
    if ignore_index is None:
        loss, weight_n = select(known, loss, nan), select(known, weight_n, nan)
    else:
        ignored = equal(target, ignore_index)
        loss = select(ignored, zero, select(known, loss, nan))
        weight_n = select(ignored, zero, weight_n)
    if reduction != "mean":
        return _reduced(loss, reduction)
    mean: Tensor = fn.sum(loss) / fn.sum(weight_n)
    return mean
