"""`Model`: trains, evaluates and uses a network by data sets; losses and metrics come out."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.compat.mindspore._tensor import Tensor, tag
from treadle.compat.mindspore.amp import auto_mixed_precision, train_step
from treadle.compat.mindspore.nn.cell import Cell
from treadle.compat.mindspore.nn.metrics import Loss, Metric, metric_of
from treadle.compat.mindspore.nn.wrap import WithEvalCell, WithLossCell
from treadle.compat.mindspore.train.callback import Callback, RunContext, call_all


class Model:
    """Model(network, loss_fn, optimizer, metrics={"acc"}): `train`, `fit`, `eval`, `predict` by data sets.

    Without loss_fn the network gives the loss itself. metrics: names, or a dict of `nn.Metric`. amp_level "O0", "O2"
    or "O3": see `amp.auto_mixed_precision`. Raises E0565 for parts that are missing.
    """

    def __init__(
        self,
        network: Any,
        loss_fn: Any = None,
        optimizer: Any = None,
        metrics: Any = None,
        eval_network: Any = None,
        eval_indexes: Any = None,
        amp_level: str = "O0",
        boost_level: str = "O0",
        loss_scale_manager: Any = None,
        **options: Any,
    ) -> None:
        if boost_level != "O0" or options:
            raise UserError("E0592", f"Model with {boost_level=} or {list(options)} is not covered", fix="leave it out")
        if not isinstance(network, Cell):
            raise UserError("E0565", f"the network is a {type(network).__name__}", fix="give an nn.Cell")
        self._network = network if amp_level == "O0" else auto_mixed_precision(network, amp_level)
        self._loss_fn, self._optimizer = loss_fn, optimizer
        self._metrics = _metrics(metrics)
        self._indexes = eval_indexes
        self._eval_network = eval_network
        if eval_network is None and self._metrics and loss_fn is not None:
            self._eval_network = WithEvalCell(network, loss_fn)
        self._train_network: Any = self._make_train_network(loss_scale_manager) if optimizer is not None else None

    def _make_train_network(self, manager: Any) -> Any:
        net = self._network if self._loss_fn is None else WithLossCell(self._network, self._loss_fn)
        return train_step(net, self._optimizer, manager)

    @property
    def train_network(self) -> Any:
        """The cell of one step."""
        return self._train_network

    @property
    def predict_network(self) -> Any:
        """The network."""
        return self._network

    @property
    def eval_network(self) -> Any:
        """The cell of one batch's evaluation."""
        return self._eval_network

    # ------------------------------------------------------------------------------------------------ training
    def train(
        self,
        epoch: int,
        train_dataset: Any,
        callbacks: Any = None,
        dataset_sink_mode: bool = False,
        sink_size: int = -1,
        initial_epoch: int = 0,
    ) -> None:
        """Train for `epoch` epochs. dataset_sink_mode changes nothing: each batch is given to one compiled step."""
        self._run(epoch, train_dataset, _listed(callbacks), initial_epoch, None, 1)

    def fit(
        self,
        epoch: int,
        train_dataset: Any,
        valid_dataset: Any = None,
        valid_frequency: Any = 1,
        callbacks: Any = None,
        dataset_sink_mode: bool = False,
        valid_dataset_sink_mode: bool = False,
        sink_size: int = -1,
        initial_epoch: int = 0,
    ) -> None:
        """Train as `train`, and evaluate on `valid_dataset` every valid_frequency epochs (or after those listed)."""
        self._run(epoch, train_dataset, _listed(callbacks), initial_epoch, valid_dataset, valid_frequency)

    def _run(self, epochs: int, data: Any, callbacks: list[Callback], first: int, valid: Any, every: Any) -> None:
        if self._train_network is None:
            raise UserError("E0565", "training needs an optimiser", fix="Model(network, loss_fn, optimizer)")
        if not isinstance(epochs, int) or isinstance(epochs, bool) or epochs < 1:
            raise UserError("E0565", f"epoch is {epochs!r}", fix="give 1 or more")
        args = SimpleNamespace(
            epoch_num=epochs, cur_epoch_num=first, cur_step_num=0, batch_num=max(data.get_dataset_size(), 1),
            net_outputs=None, network=self._network, train_network=self._train_network, optimizer=self._optimizer,
            loss_fn=self._loss_fn, train_dataset=data, mode="train", list_callback=callbacks,
        )  # fmt: skip
        context = RunContext(args)
        call_all(callbacks, "on_train_begin", context)
        for args.cur_epoch_num in range(first + 1, epochs + 1):
            self._train_network.set_train(True)
            self._epoch(data, args, callbacks, context)
            if valid is not None and _is_due(args.cur_epoch_num, every):
                args.metrics = self.eval(valid)
            call_all(callbacks, "on_train_epoch_end", context)
            if context.get_stop_requested():
                break
        call_all(callbacks, "on_train_end", context)

    def _epoch(self, data: Any, args: Any, callbacks: list[Callback], context: RunContext) -> None:
        call_all(callbacks, "on_train_epoch_begin", context)
        before = args.cur_step_num
        for batch in data.create_tuple_iterator(num_epochs=1):
            args.cur_step_num += 1
            call_all(callbacks, "on_train_step_begin", context)
            args.net_outputs = self._train_network(*batch)
            call_all(callbacks, "on_train_step_end", context)
            if context.get_stop_requested():
                break
        if args.cur_step_num == before:
            raise UserError("E0565", "the data set has no batch", fix="give samples; drop_remainder=False")

    # ------------------------------------------------------------------------------------------------ judging, using
    def eval(self, valid_dataset: Any, callbacks: Any = None, dataset_sink_mode: bool = False) -> dict[str, Any]:
        """The metrics over a data set, with the network in evaluation mode."""
        if not self._metrics or self._eval_network is None:
            raise UserError("E0565", "eval needs metrics and a loss", fix='Model(net, loss_fn, metrics={"acc"})')
        for metric in self._metrics.values():
            metric.clear()
        self._eval_network.set_train(False)
        context = RunContext(SimpleNamespace(cur_step_num=0, batch_num=valid_dataset.get_dataset_size(), mode="eval"))
        heard = _listed(callbacks)
        call_all(heard, "on_eval_begin", context)
        for batch in valid_dataset.create_tuple_iterator(num_epochs=1):
            outputs = self._eval_network(*batch)
            for metric in self._metrics.values():
                metric.update(*self._chosen(metric, outputs))
        call_all(heard, "on_eval_end", context)
        return {name: metric.eval() for name, metric in self._metrics.items()}

    def _chosen(self, metric: Metric, outputs: Any) -> list[Any]:
        places = metric.indexes
        if places is None:
            places = self._indexes[:1] if self._indexes and isinstance(metric, Loss) else None
        if places is None:
            places = [0] if isinstance(metric, Loss) else list(self._indexes[1:] if self._indexes else (1, 2))
        return [outputs[i] for i in places]

    def predict(self, *predict_data: Any) -> Any:
        """The network's results for one batch, in evaluation mode."""
        self._network.set_train(False)
        return tag(
            self._network(
                *[d if hasattr(d, "dtype") and not isinstance(d, np.ndarray) else Tensor(d) for d in predict_data]
            )
        )


def _metrics(given: Any) -> dict[str, Metric]:
    if given is None:
        return {}
    if isinstance(given, dict):
        return dict(given)
    names: Iterable[str] = [given] if isinstance(given, str) else sorted(given) if isinstance(given, set) else given
    return {name: metric_of(name) for name in names}


def _listed(callbacks: Any) -> list[Callback]:
    found = [] if callbacks is None else list(callbacks) if isinstance(callbacks, list | tuple) else [callbacks]
    if wrong := [c for c in found if not isinstance(c, Callback)]:
        raise UserError("E0563", f"a callback is a {type(wrong[0]).__name__}", fix="give instances of Callback")
    return found


def _is_due(epoch: int, every: Any) -> bool:
    return epoch % every == 0 if isinstance(every, int) else epoch in every


__all__ = ["Model"]
