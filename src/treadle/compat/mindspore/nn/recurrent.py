"""Recurrent layers: Treadle's own, with MindSpore's arguments and parameters."""

from __future__ import annotations

from typing import Any

from treadle.base import dtypes
from treadle.compat.mindspore._missing import not_covered
from treadle.compat.mindspore._tensor import Parameter
from treadle.compat.mindspore.nn.cell import Cell
from treadle.nn import cell as base_cell
from treadle.nn import recurrent as base
from treadle.nn import recurrent_more as more


def _adopt(cell: Cell) -> None:
    """MindSpore's parameters in the place of Treadle's."""
    for name, old in cell._own_parameters():
        delattr(cell, name)
        setattr(cell, name, Parameter(old))


class _Layers(Cell):
    """num_layers layers over time; data [T, N, I], or [N, T, I] with batch_first; both directions if bidirectional."""

    rnn: type[base_cell.Cell]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        has_bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        dtype: Any = dtypes.float32,
    ) -> None:
        make: Any = self.rnn.__init__
        make(self, input_size, hidden_size, num_layers, has_bias, batch_first, float(dropout), bidirectional, dtype)
        _adopt(self)


class LSTM(_Layers, base.LSTM):
    __doc__ = f"""Long short-term memory: net(x, (h, c)) -> (outputs, (h, c)). {_Layers.__doc__}"""
    rnn = base.LSTM

    def forward(self, x: Any, hx: Any = None, seq_length: Any = None) -> Any:
        _no_lengths(seq_length)
        return super().forward(x, hx)


class GRU(_Layers, base.GRU):
    __doc__ = f"""Gated recurrent units: net(x, h) -> (outputs, h). {_Layers.__doc__}"""
    rnn = base.GRU

    def forward(self, x: Any, hx: Any = None, seq_length: Any = None) -> Any:
        _no_lengths(seq_length)
        return super().forward(x, hx)


class RNN(Cell, more.RNN):
    """h = tanh(W x + U h + b) (or relu): net(x, h) -> (outputs, h); else as `LSTM`."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        has_bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        dtype: Any = dtypes.float32,
    ) -> None:
        options: dict[str, Any] = {"bias": has_bias, "batch_first": batch_first, "dropout": float(dropout)}
        options |= {"bidirectional": bidirectional, "nonlinearity": nonlinearity, "dtype": dtype}
        more.RNN.__init__(self, input_size, hidden_size, num_layers, **options)
        _adopt(self)

    def forward(self, x: Any, hx: Any = None, seq_length: Any = None) -> Any:
        _no_lengths(seq_length)
        return super().forward(x, hx)


class LSTMCell(Cell, base.LSTMCell):
    """One step: cell(x, (h, c)) -> (h, c)."""

    def __init__(self, input_size: int, hidden_size: int, has_bias: bool = True, dtype: Any = dtypes.float32) -> None:
        base.LSTMCell.__init__(self, input_size, hidden_size, has_bias, dtype)
        _adopt(self)


class GRUCell(Cell, more.GRUCell):
    """One step: cell(x, h) -> h."""

    def __init__(self, input_size: int, hidden_size: int, has_bias: bool = True, dtype: Any = dtypes.float32) -> None:
        more.GRUCell.__init__(self, input_size, hidden_size, has_bias, dtype)
        _adopt(self)


def _no_lengths(seq_length: Any) -> None:
    if seq_length is not None:
        not_covered("seq_length of a recurrent layer", "pack the sequences: td.nn.utils.rnn")


__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN"]
