"""What the rules written in tensor arithmetic share: the type to compute in, corrections, and writing results back.

16-bit parameters are computed in float32 and rounded once, as the single-node rules do.
"""

from __future__ import annotations

import math
from typing import Any

from treadle.base import dtypes
from treadle.base.dtypes import DType
from treadle.frontend.lift import cast, lift
from treadle.nn.cell import Parameter
from treadle.ops.functions import expm1, sqrt
from treadle.ops.reduce import reduce_sum


def work_dtype(param: Any) -> DType:
    """The element type of a parameter's state."""
    return dtypes.float32 if param.dtype.bits == 16 else param.dtype


def wide(param: Parameter, grad: Any) -> tuple[Any, Any]:
    """Parameter and gradient in the type of the state."""
    dtype = work_dtype(param)
    return cast(param, dtype) + 0, cast(lift(grad), dtype)


def write(param: Parameter, new: Any) -> None:
    """Give the parameter its new value, rounded to its type."""
    param._set(cast(new, param.dtype))


def lerp(old: Any, new: Any, share: Any) -> Any:
    """old moved towards new by a share of their distance."""
    return old + (new - old) * share


def correction(step: Any, beta: float) -> Any:
    """1 - beta ** step as a 0-d tensor of step's type, without the digits that subtraction would lose."""
    return step * 0 + 1 if beta == 0 else -expm1(step * math.log(beta))


def norm(x: Any) -> Any:
    """The Euclidean norm of all elements, 0-d."""
    return sqrt(reduce_sum(x * x, axes=tuple(range(x.ndim))))
