"""Optimisers, gradient clipping and learning-rate schedules."""

from treadle.optim.adaptive import Adadelta, Adagrad, Adamax, NAdam, RAdam, RMSprop, Rprop
from treadle.optim.averaged import ASGD, SWA, SWALR, update_bn
from treadle.optim.clip import clip_grad_norm, clip_grad_value, clip_grads_with_norm, global_norm
from treadle.optim.ema import EMA, decay_groups
from treadle.optim.large_batch import LAMB, LARS, Adafactor, Lion, Muon
from treadle.optim.optimizer import Group, Optimizer
from treadle.optim.rules import SGD, Adam, AdamW
from treadle.optim.scaling import GradScaler
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
from treadle.optim.schedules_more import (
    ChainedScheduler,
    ConstantLR,
    CosineAnnealingWarmRestarts,
    CyclicLR,
    InverseSqrt,
    LinearLR,
    MultiplicativeLR,
    PolynomialLR,
    ReduceLROnPlateau,
    SequentialLR,
)
from treadle.optim.second_order import LBFGS
from treadle.optim.shampoo import Shampoo

__all__ = [
    "ASGD",
    "SWA",
    "SWALR",
    "Shampoo",
    "ChainedScheduler",
    "MultiplicativeLR",
    "clip_grads_with_norm",
    "update_bn",
    "GradScaler",
    "LBFGS",
    "Adadelta",
    "Adagrad",
    "Adamax",
    "NAdam",
    "RAdam",
    "RMSprop",
    "Rprop",
    "EMA",
    "decay_groups",
    "LAMB",
    "LARS",
    "Adafactor",
    "Lion",
    "Muon",
    "ConstantLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "InverseSqrt",
    "LinearLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
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
