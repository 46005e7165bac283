"""Multi-head attention and transformer layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from treadle.base import arguments
from treadle.base.errors import UserError
from treadle.frontend.functions import mean
from treadle.frontend.lift import lift
from treadle.frontend.shaping import broadcast_to, concatenate, pad, reshape, split, swapaxes
from treadle.frontend.tensor import Tensor
from treadle.nn import functional as F
from treadle.nn import init
from treadle.nn.cell import Cell, Parameter
from treadle.nn.functional.attention import additive, attended, dropped_attention
from treadle.nn.linear import Dropout, Linear
from treadle.nn.norm import LayerNorm
from treadle.ops.compare import logical_not


class MultiheadAttention(Cell):
    """Attention of num_heads heads between projections of query, key and value: (output, probabilities or None).

    query: float[L, N, E], key: float[S, N, kdim], value: float[S, N, vdim] ([N, L, E] with batch_first) ->
    float[L, N, E]; kdim and vdim are E unless given.
    attn_mask: bool[L, S] or [N * heads, L, S], true where a place is hidden, or floats that are added;
    key_padding_mask: bool[N, S], true for padding; is_causal: place i sees the places 0 to i only. add_bias_kv: one
    more key and value that are learnt; add_zero_attn: one more of zeros; all places see them. Probabilities
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
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        dtype: Any = None,
    ) -> None:
        embed_dim, num_heads = arguments.count(embed_dim, "embed_dim", 1), arguments.count(num_heads, "num_heads", 1)
        if embed_dim % num_heads:
            raise UserError("E0559", f"{num_heads} heads of {embed_dim} features", fix="use heads that divide them")
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.sizes = (embed_dim, kdim or embed_dim, vdim or embed_dim)
        self.together, self.add_zero_attn = self.sizes == (embed_dim,) * 3, add_zero_attn
        if self.together:
            self.in_proj_weight = Parameter(init.xavier_uniform((3 * embed_dim, embed_dim), dtype=dtype))
        else:
            for name, size in zip("qkv", self.sizes, strict=True):
                setattr(self, f"{name}_proj_weight", Parameter(init.xavier_uniform((embed_dim, size), dtype=dtype)))
        self.in_proj_bias = Parameter(init.constant((3 * embed_dim,), 0, dtype)) if bias else None
        for name in ("bias_k", "bias_v"):
            start = Parameter(init.xavier_normal((1, 1, embed_dim), dtype=dtype)) if add_bias_kv else None
            setattr(self, name, start)
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
        if any(t.ndim != 3 or t.shape[-1] != n for t, n in zip((query, key, value), self.sizes, strict=True)):
            found = ", ".join(str(t.type) for t in (query, key, value))
            wanted = f"shape them [_, _, {self.embed_dim}]"
            fix = wanted if self.together else f"give last sizes {self.sizes}"
            raise UserError("E0559", f"query, key and value are {found}", fix=fix)
        q, k, v = [self._heads(t) for t in self._project(query, key, value)]
        masks = self._masks(q, k, key_padding_mask, attn_mask)
        k, v, added = self._extended(k, v)
        if added:
            if is_causal:
                lower = np.tril(np.ones((q.shape[2], k.shape[2] - added), bool))
                masks, is_causal = (*masks, additive(lift(lower), q.dtype)), False
            masks = tuple([pad(m, [(0, 0)] * (m.ndim - 1) + [(0, added)]) for m in masks])
        p = self.dropout if self.training else 0.0
        scale = (self.embed_dim // self.num_heads) ** -0.5
        if need_weights:
            y, weights = dropped_attention(q, k, v, masks, scale, is_causal, p)
        else:
            y, weights = attended(q, k, v, masks if len(masks) < 2 else (sum_of(masks),), scale, is_causal, p), None
        joined = reshape(swapaxes(y, 1, 2), (y.shape[0], y.shape[2], self.embed_dim))
        out = self.out_proj(joined if self.batch_first else swapaxes(joined, 0, 1))
        return out, mean(weights, 1) if need_weights else None

    def _project(self, query: Any, key: Any, value: Any) -> list[Any]:
        if self.together and query is key and key is value:
            return list(split(F.linear(query, self.in_proj_weight, self.in_proj_bias), 3, -1))
        own = [getattr(self, f"{name}_proj_weight", None) for name in "qkv"]
        weights = split(self.in_proj_weight, 3, 0) if self.together else own
        biases = (None,) * 3 if self.in_proj_bias is None else split(self.in_proj_bias, 3, 0)
        return [F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True)]

    def _extended(self, k: Any, v: Any) -> tuple[Any, Any, int]:
        """Keys and values [N, heads, S, E / heads] with those that are not in the input, and how many these are."""
        batch, heads, _, size = k.shape
        shape, added = (batch, heads, 1, size), 0
        bias: tuple[Any, Any] = (getattr(self, "bias_k", None), getattr(self, "bias_v", None))
        if bias[0] is not None:
            rows = [broadcast_to(reshape(b, (1, heads, 1, size)), shape) for b in bias]
            k, v, added = concatenate([k, rows[0]], 2), concatenate([v, rows[1]], 2), added + 1
        if self.add_zero_attn:
            zero = np.zeros(shape, k.dtype.np)
            k, v, added = concatenate([k, zero], 2), concatenate([v, zero], 2), added + 1
        return k, v, added

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


class TransformerLayer(Cell):
    """Base of the encoder's and decoder's layer: attentions, then two linear maps with an activation between.

    Each part has a residual and a layer norm. norm_first: normalise before each part, not after. activation: "relu",
    "gelu" or a function. Parameters as PyTorch's. Source: Vaswani et al. 2017, arXiv:1706.03762. Raises E0559.
    """

    attentions: tuple[str, ...] = ()
    self_attn: MultiheadAttention
    multihead_attn: MultiheadAttention
    norm1: LayerNorm
    norm2: LayerNorm
    norm3: LayerNorm
    dropout1: Dropout
    dropout2: Dropout
    dropout3: Dropout

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Any], Any] = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        if activation not in ("relu", "gelu") and not callable(activation):
            raise UserError("E0559", f"activation is {activation!r}", fix="use 'relu', 'gelu' or a function")
        for name in self.attentions:
            setattr(self, name, MultiheadAttention(d_model, nhead, dropout, bias, batch_first, dtype=dtype))
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, dtype=dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, dtype=dtype)
        parts = range(1, len(self.attentions) + 2)
        for i in parts:
            setattr(self, f"norm{i}", LayerNorm(d_model, eps=layer_norm_eps, bias=bias, dtype=dtype))
        for i in parts:
            setattr(self, f"dropout{i}", Dropout(dropout))
        self.activation, self.norm_first = activation, norm_first

    def _own(self, x: Any, mask: Any, padding: Any, is_causal: bool) -> Any:
        x = lift(x)
        y, _ = self.self_attn(x, x, x, key_padding_mask=padding, attn_mask=mask, is_causal=is_causal)
        return self.dropout1(y)

    def _feed(self, x: Any) -> Any:
        named = {"relu": F.relu, "gelu": F.gelu}
        act = named[self.activation] if isinstance(self.activation, str) else self.activation
        last: Dropout = getattr(self, f"dropout{len(self.attentions) + 1}")
        return last(self.linear2(self.dropout(act(self.linear1(x)))))


class TransformerEncoderLayer(TransformerLayer):
    __doc__ = f"""Self-attention and linear maps: float[L, N, E] ([N, L, E] with batch_first) -> the same.

    {TransformerLayer.__doc__}"""
    attentions = ("self_attn",)

    def forward(self, x: Any, mask: Any = None, key_padding_mask: Any = None, is_causal: bool = False) -> Any:
        own = (mask, key_padding_mask, is_causal)
        if self.norm_first:
            x = x + self._own(self.norm1(x), *own)
            return x + self._feed(self.norm2(x))
        x = self.norm1(x + self._own(x, *own))
        return self.norm2(x + self._feed(x))


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
