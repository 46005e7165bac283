"""Products of bytes summed in int32 (`matmul_integer`) with what follows them: `plans(body, target)`.

The tiles are those of gemm_tile, with units of four bytes where the CPU multiplies these at once (AVX512-VNNI:
unsigned times signed), else of two numbers of 16 bits (pmaddwd), else of one of 32. VNNI's left operand is made
unsigned by adding 128 while it is packed; sums then begin with -128 times the sum of B's column, which the panels of B
hold behind their units. Sums are exact modulo 2**32 on every path. What follows is written by gemm_finish.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from treadle.base.dtypes import DType, int8, int32, uint8
from treadle.ir.node import Fn
from treadle.kernels import launch
from treadle.kernels.kernel import Kernel, Plan
from treadle.kernels.llvm import Function, Module, Operand, Value, vector
from treadle.kernels.microkernels import UNIT, Isa, Strided, Tile, first_lanes, row_limit
from treadle.kernels.target import Target
from treadle.kernels.templates import gemm_finish, gemm_problem, gemm_tile
from treadle.kernels.templates.gemm_finish import Finish, Store
from treadle.kernels.templates.gemm_problem import Problem, Side
from treadle.kernels.templates.gemm_tile import Place, Schedule
from treadle.kernels.templates.packing import Source, Span, transposed

_MADD = {16: "llvm.x86.avx512.pmaddw.d.512", 8: "llvm.x86.avx2.pmadd.wd", 4: "llvm.x86.sse2.pmadd.wd"}
_SIGNS = 0x80808080  # of four bytes
_TASK_FLOPS = 4e6  # of a task that is worth to be claimed by a thread
_PAGE = 4096  # bytes; rows so far apart compete for the same places in a cache
_ROWS = 192  # of a task


@dataclass(frozen=True)
class Bytes(Isa):
    """How bytes are multiplied. per: elements of the sum in a unit of 32 bits."""

    per: int = 4

    @property
    def sums(self) -> str:
        """Type of a vector of accumulators."""
        return vector("i32", self.lanes)

    @property
    def units(self) -> str:
        """Type of a vector of units."""
        return vector("i32", self.lanes)

    @property
    def per_unit(self) -> int:
        """Elements of the summed axis in a unit."""
        return self.per

    def spread(self, f: Function, place: Value, offset: Operand = 0, half: bool = False) -> Value:
        """The unit at a place in all lanes."""
        return f.splat(f.load(place, "i32", offset, 1), self.lanes)

    def step(self, f: Function, sums: Value, a: Value, b: Value) -> Value:
        """sums + a * b, the sum of all products of a unit."""
        if self.per == 4:
            quads = vector("i8", 4 * self.lanes)
            name = f"llvm.x86.avx512.vpdpbusd.{32 * self.lanes}"
            return f.intrinsic(name, self.sums, sums, f.bitcast(a, quads), f.bitcast(b, quads))
        if self.per == 2:
            pairs = vector("i16", 2 * self.lanes)
            return sums + f.intrinsic(_MADD[self.lanes], self.sums, f.bitcast(a, pairs), f.bitcast(b, pairs))
        return sums + a * b

    def elements(self, f: Function, place: Value, dtype: DType, count: int) -> Value:
        """Units of the first `count` bytes along the sum; the rest of the vector is 0."""
        whole = self.lanes * self.per
        mask, kind = first_lanes(f, whole, count), vector("i8", whole)
        raw = f.load(place, kind) if mask is None else f.load_masked(place, kind, mask)
        return f.bitcast(f.convert(_widening(dtype), raw, f"i{32 // self.per}"), self.units)

    def unit(self, f: Function, place: Value, step: int, side: DType, lanes: int, count: int) -> Value:
        """One unit of neighbours across the sum: `count` of its elements, `step` bytes apart, in the first lanes."""
        mask, kind, made = first_lanes(f, self.lanes, lanes), vector("i8", self.lanes), None
        for i in range(count):
            here = f.offset(place, i * step)
            raw = f.load(here, kind) if mask is None else f.load_masked(here, kind, mask)
            if self.per == 2:
                raw = f.convert(_widening(side), raw, "i16")
            part = f.convert("zext" if self.per > 1 else _widening(side), raw, "i32")
            part = part << (i * (32 // self.per)) if i else part
            made = part if made is None else made | part
        assert made is not None
        return made


def _widening(dtype: DType) -> str:
    return "sext" if dtype is int8 else "zext"


def plans(body: Fn, target: Target) -> list[Plan]:
    """Ways to compute a body around a product of bytes, the most promising first; [] if it is none."""
    found = [gemm_problem.read(body, swapped, (int8, uint8, int32)) for swapped in (False, True)]
    for problem in sorted([p for p in found if p is not None], key=lambda p: (p.n == 1, p.right.dtype is not int8)):
        sides = (problem.left, problem.right)
        if problem.dtype is not int32 or any(s.used_as is not s.dtype or not _lies(s, problem) for s in sides):
            continue
        isa, finish = _isa(problem, target), gemm_finish.read(body, problem)
        if finish is None or any(o.summed for o in finish.outputs) or finish.width_divides() % isa.lanes:
            continue
        schedules = dict.fromkeys(_schedules(problem, finish, isa, target))
        return [Plan(f"gemm int8 x{isa.per} {s}", partial(_make, body, problem, finish, isa, target, s))
                for s in schedules]  # fmt: skip
    return []


def _lies(side: Side, problem: Problem) -> bool:
    """Whether the operand has an axis along which it lies without gaps."""
    return side.inner == 1 or side.outer == 1 or problem.k == 1


def _isa(problem: Problem, target: Target) -> Bytes:
    quads = target.has("vnni") and target.has("avx512") and problem.right.dtype is int8
    per = 4 if quads else 2 if target.triple.startswith(("x86", "i686")) else 1
    return Bytes(target.lanes(32), target.registers, per=per)


def _schedules(problem: Problem, finish: Finish, isa: Bytes, target: Target) -> Iterator[Schedule]:
    """Schedules worth trying, the best guess first."""
    left, need, part = problem.left, -(-problem.n // isa.lanes), finish.width_divides()
    depth = -(-max(problem.k, 1) // (isa.lanes * isa.per)) * isa.lanes * isa.per
    readable = isa.per == 4 and left.dtype is uint8 and left.inner == 1 and problem.k % 4 == 0
    pack_a = not readable or left.outer % _PAGE == 0
    wanted = [v for v in ((3, 2, 4) if isa.registers == 32 else (2, 1)) if v <= need]
    for vectors in [v for v in wanted if not part or part % (v * isa.lanes) == 0] or [1]:
        rows, width = row_limit(isa, vectors), vectors * isa.lanes
        panels, columns = -(-problem.m // rows), -(-problem.n // width)
        wide = max(1, min(columns, target.l2 // 2 // (depth // isa.per * width * UNIT)))
        high = max(1, min(panels, _ROWS // rows)) if problem.batches == 1 else panels
        while high * wide > 1 and problem.batches * -(-panels // high) * -(-columns // wide) < 4 * target.cores:
            if problem.batches * problem.m * problem.n * problem.k < target.cores * _TASK_FLOPS:
                break
            high, wide = (-(-high // 2), wide) if high >= wide and problem.batches == 1 else (high, -(-wide // 2))
            if problem.batches > 1 and wide == 1:
                break
        yield Schedule(vectors, rows, depth, high, wide, pack_a, True, share=problem.batches == 1 and panels > high)


def _make(body: Fn, problem: Problem, finish: Finish, isa: Bytes, target: Target, schedule: Schedule) -> Kernel:
    module = Module()
    store = Store(finish, isa, target, module)
    made = _Gemm(problem, isa, schedule, store.tile, store.buffers)
    phases, buffers = gemm_tile.build(made, module), len(body.params) + len(body.outputs)
    text = launch.finish(module, phases, buffers + bool(made.workspace))
    packs = problem.right.param if schedule.share else -1
    return Kernel(body.in_types, body.out_types, text, made.workspace, finish.aliases(), packs)


class _Gemm(gemm_tile.Gemm):
    """The loops of gemm_tile over one block of the sum, with bytes for operands."""

    isa: Bytes
    runs = False

    def _place_scratch(self) -> None:
        self.shifted = self.isa.per == 4 and self.p.left.dtype is int8
        self.corrections = self.b_panel  # where in a panel the first sums are
        self.b_panel += self.width * UNIT
        super()._place_scratch()

    # --- A ------------------------------------------------------------------------------------------------------------
    def _a(self, f: Function, block: Value, k: Value, rows: Value, height: int, nth: Value, scratch: Value) -> Strided:
        """A's panel of rows, packed if the schedule says so."""
        if not self.s.pack_a or self.by_column:
            return super()._a(f, block, k, rows, height, nth, scratch)
        target, span = f.offset(scratch, self.a_at), self._span(f, block, self.isa.lanes * self.isa.per)

        def lines(at: Value, count: int) -> None:
            for r in range(height):
                units = self.isa.elements(f, f.offset(rows, r * self.p.left.outer, at), self.p.left.dtype, count)
                f.store(self._unsigned(units), f.offset(target, at * (UNIT // self.isa.per) + r * self.a_outer))

        _in_blocks(f, span, self.isa.lanes * self.isa.per, lines)
        return Strided(target, self.a_inner, self.a_outer)

    def _unsigned(self, units: Value) -> Value:
        return units ^ _signed(_SIGNS) if self.shifted else units

    def _pack_a(self, f: Function, block: Value, k: Value, a: Value, rows: tuple[Value, Value], scratch: Value) -> None:
        """All panels of rows of a task, whose rows are neighbours in memory: one unit of the sum after the other."""
        side, isa, target = self.p.left, self.isa, f.offset(scratch, self.a_at)

        def units(at: Value, count: int) -> None:
            to = f.offset(target, at * (self.a_inner // isa.per))
            for height, panel, row in self._panels(f, rows):
                here = f.offset(self._row(f, a, row), at * side.inner)
                there = f.offset(to, (panel - rows[0]) * self.a_panel)
                for v, lane in enumerate(range(0, height, isa.lanes)):
                    some = min(height - lane, isa.lanes)
                    unit = isa.unit(f, f.offset(here, lane * side.outer), side.inner, side.dtype, some, count)
                    f.store(self._unsigned(unit), there, v * isa.bytes)

        _in_blocks(f, self._span(f, block, isa.per), isa.per, units)

    # --- B ------------------------------------------------------------------------------------------------------------
    def _pack_panel(
        self, f: Function, block: Value, b: Source, column: Value, k: Value, target: Value, count: int
    ) -> None:
        """The panel's units, and behind them what the sums of its columns begin with."""
        isa, side = self.isa, self.p.right
        start, places = b.at(f, column, k), range(0, count, isa.lanes)
        totals = [f.variable(isa.sums, 0) for _ in places]
        along = side.outer == 1 or self.p.n == 1

        def put(unit: Value, v: int, at: Value, nth: int = 0) -> None:
            f.store(unit, f.offset(target, at * (self.b_step // isa.per)), nth * self.b_step + v * isa.bytes)
            if self.shifted:
                totals[v].set(isa.step(f, totals[v].get(), f.constant(0x01010101, isa.units), unit))

        def neighbours(at: Value, some: int) -> None:
            here = f.offset(start, at * side.inner)
            for v, lane in enumerate(places):
                place, lanes = f.offset(here, lane * side.outer), min(count - lane, isa.lanes)
                put(isa.unit(f, place, side.inner, side.dtype, lanes, some), v, at)

        def lines(at: Value, some: int) -> None:
            for v, lane in enumerate(places):
                last = min(count - lane, isa.lanes) - 1
                rows = [isa.elements(f, f.offset(start, (lane + min(i, last)) * side.outer, at), side.dtype, some)
                        for i in range(isa.lanes)]  # fmt: skip
                for i, unit in enumerate(transposed(f, rows)):
                    if i * isa.per < some:
                        put(unit, v, at, i)

        size = isa.per if along else isa.lanes * isa.per
        _in_blocks(f, self._span(f, block, size), size, neighbours if along else lines)
        if self.shifted:
            for v in range(len(places)):
                f.store(totals[v].get() * -128, target, self.corrections + v * isa.bytes)

    # --- tiles --------------------------------------------------------------------------------------------------------
    def _tile(self, f: Function, block: Value, a: Strided, b: Strided, place: Place, sums: Value) -> None:
        """One tile, from its first sums to its results."""
        isa = self.isa
        tile = Tile(f, isa, place.rows, -(-place.columns // isa.lanes))
        for row in tile.sums:
            for v, each in enumerate(row):
                each.set(f.load(b.place, isa.sums, self.corrections + v * isa.bytes) if self.shifted else 0)
        tile.multiply(f.i64(-(-self.p.k // isa.per)), a, b)
        self.finish(f, sums, place, tile)


def _signed(bits: int) -> int:
    return bits - (1 << 32) if bits >> 31 else bits


def _in_blocks(f: Function, span: Span, size: int, work: Callable[[Value, int], None]) -> None:
    """work(place in the sum, number of elements) for all blocks of `size`, then for what is left over."""
    with f.loop(0, span.whole, size) as at:
        work(at, size)
    with span.tail(f) as last:
        if last is not None:
            work(last, span.rest)
