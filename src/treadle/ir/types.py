"""Types of IR values. `f32[2, 3]` makes a `TensorType`; it prints the same way without spaces: `f32[2,3]`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from treadle.base import dtypes
from treadle.base.dtypes import DType


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type and sizes of a tensor; sizes are Python ints, all known."""

    dtype: DType
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype.short}[{','.join(map(str, self.shape))}]"

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.size * self.dtype.bytes

    def with_shape(self, shape: tuple[int, ...]) -> TensorType:
        return TensorType(self.dtype, shape)

    def with_dtype(self, dtype: DType) -> TensorType:
        return TensorType(dtype, self.shape)


Types = tuple[TensorType, ...]


class _Maker:
    """`f32[2, 3]`, `f32[()]` and `f32[shape]`."""

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype

    def __getitem__(self, shape: int | tuple[int, ...]) -> TensorType:
        return TensorType(self.dtype, shape if isinstance(shape, tuple) else (shape,))


bool_ = _Maker(dtypes.bool_)
i8, i16, i32, i64 = (_Maker(d) for d in (dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64))
u8, u16, u32, u64 = (_Maker(d) for d in (dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64))
f16, bf16, f32, f64 = (_Maker(d) for d in (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64))
c64, c128 = _Maker(dtypes.complex64), _Maker(dtypes.complex128)


def type_of(array: Any) -> TensorType:
    """The type of anything with a NumPy-like `dtype` and `shape`."""
    return TensorType(dtypes.of(array.dtype), tuple(array.shape))


class Literal:
    """An immutable array as an attribute: equal when type and bytes are equal (so -0.0 and NaN payloads count)."""

    __slots__ = ("_hash", "array")

    def __init__(self, array: Any) -> None:
        frozen = np.array(array, copy=True, order="C")
        frozen.setflags(write=False)
        self.array: np.ndarray[Any, Any] = frozen
        self._hash = hash((str(frozen.dtype), frozen.shape, frozen.tobytes()))

    @property
    def type(self) -> TensorType:
        return type_of(self.array)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Literal):
            return NotImplemented
        a, b = self.array, other.array
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Literal({self.type})"
