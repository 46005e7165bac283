"""Pooling with all of PyTorch's options: places, dilation, last windows that reach beyond. Data [N, C, *spatial].

N may be missing. An index is the place of an element in its channel, counted row by row, int32.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.frontend import functions as fn
from treadle.frontend.functions import argmax, take_along_axis
from treadle.frontend.lift import lift, literal
from treadle.frontend.logic import where
from treadle.frontend.shaping import broadcast_to, pad, reshape
from treadle.frontend.tensor import Tensor
from treadle.nn.functional.adaptive import _adaptive, _sizes
from treadle.nn.functional.window import Sizes, _batched, _unbatched, per_axis
from treadle.nn.functional.window import _max_pool as plain_max_pool
from treadle.ops import patches
from treadle.ops.compare import greater_equal, less, logical_and
from treadle.ops.pool import max_pool
from treadle.ops.pool_average import avg_pool

Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]


# ----------------------------------------------------------------------------------------------- max pooling, places
def reach(size: Ints, window: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool) -> Pairs:
    """The padding on both sides; ceil_mode: more behind, for a last window that begins inside."""
    pairs = []
    for n, w, s, p, d in zip(size, window, stride, padding, dilation, strict=True):
        room = n + 2 * p - d * (w - 1) - 1
        count = -(-room // s) + 1 if ceil_mode else room // s + 1
        if ceil_mode and (count - 1) * s >= n + p:
            count -= 1
        pairs.append((p, max(p, (count - 1) * s + d * (w - 1) + 1 - n - p) if ceil_mode else p))
    return tuple(pairs)


def max_pool_with_indices(
    rank: int,
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    """The largest element of each window of the last `rank` axes, and its index; the first among equals.

    Padding never wins; it is at most half the window. dilation: the distance of a window's elements. ceil_mode: the
    last window may reach beyond the padding. Raises E0541, E0542, E0148.
    """
    x, added = _batched(lift(x), rank, f"max_pool{rank}d")
    window = per_axis(kernel_size, rank, "kernel_size")
    steps = window if stride is None else per_axis(stride, rank, "stride")
    gaps, sides = per_axis(dilation, rank, "dilation"), per_axis(padding, rank, "padding")
    if any(not 0 <= 2 * p <= w for p, w in zip(sides, window, strict=True)):
        raise UserError("E0541", f"padding {sides} of a window {window}", fix="pad by at most half the window")
    spatial = tuple(x.shape[2:])
    pairs = reach(spatial, window, steps, sides, gaps, ceil_mode)
    index = _first_largest(x, window, steps, pairs, gaps)
    if gaps == (1,) * rank:
        values = max_pool(x, window=window, stride=steps, padding=pairs)
    else:
        values = read(x, index, rank)
    return _unbatched(values, added), _unbatched(index, added)


def _first_largest(x: Any, window: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> Any:
    """The index of the first largest element of each window, or of its first NaN: int32[N, C, *t]."""
    rank, spatial = len(window), tuple(x.shape[2:])
    least = -math.inf if x.dtype.is_float else int(np.iinfo(x.dtype.np).min)
    wide = pad(x, ((0, 0), (0, 0), *padding), least)
    parts = patches.unfold(wide, window=window, stride=stride, padding=((0, 0),) * rank, dilation=dilation)
    out = tuple(parts.shape[2 + rank :])
    element = argmax(reshape(parts, (*x.shape[:2], math.prod(window), *out)), 2)
    axes = list(zip(spatial, window, stride, padding, dilation, out, strict=True))
    places, inside = [], None
    for i, (n, w, s, (low, _), d, t) in enumerate(axes):
        after = math.prod(window[i + 1 :])
        start = literal((np.arange(t, dtype=np.int32) * s - low).reshape(t, *[1] * (rank - i - 1)))
        place = element // after % w * d + start
        is_in = logical_and(greater_equal(place, 0), less(place, n))
        places.append(place)
        inside = is_in if inside is None else logical_and(inside, is_in)
    index: Any = 0
    for i, (n, _, s, (low, _), d, t) in enumerate(
        axes
    ):  # a window of -inf alone: its first element that is not padding
        start = np.arange(t, dtype=np.int32) * s - low
        first = np.where(start < 0, start + -(start // d) * d, start).astype(np.int32)
        index = index * n + where(inside, places[i], literal(first.reshape(t, *[1] * (rank - i - 1))))
    return index


def read(x: Any, index: Any, rank: int) -> Any:
    """The elements of x [N, C, *s] at indices [N, C, *t]."""
    flat = reshape(x, (*x.shape[:2], math.prod(x.shape[2:])))
    places = reshape(index, (*index.shape[:2], math.prod(index.shape[2:])))
    return reshape(take_along_axis(flat, places, 2), index.shape)


def _max_pool(
    rank: int, x: Any, window: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, return_indices: bool
) -> Any:
    if return_indices or per_axis(dilation, rank, "dilation") != (1,) * rank:
        found = max_pool_with_indices(rank, x, window, stride, padding, dilation, ceil_mode)
        return found if return_indices else found[0]
    if not ceil_mode:
        return plain_max_pool(rank, x, window, stride, padding)
    x, added = _batched(lift(x), rank, f"max_pool{rank}d")
    window = per_axis(window, rank, "kernel_size")
    steps = window if stride is None else per_axis(stride, rank, "stride")
    pairs = reach(tuple(x.shape[2:]), window, steps, per_axis(padding, rank, "padding"), (1,) * rank, True)
    return _unbatched(max_pool(x, window=window, stride=steps, padding=pairs), added)


def max_pool1d(
    x: Any,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of each window of the last axis; stride None: the window's size.

    dilation: how far a window's elements stand apart. ceil_mode: a last window that begins inside counts, even where it
    reaches beyond the padding. return_indices: (values, indices), see `max_pool_with_indices`. Raises E0541, E0542,
    E0148, and E0151 for padding that is too wide.
    """
    return _max_pool(1, x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool2d(
    x: Any,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of each window of the last two axes; see `max_pool1d`."""
    return _max_pool(2, x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool3d(
    x: Any,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of each window of the last three axes; see `max_pool1d`."""
    return _max_pool(3, x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def best_places(x: Any, index: Any, sizes: Ints) -> Any:
    """The index of the first largest of each window: index [N or 1, C or 1, *sizes, *window] -> [N, C, *sizes]."""
    lead, count = tuple(x.shape[:2]), math.prod(index.shape[2 + len(sizes) :])
    flat = reshape(x, (*lead, math.prod(x.shape[2:])))
    every = reshape(broadcast_to(index, (*lead, *index.shape[2:])), (*lead, math.prod(sizes) * count))
    elements = reshape(take_along_axis(flat, every, 2), (*lead, *sizes, count))
    best = reshape(argmax(elements, -1), (*lead, *sizes, 1))
    return reshape(take_along_axis(reshape(every, elements.shape), best, -1), (*lead, *sizes))


# ----------------------------------------------------------------------------------------------------- adaptive, means
def _adaptive_max_pool(rank: int, x: Any, output_size: Any, return_indices: bool) -> Any:
    if not return_indices:
        plain: Tensor = _adaptive(rank, x, output_size, fn.max, lambda x, w: plain_max_pool(rank, x, w, None, 0))
        return plain
    x, added = _batched(lift(x), rank, f"adaptive_max_pool{rank}d")
    spatial = tuple(x.shape[2:])
    sizes = _sizes(output_size, spatial)
    index: Any = np.zeros([1] * (2 + 2 * rank), np.int32)
    for i, (n, o) in enumerate(zip(spatial, sizes, strict=True)):
        first, last = np.arange(o) * n // o, -(-(np.arange(o) + 1) * n // o)
        inner = np.minimum(first[:, None] + np.arange((last - first).max()), last[:, None] - 1)
        axes = [1, 1, *[o if j == i else 1 for j in range(rank)], *[-1 if j == i else 1 for j in range(rank)]]
        index = index * n + inner.astype(np.int32).reshape(axes)
    places = best_places(x, literal(index), sizes)
    return _unbatched(read(x, places, rank), added), _unbatched(places, added)


def adaptive_max_pool1d(x: Any, output_size: Any, return_indices: bool = False) -> Any:
    """The largest elements of output_size windows of the last axis; return_indices: with indices."""
    return _adaptive_max_pool(1, x, output_size, return_indices)


def adaptive_max_pool2d(x: Any, output_size: Any, return_indices: bool = False) -> Any:
    """The largest elements of windows of the last two axes: [..., *output_size]; return_indices: with indices."""
    return _adaptive_max_pool(2, x, output_size, return_indices)


def adaptive_max_pool3d(x: Any, output_size: Any, return_indices: bool = False) -> Any:
    """The largest elements of windows of the last three axes: [..., *output_size]; return_indices: with indices."""
    return _adaptive_max_pool(3, x, output_size, return_indices)


def _avg_pool(
    rank: int, x: Any, window: Any, stride: Any, padding: Any, ceil_mode: bool, with_padding: bool, divisor: int | None
) -> Tensor:
    x, added = _batched(lift(x), rank, f"avg_pool{rank}d")
    window = per_axis(window, rank, "kernel_size")
    steps = window if stride is None else per_axis(stride, rank, "stride")
    sides = per_axis(padding, rank, "padding")
    pairs = reach(tuple(x.shape[2:]), window, steps, sides, (1,) * rank, ceil_mode)
    beyond = tuple([(0, high - p) for (_, high), p in zip(pairs, sides, strict=True)])
    if divisor == 0:
        raise UserError("E0541", "divisor_override is 0", fix="give another number")
    if divisor is None and with_padding and any(high for _, high in beyond):  # what is beyond the padding never counts
        if any(not 0 <= p < w for p, w in zip(sides, window, strict=True)):
            raise UserError("E0151", f"padding {sides} of a window {window}", fix="pad by less than the window")
        x, pairs, with_padding = pad(x, ((0, 0), (0, 0), *[(p, p) for p in sides])), beyond, False
    y = avg_pool(x, window=window, stride=steps, padding=pairs, count_include_pad=with_padding or divisor is not None)
    return _unbatched(y if divisor is None else y * (math.prod(window) / divisor), added)


def avg_pool1d(
    x: Any,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window of the last axis; padding counts as zeros unless count_include_pad is False.

    ceil_mode: a last window that begins inside counts; what it has beyond the padding does not. Raises E0541, E0542,
    E0148, E0151.
    """
    return _avg_pool(1, x, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


def avg_pool2d(
    x: Any,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window of the last two axes, or its sum over divisor_override; see `avg_pool1d`."""
    return _avg_pool(2, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def avg_pool3d(
    x: Any,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window of the last three axes, or its sum over divisor_override; see `avg_pool1d`."""
    return _avg_pool(3, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
