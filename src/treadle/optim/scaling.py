"""`GradScaler`: scaling of the loss, so that small gradients are not lost in float16, and steps left out where
gradients are infinite or NaN. A loss and gradients go in; parameters, the optimiser's state and the scale change.

All its state is tensors: it works in a compiled step, without asking the device anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from treadle.base import arguments, dtypes
from treadle.base.errors import UserError
from treadle.frontend import trace as tracing
from treadle.frontend.lift import cast, lift
from treadle.frontend.tensor import Tensor
from treadle.ops.compare import is_finite, logical_and, logical_not, select
from treadle.ops.elementwise import maximum
from treadle.ops.reduce import reduce_and
from treadle.optim.optimizer import Optimizer, need

_LEAST = 2.0**-24


class GradScaler:
    """Scales a loss and unscales its gradients.

        loss, grads = td.value_and_grad(lambda: scaler.scale(loss_of(batch)), params)()
        scaler.step(optimizer, grads)
        scaler.update()

    After gradients with an infinity or NaN `step` leaves parameters and optimiser as they were, and `update` multiplies
    the scale by backoff_factor; after growth_interval good steps in a row it multiplies it by growth_factor.
    dynamic=False: the scale stays. enabled=False: all is passed through. Raises E0531 for options out of range.
    Source: Micikevicius et al. 2018, arXiv:1710.03740.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        dynamic: bool = True,
        enabled: bool = True,
    ) -> None:
        need(arguments.is_real(init_scale) and init_scale > 0, f"init_scale is {init_scale!r}", "a number above 0")
        need(growth_factor > 1, f"growth_factor is {growth_factor}", "a number above 1")
        need(0 < backoff_factor < 1, f"backoff_factor is {backoff_factor}", "a number between 0 and 1")
        need(growth_interval >= 1, f"growth_interval is {growth_interval}", "1 or more")
        self.growth_factor, self.backoff_factor = float(growth_factor), float(backoff_factor)
        self.growth_interval, self.dynamic, self.enabled = int(growth_interval), dynamic, enabled
        self.factor = Tensor(np.float32(init_scale))
        self.good = Tensor(np.int32(0))  # steps since the scale changed
        self.skipped = Tensor(np.int32(0))  # steps left out so far
        self.finite = Tensor(np.bool_(True))  # whether all gradients since the last update were

    def settings(self) -> tuple[Any, ...]:
        """What a compiled step depends on beside tensors."""
        return self.growth_factor, self.backoff_factor, self.growth_interval, self.dynamic, self.enabled

    containers = settings

    def _touch(self) -> None:
        trace = tracing.current()
        if trace is not None:
            trace.touched[id(self)] = self

    def get_scale(self) -> float:
        """What losses are multiplied by now; 1 if not enabled."""
        return float(self.factor.item()) if self.enabled else 1.0

    # ------------------------------------------------------------------------------------------------ a step
    def scale(self, loss: Any) -> Any:
        """The loss, float32, times the scale."""
        self._touch()
        return cast(lift(loss), dtypes.float32) * self.factor if self.enabled else loss

    def unscale(self, grads: Sequence[Any]) -> list[Any]:
        """The gradients over the scale, 16-bit ones as float32, None as None; notes whether all are finite. For what
        needs them before the step (clipping); then pass unscaled=True to `step`. Raises E0533 for no list of them."""
        if not isinstance(grads, list | tuple):
            why = f"the gradients are {arguments.brief(grads)}"
            raise UserError("E0533", why, fix="pass what td.value_and_grad gave for the parameters")
        self._touch()
        if not self.enabled:
            return list(grads)
        inverse = 1.0 / self.factor
        made: list[Any] = []
        for g in grads:
            if g is None:
                made.append(None)
                continue
            wide = cast(lift(g), dtypes.float32) if g.dtype.bits == 16 else lift(g)
            made.append(wide * cast(inverse, wide.dtype))
            all_finite = reduce_and(is_finite(made[-1]), axes=tuple(range(wide.ndim)))
            self.finite.assign(logical_and(self.finite, all_finite))
        return made

    def step(self, optimizer: Optimizer, grads: Sequence[Any], unscaled: bool = False) -> None:
        """optimizer.step with the unscaled gradients; nothing changes where one of them is not finite. Raises E0533 for
        an optimiser that takes no gradients."""
        if not isinstance(optimizer, Optimizer):
            why = f"the optimiser is {arguments.brief(optimizer)}"
            raise UserError("E0533", why, fix="pass one whose step takes gradients: SGD, Adam, ...")
        self._touch()
        if not self.enabled:
            optimizer.step(grads)
            return
        true_grads = grads if unscaled else self.unscale(grads)
        tensors = [*optimizer.params, *[t for _, t in optimizer._named()]]
        before = [(t, t.copy()) for t in tensors]
        optimizer.step(true_grads)
        for tensor, old in before:
            if not _same(tensor, old):
                tensor._set(select(self.finite, tensor, old))

    def update(self, new_scale: float | None = None) -> None:
        """Adapt the scale after a step (of all optimisers); new_scale: set it."""
        self._touch()
        if not self.enabled:
            return
        self.skipped.assign(self.skipped + cast(logical_not(self.finite), dtypes.int32))
        if new_scale is not None:
            need(arguments.is_real(new_scale) and new_scale > 0, f"new_scale is {new_scale!r}", "a number above 0")
            self.factor.assign(new_scale)
            self.good.assign(0)
        elif self.dynamic:
            good = select(self.finite, self.good + 1, 0)
            larger = self.factor * self.growth_factor
            grows = logical_and(good >= self.growth_interval, is_finite(larger))
            smaller = maximum(self.factor * self.backoff_factor, _LEAST)
            self.factor.assign(select(self.finite, select(grows, larger, self.factor), smaller))
            self.good.assign(select(grows, 0, good))
        self.finite.assign(True)

    # ------------------------------------------------------------------------------------------------ state
    def _named(self) -> dict[str, Tensor]:
        return {"scale": self.factor, "good": self.good, "skipped": self.skipped}

    def state_dict(self) -> dict[str, float]:
        """Scale, good steps since it changed, and steps left out, as numbers."""
        return {name: tensor.item() for name, tensor in self._named().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`. Raises E0535 when it is none of a GradScaler."""
        own = self._named()
        if not isinstance(state, Mapping) or own.keys() != state.keys():
            why = f"the state of a GradScaler is {arguments.brief(state)}"
            raise UserError("E0535", why, fix="pass what state_dict() returned")
        for name, tensor in own.items():
            tensor.assign(state[name])
        self.finite.assign(True)

    def __repr__(self) -> str:
        kind = "dynamic" if self.dynamic else "static"
        return f"GradScaler({kind}, scale={self.get_scale():g})" if self.enabled else "GradScaler(enabled=False)"


def _same(a: Tensor, b: Tensor) -> bool:
    """Whether both hold one value."""
    trace = tracing.current()
    return a._value is b._value if trace is None else trace.read(a) is trace.read(b)
