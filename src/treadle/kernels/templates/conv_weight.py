"""Weight gradients of convolutions over channels-last images: sums over places, shared by tasks, added up in order.

A task has some rows of some images and some tiles of output channels. It packs dy into panels [tile of outputs][place]
[output] and x, padded, into rows of places (for bf16 pairs of places side by side, once for each way in which taps pair
them), then adds tile by tile [outputs x input channels] of every tap to its own sums in the workspace. The last phase
adds the tasks' sums, always in the same order, and writes [outputs, channels, kernel].
"""

from __future__ import annotations

from dataclasses import dataclass, field

from treadle.kernels.launch import Phase
from treadle.kernels.llvm import Function, Module, Value, Variable, vector
from treadle.kernels.target import Target
from treadle.kernels.templates.conv_finish import Tail
from treadle.kernels.templates.conv_micro import WIDTH, Arith, arith
from treadle.kernels.templates.conv_pack import Copy, transposed
from treadle.kernels.templates.conv_shape import Spec, Tap, weight_gradient_taps


@dataclass(frozen=True)
class WeightSchedule:
    """outputs x vectors: the tile in registers. images, rows: of a unit of places that is packed at once; splits: tasks
    that share the units; blocks: tasks that share the tiles of outputs."""

    outputs: int
    vectors: int
    images: int
    rows: int
    splits: int
    blocks: int

    def __str__(self) -> str:
        unit = f"{self.images}x{self.rows} rows"
        return f"{self.outputs}x{self.vectors} {unit} splits {self.splits} blocks {self.blocks}"


def joins_taps(spec: Spec, lanes: int) -> bool:
    """Whether all taps of all channels lie side by side in vectors: where the channels alone would not fill one."""
    side_by_side = spec.dilation[1] == 1 or spec.kernel[1] == 1
    return spec.kernel != (1, 1) and side_by_side and spec.channels < lanes and spec.groups == 1


@dataclass
class Weight:
    """One kernel. buffers: numbers of x, dy, dw, workspace. planar: x has its channels first."""

    spec: Spec
    schedule: WeightSchedule
    target: Target
    dtype: str
    out: str
    buffers: tuple[int, int, int, int]
    planar: bool = False
    module: Module = field(default_factory=Module)

    def __post_init__(self) -> None:
        spec, s = self.spec, self.schedule
        self.arith = how = arith(self.target, self.dtype)
        self.depth, self.lanes = how.depth, how.lanes
        self.inner, self.outer = spec.channels // spec.groups, spec.outputs // spec.groups
        taps = weight_gradient_taps(spec)
        self.top, self.first = min(t.row for t in taps), min(t.col for t in taps)
        self.bottom, self.end = max(t.row for t in taps), max(t.col for t in taps)
        self.joined = joins_taps(spec, self.lanes)
        self.taps: list[Tap] = [Tap(self.top, self.first, 0)] if self.joined else list(taps)
        width = self.inner * (len(taps) if self.joined else 1)  # channels that lanes run over
        self.columns = -(-width // self.lanes)
        self.full, self.last = divmod(self.columns, s.vectors)
        self.tiles = -(-self.outer // s.outputs)
        self.steps = -(-spec.out[1] // self.depth)  # of a row
        self.odd = spec.out[1] % self.depth != 0
        self.units_high = -(-spec.out[0] // s.rows)
        self.units = -(-spec.n // s.images) * self.units_high
        self.block_tiles = -(-self.tiles // s.blocks)
        self.bounds = [(0, spec.out[0]) if self.joined else self._rows_of(t.row) for t in self.taps]
        self._places()

    def _rows_of(self, row: int) -> tuple[int, int]:
        """The rows of y (first, end) for which a tap reads inside x."""
        spec = self.spec
        inside = [y for y in range(spec.out[0]) if 0 <= y * spec.stride[0] + row < spec.size[0]]
        return (inside[0], inside[-1] + 1) if inside else (0, 0)

    def _places(self) -> None:
        """Sizes of what a task packs."""
        spec, s = self.spec, self.schedule
        wide = self.dtype != "f32" and self.arith.kind == "f32"
        # A kernel of one tap needs but the places that it reads.
        thin = spec.kernel == (1, 1) and not self.planar and not any(map(any, spec.padding))
        skip, self.step = (spec.stride, (1, 1)) if thin else ((1, 1), spec.stride)
        self.in_rows = (s.rows - 1) * self.step[0] + self.bottom - self.top + 1
        across = (spec.out[1] - 1) * self.step[1] + self.end - self.first + 1
        pitch = self.inner
        if self.depth == 1 and pitch * 4 % 2048 == 0:
            pitch += 16
        self.copy = Copy(
            self.arith, width=across, pitch=pitch, channels=self.inner, of=spec.channels,
            columns=-(-spec.size[1] // skip[1]), rows=-(-spec.size[0] // skip[0]), left=-self.first, dtype=self.dtype,
            wide=wide, planar=self.planar, skip=skip, apart=spec.size[1],
        )  # fmt: skip
        self.plain_rows = self.copy.row_bytes
        self.versions: list[int] = []
        self.down = self.step[0]  # rows of what is packed from one row of y to the next
        if self.joined:
            self.place, self.down = self.columns * self.arith.bytes, 1
            self.row = self.steps * self.place
        elif self.depth == 1:
            self.place, self.row = pitch * self.copy.element * self.step[1], self.plain_rows
        else:
            again = 2 * self.step[1]
            self.versions = sorted({(t.col - self.first) % again for t in self.taps})
            shift = max((t.col - self.first) // again for t in self.taps)
            self.pairs = self.steps + shift
            self.place = self.columns * self.arith.bytes
            self.place += 64 if self.place % 2048 == 0 else 0
            self.row = len(self.versions) * self.pairs * self.place
        self.image = (s.rows if self.joined else self.in_rows) * self.row
        self.panel = s.images * s.rows * self.steps * s.outputs * 4 + 128
        self.x_bytes = (s.images * self.image + 255) // 64 * 64
        self.dy_bytes = (self.block_tiles * self.panel + 255) // 64 * 64
        plain = self.in_rows * self.plain_rows if self.joined or self.depth > 1 else 0
        self.plain_bytes = (plain + 255) // 64 * 64
        self.line_bytes = spec.out[1] * self.columns * self.lanes * self.copy.element if self.joined else 0
        self.line = self.columns * self.arith.bytes  # of sums of one output
        self.sums = self.spec.groups * len(self.taps) * self.tiles * s.outputs * self.line

    @property
    def workspace(self) -> int:
        """Bytes: the sums of all splits."""
        return self.schedule.splits * self.sums

    def scratch(self) -> int:
        """Bytes of scratch that a task needs."""
        packed = self.x_bytes + self.dy_bytes + self.plain_bytes + self.line_bytes
        return max(packed, 2 * (self.line + 64) * self.spec.kernel[0] * self.spec.kernel[1] * 2) + 4096

    def build(self, store: Tail | None = None) -> list[Phase]:
        """Write the functions; returns the phases. store: what to do with the sums instead of writing them."""
        s, groups = self.schedule, self.spec.groups
        self._made: dict[tuple[int, bool], str] = {}
        f = Function(self.module, "accumulate", ["ptr", "i64", "ptr"])
        self._task(f)
        f.give()
        return [Phase("accumulate", groups * s.splits * s.blocks), self._reduction(store)]

    # --- sums of a task -------------------------------------------------------------------------------------------

    def _task(self, f: Function) -> None:
        s, spec = self.schedule, self.spec
        buffers, task, scratch = f.args
        x, dy, workspace = (f.load(buffers, "ptr", 8 * self.buffers[i]) for i in (0, 1, 3))
        split, rest = task % s.splits, task // s.splits
        block, group = rest % s.blocks, rest // s.blocks
        first, last = split * self.units // s.splits, (split + 1) * self.units // s.splits
        tile0 = block * self.block_tiles
        tiles = f.min_int(f.i64(self.tiles) - tile0, self.block_tiles)
        plane = spec.size[0] * spec.size[1] if self.planar else 1
        x = f.offset(x, group * (self.inner * plane * WIDTH[self.dtype]))
        dy = f.offset(dy, group * (self.outer * WIDTH[self.dtype]))
        sums = f.offset(workspace, split * self.sums, group * (self.sums // spec.groups))
        sums = f.offset(sums, tile0 * (s.outputs * self.line))
        panels = f.offset(scratch, self.x_bytes)
        with f.loop(first, last) as unit:
            image = unit // self.units_high * s.images
            row = unit % self.units_high * s.rows
            images = f.min_int(f.i64(spec.n) - image, s.images)
            rows = f.min_int(f.i64(spec.out[0]) - row, s.rows)
            odd = f.variable(self.arith.vector, 0.0) if any(b != (0, spec.out[0]) for b in self.bounds) else None
            with f.loop(0, images) as i:
                self._pack_x(f, x, f.offset(scratch, i * self.image), image + i, row)
                at = f.offset(panels, i * rows * (self.steps * s.outputs * 4))
                self._pack_dy(f, dy, at, image + i, row, rows, tile0, tiles, odd)
            fresh = f.compare("eq", unit, first)
            self._products(f, scratch, panels, sums, (images, row, rows), tiles, fresh, odd)
        with f.when(f.compare("eq", first, last)):  # more splits than units
            self._nothing(f, sums, tiles)

    def _nothing(self, f: Function, sums: Value, tiles: Value) -> None:
        pitch = self.tiles * self.schedule.outputs * self.line
        with (
            f.loop(0, len(self.taps)) as tap,
            f.loop(0, tiles * (self.schedule.outputs * self.line), 4 * self.lanes) as at,
        ):
            f.store(f.constant(0.0, self.arith.vector), sums, tap * pitch + at)

    def _pack_x(self, f: Function, x: Value, out: Value, image: Value, row: Value) -> None:
        spec = self.spec
        source = f.offset(x, image * (spec.size[0] * spec.size[1] * spec.channels * WIDTH[self.dtype]))
        start, count = row * self.step[0] + self.top, f.i64(self.in_rows)
        if self.depth == 1 and not self.joined:
            self.copy.write(f, source, out, start, count)
            return
        plain = f.offset(f.args[2], self.x_bytes + self.dy_bytes)
        self.copy.write(f, source, plain, start, count)
        if self.joined:
            self._pack_joined(f, plain, out)
            return
        across, step = self.copy.width, self.copy.pitch * self.copy.element
        with f.loop(0, count) as y:
            for number, version in enumerate(self.versions):
                to = f.offset(out, y * self.row, number * self.pairs * self.place)
                both = max(0, min(self.pairs, (across - 1 - version - self.step[1]) // (2 * self.step[1]) + 1))
                here = f.offset(plain, y * self.plain_rows, version * step)
                with f.loop(0, both) as i:
                    place = f.offset(here, i * (2 * self.step[1] * step))
                    self._pair(f, place, f.offset(place, self.step[1] * step), f.offset(to, i * self.place))
                for last in range(both, self.pairs):
                    inside = version + 2 * self.step[1] * last < across
                    single = f.offset(here, last * (2 * self.step[1] * step)) if inside else None
                    self._pair(f, single, None, f.offset(to, last * self.place))

    def _pack_joined(self, f: Function, plain: Value, out: Value) -> None:
        """For each place of y all elements of x that it reads, side by side."""
        spec, element = self.spec, self.copy.element
        run, across = spec.kernel[1] * self.inner, self.columns * self.lanes * element
        per = self.lanes * 4 // element
        kind = vector("float" if element == 4 else "i16", per)
        with f.loop(0, self.schedule.rows) as y:
            line = out if self.depth == 1 else f.offset(plain, self.plain_bytes)
            line = f.offset(line, y * self.row) if self.depth == 1 else line
            with f.loop(0, spec.out[1]) as x:
                source = f.offset(
                    plain, y * (self.step[0] * self.plain_rows), x * (self.step[1] * self.inner * element)
                )
                to = f.offset(line, x * across)
                for a in range(spec.kernel[0]):  # in order: what is written beyond a run is written again
                    for at in range(0, run, per):
                        value = f.load(source, kind, a * spec.dilation[0] * self.plain_rows + at * element)
                        f.store(value, to, (a * run + at) * element)
            if self.depth > 1:
                with f.loop(0, spec.out[1] // 2) as i:
                    first = f.offset(line, i * (2 * across))
                    self._pair(f, first, f.offset(first, across), f.offset(out, y * self.row, i * self.place))
                if self.odd:
                    end = f.offset(line, (spec.out[1] - 1) * across)
                    self._pair(f, end, None, f.offset(out, y * self.row, (self.steps - 1) * self.place))

    def _pair(self, f: Function, a: Value | None, b: Value | None, out: Value) -> None:
        """The channels of two places side by side. What lies behind a place's channels may be anything."""
        kind, lanes = vector("i16", self.lanes), self.lanes
        order = [i // 2 + (i % 2) * lanes for i in range(2 * lanes)]
        with f.loop(0, self.columns) as v:
            low, high = (f.constant(0, kind) if p is None else f.load(p, kind, v * (2 * lanes)) for p in (a, b))
            f.store(f.shuffle(low, high, order), out, v * self.arith.bytes)

    def _pack_dy(
        self, f: Function, dy: Value, out: Value, image: Value, row: Value, rows: Value, tile0: Value, tiles: Value,
        odd: Variable | None,
    ) -> None:  # fmt: skip
        """Panels of dy's rows; out: of the first tile, at the image's first place. odd: gets NaN if dy has a number
        that gives NaN when it is multiplied by 0."""
        s, spec, lanes, size = self.schedule, self.spec, self.lanes, WIDTH[self.dtype]
        with f.loop(0, rows) as y, f.loop(0, self.steps) as step:
            place = ((image * spec.out[0] + row + y) * spec.out[1] + step * self.depth) * spec.outputs
            source = f.offset(dy, place * size)
            to = f.offset(out, (y * self.steps + step) * (s.outputs * 4))
            there = f.compare("slt", step * 2 + 1, spec.out[1]) if self.odd else None
            with f.loop(0, tiles) as t:
                for piece in range(0, s.outputs, lanes):
                    at = (tile0 + t) * s.outputs + piece
                    count = f.min_int(f.i64(self.outer) - at, s.outputs - piece)
                    value = self._dy(f, f.offset(source, at * size), count, there)
                    f.store(value, to, t * self.panel + piece * 4)
                    if odd is not None:
                        for part in self._parts(f, value):
                            odd.set(odd.get() + (part - part))

    def _parts(self, f: Function, step: Value) -> list[Value]:
        """The numbers of a step, as f32."""
        if self.depth == 1:
            return [step]
        bits = f.bitcast(step, vector("i32", self.lanes))
        return [f.bitcast(part, self.arith.vector) for part in (bits << 16, bits & 0xFFFF0000)]

    def _dy(self, f: Function, place: Value, count: Value, there: Value | None) -> Value:
        """A step of dy: an f32, or bf16 of two places; zero beyond the outputs."""
        lanes = self.lanes
        mask = f.mask(count, lanes)
        if self.depth == 1:
            return self.arith.load(f, place, self.dtype, mask)
        kind = vector("i16", lanes)
        other = self.spec.outputs * 2
        low = f.load_masked(place, kind, mask)
        second = mask if there is None else f.mask(f.select(there, count, 0), lanes)
        high = f.load_masked(
            f.offset(place, other if there is None else f.select(there, f.i64(other), 0)), kind, second
        )
        order = [i // 2 + (i % 2) * lanes for i in range(2 * lanes)]
        return f.bitcast(f.shuffle(low, high, order), self.arith.vector)

    def _products(
        self, f: Function, x: Value, dy: Value, sums: Value, extent: tuple[Value, Value, Value], tiles: Value,
        fresh: Value, odd: Variable | None,
    ) -> None:  # fmt: skip
        """All tiles of all taps of a unit (images, first row, rows), added to the task's sums."""
        s = self.schedule
        starts = []
        for tap in self.taps:
            col = tap.col - self.first
            down = (tap.row - self.top) * self.row
            if self.depth == 1 or self.joined:
                starts.append(down + col * (self.place // self.step[1]))
            else:
                version = self.versions.index(col % (2 * self.step[1]))
                starts.append(down + (version * self.pairs + col // (2 * self.step[1])) * self.place)
        table = f.symbol(self.module.table("tap_starts", starts))
        limits = f.symbol(self.module.table("tap_rows", [end for both in self.bounds for end in both]))
        (images, row, rows), line = extent, self.steps * s.outputs * 4
        total = f.total(odd.get()) if odd is not None else None
        every = None if total is None else f.compare("une", total, total)
        pitch = self.tiles * s.outputs * self.line
        for whole, vectors in ((True, s.vectors), (False, self.last)):
            lo, hi = (0, self.full) if whole else (self.full, self.full + 1)
            if not vectors or lo == hi:
                continue
            with f.loop(lo, hi) as panel, f.loop(0, len(self.taps)) as number:
                column = panel * (s.vectors * self.arith.bytes)
                source = f.offset(x, f.load(table, "i64", number * 8), column)
                to, first, count = f.offset(sums, number * pitch, column), f.i64(0), rows
                if every is not None:  # rows of x beyond the border are zeros
                    low, high = (f.load(limits, "i64", number * 16 + at) - row for at in (0, 8))
                    first = f.select(every, 0, f.min_int(f.max_int(low, 0), rows))
                    count = f.max_int(f.select(every, rows, f.min_int(high, rows)) - first, 0)
                source, given = f.offset(source, first * (self.down * self.row)), f.offset(dy, first * line)
                with f.loop(0, tiles) as tile:
                    out = f.offset(to, tile * (s.outputs * self.line))
                    extents = images, count, rows * line, fresh
                    f.call(self._micro(vectors), "void", source, f.offset(given, tile * self.panel), out, *extents)

    def _micro(self, vectors: int) -> str:
        """void(x, dy, sums, images, rows, bytes of an image's dy, fresh): one tile of outputs by channels, over all
        places of a unit."""
        name, s = f"tile_{vectors}", self.schedule
        if (vectors, True) in self._made:
            return self._made[vectors, True]
        self._made[vectors, True] = f"@{name}"
        params = ["ptr", "ptr", "ptr", "i64", "i64", "i64", "i1"]
        f = Function(self.module, name, params, linkage="internal", attrs="noinline")
        x, dy, out, images, rows, apart, fresh = f.args
        sums = [[f.variable(self.arith.vector, 0.0) for _ in range(vectors)] for _ in range(s.outputs)]
        with f.when(f.compare("eq", fresh, 0)):
            for r, row in enumerate(sums):
                for v, total in enumerate(row):
                    total.set(f.load(out, self.arith.vector, r * self.line + v * self.arith.bytes))
        at = f.variable("ptr", dy)
        inner = self.spec.out[1] // self.depth
        unroll = 2 if inner % 2 == 0 else 1
        with f.loop(0, images) as i:
            at.set(f.offset(dy, i * apart))
            with f.loop(0, rows) as y:
                here = f.variable("ptr", f.offset(x, i * self.image, y * (self.down * self.row)))
                with f.loop(0, inner, unroll):
                    a, b = at.get(), here.get()
                    for u in range(unroll):
                        self._step(f, f.offset(a, u * s.outputs * 4), f.offset(b, u * self.place), sums, False)
                    at.set(f.offset(a, unroll * s.outputs * 4))
                    here.set(f.offset(b, unroll * self.place))
                if self.odd:
                    self._step(f, at.get(), here.get(), sums, True)
                    at.set(f.offset(at.get(), s.outputs * 4))
        for r, row in enumerate(sums):
            for v, total in enumerate(row):
                f.store(total.get(), out, r * self.line + v * self.arith.bytes)
        f.give()
        return f"@{name}"

    def _step(self, f: Function, dy: Value, x: Value, sums: list[list[Variable]], half: bool) -> None:
        """half: only the first of the two places counts; the other's x is some other place's."""
        columns = [f.load(x, self.arith.vector, v * self.arith.bytes) for v in range(len(sums[0]))]
        if half:
            bits = vector("i32", self.lanes)
            columns = [f.bitcast(f.bitcast(c, bits) & 0xFFFF, self.arith.vector) for c in columns]
        for r, row in enumerate(sums):
            scalar = f.splat(f.load(dy, "float", r * 4), self.lanes)
            for v, column in enumerate(columns):
                row[v].set(self.arith.add(f, row[v].get(), scalar, column))

    # --- the tasks' sums together ---------------------------------------------------------------------------------

    def _reduction(self, store: Tail | None) -> Phase:
        """Tasks of one output each."""
        f = Function(self.module, "total", ["ptr", "i64", "ptr"])
        buffers, task, scratch = f.args
        spec, s = self.spec, self.schedule
        out = f.load(buffers, "ptr", 8 * self.buffers[2]) if store is None else f.null()
        group, output = task // self.outer, task % self.outer
        source = f.load(buffers, "ptr", 8 * self.buffers[3])
        source = f.offset(source, group * (self.sums // spec.groups), output * self.line)
        pitch = self.tiles * s.outputs * self.line
        with f.loop(0, len(self.taps)) as tap, f.loop(0, self.line, self.arith.bytes) as at:
            total = f.variable(self.arith.vector, 0.0)
            with f.loop(0, s.splits) as split:
                total.set(total.get() + f.load(source, self.arith.vector, split * self.sums + tap * pitch + at))
            f.store(total.get(), scratch, tap * self.line + at)
        row = f.offset(scratch, (self.line + self.lanes * 4) * len(self.taps))
        if self.joined:
            self._scalars(f, scratch, row)
        elif len(self.taps) == 1:
            row = scratch
        else:
            by_channel(f, self.arith, scratch, self.line, len(self.taps), self.inner, row)
        run = self.inner * spec.kernel[0] * spec.kernel[1]
        places = store.places(f, buffers) if store else None
        with f.loop(0, run, self.lanes) as at:
            some = f.mask(f.i64(run) - at, self.lanes) if run % self.lanes else None
            value = f.load(row, self.arith.vector, at * 4)
            if store is not None and places is not None:
                store.vector(f, places, {"o": task, "r": at}, value, some, self.arith)
            else:
                value, to = self.arith.narrow(value, self.out), f.offset(out, (task * run + at) * WIDTH[self.out])
                f.store(value, to) if some is None else f.store_masked(value, to, some)
        f.give()
        return Phase("total", spec.groups * self.outer)

    def _scalars(self, f: Function, sums: Value, row: Value) -> None:
        """[kernel row][kernel column, channel] to [channel][kernel]."""
        across = self.spec.kernel[1]
        with f.loop(0, self.spec.kernel[0]) as a, f.loop(0, across) as b, f.loop(0, self.inner) as c:
            value = f.load(sums, "float", ((a * across + b) * self.inner + c) * 4)
            f.store(value, row, ((c * self.spec.kernel[0] + a) * across + b) * 4)


def by_channel(f: Function, how: Arith, sums: Value, line: int, taps: int, channels: Value | int, row: Value) -> None:
    """[tap][channel], `line` bytes from tap to tap, to [channel][tap]."""
    lanes = how.lanes
    with f.loop(0, channels, lanes) as c, f.loop(0, taps, lanes) as t:
        rows = []
        for i in range(lanes):
            tap = f.min_int(t + i, taps - 1)
            rows.append(f.load(sums, how.vector, tap * line + c * 4))
        for i, value in enumerate(transposed(f, rows)):
            count = f.select(f.compare("slt", c + i, channels), f.min_int(f.i64(taps) - t, lanes), 0)
            f.store_masked(value, row, f.mask(count, lanes), ((c + i) * taps + t) * 4)
