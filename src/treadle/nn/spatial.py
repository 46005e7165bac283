"""Cells that resize, take windows apart, pool by norm or at random steps, or undo pooling. Data [N, C, *spatial]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle.base.errors import UserError
from treadle.nn import functional as F
from treadle.nn.cell import Cell
from treadle.nn.functional.window import Sizes


# ------------------------------------------------------------------------------------------------------- resizing
class Upsample(Cell):
    """x resized to `size`, or by `scale_factor`; see `functional.interpolate` for the modes. Raises E0566."""

    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        self.size, self.scale_factor, self.mode = size, scale_factor, mode
        self.align_corners, self.recompute_scale_factor = align_corners, recompute_scale_factor

    def forward(self, x: Any) -> Any:
        scaling = (self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor)
        return F.interpolate(x, *scaling)

    def extra_repr(self) -> str:
        sizes = f"size={self.size}" if self.scale_factor is None else f"scale_factor={self.scale_factor}"
        return f"{sizes}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """[N, C, H, W] resized: each element of the result is the nearest one of x. Raises E0566."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """[N, C, H, W] resized by straight lines, corners on corners. Raises E0566."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "bilinear", True)


# -------------------------------------------------------------------------------------------------------- windows
class Unfold(Cell):
    """The windows of an image as columns: float[N, C, H, W] -> float[N, C * KH * KW, number of windows]."""

    def __init__(self, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1) -> None:
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, x: Any) -> Any:
        return F.unfold(x, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        sizes = f"kernel_size={self.kernel_size}, dilation={self.dilation}"
        return f"{sizes}, padding={self.padding}, stride={self.stride}"


class Fold(Cell):
    """The columns that `Unfold` makes added up again: float[N, C * KH * KW, L] -> float[N, C, *output_size]."""

    def __init__(
        self, output_size: Sizes, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1
    ) -> None:
        self.output_size = output_size
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, x: Any) -> Any:
        return F.fold(x, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        sizes = f"output_size={self.output_size}, kernel_size={self.kernel_size}, dilation={self.dilation}"
        return f"{sizes}, padding={self.padding}, stride={self.stride}"


# -------------------------------------------------------------------------------------------------------- pooling
class _MaxUnpool(Cell):
    def __init__(self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0) -> None:
        self.kernel_size, self.padding = kernel_size, padding
        self.stride = kernel_size if stride is None else stride

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """Undoes max pooling of the last axis: zeros but for x at the indices that it gave."""

    def forward(self, x: Any, indices: Any, output_size: Sequence[int] | None = None) -> Any:
        return F.max_unpool1d(x, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool2d(_MaxUnpool):
    """Undoes max pooling of the last two axes: zeros but for x at the indices that it gave."""

    def forward(self, x: Any, indices: Any, output_size: Sequence[int] | None = None) -> Any:
        return F.max_unpool2d(x, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool3d(_MaxUnpool):
    """Undoes max pooling of the last three axes: zeros but for x at the indices that it gave."""

    def forward(self, x: Any, indices: Any, output_size: Sequence[int] | None = None) -> Any:
        return F.max_unpool3d(x, indices, self.kernel_size, self.stride, self.padding, output_size)


class _LPPool(Cell):
    def __init__(
        self, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
    ) -> None:
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def extra_repr(self) -> str:
        sizes = f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}"
        return f"{sizes}, ceil_mode={self.ceil_mode}"


class LPPool1d(_LPPool):
    """The p-norm of each window of the last axis, p = norm_type."""

    def forward(self, x: Any) -> Any:
        return F.lp_pool1d(x, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)


class LPPool2d(_LPPool):
    """The p-norm of each window of the last two axes, p = norm_type."""

    def forward(self, x: Any) -> Any:
        return F.lp_pool2d(x, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)


class LPPool3d(_LPPool):
    """The p-norm of each window of the last three axes, p = norm_type."""

    def forward(self, x: Any) -> Any:
        return F.lp_pool3d(x, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)


class _FractionalMaxPool(Cell):
    def __init__(
        self,
        kernel_size: Sizes,
        output_size: Sizes | None = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Any = None,
    ) -> None:
        if (output_size is None) == (output_ratio is None):
            why = "fractional pooling needs either output_size or output_ratio"
            raise UserError("E0566", why, fix="give one of them")
        self.kernel_size, self.output_size, self.output_ratio = kernel_size, output_size, output_ratio
        self.return_indices, self._random_samples = return_indices, _random_samples

    def extra_repr(self) -> str:
        size = f"output_size={self.output_size}" if self.output_ratio is None else f"output_ratio={self.output_ratio}"
        return f"kernel_size={self.kernel_size}, {size}"


class FractionalMaxPool2d(_FractionalMaxPool):
    """The largest elements of windows of the last two axes at random steps. Source: Graham 2014, arXiv:1412.6071."""

    def forward(self, x: Any) -> Any:
        sizes = (self.kernel_size, self.output_size, self.output_ratio)
        return F.fractional_max_pool2d(x, *sizes, self.return_indices, self._random_samples)


class FractionalMaxPool3d(_FractionalMaxPool):
    """The largest elements of windows of the last three axes at random steps. Source: Graham 2014, arXiv:1412.6071."""

    def forward(self, x: Any) -> Any:
        sizes = (self.kernel_size, self.output_size, self.output_ratio)
        return F.fractional_max_pool3d(x, *sizes, self.return_indices, self._random_samples)
