"""Products of bfloat16 by the AMX tiles of a CPU: blocks of 32 x 32 sums in four tiles, 32 elements of the sum a step.

Blocks, tasks and scratch are those of gemm_tile. A is read in place where whole tiles of it are there, else it is
copied, padded with zeros along the sum; B is packed in pairs along the sum. Tiles are always whole: rows and columns
that do not exist are computed from what lies in scratch memory and are never stored. float32 of "high" precision is
packed three times, by parts (see packing.bits), and multiplied as big * big + high * low + low * high. The launcher
configures the tiles (eight of 16 rows of 64 bytes).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from treadle.base.dtypes import bfloat16
from treadle.kernels.llvm import Function, Operand, Value
from treadle.kernels.microkernels import Isa, Strided
from treadle.kernels.templates import packing
from treadle.kernels.templates.gemm_finish import Store
from treadle.kernels.templates.gemm_problem import Problem
from treadle.kernels.templates.gemm_tile import Gemm, Place, Schedule
from treadle.kernels.templates.packing import Source

SIDE = 16  # rows of a tile, and floats or pairs in a row of it
STEP = 2 * SIDE  # elements of the sum that one instruction multiplies
ISA = Isa(SIDE, 32, pairs=True, narrows=True, halves=True)


@dataclass(frozen=True)
class AmxSchedule(Schedule):
    """A Schedule of panels of 32 rows and 32 columns. split: operands are float32, multiplied in three products of
    their parts."""

    split: bool = False

    def __str__(self) -> str:
        return f"amx{' x3' * self.split} k{self.depth} {self.high}x{self.wide} g{self.group} pack:{'a' * self.pack_a}b"


class Tiles(Gemm):
    """Gemm with AMX in its innermost part."""

    runs = False

    def __init__(self, problem: Problem, schedule: AmxSchedule, store: Store) -> None:
        super().__init__(problem, ISA, schedule, store.tile, store.buffers, store.totals)
        self.store = store
        self.parts = ("big", "high", "low") if schedule.split else ("",)
        self.products = ((0, 0), (1, 2), (2, 1)) if schedule.split else ((0, 0),)
        self.turned, self.by_column = problem.left.outer == 1 and problem.m > 1, False
        depth = self._padded(min(schedule.depth, max(problem.k, 1)))
        self.a_outer = depth * 2 + 64
        self.a_part, self.b_part = STEP * self.a_outer, self.b_panel * schedule.wide
        self.a_at = self.b_part * len(self.parts)
        self.sums_at = self.a_at + self.a_part * len(self.parts)
        self.sums_at += -self.sums_at % 64
        self._place_totals()

    def _panels(self, f: Function, rows: tuple[Value, Value]) -> Iterator[tuple[int, Value, Value]]:
        whole, rest = divmod(self.p.m, STEP)
        kinds = [(STEP, 0, whole)] * bool(whole) + [(rest, whole, whole + 1)] * bool(rest)
        for height, first, end in kinds:
            with f.loop(f.max_int(rows[0], first), f.min_int(rows[1], end)) as panel:
                yield height, panel, panel * STEP

    # --- operands -----------------------------------------------------------------------------------------------------
    def _a(self, f: Function, block: Value, k: Value, rows: Value, height: int, nth: Value, scratch: Value) -> Strided:
        """A's panel: in place if all of its tiles are whole."""
        side = self.p.left
        place = f.offset(rows, k * (side.inner * side.dtype.bytes))
        whole = height % SIDE == 0 and self.p.k % STEP == 0 and self.p.k > 0
        if whole and not self.s.pack_a and len(self.parts) == 1 and side.dtype is bfloat16 and side.inner == 1:
            return Strided(place, 2 * STEP, side.outer * 2)
        target = f.offset(scratch, self.a_at)
        for i, part in enumerate(self.parts):
            source = Source(place, side.dtype, side.outer, side.inner, part)
            self._pack_rows(f, block, source, f.offset(target, i * self.a_part), height)
        return Strided(target, 2 * STEP, self.a_outer)

    def _pack_rows(self, f: Function, block: Value, a: Source, target: Value, height: int) -> None:
        """A's panel, with zeros up to a whole step."""
        if not self.turned:
            self._zero_end(f, block, target, height, self.a_outer)
            packing.lines(f, ISA, a, target, self._span(f, block, SIDE), height, self.a_outer)
            return
        for at in range(0, height, SIDE):
            tile = replace(a, place=f.offset(a.place, at * a.dtype.bytes), outer=1)
            to = f.offset(target, at * self.a_outer)
            packing.turned(f, ISA, tile, to, self._span(f, block, STEP), min(height - at, SIDE), self.a_outer)

    def _zero_end(self, f: Function, block: Value, target: Value, rows: int, step: int) -> None:
        """Zeros in the second half of the last step, which `lines` does not write if the sum ends in the first."""
        span = self._span(f, block, STEP)
        if 0 < span.rest <= SIDE:
            with span.tail(f) as k:
                if k is not None:
                    for r in range(rows):
                        f.store(f.constant(0, "<16 x i16>"), f.offset(target, k * 2, r * step + SIDE * 2))

    def _pack_panel(
        self, f: Function, block: Value, b: Source, column: Value, k: Value, target: Value, count: int
    ) -> None:
        """B's panel in all parts, with zeros up to a whole step."""
        for i, part in enumerate(self.parts):
            self._pack_part(f, block, replace(b, part=part), column, k, f.offset(target, i * self.b_part), count)

    def _pack_part(
        self, f: Function, block: Value, b: Source, column: Value, k: Value, target: Value, count: int
    ) -> None:
        span = self._span(f, block, STEP)
        if span.rest:
            with span.tail(f) as at:
                if at is not None:
                    for unit in range(span.rest // 2, SIDE):
                        for v in range(self.s.vectors):
                            place = f.offset(target, at * (self.b_step // 2), unit * self.b_step + v * ISA.bytes)
                            f.store(f.constant(0, ISA.units), place)
        super()._pack_panel(f, block, b, column, k, target, count)

    # --- tiles --------------------------------------------------------------------------------------------------------
    def _tile(self, f: Function, block: Value, a: Strided, b: Strided, place: Place, sums: Value) -> None:
        """Up to 2 x 2 tiles; numbers 0-3 are sums, 4 and 5 A's, 6 and 7 B's."""
        tall, wide = -(-place.rows // SIDE), -(-place.columns // SIDE)
        step = self.store.step(place)
        every = [(2 * r + c, r * SIDE * step + c * 64) for r in range(tall) for c in range(wide)]

        def clear() -> None:
            for tile, _ in every:
                f.intrinsic("llvm.x86.tilezero", "void", _number(f, tile))

        def resume() -> None:
            for tile, at in every:
                _load(f, tile, f.offset(sums, at), step)

        if self.blocks == 1:
            clear()
        else:
            f.either(f.compare("eq", block, 0), clear, resume)
        span = self._span(f, block, STEP)
        depth = f.i64(span.whole) // STEP
        if span.rest:
            depth = depth + (f.convert("zext", span.last, "i64") if span.last is not None else 1)
        for i, j in self.products:
            left, right = f.offset(a.place, i * self.a_part), f.offset(b.place, j * self.b_part)
            with f.loop(0, depth) as k:
                self._step(f, Strided(f.offset(left, k * a.inner), a.inner, a.outer),
                           Strided(f.offset(right, k * (SIDE * b.inner)), b.inner, b.outer), tall, wide)  # fmt: skip
        for tile, at in every:
            f.intrinsic("llvm.x86.tilestored64", "void", _number(f, tile), f.offset(sums, at), f.i64(step))
        if self.blocks == 1:
            self.store.memory(f, sums, place)
        else:
            with f.when(f.compare("eq", block, self.blocks - 1)):
                self.store.memory(f, sums, place)

    def _step(self, f: Function, a: Strided, b: Strided, tall: int, wide: int) -> None:
        """Add the products of 32 elements of the sum."""
        for r in range(tall):
            _load(f, 4 + r, f.offset(a.place, r * SIDE * a.outer), a.outer)
            for c in range(wide):
                if r == 0:
                    _load(f, 6 + c, f.offset(b.place, c * b.outer), b.inner)
                f.intrinsic("llvm.x86.tdpbf16ps", "void", *[_number(f, n) for n in (2 * r + c, 4 + r, 6 + c)])


def _number(f: Function, tile: int) -> Value:
    return f.constant(tile, "i8")


def _load(f: Function, tile: int, place: Value, step: Operand) -> None:
    f.intrinsic("llvm.x86.tileloadd64", "void", _number(f, tile), place, f.i64(step))
