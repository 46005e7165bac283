"""Rules that scale each element by its own history: Adagrad, RMSprop, Adadelta, Adamax, NAdam, RAdam, Rprop.

Gradients and state in, parameters and state changed in place. Formulas and defaults are those of torch.optim.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from treadle.base import dtypes
from treadle.frontend.lift import cast
from treadle.frontend.tensor import Tensor
from treadle.nn.cell import Parameter
from treadle.ops.compare import equal, greater, less, select
from treadle.ops.elementwise import abs, maximum, minimum, sign
from treadle.ops.functions import exp, sqrt
from treadle.optim._arith import correction, lerp, wide, work_dtype, write
from treadle.optim._moments import Betas, Moments, Params, check_share, keep, moments
from treadle.optim.optimizer import Group, Optimizer, need


class Adagrad(Optimizer):
    """sum += g * g; p -= lr / (1 + (step - 1) * lr_decay) * g / (sqrt(sum) + eps). weight_decay * p is added to g.

    Source: Duchi et al. 2011, JMLR 12:2121.
    """

    slots, counted = ("sum",), True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
    ) -> None:
        options = {"lr_decay": lr_decay, "weight_decay": weight_decay, "eps": eps}
        super().__init__(params, lr, initial_accumulator_value=initial_accumulator_value, **options)

    def check(self, lr: float, **options: Any) -> None:
        for name in ("lr_decay", "initial_accumulator_value", "eps"):
            need(options[name] >= 0, f"{name} is {options[name]}", "0 or more")
        super().check(lr, **options)

    def start(self, slot: str, param: Parameter, group: Group) -> Tensor:
        return Tensor(np.full(param.shape, group.options["initial_accumulator_value"], work_dtype(param).np))

    def update(self, param: Parameter, grad: Any, state: Moments, group: Group) -> None:
        options = group.options
        p, g = wide(param, grad)
        g = g + p * options["weight_decay"]
        total = state["sum"] + g * g
        rate = group.rate / (1 + (cast(state["step"], g.dtype) - 1) * options["lr_decay"])
        write(param, p - rate * g / (sqrt(total) + options["eps"]))
        keep(state, sum=total)


class RMSprop(Optimizer):
    """v = alpha * v + (1 - alpha) * g * g; p -= lr * g / (sqrt(v) + eps).

    centered: the squared running mean of g is taken off v. momentum: the steps are summed as buffer = momentum * buffer
    + step. Source: Tieleman & Hinton 2012 (lecture 6.5), Graves 2013, arXiv:1308.0850.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
    ) -> None:
        options = {"eps": eps, "weight_decay": weight_decay, "momentum": momentum, "centered": centered}
        super().__init__(params, lr, alpha=alpha, **options)

    def check(self, lr: float, **options: Any) -> None:
        check_share("alpha", options["alpha"])
        check_share("momentum", options["momentum"])
        super().check(lr, **options)

    @property
    def slots(self) -> tuple[str, ...]:  # type: ignore[override]
        pairs = (("mean", "centered"), ("momentum", "momentum"))
        return ("v", *[slot for slot, option in pairs if any(g.options[option] for g in self.groups)])

    def update(self, param: Parameter, grad: Any, state: Moments, group: Group) -> None:
        options = group.options
        p, g = wide(param, grad)
        g = g + p * options["weight_decay"]
        v = state["v"] * options["alpha"] + g * g * (1 - options["alpha"])
        root = sqrt(v)
        if options["centered"]:
            mean = lerp(state["mean"], g, 1 - options["alpha"])
            root = sqrt(v - mean * mean)
            keep(state, mean=mean)
        change = g / (root + options["eps"])
        if options["momentum"]:
            change = state["momentum"] * options["momentum"] + change
            keep(state, momentum=change)
        write(param, p - group.rate * change)
        keep(state, v=v)


class Adadelta(Optimizer):
    """d = sqrt(s + eps) / sqrt(v + eps) * g; p -= lr * d. v and s: running means (rho) of g * g and d * d.

    Source: Zeiler 2012, arXiv:1212.5701.
    """

    slots = ("v", "change")

    def __init__(
        self, params: Params, lr: float = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, lr, rho=rho, eps=eps, weight_decay=weight_decay)

    def check(self, lr: float, **options: Any) -> None:
        check_share("rho", options["rho"])
        super().check(lr, **options)

    def update(self, param: Parameter, grad: Any, state: Moments, group: Group) -> None:
        rho, eps = group.options["rho"], group.options["eps"]
        p, g = wide(param, grad)
        g = g + p * group.options["weight_decay"]
        v = state["v"] * rho + g * g * (1 - rho)
        change = sqrt(state["change"] + eps) / sqrt(v + eps) * g
        write(param, p - group.rate * change)
        keep(state, v=v, change=state["change"] * rho + change * change * (1 - rho))


class Adamax(Betas):
    """m as Adam; u = max(beta2 * u, |g| + eps); p -= lr / (1 - beta1 ** step) * m / u.

    Source: Kingma & Ba 2015, arXiv:1412.6980, section 7.1.
    """

    slots = ("m", "u")

    def update(self, param: Parameter, grad: Any, state: Moments, group: Group) -> None:
        beta1, beta2 = group.options["betas"]
        p, g = self._decayed(param, grad, group)
        m, u = lerp(state["m"], g, 1 - beta1), maximum(state["u"] * beta2, abs(g) + group.options["eps"])
        write(param, p - group.rate / correction(cast(state["step"], g.dtype), beta1) * m / u)
        keep(state, m=m, u=u)


class NAdam(Betas):
    """Adam with Nesterov momentum, which grows as beta1 * (1 - 0.96 ** (step * momentum_decay) / 2).

    decoupled_weight_decay: as AdamW. Source: Dozat 2016, in the form of torch.optim.NAdam.
    """

    slots = ("m", "v", "product")

    def __init__(
        self,
        params: Params,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
    ) -> None:
        more = {"momentum_decay": momentum_decay, "decoupled_weight_decay": decoupled_weight_decay}
        super().__init__(params, lr, betas, eps, weight_decay, **more)

    def start(self, slot: str, param: Parameter, group: Group) -> Tensor:
        return Tensor(np.ones((), work_dtype(param).np)) if slot == "product" else super().start(slot, param, group)

    def update(self, param: Parameter, grad: Any, state: Moments, group: Group) -> None:
        (beta1, beta2), fall = group.options["betas"], group.options["momentum_decay"] * math.log(0.96)
        p, g = self._decayed(param, grad, group)
        step = cast(state["step"], g.dtype)
        mu, after = [beta1 * (1 - 0.5 * exp((step + i) * fall)) for i in (0, 1)]
        product = state["product"] * mu
        m, v = moments(state, g, (beta1, beta2))
        root = sqrt(v / correction(step, beta2)) + group.options["eps"]
        change = g * ((1 - mu) / (1 - product)) + m * (after / (1 - product * after))
        write(param, p - group.rate * change / root)
        keep(state, m=m, v=v, product=product)


class RAdam(Betas):
    """Adam whose step is plain momentum until the variance of v is known, then rectified for it.

    decoupled_weight_decay: as AdamW. Source: Liu et al. 2020, arXiv:1908.03265.
    """

    slots = ("m", "v")

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, decoupled_weight_decay=decoupled_weight_decay)

    def update(self, param: Parameter, grad: Any, state: Moments, group: Group) -> None:
        beta1, beta2 = group.options["betas"]
        p, g = self._decayed(param, grad, group)
        m, v = moments(state, g, (beta1, beta2))
        step = cast(state["step"], dtypes.float64)  # the length below is a small difference of large numbers
        short = correction(step, beta2)
        whole = 2 / (1 - beta2) - 1
        length = whole - 2 * step * (1 - short) / short
        safe = maximum(length, 5.0)
        rectified = sqrt((safe - 4) * (safe - 2) * whole / ((whole - 4) * (whole - 2) * safe) * short)
        size = group.rate / cast(correction(step, beta1), g.dtype)
        scale = cast(rectified, g.dtype) / (sqrt(v) + group.options["eps"])
        write(param, p - size * m * select(greater(length, 5.0), scale, 1.0))
        keep(state, m=m, v=v)


class Rprop(Optimizer):
    """Each element has a step size, times etas[1] while the sign of g stays, times etas[0] (and no step) when it turns.

    Sizes begin at lr and stay within step_sizes. For whole data sets, not batches.
    Source: Riedmiller & Braun 1993, in the form of torch.optim.Rprop.
    """

    slots = ("before", "size")

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50.0),
    ) -> None:
        super().__init__(params, lr, etas=tuple(etas), step_sizes=tuple(step_sizes))

    def check(self, lr: float, **options: Any) -> None:
        low, high = options["etas"]
        need(0 < low < 1 < high, f"etas are {options['etas']}", "one between 0 and 1, then one above 1")
        super().check(lr, **options)

    def start(self, slot: str, param: Parameter, group: Group) -> Tensor:
        return Tensor(np.full(param.shape, group.lr if slot == "size" else 0.0, work_dtype(param).np))

    def update(self, param: Parameter, grad: Any, state: Moments, group: Group) -> None:
        (low, high), (least, most) = group.options["etas"], group.options["step_sizes"]
        p, g = wide(param, grad)
        turned = g * state["before"]
        factor = select(greater(turned, 0), g * 0 + high, select(less(turned, 0), g * 0 + low, g * 0 + 1))
        size = minimum(maximum(state["size"] * factor, least), most)
        g = select(equal(factor, low), g * 0, g)
        write(param, p - sign(g) * size)
        keep(state, before=g, size=size)
