"""What Winograd's kernels share: the transforms of tiles and back, tiles of images as matrices, what is too large.

A tile is 2x2 places of y, and the 4x4 places of x that they read. `Tiles.write` makes the function that transforms
tiles of channels-last images into [position of 16][tile][channel].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from treadle.kernels.launch import Phase
from treadle.kernels.llvm import Function, Module, Value
from treadle.kernels.templates.conv_micro import Arith
from treadle.kernels.templates.conv_pack import Copy

POSITIONS = 16
_LARGE = 2.0**78  # numbers above about 2 ** 50 overflow when they are multiplied by it: sums of their products might

Transform = Callable[[Sequence[Value]], list[Value]]


def forth(d: Sequence[Value]) -> list[Value]:
    """B' d: four places of the source."""
    return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]


def back(m: Sequence[Value]) -> list[Value]:
    """A' m: of four positions two places."""
    return [m[0] + m[1] + m[2], m[1] - m[2] - m[3]]


def of_taps(g: Sequence[Value]) -> list[Value]:
    """G g: three taps."""
    outer = (g[0] + g[2]) * 0.5
    half = g[1] * 0.5
    return [g[0], outer + half, outer - half, g[2]]


def of_outputs(y: Sequence[Value]) -> list[Value]:
    """A y: two places of the gradient of the outputs."""
    return [y[0], y[0] + y[1], y[0] - y[1], -y[1]]


def to_taps(m: Sequence[Value]) -> list[Value]:
    """G' m: of four positions three taps."""
    half = (m[1] + m[2]) * 0.5
    return [m[0] + half, (m[1] - m[2]) * 0.5, half + m[3]]


def both_ways(square: Sequence[Sequence[Value]], one: Transform) -> list[list[Value]]:
    """A transform of the columns, then of the rows of what it gives; [row][column]."""
    columns = [one([row[j] for row in square]) for j in range(len(square[0]))]
    return [one([column[i] for column in columns]) for i in range(len(columns[0]))]


class Large:
    """Finds numbers that are not finite or so large that sums of their products might not be."""

    def __init__(self, f: Function, how: Arith) -> None:
        self.f, self.arith = f, how
        self.sums = [f.variable(how.vector, 0.0) for _ in range(4)]

    def see(self, values: Sequence[Value]) -> None:
        """Look at vectors."""
        for i, value in enumerate(values):
            total = self.sums[i % len(self.sums)]
            scale = self.f.constant(_LARGE, self.arith.vector)
            total.set(self.arith.add(self.f, total.get(), value, scale))

    def found(self) -> Value:
        """i64, not 0 if there were some."""
        total = self.sums[0].get()
        for each in self.sums[1:]:
            total = total + each.get()
        one = self.f.total(total - total)
        return self.f.convert("zext", self.f.compare("une", one, 0.0), "i64")


def apart(bytes: int) -> int:
    """A distance such that 16 lines so far apart are in different sets of the first cache."""
    return -(-bytes // 4096) * 4096 + 4096 // POSITIONS


def pitch(channels: int, how: Arith) -> int:
    """Bytes from tile to tile: whole vectors, an odd number of lines so that tiles are spread over the first cache."""
    return (-(-channels * 4 // 64) | 1) * 64


def zeros(module: Module, channels: int) -> None:
    """What is read beyond an image's border."""
    count = (channels + 63) // 64 * 64
    module.globals.append(f"@zeros = private unnamed_addr constant [{count} x float] zeroinitializer, align 64")


@dataclass(frozen=True)
class Tiles:
    """Channels-last images cut into tiles two places apart. size: height, width, channels; grid: tiles of an image;
    origin: row and column of the first tile's first place."""

    size: tuple[int, int, int]
    grid: tuple[int, int]
    origin: tuple[int, int]

    def place(self, f: Function, source: Value, image: Value, row: Value, col: Value) -> Value:
        """The channels of a place; zeros beyond the border."""
        height, width, channels = self.size
        inside = f.compare("ult", row, height) & f.compare("ult", col, width)
        place = f.offset(source, ((image * height + row) * width + col) * (channels * 4))
        return f.select(inside, place, f.symbol("@zeros"))

    def write(
        self, module: Module, name: str, how: Arith, side: int, one: Transform, pitches: tuple[int, int],
        channels: int = 0,
    ) -> None:  # fmt: skip
        """Add i64 name(source, out, first tile, tiles, channels): not 0 if there are numbers too large. A tile is read
        as side x side places; pitches: bytes from tile to tile and from position to position; channels: how many, if
        that is always the same. source: the first channel."""
        f = Function(module, name, ["ptr", "ptr", "i64", "i64", "i64"], "i64", "internal", "noinline")
        source, out, first, count, given = f.args
        large, (high, wide), lanes = Large(f, how), self.grid, how.lanes
        run = f.i64(channels) if channels else given
        with f.loop(0, count) as t:
            line, col = (first + t) // wide, (first + t) % wide * 2 + self.origin[1]
            row, image = line % high * 2 + self.origin[0], line // high
            places = [[self.place(f, source, image, row + a, col + b) for b in range(side)] for a in range(side)]
            to = f.offset(out, t * pitches[0])

            def vector(at: Value, mask: Value | None, places: list[list[Value]] = places, to: Value = to) -> None:
                read = [[how.load(f, f.offset(place, at), "f32", mask) for place in row] for row in places]
                values = [v for row in both_ways(read, one) for v in row]
                for n, value in enumerate(values):
                    f.store(value, to, at + n * pitches[1])
                large.see(values)

            whole = run // lanes * how.bytes
            with f.loop(0, whole, how.bytes) as at:
                vector(at, None)
            if not channels or channels % lanes:
                with f.when(f.compare("ne", run % lanes, 0)):
                    vector(whole, f.mask(run % lanes, lanes))
        f.give(large.found())


def turn(
    module: Module, name: str, how: Arith, n: int, size: tuple[int, int, int], source: int, workspace: int, start: int
) -> Phase:
    """Add a phase that puts channels last: from a buffer to the workspace, from byte `start` on; each task takes some
    rows of an image."""
    height, width, channels = size
    rows = max(min((1 << 14) // (width * channels), height), 1)
    blocks = -(-height // rows)
    copy = Copy(
        how, width=width, pitch=channels, channels=channels, of=channels, columns=width, rows=height, left=0,
        dtype="f32", wide=False, planar=True,
    )  # fmt: skip
    f = Function(module, name, ["ptr", "i64", "ptr"])
    image, first = f.args[1] // blocks, f.args[1] % blocks * rows
    given = f.offset(f.load(f.args[0], "ptr", 8 * source), image * (height * width * channels * 4))
    out = f.offset(f.load(f.args[0], "ptr", 8 * workspace), start)
    out = f.offset(out, image * (height * width * channels * 4), first * (width * channels * 4))
    copy.write(f, given, out, first, f.min_int(f.i64(height) - first, rows))
    f.give()
    return Phase(name, n * blocks)
