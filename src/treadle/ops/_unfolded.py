"""Convolutions of small images with large kernels as one matrix product with the unfolded image ("im2col").

XLA's CPU back end (jaxlib 0.10.2) takes the image for the kernel where it is the smaller of the two, and then runs one
element at a time, a hundred times as slow; kernels of one element are faster so wherever there are few places. Each
function takes and gives values as the op of `convolution.py` of which it is a form; `fits` says when it may stand for
it.
Source: Chellapilla et al. 2006, "High Performance Convolutional Neural Networks for Document Processing".
"""

from __future__ import annotations

import math

from treadle.ir.node import Value
from treadle.ir.types import TensorType
from treadle.ops._pooling import in_sum_type, total_of
from treadle.ops._windows import Ints, Pairs, dilated, offsets
from treadle.ops.casting import cast
from treadle.ops.products import contract
from treadle.ops.shape import concatenate, pad, reshape, slice_, transpose

_LARGE = 2**12  # elements of a kernel; below, no form takes long
_PLACES, _TAPS = 64, 27


def fits(kernel: TensorType, groups: int, padding: Pairs, *sizes: Ints) -> bool:
    """A large kernel, not cropped by its padding, with more taps than the smallest of the images has places."""
    taps, places = math.prod(kernel.shape[2:]), min(math.prod(s) for s in sizes)
    few = places <= _PLACES if taps == 1 else places < taps <= _TAPS
    return groups == 1 and few and kernel.size >= _LARGE and all(p >= 0 for pair in padding for p in pair)


def forward(x: Value, w: Value, out: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> Value:
    """The form of `conv`; out: the spatial sizes of the result."""
    n, (o, c, *window) = x.shape[0], w.shape
    unfolded = _unfold(x, tuple(window), out, stride, padding, dilation)
    y = contract(reshape(w, shape=(o, c, math.prod(window))), unfolded, spec="ock,nckt->not")
    image: Value = reshape(y, shape=(n, o, *out))
    return image


def _unfold(x: Value, window: Ints, out: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> Value:
    """The elements of x [N, C, *s] under each element of the window at each of its places: [N, C, elements, places]."""
    (n, c), places = x.shape[:2], math.prod(out)
    if any(p > 0 for pair in padding for p in pair):
        low, high = ((0, 0, *[max(0, pair[i]) for pair in padding]) for i in (0, 1))
        x = pad(x, 0, low=low, high=high, interior=(0,) * x.ndim)
    if any(p < 0 for pair in padding for p in pair):
        starts = (0, 0, *[max(0, -a) for a, _ in padding])
        limits = (n, c, *[m - max(0, -b) for m, (_, b) in zip(x.shape[2:], padding)])
        x = slice_(x, starts=starts, limits=limits, strides=(1,) * x.ndim)
    parts = []
    for at in offsets(window):
        starts = tuple([k * d for k, d in zip(at, dilation)])
        limits = tuple([a + dilated(t, s) for a, t, s in zip(starts, out, stride)])
        part = slice_(x, starts=(0, 0, *starts), limits=(n, c, *limits), strides=(1, 1, *stride))
        parts.append(reshape(part, shape=(n, c, 1, places)))
    unfolded: Value = concatenate(*parts, axis=2)
    return unfolded


def weight_grad(
    x: Value, dy: Value, kernel_size: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int
) -> Value:
    """The form of `conv_weight_grad`, for any groups and padding."""
    (n, c), (_, o, *out) = x.shape[:2], dy.shape
    unfolded = _unfold(x, kernel_size, tuple(out), stride, padding, dilation)
    by_group = reshape(unfolded, shape=(n, groups, c // groups, *unfolded.shape[2:]))
    d = reshape(dy, shape=(n, groups, o // groups, math.prod(out)))
    dw: Value = reshape(contract(d, by_group, spec="ngot,ngckt->gock"), shape=(o, c // groups, *kernel_size))
    return dw


def input_grad(dy: Value, w: Value, size: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> Value:
    """The form of `conv_input_grad`; size: the spatial sizes of the result."""
    (n, o, *out), (_, c, *window) = dy.shape, w.shape
    places = math.prod(out)
    shares = contract(
        in_sum_type(reshape(dy, shape=(n, o, places))),
        in_sum_type(reshape(w, shape=(o, c, math.prod(window)))),
        spec="not,ock->ntck",
    )
    parts = []
    for i, at in enumerate(offsets(tuple(window))):
        part = slice_(shares, starts=(0, 0, 0, i), limits=(n, places, c, i + 1), strides=(1, 1, 1, 1))
        part = transpose(reshape(part, shape=(n, places, c)), perm=(0, 2, 1))
        low = [k * d for k, d in zip(at, dilation)]
        room = [m + a + b for m, (a, b) in zip(size, padding)]
        high = [m - dilated(t, s) - a for m, t, s, a in zip(room, out, stride, low)]
        gaps = (0, 0, *[s - 1 for s in stride])
        part = reshape(part, shape=(n, c, *out))
        parts.append(pad(part, 0, low=(0, 0, *low), high=(0, 0, *high), interior=gaps))
    starts = tuple([a for a, _ in padding])
    limits = (n, c, *[a + m for a, m in zip(starts, size)])
    dx = slice_(total_of(parts), starts=(0, 0, *starts), limits=limits, strides=(1,) * len(limits))
    rounded: Value = cast(dx, dtype=dy.dtype)
    return rounded
