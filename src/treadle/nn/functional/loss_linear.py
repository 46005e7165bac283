"""The cross entropy of a linear layer's results, in chunks that keep the memory of the logits small."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle.api.control import scan
from treadle.api.gradients import checkpoint
from treadle.base.errors import UserError
from treadle.frontend import functions as fn
from treadle.frontend.lift import cast, lift
from treadle.frontend.shaping import concatenate
from treadle.frontend.tensor import Tensor
from treadle.nn.functional.basic import linear
from treadle.nn.functional.loss import cross_entropy
from treadle.ops.compare import equal, select


def linear_cross_entropy(
    x: Any,
    linear_weight: Any,
    target: Any,
    linear_bias: Any = None,
    weight: Any = None,
    ignore_index: int | None = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    chunk: int | None = None,
) -> Tensor:
    """cross_entropy(linear(x, linear_weight, linear_bias), target). x: float[N, D], target: int[N] (or float[N, C]).

    chunk: so many rows at a time, whose logits are made again for the gradient: float[chunk, C] instead of float[N, C]
    in memory. It needs class indices, an ignore_index, and the reduction "mean" or "sum" (else E0556). Other arguments
    and errors as of `cross_entropy`; E0555 for x with another number of axes in chunks.
    """
    x, target = lift(x), lift(target)
    if chunk is None:
        logits = linear(x, linear_weight, linear_bias)
        return cross_entropy(logits, target, weight, ignore_index, reduction, label_smoothing)
    if chunk < 1 or reduction not in ("mean", "sum") or ignore_index is None or target.dtype.is_float:
        why = f"linear_cross_entropy with chunk={chunk}, reduction={reduction!r}, ignore_index={ignore_index}"
        raise UserError("E0556", why, fix="give class indices, 'mean' or 'sum', an ignore_index, a chunk of 1 or more")
    if x.ndim != 2 or target.shape != x.shape[:1]:
        why = f"linear_cross_entropy in chunks: the input is {x.type}, the target {target.type}"
        raise UserError("E0555", why, fix="give float[N, D] and int[N]")
    rows = x.shape[0]
    missing = -rows % chunk
    kept = target
    if missing:  # rows that do not count fill the last chunk
        x = concatenate([x, np.zeros((missing, x.shape[1]), x.dtype.np)], 0)
        target = concatenate([target, np.full((missing,), ignore_index, target.dtype.np)], 0)
    options = (weight, ignore_index, "sum", label_smoothing)
    given = [lift(linear_weight)] if linear_bias is None else [lift(linear_weight), lift(linear_bias)]

    @checkpoint
    def part(rows: Any, labels: Any, *layer: Any) -> Any:
        return cross_entropy(linear(rows, *layer), labels, *options)

    def step(total: Any, now: Any) -> Any:
        return total + part(*now, *given), None

    kind = np.float32 if x.dtype.bits == 16 else x.dtype.np
    parts = (x.reshape((-1, chunk, x.shape[1])), target.reshape((-1, chunk)))
    total, _ = scan(step, lift(np.zeros((), kind)), parts) if parts[0].shape[0] else (lift(np.zeros((), kind)), None)
    if reduction == "sum":
        return total  # type: ignore[no-any-return]
    return total / _counted(kept, weight, ignore_index, total.dtype)  # type: ignore[no-any-return]


def _counted(target: Any, weight: Any, ignore_index: int, dtype: Any) -> Any:
    """How many targets count, or the sum of their weights."""
    ignored = equal(target, ignore_index)
    one, zero = np.ones((), dtype.np), np.zeros((), dtype.np)
    if weight is None:
        return fn.sum(select(ignored, zero, one))
    safe = select(ignored, np.zeros((), target.dtype.np), target)
    return fn.sum(select(ignored, zero, cast(fn.take(lift(weight), safe, 0), dtype)))
