"""Averages of parameters (`EMA`), and groups of parameters that weight decay should or should not reach."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from treadle.base import arguments, dtypes
from treadle.base.errors import UserError
from treadle.frontend import trace as tracing
from treadle.frontend.lift import cast
from treadle.frontend.tensor import Tensor
from treadle.nn.cell import Cell, Parameter
from treadle.optim._arith import lerp, work_dtype
from treadle.optim.optimizer import need


class EMA:
    """Running averages of parameters: after each step `ema.update()`; `with ema.applied():` the net uses the averages.

    params: a cell or parameters. average = decay * average + (1 - decay) * p, beginning at p. warm_up: the decay is at
    most (1 + n) / (10 + n) at update n, so that early values are forgotten. `update` may be part of a compiled step.
    Raises E0531 for a decay out of range. Source: Polyak & Juditsky 1992, doi:10.1137/0330046.
    """

    def __init__(self, params: Cell | Iterable[Parameter], decay: float = 0.999, warm_up: bool = False) -> None:
        need(0 <= decay < 1, f"decay is {decay}", "a number from 0 up to, not including, 1")
        if not isinstance(params, Cell | Iterable) or isinstance(params, Tensor | str):
            raise UserError("E0530", f"EMA got {arguments.brief(params)}", fix="pass a cell, or net.parameters()")
        self.params = params.parameters() if isinstance(params, Cell) else list(params)
        self.decay, self.warm_up = decay, warm_up
        self.count = Tensor(np.int32(0))
        self.averages = [p.astype(work_dtype(p)).copy() for p in self.params]
        self._kept: list[Tensor] | None = None

    def settings(self) -> tuple[Any, ...]:
        """What a compiled update depends on beside tensors."""
        return (self.decay, self.warm_up)

    containers = settings

    def update(self) -> None:
        """Move the averages towards the parameters."""
        trace = tracing.current()
        if trace is not None:
            trace.touched[id(self)] = self
        self.count.assign(self.count + 1)
        share: Any = 1 - self.decay
        if self.warm_up:
            n = cast(self.count, dtypes.float32)
            floor = 9 / (10 + n)
            share = (floor + share + abs(floor - share)) / 2
        for average, p in zip(self.averages, self.params, strict=True):
            average.assign(cast(lerp(average, cast(p, average.dtype), share), average.dtype))

    def apply(self) -> None:
        """Give the parameters the averages; `restore` gives them back what they had. Raises E0537 when done twice."""
        if self._kept is not None:
            raise UserError("E0537", "the averages are in use already", fix="call restore() first")
        self._kept = [p.copy() for p in self.params]
        for p, average in zip(self.params, self.averages, strict=True):
            p.assign(cast(average, p.dtype))

    def restore(self) -> None:
        """Undo `apply`. Raises E0537 without one."""
        if self._kept is None:
            raise UserError("E0537", "the averages are not in use", fix="call apply() first")
        for p, value in zip(self.params, self._kept, strict=True):
            p.assign(value)
        self._kept = None

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Inside the block the parameters are the averages."""
        self.apply()
        try:
            yield
        finally:
            self.restore()

    def state_dict(self) -> dict[str, Tensor]:
        """The number of updates and the averages, as they are now."""
        return {"count": self.count.copy(), **{f"average.{i}": a.copy() for i, a in enumerate(self.averages)}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`, all or nothing. Raises E0535 when names or types are not those of these parameters."""
        own = {"count": self.count, **{f"average.{i}": a for i, a in enumerate(self.averages)}}
        new = {k: v if isinstance(v, Tensor) else Tensor(np.asarray(v)) for k, v in state.items()}
        if own.keys() != new.keys() or any(own[k].type != v.type for k, v in new.items()):
            raise UserError("E0535", "the state is not of these averages", fix="make the EMA of the same parameters")
        for name, tensor in own.items():
            tensor.assign(new[name])


def decay_groups(net: Cell, weight_decay: float = 0.01, without: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Two groups for an optimiser: matrices and kernels with weight_decay; biases, norms and other vectors without.

    A parameter of fewer than two axes is not decayed, nor one whose name holds a text of `without` ("embedding").
    Empty groups are left out. As in GPT-2's training (Radford et al. 2019) and most recipes since.
    """
    decayed: list[Parameter] = []
    plain: list[Parameter] = []
    for name, p in net.named_parameters():
        (plain if p.ndim < 2 or any(text in name for text in without) else decayed).append(p)
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]
    return [g for g in groups if g["params"]]
