"""Optimisers as cells: `optimizer(grads)` changes the parameters in place. Formulas and defaults are MindSpore's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.compat.mindspore._tensor import Parameter, ParameterTuple, Tensor, tag
from treadle.compat.mindspore.nn.cell import Cell
from treadle.compat.mindspore.nn.rates import LearningRateSchedule, as_rates
from treadle.frontend import functions as fn


class Optimizer(Cell):
    """Base. learning_rate: a number, a list of one rate a step, or a LearningRateSchedule. parameters: Parameters, or
    dicts {"params": [...], "lr": ..., "weight_decay": ...} and {"order_params": [...]}.

    weight_decay * p is added to a gradient, in the ungrouped form not for names with "beta" or "gamma". Gradients are
    divided by loss_scale. Raises E0530 for what is no parameter, E0531 for options out of range, E0533 for gradients
    that do not fit.
    """

    def __init__(
        self, learning_rate: Any, parameters: Iterable[Any], weight_decay: float = 0.0, loss_scale: float = 1.0
    ) -> None:
        super().__init__(auto_prefix=False)
        if loss_scale <= 0 or weight_decay < 0:
            raise UserError("E0531", f"loss_scale={loss_scale}, weight_decay={weight_decay}", fix="use 1.0 and 0.0")
        given = list(parameters)
        if not given:
            raise UserError("E0530", f"{type(self).__name__} got no parameters", fix="pass net.trainable_params()")
        groups: list[dict[str, Any]] = given if isinstance(given[0], dict) else [{"params": given}]
        order = next((list(g["order_params"]) for g in groups if "order_params" in g), None)
        groups = [g for g in groups if "order_params" not in g]
        self.is_group = isinstance(given[0], dict)
        self.loss_scale, self.weight_decay = float(loss_scale), float(weight_decay)
        found = [(p, i) for i, g in enumerate(groups) for p in g["params"]]
        if order is not None:
            place = {id(p): i for p, i in found}
            found = [(p, place[id(p)]) for p in order]
        self._check([p for p, _ in found])
        self.group_of = tuple([i for _, i in found])
        self.decays = tuple([self._decay(p, groups[i]) for p, i in found])
        self.global_step = Parameter(np.zeros(1, np.int32), "global_step", requires_grad=False)
        self.learning_rate = _rate(learning_rate, "learning_rate")
        rates = [g.get("lr") for g in groups]
        self.group_rates = [self.learning_rate if r is None else _rate(r, f"lr_{i}") for i, r in enumerate(rates)]
        self._params = ParameterTuple([p for p, _ in found])

    def _check(self, params: Sequence[Any]) -> None:
        if wrong := [p for p in params if not isinstance(p, Parameter)]:
            why = f"{type(self).__name__} got a {type(wrong[0]).__name__}"
            raise UserError("E0530", why, fix="pass net.trainable_params()")
        if len({id(p) for p in params}) < len(params):
            raise UserError("E0530", f"{type(self).__name__} got one parameter twice", fix="pass each once")

    def _decay(self, p: Any, group: dict[str, Any]) -> float:
        if "weight_decay" in group:
            return float(group["weight_decay"])
        exempt = not self.is_group and ("beta" in p.name or "gamma" in p.name)
        return 0.0 if exempt else self.weight_decay

    @property
    def parameters(self) -> Any:
        """The parameters in their order."""
        return self.__dict__.get("_params", ParameterTuple(()))

    def slots(self, prefix: str, start: float = 0.0) -> ParameterTuple:
        """A state tensor for each parameter, called prefix.name."""
        made = [Parameter(np.full(p.shape, start, p.dtype.np), f"{prefix}.{p.name}", False) for p in self.parameters]
        return ParameterTuple(made)

    # ------------------------------------------------------------------------------------------------ a step
    def get_lr(self) -> Any:
        """The rate of this step, float32; a tuple of one for each parameter where groups have their own."""
        every = [self._now(r) for r in self.group_rates]
        return tuple([every[i] for i in self.group_of]) if self.is_group else every[0]

    def _now(self, rate: Any) -> Any:
        if isinstance(rate, Cell):
            return tag(fn.reshape(rate(self.global_step[0]), ()))
        if rate.ndim == 0:
            return tag(fn.stop_gradient(rate))
        return tag(fn.take(rate, fn.minimum(self.global_step[0], len(rate) - 1), 0))

    def scale_grad(self, gradients: Any) -> tuple[Any, ...]:
        """The gradients over loss_scale."""
        return tuple(gradients) if self.loss_scale == 1.0 else tuple([g / self.loss_scale for g in gradients])

    def decay_weight(self, gradients: Any) -> tuple[Any, ...]:
        """The gradients plus weight_decay times the parameters."""
        trio = zip(gradients, self.parameters, self.decays, strict=True)
        return tuple([g + p * d if d else g for g, p, d in trio])

    def construct(self, gradients: Any) -> Any:
        """Change the parameters by `update`, one after the other."""
        gradients = self._checked(gradients)
        rates = self.get_lr()
        self.global_step.assign(self.global_step + 1)
        for i, (p, g) in enumerate(zip(self.parameters, self.decay_weight(self.scale_grad(gradients)), strict=True)):
            if p.requires_grad:
                self.update(i, p, g, rates[i] if self.is_group else rates)
        return True

    def _checked(self, gradients: Any) -> tuple[Any, ...]:
        if not isinstance(gradients, tuple | list) or len(gradients) != len(self.parameters):
            found = len(gradients) if isinstance(gradients, tuple | list) else type(gradients).__name__
            fix = "pass a tuple with one gradient per parameter"
            raise UserError("E0533", f"the gradients are {found}, for {len(self.parameters)} parameters", fix=fix)
        return tuple([g.astype(p.dtype) if g.dtype is not p.dtype else g for g, p in zip(gradients, self.parameters)])

    def update(self, i: int, p: Any, g: Any, lr: Any) -> None:
        """Change parameter i by its gradient; subclasses define it, or `construct`."""
        raise UserError("E0534", f"{type(self).__name__} defines no update", fix="define update, or construct")


def _rate(rate: Any, name: str) -> Any:
    """A parameter of one rate or one a step, or the schedule."""
    if isinstance(rate, LearningRateSchedule):
        return rate
    if isinstance(rate, Cell) or (isinstance(rate, int | float) and rate < 0):
        raise UserError("E0531", f"learning_rate is {rate!r}", fix="give a number of 0 or more, a list or a schedule")
    if isinstance(rate, Tensor):
        return Parameter(rate.astype(dtypes.float32), name, requires_grad=False)
    numbers: Any = np.float32(rate) if isinstance(rate, int | float) else as_rates(rate)
    return Parameter(numbers, name, requires_grad=False)


def _momentum(value: float) -> float:
    if not value >= 0:
        raise UserError("E0531", f"momentum is {value}", fix="give a number of 0 or more")
    return float(value)


class SGD(Optimizer):
    """v = momentum * v + (1 - dampening) * g (v = g at first); p -= lr * v, with nesterov lr * (g + momentum * v)."""

    def __init__(
        self,
        params: Any,
        learning_rate: Any = 0.1,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        loss_scale: float = 1.0,
    ) -> None:
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        if nesterov and (momentum <= 0 or dampening):
            raise UserError(
                "E0531", "nesterov without momentum, or with dampening", fix="momentum above 0, dampening 0"
            )
        self.momentum, self.dampening, self.nesterov = _momentum(momentum), float(dampening), nesterov
        if momentum:
            self.accum = self.slots("accum")

    def update(self, i: int, p: Any, g: Any, lr: Any) -> None:
        if self.momentum:
            speed = self.accum[i] * self.momentum + g * (1 - self.dampening)
            if self.dampening:
                speed = fn.where(self.global_step[0] == 1, g, speed)
            self.accum[i].assign(speed)
            g = g + self.accum[i] * self.momentum if self.nesterov else speed
        p.assign(p - lr * g)


class Momentum(Optimizer):
    """v = momentum * v + g; p -= lr * v, with use_nesterov lr * (g + momentum * v)."""

    def __init__(
        self,
        params: Any,
        learning_rate: Any,
        momentum: float,
        weight_decay: float = 0.0,
        loss_scale: float = 1.0,
        use_nesterov: bool = False,
    ) -> None:
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        self.momentum, self.use_nesterov = _momentum(momentum), use_nesterov
        self.moments = self.slots("moments")

    def update(self, i: int, p: Any, g: Any, lr: Any) -> None:
        speed = self.moments[i] * self.momentum + g
        self.moments[i].assign(speed)
        p.assign(p - lr * (g + speed * self.momentum) if self.use_nesterov else p - lr * speed)


def _betas(beta1: float, beta2: float, eps: float) -> tuple[float, float, float]:
    if not (0 < beta1 < 1 and 0 < beta2 < 1 and eps > 0):
        raise UserError("E0531", f"beta1={beta1}, beta2={beta2}, eps={eps}", fix="betas between 0 and 1, eps above 0")
    return float(beta1), float(beta2), float(eps)


class Adam(Optimizer):
    """m, v: running means of g and g * g; p -= lr * sqrt(1 - beta2**t) / (1 - beta1**t) * m / (sqrt(v) + eps).

    eps stands beside the uncorrected root. Source: Kingma & Ba 2015, arXiv:1412.6980, the order of section 2's end.
    """

    def __init__(
        self,
        params: Any,
        learning_rate: Any = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        use_locking: bool = False,
        use_nesterov: bool = False,
        weight_decay: float = 0.0,
        loss_scale: float = 1.0,
        use_amsgrad: bool = False,
    ) -> None:
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        self.beta1, self.beta2, self.eps = _betas(beta1, beta2, eps)
        self.use_nesterov, self.use_amsgrad = use_nesterov, use_amsgrad
        self.moment1, self.moment2 = self.slots("moment1"), self.slots("moment2")
        if use_amsgrad:
            self.vhat = self.slots("vhat")

    def update(self, i: int, p: Any, g: Any, lr: Any) -> None:
        step = self.global_step[0].astype(dtypes.float32)
        m = self.moment1[i] * self.beta1 + g * (1 - self.beta1)
        v = self.moment2[i] * self.beta2 + fn.square(g) * (1 - self.beta2)
        self.moment1[i].assign(m), self.moment2[i].assign(v)
        if self.use_amsgrad:
            v = fn.maximum(self.vhat[i], v)
            self.vhat[i].assign(v)
        rate = lr * fn.sqrt(1 - self.beta2**step) / (1 - self.beta1**step)
        if self.use_nesterov:
            m = m * self.beta1 + g * (1 - self.beta1)
        p.assign(p - rate * m / (fn.sqrt(v) + self.eps))


class AdamWeightDecay(Optimizer):
    """m, v: running means of g and g * g, not corrected; p -= lr * (m / (sqrt(v) + eps) + weight_decay * p)."""

    def __init__(
        self,
        params: Any,
        learning_rate: Any = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(learning_rate, params, weight_decay)
        self.beta1, self.beta2, self.eps = _betas(beta1, beta2, eps)
        self.moments1, self.moments2 = self.slots("adam_m"), self.slots("adam_v")

    def decay_weight(self, gradients: Any) -> tuple[Any, ...]:
        return tuple(gradients)  # the decay is part of the step

    def update(self, i: int, p: Any, g: Any, lr: Any) -> None:
        m = self.moments1[i] * self.beta1 + g * (1 - self.beta1)
        v = self.moments2[i] * self.beta2 + fn.square(g) * (1 - self.beta2)
        self.moments1[i].assign(m), self.moments2[i].assign(v)
        step = m / (fn.sqrt(v) + self.eps)
        p.assign(p - lr * (step + p * self.decays[i] if self.decays[i] else step))


class RMSProp(Optimizer):
    """s = decay * s + (1 - decay) * g * g; m = momentum * m + lr * g / sqrt(s + epsilon); p -= m.

    centered: s less the square of the running mean of g. Source: Hinton's lecture 6e of 2012, and Graves 2013.
    """

    def __init__(
        self,
        params: Any,
        learning_rate: Any = 0.1,
        decay: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-10,
        use_locking: bool = False,
        centered: bool = False,
        loss_scale: float = 1.0,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        if not 0 <= decay <= 1:
            raise UserError("E0531", f"decay is {decay}", fix="give a number from 0 to 1")
        self.decay, self.momentum, self.epsilon = float(decay), _momentum(momentum), float(epsilon)
        self.ms, self.moment = self.slots("mean_square", 1.0), self.slots("moment")
        if centered:
            self.mg = self.slots("mean_grad")
        self.centered = centered

    def update(self, i: int, p: Any, g: Any, lr: Any) -> None:
        s = self.ms[i] * self.decay + fn.square(g) * (1 - self.decay)
        self.ms[i].assign(s)
        if self.centered:
            mean = self.mg[i] * self.decay + g * (1 - self.decay)
            self.mg[i].assign(mean)
            s = s - fn.square(mean)
        step = self.moment[i] * self.momentum + lr * g / fn.sqrt(s + self.epsilon)
        self.moment[i].assign(step)
        p.assign(p - step)


class Adagrad(Optimizer):
    """s += g * g, which begins at accum; p -= lr * g / sqrt(s). Source: Duchi et al. 2011."""

    def __init__(
        self,
        params: Any,
        accum: float = 0.1,
        learning_rate: Any = 0.001,
        update_slots: bool = True,
        loss_scale: float = 1.0,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        self.update_slots = update_slots
        self.accum = self.slots("accum", float(accum))

    def update(self, i: int, p: Any, g: Any, lr: Any) -> None:
        s = self.accum[i] + fn.square(g) if self.update_slots else self.accum[i].copy()
        self.accum[i].assign(s)
        p.assign(p - lr * g / fn.sqrt(s))


__all__ = ["Adagrad", "Adam", "AdamWeightDecay", "Momentum", "Optimizer", "RMSProp", "SGD"]
