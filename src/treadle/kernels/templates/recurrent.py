"""Recurrent layers over all steps, LSTM and GRU, and their gradients: bodies of one such node."""

from __future__ import annotations

from treadle.ir.node import Fn
from treadle.kernels.kernel import Kernel, Plan
from treadle.kernels.target import Target
from treadle.kernels.templates._recurrent import layer
from treadle.kernels.templates._recurrent_backward import Backward
from treadle.kernels.templates._recurrent_forward import Forward
from treadle.ops import sequences

_LSTM, _GRU = (sequences.lstm, sequences.lstm_fwd), (sequences.gru, sequences.gru_fwd)
_GRADIENTS = (sequences.lstm_grad, sequences.gru_grad)


def plans(body: Fn, target: Target) -> list[Plan]:
    """The way to compute a body of one recurrent layer; none for other bodies."""
    if len(body.nodes) != 1 or body.nodes[0].op not in (*_LSTM, *_GRU, *_GRADIENTS):
        return []
    node = body.nodes[0]
    lstm, gradient = node.op in (*_LSTM, sequences.lstm_grad), node.op in _GRADIENTS
    p = layer(body, node, 4 if lstm else 3, 2 if gradient else 0)
    if p is None:
        return []

    def build() -> Kernel:
        maker = Backward(p, target) if gradient else Forward(p, target)
        return maker.kernel(body.in_types, body.out_types)

    return [Plan(f"{node.op.name} of {p.hidden}", build)]
