"""The convenient surface over the strict ops: functions of tensors, under the names that NumPy and PyTorch users know.

Operands are tensors, arrays, lists or Python numbers; `axis=`/`dim=` and `keepdims=`/`keepdim=` are the same arguments;
negative axes count from the back; None means all axes. Reductions of integers give 64 bits, means of integers float32.
Functions of each element are in `elementwise`, changes of shape in `shaping`, products in `products`, and here too.
"""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from treadle.base import dtypes
from treadle.base.arguments import is_real
from treadle.base.errors import UserError
from treadle.frontend import quick
from treadle.frontend.elementwise import (
    abs,
    add,
    arccos,
    arcsin,
    arctan,
    arctan2,
    cbrt,
    ceil,
    conj,
    cos,
    cosh,
    divide,
    erf,
    erfinv,
    exp,
    expm1,
    floor,
    floor_divide,
    fmod,
    imag,
    log,
    log1p,
    log2,
    log10,
    maximum,
    minimum,
    multiply,
    negative,
    pow,
    real,
    reciprocal,
    relu,
    remainder,
    round,
    rsqrt,
    sigmoid,
    sign,
    sin,
    sinh,
    sqrt,
    square,
    stop_gradient,
    subtract,
    tan,
    tanh,
    trunc,
)  # fmt: skip
from treadle.frontend.lift import (  # fmt: skip
    cast,
    either,
    floating,
    fresh,
    integer,
    lift,
    many_axes,
    one_axis,
    operand,
    positions,
)
from treadle.frontend.logic import (
    bitwise_and,
    bitwise_left_shift,
    bitwise_not,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    clamp,
    clip,
    equal,
    greater,
    greater_equal,
    isfinite,
    isinf,
    isnan,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    not_equal,
    truth,
    where,
)
from treadle.frontend.products import dot, einsum, matmul, matmul_integer, outer, tensordot
from treadle.frontend.shaping import (
    broadcast_to,
    cat,
    chunk,
    concatenate,
    cut,
    diagonal,
    expand,
    expand_dims,
    flatten,
    flip,
    matrix_transpose,
    moveaxis,
    pad,
    permute,
    repeat_interleave,
    reshape,
    roll,
    split,
    squeeze,
    stack,
    swapaxes,
    tile,
    transpose,
    tril,
    triu,
    unsqueeze,
)  # fmt: skip
from treadle.frontend.special import (
    arccosh,
    arcsinh,
    arctanh,
    copysign,
    digamma,
    erfc,
    exp2,
    gcd,
    hypot,
    i0e,
    i1e,
    lcm,
    lgamma,
    logaddexp,
    nextafter,
    polygamma,
    sinc,
)
from treadle.ops import compare, cumulative, index, reduce
from treadle.ops.norm import log_softmax as log_softmax_op
from treadle.ops.norm import softmax as softmax_op
from treadle.ops.sorting import argmax as argmax_op
from treadle.ops.sorting import argmin as argmin_op
from treadle.ops.sorting import argsort as argsort_op
from treadle.ops.sorting import sort as sort_op
from treadle.ops.sorting import sort_with_index, top_k

__all__ = [
    "abs", "acos", "acosh", "add", "all", "amax", "amin", "any", "arccos", "arccosh", "arcsin", "arcsinh", "arctan",
    "arctan2", "arctanh", "argmax", "argmin", "argsort", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and",
    "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "broadcast_to", "cat",
    "cbrt", "ceil", "chunk", "clamp", "clip", "concatenate", "conj", "copysign", "cos", "cosh", "cummax", "cummin",
    "cumprod", "cumsum", "diagonal", "digamma", "div", "divide", "dot", "einsum", "equal", "erf", "erfc", "erfinv",
    "exp", "exp2", "expand", "expand_dims", "expm1", "flatten", "flip", "floor", "floor_divide", "fmod", "gather",
    "gcd", "greater", "greater_equal", "hypot", "i0e", "i1e", "imag", "isfinite", "isinf", "isnan", "lcm", "less",
    "less_equal", "lgamma", "log", "log10", "log1p", "log2", "log_softmax", "logaddexp", "logcumsumexp",
    "logical_and", "logical_not", "logical_or", "logical_xor", "logsumexp", "matmul", "matmul_integer",
    "matrix_transpose", "max", "maximum", "mean", "min", "minimum", "moveaxis", "mul", "multiply", "nan_to_num",
    "neg", "negative", "nextafter", "norm", "not_equal", "one_hot", "outer", "pad", "permute",
    "polygamma", "pow", "prod", "real",
    "reciprocal", "relu", "remainder", "repeat_interleave", "reshape", "roll", "round", "rsqrt", "sigmoid", "sign",
    "sin", "sinc", "sinh", "softmax", "sort", "split", "sqrt", "square", "squeeze", "stack", "std", "stop_gradient",
    "sub", "subtract", "sum", "swapaxes", "take", "take_along_axis", "tan", "tanh", "tensordot", "tile", "topk",
    "trace", "transpose", "tril", "triu", "trunc", "unsqueeze", "var", "where",
]  # fmt: skip

acosh, asinh, atanh = arccosh, arcsinh, arctanh
acos, asin, atan, atan2, sub, mul, div, neg = arccos, arcsin, arctan, arctan2, subtract, multiply, divide, negative


# ------------------------------------------------------------------------------------------------------ reductions
def _axes(x: Any, axis: Any, dim: Any) -> tuple[int, ...]:
    return many_axes(either("axis", axis, "dim", dim), x.ndim)


def _kept(out: Any, x: Any, axes: tuple[int, ...], keepdims: Any, keepdim: Any) -> Any:
    """The reduced tensor, with the reduced axes of size 1 if they are to be kept."""
    if not (keepdims or keepdim):
        return out
    return reshape(out, tuple([1 if i in axes else n for i, n in enumerate(x.shape)]))


def _summable(x: Any, dtype: Any) -> Any:
    """x in the type that it is summed in: 64 bits for integers and bools, unless another is asked for."""
    x = lift(x)
    if dtype is not None:
        return cast(x, dtypes.of(dtype))
    wide = {"b": dtypes.int64, "i": dtypes.int64, "u": dtypes.uint64}.get(x.dtype.kind)
    return x if wide is None else cast(x, wide)


def sum(
    x: Any, axis: Any = None, keepdims: bool = False, *, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Any:
    """The sum over axes, in `dtype` if given. An empty sum is 0."""
    plain = dim is None and dtype is None and not (keepdims or keepdim)
    if plain and (found := quick.reduction(reduce.reduce_sum, x, axis)) is not None:
        return found
    x = _summable(x, dtype)
    axes = _axes(x, axis, dim)
    return _kept(reduce.reduce_sum(x, axes=axes), x, axes, keepdims, keepdim)


def prod(
    x: Any, axis: Any = None, keepdims: bool = False, *, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Any:
    """The product over axes, in `dtype` if given. An empty product is 1."""
    plain = dim is None and dtype is None and not (keepdims or keepdim)
    if plain and (found := quick.reduction(reduce.reduce_prod, x, axis)) is not None:
        return found
    x = _summable(x, dtype)
    axes = _axes(x, axis, dim)
    return _kept(reduce.reduce_prod(x, axes=axes), x, axes, keepdims, keepdim)


def mean(x: Any, axis: Any = None, keepdims: bool = False, *, dim: Any = None, keepdim: bool = False) -> Any:
    """The mean over axes; NaN of no elements."""
    plain = dim is None and not (keepdims or keepdim)
    if plain and (found := quick.reduction(reduce.reduce_mean, x, axis)) is not None:
        return found
    x = floating(x)
    axes = _axes(x, axis, dim)
    return _kept(reduce.reduce_mean(x, axes=axes), x, axes, keepdims, keepdim)


def trace(x: Any) -> Any:
    """The sum of the main diagonal of the last two axes."""
    return sum(diagonal(x), -1)


def max(x: Any, axis: Any = None, keepdims: bool = False, *, dim: Any = None, keepdim: bool = False) -> Any:
    """The largest element over axes (values only, also with `dim=`); NaN if there is one. Raises E0130 for none."""
    if dim is None and not (keepdims or keepdim) and (found := quick.reduction(reduce.reduce_max, x, axis)) is not None:
        return found
    return _extreme(x, _axes(lift(x), axis, dim), keepdims or keepdim, reduce.reduce_max, reduce.reduce_or)


def min(x: Any, axis: Any = None, keepdims: bool = False, *, dim: Any = None, keepdim: bool = False) -> Any:
    """The smallest element over axes (values only, also with `dim=`); NaN if there is one. Raises E0130 for none."""
    if dim is None and not (keepdims or keepdim) and (found := quick.reduction(reduce.reduce_min, x, axis)) is not None:
        return found
    return _extreme(x, _axes(lift(x), axis, dim), keepdims or keepdim, reduce.reduce_min, reduce.reduce_and)


def _extreme(x: Any, axes: tuple[int, ...], keep: bool, of_numbers: Any, of_bools: Any) -> Any:
    x = lift(x)
    return _kept((of_bools if x.dtype is dtypes.bool_ else of_numbers)(x, axes=axes), x, axes, keep, False)


amax, amin = max, min


def all(x: Any, axis: Any = None, keepdims: bool = False, *, dim: Any = None, keepdim: bool = False) -> Any:
    """Whether all elements over axes are true (not zero); true of none."""
    x = truth(x)
    axes = _axes(x, axis, dim)
    return _kept(reduce.reduce_and(x, axes=axes), x, axes, keepdims, keepdim)


def any(x: Any, axis: Any = None, keepdims: bool = False, *, dim: Any = None, keepdim: bool = False) -> Any:
    """Whether any element over axes is true (not zero); false of none."""
    x = truth(x)
    axes = _axes(x, axis, dim)
    return _kept(reduce.reduce_or(x, axes=axes), x, axes, keepdims, keepdim)


def var(
    x: Any,
    axis: Any = None,
    keepdims: bool = False,
    *,
    correction: float = 0,
    ddof: float | None = None,
    unbiased: bool | None = None,
    dim: Any = None,
    keepdim: bool = False,
) -> Any:
    """The variance over axes: the sum of squared distances from the mean / (count - correction); 0 as in NumPy.

    ddof= is NumPy's name of correction; unbiased=True is correction 1. 16-bit floats are computed in float32.
    """
    x = floating(x)
    axes = _axes(x, axis, dim)
    wide = cast(x, dtypes.float32) if x.dtype.bits == 16 else x
    away = wide - mean(wide, axes, True)
    less_by = ddof if ddof is not None else int(unbiased) if unbiased is not None else correction
    count = math.prod([x.shape[i] for i in axes])
    if not is_real(less_by):
        raise UserError("E0103", f"the correction is {less_by!r}", fix="give a number: 0, or 1 for samples")
    divisor = builtins.max(float(count - less_by), 0.0)
    out = reduce.reduce_sum(square(away), axes=axes) / (divisor if count else math.nan)
    return _kept(cast(out, x.dtype), x, axes, keepdims, keepdim)


def std(x: Any, axis: Any = None, keepdims: bool = False, **how: Any) -> Any:
    """The standard deviation over axes: the root of `var`, which has the same arguments."""
    return sqrt(var(x, axis, keepdims, **how))


def logsumexp(x: Any, axis: Any = None, keepdims: bool = False, *, dim: Any = None, keepdim: bool = False) -> Any:
    """log(sum(exp(x))) over axes, without overflow. Raises E0130 for no elements."""
    x = floating(x)
    axes = _axes(x, axis, dim)
    return _kept(reduce.logsumexp(x, axes=axes), x, axes, keepdims, keepdim)


def norm(
    x: Any,
    ord: Any = 2,
    axis: Any = None,
    keepdims: bool = False,
    *,
    p: Any = None,
    dim: Any = None,
    keepdim: bool = False,
) -> Any:
    """The vector norm of order `ord` (or p) over axes: 2, 1, inf, -inf, 0 (count of non-zeros) or any other number.

    The derivative of the 2-norm at 0 is 0. "fro" is 2. Raises E0103 for another name.
    """
    x, ord = floating(x), ord if p is None else p
    axes = _axes(x, axis, dim)
    ord = 2 if ord in (None, "fro") else ord
    if not isinstance(ord, int | float):
        raise UserError("E0103", f"norm of order {ord!r}", fix="give a number or 'fro'")
    narrow = x.dtype if x.dtype.bits == 16 else None
    if narrow is not None:  # squares of 16-bit floats overflow long before the norm does
        return cast(norm(cast(x, dtypes.float32), ord, axes, keepdims or keepdim), narrow)
    size = abs(x)
    if ord in (math.inf, -math.inf):
        out = (reduce.reduce_max if ord > 0 else reduce.reduce_min)(size, axes=axes)
    elif ord == 0:
        out = reduce.reduce_sum(cast(compare.not_equal(size, 0), size.dtype), axes=axes)
    elif ord == 1:
        out = reduce.reduce_sum(size, axes=axes)
    elif ord == 2:
        total = reduce.reduce_sum(square(size), axes=axes)
        zero = compare.equal(total, 0)
        out = where(zero, 0, sqrt(where(zero, 1, total)))
    else:
        out = pow(reduce.reduce_sum(pow(size, ord), axes=axes), 1.0 / ord)
    return _kept(out, x, axes, keepdims, keepdim)


def cumsum(x: Any, axis: Any = None, *, dim: Any = None, dtype: Any = None) -> Any:
    """The running sum along an axis, each element included; without an axis over all elements in order."""
    x, axis = _summable(x, dtype), either("axis", axis, "dim", dim)
    x, axis = (reshape(x, (math.prod(x.shape),)), 0) if axis is None else (x, axis)
    return reduce.cumsum(x, axis=one_axis(axis, x.ndim), reverse=False)


def cumprod(x: Any, axis: Any = None, *, dim: Any = None, dtype: Any = None) -> Any:
    """The running product along an axis, each element included; without an axis over all elements in order."""
    x, axis = _summable(x, dtype), either("axis", axis, "dim", dim)
    x, axis = (reshape(x, (math.prod(x.shape),)), 0) if axis is None else (x, axis)
    return cumulative.cumprod(x, axis=one_axis(axis, x.ndim), reverse=False)


def cummax(x: Any, axis: Any = None, *, dim: Any = None) -> Any:
    """The running maximum along an axis (the last unless named), and the index of each (int32)."""
    x, axis = lift(x), either("axis", axis, "dim", dim)
    return cumulative.cummax(x, axis=one_axis(-1 if axis is None else axis, x.ndim), reverse=False)


def cummin(x: Any, axis: Any = None, *, dim: Any = None) -> Any:
    """The running minimum along an axis (the last unless named), and the index of each (int32)."""
    x, axis = lift(x), either("axis", axis, "dim", dim)
    return cumulative.cummin(x, axis=one_axis(-1 if axis is None else axis, x.ndim), reverse=False)


def logcumsumexp(x: Any, axis: Any = None, *, dim: Any = None) -> Any:
    """log(cumsum(exp(x))) along an axis (the last unless named), without overflow."""
    x, axis = floating(x), either("axis", axis, "dim", dim)
    return cumulative.cumlogsumexp(x, axis=one_axis(-1 if axis is None else axis, x.ndim), reverse=False)


def nan_to_num(x: Any, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Any:
    """x with NaN replaced by `nan`, and infinities by `posinf` and `neginf` (unless given, the largest numbers).

    Raises E0106 for complex tensors.
    """
    x = lift(x)
    if x.dtype.kind == "c":
        raise UserError("E0106", f"needs real number tensors, got {x.type}", fix="replace real and imaginary parts")
    if x.dtype.kind in "biu":
        return fresh(x)
    kind = x.dtype.np.type
    largest = float(np.nextafter(kind(np.inf), kind(0)))
    high, low = largest if posinf is None else posinf, -largest if neginf is None else neginf
    return where(isnan(x), nan, where(equal(x, math.inf), high, where(equal(x, -math.inf), low, x)))


def softmax(x: Any, axis: Any = None, *, dim: Any = None) -> Any:
    """exp(x) / sum(exp(x)) along an axis (the last unless named), without overflow."""
    x, axis = floating(x), either("axis", axis, "dim", dim)
    return softmax_op(x, axis=one_axis(-1 if axis is None else axis, x.ndim))


def log_softmax(x: Any, axis: Any = None, *, dim: Any = None) -> Any:
    """x - logsumexp(x) along an axis (the last unless named)."""
    x, axis = floating(x), either("axis", axis, "dim", dim)
    return log_softmax_op(x, axis=one_axis(-1 if axis is None else axis, x.ndim))


# ----------------------------------------------------------------------------------------------------------- order
def _ordered(x: Any) -> Any:
    """x in a type that the ops of order take: bools as integers."""
    x = lift(x)
    return cast(x, dtypes.uint8) if x.dtype is dtypes.bool_ else x


def _extreme_place(op: Any, x: Any, axis: Any, keep: bool) -> Any:
    x = _ordered(x)
    if axis is None:
        out = op(reshape(x, (math.prod(x.shape),)), axis=0)
        return reshape(out, (1,) * x.ndim) if keep else out
    place = one_axis(axis, x.ndim)
    return _kept(op(x, axis=place), x, (place,), keep, False)


def argmax(x: Any, axis: Any = None, keepdims: bool = False, *, dim: Any = None, keepdim: bool = False) -> Any:
    """The index (int32) of the largest element along an axis, or of all elements in order; the first among equals."""
    return _extreme_place(argmax_op, x, either("axis", axis, "dim", dim), keepdims or keepdim)


def argmin(x: Any, axis: Any = None, keepdims: bool = False, *, dim: Any = None, keepdim: bool = False) -> Any:
    """The index (int32) of the smallest element along an axis, or of all elements in order; the first among equals."""
    return _extreme_place(argmin_op, x, either("axis", axis, "dim", dim), keepdims or keepdim)


def sort(x: Any, axis: Any = None, descending: bool = False, *, dim: Any = None) -> Any:
    """The elements in order along an axis (the last unless named); values only, NaN is the greatest; stable."""
    x, axis = lift(x), either("axis", axis, "dim", dim)
    out = sort_op(_ordered(x), axis=one_axis(-1 if axis is None else axis, x.ndim), descending=descending)
    return cast(out, x.dtype)


def argsort(x: Any, axis: Any = None, descending: bool = False, *, dim: Any = None) -> Any:
    """The indices (int32) that sort x along an axis (the last unless named); stable."""
    x, axis = _ordered(x), either("axis", axis, "dim", dim)
    return argsort_op(x, axis=one_axis(-1 if axis is None else axis, x.ndim), descending=descending)


def topk(x: Any, k: int, axis: Any = None, largest: bool = True, *, dim: Any = None) -> tuple[Any, Any]:
    """The k largest (or smallest) elements along an axis in order, and their indices (int32). Raises E0142."""
    x, axis = lift(x), either("axis", axis, "dim", dim)
    place, count = one_axis(-1 if axis is None else axis, x.ndim), integer(k, "k")
    if largest:
        values, places = top_k(moveaxis(_ordered(x), place, -1), k=count)
        return cast(moveaxis(values, -1, place), x.dtype), moveaxis(places, -1, place)
    if not 0 <= count <= x.shape[place]:
        why = f"the {k} smallest of {x.shape[place]} elements"
        raise UserError("E0142", why, fix=f"use a k of 0 to {x.shape[place]}")
    values, places = sort_with_index(_ordered(x), axis=place, descending=False)
    return cast(cut(values, place, 0, count), x.dtype), cut(places, place, 0, count)


# --------------------------------------------------------------------------------------------------------- look-up
def take(x: Any, indices: Any, axis: Any = None, *, dim: Any = None) -> Any:
    """Slices of x at indices along an axis; without one, elements in row order. Negative indices count from the back.

    Raises E0506 for an array of indices out of range; a tensor's indices are clamped.
    """
    x, axis = lift(x), either("axis", axis, "dim", dim)
    x, axis = (reshape(x, (math.prod(x.shape),)), 0) if axis is None else (x, axis)
    place = one_axis(axis, x.ndim)
    return index.take(x, operand(positions(indices, x.shape[place])), axis=place)


def take_along_axis(x: Any, indices: Any, axis: Any = None, *, dim: Any = None) -> Any:
    """result[.., i, ..] = x[.., indices[.., i, ..], ..]; the other sizes are equal. Indices as in `take`."""
    x, axis = lift(x), either("axis", axis, "dim", dim)
    place = one_axis(-1 if axis is None else axis, x.ndim)
    return index.take_along_axis(x, operand(positions(indices, x.shape[place])), axis=place)


def gather(x: Any, axis: int | None = None, indices: Any = None, *, dim: Any = None, index: Any = None) -> Any:
    """`take_along_axis` with PyTorch's arguments: gather(x, dim, index). index may be smaller than x on other axes."""
    x, place = lift(x), one_axis(either("axis", axis, "dim", dim), lift(x).ndim)
    where_to = lift(either("indices", indices, "index", index))
    if where_to.ndim != x.ndim:
        raise UserError("E0140", f"{x.ndim} axes, the index has {where_to.ndim}", fix="give it as many axes")
    for i, n in enumerate(where_to.shape):
        if i != place and n < x.shape[i]:
            x = cut(x, i, 0, n)
    return take_along_axis(x, where_to, place)


def one_hot(indices: Any, num_classes: int, dtype: Any = dtypes.float32) -> Any:
    """result[..., k] = 1 where indices[...] == k, else 0, for k below num_classes. Indices out of range give zeros."""
    indices = lift(indices)
    if not indices.dtype.is_integer:
        raise UserError("E0138", f"indices are {indices.dtype}", fix="cast them: i.astype(td.int32)")
    if indices.dtype.kind == "u" or indices.dtype.bits < 32:
        indices = cast(indices, dtypes.int64 if indices.dtype.bits >= 32 else dtypes.int32)
    return index.one_hot(indices, depth=integer(num_classes, "num_classes"), dtype=dtypes.of(dtype))
