"""Linear maps, embeddings, dropout and the cells that only rearrange. Initialised as PyTorch's."""

from __future__ import annotations

import math
from typing import Any

from treadle.base.errors import UserError
from treadle.nn import functional as F
from treadle.nn import init
from treadle.nn.cell import Cell, Parameter


class Linear(Cell):
    """x @ weight.T + bias: float[..., in_features] -> float[..., out_features].

    weight: float[out, in], bias: float[out]; both begin even in +-1 / sqrt(in_features).
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, dtype: Any = None) -> None:
        self.in_features, self.out_features = in_features, out_features
        bound = 1 / math.sqrt(max(in_features, 1))
        self.weight = Parameter(init.uniform((out_features, in_features), -bound, bound, dtype))
        self.bias = Parameter(init.uniform((out_features,), -bound, bound, dtype)) if bias else None

    def forward(self, x: Any) -> Any:
        return F.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Embedding(Cell):
    """Rows of `weight` at integer indices: int[...] -> float[..., embedding_dim].

    weight: float[num_embeddings, embedding_dim], standard normal at first. Indices out of range raise
    E0548 in eager mode and give rows of NaN in compiled functions.
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, dtype: Any = None) -> None:
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.weight = Parameter(init.normal((num_embeddings, embedding_dim), 0.0, 1.0, dtype))

    def forward(self, indices: Any) -> Any:
        return F.embedding(indices, self.weight)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"


class Dropout(Cell):
    """In training each element is 0 with chance p, else divided by 1 - p; in evaluation x itself.

    Drawn from the default generator. Source: Srivastava et al. 2014. Raises E0554 for p outside 0..1.
    """

    def __init__(self, p: float = 0.5) -> None:
        if not 0 <= p <= 1:
            raise UserError("E0554", f"the chance p is {p}", fix="give a number from 0 to 1")
        self.p = p

    def forward(self, x: Any) -> Any:
        return F.dropout(x, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class Flatten(Cell):
    """The axes from start_dim to end_dim as one axis; by default all but the first."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Any) -> Any:
        return F.flatten(x, self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Identity(Cell):
    """x itself."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def forward(self, x: Any) -> Any:
        return x
