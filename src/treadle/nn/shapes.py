"""Cells that pad, rearrange, compare or pool to a given size. Data [N, C, *spatial] unless a cell says otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from treadle.nn import functional as F
from treadle.nn import init
from treadle.nn.cell import Cell, Parameter


# ------------------------------------------------------------------------------------------------------- padding
class _Pad(Cell):
    """padding: one int for all sides, or (before, after) of the last axis, then of the one before it, and so on."""

    rank, mode = 1, "constant"

    def __init__(self, padding: int | tuple[int, ...]) -> None:
        self.padding = (padding,) * (2 * self.rank) if isinstance(padding, int) else tuple(padding)

    def forward(self, x: Any) -> Any:
        return F.pad(x, self.padding, self.mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    def __init__(self, padding: int | tuple[int, ...], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, x: Any) -> Any:
        return F.pad(x, self.padding, "constant", self.value)


class ConstantPad1d(_ConstantPad):
    """`value` around the last axis."""


class ConstantPad2d(_ConstantPad):
    """`value` around the last two axes."""

    rank = 2


class ConstantPad3d(_ConstantPad):
    """`value` around the last three axes."""

    rank = 3


class ZeroPad1d(_Pad):
    """Zeros around the last axis."""


class ZeroPad2d(_Pad):
    """Zeros around the last two axes."""

    rank = 2


class ZeroPad3d(_Pad):
    """Zeros around the last three axes."""

    rank = 3


class ReflectionPad1d(_Pad):
    """The last axis mirrored at its ends, which are not repeated."""

    mode = "reflect"


class ReflectionPad2d(ReflectionPad1d):
    """The last two axes mirrored at their ends, which are not repeated."""

    rank = 2


class ReflectionPad3d(ReflectionPad1d):
    """The last three axes mirrored at their ends, which are not repeated."""

    rank = 3


class ReplicationPad1d(_Pad):
    """The ends of the last axis repeated."""

    mode = "replicate"


class ReplicationPad2d(ReplicationPad1d):
    """The ends of the last two axes repeated."""

    rank = 2


class ReplicationPad3d(ReplicationPad1d):
    """The ends of the last three axes repeated."""

    rank = 3


class CircularPad1d(_Pad):
    """The last axis continued from its other end."""

    mode = "circular"


class CircularPad2d(CircularPad1d):
    """The last two axes continued from their other ends."""

    rank = 2


class CircularPad3d(CircularPad1d):
    """The last three axes continued from their other ends."""

    rank = 3


# ------------------------------------------------------------------------------------------------------- pooling
class _Adaptive(Cell):
    pool: Callable[..., Any]

    def __init__(self, output_size: Any) -> None:
        self.output_size = tuple(output_size) if isinstance(output_size, list) else output_size

    def forward(self, x: Any) -> Any:
        return type(self).pool(x, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_Adaptive):
    """The means of output_size windows of the last axis."""

    pool = staticmethod(F.adaptive_avg_pool1d)


class AdaptiveAvgPool3d(_Adaptive):
    """The means of windows of the last three axes: [..., *output_size]; None keeps a size."""

    pool = staticmethod(F.adaptive_avg_pool3d)


class _AdaptiveMax(_Adaptive):
    """return_indices: (values, indices), the places in the channel."""

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, x: Any) -> Any:
        return type(self).pool(x, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMax):
    """The largest elements of output_size windows of the last axis."""

    pool = staticmethod(F.adaptive_max_pool1d)


class AdaptiveMaxPool2d(_AdaptiveMax):
    """The largest elements of windows of the last two axes: [..., *output_size]; None keeps a size."""

    pool = staticmethod(F.adaptive_max_pool2d)


class AdaptiveMaxPool3d(_AdaptiveMax):
    """The largest elements of windows of the last three axes: [..., *output_size]; None keeps a size."""

    pool = staticmethod(F.adaptive_max_pool3d)


# ------------------------------------------------------------------------------------------------------- other shapes
class Unflatten(Cell):
    """The axis `dim` as several of the sizes `unflattened_size`."""

    def __init__(self, dim: int, unflattened_size: tuple[int, ...]) -> None:
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, x: Any) -> Any:
        return F.unflatten(x, self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class PixelShuffle(Cell):
    """[..., C * r * r, H, W] -> [..., C, H * r, W * r]."""

    def __init__(self, upscale_factor: int) -> None:
        self.upscale_factor = upscale_factor

    def forward(self, x: Any) -> Any:
        return F.pixel_shuffle(x, self.upscale_factor)


class ChannelShuffle(Cell):
    """Channels of float[N, C, ...] mixed between the groups: [g * k] read as [g, k], written as [k, g]."""

    def __init__(self, groups: int) -> None:
        self.groups = groups

    def forward(self, x: Any) -> Any:
        return F.channel_shuffle(x, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"


class PixelUnshuffle(Cell):
    """[..., C, H * r, W * r] -> [..., C * r * r, H, W]."""

    def __init__(self, downscale_factor: int) -> None:
        self.downscale_factor = downscale_factor

    def forward(self, x: Any) -> Any:
        return F.pixel_unshuffle(x, self.downscale_factor)


# ------------------------------------------------------------------------------------------------------- two inputs
class CosineSimilarity(Cell):
    """The cosine of the angle between x and y along `dim`."""

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        self.dim, self.eps = dim, eps

    def forward(self, x: Any, y: Any) -> Any:
        return F.cosine_similarity(x, y, self.dim, self.eps)


class PairwiseDistance(Cell):
    """The p-norm of x - y + eps along the last axis."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        self.p, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x: Any, y: Any) -> Any:
        return F.pairwise_distance(x, y, self.p, self.eps, self.keepdim)


class Bilinear(Cell):
    """x[..., i] * weight[o, i, j] * y[..., j] + bias[o]; weight and bias begin even in +-1 / sqrt(in1_features)."""

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True, dtype: Any = None
    ) -> None:
        bound = 1 / math.sqrt(max(in1_features, 1))
        self.weight = Parameter(init.uniform((out_features, in1_features, in2_features), -bound, bound, dtype))
        self.bias = Parameter(init.uniform((out_features,), -bound, bound, dtype)) if bias else None

    def forward(self, x: Any, y: Any) -> Any:
        return F.bilinear(x, y, self.weight, self.bias)

    def extra_repr(self) -> str:
        outs, n, m = self.weight.shape
        return f"in1_features={n}, in2_features={m}, out_features={outs}, bias={self.bias is not None}"
