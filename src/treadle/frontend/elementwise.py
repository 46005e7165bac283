"""Functions of each element as NumPy and PyTorch users know them. Operands: tensors, arrays, Python numbers, mixed.

Functions that need floats take integers and bools too, as float32. Pairs are promoted and broadcast; Python numbers are
weak: they take the type of the tensor beside them.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable
from typing import Any

from treadle.base import dtypes
from treadle.frontend import quick
from treadle.frontend.lift import cast, dtype_of, floating, fresh, is_number, lift, weak_type
from treadle.ir.op import Op
from treadle.ops import activation, compare, complex, elementwise, functions, trigonometry
from treadle.ops.casting import stop_gradient as _stop_gradient

Function = Callable[..., Any]


def of_floats(op: Op) -> Function:
    """A function of floats."""

    @functools.wraps(op, updated=())
    def function(x: Any) -> Any:
        return op(floating(x))

    return quick.single(op, function)


def of_any(op: Op) -> Function:
    """A function that keeps the type."""

    @functools.wraps(op, updated=())
    def function(x: Any) -> Any:
        return op(lift(x))

    return quick.single(op, function)


def of_inexact(op: Op) -> Function:
    """A rounding function: integers are whole already."""

    @functools.wraps(op, updated=())
    def function(x: Any) -> Any:
        x = lift(x)
        return op(x) if x.dtype.is_inexact else fresh(x)

    return quick.single(op, function)


def of_pairs(op: Op) -> Function:
    """A function of two operands."""

    @functools.wraps(op, updated=())
    def function(x: Any, y: Any) -> Any:
        return op(*pair(x, y))

    return quick.double(op, function)


def of_float_pairs(op: Op) -> Function:
    """A function of two floats; integer tensors count as float32."""

    @functools.wraps(op, updated=())
    def function(x: Any, y: Any) -> Any:
        x, y = pair(x, y)
        return op(x if is_weak(x) else floating(x), y if is_weak(y) else floating(y))

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


add, subtract, multiply = of_pairs(elementwise.add), of_pairs(elementwise.sub), of_pairs(elementwise.mul)
divide, floor_divide = of_pairs(elementwise.div), of_pairs(elementwise.floor_div)
remainder, fmod = of_pairs(elementwise.remainder), of_pairs(elementwise.truncated_remainder)
maximum, minimum = of_pairs(elementwise.maximum), of_pairs(elementwise.minimum)

negative, abs, sign = of_any(elementwise.neg), of_any(elementwise.abs), of_any(elementwise.sign)
square = of_any(elementwise.square)
floor, ceil = of_inexact(elementwise.floor), of_inexact(elementwise.ceil)
round, trunc = of_inexact(elementwise.round), of_inexact(elementwise.trunc)

exp, expm1, log, log1p = (of_floats(f) for f in (functions.exp, functions.expm1, functions.log, functions.log1p))
sqrt, rsqrt, cbrt, reciprocal = (
    of_floats(f) for f in (functions.sqrt, functions.rsqrt, functions.cbrt, elementwise.reciprocal)
)
sin, cos, tan, tanh = (of_floats(f) for f in (functions.sin, functions.cos, functions.tan, functions.tanh))
sigmoid, erf, erfinv, relu = (
    of_floats(f) for f in (functions.sigmoid, functions.erf, functions.erf_inv, activation.relu)
)
sinh, cosh, log2, log10 = (
    of_floats(f) for f in (trigonometry.sinh, trigonometry.cosh, trigonometry.log2, trigonometry.log10)
)
arcsin, arccos, arctan = (of_floats(f) for f in (trigonometry.asin, trigonometry.acos, trigonometry.atan))
arctan2 = of_float_pairs(functions.atan2)


def pow(x: Any, y: Any) -> Any:
    """x ** y of each element. A Python number y that is whole is a repeated product, exact for negative x too.

    Of complex numbers it is exp(y * log(x)), and 0 ** 0 is 1. Raises E0120 for an integer tensor to a negative whole
    power.
    """
    is_int = isinstance(y, int) and not isinstance(y, bool)
    if (is_int or (isinstance(y, float) and is_number(y) and y.is_integer())) and builtins.abs(y) <= 64:
        x = floating(x) if isinstance(y, float) else lift(x)
        return functions.integer_pow(x, exponent=int(y))
    x, y = pair(x, y)
    if any(getattr(v, "dtype", None) in (dtypes.complex64, dtypes.complex128) for v in (x, y)):
        return _complex_pow(x, y)
    return functions.pow(x, y)


def _complex_pow(x: Any, y: Any) -> Any:
    kind = dtypes.promote(*[dtype_of(v) for v in (x, y) if not is_weak(v)])
    x, y = (cast(lift(v), kind) for v in (x, y))
    nothing = compare.equal(x, 0)
    out = functions.exp(y * functions.log(compare.select(nothing, 1, x)))
    return compare.select(nothing, cast(compare.equal(y, 0), kind), out)


def real(x: Any) -> Any:
    """The real part; a real tensor is its own."""
    x = lift(x)
    return complex.real(x) if x.dtype.kind == "c" else fresh(x)


def conj(x: Any) -> Any:
    """The complex conjugate; a real tensor is its own."""
    x = lift(x)
    return complex.conj(x) if x.dtype.kind == "c" else fresh(x)


def imag(x: Any) -> Any:
    """The imaginary part. Raises E0106 for a real tensor."""
    return complex.imag(lift(x))


def stop_gradient(x: Any) -> Any:
    """x itself; its derivative is zero."""
    x = lift(x)
    return _stop_gradient(x) if x.dtype.is_inexact else fresh(x)
