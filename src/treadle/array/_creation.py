"""New arrays, with the standard's arguments. Python floats become float32, ints int64, complex numbers complex64."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle.array._types import astype, checked_device, result_type
from treadle.base import dtypes
from treadle.base.errors import UserError, UserValueError
from treadle.frontend import create, shaping
from treadle.frontend.interop import from_dlpack as _from_dlpack
from treadle.frontend.lift import cast, integer, is_tensor, lift, make_tensor

Ints = int | tuple[int, ...]


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Any:
    """An array of a number, nested list, buffer or array. An array that fits already is given back unless `copy`.

    Raises E0103 for another device, and (a ValueError too) for copy=False where there is no way around a copy.
    """
    checked_device(device)
    if is_tensor(obj):
        same = dtype is None or dtypes.of(dtype) is obj.dtype
        if copy is False and not same:
            why = f"asarray: {obj.dtype} becomes {dtypes.of(dtype)} by a copy only"
            raise UserValueError("E0103", why, fix="leave copy=False out")
        return astype(obj, obj.dtype if dtype is None else dtype, copy=bool(copy))
    if copy is False:
        why = f"asarray: a {type(obj).__name__} becomes a tensor by a copy only"
        raise UserValueError("E0103", why, fix="use from_dlpack to share memory")
    if not isinstance(obj, bool | int | float | complex | list | tuple | np.ndarray | np.generic):
        obj = np.asarray(obj)
    return make_tensor(obj, dtype)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    """An array of any object with `__dlpack__`; copied unless copy is False. See `treadle.from_dlpack`."""
    checked_device(device)
    return _from_dlpack(x, copy=copy)


def full(shape: Ints, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """Every element fill_value, a Python number, of whose type unless `dtype` is given."""
    checked_device(device)
    return create.full(shape, fill_value, dtype)


def zeros(shape: Ints, *, dtype: Any = None, device: Any = None) -> Any:
    """Zeros, float32 unless told otherwise."""
    return full(shape, 0, dtype=dtypes.float32 if dtype is None else dtype, device=device)


def ones(shape: Ints, *, dtype: Any = None, device: Any = None) -> Any:
    """Ones, float32 unless told otherwise."""
    return full(shape, 1, dtype=dtypes.float32 if dtype is None else dtype, device=device)


def empty(shape: Ints, *, dtype: Any = None, device: Any = None) -> Any:
    """The same as zeros: nothing is left to chance."""
    return zeros(shape, dtype=dtype, device=device)


def full_like(x: Any, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """Every element fill_value, of the shape and type of x."""
    checked_device(device)
    return create.full_like(x, fill_value, dtype)


def zeros_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Any:
    """Zeros of the shape and type of x."""
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Any:
    """Ones of the shape and type of x."""
    return full_like(x, 1, dtype=dtype, device=device)


def empty_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Any:
    """The same as zeros_like."""
    return zeros_like(x, dtype=dtype, device=device)


def arange(
    start: float, /, stop: float | None = None, step: float = 1, *, dtype: Any = None, device: Any = None
) -> Any:
    """start, start + step, ... up to, not including, stop (or 0 to start). Raises E0103 for a step of 0."""
    checked_device(device)
    return create.arange(start, stop, step, dtype)


def linspace(
    start: complex,
    stop: complex,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: Any = None,
    endpoint: bool = True,
) -> Any:
    """`num` numbers evenly spaced from start to stop, which is left out unless `endpoint`; rounded once."""
    checked_device(device)
    count = integer(num, "num")
    if count < 0:
        raise UserError("E0109", f"num {num} is negative", fix="give the count of numbers")
    is_complex = isinstance(start, complex) or isinstance(stop, complex)
    kind = (dtypes.complex64 if is_complex else dtypes.float32) if dtype is None else dtypes.of(dtype)
    return make_tensor(np.linspace(start, stop, count, endpoint=endpoint).astype(kind.np))


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None) -> Any:
    """A matrix with ones on diagonal number k, else zeros."""
    checked_device(device)
    width = n_rows if n_cols is None else n_cols
    k = max(-n_rows, min(k, width))  # beyond the corners there is nothing
    return create.eye(n_rows, width, k, dtypes.float32 if dtype is None else dtype)


def meshgrid(*arrays: Any, indexing: str = "xy") -> list[Any]:
    """Coordinate grids of vectors, as `numpy.meshgrid`: "xy" has the axes of the first two exchanged, "ij" not.

    Raises E0103 for another indexing, E0107 for an array that is no vector.
    """
    if indexing not in ("xy", "ij"):
        raise UserError("E0103", f"indexing {indexing!r}", fix="use 'xy' or 'ij'")
    for x in arrays:
        if x.ndim != 1:
            raise UserError("E0107", f"meshgrid of a tensor of shape {list(x.shape)}", fix="give vectors")
    if not arrays:
        return []
    kind = result_type(*arrays)
    sizes = tuple([x.shape[0] for x in arrays])
    grids = []
    for i, x in enumerate(arrays):
        line = shaping.reshape(cast(lift(x), kind), tuple([n if j == i else 1 for j, n in enumerate(sizes)]))
        grid = shaping.broadcast_to(line, sizes)
        grids.append(shaping.swapaxes(grid, 0, 1) if indexing == "xy" and len(sizes) > 1 else grid)
    return grids


def tril(x: Any, /, *, k: int = 0) -> Any:
    """The last two axes with zeros above diagonal number k."""
    return shaping.tril(x, k)


def triu(x: Any, /, *, k: int = 0) -> Any:
    """The last two axes with zeros below diagonal number k."""
    return shaping.triu(x, k)
