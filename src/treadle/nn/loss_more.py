"""More losses as cells; see the functions of the same names for formulas, shapes and errors."""

from __future__ import annotations

from typing import Any

from treadle.frontend.tensor import Tensor
from treadle.nn import functional as F
from treadle.nn.loss import _Loss, _Weighted


class SmoothL1Loss(_Loss):
    """Quadratic below beta, linear above."""

    def __init__(self, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction)
        self.beta = beta

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.smooth_l1_loss(x, target, self.reduction, self.beta)


class BCELoss(_Weighted):
    """Binary cross entropy of chances; `BCEWithLogitsLoss` takes logits and loses no digits."""

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.binary_cross_entropy(x, target, self.weight, self.reduction)


class KLDivLoss(_Loss):
    """Kullback-Leibler divergence of log-probabilities x from the target; reduction "batchmean" is the divergence."""

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction)
        self.log_target = log_target

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.kl_div(x, target, self.reduction, self.log_target)


class SoftMarginLoss(_Loss):
    """log(1 + exp(-target * x)) for targets 1 or -1."""

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.soft_margin_loss(x, target, self.reduction)


class MultiLabelSoftMarginLoss(_Weighted):
    """Binary cross entropy of sigmoid(x), the mean over classes."""

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.multilabel_soft_margin_loss(x, target, self.weight, self.reduction)


class _Margin(_Loss):
    default = 0.0

    def __init__(self, margin: float | None = None, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.margin = self.default if margin is None else margin


class HingeEmbeddingLoss(_Margin):
    """x where the target is 1, max(0, margin - x) where it is -1; margin 1 unless given."""

    default = 1.0

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.hinge_embedding_loss(x, target, self.margin, self.reduction)


class MarginRankingLoss(_Margin):
    """max(0, -target * (x - y) + margin); margin 0 unless given."""

    def forward(self, x: Any, y: Any, target: Any) -> Tensor:
        return F.margin_ranking_loss(x, y, target, self.margin, self.reduction)


class CosineEmbeddingLoss(_Margin):
    """1 - cos(x, y) where the target is 1, max(0, cos(x, y) - margin) where it is -1; margin 0 unless given."""

    def forward(self, x: Any, y: Any, target: Any) -> Tensor:
        return F.cosine_embedding_loss(x, y, target, self.margin, self.reduction)


class TripletMarginLoss(_Loss):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin)."""

    def __init__(
        self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction)
        self.margin, self.p, self.eps, self.swap = margin, p, eps, swap

    def forward(self, anchor: Any, positive: Any, negative: Any) -> Tensor:
        options = (self.margin, self.p, self.eps, self.swap)
        return F.triplet_margin_loss(anchor, positive, negative, *options, reduction=self.reduction)


class PoissonNLLLoss(_Loss):
    """exp(x) - target * x, or x - target * log(x + eps) unless log_input."""

    def __init__(self, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.log_input, self.full, self.eps = log_input, full, eps

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.poisson_nll_loss(x, target, self.log_input, self.full, self.eps, self.reduction)


class GaussianNLLLoss(_Loss):
    """(log(var) + (x - target)**2 / var) / 2."""

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.full, self.eps = full, eps

    def forward(self, x: Any, target: Any, var: Any) -> Tensor:
        return F.gaussian_nll_loss(x, target, var, self.full, self.eps, self.reduction)
