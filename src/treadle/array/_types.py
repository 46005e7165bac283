"""Element types, devices and what the namespace can do: `isdtype`, `finfo`, `result_type`, `__array_namespace_info__`.

dtypes are Treadle's own; a device is the text "platform:number" of the one device that eager code runs on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from treadle.base import dtypes
from treadle.base.dtypes import DType
from treadle.base.errors import UserError
from treadle.frontend.elementwise import is_weak
from treadle.frontend.interop import device_name
from treadle.frontend.lift import cast, fresh, is_tensor, weak_type

# The standard has no 16-bit floats: Treadle's work, but are not listed.
_STANDARD = tuple([d for d in dtypes.ALL if d not in (dtypes.float16, dtypes.bfloat16)])
_KINDS = {
    "bool": "b",
    "signed integer": "i",
    "unsigned integer": "u",
    "integral": "iu",
    "real floating": "f",
    "complex floating": "c",
    "numeric": "iufc",
}


def checked_device(device: Any) -> None:
    """Raise E0103 for a device other than the one that eager code runs on (None: that one)."""
    here = device_name()
    if device is not None and device != here:
        raise UserError("E0103", f"device {device!r}", fix=f"use {here!r}, the one that this process runs on")


def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    """x with elements of type dtype; x itself if it has them and copy is False. Raises E0103 for another device."""
    checked_device(device)
    target = dtypes.of(dtype)
    if x.dtype is target and weak_type(x) is None:
        return fresh(x) if copy else x
    return cast(x, target)


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether the type (or that of an array) becomes `to` when the two meet, so that nothing is lost."""
    kind = dtypes.of(from_.dtype if is_tensor(from_) else from_)
    target = dtypes.of(to)
    return dtypes.promote(kind, target) is target


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The type that arrays and dtypes have together; Python numbers are weak. Raises E0103 for numbers alone."""
    strong = [dtypes.of(x.dtype if is_tensor(x) else x) for x in arrays_and_dtypes if not is_weak(x)]
    if not strong:
        raise UserError("E0103", "result_type without an array or dtype", fix="give one beside the Python numbers")
    found = dtypes.promote(*strong)
    for x in arrays_and_dtypes:
        if is_weak(x):
            found = dtypes.promote_scalar(found, weak_type(x) or type(x))
    return found


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether the dtype is `kind`: another dtype, the name of a kind ("integral", "real floating", ...), or one of a
    tuple of these. Raises E0103 for another name."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str):
        return dtypes.of(dtype).kind in _letters(kind)
    return dtypes.of(dtype) is dtypes.of(kind)


def _letters(kind: str) -> str:
    if kind not in _KINDS:
        raise UserError("E0103", f"there is no kind of dtype {kind!r}", fix="use one of " + ", ".join(_KINDS))
    return _KINDS[kind]


@dataclass(frozen=True)
class FloatInfo:
    """Limits of a float type; those of a complex type are its parts'."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True)
class IntegerInfo:
    """Limits of an integer type."""

    bits: int
    max: int
    min: int
    dtype: DType


def finfo(type: Any, /) -> FloatInfo:
    """The limits of a float or complex dtype (or array's). Raises E0106 for others."""
    kind = dtypes.of(type.dtype if is_tensor(type) else type)
    if not kind.is_inexact:
        raise UserError("E0106", f"finfo of {kind.name}", fix="use iinfo for integers")
    if kind.kind == "c":
        kind = dtypes.float32 if kind is dtypes.complex64 else dtypes.float64
    if kind is dtypes.bfloat16:  # 8 bits of exponent, 7 of fraction; NumPy does not know it
        most = (2 - 2.0**-7) * 2.0**127
        return FloatInfo(16, 2.0**-7, most, -most, 2.0**-126, kind)
    found = np.finfo(kind.np)
    eps, most, tiny = float(found.eps), float(found.max), float(found.smallest_normal)
    return FloatInfo(kind.bits, eps, most, -most, tiny, kind)


def iinfo(type: Any, /) -> IntegerInfo:
    """The limits of an integer dtype (or array's). Raises E0106 for others."""
    kind = dtypes.of(type.dtype if is_tensor(type) else type)
    if not kind.is_integer:
        raise UserError("E0106", f"iinfo of {kind.name}", fix="use finfo for floats")
    found = np.iinfo(kind.np)
    return IntegerInfo(kind.bits, int(found.max), int(found.min), kind)


class NamespaceInfo:
    """What `__array_namespace_info__()` gives: capabilities, devices and dtypes."""

    def capabilities(self) -> dict[str, Any]:
        """Masks as indices and results of unknown size: both only outside of traced functions."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

    def default_device(self) -> str:
        """The device of new arrays."""
        return device_name()

    def devices(self) -> list[str]:
        """The devices that arrays can be made on."""
        return [device_name()]

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """The types that Python numbers and positions get."""
        checked_device(device)
        return {
            "real floating": dtypes.float32,
            "complex floating": dtypes.complex64,
            "integral": dtypes.int64,
            "indexing": dtypes.int64,
        }

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        """The standard's dtypes by name, of one kind or several (a tuple) if asked for."""
        checked_device(device)
        kinds = kind if isinstance(kind, tuple) else (kind,)
        letters = "biufc" if kind is None else "".join(map(_letters, kinds))
        return {d.name: d for d in _STANDARD if d.kind in letters}


def one(f: Callable[[Any], Any], name: str) -> Callable[..., Any]:
    """f of one array, under the standard's name and with its signature."""

    def function(x: Any, /) -> Any:
        return f(x)

    return _named(function, f, name)


def two(f: Callable[[Any, Any], Any], name: str) -> Callable[..., Any]:
    """f of two arrays, one of which may be a Python number, under the standard's name and with its signature."""

    def function(x1: Any, x2: Any, /) -> Any:
        return f(x1, x2)

    return _named(function, f, name)


def _named(function: Callable[..., Any], f: Callable[..., Any], name: str) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f.__doc__
    return function
