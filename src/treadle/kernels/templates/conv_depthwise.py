"""Convolutions with one input and one output channel in a group, and their gradients, for channels-last images.

Vectors run along channels. A task copies some rows of an image, padded and widened to f32, into scratch; outputs and
data gradients then take a few places of a row at a time, weight gradients keep the sums of a row of the kernel in
registers. Weights are laid out as [tap][channel], as f32, in the workspace first.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from treadle.kernels.launch import Phase
from treadle.kernels.llvm import Function, Module, Value
from treadle.kernels.target import Target
from treadle.kernels.templates.conv_finish import Tail, TileTail
from treadle.kernels.templates.conv_grad_sums import sums as sums_of
from treadle.kernels.templates.conv_micro import WIDTH, Arith, arith
from treadle.kernels.templates.conv_pack import Copy, square, transposed
from treadle.kernels.templates.conv_shape import Part, Problem, Spec, weight_gradient_taps
from treadle.kernels.templates.conv_sums import Moments, Sums, Waiting


@dataclass(frozen=True)
class DepthwiseSchedule:
    """width: places that are computed together; rows: of the grid, of a task; splits: of the weight gradient's sums;
    copy: the source is copied into padded tiles (else see conv_depthwise_rows and conv_depthwise_weight); blocks: of
    channels, for each of which the weight gradient's places are shared by `splits` tasks."""

    width: int
    rows: int
    splits: int = 1
    copy: bool = True
    blocks: int = 1

    def __str__(self) -> str:
        blocks = f" blocks {self.blocks}" * (self.blocks > 1)
        return f"depthwise {self.width} rows {self.rows} splits {self.splits}" + blocks + " copied" * self.copy


def _arith(target: Target) -> Arith:
    return arith(target, "f32")


@dataclass
class Depthwise:
    """Outputs or data gradients. buffers: numbers of source, weights, target (-1: `tail` writes) and workspace;
    moments: wanted of what is written."""

    problem: Problem
    schedule: DepthwiseSchedule
    target: Target
    dtype: str
    buffers: tuple[int, int, int, int]
    tail: Tail | None = None
    planar: bool = False
    moments: Moments | None = None
    module: Module = field(default_factory=Module)

    def __post_init__(self) -> None:
        p = self.problem
        self.arith = _arith(self.target)
        self.channels = p.source[2]
        self.columns = -(-self.channels // self.arith.lanes)
        (self.top, self.bottom), (self.first, end) = p.reach()
        most = max([part.cols for part in p.parts])
        width = max((most - 1) * p.step_in[1] + end - self.first + 1, 1)
        self.in_rows = (self.schedule.rows - 1) * p.step_in[0] + self.bottom - self.top + 1
        self.copy = _padded(self.arith, width, self.channels, p.source, -self.first, self.dtype, self.planar)
        self.blocks = -(-max([part.rows for part in p.parts]) // self.schedule.rows)
        self.line = self.columns * self.arith.bytes

    @property
    def workspace(self) -> int:
        """Bytes: the weights, and the tasks' moments."""
        return self.problem.taps * self.line + (0 if self.moments is None else self._sums_of(self.moments).bytes)

    def _sums_of(self, moments: Moments) -> Sums:
        p, at = self.problem, self.problem.taps * self.line
        return sums_of(moments, self.arith, p.target[2], p.n * self.blocks, (self.buffers[3], at))

    def scratch(self) -> int:
        """Bytes of scratch that a task needs."""
        return self.in_rows * self.copy.row_bytes + 256

    def build(self) -> list[Phase]:
        """Write the functions; returns the phases."""
        self._weights()
        self.tile_tail: TileTail | None = self._tile_tail()
        f = Function(self.module, "convolve", ["ptr", "i64", "ptr"])
        p, (buffers, task, scratch) = self.problem, f.args
        block, image = task % self.blocks, task // self.blocks
        first = block * self.schedule.rows
        source = f.load(buffers, "ptr", 8 * self.buffers[0])
        source = f.offset(source, image * (p.source[0] * p.source[1] * p.source[2] * WIDTH[self.dtype]))
        sums, waiting = None if self.moments is None else self._sums_of(self.moments), Waiting(f)
        if sums is not None:
            sums.begin(f, scratch)
        self._begin(f, source, first)
        last = max([part.rows for part in p.parts])
        with f.loop(first, f.min_int(first + self.schedule.rows, last)) as row:
            for number, part in enumerate(p.parts):  # all of a row of the grid: what they read and write is still near
                with f.when(f.compare("slt", row, part.rows)) if part.rows < last else nullcontext():
                    self._row(f, number, part, source, (image, first, row))
            if sums is not None:
                down = row * p.step_out[0]
                rows = f.min_int(f.i64(p.target[0]) - down, p.step_out[0])
                run = (image * p.target[0] + down) * p.target[1], rows * p.target[1]
                waiting.add(*run, *[f.i64(n) for n in (0, self.channels, self.columns)])
        if sums is not None:
            waiting.flush()
            sums.end(f, scratch, task, 0, self.columns)
            sums.write(self.module)
        f.give()
        phases = [Phase("weights", self.columns), Phase("convolve", p.n * self.blocks)]
        return phases if sums is None else [*phases, sums.phase(self.module)]

    def _begin(self, f: Function, source: Value, first: Value) -> None:
        """What a task does before its rows, the first of which is given."""
        self.copy.write(f, source, f.args[2], first * self.problem.step_in[0] + self.top, f.i64(self.in_rows))

    def _row(self, f: Function, number: int, part: Part, source: Value, at: tuple[Value, Value, Value]) -> None:
        """One row of places. at: image, the task's first row, the row."""
        image, first, row = at
        start = f.offset(f.args[2], (row - first) * (self.problem.step_in[0] * self.copy.row_bytes))
        edge = part.cols % self.schedule.width
        if part.cols >= self.schedule.width:
            with f.loop(0, part.cols - edge, self.schedule.width) as col:
                self._places(f, number, part, start, (image, row, col), self.schedule.width)
        if edge:
            self._places(f, number, part, start, (image, row, f.i64(part.cols - edge)), edge)

    def _tile_tail(self) -> TileTail | None:
        """What finishes places where vectors of the outputs run along their rows, not along the channels."""
        if self.tail is None or self.tail.last:
            return None
        pitch = self.schedule.width * self.arith.bytes, self.arith.bytes
        made = TileTail(self.tail, self.arith, self.problem.step_out, pitch, True)
        made.write(self.module, "finish")
        return made

    def _weights(self) -> None:
        """[tap][channel] from [channel][tap]."""
        f = Function(self.module, "weights", ["ptr", "i64", "ptr"])
        buffers, task, _ = f.args
        taps, lanes = self.problem.taps, self.arith.lanes
        source, out = f.load(buffers, "ptr", 8 * self.buffers[1]), f.load(buffers, "ptr", 8 * self.buffers[3])
        first = task * lanes
        with f.loop(0, taps, lanes) as t:
            start = f.offset(source, (first * taps + t) * WIDTH[self.dtype])
            rows = square(f, self.arith, self.dtype, start, taps, (self.channels - first, taps - t))
            for i, value in enumerate(transposed(f, rows)):
                with f.when(f.compare("slt", t + i, taps)):
                    f.store(value, out, (t + i) * self.line + first * 4)
        f.give()

    def _places(
        self, f: Function, number: int, part: Part, row: Value, at: tuple[Value, Value, Value], count: int
    ) -> None:
        """All channels of some places of a row: whole vectors, then the channels left."""
        name = f"places_{number}_{count}"
        if all(g.name != name for g in self.module.functions):
            self._write(name, part, count)
        col = at[2] * (self.problem.step_in[1] * self.copy.pitch * 4)
        f.call(f"@{name}", "void", f.args[0], f.offset(row, col), *at)

    def _write(self, name: str, part: Part, count: int) -> None:
        """void(buffers, source, image, row, col)"""
        f = Function(self.module, name, ["ptr", "ptr", "i64", "i64", "i64"], linkage="internal", attrs="noinline")
        buffers, source, image, row, col = f.args
        weights = f.load(buffers, "ptr", 8 * self.buffers[3])

        def sums(channel: Value, _mask: Value | None) -> list[Value]:
            return self._sums(f, part, f.offset(source, channel * 4), f.offset(weights, channel * 4), count)

        self._all_channels(f, part, (image, row, col), count, sums)
        f.give()

    def _all_channels(
        self, f: Function, part: Part, at: tuple[Value, Value, Value], count: int,
        sums_of: Callable[[Value, Value | None], list[Value]],
    ) -> None:  # fmt: skip
        """Loops over the channels of some places of a row: sums by vectors of channels, and what becomes of them."""
        buffers, (image, row, col) = f.args[0], at
        p, lanes = self.problem, self.arith.lanes
        down, right = row * p.step_out[0] + part.out0[0], col * p.step_out[1] + part.out0[1]
        places: Any = self.tail.places(f, buffers) if self.tail and self.tail.last else None
        out = f.load(buffers, "ptr", 8 * self.buffers[2]) if self.tail is None else None
        room = f.alloca(self.arith.vector, count) if self.tile_tail else None
        whole, rest = divmod(self.channels, lanes)

        def columns(channel: Value, mask: Value | None) -> None:
            sums = sums_of(channel, mask)
            if room is not None:
                for j, total in enumerate(sums):
                    f.store(total, room, j * self.arith.bytes)
                ends = [channel, f.i64(self.channels) - channel, *[f.i64(n) for n in (1, count, 1)]]
                f.call("@finish", "void", buffers, room, image, down, right, *ends)
                return
            heres = [right + j * p.step_out[1] for j in range(count)]
            if self.moments is not None and self.moments.other >= 0:
                x = f.load(buffers, "ptr", 8 * self.moments.other)  # read when whole rows are there
                for here in heres:
                    place = ((image * p.target[0] + down) * p.target[1] + here) * p.target[2] + channel
                    f.prefetch(f.offset(x, place * WIDTH[self.dtype]), locality=2)
            if self.tail is not None:
                axes = [{"n": image, "h": down, "w": here, "o": channel} for here in heres]
                self.tail.vectors(f, places, axes, sums, mask, self.arith)
                return
            for here, total in zip(heres, sums, strict=True):
                place = ((image * p.target[0] + down) * p.target[1] + here) * p.target[2] + channel
                to = f.offset(out, place * WIDTH[self.dtype])  # type: ignore[arg-type]
                value = self.arith.narrow(total, self.dtype)
                f.store(value, to) if mask is None else f.store_masked(value, to, mask)

        if whole:
            with f.loop(0, whole * lanes, lanes) as channel:
                columns(channel, None)
        if rest:
            columns(f.i64(whole * lanes), f.mask(f.i64(rest), lanes))

    def _sums(self, f: Function, part: Part, source: Value, weights: Value, count: int) -> list[Value]:
        """A vector of channels of each place."""
        step = self.problem.step_in[1]
        sums: list[Value] = [f.constant(0.0, self.arith.vector)] * count
        loaded: dict[tuple[int, int], Value] = {}
        for tap in part.taps:
            weight = f.load(weights, self.arith.vector, tap.number * self.line)
            for j in range(count):
                at = tap.row - self.top, j * step + tap.col - self.first
                if at not in loaded:
                    place = at[0] * self.copy.row_bytes + at[1] * self.copy.pitch * 4
                    loaded[at] = f.load(source, self.arith.vector, place)
                sums[j] = self.arith.add(f, sums[j], loaded[at], weight)
        return sums


def _padded(
    how: Arith, width: int, channels: int, source: tuple[int, int, int], left: int, dtype: str, planar: bool
) -> Copy:
    return Copy(
        how, width=width, pitch=channels, channels=channels, of=channels, columns=source[1], rows=source[0], left=left,
        dtype=dtype, wide=dtype != "f32", planar=planar,
    )  # fmt: skip


@dataclass
class DepthwiseWeight:
    """The weight gradient. buffers: numbers of x, dy, dw (-1: `tail` writes) and workspace."""

    spec: Spec
    schedule: DepthwiseSchedule
    target: Target
    dtype: str
    buffers: tuple[int, int, int, int]
    tail: Tail | None = None
    planar: bool = False
    module: Module = field(default_factory=Module)

    def __post_init__(self) -> None:
        spec = self.spec
        self.arith = _arith(self.target)
        self.channels, lanes = spec.channels, self.arith.lanes
        self.columns = -(-self.channels // lanes)
        self.line = self.columns * self.arith.bytes
        self.taps = weight_gradient_taps(spec)
        self.top, self.first = min(t.row for t in self.taps), min(t.col for t in self.taps)
        width = (spec.out[1] - 1) * spec.stride[1] + max(t.col for t in self.taps) - self.first + 1
        self.in_rows = (self.schedule.rows - 1) * spec.stride[0] + max(t.row for t in self.taps) - self.top + 1
        source = (*spec.size, spec.channels)
        self.copy = _padded(self.arith, width, self.channels, source, -self.first, self.dtype, self.planar)
        self.blocks = -(-spec.out[0] // self.schedule.rows)
        self.sums = len(self.taps) * self.line

    @property
    def workspace(self) -> int:
        """Bytes: the sums of all splits."""
        return self.schedule.splits * self.sums

    def scratch(self) -> int:
        """Bytes of scratch that a task needs."""
        return max(self.in_rows * self.copy.row_bytes, (len(self.taps) + self.arith.lanes) * self.arith.lanes * 8) + 256

    def build(self) -> list[Phase]:
        """Write the functions; returns the phases."""
        f, spec, s = Function(self.module, "accumulate", ["ptr", "i64", "ptr"]), self.spec, self.schedule
        buffers, task, scratch = f.args
        x, dy, work = (f.load(buffers, "ptr", 8 * self.buffers[i]) for i in (0, 1, 3))
        sums, units = f.offset(work, task * self.sums), spec.n * self.blocks
        with f.loop(0, self.sums, self.arith.bytes) as at:
            f.store(f.constant(0.0, self.arith.vector), sums, at)
        with f.loop(task * units // s.splits, (task + 1) * units // s.splits) as unit:
            image, row = unit // self.blocks, unit % self.blocks * s.rows
            source = f.offset(x, image * (spec.size[0] * spec.size[1] * self.channels * WIDTH[self.dtype]))
            self.copy.write(f, source, scratch, row * spec.stride[0] + self.top, f.i64(self.in_rows))
            place = (image * spec.out[0] + row) * (spec.out[1] * self.channels * WIDTH[self.dtype])
            rows = f.min_int(f.i64(spec.out[0]) - row, s.rows)
            for kernel_row in range(spec.kernel[0]):
                self._row(f, kernel_row, scratch, f.offset(dy, place), sums, rows)
        f.give()
        return [Phase("accumulate", s.splits), self._total()]

    def _row(self, f: Function, number: int, x: Value, dy: Value, sums: Value, rows: Value) -> None:
        """The sums of one row of the kernel, for all channels."""
        spec, lanes, how = self.spec, self.arith.lanes, self.arith
        taps = self.taps[number * spec.kernel[1] : (number + 1) * spec.kernel[1]]
        count = 2 if spec.out[1] % 2 == 0 else 1
        with f.loop(0, self.channels, lanes) as channel:
            mask = f.mask(self.channels - channel, lanes) if self.channels % lanes else None
            kept = [f.variable(how.vector, f.load(sums, how.vector, t.number * self.line + channel * 4)) for t in taps]
            with f.loop(0, rows) as row, f.loop(0, spec.out[1], count) as col:
                place = ((row * spec.out[1] + col) * self.channels + channel) * WIDTH[self.dtype]
                given = [
                    how.load(f, f.offset(dy, place, j * self.channels * WIDTH[self.dtype]), self.dtype, mask)
                    for j in range(count)
                ]
                start = (row * spec.stride[0] + (taps[0].row - self.top)) * self.copy.row_bytes + channel * 4
                here = f.offset(x, start, col * (spec.stride[1] * self.copy.pitch * 4))
                for j in range(count):
                    for tap, total in zip(taps, kept, strict=True):
                        at = (j * spec.stride[1] + tap.col - self.first) * self.copy.pitch * 4
                        total.set(how.add(f, total.get(), given[j], f.load(here, how.vector, at)))
            for tap, total in zip(taps, kept, strict=True):
                f.store(total.get(), sums, tap.number * self.line + channel * 4)

    def _total(self) -> Phase:
        """The splits' sums together, [tap][channel] to [channel][tap]; tasks are vectors of channels."""
        f, lanes, taps = Function(self.module, "total", ["ptr", "i64", "ptr"]), self.arith.lanes, len(self.taps)
        buffers, task, scratch = f.args
        how, work = self.arith, f.load(buffers, "ptr", 8 * self.buffers[3])
        places = self.tail.places(f, buffers) if self.tail else None
        out = f.load(buffers, "ptr", 8 * self.buffers[2]) if self.tail is None else f.null()
        padded = -(-taps // lanes) * lanes
        with f.loop(0, padded) as t:
            total = f.variable(how.vector, 0.0)
            tap = f.min_int(t, taps - 1)
            with f.loop(0, self.schedule.splits) as split:
                place = split * self.sums + tap * self.line + task * how.bytes
                total.set(total.get() + f.load(work, how.vector, place))
            f.store(total.get(), scratch, t * how.bytes)
        turned = f.offset(scratch, padded * how.bytes)
        with f.loop(0, padded, lanes) as t:
            rows = [f.load(scratch, how.vector, (t + i) * how.bytes) for i in range(lanes)]
            for i, value in enumerate(transposed(f, rows)):
                f.store(value, turned, (t + i * padded) * 4)
        with f.loop(0, f.min_int(self.channels - task * lanes, lanes)) as c, f.loop(0, taps, lanes) as t:
            value = f.load(turned, how.vector, (c * padded + t) * 4)
            some, channel = f.mask(f.i64(taps) - t, lanes), task * lanes + c
            if self.tail is not None and places is not None:
                self.tail.vector(f, places, {"o": channel, "r": t}, value, some, how)
            else:
                to = f.offset(out, (channel * taps + t) * WIDTH[self.dtype])
                f.store_masked(how.narrow(value, self.dtype), to, some)
        f.give()
        return Phase("total", self.columns)
