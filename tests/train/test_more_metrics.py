"""Streaming metrics against counts made sample by sample; schedules in callbacks and checkpoints."""

import math
from typing import Any

import numpy as np
import pytest

import treadle as td
from treadle import nn, optim, train

RNG = np.random.default_rng(5)
SCORES, CLASSES = RNG.normal(size=(60, 3)), RNG.integers(0, 3, 60)
CLASSES[:20] = SCORES[:20].argmax(1)


def streamed(metric: Any, prediction: Any, target: Any) -> Any:
    metric.update(np.zeros_like(prediction[:1]), np.zeros_like(target[:1]))
    metric.reset()
    for i in range(0, len(target), 7):
        metric.update(prediction[i : i + 7], target[i : i + 7])
    return metric.compute()


def counted(c: int) -> tuple[int, int, int]:
    pairs = list(zip(SCORES.argmax(1), CLASSES, strict=True))
    right = sum(f == c and t == c for f, t in pairs)
    return right, sum(f == c for f, _ in pairs), sum(t == c for _, t in pairs)


def test_counts_of_classes() -> None:
    matrix = streamed(train.ConfusionMatrix(3), SCORES, CLASSES)
    wanted = [[sum((i == CLASSES) & (SCORES.argmax(1) == j)) for j in range(3)] for i in range(3)]
    np.testing.assert_array_equal(matrix, wanted)
    each = [counted(c) for c in range(3)]
    precision, recall = [r / f for r, f, _ in each], [r / w for r, _, w in each]
    f1 = [2 * p * r / (p + r) for p, r in zip(precision, recall, strict=True)]
    for metric, numbers in ((train.Precision, precision), (train.Recall, recall), (train.F1, f1)):
        assert streamed(metric(3), SCORES, CLASSES) == pytest.approx(np.mean(numbers))
        micro = streamed(metric(3, average="micro"), SCORES.argmax(1), CLASSES)
        assert micro == pytest.approx(np.mean(SCORES.argmax(1) == CLASSES))


def test_binary_classes_and_empty_ones() -> None:
    logits, target = np.array([2.0, -1.0, 3.0, -2.0]), np.array([1, 1, 0, 0])
    assert streamed(train.Precision(average="binary"), logits, target) == 0.5
    assert streamed(train.F1(average="binary"), logits, target) == 0.5
    assert streamed(train.Recall(4), np.array([1, 1]), np.array([1, 2])) == 0.5  # classes 0 and 3 do not occur
    assert train.F1().compute() == 0


def test_auroc_is_the_chance_of_a_right_order() -> None:
    scores, target = np.round(RNG.normal(size=40), 1), RNG.integers(0, 2, 40)
    pairs = [(p, n) for p in scores[target == 1] for n in scores[target == 0]]
    wanted = np.mean([1.0 if p > n else 0.5 if p == n else 0.0 for p, n in pairs])
    assert streamed(train.AUROC(), scores, target) == pytest.approx(wanted)
    assert math.isnan(streamed(train.AUROC(), scores, np.ones(40)))
    assert math.isnan(train.AUROC().compute())


def test_errors_and_perplexity() -> None:
    x, y = RNG.normal(size=(20, 2)).astype(np.float32), RNG.normal(size=(20, 2)).astype(np.float32)
    assert streamed(train.MeanSquaredError(), x, y) == pytest.approx(np.mean((x - y) ** 2), 1e-6)
    assert streamed(train.MeanAbsoluteError(), x, y) == pytest.approx(np.mean(np.abs(x - y)), 1e-6)
    target = CLASSES.copy()
    target[::5] = -100
    p = np.exp(SCORES) / np.exp(SCORES).sum(1, keepdims=True)
    chances = [p[i, c] for i, c in enumerate(target) if c >= 0]
    assert streamed(train.Perplexity(), SCORES, target) == pytest.approx(np.prod(chances) ** (-1 / len(chances)))
    assert math.isnan(train.Perplexity().compute())


def test_wrong_arguments() -> None:
    ones = np.ones((2, 3))
    for wrong in (
        lambda: train.ConfusionMatrix(0),
        lambda: train.ConfusionMatrix(2).update(ones, np.zeros(3)),
        lambda: train.ConfusionMatrix(2).update(np.array([2]), np.array([0])),
        lambda: train.F1(3, average="binary"),
        lambda: train.F1(3, average="most"),
        lambda: train.AUROC().update(np.ones(2), np.array([0, 2])),
        lambda: train.MeanSquaredError().update(ones, ones[0]),
        lambda: train.Perplexity().update(ones, np.array([0, 3])),
    ):
        with pytest.raises(td.UserError, match="E0560"):
            wrong()


X = RNG.normal(size=(8, 2)).astype(np.float32)


def trainer(make: Any, **how: Any) -> Any:
    td.manual_seed(1)
    net = nn.Linear(2, 1)
    optimizer = optim.SGD(net.parameters(), lr=0.1)
    callback = train.LearningRateSchedule(make(optimizer), **how)
    return train.Trainer(net, nn.MSELoss(), optimizer, callbacks=[callback])


def test_schedules_go_on_after_restoring(tmp_path: Any) -> None:
    data = [(X, X[:, :1])] * 3
    make = lambda o: optim.CosineAnnealingLR(o, 6)
    first = trainer(make)
    first.fit(data, epochs=1, progress=False)
    first.save(tmp_path / "c")
    second = trainer(make)
    second.restore(tmp_path / "c")
    assert second.callbacks[0].schedule.t == 3 and second.optimizer.lr == pytest.approx(0.05)
    second.fit(data, epochs=1, progress=False)
    assert second.optimizer.lr == pytest.approx(0.0, abs=1e-9)


def test_a_plateau_is_watched() -> None:
    make = lambda o: optim.ReduceLROnPlateau(o, factor=0.5, patience=0, threshold=1.0, threshold_mode="abs")
    made = trainer(make, monitor="loss")
    made.fit([(X, X[:, :1])], epochs=3, progress=False)
    assert made.optimizer.lr == pytest.approx(0.1 / 4)
    with pytest.raises(td.UserError, match="E0563"):
        trainer(make, monitor="speed").fit([(X, X[:, :1])], progress=False)
