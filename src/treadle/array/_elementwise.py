"""Functions of each element of one array, under the standard's names."""

from __future__ import annotations

from typing import Any

from treadle.array import _complex
from treadle.array._types import one
from treadle.base import dtypes
from treadle.frontend import functions as td
from treadle.frontend.lift import cast, floating, fresh, lift
from treadle.ops.bits import bitcast


def _positive(x: Any) -> Any:
    """x itself, in another array."""
    return fresh(lift(x))


def _signbit(x: Any) -> Any:
    """Whether the sign bit of each float is set, also that of -0.0 and NaN."""
    x = floating(x)
    return bitcast(x, dtype=dtypes.of(f"int{x.dtype.bits}")) < 0


def clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
    """x with elements below min raised to it and those above max lowered to it, in the type of x; None: no bound."""
    x = lift(x)
    kind = x.dtype
    x = x if min is None else td.maximum(x, min)
    return fresh(x) if min is None and max is None else cast(x if max is None else td.minimum(x, max), kind)


abs, negative, positive = one(_complex.abs, "abs"), one(td.negative, "negative"), one(_positive, "positive")
sign, signbit, square = one(_complex.sign, "sign"), one(_signbit, "signbit"), one(td.square, "square")
reciprocal, sqrt = one(td.reciprocal, "reciprocal"), one(_complex.sqrt, "sqrt")
ceil, floor, trunc = one(td.ceil, "ceil"), one(td.floor, "floor"), one(td.trunc, "trunc")
round = one(_complex.round, "round")
exp, expm1, log = one(_complex.exp, "exp"), one(_complex.expm1, "expm1"), one(_complex.log, "log")
log1p, log2, log10 = one(_complex.log1p, "log1p"), one(td.log2, "log2"), one(td.log10, "log10")
sin, cos, tan = one(_complex.sin, "sin"), one(_complex.cos, "cos"), one(_complex.tan, "tan")
sinh, cosh, tanh = one(_complex.sinh, "sinh"), one(_complex.cosh, "cosh"), one(_complex.tanh, "tanh")
asin, acos, atan = one(_complex.asin, "asin"), one(_complex.acos, "acos"), one(_complex.atan, "atan")
asinh, acosh, atanh = one(_complex.asinh, "asinh"), one(_complex.acosh, "acosh"), one(_complex.atanh, "atanh")
isfinite, isinf = one(_complex.isfinite, "isfinite"), one(_complex.isinf, "isinf")
isnan, logical_not = one(_complex.isnan, "isnan"), one(td.logical_not, "logical_not")
bitwise_invert, conj = one(td.bitwise_not, "bitwise_invert"), one(td.conj, "conj")
real, imag = one(td.real, "real"), one(td.imag, "imag")
