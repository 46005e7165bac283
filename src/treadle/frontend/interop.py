"""Tensors beside other libraries: DLPack both ways, the device's name, NumPy's array protocol, how tensors are printed.

A tensor's value never changes, so memory is shared only where the caller says copy=False: `x.__dlpack__(copy=False)`
and `np.asarray(x, copy=False)` give what may be read alone; `from_dlpack(x, copy=False)` reads memory that its owner
must leave as it is for as long as the tensor lives. Everything else is a copy.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle.base import dtypes
from treadle.base.errors import UserError, UserValueError
from treadle.frontend import trace as tracing
from treadle.frontend.lift import fresh, integer, make_tensor
from treadle.ir import build
from treadle.ir.node import Value

__all__ = ["from_dlpack", "printoptions", "set_printoptions"]


class _Runtime:
    """The part of the runtime that tensors need here; the driver puts it in place."""

    def __init__(self) -> None:
        self.dlpack: Any = None


runtime = _Runtime()


def _dlpack() -> Any:
    if runtime.dlpack is None:
        raise UserError("E0203", "tensors need the runtime", fix="import treadle, not its parts")
    return runtime.dlpack


def known(x: Any, wanted: str) -> Any:
    """The array of a tensor whose numbers are known. Raises E0204 where they are not, while tracing."""
    if tracing.is_symbolic(x):
        why = f"{wanted} of a tensor {x.type} is asked for while the function is being traced: it has no value yet"
        raise UserError("E0204", why, fix="return the tensor and use it outside, or run in eager mode")
    if tracing.current() is not None:
        x.numpy()  # the trace takes note of numbers that are read
    return x._value


def device_name(value: Any = None) -> str:
    """The device of a value as "platform:number"; of a host array, a traced value or nothing the default one."""
    name: str = _dlpack().device_name(None if isinstance(value, Value) else value)
    return name


def export(x: Any, stream: Any, max_version: Any, dl_device: Any, copy: bool | None) -> Any:
    """The capsule of `Tensor.__dlpack__`."""
    return _dlpack().export(known(x, "the memory"), stream, max_version, dl_device, copy)


def exported_device(x: Any) -> tuple[int, int]:
    """DLPack's numbers of the device that the memory of `export` is on."""
    found: tuple[int, int] = _dlpack().device_numbers(known(x, "the device"))
    return found


def from_dlpack(x: Any, *, copy: bool | None = None) -> Any:
    """A tensor of an object with `__dlpack__`: an array of NumPy, PyTorch, JAX, CuPy and others, of any layout.

    copy=False reads the owner's memory (on the CPU), which nobody may write any more: the first operation may copy it
    or not. Raises E0102 for another object, E0101 for an element type that Treadle does not have, BufferError where
    copy=False cannot be had.
    """
    if not hasattr(x, "__dlpack__") or not hasattr(x, "__dlpack_device__"):
        raise UserError("E0102", f"{type(x).__name__} has no __dlpack__", fix="use td.tensor for other data")
    from treadle.frontend.tensor import Tensor

    value = _dlpack().take(x, copy)
    dtypes.of(value.dtype)
    if isinstance(value, np.ndarray) and (copy is not False or build.active()):
        return make_tensor(value)
    return Tensor._of(value)


def numpy_view(x: Any, dtype: Any = None) -> np.ndarray[Any, Any]:
    """The memory of an eager tensor as a read-only array. Raises E0103, a ValueError too as NumPy's protocol has it,
    for another type; E0204 while tracing."""
    array: np.ndarray[Any, Any] = _dlpack().host_view(known(x, "the memory"))
    if dtype is not None and np.dtype(dtype) != array.dtype:
        why = f"a tensor {x.type} becomes {np.dtype(dtype)} by a copy only"
        raise UserValueError("E0103", why, fix="leave copy=False out")
    return array


class StandardMethods:
    """Methods that the array API standard asks of arrays, mixed into `Tensor`."""

    __slots__ = ()

    @property
    def device(self: Any) -> str:
        """The device, as "platform:number"."""
        return device_name(self._value)

    def to_device(self: Any, device: Any, /, *, stream: Any = None) -> Any:
        """The same elements on that device, the one that this process runs on (E0103 for another)."""
        if device != device_name():
            why = f"device {device!r}"
            raise UserError("E0103", why, fix=f"use {device_name()!r}, the one that this process runs on")
        return fresh(self)

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        """`treadle.array`. Raises E0103, a ValueError too, for a version that it does not keep to."""
        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
            raise UserValueError("E0103", f"version {api_version!r} of the array API", fix="ask for 2024.12 or none")
        return importlib.import_module("treadle.array")

    def __dlpack__(
        self,
        /,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: Any = None,
        copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule: a copy; with copy=False the tensor's own memory, which the reader must not write (it is
        marked so for readers of version 1.0).

        Raises BufferError, as the protocol says, for a device that the tensor cannot be copied to, and where
        copy=False cannot be had; E0204 while tracing.
        """
        return export(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's numbers of the device: (1, 0) is the CPU. Raises E0204 while tracing."""
        return exported_device(self)


# -------------------------------------------------------------------------------------------------------- printing
_OPTIONS: dict[str, Any] = {}


def set_printoptions(
    *,
    precision: int | None = None,
    threshold: int | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    suppress: bool | None = None,
) -> None:
    """How tensors print: digits after the point, number of elements from which on the middle is left out, how many are
    shown at each end, characters per line, no powers of ten. What is not given is as it was; at first NumPy's options.

    Raises E0103 for a negative number.
    """
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    for name, number in given.items():
        if number is not None and integer(number, name) < 0:
            raise UserError("E0103", f"{name} {number}", fix="give a number of 0 or more")
    given["suppress"] = suppress
    _OPTIONS.update({name: value for name, value in given.items() if value is not None})


@contextlib.contextmanager
def printoptions(**options: Any) -> Iterator[None]:
    """`with td.printoptions(precision=3):` other options, as `set_printoptions`, inside the block."""
    before = dict(_OPTIONS)
    try:
        set_printoptions(**options)
        yield
    finally:
        _OPTIONS.clear()
        _OPTIONS.update(before)


def text_of(array: np.ndarray[Any, Any], prefix: str) -> str:
    """The elements as text, and the shape where it cannot be read off them: of empty arrays and where some are left
    out."""
    with np.printoptions(**_OPTIONS):
        text = np.array2string(array, separator=", ", prefix=prefix)
        hidden = array.size > np.get_printoptions()["threshold"] or (array.size == 0 and array.ndim > 1)
    return f"{text}, shape={array.shape}" if hidden else text
