"""Copies operands of a product into the order in which its innermost code reads them, converting elements on the way.

All functions write units (see microkernels.py) to scratch memory: `along` for operands whose neighbours in memory are
neighbours in the vectors (rows of B, columns of A^T), `across` for those whose neighbours follow each other along the
sum (columns of B^T), `lines` for rows of A that stay rows. Nothing outside the operand is read; scratch is written in
whole vectors. Numbers are in elements, strides of destinations in bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from treadle.base.dtypes import DType, bfloat16, float32
from treadle.kernels import vmath
from treadle.kernels.llvm import Function, Operand, Value, vector
from treadle.kernels.microkernels import UNIT, Isa, first_lanes


@dataclass(frozen=True)
class Source:
    """An operand's part: its first element, element type, strides along the vectors' axis and along the sum.

    part: which of a float's parts is taken where pairs of bfloat16 are made of it (see `bits`).
    """

    place: Value
    dtype: DType
    outer: int
    inner: int
    part: str = ""

    def at(self, f: Function, outer: Operand, inner: Operand) -> Value:
        """The place of an element."""
        return f.offset(self.place, _times(f, outer, self.outer * self.dtype.bytes),
                        _times(f, inner, self.inner * self.dtype.bytes))  # fmt: skip


def _times(f: Function, count: Operand, factor: int) -> Operand:
    return count * factor if factor else 0


@dataclass(frozen=True)
class Span:
    """A part of the summed axis in whole blocks: the elements in them, and in the last part those left over."""

    whole: Operand
    rest: int
    last: Value | None  # whether this is the last part; None: it is

    @contextmanager
    def tail(self, f: Function) -> Iterator[Value | None]:
        """Where the elements left over begin, for code that runs in the last part only; None if there are none."""
        if not self.rest:
            yield None
        elif self.last is None:
            yield f.i64(self.whole)
        else:
            with f.when(self.last):
                yield f.i64(self.whole)


def floats(isa: Isa, raw: Value, dtype: DType) -> Value:
    """Loaded elements as float vectors."""
    return raw if dtype is float32 else vmath.widen(raw, vmath.half_kind(dtype), isa.halves)


def bits(isa: Isa, raw: Value, dtype: DType, part: str = "") -> Value:
    """Loaded elements as the bits (i16) of bfloat16: rounded, or one of the parts of "high" precision (see
    ops/_precision.py): "big", the same with numbers beyond bfloat16's largest as that; "high", 0 where the number is
    not finite; "low", what "high" lacks."""
    if dtype is bfloat16 and part in ("", "big"):
        return raw
    x = floats(isa, raw, dtype)
    if not part:
        return vmath.narrow(x, "bfloat", isa.narrows)
    f = x.f
    words = f.bitcast(x, x.type.replace("float", "i32"))
    finite = f.compare("ult", words & 0x7FFFFFFF, 0x7F800000)
    number = f.select(finite, x, 0.0)
    high = vmath.narrow(number, "bfloat", isa.narrows)
    sign = f.convert("trunc", (words >> 16) & 0x8000, "i16")
    high = f.select(f.compare("eq", high & 0x7FFF, 0x7F80), sign | 0x7F7F, high)
    if part == "high":
        return high
    if part == "big":
        return f.select(finite, high, vmath.narrow(x, "bfloat", isa.narrows))
    return vmath.narrow(number - vmath.widen(high, "bfloat", isa.halves), "bfloat", isa.narrows)


def _load(f: Function, place: Value, dtype: DType, count: int, mask: Value | None) -> Value:
    type = vector(vmath.stored(dtype), count)
    return f.load(place, type) if mask is None else f.load_masked(place, type, mask)


def units(f: Function, isa: Isa, place: Value, dtype: DType, mask: Value | None, part: str = "") -> Value:
    """A vector of units of neighbours along the sum. mask: elements that there are."""
    raw = _load(f, place, dtype, isa.lanes * isa.per_unit, mask)
    return f.bitcast(bits(isa, raw, dtype, part), isa.units) if isa.pairs else floats(isa, raw, dtype)


def pair(f: Function, first: Value, second: Value | None) -> Value:
    """Units of two vectors of bfloat16 bits."""
    low = f.convert("zext", first, "i32")
    return low if second is None else low | (f.convert("zext", second, "i32") << 16)


def along(f: Function, isa: Isa, source: Source, target: Value, span: Span, counts: Sequence[int], step: int) -> None:
    """Vectors of neighbours: unit k of vector v goes to target + k * step + v vectors.

    counts: for each vector how many of its lanes exist.
    """
    with f.loop(0, span.whole, isa.per_unit) as k:
        along_unit(f, isa, source, f.offset(target, k * (step // isa.per_unit)), k, counts, isa.pairs)
    with span.tail(f) as k:
        if k is not None:
            along_unit(f, isa, source, f.offset(target, k * (step // isa.per_unit)), k, counts, False)


def along_unit(
    f: Function, isa: Isa, source: Source, target: Value, k: Value, counts: Sequence[int], second: bool
) -> None:
    """The vectors of the unit that begins at element k; second: there is an element k + 1 (for pairs)."""
    for v, count in enumerate(counts):
        mask = first_lanes(f, isa.lanes, count)
        place = source.at(f, v * isa.lanes, k)
        raw = _load(f, place, source.dtype, isa.lanes, mask)
        if isa.pairs:
            after = None
            if second:
                below = f.offset(place, source.inner * source.dtype.bytes)
                after = bits(isa, _load(f, below, source.dtype, isa.lanes, mask), source.dtype, source.part)
            unit = pair(f, bits(isa, raw, source.dtype, source.part), after)
        else:
            unit = floats(isa, raw, source.dtype)
        f.store(unit, target, v * isa.bytes)


def across(f: Function, isa: Isa, source: Source, target: Value, span: Span, count: int, step: int) -> None:
    """One vector of lines that run along the sum: unit k of all lines goes to target + k * step.

    span: in blocks of `lanes` units. count: lines that exist; the other lanes are copies of the last one.
    """
    block = isa.lanes * isa.per_unit
    with f.loop(0, span.whole, block) as k:
        _across(f, isa, source, f.offset(target, k * (step // isa.per_unit)), k, block, count, step)
    with span.tail(f) as k:
        if k is not None:
            _across(f, isa, source, f.offset(target, k * (step // isa.per_unit)), k, span.rest, count, step)


def _across(f: Function, isa: Isa, source: Source, target: Value, k: Value, length: int, count: int, step: int) -> None:
    wide = isa.lanes * isa.per_unit
    first, mask = source.at(f, 0, k), first_lanes(f, wide, length)
    apart = source.outer * source.dtype.bytes

    def line(i: Operand) -> Value:
        return units(f, isa, f.offset(first, _times(f, i, apart)), source.dtype, mask, source.part)

    if source.part:  # much code: once, in a loop
        held = f.alloca(isa.units, isa.lanes)
        with f.loop(0, isa.lanes) as nth:
            f.store(line(f.min_int(nth, count - 1)), f.offset(held, nth * isa.bytes))
        lines = [f.load(held, isa.units, i * isa.bytes) for i in range(isa.lanes)]
    else:
        lines = [line(min(i, count - 1)) for i in range(isa.lanes)]
    for i, unit in enumerate(transposed(f, lines)):
        if i * isa.per_unit < length:
            f.store(unit, target, i * step)


def transposed(f: Function, rows: Sequence[Value]) -> list[Value]:
    """A square of vectors, rows and columns exchanged: log2(n) rounds of exchanges between pairs of vectors."""
    now, n = list(rows), len(rows)
    step = n // 2
    while step:
        low = [i if not i & step else n + i - step for i in range(n)]
        high = [i + step if not i & step else n + i for i in range(n)]
        for i in range(n):
            if not i & step:
                a, b = now[i], now[i + step]
                now[i], now[i + step] = f.shuffle(a, b, low), f.shuffle(a, b, high)
        step //= 2
    return now


def turned(f: Function, isa: Isa, source: Source, target: Value, span: Span, count: int, step: int) -> None:
    """Up to `lanes` lines that are neighbours in memory (columns of A^T) as rows of units along the sum, `step` bytes
    apart, padded with zeros to a whole vector. span: in blocks of `lanes` units."""
    block = isa.lanes * isa.per_unit
    with f.loop(0, span.whole, block) as k:
        _turned(f, isa, source, target, k, block, count, step)
    with span.tail(f) as k:
        if k is not None:
            _turned(f, isa, source, target, k, span.rest, count, step)


def _turned(f: Function, isa: Isa, source: Source, target: Value, k: Value, length: int, count: int, step: int) -> None:
    mask, held = first_lanes(f, isa.lanes, count), f.alloca(isa.units, isa.lanes)

    def fill(at: Value, both: bool) -> None:
        def element(i: int) -> Value:
            raw = _load(f, source.at(f, 0, k + at * isa.per_unit + i), source.dtype, isa.lanes, mask)
            return bits(isa, raw, source.dtype, source.part) if isa.pairs else floats(isa, raw, source.dtype)

        unit = pair(f, element(0), element(1) if both else None) if isa.pairs else element(0)
        f.store(unit, f.offset(held, at * isa.bytes))

    whole, half = divmod(length, isa.per_unit)
    with f.loop(0, whole) as at:
        fill(at, True)
    if half:
        fill(f.i64(whole), False)
    for empty in range(whole + half, isa.lanes):
        f.store(f.constant(0, isa.units), held, empty * isa.bytes)
    rows = [f.load(held, isa.units, i * isa.bytes) for i in range(isa.lanes)]
    to = f.offset(target, k * (UNIT // isa.per_unit))
    for r, unit in enumerate(transposed(f, rows)[:count]):
        f.store(unit, to, r * step)


def lines(f: Function, isa: Isa, source: Source, target: Value, span: Span, rows: int, step: int) -> None:
    """Rows that stay rows: row r goes to target + r * step. span: in blocks of `lanes` elements."""
    with f.loop(0, span.whole, isa.lanes) as k:
        _lines(f, isa, source, target, k, isa.lanes, rows, step)
    with span.tail(f) as k:
        if k is not None:
            _lines(f, isa, source, target, k, span.rest, rows, step)


def _lines(f: Function, isa: Isa, source: Source, target: Value, k: Value, length: int, rows: int, step: int) -> None:
    mask = first_lanes(f, isa.lanes, length)
    first, to = source.at(f, 0, k), f.offset(target, k * (UNIT // isa.per_unit))
    for r in range(rows):
        raw = _load(f, f.offset(first, r * source.outer * source.dtype.bytes), source.dtype, isa.lanes, mask)
        f.store(
            bits(isa, raw, source.dtype, source.part) if isa.pairs else floats(isa, raw, source.dtype), to, r * step
        )
