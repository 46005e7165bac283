"""Functions of elements, comparisons and products, as `mindspore.ops` has them: tensors in, new tensors out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from treadle.base import dtypes
from treadle.compat.mindspore._tensor import quotient_operands, tag, tagged, together
from treadle.frontend import functions as fn
from treadle.frontend import special
from treadle.frontend.lift import lift


def _pair(function: Callable[[Any, Any], Any], prepare: Any = together) -> Callable[[Any, Any], Any]:
    """A function of two operands, which take their common type first."""

    @functools.wraps(function, updated=())
    def call(input: Any, other: Any) -> Any:
        return tag(function(*prepare(input, other)))

    return call


add, sub, mul = _pair(fn.add), _pair(fn.subtract), _pair(fn.multiply)
div = _pair(fn.divide, quotient_operands)
floor_div, fmod = _pair(fn.floor_divide), _pair(fn.fmod)
floor_mod = _pair(fn.remainder)
pow, maximum, minimum = _pair(fn.pow), _pair(fn.maximum), _pair(fn.minimum)
atan2 = _pair(fn.arctan2)
subtract, multiply, divide, true_divide, real_div = sub, mul, div, div, div
floor_divide, mod, remainder, tensor_pow = floor_div, floor_mod, floor_mod, pow

equal, not_equal = _pair(fn.equal), _pair(fn.not_equal)
greater, greater_equal, less = _pair(fn.greater), _pair(fn.greater_equal), _pair(fn.less)
less_equal = _pair(fn.less_equal)
eq, ne, gt, ge, lt, le = equal, not_equal, greater, greater_equal, less, less_equal
logical_and, logical_or, logical_xor = _pair(fn.logical_and), _pair(fn.logical_or), _pair(fn.logical_xor)
logical_not, isnan, isinf, isfinite = (tagged(f) for f in (fn.logical_not, fn.isnan, fn.isinf, fn.isfinite))
bitwise_and, bitwise_or, bitwise_xor = _pair(fn.bitwise_and), _pair(fn.bitwise_or), _pair(fn.bitwise_xor)

abs, neg, sign, square = tagged(fn.abs), tagged(fn.negative), tagged(fn.sign), tagged(fn.square)
floor, ceil, round, trunc = tagged(fn.floor), tagged(fn.ceil), tagged(fn.round), tagged(fn.trunc)
exp, expm1, log, log1p = tagged(fn.exp), tagged(fn.expm1), tagged(fn.log), tagged(fn.log1p)
log2, log10 = tagged(fn.log2), tagged(fn.log10)
sqrt, rsqrt, reciprocal = tagged(fn.sqrt), tagged(fn.rsqrt), tagged(fn.reciprocal)
sin, cos, tan, asin = tagged(fn.sin), tagged(fn.cos), tagged(fn.tan), tagged(fn.arcsin)
acos, atan, sinh, cosh = tagged(fn.arccos), tagged(fn.arctan), tagged(fn.sinh), tagged(fn.cosh)
asinh, acosh, atanh = tagged(special.arcsinh), tagged(special.arccosh), tagged(special.arctanh)
erf, erfc, erfinv = tagged(fn.erf), tagged(special.erfc), tagged(fn.erfinv)
absolute, negative = abs, neg


def clamp(input: Any, min: Any = None, max: Any = None) -> Any:
    """Between min and max; tensors, or tuples and lists of them."""
    if isinstance(input, tuple | list):
        return tuple([clamp(x, min, max) for x in input])
    return tag(fn.clip(input, min, max))


def clip_by_value(x: Any, clip_value_min: Any = None, clip_value_max: Any = None) -> Any:
    """As `clamp`."""
    return clamp(x, clip_value_min, clip_value_max)


clip = clamp


def where(condition: Any, input: Any, other: Any) -> Any:
    """input where the condition holds, other elsewhere."""
    return tag(fn.where(condition, *together(input, other)))


def lerp(input: Any, end: Any, weight: Any) -> Any:
    """input + weight * (end - input)."""
    return tag(lift(input) + weight * (lift(end) - input))


def matmul(input: Any, other: Any) -> Any:
    """The product of matrices, vectors, or stacks of matrices."""
    return tag(fn.matmul(*together(input, other)))


bmm = mm = mv = matmul


def matmul_transposed(input: Any, other: Any, transpose_a: bool = False, transpose_b: bool = False) -> Any:
    """The product of matrices, of which either may be taken transposed."""
    x, y = together(input, other)
    x, y = fn.swapaxes(x, -1, -2) if transpose_a else x, fn.swapaxes(y, -1, -2) if transpose_b else y
    return tag(fn.matmul(x, y))


def dense(input: Any, weight: Any, bias: Any = None) -> Any:
    """input @ weight.T + bias."""
    y = fn.matmul(input, fn.swapaxes(weight, -1, -2))
    return tag(y if bias is None else y + bias)


def addmm(input: Any, mat1: Any, mat2: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    """beta * input + alpha * (mat1 @ mat2)."""
    return tag(lift(input) * beta + fn.matmul(mat1, mat2) * alpha)


def tensor_dot(x1: Any, x2: Any, axes: Any) -> Any:
    """The sum of products over axes: their number, or (axes of x1, axes of x2)."""
    return tag(fn.tensordot(x1, x2, axes))


dot, outer = tagged(fn.dot), tagged(fn.outer)


def einsum(equation: str, *operands: Any) -> Any:
    """The sum of products that an equation such as "ij,jk->ik" names."""
    return tag(fn.einsum(equation, *operands))


def bias_add(input_x: Any, bias: Any) -> Any:
    """input_x plus one number for each channel, axis 1."""
    x = lift(input_x)
    return tag(x + fn.reshape(bias, (-1, *[1] * (x.ndim - 2))))


def cast(input: Any, dtype: Any) -> Any:
    """In another element type."""
    return tag(lift(input).astype(dtypes.of(dtype)))


def assign(variable: Any, value: Any) -> Any:
    """Give a Parameter or tensor new elements; returns it."""
    return variable.assign(value)


def assign_add(variable: Any, value: Any) -> Any:
    """Add to a Parameter or tensor in place; returns it."""
    return variable.assign(variable + value)


def assign_sub(variable: Any, value: Any) -> Any:
    """Subtract from a Parameter or tensor in place; returns it."""
    return variable.assign(variable - value)


def depend(value: Any, expr: Any) -> Any:
    """`value`: what is written before is done before anyway."""
    return value


def addn(x: Any) -> Any:
    """The sum of a tuple or list of tensors."""
    total = x[0]
    for other in x[1:]:
        total = add(total, other)
    return total


__all__ = [
    "abs", "absolute", "acos", "acosh", "add", "addmm", "asin", "asinh", "assign", "assign_add", "assign_sub", "atan",
    "atan2", "atanh", "bias_add", "bitwise_and", "bitwise_or", "bitwise_xor", "bmm", "cast", "ceil", "clamp", "clip",
    "clip_by_value", "cos", "cosh", "dense", "depend", "div", "divide", "dot", "einsum", "eq", "equal", "erf", "erfc",
    "erfinv", "exp", "expm1", "floor", "floor_div", "floor_divide", "floor_mod", "fmod", "ge", "greater",
    "greater_equal", "gt", "isfinite", "isinf", "isnan", "le", "lerp", "less", "less_equal", "log", "log10", "log1p",
    "log2", "logical_and", "logical_not", "logical_or", "logical_xor", "lt", "matmul", "maximum", "minimum", "mm",
    "mod", "mul", "multiply", "mv", "ne", "neg", "negative", "not_equal", "outer", "pow", "real_div", "reciprocal",
    "remainder", "round", "rsqrt", "sign", "sin", "sinh", "sqrt", "square", "sub", "subtract", "tan", "tensor_dot",
    "tensor_pow", "true_divide", "trunc", "where",
]  # fmt: skip
