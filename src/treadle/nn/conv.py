"""Convolution layers over one to three spatial axes. Data [N, C, *spatial] (or without N); initialised as PyTorch's."""

from __future__ import annotations

import math
from typing import Any

from treadle.base import arguments
from treadle.base.errors import UserError
from treadle.nn import functional as F
from treadle.nn import init
from treadle.nn.cell import Cell, Parameter
from treadle.nn.functional.window import Sizes, pads, per_axis


class _Conv(Cell):
    """y = x * weight + bias (cross-correlation). weight: float[O, C / groups, *kernel], bias: float[O].

    padding: ints, "valid" (none) or "same" (as many outputs as inputs, for stride 1). padding_mode: "zeros", "reflect",
    "replicate" or "circular". Raises E0541 for another mode, E0552 when groups do not divide the channels.
    """

    rank = 0

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        dtype: Any = None,
    ) -> None:
        in_channels, out_channels = (arguments.count(n, "a number of channels") for n in (in_channels, out_channels))
        groups = arguments.count(groups, "groups", 1)
        if in_channels % groups or out_channels % groups:
            why = f"{in_channels} input and {out_channels} output channels in {groups} groups"
            raise UserError("E0552", why, fix="use groups that divide both")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = per_axis(kernel_size, self.rank, "kernel_size")
        self.stride = per_axis(stride, self.rank, "stride")
        self.dilation = per_axis(dilation, self.rank, "dilation")
        if isinstance(padding, str) and padding not in ("valid", "same"):
            raise UserError("E0541", f"padding is {padding!r}", fix="give ints, 'valid' or 'same'")
        self.padding = padding if isinstance(padding, str) else per_axis(padding, self.rank, "padding")
        if padding_mode not in ("zeros", "reflect", "replicate", "circular"):
            fix = "use 'zeros', 'reflect', 'replicate' or 'circular'"
            raise UserError("E0541", f"padding_mode is {padding_mode!r}", fix=fix)
        self.padding_mode = padding_mode
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        bound = 1 / math.sqrt(max(math.prod(shape[1:]), 1))
        self.weight = Parameter(init.uniform(shape, -bound, bound, dtype))
        self.bias = Parameter(init.uniform((out_channels,), -bound, bound, dtype)) if bias else None

    def forward(self, x: Any) -> Any:
        convolve = (F.conv1d, F.conv2d, F.conv3d)[self.rank - 1]
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            pairs = pads(padding, self.kernel_size, self.stride, self.dilation)
            x = F.pad(x, [n for pair in reversed(pairs) for n in pair], self.padding_mode)
            padding = 0
        return convolve(x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if self.padding != (0,) * self.rank:
            text += f", padding={self.padding}"
        if self.dilation != (1,) * self.rank:
            text += f", dilation={self.dilation}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode!r}"
        return text if self.bias is not None else text + ", bias=False"


class Conv1d(_Conv):
    __doc__ = f"float[N, C, L] -> float[N, O, L']. {_Conv.__doc__}"
    rank = 1


class Conv2d(_Conv):
    __doc__ = f"float[N, C, H, W] -> float[N, O, H', W']. {_Conv.__doc__}"
    rank = 2


class Conv3d(_Conv):
    __doc__ = f"float[N, C, D, H, W] -> float[N, O, D', H', W']. {_Conv.__doc__}"
    rank = 3
