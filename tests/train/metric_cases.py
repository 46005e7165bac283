"""Metrics that are compared with scikit-learn: name -> (ours, what scikit-learn gives, prediction, target).

`python tests/train/make_golden.py` runs them in scikit-learn and writes golden.json.
"""

from typing import Any

import numpy as np

RNG = np.random.RandomState(7)
LOGITS = RNG.randn(60, 4)
CLASSES = np.where(RNG.rand(60) < 0.5, LOGITS.argmax(1), RNG.randint(0, 4, 60))
FOUND = LOGITS.argmax(1)
CHANCES = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
SCORES, TRUTH = np.round(RNG.randn(50), 1), RNG.randint(0, 2, 50)
NUMBERS = RNG.rand(40) * 5
NEAR = np.round(NUMBERS + RNG.randn(40) * 0.7, 1).clip(0)
MANY = RNG.randn(20, 5)
LABELS = np.where(RNG.rand(20, 5) < 0.7, MANY > 0, MANY <= 0).astype(int)


def macro(matrix: Any) -> float:
    """Specificity, the mean over classes, from a confusion matrix."""
    total, right, found, wanted = matrix.sum(), np.diag(matrix), matrix.sum(0), matrix.sum(1)
    return float(np.mean((total - found - wanted + right) / (total - wanted)))


CASES: dict[str, tuple[Any, Any, Any, Any]] = {
    "fbeta": (lambda t: t.FBeta(4, beta=2.0), lambda m, p, y: m.fbeta_score(y, p, beta=2.0, average="macro"),
              FOUND, CLASSES),
    "fbeta micro": (lambda t: t.FBeta(4, "micro", 0.5), lambda m, p, y: m.fbeta_score(y, p, beta=0.5, average="micro"),
                    FOUND, CLASSES),
    "jaccard": (lambda t: t.Jaccard(4), lambda m, p, y: m.jaccard_score(y, p, average="macro"), FOUND, CLASSES),
    "jaccard micro": (lambda t: t.Jaccard(4, "micro"), lambda m, p, y: m.jaccard_score(y, p, average="micro"),
                      FOUND, CLASSES),
    "specificity": (lambda t: t.Specificity(4), lambda m, p, y: macro(m.confusion_matrix(y, p)), FOUND, CLASSES),
    "specificity binary": (lambda t: t.Specificity(2, "binary"), lambda m, p, y: m.recall_score(1 - y, p <= 0),
                           SCORES, TRUTH),
    "matthews": (lambda t: t.MatthewsCorrelation(4), lambda m, p, y: m.matthews_corrcoef(y, p), FOUND, CLASSES),
    "kappa": (lambda t: t.CohenKappa(4), lambda m, p, y: m.cohen_kappa_score(y, p), FOUND, CLASSES),
    "kappa linear": (lambda t: t.CohenKappa(4, "linear"), lambda m, p, y: m.cohen_kappa_score(y, p, weights="linear"),
                     FOUND, CLASSES),
    "kappa quadratic": (lambda t: t.CohenKappa(4, "quadratic"),
                        lambda m, p, y: m.cohen_kappa_score(y, p, weights="quadratic"), FOUND, CLASSES),
    "hamming": (lambda t: t.HammingDistance(), lambda m, p, y: m.hamming_loss(y, p > 0), MANY, LABELS),
    "exact match": (lambda t: t.ExactMatch(), lambda m, p, y: m.accuracy_score(y, p > 0), MANY, LABELS),
    "average precision": (lambda t: t.AveragePrecision(), lambda m, p, y: m.average_precision_score(y, p),
                          SCORES, TRUTH),
    "auroc": (lambda t: t.AUROC(), lambda m, p, y: m.roc_auc_score(y, p), SCORES, TRUTH),
    "roc": (lambda t: t.ROC(), lambda m, p, y: m.roc_curve(y, p, drop_intermediate=False), SCORES, TRUTH),
    "precision recall": (lambda t: t.PrecisionRecallCurve(), lambda m, p, y: m.precision_recall_curve(y, p),
                         SCORES, TRUTH),
    "log loss": (lambda t: t.LogLoss(), lambda m, p, y: m.log_loss(y, p), CHANCES, CLASSES),
    "brier": (lambda t: t.BrierScore(), lambda m, p, y: 2 * m.brier_score_loss(y, p[:, 1]),
              np.stack([1 - CHANCES[:, 0], CHANCES[:, 0]], 1), (CLASSES == 0).astype(int)),
    "r2": (lambda t: t.R2Score(), lambda m, p, y: m.r2_score(y, p), NEAR, NUMBERS),
    "explained variance": (lambda t: t.ExplainedVariance(), lambda m, p, y: m.explained_variance_score(y, p),
                           NEAR, NUMBERS),
    "rmse": (lambda t: t.RootMeanSquaredError(), lambda m, p, y: m.root_mean_squared_error(y, p), NEAR, NUMBERS),
    "mape": (lambda t: t.MeanAbsolutePercentageError(), lambda m, p, y: m.mean_absolute_percentage_error(y, p),
             NEAR, NUMBERS),
    "msle": (lambda t: t.MeanSquaredLogError(), lambda m, p, y: m.mean_squared_log_error(y, p), NEAR, NUMBERS),
}  # fmt: skip
