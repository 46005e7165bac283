"""Training: `Trainer`, callbacks, metrics and checkpoints."""

from treadle.train import checkpoint
from treadle.train.callbacks import Callback, EarlyStopping, LearningRateSchedule, ModelCheckpoint
from treadle.train.checkpoint import Checkpoint, load, read, save
from treadle.train.metrics import Accuracy, Mean, Metric, TopK
from treadle.train.metrics_class import (
    CohenKappa,
    ExactMatch,
    FBeta,
    HammingDistance,
    Jaccard,
    MatthewsCorrelation,
    MetricCollection,
    Specificity,
)
from treadle.train.metrics_curve import (
    ROC,
    AveragePrecision,
    BrierScore,
    CalibrationError,
    LogLoss,
    PrecisionRecallCurve,
)
from treadle.train.metrics_more import (
    AUROC,
    F1,
    ConfusionMatrix,
    MeanAbsoluteError,
    MeanSquaredError,
    Perplexity,
    Precision,
    Recall,
)
from treadle.train.metrics_regression import (
    CosineSimilarity,
    ExplainedVariance,
    MeanAbsolutePercentageError,
    MeanSquaredLogError,
    PearsonCorrelation,
    R2Score,
    RootMeanSquaredError,
    SpearmanCorrelation,
)
from treadle.train.metrics_special import (
    BLEU,
    PSNR,
    SSIM,
    CharErrorRate,
    WordErrorRate,
)
from treadle.train.progress import ProgressBar
from treadle.train.trainer import History, State, Trainer

__all__ = [
    "CohenKappa",
    "ExactMatch",
    "FBeta",
    "HammingDistance",
    "Jaccard",
    "MatthewsCorrelation",
    "MetricCollection",
    "Specificity",
    "ROC",
    "AveragePrecision",
    "BrierScore",
    "CalibrationError",
    "LogLoss",
    "PrecisionRecallCurve",
    "CosineSimilarity",
    "ExplainedVariance",
    "MeanAbsolutePercentageError",
    "MeanSquaredLogError",
    "PearsonCorrelation",
    "R2Score",
    "RootMeanSquaredError",
    "SpearmanCorrelation",
    "BLEU",
    "PSNR",
    "SSIM",
    "CharErrorRate",
    "WordErrorRate",
    "AUROC",
    "F1",
    "ConfusionMatrix",
    "MeanAbsoluteError",
    "MeanSquaredError",
    "Perplexity",
    "Precision",
    "Recall",
    "Accuracy",
    "Callback",
    "Checkpoint",
    "EarlyStopping",
    "History",
    "LearningRateSchedule",
    "Mean",
    "Metric",
    "ModelCheckpoint",
    "ProgressBar",
    "State",
    "TopK",
    "Trainer",
    "checkpoint",
    "load",
    "read",
    "save",
]
