"""What convolutions copy before they compute: weights into panels, and source images into padded tiles.

Panels: for each part of a problem, group and panel of channels: steps of the sum (taps in the part's order, then the
source channels of the group), each with the panel's channels side by side; what is beyond the channels is zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from treadle.kernels.llvm import Function, Module, Value, vector
from treadle.kernels.templates.conv_micro import MEMORY, WIDTH, Arith
from treadle.kernels.templates.conv_shape import Problem

_FEW = 4  # channels that are put together without squares
_MOST_JOINED = 7  # channels of taps that count as one


def transposed(f: Function, rows: list[Value]) -> list[Value]:
    """The columns of a square of vectors (a power of two of them), by perfect shuffles."""
    count = len(rows)
    half, stages = count // 2, count.bit_length() - 1
    low = [i // 2 + (i % 2) * count for i in range(count)]
    high = [i + half for i in low]
    for _ in range(stages):
        rows = [f.shuffle(rows[i], rows[i + half], order) for i in range(half) for order in (low, high)]
    return rows


def square(
    f: Function, arith: Arith, dtype: str, start: Value, pitch: int, extent: tuple[Value, Value] | None
) -> list[Value]:
    """Rows of a square of a matrix, as f32; what lies beyond the extent (rows, columns; None: the square is inside) is
    0. pitch: in elements."""
    result = []
    for i in range(arith.lanes):
        if extent is None:
            result.append(arith.load(f, f.offset(start, i * pitch * WIDTH[dtype]), dtype))
            continue
        there = f.compare("sgt", extent[0], i)
        mask = f.mask(f.select(there, extent[1], 0), arith.lanes)
        place = f.offset(start, f.select(there, f.i64(i * pitch * WIDTH[dtype]), 0))
        result.append(arith.load(f, place, dtype, mask))
    return result


def taps_across(p: Problem, how: Arith) -> int:
    """How many taps beside each other count as one: for pairs of very few channels, an odd number of them, those of a
    row of the kernel."""
    taps = p.parts[0].taps
    wide = sum(t.row == taps[0].row for t in taps) if taps else 0
    if how.depth == 1 or p.backward or p.groups > 1 or p.inner % 2 == 0 or p.inner > _MOST_JOINED or wide < 2:
        return 1
    return wide if all(taps[j].col == taps[0].col + j for j in range(wide)) else 1


@dataclass(frozen=True)
class Panels:
    """Where packed weights lie. vectors: of a full panel; dtype: of the weights as given; whole: the steps of a tap are
    a multiple of it, those that there are not being zero; across: so many taps beside each other count as one, their
    channels being one run of pairs. Of a run with an odd number the last pair begins one early: the number that is in
    two pairs has half its weight in both (so no element is read that is not the tap's)."""

    problem: Problem
    arith: Arith
    vectors: int
    dtype: str
    whole: int = 1
    across: int = 1

    @property
    def run(self) -> int:
        """Elements of one tap, or of those that count as one."""
        return self.problem.inner * self.across

    @property
    def steps(self) -> int:
        """Steps of one tap."""
        return -(-self.run // (self.arith.depth * self.whole)) * self.whole

    @property
    def columns(self) -> int:
        """Vectors that cover a group's channels."""
        return -(-self.problem.outer // self.arith.lanes)

    @property
    def full(self) -> int:
        """Full panels of a group."""
        return self.columns // self.vectors

    @property
    def last(self) -> int:
        """Vectors of the panel that is not full; 0: there is none."""
        return self.columns % self.vectors

    def each(self, f: Function, first: Value, stop: Value) -> Iterator[tuple[Value, int]]:
        """Loops over panels first..stop, with the vectors of each: full ones, then the one that is not."""
        if self.full:
            with f.loop(first, f.min_int(stop, self.full)) as panel:
                yield panel, self.vectors
        if self.last:
            with f.when(f.compare("sgt", stop, self.full)):
                yield f.i64(self.full), self.last

    def tap_bytes(self, part: int) -> int:
        """Bytes of one vector through all steps of a part."""
        return len(self.problem.parts[part].taps) // self.across * self.steps * self.arith.bytes

    def starts(self) -> list[int]:
        """Where the parts begin, and the end."""
        at = [0]
        for i in range(len(self.problem.parts)):
            at.append(at[-1] + self.problem.groups * self.columns * self.tap_bytes(i))
        return at

    @property
    def bytes(self) -> int:
        """Of all: after the panels a word for each column, not 0 if a weight in it is infinite or no number."""
        return self.starts()[-1] + 8 * self.problem.groups * self.columns

    def scratch(self) -> int:
        """Bytes of scratch that packing one column of vectors needs."""
        lanes = self.arith.lanes
        return (self.problem.inner * self.problem.taps + 1) * lanes * 4 + self.problem.taps * lanes * lanes * 4 + 64

    def write(self, module: Module, name: str, weights: int, workspace: int) -> int:
        """The packing phase; weights, workspace: numbers of buffers. Returns its number of tasks: one a column."""
        f = Function(module, name, ["ptr", "i64", "ptr"])
        buffers, task, scratch = f.args
        source, out = f.load(buffers, "ptr", 8 * weights), f.load(buffers, "ptr", 8 * workspace)
        if self.even and self.steps * self.arith.depth == self.problem.inner:
            self._blocks(f, module, source, scratch, out)
            f.give()
            return self.problem.groups * self.columns
        group, column = task // self.columns, task % self.columns
        self.collect(f, source, scratch, group, column)
        self._flag(f, scratch, f.offset(out, self.starts()[-1], task * 8))
        for i, start in enumerate(self.starts()[:-1]):
            self._order(f, module, i, scratch, f.offset(out, start), group, column)
        f.give()
        return self.problem.groups * self.columns

    def _flag(self, f: Function, scratch: Value, out: Value) -> None:
        count, sums = self.problem.inner * self.problem.taps, 4  # so many sums do not wait for each other
        odd = [f.variable(self.arith.vector, 0.0) for _ in range(sums)]

        def add(k: Value, n: int) -> None:
            weight = f.load(scratch, self.arith.vector, (k + n) * self.arith.bytes)
            odd[n].set(odd[n].get() + (weight - weight))

        with f.loop(0, count - count % sums, sums) as k:
            for n in range(sums):
                add(k, n)
        for n in range(count % sums):
            add(f.i64(count - count % sums), n)
        total = f.total((odd[0].get() + odd[1].get()) + (odd[2].get() + odd[3].get()))
        f.store(f.convert("zext", f.compare("une", total, total), "i64"), out)

    # Stage 1: vectors [tap][inner channel] of the column's lanes, in scratch, as f32.

    def collect(self, f: Function, source: Value, scratch: Value, group: Value, column: Value) -> None:
        """A column's weights as vectors [tap][inner channel] of its lanes, in scratch."""
        p, lanes = self.problem, self.arith.lanes
        first = column * lanes
        if not p.backward:
            start = f.offset(source, (group * p.outer + first) * (p.inner * p.taps * WIDTH[self.dtype]))
            self._rows(f, start, scratch, p.outer - first)
        elif p.taps == 1:
            start = f.offset(source, group * (p.inner * p.outer * WIDTH[self.dtype]), first * WIDTH[self.dtype])
            mask = f.mask(p.outer - first, lanes)
            with f.loop(0, p.inner) as k:
                place = f.offset(start, k * (p.outer * WIDTH[self.dtype]))
                f.store(self.arith.load(f, place, self.dtype, mask), scratch, k * (lanes * 4))
        else:
            self._turned(f, source, scratch, group, first)

    def _rows(self, f: Function, start: Value, scratch: Value, valid: Value) -> None:
        """Lanes are rows of the weights: squares are transposed."""
        p, lanes = self.problem, self.arith.lanes
        run = p.inner * p.taps
        with f.loop(0, run, lanes) as j:
            rows = square(f, self.arith, self.dtype, f.offset(start, j * WIDTH[self.dtype]), run, (valid, run - j))
            for i, row in enumerate(transposed(f, rows)):
                at = j + i
                place = ((at % p.taps) * p.inner + at // p.taps) * (lanes * 4)
                f.store(row, scratch, f.select(f.compare("slt", at, run), place, run * lanes * 4))

    def _turned(self, f: Function, source: Value, scratch: Value, group: Value, first: Value) -> None:
        """Lanes are the weights' second axis, with the taps between them: squares are transposed twice."""
        p, lanes = self.problem, self.arith.lanes
        pitch, width = p.outer * p.taps, WIDTH[self.dtype]
        between = f.offset(scratch, (p.inner * p.taps + 1) * lanes * 4)
        start = f.offset(source, (group * p.inner * pitch + first * p.taps) * width)
        run = f.min_int((p.outer - first) * p.taps, lanes * p.taps)
        with f.loop(0, p.inner, lanes) as k:
            with f.loop(0, p.taps) as piece:
                j = piece * lanes
                place = f.offset(start, k * (pitch * width), f.select(f.compare("slt", j, run), j, 0) * width)
                rows = square(f, self.arith, self.dtype, place, pitch, (p.inner - k, run - j))
                for i, row in enumerate(transposed(f, rows)):
                    f.store(row, between, (j + i) * (lanes * 4))
            with f.loop(0, p.taps) as tap:
                rows = [f.load(between, self.arith.vector, (tap + i * p.taps) * (lanes * 4)) for i in range(lanes)]
                for i, row in enumerate(transposed(f, rows)):
                    at = k + i
                    place = (tap * p.inner + at) * (lanes * 4)
                    f.store(row, scratch, f.select(f.compare("slt", at, p.inner), place, p.inner * p.taps * lanes * 4))

    # The same for a vector's number of inner channels at a time, where all squares are whole: what stays in the first
    # cache is packed in half the time.

    @property
    def even(self) -> bool:
        """Whether `block` may be used."""
        p, lanes = self.problem, self.arith.lanes
        return p.inner % lanes == p.outer % lanes == 0 and self.across == 1

    def block(self, f: Function, source: Value, scratch: Value, group: Value, column: Value, k: Value) -> None:
        """A column's weights of inner channels from k on, as vectors [tap][inner channel], in scratch, as f32."""
        p, lanes, width = self.problem, self.arith.lanes, WIDTH[self.dtype]
        words = [((at % p.taps) * lanes + at // p.taps) * (lanes * 4) for at in range(p.taps * lanes)]
        if not p.backward:
            places = f.symbol(f.module.table(f"places_of_{f.name}", words))
            start = f.offset(source, ((group * p.outer + column * lanes) * p.inner + k) * (p.taps * width))
            with f.loop(0, p.taps) as piece:
                here = f.offset(start, piece * (lanes * width))
                self._ask(f, here, p.inner * p.taps * width, p.taps * lanes * width)
                rows = square(f, self.arith, self.dtype, here, p.inner * p.taps, None)
                for i, row in enumerate(transposed(f, rows)):
                    f.store(row, scratch, f.load(f.offset(places, piece * (lanes * 8)), "i64", 8 * i))
            return
        pitch = p.outer * p.taps
        start = f.offset(source, ((group * p.inner + k) * pitch + column * (lanes * p.taps)) * width)
        if p.taps == 1:
            for i in range(lanes):
                f.store(self.arith.load(f, f.offset(start, i * pitch * width), self.dtype), scratch, i * (lanes * 4))
            return
        between = f.offset(scratch, p.taps * lanes * lanes * 4)
        with f.loop(0, p.taps) as piece:
            here = f.offset(start, piece * (lanes * width))
            self._ask(f, here, pitch * width, lanes * pitch * width)
            rows = square(f, self.arith, self.dtype, here, pitch, None)
            for i, row in enumerate(transposed(f, rows)):
                f.store(row, between, (piece * lanes + i) * (lanes * 4))
        with f.loop(0, p.taps) as tap:
            rows = [f.load(between, self.arith.vector, (tap + i * p.taps) * (lanes * 4)) for i in range(lanes)]
            for i, row in enumerate(transposed(f, rows)):
                f.store(row, scratch, (tap * lanes + i) * (lanes * 4))

    def _ask(self, f: Function, start: Value, pitch: int, ahead: int) -> None:
        """Have a square of the next block on its way: its rows are too short for the CPU to see that they go on."""
        for i in range(self.arith.lanes):
            f.prefetch(start, i * pitch + ahead)

    def _blocks(self, f: Function, module: Module, source: Value, scratch: Value, out: Value) -> None:
        """The packing of a column, by blocks."""
        group, column = f.args[1] // self.columns, f.args[1] % self.columns
        p, lanes, bytes, depth = self.problem, self.arith.lanes, self.arith.bytes, self.arith.depth
        panel, within = column // self.vectors, column % self.vectors
        wide = f.select(f.compare("slt", panel, self.full), f.i64(self.vectors), self.last)
        odd = [f.variable(self.arith.vector, 0.0) for _ in range(4)]  # so many sums do not wait for each other
        with f.loop(0, p.inner, lanes) as k:
            self.block(f, source, scratch, group, column, k)
            with f.loop(0, p.taps * lanes, len(odd)) as at:
                for n, each in enumerate(odd):
                    weight = f.load(scratch, self.arith.vector, (at + n) * bytes)
                    each.set(each.get() + (weight - weight))
            for i, start in enumerate(self.starts()[:-1]):
                taps, size = p.parts[i].taps, self.tap_bytes(i)
                if not taps:
                    continue
                to = f.offset(out, (group * self.columns + panel * self.vectors) * size + start, within * bytes)
                numbers = f.symbol(module.table(f"taps_of_{i}", [t.number for t in taps]))
                with f.loop(0, len(taps)) as tap, f.loop(0, lanes // depth) as step:
                    at = f.offset(scratch, (f.load(numbers, "i64", tap * 8) * lanes + step * depth) * bytes)
                    made = f.load(at, self.arith.vector)
                    if depth == 2:
                        made = self._pairs(f, made, f.load(at, self.arith.vector, bytes))
                    f.store(made, to, (tap * self.steps + k // depth + step) * wide * bytes)
        total = f.total((odd[0].get() + odd[1].get()) + (odd[2].get() + odd[3].get()))
        flag = f.convert("zext", f.compare("une", total, total), "i64")
        f.store(flag, out, f.args[1] * 8 + self.starts()[-1])

    # Stage 2: the steps of a part, in order.

    def _order(
        self, f: Function, module: Module, part: int, scratch: Value, out: Value, group: Value, column: Value
    ) -> None:
        taps = self.problem.parts[part].taps
        if not taps:
            return
        lanes, bytes, size = self.arith.lanes, self.arith.bytes, self.tap_bytes(part)
        panel, within = column // self.vectors, column % self.vectors
        wide = f.select(f.compare("slt", panel, self.full), f.i64(self.vectors), self.last)
        start = f.offset(out, (group * self.columns + panel * self.vectors) * size, within * bytes)
        firsts = [t.number // self.across for t in taps[:: self.across]]
        numbers = f.symbol(module.table(f"taps_of_{part}", firsts))
        with f.loop(0, len(firsts)) as tap:
            number = f.load(numbers, "i64", tap * 8)
            with f.loop(0, self.steps) as step:
                at = f.offset(scratch, (number * self.run + step * self.arith.depth) * (lanes * 4))
                value = self._step(f, at, step) if self.across == 1 else self._joined(f, at, step)
                f.store(value, start, (tap * self.steps + step) * wide * bytes)

    def _step(self, f: Function, at: Value, step: Value) -> Value:
        one = f.load(at, self.arith.vector)
        if self.arith.depth == 1:
            return one
        other = f.load(at, self.arith.vector, self.arith.bytes)
        if self.steps * 2 != self.problem.inner:
            one = f.select(f.compare("slt", step * 2, self.problem.inner), one, 0.0)
            other = f.select(f.compare("slt", step * 2 + 1, self.problem.inner), other, 0.0)
        return self._pairs(f, one, other)

    def _joined(self, f: Function, at: Value, step: Value) -> Value:
        """Of a run of several taps."""
        size = self.arith.bytes
        if self.run % 2 == 0:
            return self._pairs(f, f.load(at, self.arith.vector), f.load(at, self.arith.vector, size))
        last = f.compare("eq", step, self.steps - 1)
        at = f.offset(at, f.select(last, f.i64(-size), 0))
        one, other = f.load(at, self.arith.vector), f.load(at, self.arith.vector, size)
        return self._pairs(
            f, one * f.splat(f.select(last, f.constant(0.5, "float"), 1.0), self.arith.lanes),
            other * f.splat(f.select(f.compare("eq", step, self.steps - 2), f.constant(0.5, "float"), 1.0),
                            self.arith.lanes),
        )  # fmt: skip

    def _pairs(self, f: Function, one: Value, other: Value) -> Value:
        lanes = self.arith.lanes
        order = [i // 2 + (i % 2) * lanes for i in range(2 * lanes)]
        pairs = f.shuffle(f.convert("fptrunc", one, "bfloat"), f.convert("fptrunc", other, "bfloat"), order)
        return f.bitcast(pairs, self.arith.vector)


@dataclass(frozen=True)
class Copy:
    """A padded tile of the source: rows of `width` places of `pitch` elements. channels: how many are copied, of
    `of` at each place of the source; left: the source's first column is so many places in; wide: widened to f32; rest:
    the source has one more row, of so many places; planar: the source is [channels, rows, columns];
    whole: zeros follow the channels up to a multiple of it; skip: of the source only each so many rows and columns
    count, which are so many apart in rows of `apart` places."""

    arith: Arith
    width: int
    pitch: int
    channels: int
    of: int
    columns: int
    rows: int
    left: int
    dtype: str
    wide: bool
    rest: int = 0
    planar: bool = False
    whole: int = 1
    skip: tuple[int, int] = (1, 1)
    apart: int = 0

    @property
    def element(self) -> int:
        """Bytes of an element of the tile."""
        return 4 if self.wide else WIDTH[self.dtype]

    @property
    def row_bytes(self) -> int:
        """From row to row of the tile."""
        return self.width * self.pitch * self.element

    def write(self, f: Function, image: Value, tile: Value, first: Value, count: Value) -> None:
        """Fill rows of the tile with the image's rows first, first + 1, ...; outside the image it is zero. image: the
        first channel of the first place."""
        with f.loop(0, count) as i:
            row, out = first + i, f.offset(tile, i * self.row_bytes)
            apart = (self.apart or self.columns) * self.skip[0]
            source = f.offset(image, row * (apart * (1 if self.planar else self.of) * WIDTH[self.dtype]))
            with f.when(f.compare("ult", row, self.rows)):
                self._row(f, source, out, self.columns)
            with f.when(f.compare("uge", row, self.rows)):
                self._zeros(f, out, self.width * self.pitch)
            if self.rest:
                with f.when(f.compare("eq", row, self.rows)):
                    self._row(f, source, out, self.rest)

    def _zeros(self, f: Function, out: Value, count: int) -> None:
        """At least `count` elements; up to one vector more is written."""
        if count > 0:
            with f.loop(0, count * self.element, self.arith.bytes) as at:
                f.store(f.constant(0.0, self.arith.vector), out, at)

    def _row(self, f: Function, source: Value, out: Value, columns: int) -> None:
        """One row; what is written beyond it is written again later."""
        first, skip = max(self.left, 0), max(-self.left, 0)
        taken = max(min(columns - skip, self.width - first), 0)
        whole = self.channels == self.of == self.pitch and self.skip[1] == 1
        self._zeros(f, out, first * self.pitch)
        source = f.offset(source, skip * (1 if self.planar else self.of) * WIDTH[self.dtype])
        start = f.offset(out, first * self.pitch * self.element)
        if self.planar:
            self._gathered(f, source, start, taken)
        elif whole:
            self._run(f, source, start, taken * self.pitch)
        else:
            with f.loop(0, taken) as x:
                here = f.offset(start, x * (self.pitch * self.element))
                self._run(f, f.offset(source, x * (self.skip[1] * self.of * WIDTH[self.dtype])), here, self.channels)
        rest = self.width - first - taken
        self._zeros(f, f.offset(start, taken * self.pitch * self.element), rest * self.pitch)

    def _run(self, f: Function, source: Value, out: Value, count: int) -> None:
        """So many elements in a row, then zeros to the end of the vector."""
        width = WIDTH[self.dtype]
        per = self.arith.lanes if self.wide else self.arith.bytes // width
        kind = vector(MEMORY[self.dtype], per)
        if count >= per:
            with f.loop(0, count // per) as i:
                f.store(self._moved(f.load(source, kind, i * (per * width))), out, i * (per * self.element))
        if count % per:
            done = count - count % per
            mask = f.mask(f.i64(count % per), per)
            f.store(self._moved(f.load_masked(source, kind, mask, done * width)), out, done * self.element)

    def _moved(self, v: Value) -> Value:
        return self.arith.wide(v, self.dtype) if self.wide else v

    def _gathered(self, f: Function, source: Value, out: Value, count: int) -> None:
        """So many places of a row of each channel, transposed; whole steps are written, with an odd channel too."""
        lanes, width = self.arith.lanes, WIDTH[self.dtype]
        kind, plane = vector(MEMORY[self.dtype], lanes), self.rows * self.columns * width
        filled = min(-(-self.channels // self.whole) * self.whole, self.pitch)
        if filled == self.pitch <= _FEW:
            self._interleaved(f, source, out, count)
            return
        with f.loop(0, self.channels, lanes) as c, f.loop(0, count, lanes) as x:
            rows = []
            for i in range(lanes):
                there = f.compare("slt", c + i, self.channels)
                mask = f.mask(f.select(there, f.i64(count) - x, 0), lanes)
                place = f.offset(source, f.select(there, c + i, 0) * plane, x * width)
                rows.append(self._moved(f.load_masked(place, kind, mask)))
            some = f.mask(f.i64(filled) - c, lanes)
            for i, value in enumerate(transposed(f, rows)):
                there = f.compare("slt", x + i, count)
                mask = f.mask(f.select(there, f.i64(filled) - c, 0), lanes) if count % lanes else some
                f.store_masked(value, out, mask, ((x + i) * self.pitch + c) * self.element)

    def _interleaved(self, f: Function, source: Value, out: Value, count: int) -> None:
        """The same for a few channels: a vector of places of each, put together by shuffles."""
        lanes, width, pitch = self.arith.lanes, WIDTH[self.dtype], self.pitch
        kind, plane = vector(MEMORY[self.dtype], lanes), self.rows * self.columns * width
        with f.loop(0, count, lanes) as x:
            some = f.mask(f.i64(count) - x, lanes) if count % lanes else None
            places = [f.offset(source, x * width, c * plane) for c in range(self.channels)]
            rows = [f.load(p, kind) if some is None else f.load_masked(p, kind, some) for p in places]
            rows = [self._moved(row) for row in rows]
            rows += [f.constant(0, rows[0].type)] * (pitch - self.channels)
            for v in range(pitch):
                at = [divmod(v * lanes + i, pitch) for i in range(lanes)]  # place and channel of each lane
                made = rows[0]
                for c in range(1, pitch):  # lanes of the channels before this one are at their place from c = 2 on
                    before = [place if c == 1 else i for i, (place, _) in enumerate(at)]
                    order = [lanes + place if own == c else b for b, (place, own) in zip(before, at, strict=True)]
                    made = f.shuffle(made, rows[c], order)
                to = f.offset(out, (x * pitch + v * lanes) * self.element)
                if some is None:
                    f.store(made, to)
                else:
                    f.store_masked(made, to, f.mask((f.i64(count) - x) * pitch - v * lanes, lanes))
