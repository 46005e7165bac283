"""What a batch norm's gradient wants of each channel of a data gradient: the sums of dy and of dy * (x - mean).

`sums` gives the code for what `conv_sums.moments` has found: of a result's mean and variance, or these sums. dy is what
the convolution's kernel has written, rounded; x is read at the same places, and mean is known, so no digits are lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from treadle.kernels import launch
from treadle.kernels.llvm import Function, Module, Value, lanes, vector
from treadle.kernels.templates.conv_micro import WIDTH, Arith
from treadle.kernels.templates.conv_sums import Moments, Sums


def sums(
    moments: Moments, arith: Arith, channels: int, parts: int, workspace: tuple[int, int], step: int = 1
) -> Sums:  # fmt: skip
    """The code of either kind. workspace: number of that buffer, and where in it the tasks' totals begin."""
    kind = Sums if moments.other < 0 else GradientSums
    return kind(moments, arith, channels, parts, *workspace, step)


@dataclass(frozen=True)
class GradientSums(Sums):
    """Their code; a task keeps two sums for each channel."""

    lines: ClassVar[int] = 2

    def _add(
        self, f: Function, at: Value, column: Value, kept: Value, places: Value, count: int, mask: Value | None = None
    ) -> None:
        """The sums of some places and vectors of channels into what is kept."""
        how, args, n = self.arith, f.args[0], range(count)
        size, pairs = WIDTH[self.moments.dtype], self.moments.dtype == "bf16" and mask is None and count % 2 == 0
        dy, x, mean = (f.load(args, "ptr", 8 * n) for n in (self.moments.value, self.moments.other, self.moments.mean))
        means = [how.load(f, f.offset(mean, column * 4, v * how.bytes), "f32", mask) for v in n]
        means = _parted(f, means) if pairs else means
        totals = [(f.variable(how.vector, 0.0), f.variable(how.vector, 0.0)) for _ in n]
        with f.loop(0, places) as j:
            here = at + j * (self.step * self.channels * size)
            given, other = (self._read(f, f.offset(row, here), count, pairs, mask) for row in (dy, x))
            for v, (total, along) in enumerate(totals):
                total.set(total.get() + given[v])
                along.set(along.get() + given[v] * (other[v] - means[v]))
        for i in range(2):
            found = [both[i].get() for both in totals]
            for v, value in enumerate(_joined(f, found) if pairs else found):
                to = f.offset(kept, v * how.bytes, i * self.line)
                f.store(f.load(to, how.vector) + value, to)

    def _read(self, f: Function, place: Value, count: int, pairs: bool, mask: Value | None) -> list[Value]:
        """Vectors of channels at a place. pairs: as `_parted` gives them, which is cheaper than one after the other."""
        how, dtype = self.arith, self.moments.dtype
        if not pairs:
            return [how.load(f, f.offset(place, v * how.lanes * WIDTH[dtype]), dtype, mask) for v in range(count)]
        bits = [f.load(place, vector("i32", how.lanes), p * how.bytes, align=2) for p in range(count // 2)]
        return [f.bitcast(part, how.vector) for b in bits for part in (b << 16, b & 0xFFFF0000)]

    def phase(self, module: Module) -> launch.Phase:
        """Add up the tasks' totals. A task takes a vector of channels."""
        f, how = Function(module, "joined", ["ptr", "i64", "ptr"]), self.arith
        column = f.args[1]
        start = f.offset(f.load(f.args[0], "ptr", 8 * self.workspace), self.at, column * how.bytes)
        totals = [f.variable(how.vector, 0.0) for _ in range(self.lines)]
        with f.loop(0, self.parts) as number:
            for i, total in enumerate(totals):
                part = f.load(f.offset(start, number * (self.lines * self.line), i * self.line), how.vector)
                total.set(total.get() + part)
        rest = self.channels % how.lanes
        left = f.mask(self.channels - column * how.lanes, how.lanes) if rest else None
        for buffer, total in zip(self.moments.outputs, totals, strict=True):
            if buffer >= 0:
                to = f.offset(f.load(f.args[0], "ptr", 8 * buffer), column * how.bytes)
                f.store(total.get(), to) if left is None else f.store_masked(total.get(), to, left)
        f.give()
        return launch.Phase("joined", -(-self.channels // how.lanes))


def _parted(f: Function, vectors: list[Value]) -> list[Value]:
    """Of every two vectors the elements with even numbers, then those with odd ones."""
    both = range(2 * lanes(vectors[0].type))
    pairs = zip(vectors[::2], vectors[1::2], strict=True)
    return [f.shuffle(a, b, both[i::2]) for a, b in pairs for i in range(2)]


def _joined(f: Function, vectors: list[Value]) -> list[Value]:
    """The vectors of which `_parted` gives these."""
    n = lanes(vectors[0].type)
    order = [i + k for i in range(n) for k in (0, n)]
    pairs = zip(vectors[::2], vectors[1::2], strict=True)
    return [f.shuffle(a, b, order[i : i + n]) for a, b in pairs for i in (0, n)]
