"""Functions of each element of one tensor, as `mindspore.ops` has them."""

from __future__ import annotations

from treadle.compat.mindspore._tensor import tagged
from treadle.frontend import functions as fn
from treadle.frontend import special

logical_not, isnan, isinf, isfinite = (tagged(f) for f in (fn.logical_not, fn.isnan, fn.isinf, fn.isfinite))
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


__all__ = [
    "abs", "absolute", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "erfc",
    "erfinv", "exp", "expm1", "floor", "isfinite", "isinf", "isnan", "log", "log10", "log1p", "log2", "logical_not",
    "neg", "negative", "reciprocal", "round", "rsqrt", "sign", "sin", "sinh", "sqrt", "square", "tan", "trunc",
]  # fmt: skip
