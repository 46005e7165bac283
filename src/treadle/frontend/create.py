"""Tensors from numbers and from nothing, and random ones.

Shapes are given as ints or as one tuple: `zeros(2, 3)` or `zeros((2, 3))`. Inside a traced function these build ops.

A `Generator` has a key and a counter, both tensors: each draw folds the counter into the key and adds one to it. Eager
and compiled code so make the same draws, and a checkpoint of the two resumes the stream.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from treadle.base import arguments, dtypes
from treadle.base.dtypes import DType
from treadle.base.errors import UserError
from treadle.frontend import shaping
from treadle.frontend.lift import (
    cast,
    floating,
    index_along,
    integer,
    ints,
    is_array,
    is_number,
    is_tensor,
    lift,
    literal,
    make_tensor,
    wrapped,
)  # fmt: skip
from treadle.frontend.tensor import Tensor
from treadle.ir import build
from treadle.ops import compare, creation, distributions, random
from treadle.ops.bits import shift_right_logical

KEY_BITS = 64

__all__ = [
    "Generator", "arange", "bernoulli", "categorical", "exponential", "eye", "from_numpy", "full", "full_like",
    "linspace", "manual_seed", "normal", "ones", "ones_like", "permutation", "rand", "rand_like", "randint",
    "randn", "randn_like", "randperm", "standard_gamma", "tensor", "truncated_normal", "uniform", "zeros",
    "zeros_like",
]  # fmt: skip


def tensor(data: Any, dtype: Any = None) -> Any:
    """A new tensor of a number, nested list (which may hold tensors), array or tensor.

    Python floats become float32 and ints int64 unless `dtype` says otherwise; arrays keep their type.
    """
    return make_tensor(data, dtype)


as_tensor = tensor


def from_numpy(array: Any) -> Any:
    """A tensor with the elements and type of a NumPy array; later changes of one are not seen by the other."""
    if not is_array(array):
        raise UserError("E0102", f"{type(array).__name__} is no NumPy array", fix="use td.tensor for other data")
    return make_tensor(array)


def _default(number: Any) -> DType:
    """The type of a tensor filled with a Python number or with a number that has a type."""
    number = lift(number) if is_tensor(number) else number
    kind: Any = number.dtype if hasattr(number, "dtype") else type(number)
    return dtypes.of(kind)


def full(shape: Any, fill_value: Any, dtype: Any = None) -> Any:
    """A tensor with every element fill_value (a number or 0-d tensor); its type unless `dtype` is given."""
    sizes = ints((shape,))
    if not (is_tensor(fill_value) or is_array(fill_value) or is_number(fill_value)):
        raise UserError("E0103", f"fill_value is {fill_value!r}", fix="give a number or a 0-d tensor")
    kind = _default(fill_value) if dtype is None else dtypes.of(dtype)
    if is_tensor(fill_value):
        return shaping.broadcast_to(cast(fill_value, kind), sizes)
    value = fill_value.item() if is_array(fill_value) else fill_value
    if isinstance(value, complex) and kind.kind == "c":
        return shaping.broadcast_to(make_tensor(value, kind), sizes)
    if build.active():
        return wrapped(creation.full(value=value, shape=sizes, dtype=kind))
    creation.full.rules["type"](value=value, shape=sizes, dtype=kind)
    try:
        return make_tensor(np.full(sizes, value, kind.np))
    except MemoryError:
        size = math.prod(sizes) * kind.bytes
        why = f"a tensor of {size:,} bytes does not fit into memory"
        raise UserError("E0405", why, fix="use smaller sizes") from None


def zeros(*shape: Any, dtype: Any = dtypes.float32) -> Any:
    """A tensor of zeros, float32 unless told otherwise."""
    return full(ints(shape), 0, dtype)


def ones(*shape: Any, dtype: Any = dtypes.float32) -> Any:
    """A tensor of ones, float32 unless told otherwise."""
    return full(ints(shape), 1, dtype)


empty = zeros  # nothing is left to chance


def _like(x: Any, dtype: Any) -> tuple[tuple[int, ...], DType]:
    x = lift(x)
    return tuple(x.shape), x.dtype if dtype is None else dtypes.of(dtype)


def full_like(x: Any, fill_value: Any, dtype: Any = None) -> Any:
    """A tensor of the shape and type of x with every element fill_value."""
    return full(*_like_with(x, fill_value, dtype))


def _like_with(x: Any, fill_value: Any, dtype: Any) -> tuple[Any, Any, Any]:
    shape, kind = _like(x, dtype)
    return shape, fill_value, kind


def zeros_like(x: Any, dtype: Any = None) -> Any:
    """Zeros of the shape and type of x."""
    return full_like(x, 0, dtype)


def ones_like(x: Any, dtype: Any = None) -> Any:
    """Ones of the shape and type of x."""
    return full_like(x, 1, dtype)


empty_like = zeros_like


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Any:
    """start, start + step, ... up to, not including, stop (or 0 to start): int64 of ints, else float32.

    Floats are computed in double precision and rounded once. Raises E0103 for tensors or a step of 0.
    """
    start, stop = (0, start) if stop is None else (start, stop)
    numbers = [x.item() if is_array(x) else x for x in (start, stop, step)]
    if not all(isinstance(x, int | float) for x in numbers) or numbers[2] == 0:
        raise UserError("E0103", f"arange({start}, {stop}, {step})", fix="give Python numbers, and a step other than 0")
    first, end, by = numbers
    kind = _default(first + end + by) if dtype is None else dtypes.of(dtype)
    count = max(0, math.ceil((end - first) / by))
    work = dtypes.int64 if all(isinstance(x, int) for x in numbers) else dtypes.float64
    places = lift(_wrapped_index(count, work))
    return cast(places if (first, by) == (0, 1) else places * by + first, kind)


def _wrapped_index(count: int, kind: DType) -> Any:
    """0, 1, ... as a tensor."""
    places = index_along((count,), 0, kind)
    return wrapped(places) if build.active() else places


def linspace(start: float, stop: float, num: int, dtype: Any = dtypes.float32) -> Any:
    """`num` numbers evenly spaced from start to stop, both included; computed in double precision and rounded once."""
    count = integer(num, "num")
    if not (is_number(start) and is_number(stop)):
        raise UserError("E0103", f"linspace from {start!r} to {stop!r}", fix="give two Python numbers")
    if count < 0:
        raise UserError("E0109", f"num {num} is negative", fix="give the count of numbers")
    step = (stop - start) / max(count - 1, 1)
    places = lift(_wrapped_index(count, dtypes.float64))
    line = places * step + start
    if count > 1:
        line = compare.select(compare.equal(places, float(count - 1)), float(stop), line)
    return cast(line, dtypes.of(dtype))


def eye(n: int, m: int | None = None, k: int = 0, dtype: Any = dtypes.float32) -> Any:
    """A matrix n x m (n x n) with ones on diagonal number k, else zeros."""
    shape = tuple([arguments.count(size, "a size", 0, "E0109") for size in (n, n if m is None else m)])
    rows, columns = (_grid(shape, axis) for axis in (0, 1))
    return cast(compare.equal(columns - rows, k), dtypes.of(dtype))


def _grid(shape: tuple[int, ...], axis: int) -> Any:
    places = index_along(shape, axis, dtypes.int32)
    return wrapped(places) if build.active() else lift(places)


# ---------------------------------------------------------------------------------------------------------- random
class Generator:
    """A stream of random numbers. `key` (u32[2]) comes from the seed, `counter` (u32 scalar) counts the draws."""

    def __init__(self, seed: int = 0) -> None:
        self.key = Tensor(_key(seed))
        self.counter = Tensor(np.zeros((), np.uint32))

    def manual_seed(self, seed: int) -> Generator:
        """Begin the stream of this seed."""
        self.key.assign(make_tensor(_key(seed)))
        self.counter.assign(make_tensor(np.zeros((), np.uint32)))
        return self

    def next_key(self) -> Any:
        """The key of one draw; the next one is another."""
        key = random.fold_in(self.key, self.counter)
        self.counter.assign(self.counter + 1)
        return key


def _key(seed: Any) -> Any:
    """The 64 bits of the seed as two words, the upper one first."""
    bits = integer(seed, "the seed") % 2**KEY_BITS
    return np.array([bits >> 32, bits & 0xFFFFFFFF], np.uint32)


default_generator = Generator(0)


def manual_seed(seed: int) -> Generator:
    """Begin the default stream of random numbers anew. seed: an int, taken modulo 2**64."""
    return default_generator.manual_seed(seed)


def _next(generator: Generator | None) -> Any:
    if generator is not None and not isinstance(generator, Generator):
        raise UserError("E0103", f"generator is {generator!r}", fix="pass td.Generator(seed)")
    return (default_generator if generator is None else generator).next_key()


def rand(*shape: Any, dtype: Any = dtypes.float32, generator: Generator | None = None) -> Any:
    """Floats evenly distributed from 0 up to, not including, 1."""
    return uniform(0.0, 1.0, ints(shape), dtype=dtype, generator=generator)


def uniform(
    low: Any = 0.0, high: Any = 1.0, shape: Any = (), dtype: Any = dtypes.float32, generator: Generator | None = None
) -> Any:
    """Floats evenly distributed from low up to, not including, high (numbers, or 0-d tensors)."""
    sizes, kind = ints((shape,)), dtypes.of(dtype)
    if is_number(low) and is_number(high):
        attributes = {"low": float(low), "high": float(high)}
        return random.random_uniform(_next(generator), shape=sizes, dtype=kind, **attributes)
    unit = random.random_uniform(_next(generator), shape=sizes, dtype=kind, low=0.0, high=1.0)
    return cast(unit * (lift(high) - low) + low, kind)


def randn(*shape: Any, dtype: Any = dtypes.float32, generator: Generator | None = None) -> Any:
    """Floats of the standard normal distribution."""
    return random.random_normal(_next(generator), shape=ints(shape), dtype=dtypes.of(dtype))


def normal(
    mean: Any = 0.0, std: Any = 1.0, shape: Any = (), dtype: Any = dtypes.float32, generator: Generator | None = None
) -> Any:
    """Floats of the normal distribution with this mean and standard deviation (numbers or tensors that broadcast)."""
    drawn = randn(ints((shape,)), dtype=dtype, generator=generator)
    return cast(drawn * std + mean, dtypes.of(dtype))


def randint(
    low: int, high: int | None = None, shape: Any = (), dtype: Any = dtypes.int64, generator: Generator | None = None
) -> Any:
    """Integers from low (0 if one number is given) up to, not including, high.

    The upper half of 32 random bits times the span: a bias below span / 2**32. Raises E0126 for an empty or wider span.
    """
    low, high = (0, low) if high is None else (low, high)
    span = integer(high, "high") - integer(low, "low")
    if not 0 < span <= 2**32:
        why = f"integers from {low} to below {high}"
        raise UserError("E0126", why, fix="give low < high, 2**32 apart at most")
    bits = cast(random.random_bits(_next(generator), shape=ints((shape,)), dtype=dtypes.uint32), dtypes.uint64)
    scaled = shift_right_logical(bits * literal(np.uint64(span)), literal(np.uint64(32)))
    return cast(cast(scaled, dtypes.int64) + low, dtypes.of(dtype))


def truncated_normal(
    low: float = -2.0,
    high: float = 2.0,
    shape: Any = (),
    dtype: Any = dtypes.float32,
    generator: Generator | None = None,
) -> Any:
    """Floats of the standard normal distribution between low and high. Raises E0126 where there are hardly any."""
    bounds = {"low": float(low), "high": float(high)}
    sizes = ints((shape,))
    return distributions.random_truncated_normal(_next(generator), shape=sizes, dtype=dtypes.of(dtype), **bounds)


def exponential(
    scale: Any = 1.0, shape: Any = (), dtype: Any = dtypes.float32, generator: Generator | None = None
) -> Any:
    """Floats of the exponential distribution with this mean (a number or a tensor that broadcasts)."""
    kind = dtypes.of(dtype)
    return cast(distributions.random_exponential(_next(generator), shape=ints((shape,)), dtype=kind) * scale, kind)


def standard_gamma(alpha: Any, shape: Any = None, generator: Generator | None = None) -> Any:
    """Floats of the gamma distribution with shape parameter alpha and scale 1; alpha gives `shape` or broadcasts to it.

    Of the type of alpha, float32 for numbers and integers; NaN where alpha is not positive and finite.
    """
    alpha = floating(alpha)
    alpha = alpha if shape is None else shaping.broadcast_to(alpha, ints((shape,)))
    return distributions.random_gamma(_next(generator), alpha)


def categorical(logits: Any, shape: Any = (), generator: Generator | None = None) -> Any:
    """Indices (int64) drawn with chances proportional to exp(logits) along the last axis: of the shape `shape`, then
    the other axes of logits. Raises E0107 for a single number, E0130 for no classes."""
    logits = floating(logits)
    sizes = (*ints((shape,)), *logits.shape[:-1])
    return cast(distributions.random_categorical(_next(generator), logits, shape=sizes), dtypes.int64)


def bernoulli(p: Any, shape: Any = None, dtype: Any = dtypes.float32, generator: Generator | None = None) -> Any:
    """1 with probability p, else 0. p: a number, or a tensor that broadcasts to `shape` (or gives it)."""
    if is_number(p) and shape is not None:
        drawn = random.random_bernoulli(_next(generator), float(p), shape=ints((shape,)))
        return cast(drawn, dtypes.of(dtype))
    p = cast(lift(p), dtypes.float32)
    sizes = tuple(p.shape) if shape is None else ints((shape,))
    unit = random.random_uniform(_next(generator), shape=sizes, dtype=dtypes.float32, low=0.0, high=1.0)
    return cast(compare.less(unit, p), dtypes.of(dtype))


def permutation(n: int, generator: Generator | None = None) -> Any:
    """0 to n - 1 in random order, int64: sorted by 64 random bits each."""
    return cast(distributions.random_permutation(_next(generator), count=integer(n, "n")), dtypes.int64)


randperm = permutation


def rand_like(x: Any, generator: Generator | None = None) -> Any:
    """Floats from 0 to 1 of the shape and type of x."""
    shape, kind = _like(x, None)
    return rand(shape, dtype=kind, generator=generator)


def randn_like(x: Any, generator: Generator | None = None) -> Any:
    """Floats of the standard normal distribution, of the shape and type of x."""
    shape, kind = _like(x, None)
    return randn(shape, dtype=kind, generator=generator)
