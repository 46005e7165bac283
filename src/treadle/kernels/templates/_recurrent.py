"""What the kernels of recurrent layers share: sizes, the order of steps, weights laid out for the products of a step.

Steps are one phase of steps * chunks tasks, a chunk being some hidden units: a task waits until all chunks of the step
before are done. Tasks are claimed in order, so what a task waits for is being computed by a thread that runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from treadle.ir.node import Fn, Node
from treadle.kernels import launch
from treadle.kernels.llvm import Function, Module, Value
from treadle.kernels.target import Target
from treadle.kernels.templates import _tiles

_ITEM = {"f32": 4, "bf16": 2}
_TASK_FLOPS = 4e5  # a task is worth waiting for
_MOST_CHUNKS = 8
LINE = launch.LINE


@dataclass(frozen=True)
class Layer:
    """gates: 4 for an LSTM, 3 for a GRU. operands, results: numbers of the kernel's buffers, None: not wanted."""

    kind: str
    gates: int
    steps: int
    rows: int
    hidden: int
    reverse: bool
    operands: tuple[int, ...]
    results: tuple[int | None, ...]
    buffers: int

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return _ITEM[self.kind]


def layer(body: Fn, anchor: Node, gates: int, stacked: int) -> Layer | None:
    """The layer of a body that is the anchor alone; None where the kernels do not take it.

    stacked: the operand of shape [T, N, .] that gives the sizes.
    """
    x, w = anchor.inputs[stacked], next(v for v in anchor.inputs if v.ndim == 2 and v.shape[0] == gates * v.shape[1])
    steps, rows, hidden = x.shape[0], x.shape[1], w.shape[1]
    if x.dtype.short not in _ITEM or 0 in (steps, rows, hidden) or len(body.nodes) != 1:
        return None
    if any(v not in body.params for v in anchor.inputs) or len(set(body.outputs)) != len(body.outputs):
        return None
    if any(v not in anchor.outputs for v in body.outputs):
        return None
    places = {v: i for i, v in enumerate(body.outputs)}
    first = len(body.params)
    results = [first + places[v] if v in places else None for v in anchor.outputs]
    operands = tuple([body.params.index(v) for v in anchor.inputs])
    sizes = (steps, rows, hidden, bool(anchor.attrs["reverse"]))
    return Layer(x.dtype.short, gates, *sizes, operands, tuple(results), first + len(body.outputs))


class Steps:
    """The module of a kernel, its workspace and the control of its steps."""

    def __init__(self, p: Layer, target: Target, wide: int, tall: int) -> None:
        m = _tiles.machine(target, p.kind == "bf16" and p.hidden % 2 == 0)
        self.p, self.m, self.module = p, replace(m, wide=wide, tall=min(tall, p.rows)), Module()
        self.x86 = target.triple.startswith("x86")
        self.factor = "bf16" if self.m.pairs else "f32"  # kind of the numbers that a step multiplies by w
        self.units = self.m.lanes * (1 if wide == p.gates else wide)  # hidden units of a tile
        self.groups = -(-p.hidden // self.units)
        flops = 2.0 * p.gates * p.rows * p.hidden * p.hidden
        chunks = int(max(1, min(_MOST_CHUNKS, self.groups, flops // _TASK_FLOPS)))
        self.per_chunk = -(-self.groups // chunks)
        self.chunks = -(-self.groups // self.per_chunk)
        self.used = 0

    def reserve(self, bytes: int) -> int:
        """Room in the workspace."""
        at = self.used
        self.used += (bytes + LINE - 1) // LINE * LINE + LINE
        return at

    def factors(self, width: int) -> tuple[int, int]:
        """Room for what a step multiplies by w and for what it makes for the next; bytes of a row.

        Rows are a line longer than needed: rows that are a power of two apart share few places of the first cache.
        """
        row = -(-width * _ITEM[self.factor] // LINE) * LINE + LINE
        return self.reserve(2 * self.p.rows * row), row

    def factor_at(self, f: Function, room: tuple[int, int], turn: Value) -> Value:
        """The rows that step `turn` reads; those of turn + 1 are the ones it writes."""
        return f.offset(self.space(f, room[0]), turn % 2 * (self.p.rows * room[1]))

    def put_factor(
        self, f: Function, x: Value, room: tuple[int, int], turn: Value, at: tuple[Value, Value], mask: Value | None
    ) -> None:
        """Write a vector at (row, column) of what step `turn` reads, rounded as the results are."""
        m, (row, column) = self.m, at
        place = f.offset(self.factor_at(f, room, turn), row * room[1], column * _ITEM[self.factor])
        if self.p.kind != self.factor:
            x = f.bitcast(f.convert("zext", _tiles.narrow(f, m, x), "i32") << 16, m.floats)
        _tiles.store_floats(f, m, self.factor, x, place, mask)

    def space(self, f: Function, at: int) -> Value:
        """The place of a reserved room."""
        return f.offset(f.load(f.args[0], "ptr", 8 * self.p.buffers), at)

    def operand(self, f: Function, i: int) -> Value:
        """The array of an operand."""
        return f.load(f.args[0], "ptr", 8 * self.p.operands[i])

    def result(self, f: Function, i: int) -> Value | None:
        """The array of a result that is wanted."""
        buffer = self.p.results[i]
        return None if buffer is None else f.load(f.args[0], "ptr", 8 * buffer)

    def clear(self, f: Function, counters: int, count: int) -> None:
        """No step is done. By the first task only."""
        with f.when(f.compare("eq", f.args[1], 0)), f.loop(0, count) as i:
            f.store(f.i64(0), f.offset(self.space(f, counters), i * LINE))

    def step(self, f: Function, counters: int, work: Callable[[Value, Value], None]) -> None:
        """Wait for the step before, do the chunk's groups of units (work(step, group)), tell that they are done."""
        step, chunk = f.args[1] // self.chunks, f.args[1] % self.chunks
        place = f.offset(self.space(f, counters), step * LINE)
        with f.when(f.compare("sgt", step, 0)):
            launch.wait(f, f.offset(place, -LINE), f.i64(self.chunks), self.x86)
        first = chunk * self.per_chunk
        with f.loop(first, f.min_int(first + self.per_chunk, self.groups)) as group:
            work(step, group)
        f.emit(f"atomicrmw add ptr {place.name}, i64 1 release", "i64")

    def row_tiles(self, f: Function, work: Callable[[Value, int], None]) -> None:
        """work(first row, rows) for all rows."""
        full = self.p.rows - self.p.rows % self.m.tall
        if full:
            with f.loop(0, full, self.m.tall) as row:
                work(row, self.m.tall)
        if self.p.rows > full:
            work(f.i64(full), self.p.rows - full)

    def mask(self, f: Function, unit: Value) -> Value | None:
        """Lanes that are hidden units, from a unit on; None for all."""
        if self.p.hidden % self.units == 0:
            return None
        return f.mask(f.i64(self.p.hidden) - unit, self.m.lanes)
