"""Callbacks: objects whose methods `Trainer.fit` calls at fixed points, with the trainer as argument.

`trainer.state` says where it is. Change the optimiser's rate, save, or call `trainer.stop()` from them.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treadle.base import arguments
from treadle.base.errors import UserError
from treadle.optim.schedules import Schedule

if TYPE_CHECKING:
    from treadle.train.trainer import Trainer


class Callback:
    """Base: every method does nothing."""

    def on_fit_start(self, trainer: Trainer) -> None:
        """Before the first epoch."""

    def on_epoch_start(self, trainer: Trainer) -> None:
        """Before an epoch; `trainer.state.epoch` counts from 0."""

    def on_step_end(self, trainer: Trainer, loss: float) -> None:
        """After a step; `trainer.state.step` counts all steps so far."""

    def on_epoch_end(self, trainer: Trainer, logs: dict[str, float]) -> None:
        """After an epoch and its validation; logs: loss and metrics, those of the validation as val_..."""

    def on_fit_end(self, trainer: Trainer) -> None:
        """After the last epoch, also when an error ended the training."""


class LearningRateSchedule(Callback):
    """Calls `schedule.step()` after every step (or every epoch: each="epoch"). `Trainer.save` keeps its state.

    monitor: after every epoch `schedule.step(logs[monitor])`, as ReduceLROnPlateau wants. Raises E0563 for another word
    or a number that the logs lack.
    """

    def __init__(self, schedule: Schedule, each: str = "step", monitor: str | None = None) -> None:
        if each not in ("step", "epoch"):
            raise UserError("E0563", f"each is {each!r}", fix="use 'step' or 'epoch'")
        self.schedule, self.each, self.monitor = schedule, each if monitor is None else "epoch", monitor

    def on_step_end(self, trainer: Trainer, loss: float) -> None:
        if self.each == "step":
            self.schedule.step()

    def on_epoch_end(self, trainer: Trainer, logs: dict[str, float]) -> None:
        if self.monitor is not None:
            if self.monitor not in logs:
                raise UserError("E0563", f"the logs have no {self.monitor!r}", fix="use one of " + ", ".join(logs))
            self.schedule.step(logs[self.monitor])  # type: ignore[call-arg]
        elif self.each == "epoch":
            self.schedule.step()


class _Monitor(Callback):
    """Watches one number of the logs; mode "min" or "max" says which is better. NaN is never better."""

    def __init__(self, monitor: str, mode: str, min_delta: float = 0.0) -> None:
        if mode not in ("min", "max"):
            raise UserError("E0563", f"mode is {mode!r}", fix="use 'min' or 'max'")
        self.monitor, self.mode, self.min_delta = monitor, mode, min_delta
        self.best = math.inf if mode == "min" else -math.inf

    def better(self, logs: dict[str, float]) -> bool:
        """Whether the number is the best so far, which is then remembered. Raises E0563 when the logs lack it."""
        if self.monitor not in logs:
            raise UserError("E0563", f"the logs have no {self.monitor!r}", fix="use one of " + ", ".join(logs))
        value = logs[self.monitor]
        gain = self.best - value if self.mode == "min" else value - self.best
        if gain > self.min_delta:
            self.best = value
            return True
        return False


class EarlyStopping(_Monitor):
    """Ends the training when the number has not become better for `patience` epochs in a row."""

    def __init__(self, monitor: str = "val_loss", patience: int = 3, mode: str = "min", min_delta: float = 0.0) -> None:
        super().__init__(monitor, mode, min_delta)
        self.patience, self.waited = arguments.count(patience, "patience", 0, "E0563"), 0

    def on_epoch_end(self, trainer: Trainer, logs: dict[str, float]) -> None:
        self.waited = 0 if self.better(logs) else self.waited + 1
        if self.waited >= self.patience:
            trainer.stop()


class ModelCheckpoint(_Monitor):
    """Saves a checkpoint to the folder `path` after every epoch, or with `monitor` only when that number is the best.

    "{epoch}" in the path is replaced by the epoch, counted from 1.
    """

    def __init__(self, path: str | Path, monitor: str | None = None, mode: str = "min") -> None:
        super().__init__(monitor or "", mode)
        if not isinstance(path, str | Path):
            raise UserError("E0605", f"the folder is {arguments.brief(path)}", fix="give its name")
        self.path = str(path)

    def on_epoch_end(self, trainer: Trainer, logs: dict[str, float]) -> None:
        if not self.monitor or self.better(logs):
            trainer.save(self.path.replace("{epoch}", str(trainer.state.epoch + 1)), extra={"logs": _finite(logs)})


def _finite(logs: dict[str, float]) -> dict[str, Any]:
    """JSON has no NaN."""
    return {k: v if math.isfinite(v) else str(v) for k, v in logs.items()}
