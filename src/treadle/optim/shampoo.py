"""Shampoo: gradients turned and scaled along every axis by the second moments of that axis.

Gradients and state in, parameters and state changed in place.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle.api import cond
from treadle.frontend import linalg
from treadle.frontend.products import matmul
from treadle.frontend.shaping import matrix_transpose, moveaxis, reshape
from treadle.frontend.tensor import Tensor
from treadle.nn.cell import Parameter
from treadle.ops.compare import equal
from treadle.ops.elementwise import maximum
from treadle.ops.functions import exp, log
from treadle.optim._arith import wide, work_dtype, write
from treadle.optim._moments import Params, check_share
from treadle.optim.optimizer import Group, Optimizer, need


class Shampoo(Optimizer):
    """H_i += G_i G_i^T, G_i the gradient with axis i as rows; p -= lr * (g times H_i^(-1/2k) along every axis i).

    k: how many axes take part: those of at most max_size (H_i has size ** 2 numbers); where none does, the gradient is
    used as it is. H_i begins at eps * I. The roots are made anew every update_freq steps, by an eigendecomposition.
    momentum: b = momentum * b + the step. weight_decay * p is added to g. Source: Gupta et al. 2018, arXiv:1802.09568.
    """

    counted = True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-1,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        eps: float = 1e-4,
        update_freq: int = 1,
        max_size: int = 1024,
    ) -> None:
        more = {"eps": eps, "update_freq": update_freq, "max_size": max_size}
        super().__init__(params, lr, momentum=momentum, weight_decay=weight_decay, **more)

    def check(self, lr: float, **options: Any) -> None:
        check_share("momentum", options["momentum"])
        need(options["eps"] > 0, f"eps is {options['eps']}", "a number above 0")
        need(options["update_freq"] >= 1, f"update_freq is {options['update_freq']}", "1 or more")
        need(options["max_size"] >= 0, f"max_size is {options['max_size']}", "0 or more")
        super().check(lr, **options)

    @property
    def slots(self) -> tuple[str, ...]:  # type: ignore[override]
        axes = max([max(p.ndim, 1) for p in self.params], default=0)
        own = [f"{what}{i}" for what in ("moment", "root") for i in range(axes)]
        return ("momentum", *own) if any(g.options["momentum"] for g in self.groups) else tuple(own)

    def start(self, slot: str, param: Parameter, group: Group) -> Tensor:
        """Matrices of the axes that take part; empty for the other slots."""
        if slot == "momentum":
            return super().start(slot, param, group)
        axis, kind = int(slot.removeprefix("moment").removeprefix("root")), work_dtype(param).np
        if axis not in _axes(param, group):
            return Tensor(np.zeros((0,), kind))
        size = param.shape[axis] if param.ndim else 1
        return Tensor(np.eye(size, dtype=kind) * (group.options["eps"] if slot.startswith("moment") else 1))

    def update(self, param: Parameter, grad: Any, state: dict[str, Tensor], group: Group) -> None:
        options, axes = group.options, _axes(param, group)
        p, g = wide(param, grad)
        g = g + p * options["weight_decay"]
        change = reshape(g, (1,)) if not param.ndim else g
        full = tuple(change.shape)
        for axis in axes:
            rows = reshape(moveaxis(reshape(g, full), axis, 0), (full[axis], -1))
            state[f"moment{axis}"]._set(state[f"moment{axis}"] + matmul(rows, matrix_transpose(rows)))
        if axes:
            roots = self._roots([state[f"moment{a}"] for a in axes], [state[f"root{a}"] for a in axes], state, options)
            for axis, root in zip(axes, roots, strict=True):
                state[f"root{axis}"]._set(root)
                turned = moveaxis(change, axis, 0)
                made = matmul(root, reshape(turned, (full[axis], -1)))
                change = moveaxis(reshape(made, tuple(turned.shape)), 0, axis)
        change = reshape(change, tuple(param.shape))
        if options["momentum"]:
            change = state["momentum"] * options["momentum"] + change
            state["momentum"]._set(change)
        write(param, p - group.rate * change)

    def _roots(self, moments: list[Any], old: list[Any], state: dict[str, Tensor], options: dict[str, Any]) -> Any:
        """The roots to use at this step: new ones at the first and every update_freq-th after it."""
        power, least, every = -0.5 / len(moments), options["eps"], options["update_freq"]

        def renew(*matrices: Any) -> list[Any]:
            return [_power(m, power, least) for m in matrices[: len(moments)]]

        if every == 1:
            return renew(*moments)
        due = equal((state["step"] - 1) % every, 0)
        return cond(due, renew, lambda *matrices: list(matrices[len(moments) :]), *moments, *old)


def _axes(param: Parameter, group: Group) -> list[int]:
    return [i for i, n in enumerate(tuple(param.shape) or (1,)) if 0 < n <= group.options["max_size"]]


def _power(matrix: Any, power: float, least: float) -> Any:
    """A symmetric matrix to a power; eigenvalues count as at least `least`."""
    values, vectors = linalg.eigh(matrix)
    scaled = vectors * exp(log(maximum(values, least)) * power)
    return matmul(scaled, matrix_transpose(vectors))
