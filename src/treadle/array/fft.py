"""The Fourier transforms of the standard, over `td.fft`. float32 gives complex64; integers become float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle.array._types import checked_device
from treadle.base import dtypes
from treadle.frontend import fft as ft
from treadle.frontend import functions as td
from treadle.frontend.lift import integer, lift, make_tensor

__all__ = [
    "fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft", "irfftn", "rfft",
    "rfftfreq", "rfftn",
]  # fmt: skip

Many = Sequence[int] | None
# The direction that divides by the size, seen from the transform of the other direction.
_OTHER = {"backward": "forward", "forward": "backward"}


def fft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """The Fourier transform along an axis, first cut or continued with zeros to n elements. Raises E0103, E0107."""
    return ft.fft(x, n, axis, norm)


def ifft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """The inverse of `fft`."""
    return ft.ifft(x, n, axis, norm)


def rfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """The first n // 2 + 1 elements of `fft` of real x."""
    return ft.rfft(x, n, axis, norm)


def irfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """The n (default 2 * (size - 1)) real numbers whose `rfft` is x."""
    return ft.irfft(x, n, axis, norm)


def hfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """The n (default 2 * (size - 1)) real numbers that are the `fft` of a signal with Hermitian symmetry."""
    return ft.irfft(td.conj(lift(x)), n, axis, _OTHER.get(norm, norm))


def ihfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """The inverse of `hfft`: n // 2 + 1 complex numbers of real x."""
    return td.conj(ft.rfft(x, n, axis, _OTHER.get(norm, norm)))


def fftn(x: Any, /, *, s: Many = None, axes: Many = None, norm: str = "backward") -> Any:
    """`fft` along several axes (default all); s: their sizes."""
    return ft.fftn(x, s, axes, norm)


def ifftn(x: Any, /, *, s: Many = None, axes: Many = None, norm: str = "backward") -> Any:
    """The inverse of `fftn`."""
    return ft.ifftn(x, s, axes, norm)


def rfftn(x: Any, /, *, s: Many = None, axes: Many = None, norm: str = "backward") -> Any:
    """`rfft` along the last of the axes, then `fft` along the others."""
    return ft.rfftn(x, s, axes, norm)


def irfftn(x: Any, /, *, s: Many = None, axes: Many = None, norm: str = "backward") -> Any:
    """The inverse of `rfftn`."""
    return ft.irfftn(x, s, axes, norm)


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
    """The frequencies of `fft` of n samples that are d apart, in cycles per unit of d."""
    checked_device(device)
    kind = dtypes.float32 if dtype is None else dtypes.of(dtype)
    return make_tensor(np.fft.fftfreq(integer(n, "n"), d).astype(kind.np))


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
    """The frequencies of `rfft`: n // 2 + 1 of them."""
    checked_device(device)
    kind = dtypes.float32 if dtype is None else dtypes.of(dtype)
    return make_tensor(np.fft.rfftfreq(integer(n, "n"), d).astype(kind.np))


def fftshift(x: Any, /, *, axes: Any = None) -> Any:
    """Frequency 0 moved to the middle of the axes (default all)."""
    return ft.fftshift(x, axes)


def ifftshift(x: Any, /, *, axes: Any = None) -> Any:
    """The inverse of `fftshift`."""
    return ft.ifftshift(x, axes)
