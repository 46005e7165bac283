"""What the surface functions share: turning numbers and arrays into tensors, and reading axis arguments.

Functions take tensors, IR values, NumPy arrays, nested lists and Python numbers. `lift` gives a tensor (or an IR value,
where a function is built without tensors); inside a traced function arrays become literals of the program.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle.base import arguments, dtypes
from treadle.base.dtypes import DType
from treadle.base.errors import UserError, UserIndexError
from treadle.frontend import quick
from treadle.frontend import trace as tracing
from treadle.ir import build
from treadle.ir.node import Value
from treadle.ir.types import Literal
from treadle.ops import compare
from treadle.ops._types import normal_axes, normal_axis
from treadle.ops.casting import cast as cast_op
from treadle.ops.creation import constant, iota
from treadle.ops.shape import concatenate, reshape

_tensor_classes: list[Any] = []


def register_tensor(kind: Any) -> None:
    """Tell the functions the tensor class: it stands above them, so they cannot import it. The first one counts."""
    if not _tensor_classes:
        _tensor_classes.append(kind)
        quick.register(kind)


def is_tensor(x: Any) -> bool:
    """A tensor or an IR value."""
    return isinstance(x, Value) or hasattr(type(x), "__treadle_op__")


def is_array(x: Any) -> bool:
    """A NumPy array or scalar."""
    return isinstance(x, np.ndarray | np.generic)


def is_number(x: Any) -> bool:
    """A plain Python number, which takes the type of the tensors beside it."""
    return isinstance(x, bool | int | float | complex) and not isinstance(x, np.generic)


def lift(x: Any) -> Any:
    """x itself if it is a tensor, else a new tensor with its elements (Python floats become float32)."""
    if isinstance(x, Value):
        return x
    if hasattr(type(x), "__treadle_op__"):
        return x if x._weak is None else x.strong()
    return make_tensor(x)


def make_tensor(data: Any, dtype: Any = None) -> Any:
    """A new tensor of a number, array, tensor, or list that may hold tensors; a literal inside a traced function."""
    target = None if dtype is None else dtypes.of(dtype)
    if is_tensor(data):
        data = lift(data) if target is None else data
        return fresh(data) if target in (None, data.dtype) else cast(data, target)
    if any_tensor(data):
        return _stacked(data, _list_dtype(data) if target is None else target)
    made = _tensor_classes[0](data, target)
    return wrapped(constant(value=Literal(made._value))) if build.active() else made


def fresh(x: Any) -> Any:
    """Another handle with the value of x, so that changing one leaves the other alone."""
    trace = tracing.current()
    if isinstance(x, Value):
        return x
    return x.copy() if trace is None else type(x)._of(trace.read(x), trace, x._weak)


def any_tensor(data: Any) -> bool:
    """Whether a nested list holds a tensor."""
    return any(any_tensor(d) for d in data) if isinstance(data, list | tuple) else is_tensor(data)


def _leaves(data: Any) -> list[Any]:
    return [leaf for d in data for leaf in _leaves(d)] if isinstance(data, list | tuple) else [data]


def _list_dtype(data: Any) -> DType:
    """The type of a list with tensors: that of the tensors and arrays, raised by the kind of the Python numbers."""
    leaves = _leaves(data)
    strong = [dtypes.of(x.dtype) for x in leaves if hasattr(x, "dtype") and weak_type(x) is None]
    weak = [weak_type(x) or type(x) for x in leaves if not hasattr(x, "dtype") or weak_type(x) is not None]
    target = dtypes.promote(*strong) if strong else dtypes.bool_
    for kind in weak:
        target = dtypes.promote_scalar(target, kind)
    return target


def weak_type(x: Any) -> type | None:
    """bool, int, float or complex for a Python number that became an input of a traced function, else None."""
    found: type | None = getattr(x, "_weak", None)
    return found


def _stacked(data: Sequence[Any], dtype: DType) -> Any:
    """Lists with tensors inside, stacked level by level."""
    parts = [make_tensor(d, dtype) for d in data]
    return concatenate(*[reshape(p, shape=(1, *p.shape)) for p in parts], axis=0)


def wrapped(value: Any, weak: type | None = None) -> Any:
    """An IR value as a tensor of the running trace; itself where functions are built without tensors."""
    trace = tracing.current()
    return value if trace is None else _tensor_classes[0]._of(value, trace, weak)


def literal(array: Any) -> Any:
    """An operand for ops that take a tensor beside it: the array itself, or a literal of the function being built."""
    return constant(value=Literal(np.asarray(array))) if build.active() else np.asarray(array)


def index_along(shape: tuple[int, ...], axis: int, dtype: DType = dtypes.int32) -> Any:
    """An operand whose elements are their positions along `axis`."""
    if build.active():
        return iota(shape=shape, axis=axis, dtype=dtype)
    places = np.arange(shape[axis], dtype=dtype.np)
    return np.broadcast_to(places.reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape)


def cast(x: Any, dtype: DType) -> Any:
    """x with elements of the type; x itself if it has them."""
    if getattr(x, "_weak", None) is not None:
        return x.astype(dtype)
    return x if x.dtype is dtype else cast_op(x, dtype=dtype)


def dtype_of(x: Any) -> DType:
    """The element type of a tensor or array."""
    return dtypes.of(x.dtype)


def floating(x: Any) -> Any:
    """x as a tensor of floats (or complex numbers); integers and bools become float32."""
    x = lift(x)
    return x if x.dtype.is_inexact else cast(x, dtypes.float32)


# ------------------------------------------------------------------------------------------------------- arguments
def either(name: str, value: Any, other_name: str, other: Any) -> Any:
    """The value of an argument with two names. Raises E0103 when both are given."""
    if value is not None and other is not None:
        raise UserError("E0103", f"both {name}={value} and {other_name}={other} are given", fix=f"give {name} alone")
    return value if other is None else other


def integer(n: Any, what: str) -> int:
    """A Python int of an int, a NumPy int or an eager integer tensor. Raises E0103 for anything else."""
    if isinstance(n, bool) or not hasattr(n, "__index__"):
        raise UserError("E0103", f"{what} is {n!r}, not an int", fix="give a Python int")
    return operator.index(n)


def one_axis(axis: Any, rank: int) -> int:
    """An axis counted from the front. Raises E0107 when the tensor has no such axis."""
    return normal_axis(integer(axis, "an axis"), rank)


def many_axes(axes: Any, rank: int) -> tuple[int, ...]:
    """Axes counted from the front and sorted; None means all. Raises E0107 for an absent or repeated axis."""
    if axes is None:
        return tuple(range(rank))
    listed = axes if isinstance(axes, tuple | list) else (axes,)
    return normal_axes(tuple([integer(a, "an axis") for a in listed]), rank)


def ints(args: Sequence[Any], what: str = "a size") -> tuple[int, ...]:
    """Ints given one by one or as one sequence: f(2, 3) and f((2, 3)) are the same."""
    if len(args) == 1 and isinstance(args[0], tuple | list | np.ndarray):
        args = list(args[0])
    return tuple([integer(a, what) for a in args])


def _check_range(array: Any, size: int) -> None:
    signed = array.astype(np.int64) if array.dtype.kind == "i" or array.dtype.itemsize < 8 else array
    wrong = array[(signed >= size) if signed.dtype.kind == "u" else (signed < -size) | (signed >= size)]
    if wrong.size:
        why = f"index {wrong.flat[0]} on an axis of size {size}"
        raise UserIndexError("E0506", why, fix=f"use {-size} to {size - 1}")


def positions(indices: Any, size: int) -> Any:
    """Indices that count from the back made to count from the front, as int32 or int64.

    Numbers that are known are checked (E0506); those of traced tensors are clamped into range by the ops that use them.
    """
    if is_tensor(indices) and tracing.current() is None and indices.dtype.is_integer:
        _check_range(indices.numpy(), size)
    if is_tensor(indices):
        if not indices.dtype.is_integer:
            raise UserError("E0138", f"indices are {indices.dtype}", fix="cast them: i.astype(td.int32)")
        if indices.dtype.kind == "u":
            return cast(indices, dtypes.int64 if indices.dtype.bits > 16 else dtypes.int32)
        indices = indices if indices.dtype.bits >= 32 else cast(indices, dtypes.int32)
        return compare.select(compare.less(indices, 0), indices + size, indices)
    array = arguments.array(indices, "the index")
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise UserError("E0138", f"indices are {array.dtype.name}", fix="give integers")
    _check_range(array, size)
    return np.where(array < 0, array + size, array).astype(np.int32 if size < 2**31 else np.int64)


def operand(places: Any) -> Any:
    """Positions as an operand of an op."""
    return places if is_tensor(places) else literal(places)
