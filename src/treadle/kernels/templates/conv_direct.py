"""Convolutions and their data gradients over channels-last images, as tiles of places times panels of channels.

Phases: weights are packed into panels (workspace); then tasks, each some rows of an image by some panels: the source
that one needs is copied, padded, into scratch (or read where it is), then tile after tile is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from treadle.kernels.launch import Phase
from treadle.kernels.llvm import Function, Module, Value, Variable
from treadle.kernels.target import Target
from treadle.kernels.templates.conv_finish import Tail, TileTail
from treadle.kernels.templates.conv_grad_sums import sums as sums_of
from treadle.kernels.templates.conv_micro import RUN, SIDE, STEP, WIDTH, Kinds, Micro, Pitches, arith
from treadle.kernels.templates.conv_pack import Copy, Panels, taps_across
from treadle.kernels.templates.conv_shape import Part, Problem
from treadle.kernels.templates.conv_sums import Moments, Waiting

SCRATCH = 7 << 20
SHORT = 128  # steps, for which it counts that sums go to memory and back
CHEAP = 16  # instructions that finish a vector: they are written out for each of a tile


@dataclass(frozen=True)
class Schedule:
    """tile: rows and columns of places held in registers, by `vectors` of channels. rows: of a task; panels: of a task.
    panels_inside: all panels for a tile before the next tile (else all tiles for a panel). copy: the source is copied
    into scratch (for AMX it must be)."""

    tile: tuple[int, int]
    vectors: int
    rows: int
    panels: int
    panels_inside: bool
    copy: bool
    amx: bool = False

    def __str__(self) -> str:
        order = "tile-panel" if self.panels_inside else "panel-tile"
        size, how = f"{self.tile[0]}x{self.tile[1]}x{self.vectors}", " copied" * self.copy + " amx" * self.amx
        return f"{size} rows {self.rows} panels {self.panels} {order}{how}"


@dataclass(frozen=True)
class Buffers:
    """Numbers of the kernel's buffers; target: -1 where `finish` writes."""

    source: int
    weights: int
    target: int
    workspace: int


@dataclass
class Direct:
    """One kernel. dtype: of source and weights; out: of what is written. tail: what to do with the sums instead of
    storing them, channels last. planar: the source has its channels first; images: height and width of the
    destination's images, where their places were joined. wanted: of what is written."""

    problem: Problem
    schedule: Schedule
    target: Target
    dtype: str
    out: str
    buffers: Buffers
    tail: Tail | None = None
    planar: bool = False
    images: tuple[int, int] = (0, 0)
    wanted: Moments | None = None
    module: Module = field(default_factory=Module)

    def __post_init__(self) -> None:
        p, s = self.problem, self.schedule
        self.arith = arith(self.target, self.dtype)
        across = 1 if s.amx or not s.copy else taps_across(p, self.arith)
        self.panels = Panels(p, self.arith, s.vectors, self.dtype, SIDE if s.amx else 1, across)
        (self.top, self.bottom), (self.first, self.end) = p.reach()
        wide = self.dtype != "f32" and self.arith.kind == "f32"
        most = max([part.cols for part in p.parts])
        width = max((most - 1) * p.step_in[1] + self.end - self.first + 1, 1)
        rest = p.parts[0].rest
        self.copy = Copy(
            self.arith, width=width, pitch=self._pitch(wide), channels=p.inner, of=p.source[2], columns=p.source[1],
            rows=p.source[0] - bool(rest), left=-self.first, dtype=self.dtype, wide=wide, rest=rest, planar=self.planar,
            whole=1 if across > 1 else self.arith.depth * self.panels.whole,
        )  # fmt: skip
        self.in_rows = (s.rows - 1) * p.step_in[0] + self.bottom - self.top + 1
        if s.copy:
            self.place, self.row = self.copy.pitch * self.copy.element, self.copy.row_bytes
        else:
            self.place = p.source[2] * WIDTH[self.dtype]
            self.row = p.source[1] * self.place
        size = WIDTH[self.out] if self.tail is None else 4
        if self.tail is None:
            out_col = p.target[2] * size
            out = (p.step_out[0] * p.target[1] * out_col, p.step_out[1] * out_col)
        else:
            out = (s.tile[1] * s.vectors * self.arith.bytes, s.vectors * self.arith.bytes)
        pitches = Pitches(p.step_in[0] * self.row, p.step_in[1] * self.place, *out)
        ahead = bool(p.flat) and not s.copy and self.place == self.panels.steps * STEP
        out_dtype = self.out if self.tail is None else "f32"
        finish = None
        if self.tail is not None:
            flat = (*self.images, p.target[1]) if p.flat else (0, 0, 0)
            finish = TileTail(self.tail, self.arith, p.step_out, out, p.outer % self.arith.lanes != 0, flat)
        self.at_once = finish is not None and not s.amx and self._short
        last = (finish.begin, finish.in_registers) if finish is not None and self.at_once else None
        self.blocks = -(-max([part.rows for part in p.parts]) // s.rows)
        self.panel_blocks = -(-self._panel_count // s.panels)
        align = 2 if across > 1 else 0
        self.micro = Micro(self.module, self.arith, pitches, out_dtype, s.amx, ahead, align, last, self.fetches)
        if finish is not None:
            if not self.at_once:
                finish.write(self.module, "finish")
            if self.asks:
                finish.write_ask(self.module, "ask")
        self.moments = None
        if self.wanted is not None:
            at = -(-self.panels.bytes // 64) * 64
            parts = p.n * self.blocks
            where = self.buffers.workspace, at
            self.moments = sums_of(self.wanted, self.arith, p.target[2], parts, where, p.step_out[1])

    @property
    def workspace(self) -> int:
        """Bytes: the panels, and the tasks' moments."""
        return self.panels.bytes if self.moments is None else self.moments.at + self.moments.bytes

    def _pitch(self, wide: bool) -> int:
        """Elements from place to place of the copy: whole steps, and not such that all places share few cache sets."""
        if self.panels.across > 1:
            return self.problem.inner
        pitch = self.panels.steps * self.arith.depth
        bytes = pitch * (4 if wide else WIDTH[self.dtype])
        return pitch + (64 // (4 if wide else WIDTH[self.dtype]) if bytes % 2048 == 0 else 0)

    @property
    def _short(self) -> bool:
        """Whether tiles are finished where they are computed: their sums are short, and so is what follows."""
        few = max([len(part.taps) for part in self.problem.parts]) * self.panels.steps <= SHORT
        enough = self.target.registers == 32
        return few and enough and self.tail is not None and self.tail.last and self.tail.cost() <= CHEAP

    @property
    def fetches(self) -> bool:
        """Whether tiles ask for the panels after theirs, each row's for a vector of them: those of weights that are
        read once, for so few places that memory would not give them in time."""
        return bool(self.problem.flat) and self.blocks == 1 and not self.schedule.amx

    @property
    def asks(self) -> bool:
        """Whether the memory that tiles are finished with is asked for before they are computed."""
        return self.tail is not None and self.tail.last

    @property
    def _panel_count(self) -> int:
        return self.panels.full + bool(self.panels.last)

    @property
    def tasks(self) -> int:
        """Of the main phase."""
        return self.problem.groups * self.panel_blocks * self.problem.n * self.blocks

    def scratch(self) -> int:
        """Bytes of scratch that a task needs."""
        behind = SIDE * self.problem.step_in[1] * self.place if self.schedule.amx else 0
        copied = self.in_rows * self.copy.row_bytes + 128 + behind
        return max(self.panels.scratch(), copied if self.schedule.copy else 0)

    def build(self) -> list[Phase]:
        """Write the functions; returns the phases."""
        tables = [self._table(i, part) for i, part in enumerate(self.problem.parts)]
        packing = self.panels.write(self.module, "pack", self.buffers.weights, self.buffers.workspace)
        f = Function(self.module, "convolve", ["ptr", "i64", "ptr"])
        self._task(f, tables)
        f.give()
        phases = [Phase("pack", packing), Phase("convolve", self.tasks)]
        if self.moments is not None:
            self.moments.write(self.module)
            phases.append(self.moments.phase(self.module))
        return phases

    def _table(self, number: int, part: Part) -> _Runs:
        """A part's taps as runs of steps that lie side by side in the source."""
        steps, runs, rows = self.panels.steps, list[tuple[int, int, int]](), list[int]()
        dense, kinds = self.place == steps * STEP, self._kinds(part)
        for tap in part.taps[:: self.panels.across]:
            down, right = (tap.row - self.top, tap.col - self.first) if self.schedule.copy else (tap.row, tap.col)
            at, kind = down * self.row + right * self.place, self._kind(part, tap.col, kinds)
            if dense and runs and (rows[-1], runs[-1][2]) == (tap.row, kind) and runs[-1][0] + runs[-1][1] * STEP == at:
                runs[-1] = (runs[-1][0], runs[-1][1] + steps, kind)
            elif self.panels.across > 1 and self.panels.run % 2:  # see Panels
                runs += [(at, steps - 1, kind), (at + (self.panels.run - 2) * WIDTH[self.dtype], 1, kind)]
                rows += [tap.row] * 2
            else:
                runs.append((at, steps, kind))
                rows.append(tap.row)
        big = self.schedule.tile[0] * self.schedule.tile[1] * self.schedule.vectors > 16
        unroll = next(u for u in ((2, 3, 1) if big else (4, 3, 2, 1)) if all(n % u == 0 for _, n, _ in runs))
        words = [word for run in runs for word in run] or [0, 0, 0]
        table = self.module.table(f"runs_{number}", words)
        full = self.module.table(f"full_{number}", [0 if i % 3 == 2 else w for i, w in enumerate(words)])
        return _Runs(table, full, len(runs), unroll, kinds, self._inside(number, part, runs, rows))

    def _kinds(self, part: Part) -> Kinds:
        """The columns that taps concern, if tiles have whole rows: first all, then those of taps that reach outside."""
        found = {(0, part.cols): None}
        apart = self.schedule.copy and not self.schedule.amx and self.panels.across == 1
        if self.schedule.tile[1] == part.cols and apart and not part.rest:
            found.update(dict.fromkeys(self._columns(part, tap.col) for tap in part.taps))
        return tuple(found) if 1 < len(found) < 6 else ()

    def _columns(self, part: Part, col: int) -> tuple[int, int]:
        inside = [j for j in range(part.cols) if 0 <= j * self.problem.step_in[1] + col < self.problem.source[1]]
        return (inside[0], inside[-1] + 1) if inside else (0, part.cols)

    def _kind(self, part: Part, col: int, kinds: Kinds) -> int:
        return kinds.index(self._columns(part, col)) if kinds else 0

    def _inside(self, number: int, part: Part, runs: list[tuple[int, int, int]], rows: list[int]) -> str:
        """A table with, for each row of places, (bytes of the runs' table before its first run inside the image, runs
        inside, steps before them); "" if all are inside for all rows."""
        words = []
        for i in range(part.rows):
            inside = [
                n for n, row in enumerate(rows) if 0 <= i * self.problem.step_in[0] + row < self.problem.source[0]
            ]
            first = inside[0] if inside else 0
            words += [RUN * first, len(inside), sum(n for _, n, _ in runs[:first])]
        every = all(n == len(runs) for n in words[1::3])
        return "" if every or not self.schedule.copy else self.module.table(f"inside_{number}", words)

    def _task(self, f: Function, tables: list[_Runs]) -> None:
        p, s = self.problem, self.schedule
        buffers, task, scratch = f.args
        block, rest = task % self.blocks, task // self.blocks
        image, rest = rest % p.n, rest // p.n
        panel0, group = (rest % self.panel_blocks) * s.panels, rest // self.panel_blocks
        source = f.load(buffers, "ptr", 8 * self.buffers.source)
        first = block * s.rows
        plane = p.source[0] * p.source[1] if self.planar else 1
        base = f.offset(source, image * (p.source[0] * p.source[1] * p.source[2] * WIDTH[self.dtype]))
        base = f.offset(base, group * (p.inner * plane * WIDTH[self.dtype]))
        if s.copy:
            self.copy.write(f, base, scratch, first * p.step_in[0] + self.top, f.i64(self.in_rows))
            base = f.offset(scratch, -(first * (p.step_in[0] * self.row)))
        panels = f.load(buffers, "ptr", 8 * self.buffers.workspace)
        room = s.tile[0] * s.tile[1] * s.vectors * self.arith.bytes
        sums = f.alloca("i8", room) if self.tail and not self.at_once else None
        out = None if self.tail else f.load(buffers, "ptr", 8 * self.buffers.target)
        stop = f.min_int(panel0 + s.panels, self._panel_count)
        skips = any(t.inside or t.kinds for t in tables)
        odd = self._odd(f, panels, group, panel0, stop) if skips else None
        waiting = None
        if self.moments is not None:
            waiting = Waiting(f, p.step_out[1])
            self.moments.begin(f, scratch)
        for number, (part, start) in enumerate(zip(p.parts, self.panels.starts(), strict=False)):
            at = f.offset(panels, start)
            place = _Place(self, f, number, tables[number], base, at, image, group, out, sums, odd, waiting)
            last = f.min_int(first + s.rows, part.rows)
            if s.panels_inside:
                every = f.min_int(stop * s.vectors, self.panels.columns) - panel0 * s.vectors
                ready = partial(place.written, panel=panel0, vectors=every)
                for i, j, tile in self._tiles(f, part, first, last, ready):
                    for panel, vectors in self.panels.each(f, panel0, stop):
                        place.compute(i, j, tile, panel, vectors)
            else:
                for panel, vectors in self.panels.each(f, panel0, stop):
                    ready = partial(place.written, panel=panel, vectors=vectors)
                    for i, j, tile in self._tiles(f, part, first, last, ready):
                        place.compute(i, j, tile, panel, vectors)
        if self.moments is not None and waiting is not None:
            waiting.flush()
            ends = panel0 * s.vectors, f.min_int(stop * s.vectors, self.panels.columns)
            self.moments.end(f, scratch, task % (p.n * self.blocks), *ends)

    def _odd(self, f: Function, panels: Value, group: Value, first: Value, stop: Value) -> Value:
        """Whether a weight of the task is infinite or no number: then products with zeros beyond the border count."""
        flags = f.offset(panels, self.panels.starts()[-1], group * (self.panels.columns * 8))
        found, vectors = f.variable("i64", 0), self.schedule.vectors
        with f.loop(first * vectors, f.min_int(stop * vectors, self.panels.columns)) as column:
            found.set(found.get() | f.load(flags, "i64", column * 8))
        return f.compare("ne", found.get(), 0)

    def _tiles(
        self, f: Function, part: Part, first: Value, last: Value, ready: Callable[[Value, int, int], None]
    ) -> Iterator[tuple[Value, Value, tuple[int, int]]]:
        """Loops over the tiles of rows first..last of a part: whole ones, those at the right, those at the bottom.
        ready(row, number of rows, columns): called when rows are complete."""
        high, wide = self.schedule.tile
        edge = part.cols % wide
        if part.rest:
            with f.when(f.compare("eq", last, part.rows)):
                yield f.i64(part.rows - 1), f.i64(0), (1, part.rest)
                ready(f.i64(part.rows - 1), 1, part.rest)
            last = f.min_int(last, part.rows - 1)
        with self._rows(f, first, last, high) as (row, done):
            yield from self._across(f, row, high, part.cols, wide, edge)
            ready(row, high, part.cols)
        if high > 1:
            with f.loop(done.get(), last) as row:
                yield from self._across(f, row, 1, part.cols, wide, edge)
                ready(row, 1, part.cols)

    @contextmanager
    def _rows(self, f: Function, first: Value, last: Value, high: int) -> Iterator[tuple[Value, Variable]]:
        done = f.variable("i64", first)
        with f.loop(first, last - (high - 1), high) as row:
            yield row, done
            done.set(row + high)

    def _across(
        self, f: Function, row: Value, high: int, cols: int, wide: int, edge: int
    ) -> Iterator[tuple[Value, Value, tuple[int, int]]]:
        if cols >= wide:
            with f.loop(0, cols - edge, wide) as col:
                yield row, col, (high, wide)
        if edge:
            yield row, f.i64(cols - edge), (high, edge)


@dataclass(frozen=True)
class _Runs:
    """Taps of a part: table of (offset, steps, kind), the same for all columns, their length, how many steps may be
    unrolled, the kinds; see Direct._inside."""

    table: str
    full: str
    count: int
    unroll: int
    kinds: Kinds
    inside: str


@dataclass
class _Place:
    """What the tiles of one part in one task share."""

    kernel: Direct
    f: Function
    number: int
    runs: _Runs
    base: Value
    panels: Value
    image: Value
    group: Value
    out: Value | None
    sums: Value | None
    odd: Value | None
    waiting: Waiting | None

    def compute(self, row: Value, col: Value, tile: tuple[int, int], panel: Value, vectors: int) -> None:
        """One tile by one panel."""
        k, f, p = self.kernel, self.f, self.kernel.problem
        source = f.offset(self.base, row * (p.step_in[0] * k.row), col * (p.step_in[1] * k.place))
        size = k.panels.tap_bytes(self.number)
        column = self.group * k.panels.columns + panel * k.schedule.vectors
        first = panel * (k.schedule.vectors * k.arith.lanes)
        last = vectors == (k.panels.last or k.schedule.vectors) and p.outer % k.arith.lanes != 0
        mask = f.mask(p.outer - first - (vectors - 1) * k.arith.lanes, k.arith.lanes) if last else None
        out: list[Value] = [self.sums] if self.sums else [self._target(row, col, first)] if self.out else []
        if k.at_once:
            down_right = self._coordinates(row, col)
            out = [f.args[0], self.image, *down_right, self.group * p.outer + first]
        weights = f.offset(self.panels, column * size)
        runs, kinds = self.runs, self.runs.kinds if tile[1] == p.parts[self.number].cols else ()
        table, count = f.symbol(runs.table if kinds else runs.full), f.i64(runs.count)
        if self.odd is not None and kinds:
            table = f.select(self.odd, f.symbol(runs.full), table)
        if self.odd is not None and runs.inside and tile[0] == 1:
            bounds = f.offset(f.symbol(runs.inside), row * 24)
            before, inside, steps = (f.select(self.odd, 0, f.load(bounds, "i64", 8 * i)) for i in range(3))
            table, count = f.offset(table, before), f.select(self.odd, count, inside)
            weights = f.offset(weights, steps * (vectors * k.arith.bytes))
        if k.asks:
            self._ask(row, col, tile, first, vectors)
        if k.fetches:
            later = k.schedule.panels if k.schedule.panels_inside else 1
            out.append(f.offset(weights, (later * k.schedule.vectors + row % k.schedule.vectors) * size))
        args = [source, weights, table, count, *out]
        k.micro.call(f, tile, vectors, runs.unroll, args, mask if self.sums is None else None, kinds)
        if self.sums is not None:
            self._finish(row, col, tile, first, vectors)

    def written(self, row: Value, high: int, cols: int, panel: Value, vectors: Value | int) -> None:
        """Whole rows of some panels are there."""
        f, k, p = self.f, self.kernel, self.kernel.problem
        if self.waiting is None:
            return
        first = panel * (k.schedule.vectors * k.arith.lanes)
        channels = first, p.outer - first, f.i64(vectors)
        if p.step_out == (1, 1):
            place = (self.image * p.target[0] + row) * p.target[1]
            self.waiting.add(place, f.i64(high * cols), *channels)
            return
        with f.loop(0, high) as i:
            down, right = self._coordinates(row + i, f.i64(0))
            self.waiting.add((self.image * p.target[0] + down) * p.target[1] + right, f.i64(cols), *channels)

    def _coordinates(self, row: Value, col: Value) -> tuple[Value, Value]:
        """Row and column of the destination for a place of the part's grid."""
        p = self.kernel.problem
        part = p.parts[self.number]
        return row * p.step_out[0] + part.out0[0], col * p.step_out[1] + part.out0[1]

    def _target(self, row: Value, col: Value, first: Value) -> Value:
        p, f = self.kernel.problem, self.f
        down, right = self._coordinates(row, col)
        place = ((self.image * p.target[0] + down) * p.target[1] + right) * p.target[2] + self.group * p.outer + first
        return f.offset(self.out, place * WIDTH[self.kernel.out])  # type: ignore[arg-type]

    def _ask(self, row: Value, col: Value, tile: tuple[int, int], first: Value, vectors: int) -> None:
        f, down_right = self.f, self._coordinates(row, col)
        channel = self.group * self.kernel.problem.outer + first
        args = [self.image, *down_right, channel, *[f.i64(n) for n in (*tile, vectors)]]
        f.call("@ask", "void", f.args[0], *args)

    def _finish(self, row: Value, col: Value, tile: tuple[int, int], first: Value, vectors: int) -> None:
        f, p = self.f, self.kernel.problem
        down, right = self._coordinates(row, col)
        assert self.sums is not None
        channel, limit = self.group * p.outer + first, p.outer - first
        args = [self.image, down, right, channel, limit, *[f.i64(n) for n in (*tile, vectors)]]
        f.call("@finish", "void", f.args[0], self.sums, *args)
