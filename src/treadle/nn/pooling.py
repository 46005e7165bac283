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


class MaxPool1d(_Pool):
    """The largest element of each window of the last axis; padding never wins."""

    def forward(self, x: Any) -> Any:
        return F.max_pool1d(x, self.kernel_size, self.stride, self.padding)


class MaxPool2d(_Pool):
    """The largest element of each window of the last two axes; padding never wins."""

    def forward(self, x: Any) -> Any:
        return F.max_pool2d(x, self.kernel_size, self.stride, self.padding)


class _AvgPool(_Pool):
    def __init__(
        self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, count_include_pad: bool = True
    ) -> None:
        super().__init__(kernel_size, stride, padding)
        self.count_include_pad = count_include_pad


class AvgPool1d(_AvgPool):
    """The mean of each window of the last axis; padding counts as zeros unless count_include_pad is False."""

    def forward(self, x: Any) -> Any:
        return F.avg_pool1d(x, self.kernel_size, self.stride, self.padding, self.count_include_pad)


class AvgPool2d(_AvgPool):
    """The mean of each window of the last two axes; padding counts as zeros unless count_include_pad is False."""

    def forward(self, x: Any) -> Any:
        return F.avg_pool2d(x, self.kernel_size, self.stride, self.padding, self.count_include_pad)


class AdaptiveAvgPool2d(Cell):
    """The means of windows of the last two axes: [..., *output_size]; None keeps a size."""

    def __init__(self, output_size: Any) -> None:
        self.output_size = output_size

    def forward(self, x: Any) -> Any:
        return F.adaptive_avg_pool2d(x, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"
