"""Metrics of numbers that stream: R2, explained variance, correlations, relative and logarithmic errors.

As in `metrics`: `update(prediction, target)` takes arrays or tensors of one shape, `compute()` gives a float.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.train.metrics import Metric
from treadle.train.metrics_more import MeanSquaredError, Stored, _errors


class RootMeanSquaredError(MeanSquaredError):
    """The root of the mean of (prediction - target) ** 2 over all elements. Raises E0560 when the shapes differ."""

    name = "rmse"

    def compute(self) -> float:
        """The root of the mean."""
        return math.sqrt(super().compute())


class MeanAbsolutePercentageError(Metric):
    """The mean of |prediction - target| / max(|target|, eps), a share and not per cent. Raises E0560."""

    name = "mape"

    def __init__(self, eps: float = 2.220446049250313e-16) -> None:
        super().__init__()
        self.eps = eps

    def score(self, prediction: Any, target: Any) -> Any:
        return np.abs(_errors(prediction, target, self.name)) / np.maximum(np.abs(target.astype(np.float64)), self.eps)


class MeanSquaredLogError(Metric):
    """The mean of (log(1 + prediction) - log(1 + target)) ** 2. Raises E0560 for shapes or numbers below 0."""

    name = "msle"

    def score(self, prediction: Any, target: Any) -> Any:
        _errors(prediction, target, self.name)
        if (prediction < 0).any() or (target < 0).any():
            raise UserError("E0560", "msle of numbers below 0", fix="give numbers of 0 or more")
        return (np.log1p(prediction.astype(np.float64)) - np.log1p(target.astype(np.float64))) ** 2


class CosineSimilarity(Metric):
    """The mean over rows of the cosine between prediction and target: float[N, D] each. Raises E0560."""

    name = "cosine"

    def score(self, prediction: Any, target: Any) -> Any:
        _errors(prediction, target, self.name)
        x, y = prediction.astype(np.float64), target.astype(np.float64)
        lengths = np.linalg.norm(x, axis=-1) * np.linalg.norm(y, axis=-1)
        return (x * y).sum(-1) / np.maximum(lengths, np.finfo(np.float64).tiny)


class _Moments:
    """Count, means and sums of squared and mixed deviations of two streams.

    Batches are merged without the loss of digits of plain sums. Source: Chan et al. 1979, Stanford STAN-CS-79-773.
    """

    name = "moments"

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.count, self.means, self.sums = 0, np.zeros(3), np.zeros((3, 3))

    def update(self, prediction: Any, target: Any) -> None:
        """Add a batch. Raises E0560 when the shapes differ."""
        x, y = np.asarray(prediction), np.asarray(target)
        errors = _errors(x, y, self.name).ravel()
        if not errors.size:
            return
        columns = np.stack([x.ravel().astype(np.float64), y.ravel().astype(np.float64), errors])
        means = columns.mean(1)
        apart, total = means - self.means, self.count + errors.size
        inside = (columns - means[:, None]) @ (columns - means[:, None]).T
        self.sums = self.sums + inside + np.outer(apart, apart) * (self.count * errors.size / total)
        self.means, self.count = self.means + apart * (errors.size / total), total


def _ratio(top: float, bottom: float) -> float:
    """1 - top / bottom; 1 of a perfect fit, 0 where the target is constant but not met; NaN of nothing."""
    if bottom > 0:
        return 1 - top / bottom
    return 1.0 if top == 0 else 0.0


class R2Score(_Moments):
    """1 - sum of squared errors / sum of squared deviations of the target from its mean; NaN of under two numbers."""

    name = "r2"

    def compute(self) -> float:
        """The coefficient of determination."""
        squares = self.sums[2, 2] + self.count * self.means[2] ** 2
        return _ratio(float(squares), float(self.sums[1, 1])) if self.count > 1 else math.nan


class ExplainedVariance(_Moments):
    """1 - variance of the errors / variance of the target; NaN of under two numbers."""

    name = "explained_variance"

    def compute(self) -> float:
        """The share."""
        return _ratio(float(self.sums[2, 2]), float(self.sums[1, 1])) if self.count > 1 else math.nan


class PearsonCorrelation(_Moments):
    """The correlation of predictions and targets; NaN where one of them is constant."""

    name = "pearson"

    def compute(self) -> float:
        """From -1 to 1."""
        scale = math.sqrt(self.sums[0, 0]) * math.sqrt(self.sums[1, 1])
        return float(np.clip(self.sums[0, 1] / scale, -1, 1)) if scale > 0 else math.nan


class SpearmanCorrelation(Stored):
    """The correlation of the ranks, equal numbers sharing their mean rank. Keeps all numbers. Raises E0560."""

    name = "spearman"

    def compute(self) -> float:
        """From -1 to 1; NaN where one of them is constant."""
        x, y = self.values()
        pearson = PearsonCorrelation()
        pearson.update(_ranks(x), _ranks(y))
        return pearson.compute()


def _ranks(x: Any) -> Any:
    _, place, count = np.unique(x, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place]
