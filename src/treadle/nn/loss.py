"""Losses as cells. reduction: "mean", "sum" or "none"; see the functions of the same names for shapes and errors."""

from __future__ import annotations

from typing import Any

from treadle.frontend.lift import lift
from treadle.frontend.tensor import Tensor
from treadle.nn import functional as F
from treadle.nn.cell import Cell


class _Loss(Cell):
    def __init__(self, reduction: str = "mean") -> None:
        self.reduction = reduction

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}"


class MSELoss(_Loss):
    """(x - target) ** 2."""

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.mse_loss(x, target, self.reduction)


class L1Loss(_Loss):
    """|x - target|."""

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.l1_loss(x, target, self.reduction)


class HuberLoss(_Loss):
    """Quadratic near 0, linear beyond delta."""

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction)
        self.delta = delta

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.huber_loss(x, target, self.reduction, self.delta)


class _Weighted(_Loss):
    """weight is a buffer that is not saved with the model's state."""

    weight: Any

    def __init__(self, weight: Any = None, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.register_buffer("weight", None if weight is None else lift(weight), persistent=False)


class BCEWithLogitsLoss(_Weighted):
    """Binary cross entropy of sigmoid(x), without overflow."""

    pos_weight: Any

    def __init__(self, weight: Any = None, reduction: str = "mean", pos_weight: Any = None) -> None:
        super().__init__(weight, reduction)
        self.register_buffer("pos_weight", None if pos_weight is None else lift(pos_weight), persistent=False)

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.binary_cross_entropy_with_logits(x, target, self.weight, self.reduction, self.pos_weight)


class NLLLoss(_Weighted):
    """-x[n, target[n]] of log-probabilities x."""

    def __init__(self, weight: Any = None, ignore_index: int | None = -100, reduction: str = "mean") -> None:
        super().__init__(weight, reduction)
        self.ignore_index = ignore_index

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.nll_loss(x, target, self.weight, self.ignore_index, self.reduction)


class CrossEntropyLoss(_Weighted):
    """-log(softmax(x))[n, target[n]] of logits x."""

    def __init__(
        self,
        weight: Any = None,
        ignore_index: int | None = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, reduction)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.cross_entropy(x, target, self.weight, self.ignore_index, self.reduction, self.label_smoothing)
