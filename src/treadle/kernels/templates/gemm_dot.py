"""Products with few rows whose operands both lie along the sum: vectors run along the sum, not along columns.

This is `x @ w.T` for one or a few x, and a matrix times a vector: bound by reading the right operand once. A task takes
some columns; it adds up all rows with four of them at a time, puts the totals into scratch memory and finishes them as
tiles are finished.
"""

from __future__ import annotations

from dataclasses import dataclass

from treadle.base.dtypes import DType
from treadle.kernels import launch
from treadle.kernels.llvm import Function, Module, Value
from treadle.kernels.microkernels import UNIT, Isa, first_lanes
from treadle.kernels.templates import packing
from treadle.kernels.templates.gemm_finish import Store
from treadle.kernels.templates.gemm_problem import Problem
from treadle.kernels.templates.gemm_tile import Place, batch_offsets

MOST_ROWS = 4
_NEAR = 16384  # bytes of columns, these and the next ones, that the first cache keeps


@dataclass(frozen=True)
class DotSchedule:
    """at_once: columns that are added up together; wide: columns of a task."""

    at_once: int
    wide: int

    def __str__(self) -> str:
        return f"dot {self.at_once} of {self.wide}"


def fits(problem: Problem) -> bool:
    """Whether the product is of this form."""
    few = problem.m <= MOST_ROWS and problem.k > 1
    return few and problem.left.inner == 1 and problem.right.inner == 1


def build(problem: Problem, isa: Isa, schedule: DotSchedule, store: Store, module: Module, name: str) -> launch.Phase:
    """Add the function of the product's phase to the module."""
    made = _Dot(problem, isa, schedule, store)
    f = Function(module, name, ["ptr", "i64", "ptr"])
    made.task(f)
    f.give()
    return launch.Phase(name, made.column_tasks * problem.batches)


class _Dot:
    def __init__(self, problem: Problem, isa: Isa, schedule: DotSchedule, store: Store) -> None:
        self.p, self.isa, self.s, self.store = problem, isa, schedule, store
        self.column_tasks = -(-problem.n // schedule.wide)
        self.last = problem.n - (self.column_tasks - 1) * schedule.wide

    def task(self, f: Function) -> None:
        buffers, task, scratch = f.args
        p = self.p
        left, right = (f.load(buffers, "ptr", 8 * side.param) for side in (p.left, p.right))
        batch, nth = task // self.column_tasks, task % self.column_tasks
        offsets = batch_offsets(f, batch, p.batch, [p.left.batch, p.right.batch])
        a = f.offset(left, (offsets[0] + p.left.offset) * p.left.dtype.bytes)
        first = nth * self.s.wide
        b = f.offset(right, (offsets[1] + p.right.offset + first * p.right.outer) * p.right.dtype.bytes)

        def columns(count: int) -> None:
            place = Place(batch, f.i64(0), p.m, first, count, f.null())
            step = self.store.step(place)
            whole = count - count % self.s.at_once
            if whole:
                with f.loop(0, whole, self.s.at_once) as column:
                    self._some(f, a, b, column, self.s.at_once, scratch, step)
            if count > whole:
                self._some(f, a, b, f.i64(whole), count - whole, scratch, step)
            self.store.memory(f, scratch, place)

        if self.last == self.s.wide or self.column_tasks == 1:
            columns(self.last)
        else:
            is_last = f.compare("eq", nth, self.column_tasks - 1)
            f.either(is_last, lambda: columns(self.last), lambda: columns(self.s.wide))

    def _some(self, f: Function, a: Value, b: Value, column: Value, count: int, sums: Value, step: int) -> None:
        """All rows with `count` columns."""
        isa, p = self.isa, self.p
        totals = [[f.variable(isa.sums, 0.0) for _ in range(count)] for _ in range(p.m)]
        block = isa.lanes * isa.per_unit
        b = f.offset(b, column * (p.right.outer * p.right.dtype.bytes))

        def add(k: Value, length: int) -> None:
            mask = first_lanes(f, block, length)
            rows = [self._units(f, a, r * p.left.outer, k, p.left.dtype, mask) for r in range(p.m)]
            for c in range(count):
                right = self._units(f, b, c * p.right.outer, k, p.right.dtype, mask)
                for r in range(p.m):
                    totals[r][c].set(isa.step(f, totals[r][c].get(), rows[r], right))

        rest = p.k % block
        line = p.right.outer * p.right.dtype.bytes
        near = 3 if 2 * count * line <= _NEAR else 2
        with f.loop(0, p.k - rest, block) as k:
            for c in range(count):  # rows are too short for the CPU to have seen that they go on
                f.prefetch(f.offset(b, (count + c) * line, k * p.right.dtype.bytes), locality=near)
            add(k, block)
        if rest:
            add(f.i64(p.k - rest), rest)
        to = f.offset(sums, column * UNIT)
        for r in range(p.m):
            for c in range(count):
                f.store(f.total(totals[r][c].get()), to, r * step + c * UNIT)

    def _units(self, f: Function, base: Value, line: int, k: Value, dtype: DType, mask: Value | None) -> Value:
        place = f.offset(base, line * dtype.bytes, k * dtype.bytes)
        return packing.units(f, self.isa, place, dtype, mask)
