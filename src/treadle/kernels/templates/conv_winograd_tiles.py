"""What Winograd's kernels share: the transforms of tiles and back, tiles of images as matrices, what is too large.

A `Form` is F(2x2, 3x3), F(4x4, 3x3) or F(5x5, 3x3): a tile is so many places of y each way, and the places of x (two
more each way) that they read. `Tiles.write` makes the function that transforms tiles of channels-last images into
[position][tile][channel], as float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from treadle.kernels.launch import Phase
from treadle.kernels.llvm import Function, Module, Value
from treadle.kernels.templates.conv_micro import MEMORY, WIDTH, Arith
from treadle.kernels.templates.conv_pack import Copy

_LARGE = 2.0**78  # numbers above about 2 ** 50 overflow when they are multiplied by it: sums of their products might

Transform = Callable[[Sequence[Value]], list[Value]]
Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Form:
    """F(size x size, 3x3): the matrices B', A' and G of Lavin and Gray for the points 0, each of `points` and its
    negative, those `alone`, and infinity (Toom and Cook's products of polynomials, transposed)."""

    size: int
    points: tuple[Fraction, ...]
    alone: tuple[Fraction, ...] = ()

    @property
    def side(self) -> int:
        """Places of x each way."""
        return self.size + 2

    @property
    def positions(self) -> int:
        """Products of a tile."""
        return self.side**2

    @cached_property
    def _finite(self) -> list[Fraction]:
        return [Fraction(0), *[p * sign for p in self.points for sign in (1, -1)], *self.alone]

    @cached_property
    def b(self) -> Matrix:
        """B': each row the product of (x - q) over the other points."""
        rows, zero = [], Fraction(0)
        for left in range(self.side):
            row = [Fraction(1)]
            for q in [q for i, q in enumerate(self._finite) if i != left]:
                row = [above - q * own for above, own in zip([zero, *row], [*row, zero], strict=True)]
            rows.append(row + [zero] * (self.side - len(row)))
        return _floats(rows)

    @cached_property
    def a(self) -> Matrix:
        """A': powers of the points."""
        return _floats([[*[p**i for p in self._finite], Fraction(i == self.size - 1)] for i in range(self.size)])

    @cached_property
    def g(self) -> Matrix:
        """G: powers of the points, each over the product of its distances from the others."""
        apart = [math.prod([p - q for q in self._finite if q != p]) for p in self._finite]
        rows = [[p**i / by for i in range(3)] for p, by in zip(self._finite, apart, strict=True)]
        return _floats([*rows, [Fraction(0), Fraction(0), Fraction(1)]])

    def forth(self, d: Sequence[Value]) -> list[Value]:
        """B' d: `side` places of the source."""
        return combined(self.b, d)

    def back(self, m: Sequence[Value]) -> list[Value]:
        """A' m: of `side` positions `size` places."""
        return combined(self.a, m)

    def of_taps(self, g: Sequence[Value]) -> list[Value]:
        """G g: three taps."""
        return combined(self.g, g)

    def of_outputs(self, y: Sequence[Value]) -> list[Value]:
        """A y: `size` places of the gradient of the outputs."""
        return combined(_turned(self.a), y)

    def to_taps(self, m: Sequence[Value]) -> list[Value]:
        """G' m: of `side` positions three taps."""
        return combined(_turned(self.g), m)


F2 = Form(2, (Fraction(1),))
F4 = Form(4, (Fraction(5, 8), Fraction(3, 2)))  # half the error of 1 and 2
# Three times the error of F4; 16-bit floats have a hundred times that. (F6 was tried: 1 to 4 % faster, larger code.)
F5 = Form(5, (Fraction(1, 2), Fraction(1)), (Fraction(-3),))


def _floats(rows: Sequence[Sequence[Fraction]]) -> Matrix:
    return tuple([tuple([float(x) for x in row]) for row in rows])


def _turned(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix, strict=True))


def combined(matrix: Matrix, values: Sequence[Value]) -> list[Value]:
    """matrix x values. Of two rows that differ only by signs, and of two such columns, what they have in common is
    computed once."""
    for k in range(len(values)):
        for j in range(k):
            pairs = [(row[j], row[k]) for row in matrix]
            if _like(pairs):
                both = [values[j] + values[k], values[j] - values[k]]
                rest = [i for i in range(len(values)) if i not in (j, k)]
                rows = [
                    (*[row[i] for i in rest], *((row[j], 0.0) if row[j] == row[k] else (0.0, row[j])))
                    for row in matrix
                ]
                return combined(tuple(rows), [*[values[i] for i in rest], *both])
    found: dict[int, Value] = {}
    for n, row in enumerate(matrix):
        if n in found:
            continue
        other = next((o for o in range(n + 1, len(matrix)) if _like(list(zip(row, matrix[o], strict=True)))), None)
        if other is None:
            total, by = _sum(row, values)
            found[n] = total if by == 1 else total * by
            continue
        same = [a if a == b else 0.0 for a, b in zip(row, matrix[other], strict=True)]
        even, by_even = _sum(same, values)
        odd, by_odd = _sum([a - b for a, b in zip(row, same, strict=True)], values)
        even = even if by_even == 1 else even * by_even
        odd, by_odd = (odd * by_odd, 1.0) if by_even != 1 else (odd, by_odd)
        found[n], found[other] = _add(even, odd, by_odd), _add(even, odd, -by_odd)
    return [found[n] for n in range(len(matrix))]


def _like(pairs: list[tuple[float, float]]) -> bool:
    """Whether two rows or columns, given as pairs, are the same but for signs, some of which differ and some do not."""
    return all(abs(a) == abs(b) for a, b in pairs) and len({a == b for a, b in pairs if a}) == 2


def _sum(row: Sequence[float], values: Sequence[Value]) -> tuple[Value, float]:
    """A value, and by what the sum of row x values is larger."""
    terms = sorted([(x, v) for x, v in zip(row, values, strict=True) if x], key=lambda t: (t[0] != 1, t[0] < 0))
    by = terms[0][0]
    total = terms[0][1]
    for x, v in terms[1:]:
        total = _add(total, v, x / by)
    return total, by


def _add(a: Value, b: Value, by: float) -> Value:
    """a + b * by."""
    return a + b if by == 1 else a - b if by == -1 else a + b * by


def both_ways(square: Sequence[Sequence[Value]], one: Transform) -> list[list[Value]]:
    """A transform of the columns, then of the rows of what it gives; [row][column]."""
    columns = [one([row[j] for row in square]) for j in range(len(square[0]))]
    return [one([column[i] for column in columns]) for i in range(len(columns[0]))]


def rows_of(at: Callable[[int, int], Value], side: int, one: Transform) -> Iterator[list[Value]]:
    """The same of a square given by what loads a value: row after row, so that few values are needed at once."""
    columns = [one([at(i, j) for i in range(side)]) for j in range(side)]
    for i in range(len(columns[0])):
        yield one([column[i] for column in columns])


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


def apart(bytes: int, positions: int = 16) -> int:
    """A distance such that so many lines so far apart are in different sets of the first cache."""
    return -(-bytes // 4096) * 4096 + 4096 // positions // 64 * 64


def pitch(channels: int, how: Arith) -> int:
    """Bytes from tile to tile: whole vectors, an odd number of lines so that tiles are spread over the first cache."""
    return (-(-channels * 4 // 64) | 1) * 64


def zeros(module: Module, channels: int) -> None:
    """What is read beyond an image's border."""
    count = (channels + 63) // 64 * 64
    module.globals.append(f"@zeros = private unnamed_addr constant [{count} x float] zeroinitializer, align 64")


@dataclass(frozen=True)
class Tiles:
    """Channels-last images cut into tiles `step` places apart. size: height, width, channels; grid: tiles of an image;
    origin: row and column of the first tile's first place."""

    size: tuple[int, int, int]
    grid: tuple[int, int]
    origin: tuple[int, int]
    step: int = 2
    dtype: str = "f32"

    def place(self, f: Function, source: Value, image: Value, row: Value, col: Value) -> Value:
        """The channels of a place; zeros beyond the border."""
        height, width, channels = self.size
        inside = f.compare("ult", row, height) & f.compare("ult", col, width)
        place = f.offset(source, ((image * height + row) * width + col) * (channels * WIDTH[self.dtype]))
        return f.select(inside, place, f.symbol("@zeros"))

    def element(self, f: Function, place: Value, channel: Value, how: Arith) -> Value:
        """One channel of a place, as f32."""
        return how.wide(f.load(place, MEMORY[self.dtype], channel * WIDTH[self.dtype]), self.dtype)

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
            line, col = (first + t) // wide, (first + t) % wide * self.step + self.origin[1]
            row, image = line % high * self.step + self.origin[0], line // high
            places = [[self.place(f, source, image, row + a, col + b) for b in range(side)] for a in range(side)]
            to = f.offset(out, t * pitches[0])

            def vector(at: Value, mask: Value | None, places: list[list[Value]] = places, to: Value = to) -> None:
                here = at if self.dtype == "f32" else at // 2

                def read(a: int, b: int) -> Value:
                    return how.load(f, f.offset(places[a][b], here), self.dtype, mask)

                for i, row in enumerate(rows_of(read, side, one)):
                    for j, value in enumerate(row):
                        f.store(value, to, at + (i * len(row) + j) * pitches[1])
                    large.see(row)

            whole = run // lanes * how.bytes
            with f.loop(0, whole, how.bytes) as at:
                vector(at, None)
            if not channels or channels % lanes:
                with f.when(f.compare("ne", run % lanes, 0)):
                    vector(whole, f.mask(run % lanes, lanes))
        f.give(large.found())


def turn(
    module: Module, name: str, how: Arith, n: int, size: tuple[int, int, int], source: int, workspace: int, start: int,
    dtype: str = "f32",
) -> Phase:  # fmt: skip
    """Add a phase that puts channels last: from a buffer to the workspace, from byte `start` on; each task takes some
    rows of an image."""
    height, width, channels = size
    rows = max(min((1 << 14) // (width * channels), height), 1)
    blocks = -(-height // rows)
    copy = Copy(
        how, width=width, pitch=channels, channels=channels, of=channels, columns=width, rows=height, left=0,
        dtype=dtype, wide=False, planar=True,
    )  # fmt: skip
    f = Function(module, name, ["ptr", "i64", "ptr"])
    image, first = f.args[1] // blocks, f.args[1] % blocks * rows
    given = f.offset(f.load(f.args[0], "ptr", 8 * source), image * (height * width * channels * WIDTH[dtype]))
    out = f.offset(f.load(f.args[0], "ptr", 8 * workspace), start)
    out = f.offset(out, image * (height * width * channels * WIDTH[dtype]), first * (width * channels * WIDTH[dtype]))
    copy.write(f, given, out, first, f.min_int(f.i64(height) - first, rows))
    f.give()
    return Phase(name, n * blocks)
