"""`td.fft`: discrete Fourier transforms, as `numpy.fft`. Integers become float32; float32 gives complex64."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle import ops
from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.frontend import functions as td
from treadle.frontend import shaping
from treadle.frontend.lift import cast, floating, integer, lift, many_axes, one_axis

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "ifft", "ifft2", "ifftn", "ifftshift", "irfft", "irfft2", "irfftn",
    "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip

Sizes = Sequence[int] | None


def _complex(x: Any) -> Any:
    x = floating(x)
    if x.dtype.kind == "c":
        return x
    return cast(x, dtypes.complex128 if x.dtype is dtypes.float64 else dtypes.complex64)


def _real(x: Any) -> Any:
    x = floating(x)
    return cast(x, dtypes.float32) if x.dtype.kind == "f" and x.dtype.bits == 16 else x


def _sized(x: Any, n: int) -> Any:
    """The last axis cut, or continued with zeros, to n elements."""
    have = x.shape[-1]
    if n <= have:
        return shaping.cut(x, x.ndim - 1, 0, n)
    return shaping.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, n - have)])


def _along(op: Callable[..., Any], x: Any, n: int | None, axis: int, norm: str | None, inverse: bool) -> Any:
    """One transform along an axis; n: its size (of the result for irfft, which `op` then takes)."""
    at = one_axis(axis, x.ndim)
    moved = shaping.moveaxis(x, at, -1)
    if op is ops.irfft:
        count = 2 * (moved.shape[-1] - 1) if n is None else integer(n, "n")
        out = ops.irfft(_sized(moved, count // 2 + 1), n=count)
    else:
        count = moved.shape[-1] if n is None else integer(n, "n")
        out = op(moved if n is None else _sized(moved, count))
    return shaping.moveaxis(_scaled(out, count, norm, inverse), -1, at)


def _scaled(out: Any, n: int, norm: str | None, inverse: bool) -> Any:
    """`norm` says which direction divides by n: "backward" the inverse, "forward" the other, "ortho" both by a root."""
    if norm not in (None, "backward", "ortho", "forward"):
        raise UserError("E0103", f"norm {norm!r} of a transform", fix="use 'backward', 'ortho' or 'forward'")
    if norm in (None, "backward"):
        return out
    by = math.sqrt(n) if norm == "ortho" else float(n)
    return out * by if inverse else out / by


def fft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The Fourier transform along an axis, first cut or continued with zeros to n elements: complex.

    norm: "backward" (the inverse divides by n), "ortho", "forward". Raises E0103, E0107, E0182.
    """
    return _along(ops.fft, _complex(x), n, axis, norm, False)


def ifft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The inverse of `fft`. Raises as it."""
    return _along(ops.ifft, _complex(x), n, axis, norm, True)


def rfft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The first n // 2 + 1 elements of `fft` of real x. Raises as it, and E0106 for complex x."""
    return _along(ops.rfft, _real(x), n, axis, norm, False)


def irfft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The n (default 2 * (size - 1)) real numbers whose `rfft` is x. Raises as `fft`."""
    return _along(ops.irfft, _complex(x), n, axis, norm, True)


def _many(x: Any, s: Sizes, axes: Sequence[int] | None) -> list[tuple[int | None, int]]:
    """(size, axis) of each transform. Raises E0103 when the counts differ."""
    if axes is None:
        axes = list(range(x.ndim)) if s is None else list(range(x.ndim - len(s), x.ndim))
    if s is not None and len(s) != len(axes):
        raise UserError("E0103", f"{len(s)} sizes for {len(axes)} axes", fix="give one size per axis")
    return list(zip([None] * len(axes) if s is None else s, axes, strict=True))


def fftn(x: Any, s: Sizes = None, axes: Sequence[int] | None = None, norm: str | None = None) -> Any:
    """`fft` along several axes (default all); s: sizes. Raises as `fft`, E0103 when s and axes differ in count."""
    x = _complex(x)
    for n, axis in _many(x, s, axes):
        x = fft(x, n, axis, norm)
    return x


def ifftn(x: Any, s: Sizes = None, axes: Sequence[int] | None = None, norm: str | None = None) -> Any:
    """The inverse of `fftn`. Raises as it."""
    x = _complex(x)
    for n, axis in _many(x, s, axes):
        x = ifft(x, n, axis, norm)
    return x


def rfftn(x: Any, s: Sizes = None, axes: Sequence[int] | None = None, norm: str | None = None) -> Any:
    """`rfft` along the last of the axes, then `fft` along the others. Raises as they."""
    x = _real(x)
    *others, (n, axis) = _many(x, s, axes)
    x = rfft(x, n, axis, norm)
    for size, other in others:
        x = fft(x, size, other, norm)
    return x


def irfftn(x: Any, s: Sizes = None, axes: Sequence[int] | None = None, norm: str | None = None) -> Any:
    """The inverse of `rfftn`. Raises as it."""
    x = _complex(x)
    *others, (n, axis) = _many(x, s, axes)
    for size, other in others:
        x = ifft(x, size, other, norm)
    return irfft(x, n, axis, norm)


def fft2(x: Any, s: Sizes = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Any:
    """`fftn` along two axes."""
    return fftn(x, s, axes, norm)


def ifft2(x: Any, s: Sizes = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Any:
    """`ifftn` along two axes."""
    return ifftn(x, s, axes, norm)


def rfft2(x: Any, s: Sizes = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Any:
    """`rfftn` along two axes."""
    return rfftn(x, s, axes, norm)


def irfft2(x: Any, s: Sizes = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Any:
    """`irfftn` along two axes."""
    return irfftn(x, s, axes, norm)


def _shifted(x: Any, axes: Any, forward: bool) -> Any:
    x = lift(x)
    for axis in many_axes(axes, x.ndim):
        half = x.shape[axis] // 2
        x = td.roll(x, half if forward else -half, axis)
    return x


def fftshift(x: Any, axes: Any = None) -> Any:
    """Frequency 0 moved to the middle of the axes (default all). Raises E0107."""
    return _shifted(x, axes, True)


def ifftshift(x: Any, axes: Any = None) -> Any:
    """The inverse of `fftshift`. Raises E0107."""
    return _shifted(x, axes, False)


def fftfreq(n: int, d: float = 1.0, dtype: Any = dtypes.float32) -> Any:
    """The frequencies of `fft` of n samples that are d apart, in cycles per unit of d: [n]."""
    return lift(np.fft.fftfreq(integer(n, "n"), d).astype(dtypes.of(dtype).np))


def rfftfreq(n: int, d: float = 1.0, dtype: Any = dtypes.float32) -> Any:
    """The frequencies of `rfft`: [n // 2 + 1]."""
    return lift(np.fft.rfftfreq(integer(n, "n"), d).astype(dtypes.of(dtype).np))
