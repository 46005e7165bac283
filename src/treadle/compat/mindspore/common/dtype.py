"""Element types under MindSpore's names: they are Treadle's own. Also `dtype_to_nptype`, `pytype_to_dtype`."""

from __future__ import annotations

from typing import Any

from treadle.base import dtypes
from treadle.base.dtypes import (
    bfloat16,
    bool_,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)

half, single, double = float16, float32, float64
byte, short, intc, intp = int8, int16, int32, int64
ubyte, ushort, uintc, uintp = uint8, uint16, uint32, uint64
float_, int_, uint = float32, int64, uint64
Type = dtypes.DType
float_type = (float16, float32, float64, bfloat16)
int_type, uint_type = (int8, int16, int32, int64), (uint8, uint16, uint32, uint64)
number_type = (*int_type, *uint_type, *float_type, complex64, complex128)


def dtype_to_nptype(type_: Any) -> Any:
    """The NumPy type of an element type."""
    return dtypes.of(type_).np.type


def pytype_to_dtype(obj: Any) -> Any:
    """The element type of a Python or NumPy type."""
    return dtypes.of(obj)


def dtype_to_pytype(type_: Any) -> Any:
    """The Python type whose numbers an element type holds."""
    return {"b": bool, "i": int, "u": int, "f": float, "c": complex}[dtypes.of(type_).kind]


__all__ = [
    "Type",
    "bfloat16",
    "bool_",
    "byte",
    "complex128",
    "complex64",
    "double",
    "dtype_to_nptype",
    "dtype_to_pytype",
    "float16",
    "float32",
    "float64",
    "float_",
    "half",
    "int16",
    "int32",
    "int64",
    "int8",
    "int_",
    "intc",
    "intp",
    "pytype_to_dtype",
    "short",
    "single",
    "ubyte",
    "uint",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
    "uintc",
    "uintp",
    "ushort",
]
