"""Random counts, by rejection and by inversion: Poisson and binomial numbers, one for each parameter.

Keys and counters are as `random` tells. All is computed in float64, where logarithms of chances keep their digits. A
result is a whole number in the type of the parameters. Sources: Hormann 1993, "The transformed rejection method for
generating Poisson random variables", doi:10.1016/0167-6687(93)90997-4 (PTRS), and "The generation of binomial random
variates", doi:10.1080/00949659308811496 (BTRS).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from treadle.base.dtypes import float64, uint32
from treadle.ir.node import Value
from treadle.ir.types import TensorType, f32, f64, i32, u32
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._regions import region, types_of
from treadle.ops._types import cast_together, same_float
from treadle.ops.casting import cast
from treadle.ops.compare import (
    greater,
    greater_equal,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    select,
)  # fmt: skip
from treadle.ops.control import while_
from treadle.ops.creation import full
from treadle.ops.distributions import DTYPES, KEY, _inner
from treadle.ops.elementwise import abs, floor, minimum
from treadle.ops.functions import exp, log, log1p, sqrt
from treadle.ops.random import NO_AXES, NO_GRAD, NO_ONNX, _check_key, fold_in
from treadle.ops.reduce import reduce_or
from treadle.ops.shape import zeros_like
from treadle.ops.special import lgamma

SMALL = 10.0  # a smaller mean is drawn by inversion


def _loop(
    key: Value, done: Value, value: Value, fixed: tuple[Value, ...], step: Callable[..., Any], name: str
) -> Value:
    """value, after steps until all is done: step(key, round, done, value, *fixed) -> (done, value)."""
    round: Value = full(value=0, shape=(), dtype=uint32)
    inputs = (key, *fixed, done, value, round)
    n = len(fixed) + 1

    def some_left(*args: Value) -> Value:
        left: Value = reduce_or(logical_not(args[n]), axes=tuple(range(args[n].ndim)))
        return left

    def body(*args: Value) -> tuple[Value, Value, Value]:
        done, value, round = args[n:]
        done, value = step(args[0], round, done, value, *args[1:n])
        return done, value, round + 2

    types = types_of(inputs)
    cond, again = region(some_left, types, f"{name}_left"), region(body, types, name)
    made: Value = while_(*inputs, cond=cond, body=again, n_consts=n)[1]
    return made


def _inverted(key: Value, first: Value, ratio: Any, fixed: tuple[Value, ...], skip: Value, last: float) -> Value:
    """The smallest k at which the sum of the chances exceeds u. first: the chance of 0; ratio(k, *fixed): the chance of
    k by that of k - 1. skip: elements that need no answer."""
    u = _inner(key, first.shape, float64)
    zero = zeros_like(first)
    inputs = (u, *fixed, logical_or(skip, less_equal(u, first)), zero, first, first)
    n = len(fixed) + 1

    def some_left(*args: Value) -> Value:
        left: Value = reduce_or(logical_not(args[n]), axes=tuple(range(args[n].ndim)))
        return left

    def body(*args: Value) -> list[Value]:
        u, rest, (done, k, chance, total) = args[0], args[1:n], args[n:]
        following = k + 1
        chance = chance * ratio(following, *rest)
        total = total + chance
        found = logical_or(less_equal(u, total), greater_equal(following, last))
        return [logical_or(done, found), select(done, k, following), chance, total]

    types = types_of(inputs)
    loop = while_(
        *inputs, cond=region(some_left, types, "unreached"), body=region(body, types, "add_chance"), n_consts=n
    )
    made: Value = loop[1]
    return made


def _uniforms(key: Value, round: Value, shape: tuple[int, ...]) -> tuple[Value, Value, Value]:
    """(u in (-1/2, 1/2), 1/2 - |u|, v in (0, 1)) of a round."""
    u = _inner(fold_in(key, round), shape, float64) - 0.5
    return u, 0.5 - abs(u), _inner(fold_in(key, round + 1), shape, float64)


# ------------------------------------------------------------------------------------------------------------- Poisson
@op(grad=NO_GRAD, axes=NO_AXES, onnx=NO_ONNX)
def random_poisson(key: Value, rate: Value) -> Any:
    """Counts of the Poisson distribution with this mean, one for each; NaN where it is negative, NaN or infinite.

    key: u32[2], rate: float[...] -> whole numbers of its type. Raises E0124 for another key, E0106 for a rate that is
    not float.
    """


@random_poisson.type
def _(key: TensorType, rate: TensorType) -> TensorType:
    _check_key(key)
    return same_float(rate)


@random_poisson.expand
def _(key: Value, rate: Value) -> Any:
    mean = cast(rate, dtype=float64)
    valid = logical_and(greater_equal(mean, 0), less(mean, math.inf))
    small = less(mean, SMALL)
    few = select(logical_and(valid, small), mean, 1)
    low = _inverted(key, exp(-few), lambda k, m: m / k, (few,), logical_not(logical_and(valid, small)), 200.0)
    many = select(logical_and(valid, logical_not(small)), mean, SMALL)
    skip = logical_or(small, logical_not(valid))
    high = _loop(key, skip, zeros_like(mean), (many, log(many)), _poisson_step, "poisson")
    return cast(select(valid, select(small, low, high), math.nan), dtype=rate.dtype)


def _poisson_step(key: Value, round: Value, done: Value, value: Value, mean: Value, log_mean: Value) -> Any:
    """One proposal of PTRS for each element."""
    u, us, v = _uniforms(key, round, mean.shape)
    b = 0.931 + 2.53 * sqrt(mean)
    a = -0.059 + 0.02483 * b
    k = floor((2 * a / us + b) * u + mean + 0.43)
    quick = logical_and(greater_equal(us, 0.07), less_equal(v, 0.9277 - 3.6224 / (b - 2)))
    out = logical_or(less(k, 0), logical_and(less(us, 0.013), greater(v, us)))
    safe = select(out, 0, k)
    bound = safe * log_mean - mean - lgamma(safe + 1)
    slow = less_equal(log(v * (1.1239 + 1.1328 / (b - 3.4)) / (a / (us * us) + b)), bound)
    accepted = logical_or(quick, logical_and(logical_not(out), slow))
    return logical_or(done, accepted), select(done, value, k)


@random_poisson.samples
def _(s: Samples) -> Iterator[Sample]:
    for t in (f32[()], f64[2, 3], f32[0, 3]):
        yield s(KEY, s.uniform(t, 0.3, 40.0))
    yield s(KEY, np.array([0.5, 2.0, 30.0]).astype(DTYPES["bfloat16"].np))
    yield s(KEY, np.array([0.0, -1.0, np.nan, np.inf, 3.0, 1e6], np.float32))
    yield s(u32[3], f32[2], bad="E0124")
    yield s(KEY, i32[2], bad="E0106")


# ------------------------------------------------------------------------------------------------------------ binomial
def _key_and_pair(key: Any, n: Any, p: Any) -> tuple[Any, ...]:
    return key, *cast_together(n, p)


@op(grad=NO_GRAD, axes=NO_AXES, onnx=NO_ONNX, prepare=_key_and_pair)
def random_binomial(key: Value, n: Value, p: Value) -> Any:
    """How many of n trials with chance p succeed, one count for each; NaN where n < 0 or p is not from 0 to 1.

    key: u32[2]; n, p: float[...] of one type, n rounded down -> whole numbers of the type. Raises E0124 for another
    key, E0105 when the types differ, E0106 for other types.
    """


@random_binomial.type
def _(key: TensorType, n: TensorType, p: TensorType) -> TensorType:
    _check_key(key)
    return same_float(n, p)


@random_binomial.expand
def _(key: Value, n: Value, p: Value) -> Any:
    trials, chance = floor(cast(n, dtype=float64)), cast(p, dtype=float64)
    valid = logical_and(greater_equal(trials, 0), less(trials, math.inf))
    valid = logical_and(valid, logical_and(greater_equal(chance, 0), less_equal(chance, 1)))
    trials, chance = select(valid, trials, 0), select(valid, chance, 0)
    turned = greater(chance, 0.5)
    q = select(turned, 1 - chance, chance)
    small = less(trials * q, SMALL)
    some, odds = select(small, trials, 0), select(small, q / (1 - q), 0)
    first = exp(some * log1p(-select(small, q, 0)))
    ratio = lambda k, some, odds: (some - k + 1) / k * odds
    low = minimum(_inverted(key, first, ratio, (some, odds), logical_not(small), 200.0), some)
    many, share = select(small, 40, trials), select(small, 0.5, q)
    high = _loop(key, small, zeros_like(q), (many, share), _binomial_step, "binomial")
    found = select(small, low, high)
    return cast(select(valid, select(turned, trials - found, found), math.nan), dtype=n.dtype)


def _binomial_step(key: Value, round: Value, done: Value, value: Value, n: Value, p: Value) -> Any:
    """One proposal of BTRS for each element."""
    u, us, v = _uniforms(key, round, n.shape)
    width = sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * width
    a = -0.0873 + 0.0248 * b + 0.01 * p
    k = floor((2 * a / us + b) * u + n * p + 0.5)
    quick = logical_and(greater_equal(us, 0.07), less_equal(v, 0.92 - 4.2 / b))
    out = logical_or(less(k, 0), greater(k, n))
    safe, mode = select(out, 0, k), floor((n + 1) * p)
    heights = [lgamma(x + 1) + lgamma(n - x + 1) for x in (mode, safe)]
    bound = heights[0] - heights[1] + (safe - mode) * log(p / (1 - p))
    slow = less_equal(log(v * ((2.83 + 5.1 / b) * width) / (a / (us * us) + b)), bound)
    accepted = logical_and(logical_not(out), logical_or(quick, slow))
    return logical_or(done, accepted), select(done, value, k)


@random_binomial.samples
def _(s: Samples) -> Iterator[Sample]:
    for t in (f32[()], f64[2, 3], f32[0, 3]):
        yield s(KEY, s.ints(t, 0, 90), s.uniform(t, 0.0, 1.0))
    dtype = DTYPES["bfloat16"].np
    yield s(KEY, np.array([5.0, 100.0]).astype(dtype), np.array([0.5, 0.75]).astype(dtype))
    n = np.array([0.0, 5.0, 5.0, -1.0, 5.0, np.nan, np.inf, 1e6], np.float32)
    yield s(KEY, n, np.array([0.5, 0.0, 1.0, 0.5, 1.5, 0.5, 0.5, 0.3], np.float32))
    yield s(u32[3], f32[2], f32[2], bad="E0124")
    yield s(KEY, f32[2], f32[3], bad="E0105")
    yield s(KEY, i32[2], i32[2], bad="E0106")
