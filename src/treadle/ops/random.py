"""Random numbers from a counter: element i of a draw is a function of the key and of i alone, on every back end.

A key is u32[2]. The generator is Threefry-2x32 with 20 rounds (Salmon et al. 2011, "Parallel random numbers: as easy as
1, 2, 3", doi:10.1145/2063384.2063405), whose block (key, 64-bit counter) -> (x0, x1) gives:

* draws: the counter is the row-major index i of the element, high word first; 32 bits or fewer are the low bits of
  x0 ^ x1, 64 bits are x0 in the upper half and x1 in the lower;
* `fold_in(key, data)`: the counter is (2**32 - 1, data), `random_split(key)`: (2**32 - 2, i), so that keys made from a
  key never meet the numbers drawn with it.

Bits are the same everywhere; floats made of them may differ in the last place where a back end rounds differently.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle.base import dtypes
from treadle.base.dtypes import DType, bfloat16, float16, float32, float64, int32, int64, uint8, uint16, uint32, uint64
from treadle.base.errors import UserError
from treadle.ir.node import Value
from treadle.ir.op import No
from treadle.ir.types import TensorType, f32, f64, i32, u32
from treadle.ops import _padding
from treadle.ops._declare import Sample, Samples, op
from treadle.ops.bits import bit_or, bit_xor, shift_left, shift_right_logical
from treadle.ops.casting import cast
from treadle.ops.compare import less
from treadle.ops.creation import check_shape, full, iota
from treadle.ops.elementwise import minimum
from treadle.ops.functions import erf_inv
from treadle.ops.reduce import broadcast_to
from treadle.ops.shape import concatenate, reshape, slice_

NO_GRAD = No("random bits have no derivative")
NO_AXES = No("an element depends on its global index")
NO_ONNX = No("ONNX draws its own numbers; export the program without randomness")
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
FOLD, SPLIT = 0xFFFFFFFF, 0xFFFFFFFE  # high words of counters that no draw reaches


def threefry_of(k0: Any, k1: Any, x0: Any, x1: Any) -> tuple[Any, Any]:
    """Threefry-2x32 with 20 rounds of NumPy uint32 arrays: key words k, counter words x (x0 is the first word)."""
    keys = (k0, k1, k0 ^ k1 ^ np.uint32(PARITY))
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for group in range(5):
        for r in ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = (x1 << np.uint32(r) | x1 >> np.uint32(32 - r)) ^ x0
        x0, x1 = x0 + keys[(group + 1) % 3], x1 + keys[(group + 2) % 3] + np.uint32(group + 1)
    return x0, x1


def words_type(*types: TensorType) -> tuple[TensorType, TensorType]:
    """Two results like the operands, which are uint32 tensors of one shape."""
    if types[0].dtype is not uint32 or len(set(types)) > 1:
        names = " and ".join(map(str, types))
        raise UserError("E0123", f"{names} are not u32 of one shape", fix="cast and broadcast them")
    return types[0], types[0]


@op(type=words_type, ref=threefry_of, grad=NO_GRAD, axes="..., ..., ..., ... -> ..., ...", onnx="expand")
def threefry(k0: Value, k1: Value, x0: Value, x1: Value) -> Any:
    """Threefry-2x32 with 20 rounds of each element: two words of key, two of counter -> two words; all u32[...].

    Raises E0123 for other types.
    """


@threefry.expand
def _(k0: Value, k1: Value, x0: Value, x1: Value) -> tuple[Value, Value]:
    """Unrolled: measured on CPU, it compiles in about the same time as a loop and runs in 0.6 to 0.8 of its time."""
    shape = x0.shape

    def word(n: int) -> Value:
        filled: Value = full(value=n, shape=shape, dtype=uint32)
        return filled

    keys = (k0, k1, bit_xor(bit_xor(k0, k1), word(PARITY)))
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for group in range(5):
        for r in ROTATIONS[group % 2]:
            x0 = x0 + x1
            turned = bit_or(shift_left(x1, word(r)), shift_right_logical(x1, word(32 - r)))
            x1 = bit_xor(turned, x0)
        x0 = x0 + keys[(group + 1) % 3]
        x1 = x1 + (keys[(group + 2) % 3] + word(group + 1))
    return x0, x1


@threefry.samples
def _(s: Samples) -> Iterator[Sample]:
    for t in (u32[()], u32[5], u32[2, 3], u32[1, 2], u32[0, 3]):
        yield s(*[s.ints(t, 0, 2**32) for _ in range(4)])
    yield s(i32[2], i32[2], i32[2], i32[2], bad="E0123")
    yield s(u32[2], u32[2], u32[2], u32[3], bad="E0123")


def _check_key(key: TensorType) -> None:
    if key != TensorType(uint32, (2,)):
        raise UserError("E0124", f"a key is u32[2], not {key}", fix="take the key of a td.Generator")


def _word(key: Value, i: int, shape: tuple[int, ...]) -> Value:
    """Word i of a key, repeated."""
    word = slice_(key, starts=(i,), limits=(i + 1,), strides=(1,))
    repeated: Value = broadcast_to(reshape(word, shape=()), shape=shape)
    return repeated


def _block(key: Value, shape: tuple[int, ...]) -> tuple[Value, Value]:
    """Both words of every element of a draw."""
    size = math.prod(shape)
    wide = size > 2**32
    index = reshape(iota(shape=(size,), axis=0, dtype=uint64 if wide else uint32), shape=shape)
    high = cast(shift_right_logical(index, 32), dtype=uint32) if wide else full(value=0, shape=shape, dtype=uint32)
    x0, x1 = threefry(_word(key, 0, shape), _word(key, 1, shape), high, cast(index, dtype=uint32))
    return x0, x1


def _block_of(key: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """The same with NumPy."""
    index = np.arange(math.prod(shape), dtype=np.uint64).reshape(shape)
    return threefry_of(key[0], key[1], (index >> np.uint64(32)).astype(np.uint32), index.astype(np.uint32))


@op(grad=NO_GRAD, axes=NO_AXES, onnx=NO_ONNX)
def random_bits(key: Value, *, shape: tuple[int, ...], dtype: DType) -> Any:
    """Evenly distributed unsigned integers of `shape` and `dtype`. key: u32[2].

    Raises E0124 for another key, E0125 for another dtype, E0109 for a negative size.
    """


random_bits.padded(_padding.random_bits)


@random_bits.type
def _(key: TensorType, *, shape: tuple[int, ...], dtype: DType) -> TensorType:
    _check_key(key)
    check_shape(shape)
    if dtype.kind != "u":
        raise UserError("E0125", f"bits come as unsigned integers, not {dtype}", fix="use uint32 and bitcast it")
    return TensorType(dtype, shape)


@random_bits.ref
def _(key: Any, *, shape: tuple[int, ...], dtype: DType) -> Any:
    x0, x1 = _block_of(key, shape)
    if dtype is uint64:
        return x0.astype(np.uint64) << np.uint64(32) | x1.astype(np.uint64)
    return (x0 ^ x1).astype(dtype.np)


@random_bits.expand
def _(key: Value, *, shape: tuple[int, ...], dtype: DType) -> Any:
    x0, x1 = _block(key, shape)
    return _joined(x0, x1, dtype)


def _joined(x0: Value, x1: Value, dtype: DType) -> Value:
    """The bits of a draw from the two words of its elements."""
    if dtype is uint64:
        joined: Value = bit_or(shift_left(cast(x0, dtype=uint64), 32), cast(x1, dtype=uint64))
    else:
        joined = cast(bit_xor(x0, x1), dtype=dtype)
    return joined


def bits_at(key: Value, index: Value, dtype: DType) -> Value:
    """The elements of a draw at these places (u32[...], below 2**32), as `random_bits` gives them."""
    shape = index.shape
    high = full(value=0, shape=shape, dtype=uint32)
    x0, x1 = threefry(_word(key, 0, shape), _word(key, 1, shape), high, index)
    return _joined(x0, x1, dtype)


@random_bits.samples
def _(s: Samples) -> Iterator[Sample]:
    key = np.array([1, 0xDEADBEEF], np.uint32)
    for shape in ((), (7,), (2, 3), (1, 1), (0, 3)):
        yield s(key, shape=shape, dtype=uint32)
    for dtype in (uint8, uint16, uint64):
        yield s(key, shape=(2, 5), dtype=dtype)
    yield s(u32[3], shape=(2,), dtype=uint32, bad="E0124")
    yield s(key, shape=(2,), dtype=int32, bad="E0125")
    yield s(key, shape=(-2,), dtype=uint32, bad="E0109")


def _keys_of(key: Any, high: int, low: Any) -> Any:
    """The blocks of the counters (high, low) as keys, with NumPy: low u32[...] -> u32[..., 2]."""
    return np.stack(threefry_of(key[0], key[1], np.uint32(high), low), -1)


def _keys(key: Value, high: int, low: Value) -> Value:
    """The same in ops."""
    shape = low.shape
    words = threefry(_word(key, 0, shape), _word(key, 1, shape), full(value=high, shape=shape, dtype=uint32), low)
    joined: Value = concatenate(*[reshape(w, shape=(*shape, 1)) for w in words], axis=len(shape))
    return joined


@op(grad=NO_GRAD, axes="!k, ... -> ... !w", onnx=NO_ONNX)
def fold_in(key: Value, data: Value) -> Any:
    """A key made of a key and a number, one for each number. key: u32[2], data: u32[...] -> u32[..., 2].

    data may be a Python int or of another integer type, taken modulo 2**32. Many numbers in one call compile faster
    than many calls. Raises E0124 for another key, E0123 for data that is not whole.
    """


@fold_in.prepare
def _(key: Any, data: Any) -> tuple[Any, ...]:
    if isinstance(data, int) and not isinstance(data, bool):
        return key, full(value=data % 2**32, shape=(), dtype=uint32)
    if isinstance(data, Value) and data.dtype.is_integer and data.dtype is not uint32:
        return key, cast(data, dtype=uint32)
    return key, data


@fold_in.type
def _(key: TensorType, data: TensorType) -> TensorType:
    _check_key(key)
    if data.dtype is not uint32:
        raise UserError("E0123", f"{data} is folded in, which is not u32", fix="cast it to uint32")
    return data.with_shape((*data.shape, 2))


@fold_in.ref
def _(key: Any, data: Any) -> Any:
    return _keys_of(key, FOLD, data)


@fold_in.expand
def _(key: Value, data: Value) -> Any:
    return _keys(key, FOLD, data)


@fold_in.samples
def _(s: Samples) -> Iterator[Sample]:
    for t in (u32[()], u32[3], u32[2, 1], u32[0, 2]):
        yield s(np.array([7, 2**31], np.uint32), s.ints(t, 0, 2**32))
    yield s(u32[2], np.array([-1, 5], np.int32))
    yield s(u32[1], u32[()], bad="E0124")
    yield s(u32[2], f32[()], bad="E0123")


@op(grad=NO_GRAD, axes=NO_AXES, onnx=NO_ONNX)
def random_split(key: Value, *, count: int) -> Any:
    """`count` keys made of one. key: u32[2] -> u32[count, 2]. Raises E0124 for another key, E0109 for count < 0."""


@random_split.type
def _(key: TensorType, *, count: int) -> TensorType:
    _check_key(key)
    check_shape((count,))
    return key.with_shape((count, 2))


@random_split.ref
def _(key: Any, *, count: int) -> Any:
    return _keys_of(key, SPLIT, np.arange(count, dtype=np.uint32))


@random_split.expand
def _(key: Value, *, count: int) -> Any:
    return _keys(key, SPLIT, iota(shape=(count,), axis=0, dtype=uint32))


@random_split.samples
def _(s: Samples) -> Iterator[Sample]:
    for count in (0, 1, 5):
        yield s(np.array([7, 2**31], np.uint32), count=count)
    yield s(u32[1], count=2, bad="E0124")
    yield s(u32[2], count=-2, bad="E0109")


def _check_draw(key: TensorType, shape: tuple[int, ...], dtype: DType) -> TensorType:
    _check_key(key)
    check_shape(shape)
    if not dtype.is_float:
        raise UserError("E0125", f"this draw gives floats, not {dtype}", fix="cast the result")
    return TensorType(dtype, shape)


UNIT_BITS = {float16: 11, bfloat16: 8, float32: 24, float64: 53}  # all that fit into the mantissa


def _work(dtype: DType) -> DType:
    """The type to compute floats of `dtype` in."""
    return float64 if dtype is float64 else float32


def _source(dtype: DType) -> DType:
    """The type of the bits that a float of `dtype` is made of."""
    return uint64 if dtype is float64 else uint32


def _unit(key: Value, shape: tuple[int, ...], dtype: DType) -> Value:
    """Multiples of 2**-UNIT_BITS from 0 up to, not including, 1, in the work type."""
    source, n = _source(dtype), UNIT_BITS[dtype]
    bits = shift_right_logical(random_bits(key, shape=shape, dtype=source), source.bits - n)
    unit: Value = cast(bits, dtype=_work(dtype)) * 2.0**-n
    return unit


def _unit_of(key: Any, shape: tuple[int, ...], dtype: DType) -> Any:
    """The same with NumPy."""
    source, n = _source(dtype), UNIT_BITS[dtype]
    bits = random_bits.rules["ref"](key, shape=shape, dtype=source) >> source.np.type(source.bits - n)
    return bits.astype(_work(dtype).np) * _work(dtype).np.type(2.0**-n)


def _range(low: float, high: float, dtype: DType) -> tuple[float, float, float]:
    """low and high - low as numbers of `dtype`, and the largest number below high."""
    first, last = dtype.np.type(low), dtype.np.type(high)
    top = np.nextafter(last, first)
    return float(first), float(last) - float(first), float(top)


@op(grad=NO_GRAD, axes=NO_AXES, onnx=NO_ONNX)
def random_uniform(key: Value, *, shape: tuple[int, ...], dtype: DType, low: float, high: float) -> Any:
    """Floats evenly distributed from low up to, not including, high. key: u32[2].

    Made of 24 random bits for float32, 53 for float64, 11 for float16, 8 for bfloat16. Raises E0124 for another key,
    E0125 for another dtype, E0109 for a negative size, E0126 unless low < high and high - low is finite in `dtype`.
    """


@random_uniform.type
def _(key: TensorType, *, shape: tuple[int, ...], dtype: DType, low: float, high: float) -> TensorType:
    drawn = _check_draw(key, shape, dtype)
    with np.errstate(over="ignore"):
        width = dtype.np.type(high) - dtype.np.type(low)
    if not 0 < width < np.inf:
        why = f"there is no {dtype} from {low} to below {high}"
        raise UserError("E0126", why, fix="give low < high, with a finite difference")
    return drawn


@random_uniform.ref
def _(key: Any, *, shape: tuple[int, ...], dtype: DType, low: float, high: float) -> Any:
    unit = _unit_of(key, shape, dtype)
    first, width, top = map(unit.dtype.type, _range(low, high, dtype))
    return np.minimum((unit * width + first).astype(dtype.np), dtype.np.type(top))


@random_uniform.expand
def _(key: Value, *, shape: tuple[int, ...], dtype: DType, low: float, high: float) -> Any:
    unit = _unit(key, shape, dtype)
    if (low, high) == (0, 1):
        return cast(unit, dtype=dtype)
    first, width, top = _range(low, high, dtype)
    return minimum(cast(unit * width + first, dtype=dtype), top)  # rounding could reach high


@random_uniform.samples
def _(s: Samples) -> Iterator[Sample]:
    key = np.array([3, 5], np.uint32)
    for shape in ((), (7,), (2, 3), (1, 1), (0, 3)):
        yield s(key, shape=shape, dtype=float32, low=0.0, high=1.0)
    for dtype in (float64, float32, float16, bfloat16):
        yield s(key, shape=(2, 5), dtype=dtype, low=-2.0, high=3.0)
    yield s(u32[3], shape=(2,), dtype=float32, low=0.0, high=1.0, bad="E0124")
    yield s(key, shape=(2,), dtype=int32, low=0.0, high=1.0, bad="E0125")
    yield s(key, shape=(-2,), dtype=float32, low=0.0, high=1.0, bad="E0109")
    yield s(key, shape=(2,), dtype=float32, low=1.0, high=1.0, bad="E0126")
    yield s(key, shape=(2,), dtype=float16, low=-6e4, high=6e4, bad="E0126")


@op(grad=NO_GRAD, axes=NO_AXES, onnx=NO_ONNX)
def random_normal(key: Value, *, shape: tuple[int, ...], dtype: DType) -> Any:
    """Floats of the standard normal distribution: sqrt(2) * erf_inv(u), u evenly spread over (-1, 1). key: u32[2].

    u are the odd multiples of 2**-24, of 2**-53 for float64: the largest numbers are 5.4 (8.3), the tails are made of
    few different numbers beyond about 4.5 (7.5). 16-bit floats are rounded float32 draws.
    Raises E0124 for another key, E0125 for another dtype, E0109 for a negative size.
    """


@random_normal.type
def _(key: TensorType, *, shape: tuple[int, ...], dtype: DType) -> TensorType:
    return _check_draw(key, shape, dtype)


@random_normal.ref
def _(key: Any, *, shape: tuple[int, ...], dtype: DType) -> Any:
    source, work = _source(dtype), _work(dtype).np
    n = UNIT_BITS[_work(dtype)]
    bits = random_bits.rules["ref"](key, shape=shape, dtype=source) >> source.np.type(source.bits - n - 1)
    odd = (bits | source.np.type(1)).astype(np.int64) - 2**n
    u = odd.astype(work) * work.type(2.0**-n)
    return (erf_inv.rules["ref"](u) * work.type(math.sqrt(2))).astype(dtype.np)


@random_normal.expand
def _(key: Value, *, shape: tuple[int, ...], dtype: DType) -> Any:
    source, work = _source(dtype), _work(dtype)
    n = UNIT_BITS[work]
    bits = shift_right_logical(random_bits(key, shape=shape, dtype=source), source.bits - n - 1)
    odd = cast(bit_or(bits, 1), dtype=int64 if dtype is float64 else int32) - 2**n
    return cast(erf_inv(cast(odd, dtype=work) * 2.0**-n) * math.sqrt(2), dtype=dtype)


@random_normal.samples
def _(s: Samples) -> Iterator[Sample]:
    key = np.array([3, 5], np.uint32)
    for shape in ((), (7,), (2, 3), (1, 1), (0, 3)):
        yield s(key, shape=shape, dtype=float32, tol=1e-5)
    for dtype in (float64, float16, bfloat16):
        yield s(key, shape=(2, 5), dtype=dtype)
    yield s(u32[3], shape=(2,), dtype=float32, bad="E0124")
    yield s(key, shape=(2,), dtype=int32, bad="E0125")
    yield s(key, shape=(-2,), dtype=float32, bad="E0109")


@op(grad=NO_GRAD, axes=NO_AXES, onnx=NO_ONNX)
def random_bernoulli(key: Value, p: Value, *, shape: tuple[int, ...]) -> Any:
    """True with probability p, rounded up to a multiple of 2**-24; never for p <= 0, always for p >= 1.

    key: u32[2], p: f32[] or a Python number.
    Raises E0124 for another key, E0127 for another p, E0109 for a negative size.
    """


@random_bernoulli.prepare
def _(key: Any, p: Any) -> tuple[Any, ...]:
    return key, full(value=float(p), shape=(), dtype=float32) if isinstance(p, int | float) else p


@random_bernoulli.type
def _(key: TensorType, p: TensorType, *, shape: tuple[int, ...]) -> TensorType:
    _check_key(key)
    check_shape(shape)
    if p != f32[()]:
        raise UserError("E0127", f"the probability is {p}, not f32[]", fix="give a Python float or a float32 scalar")
    return TensorType(dtypes.bool_, shape)


@random_bernoulli.ref
def _(key: Any, p: Any, *, shape: tuple[int, ...]) -> Any:
    return _unit_of(key, shape, float32) < p


@random_bernoulli.expand
def _(key: Value, p: Value, *, shape: tuple[int, ...]) -> Any:
    return less(_unit(key, shape, float32), broadcast_to(p, shape=shape))


@random_bernoulli.samples
def _(s: Samples) -> Iterator[Sample]:
    key = np.array([3, 5], np.uint32)
    for shape in ((), (20,), (4, 5), (1, 1), (0, 3)):
        yield s(key, np.float32(0.4), shape=shape)
    yield s(key, np.float32(0.0), shape=(9,))
    yield s(key, np.float32(1.0), shape=(9,))
    yield s(u32[3], np.float32(0.5), shape=(2,), bad="E0124")
    yield s(key, f64[()], shape=(2,), bad="E0127")
    yield s(key, np.float32(0.5), shape=(-2,), bad="E0109")
