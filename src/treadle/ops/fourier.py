"""Discrete Fourier transforms along the last axis; transforms of several axes are made of these in `treadle.fft`.

y[k] = sum over j of x[j] * exp(-2 pi i j k / n), as NumPy; the inverse has the other sign and 1 / n.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from treadle.base.dtypes import complex64, complex128, float32, float64
from treadle.base.errors import UserError
from treadle.ir.node import Value
from treadle.ir.types import TensorType, c64, c128, f32, f64, i32
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._matrices import NO_ONNX
from treadle.ops.casting import cast
from treadle.ops.compare import equal, logical_or, select
from treadle.ops.complex import conj, real
from treadle.ops.creation import full, iota
from treadle.ops.shape import pad

COMPLEX = {float32: complex64, float64: complex128}
REAL = {v: k for k, v in COMPLEX.items()}


def _last(x: TensorType, kinds: Any, word: str) -> int:
    """The size of the last axis. Raises E0106 for other element types, E0182 without a last axis with elements."""
    if x.dtype not in kinds:
        raise UserError("E0106", f"needs {word} tensors, got {x}", fix="cast it first: x.astype(...)")
    if x.rank == 0 or x.shape[-1] == 0:
        raise UserError("E0182", f"{x} has no last axis with elements to transform", fix="give it one element or more")
    return x.shape[-1]


def _complex_type(x: TensorType) -> TensorType:
    _last(x, REAL, "complex")
    return x


def _transform(name: str) -> Callable[..., Any]:
    """The hlo rule of a transform of this kind."""

    def rule(b: Any, x: Any, n: int = 0) -> Any:
        length = n or b.types[0].shape[-1]
        if b.out[0].size == 0:
            return b.splat(0, b.out[0])
        return b.op("fft", x, fft_type=f"#stablehlo<fft_type {name}>", fft_length=(length,))

    return rule


def _complexes(s: Samples) -> Iterator[Sample]:
    for t in (c128[4], c128[3], c128[2, 5], c128[2, 1, 1], c128[0, 3], c64[2, 6]):
        yield s(t)
    yield s(f64[3], bad="E0106")
    yield s(c128[2, 0], bad="E0182")


@op(jvp="linear", type=_complex_type, ref=np.fft.fft, axes="... !n -> ... !m", hlo=_transform("FFT"), onnx=NO_ONNX)
def fft(x: Value) -> Any:
    """The Fourier transform of the last axis. x: complex[..., n]. Raises E0106 for real tensors, E0182 for n = 0."""


fft.samples(_complexes)


@fft.grad
def _(x: Value, out: Value, d: Value) -> tuple[Value]:
    return (fft(d),)


@op(jvp="linear", type=_complex_type, ref=np.fft.ifft, axes="... !n -> ... !m", hlo=_transform("IFFT"), onnx=NO_ONNX)
def ifft(x: Value) -> Any:
    """The inverse Fourier transform of the last axis. x: complex[..., n]. Raises E0106, E0182."""


ifft.samples(_complexes)


@ifft.grad
def _(x: Value, out: Value, d: Value) -> tuple[Value]:
    return (ifft(d),)


@op(jvp="linear", ref=np.fft.rfft, axes="... !n -> ... !m", hlo=_transform("RFFT"), onnx=NO_ONNX)
def rfft(x: Value) -> Any:
    """The first n // 2 + 1 elements of the Fourier transform of the last axis; the others are their conjugates.

    x: float[..., n] -> complex[..., n // 2 + 1]. Raises E0106 for complex tensors, E0182 for n = 0.
    """


@rfft.type
def _(x: TensorType) -> TensorType:
    n = _last(x, COMPLEX, "float32 or float64")
    return TensorType(COMPLEX[x.dtype], (*x.shape[:-1], n // 2 + 1))


@rfft.grad
def _(x: Value, out: Value, d: Value) -> tuple[Value]:
    """The transform with the elements that are not given as zeros."""
    n, r = x.shape[-1], x.ndim
    zero = cast(full(value=0, shape=(), dtype=x.dtype), dtype=d.dtype)
    high = (0,) * (r - 1) + (n - d.shape[-1],)
    return (real(fft(pad(d, zero, low=(0,) * r, high=high, interior=(0,) * r))),)


@rfft.samples
def _(s: Samples) -> Iterator[Sample]:
    for t in (f64[4], f64[5], f64[2, 6], f64[2, 1, 1], f64[0, 3], f32[2, 7]):
        yield s(t)
    yield s(i32[3], bad="E0106")
    yield s(f64[2, 0], bad="E0182")


@op(jvp="linear", axes="... !n -> ... !m", hlo=_transform("IRFFT"), onnx=NO_ONNX)
def irfft(x: Value, *, n: int) -> Any:
    """The n real numbers whose `rfft` is x: the inverse transform of x continued by its conjugates.

    x: complex[..., n // 2 + 1] -> float[..., n]. Raises E0106 for real tensors, E0182 for other sizes.
    """


@irfft.type
def _(x: TensorType, *, n: int) -> TensorType:
    size = _last(x, REAL, "complex")
    if n < 1 or size != n // 2 + 1:
        why = f"{n} real numbers have {n // 2 + 1} complex ones, x is {x}"
        raise UserError("E0182", why, fix="cut x or pad it with zeros")
    return TensorType(REAL[x.dtype], (*x.shape[:-1], n))


@irfft.ref
def _(x: Any, *, n: int) -> Any:
    return np.fft.irfft(x, n)


@irfft.grad
def _(x: Value, out: Value, d: Value, *, n: int) -> tuple[Value]:
    """Each element but the first, and the middle one of an even n, also stands for its conjugate."""
    part = d.dtype
    places = iota(shape=x.shape, axis=x.ndim - 1, dtype=part)
    single = equal(places, 0) if n % 2 else logical_or(equal(places, 0), equal(places, n // 2))
    ones = full(value=1, shape=x.shape, dtype=part)
    weight = select(single, ones, 2 * ones) / n
    return (conj(rfft(d)) * cast(weight, dtype=x.dtype),)


@irfft.samples
def _(s: Samples) -> Iterator[Sample]:
    for t, n in ((c128[3], 4), (c128[3], 5), (c128[2, 4], 6), (c128[2, 1], 1), (c128[0, 2], 3), (c64[2, 4], 7)):
        yield s(t, n=n)
    yield s(f64[3], n=4, bad="E0106")
    yield s(c128[3], n=7, bad="E0182")
