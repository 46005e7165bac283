"""`treadle.array`: the functions of the Python array API standard, version 2024.12, on `td.Tensor`.

`xp = x.__array_namespace__()` gives this module, so that libraries written to the standard take tensors. All of it but
what has data-dependent sizes works in traced functions too; what it is made of has derivatives. docs/array-api.md says
how it differs from the rest of Treadle and what was tested.
"""

from __future__ import annotations

import math

from treadle.array import fft, linalg
from treadle.array._creation import (
    arange,
    asarray,
    empty,
    empty_like,
    eye,
    from_dlpack,
    full,
    full_like,
    linspace,
    meshgrid,
    ones,
    ones_like,
    tril,
    triu,
    zeros,
    zeros_like,
)
from treadle.array._elementwise import (
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atanh,
    bitwise_invert,
    ceil,
    clip,
    conj,
    cos,
    cosh,
    exp,
    expm1,
    floor,
    imag,
    isfinite,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    log10,
    logical_not,
    negative,
    positive,
    real,
    reciprocal,
    round,
    sign,
    signbit,
    sin,
    sinh,
    sqrt,
    square,
    tan,
    tanh,
    trunc,
)
from treadle.array._pairs import (
    add,
    atan2,
    bitwise_and,
    bitwise_left_shift,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    copysign,
    divide,
    equal,
    floor_divide,
    greater,
    greater_equal,
    hypot,
    less,
    less_equal,
    logaddexp,
    logical_and,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    multiply,
    nextafter,
    not_equal,
    pow,
    remainder,
    subtract,
)
from treadle.array._reductions import (
    all,
    any,
    argmax,
    argmin,
    argsort,
    count_nonzero,
    cumulative_prod,
    cumulative_sum,
    diff,
    max,
    mean,
    min,
    prod,
    sort,
    std,
    sum,
    var,
)
from treadle.array._searching import (
    nonzero,
    searchsorted,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
    where,
)
from treadle.array._shaping import (
    broadcast_arrays,
    broadcast_to,
    concat,
    expand_dims,
    flip,
    moveaxis,
    permute_dims,
    repeat,
    reshape,
    roll,
    squeeze,
    stack,
    take,
    take_along_axis,
    tile,
    unstack,
)
from treadle.array._types import NamespaceInfo, astype, can_cast, finfo, iinfo, isdtype, result_type
from treadle.array.linalg import matmul, matrix_transpose, tensordot, vecdot
from treadle.base.dtypes import (
    bfloat16,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from treadle.base.dtypes import (
    bool_ as bool,
)
from treadle.driver import install as _install  # noqa: F401 (the driver gives tensors their runtime)

e, inf, nan, newaxis, pi = math.e, math.inf, math.nan, None, math.pi
__array_api_version__ = "2024.12"


def __array_namespace_info__() -> NamespaceInfo:
    """Capabilities, devices and dtypes of this namespace."""
    return NamespaceInfo()


__all__ = [
    "abs", "acos", "acosh", "add", "all", "any", "arange", "argmax", "argmin", "argsort", "asarray", "asin", "asinh",
    "astype", "atan", "atan2", "atanh", "bfloat16", "bitwise_and", "bitwise_invert", "bitwise_left_shift",
    "bitwise_or", "bitwise_right_shift", "bitwise_xor", "bool", "broadcast_arrays", "broadcast_to", "can_cast",
    "ceil", "clip", "complex128", "complex64", "concat", "conj", "copysign", "cos", "cosh", "count_nonzero",
    "cumulative_prod", "cumulative_sum", "diff", "divide", "e", "empty", "empty_like", "equal", "exp", "expand_dims",
    "expm1", "eye", "fft", "finfo", "flip", "float16", "float32", "float64", "floor", "floor_divide", "from_dlpack",
    "full", "full_like", "greater", "greater_equal", "hypot", "iinfo", "imag", "inf", "int16", "int32", "int64",
    "int8", "isdtype", "isfinite", "isinf", "isnan", "less", "less_equal", "linalg", "linspace", "log", "log10",
    "log1p", "log2", "logaddexp", "logical_and", "logical_not", "logical_or", "logical_xor", "matmul",
    "matrix_transpose", "max", "maximum", "mean", "meshgrid", "min", "minimum", "moveaxis", "multiply", "nan",
    "negative", "newaxis", "nextafter", "nonzero", "not_equal", "ones", "ones_like", "permute_dims", "pi",
    "positive", "pow", "prod", "real", "reciprocal", "remainder", "repeat", "reshape", "result_type", "roll", "round",
    "searchsorted", "sign", "signbit", "sin", "sinh", "sort", "sqrt", "square", "squeeze", "stack", "std", "subtract",
    "sum", "take", "take_along_axis", "tan", "tanh", "tensordot", "tile", "tril", "triu", "trunc", "uint16", "uint32",
    "uint64", "uint8", "unique_all", "unique_counts", "unique_inverse", "unique_values", "unstack", "var", "vecdot",
    "where", "zeros", "zeros_like",
]  # fmt: skip
