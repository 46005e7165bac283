"""Gradient clipping as functions: a list of gradients goes in, another comes out; None entries stay None."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from treadle.base import arguments, dtypes
from treadle.base.errors import UserError
from treadle.frontend.lift import lift
from treadle.frontend.tensor import Tensor
from treadle.ops.casting import cast
from treadle.ops.elementwise import maximum, minimum
from treadle.ops.functions import sqrt
from treadle.ops.reduce import reduce_max, reduce_sum


def global_norm(grads: Sequence[Any], norm_type: float = 2.0) -> Tensor:
    """The norm of all gradients taken together, 0-d: Euclidean, or of another order; 16-bit floats count as float32.

    norm_type: above 0; infinity is the largest element. Raises E0536 for another one, or if all gradients are None.
    """
    _check_grads(grads)
    if not norm_type > 0:
        raise UserError("E0536", f"norm_type is {norm_type}", fix="give a number above 0")
    parts = []
    for g in grads:
        if g is not None:
            wide = cast(g, dtype=dtypes.float32) if g.dtype.bits == 16 else g
            parts.append(_powers(wide, norm_type))
    if not parts:
        raise UserError("E0536", "there is no gradient to take the norm of", fix="pass at least one that is not None")
    total = parts[0]
    for part in parts[1:]:
        total = maximum(total, part) if math.isinf(norm_type) else total + part
    norm: Tensor = total
    if norm_type not in (1, math.inf):
        norm = sqrt(total) if norm_type == 2 else total ** (1 / norm_type)
    return norm


def _check_grads(grads: Any) -> None:
    """Raise E0536 for what is no list of tensors."""
    if not isinstance(grads, list | tuple):
        raise UserError("E0536", f"the gradients are {arguments.brief(grads)}", fix="pass a list of tensors")
    for g in grads:
        if g is not None and not hasattr(g, "dtype"):
            raise UserError("E0536", f"a gradient is {arguments.brief(g)}", fix="pass a list of tensors")


def _powers(x: Any, norm_type: float) -> Any:
    """The sum of |x| ** norm_type, or the largest |x|."""
    axes = tuple(range(x.ndim))
    if norm_type == 2:
        return reduce_sum(x * x, axes=axes)
    if math.isinf(norm_type):
        return reduce_max(abs(x), axes=axes) if x.size else reduce_sum(x, axes=axes)
    return reduce_sum(abs(x) ** norm_type, axes=axes)


def clip_grad_norm(grads: Sequence[Any], max_norm: float, norm_type: float = 2.0) -> list[Any]:
    """The gradients times min(1, max_norm / (norm + 1e-6)), norm being that of all together, see `global_norm`.

    One NaN makes all gradients NaN, an infinity makes the finite ones 0, as in PyTorch. Raises E0536 if all are
    None, and for a negative max_norm.
    Source: Pascanu et al. 2013, arXiv:1211.5063.
    """
    return clip_grads_with_norm(grads, max_norm, global_norm(grads, norm_type))


def clip_grads_with_norm(grads: Sequence[Any], max_norm: float, total_norm: Any) -> list[Any]:
    """`clip_grad_norm` with a norm that is known already. Raises E0536 for a negative max_norm."""
    _check_grads(grads)
    if not arguments.is_real(max_norm) or max_norm < 0:
        raise UserError("E0536", f"max_norm is {max_norm!r}", fix="give 0 or more")
    scale = minimum(max_norm / (lift(total_norm) + 1e-6), 1.0)
    return [None if g is None else g * cast(scale, dtype=g.dtype) for g in grads]


def clip_grad_value(grads: Sequence[Any], limit: float) -> list[Any]:
    """Each element of the gradients moved into -limit to limit. Raises E0536 for a negative limit."""
    _check_grads(grads)
    if not arguments.is_real(limit) or limit < 0:
        raise UserError("E0536", f"the limit is {limit!r}", fix="give 0 or more")
    return [None if g is None else minimum(maximum(g, -limit), limit) for g in grads]
