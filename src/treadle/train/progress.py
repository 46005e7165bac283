"""The progress bar of a training: loss, metrics, samples per second and time left.

On a terminal a live bar (rich, an extra), elsewhere, or without rich, one line per epoch.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from treadle.train.callbacks import Callback

if TYPE_CHECKING:
    from treadle.train.trainer import Trainer


class ProgressBar(Callback):
    """Shows how the training goes. live: None decides by whether the output is a terminal; file: where lines go."""

    def __init__(self, live: bool | None = None, file: Any = None) -> None:
        self.live, self.file = live, file
        self._bar: Any = None
        self._start, self._done = 0.0, 0

    def on_fit_start(self, trainer: Trainer) -> None:
        out = sys.stdout if self.file is None else self.file
        live = out.isatty() if self.live is None else self.live
        self._bar = _rich_bar(out) if live else None
        self._start, self._done = time.perf_counter(), trainer.state.step
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("", total=None, text="")

    def on_step_end(self, trainer: Trainer, loss: float) -> None:
        if self._bar is not None:
            state = trainer.state
            left = text_of_time(self._left(trainer))
            text = f"{line_of(state.logs)}  {state.rate:,.0f} samples/s  {left} left"
            self._bar.update(
                self._task,
                completed=state.step_in_epoch,
                total=state.steps_per_epoch,
                description=f"epoch {state.epoch + 1}/{state.epochs}",
                text=text,
            )

    def on_epoch_end(self, trainer: Trainer, logs: dict[str, float]) -> None:
        state = trainer.state
        left = text_of_time(self._left(trainer))
        line = f"epoch {state.epoch + 1}/{state.epochs}  {line_of(logs)}  {state.rate:,.0f} samples/s  {left} left"
        if self._bar is not None:
            self._bar.console.print(line, highlight=False)
        else:
            print(line, file=self.file, flush=True)

    def on_fit_end(self, trainer: Trainer) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _left(self, trainer: Trainer) -> float | None:
        """Seconds until the end at the mean speed so far; None if the number of steps is not known."""
        state = trainer.state
        if state.steps_per_epoch is None:
            return None
        done = state.step - self._done
        total = state.steps_per_epoch * (state.epochs - state.epoch) - state.step_in_epoch
        return (time.perf_counter() - self._start) / max(done, 1) * total


def _rich_bar(out: Any) -> Any:
    """A live bar; None where rich is not installed."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn
    except ImportError:
        return None
    columns = TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[text]}")
    return Progress(*columns, console=Console(file=out), refresh_per_second=8)


def line_of(logs: dict[str, float]) -> str:
    """The numbers of the logs on a line; shares (accuracy, top-k) in percent."""
    parts = []
    for name, value in logs.items():
        share = name.removeprefix("val_").startswith(("accuracy", "top"))
        parts.append(f"{name} {value:.1%}" if share else f"{name} {value:.4f}")
    return "  ".join(parts)


def text_of_time(seconds: float | None) -> str:
    """Minutes and seconds."""
    if seconds is None:
        return "?"
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02d}"
