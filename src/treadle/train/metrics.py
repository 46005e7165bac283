"""Metrics, batch by batch: `update(prediction, target)` takes arrays or tensors, `compute()` gives a float."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle.base import arguments
from treadle.base.errors import UserError


class Mean:
    """The mean of numbers seen so far, each with a weight; NaN of none."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.total, self.count = 0.0, 0.0

    def update(self, value: float, weight: float = 1.0) -> None:
        """Add a number that stands for `weight` samples."""
        self.total += float(value) * weight
        self.count += weight

    def compute(self) -> float:
        """The mean."""
        return self.total / self.count if self.count else float("nan")


class Metric:
    """Base: the mean over samples of `score(prediction, target)`, one number per sample. `name` labels it."""

    name = "metric"

    def __init__(self) -> None:
        self.mean = Mean()

    def score(self, prediction: Any, target: Any) -> Any:
        """One number per sample; arrays in."""
        raise UserError("E0560", f"{type(self).__name__} defines no score", fix="define score(prediction, target)")

    def reset(self) -> None:
        """Forget everything."""
        self.mean.reset()

    def update(self, prediction: Any, target: Any) -> None:
        """Add a batch."""
        given = arguments.array(prediction, "the prediction"), arguments.array(target, "the target")
        scores = np.asarray(self.score(*given), np.float64)
        if scores.size:
            self.mean.update(float(scores.mean()), scores.size)

    def compute(self) -> float:
        """The mean over all samples since the last reset."""
        return self.mean.compute()


def _fit(prediction: Any, target: Any, name: str) -> None:
    if prediction.ndim < 2 or (prediction.shape[0], *prediction.shape[2:]) != target.shape:
        why = f"{name}: predictions of shape {list(prediction.shape)}, targets of {list(target.shape)}"
        raise UserError("E0560", why, fix="give scores [N, C, ...] and class indices [N, ...]")


class Accuracy(Metric):
    """The share of samples whose largest score (axis 1) is at the target; of a single score: above 0 is class 1.

    Prediction: float[N, C, ...], target: int[N, ...]; or both [N]. Raises E0560 when they do not fit.
    """

    name = "accuracy"

    def score(self, prediction: Any, target: Any) -> Any:
        if prediction.shape == target.shape:
            return (prediction > 0) == (target > 0.5)
        _fit(prediction, target, self.name)
        return prediction.argmax(1) == target


class TopK(Metric):
    """The share of samples whose target is among the k largest scores (axis 1). Raises E0560 when they do not fit."""

    def __init__(self, k: int) -> None:
        super().__init__()
        k = arguments.count(k, "k", 1, "E0560")
        self.k, self.name = k, f"top{k}"

    def score(self, prediction: Any, target: Any) -> Any:
        _fit(prediction, target, self.name)
        k = min(self.k, prediction.shape[1])
        best = np.argpartition(-prediction, k - 1, axis=1)[:, :k]
        return (best == target[:, None]).any(1)
