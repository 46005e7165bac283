"""Functions of each element as NumPy and PyTorch users know them. Operands: tensors, arrays, Python numbers, in any mix.

Functions that need floats take integers and bools too, as float32. Pairs are promoted and broadcast; Python numbers are
weak: they take the type of the tensor beside them.
"""

from __future__ import annotations

import builtins
import functools
import math
from collections.abc import Callable
from typing import Any

from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.frontend.lift import cast, dtype_of, floating, fresh, is_number, lift, weak_type
from treadle.ir.op import Op
from treadle.ops import activation, bits, compare, complex, elementwise, functions
from treadle.ops.cast import stop_gradient as _stop_gradient

Function = Callable[..., Any]


def _floats(op: Op) -> Function:
    """A function of floats."""

    @functools.wraps(op, updated=())
    def function(x: Any) -> Any:
        return op(floating(x))

    return function


def _same(op: Op) -> Function:
    """A function that keeps the type."""

    @functools.wraps(op, updated=())
    def function(x: Any) -> Any:
        return op(lift(x))

    return function


def _whole(op: Op) -> Function:
    """A rounding function: integers are whole already."""

    @functools.wraps(op, updated=())
    def function(x: Any) -> Any:
        x = lift(x)
        return op(x) if x.dtype.is_inexact else fresh(x)

    return function


def _pair(op: Op) -> Function:
    """A function of two operands."""

    @functools.wraps(op, updated=())
    def function(x: Any, y: Any) -> Any:
        return op(*pair(x, y))

    return function


def pair(*operands: Any) -> tuple[Any, ...]:
    """Operands of an op that promotes: tensors, and Python numbers where a tensor stands beside them.

    A number of a higher kind (1.5 beside integers) raises the tensors to the type that it gives them, float32.
    """
    numbers = [x for x in operands if is_weak(x)]
    if not numbers or len(numbers) == len(operands):
        return tuple([lift(x) for x in operands])
    strong = dtypes.promote(*[dtype_of(lift(x)) for x in operands if not is_weak(x)])
    target = strong
    for x in numbers:
        target = dtypes.promote_scalar(target, weak_type(x) or type(x))
    if target.kind == strong.kind:
        return tuple([x if is_weak(x) else lift(x) for x in operands])
    return tuple([x if is_weak(x) else cast(lift(x), target) for x in operands])


def is_weak(x: Any) -> bool:
    """A Python number, also one that became an input of a traced function."""
    return is_number(x) or weak_type(x) is not None


add, subtract, multiply = _pair(elementwise.add), _pair(elementwise.sub), _pair(elementwise.mul)
divide, floor_divide, remainder = _pair(elementwise.div), _pair(elementwise.floor_div), _pair(elementwise.remainder)
fmod, maximum, minimum = _pair(elementwise.truncated_remainder), _pair(elementwise.maximum), _pair(elementwise.minimum)
equal, not_equal, less = _pair(compare.equal), _pair(compare.not_equal), _pair(compare.less)
less_equal, greater = _pair(compare.less_equal), _pair(compare.greater)
greater_equal = _pair(compare.greater_equal)
bitwise_and, bitwise_or, bitwise_xor = _pair(bits.bit_and), _pair(bits.bit_or), _pair(bits.bit_xor)
bitwise_not, bitwise_left_shift = _same(bits.bit_not), _pair(bits.shift_left)

negative, abs, sign = _same(elementwise.neg), _same(elementwise.abs), _same(elementwise.sign)
square, conj = _same(elementwise.square), _same(complex.conj)
floor, ceil, round, trunc = (_whole(f) for f in (elementwise.floor, elementwise.ceil, elementwise.round, elementwise.trunc))
isfinite, isnan, isinf = _floats(compare.is_finite), _floats(compare.is_nan), _floats(compare.is_inf)

exp, expm1, log, log1p = (_floats(f) for f in (functions.exp, functions.expm1, functions.log, functions.log1p))
sqrt, rsqrt, cbrt, reciprocal = (
    _floats(f) for f in (functions.sqrt, functions.rsqrt, functions.cbrt, elementwise.reciprocal)
)
sin, cos, tan, tanh = (_floats(f) for f in (functions.sin, functions.cos, functions.tan, functions.tanh))
sigmoid, erf, erfinv, relu = (
    _floats(f) for f in (functions.sigmoid, functions.erf, functions.erf_inv, activation.relu)
)
_atan2 = functions.atan2


def arctan2(y: Any, x: Any) -> Any:
    """The angle of the point (x, y), from -pi to pi."""
    y, x = pair(y, x)
    return _atan2(y if is_number(y) else floating(y), x if is_number(x) else floating(x))


def arcsin(x: Any) -> Any:
    """The angle from -pi/2 to pi/2 whose sine is x; NaN beyond -1 to 1."""
    x = floating(x)
    return _atan2(x, functions.sqrt((1 - x) * (1 + x)))


def arccos(x: Any) -> Any:
    """The angle from 0 to pi whose cosine is x; NaN beyond -1 to 1."""
    x = floating(x)
    return _atan2(functions.sqrt((1 - x) * (1 + x)), x)


def arctan(x: Any) -> Any:
    """The angle from -pi/2 to pi/2 whose tangent is x."""
    return _atan2(floating(x), 1.0)


def sinh(x: Any) -> Any:
    """(exp(x) - exp(-x)) / 2, exact to rounding also near 0."""
    x = floating(x)
    small = functions.expm1(elementwise.abs(x))
    big = functions.exp(elementwise.abs(x) - math.log(2))
    both = compare.select(compare.less(small, 1.0), (small + small / (small + 1.0)) / 2, big - 0.25 / big)
    return elementwise.sign(x) * both


def cosh(x: Any) -> Any:
    """(exp(x) + exp(-x)) / 2."""
    big = functions.exp(elementwise.abs(floating(x)) - math.log(2))
    return big + 0.25 / big


def log2(x: Any) -> Any:
    """The logarithm to base 2."""
    return functions.log(floating(x)) / math.log(2)


def log10(x: Any) -> Any:
    """The logarithm to base 10."""
    return functions.log(floating(x)) / math.log(10)


def pow(x: Any, y: Any) -> Any:
    """x ** y of each element. A Python number y that is whole is a repeated product, exact for negative x too.

    Raises E0120 for an integer tensor to a negative whole power.
    """
    whole = is_number(y) and not isinstance(y, bool) and (isinstance(y, int) or (isinstance(y, float) and y.is_integer()))
    if whole and builtins.abs(y) <= 64:
        x = floating(x) if isinstance(y, float) else lift(x)
        return functions.integer_pow(x, exponent=int(y))
    return functions.pow(*pair(x, y))


def bitwise_right_shift(x: Any, y: Any) -> Any:
    """x >> y of each element; signed integers keep their sign. Raises E0106 for floats and bools."""
    x, y = pair(x, y)
    kinds = dtypes.promote(*[dtype_of(v) for v in (x, y) if not is_number(v)])
    return (bits.shift_right_logical if kinds.kind == "u" else bits.shift_right_arithmetic)(x, y)


def truth(x: Any) -> Any:
    """x != 0 of each element, bool."""
    x = lift(x)
    return x if x.dtype is dtypes.bool_ else cast(x, dtypes.bool_)


def logical_and(x: Any, y: Any) -> Any:
    """Both are true (not zero), of each element."""
    return compare.logical_and(truth(x), truth(y))


def logical_or(x: Any, y: Any) -> Any:
    """One or both are true, of each element."""
    return compare.logical_or(truth(x), truth(y))


def logical_xor(x: Any, y: Any) -> Any:
    """One but not both is true, of each element."""
    return compare.logical_xor(truth(x), truth(y))


def logical_not(x: Any) -> Any:
    """x is false (zero), of each element."""
    return compare.logical_not(truth(x))


def real(x: Any) -> Any:
    """The real part; a real tensor is its own."""
    x = lift(x)
    return complex.real(x) if x.dtype.kind == "c" else fresh(x)


def imag(x: Any) -> Any:
    """The imaginary part. Raises E0106 for a real tensor."""
    return complex.imag(lift(x))


def stop_gradient(x: Any) -> Any:
    """x itself; its derivative is zero."""
    x = lift(x)
    return _stop_gradient(x) if x.dtype.is_inexact else fresh(x)


def where(cond: Any, x: Any = None, y: Any = None) -> Any:
    """x where cond is true, else y; all three broadcast, x and y are promoted. The branch not chosen has derivative 0.

    Raises E0103 without x and y: the number of true places is no type, use `numpy.nonzero` outside.
    """
    if x is None or y is None:
        raise UserError("E0103", "where takes three arguments", fix="np.nonzero(cond.numpy()) gives positions, outside graphs")
    if is_number(x) and is_number(y):
        x, y = (x, lift(y)) if isinstance(y, builtins.complex | float) else (lift(x), y)
    return compare.select(truth(cond), *pair(x, y))


def clip(x: Any, min: Any = None, max: Any = None) -> Any:
    """x with elements below min raised to it and those above max lowered to it. Raises E0103 when both are None."""
    if min is None and max is None:
        raise UserError("E0103", "clip needs min or max", fix="give one of them")
    if min is None:
        return minimum(x, max)
    return maximum(x, min) if max is None else elementwise.clamp(*pair(min, lift(x), max))


clamp = clip
