"""Functions of elements, comparisons and products, as `mindspore.ops` has them: tensors in, new tensors out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from treadle.base import dtypes
from treadle.compat.mindspore._tensor import quotient_operands, tag, together
from treadle.frontend import functions as fn
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
bitwise_and, bitwise_or, bitwise_xor = _pair(fn.bitwise_and), _pair(fn.bitwise_or), _pair(fn.bitwise_xor)


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
    "add", "assign", "assign_add", "assign_sub", "atan2", "bitwise_and", "bitwise_or", "bitwise_xor", "cast", "clamp",
    "clip", "clip_by_value", "depend", "div", "divide", "eq", "equal", "floor_div", "floor_divide", "floor_mod",
    "fmod", "ge", "greater", "greater_equal", "gt", "le", "lerp", "less", "less_equal", "logical_and", "logical_or",
    "logical_xor", "lt", "maximum", "minimum", "mod", "mul", "multiply", "ne", "not_equal", "pow", "real_div",
    "remainder", "sub", "subtract", "tensor_pow", "true_divide", "where",
]  # fmt: skip
