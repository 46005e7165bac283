"""New tensors, as `mindspore.ops` has them."""

from __future__ import annotations

from typing import Any

from treadle.base import dtypes
from treadle.compat.mindspore._tensor import Tensor, tag
from treadle.frontend import create
from treadle.frontend import functions as fn
from treadle.frontend.lift import lift


def _sizes(shape: Any) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple([int(n) for n in shape])


def zeros(size: Any, dtype: Any = None) -> Any:
    """Zeros, float32 unless told otherwise."""
    return tag(create.zeros(_sizes(size), dtype=dtype or dtypes.float32))


def ones(shape: Any, dtype: Any = None) -> Any:
    """Ones, float32 unless told otherwise."""
    return tag(create.ones(_sizes(shape), dtype=dtype or dtypes.float32))


def full(size: Any, fill_value: Any, *, dtype: Any = None) -> Any:
    """One number everywhere."""
    return tag(create.full(_sizes(size), fill_value, dtype))


def fill(type: Any, shape: Any, value: Any) -> Any:
    """One number everywhere, in this element type."""
    return tag(create.full(_sizes(shape), value, type))


def zeros_like(input: Any, *, dtype: Any = None) -> Any:
    """Zeros of the shape and type of input."""
    return tag(create.zeros_like(input, dtype))


def ones_like(input: Any, *, dtype: Any = None) -> Any:
    """Ones of the shape and type of input."""
    return tag(create.ones_like(input, dtype))


def full_like(input: Any, fill_value: Any, *, dtype: Any = None) -> Any:
    """One number everywhere, in the shape and type of input."""
    return tag(create.full_like(input, fill_value, dtype))


def eye(n: int, m: int | None = None, dtype: Any = None) -> Any:
    """Ones on the diagonal."""
    return tag(create.eye(n, m, dtype=dtype or dtypes.float32))


def arange(start: Any = 0, end: Any = None, step: Any = 1, *, dtype: Any = None) -> Any:
    """start, start + step, ... below end (0 up to start if end is missing)."""
    start, end, step = (n.item() if hasattr(n, "item") else n for n in (start, end, step))
    return tag(create.arange(start, end, step, dtype))


def linspace(start: Any, end: Any, steps: int) -> Any:
    """`steps` numbers from start to end."""
    start, end = (n.item() if hasattr(n, "item") else n for n in (start, end))
    return tag(create.linspace(start, end, steps))


def meshgrid(*inputs: Any, indexing: str = "xy") -> Any:
    """Coordinates of a grid, one tensor for each input."""
    shape = [x.shape[0] for x in inputs]
    made = []
    for i, x in enumerate(inputs):
        made.append(fn.broadcast_to(fn.reshape(x, [-1 if j == i else 1 for j in range(len(shape))]), shape))
    return tag(tuple([fn.swapaxes(m, 0, 1) if indexing == "xy" and len(shape) > 1 else m for m in made]))


def diag(input: Any) -> Any:
    """The diagonal of a matrix, or a matrix with this diagonal."""
    x = lift(input)
    if x.ndim == 2:
        return tag(fn.diagonal(x))
    return tag(fn.where(create.eye(x.shape[0]) > 0, x, fn.expand_dims(x, 0) * 0))


def scalar_to_tensor(input_x: Any, dtype: Any = dtypes.float32) -> Any:
    """A number as a tensor."""
    return Tensor(input_x, dtype)


__all__ = [
    "arange", "diag", "eye", "fill", "full", "full_like", "linspace", "meshgrid", "ones", "ones_like",
    "scalar_to_tensor", "zeros", "zeros_like",
]  # fmt: skip
