"""L-BFGS: steps along an estimate of Newton's direction from the last changes of parameters and gradients.

It judges the loss several times per step, so `step` takes a function that gives loss and gradients (which may be
compiled); the vectors of the estimate are kept on the host. For problems without noise and with few parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.frontend import trace as tracing
from treadle.frontend.tensor import Tensor
from treadle.nn.cell import Parameter
from treadle.optim.optimizer import need

Vector = Any  # a NumPy vector of all parameters, float64


class LBFGS:
    """`step(closure)`: up to max_iter iterations; closure() gives (loss, gradients), as `td.value_and_grad` does.

    The first step is min(1, 1 / sum|g|) * lr times -g, later ones lr times the estimated direction. line_search
    "wolfe": lr is where a search starts that bisects until the loss falls enough and the slope has grown enough (the
    weak Wolfe conditions). It ends early when the largest |g| is at most tolerance_grad, or loss or step change by less
    than tolerance_change. Frozen parameters take part: leave them out. Raises E0530 for what is no parameter, E0531 for
    options out of range, E0532 inside a compiled function, E0533 for a wrong number of gradients.
    Source: Liu & Nocedal 1989, doi:10.1007/BF01589116; the search: Lewis & Overton 2013,
    doi:10.1007/s10107-012-0514-2.
    """

    def __init__(
        self,
        params: Iterable[Parameter],
        lr: float = 1.0,
        max_iter: int = 20,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search: str | None = None,
    ) -> None:
        self.params = list(params)
        if not self.params or not all(isinstance(p, Parameter) for p in self.params):
            raise UserError("E0530", "LBFGS got no parameters, or something else", fix="pass net.parameters()")
        need(lr > 0, f"lr is {lr}", "a number above 0")
        need(max_iter > 0 and history_size > 0, f"max_iter={max_iter}, history_size={history_size}", "1 or more")
        need(line_search in (None, "wolfe"), f"line_search is {line_search!r}", "None or 'wolfe'")
        self.lr, self.max_iter, self.history_size, self.line_search = lr, max_iter, history_size, line_search
        self.tolerance_grad, self.tolerance_change = tolerance_grad, tolerance_change
        self.iterations, self.evaluations = 0, 0
        self._pairs: list[tuple[Vector, Vector]] = []  # changes of parameters and of gradients, oldest first
        self._last: tuple[Vector, Vector] | None = None  # the last step taken and the gradient before it

    # ------------------------------------------------------------------------------------------------ a step
    def step(self, closure: Callable[[], tuple[Any, Any]]) -> float:
        """Change the parameters; returns the loss before. Inside a compiled function raises E0532."""
        if tracing.current() is not None:
            raise UserError("E0532", "LBFGS.step inside a compiled function", fix="compile the closure instead")
        x = np.concatenate([p.numpy().astype(np.float64).ravel() for p in self.params])
        first, g = self._judge(closure, None)
        loss = first
        for i in range(self.max_iter):
            if np.abs(g).max(initial=0) <= self.tolerance_grad or not np.isfinite(loss):
                break
            self.iterations += 1
            self._remember(g)
            d = self._direction(g)
            slope = float(g @ d)
            if slope > -self.tolerance_change:
                break
            size = min(1.0, 1.0 / float(np.abs(g).sum())) * self.lr if self.iterations == 1 else self.lr
            old, self._last = loss, None
            before = g
            if self.line_search:
                size, loss, g = self._search(closure, x, d, loss, slope, g, size)
            x = x + size * d
            self._last = (size * d, before)
            self._write(x)
            if not self.line_search and i + 1 < self.max_iter:
                loss, g = self._judge(closure, None)
            elif not self.line_search:
                break
            if np.abs(size * d).max() <= self.tolerance_change or abs(loss - old) < self.tolerance_change:
                break
        return first

    def _judge(self, closure: Callable[[], tuple[Any, Any]], x: Vector | None) -> tuple[float, Vector]:
        """Loss and gradients at x, or where the parameters are."""
        if x is not None:
            self._write(x)
        loss, grads = closure()
        self.evaluations += 1
        grads = list(grads)
        if len(grads) != len(self.params):
            why = f"{len(grads)} gradients for {len(self.params)} parameters"
            raise UserError("E0533", why, fix="pass one per parameter, in the order of the optimiser's parameters")
        flat = [np.asarray(g, np.float64).ravel() for g in grads]
        return float(loss), np.concatenate(flat)

    def _write(self, x: Vector) -> None:
        start = 0
        for p in self.params:
            p.assign(x[start : start + p.size].reshape(p.shape).astype(p.dtype.np))
            start += p.size

    def _remember(self, g: Vector) -> None:
        """Add the last step to the history if the loss curves upwards along it."""
        if self._last is None:
            return
        s, before = self._last
        y = g - before
        if y @ s > 1e-10:
            self._pairs = [*self._pairs, (s, y)][-self.history_size :]

    def _direction(self, g: Vector) -> Vector:
        """-H g, H the inverse Hessian that the pairs imply (two loops; Nocedal & Wright 2006, algorithm 7.4)."""
        d = -g
        shares = []
        for s, y in reversed(self._pairs):
            shares.append(float(s @ d) / float(s @ y))
            d = d - shares[-1] * y
        if self._pairs:
            s, y = self._pairs[-1]
            d = d * (float(s @ y) / float(y @ y))
        for (s, y), share in zip(self._pairs, reversed(shares), strict=True):
            d = d + (share - float(y @ d) / float(s @ y)) * s
        return d

    def _search(
        self, closure: Any, x: Vector, d: Vector, loss: float, slope: float, g: Vector, size: float
    ) -> tuple[float, float, Vector]:
        """(step size, loss and gradient there). A search without success takes the best size seen, or none."""
        low, high = 0.0, np.inf
        best = (0.0, loss, g)
        for _ in range(25):
            found, grad = self._judge(closure, x + size * d)
            if found < best[1]:
                best = (size, found, grad)
            if not found <= loss + 1e-4 * size * slope:
                high = size
            elif grad @ d < 0.9 * slope:
                low = size
            else:
                return size, found, grad
            size = 2 * low if high == np.inf else (low + high) / 2
        return best

    # ------------------------------------------------------------------------------------------------ state
    def state_dict(self) -> dict[str, Tensor]:
        """Iterations done, the pairs, and the last step with the gradient before it (empty before the first)."""
        count = sum(p.size for p in self.params)
        s, y = (np.array([pair[i] for pair in self._pairs]).reshape(-1, count) for i in (0, 1))
        last = np.array(self._last if self._last is not None else []).reshape(-1, count)
        counts = np.array([self.iterations, self.evaluations], np.int64)
        return {"counts": Tensor(counts), "s": Tensor(s), "y": Tensor(y), "last": Tensor(last)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`. Raises E0535 when it is not of these parameters."""
        arrays = {k: np.asarray(v) for k, v in state.items()}
        count = sum(p.size for p in self.params)
        if arrays.keys() != {"counts", "s", "y", "last"} or any(arrays[k].shape[1:] != (count,) for k in "sy"):
            raise UserError("E0535", "the state is not of this LBFGS", fix="make it with the same parameters")
        self.iterations, self.evaluations = (int(n) for n in arrays["counts"])
        self._pairs = list(zip(arrays["s"], arrays["y"], strict=True))
        self._last = (arrays["last"][0], arrays["last"][1]) if len(arrays["last"]) else None
