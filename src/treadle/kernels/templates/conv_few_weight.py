"""Weight gradients of first layers: of images with few channels, which come second in both images.

Vectors run along the rows of dy. A task takes some bands of rows of some images: of x a padded copy as in conv_few, of
dy the memory itself. The products of some outputs with all columns of a row of the kernel are summed in registers
through a band, then kept in scratch. At the end lanes are added up, and then tasks, in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from treadle.kernels.launch import Phase
from treadle.kernels.llvm import Function, Module, Value, Variable
from treadle.kernels.target import Target
from treadle.kernels.templates.conv_few import MOST_ACROSS, MOST_CHANNELS, ROOM, Few, FewSchedule
from treadle.kernels.templates.conv_finish import Tail
from treadle.kernels.templates.conv_micro import arith
from treadle.kernels.templates.conv_planes import lanes_where
from treadle.kernels.templates.conv_shape import Spec, forward

BAND = 24 << 10  # bytes of dy that are read again for each row of the kernel
MOST_SUMS = 2 << 20  # bytes


@dataclass(frozen=True)
class FewWeightSchedule:
    """rows: of a band; outputs: that are summed together; splits: tasks."""

    rows: int
    outputs: int
    splits: int

    def __str__(self) -> str:
        return f"few channels rows {self.rows} outputs {self.outputs} splits {self.splits}"


def few_weight_schedules(spec: Spec, target: Target, dtype: str) -> list[FewWeightSchedule]:
    """The schedule of a weight gradient of float32 that is taken; [] of others."""
    if dtype != "f32" or spec.groups > 1 or spec.channels > MOST_CHANNELS or spec.stride[1] > 2:
        return []
    if spec.kernel[1] > MOST_ACROSS:
        return []
    outputs = max(min((target.registers - 5) // spec.kernel[1], 8, spec.outputs), 1)
    most = min(max(BAND // (outputs * spec.out[1] * 4), 1), spec.out[0])
    rows = -(-spec.out[0] // -(-spec.out[0] // most))
    splits = min(spec.n * -(-spec.out[0] // rows), 8 * target.cores)
    schedule = FewWeightSchedule(rows, outputs, splits)
    kernel = FewWeight(spec, schedule, target, dtype, (0, 1, 2))
    fits = kernel.few.scratch() <= ROOM and spec.outputs * kernel.sums <= MOST_SUMS
    return [schedule] if fits and len(kernel.few.filled.known) <= 6 else []


@dataclass
class FewWeight:
    """buffers: numbers of x, dy and workspace; `tail` writes, along the kernel's elements."""

    spec: Spec
    schedule: FewWeightSchedule
    target: Target
    dtype: str
    buffers: tuple[int, int, int]
    tail: Tail | None = None
    module: Module = field(default_factory=Module)

    def __post_init__(self) -> None:
        spec, self.arith = self.spec, arith(self.target, "f32")
        both = self.buffers[0], self.buffers[1]
        few = FewSchedule(self.schedule.rows, 1)
        self.few = Few(forward(spec), few, self.target, self.dtype, both, module=self.module)
        self.run = spec.channels * spec.kernel[0] * spec.kernel[1]  # weights of an output
        self.sums = self.run * self.arith.bytes
        self.line = -(-self.run // self.arith.lanes) * self.arith.bytes
        self.copied = -(-self.few.scratch() // 64) * 64

    @property
    def workspace(self) -> int:
        """Bytes: the tasks' sums, [task][output][weight]."""
        return self.schedule.splits * self.spec.outputs * self.line

    def build(self) -> list[Phase]:
        """Write the functions; returns the phases."""
        spec, s, size = self.spec, self.schedule, self.spec.outputs * self.sums
        f = Function(self.module, "accumulate", ["ptr", "i64", "ptr"])
        buffers, task, scratch = f.args
        x, dy, work = (f.load(buffers, "ptr", 8 * i) for i in self.buffers)
        sums = f.offset(scratch, self.copied)
        with f.loop(0, size, self.arith.bytes) as at:
            f.store(f.constant(0.0, self.arith.vector), sums, at)
        bands = -(-spec.out[0] // s.rows)
        units = spec.n * bands
        with f.loop(task * units // s.splits, (task + 1) * units // s.splits) as unit:
            image, first = unit // bands, unit % bands * s.rows
            rows = f.min_int(f.i64(spec.out[0]) - first, s.rows)
            source = f.offset(x, image * (spec.channels * spec.size[0] * spec.size[1] * 4))
            self.few.copy(f, source, scratch, first, rows)
            given = f.offset(dy, (image * (spec.outputs * spec.out[0]) + first) * (spec.out[1] * 4))
            high = spec.outputs // s.outputs * s.outputs
            for start, stop, outputs in ((0, high, s.outputs), (high, spec.outputs, spec.outputs - high)):
                if start == stop:
                    continue
                with f.loop(start, stop, outputs) as output:
                    own = f.offset(given, output * (spec.out[0] * spec.out[1] * 4))
                    self._call(f, outputs, scratch, own, f.offset(sums, output * self.sums), rows)
        self._lanes(f, sums, f.offset(work, task * (spec.outputs * self.line)))
        f.give()
        return [Phase("accumulate", s.splits), self._total()]

    def _call(self, f: Function, outputs: int, x: Value, dy: Value, sums: Value, rows: Value) -> None:
        name = f"band_{outputs}"
        if all(g.name != name for g in self.module.functions):
            self._write(name, outputs)
        f.call(f"@{name}", "void", x, dy, sums, rows)

    def _write(self, name: str, outputs: int) -> None:
        """void(x, dy, sums, rows): a band by some outputs, a row of the kernel of a channel after the other."""
        f = Function(self.module, name, ["ptr"] * 3 + ["i64"], linkage="internal", attrs="noinline")
        spec, how, few = self.spec, self.arith, self.few
        x, dy, out, rows = f.args
        across, rest = spec.kernel[1], spec.out[1] % how.lanes
        with f.loop(0, spec.channels) as channel, f.loop(0, spec.kernel[0]) as a:
            start = f.offset(x, channel * (few.in_rows * few.row), a * (spec.dilation[0] * few.row))
            place = f.offset(out, (channel * spec.kernel[0] + a) * (across * how.bytes))
            kept = [
                [
                    f.variable(how.vector, f.load(place, how.vector, o * self.sums + b * how.bytes))
                    for b in range(across)
                ]
                for o in range(outputs)
            ]

            def step(line: Value, given: Value, mask: Value | None, kept: Sequence[list[Variable]] = kept) -> None:
                of_dy = [self._dy(f, given, o, mask) for o in range(outputs)]
                for b in range(across):
                    to, phase = divmod(b * spec.dilation[1], few.step)
                    value = how.load(f, f.offset(line, phase * few.line + to * 4), "f32", mask)
                    for totals, each in zip(kept, of_dy, strict=True):
                        totals[b].set(how.add(f, totals[b].get(), each, value))

            with f.loop(0, rows) as row:
                line, given = f.offset(start, row * (spec.stride[0] * few.row)), f.offset(dy, row * (spec.out[1] * 4))
                whole = (spec.out[1] - rest) * 4
                if whole:
                    with f.loop(0, whole, how.bytes) as at:
                        step(f.offset(line, at), f.offset(given, at), None)
                if rest:
                    mask = lanes_where(f, [i < rest for i in range(how.lanes)])
                    step(f.offset(line, whole), f.offset(given, whole), mask)
            for o, totals in enumerate(kept):
                for b, total in enumerate(totals):
                    f.store(total.get(), place, o * self.sums + b * how.bytes)
        f.give()

    def _dy(self, f: Function, given: Value, output: int, mask: Value | None) -> Value:
        place = f.offset(given, output * (self.spec.out[0] * self.spec.out[1] * 4))
        return self.arith.load(f, place, "f32", mask)

    def _lanes(self, f: Function, sums: Value, out: Value) -> None:
        """The lanes of a task's sums together."""
        with f.loop(0, self.spec.outputs) as output, f.loop(0, self.run) as r:
            total = f.total(f.load(sums, self.arith.vector, output * self.sums + r * self.arith.bytes))
            f.store(total, out, output * self.line + r * 4)

    def _total(self) -> Phase:
        """The tasks' sums together, and what becomes of them; tasks are outputs."""
        assert self.tail is not None
        f, how = Function(self.module, "total", ["ptr", "i64", "ptr"]), self.arith
        buffers, output, _ = f.args
        work = f.offset(f.load(buffers, "ptr", 8 * self.buffers[2]), output * self.line)
        places = self.tail.places(f, buffers)
        for start in range(0, self.run, how.lanes):
            total = f.variable(how.vector, 0.0)
            with f.loop(0, self.schedule.splits) as split:
                own = f.load(work, how.vector, split * (self.spec.outputs * self.line) + start * 4)
                total.set(total.get() + own)
            mask = lanes_where(f, [start + i < self.run for i in range(how.lanes)])
            self.tail.vector(f, places, {"o": output, "r": f.i64(start)}, total.get(), mask, how)
        f.give()
        return Phase("total", self.spec.outputs)
