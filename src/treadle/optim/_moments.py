"""What the rules with running moments share: betas checked, weight decay of both kinds, m and v, keeping state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from treadle.frontend.tensor import Tensor
from treadle.nn.cell import Parameter
from treadle.optim._arith import lerp, wide
from treadle.optim.optimizer import Group, Optimizer, need

Params = Iterable[Parameter] | Iterable[dict[str, Any]]
Moments = dict[str, Tensor]


def check_betas(betas: Any) -> None:
    """E0531 unless they are two numbers from 0 up to 1."""
    fine = isinstance(betas, tuple | list) and len(betas) == 2 and all(0 <= b < 1 for b in betas)
    need(fine, f"betas are {betas}", "two numbers from 0 up to, not including, 1")


def check_share(name: str, value: float) -> None:
    """E0531 unless it is a number from 0 up to 1."""
    need(0 <= value < 1, f"{name} is {value}", "a number from 0 up to, not including, 1")


def keep(state: Moments, **new: Any) -> None:
    """Write the new state."""
    for slot, value in new.items():
        state[slot]._set(value)


def moments(state: Moments, g: Any, betas: tuple[float, float]) -> tuple[Any, Any]:
    """m = beta1 * m + (1 - beta1) * g and v = beta2 * v + (1 - beta2) * g * g."""
    return lerp(state["m"], g, 1 - betas[0]), state["v"] * betas[1] + g * g * (1 - betas[1])


class Betas(Optimizer):
    """With betas, eps and weight_decay; decoupled: the decay shrinks p itself and is not part of g."""

    counted, decoupled = True, False

    def __init__(
        self,
        params: Params,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(params, lr, betas=betas, eps=eps, weight_decay=weight_decay, **options)

    def check(self, lr: float, **options: Any) -> None:
        check_betas(options["betas"])
        super().check(lr, **options)

    def _decayed(self, param: Parameter, grad: Any, group: Group) -> tuple[Any, Any]:
        p, g = wide(param, grad)
        decay = group.options["weight_decay"]
        if self.decoupled or group.options.get("decoupled_weight_decay"):
            return p * (1 - group.rate * decay), g
        return p, g + p * decay
