"""Losses as cells with MindSpore's arguments and defaults."""

from __future__ import annotations

from typing import Any

from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.compat.mindspore.nn.cell import Cell
from treadle.frontend import functions as fn
from treadle.frontend.lift import lift
from treadle.nn import functional as F


class LossBase(Cell):
    """Base of losses: `get_loss(x, weights)` reduces by "mean", "sum" or "none" (E0556 for another word)."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        if reduction not in ("mean", "sum", "none"):
            raise UserError("E0556", f"reduction is {reduction!r}", fix="use 'mean', 'sum' or 'none'")
        self.reduction = reduction

    def get_loss(self, x: Any, weights: Any = 1.0) -> Any:
        """weights * x, reduced."""
        x = x * weights
        return {"mean": fn.mean, "sum": fn.sum}[self.reduction](x) if self.reduction != "none" else x


_Loss = LossBase


class MSELoss(LossBase):
    """(logits - labels) ** 2."""

    def construct(self, logits: Any, labels: Any) -> Any:
        return self.get_loss(fn.square(logits - labels))


class L1Loss(LossBase):
    """|logits - labels|."""

    def construct(self, logits: Any, labels: Any) -> Any:
        return self.get_loss(fn.abs(logits - labels))


class MAELoss(L1Loss):
    """|logits - label|."""


class RMSELoss(LossBase):
    """The root of the mean of (logits - label) ** 2."""

    def __init__(self) -> None:
        super().__init__("mean")

    def construct(self, logits: Any, label: Any) -> Any:
        return fn.sqrt(fn.mean(fn.square(logits - label)))


class SmoothL1Loss(LossBase):
    """Squares below beta, distances above; not reduced unless told."""

    def __init__(self, beta: float = 1.0, reduction: str = "none") -> None:
        super().__init__(reduction)
        self.beta = beta

    def construct(self, logits: Any, labels: Any) -> Any:
        return F.smooth_l1_loss(logits, labels, self.reduction, self.beta)


class HuberLoss(LossBase):
    """Half squares up to delta, then delta * (distance - delta / 2)."""

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction)
        self.delta = delta

    def construct(self, logits: Any, labels: Any) -> Any:
        return F.huber_loss(logits, labels, self.reduction, self.delta)


class SoftmaxCrossEntropyWithLogits(LossBase):
    """-log(softmax(logits)) of the label, one number a row; not reduced unless told.

    sparse: labels are int[N]; else float[N, C], one-hot or probabilities.
    """

    def __init__(self, sparse: bool = False, reduction: str = "none") -> None:
        super().__init__(reduction)
        self.sparse = sparse

    def construct(self, logits: Any, labels: Any) -> Any:
        if self.sparse:
            return F.cross_entropy(logits, labels, ignore_index=None, reduction=self.reduction)
        return self.get_loss(-fn.sum(lift(labels) * fn.log_softmax(logits, -1), -1))


class CrossEntropyLoss(LossBase):
    """-log(softmax(logits)) of int labels [N, ...], or of probabilities of the logits' shape [N, C, ...]."""

    def __init__(
        self, weight: Any = None, ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0
    ) -> None:
        super().__init__(reduction)
        self.weight, self.ignore_index, self.label_smoothing = weight, ignore_index, label_smoothing

    def construct(self, logits: Any, labels: Any) -> Any:
        options = (self.weight, self.ignore_index, self.reduction, self.label_smoothing)
        return F.cross_entropy(logits, labels, *options)


class NLLLoss(LossBase):
    """-logits of the label, where logits are logarithms of probabilities."""

    def __init__(self, weight: Any = None, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.weight, self.ignore_index = weight, ignore_index

    def construct(self, logits: Any, labels: Any) -> Any:
        return F.nll_loss(logits, labels, self.weight, self.ignore_index, self.reduction)


class BCELoss(LossBase):
    """-(y * log(x) + (1 - y) * log(1 - x)) of probabilities x."""

    def __init__(self, weight: Any = None, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.weight = weight

    def construct(self, logits: Any, labels: Any) -> Any:
        return F.binary_cross_entropy(logits, labels, self.weight, self.reduction)


class BCEWithLogitsLoss(LossBase):
    """As `BCELoss`, of logits."""

    def __init__(self, reduction: str = "mean", weight: Any = None, pos_weight: Any = None) -> None:
        super().__init__(reduction)
        self.weight, self.pos_weight = weight, pos_weight

    def construct(self, logits: Any, labels: Any) -> Any:
        return F.binary_cross_entropy_with_logits(logits, labels, self.weight, self.reduction, self.pos_weight)


class KLDivLoss(Cell):
    """labels * (log(labels) - logits), where logits are logarithms; reduction also "batchmean"."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction

    def construct(self, logits: Any, labels: Any) -> Any:
        return F.kl_div(logits, labels, self.reduction)


class CosineEmbeddingLoss(LossBase):
    """1 - cos of pairs labelled 1; max(0, cos - margin) of those labelled -1."""

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin

    def construct(self, logits_x1: Any, logits_x2: Any, labels: Any) -> Any:
        return F.cosine_embedding_loss(logits_x1, logits_x2, labels, self.margin, self.reduction)


class FocalLoss(LossBase):
    """-(1 - p) ** gamma * log(p) of the label's probability p. logits: float[N, C, ...], labels: int[N, ...].

    Source: Lin et al. 2017, arXiv:1708.02002.
    """

    def __init__(self, weight: Any = None, gamma: float = 2.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.weight, self.gamma = weight, float(gamma)

    def construct(self, logits: Any, labels: Any) -> Any:
        logs = fn.log_softmax(logits, 1)
        chosen = fn.take_along_axis(logs, fn.expand_dims(labels, 1).astype(dtypes.int64), 1)
        loss = -fn.pow(1 - fn.exp(chosen), self.gamma) * chosen
        if self.weight is not None:
            loss = loss * fn.expand_dims(fn.take(self.weight, labels, 0), 1)
        return self.get_loss(loss)


__all__ = [
    "BCELoss",
    "BCEWithLogitsLoss",
    "CosineEmbeddingLoss",
    "CrossEntropyLoss",
    "FocalLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "LossBase",
    "MAELoss",
    "MSELoss",
    "NLLLoss",
    "RMSELoss",
    "SmoothL1Loss",
    "SoftmaxCrossEntropyWithLogits",
]
