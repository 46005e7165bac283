"""Comparisons, truth values, bits, and choices between elements. Operands as in `elementwise`."""

from __future__ import annotations

import builtins
from typing import Any

from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.frontend.elementwise import maximum, minimum, of_any, of_floats, of_pairs, pair
from treadle.frontend.lift import cast, dtype_of, is_number, lift
from treadle.ops import bits, compare, elementwise

equal, not_equal, less = of_pairs(compare.equal), of_pairs(compare.not_equal), of_pairs(compare.less)
less_equal, greater = of_pairs(compare.less_equal), of_pairs(compare.greater)
greater_equal = of_pairs(compare.greater_equal)
bitwise_and, bitwise_or, bitwise_xor = of_pairs(bits.bit_and), of_pairs(bits.bit_or), of_pairs(bits.bit_xor)
bitwise_not, bitwise_left_shift = of_any(bits.bit_not), of_pairs(bits.shift_left)
isfinite, isnan, isinf = of_floats(compare.is_finite), of_floats(compare.is_nan), of_floats(compare.is_inf)


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


def where(cond: Any, x: Any = None, y: Any = None) -> Any:
    """x where cond is true, else y; all three broadcast, x and y are promoted. The branch not chosen has derivative 0.

    Raises E0103 without x and y: `nonzero` gives positions.
    """
    if x is None or y is None:
        raise UserError("E0103", "where takes three arguments", fix="td.nonzero(cond) gives positions")
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
