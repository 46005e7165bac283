"""Metrics against scikit-learn's numbers, streamed in batches; those of texts and images against their formulas."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.train import metric_cases as cases

import treadle as td
from treadle import train
from treadle.train.metrics_special import edit_distance

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())["cases"]


def streamed(metric: Any, prediction: Any, target: Any) -> Any:
    for first in (True, False):
        for i in range(0, 7 if first else len(target), 7):
            metric.update(prediction[i : i + 7], td.Tensor(np.asarray(target[i : i + 7])))
        if first:
            metric.reset()
    return metric.compute()


@pytest.mark.parametrize("name", cases.CASES)
def test_numbers_are_scikit_learns(name: str) -> None:
    make, _, prediction, target = cases.CASES[name]
    found, wanted = streamed(make(train), prediction, target), GOLDEN[name]
    if isinstance(wanted, list):
        for f, w in zip(found, wanted, strict=True):
            np.testing.assert_allclose(f, [math.inf if x is None else x for x in w], 1e-6)
    else:
        assert found == pytest.approx(wanted, rel=1e-6)


def test_correlations() -> None:
    x, y = cases.NEAR, cases.NUMBERS
    assert streamed(train.PearsonCorrelation(), x, y) == pytest.approx(np.corrcoef(x, y)[0, 1])
    assert streamed(train.PearsonCorrelation(), x + 1e8, y) == pytest.approx(np.corrcoef(x, y)[0, 1], rel=1e-5)
    assert streamed(train.SpearmanCorrelation(), x, np.exp(x)) == pytest.approx(1)
    ranks = [[(v < a).sum() + ((v == a).sum() + 1) / 2 for a in v] for v in (x, y)]
    assert streamed(train.SpearmanCorrelation(), x, y) == pytest.approx(np.corrcoef(*ranks)[0, 1])
    rows = np.array([[3.0, 4.0], [1.0, 0.0]])
    assert streamed(train.CosineSimilarity(), rows, np.array([[4.0, 3.0], [0.0, 2.0]])) == pytest.approx(0.48)


def test_what_cannot_be_said() -> None:
    for kind in (train.R2Score, train.PearsonCorrelation, train.AveragePrecision, train.CalibrationError, train.PSNR):
        assert math.isnan(kind().compute()), kind
    ones = np.ones(4)
    assert streamed(train.R2Score(), ones, ones) == 1 and streamed(train.R2Score(), ones * 2, ones) == 0
    assert math.isnan(streamed(train.PearsonCorrelation(), ones, np.arange(4.0)))
    assert train.MatthewsCorrelation(2).compute() == 0 and math.isnan(train.CohenKappa(2).compute())
    assert train.FBeta().compute() == 0 and train.Jaccard().compute() == 0
    assert len(train.ROC().compute()[0]) == 1 and len(train.PrecisionRecallCurve().compute()[0]) == 1


def test_calibration() -> None:
    chances = np.array([[0.9, 0.1], [0.8, 0.2], [0.45, 0.55], [0.3, 0.7]])
    target = np.array([0, 1, 1, 1])
    first, second = abs(0.55 + 0.7 - 2), abs(0.9 + 0.8 - 1)
    assert streamed(train.CalibrationError(4), chances, target) == pytest.approx((first + second) / 4)
    assert streamed(train.CalibrationError(4, "max"), chances, target) == pytest.approx(max(first, second) / 2)


def test_brier_of_many_classes() -> None:
    wanted = np.mean(((cases.CHANCES - np.eye(4)[cases.CLASSES]) ** 2).sum(1))
    assert streamed(train.BrierScore(), cases.CHANCES, cases.CLASSES) == pytest.approx(wanted)


def test_texts() -> None:
    assert edit_distance("kitten", "sitting") == 3 and edit_distance("", "ab") == 2 and edit_distance("abc", "abc") == 0
    wer = train.WordErrorRate()
    wer.update("the cat sat", "the cat sat down")
    wer.update(["a b", "c"], ["a c", "c"])
    assert wer.compute() == pytest.approx(2 / 7)
    cer = train.CharErrorRate()
    cer.update("abd", "abcd")
    assert cer.compute() == 0.25
    bleu = train.BLEU(max_n=2)
    bleu.update("the the cat", [["the cat sat down", "a cat the"]])
    assert bleu.compute() == pytest.approx(math.sqrt(2 / 3 * 1 / 2))
    short = train.BLEU(max_n=1)
    short.update(["the cat"], ["the cat sat down"])
    assert short.compute() == pytest.approx(math.exp(1 - 4 / 2))
    assert train.BLEU().compute() == 0
    smooth = train.BLEU(max_n=2, smooth=True)
    smooth.update("a b", "a c")
    assert smooth.compute() == pytest.approx(math.sqrt(1 / 2 * 1 / 2))


def test_images() -> None:
    rng = np.random.RandomState(0)
    x = rng.rand(3, 2, 13, 12)
    y = np.clip(x + rng.randn(*x.shape) * 0.1, 0, 1)
    assert streamed(train.PSNR(2.0), x, y) == pytest.approx(10 * math.log10(4 / np.mean((x - y) ** 2)))
    assert streamed(train.PSNR(), x, x) == math.inf and streamed(train.SSIM(), x, x) == pytest.approx(1)
    line = np.exp(-((np.arange(11) - 5) ** 2) / 4.5)
    w = np.outer(line, line) / line.sum() ** 2
    values = []
    for a, b in zip(x.reshape(-1, 13, 12), y.reshape(-1, 13, 12), strict=True):
        for i, j in ((i, j) for i in range(3) for j in range(2)):
            p, q = a[i : i + 11, j : j + 11], b[i : i + 11, j : j + 11]
            mp, mq = (w * p).sum(), (w * q).sum()
            vp, vq, pq = (w * (p - mp) ** 2).sum(), (w * (q - mq) ** 2).sum(), (w * (p - mp) * (q - mq)).sum()
            top = (2 * mp * mq + 1e-4) * (2 * pq + 9e-4)
            values.append(top / ((mp**2 + mq**2 + 1e-4) * (vp + vq + 9e-4)))
    assert streamed(train.SSIM(), x, y) == pytest.approx(np.mean(values))


def test_collections() -> None:
    both = train.MetricCollection([train.MeanSquaredError(), train.R2Score()])
    found = streamed(both, cases.NEAR, cases.NUMBERS)
    assert list(found) == ["mse", "r2"] and found["r2"] == pytest.approx(GOLDEN["r2"])
    named = train.MetricCollection({"one": train.FBeta(4), "two": train.FBeta(4, beta=2.0)})
    assert streamed(named, cases.FOUND, cases.CLASSES)["two"] == pytest.approx(GOLDEN["fbeta"])


@pytest.mark.parametrize(
    "call",
    [
        lambda: train.FBeta(beta=0),
        lambda: train.CohenKappa(2, "cubic"),
        lambda: train.HammingDistance().update(np.ones((2, 3)), np.ones(2)),
        lambda: train.MetricCollection([train.FBeta(), train.FBeta()]),
        lambda: train.ROC().update(np.ones(2), np.array([0, 2])),
        lambda: train.ROC().update(np.array([math.nan]), np.array([0])),
        lambda: train.LogLoss().update(np.full((1, 2), 2.0), np.array([0])),
        lambda: train.LogLoss().update(np.full((1, 2), 0.5), np.array([2])),
        lambda: train.CalibrationError(0),
        lambda: train.MeanSquaredLogError().update(np.array([-1.0]), np.array([1.0])),
        lambda: train.WordErrorRate().update(["a", "b"], ["a"]),
        lambda: train.BLEU(0),
        lambda: train.BLEU().update("a", [[]]),
        lambda: train.SSIM().update(np.ones((1, 1, 5, 5)), np.ones((1, 1, 5, 5))),
    ],
)
def test_wrong_use(call: Any) -> None:
    with pytest.raises(td.UserError, match="E0560"):
        call()
