"""Scaled dot-product attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from treadle.base import arguments
from treadle.base.errors import UserError
from treadle.frontend import functions as fn
from treadle.frontend.create import default_generator
from treadle.frontend.lift import lift
from treadle.frontend.products import matmul
from treadle.frontend.shaping import swapaxes
from treadle.frontend.tensor import Tensor
from treadle.nn.functional.basic import dropout
from treadle.ops.attentions import attention
from treadle.ops.compare import select
from treadle.ops.dropped_attention import attention_dropout
from treadle.ops.random import random_split


def additive(mask: Any, dtype: Any) -> Tensor:
    """A mask to be added to scores: 0 where a bool mask is true, -inf where it is false; a float mask as it is."""
    mask = lift(mask)
    if mask.dtype.kind != "b":
        return mask  # type: ignore[no-any-return]
    made: Tensor = select(mask, np.zeros((), dtype.np), np.asarray(-np.inf, dtype.np))
    return made


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """softmax(query key^T * scale + mask) value -> float[..., L, E].

    query: float[..., L, D], key: float[..., S, D], value: float[..., S, E].
    attn_mask: bool[..., L, S], true where a place may be seen, or floats that are added. is_causal: place i sees the
    places 0 to i only. scale None: 1 / sqrt(D). Source: Vaswani et al. 2017, arXiv:1706.03762.
    dropout_p: each weight of the softmax is 0 with this chance, else divided by 1 - dropout_p, by one draw of the
    default generator, from which each head has a key; which weights are dropped follows from key, row and column (see
    the op attention_dropout), the same in eager and compiled functions, and is not what PyTorch draws.
    Raises E0557 for a mask together with is_causal, E0554 for a dropout_p outside 0..1.
    """
    query, key, value = lift(query), lift(key), lift(value)
    if attn_mask is not None and is_causal:
        raise UserError("E0557", "attn_mask and is_causal are both given", fix="put the causal part into the mask")
    factor = 1 / math.sqrt(max(query.shape[-1], 1)) if scale is None else float(scale)
    mask = () if attn_mask is None else (additive(attn_mask, query.dtype),)
    return attended(query, key, value, mask, factor, is_causal, dropout_p)


def attended(
    query: Tensor, key: Tensor, value: Tensor, mask: tuple[Tensor, ...], scale: float, causal: bool, p: float
) -> Tensor:
    """The result by one node; mask: at most one, which may be there together with causal."""
    if not arguments.is_real(p) or not 0 <= p <= 1:
        raise UserError("E0554", f"the chance of dropout is {p!r}", fix="give a number from 0 to 1")
    attrs = {"scale": scale, "causal": causal}
    if p == 0:
        made: Tensor = attention(query, key, value, *mask, **attrs)
        return made
    lead = tuple(query.shape[:-2])
    seeds = random_split(default_generator.next_key(), count=math.prod(lead)).reshape((*lead, 2))
    made = attention_dropout(query, key, value, seeds, *mask, rate=float(p), **attrs)
    return made


def dropped_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: tuple[Tensor, ...], scale: float, causal: bool, p: float
) -> tuple[Tensor, Tensor]:
    """The result and the probabilities, written out so that these can be looked at."""
    scores = matmul(query, swapaxes(key, -1, -2)) * scale
    if causal:
        lower = np.tril(np.ones((query.shape[-2], key.shape[-2]), bool))
        mask = (*mask, additive(lower, query.dtype))
    for each in mask:
        scores = scores + each
    probabilities = fn.softmax(scores, -1)
    return matmul(dropout(probabilities, p), value), probabilities
