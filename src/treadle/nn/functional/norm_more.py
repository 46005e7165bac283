"""Instance and local response normalisation, dropout of whole channels, alpha dropout, padding in PyTorch's order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.frontend import functions as fn
from treadle.frontend.create import default_generator
from treadle.frontend.elementwise import pow
from treadle.frontend.lift import cast, lift
from treadle.frontend.shaping import cut, reshape
from treadle.frontend.shaping import pad as pad_axes
from treadle.frontend.tensor import Tensor
from treadle.nn.functional.norm import batch_norm, group_norm
from treadle.ops.compare import select
from treadle.ops.random import random_bernoulli

_SELU_LEAST = -1.7580993408473766  # the value of selu at minus infinity


def instance_norm(
    x: Any,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias, over the spatial axes of each channel of each sample.

    x: float[N, C, *s], the others float[C]. The running statistics become (1 - momentum) * old + momentum * new, new
    the means over the samples; without use_input_stats they are used. Source: Ulyanov et al. 2016, arXiv:1607.08022.
    Raises E0546 without the statistics that are wanted, or for one value per channel.
    """
    x = lift(x)
    if not use_input_stats:
        return batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps)
    axes = tuple(range(2, x.ndim))
    count = int(np.prod(x.shape[2:]))
    if count == 1:
        raise UserError("E0546", f"instance statistics of one value: x is {x.type}", fix="use more spatial places")
    if running_mean is not None and running_var is not None and count:
        mean = cast(fn.mean(fn.mean(x, axes), 0), running_mean.dtype)
        var = cast(fn.mean(fn.var(x, axes, ddof=1), 0), running_var.dtype)
        running_mean.assign(running_mean * (1 - momentum) + mean * momentum)
        running_var.assign(running_var * (1 - momentum) + var * momentum)
    return group_norm(x, x.shape[1], weight, bias, eps)


def local_response_norm(x: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """x / (k + alpha * mean of squares over `size` neighbouring channels) ** beta; beyond the ends are zeros.

    x: float[N, C, *s]. Source: Krizhevsky et al. 2012, in PyTorch's form. Raises E0566 for a size below 1.
    """
    x = lift(x)
    if x.ndim < 2 or size < 1:
        raise UserError("E0566", f"local_response_norm of size {size} of {x.type}", fix="give [N, C, ...], size 1 up")
    sides = [(0, 0) if i != 1 else (size // 2, (size - 1) // 2) for i in range(x.ndim)]
    squares = pad_axes(x * x, sides)
    total = cut(squares, 1, 0, x.shape[1])
    for i in range(1, size):
        total = total + cut(squares, 1, i, i + x.shape[1])
    y: Tensor = x / pow(total * (alpha / size) + k, beta)
    return y


def _keep(shape: tuple[int, ...], p: float) -> Any:
    if not 0 <= p <= 1:
        raise UserError("E0554", f"the chance p is {p}", fix="give a number from 0 to 1")
    return random_bernoulli(default_generator.next_key(), 1.0 - p, shape=shape)


def channel_dropout(x: Any, p: float = 0.5, training: bool = True) -> Tensor:
    """Each channel (axis 1) of each sample 0 with chance p, else divided by 1 - p; x itself unless training.

    Source: Tompson et al. 2015, arXiv:1411.4280. Raises E0554.
    """
    x = lift(x)
    keep = _keep((*x.shape[:2], *[1] * (x.ndim - 2)), p) if training else None
    if keep is None or p == 0:
        return x  # type: ignore[no-any-return]
    zero = np.zeros((), x.dtype.np)
    y: Tensor = x * select(keep, np.asarray(0.0 if p == 1 else 1 / (1 - p), x.dtype.np), zero)
    return y


def alpha_dropout(x: Any, p: float = 0.5, training: bool = False) -> Tensor:
    """Dropout for `selu`: dropped elements get its least value, then all are scaled to keep mean and variance.

    Source: Klambauer et al. 2017, arXiv:1706.02515. Raises E0554.
    """
    x = lift(x)
    return _alpha_dropped(x, _keep(tuple(x.shape), p) if training else None, p)


def feature_alpha_dropout(x: Any, p: float = 0.5, training: bool = False) -> Tensor:
    """`alpha_dropout` of whole channels. x: float[N, C, ...]. Raises E0554; E0566 for fewer than two axes."""
    x = lift(x)
    if x.ndim < 2:
        raise UserError("E0566", f"feature_alpha_dropout of {x.type}", fix="shape it as [N, C, ...]")
    return _alpha_dropped(x, _keep((*x.shape[:2], *[1] * (x.ndim - 2)), p) if training else None, p)


def _alpha_dropped(x: Tensor, keep: Any, p: float) -> Tensor:
    if keep is None or p == 0:
        return x
    if p == 1:
        none: Tensor = x * 0
        return none
    scale = ((1 - p) * (1 + p * _SELU_LEAST**2)) ** -0.5
    y: Tensor = select(keep, x, np.asarray(_SELU_LEAST, x.dtype.np)) * scale - scale * _SELU_LEAST * p
    return y


def pad(x: Any, padding: Sequence[int], mode: str = "constant", value: float = 0.0) -> Tensor:
    """x with `padding` = (before, after) of the last axis, then of the one before it, and so on.

    mode: "constant", "reflect", "replicate" or "circular". Raises E0103 for another mode or form, E0135 for negative
    counts.
    """
    x = lift(x)
    if len(padding) % 2 or len(padding) > 2 * x.ndim:
        raise UserError("E0103", f"padding {tuple(padding)} for {x.ndim} axes", fix="give (before, after) per axis")
    pairs = [(padding[i], padding[i + 1]) for i in range(0, len(padding), 2)][::-1]
    y: Tensor = pad_axes(x, [(0, 0)] * (x.ndim - len(pairs)) + pairs, value, mode)
    return y


def unflatten(x: Any, dim: int, sizes: Sequence[int]) -> Tensor:
    """The axis `dim` as several of the given sizes, of which one may be -1. Raises E0112 when they do not fit."""
    x = lift(x)
    at = dim % x.ndim if -x.ndim <= dim < x.ndim else None
    if at is None:
        raise UserError("E0107", f"there is no axis {dim} in {x.type}", fix=f"use 0 to {x.ndim - 1}")
    known = -int(np.prod(sizes))
    full = [x.shape[at] // known if n == -1 and known else n for n in sizes]
    y: Tensor = reshape(x, (*x.shape[:at], *full, *x.shape[at + 1 :]))
    return y
