"""Activations as cells, and `get_activation(name)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from treadle.base.errors import UserError
from treadle.compat.mindspore.nn.cell import Cell, parameter
from treadle.frontend import functions as fn
from treadle.nn import functional as F


class _Plain(Cell):
    """A function of each element without options."""

    function: Callable[[Any], Any]

    def construct(self, x: Any) -> Any:
        return type(self).function(x)


class ReLU(_Plain):
    """max(x, 0)."""

    function = staticmethod(fn.relu)


class ReLU6(_Plain):
    """min(max(x, 0), 6)."""

    function = staticmethod(F.relu6)


class Sigmoid(_Plain):
    """1 / (1 + exp(-x))."""

    function = staticmethod(fn.sigmoid)


class Tanh(_Plain):
    """The hyperbolic tangent."""

    function = staticmethod(fn.tanh)


class SiLU(_Plain):
    """x * sigmoid(x)."""

    function = staticmethod(F.silu)


class Mish(_Plain):
    """x * tanh(softplus(x))."""

    function = staticmethod(F.mish)


class HSwish(_Plain):
    """x * min(max(x + 3, 0), 6) / 6."""

    function = staticmethod(F.hardswish)


class HSigmoid(_Plain):
    """min(max(x + 3, 0), 6) / 6."""

    function = staticmethod(F.hardsigmoid)


class LogSigmoid(_Plain):
    """log(sigmoid(x))."""

    function = staticmethod(F.logsigmoid)


class Softsign(_Plain):
    """x / (1 + |x|)."""

    function = staticmethod(F.softsign)


class GELU(Cell):
    """x times the normal distribution function of x; by a tanh (the default here) or, approximate=False, exactly."""

    def __init__(self, approximate: bool = True) -> None:
        super().__init__()
        self.approximate = approximate

    def construct(self, x: Any) -> Any:
        return F.gelu(x, "tanh" if self.approximate else "none")


class FastGelu(_Plain):
    """x * sigmoid(1.702 * x)."""

    @staticmethod
    def function(x: Any) -> Any:
        return x * fn.sigmoid(x * 1.702)


class ELU(Cell):
    """x where positive, else alpha * (exp(x) - 1)."""

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self.alpha = alpha

    def construct(self, x: Any) -> Any:
        return F.elu(x, self.alpha)


class LeakyReLU(Cell):
    """x where positive, else alpha * x; alpha is 0.2 unless told."""

    def __init__(self, alpha: float = 0.2) -> None:
        super().__init__()
        self.alpha = alpha

    def construct(self, x: Any) -> Any:
        return F.leaky_relu(x, self.alpha)


class PReLU(Cell):
    """x where positive, else weight * x; a weight for each channel, or one."""

    def __init__(self, channel: int = 1, w: Any = 0.25) -> None:
        super().__init__()
        self.w = parameter(w, (channel,))
        self.w.name = "w"

    def construct(self, x: Any) -> Any:
        return F.prelu(x, self.w)


class Softmax(Cell):
    """exp(x) over its sum along an axis."""

    def __init__(self, axis: int = -1) -> None:
        super().__init__()
        self.axis = axis

    def construct(self, x: Any) -> Any:
        return fn.softmax(x, self.axis)


class LogSoftmax(Softmax):
    """The logarithm of softmax along an axis."""

    def construct(self, x: Any) -> Any:
        return fn.log_softmax(x, self.axis)


def get_activation(name: str) -> Any:
    """A new activation cell by name: "relu", "gelu", "softmax". Raises E0590 for an unknown one."""
    kinds = (ReLU, ReLU6, Sigmoid, Tanh, SiLU, Mish, HSwish, HSigmoid, LogSigmoid, GELU, FastGelu, ELU, LeakyReLU)
    every: dict[str, type[Cell]] = {k.__name__.lower(): k for k in (*kinds, PReLU, Softmax, LogSoftmax, Softsign)}
    if name.lower() not in every:
        raise UserError("E0590", f"there is no activation {name!r}", fix=f"use one of {', '.join(every)}")
    return every[name.lower()]()


__all__ = [
    "ELU",
    "FastGelu",
    "GELU",
    "HSigmoid",
    "HSwish",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "Mish",
    "PReLU",
    "ReLU",
    "ReLU6",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softsign",
    "Tanh",
    "get_activation",
]
