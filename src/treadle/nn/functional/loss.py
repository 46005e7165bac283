"""Losses. reduction: "mean" (over all elements or samples), "sum", or "none" (one number each). Targets must have the
shape that the loss says; they are not broadcast."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.frontend import functions as fn
from treadle.frontend import trace as tracing
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


def _weighted(loss: Any, weight: Any, reduction: str, name: str) -> Tensor:
    """The loss of each element times its weight; the mean is over the weights. Raises E0555 for another shape."""
    if weight is None:
        return _reduced(loss, reduction)
    loss, weight = _pair(loss, weight, name)
    total = _reduced(loss * weight, "sum" if reduction == "mean" else reduction)
    mean: Tensor = total / fn.sum(weight) if reduction == "mean" else total
    return mean


def mse_loss(x: Any, target: Any, reduction: str = "mean", weight: Any = None) -> Tensor:
    """(x - target) ** 2. weight: one for each element; the mean is then over the weights.

    Raises E0555 when the shapes differ, E0556 for another reduction.
    """
    x, target = _pair(x, target, "mse_loss")
    difference = x - target
    return _weighted(difference * difference, weight, reduction, "mse_loss")


def l1_loss(x: Any, target: Any, reduction: str = "mean", weight: Any = None) -> Tensor:
    """|x - target|. weight and errors as of `mse_loss`."""
    x, target = _pair(x, target, "l1_loss")
    return _weighted(abs(x - target), weight, reduction, "l1_loss")


def huber_loss(x: Any, target: Any, reduction: str = "mean", delta: float = 1.0, weight: Any = None) -> Tensor:
    """d**2 / 2 where |d| <= delta, else delta * (|d| - delta / 2), with d = x - target. Raises as `mse_loss`.

    weight: one for each element; the mean is over the elements, as in PyTorch.

    Source: Huber 1964, doi:10.1214/aoms/1177703732.
    """
    x, target = _pair(x, target, "huber_loss")
    size = abs(x - target)
    loss = select(less_equal(size, delta), size * size * 0.5, (size - delta / 2) * delta)
    return _reduced(loss if weight is None else loss * _pair(loss, weight, "huber_loss")[1], reduction)


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
    if not target.dtype.is_integer:
        _refuse_labels(name, target)
    if x.ndim == 0 or (*x.shape[:axis], *x.shape[axis + 1 :]) != target.shape:
        fix = "give x as [N, C, ...] and the target as [N, ...], class indices"
        raise UserError("E0555", f"{name}: the input is {x.type}, the target {target.type}", fix=fix)
    moved: Tensor = x if axis == x.ndim - 1 else moveaxis(x, axis, -1)
    return moved


def _refuse_labels(name: str, target: Tensor) -> NoReturn:
    why = f"{name}: the class labels are {target.type}"
    raise UserError("E0160", why, fix="give the integer index of each class: target.astype(td.int64)")


def _check_labels(target: Tensor, classes: int, ignore_index: int | None, name: str) -> None:
    """Raise E0164 for a label that is no class, where the numbers are known (eager mode)."""
    if tracing.current() is None:
        labels = target.numpy()
        wrong = (labels < 0) | (labels >= classes)
        wrong = wrong if ignore_index is None else wrong & (labels != ignore_index)
        if wrong.any():
            why = f"{name}: the label {labels[wrong].flat[0]} of {classes} classes"
            raise UserError("E0164", why, fix=f"use 0 to {classes - 1}, or ignore_index where there is no label")


def _possible(ignore_index: int | None, target: Tensor) -> int | None:
    """None where no label can be the one to ignore: then nothing has to be counted."""
    unsigned = target.dtype.kind == "u" and ignore_index is not None and ignore_index < 0
    return None if unsigned else ignore_index


def nll_loss(
    x: Any, target: Any, weight: Any = None, ignore_index: int | None = -100, reduction: str = "mean"
) -> Tensor:
    """-x[n, target[n]]: x holds log-probabilities, float[N, C, ...]; target: int[N, ...].

    weight: float[C], one per class; the mean is over the weights of the samples. Samples whose target is `ignore_index`
    do not count. Another target outside 0..C-1 raises E0164 in eager mode and gives NaN in compiled functions. Raises
    E0160 for targets that are no integers, E0555, E0556.
    """
    x, target = lift(x), lift(target)
    ignore_index = _possible(ignore_index, target)
    moved = _classes_last(x, target, "nll_loss")
    _check_labels(target, moved.shape[-1], ignore_index, "nll_loss")
    return _picked(moved, target, weight, ignore_index, reduction, 0.0)


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
        if target.ndim == x.ndim - 1:
            _refuse_labels("cross_entropy", target)
        return _soft_cross_entropy(x, target, weight, reduction, label_smoothing)
    ignore_index = _possible(ignore_index, target)
    logits = _classes_last(x, target, "cross_entropy")
    _check_labels(target, logits.shape[-1], ignore_index, "cross_entropy")
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
