"""Sums over the rows of a product's results (gradients of biases), taken while the results are written.

A task adds up its rows in scratch memory, one float per column and sum, and puts the totals into the workspace in a
place of their own; a phase of its own adds those of all tasks, in order, and rounds once. The result does not depend on
the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass

from treadle.base.dtypes import DType
from treadle.kernels import launch, vmath
from treadle.kernels.llvm import Function, Module, Value, lanes
from treadle.kernels.microkernels import UNIT, Isa, first_lanes


@dataclass(frozen=True)
class Totals:
    """outputs: buffer and element type of each sum; workspace: number of that buffer, in which they begin at `at`."""

    outputs: tuple[tuple[int, DType], ...]
    workspace: int

    def clear(self, f: Function, isa: Isa, place: Value, floats: int) -> None:
        """Zeros for a task: `floats` per sum, a multiple of a vector."""
        with f.loop(0, len(self.outputs) * floats, isa.lanes) as i:
            f.store(f.constant(0.0, isa.sums), f.offset(place, i * UNIT))

    def keep(self, f: Function, isa: Isa, place: Value, floats: int, part: Value, parts: int, first: Value,
             count: Value, line: int, at: int) -> None:  # fmt: skip
        """A task's totals into the workspace: [sum][part][line], from column `first` on `count` of them, both multiples
        of a vector."""
        to = f.offset(f.load(f.args[0], "ptr", 8 * self.workspace), at)
        for i in range(len(self.outputs)):
            row = f.offset(to, (part + i * parts) * (line * UNIT), first * UNIT)
            source = f.offset(place, i * floats * UNIT)
            with f.loop(0, count, isa.lanes) as c:
                f.store(f.load(f.offset(source, c * UNIT), isa.sums), f.offset(row, c * UNIT))

    def bytes(self, parts: int, line: int) -> int:
        """Of the workspace."""
        return len(self.outputs) * parts * line * UNIT

    def phase(self, isa: Isa, module: Module, parts: int, line: int, columns: int, at: int) -> launch.Phase:
        """Add up what the tasks kept. A task takes a vector of columns."""
        f = Function(module, "totals", ["ptr", "i64", "ptr"])
        tasks, tail = -(-columns // isa.lanes), columns % isa.lanes
        column = f.args[1] * isa.lanes
        start = f.offset(f.load(f.args[0], "ptr", 8 * self.workspace), at, column * UNIT)
        for i, (buffer, dtype) in enumerate(self.outputs):
            total = f.variable(isa.sums, 0.0)
            with f.loop(i * parts, (i + 1) * parts) as part:
                total.set(total.get() + f.load(f.offset(start, part * (line * UNIT)), isa.sums))
            to = f.offset(f.load(f.args[0], "ptr", 8 * buffer), column * dtype.bytes)
            value = total.get()
            if dtype.bytes == 2:
                kind = vmath.half_kind(dtype)
                value = vmath.narrow(value, kind, isa.narrows if kind == "bfloat" else isa.halves)
            if tail:
                is_last = f.compare("eq", f.args[1], tasks - 1)
                f.either(is_last, lambda v=value, p=to: store_first(f, v, p, tail), lambda v=value, p=to: f.store(v, p))
            else:
                f.store(value, to)
        f.give()
        return launch.Phase("totals", tasks)


def store_first(f: Function, value: Value, place: Value, count: int) -> None:
    """Write the first `count` lanes of a vector, fewer than all."""
    lanes = int(value.type[1:].split(" ")[0])
    mask = first_lanes(f, lanes, count)
    if count == 1 or mask is None:  # LLVM 22 stores too much for one lane of a vector that was made narrower
        f.store(f.extract(value, 0), place)
    else:
        f.store_masked(value, place, mask)


def store_some(f: Function, value: Value, place: Value, count: int) -> None:
    """Write the first `count` lanes of a vector, or all of them."""
    if count >= lanes(value.type):
        f.store(value, place)
    else:
        store_first(f, value, place, count)
