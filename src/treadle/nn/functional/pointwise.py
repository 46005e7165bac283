"""More activation functions, made of the surface's arithmetic. Float tensors in, tensors of the same type out."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.frontend.functions import softmax
from treadle.frontend.lift import lift, one_axis
from treadle.frontend.shaping import reshape, split
from treadle.frontend.tensor import Tensor
from treadle.nn.functional.activation import elu, relu, sigmoid, softplus, tanh
from treadle.ops.compare import greater, less, logical_or, select
from treadle.ops.elementwise import abs, maximum, minimum

_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805


def _zero(x: Any) -> Any:
    return np.zeros((), x.dtype.np)


def mish(x: Any) -> Tensor:
    """x * tanh(softplus(x)). Source: Misra 2019, arXiv:1908.08681."""
    x = lift(x)
    y: Tensor = x * tanh(softplus(x))
    return y


def hardtanh(x: Any, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """Each element moved into min_val to max_val."""
    y: Tensor = minimum(maximum(lift(x), min_val), max_val)
    return y


def selu(x: Any) -> Tensor:
    """1.0507 * elu(x, 1.6733). Source: Klambauer et al. 2017, arXiv:1706.02515."""
    y: Tensor = elu(x, _SELU_ALPHA) * _SELU_SCALE
    return y


def celu(x: Any, alpha: float = 1.0) -> Tensor:
    """x where x > 0, else alpha * (exp(x / alpha) - 1). Source: Barron 2017, arXiv:1704.07483."""
    y: Tensor = elu(lift(x) / alpha, 1.0) * alpha
    return y


def softsign(x: Any) -> Tensor:
    """x / (1 + |x|)."""
    x = lift(x)
    y: Tensor = x / (1 + abs(x))
    return y


def tanhshrink(x: Any) -> Tensor:
    """x - tanh(x)."""
    x = lift(x)
    y: Tensor = x - tanh(x)
    return y


def softshrink(x: Any, lambd: float = 0.5) -> Tensor:
    """x moved towards 0 by lambd, 0 where it would pass it."""
    x = lift(x)
    y: Tensor = select(greater(x, lambd), x - lambd, select(less(x, -lambd), x + lambd, _zero(x)))
    return y


def hardshrink(x: Any, lambd: float = 0.5) -> Tensor:
    """x where |x| > lambd, else 0."""
    x = lift(x)
    y: Tensor = select(logical_or(greater(x, lambd), less(x, -lambd)), x, _zero(x))
    return y


def threshold(x: Any, threshold: float, value: float) -> Tensor:
    """x where x > threshold, else value."""
    x = lift(x)
    y: Tensor = select(greater(x, threshold), x, np.asarray(value, x.dtype.np))
    return y


def prelu(x: Any, weight: Any) -> Tensor:
    """x where x > 0, else weight * x. weight: float[1], or float[C] with one number per channel (axis 1).

    Source: He et al. 2015, arXiv:1502.01852. Raises E0566 for another size of weight.
    """
    x, weight = lift(x), lift(weight)
    if weight.size != 1:
        if x.ndim < 2 or weight.size != x.shape[1]:
            why = f"prelu with {weight.size} slopes of {x.type}"
            raise UserError("E0566", why, fix="give one slope, or one per channel (axis 1)")
        weight = reshape(weight, (-1, *[1] * (x.ndim - 2)))
    y: Tensor = relu(x) + weight * minimum(x, 0)
    return y


def glu(x: Any, dim: int = -1) -> Tensor:
    """The first half of the axis times the sigmoid of the second. Source: Dauphin et al. 2017, arXiv:1612.08083.

    Raises E0566 for an axis of odd size.
    """
    x = lift(x)
    axis = one_axis(dim, x.ndim)
    if x.shape[axis] % 2:
        raise UserError("E0566", f"glu along axis {dim} of {x.type}", fix="give an axis of even size")
    first, second = split(x, 2, axis)
    y: Tensor = first * sigmoid(second)
    return y


def softmin(x: Any, dim: int | None = None) -> Tensor:
    """softmax(-x) along the axis; the last one unless given."""
    y: Tensor = softmax(-lift(x), -1 if dim is None else dim)
    return y
