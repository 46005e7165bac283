"""Linear maps, embeddings, dropout and the cells that only rearrange. Initialised as PyTorch's."""

from __future__ import annotations

import math
from typing import Any, Self

from treadle.base import arguments
from treadle.base.errors import UserError
from treadle.frontend.lift import lift
from treadle.nn import functional as F
from treadle.nn import init
from treadle.nn.cell import Cell, Parameter


class Linear(Cell):
    """x @ weight.T + bias: float[..., in_features] -> float[..., out_features].

    weight: float[out, in], bias: float[out]; both begin even in +-1 / sqrt(in_features).
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, dtype: Any = None) -> None:
        self.in_features = arguments.count(in_features, "in_features")
        self.out_features = arguments.count(out_features, "out_features")
        bound = 1 / math.sqrt(max(in_features, 1))
        self.weight = Parameter(init.uniform((out_features, in_features), -bound, bound, dtype))
        self.bias = Parameter(init.uniform((out_features,), -bound, bound, dtype)) if bias else None

    def forward(self, x: Any) -> Any:
        return F.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Embedding(Cell):
    """Rows of `weight` at integer indices: int[...] -> float[..., embedding_dim].

    weight: float[num_embeddings, embedding_dim], standard normal at first. The row `padding_idx` is zero at first and
    gets no gradient. Indices out of range raise E0548 in eager mode and give rows of NaN in compiled functions.
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, dtype: Any = None
    ) -> None:
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.weight, self.padding_idx = _table(num_embeddings, embedding_dim, padding_idx, dtype)

    @classmethod
    def from_pretrained(cls, embeddings: Any, freeze: bool = True, **options: Any) -> Self:
        """An embedding with these rows, float[n, d], which training leaves alone unless freeze=False."""
        rows = lift(embeddings)
        count, size = rows.shape
        made = cls(count, size, dtype=rows.dtype, **options)
        made.weight.assign(rows)
        return made.freeze(freeze)

    def forward(self, indices: Any) -> Any:
        return F.embedding(indices, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        return text if self.padding_idx is None else f"{text}, padding_idx={self.padding_idx}"


class EmbeddingBag(Embedding):
    """The sum, mean or maximum of rows of `weight` for each bag: float[B, embedding_dim]; zeros of an empty bag.

    Call: int[B, L], or int[N] with offsets int[B], where each bag begins. per_sample_weights: factors, for mode "sum".
    `padding_idx` does not count. See `embedding_bag` for shapes and errors.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        mode: str = "mean",
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx, dtype)
        self.mode, self.include_last_offset = mode, include_last_offset

    def forward(self, indices: Any, offsets: Any = None, per_sample_weights: Any = None) -> Any:
        options = (self.mode, per_sample_weights, self.include_last_offset, self.padding_idx)
        return F.embedding_bag(indices, self.weight, offsets, *options)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, mode={self.mode!r}"


def _table(rows: int, columns: int, padding_idx: int | None, dtype: Any) -> tuple[Parameter, int | None]:
    """Standard normal rows, that of padding_idx zero; and padding_idx counted from the front."""
    numbers = init.normal((rows, columns), 0.0, 1.0, dtype)
    if padding_idx is not None:
        if not -rows <= padding_idx < rows:
            raise UserError("E0548", f"padding_idx is {padding_idx} for {rows} rows", fix=f"use 0 to {rows - 1}")
        padding_idx %= rows
        numbers[padding_idx] = 0
    return Parameter(numbers), padding_idx


class Dropout(Cell):
    """In training each element is 0 with chance p, else divided by 1 - p; in evaluation x itself.

    Drawn from the default generator. Source: Srivastava et al. 2014. Raises E0554 for p outside 0..1.
    """

    def __init__(self, p: float = 0.5) -> None:
        if not arguments.is_real(p) or not 0 <= p <= 1:
            raise UserError("E0554", f"the chance p is {p!r}", fix="give a number from 0 to 1")
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
