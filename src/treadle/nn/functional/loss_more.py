"""More losses. reduction as in `loss`: "mean", "sum" or "none". Shapes are not broadcast unless the loss says so."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.frontend import functions as fn
from treadle.frontend.lift import lift
from treadle.frontend.tensor import Tensor
from treadle.nn.functional.activation import logsigmoid, softplus
from treadle.nn.functional.distance import pairwise_distance
from treadle.nn.functional.loss import _pair, _reduced, l1_loss
from treadle.ops.compare import equal, greater, less, select
from treadle.ops.elementwise import abs, maximum, minimum
from treadle.ops.functions import exp, log, log1p, sqrt


def smooth_l1_loss(x: Any, target: Any, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """d**2 / (2 * beta) where |d| < beta, else |d| - beta / 2, with d = x - target. Raises E0555, E0556."""
    if beta == 0:
        return l1_loss(x, target, reduction)
    x, target = _pair(x, target, "smooth_l1_loss")
    size = abs(x - target)
    return _reduced(select(less(size, beta), size * size * (0.5 / beta), size - beta / 2), reduction)


def binary_cross_entropy(x: Any, target: Any, weight: Any = None, reduction: str = "mean") -> Tensor:
    """-target * log(x) - (1 - target) * log(1 - x) of chances x, each logarithm at least -100. Raises E0555, E0556."""
    x, target = _pair(x, target, "binary_cross_entropy")
    loss = -target * maximum(log(x), -100.0) - (1 - target) * maximum(log1p(-x), -100.0)
    return _reduced(loss if weight is None else loss * lift(weight), reduction)


def kl_div(x: Any, target: Any, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """target * (log(target) - x): x holds log-probabilities, target probabilities (or their logs with log_target).

    reduction "batchmean": the sum over the number of samples (axis 0), which is the divergence. Raises E0555, E0556.
    """
    x, target = _pair(x, target, "kl_div")
    if log_target:
        loss = exp(target) * (target - x)
    else:
        there = greater(target, 0)
        logs = log(select(there, target, np.ones((), target.dtype.np)))
        loss = target * logs - target * x
    if reduction == "batchmean":
        mean: Tensor = _reduced(loss, "sum") / max(x.shape[0] if x.ndim else 1, 1)
        return mean
    return _reduced(loss, reduction)


def soft_margin_loss(x: Any, target: Any, reduction: str = "mean") -> Tensor:
    """log(1 + exp(-target * x)); targets are 1 or -1. Raises E0555, E0556."""
    x, target = _pair(x, target, "soft_margin_loss")
    return _reduced(softplus(-target * x), reduction)


def multilabel_soft_margin_loss(x: Any, target: Any, weight: Any = None, reduction: str = "mean") -> Tensor:
    """Binary cross entropy of sigmoid(x), the mean over classes (the last axis). Raises E0555, E0556."""
    x, target = _pair(x, target, "multilabel_soft_margin_loss")
    loss = -(target * logsigmoid(x) + (1 - target) * logsigmoid(-x))
    return _reduced(fn.mean(loss if weight is None else loss * lift(weight), -1), reduction)


def hinge_embedding_loss(x: Any, target: Any, margin: float = 1.0, reduction: str = "mean") -> Tensor:
    """x where the target is 1, max(0, margin - x) where it is -1. Raises E0555, E0556."""
    x, target = _pair(x, target, "hinge_embedding_loss")
    return _reduced(select(equal(target, 1), x, maximum(margin - x, 0)), reduction)


def margin_ranking_loss(x: Any, y: Any, target: Any, margin: float = 0.0, reduction: str = "mean") -> Tensor:
    """max(0, -target * (x - y) + margin); the target is 1 where x should be larger, else -1. Raises E0555, E0556."""
    x, y = _pair(x, y, "margin_ranking_loss")
    x, target = _pair(x, target, "margin_ranking_loss")
    return _reduced(maximum(-target * (x - y) + margin, 0), reduction)


def cosine_embedding_loss(x: Any, y: Any, target: Any, margin: float = 0.0, reduction: str = "mean") -> Tensor:
    """1 - cos(x, y) where the target is 1, max(0, cos(x, y) - margin) where it is -1. x, y: float[N, D], target: [N].

    Raises E0555, E0556.
    """
    x, y = _pair(x, y, "cosine_embedding_loss")
    below = sqrt((fn.sum(x * x, -1) + 1e-12) * (fn.sum(y * y, -1) + 1e-12))
    cosine, target = _pair(fn.sum(x * y, -1) / below, target, "cosine_embedding_loss")
    return _reduced(select(equal(target, 1), 1 - cosine, maximum(cosine - margin, 0)), reduction)


def triplet_margin_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), d the p-norm distance of vectors, float[..., D].

    swap: the distance from the positive to the negative counts if it is smaller. Raises E0555, E0556.
    """
    anchor, positive = _pair(anchor, positive, "triplet_margin_loss")
    anchor, negative = _pair(anchor, negative, "triplet_margin_loss")
    near, far = pairwise_distance(anchor, positive, p, eps), pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = minimum(far, pairwise_distance(positive, negative, p, eps))
    return _reduced(maximum(near - far + margin, 0), reduction)


def poisson_nll_loss(
    x: Any, target: Any, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: str = "mean"
) -> Tensor:
    """exp(x) - target * x, or x - target * log(x + eps) unless log_input; full: Stirling's term for targets above 1.

    Raises E0555, E0556.
    """
    x, target = _pair(x, target, "poisson_nll_loss")
    loss = exp(x) - target * x if log_input else x - target * log(x + eps)
    if full:
        large = greater(target, 1)
        t = select(large, target, np.ones((), target.dtype.np))
        loss = loss + select(large, t * log(t) - t + 0.5 * log(t * (2 * math.pi)), np.zeros((), t.dtype.np))
    return _reduced(loss, reduction)


def gaussian_nll_loss(
    x: Any, target: Any, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """(log(var) + (x - target)**2 / var) / 2, var at least eps; full: + log(2 pi) / 2. Raises E0555, E0556.

    var: of x's shape, or with a last axis of size 1 (or without it), which is then shared.
    """
    x, target = _pair(x, target, "gaussian_nll_loss")
    var = lift(var)
    if var.shape != x.shape:
        var = var.reshape((*var.shape, 1)) if var.shape == x.shape[:-1] else var
        if var.shape != (*x.shape[:-1], 1):
            raise UserError("E0555", f"gaussian_nll_loss: x is {x.type}, var {var.type}", fix="make the shapes equal")
    var = maximum(var, eps)
    loss = 0.5 * (log(var) + (x - target) * (x - target) / var)
    return _reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)
