"""Averaged SGD, plain averages of parameters (SWA) with their schedule, and batch statistics made anew for them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from treadle.base import dtypes
from treadle.frontend import trace as tracing
from treadle.frontend.lift import cast
from treadle.frontend.tensor import Tensor
from treadle.nn.cell import Cell, Parameter
from treadle.ops.elementwise import maximum
from treadle.ops.functions import exp, log1p
from treadle.optim._arith import lerp, wide, work_dtype, write
from treadle.optim._moments import Params
from treadle.optim.ema import EMA
from treadle.optim.optimizer import Group, Optimizer, need
from treadle.optim.schedules import Schedule


class ASGD(Optimizer):
    """p = (1 - lambd * eta) * p - eta * g, eta = lr / (1 + lambd * lr * step) ** alpha; state "average": means of p.

    The average is p itself for the first t0 steps. weight_decay * p is added to g. Source: Polyak & Juditsky 1992,
    doi:10.1137/0330046, in the form of torch.optim.ASGD.
    """

    slots, counted = ("average", "eta", "share"), True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr, lambd=lambd, alpha=alpha, t0=t0, weight_decay=weight_decay)

    def check(self, lr: float, **options: Any) -> None:
        need(options["lambd"] >= 0, f"lambd is {options['lambd']}", "0 or more")
        super().check(lr, **options)

    def start(self, slot: str, param: Parameter, group: Group) -> Tensor:
        kind = work_dtype(param).np
        if slot == "average":
            return Tensor(np.zeros(param.shape, kind))
        return Tensor(np.asarray(group.lr if slot == "eta" else 1.0, kind))

    def update(self, param: Parameter, grad: Any, state: dict[str, Tensor], group: Group) -> None:
        options = group.options
        p, g = wide(param, grad)
        g = g + p * options["weight_decay"]
        eta, step = state["eta"], cast(state["step"], g.dtype)
        new = p * (1 - eta * options["lambd"]) - eta * g
        write(param, new)
        state["average"]._set(lerp(state["average"], new, state["share"]))
        rate = cast(group.rate, g.dtype)
        state["eta"]._set(rate * exp(log1p(rate * step * options["lambd"]) * -options["alpha"]))
        state["share"]._set(1 / maximum(step - options["t0"], 1.0))


class SWA(EMA):
    """Plain means of parameters: `swa.update()` at the end of an epoch; `with swa.applied():` the net uses them.

    The first update takes the parameters as they are. Call `update_bn` before use if the net has batch norms.
    Source: Izmailov et al. 2018, arXiv:1803.05407.
    """

    def __init__(self, params: Cell | Iterable[Parameter]) -> None:
        super().__init__(params, 0.0)

    def update(self) -> None:
        """Let the parameters of now count as one more sample."""
        trace = tracing.current()
        if trace is not None:
            trace.touched[id(self)] = self
        self.count.assign(self.count + 1)
        share = 1 / cast(self.count, dtypes.float32)
        for average, p in zip(self.averages, self.params, strict=True):
            average.assign(cast(lerp(average, cast(p, average.dtype), share), average.dtype))


class SWALR(Schedule):
    """From base to swa_lr in anneal_epochs steps, along half a cosine or a line, then swa_lr."""

    def __init__(
        self, optimizer: Optimizer, swa_lr: float, anneal_epochs: int = 10, anneal_strategy: str = "cos"
    ) -> None:
        need(anneal_strategy in ("cos", "linear"), f"anneal_strategy is {anneal_strategy!r}", "'cos' or 'linear'")
        need(anneal_epochs >= 0, f"anneal_epochs is {anneal_epochs}", "0 or more")
        self.swa_lr, self.anneal_epochs, self.anneal_strategy = swa_lr, anneal_epochs, anneal_strategy
        super().__init__(optimizer)

    def rate(self, t: int, base: float) -> float:
        share = min(1.0, t / max(1, self.anneal_epochs))
        if self.anneal_strategy == "cos":
            share = (1 - math.cos(math.pi * share)) / 2
        return self.swa_lr * share + base * (1 - share)


def update_bn(batches: Iterable[Any], net: Cell) -> None:
    """Make the running statistics of all batch norms anew: plain means over the batches, in one pass in eager mode.

    batches: inputs, or tuples (or lists) whose first part is the input. The net's mode and momenta stay as they are.
    """
    norms: list[Any] = [cell for cell in net.cells() if getattr(cell, "running_mean", None) is not None]
    if not norms:
        return
    modes, momenta = [(cell, cell.training) for cell in net.cells()], [norm.momentum for norm in norms]
    net.train()
    try:
        for i, batch in enumerate(batches):
            for norm in norms:
                norm.momentum = 1 / (i + 1)
            net(batch[0] if isinstance(batch, tuple | list) else batch)
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        for cell, mode in modes:
            cell.training = mode
