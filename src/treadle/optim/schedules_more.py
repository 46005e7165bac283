"""More schedules: constant, linear, polynomial, cosine with restarts, cyclic, on a plateau, chained, in sequence.

As in `schedules`: functions of the number t of calls of `step`, run on the host. Values are PyTorch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from treadle.optim.optimizer import Optimizer, need
from treadle.optim.schedules import Schedule


class ConstantLR(Schedule):
    """base * factor for total_iters steps, then base."""

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5) -> None:
        need(0 <= factor <= 1, f"factor is {factor}", "a number from 0 to 1")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer)

    def rate(self, t: int, base: float) -> float:
        return base * self.factor if t < self.total_iters else base


class LinearLR(Schedule):
    """Evenly from base * start_factor to base * end_factor in total_iters steps, then that."""

    def __init__(
        self, optimizer: Optimizer, start_factor: float = 1 / 3, end_factor: float = 1.0, total_iters: int = 5
    ) -> None:
        need(0 < start_factor <= 1, f"start_factor is {start_factor}", "a number above 0, at most 1")
        need(0 <= end_factor <= 1, f"end_factor is {end_factor}", "a number from 0 to 1")
        need(total_iters > 0, f"total_iters is {total_iters}", "1 or more")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer)

    def rate(self, t: int, base: float) -> float:
        share = min(t, self.total_iters) / self.total_iters
        return base * (self.start_factor + (self.end_factor - self.start_factor) * share)


class PolynomialLR(Schedule):
    """base * (1 - t / total_iters) ** power, 0 from total_iters on."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0) -> None:
        need(total_iters > 0, f"total_iters is {total_iters}", "1 or more")
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer)

    def rate(self, t: int, base: float) -> float:
        return base * float((1 - min(t, self.total_iters) / self.total_iters) ** self.power)


class MultiplicativeLR(Schedule):
    """base * function(1) * function(2) * ... * function(t)."""

    def __init__(self, optimizer: Optimizer, function: Callable[[int], float]) -> None:
        self.function, self._known = function, (0, 1.0)
        super().__init__(optimizer)

    def rate(self, t: int, base: float) -> float:
        done, product = self._known if self._known[0] <= t else (0, 1.0)
        for i in range(done + 1, t + 1):
            product *= float(self.function(i))
        self._known = (t, product)
        return base * product


class ChainedScheduler(Schedule):
    """base times what each of the schedules makes of it: the factors of all of them, at the same t.

    schedules: of one optimiser, each a factor of base (not ReduceLROnPlateau).
    """

    def __init__(self, schedules: Sequence[Schedule]) -> None:
        need(len(schedules) > 0, "no schedules", "one or more")
        need(all(s.optimizer is schedules[0].optimizer for s in schedules), "different optimisers", "the same one")
        need(not any(isinstance(s, ReduceLROnPlateau) for s in schedules), "ReduceLROnPlateau in it", "functions of t")
        self.schedules = tuple(schedules)
        super().__init__(schedules[0].optimizer)

    def rate(self, t: int, base: float) -> float:
        factors = [s.rate(t, base) / base for s in self.schedules] if base else []
        return base * math.prod(factors)


class InverseSqrt(Schedule):
    """base * min((t + 1) / warm_up, sqrt(warm_up / (t + 1))). Source: Vaswani et al. 2017, arXiv:1706.03762."""

    def __init__(self, optimizer: Optimizer, warm_up: int) -> None:
        need(warm_up > 0, f"warm_up is {warm_up}", "1 or more")
        self.warm_up = warm_up
        super().__init__(optimizer)

    def rate(self, t: int, base: float) -> float:
        return base * min((t + 1) / self.warm_up, math.sqrt(self.warm_up / (t + 1)))


class CosineAnnealingWarmRestarts(Schedule):
    """Half cosines from base to eta_min; the first takes t_0 steps, each next one t_mult times as many.

    Source: Loshchilov & Hutter 2017, arXiv:1608.03983.
    """

    def __init__(self, optimizer: Optimizer, t_0: int, t_mult: int = 1, eta_min: float = 0.0) -> None:
        need(t_0 > 0, f"t_0 is {t_0}", "1 or more")
        need(t_mult >= 1, f"t_mult is {t_mult}", "1 or more")
        self.t_0, self.t_mult, self.eta_min = t_0, t_mult, eta_min
        super().__init__(optimizer)

    def rate(self, t: int, base: float) -> float:
        length = self.t_0
        if self.t_mult == 1:
            t %= length
        while t >= length:
            t, length = t - length, length * self.t_mult
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * t / length)) / 2


class CyclicLR(Schedule):
    """From base_lr up to max_lr in step_size_up steps and down again in step_size_down (None: as many), over and over.

    mode: "triangular", "triangular2" (each cycle half as high), "exp_range" (the height times gamma ** t).
    Source: Smith 2017, arXiv:1506.01186.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float,
        max_lr: float,
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
    ) -> None:
        need(step_size_up > 0, f"step_size_up is {step_size_up}", "1 or more")
        need(mode in ("triangular", "triangular2", "exp_range"), f"mode is {mode!r}", "a mode that the docs name")
        self.base_lr, self.max_lr, self.mode, self.gamma = base_lr, max_lr, mode, gamma
        self.up, self.down = step_size_up, step_size_up if step_size_down is None else step_size_down
        super().__init__(optimizer)

    def rate(self, t: int, base: float) -> float:
        cycle, place = divmod(t, self.up + self.down)
        height = place / self.up if place <= self.up else 1 - (place - self.up) / self.down
        scale = {"triangular": 1.0, "triangular2": 0.5**cycle, "exp_range": self.gamma**t}[self.mode]
        return self.base_lr + (self.max_lr - self.base_lr) * height * float(scale)


class SequentialLR(Schedule):
    """The schedules one after another: the next begins, its t at 0, when t reaches its milestone.

    schedules: of the same optimiser; milestones: one fewer, rising.
    """

    def __init__(self, optimizer: Optimizer, schedules: Sequence[Schedule], milestones: Sequence[int]) -> None:
        found = f"{len(schedules)} schedules with milestones {list(milestones)}"
        fits = len(milestones) == len(schedules) - 1 and list(milestones) == sorted(set(milestones))
        need(fits, found, "one milestone fewer than schedules, rising")
        need(all(s.optimizer is optimizer for s in schedules), "a schedule of another optimiser", "those of this one")
        need(not any(isinstance(s, ReduceLROnPlateau) for s in schedules), "ReduceLROnPlateau in it", "functions of t")
        self.schedules, self.milestones = tuple(schedules), tuple(milestones)
        super().__init__(optimizer)

    def rate(self, t: int, base: float) -> float:
        part = sum(t >= m for m in self.milestones)
        return self.schedules[part].rate(t - (self.milestones[part - 1] if part else 0), base)


class ReduceLROnPlateau(Schedule):
    """`step(metric)`: the rate times factor when the metric has not become better for more than `patience` calls.

    mode: whether "min" or "max" is better. Better means by a share `threshold` (threshold_mode "rel") or by the number
    itself ("abs"). After a cut `cooldown` calls do not count. The rate stays at least min_lr; cuts of eps or less are
    not made.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float = 0.0,
        eps: float = 1e-8,
    ) -> None:
        need(factor < 1, f"factor is {factor}", "a number below 1")
        need(mode in ("min", "max"), f"mode is {mode!r}", "'min' or 'max'")
        need(threshold_mode in ("rel", "abs"), f"threshold_mode is {threshold_mode!r}", "'rel' or 'abs'")
        self.mode, self.factor, self.patience, self.min_lr, self.eps = mode, factor, patience, min_lr, eps
        self.threshold, self.threshold_mode, self.cooldown = threshold, threshold_mode, cooldown
        self.best, self.bad, self.cooling = math.inf if mode == "min" else -math.inf, 0, 0
        super().__init__(optimizer)

    def step(self, metric: Any = None) -> None:
        """Look at the metric (a number) and cut the rates if it is time. Raises E0531 without one."""
        need(metric is not None, "step() without the metric", "step(metric)")
        value = float(metric)
        self.t += 1
        if self._better(value):
            self.best, self.bad = value, 0
        else:
            self.bad += 1
        if self.cooling:
            self.cooling, self.bad = self.cooling - 1, 0
        if self.bad > self.patience:
            cut = [max(b * self.factor, self.min_lr) for b in self.bases]
            self.bases = [new if old - new > self.eps else old for old, new in zip(self.bases, cut, strict=True)]
            self._set()
            self.cooling, self.bad = self.cooldown, 0

    def _better(self, value: float) -> bool:
        gain = self.threshold if self.threshold_mode == "abs" else 0.0
        share = self.threshold if self.threshold_mode == "rel" else 0.0
        if self.mode == "min":
            return value < self.best * (1 - share) - gain
        return value > self.best * (1 + share) + gain

    def state_dict(self) -> dict[str, Any]:
        best = self.best if math.isfinite(self.best) else None
        return {**super().state_dict(), "best": best, "bad": self.bad, "cooling": self.cooling}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        nothing = math.inf if self.mode == "min" else -math.inf
        self.best = nothing if state["best"] is None else float(state["best"])
        self.bad, self.cooling = int(state["bad"]), int(state["cooling"])
        super().load_state_dict(state)
