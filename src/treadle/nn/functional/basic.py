"""Linear maps, look-ups and dropout."""

from __future__ import annotations

import string
from typing import Any

import numpy as np

from treadle.base import arguments, dtypes
from treadle.base.errors import UserError
from treadle.frontend import trace as tracing
from treadle.frontend.casting import follow
from treadle.frontend.create import default_generator
from treadle.frontend.elementwise import stop_gradient
from treadle.frontend.lift import cast, lift
from treadle.frontend.tensor import Tensor
from treadle.ops import index as index_ops
from treadle.ops.compare import equal, greater_equal, less, logical_and, select
from treadle.ops.products import contract
from treadle.ops.random import random_bernoulli
from treadle.ops.shape import reshape


def linear(x: Any, weight: Any, bias: Any = None) -> Tensor:
    """x @ weight.T + bias. x: float[..., n], weight: float[m, n], bias: float[m] -> float[..., m].

    Raises E0547 when the sizes do not fit.
    """
    x, weight = lift(x), lift(weight)
    if x.ndim < 1 or weight.ndim != 2 or x.shape[-1] != weight.shape[1]:
        why = f"x is {x.type}, the weight {weight.type}"
        raise UserError("E0547", why, fix="give x the last axis that the weight has as its second")
    lead = string.ascii_lowercase[: x.ndim - 1]
    y: Tensor = contract(x, weight, spec=f"{lead}y,zy->{lead}z")
    return y if bias is None else y + follow(lift(bias), y)


def embedding(indices: Any, weight: Any, padding_idx: int | None = None) -> Tensor:
    """Rows of `weight` at `indices`. indices: int[...], weight: float[n, d] -> float[..., d].

    An index that is not in 0..n-1 raises E0548 where its number is known (eager mode); inside a compiled function it
    gives a row of NaN, so that it cannot pass for a result. The row `padding_idx` gets no gradient.
    """
    indices, weight = lift(indices), lift(weight)
    count = weight.shape[0]
    if not indices.dtype.is_integer:
        raise UserError("E0548", f"the indices are {indices.type}", fix="cast them to an integer type")
    if indices.dtype.kind == "u" or indices.dtype.bits < 32:
        indices = cast(indices, dtypes.int64 if indices.dtype.bits >= 32 else dtypes.int32)
    rows: Tensor = index_ops.take(weight, indices, axis=0)
    if padding_idx is not None:
        if not -count <= padding_idx < count:
            raise UserError("E0548", f"padding_idx is {padding_idx} for {count} rows", fix=f"use 0 to {count - 1}")
        padding = equal(indices, padding_idx % count).reshape((*indices.shape, *[1] * (weight.ndim - 1)))
        rows = select(padding, stop_gradient(rows), rows)
    if tracing.current() is None:
        numbers = indices.numpy()
        if numbers.size and (numbers.min() < 0 or numbers.max() >= count):
            why = f"indices from {numbers.min()} to {numbers.max()} for {count} rows"
            raise UserError("E0548", why, fix=f"use 0 to {count - 1}")
        return rows
    known = logical_and(greater_equal(indices, 0), less(indices, count))
    column = reshape(known, shape=(*indices.shape, *[1] * (weight.ndim - 1)))
    safe: Tensor = select(column, rows, np.asarray(np.nan, weight.dtype.np))
    return safe


def dropout(x: Any, p: float = 0.5, training: bool = True) -> Tensor:
    """Each element 0 with chance p, else divided by 1 - p; x itself unless training.

    One draw of the default generator, the same in eager and compiled functions. Source: Srivastava et al. 2014.
    Raises E0554 for p outside 0..1.
    """
    x = lift(x)
    if not arguments.is_real(p) or not 0 <= p <= 1:
        raise UserError("E0554", f"the chance p is {p!r}", fix="give a number from 0 to 1")
    if not training or p == 0:
        return x  # type: ignore[no-any-return]
    keep = random_bernoulli(default_generator.next_key(), 1.0 - p, shape=tuple(x.shape))
    scale = 0.0 if p == 1 else 1 / (1 - p)
    y: Tensor = select(keep, x * scale, np.zeros((), x.dtype.np))
    return y
