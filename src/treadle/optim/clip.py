"""Gradient clipping as functions: a list of gradients goes in, another comes out; None entries stay None."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.frontend.tensor import Tensor
from treadle.ops.casting import cast
from treadle.ops.elementwise import maximum, minimum
from treadle.ops.functions import sqrt
from treadle.ops.reduce import reduce_sum


def global_norm(grads: Sequence[Any]) -> Tensor:
    """The Euclidean norm of all gradients taken together, 0-d; 16-bit floats are summed in float32."""
    squares = []
    for g in grads:
        if g is not None:
            wide = cast(g, dtype=dtypes.float32) if g.dtype.bits == 16 else g
            squares.append(reduce_sum(wide * wide, axes=tuple(range(wide.ndim))))
    if not squares:
        raise UserError("E0536", "there is no gradient to take the norm of", fix="pass at least one that is not None")
    total = squares[0]
    for square in squares[1:]:
        total = total + square
    norm: Tensor = sqrt(total)
    return norm


def clip_grad_norm(grads: Sequence[Any], max_norm: float) -> list[Any]:
    """The gradients times min(1, max_norm / (norm + 1e-6)), norm being that of all together.

    One NaN makes all gradients NaN, an infinity makes the finite ones 0, as in PyTorch. Raises E0536 if all are None.
    Source: Pascanu et al. 2013, arXiv:1211.5063.
    """
    scale = minimum(max_norm / (global_norm(grads) + 1e-6), 1.0)
    return [None if g is None else g * cast(scale, dtype=g.dtype) for g in grads]


def clip_grad_value(grads: Sequence[Any], limit: float) -> list[Any]:
    """Each element of the gradients moved into -limit to limit. Raises E0536 for a negative limit."""
    if limit < 0:
        raise UserError("E0536", f"the limit is {limit}", fix="give 0 or more")
    return [None if g is None else minimum(maximum(g, -limit), limit) for g in grads]
