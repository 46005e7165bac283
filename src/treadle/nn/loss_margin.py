"""Margin losses and the loss of unaligned sequences as cells; see the functions of the same names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from treadle.frontend.tensor import Tensor
from treadle.nn import functional as F
from treadle.nn.loss import _Loss, _Weighted


class CTCLoss(_Loss):
    """-log of the chance that an alignment of the sequence reads as its target. See `ctc_loss` for shapes and errors.

    log_probs: float[T, N, C]; targets: int[N, S]; input_lengths, target_lengths: int[N].
    """

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(reduction)
        self.blank, self.zero_infinity = blank, zero_infinity

    def forward(self, log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any) -> Tensor:
        options = (self.blank, self.reduction, self.zero_infinity)
        return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, *options)


class MultiMarginLoss(_Weighted):
    """sum over i != y of max(0, margin - x[y] + x[i]) ** p, over the number of classes."""

    def __init__(self, p: int = 1, margin: float = 1.0, weight: Any = None, reduction: str = "mean") -> None:
        super().__init__(weight, reduction)
        self.p, self.margin = p, margin

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.multi_margin_loss(x, target, self.p, self.margin, self.weight, self.reduction)


class MultiLabelMarginLoss(_Loss):
    """sum over right classes j and wrong ones i of max(0, 1 - x[j] + x[i]), over the number of classes."""

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.multilabel_margin_loss(x, target, self.reduction)


class TripletMarginWithDistanceLoss(_Loss):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin) with any distance d."""

    def __init__(
        self,
        *,
        distance_function: Callable[[Any, Any], Any] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction)
        self.distance_function, self.margin, self.swap = distance_function, margin, swap

    def forward(self, anchor: Any, positive: Any, negative: Any) -> Tensor:
        options = (self.distance_function, self.margin, self.swap, self.reduction)
        return F.triplet_margin_with_distance_loss(anchor, positive, negative, *options)
