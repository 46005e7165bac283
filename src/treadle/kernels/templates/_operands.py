"""The arrays of an attention kernel, brought into the form that its products read.

`Operands` gives pointers to one head's part of each array; `rows` and `summed` give the two forms of a product's first
operand: as it lies in memory where that can be read, else a copy in scratch memory. `pack_columns` turns rows into
columns (queries as lanes), `rows_out` turns them back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from treadle.kernels.llvm import Function, Value, vector
from treadle.kernels.templates import _tiles
from treadle.kernels.templates._attention_shape import Problem
from treadle.kernels.templates._tiles import LOG2E, Machine
from treadle.kernels.templates._views import View

AHEAD = 16  # rows


@dataclass(frozen=True)
class Rows:
    """Rows of units at `base`, `row` bytes apart; a row of units is one row of elements, or two if they are paired."""

    base: Value
    row: int
    halved: bool = False

    def at(self, index: Value | int) -> tuple[Value, int, int]:
        """What _tiles.tile takes, for the rows from `index` on as rows."""
        return self.base.f.offset(self.base, self.base.f.i64(index) * self.row), self.row, 4

    def units_at(self, index: Value) -> tuple[Value, int]:
        """The place of a row, and the bytes to the next, for rows that are summed over."""
        skipped = index >> 1 if self.halved else index
        return self.base.f.offset(self.base, skipped * self.row), self.row


class Operands:
    """Arrays of one head. room: gives scratch memory of so many bytes. limit: rows that are read, None for all."""

    def __init__(
        self, f: Function, m: Machine, p: Problem, head: Value, room: Callable[[int], Value], limit: Value | None = None
    ) -> None:
        self.f, self.m, self.p, self.number, self.room = f, m, p, head, room
        self.limit = limit
        self.copies = True  # whether floats that do not lie one after another are copied

    def steps(self, depth: int) -> int:
        """Units of so many elements."""
        return depth // 2 if self.m.pairs else depth

    def pointer(self, view: View, output: bool = False) -> Value:
        """This head's part of an array."""
        f = self.f
        start = f.load(f.args[0], "ptr", 8 * (view.buffer + (self.p.params if output else 0)))
        inside = _tiles.lead_offset(f, self.number, *view.lead(len(self.p.lead)))
        return f.offset(start, view.offset, inside)

    def rows(self, index: int, depth: int) -> Rows:
        """The rows of an operand as rows of units."""
        view = self.p.inputs[index]
        row, kind = view.strides[-2], "bf16" if self.m.pairs else "f32"
        once = self.m.pairs and self.p.rows <= self.m.block  # a copy would cost as much as it saves
        if self.p.kind == kind and (row == depth * self.p.item or once or not self.copies):
            return Rows(self.pointer(view), row)
        return self._copied(view, depth, kind)

    def summed(self, index: int, depth: int) -> Rows:
        """The rows of an operand to be summed over: units are pairs of rows where there are pairs."""
        return self._interleaved(self.p.inputs[index], depth) if self.m.pairs else self.rows(index, depth)

    def _needed(self, view: View) -> Value:
        """Number of rows that are read."""
        rows = view.sizes[-2]
        return self.f.i64(rows) if self.limit is None else self.limit

    def _copied(self, view: View, depth: int, kind: str) -> Rows:
        """Rows one after another in scratch memory, as floats or (kind "bf16") as they are."""
        f, m, item = self.f, self.m, self.p.item
        size = 4 if kind == "f32" else item
        source, to, half = self.pointer(view), self.room(view.sizes[-2] * depth * size), vector("i16", m.lanes)
        with f.loop(0, self._needed(view)) as i:
            here, there = f.offset(source, i * view.strides[-2]), f.offset(to, i * (depth * size))
            ask(f, here, view.strides[-2], depth * item)

            def move(at: Value, mask: Value | None) -> None:
                place, goal = f.offset(here, at * item), f.offset(there, at * size)
                if kind == "f32":
                    _tiles.store_floats(f, m, kind, _tiles.load_floats(f, m, self.p.kind, place, mask), goal, mask)
                elif mask is None:
                    f.store(f.load(place, half), goal)
                else:
                    f.store_masked(f.load_masked(place, half, mask), goal, mask)

            along(f, m, depth, move)
        return Rows(to, depth * size)

    def _interleaved(self, view: View, depth: int) -> Rows:
        """Rows 2i and 2i + 1 as one row of units, in scratch memory; 0 beyond the last."""
        f, m, most, limit = self.f, self.m, view.sizes[-2], self._needed(view)
        source, to = self.pointer(view), self.room((most + 1) // 2 * depth * 4)
        step, half = view.strides[-2], vector("i16", m.lanes)

        def pair(i: Value, whole: bool) -> None:
            here, there = f.offset(source, i * (2 * step)), f.offset(to, i * (depth * 4))
            for place in (here, f.offset(here, step)):
                ask(f, place, step, depth * 2)

            def move(at: Value, mask: Value | None) -> None:
                place = f.offset(here, at * 2)
                low, high = (
                    f.load(place, half, u * step) if mask is None else f.load_masked(place, half, mask, u * step)
                    for u in ((0, 1) if whole else (0, 0))
                )
                both = f.convert("zext", low, "i32")
                if whole:
                    both = both | (f.convert("zext", high, "i32") << 16)
                f.store(both, f.offset(there, at * 4)) if mask is None else f.store_masked(
                    both, f.offset(there, at * 4), mask
                )

            along(f, m, depth, move)

        with f.loop(0, limit >> 1) as i:
            pair(i, True)
        if most % 2:
            with f.when(f.compare("ne", limit & 1, 0)):
                pair(limit >> 1, False)
        return Rows(to, depth * 4, True)

    def mask(self, rows: int) -> Mask | None:
        """The mask that is added to the scores, if there is one. rows: most keys of a block."""
        if self.p.mask is None:
            return None
        return Mask(self, self.p.mask, self.room(rows * self.m.block * 4))

    def scored(self, acc: list[list[Value]], key: Value, mask: Mask | None) -> list[list[Value]]:
        """Scores in units of log2 from the tile's products. key: the first row's."""
        factor = self.p.scale * LOG2E if self.m.pairs else 1.0
        made = [[x * factor if factor != 1.0 else x for x in row] for row in acc]
        if mask is not None:
            made = [[x + mask.value(key, r, c) * LOG2E for c, x in enumerate(row)] for r, row in enumerate(made)]
        return made


class Mask:
    """A block of the mask with keys as rows: loaded and transposed, or one number per key where rows are alike."""

    def __init__(self, x: Operands, view: View, place: Value) -> None:
        self.x, self.view, self.place = x, view, place
        self.pointer = x.pointer(view)
        self.first = x.f.variable("i64", 0)

    def load(self, row: Value, key: Value, count: Value, least: int) -> None:
        """For queries from `row` on and keys from `key` on; also the `least` last keys, if some of them are before."""
        x, f, m, step = self.x, self.x.f, self.x.m, self.view.strides[-2]
        first = f.min_int(key, x.p.keys - least)
        self.first.set(first)
        if step == 0:
            return
        stop = key + count + (least - 1)  # the last tile of rows may begin in the block and end behind it
        with f.loop(first, stop, m.lanes) as k:
            inside = f.mask(f.i64(x.p.keys) - k, m.lanes)
            with f.loop(0, m.wide) as c:
                rows = []
                for i in range(m.lanes):
                    at = f.min_int(row + c * m.lanes + i, x.p.rows - 1)
                    here = f.offset(self.pointer, at * step, k * x.p.item)
                    rows.append(_tiles.load_floats(f, m, x.p.kind, here, inside))
                for i, each in enumerate(_tiles.transposed(f, rows)):
                    f.store(each, f.offset(self.place, (k - first + i) * (m.block * 4), c * m.bytes))

    def value(self, key: Value, r: int, c: int) -> Value:
        """The vector c of the key r after `key`."""
        x, f, m = self.x, self.x.f, self.x.m
        if self.view.strides[-2]:
            return f.load(f.offset(self.place, (key - self.first.get() + r) * (m.block * 4), c * m.bytes), m.floats)
        here = f.offset(self.pointer, (key + r) * x.p.item)
        if x.p.kind == "f32":
            return f.splat(f.load(here, "float"), m.lanes)
        return _tiles.widened(m, x.p.kind, f.splat(f.load(here, "i16"), m.lanes))


def ask(f: Function, row: Value, step: int, bytes: int, write: bool = False) -> None:
    """Ask for a row some rows after this one: the CPU itself does not look beyond the end of a page."""
    for line in range(0, min(bytes, 128), 64):
        f.prefetch(row, AHEAD * step + line, write=write)


def along(f: Function, m: Machine, size: int, body: Callable[[Value, Value | None], None]) -> None:
    """The body for each vector along an axis: the place of its first element, and the last one's mask."""
    full = size - size % m.lanes
    if full:
        with f.loop(0, full, m.lanes) as at:
            body(at, None)
    if size > full:
        body(f.i64(full), f.mask(f.i64(size - full), m.lanes))


def pack_columns(
    x: Operands, view: View, row: Value, rows: int, depth: int, to: Value, factor: float, zeros: bool = False
) -> None:
    """The block of rows from `row` on as columns: units [depth][lanes] times the factor. Rows beyond the last are that
    one again, or zeros."""
    f, m, units = x.f, x.m, x.steps(depth)
    source, step = x.pointer(view), view.strides[-2]
    with f.loop(0, m.wide) as c:

        def move(at: Value, mask: Value | None) -> None:
            found = []
            for i in range(m.lanes):
                here = row + c * m.lanes + i
                place = f.offset(source, f.min_int(here, rows - 1) * step, at * (4 if m.pairs else x.p.item))
                if m.pairs:
                    kind = vector("i32", m.lanes)
                    one = f.load(place, kind) if mask is None else f.load_masked(place, kind, mask)
                else:
                    one = _tiles.load_floats(f, m, x.p.kind, place, mask)
                    one = one * factor if factor != 1.0 else one
                if zeros:
                    one = f.select(f.compare("slt", here, rows), one, 0)
                found.append(one)
            count = m.lanes if mask is None else units % m.lanes
            for i, column in enumerate(_tiles.transposed(f, found)[:count]):
                f.store(column, f.offset(to, (at + i) * (m.block * 4), c * m.bytes))

        along(f, m, units, move)


def rows_out(x: Operands, view: View, row: Value, rows: int, width: int, source: Value, factors: Value) -> None:
    """Columns of floats [width][lanes] times the factor of each lane (in memory) as the rows from `row` on of an
    output."""
    f, m = x.f, x.m
    to, step = x.pointer(view, output=True), view.strides[-2]
    with f.loop(0, m.wide) as c:
        factor = f.load(f.offset(factors, c * m.bytes), m.floats)

        def move(at: Value, mask: Value | None) -> None:
            found = [
                f.load(f.offset(source, (at + i) * (m.block * 4), c * m.bytes), m.floats) * factor
                for i in range(m.lanes)
            ]
            for i, each in enumerate(_tiles.transposed(f, found)):
                here = row + c * m.lanes + i
                with f.when(f.compare("slt", here, rows)):
                    place = f.offset(to, here * step, at * x.p.item)
                    _tiles.store_floats(f, m, x.p.kind, each, place, mask)

        along(f, m, width, move)
