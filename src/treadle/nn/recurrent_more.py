"""The plain recurrent layer and single steps of it and of the GRU; see `recurrent` for shapes and names."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.frontend.lift import lift
from treadle.frontend.tensor import Tensor
from treadle.nn import functional as F
from treadle.nn.recurrent import _RNN, State, _Gates, _gru_step


def _plain_step(x: Any, state: State, weights: tuple[Any, ...], nonlinearity: str) -> State:
    w_ih, w_hh, b_ih, b_hh = weights
    total = F.linear(x, w_ih, b_ih) + F.linear(state[0], w_hh, b_hh)
    return (F.tanh(total) if nonlinearity == "tanh" else F.relu(total),)


def _check(nonlinearity: str) -> None:
    if nonlinearity not in ("tanh", "relu"):
        raise UserError("E0558", f"nonlinearity is {nonlinearity!r}", fix="use 'tanh' or 'relu'")


class RNN(_RNN):
    __doc__ = f"""h' = tanh(x w_ih^T + b_ih + h w_hh^T + b_hh), or relu: net(x, h) -> (outputs, h); h begins as zeros.

    Outputs: float[T, N, H * directions]; h: float[layers * directions, N, H]. Source: Elman 1990. {_RNN.__doc__}"""
    gates = 1

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh", **options: Any
    ) -> None:
        _check(nonlinearity)
        super().__init__(input_size, hidden_size, num_layers, **options)
        self.nonlinearity = nonlinearity

    def _step(self, x: Any, state: State, weights: tuple[Any, ...]) -> State:
        return _plain_step(x, state, weights, self.nonlinearity)

    def forward(self, x: Any, state: Any = None) -> tuple[Tensor, Any]:
        outputs, (last,) = self._run(x, None if state is None else (state,))
        return outputs, last


class _Cell(_Gates):
    """One step: cell(x, h) -> h. x: float[N, I] or [I], h: float[N, H] or [H]; zeros unless given."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, dtype: Any = None) -> None:
        self.input_size, self.hidden_size = input_size, hidden_size
        self._make("", input_size, hidden_size, bias, dtype)

    def _next(self, x: Any, state: State) -> State:
        return _gru_step(x, state, self._weights(""))

    def forward(self, x: Any, state: Any = None) -> Any:
        x = lift(x)
        if x.ndim not in (1, 2) or x.shape[-1] != self.input_size:
            why = f"{type(self).__name__}(input_size={self.input_size}) of {x.type}"
            raise UserError("E0558", why, fix=f"shape it as [N, {self.input_size}]")
        h = lift(np.zeros((*x.shape[:-1], self.hidden_size), x.dtype.np)) if state is None else lift(state)
        if x.ndim == 1:
            x, h = x.reshape((1, *x.shape)), h.reshape((1, *h.shape))
            return self._next(x, (h,))[0].reshape((self.hidden_size,))
        return self._next(x, (h,))[0]

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}"


class GRUCell(_Cell):
    __doc__ = f"""Gated recurrent unit. {_Cell.__doc__}"""
    gates = 3


class RNNCell(_Cell):
    __doc__ = f"""Plain recurrent unit, tanh or relu. {_Cell.__doc__}"""
    gates = 1

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", dtype: Any = None
    ) -> None:
        _check(nonlinearity)
        super().__init__(input_size, hidden_size, bias, dtype)
        self.nonlinearity = nonlinearity

    def _next(self, x: Any, state: State) -> State:
        return _plain_step(x, state, self._weights(""), self.nonlinearity)
