"""Optimisers, gradient clipping and learning-rate schedules."""

from treadle.optim.clip import clip_grad_norm, clip_grad_value, global_norm
from treadle.optim.optimizer import Group, Optimizer
from treadle.optim.rules import SGD, Adam, AdamW
from treadle.optim.schedules import (
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearWarmup,
    MultiStepLR,
    OneCycleLR,
    Schedule,
    StepLR,
)

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "CosineAnnealingLR",
    "ExponentialLR",
    "Group",
    "LambdaLR",
    "LinearWarmup",
    "MultiStepLR",
    "OneCycleLR",
    "Optimizer",
    "Schedule",
    "StepLR",
    "clip_grad_norm",
    "clip_grad_value",
    "global_norm",
]
