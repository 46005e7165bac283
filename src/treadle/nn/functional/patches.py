"""Transposed convolution, sliding windows taken apart and added up; as PyTorch's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from treadle.base.errors import UserError
from treadle.frontend.casting import follow
from treadle.frontend.lift import lift
from treadle.frontend.shaping import reshape
from treadle.frontend.tensor import Tensor
from treadle.nn.functional.window import Sizes, _batched, _unbatched, pads, per_axis
from treadle.ops import patches
from treadle.ops.convolution import conv_input_grad


# ------------------------------------------------------------------------------------------- transposed convolution
def _conv_transpose(
    rank: int,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Tensor:
    """The gradient of a convolution for its input, whose last elements may be such that no window reaches beyond."""
    x, added = _batched(lift(x), rank, f"conv_transpose{rank}d")
    weight = lift(weight)
    steps, gaps = per_axis(stride, rank, "stride"), per_axis(dilation, rank, "dilation")
    sides, extra = per_axis(padding, rank, "padding"), per_axis(output_padding, rank, "output_padding")
    if any(not 0 <= e < max(s, d) for e, s, d in zip(extra, steps, gaps, strict=True)):
        why = f"output_padding {extra} with stride {steps} and dilation {gaps}"
        raise UserError("E0541", why, fix="use 0 or more, and less than the stride or the dilation")
    spans = zip(x.shape[2:], weight.shape[2:], steps, gaps, sides, extra, strict=False)
    size = tuple([(n - 1) * s + d * (k - 1) + 1 - 2 * p + e for n, k, s, d, p, e in spans])
    if any(n < 1 for n in size):
        why = f"conv_transpose{rank}d of {x.type} by {weight.type} with padding {sides} would have sizes {list(size)}"
        raise UserError("E0541", why, fix="use less padding")
    pairs = tuple([(p, p - e) for p, e in zip(sides, extra, strict=True)])
    y = conv_input_grad(x, weight, input_size=size, stride=steps, padding=pairs, dilation=gaps, groups=groups)
    if bias is not None:
        bias = follow(lift(bias), y)
        y = y + reshape(bias, (*bias.shape, *[1] * rank))
    return _unbatched(y, added)


def conv_transpose1d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    """x: float[N, C, L], weight: float[C, O / groups, K], bias: float[O] -> float[N, O, L'].

    L' = (L - 1) * stride - 2 * padding + dilation * (K - 1) + output_padding + 1. Source: Dumoulin & Visin 2016,
    arXiv:1603.07285. Raises E0541, E0542, and E0145 to E0149 as a convolution.
    """
    return _conv_transpose(1, x, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose2d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    """x: float[N, C, H, W], weight: float[C, O / groups, KH, KW] -> float[N, O, H', W']; see `conv_transpose1d`."""
    return _conv_transpose(2, x, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose3d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    """x: float[N, C, D, H, W], weight: float[C, O / groups, KD, KH, KW]; see `conv_transpose1d`."""
    return _conv_transpose(3, x, weight, bias, stride, padding, output_padding, groups, dilation)


# --------------------------------------------------------------------------------------------------------- windows
def _window(kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> dict[str, Any]:
    window, steps = per_axis(kernel_size, 2, "kernel_size"), per_axis(stride, 2, "stride")
    gaps = per_axis(dilation, 2, "dilation")
    return {"window": window, "stride": steps, "padding": pads(padding, window, steps, gaps), "dilation": gaps}


def unfold(x: Any, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1) -> Tensor:
    """The windows of an image as columns: float[N, C, H, W] -> float[N, C * KH * KW, number of windows] (or without N).

    Raises E0541, E0542, and E0148 when no window fits.
    """
    x, added = _batched(lift(x), 2, "unfold")
    how = _window(kernel_size, dilation, padding, stride)
    parts = patches.unfold(x, **how)
    columns = reshape(parts, (x.shape[0], x.shape[1] * math.prod(how["window"]), math.prod(parts.shape[4:])))
    return _unbatched(columns, added)


def fold(
    x: Any,
    output_size: Sizes,
    kernel_size: Sizes,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    stride: Sizes = 1,
) -> Tensor:
    """The columns that `unfold` makes added up again: float[N, C * KH * KW, L] -> float[N, C, *output_size].

    Raises E0541 for the form of a size, E0566 when the columns are not those of an image of this size.
    """
    x = lift(x)
    size, how = per_axis(output_size, 2, "output_size"), _window(kernel_size, dilation, padding, stride)
    added = x.ndim == 2
    if added:
        x = reshape(x, (1, *x.shape))
    spans = zip(size, how["window"], how["stride"], how["padding"], how["dilation"], strict=True)
    places = [(n + sum(p) - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in spans]
    elements = math.prod(how["window"])
    if x.ndim != 3 or min(places) < 1 or x.shape[1] % elements or x.shape[2] != math.prod(places):
        why = f"fold of {x.type} to {size} by windows of {how['window']}, of which there are {places}"
        raise UserError("E0566", why, fix=f"give [N, C * {elements}, {math.prod(max(n, 0) for n in places)}]")
    parts = reshape(x, (x.shape[0], x.shape[1] // elements, *how["window"], *places))
    return _unbatched(patches.fold(parts, size=size, **how), added)


def size_for(like: Sequence[int] | int, rank: int) -> tuple[int, ...]:
    """The last `rank` sizes of an output size that may name batch and channels too. Raises E0541 for another form."""
    sizes = (like,) * rank if isinstance(like, int) else tuple(like)
    return per_axis(sizes[-rank:] if len(sizes) in (rank + 1, rank + 2) else sizes, rank, "output_size")
