"""Convolutions over three axes as ones over two, for which there are kernels: `as_planes(fn)`.

A slice of the result needs as many slices of the source as the kernel is deep: they become channels of one image, and
the slices of the result images of their own. So all sums stay sums of one convolution (16-bit floats are rounded once);
the source is copied as often as the kernel is deep.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from treadle.base.dtypes import bfloat16, float16, float32
from treadle.ir.node import Fn, Node, Value
from treadle.ir.rewrite import note, rebuild
from treadle.ops.convolution import conv, conv_input_grad, conv_weight_grad
from treadle.ops.creation import full
from treadle.ops.shape import concatenate, pad, reshape, slice_, transpose

MOST_BYTES = 1 << 29  # of the copies of a source


def as_planes(fn: Fn) -> Fn:
    """`fn` with its convolutions and gradients over three axes as ones over two; itself where there are none. Of 16 and
    32 bits; those of nothing, or of which the copies would be large, stay."""

    def visit(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        if node.op.rules.get("group") != "convolution" or node.inputs[0].ndim != 5 or not _pays(node):
            return None
        note(f"{node.op.name} over three axes as one over two")
        attrs = {k: v[1:] if isinstance(v, tuple) else v for k, v in node.attrs.items()}
        way = _forward if node.op is conv else _data_gradient if node.op is conv_input_grad else _weight_gradient
        return [way(node, inputs, attrs)]

    return rebuild(fn, visit)


def _pays(node: Node) -> bool:
    deep = (node.inputs[1] if node.op is not conv_weight_grad else node.outputs[0]).shape[2]
    source = node.inputs[0]
    slices = (node.inputs[1] if node.op is conv_weight_grad else node.outputs[0]).shape[2]
    moved = source.type.bytes // max(source.shape[2], 1) * deep * slices
    empty = 0 in [n for v in (*node.inputs, *node.outputs) for n in v.shape]
    return source.dtype in (float32, bfloat16, float16) and not empty and moved <= MOST_BYTES


def _forward(node: Node, inputs: tuple[Value, ...], attrs: dict[str, Any]) -> Any:
    x, w = inputs
    made = conv(_windows(node, x, w.shape[2], node.outputs[0].shape[2]), _flat(w), **attrs)
    return _volume(made, node.outputs[0])


def _weight_gradient(node: Node, inputs: tuple[Value, ...], attrs: dict[str, Any]) -> Any:
    x, dy = inputs
    deep = node.outputs[0].shape[2]
    made = conv_weight_grad(_windows(node, x, deep, dy.shape[2]), _images([dy]), **attrs)
    return reshape(made, shape=node.outputs[0].shape)


def _data_gradient(node: Node, inputs: tuple[Value, ...], attrs: dict[str, Any]) -> Any:
    """A slice of dx is made of the slices of dy that have read it: of every `stride`th, with zeros between them."""
    dy, w = inputs
    (low, _), stride, apart = node.attrs["padding"][0], node.attrs["stride"][0], node.attrs["dilation"][0]
    deep, count, length = w.shape[2], node.outputs[0].shape[2], (dy.shape[2] - 1) * stride + 1
    before, after = max((deep - 1) * apart - low, 0), max(count + low - length, 0)
    spread = _padded(dy, before, after, stride - 1)
    starts = [before + low - k * apart for k in range(deep)]
    weights = _flat(transpose(w, perm=(0, 2, 1, 3, 4)), joined=(0, 1))
    made = conv_input_grad(_images([_slices(spread, at, count, 1) for at in starts]), weights, **attrs)
    return _volume(made, node.outputs[0])


def _windows(node: Node, x: Value, deep: int, count: int) -> Any:
    """The slices of x that each slice of y reads, [n * count, channels * deep, height, width]."""
    (low, high), stride, apart = node.attrs["padding"][0], node.attrs["stride"][0], node.attrs["dilation"][0]
    inside = _slices(x, max(-low, 0), x.shape[2] - max(-low, 0) - max(-high, 0), 1)
    whole = _padded(inside, max(low, 0), max(high, 0), 0)
    return _images([_slices(whole, k * apart, count, stride) for k in range(deep)])


def _padded(x: Value, low: int, high: int, interior: int) -> Any:
    """Zeros before, behind and between the slices."""
    if low == high == interior == 0:
        return x
    low_, high_, between = ((0, 0, n, 0, 0) for n in (low, high, interior))
    zero = full(value=0.0, shape=(), dtype=x.dtype)
    return pad(x, zero, low=low_, high=high_, interior=between)


def _slices(x: Value, start: int, count: int, stride: int) -> Any:
    limits = (*x.shape[:2], start + (count - 1) * stride + 1, *x.shape[3:])
    if start == 0 and limits == x.shape and stride == 1:
        return x
    return slice_(x, starts=(0, 0, start, 0, 0), limits=limits, strides=(1, 1, stride, 1, 1))


def _images(parts: Sequence[Value]) -> Any:
    """Volumes [n, channels, slices, *size] side by side as images [n * slices, channels * number of parts, *size]."""
    n, channels, count, height, width = parts[0].shape
    turned = [transpose(x, perm=(0, 2, 1, 3, 4)) for x in parts]
    if len(parts) > 1:
        turned = [concatenate(*[reshape(x, shape=(n, count, channels, 1, height, width)) for x in turned], axis=3)]
    return reshape(turned[0], shape=(n * count, channels * len(parts), height, width))


def _flat(w: Value, joined: tuple[int, int] = (1, 2)) -> Any:
    """Weights with two neighbouring axes as one."""
    first, last = joined
    shape = (*w.shape[:first], prod(w.shape[first : last + 1]), *w.shape[last + 1 :])
    return reshape(w, shape=shape)


def _volume(images: Value, like: Value) -> Any:
    """Images of slices as the volumes of `like`."""
    n, channels, count, *size = like.shape
    return transpose(reshape(images, shape=(n, count, channels, *size)), perm=(0, 2, 1, 3, 4))
