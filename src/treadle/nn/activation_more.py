"""More activation functions as cells; see the functions of the same names."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle.base import arguments, dtypes
from treadle.base.errors import UserError
from treadle.nn import functional as F
from treadle.nn.cell import Cell, Parameter


class Mish(Cell):
    """x * tanh(softplus(x))."""

    def forward(self, x: Any) -> Any:
        return F.mish(x)


class Hardtanh(Cell):
    """Each element moved into min_val to max_val."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0) -> None:
        self.min_val, self.max_val = min_val, max_val

    def forward(self, x: Any) -> Any:
        return F.hardtanh(x, self.min_val, self.max_val)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}"


class SELU(Cell):
    """1.0507 * elu(x, 1.6733)."""

    def forward(self, x: Any) -> Any:
        return F.selu(x)


class CELU(Cell):
    """x where x > 0, else alpha * (exp(x / alpha) - 1)."""

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def forward(self, x: Any) -> Any:
        return F.celu(x, self.alpha)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}"


class Softsign(Cell):
    """x / (1 + |x|)."""

    def forward(self, x: Any) -> Any:
        return F.softsign(x)


class Tanhshrink(Cell):
    """x - tanh(x)."""

    def forward(self, x: Any) -> Any:
        return F.tanhshrink(x)


class Softshrink(Cell):
    """x moved towards 0 by lambd, 0 where it would pass it."""

    def __init__(self, lambd: float = 0.5) -> None:
        self.lambd = lambd

    def forward(self, x: Any) -> Any:
        return F.softshrink(x, self.lambd)

    def extra_repr(self) -> str:
        return f"lambd={self.lambd}"


class Hardshrink(Cell):
    """x where |x| > lambd, else 0."""

    def __init__(self, lambd: float = 0.5) -> None:
        self.lambd = lambd

    def forward(self, x: Any) -> Any:
        return F.hardshrink(x, self.lambd)

    def extra_repr(self) -> str:
        return f"lambd={self.lambd}"


class Threshold(Cell):
    """x where x > threshold, else value."""

    def __init__(self, threshold: float, value: float) -> None:
        self.threshold, self.value = threshold, value

    def forward(self, x: Any) -> Any:
        return F.threshold(x, self.threshold, self.value)

    def extra_repr(self) -> str:
        return f"threshold={self.threshold}, value={self.value}"


class LogSigmoid(Cell):
    """log(sigmoid(x)), without overflow."""

    def forward(self, x: Any) -> Any:
        return F.logsigmoid(x)


class GLU(Cell):
    """The first half of the axis `dim` times the sigmoid of the second."""

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def forward(self, x: Any) -> Any:
        return F.glu(x, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmin(Cell):
    """softmax(-x) along the axis `dim`; the last one unless given."""

    def __init__(self, dim: int | None = None) -> None:
        self.dim = dim

    def forward(self, x: Any) -> Any:
        return F.softmin(x, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class RReLU(Cell):
    """x where x >= 0, else a * x, a drawn from lower..upper for each element in training, their mean in evaluation."""

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3) -> None:
        self.lower, self.upper = lower, upper

    def forward(self, x: Any) -> Any:
        return F.rrelu(x, self.lower, self.upper, self.training)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}"


class Softmax2d(Cell):
    """Softmax over the channels of float[N, C, H, W] or [C, H, W]. Raises E0566 for another number of axes."""

    def forward(self, x: Any) -> Any:
        if len(x.shape) not in (3, 4):
            raise UserError("E0566", f"Softmax2d of a tensor of shape {list(x.shape)}", fix="shape it as [N, C, H, W]")
        return F.softmax(x, -3)


class PReLU(Cell):
    """x where x > 0, else weight * x; weight: float[num_parameters], learnt, one or one per channel (axis 1)."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, dtype: Any = None) -> None:
        kind = dtypes.of(dtypes.float32 if dtype is None else dtype)
        self.weight = Parameter(np.full((arguments.count(num_parameters, "num_parameters", 1),), init, kind.np))

    def forward(self, x: Any) -> Any:
        return F.prelu(x, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.weight.size}"
