"""Pooling layers of data [N, C, *spatial] (or without N)."""

from __future__ import annotations

from typing import Any

from treadle.nn import functional as F
from treadle.nn.cell import Cell
from treadle.nn.functional.window import Sizes


class _Pool(Cell):
    """stride None: the window's size."""

    def __init__(self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0) -> None:
        self.kernel_size, self.padding = kernel_size, padding
        self.stride = kernel_size if stride is None else stride

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _MaxPool(_Pool):
    """The largest element of each window; padding never wins.

    dilation: how far a window's elements stand apart. return_indices: (values, places in the channel). ceil_mode: a
    last window that begins inside counts, even where it reaches beyond the padding.
    """

    rank = 0

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__(kernel_size, stride, padding)
        self.dilation, self.return_indices, self.ceil_mode = dilation, return_indices, ceil_mode

    def forward(self, x: Any) -> Any:
        pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[self.rank - 1]
        window = (self.kernel_size, self.stride, self.padding, self.dilation)
        return pool(x, *window, self.ceil_mode, self.return_indices)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, dilation={self.dilation}, ceil_mode={self.ceil_mode}"


class MaxPool1d(_MaxPool):
    __doc__ = f"Over the last axis. {_MaxPool.__doc__}"
    rank = 1


class MaxPool2d(_MaxPool):
    __doc__ = f"Over the last two axes. {_MaxPool.__doc__}"
    rank = 2


class MaxPool3d(_MaxPool):
    __doc__ = f"Over the last three axes. {_MaxPool.__doc__}"
    rank = 3


class _AvgPool(_Pool):
    """The mean of each window; padding counts as zeros unless count_include_pad is False.

    ceil_mode: a last window that begins inside counts, even where it reaches beyond the padding.
    """

    rank = 1

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(kernel_size, stride, padding)
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, x: Any) -> Any:
        window = (self.kernel_size, self.stride, self.padding)
        return F.avg_pool1d(x, *window, self.ceil_mode, self.count_include_pad)


class _AvgPoolOver(_AvgPool):
    """The mean of each window, or its sum over divisor_override; count_include_pad: padding counts as zeros.

    ceil_mode: a last window that begins inside counts, even where it reaches beyond the padding.
    """

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)
        self.divisor_override = divisor_override

    def forward(self, x: Any) -> Any:
        pool = F.avg_pool2d if self.rank == 2 else F.avg_pool3d
        window = (self.kernel_size, self.stride, self.padding)
        return pool(x, *window, self.ceil_mode, self.count_include_pad, self.divisor_override)


class AvgPool1d(_AvgPool):
    __doc__ = f"Over the last axis. {_AvgPool.__doc__}"


class AvgPool2d(_AvgPoolOver):
    __doc__ = f"Over the last two axes. {_AvgPoolOver.__doc__}"
    rank = 2


class AvgPool3d(_AvgPoolOver):
    __doc__ = f"Over the last three axes. {_AvgPoolOver.__doc__}"
    rank = 3


class AdaptiveAvgPool2d(Cell):
    """The means of windows of the last two axes: [..., *output_size]; None keeps a size."""

    def __init__(self, output_size: Any) -> None:
        self.output_size = output_size

    def forward(self, x: Any) -> Any:
        return F.adaptive_avg_pool2d(x, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"
