"""Transposed convolution layers over one to three spatial axes. Data [N, C, *spatial] (or without N)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from treadle.base.errors import UserError
from treadle.nn import functional as F
from treadle.nn import init
from treadle.nn.cell import Cell, Parameter
from treadle.nn.functional.patches import size_for
from treadle.nn.functional.window import Sizes, per_axis


class _ConvTranspose(Cell):
    """The gradient of a convolution for its input, plus bias: each element of x times the kernel, added up.

    weight: float[C, O / groups, *kernel], bias: float[O], both begin even in +-1 / sqrt(O / groups * kernel's
    elements), as PyTorch's. Sizes: (n - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1.
    forward(x, output_size=None): a size that the stride leaves open may be given instead of output_padding. Source:
    Dumoulin & Visin 2016, arXiv:1603.07285. Raises E0552 when groups do not divide the channels, E0541 for sizes.
    """

    rank = 0

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        dtype: Any = None,
    ) -> None:
        if groups < 1 or in_channels % groups or out_channels % groups:
            why = f"{in_channels} input and {out_channels} output channels in {groups} groups"
            raise UserError("E0552", why, fix="use groups that divide both")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = per_axis(kernel_size, self.rank, "kernel_size")
        self.stride = per_axis(stride, self.rank, "stride")
        self.padding = per_axis(padding, self.rank, "padding")
        self.output_padding = per_axis(output_padding, self.rank, "output_padding")
        self.dilation = per_axis(dilation, self.rank, "dilation")
        shape = (in_channels, out_channels // groups, *self.kernel_size)
        bound = 1 / math.sqrt(max(math.prod(shape[1:]), 1))
        self.weight = Parameter(init.uniform(shape, -bound, bound, dtype))
        self.bias = Parameter(init.uniform((out_channels,), -bound, bound, dtype)) if bias else None

    def forward(self, x: Any, output_size: Sequence[int] | None = None) -> Any:
        convolve = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[self.rank - 1]
        extra = self.output_padding if output_size is None else self._extra(x, output_size)
        return convolve(x, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation)

    def _extra(self, x: Any, output_size: Sequence[int]) -> tuple[int, ...]:
        """The output_padding that gives these sizes. Raises E0541 when none does."""
        wanted = size_for(output_size, self.rank)
        places = tuple(x.shape)[-self.rank :]
        spans = zip(places, self.kernel_size, self.stride, self.padding, self.dilation, strict=True)
        least = [(n - 1) * s - 2 * p + d * (k - 1) + 1 for n, k, s, p, d in spans]
        extra = tuple([w - n for w, n in zip(wanted, least, strict=True)])
        if any(not 0 <= e < s for e, s in zip(extra, self.stride, strict=True)):
            most = [n + s - 1 for n, s in zip(least, self.stride, strict=True)]
            raise UserError("E0541", f"output_size {wanted}", fix=f"give sizes from {least} to {most}")
        return extra

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        for name, usual in (("padding", 0), ("output_padding", 0), ("dilation", 1)):
            if getattr(self, name) != (usual,) * self.rank:
                text += f", {name}={getattr(self, name)}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        return text if self.bias is not None else text + ", bias=False"


class ConvTranspose1d(_ConvTranspose):
    __doc__ = f"float[N, C, L] -> float[N, O, L']. {_ConvTranspose.__doc__}"
    rank = 1


class ConvTranspose2d(_ConvTranspose):
    __doc__ = f"float[N, C, H, W] -> float[N, O, H', W']. {_ConvTranspose.__doc__}"
    rank = 2


class ConvTranspose3d(_ConvTranspose):
    __doc__ = f"float[N, C, D, H, W] -> float[N, O, D', H', W']. {_ConvTranspose.__doc__}"
    rank = 3
