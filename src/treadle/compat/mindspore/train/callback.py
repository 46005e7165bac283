"""Callbacks of `Model.train`: losses, times, checkpoints, learning rates, early end."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.compat.mindspore.train.serialization import save_checkpoint


class RunContext:
    """What a callback gets: `original_args()` tells where the training is, `request_stop()` ends it."""

    def __init__(self, original_args: Any) -> None:
        self._args, self._stop = original_args, False

    def original_args(self) -> Any:
        """cur_epoch_num, cur_step_num, epoch_num, batch_num, net_outputs, network, train_network, optimizer, ..."""
        return self._args

    def request_stop(self) -> None:
        """End the training after this step."""
        self._stop = True

    def get_stop_requested(self) -> bool:
        """Whether the end was asked for."""
        return self._stop


class Callback:
    """Base: override begin, epoch_begin, step_begin, step_end, epoch_end, end, or on_train_... and on_eval_...."""

    def begin(self, run_context: Any) -> None:
        """Before all."""

    def epoch_begin(self, run_context: Any) -> None:
        """Before an epoch."""

    def step_begin(self, run_context: Any) -> None:
        """Before a step."""

    def step_end(self, run_context: Any) -> None:
        """After a step."""

    def epoch_end(self, run_context: Any) -> None:
        """After an epoch."""

    def end(self, run_context: Any) -> None:
        """After all."""

    def __getattr__(self, name: str) -> Any:
        """on_train_step_end and the like are step_end and the like, unless a subclass defines them."""
        for front in ("on_train_", "on_eval_"):
            if name.startswith(front):
                return getattr(self, name.removeprefix(front))
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        return None


def call_all(callbacks: list[Callback], moment: str, context: RunContext) -> None:
    """Call one method of every callback."""
    for callback in callbacks:
        getattr(callback, moment)(context)


class LossMonitor(Callback):
    """Prints the loss every per_print_times steps. Raises E0564 when it is NaN or infinite."""

    def __init__(self, per_print_times: int = 1) -> None:
        self.every = per_print_times
        self._last = 0

    def step_end(self, run_context: Any) -> None:
        args = run_context.original_args()
        loss = args.net_outputs
        loss = loss[0] if isinstance(loss, tuple | list) else loss
        value = float(np.mean(np.asarray(loss)))
        step = (args.cur_step_num - 1) % args.batch_num + 1
        if not np.isfinite(value):
            why = f"the loss is {value} in epoch {args.cur_epoch_num}, step {step}"
            raise UserError("E0564", why, fix="lower the learning rate, or look at the data")
        if self.every and args.cur_step_num - self._last >= self.every:
            self._last = args.cur_step_num
            print(f"epoch: {args.cur_epoch_num} step: {step}, loss is {value}", flush=True)

    def on_train_epoch_end(self, run_context: Any) -> None:
        """Print the metrics of `Model.fit`."""
        if metrics := getattr(run_context.original_args(), "metrics", None):
            print(f"Eval result: epoch {run_context.original_args().cur_epoch_num}, metrics: {metrics}", flush=True)


class TimeMonitor(Callback):
    """Prints the time of each epoch and of its steps, in milliseconds."""

    def __init__(self, data_size: int | None = None, data_time: bool = False) -> None:
        self.data_size = data_size
        self.epoch_ms: list[float] = []
        self._start = 0.0

    def epoch_begin(self, run_context: Any) -> None:
        self._start = time.perf_counter()

    def epoch_end(self, run_context: Any) -> None:
        spent = (time.perf_counter() - self._start) * 1000
        self.epoch_ms.append(spent)
        steps = self.data_size or run_context.original_args().batch_num
        print(f"Train epoch time: {spent:5.3f} ms, per step time: {spent / max(steps, 1):5.3f} ms", flush=True)


class CheckpointConfig:
    """When ModelCheckpoint saves: every save_checkpoint_steps steps, keeping the last keep_checkpoint_max files."""

    def __init__(
        self,
        save_checkpoint_steps: int = 1,
        save_checkpoint_seconds: int = 0,
        keep_checkpoint_max: int = 5,
        keep_checkpoint_per_n_minutes: int = 0,
        integrated_save: bool = True,
        async_save: bool = False,
        saved_network: Any = None,
        **options: Any,
    ) -> None:
        if options or save_checkpoint_seconds or keep_checkpoint_per_n_minutes:
            why = "CheckpointConfig by seconds, minutes or with encryption is not covered"
            raise UserError("E0592", why, fix="use save_checkpoint_steps and keep_checkpoint_max")
        self.save_checkpoint_steps, self.keep_checkpoint_max = save_checkpoint_steps, keep_checkpoint_max
        self.saved_network = saved_network


class ModelCheckpoint(Callback):
    """Saves the trained network, with the optimiser's state, as prefix-epoch_step.ckpt in a directory."""

    def __init__(self, prefix: str = "CKP", directory: Any = None, config: CheckpointConfig | None = None) -> None:
        self.prefix, self.directory = prefix, Path(directory or ".")
        self.config = config or CheckpointConfig()
        self.files: list[Path] = []
        self._saved = 0

    @property
    def latest_ckpt_file_name(self) -> str | None:
        """The file that was saved last."""
        return str(self.files[-1]) if self.files else None

    def step_end(self, run_context: Any) -> None:
        args = run_context.original_args()
        if args.cur_step_num - self._saved >= self.config.save_checkpoint_steps:
            self._save(args)

    def end(self, run_context: Any) -> None:
        if run_context.original_args().cur_step_num != self._saved:
            self._save(run_context.original_args())

    def _save(self, args: Any) -> None:
        step = (args.cur_step_num - 1) % args.batch_num + 1
        path = self.directory / f"{self.prefix}-{args.cur_epoch_num}_{step}.ckpt"
        extra = {"epoch_num": args.cur_epoch_num, "step_num": args.cur_step_num}
        save_checkpoint(self.config.saved_network or args.train_network, path, append_dict=extra)
        self._saved = args.cur_step_num
        self.files = [f for f in self.files if f != path] + [path]
        while self.config.keep_checkpoint_max and len(self.files) > self.config.keep_checkpoint_max:
            self.files.pop(0).unlink(missing_ok=True)


class LearningRateScheduler(Callback):
    """Before each step the rate becomes function(rate, step)."""

    def __init__(self, learning_rate_function: Callable[[float, int], float]) -> None:
        self.function = learning_rate_function

    def step_end(self, run_context: Any) -> None:
        args = run_context.original_args()
        rate = args.optimizer.learning_rate
        if not hasattr(rate, "assign") or rate.ndim:
            raise UserError("E0531", "the optimiser has no single learning rate", fix="give it a number")
        rate.assign(np.float32(self.function(float(rate.item()), args.cur_step_num)))


class EarlyStopping(Callback):
    """Ends `Model.fit` when a metric has not become better for `patience` epochs. mode "min" or "max"."""

    def __init__(self, monitor: str = "eval_loss", min_delta: float = 0, patience: int = 0, mode: str = "auto") -> None:
        self.monitor, self.delta, self.patience = monitor, abs(min_delta), patience
        best_is_large = mode == "max" or (mode == "auto" and "acc" in monitor.lower())
        self.sign = -1.0 if best_is_large else 1.0
        self.best, self.waited = np.inf, 0

    def on_train_epoch_end(self, run_context: Any) -> None:
        """Compare the metric of this epoch with the best one."""
        args = run_context.original_args()
        values = {"loss": float(np.mean(np.asarray(args.net_outputs)))}
        values |= {f"eval_{k}": v for k, v in getattr(args, "metrics", {}).items()} | getattr(args, "metrics", {})
        if self.monitor not in values:
            raise UserError("E0563", f"there is no {self.monitor!r}", fix=f"watch one of {', '.join(values)}")
        now = self.sign * float(values[self.monitor])
        if now < self.best - self.delta:
            self.best, self.waited = now, 0
            return
        self.waited += 1
        if self.waited >= max(self.patience, 1):
            run_context.request_stop()


class History(Callback):
    """Keeps the loss of the last step of each epoch in `epoch` and `history`."""

    def __init__(self) -> None:
        self.history: dict[str, list[float]] = {}
        self.epoch: dict[str, list[int]] = {"epoch": []}

    def epoch_end(self, run_context: Any) -> None:
        args = run_context.original_args()
        self.epoch["epoch"].append(args.cur_epoch_num)
        self.history.setdefault("net_output", []).append(float(np.mean(np.asarray(args.net_outputs))))


__all__ = [
    "Callback",
    "CheckpointConfig",
    "EarlyStopping",
    "History",
    "LearningRateScheduler",
    "LossMonitor",
    "ModelCheckpoint",
    "RunContext",
    "TimeMonitor",
]
