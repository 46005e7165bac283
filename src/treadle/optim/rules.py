"""SGD, Adam and AdamW: each parameter's step is one node, so that an engine can run it in one pass over memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from treadle.frontend.tensor import Tensor
from treadle.nn.cell import Parameter
from treadle.ops.optim import adam_update, sgd_update
from treadle.optim.optimizer import Group, Optimizer, need

Params = Iterable[Parameter] | Iterable[dict[str, Any]]


class SGD(Optimizer):
    """Stochastic gradient descent with momentum: v = momentum * v + g; p -= lr * v (nesterov: lr * (g + momentum * v)).

    weight_decay * p is added to g first. Source: Sutskever et al. 2013, in the form of torch.optim.SGD.
    """

    def __init__(
        self, params: Params, lr: float = 1e-3, momentum: float = 0.0, weight_decay: float = 0.0, nesterov: bool = False
    ) -> None:
        super().__init__(params, lr, momentum=momentum, weight_decay=weight_decay, nesterov=nesterov)

    def check(self, lr: float, **options: Any) -> None:
        momentum = options["momentum"]
        need(0 <= momentum < 1, f"momentum is {momentum}", "a number from 0 up to, not including, 1")
        need(momentum > 0 or not options["nesterov"], "nesterov without momentum", "momentum above 0")
        super().check(lr, **options)

    @property
    def slots(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("momentum",) if any(g.options["momentum"] for g in self.groups) else ()

    def update(self, param: Parameter, grad: Any, state: dict[str, Tensor], group: Group) -> None:
        options = group.options
        buffer = state.get("momentum", grad)  # without momentum the buffer is not looked at
        new, kept = sgd_update(
            param,
            grad,
            buffer,
            group.rate,
            momentum=float(options["momentum"]),
            weight_decay=float(options["weight_decay"]),
            nesterov=bool(options["nesterov"]),
        )
        param._set(new)
        if options["momentum"]:
            buffer._set(kept)


class Adam(Optimizer):
    """Adam: steps of the running mean of g over the root of that of g * g, both corrected for their start at 0.

    betas: how much of the two means is kept at each step. weight_decay * p is added to g first; `AdamW` instead takes
    lr * weight_decay * p off the parameter. All parameters share the count of steps.
    Source: Kingma & Ba 2015, arXiv:1412.6980.
    """

    slots = ("m", "v")
    decoupled = False

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr, betas=tuple(betas), eps=eps, weight_decay=weight_decay)

    def check(self, lr: float, **options: Any) -> None:
        betas = options["betas"]
        fine = len(betas) == 2 and all(0 <= b < 1 for b in betas)
        need(fine, f"betas are {betas}", "two numbers from 0 up to, not including, 1")
        need(options["eps"] > 0, f"eps is {options['eps']}", "a number above 0")
        super().check(lr, **options)

    def update(self, param: Parameter, grad: Any, state: dict[str, Tensor], group: Group) -> None:
        options = group.options
        new, m, v = adam_update(
            param,
            grad,
            state["m"],
            state["v"],
            self.count,
            group.rate,
            beta1=float(options["betas"][0]),
            beta2=float(options["betas"][1]),
            eps=float(options["eps"]),
            weight_decay=float(options["weight_decay"]),
            decoupled=self.decoupled,
        )
        param._set(new)
        state["m"]._set(m)
        state["v"]._set(v)


class AdamW(Adam):
    """Adam with decoupled weight decay: p -= lr * weight_decay * p beside the step. Source: Loshchilov & Hutter 2019,
    arXiv:1711.05101."""

    decoupled = True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)
