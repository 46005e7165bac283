"""Pieces that attention and recurrent kernels are made of: register tiles of products, transposes, exponentials.

`Machine` says how wide and how tall a tile is on a target. A product's operands come in units of four bytes: a float,
or two bfloats along the summed axis where the CPU multiplies such pairs (AVX512-BF16): `Machine.pairs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from treadle.kernels import vmath
from treadle.kernels.llvm import Function, Value, vector
from treadle.kernels.target import Target

LOG2E, LN2 = 1.4426950408889634, 0.6931471805599453
# 2^x on [-0.5, 0.5] and on [0, 1], least relative error (7.5e-8).
_CENTERED = (1.0000001192092896, 0.693146944046, 0.240221202373, 0.055507130920, 0.009675540961, 0.001327647245)
_UPWARD = (0.9999999403953552, 0.693153083324, 0.240153610706, 0.055826317518, 0.008989339694, 0.001877576694)
_ROUNDER = 12582912.0  # 1.5 * 2^23: adding it rounds to a whole number, kept in the low bits


@dataclass(frozen=True)
class Machine:
    """lanes: floats in a vector; wide, tall: vectors and rows of a tile; scales: has AVX-512's reduce and scalef;
    halves: converts f16 by instructions."""

    lanes: int
    wide: int
    tall: int
    scales: bool
    pairs: bool
    halves: bool

    @property
    def floats(self) -> str:
        """Type of a vector."""
        return vector("float", self.lanes)

    @property
    def bytes(self) -> int:
        """Size of a vector."""
        return 4 * self.lanes

    @property
    def block(self) -> int:
        """Lanes of a tile's row."""
        return self.lanes * self.wide


def machine(target: Target, pairs: bool) -> Machine:
    """The tiles for a target. pairs: operands are bfloats, multiplied as they are if the CPU can."""
    if target.has("avx512"):
        return Machine(16, 2, 8, True, pairs and target.has("avx512bf16"), True)
    if target.has("avx2"):
        return Machine(8, 2, 6, False, False, "f16c" in target.features)
    many = target.registers > 16
    return Machine(4, 4 if many else 2, 6 if many else 4, False, False, target.triple.startswith(("aarch64", "arm64")))


def tile(
    f: Function,
    m: Machine,
    rows: int,
    columns: int,
    steps: Value | int,
    a: tuple[Value, int, int],
    b: Callable[[Value, int], Value],
    start: Callable[[int, int], Value] | None,
) -> list[list[Value]]:
    """acc[r][c] = start(r, c) + sum over k of a[r, k] * b(k, c), b being vectors and a units that are spread.

    a: pointer, bytes from row to row and from step to step. steps: 1 or more.
    """
    base, row, step = a
    zero = f.constant(0.0, m.floats)
    accs = [[f.variable(m.floats, start(r, c) if start else zero) for c in range(columns)] for r in range(rows)]
    with _at_least_once(f, steps) as k:
        at = f.offset(base, k * step)
        vectors = [b(k, c) for c in range(columns)]
        for r in range(rows):
            one = spread(f, m, f.offset(at, r * row))
            for c in range(columns):
                accs[r][c].set(_multiplied(f, m, accs[r][c].get(), one, vectors[c]))
    return [[acc.get() for acc in each] for each in accs]


def keep(f: Function, m: Machine, found: list[list[Value]], to: Value) -> None:
    """Write a tile to memory, rows of vectors."""
    for r, row in enumerate(found):
        for c, each in enumerate(row):
            f.store(each, f.offset(to, (r * len(row) + c) * m.bytes))


@contextmanager
def _at_least_once(f: Function, count: Value | int) -> Iterator[Value]:
    """A loop that is not tested before its first turn: a way around it would cost LLVM registers for the sums."""
    counter, body, end = f.variable("i64", 0), f.label("sum"), f.label("end")
    f.jump(body)
    f.block(body)
    now = counter.get()
    yield now
    counter.set(now + 1)
    f.branch(f.compare("slt", now + 1, f.i64(count)), body, end)
    f.block(end)


def spread(f: Function, m: Machine, place: Value) -> Value:
    """The unit at a place in all lanes."""
    if not m.pairs:
        return f.splat(f.load(place, "float"), m.lanes)
    return f.bitcast(f.splat(f.load(place, "i32", align=2), m.lanes), vector("bfloat", 2 * m.lanes))


def units(f: Function, m: Machine, place: Value, mask: Value | None = None) -> Value:
    """A vector of units, of which those outside the mask are 0 and are not read."""
    kind = vector("i32", m.lanes) if m.pairs else m.floats
    found = f.load(place, kind) if mask is None else f.load_masked(place, kind, mask)
    return f.bitcast(found, vector("bfloat", 2 * m.lanes)) if m.pairs else found


def _multiplied(f: Function, m: Machine, acc: Value, a: Value, b: Value) -> Value:
    if not m.pairs:
        return acc + a * b
    return f.intrinsic("llvm.x86.avx512bf16.dpbf16ps.512", m.floats, acc, a, b)


def transposed(f: Function, rows: Sequence[Value]) -> list[Value]:
    """n vectors of n lanes, rows as columns."""
    now, n, step = list(rows), len(rows), 1
    while step < n:
        upper = [i if not i & step else n + i - step for i in range(n)]
        lower = [i + step if not i & step else n + i for i in range(n)]
        for i in range(n):
            if not i & step:
                a, b = now[i], now[i | step]
                now[i], now[i | step] = f.shuffle(a, b, upper), f.shuffle(a, b, lower)
        step *= 2
    return now


def exp2(f: Function, m: Machine, x: Value) -> Value:
    """2^x for x <= 0, -inf and NaN; below 2^-126 it may be 0."""
    if m.scales:
        return _scaled_exp2(f, m, x)
    low = f.select(f.compare("olt", x, -126.0), -126.0, x)
    moved = low + _ROUNDER
    y = _polynomial(f, low - (moved - _ROUNDER), _CENTERED)
    whole = vector("i32", m.lanes)
    power = (f.bitcast(moved, whole) << 23) + (127 << 23)
    return f.select(f.compare("olt", x, -126.0), 0.0, y * f.bitcast(power, m.floats))


def _scaled_exp2(f: Function, m: Machine, x: Value) -> Value:
    """By the instructions that take the part after the point, and that multiply by 2^floor(x)."""
    name, zero = "llvm.x86.avx512.mask", f.constant(0.0, m.floats)
    everywhere, current = f.constant(-1, "i16"), f.constant(4, "i32")
    down = f.constant(9, "i32")
    rest = f.intrinsic(f"{name}.reduce.ps.512", m.floats, x, down, zero, everywhere, current)
    y = _polynomial(f, rest, _UPWARD)
    return f.intrinsic(f"{name}.scalef.ps.512", m.floats, y, x, zero, everywhere, current)


def _polynomial(f: Function, x: Value, coefficients: Sequence[float]) -> Value:
    y = f.constant(coefficients[-1], x.type)
    for c in reversed(coefficients[:-1]):
        y = y * x + c
    return y


def log2(f: Function, m: Machine, x: Value) -> Value:
    """Of x >= 1 or NaN; some finite number for other finite x. By the series of (s - 1) / (s + 1)."""
    whole = vector("i32", m.lanes)
    bits = f.bitcast(x, whole)
    moved = bits - 0x3F3504F3  # sqrt(0.5): the exponent of the nearest power of 2
    power = f.emit(f"ashr {whole} {moved.name}, {f.constant(23, whole).name}", whole)
    s = f.bitcast(bits - (power << 23), m.floats)
    z = (s - 1.0) / (s + 1.0)
    series = _polynomial(f, z * z, [2 / (LN2 * n) for n in (1, 3, 5, 7, 9)])
    found = f.convert("sitofp", power, "float") + z * series
    return f.select(f.compare("uno", x, x), x, found)


def larger(f: Function, a: Value, b: Value) -> Value:
    """a where it is above b, else b, also where a is NaN."""
    return f.select(f.compare("ogt", a, b), a, b)


def lead_offset(f: Function, index: Value, sizes: Sequence[int], strides: Sequence[int]) -> Value:
    """Bytes from the start of an array to the part that a number over all leading axes names. strides: in bytes."""
    total, rest = f.i64(0), index
    for n, stride in reversed(list(zip(sizes, strides, strict=True))):
        if n > 1:
            total = total + (rest % n) * stride
            rest = rest // n
    return total


def load_floats(f: Function, m: Machine, kind: str, place: Value, mask: Value | None = None) -> Value:
    """A vector of f32, bf16 or f16 elements as floats; 0 outside the mask, which is not read."""
    type = m.floats if kind == "f32" else vector("i16", m.lanes)
    found = f.load(place, type) if mask is None else f.load_masked(place, type, mask)
    return found if kind == "f32" else widened(m, kind, found)


def widened(m: Machine, kind: str, words: Value) -> Value:
    """Words of bf16 or f16 (i16) as floats."""
    return vmath.widen(words, "half" if kind == "f16" else "bfloat", m.halves)


def store_floats(f: Function, m: Machine, kind: str, value: Value, place: Value, mask: Value | None = None) -> None:
    """Write a vector of floats as f32 or, rounded to nearest even, as bf16 or f16."""
    if kind != "f32":
        value = narrow(f, m, value) if kind == "bf16" else vmath.narrow(value, "half", m.halves)
    if mask is None:
        f.store(value, place)
    else:
        f.store_masked(value, place, mask)


def narrow(f: Function, m: Machine, x: Value) -> Value:
    """Floats rounded to bf16, as i16."""
    if m.pairs:
        return f.bitcast(f.convert("fptrunc", x, "bfloat"), vector("i16", m.lanes))
    bits = f.bitcast(x, vector("i32", m.lanes))
    rounded = bits + ((bits >> 16) & 1) + 0x7FFF
    kept = f.select(f.compare("uno", x, x), bits | (1 << 22), rounded)
    return f.convert("trunc", kept >> 16, "i16")


def paired(f: Function, m: Machine, low: Value, high: Value) -> Value:
    """Units (as i32) of two vectors of floats, rounded to bf16: the first in the low halves."""
    a, b = (f.convert("zext", narrow(f, m, x), "i32") for x in (low, high))
    return a | (b << 16)
