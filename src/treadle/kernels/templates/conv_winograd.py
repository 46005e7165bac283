"""Winograd's F(2x2, 3x3), F(4x4, 3x3) and F(5x5, 3x3): convolutions with 3x3 taps side by side, by 16 products where
36 would be made, 36 instead of 144, or 49 instead of 225.

The outputs of a tile are A' (sum over channels of (G w G') * (B' x B)) A, x being the places of the source that it
reads (Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015). All is computed in float32; 16-bit
floats are widened when they are read, and rounded once. Phases: weights are transformed into panels
[position][source channel][channels]; then tasks, each some tiles of all images by some panels: transform the source
into scratch [position][tile][channel], multiply, transform back, finish.
What overflows or is not finite, or might become so, is computed tap by tap, in the order of conv_direct.
F(2x2) uses for each output only what it reads. F(4x4) uses all of the tile: its errors are as large as those of sums of
products (tests/kernels/test_winograd.py), for the largest number of the tile; those of F(5x5) are three times that. So
float32 is computed by F(2x2) unless less is allowed (`td.precision`), then by F(4x4); for 16-bit floats these errors
are far below that of rounding, and F(5x5) is taken where images are cut into fewer tiles by it (14x14).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from treadle.kernels.launch import Phase
from treadle.kernels.llvm import Function, Module, Value
from treadle.kernels.target import Target
from treadle.kernels.templates.conv_direct import SCRATCH
from treadle.kernels.templates.conv_finish import Tail, TileTail
from treadle.kernels.templates.conv_grad_sums import sums as sums_of
from treadle.kernels.templates.conv_micro import RUN, WIDTH, Micro, Pitches, arith
from treadle.kernels.templates.conv_pack import Panels
from treadle.kernels.templates.conv_shape import Problem
from treadle.kernels.templates.conv_sums import Sums
from treadle.kernels.templates.conv_winograd_tiles import (
    F2,
    F4,
    F5,
    Form,
    Large,
    Tiles,
    apart,
    pitch,
    rows_of,
    turn,
    zeros,
)

_CHANNELS = 8  # with fewer, most of the time goes into the transforms
_GAIN = 1.3  # times fewer products than conv_direct makes in float32, from which it is faster
_TILE = 5  # cycles for each position of a vector of channels that is transformed


@dataclass(frozen=True)
class WinogradSchedule:
    """group: tiles whose sums are held in registers, for `vectors` of channels. tiles: of a task, whole groups; panels:
    of a task."""

    group: int
    vectors: int
    tiles: int
    panels: int
    form: Form = F2

    def __str__(self) -> str:
        name = "winograd" if self.form is F2 else f"winograd of {self.form.size}"
        return f"{name} {self.group}x{self.vectors} tiles {self.tiles} panels {self.panels}"


def takes(p: Problem) -> bool:
    """Whether all places have the same 3x3 taps, side by side, one apart, over all channels."""
    if p.groups != 1 or len(p.parts) != 1 or p.step_in != (1, 1) or p.step_out != (1, 1):
        return False
    (top, bottom), (first, end) = p.reach()
    return len(p.parts[0].taps) == p.taps == 9 and bottom - top == end - first == 2


def winograd_schedules(
    p: Problem, target: Target, dtype: str, exact: bool = False
) -> tuple[list[WinogradSchedule], list[WinogradSchedule]]:
    """Schedules to be tried before those of conv_direct, and after them. exact: by F(2x2, 3x3) alone."""
    if not takes(p):
        return [], []
    lanes = arith(target, "f32").lanes
    if exact:
        found = _of_form(p, target, F2)
        return (found, []) if pays(p, lanes) else ([], found)
    direct = math.inf if min(p.inner, p.outer) >= max(lanes, _CHANNELS) else 0.0
    direct = min(direct, _direct_cost(p, target, dtype))
    forms = sorted((F2, F4) if dtype == "f32" else (F2, F4, F5), key=lambda form: cost(p, lanes, form))
    better = [form for form in forms if cost(p, lanes, form) < direct]
    return [s for form in better for s in _of_form(p, target, form)], [] if better else _of_form(p, target, forms[0])


def cost(p: Problem, lanes: int, form: Form) -> float:
    """Cycles of a core that multiplies and adds a vector in each: products, transforms, and the weights' ones."""
    inner, columns, total = -(-p.inner // lanes), -(-p.outer // lanes), tiles_of(p, form)
    products = form.positions * total * p.inner * columns
    tiles = _TILE * max(form.side / 6, 1) * form.positions * total * (inner + columns)
    return 1.05 * products + tiles + _pack_cost(p, columns, form.positions)


def _pack_cost(p: Problem, columns: int, positions: int) -> float:
    return p.inner * columns * (90 + 8 * positions)


def _direct_cost(p: Problem, target: Target, dtype: str) -> float:
    """The same of conv_direct."""
    how = arith(target, dtype)
    steps, columns = -(-p.inner // how.depth), -(-p.outer // how.lanes)
    if dtype == "bf16" and target.has("amx"):
        return 0.0
    return _inside(p) * steps * columns + _pack_cost(p, columns, 9)


def _of_form(p: Problem, target: Target, form: Form) -> list[WinogradSchedule]:
    how, registers = arith(target, "f32"), target.registers
    columns, total = -(-p.outer // how.lanes), tiles_of(p, form)
    found: list[WinogradSchedule] = []
    sizes = ((14, 2), (9, 3)) if registers == 32 else ((6, 2), (4, 3)) if how.fused else ((6, 2),)
    sizes = sizes if form is F2 or columns < 3 else sizes[::-1]
    for places, vectors in sizes:
        vectors = min(vectors, columns)
        places = min((registers - vectors - 1) // vectors if vectors == 1 else places, total)
        made = _schedule(p, target, form, places, vectors, total)
        if made not in found and made is not None:
            found.append(made)
    return found


def tiles_of(p: Problem, form: Form) -> int:
    """Tiles of all images."""
    return p.n * -(-p.target[0] // form.size) * -(-p.target[1] // form.size)


def pays(p: Problem, lanes: int) -> bool:
    """Whether it is expected to be faster than what computes tap by tap."""
    enough = min(p.inner, p.outer) >= max(lanes, _CHANNELS)
    return enough and _inside(p) > _GAIN * F2.positions * tiles_of(p, F2)


def _inside(p: Problem) -> int:
    """The products by the taps that read inside the source, all others being known to be 0."""
    part, count = p.parts[0], p.n
    for axis, places in ((0, part.rows), (1, part.cols)):
        offsets = {(t.row, t.col)[axis] for t in part.taps}
        count *= sum(0 <= i + at < p.source[axis] for i in range(places) for at in offsets)
    return count


def _schedule(
    p: Problem, target: Target, form: Form, places: int, vectors: int, total: int
) -> WinogradSchedule | None:
    lanes, positions = target.lanes(32), form.positions
    panels = -(-p.outer // (lanes * vectors))
    line = positions * 4 * (-(-p.inner // lanes) * lanes + 16 + lanes * vectors)
    wanted = 4 * max(target.cores, 2)
    most = max(min(target.l2 * 2 // 3 // line, total // wanted), min(2 * places, total))
    most -= most % places if most > places else 0
    blocks = -(-total // most)
    tiles = -(-total // blocks)
    groups = -(-tiles // places)
    group = -(-tiles // groups)
    per_task = panels
    while per_task > 1 and blocks * -(-panels // per_task) < wanted:
        per_task = -(-per_task // 2)
    schedule = WinogradSchedule(group, vectors, groups * group, per_task, form)
    columns = -(-p.outer // lanes)
    room = groups * group * line + 2 * positions * 4096 + columns
    room += (9 * p.inner + 1 + 9 * lanes) * lanes * 4 + form.size**2 * groups * group * vectors * lanes * 4
    return schedule if room <= SCRATCH else None


@dataclass
class Winograd:
    """One kernel. source, weights, workspace: numbers of buffers; planar: the source has its channels first; dtype: of
    source and weights."""

    problem: Problem
    schedule: WinogradSchedule
    target: Target
    buffers: tuple[int, int, int]
    tail: Tail
    planar: bool = False
    dtype: str = "f32"
    module: Module = field(default_factory=Module)

    def __post_init__(self) -> None:
        p, s = self.problem, self.schedule
        self.form = form = s.form
        self.arith = how = arith(self.target, "f32")
        self.panels = Panels(p, how, s.vectors, self.dtype)
        (self.top, _), (self.left, _) = p.reach()
        self.high, self.wide = -(-p.target[0] // form.size), -(-p.target[1] // form.size)  # tiles of an image
        self.tiles = Tiles(p.source, (self.high, self.wide), (self.top, self.left), form.size, self.dtype)
        self.total = p.n * self.high * self.wide
        self.blocks = -(-self.total // s.tiles)
        self.count = self.panels.full + bool(self.panels.last)  # of panels
        self.tile = pitch(p.inner, how)
        self.sums = s.vectors * how.bytes
        self.position = apart(s.tiles * self.tile, form.positions)
        self.sum_position = apart(s.tiles * self.sums, form.positions)
        self.strip = form.size * min(self.wide, s.tiles) * self.sums  # bytes of a row of places
        self.sums_at = form.positions * self.position
        self.strip_at = self.sums_at + form.positions * self.sum_position
        self.weights_at = self.strip_at + form.size * self.strip
        self.micro = Micro(self.module, how, Pitches(0, self.tile, 0, self.sums), "f32")
        self.finish = TileTail(self.tail, how, p.step_out, (self.strip, self.sums), p.outer % how.lanes != 0)
        self.flags_at = self.panels.columns * form.positions * (p.inner + 1) * how.bytes
        self.turned_at = (self.flags_at + 8 * self.panels.columns + 63) // 64 * 64

    @property
    def workspace(self) -> int:
        """Bytes."""
        sums = self._sums()
        return self._sums_at if sums is None else sums.at + sums.bytes

    @property
    def _sums_at(self) -> int:
        source = WIDTH[self.dtype] * self.problem.n * math.prod(self.problem.source) if self.planar else 0
        return -(-(self.turned_at + source) // 64) * 64

    def _sums(self) -> Sums | None:
        """The moments that the tail wants."""
        p, wanted = self.problem, self.tail.moments
        if wanted is None:
            return None
        return sums_of(wanted, self.arith, p.target[2], self.blocks, (self.buffers[2], self._sums_at))

    @property
    def tasks(self) -> int:
        """Of the main phase."""
        return self.blocks * -(-self.count // self.schedule.panels)

    def scratch(self) -> int:
        """Bytes that a task needs."""
        return self.weights_at + self.panels.scratch()

    def build(self) -> list[Phase]:
        """Write the functions; returns the phases."""
        p, m = self.problem, self.module
        zeros(m, p.inner)
        self.finish.write(m, "finish")
        collect = Function(m, "collect", ["ptr", "ptr", "i64"], linkage="internal", attrs="noinline")
        self.panels.collect(collect, collect.args[0], collect.args[1], collect.i64(0), collect.args[2])
        collect.give()
        if self.panels.even:
            block = Function(m, "block", ["ptr", "ptr", "i64", "i64"], linkage="internal", attrs="noinline")
            self.panels.block(block, block.args[0], block.args[1], block.i64(0), block.args[2], block.args[3])
            block.give()
        form = self.form
        self.tiles.write(m, "transform", self.arith, form.side, form.forth, (self.tile, self.position), p.inner)
        self._join()
        self._plainly()
        phases = [Phase("pack", self._pack())]
        if self.planar:
            buffers = self.buffers[0], self.buffers[2]
            phases.append(turn(m, "turn", self.arith, p.n, p.source, *buffers, self.turned_at, self.dtype))
        f = Function(m, "convolve", ["ptr", "i64", "ptr"])
        self._task(f)
        f.give()
        phases.append(Phase("convolve", self.tasks))
        sums = self._sums()
        if sums is not None:
            sums.write(m)
            phases.append(sums.phase(m))
        return phases

    @property
    def _streams(self) -> bool:
        """Whether transformed weights are written past the caches: more than they keep."""
        return self.flags_at > self.target.l2

    # --- before the products --------------------------------------------------------------------------------------

    def _grid(self) -> list[list[int]]:
        """Numbers of the taps by row and column of what they read."""
        taps = {(t.row - self.top, t.col - self.left): t.number for t in self.problem.parts[0].taps}
        return [[taps[a, b] for b in range(3)] for a in range(3)]

    def _pack(self) -> int:
        """The weights' phase: each task transforms one vector of channels."""
        p, how, s = self.problem, self.arith, self.schedule
        f = Function(self.module, "pack", ["ptr", "i64", "ptr"])
        buffers, column, scratch = f.args
        given, out = (f.load(buffers, "ptr", 8 * self.buffers[n]) for n in (1, 2))
        panel, within = column // s.vectors, column % s.vectors
        wide = f.select(f.compare("slt", panel, self.panels.full), f.i64(s.vectors), self.panels.last)
        start = f.offset(self._weights(f, out, panel), within * how.bytes)
        large, step = Large(f, how), how.lanes if self.panels.even else p.inner  # channels that are collected at a time
        if not self.panels.even:
            f.call("@collect", "void", given, scratch, column)

        def transform(stream: bool) -> None:
            with f.loop(0, p.inner, step) as first:
                if self.panels.even:
                    f.call("@block", "void", given, scratch, column, first)
                with f.loop(0, step) as c:
                    here = f.offset(scratch, c * how.bytes)
                    taps = [[f.load(here, how.vector, n * step * how.bytes) for n in row] for row in self._grid()]
                    for i, row in enumerate(rows_of(lambda a, b: taps[a][b], 3, self.form.of_taps)):
                        for j, value in enumerate(row):
                            line = (first + c + (i * len(row) + j) * (p.inner + 1)) * wide * how.bytes
                            f.store(value, start, line, stream=stream)
                        large.see(row)

        if self._streams:
            aligned = f.compare("eq", f.emit(f"ptrtoint ptr {out.name} to i64", "i64") & (how.bytes - 1), 0)
            f.either(aligned, partial(transform, True), partial(transform, False))
        else:
            transform(False)
        f.store(large.found(), out, column * 8 + self.flags_at)
        f.give()
        return self.panels.columns

    def _weights(self, f: Function, start: Value, panel: Value) -> Value:
        """Where a panel begins: positions, a line more than there are channels apart."""
        size = self.form.positions * (self.problem.inner + 1) * self.sums
        return f.offset(start, panel * size)

    def _source(self, f: Function) -> Value:
        """The source with its channels last."""
        start = f.load(f.args[0], "ptr", 8 * self.buffers[2 if self.planar else 0])
        return f.offset(start, self.turned_at if self.planar else 0)

    # --- products -------------------------------------------------------------------------------------------------

    def _task(self, f: Function) -> None:
        s, p = self.schedule, self.problem
        buffers, task, scratch = f.args
        block, panel0 = task % self.blocks, task // self.blocks * s.panels
        first = block * s.tiles
        count = f.min_int(f.i64(self.total) - first, s.tiles)
        sums = self._sums()
        if sums is not None:
            sums.begin(f, scratch)
        source = self._source(f)
        weights = f.load(buffers, "ptr", 8 * self.buffers[2])
        odd = f.call("@transform", "i64", source, scratch, first, count, f.i64(p.inner))
        for panel, vectors in self.panels.each(f, panel0, f.min_int(panel0 + s.panels, self.count)):
            channel, found = panel * (s.vectors * self.arith.lanes), f.variable("i64", odd)
            for v in range(vectors):
                found.set(found.get() | f.load(weights, "i64", (panel * s.vectors + v) * 8 + self.flags_at))
            strip = f.offset(scratch, self.strip_at)
            tiles = [strip, first, count, channel, f.i64(vectors)]

            def fast(panel: Value = panel, vectors: int = vectors, tiles: list[Value] = tiles) -> None:
                self._products(f, scratch, self._weights(f, weights, panel), count, vectors)
                f.call("@join", "void", buffers, f.offset(scratch, self.sums_at), *tiles)

            def slow(tiles: list[Value] = tiles) -> None:
                given = f.load(buffers, "ptr", 8 * self.buffers[1])
                f.call("@plainly", "void", buffers, source, given, f.offset(scratch, self.weights_at), *tiles)

            f.either(f.compare("eq", found.get(), 0), fast, slow)
        if sums is not None:
            stop = f.min_int((panel0 + s.panels) * s.vectors, self.panels.columns)
            sums.end(f, scratch, block, panel0 * s.vectors, stop)

    def _products(self, f: Function, scratch: Value, weights: Value, count: Value, vectors: int) -> None:
        """All positions of a task's tiles by one panel."""
        s, p = self.schedule, self.problem
        steps = p.inner
        unroll = next(u for u in ((2, 3, 1) if s.group * vectors > 16 else (4, 3, 2, 1)) if steps % u == 0)
        taps = f.symbol(f"@one_run_{vectors}")
        self.module.table(f"one_run_{vectors}", [0, steps, 0])
        assert RUN == 24
        rest = self.total % s.group

        def group(size: int, position: Value, at: Value) -> None:
            source = f.offset(scratch, position * self.position, at * self.tile)
            panel = f.offset(weights, position * ((steps + 1) * vectors * self.arith.bytes))
            out = f.offset(scratch, self.sums_at, position * self.sum_position, at * self.sums)
            self.micro.call(f, (1, size), vectors, unroll, [source, panel, taps, f.i64(1), out], None)

        with f.loop(0, self.form.positions) as position:
            with f.loop(0, count - (s.group - 1), s.group) as at:
                group(s.group, position, at)
            if rest:
                with f.when(f.compare("ne", count % s.group, 0)):
                    group(rest, position, count - rest)

    # --- after the products ---------------------------------------------------------------------------------------

    @contextmanager
    def _strips(self, f: Function, first: Value, count: Value) -> Iterator[tuple[Value, Value, list[Value]]]:
        """Tiles side by side in an image: the first, the end, and [image, row, column] of the first one's places."""
        stop, size = first + count, self.form.size
        with f.loop(first // self.wide, (stop + (self.wide - 1)) // self.wide) as line:
            low, high = f.max_int(first, line * self.wide), f.min_int(stop, (line + 1) * self.wide)
            yield low, high, [line // self.high, line % self.high * size, (low - line * self.wide) * size]

    def _finish(self, f: Function, strip: Value, at: list[Value], tiles: Value, channel: Value, vectors: Value) -> None:
        p, size = self.problem, self.form.size
        high, wide = f.min_int(f.i64(p.target[0]) - at[1], size), f.min_int(f.i64(p.target[1]) - at[2], tiles * size)
        ends = [*at, channel, f.i64(p.outer) - channel, high, wide, vectors]
        f.call("@finish", "void", f.args[0], strip, *ends)
        if self.tail.moments is not None:
            scratch = f.offset(strip, -self.strip_at)
            with f.loop(0, high) as row:
                place = (at[0] * p.target[0] + at[1] + row) * p.target[1] + at[2]
                f.call("@moments", "void", f.args[0], scratch, place, wide, ends[3], ends[4], vectors)

    def _join(self) -> None:
        """void join(buffers, sums, strip, first tile, tiles, channel, vectors): from sums to outputs."""
        f = Function(self.module, "join", ["ptr", "ptr", "ptr", *["i64"] * 4], linkage="internal", attrs="noinline")
        _, sums, strip, first, count, channel, vectors = f.args
        form, across = self.form, self.form.size * self.sums
        with self._strips(f, first, count) as (low, high, at):
            with f.loop(low, high) as t, f.loop(0, vectors * self.arith.bytes, self.arith.bytes) as v:
                here, to = f.offset(sums, (t - first) * self.sums, v), f.offset(strip, (t - low) * across, v)

                def sum_at(a: int, b: int, here: Value = here) -> Value:
                    return f.load(here, self.arith.vector, (form.side * a + b) * self.sum_position)

                for i, row in enumerate(rows_of(sum_at, form.side, form.back)):
                    for j, value in enumerate(row):
                        f.store(value, to, i * self.strip + j * self.sums)
            self._finish(f, strip, at, high - low, channel, vectors)
        f.give()

    def _plainly(self) -> None:
        """void plainly(buffers, source, weights, scratch, strip, first tile, tiles, channel, vectors): tap by tap."""
        how, p, size = self.arith, self.problem, self.form.size
        params = ["ptr"] * 5 + ["i64"] * 4
        f = Function(self.module, "plainly", params, linkage="internal", attrs="noinline")
        _, source, weights, scratch, strip, first, count, channel, vectors = f.args
        taps = [word for t in p.parts[0].taps for word in (t.row, t.col, t.number * p.inner * how.bytes)]
        table = f.symbol(self.module.table("taps", taps))
        with f.loop(0, vectors) as v:
            f.call("@collect", "void", weights, scratch, channel // how.lanes + v)
            with self._strips(f, first, count) as (low, high, at):
                with f.loop(0, high - low) as t:
                    places = [(i, j) for i in range(size) for j in range(size)]
                    sums = [f.variable(how.vector, 0.0) for _ in places]
                    with f.loop(0, len(taps) * 8, 24) as tap:
                        row, col, number = (f.load(table, "i64", tap + 8 * word) for word in range(3))
                        corner = at[1] + row, at[2] + t * size + col
                        read = [self.tiles.place(f, source, at[0], corner[0] + i, corner[1] + j) for i, j in places]
                        with f.loop(0, p.inner) as c:
                            weight = f.load(f.offset(scratch, number), how.vector, c * how.bytes)
                            for total, place in zip(sums, read, strict=True):
                                one = f.splat(self.tiles.element(f, place, c, how), how.lanes)
                                total.set(how.add(f, total.get(), one, weight))
                    for (i, j), total in zip(places, sums, strict=True):
                        f.store(total.get(), strip, t * (size * self.sums) + (i * self.strip + j * self.sums))
                self._finish(f, strip, at, high - low, channel + v * how.lanes, f.i64(1))
        f.give()
