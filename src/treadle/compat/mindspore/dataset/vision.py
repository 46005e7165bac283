"""Functions of one image [H, W, C] for `Dataset.map`: rescaling, normalising, the order of the axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class Rescale:
    """x * rescale + shift, float32."""

    def __init__(self, rescale: float, shift: float) -> None:
        self.rescale, self.shift = rescale, shift

    def __call__(self, x: Any) -> Array:
        return np.asarray(x, np.float32) * np.float32(self.rescale) + np.float32(self.shift)


class Normalize:
    """(x - mean) / std for each channel, float32; channels are the last axis if is_hwc, else the first."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], is_hwc: bool = True) -> None:
        self.mean, self.std, self.is_hwc = np.array(mean, np.float32), np.array(std, np.float32), is_hwc

    def __call__(self, x: Any) -> Array:
        x = np.asarray(x, np.float32)
        shape = (-1,) if self.is_hwc else (-1, *[1] * (x.ndim - 1))
        made: Array = (x - self.mean.reshape(shape)) / self.std.reshape(shape)
        return made


class HWC2CHW:
    """[H, W, C] -> [C, H, W]."""

    def __call__(self, x: Any) -> Array:
        return np.moveaxis(np.asarray(x), -1, 0)


__all__ = ["HWC2CHW", "Normalize", "Rescale"]
