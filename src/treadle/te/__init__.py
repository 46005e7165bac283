"""`treadle.te`, the operator language: tensors written element by element, differentiated as formulas.

`te.placeholder`, `te.compute(shape, fn)`, reductions and the elementwise functions make te tensors; `te.op` makes an
operator on tensors of them; `te.differentiate` gives their derivatives. docs/te.md is the introduction.
"""

from __future__ import annotations

from treadle.te._differentiate import differentiate
from treadle.te._functions import all, any, cast, constant, if_then_else, of, reduction
from treadle.te._operator import evaluate, op, show
from treadle.te._scalar import Scalar
from treadle.te._tensor import Tensor, comm_reducer, compute, placeholder, reduce_axis

operator, const, select = op, constant, if_then_else

sum = reduction("add", "The sum.")
prod = reduction("mul", "The product.")
max = reduction("maximum", "The largest.")
min = reduction("minimum", "The smallest.")

abs = of("abs")
sign = of("sign")
floor = of("floor")
ceil = of("ceil")
round = of("round")
trunc = of("trunc")
exp = of("exp")
expm1 = of("expm1")
log = of("log")
log1p = of("log1p")
log2 = of("log2")
sqrt = of("sqrt")
rsqrt = of("rsqrt")
sin = of("sin")
cos = of("cos")
tan = of("tan")
asin = of("asin")
acos = of("acos")
atan = of("atan")
atan2 = of("atan2")
sinh = of("sinh")
cosh = of("cosh")
tanh = of("tanh")
sigmoid = of("sigmoid")
erf = of("erf")
reciprocal = of("reciprocal")
square = of("square")
relu = of("relu")
power = of("pow")
maximum = of("maximum")
minimum = of("minimum")
clip = of("clamp")
floor_div = of("floor_div")
floor_mod = of("remainder")
is_finite = of("is_finite")
is_nan = of("is_nan")

__all__ = [
    "Scalar", "Tensor", "abs", "acos", "all", "any", "asin", "atan", "atan2", "cast", "ceil", "clip", "comm_reducer",
    "compute", "const", "constant", "cos", "cosh", "differentiate", "erf", "evaluate", "exp", "expm1", "floor",
    "floor_div", "floor_mod", "if_then_else", "is_finite", "is_nan", "log", "log1p", "log2", "max", "maximum", "min",
    "minimum", "op", "operator", "placeholder", "power", "prod", "reciprocal", "reduce_axis", "relu", "round", "rsqrt",
    "select", "show", "sigmoid", "sign", "sin", "sinh", "sqrt", "square", "sum", "tan", "tanh", "trunc",
]  # fmt: skip
