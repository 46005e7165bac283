"""Weight gradients of 3x3 convolutions by the transforms of Winograd's F(2x2, 3x3) or F(4x4, 3x3), in float32.

The gradient is G' (sum over tiles of (A y A') * (B' x B)) G, y being a tile's places of the gradient of the outputs and
x the places that they read (see conv_winograd). A task has some tiles and a block of the outputs by the channels: it
transforms what belongs to a unit of tiles into scratch, then adds [outputs x channels] of each position to its sums.
Where tasks share a block, their sums are added by a last phase, always in the same order, and transformed back there;
else the task does that. If some of what a block is made of is not finite, or so large that sums might overflow, it is
computed tap by tap instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from treadle.kernels.launch import Phase
from treadle.kernels.llvm import Function, Module, Value
from treadle.kernels.target import Target
from treadle.kernels.templates.conv_direct import SCRATCH
from treadle.kernels.templates.conv_finish import Tail
from treadle.kernels.templates.conv_micro import WIDTH, arith
from treadle.kernels.templates.conv_shape import Spec, forward, weight_gradient_taps
from treadle.kernels.templates.conv_weight import by_channel
from treadle.kernels.templates.conv_winograd import pays, takes
from treadle.kernels.templates.conv_winograd_tiles import F2, F4, Form, Tiles, apart, both_ways, pitch, turn, zeros

TAPS = 9
_SPLITS = sorted([1, *[n << i for i in range(10) for n in (2, 3)]])


@dataclass(frozen=True)
class WinogradWeightSchedule:
    """outputs x vectors: the tile of sums in registers. tiles: of a unit; splits: tasks that share the tiles; blocks,
    parts: tasks that share the outputs and the channels."""

    form: Form
    outputs: int
    vectors: int
    tiles: int
    splits: int
    blocks: int
    parts: int

    def __str__(self) -> str:
        tile = f"{self.outputs}x{self.vectors} tiles {self.tiles}"
        return f"winograd {self.form.size} {tile} splits {self.splits} blocks {self.blocks}x{self.parts}"


def winograd_weight_schedules(
    spec: Spec, target: Target, dtype: str, exact: bool = False
) -> tuple[list[WinogradWeightSchedule], list[WinogradWeightSchedule]]:
    """Schedules to be tried before those of conv_weight, and after them. exact: by F(2x2, 3x3) alone; the error of the
    other, of numbers of 16 bits, is far below what rounding the results costs."""
    p = forward(spec)
    if not takes(p):
        return [], []
    registers, how = target.registers, arith(target, "f32")
    sizes = ((9, 3), (14, 2)) if registers == 32 else ((6, 2), (4, 3)) if how.fused else ((6, 2),)
    made = [_schedule(spec, target, form, *size) for form in ((F2,) if exact else (F2, F4)) for size in sizes]
    found = list(dict.fromkeys([s for s in made if s is not None]))
    found.sort(key=lambda s: _cost(spec, target, s))
    if exact or not found:
        return (found, []) if pays(p, how.lanes) else ([], found)
    first = 0.9 * _cost(spec, target, found[0]) < _plain(spec, target, dtype)
    first = first and spec.channels >= how.lanes and not (dtype == "bf16" and target.has("amx"))
    return (found[:2], []) if first else ([], found[:2])


def _plain(spec: Spec, target: Target, dtype: str) -> float:
    """Cycles of conv_weight, about."""
    how = arith(target, dtype)
    places, sums = spec.n * spec.out[0] * -(-spec.out[1] // how.depth), spec.outputs * -(-spec.channels // how.lanes)
    return TAPS * (1.03 * places + 8) * sums + 40 * how.depth * places


def _schedule(spec: Spec, target: Target, form: Form, outputs: int, vectors: int) -> WinogradWeightSchedule | None:
    how, registers, k = arith(target, "f32"), target.registers, spec.outputs
    columns = -(-spec.channels // how.lanes)
    total = spec.n * -(-spec.out[0] // form.size) * -(-spec.out[1] // form.size)
    if vectors > columns:
        vectors, outputs = columns, min((registers - columns - 1) // columns, 16)
    # Few outputs unused in the last tile, but no small tiles either: each loads the channels again.
    outputs = min(range(-(-outputs // 2), outputs + 1), key=lambda r: -(-k // r) * r * (1 + 1 / r))
    across, panels = -(-k // outputs), -(-columns // vectors)
    found = []
    for blocks in _shares(across):
        for parts in _shares(panels):
            for splits in [n for n in _SPLITS if n <= min(total, 4 * max(target.cores, 2))]:
                s = WinogradWeightSchedule(form, outputs, vectors, 1, splits, blocks, parts)
                found.append(replace(s, tiles=_unit(spec, target, s)))
    found.sort(key=lambda s: _cost(spec, target, s))
    fits = (s for s in found if WinogradWeight(spec, s, target, "f32", (0, 1, 2), None).scratch() <= SCRATCH)
    return next(fits, None)


def _shares(count: int) -> list[int]:
    """Numbers of blocks into which so many things can be divided, of each size once."""
    return sorted({-(-count // size) for size in range(1, count + 1)})


def _block(spec: Spec, target: Target, s: WinogradWeightSchedule) -> tuple[int, int]:
    """Outputs and vectors of channels of a block."""
    columns = -(-spec.channels // target.lanes(32))
    across, panels = -(-spec.outputs // s.outputs), -(-columns // s.vectors)
    return -(-across // s.blocks) * s.outputs, -(-panels // s.parts) * s.vectors


def _unit(spec: Spec, target: Target, s: WinogradWeightSchedule) -> int:
    """Tiles that are transformed at once: what the second cache holds beside a block's sums."""
    (k, wide), how, form = _block(spec, target, s), arith(target, "f32"), s.form
    line = form.positions * (pitch(wide * how.lanes, how) + pitch(k, how))
    room = max(target.l2 * 9 // 10 - form.positions * k * wide * how.bytes, target.l2 // 3)
    total = spec.n * -(-spec.out[0] // form.size) * -(-spec.out[1] // form.size)
    share = -(-total // s.splits)
    most = max(min(room // line, 128), 24)
    return -(-share // -(-share // most))


def _cost(spec: Spec, target: Target, s: WinogradWeightSchedule) -> float:
    """Cycles, about."""
    (k, wide), form = _block(spec, target, s), s.form
    how, total = arith(target, "f32"), spec.n * -(-spec.out[0] // form.size) * -(-spec.out[1] // form.size)
    columns = -(-spec.channels // how.lanes)
    wide = min(wide, columns)
    share = -(-total // s.splits)
    sums = form.positions * k * wide
    each = form.positions * (16 * wide + 8 * -(-k // how.lanes))  # to transform a tile
    task = share * (1.1 * sums + each) + -(-share // s.tiles) * sums * 2
    task += sums * (6 if s.splits == 1 else 14)
    tasks = s.splits * s.blocks * s.parts
    rounds = -(-tasks // target.cores) * target.cores / tasks
    return task * (tasks * rounds + target.cores / 4)


@dataclass
class WinogradWeight:
    """One kernel. dtype: of x and dy. buffers: numbers of x, dy, workspace; planar: whether x and dy have their
    channels first. tail: None for sizes alone."""

    spec: Spec
    schedule: WinogradWeightSchedule
    target: Target
    dtype: str
    buffers: tuple[int, int, int]
    tail: Tail | None
    planar: tuple[bool, bool] = (False, False)
    module: Module = field(default_factory=Module)

    def __post_init__(self) -> None:
        spec, s = self.spec, self.schedule
        self.arith = how = arith(self.target, "f32")
        self.taps, self.form = weight_gradient_taps(spec), s.form
        size, self.positions = s.form.size, s.form.positions
        grid = -(-spec.out[0] // size), -(-spec.out[1] // size)
        self.total = spec.n * grid[0] * grid[1]
        origin = self.taps[0].row, self.taps[0].col
        self.x = Tiles((*spec.size, spec.channels), grid, origin, size, self.dtype)
        self.dy = Tiles((*spec.out, spec.outputs), grid, (0, 0), size, self.dtype)
        self.columns = -(-spec.channels // how.lanes)
        self.panels, self.full, self.last = -(-self.columns // s.vectors), *divmod(self.columns, s.vectors)
        self.across = -(-spec.outputs // s.outputs)  # tiles of sums
        self.block, self.part = -(-self.across // s.blocks), -(-self.panels // s.parts)
        assert s.blocks in _shares(self.across) and s.parts in _shares(self.panels)  # no task has nothing
        self.high, self.wide = self.block * s.outputs, self.part * s.vectors  # outputs and vectors of a block
        self.line = self.wide * how.bytes  # of sums of one output
        self.x_pitch, self.dy_pitch = pitch(self.wide * how.lanes, how), pitch(self.high, how)
        self.x_position = apart(s.tiles * self.x_pitch, self.positions)
        self.dy_position = apart(s.tiles * self.dy_pitch, self.positions)
        self.position = apart(self.high * self.line, self.positions)
        self.sums = self.positions * self.position  # of a task
        self.tasks = s.splits * s.blocks * s.parts
        self.flags_at = self.tasks * self.sums if s.splits > 1 else 0
        at = (self.flags_at + (8 * self.tasks if s.splits > 1 else 0) + 63) // 64 * 64
        self.turned_at = []  # where the channels-last copies of x and dy are
        for tiles, planar in zip((self.x, self.dy), self.planar, strict=True):
            self.turned_at.append(at)
            at += (WIDTH[self.dtype] * spec.n * math.prod(tiles.size) + 63) // 64 * 64 if planar else 0
        self.workspace = at  # bytes

    @property
    def _own(self) -> int:
        """Bytes of scratch before a task's own sums: of what it transforms."""
        return self.positions * (self.x_position + self.dy_position)

    def scratch(self) -> int:
        """Bytes of scratch that a task needs."""
        sums = self.sums if self.schedule.splits == 1 else 0
        return self._own + sums + 2 * TAPS * (self.line + self.arith.bytes) + 4096

    def build(self) -> list[Phase]:
        """Write the functions; returns the phases."""
        spec, m, s, form = self.spec, self.module, self.schedule, self.form
        zeros(m, max(spec.channels, spec.outputs))
        some = spec.channels if s.parts == 1 else 0
        self.x.write(m, "transform_x", self.arith, form.side, form.forth, (self.x_pitch, self.x_position), some)
        pitches = self.dy_pitch, self.dy_position
        self.dy.write(m, "transform_dy", self.arith, form.size, form.of_outputs, pitches)
        self._made: dict[int, str] = {}
        phases = []
        for i, tiles in enumerate((self.x, self.dy)):
            if self.planar[i]:
                given, start = (self.buffers[i], self.buffers[2]), self.turned_at[i]
                phases.append(turn(m, f"turn_{i}", self.arith, spec.n, tiles.size, *given, start, self.dtype))
        self._plainly()
        self._finish()
        f = Function(m, "accumulate", ["ptr", "i64", "ptr"])
        self._task(f)
        f.give()
        phases.append(Phase("accumulate", self.tasks))
        if s.splits > 1:
            f = Function(m, "total", ["ptr", "i64", "ptr"])
            self._total(f)
            f.give()
            phases.append(Phase("total", spec.outputs * s.parts))
        return phases

    def _source(self, f: Function, which: int) -> Value:
        """x (0) or dy (1) with its channels last."""
        start = f.load(f.args[0], "ptr", 8 * self.buffers[2 if self.planar[which] else which])
        return f.offset(start, self.turned_at[which] if self.planar[which] else 0)

    # --- sums of a task -------------------------------------------------------------------------------------------

    def _task(self, f: Function) -> None:
        s, spec, width, lanes = self.schedule, self.spec, WIDTH[self.dtype], self.arith.lanes
        buffers, task, scratch = f.args
        split, rest = task % s.splits, task // s.splits
        part, block = rest % s.parts, rest // s.parts
        first, last = split * self.total // s.splits, (split + 1) * self.total // s.splits
        output0, channel0 = block * self.high, part * (self.wide * lanes)
        outputs = f.min_int(f.i64(spec.outputs) - output0, self.high)
        channels = f.min_int(f.i64(spec.channels) - channel0, self.wide * lanes)
        x, dy = f.offset(self._source(f, 0), channel0 * width), f.offset(self._source(f, 1), output0 * width)
        other = f.offset(scratch, self.positions * self.x_position)
        workspace = f.load(buffers, "ptr", 8 * self.buffers[2])
        sums = f.offset(scratch, self._own) if s.splits == 1 else f.offset(workspace, task * self.sums)
        found = f.variable("i64", 0)
        with f.loop(first, last, s.tiles) as unit:
            count = f.min_int(last - unit, s.tiles)
            large = f.call("@transform_x", "i64", x, scratch, unit, count, channels)
            found.set(found.get() | large | f.call("@transform_dy", "i64", dy, other, unit, count, outputs))
            fresh = f.compare("eq", unit, first)
            with f.loop(0, self.positions) as position:
                places = scratch, other, sums
                pitches = self.x_position, self.dy_position, self.position
                at = [f.offset(place, position * pitch) for place, pitch in zip(places, pitches, strict=True)]
                self._products(f, at, part, (outputs + (s.outputs - 1)) // s.outputs, count, fresh)
        if s.splits > 1:
            f.store(found.get(), workspace, task * 8 + self.flags_at)
            return
        room = f.offset(scratch, self._own + self.sums)
        with f.loop(0, outputs) as output:
            row = f.offset(sums, output * self.line)
            f.call("@finish", "void", buffers, row, room, output0 + output, part, found.get())

    def _products(self, f: Function, at: list[Value], part: Value, tiles: Value, count: Value, fresh: Value) -> None:
        """One position of a unit."""
        s, (x, dy, sums) = self.schedule, at
        first = part * self.part
        full = f.max_int(f.min_int(f.i64(self.full) - first, self.part), 0)
        every = f.min_int(f.i64(self.panels) - first, self.part)
        for vectors, low, high in ((s.vectors, f.i64(0), full), (self.last, full, every)):
            if not vectors or (vectors == s.vectors and not self.full):
                continue
            with f.loop(low, high) as panel, f.loop(0, tiles) as tile:
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
            ahead = f.offset(out, t * self.line + s.outputs * self.line)
            for v in range(vectors):
                f.prefetch(ahead, v * how.bytes)
            for r, row in enumerate(sums):
                scalar = f.splat(f.load(there, "float", r * 4), how.lanes)
                for total, column in zip(row, columns, strict=True):
                    total.set(how.add(f, total.get(), scalar, column))
        for r, row in enumerate(sums):
            for v, total in enumerate(row):
                f.store(total.get(), out, r * self.line + v * how.bytes)
        f.give()
        return f"@{name}"

    # --- from sums to results -------------------------------------------------------------------------------------

    def _total(self, f: Function) -> None:
        """A task: the channels of a part of one output."""
        s = self.schedule
        buffers, task, scratch = f.args
        part, output = task % s.parts, task // s.parts
        workspace = f.load(buffers, "ptr", 8 * self.buffers[2])
        first = (output // self.high * s.parts + part) * s.splits  # of the tasks that share the block
        found = f.variable("i64", 0)
        with f.loop(0, s.splits) as split:
            found.set(found.get() | f.load(workspace, "i64", (first + split) * 8 + self.flags_at))
        sums = f.offset(workspace, first * self.sums, output % self.high * self.line)
        f.call("@finish", "void", buffers, sums, scratch, output, part, found.get())

    def _finish(self) -> None:
        """void finish(buffers, sums, scratch, output, part, found): an output's channels of a part, from the sums of
        all tasks that share the block."""
        how, s, form = self.arith, self.schedule, self.form
        params = ["ptr", "ptr", "ptr", "i64", "i64", "i64"]
        f = Function(self.module, "finish", params, linkage="internal", attrs="noinline")
        buffers, sums, scratch, output, part, found = f.args
        channel0 = part * (self.wide * how.lanes)
        channels = f.min_int(f.i64(self.spec.channels) - channel0, self.wide * how.lanes)

        def fast() -> None:
            with f.loop(0, channels * 4, how.bytes) as at:
                square = []
                for n in range(self.positions):
                    here = f.offset(sums, at + n * self.position)
                    total = f.variable(how.vector, f.load(here, how.vector))
                    if s.splits > 1:
                        with f.loop(self.sums, s.splits * self.sums, self.sums) as other:
                            total.set(total.get() + f.load(here, how.vector, other))
                    square.append(total.get())
                rows = [square[i : i + form.side] for i in range(0, self.positions, form.side)]
                for n, value in enumerate([v for row in both_ways(rows, form.to_taps) for v in row]):
                    f.store(value, scratch, at + n * self.line)

        def slow() -> None:
            x, dy = self._source(f, 0), self._source(f, 1)
            x, dy = f.offset(x, channel0 * WIDTH[self.dtype]), f.offset(dy, output * WIDTH[self.dtype])
            f.call("@plainly", "void", x, dy, scratch, channels)

        f.either(f.compare("eq", found, 0), fast, slow)
        row = f.offset(scratch, TAPS * (self.line + how.bytes))
        by_channel(f, how, scratch, self.line, TAPS, channels, row)
        assert self.tail is not None
        places, run = self.tail.places(f, buffers), channels * TAPS
        with f.loop(0, run, how.lanes) as at:
            some = f.mask(run - at, how.lanes) if self.spec.channels % how.lanes else None
            where = {"o": output, "r": channel0 * TAPS + at}
            self.tail.vector(f, places, where, f.load(row, how.vector, at * 4), some, how)
        f.give()

    def _plainly(self) -> None:
        """void plainly(x, dy of an output, sums, channels): [tap][channel] of one output, place by place."""
        spec, how = self.spec, self.arith
        f = Function(self.module, "plainly", ["ptr", "ptr", "ptr", "i64"], linkage="internal", attrs="noinline")
        x, dy, sums, channels = f.args
        with f.loop(0, TAPS * self.line, how.bytes) as at:
            f.store(f.constant(0.0, how.vector), sums, at)
        with f.loop(0, spec.n) as image, f.loop(0, spec.out[0]) as row, f.loop(0, spec.out[1]) as col:
            place = ((image * spec.out[0] + row) * spec.out[1] + col) * (spec.outputs * WIDTH[self.dtype])
            scalar = f.splat(self.dy.element(f, f.offset(dy, place), f.i64(0), how), how.lanes)
            places = [self.x.place(f, x, image, row + t.row, col + t.col) for t in self.taps]
            with f.loop(0, channels, how.lanes) as c:
                mask = f.mask(channels - c, how.lanes) if spec.channels % how.lanes else None
                for n, each in enumerate(places):
                    to = f.offset(sums, c * 4 + n * self.line)
                    value = how.load(f, f.offset(each, c * WIDTH[self.dtype]), self.dtype, mask)
                    f.store(how.add(f, f.load(to, how.vector), scalar, value), to)
        f.give()
