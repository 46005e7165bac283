"""Activation functions of float tensors of any shape; the result has the type of the input. Integers raise E0106."""

from __future__ import annotations

from typing import Any

from treadle.base.errors import UserError
from treadle.frontend import elementwise
from treadle.frontend.lift import lift
from treadle.frontend.tensor import Tensor
from treadle.ops import activation as ops
from treadle.ops import functions
from treadle.ops.compare import greater, select


def relu(x: Any) -> Tensor:
    """max(x, 0) of each element."""
    y: Tensor = elementwise.relu(x)
    return y


def relu6(x: Any) -> Tensor:
    """min(max(x, 0), 6) of each element."""
    y: Tensor = ops.relu6(lift(x))
    return y


def leaky_relu(x: Any, negative_slope: float = 0.01) -> Tensor:
    """x where x > 0, else negative_slope * x."""
    y: Tensor = ops.leaky_relu(lift(x), slope=float(negative_slope))
    return y


def elu(x: Any, alpha: float = 1.0) -> Tensor:
    """x where x > 0, else alpha * (exp(x) - 1)."""
    y: Tensor = ops.elu(lift(x), alpha=float(alpha))
    return y


def gelu(x: Any, approximate: str | bool = "none") -> Tensor:
    """x times the chance that a standard normal number is below x; "tanh" (or True): by the tanh formula.

    Source: Hendrycks & Gimpel 2016, arXiv:1606.08415. Raises E0540 for another word.
    """
    if approximate not in ("none", "tanh", True, False):
        raise UserError("E0540", f"gelu(approximate={approximate!r})", fix="use 'none' or 'tanh'")
    y: Tensor = ops.gelu(lift(x), approximate=approximate in ("tanh", True))
    return y


def silu(x: Any) -> Tensor:
    """x * sigmoid(x) of each element."""
    y: Tensor = ops.silu(lift(x))
    return y


def sigmoid(x: Any) -> Tensor:
    """1 / (1 + exp(-x)) of each element."""
    y: Tensor = functions.sigmoid(lift(x))
    return y


def tanh(x: Any) -> Tensor:
    """Hyperbolic tangent of each element."""
    y: Tensor = functions.tanh(lift(x))
    return y


def softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta of each element; x itself where beta * x > threshold.

    Raises E0566 for a beta of 0 or less.
    """
    if not beta > 0:
        raise UserError("E0566", f"softplus with beta={beta}", fix="give a number above 0")
    x = lift(x)
    y: Tensor = ops.softplus(x) if beta == 1 else ops.softplus(x * beta) * (1 / beta)
    exact = 20 if x.dtype.bits <= 32 else 40  # from there on the formula gives x anyway
    return y if threshold >= exact else select(greater(x * beta, threshold), x, y)


def logsigmoid(x: Any) -> Tensor:
    """log(sigmoid(x)) of each element, without overflow."""
    y: Tensor = ops.log_sigmoid(lift(x))
    return y


def hardsigmoid(x: Any) -> Tensor:
    """min(max(x / 6 + 1/2, 0), 1) of each element."""
    y: Tensor = ops.hard_sigmoid(lift(x))
    return y


def hardswish(x: Any) -> Tensor:
    """x * hardsigmoid(x) of each element."""
    y: Tensor = ops.hard_swish(lift(x))
    return y
