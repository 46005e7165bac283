"""Rows added up by index, as the gradient of an embedding: `index_sum` along the first axis.

A task owns some rows of the result: it clears them and adds the updates whose index is among them, in their order. So
no two tasks write to one row and the result does not depend on the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from treadle.ir.node import Fn
from treadle.kernels import launch
from treadle.kernels.kernel import Kernel, Plan
from treadle.kernels.llvm import Function, Module, Value, vector
from treadle.kernels.target import Target
from treadle.kernels.vmath import stored
from treadle.ops.index import index_sum

_TASKS = 32
_LOOK_BYTES = 256  # moved by a task per index that it looks at: then looking is a small part


@dataclass(frozen=True)
class _Shape:
    """count updates of `width` elements (LLVM's type `kind`) into `rows` rows; indices are of type `index`."""

    rows: int
    width: int
    count: int
    kind: str
    bytes: int
    index: str
    signed: bool


def plans(body: Fn, target: Target) -> list[Plan]:
    """One plan for a body that is `index_sum` along axis 0 of numbers of 32 or 64 bits."""
    if len(body.nodes) != 1 or body.nodes[0].op is not index_sum or body.nodes[0].inputs != body.params:
        return []
    node = body.nodes[0]
    (indices, updates), out = body.in_types, node.outputs[0].type
    if node.attrs["axis"] != 0 or out.dtype.bits < 32 or out.dtype.kind == "c" or 0 in (out.size, updates.size):
        return []
    if body.outputs != node.outputs:
        return []
    width = prod(out.shape[1:])
    kind, index = stored(out.dtype), f"i{indices.dtype.bits}"
    shape = _Shape(out.shape[0], width, indices.size, kind, out.dtype.bytes, index, indices.dtype.kind == "i")
    return [Plan("rows added", lambda: Kernel(body.in_types, body.out_types, _text(shape, target)))]


def _text(s: _Shape, target: Target) -> str:
    m = Module()
    f = Function(m, "add", ["ptr", "i64", "ptr"])
    tasks = _tasks(s)
    indices, updates, out = (f.load(f.args[0], "ptr", 8 * n) for n in range(3))
    low = (f.args[1] * s.rows) // tasks
    high = ((f.args[1] + 1) * s.rows) // tasks
    lanes = target.lanes(8 * s.bytes)
    begin, end = low * s.width, high * s.width
    zeros = f.constant(0, vector(s.kind, lanes))

    def clear() -> None:
        with f.loop(begin, end, lanes) as i:
            f.store_masked(zeros, f.offset(out, i * s.bytes), f.mask(end - i, lanes))

    def clear_lines() -> None:
        with f.loop(begin, end, lanes) as i:
            f.store(zeros, f.offset(out, i * s.bytes), stream=True)

    if s.width % lanes == 0 and s.rows * s.width * s.bytes > target.l3:  # past the caches, which do not hold it
        low_bits = f.emit(f"ptrtoint ptr {out.name} to i64", "i64") & (lanes * s.bytes - 1)
        f.either(f.compare("eq", low_bits, 0), clear_lines, clear)
    else:
        clear()
    with f.loop(0, s.count) as i:
        row = _row(f, f.load(f.offset(indices, i * (int(s.index[1:]) // 8)), s.index), s)
        with f.when(f.compare("sge", row, low) & f.compare("slt", row, high)):
            _add(f, s, f.offset(updates, i * (s.width * s.bytes)), f.offset(out, row * (s.width * s.bytes)), lanes)
    f.give()
    return launch.finish(m, [launch.Phase("add", tasks)], 3)


def _tasks(s: _Shape) -> int:
    """Each looks at all indices."""
    moved = (s.rows + 2 * s.count) * s.width * s.bytes
    return min(_TASKS, s.rows, s.rows * s.width // 4096 + 1, max(2, moved // (_LOOK_BYTES * s.count)))


def _row(f: Function, index: Value, s: _Shape) -> Value:
    """The index, confined to the rows there are."""
    if s.signed:
        return f.min_int(f.max_int(f.convert("sext", index, "i64"), 0), s.rows - 1)
    wide = f.convert("zext", index, "i64")
    return f.select(f.compare("ugt", wide, s.rows - 1), s.rows - 1, wide)


def _add(f: Function, s: _Shape, source: Value, into: Value, lanes: int) -> None:
    type, whole = vector(s.kind, lanes), s.width // lanes * lanes
    if whole:
        with f.loop(0, whole * s.bytes, lanes * s.bytes) as at:
            place = f.offset(into, at)
            f.store(f.load(place, type) + f.load(f.offset(source, at), type), place)
    if s.width % lanes:
        mask = f.mask(f.i64(s.width - whole), lanes)
        place, more = f.offset(into, whole * s.bytes), f.offset(source, whole * s.bytes)
        f.store_masked(f.load_masked(place, type, mask) + f.load_masked(more, type, mask), place, mask)
