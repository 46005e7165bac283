"""Random numbers of further distributions, made of the draws of `random`: keys, counters and bits as told there.

Uniform numbers are odd multiples of 2**-24 (2**-53 for float64) here: neither 0 nor 1. So what has a smaller chance
than that is never seen: the largest exponential number is 16.6 (36.7). 16-bit floats are rounded float32 draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle.base.dtypes import DType, bfloat16, float16, float32, float64, int32, uint32, uint64
from treadle.base.errors import UserError
from treadle.ir.node import Value
from treadle.ir.types import TensorType, f32, f64, i32, u32
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._regions import region, types_of
from treadle.ops._types import same_float
from treadle.ops.bits import bit_or, shift_right_logical
from treadle.ops.casting import cast
from treadle.ops.compare import greater, less, logical_and, logical_not, logical_or, select
from treadle.ops.control import while_
from treadle.ops.creation import check_shape, full
from treadle.ops.elementwise import maximum, minimum
from treadle.ops.functions import erf_inv, log, log1p, pow, rsqrt
from treadle.ops.random import (
    NO_AXES,
    NO_GRAD,
    NO_ONNX,
    UNIT_BITS,
    _check_draw,
    _check_key,
    _source,
    _work,
    fold_in,
    random_bits,
    random_normal,
)  # fmt: skip
from treadle.ops.reduce import broadcast_to, reduce_or
from treadle.ops.sorting import argmax, argsort

KEY = np.array([3, 5], np.uint32)
SHAPES: tuple[tuple[int, ...], ...] = ((), (7,), (2, 3), (1, 1), (0, 3))


def _inner(key: Value, shape: tuple[int, ...], dtype: DType) -> Value:
    """Uniform numbers between 0 and 1, in the work type of `dtype`."""
    source, work = _source(dtype), _work(dtype)
    n = UNIT_BITS[work]
    odd = bit_or(shift_right_logical(random_bits(key, shape=shape, dtype=source), source.bits - n), 1)
    unit: Value = cast(odd, dtype=work) * 2.0**-n
    return unit


def _inner_of(key: Any, shape: tuple[int, ...], dtype: DType) -> Any:
    """The same with NumPy."""
    source, work = _source(dtype), _work(dtype)
    n = UNIT_BITS[work]
    bits = random_bits.rules["ref"](key, shape=shape, dtype=source) >> source.np.type(source.bits - n)
    return (bits | source.np.type(1)).astype(work.np) * work.np.type(2.0**-n)


def _bad_draws(s: Samples, **attrs: Any) -> Iterator[Sample]:
    yield s(u32[3], shape=(2,), dtype=float32, bad="E0124", **attrs)
    yield s(KEY, shape=(2,), dtype=int32, bad="E0125", **attrs)
    yield s(KEY, shape=(-2,), dtype=float32, bad="E0109", **attrs)


# --------------------------------------------------------------------------------------------------------- exponential
@op(grad=NO_GRAD, axes=NO_AXES, onnx=NO_ONNX, type=lambda key, *, shape, dtype: _check_draw(key, shape, dtype))
def random_exponential(key: Value, *, shape: tuple[int, ...], dtype: DType) -> Any:
    """Floats of the exponential distribution of mean 1: -log(1 - u). key: u32[2].

    Raises E0124 for another key, E0125 for another dtype, E0109 for a negative size.
    """


@random_exponential.ref
def _(key: Any, *, shape: tuple[int, ...], dtype: DType) -> Any:
    return (-np.log1p(-_inner_of(key, shape, dtype))).astype(dtype.np)


@random_exponential.expand
def _(key: Value, *, shape: tuple[int, ...], dtype: DType) -> Any:
    return cast(-log1p(-_inner(key, shape, dtype)), dtype=dtype)


@random_exponential.samples
def _(s: Samples) -> Iterator[Sample]:
    for shape in SHAPES:
        yield s(KEY, shape=shape, dtype=float32)
    for dtype in (float64, float16, bfloat16):
        yield s(KEY, shape=(2, 5), dtype=dtype)
    yield from _bad_draws(s)


# ---------------------------------------------------------------------------------------------------- truncated normal
LEAST_MASS = 2.0**-8


def _erf_bounds(low: float, high: float) -> tuple[float, float]:
    return math.erf(low / math.sqrt(2)), math.erf(high / math.sqrt(2))


@op(grad=NO_GRAD, axes=NO_AXES, onnx=NO_ONNX)
def random_truncated_normal(key: Value, *, shape: tuple[int, ...], dtype: DType, low: float, high: float) -> Any:
    """Floats of the standard normal distribution, given that they lie between low and high, which may be infinite.

    sqrt(2) * erf_inv(u), u evenly spread between the bounds' erf(bound / sqrt(2)). key: u32[2]. Raises E0124 for
    another key, E0125 for another dtype, E0109 for a negative size, E0126 unless at least 2**-8 of all normal numbers
    lie between the bounds: of fewer, the digits of u would not make a fair draw.
    """


@random_truncated_normal.type
def _(key: TensorType, *, shape: tuple[int, ...], dtype: DType, low: float, high: float) -> TensorType:
    first, last = _erf_bounds(low, high)
    if not (last - first) / 2 >= LEAST_MASS:
        why = f"of normal numbers fewer than 1 in 256 lie from {low} to {high}"
        raise UserError("E0126", why, fix="give low < high further apart or nearer to 0")
    return _check_draw(key, shape, dtype)


@random_truncated_normal.expand
def _(key: Value, *, shape: tuple[int, ...], dtype: DType, low: float, high: float) -> Any:
    first, last = _erf_bounds(low, high)
    edge = 1 - 2.0 ** -UNIT_BITS[_work(dtype)]  # erf_inv(1) is infinite
    u = _inner(key, shape, dtype) * (last - first) + first
    result = cast(erf_inv(minimum(maximum(u, -edge), edge)) * math.sqrt(2), dtype=dtype)
    result = maximum(result, low) if low > -math.inf else result
    return minimum(result, high) if high < math.inf else result


@random_truncated_normal.samples
def _(s: Samples) -> Iterator[Sample]:
    for shape in SHAPES:
        yield s(KEY, shape=shape, dtype=float32, low=-2.0, high=2.0, tol=1e-5)
    for dtype in (float64, float16, bfloat16):
        yield s(KEY, shape=(2, 5), dtype=dtype, low=-0.5, high=math.inf)
    yield from _bad_draws(s, low=-1.0, high=2.0)
    yield s(KEY, shape=(2,), dtype=float32, low=1.0, high=1.0, bad="E0126")
    yield s(KEY, shape=(2,), dtype=float32, low=6.0, high=math.inf, bad="E0126")


# --------------------------------------------------------------------------------------------------------- categorical
@op(grad=NO_GRAD, axes=NO_AXES, onnx=NO_ONNX)
def random_categorical(key: Value, logits: Value, *, shape: tuple[int, ...]) -> Any:
    """Indices k (int32) drawn with chances proportional to exp(logits[..., k]): the largest logit + Gumbel number.

    key: u32[2], logits: float[..., K]; `shape` ends with the axes before K. -inf is never drawn, unless all are. Source
    of the method: Gumbel 1954, as in Maddison et al. 2014, arXiv:1411.0030. Raises E0124 for another key, E0106 for
    logits that are no floats, E0107 for 0-d ones, E0109 for a negative size, E0129 for a `shape` that does not fit,
    E0130 for K = 0.
    """


@random_categorical.type
def _(key: TensorType, logits: TensorType, *, shape: tuple[int, ...]) -> TensorType:
    _check_key(key)
    same_float(logits)
    check_shape(shape)
    if not logits.rank:
        raise UserError("E0107", "the logits are a single number", fix="give them an axis of classes")
    rest = logits.shape[:-1]
    if len(shape) < len(rest) or shape[len(shape) - len(rest) :] != rest:
        why = f"draws of shape {list(shape)} from logits {logits}"
        raise UserError("E0129", why, fix=f"use a shape that ends with {list(rest)}")
    if not logits.shape[-1]:
        raise UserError("E0130", f"nothing to draw from: {logits}", fix="give at least one class")
    return TensorType(int32, shape)


@random_categorical.ref
def _(key: Any, logits: Any, *, shape: tuple[int, ...]) -> Any:
    dtype = _work(DTYPES[logits.dtype.name])
    noise = -np.log(-np.log1p(-_inner_of(key, (*shape, logits.shape[-1]), dtype)))
    return np.argmax(logits.astype(dtype.np) + noise, -1).astype(np.int32)


@random_categorical.expand
def _(key: Value, logits: Value, *, shape: tuple[int, ...]) -> Any:
    dtype, full_shape = _work(logits.dtype), (*shape, logits.shape[-1])
    noise = -log(-log1p(-_inner(key, full_shape, dtype)))
    return argmax(broadcast_to(cast(logits, dtype=dtype), shape=full_shape) + noise, axis=len(shape))


DTYPES = {d.name: d for d in (float16, bfloat16, float32, float64)}


@random_categorical.samples
def _(s: Samples) -> Iterator[Sample]:
    for t in (f32[3], f64[3]):
        yield s(KEY, t, shape=(4, 5))
    yield s(KEY, f32[2, 3], shape=(4, 2))
    yield s(KEY, f32[2, 1], shape=(2,))
    yield s(KEY, f32[0, 3], shape=(2, 0))
    yield s(KEY, np.array([-np.inf, 0.5, -np.inf], np.float32), shape=(6,))
    yield s(u32[3], f32[3], shape=(), bad="E0124")
    yield s(KEY, i32[3], shape=(), bad="E0106")
    yield s(KEY, f32[()], shape=(), bad="E0107")
    yield s(KEY, f32[3], shape=(-1,), bad="E0109")
    yield s(KEY, f32[2, 3], shape=(3,), bad="E0129")
    yield s(KEY, f32[0], shape=(3,), bad="E0130")


# --------------------------------------------------------------------------------------------------------- permutation
@op(grad=NO_GRAD, axes=NO_AXES, onnx=NO_ONNX)
def random_permutation(key: Value, *, count: int) -> Any:
    """0 to count - 1 in random order, int32. key: u32[2].

    They are sorted by 64 random bits each; of the expected count**2 / 2**65 equal ones the smaller comes first.
    Raises E0124 for another key, E0109 for count < 0, E0131 for a count of 2**31 or more.
    """


@random_permutation.type
def _(key: TensorType, *, count: int) -> TensorType:
    _check_key(key)
    check_shape((count,))
    if count > 2**31 - 1:
        raise UserError("E0131", f"an int32 index does not reach the end of {count} elements", fix="split them")
    return TensorType(int32, (count,))


@random_permutation.ref
def _(key: Any, *, count: int) -> Any:
    bits = random_bits.rules["ref"](key, shape=(count,), dtype=uint64)
    return np.argsort(bits, kind="stable").astype(np.int32)


@random_permutation.expand
def _(key: Value, *, count: int) -> Any:
    return argsort(random_bits(key, shape=(count,), dtype=uint64), axis=0, descending=False)


@random_permutation.samples
def _(s: Samples) -> Iterator[Sample]:
    for count in (0, 1, 9):
        yield s(KEY, count=count)
    yield s(u32[1], count=2, bad="E0124")
    yield s(KEY, count=-2, bad="E0109")
    yield s(KEY, count=2**31, bad="E0131")


# --------------------------------------------------------------------------------------------------------------- gamma
@op(grad=NO_GRAD, axes=NO_AXES, onnx=NO_ONNX)
def random_gamma(key: Value, alpha: Value) -> Any:
    """Floats of the gamma distribution with shape parameter alpha and scale 1, one for each alpha. key: u32[2].

    alpha: float[...]; the result is NaN where it is not positive and finite. Numbers are proposed until each element
    has accepted one, in a loop (expected: fewer than 1.06 for an element); none is cut off. For alpha < 1 a draw of
    alpha + 1 is multiplied by u ** (1 / alpha), which underflows to 0 for tiny alpha. There is no gradient for alpha.
    Source: Marsaglia & Tsang 2000, "A simple method for generating gamma variables", doi:10.1145/358407.358414.
    Raises E0124 for another key, E0106 for an alpha that is not float.
    """


@random_gamma.type
def _(key: TensorType, alpha: TensorType) -> TensorType:
    _check_key(key)
    return same_float(alpha)


@random_gamma.expand
def _(key: Value, alpha: Value) -> Any:
    dtype, shape = _work(alpha.dtype), alpha.shape
    given = cast(alpha, dtype=dtype)
    valid = logical_and(greater(given, 0), less(given, math.inf))
    a = select(valid, given, 1)
    small = less(a, 1)
    d = select(small, a + 1, a) - 1 / 3
    round: Value = full(value=0, shape=(), dtype=uint32)
    nothing: Value = full(value=0, shape=shape, dtype=dtype)
    inputs = (key, d, logical_not(valid), nothing, round)
    types = types_of(inputs)
    bodies = {"cond": region(_some_left, types, "left"), "body": region(_propose, types, "propose")}
    value = while_(*inputs, **bodies, n_consts=2)[1]
    boost = pow(_inner(key, shape, dtype), 1 / a)  # draws of `key` itself never meet those of keys folded from it
    result = value * select(small, boost, 1)
    return cast(select(valid, result, math.nan), dtype=alpha.dtype)


def _some_left(key: Value, d: Value, done: Value, value: Value, round: Value) -> Any:
    return reduce_or(logical_not(done), axes=tuple(range(done.ndim)))


def _propose(key: Value, d: Value, done: Value, value: Value, round: Value) -> tuple[Value, Value, Value]:
    """One proposal for each element: x normal, v = (1 + c * x)**3, accepted as log(u) < x**2 / 2 + d - d*v + d*log(v).

    With e = c * x the last three terms are d times 3 * (log1p(e) - e - e**2) - e**3, which keeps its digits where d is
    large.
    """
    x = random_normal(fold_in(key, round), shape=d.shape, dtype=d.dtype)
    u = _inner(fold_in(key, round + 1), d.shape, d.dtype)
    e = x * rsqrt(9 * d)
    inside = greater(e, -1)
    e = select(inside, e, 0)
    bound = 0.5 * x * x + d * (3 * (log1p(e) - e - e * e) - e * e * e)
    accepted = logical_and(inside, less(log(u), bound))
    v = (1 + e) * (1 + e) * (1 + e)
    return logical_or(done, accepted), select(done, value, d * v), round + 2


@random_gamma.samples
def _(s: Samples) -> Iterator[Sample]:
    for t in (f32[()], f32[7], f64[2, 3], f32[1, 1], f32[0, 3]):
        yield s(KEY, s.uniform(t, 0.3, 9.0), tol=1e-4)
    for name in ("float16", "bfloat16"):
        yield s(KEY, np.array([0.5, 2.0, 30.0]).astype(DTYPES[name].np))
    yield s(KEY, np.array([0.0, -1.0, np.nan, np.inf, 3.0], np.float32))
    yield s(u32[3], f32[2], bad="E0124")
    yield s(KEY, i32[2], bad="E0106")
