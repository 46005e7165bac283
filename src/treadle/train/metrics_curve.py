"""Metrics of scores and chances: precision-recall and ROC curves, average precision, log loss, Brier, calibration.

As in `metrics`: `update(prediction, target)` takes arrays or tensors. Where the order of all scores counts, all stay.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.train.metrics import Metric, _fit
from treadle.train.metrics_more import Stored


class _Ranked(Stored):
    """Scores of two classes, float[N], and targets 0 or 1, [N]. Raises E0560 for anything else."""

    def check(self, scores: Any, targets: Any) -> None:
        if not np.isin(targets, (0, 1)).all() or np.isnan(scores).any():
            raise UserError("E0560", f"{self.name}: targets other than 0 and 1, or NaN", fix="give scores and 0 or 1")

    def counts(self) -> tuple[Any, Any, Any]:
        """(right, wrong, threshold): samples of class 1 and 0 that score at least each threshold, falling."""
        scores, targets = self.values()
        order = np.argsort(-scores, kind="stable")
        scores, positive = scores[order], targets[order] == 1
        last = np.append(np.flatnonzero(np.diff(scores)), len(scores) - 1) if len(scores) else np.zeros(0, int)
        return np.cumsum(positive)[last], np.cumsum(~positive)[last], scores[last]


class ROC(_Ranked):
    """(false positive rate, true positive rate, threshold) at each threshold, falling, after (0, 0, infinity)."""

    name = "roc"

    def compute(self) -> tuple[Any, Any, Any]:
        """Three arrays of equal length; rates are NaN while their class is missing."""
        right, wrong, thresholds = self.counts()
        rates = [np.append(0.0, n / n[-1] if len(n) and n[-1] else np.full(len(n), math.nan)) for n in (wrong, right)]
        return rates[0], rates[1], np.append(math.inf, thresholds)


class PrecisionRecallCurve(_Ranked):
    """(precision, recall, threshold) at each threshold, rising; then (1, 0), which has no threshold."""

    name = "precision_recall"

    def compute(self) -> tuple[Any, Any, Any]:
        """Three arrays, the last one shorter by one; recall is NaN while class 1 is missing."""
        right, wrong, thresholds = self.counts()
        recall = right / right[-1] if len(right) and right[-1] else np.full(len(right), math.nan)
        precision = right / (right + wrong)
        return np.append(precision[::-1], 1.0), np.append(recall[::-1], 0.0), thresholds[::-1]


class AveragePrecision(PrecisionRecallCurve):
    """The mean precision over the steps in recall. NaN while class 1 is missing."""

    name = "average_precision"

    def compute(self) -> float:  # type: ignore[override]
        """From 0 to 1."""
        precision, recall, _ = super().compute()
        return float(-(np.diff(recall) * precision[:-1]).sum()) if len(recall) > 1 else math.nan


def _chances(prediction: Any, target: Any, name: str) -> Any:
    """float[N, C] chances of samples; raises E0560 unless they are within 0..1 and the targets name classes."""
    _fit(prediction, target, name)
    rows = np.moveaxis(prediction.astype(np.float64), 1, -1).reshape(-1, prediction.shape[1])
    if rows.size and (rows.min() < 0 or rows.max() > 1 + 1e-6):
        raise UserError("E0560", f"{name}: chances outside 0 to 1", fix="give softmax(logits)")
    if target.size and (target.min() < 0 or target.max() >= prediction.shape[1]):
        raise UserError("E0560", f"{name}: classes from {target.min()} to {target.max()}", fix="use 0 to C - 1")
    return rows


class LogLoss(Metric):
    """The mean of -log(chance of the target's class). Prediction: chances float[N, C, ...]; target: int[N, ...]."""

    name = "log_loss"

    def score(self, prediction: Any, target: Any) -> Any:
        rows = _chances(prediction, target, self.name)
        picked = rows[np.arange(len(rows)), target.ravel()]
        return -np.log(np.maximum(picked, np.finfo(np.float64).eps))


class BrierScore(Metric):
    """The mean over samples of the sum over classes of (chance - 1 if it is the target's) ** 2; as `LogLoss`."""

    name = "brier"

    def score(self, prediction: Any, target: Any) -> Any:
        rows = _chances(prediction, target, self.name)
        wanted = np.arange(rows.shape[1]) == target.reshape(-1, 1)
        return ((rows - wanted) ** 2).sum(1)


class CalibrationError:
    """The gap between the chance of the most likely class and how often it is right, over bins of equal width.

    norm: "l1" (the mean over samples, the expected calibration error) or "max" (the largest gap). Shapes as `LogLoss`.
    Source: Guo et al. 2017, arXiv:1706.04599. Raises E0560.
    """

    name = "calibration_error"

    def __init__(self, bins: int = 15, norm: str = "l1") -> None:
        if bins < 1 or norm not in ("l1", "max"):
            raise UserError("E0560", f"bins={bins}, norm={norm!r}", fix="give 1 or more bins and 'l1' or 'max'")
        self.bins, self.norm = bins, norm
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.sums = np.zeros((3, self.bins))  # samples, chances, right ones

    def update(self, prediction: Any, target: Any) -> None:
        """Add a batch."""
        found, wanted = np.asarray(prediction), np.asarray(target)
        rows = _chances(found, wanted, self.name)
        top = rows.max(1)
        bin = np.clip(np.ceil(top * self.bins).astype(int) - 1, 0, self.bins - 1)
        right = rows.argmax(1) == wanted.ravel()
        self.sums += [np.bincount(bin, w, self.bins) for w in (np.ones(len(top)), top, right.astype(np.float64))]

    def compute(self) -> float:
        """From 0 to 1; NaN of no samples."""
        count, chance, right = self.sums
        if not count.sum():
            return math.nan
        gaps = np.abs(chance - right)
        return float(gaps.sum() / count.sum() if self.norm == "l1" else (gaps / np.maximum(count, 1)).max())
