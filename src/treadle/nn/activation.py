"""Activation functions as cells."""

from __future__ import annotations

from typing import Any

from treadle.nn import functional as F
from treadle.nn.cell import Cell


class ReLU(Cell):
    """max(x, 0)."""

    def forward(self, x: Any) -> Any:
        return F.relu(x)


class ReLU6(Cell):
    """min(max(x, 0), 6)."""

    def forward(self, x: Any) -> Any:
        return F.relu6(x)


class LeakyReLU(Cell):
    """x where x > 0, else negative_slope * x."""

    def __init__(self, negative_slope: float = 0.01) -> None:
        self.negative_slope = negative_slope

    def forward(self, x: Any) -> Any:
        return F.leaky_relu(x, self.negative_slope)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}"


class ELU(Cell):
    """x where x > 0, else alpha * (exp(x) - 1)."""

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def forward(self, x: Any) -> Any:
        return F.elu(x, self.alpha)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}"


class GELU(Cell):
    """x times the chance that a standard normal number is below x; approximate="tanh": by the tanh formula."""

    def __init__(self, approximate: str | bool = "none") -> None:
        self.approximate = approximate

    def forward(self, x: Any) -> Any:
        return F.gelu(x, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class SiLU(Cell):
    """x * sigmoid(x)."""

    def forward(self, x: Any) -> Any:
        return F.silu(x)


class Sigmoid(Cell):
    """1 / (1 + exp(-x))."""

    def forward(self, x: Any) -> Any:
        return F.sigmoid(x)


class Tanh(Cell):
    """Hyperbolic tangent."""

    def forward(self, x: Any) -> Any:
        return F.tanh(x)


class Softplus(Cell):
    """log(1 + exp(beta * x)) / beta; x itself where beta * x > threshold."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        self.beta, self.threshold = beta, threshold

    def forward(self, x: Any) -> Any:
        return F.softplus(x, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class Hardswish(Cell):
    """x * min(max(x / 6 + 1/2, 0), 1)."""

    def forward(self, x: Any) -> Any:
        return F.hardswish(x)


class Hardsigmoid(Cell):
    """min(max(x / 6 + 1/2, 0), 1)."""

    def forward(self, x: Any) -> Any:
        return F.hardsigmoid(x)


class Softmax(Cell):
    """exp(x) / sum(exp(x)) along `axis` (`dim` is another name for it); the last one unless given."""

    def __init__(self, axis: int | None = None, *, dim: int | None = None) -> None:
        self.axis = axis if dim is None else dim

    def forward(self, x: Any) -> Any:
        return F.softmax(x, self.axis)

    def extra_repr(self) -> str:
        return f"axis={self.axis}"


class LogSoftmax(Cell):
    """log(softmax(x)) along `axis` (`dim` is another name for it); the last one unless given."""

    def __init__(self, axis: int | None = None, *, dim: int | None = None) -> None:
        self.axis = axis if dim is None else dim

    def forward(self, x: Any) -> Any:
        return F.log_softmax(x, self.axis)

    def extra_repr(self) -> str:
        return f"axis={self.axis}"
