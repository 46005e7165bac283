"""Matrix products of any size by tiles in registers: `build(problem, isa, schedule, finish)` gives the module's text.

A task computes a block of the result for one product of the batch, or for a group of small ones. Along the sum it goes
in blocks; for each it packs its part of B into scratch memory (or reads B in place), then for each panel of rows packs
or points at A, and runs along the panels of columns. Sums of blocks before the last wait in scratch. Rows are dealt out
to panels evenly, so that there are at most two heights; columns that are left over get tiles of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from treadle.base.dtypes import bfloat16, float32
from treadle.kernels import launch
from treadle.kernels.jit import SLOT_BYTES
from treadle.kernels.llvm import Function, Module, Value
from treadle.kernels.microkernels import UNIT, Ahead, Isa, Strided, Tile, first_lanes
from treadle.kernels.templates import packing
from treadle.kernels.templates.gemm_problem import Problem, Side
from treadle.kernels.templates.gemm_sums import Totals
from treadle.kernels.templates.packing import Source, Span


@dataclass(frozen=True)
class Schedule:
    """How a product is cut. vectors: of a tile's columns; rows: of the tallest tile; depth: elements of a block of the
    sum; high, wide: panels of rows and of columns in a task; group: products of the batch in a task; share: B is packed
    once, into the workspace and in a phase of its own, not by every task (for a single product)."""

    vectors: int
    rows: int
    depth: int
    high: int
    wide: int
    pack_a: bool
    pack_b: bool
    group: int = 1
    share: bool = False

    def __str__(self) -> str:
        packs = "a" * self.pack_a + ("B" if self.share else "b") * self.pack_b
        return f"{self.rows}x{self.vectors} k{self.depth} {self.high}x{self.wide} g{self.group} pack:{packs or '-'}"


@dataclass(frozen=True)
class Place:
    """Where a tile lies in the result: product of the batch, first row and number of rows, first column; columns: how
    many exist, the others of the tile's vectors are empty. totals: where sums of its columns are kept, those of the
    next sum `apart` bytes further."""

    batch: Value
    row: Value
    rows: int
    column: Value
    columns: int
    totals: Value
    apart: int = 0


_FAR = 512  # bytes; lines of memory so far apart are no stream that a CPU would fetch by itself
_PANELS = 2  # of B that a task packs where it is shared,
_MORE_PANELS = 8  # or more, up to so many, where they are neighbours in memory and as many tasks are left
_SOON = 32  # units of the sum before its use that B is asked for

# Writes the results of a tile whose sums are complete; the second argument is memory for the sums.
Finish = Callable[[Function, Value, Place, Tile], None]


def in_place(side: Side, isa: Isa, right: bool) -> bool:
    """Whether the innermost code can read the operand where it is."""
    if right:
        return side.dtype is float32 and not isa.pairs and side.outer == 1
    if isa.pairs:
        return side.dtype is bfloat16 and side.inner == 1
    return side.dtype is float32


def build(made: Gemm, module: Module) -> list[launch.Phase]:
    """Add the functions of the product's phases to the module."""
    phases = []
    if made.s.share:
        f = Function(module, "pack", ["ptr", "i64", "ptr"])
        phases.append(launch.Phase("pack", made.packing_task(f)))
        f.give()
    f = Function(module, "gemm", ["ptr", "i64", "ptr"])
    made.task(f)
    f.give()
    phases.append(launch.Phase("gemm", made.tasks))
    if made.totals is not None:
        phases.append(made.totals.phase(made.isa, module, made.shares, made.line, made.p.n, made.packed))
    return phases


class Gemm:
    """Numbers that follow from a schedule, and the code."""

    runs = True  # B is packed unit after unit of all panels where its columns are neighbours in memory

    def __init__(
        self,
        problem: Problem,
        isa: Isa,
        schedule: Schedule,
        finish: Finish,
        buffers: int,
        totals: Totals | None = None,
        ahead: Callable[[Function, Place], None] | None = None,
    ) -> None:
        self.p, self.isa, self.s, self.finish, self.totals = problem, isa, schedule, finish, totals
        self.ahead = ahead  # called some time before a tile is finished
        self.buffers = buffers  # inputs and outputs; the workspace is the next one
        self.width = schedule.vectors * isa.lanes
        self.row_panels = -(-problem.m // schedule.rows)
        self.height, self.taller = divmod(problem.m, self.row_panels)  # the first `taller` panels have one row more
        self.full, self.tail = divmod(problem.n, self.width)
        self.columns = self.full + bool(self.tail)
        self.blocks = max(-(-problem.k // schedule.depth), 1)
        self.last_depth = problem.k - (self.blocks - 1) * schedule.depth
        self.m_tasks, self.n_tasks = -(-self.row_panels // schedule.high), -(-self.columns // schedule.wide)
        self.groups = -(-problem.batches // schedule.group)
        self.tasks = self.groups * self.m_tasks * self.n_tasks
        self.b_step = self.width * UNIT
        self.b_panel = self._padded(min(schedule.depth, max(problem.k, 1))) // isa.per_unit * self.b_step
        self.tile_bytes = schedule.rows * self.width * UNIT
        self.shares, self.line = self.groups * self.m_tasks, self.columns * self.width
        self._place_scratch()

    @property
    def packed(self) -> int:
        """Bytes of the workspace that hold B."""
        return self.blocks * self.columns * self.b_panel if self.s.share else 0

    @property
    def workspace(self) -> int:
        """Bytes that the kernel needs beside its inputs and outputs."""
        return self.packed + (self.totals.bytes(self.shares, self.line) if self.totals is not None else 0)

    def _padded(self, depth: int) -> int:
        """Elements of the sum rounded up to what packing writes."""
        block = self.isa.lanes * self.isa.per_unit
        return -(-depth // block) * block

    def _place_scratch(self) -> None:
        """Where in scratch memory: packed B, packed A (all panels of the task where it is packed by columns, which
        reads whole lines of memory, else one), waiting sums."""
        rows, s = self.height + bool(self.taller), self.s
        depth = self._padded(min(s.depth, max(self.p.k, 1)))
        self.by_column = (self.p.left.outer == 1 and rows > 1) or self.p.left.inner != 1
        if self.by_column:
            vectors = -(-rows // self.isa.lanes)
            self.a_inner, self.a_outer = vectors * self.isa.bytes, UNIT
            self.a_panel = depth // self.isa.per_unit * self.a_inner
            a_bytes = self.a_panel * min(s.high, self.row_panels)
        else:
            self.a_inner, self.a_outer = UNIT, depth * UNIT // self.isa.per_unit + 64
            a_bytes = rows * self.a_outer
        self.a_at = self.b_panel * s.wide if s.pack_b and not s.share else 0
        self.sums_at = self.a_at + (a_bytes if s.pack_a else 0)
        self.sums_at += -self.sums_at % 64
        self._place_totals()

    def _place_totals(self) -> None:
        """Behind the waiting sums: those of every tile, or of one if nothing has to wait."""
        self.waiting = self.tile_bytes if self.blocks > 1 else 0
        self.totals_at = self.sums_at + max(self.waiting * self.s.high * self.s.wide, self.tile_bytes)
        count = len(self.totals.outputs) if self.totals is not None else 0
        needed = self.totals_at + count * self.s.wide * self.width * UNIT
        if needed > SLOT_BYTES:
            raise ValueError(f"{self.s} needs {needed} bytes of scratch memory, there are {SLOT_BYTES}")

    # --- loops -------------------------------------------------------------------------------------------------------
    def task(self, f: Function) -> None:
        buffers, task, scratch = f.args
        left, right = (f.load(buffers, "ptr", 8 * side.param) for side in (self.p.left, self.p.right))
        column, row, group = (
            task % self.n_tasks,
            task // self.n_tasks % self.m_tasks,
            task // self.n_tasks // self.m_tasks,
        )
        floats, totals = self.s.wide * self.width, f.offset(scratch, self.totals_at)
        first, end = column * self.s.wide, f.min_int((column + 1) * self.s.wide, self.columns)
        if self.totals is not None:
            self.totals.clear(f, self.isa, totals, floats)
        with self._products(f, group) as batch:
            offsets = batch_offsets(f, batch, self.p.batch, [self.p.left.batch, self.p.right.batch])
            a = f.offset(left, (offsets[0] + self.p.left.offset) * self.p.left.dtype.bytes)
            b = f.offset(right, (offsets[1] + self.p.right.offset) * self.p.right.dtype.bytes)
            rows = row * self.s.high, f.min_int((row + 1) * self.s.high, self.row_panels)
            columns = first, end
            if self.blocks == 1:
                self._block(f, batch, f.i64(0), a, b, rows, columns, scratch)
            else:
                with f.loop(0, self.blocks) as block:
                    self._block(f, batch, block, a, b, rows, columns, scratch)
        if self.totals is not None:
            part, count = group * self.m_tasks + row, (end - first) * self.width
            self.totals.keep(f, self.isa, totals, floats, part, self.shares, first * self.width, count, self.line,
                             self.packed)  # fmt: skip

    @contextmanager
    def _products(self, f: Function, group: Value) -> Iterator[Value]:
        if self.s.group == 1:
            yield group
        else:
            first = group * self.s.group
            with f.loop(first, f.min_int(first + self.s.group, self.p.batches)) as batch:
                yield batch

    def _span(self, f: Function, block: Value, size: int) -> Span:
        """The block's part of the sum in pieces of `size` elements."""
        rest = self.last_depth % size
        if self.blocks == 1:
            return Span(self.last_depth - rest, rest, None)
        last = f.compare("eq", block, self.blocks - 1)
        return Span(f.select(last, f.i64(self.last_depth - rest), self.s.depth), rest, last)

    def _block(
        self, f: Function, batch: Value, block: Value, a: Value, b: Value, rows: tuple[Value, Value],
        columns: tuple[Value, Value], scratch: Value,
    ) -> None:  # fmt: skip
        """One block of the sum for all tiles of a task."""
        k = block * self.s.depth
        if self.s.pack_b and not self.s.share:
            self._pack_b(f, block, k, b, columns, scratch)
        if self.s.pack_a and self.by_column:
            self._pack_a(f, block, k, a, rows, scratch)
        for height, panel, row in self._panels(f, rows):
            nth = panel - rows[0]
            source = self._a(f, block, k, self._row(f, a, row), height, nth, scratch)
            sums = f.offset(scratch, self.sums_at, nth * (self.s.wide * self.waiting))
            self._columns(f, batch, block, k, row, height, source, b, columns, scratch, sums)

    def _panels(self, f: Function, rows: tuple[Value, Value]) -> Iterator[tuple[int, Value, Value]]:
        """Loops over panels of rows: height, number and first row."""
        kinds = [(self.height, self.taller, self.row_panels)]
        if self.taller:
            kinds.insert(0, (self.height + 1, 0, self.taller))
        for height, first, end in kinds:
            with f.loop(f.max_int(rows[0], first), f.min_int(rows[1], end)) as panel:
                yield height, panel, panel * self.height + f.min_int(panel, self.taller)

    def rows_of(self, f: Function, task: Value) -> tuple[Value, Value]:
        """The rows of a task whose columns are all."""
        ends = [f.min_int((task + i) * self.s.high, self.row_panels) for i in range(2)]
        first, end = [panel * self.height + f.min_int(panel, self.taller) for panel in ends]
        return first, end

    def _row(self, f: Function, a: Value, row: Value) -> Value:
        return f.offset(a, row * (self.p.left.outer * self.p.left.dtype.bytes))

    def _columns(
        self, f: Function, batch: Value, block: Value, k: Value, row: Value, height: int, a: Strided, b: Value,
        columns: tuple[Value, Value], scratch: Value, sums: Value,
    ) -> None:  # fmt: skip
        """The tiles of one panel of rows."""

        def tile(panel: Value, count: int) -> None:
            right = self._b(f, block, k, b, panel, columns[0], scratch)
            totals = f.offset(scratch, self.totals_at, (panel - columns[0]) * (self.width * UNIT))
            place = Place(batch, row, height, panel * self.width, count, totals, self.s.wide * self.width * UNIT)
            self._tile(f, block, a, right, place, f.offset(sums, (panel - columns[0]) * self.waiting))

        self._each_panel(f, columns, tile)

    def _tile(self, f: Function, block: Value, a: Strided, b: Strided, place: Place, sums: Value) -> None:
        """One tile: what waits in memory, plus this block's product, goes back there or is finished."""
        vectors = -(-place.columns // self.isa.lanes)
        masks = [first_lanes(f, self.isa.lanes, place.columns - v * self.isa.lanes) for v in range(vectors)]
        tile = Tile(f, self.isa, place.rows, vectors)
        step = vectors * self.isa.bytes
        if self.ahead is not None:
            with f.when(f.compare("eq", block, self.blocks - 1)):
                self.ahead(f, place)
        if self.blocks == 1:
            tile.clear()
        else:
            f.either(f.compare("eq", block, 0), tile.clear, lambda: tile.load(sums, step))
        half = not self.s.pack_a and self.isa.pairs
        span = self._span(f, block, self.isa.per_unit)
        depth = f.i64(span.whole) // self.isa.per_unit
        if span.rest and not half:
            depth = depth + (f.convert("zext", span.last, "i64") if span.last is not None else 1)
        tile.multiply(depth, a, b, () if self.s.pack_b else masks, self._soon(f, a, place.rows))
        if span.rest and half:
            with span.tail(f):
                tile.multiply_half(depth, a, b)
        if self.blocks == 1:
            self.finish(f, sums, place, tile)
        else:
            last = f.compare("eq", block, self.blocks - 1)
            f.either(last, lambda: self.finish(f, sums, place, tile), lambda: tile.store(sums, step))

    def _soon(self, f: Function, a: Strided, rows: int) -> Ahead:
        """What the tile may ask for: operands that are read where they are, if the CPU does not see it coming."""
        far = not self.s.pack_b and self.p.right.inner * UNIT >= _FAR and min(self.s.depth, self.p.k) > 2 * _SOON
        after = None
        if not self.s.pack_a and UNIT in (a.inner, a.outer):
            after = Strided(f.offset(a.place, rows * a.outer), a.inner, a.outer)
        return Ahead(after, _SOON if far else 0)

    # --- operands ----------------------------------------------------------------------------------------------------
    def _a(self, f: Function, block: Value, k: Value, rows: Value, height: int, nth: Value, scratch: Value) -> Strided:
        """A's panel of rows, packed if the schedule says so."""
        side, isa = self.p.left, self.isa
        place = f.offset(rows, k * (side.inner * side.dtype.bytes))
        if not self.s.pack_a:
            return Strided(place, side.inner * side.dtype.bytes * isa.per_unit, side.outer * side.dtype.bytes)
        target = f.offset(scratch, self.a_at)
        if self.by_column:
            return Strided(f.offset(target, nth * self.a_panel), self.a_inner, self.a_outer)
        source = Source(place, side.dtype, side.outer, side.inner)
        packing.lines(f, isa, source, target, self._span(f, block, isa.lanes), height, self.a_outer)
        return Strided(target, self.a_inner, self.a_outer)

    def _pack_a(self, f: Function, block: Value, k: Value, a: Value, rows: tuple[Value, Value], scratch: Value) -> None:
        """All panels of rows of a task, whose rows are neighbours in memory: one unit of the sum after the other."""
        side, isa = self.p.left, self.isa

        def unit(source: Source, target: Value, at: Value, both: bool) -> None:
            to = f.offset(target, at * (self.a_inner // isa.per_unit))
            for height, panel, row in self._panels(f, rows):
                counts = [min(height - lane, isa.lanes) for lane in range(0, height, isa.lanes)]
                here = Source(self._row(f, source.place, row), side.dtype, max(side.outer, 1), side.inner)
                packing.along_unit(f, isa, here, f.offset(to, (panel - rows[0]) * self.a_panel), at, counts, both)

        start = Source(f.offset(a, k * (side.inner * side.dtype.bytes)), side.dtype, side.outer, side.inner)
        span, target = self._span(f, block, isa.per_unit), f.offset(scratch, self.a_at)
        with f.loop(0, span.whole, isa.per_unit) as each:
            unit(start, target, each, isa.pairs)
        with span.tail(f) as last:
            if last is not None:
                unit(start, target, last, False)

    def _b(self, f: Function, block: Value, k: Value, b: Value, panel: Value, first: Value, scratch: Value) -> Strided:
        """B's panel of columns; `first` is the task's first one."""
        if self.s.pack_b:
            return Strided(self._packed(f, block, panel, first, scratch), self.b_step, self.isa.bytes)
        side = self.p.right
        place = f.offset(b, k * (side.inner * UNIT), panel * (self.width * UNIT))
        return Strided(place, side.inner * UNIT, self.isa.bytes)

    def _packed(self, f: Function, block: Value, panel: Value, first: Value, scratch: Value) -> Value:
        """Where a panel of B is packed. The workspace holds the totals behind the panels."""
        if not self.s.share:
            return f.offset(scratch, (panel - first) * self.b_panel)
        start = f.load(f.args[0], "ptr", 8 * self.buffers)
        return f.offset(start, (block * self.columns + panel) * self.b_panel)

    def packing_task(self, f: Function) -> int:
        """Packs B where all tasks share it: some panels of a block; returns the number of tasks."""
        side, panels = self.p.right, _PANELS
        if side.outer == 1:
            panels = max(_PANELS, min(_MORE_PANELS, self.blocks * self.columns // _MORE_PANELS))
        some = -(-self.columns // panels)
        block, first = f.args[1] // some, f.args[1] % some * panels
        b = f.offset(f.load(f.args[0], "ptr", 8 * side.param), side.offset * side.dtype.bytes)
        end = f.min_int(first + panels, self.columns)
        self._pack_b(f, block, block * self.s.depth, b, (first, end), f.args[2])
        return self.blocks * some

    def _pack_b(
        self, f: Function, block: Value, k: Value, b: Value, columns: tuple[Value, Value], scratch: Value
    ) -> None:
        """B's block into scratch, panel after panel."""
        if self.runs and self.p.right.outer == 1 and self.p.n > 1:
            self._pack_units(f, block, k, b, columns, scratch)
            return

        def pack(panel: Value, count: int) -> None:
            target = self._packed(f, block, panel, columns[0], scratch)
            self._pack_panel(f, block, Source(b, self.p.right.dtype, self.p.right.outer, self.p.right.inner),
                             panel * self.width, k, target, count)  # fmt: skip

        self._each_panel(f, columns, pack)

    def _pack_units(
        self, f: Function, block: Value, k: Value, b: Value, columns: tuple[Value, Value], scratch: Value
    ) -> None:
        """The same unit after unit of all panels: whole runs of memory are read, not a piece of a line each."""
        isa, side = self.isa, self.p.right
        start = f.offset(b, k * (side.inner * side.dtype.bytes))

        def unit(at: Value, both: bool) -> None:
            def pack(panel: Value, count: int) -> None:
                source = Source(f.offset(start, panel * (self.width * side.dtype.bytes)), side.dtype, 1, side.inner)
                place = self._packed(f, block, panel, columns[0], scratch)
                target = f.offset(place, at * (self.b_step // isa.per_unit))
                counts = [min(count - lane, isa.lanes) for lane in range(0, count, isa.lanes)]
                packing.along_unit(f, isa, source, target, at, counts, both)

            self._each_panel(f, columns, pack)

        span = self._span(f, block, isa.per_unit)
        with f.loop(0, span.whole, isa.per_unit) as each:
            unit(each, isa.pairs)
        with span.tail(f) as last:
            if last is not None:
                unit(last, False)

    def _each_panel(self, f: Function, columns: tuple[Value, Value], pack: Callable[[Value, int], None]) -> None:
        """Each of the panels of columns, and how many columns it has."""
        with f.loop(columns[0], f.min_int(columns[1], self.full)) as panel:
            pack(panel, self.width)
        if self.tail:
            with f.when(f.compare("eq", columns[1], self.columns)):
                pack(f.i64(self.full), self.tail)

    def _pack_panel(
        self, f: Function, block: Value, b: Source, column: Value, k: Value, target: Value, count: int
    ) -> None:
        isa = self.isa
        source = replace(b, place=b.at(f, column, k))
        if b.outer == 1 or self.p.n == 1:
            counts = [min(count - at, isa.lanes) for at in range(0, count, isa.lanes)]
            packing.along(f, isa, source, target, self._span(f, block, isa.per_unit), counts, self.b_step)
            return
        span = self._span(f, block, isa.lanes * isa.per_unit)

        def vector(v: Value, some: int) -> None:
            lines = replace(source, place=source.at(f, v * isa.lanes, 0))
            packing.across(f, isa, lines, f.offset(target, v * isa.bytes), span, some, self.b_step)

        whole, rest = divmod(count, isa.lanes)
        if whole:
            with f.loop(0, whole) as v:
                vector(v, isa.lanes)
        if rest:
            vector(f.i64(whole), rest)


def batch_offsets(f: Function, batch: Value, sizes: tuple[int, ...], strides: list[tuple[int, ...]]) -> list[Value]:
    """Offsets in elements of one product of the batch, for operands with these strides along the batch axes."""
    found: list[Value] = [f.i64(0) for _ in strides]
    rest = batch
    for axis in reversed(range(len(sizes))):
        index = rest % sizes[axis] if axis else rest
        rest = rest // sizes[axis]
        found = [now + index * of[axis] if of[axis] else now for now, of in zip(found, strides, strict=True)]
    return found
