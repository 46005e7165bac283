"""SGD, Adam and AdamW: each parameter's step is one node, so that an engine can run it in one pass over memory."""

from __future__ import annotations

from typing import Any

from treadle.frontend.lift import cast
from treadle.frontend.tensor import Tensor
from treadle.nn.cell import Parameter
from treadle.ops.compare import equal, select
from treadle.ops.elementwise import maximum
from treadle.ops.functions import sqrt
from treadle.ops.optim import adam_update, sgd_update
from treadle.optim._arith import correction, wide, write
from treadle.optim._moments import Betas, Params, check_share, keep, moments
from treadle.optim.optimizer import Group, Optimizer, need


class SGD(Optimizer):
    """Stochastic gradient descent with momentum: v = momentum * v + g; p -= lr * v (nesterov: lr * (g + momentum * v)).

    dampening: from the second step on v = momentum * v + (1 - dampening) * g.
    weight_decay * p is added to g first. Source: Sutskever et al. 2013, in the form of torch.optim.SGD.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        dampening: float = 0.0,
    ) -> None:
        options = {"momentum": momentum, "weight_decay": weight_decay, "nesterov": nesterov, "dampening": dampening}
        super().__init__(params, lr, **options)

    def check(self, lr: float, **options: Any) -> None:
        check_share("momentum", options["momentum"])
        need(options["momentum"] > 0 or not options["nesterov"], "nesterov without momentum", "momentum above 0")
        need(not (options["nesterov"] and options["dampening"]), "nesterov with dampening", "a dampening of 0")
        super().check(lr, **options)

    @property
    def counted(self) -> bool:  # type: ignore[override]
        return any(g.options["dampening"] for g in self.groups)

    @property
    def slots(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("momentum",) if any(g.options["momentum"] for g in self.groups) else ()

    def update(self, param: Parameter, grad: Any, state: dict[str, Tensor], group: Group) -> None:
        options = group.options
        if options["momentum"] and options["dampening"]:
            self._dampened(param, grad, state, group)
            return
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

    def _dampened(self, param: Parameter, grad: Any, state: dict[str, Tensor], group: Group) -> None:
        p, g = wide(param, grad)
        share = select(equal(state["step"], 1), 1.0, 1.0 - float(group.options["dampening"]))
        g = g + p * group.options["weight_decay"]
        speed = state["momentum"] * group.options["momentum"] + g * cast(share, g.dtype)
        write(param, p - group.rate * speed)
        state["momentum"]._set(speed)


class Adam(Betas):
    """Adam: steps of the running mean of g over the root of that of g * g, both corrected for their start at 0.

    betas: how much of the two means is kept at each step. weight_decay * p is added to g first; `AdamW` instead takes
    lr * weight_decay * p off the parameter. Each parameter has its own count of steps. amsgrad: the root is that of the
    largest v so far (Reddi et al. 2018, arXiv:1904.09237). Source: Kingma & Ba 2015, arXiv:1412.6980.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
    ) -> None:
        super().__init__(params, lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad)

    @property
    def slots(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("m", "v", "top") if any(g.options["amsgrad"] for g in self.groups) else ("m", "v")

    def check(self, lr: float, **options: Any) -> None:
        need(options["eps"] > 0, f"eps is {options['eps']}", "a number above 0")
        super().check(lr, **options)

    def update(self, param: Parameter, grad: Any, state: dict[str, Tensor], group: Group) -> None:
        options = group.options
        if options["amsgrad"]:
            self._amsgrad(param, grad, state, group)
            return
        new, m, v = adam_update(
            param,
            grad,
            state["m"],
            state["v"],
            state["step"],
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

    def _amsgrad(self, param: Parameter, grad: Any, state: dict[str, Tensor], group: Group) -> None:
        (beta1, beta2), rate = group.options["betas"], group.rate
        p, g = self._decayed(param, grad, group)
        step = cast(state["step"], g.dtype)
        m, v = moments(state, g, (beta1, beta2))
        top = maximum(state["top"], v)
        root = sqrt(top) / sqrt(correction(step, beta2)) + group.options["eps"]
        write(param, p - rate / correction(step, beta1) * m / root)
        keep(state, m=m, v=v, top=top)


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
        amsgrad: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad)
