"""Metrics: `clear`, `update(prediction, target)`, `eval`; tensors or arrays in, numbers out."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle.base.errors import UserError

Array = np.ndarray[Any, Any]


def _numbers(value: Any) -> Array:
    return value.numpy() if hasattr(value, "numpy") else np.asarray(value)


class Metric:
    """Base: a subclass defines clear, update and eval."""

    def __init__(self) -> None:
        self._indexes: list[int] | None = None
        self.clear()

    @property
    def indexes(self) -> list[int] | None:
        """Which of the evaluation's outputs `update` gets."""
        return getattr(self, "_indexes", None)

    def set_indexes(self, indexes: list[int]) -> Any:
        """Choose which of the evaluation's outputs `update` gets; returns the metric."""
        self._indexes = indexes
        return self

    def clear(self) -> None:
        """Begin anew."""
        raise UserError("E0592", f"{type(self).__name__} has no clear", fix="define clear(self)")

    def update(self, *inputs: Any) -> None:
        """Count a batch."""
        raise UserError("E0592", f"{type(self).__name__} has no update", fix="define update(self, *inputs)")

    def eval(self) -> Any:
        """The number so far."""
        raise UserError("E0592", f"{type(self).__name__} has no eval", fix="define eval(self)")


class _Sums(Metric):
    """A quotient of two sums."""

    def clear(self) -> None:
        self._total: Any = 0.0
        self._count: Any = 0

    def _add(self, total: Any, count: Any) -> None:
        self._total, self._count = self._total + total, self._count + count

    def eval(self) -> float:
        """The number so far. Raises E0565 before the first batch."""
        if not np.any(self._count):
            raise UserError("E0565", f"{type(self).__name__} has seen no sample", fix="update it first")
        return float(self._total / self._count)


class Loss(_Sums):
    """The mean of the losses of the batches."""

    def update(self, *inputs: Any) -> None:
        self._add(float(_numbers(inputs[0]).mean()), 1)


class MAE(_Sums):
    """The mean distance of predictions from targets, summed over features and averaged over samples."""

    def update(self, *inputs: Any) -> None:
        y, target = _numbers(inputs[0]), _numbers(inputs[1])
        self._add(self._distance(y.reshape(target.shape) - target), target.shape[0])

    def _distance(self, off: Array) -> float:
        return float(np.abs(off).sum())


class MSE(MAE):
    """The mean squared distance, as `MAE`."""

    def _distance(self, off: Array) -> float:
        return float(np.square(off).sum())


def _labels(y: Array, target: Array) -> Array:
    """Class numbers of targets, which may be one-hot."""
    return target.argmax(1) if target.ndim == y.ndim and y.ndim > 1 else target


class Accuracy(_Sums):
    """The share of right classes; eval_type "multilabel": of samples whose labels are all right."""

    def __init__(self, eval_type: str = "classification") -> None:
        if eval_type not in ("classification", "multilabel"):
            raise UserError("E0560", f"eval_type is {eval_type!r}", fix="use 'classification' or 'multilabel'")
        self.eval_type = eval_type
        super().__init__()

    def update(self, *inputs: Any) -> None:
        y, target = _numbers(inputs[0]), _numbers(inputs[1])
        if self.eval_type == "multilabel":
            right = (y == target).reshape(len(y), -1).all(1)
        else:
            right = y.argmax(1) == _labels(y, target)
        self._add(int(right.sum()), right.size)


class TopKCategoricalAccuracy(_Sums):
    """The share of samples whose class is among the k largest scores."""

    def __init__(self, k: int) -> None:
        self.k = k
        super().__init__()

    def update(self, *inputs: Any) -> None:
        y, target = _numbers(inputs[0]), _numbers(inputs[1])
        best = np.argsort(-y, 1, kind="stable")[:, : self.k]
        right = (best == _labels(y, target).reshape(-1, 1)).any(1)
        self._add(int(right.sum()), right.size)


class Top1CategoricalAccuracy(TopKCategoricalAccuracy):
    """The share of samples whose class has the largest score."""

    def __init__(self) -> None:
        super().__init__(1)


class Top5CategoricalAccuracy(TopKCategoricalAccuracy):
    """The share of samples whose class is among the five largest scores."""

    def __init__(self) -> None:
        super().__init__(5)


class _PerClass(Metric):
    """Counts for each class: rightly found, found, there."""

    def clear(self) -> None:
        self._right: Any = 0
        self._found: Any = 0
        self._there: Any = 0

    def update(self, *inputs: Any) -> None:
        y, target = _numbers(inputs[0]), _numbers(inputs[1])
        classes = y.shape[1]
        found, there = np.eye(classes)[y.argmax(1)], np.eye(classes)[_labels(y, target)]
        self._right = self._right + (found * there).sum(0)
        self._found, self._there = self._found + found.sum(0), self._there + there.sum(0)


class Precision(_PerClass):
    """Rightly found over found, for each class (0 where none was found); average: their mean."""

    def eval(self, average: bool = False) -> Any:
        each = self._right / np.maximum(self._found, 1)
        return float(each.mean()) if average else each


class Recall(_PerClass):
    """Rightly found over those that are there, for each class; average: their mean."""

    def eval(self, average: bool = False) -> Any:
        each = self._right / np.maximum(self._there, 1)
        return float(each.mean()) if average else each


class F1(_PerClass):
    """2 * precision * recall / (precision + recall), for each class; average: their mean."""

    def eval(self, average: bool = False) -> Any:
        each = 2 * self._right / np.maximum(self._found + self._there, 1)
        return float(each.mean()) if average else each


def metric_of(name: str) -> Metric:
    """A new metric by name: "accuracy", "acc", "loss", "mae", ... Raises E0560 for an unknown one."""
    every: dict[str, type[Metric]] = {"accuracy": Accuracy, "acc": Accuracy, "loss": Loss, "mae": MAE, "mse": MSE}
    every |= {"precision": Precision, "recall": Recall, "F1": F1}
    every |= {"top_1_accuracy": Top1CategoricalAccuracy, "top_5_accuracy": Top5CategoricalAccuracy}
    if name not in every:
        raise UserError("E0560", f"there is no metric {name!r}", fix=f"use one of {', '.join(every)}")
    return every[name]()


__all__ = [
    "Accuracy",
    "F1",
    "Loss",
    "MAE",
    "MSE",
    "Metric",
    "Precision",
    "Recall",
    "Top1CategoricalAccuracy",
    "Top5CategoricalAccuracy",
    "TopKCategoricalAccuracy",
]
