"""Functions that draw random numbers: one draw of the default generator per call."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.frontend import functions as fn
from treadle.frontend.create import default_generator, uniform
from treadle.frontend.lift import cast, lift, one_axis
from treadle.frontend.tensor import Tensor
from treadle.nn.functional.activation import leaky_relu
from treadle.ops.compare import greater_equal, select
from treadle.ops.functions import log
from treadle.ops.random import random_uniform


def rrelu(x: Any, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Tensor:
    """x where x >= 0, else a * x with a even in lower..upper for each element in training, their mean else.

    Source: Xu et al. 2015, arXiv:1505.00853. Raises E0566 unless lower <= upper.
    """
    x = lift(x)
    if not lower <= upper:
        raise UserError("E0566", f"rrelu with slopes from {lower} to {upper}", fix="give lower <= upper")
    if not training or lower == upper:
        return leaky_relu(x, (lower + upper) / 2)
    slope = uniform(lower, upper, tuple(x.shape), dtype=x.dtype)
    y: Tensor = select(greater_equal(x, 0), x, x * slope)
    return y


def gumbel_softmax(logits: Any, tau: float = 1.0, hard: bool = False, dim: int = -1) -> Tensor:
    """softmax((logits + g) / tau) along the axis, g standard Gumbel: a draw from the classes that has a gradient.

    hard: the result is one-hot, its gradient that of the soft one. Sources: Jang et al. 2017, arXiv:1611.01144;
    Maddison et al. 2017, arXiv:1611.00712. Raises E0566 for tau of 0 or less.
    """
    logits = lift(logits)
    if not tau > 0:
        raise UserError("E0566", f"gumbel_softmax with tau={tau}", fix="give a number above 0")
    axis, kind = one_axis(dim, logits.ndim), logits.dtype
    wide = dtypes.float32 if kind.bits == 16 else kind
    least = float(np.finfo(np.float32).tiny)  # log(0) would be drawn otherwise
    unit = random_uniform(default_generator.next_key(), shape=tuple(logits.shape), dtype=wide, low=least, high=1.0)
    noise = cast(-log(-log(unit)), kind)
    soft: Tensor = fn.softmax((logits + noise) / tau, axis)
    if not hard:
        return soft
    chosen = fn.one_hot(fn.argmax(soft, axis), soft.shape[axis], soft.dtype)
    exact: Tensor = fn.moveaxis(chosen, -1, axis) - fn.stop_gradient(soft) + soft
    return exact
