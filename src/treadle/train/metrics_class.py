"""More metrics of class counts: F-beta, specificity, Jaccard, Matthews, Cohen's kappa; of many labels; collections.

As in `metrics` and `metrics_more`: scores float[N, C, ...] or class indices int[N, ...].
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.train.metrics import Metric
from treadle.train.metrics_more import ConfusionMatrix, _OfCounts, _share


class FBeta(_OfCounts):
    __doc__ = f"""(1 + b**2) * precision * recall / (b**2 * precision + recall) of each class. {_OfCounts.__doc__}"""
    name = "fbeta"

    def __init__(self, num_classes: int = 2, average: str = "macro", beta: float = 1.0) -> None:
        super().__init__(num_classes, average)
        if beta <= 0:
            raise UserError("E0560", f"beta is {beta}", fix="give a number above 0")
        self.beta = beta

    def ratio(self, right: Any, found: Any, wanted: Any) -> Any:
        square = self.beta**2
        below = found + square * wanted
        return np.where(below > 0, (1 + square) * right / np.where(below > 0, below, 1), 0.0)


class Jaccard(_OfCounts):
    __doc__ = f"""Right samples of a class over all that are of it or taken for it (IoU). {_OfCounts.__doc__}"""
    name = "jaccard"

    def ratio(self, right: Any, found: Any, wanted: Any) -> Any:
        return _share(right, found + wanted - right)


class Specificity(_OfCounts):
    __doc__ = f"""The share of the samples not of a class that are not taken for it. {_OfCounts.__doc__}"""
    name = "specificity"

    def ratio(self, right: Any, found: Any, wanted: Any) -> Any:
        total = self.counts.sum() * (self.num_classes if np.ndim(right) == 0 else 1)
        return _share(total - found - wanted + right, total - wanted)


class MatthewsCorrelation(ConfusionMatrix):
    """The correlation of found and wanted classes, -1 to 1; 0 where one of them never varies.

    Source: Gorodkin 2004, doi:10.1016/j.compbiolchem.2004.09.006.
    """

    name = "matthews"

    def compute(self) -> float:
        """The coefficient."""
        counts = self.counts.astype(np.float64)
        total, found, wanted = counts.sum(), counts.sum(0), counts.sum(1)
        top = np.trace(counts) * total - found @ wanted
        scale = (total**2 - found @ found) * (total**2 - wanted @ wanted)
        return float(top / math.sqrt(scale)) if scale > 0 else 0.0


class CohenKappa(ConfusionMatrix):
    """How far found and wanted classes agree beyond chance, at most 1; NaN where only one class occurs.

    weights: None, "linear" or "quadratic" in the distance of the classes. Raises E0560. Source: Cohen 1960, 1968.
    """

    name = "kappa"

    def __init__(self, num_classes: int, weights: str | None = None) -> None:
        if weights not in (None, "linear", "quadratic"):
            raise UserError("E0560", f"weights={weights!r}", fix="use None, 'linear' or 'quadratic'")
        super().__init__(num_classes)
        self.weights = weights

    def compute(self) -> float:
        """The coefficient."""
        counts = self.counts.astype(np.float64)
        chance = np.outer(counts.sum(1), counts.sum(0)) / max(counts.sum(), 1)
        apart = np.abs(np.subtract.outer(np.arange(self.num_classes), np.arange(self.num_classes))).astype(np.float64)
        cost = {None: (apart > 0).astype(np.float64), "linear": apart, "quadratic": apart**2}[self.weights]
        expected = float((cost * chance).sum())
        return 1 - float((cost * counts).sum()) / expected if expected else math.nan


def _labels(prediction: Any, target: Any, name: str) -> tuple[Any, Any]:
    """Bools of many labels; scores count as true above 0."""
    if prediction.shape != target.shape or target.ndim < 1:
        why = f"{name}: predictions of shape {list(prediction.shape)}, targets of {list(target.shape)}"
        raise UserError("E0560", why, fix="give both as [N, labels]")
    return prediction > 0, target > 0.5


class HammingDistance(Metric):
    """The share of labels that are wrong. Prediction: float[N, L] (above 0 is true) or 0 and 1; target: 0 or 1, [N, L].

    Raises E0560 when the shapes differ.
    """

    name = "hamming"

    def score(self, prediction: Any, target: Any) -> Any:
        found, wanted = _labels(prediction, target, self.name)
        return found != wanted


class ExactMatch(Metric):
    """The share of samples all of whose labels are right; as `HammingDistance`."""

    name = "exact_match"

    def score(self, prediction: Any, target: Any) -> Any:
        found, wanted = _labels(prediction, target, self.name)
        return (found == wanted).reshape(len(wanted), -1).all(1)


class MetricCollection:
    """Several metrics of the same predictions: `compute()` gives a dict by name. Metrics, or a dict of them by name.

    Raises E0560 for two of one name.
    """

    def __init__(self, metrics: Iterable[Any] | Mapping[str, Any]) -> None:
        named: Any = metrics
        pairs = named.items() if isinstance(metrics, Mapping) else [(m.name, m) for m in named]
        self.metrics: dict[str, Any] = {}
        for name, metric in pairs:
            if name in self.metrics:
                raise UserError("E0560", f"two metrics are called {name!r}", fix="pass a dict with names")
            self.metrics[name] = metric

    def reset(self) -> None:
        """Forget everything."""
        for metric in self.metrics.values():
            metric.reset()

    def update(self, prediction: Any, target: Any) -> None:
        """Add a batch to each."""
        for metric in self.metrics.values():
            metric.update(prediction, target)

    def compute(self) -> dict[str, Any]:
        """Name to value."""
        return {name: metric.compute() for name, metric in self.metrics.items()}
