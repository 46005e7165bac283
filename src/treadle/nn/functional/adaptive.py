"""Average pooling to a given size. Data [N, C, *spatial], N may be missing.

Window i of o over an axis of size n goes from floor(i * n / o) to ceil((i + 1) * n / o): windows may overlap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from treadle.base.errors import UserError
from treadle.frontend import functions as fn
from treadle.frontend.lift import lift
from treadle.frontend.shaping import concatenate, cut
from treadle.frontend.tensor import Tensor
from treadle.nn.functional.window import _avg_pool


def _sizes(output_size: Any, spatial: tuple[int, ...]) -> tuple[int, ...]:
    """One size per axis; None keeps the input's. Raises E0543 for sizes below 1 or another number of them."""
    listed = tuple(output_size) if isinstance(output_size, tuple | list) else (output_size,) * len(spatial)
    made = tuple([n if o is None else o for o, n in zip(listed, spatial, strict=False)])
    if len(listed) != len(spatial) or not all(isinstance(o, int) and o >= 1 for o in made):
        why = f"adaptive pooling of {list(spatial)} to {output_size!r}"
        raise UserError("E0543", why, fix="give a size of 1 or more per axis")
    return made


def _adaptive(rank: int, x: Any, output_size: Any, total: Callable[..., Any], pool: Callable[..., Any]) -> Tensor:
    x = lift(x)
    if x.ndim not in (rank + 1, rank + 2):
        raise UserError("E0542", f"adaptive pooling over {rank} axes of {x.type}", fix="shape it as [N, C, *spatial]")
    spatial = tuple(x.shape[x.ndim - rank :])
    sizes = _sizes(output_size, spatial)
    if all(o and n % o == 0 and n for n, o in zip(spatial, sizes, strict=True)):
        window = tuple([n // o for n, o in zip(spatial, sizes, strict=True)])
        even: Tensor = pool(x, window)
        return even
    for axis, n, o in zip(range(x.ndim - rank, x.ndim), spatial, sizes, strict=True):
        spans = [(i * n // o, -(-(i + 1) * n // o)) for i in range(o)]
        x = concatenate([total(cut(x, axis, low, high), axis, keepdims=True) for low, high in spans], axis)
    made: Tensor = x
    return made


def adaptive_avg_pool1d(x: Any, output_size: Any) -> Tensor:
    """The means of output_size windows of the last axis."""
    return _adaptive(1, x, output_size, fn.mean, lambda x, w: _avg_pool(1, x, w, None, 0, True))


def adaptive_avg_pool3d(x: Any, output_size: Any) -> Tensor:
    """The means of windows of the last three axes: [..., *output_size]."""
    return _adaptive(3, x, output_size, fn.mean, lambda x, w: _avg_pool(3, x, w, None, 0, True))


def adaptive_avg_pool2d(x: Any, output_size: Any) -> Tensor:
    """The means of windows of the last two axes: [..., *output_size]; None keeps a size.

    Raises E0542 for the number of axes, E0543 for the output size.
    """
    x = lift(x)
    if output_size in (1, (1, 1)) and x.ndim in (3, 4):
        whole: Tensor = fn.mean(x, (-2, -1), keepdims=True)
        return whole
    return _adaptive(2, x, output_size, fn.mean, lambda x, w: _avg_pool(2, x, w, None, 0, True))
