"""Changing the element type, and hiding a value from differentiation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle.base.dtypes import DType, bfloat16, bool_, complex64, float16, float32, float64, int8, int32, uint8
from treadle.base.errors import UserError
from treadle.ir.node import Value
from treadle.ir.op import get
from treadle.ir.types import TensorType, f32, f64, i32
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._types import floats, same_inexact


@op(jvp="linear", axes="... -> ...", hlo=lambda b, x, *, dtype: b.convert(x, b.types[0], b.out[0]))
def cast(x: Value, *, dtype: DType) -> Any:
    """x with elements of type `dtype`: floats to integers round toward zero, anything to bool is `!= 0`.

    A float outside the integer's range gives its nearest number, NaN gives 0. Raises E0111 for complex to real.
    """


cast.kernel(lambda b, x, *, dtype: b.convert(x, b.dtypes[0], dtype))


@cast.type
def _(x: TensorType, *, dtype: DType) -> TensorType:
    if x.dtype.kind == "c" and dtype.kind not in "cb":
        raise UserError("E0111", f"{x} to {dtype} would drop the imaginary part", fix="take real(x) first")
    return x.with_dtype(dtype)


@cast.ref
def _(x: Any, *, dtype: DType) -> Any:
    if dtype is bool_:
        return x != 0
    if dtype.is_integer and x.dtype.kind not in "biu":
        return _nearest_whole(x.astype(np.float64), dtype)
    return np.asarray(x).astype(dtype.np)


def _nearest_whole(x: Any, dtype: DType) -> Any:
    """Cut toward zero, within the range of the integer type; NaN gives 0. NumPy leaves both undefined."""
    info = np.iinfo(dtype.np)
    low, high = x <= info.min, x >= info.max
    inside = np.where(low | high | np.isnan(x), 0, x).astype(dtype.np)
    return np.where(low, info.min, np.where(high, info.max, inside)).astype(dtype.np)


@cast.onnx
def _(g: Any, x: Any, *, dtype: DType) -> Any:
    return g.node("Cast", x, to=dtype)


@cast.grad
def _(x: Value, out: Value, d: Value, *, dtype: DType) -> tuple[Value | None]:
    if not (x.dtype.is_inexact and dtype.is_inexact):
        return (None,)
    real = get("real")  # of complex.py, which needs this file
    return (cast(real(d) if dtype.kind == "c" and x.dtype.is_float else d, dtype=x.dtype),)


@cast.samples
def _(s: Samples) -> Iterator[Sample]:
    yield s(f64[2, 3], dtype=float32, tol=1e-6, gradient=False)
    yield s(f32[2, 3], dtype=float64)
    yield s(f32[3], dtype=bfloat16)
    yield s(f32[3], dtype=float16)
    yield s(np.array([-1.7, 0.0, 2.9]), dtype=int32)
    yield s(np.array([-1e10, 3e9, np.inf, np.nan, -2.5], np.float32), dtype=int32)
    yield s(np.array([-1.5, 300.0, 255.5, 7.9]), dtype=uint8)
    yield s(np.array([0.0, 2.0, -0.0]), dtype=bool_)
    yield s(np.array([0, 3, 0], np.int32), dtype=bool_)
    yield s(np.array([True, False]), dtype=float32)
    yield s(i32[()], dtype=uint8)
    yield s(i32[0, 2], dtype=int8)
    yield s(f32[2], dtype=complex64)
    yield s(np.array([1 + 2j]), dtype=float64, bad="E0111")


@op(
    type=same_inexact,
    ref=lambda x: x,
    axes="... -> ...",
    hlo=lambda b, x: x,
    onnx="Identity",
    samples=floats(1, gradient=False),
)
def stop_gradient(x: Value) -> Any:
    """x itself; its derivative is zero. Raises E0106 for integers."""


stop_gradient.kernel(lambda b, x: b.exact(x))


@stop_gradient.jvp
def _(run: Any, inputs: tuple[Value, ...], tangents: Any) -> tuple[tuple[Value, ...], tuple[None]]:
    return (stop_gradient(*inputs),), (None,)


@stop_gradient.reverse
def _(run: Any, inputs: tuple[Value, ...], flags: tuple[bool, ...]) -> tuple[tuple[Value, ...], None]:
    """No pullback: what is computed from the result is not differentiated, so it may lack a derivative."""
    return (stop_gradient(*inputs),), None
