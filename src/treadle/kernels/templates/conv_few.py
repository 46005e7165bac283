"""First layers: convolutions of few channels, with the channels second in what they read and in what they write.

Vectors run along the rows of the destination. A task copies the rows of the source that some rows of an image read into
scratch, padded, of every second column those columns apart; then a few outputs of some vectors of a row are summed in
registers, each weight being read from where it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from treadle.kernels.launch import Phase
from treadle.kernels.llvm import Function, Module, Value
from treadle.kernels.target import Target
from treadle.kernels.templates.conv_finish import Tail
from treadle.kernels.templates.conv_micro import arith
from treadle.kernels.templates.conv_planes import Pieces, RowVectors, lanes_where, pieces
from treadle.kernels.templates.conv_shape import Problem

MOST_CHANNELS, MOST_ACROSS = 4, 11  # of the source, and columns of the kernel, whose code is written out
ROOM = 1 << 20  # bytes of scratch
OUTPUTS = 4  # that are summed together


@dataclass(frozen=True)
class FewSchedule:
    """rows: of the destination, of a task; vectors: of a row that are summed together."""

    rows: int
    vectors: int

    def __str__(self) -> str:
        return f"few channels rows {self.rows} vectors {self.vectors}"


def few_schedules(p: Problem, target: Target, dtype: str) -> list[FewSchedule]:
    """The schedule of a convolution (no gradient) of float32 that is taken; [] of others."""
    across = len({t.col for t in p.parts[0].taps})
    if dtype != "f32" or p.backward or p.groups > 1 or p.inner > MOST_CHANNELS or p.step_in[1] > 2:
        return []
    if len(p.parts) > 1 or p.step_out != (1, 1) or across > MOST_ACROSS:
        return []
    rows = min(max(-(-p.target[0] * p.n // (32 * target.cores)), 4), p.target[0])
    schedule = FewSchedule(-(-p.target[0] // -(-p.target[0] // rows)), 4 if target.registers == 32 else 2)
    few = Few(p, schedule, target, dtype, (0, 1))
    return [schedule] if few.scratch() <= ROOM and len(few.filled.known) <= 6 else []


@dataclass
class Few:
    """buffers: numbers of source and weights; `tail` writes, along rows."""

    problem: Problem
    schedule: FewSchedule
    target: Target
    dtype: str
    buffers: tuple[int, int]
    tail: Tail | None = None
    module: Module = field(default_factory=Module)

    def __post_init__(self) -> None:
        p, self.arith = self.problem, arith(self.target, "f32")
        self.taps, lanes = p.parts[0].taps, self.arith.lanes
        (self.top, bottom), (self.first, last) = p.reach()
        self.step, self.cols = p.step_in[1], p.target[1]
        self.in_rows = (self.schedule.rows - 1) * p.step_in[0] + bottom - self.top + 1
        more = (last - self.first) // self.step
        self.filled = self._filled(self.cols + more)
        self.line = (-(-self.cols // lanes) + -(-more // lanes)) * self.arith.bytes  # of columns that are side by side
        self.row = self.step * self.line
        self.blocks = -(-p.target[0] // self.schedule.rows)

    def _filled(self, count: int) -> Pieces:
        lanes, step, inside = self.arith.lanes, self.step, self.problem.source[1]
        return pieces(
            count, lanes, lambda s: s * step + self.first >= 0 and (s + lanes) * step - 1 + self.first < inside
        )

    def scratch(self) -> int:
        """Bytes of scratch that a task needs."""
        return self.problem.inner * self.in_rows * self.row + self.arith.bytes

    def build(self) -> list[Phase]:
        """Write the functions; returns the phases."""
        p, s = self.problem, self.schedule
        f = Function(self.module, "convolve", ["ptr", "i64", "ptr"])
        buffers, task, scratch = f.args
        image, first = task // self.blocks, task % self.blocks * s.rows
        source, weights = (f.load(buffers, "ptr", 8 * i) for i in self.buffers)
        rows = f.min_int(f.i64(p.target[0]) - first, s.rows)
        self.copy(f, f.offset(source, image * (p.inner * p.source[0] * p.source[1] * 4)), scratch, first, rows)
        high, vectors = p.outer // OUTPUTS * OUTPUTS, -(-self.cols // self.arith.lanes)
        for start, stop, outputs in ((0, high, OUTPUTS), (high, p.outer, max(p.outer - high, 1))):
            if start == stop:
                continue
            with f.loop(start, stop, outputs) as output, f.loop(0, rows) as row:
                own = f.offset(weights, output * (p.inner * p.taps * 4))
                line = f.offset(scratch, row * (p.step_in[0] * self.row))
                full = (vectors - 1) // s.vectors * s.vectors
                if full:
                    with f.loop(0, full, s.vectors) as v:
                        self._call(f, (s.vectors, outputs, False), line, own, (image, first + row, v, output))
                self._call(f, (vectors - full, outputs, True), line, own, (image, first + row, f.i64(full), output))
        f.give()
        return [Phase("convolve", p.n * self.blocks)]

    def copy(self, f: Function, image: Value, scratch: Value, first: Value, rows: Value) -> None:
        """The rows that so many rows from the first one on read."""
        p = self.problem
        count = f.min_int((rows - 1) * p.step_in[0] + (self.in_rows - (self.schedule.rows - 1) * p.step_in[0]),
                          self.in_rows)  # fmt: skip
        with f.loop(0, p.inner) as channel, f.loop(0, count) as y:
            row = first * p.step_in[0] + self.top + y
            to = f.offset(scratch, (channel * self.in_rows + y) * self.row)
            there = f.compare("ult", row, p.source[0])
            with f.when(there):
                line = f.offset(image, (channel * p.source[0] + row) * (p.source[1] * 4))
                for start, known, _ in self.filled.each(f):
                    at = f.offset(line, start * (self.step * 4))
                    lanes = self.arith.lanes
                    x = RowVectors(f, self.arith, self.dtype, p.source[:2], (1, self.step), at, (None, known),
                                   self.first, lanes)  # fmt: skip
                    for phase in range(self.step):
                        f.store(x.value(0, self.first + phase), to, start * 4 + phase * self.line)
            with f.when(f.compare("uge", row, p.source[0])), f.loop(0, self.row, self.arith.bytes) as at:
                f.store(f.constant(0.0, self.arith.vector), to, at)

    def _call(
        self, f: Function, form: tuple[int, int, bool], line: Value, weights: Value,
        at: tuple[Value, Value, Value, Value],
    ) -> None:  # fmt: skip
        """at: image, row, first vector, first output."""
        name = f"places_{form[0]}_{form[1]}" + "_end" * form[2]
        if all(g.name != name for g in self.module.functions):
            self._write(name, *form)
        f.call(f"@{name}", "void", f.args[0], f.offset(line, at[2] * self.arith.bytes), weights, *at)

    def _write(self, name: str, vectors: int, outputs: int, end: bool) -> None:
        """void(buffers, source, weights, image, row, vector, output): some vectors of a row by some outputs. end: they
        are the last ones."""
        f = Function(self.module, name, ["ptr"] * 3 + ["i64"] * 4, linkage="internal", attrs="noinline")
        p, how = self.problem, self.arith
        columns = list(dict.fromkeys(t.col for t in self.taps))
        down = list(dict.fromkeys(t.row for t in self.taps))
        apart = (down[1] - down[0]) * self.row if len(down) > 1 else 0
        sums = [[f.variable(how.vector, 0.0) for _ in range(vectors)] for _ in range(outputs)]
        with f.loop(0, p.inner) as channel, f.loop(0, len(down)) as a:
            x = f.offset(f.args[1], channel * (self.in_rows * self.row), a * apart)
            own = f.offset(f.args[2], (channel * len(down) + a) * (len(columns) * 4))
            for b, col in enumerate(columns):
                to, phase = divmod(col - self.first, self.step)
                row = [f.load(x, how.vector, phase * self.line + to * 4 + v * how.bytes) for v in range(vectors)]
                for o, totals in enumerate(sums):
                    weight = f.splat(f.load(own, "float", (o * p.inner * p.taps + b) * 4), how.lanes)
                    for total, value in zip(totals, row, strict=True):
                        total.set(how.add(f, total.get(), value, weight))
        self._finish(f, sums_of=[[t.get() for t in totals] for totals in sums], end=end)
        f.give()

    def _finish(self, f: Function, sums_of: list[list[Value]], end: bool) -> None:
        """What becomes of a tile's sums [output][vector]."""
        assert self.tail is not None
        lanes, (image, row, first, output) = self.arith.lanes, f.args[3:]
        places, rest = self.tail.places(f, f.args[0]), self.cols % self.arith.lanes
        for o, sums in enumerate(sums_of):
            for v, value in enumerate(sums):
                last = end and v == len(sums) - 1 and rest
                mask = lanes_where(f, [i < rest for i in range(lanes)]) if last else None
                at = {"n": image, "h": row, "w": (first + v) * lanes, "o": output + o}
                self.tail.vectors(f, places, [at], [value], mask, self.arith)
