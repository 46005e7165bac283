"""Winograd's F(2x2, 3x3): float32 convolutions with 3x3 taps side by side, by 16 products where 36 would be made.

Four outputs of a tile (2x2 places) are A' (sum over channels of (G w G') * (B' x B)) A, x being the 4x4 places of the
source that it reads (Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015). Phases: weights are
transformed into panels [position of 16][source channel][channels]; then tasks, each some tiles of all images by some
panels: transform the source into scratch [position][tile][channel], multiply, transform back, finish.
What overflows or is not finite, or might become so, is computed tap by tap, in the order of conv_direct.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from treadle.kernels.launch import Phase
from treadle.kernels.llvm import Function, Module, Value
from treadle.kernels.target import Target
from treadle.kernels.templates.conv_direct import SCRATCH
from treadle.kernels.templates.conv_finish import Tail, TileTail
from treadle.kernels.templates.conv_micro import RUN, Micro, Pitches, arith
from treadle.kernels.templates.conv_pack import Panels
from treadle.kernels.templates.conv_shape import Problem
from treadle.kernels.templates.conv_sums import Sums
from treadle.kernels.templates.conv_winograd_tiles import (
    POSITIONS,
    Large,
    Tiles,
    apart,
    back,
    both_ways,
    forth,
    of_taps,
    pitch,
    turn,
    zeros,
)

_CHANNELS = 8  # with fewer, most of the time goes into the transforms
_GAIN = 1.3  # times fewer products than conv_direct makes, from which it is faster


@dataclass(frozen=True)
class WinogradSchedule:
    """group: tiles whose sums are held in registers, for `vectors` of channels. tiles: of a task, whole groups; panels:
    of a task."""

    group: int
    vectors: int
    tiles: int
    panels: int

    def __str__(self) -> str:
        return f"winograd {self.group}x{self.vectors} tiles {self.tiles} panels {self.panels}"


def takes(p: Problem) -> bool:
    """Whether all places have the same 3x3 taps, side by side, one apart, over all channels."""
    if p.groups != 1 or len(p.parts) != 1 or p.step_in != (1, 1) or p.step_out != (1, 1):
        return False
    (top, bottom), (first, end) = p.reach()
    return len(p.parts[0].taps) == p.taps == 9 and bottom - top == end - first == 2


def winograd_schedules(p: Problem, target: Target, dtype: str) -> tuple[list[WinogradSchedule], list[WinogradSchedule]]:
    """Schedules to be tried before those of conv_direct, and after them."""
    if dtype != "f32" or not takes(p):
        return [], []
    how, registers = arith(target, dtype), target.registers
    columns, total = -(-p.outer // how.lanes), p.n * -(-p.target[0] // 2) * -(-p.target[1] // 2)
    found = []
    for places, vectors in ((14, 2), (9, 3)) if registers == 32 else ((6, 2), (4, 3)) if how.fused else ((6, 2),):
        vectors = min(vectors, columns)
        places = min((registers - vectors - 1) // vectors if vectors == 1 else places, total)
        made = _schedule(p, target, places, vectors, total)
        if made not in found and made is not None:
            found.append(made)
    return (found, []) if pays(p, how.lanes) else ([], found)


def pays(p: Problem, lanes: int) -> bool:
    """Whether it is expected to be faster than what computes tap by tap."""
    total = p.n * -(-p.target[0] // 2) * -(-p.target[1] // 2)
    return min(p.inner, p.outer) >= max(lanes, _CHANNELS) and _inside(p) > _GAIN * POSITIONS * total


def _inside(p: Problem) -> int:
    """The products by the taps that read inside the source, all others being known to be 0."""
    part, count = p.parts[0], p.n
    for axis, places in ((0, part.rows), (1, part.cols)):
        offsets = {(t.row, t.col)[axis] for t in part.taps}
        count *= sum(0 <= i + at < p.source[axis] for i in range(places) for at in offsets)
    return count


def _schedule(p: Problem, target: Target, places: int, vectors: int, total: int) -> WinogradSchedule | None:
    lanes = target.lanes(32)
    panels = -(-p.outer // (lanes * vectors))
    line = POSITIONS * 4 * (-(-p.inner // lanes) * lanes + 16 + lanes * vectors)
    wanted = 4 * max(target.cores, 2)
    most = max(min(target.l2 * 2 // 3 // line, total // wanted), min(2 * places, total))
    blocks = -(-total // most)
    tiles = -(-total // blocks)
    groups = -(-tiles // places)
    group = -(-tiles // groups)
    per_task = panels
    while per_task > 1 and blocks * -(-panels // per_task) < wanted:
        per_task = -(-per_task // 2)
    schedule = WinogradSchedule(group, vectors, groups * group, per_task)
    columns = -(-p.outer // lanes)
    room = POSITIONS * groups * group * (line // POSITIONS) + 2 * POSITIONS * 4096 + columns
    room += (9 * p.inner + 1 + 9 * lanes) * lanes * 4 + 4 * groups * group * vectors * lanes * 4
    return schedule if room <= SCRATCH else None


@dataclass
class Winograd:
    """One kernel. source, weights, workspace: numbers of buffers; planar: the source has its channels first."""

    problem: Problem
    schedule: WinogradSchedule
    target: Target
    buffers: tuple[int, int, int]
    tail: Tail
    planar: bool = False
    module: Module = field(default_factory=Module)

    def __post_init__(self) -> None:
        p, s = self.problem, self.schedule
        self.arith = how = arith(self.target, "f32")
        self.panels = Panels(p, how, s.vectors, "f32")
        (self.top, _), (self.left, _) = p.reach()
        self.high, self.wide = -(-p.target[0] // 2), -(-p.target[1] // 2)  # tiles of an image
        self.tiles = Tiles(p.source, (self.high, self.wide), (self.top, self.left))
        self.total = p.n * self.high * self.wide
        self.blocks = -(-self.total // s.tiles)
        self.count = self.panels.full + bool(self.panels.last)  # of panels
        self.tile = pitch(p.inner, how)
        self.sums = s.vectors * how.bytes
        self.position, self.sum_position = apart(s.tiles * self.tile), apart(s.tiles * self.sums)
        self.strip = 2 * min(self.wide, s.tiles) * self.sums  # bytes of a row of places
        self.sums_at = POSITIONS * self.position
        self.strip_at = self.sums_at + POSITIONS * self.sum_position
        self.weights_at = self.strip_at + 2 * self.strip
        self.micro = Micro(self.module, how, Pitches(0, self.tile, 0, self.sums), "f32")
        self.finish = TileTail(self.tail, how, p.step_out, (self.strip, self.sums), p.outer % how.lanes != 0)
        self.flags_at = self.panels.columns * POSITIONS * (p.inner + 1) * how.bytes
        self.turned_at = (self.flags_at + 8 * self.panels.columns + 63) // 64 * 64

    @property
    def workspace(self) -> int:
        """Bytes."""
        sums = self._sums()
        return self._sums_at if sums is None else sums.at + sums.bytes

    @property
    def _sums_at(self) -> int:
        source = 4 * self.problem.n * math.prod(self.problem.source) if self.planar else 0
        return -(-(self.turned_at + source) // 64) * 64

    def _sums(self) -> Sums | None:
        """The moments that the tail wants."""
        p, wanted = self.problem, self.tail.moments
        if wanted is None:
            return None
        return Sums(wanted, self.arith, p.target[2], self.blocks, self.buffers[2], self._sums_at)

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
        self.tiles.write(m, "transform", self.arith, 4, forth, (self.tile, self.position), p.inner)
        self._join()
        self._plainly()
        phases = [Phase("pack", self._pack())]
        if self.planar:
            buffers = self.buffers[0], self.buffers[2]
            phases.append(turn(m, "turn", self.arith, p.n, p.source, *buffers, self.turned_at))
        f = Function(m, "convolve", ["ptr", "i64", "ptr"])
        self._task(f)
        f.give()
        phases.append(Phase("convolve", self.tasks))
        sums = self._sums()
        if sums is not None:
            sums.write(m)
            phases.append(sums.phase(m))
        return phases

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
        out = f.load(buffers, "ptr", 8 * self.buffers[2])
        f.call("@collect", "void", f.load(buffers, "ptr", 8 * self.buffers[1]), scratch, column)
        panel, within = column // s.vectors, column % s.vectors
        wide = f.select(f.compare("slt", panel, self.panels.full), f.i64(s.vectors), self.panels.last)
        start = f.offset(self._weights(f, out, panel), within * how.bytes)
        large = Large(f, how)
        with f.loop(0, p.inner) as c:
            here = f.offset(scratch, c * how.bytes)
            taps = [[f.load(here, how.vector, n * p.inner * how.bytes) for n in row] for row in self._grid()]
            values = [v for row in both_ways(taps, of_taps) for v in row]
            for n, value in enumerate(values):
                f.store(value, start, (c + n * (p.inner + 1)) * wide * how.bytes)
            large.see(values)
        f.store(large.found(), out, column * 8 + self.flags_at)
        f.give()
        return self.panels.columns

    def _weights(self, f: Function, start: Value, panel: Value) -> Value:
        """Where a panel begins: positions, a line more than there are channels apart."""
        size = POSITIONS * (self.problem.inner + 1) * self.sums
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

        with f.loop(0, POSITIONS) as position:
            with f.loop(0, count - (s.group - 1), s.group) as at:
                group(s.group, position, at)
            if rest:
                with f.when(f.compare("ne", count % s.group, 0)):
                    group(rest, position, count - rest)

    # --- after the products ---------------------------------------------------------------------------------------

    @contextmanager
    def _strips(self, f: Function, first: Value, count: Value) -> Iterator[tuple[Value, Value, list[Value]]]:
        """Tiles side by side in an image: the first, the end, and [image, row, column] of the first one's places."""
        stop = first + count
        with f.loop(first // self.wide, (stop + (self.wide - 1)) // self.wide) as line:
            low, high = f.max_int(first, line * self.wide), f.min_int(stop, (line + 1) * self.wide)
            yield low, high, [line // self.high, line % self.high * 2, (low - line * self.wide) * 2]

    def _finish(self, f: Function, strip: Value, at: list[Value], tiles: Value, channel: Value, vectors: Value) -> None:
        p = self.problem
        high, wide = f.min_int(f.i64(p.target[0]) - at[1], 2), f.min_int(f.i64(p.target[1]) - at[2], tiles * 2)
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
        with self._strips(f, first, count) as (low, high, at):
            with f.loop(low, high) as t, f.loop(0, vectors * self.arith.bytes, self.arith.bytes) as v:
                here, to = f.offset(sums, (t - first) * self.sums, v), f.offset(strip, (t - low) * (2 * self.sums), v)
                found = [
                    [f.load(here, self.arith.vector, (4 * a + b) * self.sum_position) for b in range(4)]
                    for a in range(4)
                ]
                for i, row in enumerate(both_ways(found, back)):
                    for j, value in enumerate(row):
                        f.store(value, to, i * self.strip + j * self.sums)
            self._finish(f, strip, at, high - low, channel, vectors)
        f.give()

    def _plainly(self) -> None:
        """void plainly(buffers, source, weights, scratch, strip, first tile, tiles, channel, vectors): tap by tap."""
        how, p = self.arith, self.problem
        params = ["ptr"] * 5 + ["i64"] * 4
        f = Function(self.module, "plainly", params, linkage="internal", attrs="noinline")
        _, source, weights, scratch, strip, first, count, channel, vectors = f.args
        taps = [word for t in p.parts[0].taps for word in (t.row, t.col, t.number * p.inner * how.bytes)]
        table = f.symbol(self.module.table("taps", taps))
        with f.loop(0, vectors) as v:
            f.call("@collect", "void", weights, scratch, channel // how.lanes + v)
            with self._strips(f, first, count) as (low, high, at):
                with f.loop(0, high - low) as t:
                    places = [(i, j) for i in range(2) for j in range(2)]
                    sums = [f.variable(how.vector, 0.0) for _ in places]
                    with f.loop(0, len(taps) * 8, 24) as tap:
                        row, col, number = (f.load(table, "i64", tap + 8 * word) for word in range(3))
                        corner = at[1] + row, at[2] + t * 2 + col
                        read = [self.tiles.place(f, source, at[0], corner[0] + i, corner[1] + j) for i, j in places]
                        with f.loop(0, p.inner) as c:
                            weight = f.load(f.offset(scratch, number), how.vector, c * how.bytes)
                            for total, place in zip(sums, read, strict=True):
                                one = f.splat(f.load(place, "float", c * 4), how.lanes)
                                total.set(how.add(f, total.get(), one, weight))
                    for (i, j), total in zip(places, sums, strict=True):
                        f.store(total.get(), strip, t * (2 * self.sums) + (i * self.strip + j * self.sums))
                self._finish(f, strip, at, high - low, channel + v * how.lanes, f.i64(1))
        f.give()
