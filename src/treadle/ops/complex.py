"""Complex numbers and their parts. Cotangents pair with complex inputs without conjugation: dL = Re(cotangent * dz)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.ir.node import Value
from treadle.ir.op import No
from treadle.ir.types import TensorType, bf16, c64, c128, f32, f64
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._types import promoted, same, same_kind
from treadle.ops.casting import cast

NO_ONNX = No("few ONNX operators take complex numbers")
same_complex = same_kind("c", "complex")


def part_type(x: TensorType) -> TensorType:
    """The type of the real part of a complex tensor."""
    return same_complex(x).with_dtype(dtypes.float32 if x.dtype is dtypes.complex64 else dtypes.float64)


def complexes(s: Samples) -> Iterator[Sample]:
    """Complex tensors; real ones are wrong."""
    for t in (c128[()], c128[3], c64[2, 3], c128[1, 2], c64[0, 2]):
        yield s(t)
    yield s(f64[3], bad="E0106")


@op(jvp="linear", type=part_type, ref=np.real, axes="... -> ...", hlo="real", onnx=NO_ONNX, samples=complexes)
def real(x: Value) -> Any:
    """The real part of each element. x: complex[...]. Raises E0106 for real tensors."""


@real.grad
def _(x: Value, out: Value, d: Value) -> tuple[Value]:
    return (cast(d, dtype=x.dtype),)


@op(jvp="linear", type=part_type, ref=np.imag, axes="... -> ...", hlo="imag", onnx=NO_ONNX, samples=complexes)
def imag(x: Value) -> Any:
    """The imaginary part of each element. x: complex[...]. Raises E0106 for real tensors."""


@imag.grad
def _(x: Value, out: Value, d: Value) -> tuple[Value]:
    return (make_complex(0, -d),)


@op(jvp="linear", prepare=promoted, axes="..., ... -> ...", hlo="complex", onnx=NO_ONNX)
def make_complex(re: Value, im: Value) -> Any:
    """re + i im of each element. float32 gives complex64, float64 complex128. Raises E0106 for other types."""


@make_complex.type
def _(re: TensorType, im: TensorType) -> TensorType:
    kinds = {dtypes.float32: dtypes.complex64, dtypes.float64: dtypes.complex128}
    if re.dtype not in kinds:
        raise UserError("E0106", f"{re} cannot be a part of a complex tensor", fix="cast it to float32 or float64")
    return same(re, im).with_dtype(kinds[re.dtype])


@make_complex.ref
def _(re: Any, im: Any) -> Any:
    made = np.empty(re.shape, np.result_type(re, np.complex64))  # re + 1j * im would turn infinities into NaN
    made.real, made.imag = re, im
    return made


@make_complex.grad
def _(re: Value, im: Value, out: Value, d: Value) -> tuple[Value, Value]:
    return real(d), -imag(d)


@make_complex.samples
def _(s: Samples) -> Iterator[Sample]:
    for t in (f64[()], f64[2, 3], f32[3], f64[0, 2]):
        yield s(t, t)
    yield s(bf16[2], bf16[2], bad="E0106")


@op(
    type=same_complex, ref=np.conj, axes="... -> ...", onnx=NO_ONNX, samples=complexes,
    expand=lambda x: make_complex(real(x), -imag(x)),
)  # fmt: skip
def conj(x: Value) -> Any:
    """The complex conjugate of each element. Raises E0106 for real tensors."""


@conj.grad
def _(x: Value, out: Value, d: Value) -> tuple[Value]:
    return (conj(d),)
