"""More metrics that stream: counts of classes, precision, recall, F1, AUROC, errors, perplexity.

As in `metrics`: `update(prediction, target)` takes arrays or tensors, `compute()` gives a float (the confusion matrix
an array), `reset()` forgets. Classes: scores float[N, C, ...] (the largest counts) or class indices int[N, ...].
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.train.metrics import Metric, _fit


class ConfusionMatrix:
    """int[C, C]: how often class i (row) was taken for class j (column). Raises E0560 for what does not fit."""

    name = "confusion_matrix"

    def __init__(self, num_classes: int) -> None:
        if num_classes < 1:
            raise UserError("E0560", f"num_classes is {num_classes}", fix="give 1 or more")
        self.num_classes = num_classes
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.counts = np.zeros((self.num_classes, self.num_classes), np.int64)

    def update(self, prediction: Any, target: Any) -> None:
        """Add a batch."""
        found, wanted = np.asarray(prediction), np.asarray(target)
        if found.shape != wanted.shape:
            _fit(found, wanted, self.name)
            found = found.argmax(1)
        elif found.dtype.kind == "f":
            found = (found > 0).astype(np.int64)
        for places in (found, wanted):
            if places.size and (places.min() < 0 or places.max() >= self.num_classes):
                why = f"{self.name}: classes from {places.min()} to {places.max()}"
                raise UserError("E0560", why, fix=f"use 0 to {self.num_classes - 1}")
        flat = wanted.astype(np.int64).ravel() * self.num_classes + found.astype(np.int64).ravel()
        self.counts += np.bincount(flat, minlength=self.num_classes**2).reshape(self.counts.shape)

    def compute(self) -> Any:
        """The matrix."""
        return self.counts.copy()


class _OfCounts(ConfusionMatrix):
    """average: "macro" (the mean over the classes that occur), "micro" (all samples together), or "binary" (class 1).

    0 where nothing is counted. Raises E0560.
    """

    def __init__(self, num_classes: int = 2, average: str = "macro") -> None:
        if average not in ("macro", "micro", "binary") or (average == "binary" and num_classes != 2):
            why = f"average is {average!r} for {num_classes} classes"
            raise UserError("E0560", why, fix="use 'macro', 'micro', or 'binary' of 2 classes")
        super().__init__(num_classes)
        self.average = average

    def ratio(self, right: Any, found: Any, wanted: Any) -> Any:
        """The number for each class from its counts of right, found and wanted samples."""
        raise UserError("E0560", f"{type(self).__name__} defines no ratio", fix="define ratio(right, found, wanted)")

    def compute(self) -> float:
        """The average."""
        right, found, wanted = np.diag(self.counts), self.counts.sum(0), self.counts.sum(1)
        if self.average == "micro":
            return float(self.ratio(right.sum(), found.sum(), wanted.sum()))
        each = self.ratio(right, found, wanted)
        if self.average == "binary":
            return float(each[1])
        occurs = (found + wanted) > 0
        return float(each[occurs].mean()) if occurs.any() else 0.0


def _share(part: Any, whole: Any) -> Any:
    return np.where(whole > 0, part / np.maximum(whole, 1), 0.0)


class Precision(_OfCounts):
    __doc__ = f"""The share of the samples taken for a class that are of it. {_OfCounts.__doc__}"""
    name = "precision"

    def ratio(self, right: Any, found: Any, wanted: Any) -> Any:
        return _share(right, found)


class Recall(_OfCounts):
    __doc__ = f"""The share of the samples of a class that are taken for it. {_OfCounts.__doc__}"""
    name = "recall"

    def ratio(self, right: Any, found: Any, wanted: Any) -> Any:
        return _share(right, wanted)


class F1(_OfCounts):
    __doc__ = f"""The harmonic mean of precision and recall of each class. {_OfCounts.__doc__}"""
    name = "f1"

    def ratio(self, right: Any, found: Any, wanted: Any) -> Any:
        return _share(2 * right, found + wanted)


class Stored:
    """Base of metrics that need all numbers at once: keeps predictions and targets of one shape. Raises E0560."""

    name = "stored"

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.scores: list[Any] = []
        self.targets: list[Any] = []

    def check(self, scores: Any, targets: Any) -> None:
        """Raise E0560 for what does not fit."""

    def update(self, prediction: Any, target: Any) -> None:
        """Add a batch."""
        scores, targets = np.asarray(prediction, np.float64), np.asarray(target, np.float64)
        if scores.shape != targets.shape:
            why = f"{self.name}: scores of shape {list(scores.shape)}, targets of {list(targets.shape)}"
            raise UserError("E0560", why, fix="give one score per target")
        self.check(scores, targets)
        self.scores.append(scores.ravel())
        self.targets.append(targets.ravel())

    def values(self) -> tuple[Any, Any]:
        """All predictions and targets, [n] each."""
        return tuple([np.concatenate([np.zeros(0), *parts]) for parts in (self.scores, self.targets)])  # type: ignore[return-value]


class AUROC(Stored):
    """The chance that a sample of class 1 scores higher than one of class 0, ties counting half; exact.

    Prediction: float[N], target: 0 or 1, [N]. Keeps all scores. NaN while a class is missing. Raises E0560.
    """

    name = "auroc"

    def check(self, scores: Any, targets: Any) -> None:
        if not np.isin(targets, (0, 1)).all():
            raise UserError("E0560", "auroc: targets other than 0 and 1", fix="give targets 0 or 1")

    def compute(self) -> float:
        """The area under the curve, from the ranks of the scores."""
        scores, targets = self.values()
        positive = targets == 1
        few, many = int(positive.sum()), int((~positive).sum())
        if not few or not many:
            return math.nan
        _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
        ranks = (np.cumsum(count) - (count - 1) / 2)[place]
        return float((ranks[positive].sum() - few * (few + 1) / 2) / (few * many))


def _errors(prediction: Any, target: Any, name: str) -> Any:
    if prediction.shape != target.shape:
        why = f"{name}: predictions of shape {list(prediction.shape)}, targets of {list(target.shape)}"
        raise UserError("E0560", why, fix="make the shapes equal")
    return prediction.astype(np.float64) - target.astype(np.float64)


class MeanSquaredError(Metric):
    """The mean of (prediction - target) ** 2 over all elements. Raises E0560 when the shapes differ."""

    name = "mse"

    def score(self, prediction: Any, target: Any) -> Any:
        return _errors(prediction, target, self.name) ** 2


class MeanAbsoluteError(Metric):
    """The mean of |prediction - target| over all elements. Raises E0560 when the shapes differ."""

    name = "mae"

    def score(self, prediction: Any, target: Any) -> Any:
        return np.abs(_errors(prediction, target, self.name))


class Perplexity(Metric):
    """exp of the mean cross entropy of logits float[N, C, ...] and classes int[N, ...]; `ignore_index` does not count.

    Raises E0560 when they do not fit.
    """

    name = "perplexity"

    def __init__(self, ignore_index: int | None = -100) -> None:
        super().__init__()
        self.ignore_index = ignore_index

    def score(self, prediction: Any, target: Any) -> Any:
        _fit(prediction, target, self.name)
        logits = np.moveaxis(prediction.astype(np.float64), 1, -1).reshape(-1, prediction.shape[1])
        classes = target.ravel()
        kept = np.ones(classes.shape, bool) if self.ignore_index is None else classes != self.ignore_index
        logits, classes = logits[kept], classes[kept]
        if classes.size and (classes.min() < 0 or classes.max() >= logits.shape[1]):
            why = f"{self.name}: classes from {classes.min()} to {classes.max()}"
            raise UserError("E0560", why, fix=f"use 0 to {logits.shape[1] - 1}")
        top = logits.max(1, keepdims=True)
        logs = logits - top - np.log(np.exp(logits - top).sum(1, keepdims=True))
        return -logs[np.arange(len(classes)), classes]

    def compute(self) -> float:
        """exp of the mean; NaN of none."""
        mean = super().compute()
        return math.exp(mean) if mean < 700 else mean if math.isnan(mean) else math.inf
