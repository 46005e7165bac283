"""Mean and variance of each channel of what a convolution writes (`channel_moments` after it), in the same kernel.

`split` takes them out of a body. While it works, a task keeps for each channel the number of its places, a base near
their mean, the sum of the differences to that, and the sum of squares about the mean. To these it adds some places at
once, as they were rounded and written, by the formula of Chan, Golub and LeVeque (Updating formulae and a pairwise
algorithm for computing sample variances, 1979), so that no digits are lost where the mean is large. A task's totals go
into the workspace, at a place of its own, and a phase joins them in the tasks' order. What a batch norm's gradient
wants of a data gradient (`channel_sums`) is taken in the same way: see conv_grad_sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from treadle.base.dtypes import bfloat16, float16, float32
from treadle.ir.node import Fn, Node
from treadle.kernels import launch
from treadle.kernels.llvm import Function, Module, Value
from treadle.kernels.templates.conv_micro import WIDTH, Arith
from treadle.kernels.templates.gemm_problem import dense, view_of
from treadle.ops.norm_batch import channel_moments, channel_sums

PLACE = 7 << 20  # in a task's scratch; what convolutions need is before it (conv_direct.SCRATCH)
LINES = 4  # bases, sums of differences, squares, counts
_ROOM = 1 << 19  # bytes there
_PLACES, _BASE = 64, 8  # that are summed before what is kept is updated, and those of a base
_WIDE = 4, 2, 1  # vectors of channels that are summed together


@dataclass(frozen=True)
class Moments:
    """value: number of the buffer with the values [places..., channel], as `dtype`; outputs: buffers of mean and
    variance, float32, -1 where nobody wants it. other, mean: of `channel_sums`, the inputs x and mean, else -1."""

    value: int
    dtype: str
    outputs: tuple[int, int]
    other: int = -1
    mean: int = -1


def split(body: Fn) -> tuple[Fn, tuple[int, ...], Node | None]:
    """The body without `channel_moments` or `channel_sums`, the numbers of the buffers of its outputs, and that
    node."""
    found = [n for n in body.nodes if n.op in (channel_moments, channel_sums)]
    first = len(body.params)
    if len(found) != 1:
        return body, tuple(range(first, first + len(body.outputs))), None
    node = found[0]
    kept = [i for i, o in enumerate(body.outputs) if o.node is not node]
    nodes = tuple([n for n in body.nodes if n is not node])
    rest = Fn(body.name, body.params, nodes, tuple([body.outputs[i] for i in kept]))
    return rest, tuple([first + i for i in kept]), node


def moments(body: Fn, rest: Fn, node: Node, buffers: Sequence[int]) -> Moments | None:
    """What the node wants of a split body; None unless its operand is an output with the channels last, and the others
    are inputs as they lie in memory."""
    x = node.inputs[0]
    fits = x.dtype in (float32, bfloat16, float16) and x.shape[-1] * LINES * 4 <= _ROOM
    if not fits or x not in rest.outputs or node.attrs["axis"] != x.ndim - 1:
        return None
    outputs = {o: len(body.params) + i for i, o in enumerate(body.outputs)}
    mean, var = (outputs.get(o, -1) for o in node.outputs)
    if node.op is channel_moments:
        return Moments(buffers[rest.outputs.index(x)], x.dtype.short, (mean, var))
    inputs = []
    for value in node.inputs[1:]:
        view = view_of(body, value)
        if view is None or view.offset or view.dtype is not value.dtype or view.strides != dense(value.shape):
            return None
        inputs.append(view.param)
    return Moments(buffers[rest.outputs.index(x)], x.dtype.short, (mean, var), *inputs)


@dataclass(frozen=True)
class Sums:
    """Their code. parts: tasks whose totals are joined; workspace: number of that buffer, in which they begin at
    `at`; step: from one place of a run to the next."""

    moments: Moments
    arith: Arith
    channels: int
    parts: int
    workspace: int
    at: int
    step: int = 1
    lines: ClassVar[int] = LINES

    @property
    def line(self) -> int:
        """Bytes of a number for each channel."""
        return -(-self.channels // self.arith.lanes) * self.arith.bytes

    @property
    def bytes(self) -> int:
        """Of the workspace."""
        return self.parts * self.lines * self.line

    def begin(self, f: Function, scratch: Value) -> None:
        """A task has seen nothing."""
        with f.loop(PLACE, PLACE + self.lines * self.line, self.arith.bytes) as at:
            f.store(f.constant(0.0, self.arith.vector), scratch, at)

    def end(self, f: Function, scratch: Value, part: Value, first: Value | int, stop: Value | int) -> None:
        """A task's totals of the vectors of channels from `first` up to `stop`."""
        how = self.arith
        to = f.offset(f.load(f.args[0], "ptr", 8 * self.workspace), self.at, part * (self.lines * self.line))
        with f.loop(f.i64(first) * how.bytes, f.i64(stop) * how.bytes, how.bytes) as at:
            for i in range(self.lines):
                f.store(f.load(scratch, how.vector, at + (PLACE + i * self.line)), to, at + i * self.line)

    def write(self, module: Module) -> None:
        """Add @moments(buffers, scratch, place, count, channel, limit, vectors): `count` places, each a step after the
        other, are written, `vectors` of channels from `channel` on, of which `limit` are left."""
        f = Function(module, "moments", ["ptr", "ptr", *["i64"] * 5], linkage="internal", attrs="noinline")
        _, scratch, place, count, channel, limit, vectors = f.args
        size, lanes = WIDTH[self.moments.dtype], self.arith.lanes
        kept = f.offset(scratch, PLACE, channel * 4)
        full = f.min_int(vectors, limit // lanes)
        with f.loop(0, count, _PLACES) as first:
            many = f.min_int(count - first, _PLACES)
            start = ((place + first * self.step) * self.channels + channel) * size
            done: Value | int = 0
            for wide in _WIDE:
                stop = full - full % wide
                with f.loop(done, stop, wide) as v:
                    here, column = start + v * (lanes * size), channel + v * lanes
                    self._add(f, here, column, f.offset(kept, v * self.arith.bytes), many, wide)
                done = stop
            if self.channels % lanes:
                with f.loop(done, vectors) as v:
                    mask = f.mask(limit - v * lanes, lanes)
                    here, column = start + v * (lanes * size), channel + v * lanes
                    self._add(f, here, column, f.offset(kept, v * self.arith.bytes), many, 1, mask)
        f.give()

    def _add(
        self, f: Function, at: Value, column: Value, kept: Value, places: Value, count: int, mask: Value | None = None
    ) -> None:
        """The values of some vectors of channels into what is kept. at: their offset in memory; column: the first of
        the channels."""
        how, size = self.arith, WIDTH[self.moments.dtype]
        start = f.offset(f.load(f.args[0], "ptr", 8 * self.moments.value), at)

        def load(place: Value, v: int) -> Value:
            return how.load(f, f.offset(place, v * how.lanes * size), self.moments.dtype, mask)

        bases = [f.constant(0.0, how.vector)] * count  # near the mean: means of some of the values
        for i in range(_BASE):
            here = f.offset(start, places * i // _BASE * (self.step * self.channels * size))
            bases = [base + load(here, v) for v, base in enumerate(bases)]
        bases = [_finite(f, base * (1.0 / _BASE)) for base in bases]
        sums = [(f.variable(how.vector, 0.0), f.variable(how.vector, 0.0)) for _ in range(count)]
        with f.loop(0, places) as j:
            here = f.offset(start, j * (self.step * self.channels * size))
            for v, (total, squares) in enumerate(sums):
                apart = load(here, v) - bases[v]
                total.set(total.get() + apart)
                squares.set(squares.get() + apart * apart)
        more = f.convert("sitofp", places, "float")
        before = f.load(kept, "float", 3 * self.line)
        now = before + more
        is_first = f.compare("oeq", before, 0.0)
        with f.when(is_first):
            for v, value in enumerate(bases):
                f.store(value, kept, v * how.bytes)
        part = f.splat(1.0 / more, how.lanes)
        past = f.splat(f.select(is_first, 0.0, 1.0 / before), how.lanes)
        weight = f.splat(before * more / now, how.lanes)
        for v, (total, squares) in enumerate(sums):
            at = f.offset(kept, v * how.bytes)
            base, old, about = (f.load(at, how.vector, i * self.line) for i in range(3))
            mean = (bases[v] - base) + total.get() * part
            apart = mean - old * past
            inside = squares.get() - total.get() * (total.get() * part)
            f.store(old + mean * f.splat(more, how.lanes), at, self.line)
            f.store(about + inside + apart * apart * weight, at, 2 * self.line)
            f.store(f.splat(now, how.lanes), at, 3 * self.line)

    def phase(self, module: Module) -> launch.Phase:
        """Join the tasks' totals. A task takes a vector of channels."""
        f, how = Function(module, "joined", ["ptr", "i64", "ptr"]), self.arith
        column = f.args[1]
        start = f.offset(f.load(f.args[0], "ptr", 8 * self.workspace), self.at, column * how.bytes)
        base = f.load(start, how.vector)  # the mean is sought as a distance from it

        def part(number: Value) -> tuple[Value, Value, Value]:
            """A task's mean, squares about it, and count."""
            at = f.offset(start, number * (LINES * self.line))
            own, total, about, count = (f.load(at, how.vector, i * self.line) for i in range(LINES))
            return (own - base) + total / count, about, count

        total, every, squares = (f.variable(how.vector, 0.0) for _ in range(3))
        with f.loop(0, self.parts) as number:
            mean, _, count = part(number)
            total.set(total.get() + mean * count)
            every.set(every.get() + count)
        middle = total.get() / every.get()
        with f.loop(0, self.parts) as number:
            mean, about, count = part(number)
            apart = mean - middle
            squares.set(squares.get() + about + apart * apart * count)
        rest = self.channels % how.lanes
        left = f.mask(self.channels - column * how.lanes, how.lanes) if rest else None
        for buffer, value in zip(self.moments.outputs, (base + middle, squares.get() / every.get()), strict=True):
            if buffer >= 0:
                to = f.offset(f.load(f.args[0], "ptr", 8 * buffer), column * how.bytes)
                f.store(value, to) if left is None else f.store_masked(value, to, left)
        f.give()
        return launch.Phase("joined", -(-self.channels // how.lanes))


class Waiting:
    """Places that are written and wait until there are enough beside each other: after every few of them, updates of
    what is kept would take longer than the sums. step: from one place to the next."""

    def __init__(self, f: Function, step: int = 1) -> None:
        self.f, self.step = f, step
        self.run = [f.variable("i64", 0) for _ in range(5)]  # what @moments takes behind the pointers

    def add(self, place: Value, count: Value, *channels: Value) -> None:
        """So many places from `place` on are written. channels: the first, those left, vectors."""
        f, old = self.f, [v.get() for v in self.run]
        fits = f.compare("eq", old[0] + old[1] * self.step, place) & f.compare("eq", old[2], channels[0])
        fits = fits & f.compare("eq", old[4], channels[2])

        def other() -> None:
            self.flush()
            for kept, value in zip(self.run, (place, count, *channels), strict=True):
                kept.set(value)

        f.either(fits, lambda: self.run[1].set(old[1] + count), other)
        start, length = self.run[0].get(), self.run[1].get()
        with f.when(f.compare("sge", length, _PLACES)):
            many = length - length % _PLACES
            self._take(many)
            self.run[0].set(start + many * self.step)
            self.run[1].set(length - many)

    def flush(self) -> None:
        """Take what waits; at first nothing does."""
        self._take(self.run[1].get())

    def _take(self, count: Value) -> None:
        start, _, *channels = [v.get() for v in self.run]
        self.f.call("@moments", "void", self.f.args[0], self.f.args[2], start, count, *channels)


def _finite(f: Function, value: Value) -> Value:
    """The value, 0 where it is infinite or no number: then the mean is infinite where it should be."""
    return f.select(f.compare("oeq", value - value, 0.0), value, 0.0)
