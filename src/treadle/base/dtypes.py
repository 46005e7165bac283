"""Element types: name, NumPy type, kind and the promotion rule of NumPy with weak Python scalars.

A `DType` prints as its short name (`f32`); `of(x)` finds the one of a NumPy type, a name or a Python scalar type.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from treadle.base.errors import UserError


@dataclass(frozen=True, eq=False)
class DType:
    """One element type. `kind`: b bool, i signed, u unsigned, f float, c complex; `bits`: width of one element."""

    short: str
    name: str
    kind: str
    bits: int

    @cached_property
    def np(self) -> np.dtype[Any]:
        """The NumPy dtype (bf16 comes from ml_dtypes, loaded when first asked for)."""
        if self.name == "bfloat16":
            import ml_dtypes

            bf16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
            return bf16
        return np.dtype(self.name)

    @property
    def bytes(self) -> int:
        """Bytes of one element in memory; bool takes one."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_inexact(self) -> bool:
        """Float or complex: what a derivative can be taken of."""
        return self.kind in "fc"

    @property
    def is_integer(self) -> bool:
        return self.kind in "iu"

    def __str__(self) -> str:
        return self.short

    def __repr__(self) -> str:
        return f"treadle.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return of, (self.name,)


bool_ = DType("bool", "bool", "b", 1)
int8, int16 = DType("i8", "int8", "i", 8), DType("i16", "int16", "i", 16)
int32, int64 = DType("i32", "int32", "i", 32), DType("i64", "int64", "i", 64)
uint8, uint16 = DType("u8", "uint8", "u", 8), DType("u16", "uint16", "u", 16)
uint32, uint64 = DType("u32", "uint32", "u", 32), DType("u64", "uint64", "u", 64)
float16, bfloat16 = DType("f16", "float16", "f", 16), DType("bf16", "bfloat16", "f", 16)
float32, float64 = DType("f32", "float32", "f", 32), DType("f64", "float64", "f", 64)
complex64, complex128 = DType("c64", "complex64", "c", 64), DType("c128", "complex128", "c", 128)

ALL = (
    bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
    float16, bfloat16, float32, float64, complex64, complex128,
)  # fmt: skip
__all__ = [
    "bfloat16", "bool_", "complex64", "complex128", "float16", "float32", "float64", "int8", "int16", "int32", "int64",
    "uint8", "uint16", "uint32", "uint64",
]  # fmt: skip
_BY_NAME = {d.name: d for d in ALL} | {d.short: d for d in ALL}


@lru_cache(maxsize=256)
def of(what: Any) -> DType:
    """The DType of a DType, a name ("float32", "f32"), a NumPy dtype or scalar type, or bool/int/float/complex.

    Raises E0101 for anything else (strings, objects, dates).
    """
    if isinstance(what, DType):
        return what
    if isinstance(what, str) and what in _BY_NAME:
        return _BY_NAME[what]
    if what in _PYTHON:
        return _PYTHON[what]
    try:
        name = "None" if what is None else np.dtype(what).name  # NumPy takes None for float64
    except TypeError:
        name = str(what)
    if name not in _BY_NAME:
        raise UserError("E0101", f"{what!r} is not an element type", fix="use one of " + ", ".join(d.name for d in ALL))
    return _BY_NAME[name]


_PYTHON: dict[Any, DType] = {bool: bool_, int: int64, float: float32, complex: complex64}


@lru_cache(maxsize=1024)
def promote(*types: DType) -> DType:
    """The element type that holds values of all `types`, by NumPy's table; bf16 with f16 gives f32.

    bf16 with an integer or bool gives bf16, as an integer with f16 of NumPy would be widened by size only.
    """
    if len(set(types)) == 1:
        return types[0]
    if bfloat16 in types:
        rest = [t for t in types if t is not bfloat16]
        floats = [t for t in rest if t.is_inexact]
        return promote(*(float32 if t is float16 else t for t in floats)) if floats else bfloat16
    return of(np.result_type(*(t.np for t in types)).name)


def check_fits(number: Any, dtype: DType) -> None:
    """Raise E0115 when an integer type cannot hold the number."""
    if dtype.is_integer and isinstance(number, int) and not isinstance(number, bool):
        low = -(1 << (dtype.bits - 1)) if dtype.kind == "i" else 0
        high = (1 << (dtype.bits - (dtype.kind == "i"))) - 1
        if not low <= number <= high:
            raise UserError("E0115", f"{number} is not in {low} to {high}, the range of {dtype.name}", fix="cast first")


def promote_scalar(dtype: DType, scalar: type) -> DType:
    """The type of `tensor op python_scalar`: the scalar is weak, so only a higher *kind* changes the tensor's type."""
    if scalar is bool or dtype.kind == "c":
        return dtype
    if scalar is int:
        return int64 if dtype.kind == "b" else dtype
    if scalar is float:
        return dtype if dtype.is_float else float32
    return complex128 if dtype is float64 else complex64
