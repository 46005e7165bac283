"""The opposite of max pooling, norms of windows, pooling over random windows. Data [N, C, *spatial] or without N."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.frontend import trace as tracing
from treadle.frontend.create import default_generator, zeros
from treadle.frontend.elementwise import pow
from treadle.frontend.indexing import put
from treadle.frontend.lift import cast, lift, literal
from treadle.frontend.logic import where
from treadle.frontend.shaping import pad, reshape
from treadle.frontend.tensor import Tensor
from treadle.nn.functional.patches import size_for
from treadle.nn.functional.pooling_more import best_places, reach, read
from treadle.nn.functional.window import Sizes, _batched, _unbatched, per_axis
from treadle.ops.compare import equal
from treadle.ops.elementwise import floor
from treadle.ops.pool_average import avg_pool
from treadle.ops.random import random_uniform

Ints = tuple[int, ...]


# ---------------------------------------------------------------------------------------------------------- unpooling
def _max_unpool(rank: int, x: Any, indices: Any, window: Any, stride: Any, padding: Any, output_size: Any) -> Tensor:
    """Zeros but for x at its indices. Where several have one index the last counts, and takes the gradient."""
    x, added = _batched(lift(x), rank, f"max_unpool{rank}d")
    indices = _batched(lift(indices), rank, f"max_unpool{rank}d")[0]
    if tuple(indices.shape) != tuple(x.shape) or not indices.dtype.is_integer:
        raise UserError("E0566", f"max_unpool of {x.type} at {indices.type}", fix="give one integer per element")
    size = _unpooled(rank, tuple(x.shape[2:]), window, stride, padding, output_size)
    count, lanes = math.prod(size), x.shape[0] * x.shape[1]
    if (
        tracing.current() is None
        and (numbers := indices.numpy()).size
        and not 0 <= numbers.min() <= numbers.max() < count
    ):
        why = f"indices from {numbers.min()} to {numbers.max()} for {count} places {list(size)}"
        raise UserError("E0566", why, fix="give output_size, the size of what was pooled")
    if lanes * count >= 2**31:
        raise UserError("E0131", f"{lanes} channels of {count} places are too many for int32", fix="split the batch")
    first = literal(np.arange(lanes, dtype=np.int32)[:, None] * count)
    places = reshape(cast(indices, dtypes.int32), (lanes, math.prod(x.shape[2:]))) + first
    flat = put(zeros(lanes * count, dtype=x.dtype), reshape(places, (x.size,)), reshape(x, (x.size,)))
    return _unbatched(reshape(flat, (*x.shape[:2], *size)), added)


def _unpooled(rank: int, pooled: Ints, window: Any, stride: Any, padding: Any, output_size: Any) -> Ints:
    """What was pooled, from the sizes that came of it; output_size decides where several are possible."""
    window = per_axis(window, rank, "kernel_size")
    steps = window if stride is None else per_axis(stride, rank, "stride")
    sides = per_axis(padding, rank, "padding")
    usual = tuple([(n - 1) * s + w - 2 * p for n, w, s, p in zip(pooled, window, steps, sides, strict=True)])
    if output_size is None:
        return usual
    size = size_for(output_size, rank)
    if any(not u - s < n < u + s for n, u, s in zip(size, usual, steps, strict=True)):
        why = f"output_size {size}, but {list(pooled)} windows come of about {usual}"
        raise UserError("E0566", why, fix="give the size of what was pooled")
    return size


def max_unpool1d(
    x: Any,
    indices: Any,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """The opposite of max pooling: zeros but for x at `indices`. x: float[N, C, L] -> float[N, C, L'].

    Of several elements with one index the last counts. Raises E0566 for sizes that do not fit, and in eager mode for an
    index out of range; in a compiled function such an element is dropped.
    """
    return _max_unpool(1, x, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(
    x: Any,
    indices: Any,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """float[N, C, H, W] -> float[N, C, H', W']; see `max_unpool1d`."""
    return _max_unpool(2, x, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(
    x: Any,
    indices: Any,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """float[N, C, D, H, W] -> float[N, C, D', H', W']; see `max_unpool1d`."""
    return _max_unpool(3, x, indices, kernel_size, stride, padding, output_size)


# ------------------------------------------------------------------------------------------------------------- norms
def _lp_pool(rank: int, x: Any, norm_type: float, kernel_size: Any, stride: Any, ceil_mode: bool) -> Tensor:
    x, added = _batched(lift(x), rank, f"lp_pool{rank}d")
    if norm_type <= 0:
        raise UserError("E0566", f"lp_pool{rank}d with norm_type={norm_type}", fix="use a positive number")
    window = per_axis(kernel_size, rank, "kernel_size")
    steps = window if stride is None else per_axis(stride, rank, "stride")
    pairs = reach(tuple(x.shape[2:]), window, steps, (0,) * rank, (1,) * rank, ceil_mode)
    mean = avg_pool(pow(x, norm_type), window=window, stride=steps, padding=pairs, count_include_pad=False)
    total = mean * math.prod(window)
    none = equal(total, 0)
    y = where(none, 0.0, pow(where(none, 1.0, total), 1.0 / norm_type))  # where nothing is, the derivative is 0
    return _unbatched(y, added)


def lp_pool1d(
    x: Any, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
) -> Tensor:
    """(The sum of x ** p over each window) ** (1 / p) for p = norm_type; its derivative is 0 where the sum is.

    A window that ceil_mode lets reach beyond x counts the mean of its elements for those it lacks, as PyTorch does.
    Raises E0541, E0542, and E0566 for a norm_type of 0 or less.
    """
    return _lp_pool(1, x, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(
    x: Any, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
) -> Tensor:
    """The p-norm of each window of the last two axes; see `lp_pool1d`."""
    return _lp_pool(2, x, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(
    x: Any, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
) -> Tensor:
    """The p-norm of each window of the last three axes; see `lp_pool1d`."""
    return _lp_pool(3, x, norm_type, kernel_size, stride, ceil_mode)


# -------------------------------------------------------------------------------------------------- random windows
def _fractional(rank: int, x: Any, window: Any, size: Any, ratio: Any, samples: Any) -> tuple[Tensor, Tensor]:
    x, added = _batched(lift(x), rank, f"fractional_max_pool{rank}d")
    window, spatial = per_axis(window, rank, "kernel_size"), tuple(x.shape[2:])
    sizes = _fractional_size(spatial, window, size, ratio)
    lead = tuple(x.shape[:2])
    if samples is None:
        draws: Any = random_uniform(
            default_generator.next_key(), shape=(*lead, rank), dtype=dtypes.float32, low=0.0, high=1.0
        )
    else:
        draws = lift(samples)
    if tuple(draws.shape) != (*lead, rank):
        raise UserError("E0566", f"random samples {draws.type}", fix=f"give numbers from 0 to 1, [N, C, {rank}]")
    order = (1, 0) if rank == 2 else range(rank)  # PyTorch's: (x, y), but (z, y, x)
    index: Any = literal(np.zeros([1] * (2 + 2 * rank), np.int32))
    for i in range(rank):
        first = _starts(draws[..., order[i]], spatial[i], sizes[i], window[i])
        axis = reshape(first, (*lead, *[sizes[i] if j == i else 1 for j in range(rank)], *[1] * rank))
        inner = np.arange(window[i], dtype=np.int32).reshape([-1 if j == i else 1 for j in range(rank)])
        index = index * spatial[i] + axis + literal(inner)
    index = best_places(x, index, sizes)
    return _unbatched(read(x, index, rank), added), _unbatched(index, added)


def _starts(u: Any, n: int, size: int, window: int) -> Any:
    """Where the windows of one axis begin: int32[N, C, size]. Source: Graham 2014, arXiv:1412.6071, as PyTorch's."""
    last = literal(np.full((*u.shape, 1), n - window, np.int32))
    if size == 1:
        return last
    step = np.float32((n - window) / (size - 1))
    u = reshape(cast(u, dtypes.float32), (*u.shape, 1))
    steps = literal(np.arange(size - 1, dtype=np.float32))
    inner = cast(floor((steps + u) * step) - floor(u * step), dtypes.int32)
    joined: Any = pad(inner, ((0, 0), (0, 0), (0, 1)), n - window)
    return joined


def _fractional_size(spatial: Ints, window: Ints, size: Any, ratio: Any) -> Ints:
    if (size is None) == (ratio is None):
        raise UserError("E0566", "fractional pooling needs either output_size or output_ratio", fix="give one of them")
    if size is not None:
        sizes = per_axis(size, len(spatial), "output_size")
    else:
        ratios = tuple(ratio) if isinstance(ratio, tuple | list) else (ratio,) * len(spatial)
        if len(ratios) != len(spatial) or any(not 0 < r < 1 for r in ratios):
            raise UserError("E0566", f"output_ratio {ratio}", fix="give numbers between 0 and 1, one or one per axis")
        sizes = tuple([int(n * r) for n, r in zip(spatial, ratios, strict=True)])
    if any(m < 1 or m + w - 1 > n for n, m, w in zip(spatial, sizes, window, strict=True)):
        why = f"{list(sizes)} windows of {list(window)} over {list(spatial)}"
        raise UserError("E0566", why, fix="keep output size + window - 1 within the input's size")
    return sizes


def fractional_max_pool2d(
    x: Any,
    kernel_size: Sizes,
    output_size: Sizes | None = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Any = None,
) -> Any:
    """The largest element of each of `output_size` windows (or output_ratio of the size) at random steps.

    x: float[N, C, H, W] -> float[N, C, *output_size], with indices if return_indices. The steps follow from one number
    per channel and axis: _random_samples, float[N, C, 2] from 0 to 1, or drawn from the default generator. Source:
    Graham 2014, arXiv:1412.6071. Raises E0566 for sizes that do not fit.
    """
    found = _fractional(2, x, kernel_size, output_size, output_ratio, _random_samples)
    return found if return_indices else found[0]


def fractional_max_pool3d(
    x: Any,
    kernel_size: Sizes,
    output_size: Sizes | None = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Any = None,
) -> Any:
    """As `fractional_max_pool2d` over the last three axes; _random_samples: float[N, C, 3]."""
    found = _fractional(3, x, kernel_size, output_size, output_ratio, _random_samples)
    return found if return_indices else found[0]
