"""Learning-rate schedules: `step()` sets the optimiser's rate from the host, so nothing is compiled again.

Each is a function of the number of calls t of `step` (the rate of t = 0 is set at once) and of the group's first rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from treadle.base import arguments
from treadle.optim.optimizer import Optimizer, need


class Schedule:
    """Base: a subclass defines `rate(t, base)`. `t` counts the calls of `step`."""

    def __init__(self, optimizer: Optimizer) -> None:
        need(isinstance(optimizer, Optimizer), f"a schedule of a {type(optimizer).__name__}", "an optimiser")
        self.optimizer, self.t = optimizer, 0
        for group in optimizer.groups:  # a schedule made after another one starts from the same rate
            group.base = group.lr if group.base is None else group.base
        self.bases = [float(g.base or 0) for g in optimizer.groups]
        self._set()

    def rate(self, t: int, base: float) -> float:
        """The learning rate after t steps of a group that began with `base`."""
        return base

    def step(self) -> None:
        """Go one step on and set the rates."""
        self.t += 1
        self._set()

    def _set(self) -> None:
        for group, base in zip(self.optimizer.groups, self.bases, strict=True):
            first = group.base
            group.lr = self.rate(self.t, base)
            group.base = first

    def state_dict(self) -> dict[str, Any]:
        """Where the schedule stands; plain numbers."""
        return {"t": self.t, "bases": list(self.bases)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken."""
        self.t, self.bases = int(state["t"]), [float(b) for b in state["bases"]]
        self._set()


def _number(value: Any, what: str) -> float:
    """A real number. Raises E0531 for anything else."""
    need(arguments.is_real(value), f"{what} is {value!r}", "a number")
    return float(value)


class StepLR(Schedule):
    """base * gamma ** (t // step_size)."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> None:
        self.step_size, self.gamma = arguments.count(step_size, "step_size", 1, "E0531"), _number(gamma, "gamma")
        super().__init__(optimizer)

    def rate(self, t: int, base: float) -> float:
        return base * float(self.gamma ** (t // self.step_size))


class MultiStepLR(Schedule):
    """base * gamma ** (how many of the milestones t has reached)."""

    def __init__(self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1) -> None:
        need(isinstance(milestones, list | tuple), f"milestones are {milestones!r}", "a list of steps")
        self.milestones, self.gamma = tuple(milestones), _number(gamma, "gamma")
        super().__init__(optimizer)

    def rate(self, t: int, base: float) -> float:
        return base * float(self.gamma ** sum(t >= m for m in self.milestones))


class ExponentialLR(Schedule):
    """base * gamma ** t."""

    def __init__(self, optimizer: Optimizer, gamma: float) -> None:
        self.gamma = _number(gamma, "gamma")
        super().__init__(optimizer)

    def rate(self, t: int, base: float) -> float:
        return base * float(self.gamma**t)


class LambdaLR(Schedule):
    """base * function(t)."""

    def __init__(self, optimizer: Optimizer, function: Callable[[int], float]) -> None:
        self.function = arguments.function(function, "the schedule's function", "E0531")
        super().__init__(optimizer)

    def rate(self, t: int, base: float) -> float:
        return base * float(self.function(t))


class CosineAnnealingLR(Schedule):
    """From base down to eta_min in t_max steps along half a cosine, and up again. Source: Loshchilov & Hutter 2017,
    arXiv:1608.03983."""

    def __init__(self, optimizer: Optimizer, t_max: int, eta_min: float = 0.0) -> None:
        self.t_max, self.eta_min = arguments.count(t_max, "t_max", 1, "E0531"), _number(eta_min, "eta_min")
        super().__init__(optimizer)

    def rate(self, t: int, base: float) -> float:
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * t / self.t_max)) / 2


class LinearWarmup(Schedule):
    """Evenly from base * start to base in `steps` steps; then base, or what `after` gives, its t beginning at 0.

    `after` is a schedule of the same optimiser: LinearWarmup(opt, 100, after=CosineAnnealingLR(opt, 900)).
    """

    def __init__(self, optimizer: Optimizer, steps: int, start: float = 0.0, after: Schedule | None = None) -> None:
        need(steps > 0, f"steps is {steps}", "1 or more")
        self.steps, self.start, self.after = steps, start, after
        super().__init__(optimizer)
        if after is not None:
            self.bases = after.bases
            self._set()

    def rate(self, t: int, base: float) -> float:
        if t < self.steps:
            return base * (self.start + (1 - self.start) * t / self.steps)
        return base if self.after is None else self.after.rate(t - self.steps, base)


class OneCycleLR(Schedule):
    """From max_lr / div_factor up to max_lr in pct_start of the steps, then down to max_lr / div_factor /
    final_div_factor; along half cosines, or lines with anneal_strategy "linear".

    three_phase: back to max_lr / div_factor in as many steps as up, then to the end. total_steps: or epochs and
    steps_per_epoch. Source: Smith & Topin 2018, arXiv:1708.07120, as torch.optim.lr_scheduler.OneCycleLR without
    momentum.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
    ) -> None:
        if total_steps is None:
            found = f"epochs={epochs}, steps_per_epoch={steps_per_epoch} and no total_steps"
            need(epochs is not None and steps_per_epoch is not None, found, "total_steps, or both of the others")
            total_steps = int(epochs or 0) * int(steps_per_epoch or 0)
        need(total_steps > 1, f"total_steps is {total_steps}", "2 or more")
        need(1 / total_steps < pct_start < 1, f"pct_start is {pct_start}", "a share between 1 / total_steps and 1")
        need(not three_phase or pct_start <= 0.5, f"pct_start is {pct_start}", "at most 0.5 with three_phase")
        need(anneal_strategy in ("cos", "linear"), f"anneal_strategy is {anneal_strategy!r}", "'cos' or 'linear'")
        self.total_steps, self.linear = total_steps, anneal_strategy == "linear"
        low, top = max_lr / div_factor, pct_start * total_steps - 1
        middle = [(2 * top, low)] if three_phase else []
        self.points = [(0.0, low), (top, max_lr), *middle, (total_steps - 1.0, low / final_div_factor)]
        super().__init__(optimizer)

    def rate(self, t: int, base: float) -> float:
        for (begin, start), (end, goal) in zip(self.points, self.points[1:], strict=False):
            if t <= end:
                share = (t - begin) / (end - begin)
                return start + (goal - start) * share if self.linear else _cosine(start, goal, share)
        return self.points[-1][1]


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) / 2 * (1 + math.cos(math.pi * share))
