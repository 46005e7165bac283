"""The inner product of convolutions: a tile of destination places by a panel of channels, held in registers.

`Arith` is what one step multiplies: an f32, or a pair of bf16 with an f32 sum. A step of the source is 4 bytes, splat
over the lanes; a step of a weight panel is 4 bytes for each of its channels. `Micro` writes the functions, one for each
size of tile: `void(ptr source, ptr panel, ptr taps, i64 count, ptr out, mask)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from treadle.kernels import vmath
from treadle.kernels.llvm import Function, Module, Value, Variable, vector
from treadle.kernels.target import Target

STEP = 4  # bytes of a step
RUN = 24  # bytes of a run of steps in the taps' table: offset, steps, kind
LINE = 64  # bytes of the caches' lines
SIDE = 16  # rows of an AMX tile, and steps in one


Kinds = tuple[tuple[int, int], ...]
# Writes the sums of a tile: (f, its rows and columns, sums as [place][vector], the mask of the last vector)
Finish = Callable[[Function, tuple[int, int], list[list[Value]], Value | None], None]
# What the sums of each vector begin with, None for zeros: (f, number of vectors, the mask of the last vector)
Begin = Callable[[Function, int, Value | None], list[Value] | None]


@dataclass(frozen=True)
class Arith:
    """kind: f32 (one element a step) or bf16 (two). lanes: f32 sums in a vector. fused: the CPU multiplies and adds.
    narrows, halves: it converts f32 to bf16, and f16 from and to f32, by instructions."""

    kind: str
    lanes: int
    fused: bool
    narrows: bool
    halves: bool

    @property
    def depth(self) -> int:
        """Elements of a step."""
        return 2 if self.kind == "bf16" else 1

    @property
    def vector(self) -> str:
        """Type of the sums."""
        return vector("float", self.lanes)

    @property
    def bytes(self) -> int:
        """Bytes of a vector of sums, and of a step of a panel's vector."""
        return 4 * self.lanes

    def add(self, f: Function, total: Value, a: Value, b: Value) -> Value:
        """total + a * b. a, b: vectors of steps, as floats."""
        if self.kind == "bf16":
            pairs, name = vector("bfloat", 2 * self.lanes), f"llvm.x86.avx512bf16.dpbf16ps.{32 * self.lanes}"
            return f.intrinsic(name, self.vector, total, f.bitcast(a, pairs), f.bitcast(b, pairs))
        return f.fma(a, b, total) if self.fused else a * b + total

    def wide(self, v: Value, dtype: str) -> Value:
        """f32 of a vector as memory holds it: f32, or 16-bit floats as i16."""
        if dtype == "f32":
            return v
        return vmath.widen(v, *(("bfloat", False) if dtype == "bf16" else ("half", self.halves)))

    def narrow(self, v: Value, dtype: str) -> Value:
        """f32 as memory holds the dtype, rounded to even."""
        if dtype == "f32":
            return v
        return vmath.narrow(v, *(("bfloat", self.narrows) if dtype == "bf16" else ("half", self.halves)))

    def load(self, f: Function, place: Value, dtype: str, mask: Value | None = None) -> Value:
        """A vector of elements of a dtype as f32; 0 where the mask does not hold."""
        kind = vector(MEMORY[dtype], self.lanes)
        return self.wide(f.load(place, kind) if mask is None else f.load_masked(place, kind, mask), dtype)


MEMORY = {"f32": "float", "bf16": "i16", "f16": "i16"}
WIDTH = {"f32": 4, "bf16": 2, "f16": 2}


def arith(target: Target, dtype: str) -> Arith:
    """How this CPU multiplies elements of a dtype: 16-bit floats that it cannot multiply are widened to f32 first."""
    arm = target.triple.startswith(("aarch64", "arm64"))
    halves = arm or target.has("avx512") or "f16c" in target.features
    narrows = target.has("avx512bf16")
    if dtype == "bf16" and narrows and target.has("avx512"):
        return Arith("bf16", 16, True, narrows, halves)
    return Arith("f32", target.lanes(32), arm or target.has("avx2"), narrows, halves)


@dataclass(frozen=True)
class Pitches:
    """Bytes from place to place: rows and columns of the source, and of what is written."""

    row: int
    col: int
    out_row: int
    out_col: int


class Micro:
    """The functions of one kernel, made when they are first asked for."""

    def __init__(
        self, module: Module, arith: Arith, pitches: Pitches, out: str, tiles: bool = False, ahead: bool = False,
        align: int = 0, finish: tuple[Begin, Finish] | None = None, fetch: bool = False,
    ) -> None:  # fmt: skip
        """out: dtype of the elements written. tiles: multiply by AMX: a run of steps is whole tiles, and whole tiles of
        places may be read behind the places that there are. ahead: the places of a tile lie side by side in memory, and
        those of the next tile behind them: they are asked for meanwhile. align: of the source's steps, 0: as floats.
        finish: begins and writes the sums of a function that takes, instead of `out`, the buffers and image, row, col,
        channel. fetch: they take one pointer more, and ask for a vector there at each step."""
        self.module, self.arith, self.pitches, self.out, self.tiles = module, arith, pitches, out, tiles
        self.ahead, self.align, self.finish, self.fetch = ahead, align, finish, fetch
        self._made: dict[tuple[tuple[int, int], int, bool, int, Kinds], str] = {}

    def call(
        self, f: Function, tile: tuple[int, int], vectors: int, unroll: int, args: Sequence[Value],
        mask: Value | None, kinds: Kinds = (),
    ) -> None:  # fmt: skip
        """Compute a tile. args: source, panel, taps, count, and out, or what `finish` wants; mask: lanes of the last
        vector, None: all. kinds: the columns (first, end) that a tap may concern; (): each concerns all."""
        key = (tile, vectors, mask is not None, unroll, kinds)
        if key not in self._made:
            self._made[key] = (self._write_tiles if self.tiles else self._write)(*key)
        f.call(self._made[key], "void", *args, *([] if mask is None else [mask]))

    def _write(self, tile: tuple[int, int], vectors: int, masked: bool, unroll: int, kinds: Kinds) -> str:
        rows, cols = tile
        name = f"tile_{rows}x{cols}x{vectors}_{unroll}_{len(self._made)}" + ("_masked" if masked else "")
        lanes, kind = self.arith.lanes, self.arith.vector
        params = ["ptr", "ptr", "ptr", "i64", "ptr", *["i64"] * (4 if self.finish else 0), *["ptr"] * self.fetch]
        f = Function(
            self.module, name, [*params, *([vector("i1", lanes)] if masked else [])], linkage="internal",
            attrs="noinline",
        )  # fmt: skip
        source, panel, taps, count, out = f.args[:5]
        places = [(i, j) for i in range(rows) for j in range(cols)]
        mask = f.args[-1] if masked else None
        begun = self.finish[0](f, vectors, mask) if self.finish else None
        sums = [[f.variable(kind, begun[v] if begun else 0.0) for v in range(vectors)] for _ in places]
        at = f.variable("ptr", panel)
        later = f.variable("ptr", f.args[len(params) - 1]) if self.fetch else None
        with f.loop(0, count) as tap:
            run = f.offset(taps, tap * RUN)
            base, steps, its_kind = (f.load(run, "i64", 8 * i) for i in range(3))
            here = f.variable("ptr", f.offset(source, base))
            for number, (first, end) in enumerate(kinds or ((0, cols),)):
                some = [n for n, (_, j) in enumerate(places) if first <= j < end]
                own = [places[n] for n in some], [sums[n] for n in some]
                with f.when(f.compare("eq", its_kind, number)) if kinds else nullcontext():
                    self._run(f, (here, at, later), steps, unroll, own)
        if self.finish is not None:
            self.finish[1](f, tile, [[total.get() for total in row] for row in sums], mask)
            f.give()
            return f"@{name}"
        for (i, j), row in zip(places, sums, strict=True):
            for v, total in enumerate(row):
                place = f.offset(out, i * self.pitches.out_row + j * self.pitches.out_col + v * lanes * WIDTH[self.out])
                value = self.arith.narrow(total.get(), self.out)
                if mask is not None and v == vectors - 1:
                    f.store_masked(value, place, mask)
                else:
                    f.store(value, place)
        f.give()
        return f"@{name}"

    def _run(
        self, f: Function, pointers: tuple[Variable, Variable, Variable | None], steps: Value, unroll: int,
        own: tuple[Sequence[tuple[int, int]], list[list[Variable]]],
    ) -> None:  # fmt: skip
        """Steps side by side, for some places. pointers: into the source, the panel, and what is asked for."""
        here, at, later = pointers
        panel = len(own[1][0]) * self.arith.bytes
        tile = len(own[0]) * self.pitches.col
        front = f.variable("ptr", f.offset(here.get(), tile)) if self.ahead else None
        with f.loop(0, steps, unroll):
            a, b = here.get(), at.get()
            if front is not None:
                for line in range(0, len(own[0]) * unroll * STEP, LINE):
                    f.prefetch(front.get(), line)
                front.set(f.offset(front.get(), len(own[0]) * unroll * STEP))
            if later is not None:
                for u in range(unroll):
                    f.prefetch(later.get(), u * self.arith.bytes, locality=2)
                later.set(f.offset(later.get(), unroll * self.arith.bytes))
            for u in range(unroll):
                self._step(f, f.offset(a, u * STEP), f.offset(b, u * panel), *own)
            here.set(f.offset(a, unroll * STEP))
            at.set(f.offset(b, unroll * panel))

    def _step(
        self, f: Function, a: Value, b: Value, places: Sequence[tuple[int, int]], sums: list[list[Variable]]
    ) -> None:
        lanes, kind = self.arith.lanes, self.arith.vector
        columns = [f.load(b, kind, v * self.arith.bytes) for v in range(len(sums[0]))]
        for (i, j), row in zip(places, sums, strict=True):
            scalar = f.load(a, "float", i * self.pitches.row + j * self.pitches.col, self.align)
            splat = f.splat(scalar, lanes)
            for v, column in enumerate(columns):
                row[v].set(self.arith.add(f, row[v].get(), splat, column))

    def _write_tiles(self, tile: tuple[int, int], vectors: int, masked: bool, unroll: int, kinds: Kinds) -> str:
        """The same by AMX: tiles 0-3 are sums, 4 and 5 places (16 beside each other), 6 and 7 channels of the panel."""
        rows, cols = tile
        name = f"amx_{rows}x{cols}x{vectors}" + ("_masked" if masked else "")
        lanes, bytes, p = self.arith.lanes, self.arith.bytes, self.pitches
        params = ["ptr", "ptr", "ptr", "i64", "ptr", *([vector("i1", lanes)] if masked else [])]
        f = Function(self.module, name, params, linkage="internal", attrs="noinline")
        source, panel, taps, count, out = f.args[:5]
        places = [(i, j) for i in range(rows) for j in range(0, cols, SIDE)]
        for total in range(len(places) * vectors):
            f.intrinsic("llvm.x86.tilezero", "void", f.constant(total, "i8"))
        at = f.variable("ptr", panel)
        with f.loop(0, count) as tap:
            base = f.offset(source, f.load(taps, "i64", tap * RUN))
            with f.loop(0, f.load(taps, "i64", tap * RUN + 8), SIDE) as step:
                for a, (i, j) in enumerate(places):
                    place = f.offset(base, step * STEP, i * p.row + j * p.col)
                    _tile(f, "tileloadd64", 4 + a, place, p.col)
                    for v in range(vectors):
                        if a == 0:
                            _tile(f, "tileloadd64", 6 + v, f.offset(at.get(), v * bytes), vectors * bytes)
                        numbers = (a * vectors + v, 4 + a, 6 + v)
                        f.intrinsic("llvm.x86.tdpbf16ps", "void", *[f.constant(n, "i8") for n in numbers])
                at.set(f.offset(at.get(), SIDE * vectors * bytes))
        # Rows of tiles beyond the places are stored too, in order: what comes after is written again.
        sums = f.alloca("i8", (rows * cols + SIDE) * vectors * bytes)
        for a, (i, j) in enumerate(places):
            for v in range(vectors):
                to = f.offset(sums, (i * cols + j) * vectors * bytes + v * bytes)
                _tile(f, "tilestored64", a * vectors + v, to, vectors * bytes)
        with f.loop(0, rows) as row, f.loop(0, cols) as col:
            for v in range(vectors):
                value = f.load(sums, self.arith.vector, (row * cols + col) * (vectors * bytes) + v * bytes)
                value = self.arith.narrow(value, self.out)
                place = f.offset(out, row * p.out_row + col * p.out_col, v * lanes * WIDTH[self.out])
                if masked and v == vectors - 1:
                    f.store_masked(value, place, f.args[5])
                else:
                    f.store(value, place)
        f.give()
        return f"@{name}"


def _tile(f: Function, name: str, number: int, place: Value, pitch: int) -> None:
    """Move a tile from or to rows that are `pitch` bytes apart."""
    f.intrinsic(f"llvm.x86.{name}", "void", f.constant(number, "i8"), place, f.i64(pitch))
