"""Primitives of shapes, activations and layers: see `_primitive`."""

from __future__ import annotations

from typing import Any

from treadle.api.effects import show
from treadle.compat.mindspore.nn import layers
from treadle.compat.mindspore.ops import _make, _nn, _shape
from treadle.compat.mindspore.ops._primitive import _of
from treadle.nn.functional.window import per_axis

Reshape, Transpose = _of("Reshape", _shape.reshape), _of("Transpose", _shape.transpose)
ExpandDims, Squeeze = _of("ExpandDims", _shape.expand_dims), _of("Squeeze", _shape.squeeze, axis=None)
Flatten, Shape, Size, Rank = (
    _of("Flatten", _shape.flatten), _of("Shape", _shape.shape), _of("Size", _shape.size), _of("Rank", _shape.rank)
)  # fmt: skip
DType, Identity = _of("DType", _shape.dtype), _of("Identity", _shape.identity)
Concat, Stack = _of("Concat", _shape.concat, axis=0), _of("Stack", _shape.stack, axis=0)
Unstack = _of("Unstack", _shape.unstack, axis=0)
Split = _of("Split", _shape.split_in, axis=0, output_num=1)
Tile, BroadcastTo = _of("Tile", _shape.tile), _of("BroadcastTo", _shape.broadcast_to, shape=())
Pad = _of("Pad", _shape.pad, padding=())
StridedSlice, Slice = _of("StridedSlice", _shape.strided_slice), _of("Slice", _shape.slice_sized)
Gather, GatherD = _of("Gather", _shape.gather), _of("GatherD", _shape.gather_d)
GatherNd = _of("GatherNd", _shape.gather_nd)
TensorScatterUpdate = _of("TensorScatterUpdate", _shape.tensor_scatter_update)
MaskedFill = _of("MaskedFill", _shape.masked_fill)
Zeros, Ones, Fill = _of("Zeros", _make.zeros), _of("Ones", _make.ones), _of("Fill", _make.fill)
ZerosLike, OnesLike = _of("ZerosLike", _make.zeros_like), _of("OnesLike", _make.ones_like)
Eye = _of("Eye", _make.eye)
ScalarToTensor = _of("ScalarToTensor", _make.scalar_to_tensor)


def _one_hot(indices: Any, depth: int, on_value: Any, off_value: Any, axis: int) -> Any:
    """on_value at the index and off_value elsewhere along a new axis."""
    return _shape.one_hot(indices, depth, on_value, off_value, axis)


OneHot = _of("OneHot", _one_hot, axis=-1)

ReLU, ReLU6, Sigmoid = _of("ReLU", _nn.relu), _of("ReLU6", _nn.relu6), _of("Sigmoid", _nn.sigmoid)
Tanh, Mish = _of("Tanh", _nn.tanh), _of("Mish", _nn.mish)
HSwish, HSigmoid = _of("HSwish", _nn.hardswish), _of("HSigmoid", _nn.hardsigmoid)
GeLU = _of("GeLU", lambda x: _nn.gelu(x, "tanh"))
Softmax, LogSoftmax = _of("Softmax", _nn.softmax, axis=-1), _of("LogSoftmax", _nn.log_softmax, axis=-1)
Elu = _of("Elu", _nn.elu, alpha=1.0)
SoftmaxCrossEntropyWithLogits = _of("SoftmaxCrossEntropyWithLogits", _nn.softmax_cross_entropy_with_logits)
SparseSoftmaxCrossEntropyWithLogits = _of(
    "SparseSoftmaxCrossEntropyWithLogits", _nn.sparse_softmax_cross_entropy, is_grad=False
)
L2Normalize = _of("L2Normalize", _nn.l2_normalize, axis=0, epsilon=1e-4)


def _dropout(x: Any, keep_prob: float, Seed0: int, Seed1: int) -> Any:
    """(each element 0 with chance 1 - keep_prob, else divided by keep_prob; the mask)."""
    made = _nn.dropout(x, 1 - keep_prob)
    return made, (made != 0).astype(x.dtype)


Dropout = _of("Dropout", _dropout, keep_prob=0.5, Seed0=0, Seed1=0)
StandardNormal = _of("StandardNormal", lambda shape, seed, seed2: _nn.standard_normal(shape), seed=0, seed2=0)


def _conv2d(x: Any, weight: Any, out_channel: Any, kernel_size: Any, mode: int, **options: Any) -> Any:
    """Cross-correlation with options of `nn.Conv2d`."""
    options["padding"] = options.pop("pad")
    options["groups"] = options.pop("group")
    return _nn.conv2d(x, weight, None, **options)


Conv2D = _of(
    "Conv2D", _conv2d, out_channel=0, kernel_size=1, mode=1, pad_mode="valid", pad=0, stride=1, dilation=1, group=1
)  # fmt: skip


def _pool(kind: Any, x: Any, kernel_size: Any, strides: Any, pad_mode: str) -> Any:
    window = per_axis(kernel_size, 2, "kernel_size"), per_axis(strides, 2, "strides")
    return kind(*window, pad_mode.lower())(x)


MaxPool = _of(
    "MaxPool", lambda x, **o: _pool(layers.MaxPool2d, x, **o), kernel_size=1, strides=1, pad_mode="valid"
)  # fmt: skip
AvgPool = _of(
    "AvgPool", lambda x, **o: _pool(layers.AvgPool2d, x, **o), kernel_size=1, strides=1, pad_mode="valid"
)  # fmt: skip
Print = _of("Print", show)


__all__ = [
    "AvgPool", "BroadcastTo", "Concat", "Conv2D", "DType", "Dropout", "Elu", "ExpandDims", "Eye", "Fill", "Flatten",
    "Gather", "GatherD", "GatherNd", "GeLU", "HSigmoid", "HSwish", "Identity", "L2Normalize", "LogSoftmax",
    "MaskedFill", "MaxPool", "Mish", "OneHot", "Ones", "OnesLike", "Pad", "Print", "Rank", "ReLU", "ReLU6", "Reshape",
    "ScalarToTensor", "Shape", "Sigmoid", "Size", "Slice", "Softmax", "SoftmaxCrossEntropyWithLogits",
    "SparseSoftmaxCrossEntropyWithLogits", "Split", "Squeeze", "Stack", "StandardNormal", "StridedSlice", "Tanh",
    "TensorScatterUpdate", "Tile", "Transpose", "Unstack", "Zeros", "ZerosLike",
]  # fmt: skip
