"""Recurrent layers. The loop over time is one node, so compile time does not grow with the length.

Data [T, N, I], or [N, T, I] with batch_first, or without N. Names, shapes and initial values are PyTorch's.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from treadle.api.control import scan
from treadle.base.errors import UserError
from treadle.frontend.lift import cast, lift
from treadle.frontend.shaping import concatenate, expand_dims, split, squeeze, stack, swapaxes
from treadle.frontend.tensor import Tensor
from treadle.nn import functional as F
from treadle.nn import init
from treadle.nn.cell import Cell, Parameter
from treadle.ops.recurrent import gru_cell, lstm_cell
from treadle.ops.sequences import gru, lstm

State = tuple[Any, ...]


class _Gates(Cell):
    """Weights of a direction of a layer: weight_ih [G, I], weight_hh [G, H], bias_ih, bias_hh [G]; G = gates * H."""

    gates = 0
    states = 1

    def _make(self, suffix: str, inputs: int, hidden: int, bias: bool, dtype: Any, out: int = 0) -> None:
        """out: size of the state that is fed back, if it is made of the hidden one by weight_hr [out, H]."""
        bound, rows = 1 / math.sqrt(max(hidden, 1)), self.gates * hidden
        for name, shape in (("weight_ih", (rows, inputs)), ("weight_hh", (rows, out or hidden))):
            setattr(self, name + suffix, Parameter(init.uniform(shape, -bound, bound, dtype)))
        for name in ("bias_ih", "bias_hh"):
            value = Parameter(init.uniform((self.gates * hidden,), -bound, bound, dtype)) if bias else None
            setattr(self, name + suffix, value)
        if out:
            setattr(self, "weight_hr" + suffix, Parameter(init.uniform((out, hidden), -bound, bound, dtype)))

    def _weights(self, suffix: str) -> tuple[Any, ...]:
        w_ih, w_hh = getattr(self, "weight_ih" + suffix), getattr(self, "weight_hh" + suffix)
        b_ih, b_hh = getattr(self, "bias_ih" + suffix), getattr(self, "bias_hh" + suffix)
        if b_ih is None:
            b_ih = b_hh = lift(np.zeros(w_ih.shape[:1], w_ih.dtype.np))
        last = getattr(self, "weight_hr" + suffix, None)
        return (w_ih, w_hh, b_ih, b_hh) if last is None else (w_ih, w_hh, b_ih, b_hh, last)


def _lstm_step(x: Any, state: State, weights: tuple[Any, ...]) -> State:
    w_ih, w_hh, b_ih, b_hh = weights
    return tuple(lstm_cell(x, *state, w_ih, w_hh, b_ih + b_hh))


def _gru_step(x: Any, state: State, weights: tuple[Any, ...]) -> State:
    return (gru_cell(x, *state, *weights),)


def _projected_step(x: Any, state: State, weights: tuple[Any, ...]) -> State:
    """A step of an LSTM whose h is made of the hidden state by a matrix. Source: Sak et al. 2014, arXiv:1402.1128."""
    w_ih, w_hh, b_ih, b_hh, w_hr = weights
    h, c = state
    i, f, g, o = split(F.linear(x, w_ih, b_ih) + F.linear(h, w_hh, b_hh), 4, -1)
    c = F.sigmoid(f) * c + F.sigmoid(i) * F.tanh(g)
    return F.linear(F.sigmoid(o) * F.tanh(c), w_hr), c


class _RNN(_Gates):
    """num_layers layers over time; bidirectional: both directions, joined along the last axis of the outputs.

    dropout acts between layers in training. Raises E0558 for inputs or states of wrong shapes.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        dtype: Any = None,
        proj_size: int = 0,
    ) -> None:
        if proj_size and (self.states != 2 or not 0 < proj_size < hidden_size):
            why = f"proj_size={proj_size} of {type(self).__name__} with {hidden_size} hidden features"
            raise UserError("E0558", why, fix="an LSTM takes one between 0 and hidden_size")
        self.proj_size = proj_size
        if num_layers < 1 or not 0 <= dropout <= 1:
            raise UserError("E0558", f"num_layers={num_layers}, dropout={dropout}", fix="1 or more layers, 0 to 1")
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.batch_first, self.dropout, self.bidirectional = batch_first, dropout, bidirectional
        self.directions = ("", "_reverse") if bidirectional else ("",)
        for layer in range(num_layers):
            size = input_size if layer == 0 else (proj_size or hidden_size) * len(self.directions)
            for direction in self.directions:
                self._make(f"_l{layer}{direction}", size, hidden_size, bias, dtype, proj_size)

    def _step(self, x: Any, state: State, weights: tuple[Any, ...]) -> State:
        return _projected_step(x, state, weights) if self.proj_size else _lstm_step(x, state, weights)

    def _run(self, x: Any, initial: State | None) -> tuple[Tensor, State]:
        x = lift(x)
        if x.ndim not in (2, 3) or x.shape[-1] != self.input_size:
            why = f"{type(self).__name__}(input_size={self.input_size}) of {x.type}"
            raise UserError("E0558", why, fix=f"shape it as [T, N, {self.input_size}]; [N, T, ...] with batch_first")
        single = x.ndim == 2
        if single:
            x = expand_dims(x, 1)
        elif self.batch_first:
            x = swapaxes(x, 0, 1)
        states = self._initial(x, initial, single)
        ends: list[State] = []
        for layer in range(self.num_layers):
            parts = []
            for i, direction in enumerate(self.directions):
                place = layer * len(self.directions) + i
                carry, ys = self._scan(x, tuple([s[place] for s in states]), f"_l{layer}{direction}", bool(i))
                ends.append(carry)
                parts.append(ys)
            x = parts[0] if len(parts) == 1 else concatenate(parts, -1)
            if self.dropout and layer + 1 < self.num_layers:
                x = F.dropout(x, self.dropout, self.training)
        last = tuple([stack([e[k] for e in ends], 0) for k in range(self.states)])
        if single:
            return squeeze(x, 1), tuple([squeeze(s, 1) for s in last])
        return (swapaxes(x, 0, 1) if self.batch_first else x), last

    def _scan(self, xs: Any, state: State, suffix: str, reverse: bool) -> tuple[State, Any]:
        weights = self._weights(suffix)
        whole = self._whole(xs, state, weights, reverse)
        if whole is not None:
            ys, *others = whole
            ends = (ys[0 if reverse else -1] if xs.shape[0] else state[0], *others)
            return tuple([cast(n, c.dtype) for n, c in zip(ends, state, strict=True)]), ys

        def body(carry: State, x: Any) -> tuple[State, Any]:
            new = self._step(x, carry, weights)
            return tuple([cast(n, c.dtype) for n, c in zip(new, carry, strict=True)]), new[0]  # under autocast

        made: tuple[State, Any] = scan(body, state, xs, reverse=reverse)
        return made

    def _whole(self, xs: Any, state: State, weights: tuple[Any, ...], reverse: bool) -> State | None:
        """All h, and the last of the other states, by one op for all steps; None where there is none."""
        return None

    def _initial(self, x: Any, given: State | None, single: bool) -> State:
        """Initial states [layers * directions, N, H] (h: [.., proj_size] with a projection), zeros unless given."""
        lead = (self.num_layers * len(self.directions), x.shape[1])
        shapes = [(*lead, n) for n in (self.proj_size or self.hidden_size, self.hidden_size)[: self.states]]
        if given is None:
            return tuple([lift(np.zeros(shape, x.dtype.np)) for shape in shapes])
        states = tuple([expand_dims(lift(s), 1) if single else lift(s) for s in given])
        if [s.shape for s in states] != shapes:
            found, wanted = ", ".join(str(s.type) for s in states), ", ".join(str(list(s)) for s in shapes)
            raise UserError("E0558", f"the initial state is {found}", fix=f"give {self.states} of shape {wanted}")
        return states

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        for name, default in (("num_layers", 1), ("batch_first", False), ("dropout", 0.0), ("bidirectional", False)):
            if (value := getattr(self, name)) != default:
                text += f", {name}={value}"
        return text


class LSTM(_RNN):
    __doc__ = f"""Long short-term memory: net(x, (h, c)) -> (outputs, (h, c)); the states begin as zeros unless given.

    Outputs: float[T, N, H * directions]; h, c: float[layers * directions, N, H]. proj_size: outputs and h have this
    size instead of H, made of the hidden state by a matrix. Source: Hochreiter & Schmidhuber 1997,
    doi:10.1162/neco.1997.9.8.1735. {_RNN.__doc__}"""
    gates, states = 4, 2

    def _whole(self, xs: Any, state: State, weights: tuple[Any, ...], reverse: bool) -> State | None:
        if self.proj_size:
            return None
        w_ih, w_hh, b_ih, b_hh = weights
        return tuple(lstm(F.linear(xs, w_ih, b_ih + b_hh), *state, w_hh, reverse=reverse))

    def forward(self, x: Any, state: State | None = None) -> tuple[Tensor, State]:
        return self._run(x, state)


class GRU(_RNN):
    __doc__ = f"""Gated recurrent units: net(x, h) -> (outputs, h); h begins as zeros unless given.

    Outputs: float[T, N, H * directions]; h: float[layers * directions, N, H]. Source: Cho et al. 2014, arXiv:1406.1078,
    in PyTorch's form. {_RNN.__doc__}"""
    gates = 3

    def _step(self, x: Any, state: State, weights: tuple[Any, ...]) -> State:
        return _gru_step(x, state, weights)

    def _whole(self, xs: Any, state: State, weights: tuple[Any, ...], reverse: bool) -> State | None:
        w_ih, w_hh, b_ih, b_hh = weights
        return (gru(F.linear(xs, w_ih, b_ih), *state, w_hh, b_hh, reverse=reverse),)

    def forward(self, x: Any, state: Any = None) -> tuple[Tensor, Any]:
        outputs, (last,) = self._run(x, None if state is None else (state,))
        return outputs, last


class LSTMCell(_Gates):
    """One step: cell(x, (h, c)) -> (h, c). x: float[N, I], h, c: float[N, H]; zeros unless given."""

    gates, states = 4, 2

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, dtype: Any = None) -> None:
        self.input_size, self.hidden_size = input_size, hidden_size
        self._make("", input_size, hidden_size, bias, dtype)

    def forward(self, x: Any, state: State | None = None) -> State:
        x = lift(x)
        if state is None:
            state = (lift(np.zeros((x.shape[0], self.hidden_size), x.dtype.np)),) * 2
        return _lstm_step(x, state, self._weights(""))

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}"
