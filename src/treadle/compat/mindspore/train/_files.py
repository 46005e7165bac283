"""Checkpoint files in MindSpore's own format: named arrays in, bytes out, and back.

The file is a protocol buffer: a list of values, each with a tag (the name) and a tensor (sizes, type name, bytes). A
large tensor may come in pieces with one tag. The sizes of a 0-d tensor are [0].
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.compat.mindspore._tensor import type_name

Array = np.ndarray[Any, Any]
_TYPES = {type_name(d): d for d in dtypes.ALL}
_VALUE, _TAG, _TENSOR, _DIMS, _TYPE, _CONTENT = 1, 1, 2, 1, 2, 3
_VARINT, _BYTES = 0, 2
_PIECE = 1 << 28  # bytes of one piece of a large tensor


def _number(n: int) -> bytes:
    """A varint: seven bits a byte, the lowest first."""
    made = bytearray()
    while n > 0x7F:
        made.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*made, n])


def _field(number: int, data: bytes) -> bytes:
    return _number(number << 3 | _BYTES) + _number(len(data)) + data


def write(arrays: Mapping[str, Array]) -> bytes:
    """The bytes of a checkpoint file."""
    parts = []
    for name, array in arrays.items():
        sizes = array.shape or (0,)
        head = b"".join(_number(_DIMS << 3 | _VARINT) + _number(n) for n in sizes)
        head += _field(_TYPE, type_name(dtypes.of(array.dtype)).encode())
        data = np.ascontiguousarray(array).tobytes()
        for start in range(0, max(len(data), 1), _PIECE):
            tensor = head + _field(_CONTENT, data[start : start + _PIECE])
            parts.append(_field(_VALUE, _field(_TAG, name.encode()) + _field(_TENSOR, tensor)))
    return b"".join(parts)


def _damaged(why: str) -> UserError:
    return UserError("E0603", f"the checkpoint cannot be read: {why}", fix="use another file")


def _read_number(data: memoryview, place: int) -> tuple[int, int]:
    """(the varint at a place, the place after it)."""
    value = shift = 0
    while True:
        if place >= len(data) or shift > 63:
            raise _damaged("it ends inside a number")
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place


def _fields(data: memoryview) -> Iterator[tuple[int, Any]]:
    """(number, value) of each field of a message: an int, or its bytes."""
    place = 0
    while place < len(data):
        key, place = _read_number(data, place)
        if key & 7 == _VARINT:
            value, place = _read_number(data, place)
            yield key >> 3, value
        elif key & 7 == _BYTES:
            size, place = _read_number(data, place)
            if place + size > len(data):
                raise _damaged("it ends inside a tensor")
            yield key >> 3, data[place : place + size]
            place += size
        else:
            raise _damaged(f"a field of kind {key & 7}")


def _tensor(message: memoryview) -> tuple[tuple[int, ...], str, bytes]:
    sizes: list[int] = []
    kind, content = "", b""
    for number, value in _fields(message):
        if number == _DIMS:
            sizes += [value] if isinstance(value, int) else _packed(value)
        elif number == _TYPE:
            kind = bytes(value).decode()
        elif number == _CONTENT:
            content = bytes(value)
    return tuple(sizes), kind, content


def _packed(data: memoryview) -> list[int]:
    numbers, place = [], 0
    while place < len(data):
        n, place = _read_number(data, place)
        numbers.append(n)
    return numbers


def read(data: bytes) -> dict[str, Array]:
    """The named arrays of a checkpoint file. Raises E0603 for a damaged file or another format."""
    found: dict[str, tuple[tuple[int, ...], str, list[bytes]]] = {}
    for number, message in _fields(memoryview(data)):
        if number != _VALUE or isinstance(message, int):
            continue
        fields = dict(_fields(message))
        if _TAG not in fields or _TENSOR not in fields:
            raise _damaged("a value has no tensor")
        sizes, kind, content = _tensor(fields[_TENSOR])
        name = bytes(fields[_TAG]).decode()
        found.setdefault(name, (sizes, kind, []))[2].append(content)
    return {name: _array(name, *parts) for name, parts in found.items()}


def _array(name: str, sizes: tuple[int, ...], kind: str, pieces: list[bytes]) -> Array:
    if kind not in _TYPES:
        raise _damaged(f"{name} is of type {kind!r}")
    data, dtype = b"".join(pieces), _TYPES[kind].np
    if sizes == (0,) and len(data) == dtype.itemsize:
        sizes = ()
    if math.prod(sizes) * dtype.itemsize != len(data):
        raise _damaged(f"{name} has {len(data)} bytes for {kind}{list(sizes)}")
    return np.frombuffer(data, dtype).reshape(sizes)
