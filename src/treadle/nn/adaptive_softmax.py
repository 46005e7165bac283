"""Losses of many classes: a softmax whose rare classes share small heads, and one that never holds all logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.frontend import functions as fn
from treadle.frontend.lift import cast, lift
from treadle.frontend.tensor import Tensor
from treadle.nn import functional as F
from treadle.nn.cell import Cell
from treadle.nn.containers import CellList, Sequential
from treadle.nn.functional.loss import _check_labels
from treadle.nn.linear import Linear
from treadle.ops.compare import greater_equal, less, logical_and, select
from treadle.ops.elementwise import maximum, minimum


class ASMoutput(NamedTuple):
    """output: log-probability of each target, [N]; loss: minus their mean."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Cell):
    """Log-probabilities of targets among n_classes, sorted from frequent to rare, and the loss.

    cutoffs: where clusters begin. Classes below the first cutoff and one entry per later cluster are in `head`; cluster
    i has a head of its own behind a projection to in_features / div_value ** (i + 1). Call: x float[N, in_features] and
    target int[N] (or one sample without N) -> (output float[N], loss). All heads are computed for all rows, for the
    shapes of a program cannot depend on the targets. A target out of range raises E0164 in eager mode and gives NaN in
    compiled functions. Raises E0566 for cutoffs that do not rise or shapes that do not fit.
    Source: Grave et al. 2017, arXiv:1609.04309.
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        dtype: Any = None,
    ) -> None:
        ends = [int(c) for c in cutoffs]
        if not ends or ends != sorted(set(ends)) or ends[0] < 1 or ends[-1] >= n_classes:
            raise UserError("E0566", f"cutoffs {ends} of {n_classes} classes", fix="give rising ints in 1..n_classes-1")
        self.in_features, self.n_classes, self.div_value = in_features, n_classes, div_value
        self.cutoffs = (*ends, n_classes)
        self.head = Linear(in_features, ends[0] + len(ends), bias=head_bias, dtype=dtype)
        self.tail = CellList()
        for i, (low, high) in enumerate(zip(self.cutoffs, self.cutoffs[1:], strict=False)):
            inner = max(1, int(in_features // div_value ** (i + 1)))
            outer = Linear(inner, high - low, bias=False, dtype=dtype)
            self.tail.append(Sequential(Linear(in_features, inner, bias=False, dtype=dtype), outer))

    def _logs(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Log-probabilities of the head's entries, and of each cluster's classes within it."""
        return fn.log_softmax(self.head(x), -1), [fn.log_softmax(part(x), -1) for part in self.tail]

    def forward(self, x: Any, target: Any) -> ASMoutput:
        x, target = lift(x), cast(lift(target), dtypes.int32)
        single = x.ndim == 1
        if single:
            x, target = x.reshape((1, -1)), target.reshape((1,))
        if x.ndim != 2 or x.shape[1] != self.in_features or target.shape != x.shape[:1]:
            why = f"the input is {x.type}, the target {target.type}"
            raise UserError("E0566", why, fix=f"give float[N, {self.in_features}] and int[N]")
        _check_labels(target, self.n_classes, None, type(self).__name__)
        head, tails = self._logs(x)
        first = self.cutoffs[0]
        output = _picked(head, minimum(target, first - 1))
        for i, (logs, low) in enumerate(zip(tails, self.cutoffs, strict=False)):
            inside = head[:, first + i] + _picked(logs, minimum(target - low, logs.shape[1] - 1))
            output = select(greater_equal(target, low), inside, output)
        known = logical_and(greater_equal(target, 0), less(target, self.n_classes))
        output = select(known, output, np.asarray(np.nan, output.dtype.np))
        loss = -fn.mean(output)
        return ASMoutput(output.reshape(()) if single else output, loss)

    def log_prob(self, x: Any) -> Tensor:
        """Log-probabilities of all classes: float[N, in_features] -> float[N, n_classes]."""
        head, tails = self._logs(lift(x))
        first = self.cutoffs[0]
        rest = [logs + head[:, first + i : first + i + 1] for i, logs in enumerate(tails)]
        made: Tensor = fn.concatenate([head[:, :first], *rest], 1)
        return made

    def predict(self, x: Any) -> Tensor:
        """The most likely class of each row: float[N, in_features] -> int64[N]."""
        found: Tensor = fn.argmax(self.log_prob(x), 1)
        return found

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.n_classes}, cutoffs={self.cutoffs[:-1]}, div_value={self.div_value}"


def _picked(logs: Any, place: Any) -> Any:
    """logs[n, place[n]]; places below 0 count as 0."""
    return fn.take_along_axis(logs, maximum(place, 0).reshape((-1, 1)), 1).reshape((-1,))


class LinearCrossEntropyLoss(Cell):
    """The cross entropy of a linear layer's results: loss(x, target), x float[N, in_features], target int[N].

    chunk: so many rows at a time, to save the memory of the logits. Options and errors as of `linear_cross_entropy`.
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        bias: bool = False,
        weight: Any = None,
        ignore_index: int | None = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        chunk: int | None = None,
        dtype: Any = None,
    ) -> None:
        self.linear = Linear(in_features, num_classes, bias, dtype)
        self.weight = None if weight is None else lift(weight)
        self.ignore_index, self.reduction = ignore_index, reduction
        self.label_smoothing, self.chunk = label_smoothing, chunk

    def forward(self, x: Any, target: Any) -> Tensor:
        layer = (self.linear.weight, target, self.linear.bias)
        options: Any = (self.weight, self.ignore_index, self.reduction, self.label_smoothing, self.chunk)
        return F.linear_cross_entropy(x, *layer, *options)

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}, chunk={self.chunk}"
