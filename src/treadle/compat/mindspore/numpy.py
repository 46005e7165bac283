"""A part of `mindspore.numpy`: NumPy's names for functions of tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from treadle.base import dtypes
from treadle.compat.mindspore._missing import missing as _missing
from treadle.compat.mindspore._tensor import Tensor, tag, tagged
from treadle.compat.mindspore.common.dtype import bool_, float16, float32, float64, int8, int16, int32, int64, uint8
from treadle.compat.mindspore.ops import _make, _math, _products, _shape, _unary
from treadle.frontend import create
from treadle.frontend import functions as fn

pi, inf, nan, newaxis = 3.141592653589793, float("inf"), float("nan"), None
add, subtract, multiply = _math.add, _math.sub, _math.mul
divide, true_divide, power = _math.div, _math.div, _math.pow
maximum, minimum, matmul = _math.maximum, _math.minimum, _products.matmul
exp, log, sqrt = _unary.exp, _unary.log, _unary.sqrt
sin, cos, tanh = _unary.sin, _unary.cos, tagged(fn.tanh)
abs, sign, square = _unary.abs, _unary.sign, _unary.square
where, eye = _math.where, _make.eye
sum, mean, prod = tagged(fn.sum), tagged(fn.mean), tagged(fn.prod)
max, min, var, std = tagged(fn.max), tagged(fn.min), tagged(fn.var), tagged(fn.std)
argmax, argmin, cumsum = tagged(fn.argmax), tagged(fn.argmin), tagged(fn.cumsum)
transpose, expand_dims, squeeze = tagged(fn.transpose), tagged(fn.expand_dims), tagged(fn.squeeze)
dot, outer, tensordot = tagged(fn.dot), tagged(fn.outer), tagged(fn.tensordot)
broadcast_to, tile, flip = tagged(fn.broadcast_to), tagged(fn.tile), tagged(fn.flip)
zeros_like, ones_like = _make.zeros_like, _make.ones_like


def array(obj: Any, dtype: Any = None) -> Any:
    """A tensor of numbers, lists, arrays or tensors."""
    return Tensor(obj, dtype)


asarray = array


def zeros(shape: Any, dtype: Any = dtypes.float32) -> Any:
    """Zeros."""
    return _make.zeros(shape, dtypes.of(dtype))


def ones(shape: Any, dtype: Any = dtypes.float32) -> Any:
    """Ones."""
    return _make.ones(shape, dtypes.of(dtype))


def full(shape: Any, fill_value: Any, dtype: Any = None) -> Any:
    """One number everywhere."""
    return _make.full(shape, fill_value, dtype=dtype)


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Any:
    """start, start + step, ... below stop."""
    return tag(create.arange(start, stop, step, dtype))


def linspace(start: Any, stop: Any, num: int = 50) -> Any:
    """`num` numbers from start to stop."""
    return _make.linspace(start, stop, num)


def reshape(x: Any, new_shape: Any) -> Any:
    """In another shape."""
    return _shape.reshape(x, new_shape)


def concatenate(arrays: Any, axis: int = 0) -> Any:
    """Tensors one after the other."""
    return _shape.concat(arrays, axis)


def stack(arrays: Any, axis: int = 0) -> Any:
    """Tensors along a new axis."""
    return _shape.stack(arrays, axis)


__all__ = [
    "Tensor", "abs", "add", "arange", "argmax", "argmin", "array", "asarray", "bool_", "broadcast_to", "concatenate",
    "cos", "cumsum", "divide", "dot", "exp", "expand_dims", "eye", "flip", "float16", "float32", "float64", "full",
    "inf", "int16", "int32", "int64", "int8", "linspace", "log", "matmul", "max", "maximum", "mean", "min", "minimum",
    "multiply", "nan", "newaxis", "ones", "ones_like", "outer", "pi", "power", "prod", "reshape", "sign", "sin",
    "sqrt", "square", "squeeze", "stack", "std", "subtract", "sum", "tanh", "tensordot", "tile", "transpose",
    "true_divide", "uint8", "var", "where", "zeros", "zeros_like",
]  # fmt: skip

if not TYPE_CHECKING:
    __getattr__ = _missing(__name__)
