"""Weight gradients of convolutions as products of blocks of places, counted through all rows and images.

A task has some tiles of outputs, some panels of channels of all taps, and some blocks of places. Of each block it packs
dy into [tile][step][output] and what each tap reads of x into [tap][panel][step][channel] (bfloat16: two places in a
step, whether they lie in one row or not), then adds [outputs x channels] of every tap to its sums. Where a task has all
places it writes what it has summed; else a last phase adds the tasks' sums, always in the same order. Places beyond the
border, and those after the last one, are zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from treadle.kernels.launch import Phase
from treadle.kernels.llvm import Function, Module, Value, vector
from treadle.kernels.target import Target
from treadle.kernels.templates.conv_direct import SCRATCH
from treadle.kernels.templates.conv_finish import Places, Tail
from treadle.kernels.templates.conv_micro import WIDTH, arith
from treadle.kernels.templates.conv_shape import Spec, weight_gradient_taps
from treadle.kernels.templates.conv_weight import by_channel

STEPS = 208  # of a block: what the first cache holds of a panel beside a tile of dy
PIECES = 4  # of a tile's steps, before each of which some of the next block is asked for
_TASKS = 4  # wanted for each core
_MOST_TAPS = 9
_SHORT = 10  # rows of so few places are too short for conv_weight


@dataclass(frozen=True)
class BlockSchedule:
    """outputs x vectors: the tile in registers. steps: of a block of places; splits: tasks that share the blocks of
    places; blocks, parts: tasks that share the outputs and the channels."""

    outputs: int
    vectors: int
    steps: int
    splits: int
    blocks: int
    parts: int

    def __str__(self) -> str:
        shares = f"splits {self.splits} blocks {self.blocks}x{self.parts}"
        return f"blocks of places {self.outputs}x{self.vectors} steps {self.steps} {shares}"


def block_schedules(spec: Spec, target: Target, dtype: str) -> list[BlockSchedule]:
    """The schedule of a weight gradient that is taken, of images with their channels last; [] of others."""
    how, taps = arith(target, dtype), spec.kernel[0] * spec.kernel[1]
    if spec.groups > 1 or spec.channels < how.lanes or taps > _MOST_TAPS:
        return []
    if how.depth == 2 and target.has("amx"):  # whose tiles are many times as fast
        return []
    high, vectors = (14, 2) if target.registers == 32 else (6, 2)
    outputs = min(range(high * 5 // 7, high + 1), key=lambda r: (-(-spec.outputs // r) * (r + 0.25), -r))
    outputs, vectors = min(outputs, spec.outputs), min(vectors, -(-spec.channels // how.lanes))
    total = -(-spec.n * spec.out[0] * spec.out[1] // how.depth)
    steps = -(-total // -(-total // STEPS))
    units = -(-total // steps)
    tiles, panels = -(-spec.outputs // outputs), -(-spec.channels // (how.lanes * vectors))
    made = [
        Blocks(spec, BlockSchedule(outputs, vectors, steps, splits, blocks, parts), target, dtype, (0, 1, 2))
        for splits in sorted({min(1 << i, units) for i in range(8)})
        for blocks in _shares(tiles)
        for parts in _shares(panels)
        if splits * blocks * parts <= 16 * _TASKS * target.cores
    ]
    fits = [m for m in made if m.scratch() <= SCRATCH]
    return [min(fits, key=Blocks.cost).schedule] if fits else []


def pays(spec: Spec, target: Target, dtype: str) -> bool:
    """Whether such a schedule is better than those of conv_weight and conv_weight_product."""
    how, size = arith(target, dtype), WIDTH[dtype]
    strided, short = spec.stride != (1, 1), spec.out[1] < _SHORT
    if spec.kernel != (1, 1) or strided:
        return short or (how.depth == 2 and (strided or spec.out[1] % 2 == 1))
    # Of a product those that are no longer in the caches: here they are asked for in time.
    places = spec.n * (spec.size[0] * spec.size[1] * spec.channels + spec.out[0] * spec.out[1] * spec.outputs)
    full = -(-spec.channels // how.lanes) * how.lanes <= 1.25 * spec.channels
    return how.depth == 2 and places * size > 4 * target.l2 and full


def _shares(count: int) -> list[int]:
    """Numbers of parts in which so many things can be divided, of each size once."""
    return sorted({-(-count // size) for size in range(1, count + 1)})


@dataclass
class Blocks:
    """One kernel. buffers: numbers of x, dy and workspace; `tail` writes, along the kernel's elements."""

    spec: Spec
    schedule: BlockSchedule
    target: Target
    dtype: str
    buffers: tuple[int, int, int]
    tail: Tail | None = None
    module: Module = field(default_factory=Module)

    def __post_init__(self) -> None:
        spec, s = self.spec, self.schedule
        self.arith = how = arith(self.target, self.dtype)
        self.taps = weight_gradient_taps(spec)
        self.flat = spec.kernel == (1, 1) and spec.stride == (1, 1) and spec.size == spec.out
        self.flat = self.flat and not any(map(any, spec.padding))
        self.places = spec.n * spec.out[0] * spec.out[1]
        self.total = -(-self.places // how.depth)  # steps
        self.units = -(-self.total // s.steps)
        self.columns = -(-spec.channels // how.lanes)
        self.full, self.last = divmod(self.columns, s.vectors)
        self.panels, self.tiles = -(-self.columns // s.vectors), -(-spec.outputs // s.outputs)
        self.task_tiles, self.task_panels = -(-self.tiles // s.blocks), -(-self.panels // s.parts)
        self.panel = s.steps * s.vectors * how.bytes  # bytes
        self.pace = -(-s.outputs // how.lanes) * how.bytes  # from step to step of a tile of dy: whole vectors
        self.tile = s.steps * self.pace
        self.line = self.task_panels * s.vectors * how.bytes  # of sums of an output
        self.pitch = self.task_tiles * s.outputs * self.line  # from tap to tap
        self.sums = len(self.taps) * self.pitch
        self._lay_out()

    def _lay_out(self) -> None:
        """What a task's scratch holds, and where."""
        s, size = self.schedule, WIDTH[self.dtype]
        sizes = {
            "x": len(self.taps) * self.task_panels * self.panel,
            "dy": self.task_tiles * self.tile,
            "zeros": max(self.task_panels * s.vectors * self.arith.lanes, self.task_tiles * s.outputs) * size + 64,
            "table": 0 if self.flat else 2 * self._entries(),
            "sums": self.sums if s.splits == 1 else len(self.taps) * self.line,
            "row": len(self.taps) * self.line + 64,
        }
        self.at, place = {}, 0
        for name, bytes in sizes.items():
            self.at[name] = place
            place += (bytes + 63) // 64 * 64
        self._scratch = place

    def _entries(self) -> int:
        """Bytes of the addresses of a block."""
        return self.schedule.steps * self.arith.depth * len(self.taps) * 8

    def scratch(self) -> int:
        """Bytes of scratch that a task needs."""
        return self._scratch

    @property
    def workspace(self) -> int:
        """Bytes: the sums of all tasks, if they have to be added up."""
        s = self.schedule
        return s.splits * s.blocks * s.parts * self.sums if s.splits > 1 else 0

    def cost(self) -> float:
        """Cycles, about."""
        s, how, spec, taps, size = self.schedule, self.arith, self.spec, len(self.taps), WIDTH[self.dtype]
        tiles, tasks = self.tiles * s.outputs, s.splits * s.blocks * s.parts
        work = float(self.total * tiles * self.columns * taps)
        work += 40 * self.units * self.tiles * self.panels * taps
        work += (
            s.blocks
            * self.total
            * taps
            * (self.columns * (4 if self.flat else 8) + (0 if self.flat else s.parts * how.depth * 3))
        )
        work += s.parts * self.total * self.tiles * 6
        x = spec.n * spec.size[0] * spec.size[1] * spec.channels * size
        work += (s.blocks * x + s.parts * self.places * spec.outputs * size) / 6
        work += tiles * self.columns * taps * (8 * s.splits if s.splits > 1 else 3)
        held = self.at["zeros"] + self.sums
        work *= 1.0 if held < 0.9 * self.target.l2 else 1.1
        cores = self.target.cores
        return work * (-(-tasks // cores) * cores / tasks) * (1.0 if tasks >= _TASKS * cores else 1.05)

    def build(self) -> list[Phase]:
        """Write the functions; returns the phases."""
        s = self.schedule
        self._made: dict[int, str] = {}
        f = Function(self.module, "accumulate", ["ptr", "i64", "ptr"])
        self._task(f)
        f.give()
        phases = [Phase("accumulate", s.splits * s.blocks * s.parts)]
        return phases if s.splits == 1 else [*phases, self._total()]

    # --- a task -------------------------------------------------------------------------------------------------------

    def _task(self, f: Function) -> None:
        s, size = self.schedule, WIDTH[self.dtype]
        buffers, task, scratch = f.args
        x, dy = (f.load(buffers, "ptr", 8 * i) for i in self.buffers[:2])
        split, rest = task % s.splits, task // s.splits
        block, part = rest % s.blocks, rest // s.blocks
        tile0, panel0 = block * self.task_tiles, part * self.task_panels
        channel0 = panel0 * (s.vectors * self.arith.lanes)
        x = f.offset(x, channel0 * size)
        dy = f.offset(dy, tile0 * (s.outputs * size))
        if s.splits == 1:
            sums = f.offset(scratch, self.at["sums"])
        else:
            sums = f.offset(f.load(buffers, "ptr", 8 * self.buffers[2]), task * self.sums)
        with f.loop(0, self.at["table"] - self.at["zeros"], 64) as at:
            f.store(f.constant(0, vector("i32", 16)), scratch, at + self.at["zeros"])
        first, end = split * self.units // s.splits, (split + 1) * self.units // s.splits
        if not self.flat:
            self._look_up(f, x, first)
        with f.loop(first, end) as unit:
            start, after = unit * s.steps, unit + 1
            steps = f.min_int(self.total - start, s.steps)
            self._pack_x(f, x, start, steps, panel0)
            self._pack_dy(f, dy, start, steps, tile0)
            more = f.compare("slt", after, end)
            if not self.flat:
                with f.when(more):
                    self._look_up(f, x, after)
            wanted = f.select(more, f.min_int(self.total - after * s.steps, s.steps) * self.arith.depth, 0)
            ahead = self._ahead(f, x, dy, after), wanted
            self._products(f, sums, steps, (tile0, panel0), f.compare("eq", unit, first), ahead)
        if s.splits > 1:
            return
        places = self._tail().places(f, buffers)
        outputs = f.min_int(self.spec.outputs - tile0 * s.outputs, self.task_tiles * s.outputs)
        with f.loop(0, outputs) as output:
            own = f.offset(sums, output * self.line)
            self._finish(f, places, tile0 * s.outputs + output, channel0, own, self.pitch)

    @contextmanager
    def _each_panel(self, f: Function, panel0: Value, last: bool) -> Iterator[tuple[Value, int]]:
        """Over the panels of a task: those of all vectors, or the one that has fewer; with the number of vectors."""
        full = f.max_int(f.min_int(self.full - panel0, self.task_panels), 0)
        if not last:
            with f.loop(0, full) as panel:
                yield panel, self.schedule.vectors
        else:
            with f.loop(full, f.min_int(self.panels - panel0, self.task_panels)) as panel:
                yield panel, self.last

    def _kinds(self) -> list[bool]:
        """Which kinds of panels there are, for `_each_panel`."""
        return [kind for kind, there in ((False, self.full), (True, self.last)) if there]

    def _pack_x(self, f: Function, x: Value, start: Value, steps: Value, panel0: Value) -> None:
        how, s, size, taps = self.arith, self.schedule, WIDTH[self.dtype], len(self.taps)
        depth, table = how.depth, self._table(f, start // s.steps)
        row = self.spec.channels * size
        with f.loop(0, steps) as step, f.loop(0, taps) as tap:
            if self.flat:
                first = (start + step) * depth
                both = [self._row(f, x, first + i, row) for i in range(depth)]
            else:
                entry = f.offset(table, (step * (depth * taps) + tap) * 8)
                both = [f.load(entry, "ptr", i * taps * 8) for i in range(depth)]
            to = f.offset(f.args[2], step * (s.vectors * how.bytes) + self.at["x"])
            to = f.offset(to, tap * (self.task_panels * self.panel))
            for last in self._kinds():
                with self._each_panel(f, panel0, last) as (panel, vectors):
                    for v in range(vectors):
                        rest = self.spec.channels % how.lanes if last or not self.last else 0
                        mask = None
                        if rest and v == vectors - 1:
                            left = self.spec.channels - ((panel0 + panel) * s.vectors + v) * how.lanes
                            mask = f.mask(f.min_int(left, how.lanes), how.lanes)
                        at = (panel * s.vectors + v) * (how.lanes * size)
                        value = self._step(f, [f.offset(b, at) for b in both], mask)
                        f.store(value, f.offset(to, panel * self.panel), v * how.bytes)

    def _row(self, f: Function, start: Value, place: Value, row: int) -> Value:
        """Address of a place of rows without gaps; of zeros after the last one."""
        own = f.offset(start, place * row)
        if self.places % self.arith.depth == 0:
            return own
        return f.select(f.compare("slt", place, self.places), own, f.offset(f.args[2], self.at["zeros"]))

    def _step(self, f: Function, places: list[Value], mask: Value | None) -> Value:
        """A vector of f32, or of pairs of bf16."""
        how = self.arith
        if how.depth == 1:
            return how.load(f, places[0], self.dtype, mask)
        kind = vector("i16", how.lanes)
        low, high = (f.load(p, kind) if mask is None else f.load_masked(p, kind, mask) for p in places)
        order = [i // 2 + (i % 2) * how.lanes for i in range(2 * how.lanes)]
        return f.bitcast(f.shuffle(low, high, order), how.vector)

    def _table(self, f: Function, unit: Value) -> Value:
        """Where the addresses of a block are kept."""
        return f.offset(f.args[2], unit % 2 * self._entries() + self.at["table"])

    def _look_up(self, f: Function, x: Value, unit: Value) -> None:
        """The addresses in x that every place of a block reads, for each tap."""
        table, depth = self._table(f, unit), self.arith.depth
        start = unit * (self.schedule.steps * depth)
        count = f.min_int(self.total * depth - start, self.schedule.steps * depth)
        spec, taps, row = self.spec, len(self.taps), self.spec.channels * WIDTH[self.dtype]
        zeros = f.offset(f.args[2], self.at["zeros"])
        plane, (high, wide) = spec.out[0] * spec.out[1], spec.size
        with f.loop(0, count) as n:
            place = start + n
            within = place % plane
            down, across = within // spec.out[1] * spec.stride[0], within % spec.out[1] * spec.stride[1]
            there = f.compare("slt", place, self.places)
            image = place // plane * high
            for number, tap in enumerate(self.taps):
                y, x_ = down + tap.row, across + tap.col
                inside = there & f.compare("ult", y, high) & f.compare("ult", x_, wide)
                own = f.offset(x, ((image + y) * wide + x_) * row)
                f.store(f.select(inside, own, zeros), table, (n * taps + number) * 8)

    def _pack_dy(self, f: Function, dy: Value, start: Value, steps: Value, tile0: Value) -> None:
        how, s, size, spec = self.arith, self.schedule, WIDTH[self.dtype], self.spec
        whole = f.max_int(f.min_int(spec.outputs // s.outputs - tile0, self.task_tiles), 0)
        count = f.min_int(self.tiles - tile0, self.task_tiles)
        with f.loop(0, steps) as step:
            first = (start + step) * how.depth
            both = [self._row(f, dy, first + i, spec.outputs * size) for i in range(how.depth)]
            to = f.offset(f.args[2], step * self.pace + self.at["dy"])
            for outputs, lo, hi in ((s.outputs, f.i64(0), whole), (spec.outputs % s.outputs, whole, count)):
                if not outputs:
                    continue
                with f.loop(lo, hi) as tile:
                    for piece in range(0, s.outputs, how.lanes):
                        here = min(max(outputs - piece, 0), how.lanes)
                        mask = f.mask(f.i64(here), how.lanes) if here < how.lanes else None
                        at = tile * (s.outputs * size) + piece * size
                        value = self._step(f, [f.offset(b, at) for b in both], mask)
                        f.store(value, f.offset(to, tile * self.tile), piece * 4)

    def _products(
        self, f: Function, sums: Value, steps: Value, origin: tuple[Value, Value], fresh: Value,
        ahead: tuple[tuple[Value, Value], Value],
    ) -> None:  # fmt: skip
        """All tiles of all panels of a block, added to the task's sums. ahead: where x and dy of the next block are,
        and its number of places: they are asked for meanwhile."""
        s, (tile0, panel0), (near, wanted) = self.schedule, origin, ahead
        count = f.min_int(self.tiles - tile0, self.task_tiles)
        calls = count * f.min_int(self.panels - panel0, self.task_panels) * (len(self.taps) * PIECES)
        each = (wanted + calls - 1) // calls
        place = f.variable("i64", 0)
        x, dy = (f.offset(f.args[2], self.at[name]) for name in ("x", "dy"))
        for last in self._kinds():
            with f.loop(0, len(self.taps)) as tap, self._each_panel(f, panel0, last) as (panel, vectors):
                source = f.offset(x, (tap * self.task_panels + panel) * self.panel)
                to = f.offset(sums, tap * self.pitch, panel * (s.vectors * self.arith.bytes))
                with f.loop(0, count) as tile:
                    own = f.offset(to, tile * (s.outputs * self.line))
                    given = f.offset(dy, tile * self.tile)
                    here = place.get()
                    f.call(self._micro(vectors), "void", source, given, own, steps, fresh, *near, here, each, wanted)
                    place.set(here + each * PIECES)

    def _micro(self, vectors: int) -> str:
        """void(x, dy, sums, steps, fresh, x and dy ahead, place, each, wanted): a tile. fresh: there are no sums."""
        if vectors in self._made:
            return self._made[vectors]
        name, s, how = f"tile_{vectors}", self.schedule, self.arith
        self._made[vectors] = f"@{name}"
        params = ["ptr", "ptr", "ptr", "i64", "i1", "ptr", "ptr", "i64", "i64", "i64"]
        f = Function(self.module, name, params, linkage="internal", attrs="noinline")
        x, dy, out, steps, fresh = f.args[:5]
        sums = [[f.variable(how.vector, 0.0) for _ in range(vectors)] for _ in range(s.outputs)]
        for r in range(s.outputs):
            for v in range(0, vectors * how.bytes, 64):
                f.prefetch(out, r * self.line + v, write=True)
        a, b = f.variable("ptr", dy), f.variable("ptr", x)
        with f.loop(0, PIECES) as piece, self._asking(f, piece, steps):
            columns = [f.load(b.get(), how.vector, v * how.bytes) for v in range(vectors)]
            for r, row in enumerate(sums):
                scalar = f.splat(f.load(a.get(), "float", r * 4), how.lanes)
                for v, column in enumerate(columns):
                    row[v].set(how.add(f, row[v].get(), scalar, column))
            a.set(f.offset(a.get(), self.pace))
            b.set(f.offset(b.get(), s.vectors * how.bytes))
        with f.when(f.compare("eq", fresh, 0)):
            for r, row in enumerate(sums):
                for v, total in enumerate(row):
                    total.set(total.get() + f.load(out, how.vector, r * self.line + v * how.bytes))
        for r, row in enumerate(sums):
            for v, total in enumerate(row):
                f.store(total.get(), out, r * self.line + v * how.bytes)
        f.give()
        return f"@{name}"

    def _ahead(self, f: Function, x: Value, dy: Value, unit: Value) -> tuple[Value, Value]:
        """Where a block's x (or the table of its addresses) and dy are."""
        size, place = WIDTH[self.dtype], unit * (self.schedule.steps * self.arith.depth)
        near = f.offset(x, place * (self.spec.channels * size)) if self.flat else self._table(f, unit)
        return near, f.offset(dy, place * (self.spec.outputs * size))

    @contextmanager
    def _asking(self, f: Function, piece: Value, steps: Value) -> Iterator[None]:
        """Over some steps, after the question for some places of the next block."""
        self._ask(f, piece)
        with f.loop(piece * steps // PIECES, (piece + 1) * steps // PIECES):
            yield

    def _ask(self, f: Function, piece: Value) -> None:
        """Ask for some places of the next block."""
        s, size, spec = self.schedule, WIDTH[self.dtype], self.spec
        x, dy, place, each, wanted = f.args[5:]
        # Of the taps those that lie in one step of the stride: the others read what they do.
        across = [n for n in range(len(self.taps)) if n % spec.kernel[1] < spec.stride[1]]
        taps = [n for n in across if n // spec.kernel[1] < spec.stride[0]]
        wide = min(self.task_panels * s.vectors * self.arith.lanes, spec.channels) * size
        high = min(self.task_tiles * s.outputs, spec.outputs) * size
        first = place + piece * each
        with f.loop(first, f.min_int(first + each, wanted)) as n:
            rows = [(f.offset(dy, n * (spec.outputs * size)), high)]
            if self.flat:
                rows.append((f.offset(x, n * (spec.channels * size)), wide))
            else:
                rows += [(f.load(x, "ptr", (n * len(self.taps) + tap) * 8), wide) for tap in taps]
            for row, bytes in rows:
                for line in range(0, bytes, 64):
                    f.prefetch(row, line, locality=2)

    # --- what becomes of the sums -------------------------------------------------------------------------------------

    def _tail(self) -> Tail:
        assert self.tail is not None
        return self.tail

    def _finish(self, f: Function, places: Places, output: Value, channel0: Value, sums: Value, pitch: int) -> None:
        """Write an output's gradient for a task's channels. sums: [tap][channel], `pitch` bytes from tap to tap."""
        how, taps, spec = self.arith, len(self.taps), self.spec
        channels = f.min_int(spec.channels - channel0, self.line // 4)
        row = f.offset(f.args[2], self.at["row"])
        if taps == 1:
            row = sums
        else:
            by_channel(f, how, sums, pitch, taps, channels, row)
        run = channels * taps
        with f.loop(0, run, how.lanes) as at:
            some = f.mask(f.min_int(run - at, how.lanes), how.lanes) if spec.channels % how.lanes else None
            where = {"o": output, "r": channel0 * taps + at}
            self._tail().vector(f, places, where, f.load(row, how.vector, at * 4), some, how)

    def _total(self) -> Phase:
        """Add the tasks' sums. Tasks of an output each."""
        f, how, s = Function(self.module, "total", ["ptr", "i64", "ptr"]), self.arith, self.schedule
        buffers, output, scratch = f.args
        work, places = f.load(buffers, "ptr", 8 * self.buffers[2]), self._tail().places(f, buffers)
        own = self.task_tiles * s.outputs  # outputs of a block
        with f.loop(0, s.parts) as part:
            start = f.offset(work, (part * s.blocks + output // own) * (s.splits * self.sums))
            start = f.offset(start, output % own * self.line)
            kept = f.offset(scratch, self.at["sums"])
            with f.loop(0, len(self.taps)) as tap, f.loop(0, self.line, how.bytes) as at:
                total = f.variable(how.vector, 0.0)
                with f.loop(0, s.splits) as split:
                    total.set(total.get() + f.load(start, how.vector, split * self.sums + tap * self.pitch + at))
                f.store(total.get(), kept, tap * self.line + at)
            channel0 = part * (self.task_panels * s.vectors * how.lanes)
            self._finish(f, places, output, channel0, kept, self.line)
        f.give()
        return Phase("total", self.spec.outputs)
