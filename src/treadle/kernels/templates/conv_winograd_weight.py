"""Weight gradients of 3x3 convolutions in float32 by the transforms of Winograd's F(2x2, 3x3).

The gradient is G' (sum over tiles of (A y A') * (B' x B)) G, y being a tile's 2x2 places of the gradient of the outputs
and x the 4x4 places that they read (see conv_winograd). A task has some tiles and a block of the outputs: it transforms
what belongs to a unit of tiles into scratch, then adds [outputs x channels] of each position to its own sums in the
workspace. The last phase adds the tasks' sums, always in the same order, and transforms them back; if a task found
numbers that are not finite, or so large that sums might overflow, it computes everything tap by tap instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from treadle.kernels.launch import Phase
from treadle.kernels.llvm import Function, Module, Value
from treadle.kernels.target import Target
from treadle.kernels.templates.conv_direct import SCRATCH
from treadle.kernels.templates.conv_finish import Tail
from treadle.kernels.templates.conv_micro import arith
from treadle.kernels.templates.conv_shape import Spec, forward, weight_gradient_taps
from treadle.kernels.templates.conv_weight import by_channel
from treadle.kernels.templates.conv_winograd import pays, takes
from treadle.kernels.templates.conv_winograd_tiles import (
    POSITIONS,
    Tiles,
    apart,
    both_ways,
    forth,
    of_outputs,
    pitch,
    to_taps,
    turn,
    zeros,
)

TAPS = 9
# Cycles that a vector of channels costs a task: of one tile to be transformed, of one position's sums to be added.
_TRANSFORM, _ADD = 48, 20


@dataclass(frozen=True)
class WinogradWeightSchedule:
    """outputs x vectors: the tile of sums in registers. tiles: of a unit; splits: tasks that share the tiles; blocks:
    tasks that share the outputs."""

    outputs: int
    vectors: int
    tiles: int
    splits: int
    blocks: int

    def __str__(self) -> str:
        return f"winograd {self.outputs}x{self.vectors} tiles {self.tiles} splits {self.splits} blocks {self.blocks}"


def winograd_weight_schedules(
    spec: Spec, target: Target, dtype: str
) -> tuple[list[WinogradWeightSchedule], list[WinogradWeightSchedule]]:
    """Schedules to be tried before those of conv_weight, and after them."""
    p = forward(spec)
    if dtype != "f32" or not takes(p):
        return [], []
    registers, how = target.registers, arith(target, dtype)
    sizes = ((9, 3), (14, 2)) if registers == 32 else ((6, 2), (4, 3)) if how.fused else ((6, 2),)
    made = [_schedule(spec, target, *size) for size in sizes]
    found = list(dict.fromkeys([s for s in made if s is not None]))
    return (found, []) if pays(p, how.lanes) else ([], found)


def _schedule(spec: Spec, target: Target, outputs: int, vectors: int) -> WinogradWeightSchedule | None:
    how, k, registers = arith(target, "f32"), spec.outputs, target.registers
    columns, total = -(-spec.channels // how.lanes), spec.n * -(-spec.out[0] // 2) * -(-spec.out[1] // 2)
    if vectors > columns:
        vectors, outputs = columns, min((registers - columns - 1) // columns, 16)
    # Few outputs unused in the last tile, but no small tiles either: each loads the channels again.
    outputs = min(range(-(-outputs // 2), outputs + 1), key=lambda r: -(-k // r) * r * (1 + 1 / r))
    across, wanted = -(-k // outputs), 4 * max(target.cores, 2)
    choices = [(s, min(-(-wanted // s), across)) for s in range(1, min(total, wanted) + 1)]

    def cost(choice: tuple[int, int]) -> float:
        splits, blocks = choice
        missing = max(wanted / (splits * blocks), 1)
        return missing * columns * (blocks * total * _TRANSFORM + splits * POSITIONS * k * _ADD)

    splits, blocks = min(choices, key=cost)
    blocks = -(-across // -(-across // blocks))
    line = POSITIONS * (pitch(spec.channels, how) + pitch(-(-across // blocks) * outputs, how))
    most = max(min(target.l2 * 2 // 3 // line, 128), 48)
    units = -(-total // (splits * most))
    tiles = -(-total // (splits * units))
    schedule = WinogradWeightSchedule(outputs, vectors, tiles, splits, blocks)
    last = (TAPS * 2 + 1) * (columns + 1) * how.bytes + 4096
    return schedule if max(tiles * line + 2 * POSITIONS * 4352, last) <= SCRATCH else None


@dataclass
class WinogradWeight:
    """One kernel. buffers: numbers of x, dy, workspace; planar: whether x and dy have their channels first."""

    spec: Spec
    schedule: WinogradWeightSchedule
    target: Target
    buffers: tuple[int, int, int]
    tail: Tail
    planar: tuple[bool, bool] = (False, False)
    module: Module = field(default_factory=Module)

    def __post_init__(self) -> None:
        spec, s = self.spec, self.schedule
        self.arith = how = arith(self.target, "f32")
        self.taps = weight_gradient_taps(spec)
        grid = -(-spec.out[0] // 2), -(-spec.out[1] // 2)
        self.total = spec.n * grid[0] * grid[1]
        self.x = Tiles((*spec.size, spec.channels), grid, (self.taps[0].row, self.taps[0].col))
        self.dy = Tiles((*spec.out, spec.outputs), grid, (0, 0))
        self.columns = -(-spec.channels // how.lanes)
        self.full, self.last = divmod(self.columns, s.vectors)
        self.across = -(-spec.outputs // s.outputs)  # tiles of sums
        self.block = -(-self.across // s.blocks)
        self.line = self.columns * how.bytes  # of sums of one output
        self.x_pitch, self.dy_pitch = pitch(spec.channels, how), pitch(self.block * s.outputs, how)
        self.x_position, self.dy_position = apart(s.tiles * self.x_pitch), apart(s.tiles * self.dy_pitch)
        self.position = apart(self.across * s.outputs * self.line)
        self.sums = POSITIONS * self.position  # of a split
        self.flags_at = s.splits * self.sums
        at = (self.flags_at + 8 * s.splits * s.blocks + 63) // 64 * 64
        self.turned_at = []  # where the channels-last copies of x and dy are
        for tiles, planar in zip((self.x, self.dy), self.planar, strict=True):
            self.turned_at.append(at)
            at += (4 * spec.n * math.prod(tiles.size) + 63) // 64 * 64 if planar else 0
        self.workspace = at  # bytes

    def build(self) -> list[Phase]:
        """Write the functions; returns the phases."""
        spec, m, s = self.spec, self.module, self.schedule
        zeros(m, max(spec.channels, spec.outputs))
        self.x.write(m, "transform_x", self.arith, 4, forth, (self.x_pitch, self.x_position), spec.channels)
        self.dy.write(m, "transform_dy", self.arith, 2, of_outputs, (self.dy_pitch, self.dy_position))
        self._made: dict[int, str] = {}
        phases = []
        for i, tiles in enumerate((self.x, self.dy)):
            if self.planar[i]:
                buffers = self.buffers[i], self.buffers[2]
                phases.append(turn(m, f"turn_{i}", self.arith, spec.n, tiles.size, *buffers, self.turned_at[i]))
        f = Function(m, "accumulate", ["ptr", "i64", "ptr"])
        self._task(f)
        f.give()
        self._plainly()
        f = Function(m, "total", ["ptr", "i64", "ptr"])
        self._total(f)
        f.give()
        return [*phases, Phase("accumulate", s.splits * s.blocks), Phase("total", spec.outputs)]

    def _source(self, f: Function, which: int) -> Value:
        """x (0) or dy (1) with its channels last."""
        start = f.load(f.args[0], "ptr", 8 * self.buffers[2 if self.planar[which] else which])
        return f.offset(start, self.turned_at[which] if self.planar[which] else 0)

    # --- sums of a task -------------------------------------------------------------------------------------------

    def _task(self, f: Function) -> None:
        s, spec = self.schedule, self.spec
        buffers, task, scratch = f.args
        split, block = task % s.splits, task // s.splits
        first, last = split * self.total // s.splits, (split + 1) * self.total // s.splits
        tile0 = block * self.block
        output0, tiles = tile0 * s.outputs, f.min_int(f.i64(self.across) - tile0, self.block)
        outputs = f.min_int(f.i64(spec.outputs) - output0, self.block * s.outputs)
        x, workspace = self._source(f, 0), f.load(buffers, "ptr", 8 * self.buffers[2])
        dy = f.offset(self._source(f, 1), output0 * 4)
        sums = f.offset(workspace, split * self.sums, output0 * self.line)
        other = f.offset(scratch, POSITIONS * self.x_position)
        found = f.variable("i64", 0)
        with f.loop(first, last, s.tiles) as unit:
            count = f.min_int(last - unit, s.tiles)
            large = f.call("@transform_x", "i64", x, scratch, unit, count, f.i64(spec.channels))
            found.set(found.get() | large | f.call("@transform_dy", "i64", dy, other, unit, count, outputs))
            fresh = f.compare("eq", unit, first)
            with f.loop(0, POSITIONS) as position:
                places = scratch, other, sums
                pitches = self.x_position, self.dy_position, self.position
                at = [f.offset(place, position * pitch) for place, pitch in zip(places, pitches, strict=True)]
                self._products(f, at, tiles, count, fresh)
        f.store(found.get(), workspace, task * 8 + self.flags_at)

    def _products(self, f: Function, at: list[Value], tiles: Value, count: Value, fresh: Value) -> None:
        """One position of a unit."""
        s, (x, dy, sums) = self.schedule, at
        for vectors, lo, hi in ((s.vectors, 0, self.full), (self.last, self.full, self.full + 1)):
            if not vectors or lo == hi:
                continue
            with f.loop(lo, hi) as panel, f.loop(0, tiles) as tile:
                column = panel * (s.vectors * self.arith.bytes)
                out = f.offset(sums, tile * (s.outputs * self.line), column)
                row = f.offset(dy, tile * (s.outputs * 4))
                f.call(self._micro(vectors), "void", f.offset(x, column), row, out, count, fresh)

    def _micro(self, vectors: int) -> str:
        """void(x, dy, sums, tiles, fresh): outputs by channels, over all tiles of a unit."""
        name, s, how = f"tile_{vectors}", self.schedule, self.arith
        if vectors in self._made:
            return self._made[vectors]
        self._made[vectors] = f"@{name}"
        params = ["ptr", "ptr", "ptr", "i64", "i1"]
        f = Function(self.module, name, params, linkage="internal", attrs="noinline")
        x, dy, out, count, fresh = f.args
        sums = [[f.variable(how.vector, 0.0) for _ in range(vectors)] for _ in range(s.outputs)]
        with f.when(f.compare("eq", fresh, 0)):
            for r, row in enumerate(sums):
                for v, total in enumerate(row):
                    total.set(f.load(out, how.vector, r * self.line + v * how.bytes))
        with f.loop(0, count) as t:
            here, there = f.offset(x, t * self.x_pitch), f.offset(dy, t * self.dy_pitch)
            columns = [f.load(here, how.vector, v * how.bytes) for v in range(vectors)]
            for r, row in enumerate(sums):
                scalar = f.splat(f.load(there, "float", r * 4), how.lanes)
                for total, column in zip(row, columns, strict=True):
                    total.set(how.add(f, total.get(), scalar, column))
        for r, row in enumerate(sums):
            for v, total in enumerate(row):
                f.store(total.get(), out, r * self.line + v * how.bytes)
        f.give()
        return f"@{name}"

    # --- the tasks' sums together ---------------------------------------------------------------------------------

    def _total(self, f: Function) -> None:
        """A task: one output."""
        spec, s, how = self.spec, self.schedule, self.arith
        buffers, output, scratch = f.args
        workspace = f.load(buffers, "ptr", 8 * self.buffers[2])
        found = f.variable("i64", 0)
        with f.loop(0, s.splits * s.blocks) as task:
            found.set(found.get() | f.load(workspace, "i64", task * 8 + self.flags_at))

        def fast() -> None:
            with f.loop(0, self.line, how.bytes) as at:
                totals = [f.variable(how.vector, 0.0) for _ in range(POSITIONS)]
                with f.loop(0, s.splits) as split:
                    start = f.offset(workspace, split * self.sums, output * self.line + at)
                    for n, total in enumerate(totals):
                        total.set(total.get() + f.load(start, how.vector, n * self.position))
                square = [[totals[4 * a + b].get() for b in range(4)] for a in range(4)]
                for n, value in enumerate([v for row in both_ways(square, to_taps) for v in row]):
                    f.store(value, scratch, at + n * self.line)

        def slow() -> None:
            f.call("@plainly", "void", self._source(f, 0), f.offset(self._source(f, 1), output * 4), scratch)

        f.either(f.compare("eq", found.get(), 0), fast, slow)
        row = f.offset(scratch, TAPS * (self.line + how.bytes))
        by_channel(f, how, scratch, self.line, TAPS, spec.channels, row)
        places, run = self.tail.places(f, buffers), spec.channels * TAPS
        with f.loop(0, run, how.lanes) as at:
            some = f.mask(f.i64(run) - at, how.lanes) if run % how.lanes else None
            self.tail.vector(f, places, {"o": output, "r": at}, f.load(row, how.vector, at * 4), some, how)

    def _plainly(self) -> None:
        """void plainly(x, dy of an output, sums): [tap][channel] of one output, place by place."""
        spec, how = self.spec, self.arith
        f = Function(self.module, "plainly", ["ptr"] * 3, linkage="internal", attrs="noinline")
        x, dy, sums = f.args
        with f.loop(0, TAPS * self.line, how.bytes) as at:
            f.store(f.constant(0.0, how.vector), sums, at)
        with f.loop(0, spec.n) as image, f.loop(0, spec.out[0]) as row, f.loop(0, spec.out[1]) as col:
            place = ((image * spec.out[0] + row) * spec.out[1] + col) * (spec.outputs * 4)
            scalar = f.splat(f.load(dy, "float", place), how.lanes)
            places = [self.x.place(f, x, image, row + t.row, col + t.col) for t in self.taps]
            with f.loop(0, self.line, how.bytes) as at:
                mask = f.mask(f.i64(spec.channels) - at // 4, how.lanes) if spec.channels % how.lanes else None
                for n, each in enumerate(places):
                    to = f.offset(sums, at + n * self.line)
                    value = how.load(f, f.offset(each, at), "f32", mask)
                    f.store(how.add(f, f.load(to, how.vector), scalar, value), to)
        f.give()
