"""Helpers around cells: parameters as one vector, parametrisations, padded sequences, fused layers.

Gradient clipping is in `td.optim`, for gradients are values here and not attributes of parameters.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from treadle.base.errors import UserError
from treadle.frontend.lift import lift
from treadle.frontend.shaping import concatenate
from treadle.frontend.tensor import Tensor
from treadle.nn.utils import parametrizations, parametrize, prune, rnn
from treadle.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval
from treadle.nn.utils.parametrizations import orthogonal, spectral_norm, weight_norm

__all__ = [
    "fuse_conv_bn_eval",
    "fuse_linear_bn_eval",
    "orthogonal",
    "parameters_to_vector",
    "parametrizations",
    "parametrize",
    "prune",
    "rnn",
    "spectral_norm",
    "vector_to_parameters",
    "weight_norm",
]


def parameters_to_vector(parameters: Iterable[Any]) -> Tensor:
    """All elements of the parameters (or gradients), one after the other: [n]. Raises E0566 for none."""
    parts = [lift(p).reshape((-1,)) for p in parameters]
    if not parts:
        raise UserError("E0566", "parameters_to_vector of no parameters", fix="pass net.parameters()")
    vector: Tensor = concatenate(parts, 0)
    return vector


def vector_to_parameters(vector: Any, parameters: Iterable[Tensor]) -> None:
    """Give the parameters the elements of the vector, in their order. Raises E0566 when their number differs."""
    vector, held = lift(vector), list(parameters)
    total = sum(p.size for p in held)
    if vector.shape != (total,):
        why = f"vector_to_parameters: {vector.type} for {total} elements"
        raise UserError("E0566", why, fix="give one element for each of the parameters'")
    start = 0
    for p in held:
        p.assign(vector[start : start + p.size].reshape(tuple(p.shape)).astype(p.dtype))
        start += p.size
