"""Convolutions of one channel each (groups = channels), written as sums of slices times one kernel element per channel.

XLA's CPU back end (jaxlib 0.10.2) runs grouped convolutions one element at a time; these run many times as fast. Each
function takes and gives values as the op of `conv.py` of which it is a form; `fits` says when it may stand for it.
"""

from __future__ import annotations

from typing import Any

from treadle.ir.node import Value
from treadle.ir.types import TensorType
from treadle.ops._pooling import in_sum_type, is_small, parts_of, spread, total_of
from treadle.ops._windows import Ints, Pairs, offsets
from treadle.ops.casting import cast
from treadle.ops.reduce import broadcast_to, reduce_sum
from treadle.ops.shape import concatenate, reshape, slice_


def fits(kernel: TensorType, groups: int, padding: Pairs, dilation: Ints) -> bool:
    """One input and one output channel per group, and a small kernel without gaps that no padding covers."""
    window = kernel.shape[2:]
    inside = all(0 <= p < w for w, pair in zip(window, padding) for p in pair)
    return kernel.shape[:2] == (groups, 1) and groups > 1 and set(dilation) == {1} and inside and is_small(window)


def _element(w: Value, at: Ints, like: Value) -> Value:
    """Element `at` of each channel's kernel, for each element of the channel in `like` [N, C, *t]."""
    starts, limits = (0, 0, *at), (*w.shape[:2], *[a + 1 for a in at])
    one = slice_(w, starts=starts, limits=limits, strides=(1,) * w.ndim)
    spread_out: Value = broadcast_to(reshape(one, shape=(w.shape[0],) + (1,) * len(at)), shape=like.shape)
    return spread_out


def forward(x: Value, w: Value, stride: Ints, padding: Pairs) -> Any:
    """The form of `conv`."""
    window, kernel = w.shape[2:], in_sum_type(w)
    parts = parts_of(in_sum_type(x), window, stride, padding, 0)
    y = total_of([part * _element(kernel, at, part) for at, part in zip(offsets(window), parts)])
    return cast(y, dtype=x.dtype)


def input_grad(dy: Value, w: Value, input_size: Ints, stride: Ints, padding: Pairs) -> Any:
    """The form of `conv_input_grad`."""
    kernel = in_sum_type(w)

    def give(at: Ints, d: Value) -> Value:
        return d * _element(kernel, at, d)

    dx = spread([(in_sum_type(dy), 0)], give, input_size, w.shape[2:], stride, padding)
    return cast(dx, dtype=dy.dtype)


def weight_grad(x: Value, dy: Value, kernel_size: Ints, stride: Ints, padding: Pairs) -> Any:
    """The form of `conv_weight_grad`."""
    d, others = in_sum_type(dy), (0, *range(2, dy.ndim))
    parts = parts_of(in_sum_type(x), kernel_size, stride, padding, 0)
    sums = [reshape(reduce_sum(part * d, axes=others), shape=(x.shape[1], 1)) for part in parts]
    dw = reshape(concatenate(*sums, axis=1), shape=(x.shape[1], 1, *kernel_size))
    return cast(dw, dtype=x.dtype)
