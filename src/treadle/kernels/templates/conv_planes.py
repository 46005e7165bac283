"""Depthwise convolutions of images with their channels second, and their gradients: vectors run along an image's rows.

A channel of an image is a plane. It is taken in strips of rows by vectors of columns; each row of the source that a
strip reads is loaded once for each column of the kernel (of every second column two vectors are loaded and divided).
Strips and vectors at the borders know where they are: what they would read beyond is zero, and is not read.
Outputs and data gradients have a task for some planes, weight gradients for some channels of all images, whose sums lie
in scratch as vectors until all images have passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from treadle.kernels.launch import Phase
from treadle.kernels.llvm import Function, Module, Value, vector
from treadle.kernels.target import Target
from treadle.kernels.templates.conv_finish import Tail
from treadle.kernels.templates.conv_micro import MEMORY, WIDTH, Arith, arith
from treadle.kernels.templates.conv_shape import Part, Problem, Spec, weight_gradient_taps

WHOLE, MOST_ROWS = 16, 8  # rows of a plane that is one strip, and of a strip otherwise
MOST_FORMS = 16  # of strips, whose code is written out
MOST_TAPS = 25
BLOCK = 32  # channels whose sums a task of a weight gradient has
GRAIN = 32 << 10  # bytes that a task reads and writes at least


@dataclass(frozen=True)
class PlaneSchedule:
    """rows: of a strip; lanes: of a vector; tasks."""

    rows: int
    lanes: int
    tasks: int

    def __str__(self) -> str:
        return f"planes rows {self.rows} lanes {self.lanes} tasks {self.tasks}"


@dataclass(frozen=True)
class Group:
    """Parts of a problem whose places lie in the same rows of the destination, by their columns' remainders."""

    parts: tuple[Part, ...]

    @property
    def rows(self) -> int:
        """Rows of the grid."""
        return self.parts[0].rows

    @property
    def cols(self) -> int:
        """Columns of the grid."""
        return max(part.cols for part in self.parts)

    def reach(self, axis: int) -> tuple[int, int]:
        """The first and the last row or column that taps read, relative to a place."""
        at = [(t.row, t.col)[axis] for part in self.parts for t in part.taps] or [0]
        return min(at), max(at)


def groups_of(p: Problem) -> list[Group]:
    """All parts, by rows."""
    rows = dict.fromkeys(part.out0[0] for part in p.parts)
    return [Group(tuple(part for part in p.parts if part.out0[0] == row and part.cols)) for row in rows]


@dataclass(frozen=True)
class Pieces:
    """An axis in pieces of `size` places: those from middle.start on, which are alike, and others by their starts."""

    count: int
    size: int
    middle: range
    known: tuple[int, ...]

    def each(self, f: Function) -> Iterator[tuple[Value, int | None, int]]:
        """Loops over them: the first place, that number where it is known, and the places there are."""
        for start in self.known:
            if start < self.middle.start or not self.middle:
                yield f.i64(start), start, min(self.size, self.count - start)
        if self.middle:
            with f.loop(self.middle.start, self.middle.stop, self.size) as at:
                yield at, None, self.size
            for start in self.known:
                if start >= self.middle.stop:
                    yield f.i64(start), start, min(self.size, self.count - start)


def pieces(count: int, size: int, alike: Callable[[int], bool]) -> Pieces:
    """alike: whether a piece that begins there, and is full, needs nothing beyond the borders."""
    starts = range(0, count, size)
    middle = [s for s in starts if s + size <= count and alike(s)]
    inner = range(middle[0], middle[-1] + size, size) if middle else range(0)
    return Pieces(count, size, inner, tuple([s for s in starts if s not in middle]))


def plane_schedules(sizes: Problem | Spec, target: Target, dtype: str) -> list[PlaneSchedule]:
    """The schedule of an output's or data gradient's Problem, of a weight gradient's Spec; [] where there is none."""
    if isinstance(sizes, Problem):
        groups, channels, n, p = groups_of(sizes), sizes.source[2], sizes.n, sizes
        step = max(sizes.step_in[1], sizes.step_out[1])
    else:
        part = Part(*sizes.out, (0, 0), weight_gradient_taps(sizes))
        groups, channels, n, step = [Group((part,))], sizes.channels, sizes.n, sizes.stride[1]
        p = Problem(
            n, (*sizes.size, channels), (*sizes.out, channels), channels, sizes.stride, (1, 1), (part,), 0, False
        )
    rows, cols = max(g.rows for g in groups), max(g.cols for g in groups)
    lanes = arith(target, "f32").lanes
    lanes = lanes // 2 if cols <= lanes // 2 and lanes > 8 else lanes
    high = rows if rows <= WHOLE else -(-rows // -(-rows // MOST_ROWS))
    moved = n * channels * (p.source[0] * p.source[1] + p.target[0] * p.target[1]) * WIDTH[dtype]
    most, wanted = max(moved // GRAIN, 1), 16 * target.cores
    tasks = min(wanted, n * channels, most)
    if isinstance(sizes, Spec):
        tasks = max(min(wanted // 2, channels, most), -(-channels // BLOCK))
    schedule = PlaneSchedule(high, lanes, tasks)
    grids = [_Grid(p, g, schedule) for g in groups]
    forms = sum([len(g.down.known) + bool(g.down.middle) for g in grids]) * max(
        [len(g.across.known) + bool(g.across.middle) for g in grids]
    )
    taps = max([len(part.taps) for g in groups for part in g.parts])
    return [schedule] if step <= 2 and taps <= MOST_TAPS and forms <= MOST_FORMS else []


@dataclass(frozen=True)
class _Grid:
    """A group in strips and vectors."""

    problem: Problem
    group: Group
    schedule: PlaneSchedule

    @property
    def down(self) -> Pieces:
        """Strips."""
        (low, high), size, step = self.group.reach(0), self.schedule.rows, self.problem.step_in[0]
        inside = self.problem.source[0]
        return pieces(
            self.group.rows, size, lambda s: s * step + low >= 0 and (s + size - 1) * step + high < inside
        )  # fmt: skip

    @property
    def across(self) -> Pieces:
        """Vectors: all of whose places there are, in the source and in the destination."""
        (low, high), size, p = self.group.reach(1), self.schedule.lanes, self.problem
        step, inside = p.step_in[1], p.source[1]
        # Of every second column two whole vectors are loaded.
        return pieces(
            self.group.cols, size,
            lambda s: s * step + low >= 0 and (s + size) * step - 1 + high < inside
            and (s + size) * p.step_out[1] <= p.target[1],
        )  # fmt: skip

    def strips(self, f: Function) -> Iterator[tuple[tuple[Value, Value], tuple[int | None, int | None], int]]:
        """The first place of each strip of a vector's columns, also as numbers where they are known, and its rows."""
        for row, down, high in self.down.each(f):
            for col, right, _ in self.across.each(f):
                yield (row, col), (down, right), high


@dataclass
class RowVectors:
    """Vectors of a source's rows in a strip, each loaded when it is first asked for. at: the strip's first place in
    memory; first: its row and column in the grid, where they are known; step: of places; low: the first column that a
    tap reads, relative to a place; count: lanes that count."""

    f: Function
    arith: Arith
    dtype: str
    size: tuple[int, int]
    step: tuple[int, int]
    at: Value
    first: tuple[int | None, int | None]
    low: int
    count: int
    loaded: dict[tuple[int, int], Value] = field(default_factory=dict)

    def value(self, row: int, col: int) -> Value:
        """What the lanes' places read at (row, col) from the first of them."""
        lanes, key = self.arith.lanes, (row, col)
        if key not in self.loaded and self.step[1] == 1:
            self.loaded[key] = self._load(row, col)
        elif key not in self.loaded:
            base = col - (col - self.low) % 2
            both = self._load(row, base), self._load(row, base, lanes)
            for odd in (0, 1):
                self.loaded[row, base + odd] = self.f.shuffle(*both, [2 * i + odd for i in range(lanes)])
        return self.loaded[key]

    def _load(self, row: int, col: int, ahead: int = 0) -> Value:
        """A vector of elements side by side, `ahead` elements on; zero beyond the border."""
        f, lanes, (down, across) = self.f, self.arith.lanes, self.first
        inside = down is None or 0 <= down * self.step[0] + row < self.size[0]
        there = [inside and (ahead + i) // self.step[1] < self.count for i in range(lanes)]
        if across is not None:
            start = across * self.step[1] + col + ahead
            there = [ok and 0 <= start + i < self.size[1] for i, ok in enumerate(there)]
        if not any(there):
            return f.constant(0.0, self.arith.vector)
        place = f.offset(self.at, (row * self.size[1] + col + ahead) * WIDTH[self.dtype])
        return self.arith.load(f, place, self.dtype, lanes_where(f, there))


def lanes_where(f: Function, there: Sequence[bool]) -> Value | None:
    """A mask that is known; None if it has all lanes."""
    items = ", ".join(f"i1 {str(bool(t)).lower()}" for t in there)
    return None if all(there) else Value(f"<{items}>", vector("i1", len(there)), f)


@dataclass
class Planes:
    """Outputs or data gradients. buffers: numbers of source and weights; `tail` writes, along rows."""

    problem: Problem
    schedule: PlaneSchedule
    target: Target
    dtype: str
    buffers: tuple[int, int]
    tail: Tail
    module: Module = field(default_factory=Module)

    def __post_init__(self) -> None:
        self.arith = replace(arith(self.target, "f32"), lanes=self.schedule.lanes)

    def build(self) -> list[Phase]:
        """Write the functions; returns the phases."""
        p, s, size = self.problem, self.schedule, WIDTH[self.dtype]
        f = Function(self.module, "convolve", ["ptr", "i64", "ptr"])
        buffers, task, _ = f.args
        source, weights = (f.load(buffers, "ptr", 8 * i) for i in self.buffers)
        channels, count = p.source[2], p.n * p.source[2]
        with f.loop(task * count // s.tasks, (task + 1) * count // s.tasks) as number:
            image, channel = number // channels, number % channels
            plane = f.offset(source, number * (p.source[0] * p.source[1] * size))
            own = f.offset(weights, channel * (p.taps * size))
            for g, group in enumerate(groups_of(p)):
                grid = _Grid(p, group, s)
                for (row, col), known, high in grid.strips(f):
                    at = f.offset(plane, row * (p.step_in[0] * p.source[1] * size), col * (p.step_in[1] * size))
                    name = self._strip(g, group, known, high)
                    f.call(name, "void", buffers, at, own, image, channel, row, col)
        f.give()
        return [Phase("convolve", s.tasks)]

    def _strip(self, number: int, group: Group, first: tuple[int | None, int | None], high: int) -> str:
        """void(buffers, source at the first place, weights, image, channel, row, column of the grid)"""
        name = f"strip_{number}_{high}" + "".join(f"_{'any' if at is None else at}" for at in first)
        if any(g.name == name for g in self.module.functions):
            return f"@{name}"
        params = ["ptr", "ptr", "ptr", *["i64"] * 4]
        f, p = Function(self.module, name, params, linkage="internal", attrs="noinline"), self.problem
        lanes, step = self.arith.lanes, p.step_in[0]
        count = lanes if first[1] is None else min(lanes, group.cols - first[1])
        rows = RowVectors(
            f, self.arith, self.dtype, p.source[:2], p.step_in, f.args[1], first, group.reach(1)[0], count
        )
        kernel = {t.number: self._weight(f, t.number) for part in group.parts for t in part.taps}
        places = self.tail.places(f, f.args[0])
        sums = {(i, k): f.constant(0.0, self.arith.vector) for i in range(high) for k in range(len(group.parts))}
        low, end = group.reach(0)
        for row in range(low, (high - 1) * step + end + 1):
            for k, part in enumerate(group.parts):
                for tap in part.taps:
                    i, rest = divmod(row - tap.row, step)
                    if not rest and 0 <= i < high:
                        value = rows.value(row, tap.col)
                        sums[i, k] = self.arith.add(f, sums[i, k], value, kernel[tap.number])
            done, rest = divmod(row - end, step)
            if not rest and done >= 0:
                self._finish(f, places, group, [sums[done, k] for k in range(len(group.parts))], done, first[1])
        f.give()
        return f"@{name}"

    def _weight(self, f: Function, number: int) -> Value:
        scalar = f.load(f.args[2], MEMORY[self.dtype], number * WIDTH[self.dtype])
        return self.arith.wide(f.splat(scalar, self.arith.lanes), self.dtype)

    def _finish(self, f: Function, places: Any, group: Group, sums: list[Value], row: int, col: int | None) -> None:
        """What becomes of the sums of a row's places, by parts, side by side in the destination."""
        p, lanes, (image, channel, first, start) = self.problem, self.arith.lanes, f.args[3:]
        step = p.step_out[1]
        down = first * p.step_out[0] + (row * p.step_out[0] + group.parts[0].out0[0])
        vectors = sums
        if step == 2:
            both = sums[0], sums[-1]
            orders = ([i // 2 + (i % 2) * lanes + half for i in range(lanes)] for half in (0, lanes // 2))
            vectors = [f.shuffle(*both, order) for order in orders]
        for v, value in enumerate(vectors):
            mask = None
            if col is not None:
                there = [col * step + v * lanes + i < p.target[1] for i in range(lanes)]
                if not any(there):
                    continue
                mask = lanes_where(f, there)
            axes = {"n": image, "h": down, "w": start * step + v * lanes, "o": channel}
            self.tail.vectors(f, places, [axes], [value], mask, self.arith)


@dataclass
class PlanesWeight:
    """The weight gradient. buffers: numbers of x and dy; `tail` writes, along the kernel's elements."""

    spec: Spec
    schedule: PlaneSchedule
    target: Target
    dtype: str
    buffers: tuple[int, int]
    tail: Tail
    module: Module = field(default_factory=Module)

    def __post_init__(self) -> None:
        self.arith = replace(arith(self.target, "f32"), lanes=self.schedule.lanes)
        spec, self.taps = self.spec, weight_gradient_taps(self.spec)
        self.group = Group((Part(*spec.out, (0, 0), self.taps),))
        self.sums = len(self.taps) * self.arith.bytes
        source, given = (*spec.size, spec.channels), (*spec.out, spec.channels)
        self.problem = Problem(
            spec.n, source, given, spec.channels, spec.stride, (1, 1), self.group.parts, len(self.taps), False
        )

    def build(self) -> list[Phase]:
        """Write the functions; returns the phases."""
        spec, s, size, total = self.spec, self.schedule, WIDTH[self.dtype], self.spec.channels
        f = Function(self.module, "accumulate", ["ptr", "i64", "ptr"])
        buffers, task, sums = f.args
        x, dy = (f.load(buffers, "ptr", 8 * i) for i in self.buffers)
        first, end = task * total // s.tasks, (task + 1) * total // s.tasks
        with f.loop(0, (end - first) * self.sums, self.arith.bytes) as at:
            f.store(f.constant(0.0, self.arith.vector), sums, at)
        grid = _Grid(self.problem, self.group, s)
        with f.loop(0, spec.n) as image, f.loop(first, end) as channel:
            number = image * total + channel
            plane = f.offset(x, number * (spec.size[0] * spec.size[1] * size))
            given = f.offset(dy, number * (spec.out[0] * spec.out[1] * size))
            own = f.offset(sums, (channel - first) * self.sums)
            for (row, col), known, high in grid.strips(f):
                at = f.offset(plane, (row * (spec.stride[0] * spec.size[1]) + col * spec.stride[1]) * size)
                dy_at = f.offset(given, (row * spec.out[1] + col) * size)
                f.call(self._strip(known, high), "void", at, dy_at, own)
        self._totals(f, sums, first, end)
        f.give()
        return [Phase("accumulate", s.tasks)]

    def _strip(self, first: tuple[int | None, int | None], high: int) -> str:
        """void(x and dy at the first place, sums)"""
        name = f"strip_{high}" + "".join(f"_{'any' if at is None else at}" for at in first)
        if any(g.name == name for g in self.module.functions):
            return f"@{name}"
        f = Function(self.module, name, ["ptr"] * 3, linkage="internal", attrs="noinline")
        spec, how, step = self.spec, self.arith, self.spec.stride[0]
        count = how.lanes if first[1] is None else min(how.lanes, spec.out[1] - first[1])
        low, end = self.group.reach(0)
        x = RowVectors(f, how, self.dtype, spec.size, spec.stride, f.args[0], first, self.group.reach(1)[0], count)
        dy = RowVectors(f, how, self.dtype, spec.out, (1, 1), f.args[1], (None, None), 0, count)
        sums = {t: f.load(f.args[2], how.vector, t.number * how.bytes) for t in self.taps}
        for row in range(low, (high - 1) * step + end + 1):
            for tap in self.taps:
                i, rest = divmod(row - tap.row, step)
                if not rest and 0 <= i < high:
                    sums[tap] = how.add(f, sums[tap], x.value(row, tap.col), dy.value(i, 0))
        for tap, value in sums.items():
            f.store(value, f.args[2], tap.number * how.bytes)
        f.give()
        return f"@{name}"

    def _totals(self, f: Function, sums: Value, first: Value, end: Value) -> None:
        """The lanes of the sums together, and what becomes of them."""
        taps, how = len(self.taps), self.arith
        places = self.tail.places(f, f.args[0])
        room = f.alloca("float", taps + how.lanes)
        with f.loop(first, end) as channel:
            own = f.offset(sums, (channel - first) * self.sums)
            with f.loop(0, taps) as tap:
                f.store(f.total(f.load(own, how.vector, tap * how.bytes)), room, tap * 4)
            for start in range(0, taps, how.lanes):
                mask = lanes_where(f, [start + i < taps for i in range(how.lanes)])
                at = {"o": channel, "r": f.i64(start)}
                self.tail.vector(f, places, at, f.load(room, how.vector, start * 4), mask, how)
