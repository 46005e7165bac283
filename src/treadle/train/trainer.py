"""`Trainer`: fits a cell to data, evaluates and predicts. Batches go in; losses and metrics come out in a `History`.

One step (loss, gradients, the optimiser's change) is one compiled program, or op by op with `jit=False`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from treadle.api.gradients import value_and_grad
from treadle.api.programs import jit as compile_function
from treadle.base import arguments, dtypes, events
from treadle.base.errors import UserError
from treadle.data.loader import DataLoader
from treadle.frontend import casting, tree
from treadle.frontend.tensor import Tensor
from treadle.nn.cell import Cell
from treadle.optim.amp import initialize
from treadle.optim.optimizer import Optimizer
from treadle.optim.scaling import GradScaler
from treadle.optim.schedules import Schedule
from treadle.train import checkpoint
from treadle.train.callbacks import Callback, LearningRateSchedule
from treadle.train.metrics import Mean
from treadle.train.progress import ProgressBar


@dataclass
class History:
    """losses: one per step. epochs: the logs of each epoch (loss, metrics, val_..., seconds, samples_per_second)."""

    losses: list[float] = field(default_factory=list)
    epochs: list[dict[str, float]] = field(default_factory=list)

    def __getitem__(self, name: str) -> list[float]:
        """One number of the logs for every epoch."""
        return [logs[name] for logs in self.epochs]


@dataclass
class State:
    """Where a training is. `logs`: the running numbers of this epoch; `rate`: samples per second in it."""

    epochs: int = 0
    epoch: int = 0
    step: int = 0
    step_in_epoch: int = 0
    steps_per_epoch: int | None = None
    rate: float = 0.0
    logs: dict[str, float] = field(default_factory=dict)


class Trainer:
    """Trains `net`. loss: function or cell of (prediction, target) that gives one number.

    metrics: objects with `name`, `reset`, `update(prediction, target)` and `compute`. jit: None or True compiles the
    step, False runs it op by op. check_finite: stop with E0564, which names the step, when a loss is NaN or infinite.
    amp: "O1" computes in 16 bits where that is safe, "O2" makes the parameters 16-bit too (`td.amp.initialize`), in
    bfloat16 or the amp_dtype; losses are of float32 predictions. scaler: scales the loss; a `td.amp.GradScaler`, in
    float16 a new one unless given.

    Data is an iterable of batches (x, y) that can be gone through once per epoch (a DataLoader, a list), or a pair of
    arrays, cut into batches of batch_size and shuffled for training. Batches may have more inputs: (x1, x2, ..., y).
    """

    def __init__(
        self,
        net: Cell,
        loss: Any = None,
        optimizer: Optimizer | None = None,
        metrics: Sequence[Any] = (),
        callbacks: Sequence[Callback] = (),
        jit: bool | None = None,
        check_finite: bool = True,
        amp: str = "O0",
        amp_dtype: Any = dtypes.bfloat16,
        scaler: GradScaler | None = None,
    ) -> None:
        _check_parts(net, loss, optimizer, metrics, callbacks)
        self.jit = jit
        block = initialize(net, optimizer, amp, amp_dtype)
        self._cast = nullcontext() if amp == "O0" else block
        if not isinstance(scaler, GradScaler | None):
            raise UserError("E0565", f"scaler is {arguments.brief(scaler)}", fix="give a td.amp.GradScaler")
        is_float16 = amp != "O0" and dtypes.of(amp_dtype) is dtypes.float16
        self.scaler = GradScaler(enabled=is_float16) if scaler is None else scaler
        self.net, self.loss, self.optimizer = net, loss, optimizer
        self.metrics, self.callbacks, self.check_finite = tuple(metrics), list(callbacks), check_finite
        self.state, self.history = State(), History()
        self._data: Any = None
        self._stopped = False

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in ("net", "loss", "optimizer", "metrics", "jit", "scaler"):  # what is compiled belongs to the old ones
            run = (lambda f: f) if self.jit is False else compile_function
            self._step, self._judge, self._apply = run(self._train_step), run(self._judge_batch), run(self._call)

    # ------------------------------------------------------------------------------------------------ what is compiled
    def _train_step(self, *batch: Any) -> tuple[Any, Any]:
        """(loss, prediction or None) of one batch; parameters and optimiser state change."""
        optimizer = self.optimizer
        assert optimizer is not None
        wanted = [p for p in optimizer.params if p.requires_grad]

        def objective() -> tuple[Any, Any]:
            loss, prediction = self._judge_batch(*batch)
            return self.scaler.scale(loss), (loss, prediction if self.metrics else None)

        (_, (loss, prediction)), grads = value_and_grad(objective, wanted, has_aux=True)()
        rest = iter(grads)
        self.scaler.step(optimizer, [next(rest) if p.requires_grad else None for p in optimizer.params])
        self.scaler.update()
        return loss, prediction

    def _judge_batch(self, *batch: Any) -> tuple[Any, Any]:
        prediction = self._call(*batch[:-1])
        return arguments.call(self.loss, (prediction, batch[-1]), {}), prediction

    def _call(self, *inputs: Any) -> Any:
        """The prediction; under autocast 16-bit floats of it become float32."""
        with self._cast:
            prediction = self.net(*inputs)
            return tree.tree_map(_widened, prediction) if casting.dtype() is not None else prediction

    # ------------------------------------------------------------------------------------------------ training
    def fit(
        self, train_data: Any, epochs: int = 1, validate: Any = None, batch_size: int = 32, progress: bool = True
    ) -> History:
        """Train for `epochs` epochs; after each, evaluate on `validate` if given. Returns the history of all fits.

        Raises E0565 without loss or optimiser, for data of the wrong kind or without a batch, E0564 for a bad loss.
        """
        if self.loss is None or self.optimizer is None:
            raise UserError("E0565", "fit needs a loss and an optimiser", fix="Trainer(net, loss=..., optimizer=...)")
        _check_run(self.net, self.loss, self.optimizer, epochs)
        data = self._data = _batches(train_data, batch_size, shuffle=True)
        held_out = None if validate is None else _batches(validate, batch_size, shuffle=False)
        callbacks = [*self.callbacks, *([ProgressBar()] if progress else [])]
        state, self._stopped = self.state, False
        state.epochs, state.epoch = epochs, 0
        state.steps_per_epoch = len(data) if hasattr(data, "__len__") else None
        for c in callbacks:
            c.on_fit_start(self)
        try:
            for state.epoch in range(epochs):
                logs = self._fit_epoch(data, held_out, callbacks)
                self.history.epochs.append(logs)
                if self._stopped:
                    break
        finally:
            for c in callbacks:
                c.on_fit_end(self)
        return self.history

    def _fit_epoch(self, data: Any, held_out: Any, callbacks: Sequence[Callback]) -> dict[str, float]:
        state, mean, start, samples = self.state, Mean(), time.perf_counter(), 0
        state.step_in_epoch = 0
        for c in callbacks:
            c.on_epoch_start(self)
        with _mode(self.net, training=True):
            for m in self.metrics:
                m.reset()
            for batch in data:
                batch = _checked(batch)
                value, prediction = self._step(*batch)
                loss = value.item()
                state.step, state.step_in_epoch = state.step + 1, state.step_in_epoch + 1
                self._check(loss)
                self.history.losses.append(loss)
                samples += len(batch[0])
                mean.update(loss, len(batch[0]))
                self._measure(prediction, batch[-1])
                state.logs = {"loss": mean.compute(), **{m.name: m.compute() for m in self.metrics}}
                state.rate = samples / (time.perf_counter() - start)
                for c in callbacks:
                    c.on_step_end(self, loss)
        if not state.step_in_epoch:
            why = f"epoch {state.epoch + 1} has no batch"
            raise UserError("E0565", why, fix="give data that can be gone through once per epoch: a DataLoader, a list")
        seconds = time.perf_counter() - start
        logs = dict(state.logs)
        if held_out is not None:
            logs |= {f"val_{k}": v for k, v in self.evaluate(held_out).items()}
        shown = dict(logs)
        events.record("train", "epoch", seconds, epoch=state.epoch, **logs)
        for c in callbacks:
            c.on_epoch_end(self, shown)
        return {**logs, "seconds": seconds, "samples_per_second": state.rate}

    def _check(self, loss: float) -> None:
        if math.isfinite(loss):
            return
        state = self.state
        events.record("train", "loss is not finite", loss=str(loss), step=state.step, epoch=state.epoch)
        if self.check_finite:
            why = f"the loss is {loss} at step {state.step} (step {state.step_in_epoch} of epoch {state.epoch + 1})"
            fix = "lower the learning rate, clip gradients, or look at the data; check_finite=False goes on"
            raise UserError("E0564", why, fix=fix)

    def _measure(self, prediction: Any, target: Any) -> None:
        if self.metrics:
            numbers, target = np.asarray(prediction), np.asarray(target)
            for m in self.metrics:
                m.update(numbers, target)

    def stop(self) -> None:
        """End the training after this epoch; for callbacks."""
        self._stopped = True

    # ------------------------------------------------------------------------------------------------ judging, using
    def evaluate(self, data: Any, batch_size: int = 32) -> dict[str, float]:
        """The mean loss over all samples and the metrics, with the net in evaluation mode. Raises E0565."""
        if self.loss is None:
            raise UserError("E0565", "evaluate needs a loss", fix="Trainer(net, loss=...)")
        mean = Mean()
        for m in self.metrics:
            m.reset()
        with _mode(self.net, training=False):
            for batch in _batches(data, batch_size, shuffle=False):
                batch = _checked(batch)
                loss, prediction = self._judge(*batch)
                mean.update(loss.item(), len(batch[0]))
                self._measure(prediction, batch[-1])
        return {"loss": mean.compute(), **{m.name: m.compute() for m in self.metrics}}

    def predict(self, data: Any, batch_size: int = 32) -> Tensor:
        """The net's results for an array of inputs, or for batches (of which only the inputs are used), joined.

        The net is in evaluation mode. Raises E0565 for a result that is not one tensor, or without a batch.
        """
        found = []
        with _mode(self.net, training=False):
            for inputs in _inputs(data, batch_size):
                result = self._apply(*inputs)
                if not isinstance(result, Tensor):
                    why = f"the net gives a {type(result).__name__}, not one tensor"
                    raise UserError("E0565", why, fix="call the net itself")
                found.append(result.numpy())
        if not found:
            raise UserError("E0565", "there is no batch to predict for", fix="give at least one sample")
        return Tensor(np.concatenate(found))

    # ------------------------------------------------------------------------------------------------ checkpoints
    def save(self, path: str | Path, extra: dict[str, Any] | None = None) -> Path:
        """Write net, optimiser, step, schedules and the state of the training data's loader to the folder `path`."""
        loader = self._data.state_dict() if hasattr(self._data, "state_dict") else None
        more = {"user": extra or {}, "loader": loader, "schedules": [s.state_dict() for s in self._schedules()]}
        if self.scaler.enabled:
            more["scaler"] = self.scaler.state_dict()
        return checkpoint.save(path, self.net, self.optimizer, more, self.state.step)

    def _schedules(self) -> list[Schedule]:
        return [c.schedule for c in self.callbacks if isinstance(c, LearningRateSchedule)]

    def restore(self, path: str | Path, train_data: Any = None) -> dict[str, Any]:
        """Take net, optimiser and step from the folder `path`, and the loader's place if `train_data` is given.

        The schedules of the callbacks go on too, if they are as many as were saved. Returns what `save` was given as
        extra. Raises as `checkpoint.load`.
        """
        loaded = checkpoint.load(path, self.net, self.optimizer)
        self.state.step = loaded.step
        states, schedules = loaded.extra.get("schedules", []), self._schedules()
        if len(states) == len(schedules):
            for schedule, state in zip(schedules, states, strict=True):
                schedule.load_state_dict(state)
        if self.scaler.enabled and "scaler" in loaded.extra:
            self.scaler.load_state_dict(loaded.extra["scaler"])
        if train_data is not None and loaded.extra.get("loader") is not None:
            train_data.load_state_dict(loaded.extra["loader"])
        user: dict[str, Any] = loaded.extra.get("user", {})
        return user


def _check_parts(net: Any, loss: Any, optimizer: Any, metrics: Any, callbacks: Any) -> None:
    """Raise E0565 for what the trainer cannot work with."""
    wanted = [
        ("net", net, isinstance(net, Cell), "a cell: a td.Cell or nn.Sequential"),
        ("loss", loss, loss is None or callable(loss), "a function or cell: nn.MSELoss()"),
        ("optimizer", optimizer, optimizer is None or isinstance(optimizer, Optimizer), "optim.Adam(net.parameters())"),
        ("metrics", metrics, _all_have("update", metrics), "a list of metrics: [train.Accuracy()]"),
        ("callbacks", callbacks, _all_have("on_step_end", callbacks), "a list of train.Callback"),
    ]
    for name, value, fits, fix in wanted:
        if not fits or isinstance(value, type):
            raise UserError("E0565", f"{name} is {arguments.brief(value)}", fix=f"give {fix}")


def _widened(x: Any) -> Any:
    return x.astype(dtypes.float32) if isinstance(x, Tensor) and x.dtype.is_float and x.dtype.bits == 16 else x


def _all_have(method: str, things: Any) -> bool:
    return isinstance(things, list | tuple) and all(hasattr(t, method) and not isinstance(t, type) for t in things)


def _check_run(net: Cell, loss: Any, optimizer: Optimizer, epochs: Any) -> None:
    """Raise E0565 for epochs that are no number of 0 or more, or an optimiser of none of these parameters."""
    arguments.count(epochs, "epochs", 0, "E0565")
    own = {id(p) for part in (net, loss) if isinstance(part, Cell) for p in part.parameters()}
    if own and own.isdisjoint(map(id, optimizer.params)):
        why = "the optimiser has none of the net's parameters: nothing would be trained"
        raise UserError("E0565", why, fix=f"make it of this net: optim.{type(optimizer).__name__}(net.parameters())")


@contextmanager
def _mode(net: Cell, training: bool) -> Any:
    """The net is in training or evaluation mode inside the block; afterwards every cell is as it was."""
    before = [(cell, cell.training) for cell in net.cells()]
    net.train(training)
    try:
        yield
    finally:
        for cell, was in before:
            cell.training = was


def _is_array(x: Any) -> bool:
    return isinstance(x, Tensor) or (hasattr(x, "dtype") and hasattr(x, "shape"))


def _batches(data: Any, batch_size: int, shuffle: bool) -> Any:
    """Something to iterate over once per epoch. Raises E0565 for what is no data, or can be gone through only once."""
    if isinstance(data, tuple) and len(data) > 1 and all(_is_array(a) for a in data):
        return DataLoader([np.asarray(a) for a in data], batch_size, shuffle=shuffle)
    if not isinstance(data, Iterable) or _is_array(data) or isinstance(data, str | dict):
        why = f"data is of type {type(data).__name__}"
        raise UserError("E0565", why, fix="give a DataLoader, a list of batches (x, y), or arrays (x, y)")
    return data


def _checked(batch: Any) -> tuple[Any, ...]:
    if not isinstance(batch, tuple | list) or len(batch) < 2:
        raise UserError("E0565", f"a batch is of type {type(batch).__name__}", fix="give batches (x, y)")
    return tuple([b if _is_array(b) else np.asarray(b) for b in batch])


def _inputs(data: Any, batch_size: int) -> Iterable[tuple[Any, ...]]:
    """The inputs of each batch."""
    if _is_array(data):
        array = np.asarray(data)
        return ((array[i : i + batch_size],) for i in range(0, len(array), batch_size))
    batches = _batches(data, batch_size, shuffle=False)
    return ((b,) if _is_array(b) else tuple(b[:-1]) if len(b) > 1 else tuple(b) for b in batches)
