"""Learning rates: lists of one rate a step, and schedules, which are cells of the step's number."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.compat.mindspore.nn.cell import Cell
from treadle.frontend import functions as fn
from treadle.frontend.lift import lift


def _per_step(total: int, per_epoch: int, rate: Callable[[int], float]) -> list[float]:
    if total < 1 or per_epoch < 1:
        raise UserError("E0531", f"{total} steps, {per_epoch} an epoch", fix="give 1 or more")
    return [rate(i // per_epoch) for i in range(total)]


def piecewise_constant_lr(milestone: Sequence[int], learning_rates: Sequence[float]) -> list[float]:
    """learning_rates[i] for the steps before milestone[i]."""
    if len(milestone) != len(learning_rates):
        why = f"{len(milestone)} milestones, {len(learning_rates)} rates"
        raise UserError("E0531", why, fix="give a rate for each milestone")
    starts = [0, *milestone]
    return [r for i, r in enumerate(learning_rates) for _ in range(starts[i + 1] - starts[i])]


def exponential_decay_lr(
    learning_rate: float,
    decay_rate: float,
    total_step: int,
    step_per_epoch: int,
    decay_epoch: int,
    is_stair: bool = False,
) -> list[float]:
    """learning_rate * decay_rate ** (epoch / decay_epoch); is_stair: the exponent rounded down."""

    def rate(epoch: int) -> float:
        power = epoch // decay_epoch if is_stair else epoch / decay_epoch
        return float(learning_rate * decay_rate**power)

    return _per_step(total_step, step_per_epoch, rate)


def natural_exp_decay_lr(
    learning_rate: float,
    decay_rate: float,
    total_step: int,
    step_per_epoch: int,
    decay_epoch: int,
    is_stair: bool = False,
) -> list[float]:
    """learning_rate * exp(-decay_rate * epoch); is_stair: epochs counted in whole decay_epochs."""

    def rate(epoch: int) -> float:
        return learning_rate * math.exp(-decay_rate * (epoch // decay_epoch * decay_epoch if is_stair else epoch))

    return _per_step(total_step, step_per_epoch, rate)


def inverse_decay_lr(
    learning_rate: float,
    decay_rate: float,
    total_step: int,
    step_per_epoch: int,
    decay_epoch: int,
    is_stair: bool = False,
) -> list[float]:
    """learning_rate / (1 + decay_rate * epoch / decay_epoch)."""

    def rate(epoch: int) -> float:
        return learning_rate / (1 + decay_rate * (epoch // decay_epoch if is_stair else epoch / decay_epoch))

    return _per_step(total_step, step_per_epoch, rate)


def cosine_decay_lr(
    min_lr: float, max_lr: float, total_step: int, step_per_epoch: int, decay_epoch: int
) -> list[float]:
    """From max_lr to min_lr along half a cosine over decay_epoch epochs."""

    def rate(epoch: int) -> float:
        share = min(epoch, decay_epoch) / decay_epoch
        return min_lr + 0.5 * (max_lr - min_lr) * (1 + math.cos(math.pi * share))

    return _per_step(total_step, step_per_epoch, rate)


def polynomial_decay_lr(
    learning_rate: float,
    end_learning_rate: float,
    total_step: int,
    step_per_epoch: int,
    decay_epoch: int,
    power: float,
    update_decay_epoch: bool = False,
) -> list[float]:
    """From learning_rate to end_learning_rate by (1 - epoch / decay_epoch) ** power; update: in ever new rounds."""

    def rate(epoch: int) -> float:
        over = decay_epoch * max(1, math.ceil(epoch / decay_epoch)) if update_decay_epoch else decay_epoch
        left = 1 - min(epoch, over) / over
        return float((learning_rate - end_learning_rate) * left**power + end_learning_rate)

    return _per_step(total_step, step_per_epoch, rate)


def warmup_lr(learning_rate: float, total_step: int, step_per_epoch: int, warmup_epoch: int) -> list[float]:
    """learning_rate * epoch / warmup_epoch up to learning_rate."""
    return _per_step(
        total_step, step_per_epoch, lambda e: learning_rate * min(e, warmup_epoch) / warmup_epoch if warmup_epoch else e
    )


class LearningRateSchedule(Cell):
    """Base: `construct(global_step)` gives the rate of a step, int32 tensor -> float32."""


def _steps(global_step: Any) -> Any:
    return lift(global_step).astype(dtypes.float32)


class ExponentialDecayLR(LearningRateSchedule):
    """learning_rate * decay_rate ** (step / decay_steps); is_stair: the exponent rounded down."""

    def __init__(self, learning_rate: float, decay_rate: float, decay_steps: int, is_stair: bool = False) -> None:
        super().__init__()
        self.rate, self.decay, self.over, self.stair = learning_rate, decay_rate, decay_steps, is_stair

    def share(self, step: Any) -> Any:
        """The exponent."""
        share = _steps(step) / self.over
        return fn.floor(share) if self.stair else share

    def construct(self, global_step: Any) -> Any:
        return self.rate * fn.exp(self.share(global_step) * math.log(self.decay))


class NaturalExpDecayLR(ExponentialDecayLR):
    """learning_rate * exp(-decay_rate * step); is_stair: steps counted in whole decay_steps."""

    def construct(self, global_step: Any) -> Any:
        return self.rate * fn.exp(self.share(global_step) * (-self.decay * self.over))


class InverseDecayLR(ExponentialDecayLR):
    """learning_rate / (1 + decay_rate * step / decay_steps)."""

    def construct(self, global_step: Any) -> Any:
        return self.rate / (1 + self.share(global_step) * self.decay)


class CosineDecayLR(LearningRateSchedule):
    """From max_lr to min_lr along half a cosine over decay_steps steps."""

    def __init__(self, min_lr: float, max_lr: float, decay_steps: int) -> None:
        super().__init__()
        self.min_lr, self.max_lr, self.over = min_lr, max_lr, decay_steps

    def construct(self, global_step: Any) -> Any:
        share = fn.minimum(_steps(global_step), float(self.over)) / self.over
        return self.min_lr + 0.5 * (self.max_lr - self.min_lr) * (1 + fn.cos(share * math.pi))


class PolynomialDecayLR(LearningRateSchedule):
    """From learning_rate to end_learning_rate by (1 - step / decay_steps) ** power."""

    def __init__(
        self,
        learning_rate: float,
        end_learning_rate: float,
        decay_steps: int,
        power: float,
        update_decay_steps: bool = False,
    ) -> None:
        super().__init__()
        self.rate, self.end, self.over, self.power = learning_rate, end_learning_rate, decay_steps, float(power)
        self.update = update_decay_steps

    def construct(self, global_step: Any) -> Any:
        step = _steps(global_step)
        over = fn.maximum(fn.ceil(step / self.over), 1.0) * self.over if self.update else float(self.over)
        left = 1 - fn.minimum(step, over) / over
        return (self.rate - self.end) * fn.pow(left, self.power) + self.end


class WarmUpLR(LearningRateSchedule):
    """learning_rate * step / warmup_steps up to learning_rate."""

    def __init__(self, learning_rate: float, warmup_steps: int) -> None:
        super().__init__()
        self.rate, self.over = learning_rate, warmup_steps

    def construct(self, global_step: Any) -> Any:
        return fn.minimum(_steps(global_step), float(self.over)) * (self.rate / self.over)


def as_rates(rates: Any) -> np.ndarray[Any, Any]:
    """A list of rates as float32."""
    return np.array([float(r) for r in rates], np.float32)


__all__ = [
    "CosineDecayLR",
    "ExponentialDecayLR",
    "InverseDecayLR",
    "LearningRateSchedule",
    "NaturalExpDecayLR",
    "PolynomialDecayLR",
    "WarmUpLR",
    "cosine_decay_lr",
    "exponential_decay_lr",
    "inverse_decay_lr",
    "natural_exp_decay_lr",
    "piecewise_constant_lr",
    "polynomial_decay_lr",
    "warmup_lr",
]
