"""Weight gradients of depthwise convolutions that read both images where they are, all taps of a channel at once.

A task has some vectors of channels and some bands of rows. For a band and a vector of channels the sums of as many rows
of the kernel as registers hold are kept while places pass; rows beyond the image are had as zeros, columns beyond it as
in conv_depthwise_rows. What the next band needs is asked for meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass

from treadle.kernels.launch import Phase
from treadle.kernels.llvm import Function, Value, Variable
from treadle.kernels.templates.conv_depthwise import DepthwiseWeight
from treadle.kernels.templates.conv_micro import WIDTH
from treadle.kernels.templates.conv_shape import Tap

PRODUCTS = 160  # that are written out for a tile of places


def rows_at_once(kernel: tuple[int, int], registers: int) -> int:
    """Rows of the kernel whose sums are in registers together, beside what they are made of; 0: not even one."""
    return min((registers - 5) // kernel[1], kernel[0])


@dataclass
class DepthwiseWeightRows(DepthwiseWeight):
    """The fields are those of DepthwiseWeight; planar must be False. The schedule's width must be one that
    conv_depthwise_rows.fits allows, and rows_at_once not 0."""

    def scratch(self) -> int:
        """Bytes of scratch that a task needs: a row of zeros, or what adds up the sums."""
        sums = (len(self.taps) + self.arith.lanes) * self.arith.lanes * 8
        return max(self._row_bytes(self.spec.size[1]), sums) + 256

    def _row_bytes(self, places: int) -> int:
        return places * self.channels * WIDTH[self.dtype]

    def build(self) -> list[Phase]:
        """Write the functions; returns the phases."""
        spec, s, how = self.spec, self.schedule, self.arith
        high = rows_at_once(spec.kernel, self.target.registers)
        groups = [self.taps[i : i + high * spec.kernel[1]] for i in range(0, len(self.taps), high * spec.kernel[1])]
        f = Function(self.module, "accumulate", ["ptr", "i64", "ptr"])
        buffers, task, scratch = f.args
        x, dy, work = (f.load(buffers, "ptr", 8 * self.buffers[i]) for i in (0, 1, 3))
        split, block, units = task % s.splits, task // s.splits, spec.n * self.blocks
        ends = [(block + i) * self.columns // s.blocks * how.lanes for i in (0, 1)]
        sums = f.offset(work, split * self.sums)
        with f.loop(0, len(self.taps)) as tap, f.loop(ends[0], ends[1], how.lanes) as channel:
            f.store(f.constant(0.0, how.vector), sums, tap * self.line + channel * 4)
        with f.loop(0, self._row_bytes(spec.size[1]), how.bytes) as at:
            f.store(f.constant(0.0, how.vector), scratch, at)
        with f.loop(split * units // s.splits, (split + 1) * units // s.splits) as unit:
            image, row = unit // self.blocks, unit % self.blocks * s.rows
            rows = f.min_int(f.i64(spec.out[0]) - row, s.rows)
            source = f.offset(x, image * (spec.size[0] * self._row_bytes(spec.size[1])))
            given = f.offset(dy, (image * spec.out[0] + row) * self._row_bytes(spec.out[1]))
            for taps in groups:
                name = self._band(taps)
                f.call(name, "void", source, given, sums, scratch, row, rows, *ends)
        f.give()
        return [Phase("accumulate", s.splits * s.blocks), self._total()]

    def _band(self, taps: tuple[Tap, ...]) -> str:
        """void(x, dy, sums, zeros, first row, rows, first channel, end): dy is at its first row."""
        name, how, lanes = f"band_{taps[0].number}", self.arith, self.arith.lanes
        if any(g.name == name for g in self.module.functions):
            return f"@{name}"
        params = ["ptr", "ptr", "ptr", "ptr", *["i64"] * 4]
        f = Function(self.module, name, params, linkage="internal", attrs="noinline")
        first, end = f.args[6:]
        full = f.i64(self.channels // lanes * lanes)

        def column(channel: Value, mask: Value | None) -> None:
            place = f.offset(f.args[2], channel * 4)
            kept = {t: f.variable(how.vector, f.load(place, how.vector, t.number * self.line)) for t in taps}
            with f.loop(0, f.args[5]) as row:
                self._row_of(f, row, channel, mask, kept)
            for t, total in kept.items():
                f.store(total.get(), place, t.number * self.line)

        with f.loop(first, f.min_int(end, full), lanes) as channel:
            column(channel, None)
        if self.channels % lanes:
            with f.when(f.compare("sgt", end, full)):
                column(full, f.mask(f.i64(self.channels % lanes), lanes))
        f.give()
        return f"@{name}"

    def _row_of(self, f: Function, row: Value, channel: Value, mask: Value | None, kept: dict[Tap, Variable]) -> None:
        """A row of places: those between the first and the last tile, then these."""
        spec, width = self.spec, self.schedule.width
        pitch, size = self._row_bytes(spec.size[1]), WIDTH[self.dtype]
        x = {}
        for tap_row in dict.fromkeys(t.row for t in kept):
            there = (f.args[4] + row) * spec.stride[0] + tap_row
            inside = f.compare("ult", there, spec.size[0])
            x[tap_row] = f.offset(f.select(inside, f.offset(f.args[0], there * pitch), f.args[3]), channel * size)
        dy = f.offset(f.args[1], row * self._row_bytes(spec.out[1]), channel * size)
        ahead = None
        if any(t.number == 0 for t in kept):
            below = (f.args[4] + row + self.schedule.rows) * spec.stride[0] + self.taps[-1].row + 1 - spec.stride[0]
            ahead = f.offset(f.args[0], below * pitch, channel * size)
        last = (spec.out[1] - 1) // width * width
        if last > width:
            with f.loop(width, last, width) as col:
                self._ask(f, ahead, dy, col, width)
                here = {r: self._right(f, p, col * spec.stride[1]) for r, p in x.items()}
                self._tile(f, here, self._right(f, dy, col), (None, width), mask, kept)
        for at in dict.fromkeys((0, last)):
            here = {r: self._right(f, p, f.i64(at * spec.stride[1])) for r, p in x.items()}
            count = min(width, spec.out[1] - at)
            self._ask(f, ahead, dy, f.i64(at), count)
            self._tile(f, here, self._right(f, dy, f.i64(at)), (at, count), mask, kept)

    def _right(self, f: Function, pointer: Value, places: Value) -> Value:
        return f.offset(pointer, places * (self.channels * WIDTH[self.dtype]))

    def _ask(self, f: Function, ahead: Value | None, dy: Value, col: Value, count: int) -> None:
        """What the next band will read at a tile's columns. ahead: its row of x."""
        if ahead is None:
            return
        spec, place = self.spec, self.channels * WIDTH[self.dtype]
        below = f.offset(self._right(f, dy, col), self.schedule.rows * self._row_bytes(spec.out[1]))
        for j in range(count):
            f.prefetch(below, j * place, locality=2)
        start = self._right(f, ahead, col * spec.stride[1])
        for i in range(spec.stride[0]):
            for j in range(count * spec.stride[1]):
                f.prefetch(start, i * self._row_bytes(spec.size[1]) + j * place, locality=2)

    def _tile(
        self, f: Function, x: dict[int, Value], dy: Value, tile: tuple[int | None, int], mask: Value | None,
        kept: dict[Tap, Variable],
    ) -> None:  # fmt: skip
        """Some places beside each other. tile: column of the first, where it is known, and their number."""
        spec, how, place = self.spec, self.arith, self.channels * WIDTH[self.dtype]
        col, count = tile
        loaded: dict[tuple[int, int], Value] = {}
        for j in range(count):
            given = how.load(f, f.offset(dy, j * place), self.dtype, mask)
            for tap, total in kept.items():
                at = j * spec.stride[1] + tap.col
                if (tap.row, at) not in loaded:
                    known = None if col is None else col * spec.stride[1] + at
                    if known is None or 0 <= known < spec.size[1]:
                        loaded[tap.row, at] = how.load(f, f.offset(x[tap.row], at * place), self.dtype, mask)
                    else:
                        loaded[tap.row, at] = f.constant(0.0, how.vector)
                total.set(how.add(f, total.get(), given, loaded[tap.row, at]))
