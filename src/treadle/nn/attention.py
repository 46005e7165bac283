"""Multi-head attention and transformer layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.frontend.functions import mean
from treadle.frontend.lift import lift
from treadle.frontend.shaping import reshape, split, swapaxes
from treadle.frontend.tensor import Tensor
from treadle.nn import functional as F
from treadle.nn import init
from treadle.nn.cell import Cell, Parameter
from treadle.nn.functional.attention import additive, dropped_attention
from treadle.nn.linear import Dropout, Linear
from treadle.nn.norm import LayerNorm
from treadle.ops.compare import logical_not


class MultiheadAttention(Cell):
    """Attention of num_heads heads between projections of query, key and value: (output, probabilities or None).

    query: float[L, N, E], key and value: float[S, N, E] ([N, L, E] with batch_first) -> float[L, N, E].
    attn_mask: bool[L, S] or [N * heads, L, S], true where a place is hidden, or floats that are added;
    key_padding_mask: bool[N, S], true for padding; is_causal: place i sees the places 0 to i only. Probabilities
    float[N, L, S] (means over the heads) come with need_weights. Parameters as PyTorch's.
    Source: Vaswani et al. 2017, arXiv:1706.03762. Raises E0559.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        batch_first: bool = False,
        dtype: Any = None,
    ) -> None:
        if num_heads < 1 or embed_dim % num_heads:
            raise UserError("E0559", f"{num_heads} heads of {embed_dim} features", fix="use heads that divide them")
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.in_proj_weight = Parameter(init.xavier_uniform((3 * embed_dim, embed_dim), dtype=dtype))
        self.in_proj_bias = Parameter(init.constant((3 * embed_dim,), 0, dtype)) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias, dtype=dtype)
        if self.out_proj.bias is not None:
            self.out_proj.bias.assign(np.zeros(embed_dim, np.float32))

    def forward(
        self,
        query: Any,
        key: Any,
        value: Any,
        key_padding_mask: Any = None,
        need_weights: bool = False,
        attn_mask: Any = None,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        query, key, value = lift(query), lift(key), lift(value)
        if any(t.ndim != 3 or t.shape[-1] != self.embed_dim for t in (query, key, value)):
            found = ", ".join(str(t.type) for t in (query, key, value))
            raise UserError("E0559", f"query, key and value are {found}", fix=f"shape them [_, _, {self.embed_dim}]")
        q, k, v = [self._heads(t) for t in self._project(query, key, value)]
        masks = self._masks(q, k, key_padding_mask, attn_mask)
        p = self.dropout if self.training else 0.0
        scale = (self.embed_dim // self.num_heads) ** -0.5
        if need_weights or p or (masks and is_causal):
            y, weights = dropped_attention(q, k, v, masks, scale, is_causal, p)
        else:
            y, weights = F.scaled_dot_product_attention(q, k, v, sum_of(masks), 0.0, is_causal, scale), None
        joined = reshape(swapaxes(y, 1, 2), (y.shape[0], y.shape[2], self.embed_dim))
        out = self.out_proj(joined if self.batch_first else swapaxes(joined, 0, 1))
        return out, mean(weights, 1) if need_weights else None

    def _project(self, query: Any, key: Any, value: Any) -> list[Any]:
        if query is key and key is value:
            return list(split(F.linear(query, self.in_proj_weight, self.in_proj_bias), 3, -1))
        weights = split(self.in_proj_weight, 3, 0)
        biases = (None,) * 3 if self.in_proj_bias is None else split(self.in_proj_bias, 3, 0)
        return [F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True)]

    def _heads(self, x: Any) -> Any:
        """[N, heads, L, E / heads]"""
        x = x if self.batch_first else swapaxes(x, 0, 1)
        return swapaxes(reshape(x, (x.shape[0], x.shape[1], self.num_heads, self.embed_dim // self.num_heads)), 1, 2)

    def _masks(self, q: Any, k: Any, padding: Any, mask: Any) -> tuple[Any, ...]:
        """Masks to be added to the scores [N, heads, L, S]."""
        found = []
        if mask is not None:
            mask = lift(mask)
            full = mask.ndim == 3
            mask = additive(logical_not(mask), q.dtype) if mask.dtype.kind == "b" else mask
            found.append(reshape(mask, (q.shape[0], self.num_heads, *mask.shape[1:])) if full else mask)
        if padding is not None:
            padding = lift(padding)
            wanted = (k.shape[0], k.shape[2])
            if tuple(padding.shape) != wanted:
                why = f"key_padding_mask is {list(padding.shape)}, the keys {list(wanted)}"
                raise UserError("E0570", why, fix="give one entry per batch row and key")
            padding = additive(logical_not(padding), q.dtype) if padding.dtype.kind == "b" else padding
            found.append(reshape(padding, (k.shape[0], 1, 1, k.shape[2])))
        return tuple(found)

    def extra_repr(self) -> str:
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, batch_first={self.batch_first}"


def sum_of(masks: tuple[Any, ...]) -> Any:
    """The masks added up; None if there is none."""
    total = masks[0] if masks else None
    for mask in masks[1:]:
        total = total + mask
    return total


class TransformerEncoderLayer(Cell):
    """Self-attention, then two linear maps with an activation between, each with a residual and a layer norm.

    float[L, N, E] ([N, L, E] with batch_first) -> the same. norm_first: normalise before each part, not after.
    Parameters as PyTorch's. Source: Vaswani et al. 2017, arXiv:1706.03762. Raises E0559.
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str = "relu",
        norm_first: bool = False,
        batch_first: bool = False,
        dtype: Any = None,
    ) -> None:
        if activation not in ("relu", "gelu"):
            raise UserError("E0559", f"activation is {activation!r}", fix="use 'relu' or 'gelu'")
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, batch_first=batch_first, dtype=dtype)
        self.linear1 = Linear(d_model, dim_feedforward, dtype=dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, dtype=dtype)
        self.norm1, self.norm2 = LayerNorm(d_model, dtype=dtype), LayerNorm(d_model, dtype=dtype)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        self.activation, self.norm_first = activation, norm_first

    def forward(self, x: Any, mask: Any = None, key_padding_mask: Any = None, is_causal: bool = False) -> Any:
        if self.norm_first:
            x = x + self._attend(self.norm1(x), mask, key_padding_mask, is_causal)
            return x + self._feed(self.norm2(x))
        x = self.norm1(x + self._attend(x, mask, key_padding_mask, is_causal))
        return self.norm2(x + self._feed(x))

    def _attend(self, x: Any, mask: Any, padding: Any, is_causal: bool) -> Any:
        x = lift(x)
        y, _ = self.self_attn(x, x, x, key_padding_mask=padding, attn_mask=mask, is_causal=is_causal)
        return self.dropout1(y)

    def _feed(self, x: Any) -> Any:
        h = self.linear1(x)
        h = F.relu(h) if self.activation == "relu" else F.gelu(h)
        return self.dropout2(self.linear2(self.dropout(h)))


class TransformerBlock(Cell):
    """A block as in GPT-2: x + attention(norm(x)), then x + mlp(norm(x)). float[N, L, dim] -> the same.

    causal: place i sees the places 0 to i only. ratio: width of the mlp by dim; its activation is the tanh GELU.
    Source: Radford et al. 2019 (GPT-2). Raises E0559 when the heads do not divide dim.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        ratio: int = 4,
        dropout: float = 0.0,
        causal: bool = True,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        self.norm1 = LayerNorm(dim, bias=bias, dtype=dtype)
        self.attention = MultiheadAttention(dim, heads, dropout, bias, batch_first=True, dtype=dtype)
        self.norm2 = LayerNorm(dim, bias=bias, dtype=dtype)
        self.expand = Linear(dim, ratio * dim, bias=bias, dtype=dtype)
        self.contract = Linear(ratio * dim, dim, bias=bias, dtype=dtype)
        self.dropout = Dropout(dropout)
        self.causal = causal

    def forward(self, x: Any) -> Any:
        h = self.norm1(x)
        x = x + self.dropout(self.attention(h, h, h, is_causal=self.causal)[0])
        return x + self.dropout(self.contract(F.gelu(self.expand(self.norm2(x)), "tanh")))
