"""Convolution and pooling of tensors [N, C, *spatial] (the batch axis N may be missing), with PyTorch's arguments.

Sizes may be given as one int for all spatial axes or as a tuple. padding: ints (both sides), "valid" (none), or "same"
(as many outputs as inputs, for stride 1).
"""

from __future__ import annotations

from typing import Any

from treadle.base.errors import UserError
from treadle.frontend.casting import follow
from treadle.frontend.lift import lift
from treadle.frontend.tensor import Tensor
from treadle.ops.convolution import conv
from treadle.ops.pool import max_pool
from treadle.ops.pool_average import avg_pool
from treadle.ops.shape import reshape

Sizes = int | tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]


def per_axis(size: Any, rank: int, name: str) -> tuple[int, ...]:
    """One int per spatial axis. Raises E0541 for another number of ints."""
    sizes = (size,) * rank if isinstance(size, int) else tuple(size)
    if len(sizes) != rank or not all(isinstance(n, int) and not isinstance(n, bool) for n in sizes):
        raise UserError("E0541", f"{name} is {size!r} for {rank} spatial axes", fix=f"give an int or {rank} ints")
    return sizes


def pads(padding: Any, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]) -> Pairs:
    """(low, high) per spatial axis. Raises E0541 for an unknown word or number of ints, or "same" with a stride."""
    if padding == "valid":
        return ((0, 0),) * len(kernel)
    if padding == "same":
        if any(s != 1 for s in stride):
            raise UserError("E0541", f"padding='same' with stride {stride}", fix="give the padding as ints")
        totals = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return tuple([(t // 2, t - t // 2) for t in totals])
    if isinstance(padding, str):
        raise UserError("E0541", f"padding is {padding!r}", fix="use ints, 'same' or 'valid'")
    return tuple([(n, n) for n in per_axis(padding, len(kernel), "padding")])


def _batched(x: Tensor, rank: int, what: str) -> tuple[Tensor, bool]:
    """x with a batch axis, and whether it was added. Raises E0542 for another number of axes."""
    if x.ndim == rank + 1:
        return reshape(x, shape=(1, *x.shape)), True
    if x.ndim != rank + 2:
        shape = ("L", "H, W", "D, H, W")[rank - 1]
        raise UserError("E0542", f"{what} of a tensor {x.type}", fix=f"shape it as [N, C, {shape}], or without N")
    return x, False


def _unbatched(y: Tensor, added: bool) -> Tensor:
    made: Tensor = reshape(y, shape=y.shape[1:]) if added else y
    return made


def _conv(rank: int, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Tensor:
    x, added = _batched(lift(x), rank, f"conv{rank}d")
    weight = lift(weight)
    steps, gaps = per_axis(stride, rank, "stride"), per_axis(dilation, rank, "dilation")
    pairs = pads(padding, weight.shape[2:], steps, gaps)
    y = conv(x, weight, stride=steps, padding=pairs, dilation=gaps, groups=groups)
    if bias is not None:
        bias = follow(lift(bias), y)
        y = y + reshape(bias, shape=(*bias.shape, *[1] * rank))
    return _unbatched(y, added)


def conv1d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """x: float[N, C, L], weight: float[O, C / groups, K], bias: float[O] -> float[N, O, L'] (cross-correlation)."""
    return _conv(1, x, weight, bias, stride, padding, dilation, groups)


def conv2d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """x: float[N, C, H, W], weight: float[O, C / groups, KH, KW], bias: float[O] -> float[N, O, H', W']."""
    return _conv(2, x, weight, bias, stride, padding, dilation, groups)


def conv3d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """x: float[N, C, D, H, W], weight: float[O, C / groups, KD, KH, KW], bias: float[O] -> float[N, O, D', H', W']."""
    return _conv(3, x, weight, bias, stride, padding, dilation, groups)


def _max_pool(rank: int, x: Any, kernel_size: Any, stride: Any, padding: Any) -> Tensor:
    x, added = _batched(lift(x), rank, f"max_pool{rank}d")
    window = per_axis(kernel_size, rank, "kernel_size")
    steps = window if stride is None else per_axis(stride, rank, "stride")
    pairs = pads(padding, window, steps, (1,) * rank)
    return _unbatched(max_pool(x, window=window, stride=steps, padding=pairs), added)


def _avg_pool(rank: int, x: Any, kernel_size: Any, stride: Any, padding: Any, count_include_pad: bool) -> Tensor:
    x, added = _batched(lift(x), rank, f"avg_pool{rank}d")
    window = per_axis(kernel_size, rank, "kernel_size")
    steps = window if stride is None else per_axis(stride, rank, "stride")
    pairs = pads(padding, window, steps, (1,) * rank)
    y = avg_pool(x, window=window, stride=steps, padding=pairs, count_include_pad=count_include_pad)
    return _unbatched(y, added)
