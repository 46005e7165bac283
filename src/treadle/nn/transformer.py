"""The transformer's decoder layer and stacks of layers. Masks as of `MultiheadAttention`; parameters as PyTorch's."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from treadle.base.errors import UserError
from treadle.frontend.lift import lift
from treadle.nn import init
from treadle.nn.attention import TransformerEncoderLayer, TransformerLayer
from treadle.nn.cell import Cell
from treadle.nn.containers import CellList
from treadle.nn.norm import LayerNorm


class TransformerDecoderLayer(TransformerLayer):
    __doc__ = f"""Self-attention, attention to the encoder's result `memory`, linear maps.

    target: float[L, N, E], memory: float[S, N, E] ([N, L, E], [N, S, E] with batch_first) -> as target.
    {TransformerLayer.__doc__}"""
    attentions = ("self_attn", "multihead_attn")

    def forward(
        self,
        target: Any,
        memory: Any,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool = False,
    ) -> Any:
        x, memory = lift(target), lift(memory)
        own = (tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        other = (memory_mask, memory_key_padding_mask)
        if self.norm_first:
            x = x + self._own(self.norm1(x), *own)
            x = x + self._other(self.norm2(x), memory, *other)
            return x + self._feed(self.norm3(x))
        x = self.norm1(x + self._own(x, *own))
        x = self.norm2(x + self._other(x, memory, *other))
        return self.norm3(x + self._feed(x))

    def _other(self, x: Any, memory: Any, mask: Any, padding: Any) -> Any:
        y, _ = self.multihead_attn(x, memory, memory, key_padding_mask=padding, attn_mask=mask)
        return self.dropout2(y)


class _Stack(Cell):
    """num_layers copies of a layer, which begin with equal weights, then `norm` if given."""

    def __init__(self, layer: Cell, num_layers: int, norm: Cell | None = None) -> None:
        if num_layers < 1:
            raise UserError("E0559", f"num_layers is {num_layers}", fix="give 1 or more")
        self.layers = CellList([copy.deepcopy(layer) for _ in range(num_layers)])
        self.num_layers, self.norm = num_layers, norm

    def _run(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        for layer in self.layers:
            x = layer(x, *args, **kwargs)
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(_Stack):
    __doc__ = f"""Encoder layers one after another: encoder(x). {_Stack.__doc__}"""

    def forward(self, x: Any, mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool = False) -> Any:
        return self._run(x, mask, src_key_padding_mask, is_causal)


class TransformerDecoder(_Stack):
    __doc__ = f"""Decoder layers one after another: decoder(target, memory); masks as of the layer. {_Stack.__doc__}"""

    def forward(self, target: Any, memory: Any, **masks: Any) -> Any:
        return self._run(target, memory, **masks)


class Transformer(Cell):
    """Encoder and decoder, each with a last layer norm: net(source, target). Matrices begin as Xavier's uniform.

    source: float[S, N, E], target: float[L, N, E] ([N, S, E], [N, L, E] with batch_first) -> as target.
    Source: Vaswani et al. 2017, arXiv:1706.03762. Raises E0559.
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Any], Any] = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        first = (d_model, nhead, dim_feedforward, dropout, activation)
        args: Any = (*first, layer_norm_eps, batch_first, norm_first, bias, dtype)
        norms = [LayerNorm(d_model, eps=layer_norm_eps, bias=bias, dtype=dtype) for _ in range(2)]
        self.encoder = TransformerEncoder(TransformerEncoderLayer(*args), num_encoder_layers, norms[0])
        self.decoder = TransformerDecoder(TransformerDecoderLayer(*args), num_decoder_layers, norms[1])
        for p in self.parameters():
            if p.ndim > 1:
                p.assign(init.xavier_uniform(p.shape, dtype=p.dtype))

    def forward(
        self,
        source: Any,
        target: Any,
        src_mask: Any = None,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        src_key_padding_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool = False,
    ) -> Any:
        memory = self.encoder(source, src_mask, src_key_padding_mask)
        return self.decoder(
            target,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
        )
