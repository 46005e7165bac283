"""Rules that scale the step of a whole parameter (LAMB, LARS), keep less state (Lion, Adafactor), or use its matrix
(Muon).

Gradients and state in, parameters and state changed in place.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from treadle.frontend.functions import mean as mean_of
from treadle.frontend.lift import cast
from treadle.frontend.products import matmul
from treadle.frontend.shaping import matrix_transpose
from treadle.frontend.tensor import Tensor
from treadle.nn.cell import Parameter
from treadle.ops.compare import greater, logical_and, select
from treadle.ops.elementwise import maximum, minimum, sign
from treadle.ops.functions import exp, log, rsqrt, sqrt
from treadle.optim._arith import correction, lerp, norm, wide, work_dtype, write
from treadle.optim._moments import Betas, Moments, Params, check_betas, check_share, keep, moments
from treadle.optim.optimizer import Group, Optimizer, need


def _trust(top: Any, bottom: Any) -> Any:
    """top / bottom where both are above 0, else 1."""
    both = logical_and(greater(top, 0), greater(bottom, 0))
    return select(both, top / select(both, bottom, bottom * 0 + 1), top * 0 + 1)


class Lion(Optimizer):
    """p -= lr * (sign(beta1 * m + (1 - beta1) * g) + weight_decay * p); m = beta2 * m + (1 - beta2) * g.

    Source: Chen et al. 2023, arXiv:2302.06675.
    """

    slots = ("m",)

    def __init__(
        self,
        params: Params,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr, betas=betas, weight_decay=weight_decay)

    def check(self, lr: float, **options: Any) -> None:
        check_betas(options["betas"])
        super().check(lr, **options)

    def update(self, param: Parameter, grad: Any, state: Moments, group: Group) -> None:
        beta1, beta2 = group.options["betas"]
        p, g = wide(param, grad)
        change = sign(state["m"] * beta1 + g * (1 - beta1)) + p * group.options["weight_decay"]
        write(param, p - group.rate * change)
        state["m"]._set(state["m"] * beta2 + g * (1 - beta2))


class LAMB(Betas):
    """Adam's step r (plus weight_decay * p), scaled for each parameter by |p| / |r|: p -= lr * |p| / |r| * r.

    The scale is 1 where a norm is 0. Source: You et al. 2020, arXiv:1904.00962, algorithm 2.
    """

    slots = ("m", "v")

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)

    def update(self, param: Parameter, grad: Any, state: Moments, group: Group) -> None:
        beta1, beta2 = group.options["betas"]
        p, g = wide(param, grad)
        step = cast(state["step"], g.dtype)
        m, v = moments(state, g, (beta1, beta2))
        root = sqrt(v / correction(step, beta2)) + group.options["eps"]
        change = m / correction(step, beta1) / root + p * group.options["weight_decay"]
        write(param, p - group.rate * _trust(norm(p), norm(change)) * change)
        keep(state, m=m, v=v)


class LARS(Optimizer):
    """v = momentum * v + lr * scale * (g + weight_decay * p); p -= v, scale = trust * |p| / (|g| + weight_decay * |p|).

    The scale is 1 where a norm is 0. Source: You et al. 2017, arXiv:1708.03888.
    """

    slots = ("momentum",)

    def __init__(
        self,
        params: Params,
        lr: float = 0.1,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = 1e-3,
    ) -> None:
        super().__init__(params, lr, momentum=momentum, weight_decay=weight_decay, trust=trust)

    def check(self, lr: float, **options: Any) -> None:
        check_share("momentum", options["momentum"])
        need(options["trust"] > 0, f"trust is {options['trust']}", "a number above 0")
        super().check(lr, **options)

    def update(self, param: Parameter, grad: Any, state: Moments, group: Group) -> None:
        options = group.options
        p, g = wide(param, grad)
        size, decay = norm(p), options["weight_decay"]
        both = logical_and(greater(size, 0), greater(norm(g), 0))
        scale = select(both, _trust(size, norm(g) + size * decay) * options["trust"], size * 0 + 1)
        speed = state["momentum"] * options["momentum"] + group.rate * scale * (g + p * decay)
        write(param, p - speed)
        state["momentum"]._set(speed)


class Adafactor(Optimizer):
    """Adam without m, whose v of a matrix is the product of its row and column means: far less state.

    The last two axes are the matrix. lr is relative to the root mean square of p (at least eps[1]) and at most
    1 / sqrt(step); the step's own root mean square is at most d. eps[0] None: machine epsilon.
    Source: Shazeer & Stern 2018, arXiv:1804.04235, in the form of torch.optim.Adafactor.
    """

    slots, counted = ("row", "column"), True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr, beta2_decay=beta2_decay, eps=tuple(eps), d=d, weight_decay=weight_decay)

    def check(self, lr: float, **options: Any) -> None:
        need(options["beta2_decay"] <= 0, f"beta2_decay is {options['beta2_decay']}", "0 or less")
        need(options["d"] >= 1, f"d is {options['d']}", "1 or more")
        super().check(lr, **options)

    def start(self, slot: str, param: Parameter, group: Group) -> Tensor:
        """row: [..., n, 1] and column: [..., 1, m] of a matrix; of a vector, row is v itself and column empty."""
        shape = tuple(param.shape)
        if len(shape) > 1:
            shape = (*shape[:-1], 1) if slot == "row" else (*shape[:-2], 1, shape[-1])
        elif slot == "column":
            shape = (0,)
        return Tensor(np.zeros(shape, work_dtype(param).np))

    def update(self, param: Parameter, grad: Any, state: Moments, group: Group) -> None:
        options = group.options
        p, g = wide(param, grad)
        step = cast(state["step"], g.dtype)
        small = float(np.finfo(g.dtype.np).eps) if options["eps"][0] is None else options["eps"][0]
        share = exp(log(step) * options["beta2_decay"])
        count = math.sqrt(max(param.size, 1))
        size = maximum(norm(p) / count, options["eps"][1]) * minimum(cast(group.rate, g.dtype), rsqrt(step))
        p = p * (1 - group.rate * options["weight_decay"])
        if param.ndim > 1:
            row = lerp(state["row"], mean_of(g * g, -1, keepdims=True), share)
            column = lerp(state["column"], mean_of(g * g, -2, keepdims=True), share)
            v = row * column / maximum(mean_of(row, -2, keepdims=True), small)
            state["column"]._set(column)
        else:
            row = v = lerp(state["row"], g * g, share)
        state["row"]._set(row)
        change = rsqrt(maximum(v, small * small)) * g
        write(param, p - size / maximum(norm(change) / (count * options["d"]), 1.0) * change)


class Muon(Optimizer):
    """Momentum, then the nearest orthogonal matrix to it: p -= lr * scale * orthogonal(g + momentum * buffer).

    For the matrices inside a network; give embeddings, norms and biases to AdamW. Parameters of more than two axes
    are matrices [first, rest]. buffer = lerp(buffer, g, 1 - momentum); five Newton-Schulz steps in the state's type.
    scale: sqrt(max(1, rows / columns)), or 0.2 * sqrt(max(rows, columns)) with match_adam. weight_decay as AdamW.
    Raises E0531 for parameters of fewer than two axes. Source: Jordan et al. 2024 (Muon); Liu et al. 2025,
    arXiv:2502.16982.
    """

    slots = ("momentum",)

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        momentum: float = 0.95,
        weight_decay: float = 0.1,
        nesterov: bool = True,
        ns_steps: int = 5,
        match_adam: bool = False,
    ) -> None:
        more = {"nesterov": nesterov, "ns_steps": ns_steps, "match_adam": match_adam}
        super().__init__(params, lr, momentum=momentum, weight_decay=weight_decay, **more)
        for p in self.params:
            found = f"Muon got {p.name or 'a parameter'} of shape {list(p.shape)}"
            need(p.ndim >= 2, found, "it matrices, the others to AdamW")

    def check(self, lr: float, **options: Any) -> None:
        check_share("momentum", options["momentum"])
        need(options["ns_steps"] > 0, f"ns_steps is {options['ns_steps']}", "1 or more")
        super().check(lr, **options)

    def update(self, param: Parameter, grad: Any, state: Moments, group: Group) -> None:
        options = group.options
        p, g = wide(param, grad)
        buffer = lerp(state["momentum"], g, 1 - options["momentum"])
        state["momentum"]._set(buffer)
        change = lerp(g, buffer, options["momentum"]) if options["nesterov"] else buffer
        rows, columns = param.shape[0], param.size // max(param.shape[0], 1)
        change = orthogonal(change.reshape((rows, columns)), options["ns_steps"])
        scale = math.sqrt(max(1, rows / max(columns, 1)))
        if options["match_adam"]:
            scale = 0.2 * math.sqrt(max(rows, columns))
        p = p * (1 - group.rate * options["weight_decay"])
        write(param, p - group.rate * scale * change.reshape(param.shape))


def orthogonal(x: Any, steps: int = 5) -> Any:
    """A matrix with the singular vectors of x and singular values near 1 (0.7 to 1.2), by a quintic Newton-Schulz step.

    x: float[n, m] -> the same. Coefficients: Jordan et al. 2024.
    """
    tall = x.shape[0] > x.shape[1]
    y = matrix_transpose(x) if tall else x
    y = y / maximum(norm(y), 1e-7)
    for _ in range(steps):
        square = matmul(y, matrix_transpose(y))
        y = y * 3.4445 + matmul(square * -4.775 + matmul(square, square) * 2.0315, y)
    return matrix_transpose(y) if tall else y
