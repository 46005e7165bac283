"""Margin losses of classes and of distances. reduction as in `loss`: "mean", "sum" or "none"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.frontend import functions as fn
from treadle.frontend.lift import cast, lift
from treadle.frontend.tensor import Tensor
from treadle.nn.functional.distance import pairwise_distance
from treadle.nn.functional.loss import _check_labels, _reduced
from treadle.ops.compare import equal, greater_equal, less, logical_and, logical_not, select
from treadle.ops.elementwise import maximum, minimum


def _rows(x: Any, target: Any, name: str, rank: int) -> tuple[Tensor, Tensor, bool]:
    """Scores [N, C] and integer targets (of `rank` axes), and whether N was missing. Raises E0555."""
    x, target = lift(x), lift(target)
    single = x.ndim == 1 and target.ndim == rank - 1
    if single:
        x, target = x.reshape((1, -1)), target.reshape((1, *target.shape))
    fits = x.ndim == 2 and target.ndim == rank and target.shape == x.shape[:rank] and target.dtype.is_integer
    if not fits:
        fix = f"give float[N, C] and int[{'N' if rank == 1 else 'N, C'}]"
        raise UserError("E0555", f"{name}: the input is {x.type}, the target {target.type}", fix=fix)
    return x, cast(target, dtypes.int32), single


def multi_margin_loss(
    x: Any, target: Any, p: int = 1, margin: float = 1.0, weight: Any = None, reduction: str = "mean"
) -> Tensor:
    """sum over i != y of max(0, margin - x[y] + x[i]) ** p, over C. x: float[N, C] or [C]; target y: int[N] or [].

    weight: float[C], by the class y. A target outside 0..C-1 raises E0164 in eager mode and gives NaN in compiled
    functions. Raises E0103 for p other than 1 and 2, E0555, E0556.
    """
    if p not in (1, 2):
        raise UserError("E0103", f"multi_margin_loss with p={p}", fix="use 1 or 2")
    x, target, single = _rows(x, target, "multi_margin_loss", 1)
    count, zero = x.shape[1], np.zeros((), x.dtype.np)
    _check_labels(target, count, None, "multi_margin_loss")
    here = equal(target.reshape((-1, 1)), np.arange(count, dtype=np.int32))
    right = fn.sum(select(here, x, zero), 1, keepdims=True)
    loss = maximum(margin - right + x, 0)
    loss = fn.sum(select(here, zero, loss * loss if p == 2 else loss), 1) / count
    if weight is not None:
        loss = loss * fn.sum(select(here, lift(weight), zero), 1)
    known = logical_and(greater_equal(target, 0), less(target, count))
    loss = _reduced(select(known, loss, np.asarray(np.nan, x.dtype.np)), reduction)
    return loss.reshape(()) if single and reduction == "none" else loss


def multilabel_margin_loss(x: Any, target: Any, reduction: str = "mean") -> Tensor:
    """sum over right classes j and wrong ones i of max(0, 1 - x[j] + x[i]), over C. x: float[N, C] or [C].

    target: int of x's shape: the right classes of a sample, then -1, then anything. Raises E0555, E0556.
    """
    x, target, single = _rows(x, target, "multilabel_margin_loss", 2)
    count, zero = x.shape[1], np.zeros((), x.dtype.np)
    ended = fn.cumsum(cast(less(target, 0), dtypes.int32), 1)
    listed = equal(ended, 0)
    places = np.arange(count, dtype=np.int32)
    chosen = logical_and(equal(target.reshape((-1, count, 1)), places), listed.reshape((-1, count, 1)))
    wrong = logical_not(fn.any(chosen, 1))
    right = fn.take_along_axis(x, minimum(maximum(target, 0), max(count - 1, 0)), 1)
    loss = maximum(1 - right.reshape((-1, count, 1)) + x.reshape((-1, 1, count)), 0)
    pairs = logical_and(listed.reshape((-1, count, 1)), wrong.reshape((-1, 1, count)))
    loss = _reduced(fn.sum(select(pairs, loss, zero), (1, 2)) / count, reduction)
    return loss.reshape(()) if single and reduction == "none" else loss


def triplet_margin_with_distance_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    distance_function: Callable[[Any, Any], Any] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), d the given function or the Euclidean distance.

    swap: the distance from the positive to the negative counts if it is smaller. Raises E0556.
    """
    distance = distance_function or pairwise_distance
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = minimum(far, distance(positive, negative))
    return _reduced(maximum(near - far + margin, 0), reduction)
