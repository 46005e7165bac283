"""Short cuts of eager mode: operators, sums and indexing of small float arrays straight in NumPy, without an op call.

Each function gives a tensor, or None where the call is not of the plain kind: inside a trace or under a tape, other or
mixed element types, broadcasting, large arrays, an index that is wrong. The long way then does it, and says what is
wrong. (`all` of a list is much faster than of a generator here.)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.base.flags import flags
from treadle.base.small import limit, quietly
from treadle.frontend import trace as tracing
from treadle.ir.op import Op

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)
_FLOATS = (_F32, _F64)
# Elements that an index array may take.
_MAX_TAKEN = 1 << 16
_PLAIN = frozenset({int, slice, type(None), type(Ellipsis)})
_state = tracing._stack
_new = object.__new__
_classes: list[Any] = []
ndarray = np.ndarray


def register(tensor_class: Any) -> None:
    """The class of what the short cuts make."""
    _classes.append(tensor_class)


def made(array: Any) -> Any:
    """A tensor of a NumPy result, which is a scalar where it has no axes."""
    tensor = _new(_classes[0])
    tensor._value = array if type(array) is ndarray else np.asarray(array)
    tensor._trace = tensor._weak = None
    return tensor


# NumPy's result is the exact one rounded, as that of a kernel is, and costs little: larger arrays count as small.
_EXACT_FUNCTIONS = frozenset(
    {np.add, np.subtract, np.multiply, np.true_divide, np.negative, np.abs, np.less, np.less_equal, np.greater,
     np.greater_equal, np.equal, np.not_equal}
)  # fmt: skip
_CHEAP = 4


def _scale(function: Any) -> int:
    """How many times as many elements count as small."""
    return _CHEAP if function in _EXACT_FUNCTIONS else 1


def single(op: Op, long_way: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function of one tensor, each element by itself."""
    function = op.numpy_function()
    scale = _scale(function)

    def short(x: Any) -> Any:
        if isinstance(x, _classes[0]):
            a = x._value
            few = type(a) is ndarray and a.size <= limit.now * scale
            if few and (a.dtype is _F32 or a.dtype is _F64) and not _state.busy:
                return made(quietly(function, a))
        return long_way(x)

    return long_way if function is None else functools.update_wrapper(short, op, updated=())


def double(op: Op, long_way: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A function of two tensors of one type, or of a tensor and a Python float, each pair of elements by itself."""
    function = op.numpy_function()
    if function is None:
        return long_way
    operator = pairwise(function, long_way)

    def short(x: Any, y: Any) -> Any:
        return operator(x, y) if isinstance(x, _classes[0]) else long_way(x, y)

    return functools.update_wrapper(short, op, updated=())


def pairwise(function: np.ufunc, long_way: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """An operator: function(x, y) of two tensors of one type, or of a tensor and a Python number."""

    scale = _scale(function)

    def method(self: Any, other: Any) -> Any:
        a = self._value
        if type(a) is ndarray and a.size <= limit.now * scale and not _state.busy:
            dtype = a.dtype
            if dtype is _F32 or dtype is _F64:
                if type(other) is float or (type(other) is int and -_EXACT <= other <= _EXACT):
                    return made(quietly(function, a, float(other)))
                if isinstance(other, _classes[0]):
                    b = other._value
                    if type(b) is ndarray and b.dtype is dtype:
                        if b.shape == a.shape:
                            return made(quietly(function, a, b))
                        if scale > 1 and a.ndim > b.ndim and a.shape[a.ndim - b.ndim :] == b.shape:
                            return made(quietly(function, a, b))
                        if a.size * b.size <= limit.now and _fits(a.shape, b.shape):
                            return made(quietly(function, a, b))
        return long_way(self, other)

    return method


# Up to here every int is a float64.
_EXACT = 1 << 53


def reflected(function: np.ufunc, long_way: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The operator number op tensor: function(number, x)."""

    scale = _scale(function)

    def method(self: Any, other: Any) -> Any:
        if type(other) is float or (type(other) is int and -_EXACT <= other <= _EXACT):
            a = self._value
            few = type(a) is ndarray and a.size <= limit.now * scale
            if few and (a.dtype is _F32 or a.dtype is _F64) and not _state.busy:
                return made(quietly(function, float(other), a))
        return long_way(self, other)

    return method


def _fits(x: tuple[int, ...], y: tuple[int, ...]) -> bool:
    """Whether the shapes broadcast."""
    return all([m == n or m == 1 or n == 1 for m, n in zip(reversed(x), reversed(y))])  # noqa: C419


def product(function: np.ufunc, long_way: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The operator of two matrices of one type."""

    def method(self: Any, other: Any) -> Any:
        a, b = self._value, other._value if isinstance(other, _classes[0]) else None
        if type(a) is ndarray and type(b) is ndarray and not _state.busy and flags.precision == "highest":
            dtype = a.dtype
            if (dtype is _F32 or dtype is _F64) and b.dtype is dtype and a.ndim == 2 and b.ndim == 2:
                (m, k), (n, p) = a.shape, b.shape
                if k == n and m * k * p <= _MAX_PRODUCTS and m * p + a.size + b.size <= limit.now:
                    return made(quietly(function, a, b))
        return long_way(self, other)

    return method


_MAX_PRODUCTS = 1 << 21


def reduction(op: Op, x: Any, axis: Any) -> Any:
    """A reduction over one axis (counted from either end) or, with None, over all."""
    a = getattr(x, "_value", None)
    if type(a) is not ndarray or a.dtype not in _FLOATS or not 0 < a.size <= limit.now or _state.busy:
        return None
    if axis is None or (type(axis) is int and -a.ndim <= axis < a.ndim):
        return made(quietly(op.rules["host"], a, axis))
    return None


def item(x: Any, index: Any) -> Any:
    """x[index] for ints, slices, None and ..., and for one array or tensor of ints or bools."""
    a = x._value
    if _state.busy:
        return None
    if type(a) is not ndarray or a.size > limit.now:
        return _part_of_large(a, index) if limit.now and _is_plain(index) else None
    if not _is_plain(index):
        index = index._value if isinstance(index, _classes[0]) else index
        if not a.ndim or type(index) is not ndarray or index.dtype.kind not in "iub":
            return None
        if index.size * a.size > _MAX_TAKEN * len(a):
            return None
    try:
        return made(a[index])
    except (IndexError, TypeError, ValueError):  # the long way says what is wrong
        return None


def _is_plain(index: Any) -> bool:
    if type(index) is tuple:
        return all([type(part) in _PLAIN for part in index])  # noqa: C419
    return type(index) in _PLAIN


def _part_of_large(array: Any, index: Any) -> Any:
    """A part of an array of any size: a small one is copied, of the memory that host and device share; a large one of
    an array on the host is a view."""
    try:
        part = (array if type(array) is ndarray else peek[0](array))[index]
    except (IndexError, TypeError, ValueError, UserError):  # the long way says what is wrong, or waits for the array
        return None
    if part.size <= limit.now:
        return made(np.array(part))
    return made(part) if type(array) is ndarray else None


def transposed(x: Any) -> Any:
    """x with its axes in opposite order."""
    a = x._value
    return made(a.T) if type(a) is ndarray and a.size <= limit.now and not _state.busy else None


def converted(x: Any, dtype: Any) -> Any:
    """Floats as other floats, by a NumPy type."""
    a = x._value
    if type(a) is ndarray and a.size <= limit.now and a.dtype in _FLOATS and dtype in _FLOATS and not _state.busy:
        return made(quietly(a.astype, dtype))
    return None


def reshaped(x: Any, shape: tuple[Any, ...]) -> Any:
    """x.reshape(*shape) of sizes that are all ints."""
    a = getattr(x, "_value", None)
    if type(a) is not ndarray or not limit.now or _state.busy:
        return None
    if not all([type(n) is int and n >= -1 for n in shape]):  # noqa: C419
        return None
    try:
        return made(a.reshape(shape))
    except ValueError:  # the long way says what is wrong
        return None


# How the runtime shows the memory of a device array as a NumPy array, without a copy.
peek: list[Callable[[Any], Any]] = []
