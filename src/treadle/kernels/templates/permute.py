"""Moves of a tensor's elements to other places: transposes, with reshapes and slices around them, at memory's pace.

`plans(body, target)` takes a body of one parameter and one result that is a strided view of it, in elements of 1, 2, 4
or 8 bytes, where the axis that is contiguous in the parameter is not the result's last one. Squares are turned in
registers (`_squares`); a last or contiguous axis of few places is woven from, or into, a line for each (`_weave`).
Edges are no cases of their own: the last square is moved back until it fits, and writes some places twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from treadle.ir.node import Fn
from treadle.kernels import launch
from treadle.kernels.kernel import Kernel, Plan
from treadle.kernels.llvm import Function, Module, Value, element, lanes, size, vector
from treadle.kernels.target import Target
from treadle.kernels.templates._turned import turned
from treadle.kernels.templates._views import View, of_input

_GRAIN = 64 << 10  # bytes that a task moves at least
_TASKS = 64
_FEW = 7  # places of an axis that are woven
_LINE = 4 << 10  # bytes of a woven line of a piece
_LENGTH, _BAND = 64, 2  # squares of a piece along the cross axis, and along the other one


@dataclass(frozen=True)
class Loop:
    """An axis: its extent, and the distances between its places in the parameter and in the result, in items."""

    extent: int
    source: int
    to: int


@dataclass(frozen=True)
class Move:
    """Items of `item` bytes from the parameter, `offset` items from its start on. along: the result's last axis;
    cross: the axis that is contiguous in the parameter; outer: the others; known: bytes that all places are multiples
    of."""

    item: int
    known: int
    offset: int
    outer: tuple[Loop, ...]
    cross: Loop
    along: Loop

    @property
    def rows(self) -> int:
        """Points of the outer axes."""
        return prod(a.extent for a in self.outer)

    @property
    def bytes(self) -> int:
        """Bytes of the result."""
        return self.item * self.rows * self.cross.extent * self.along.extent


def move(body: Fn) -> Move | None:
    """What a body moves; None if it is not a move of this kind."""
    if len(body.params) != 1 or len(body.outputs) != 1 or not body.nodes or 0 in body.outputs[0].shape:
        return None
    item = body.params[0].dtype.bytes
    view = of_input(body.outputs[0], body) if item in (1, 2, 4, 8) else None
    return None if view is None else _of_view(view, item)


def _of_view(view: View, item: int) -> Move | None:
    sizes, strides = view.lead(len(view.sizes))
    known = item
    if sizes and strides[-1] == item:  # short lines are items
        item *= sizes[-1]
        if item not in (2, 4, 8) or view.offset % item or any(s % item for s in strides[:-1]):
            return None
        sizes, strides = sizes[:-1], strides[:-1]
    to = [prod(sizes[i + 1 :]) for i in range(len(sizes))]
    axes = [Loop(n, s // item, t) for n, s, t in zip(sizes, strides, to, strict=True)]
    crossing = [a for a in axes[:-1] if a.source == 1]
    if len(crossing) != 1 or axes[-1].source < 2:
        return None
    outer = tuple([a for a in axes[:-1] if a is not crossing[0]])
    return Move(item, known, view.offset // item, outer, crossing[0], axes[-1])


@dataclass(frozen=True)
class _Square:
    """A square of `up` places of the cross axis and `far` of the axis along, in vectors of `bytes`."""

    bytes: int
    up: int
    far: int


def _square(m: Move, target: Target) -> _Square | None:
    """The largest that fits."""
    for bytes in (64, 32, 16):
        up, far = bytes // max(m.item, 4), bytes // m.item
        if bytes <= target.vector_bytes and m.cross.extent >= up and m.along.extent >= far:
            return _Square(bytes, up, far)
    return None


def plans(body: Fn, target: Target) -> list[Plan]:
    """Squares, or lines woven; none for other bodies."""
    m = move(body)
    if m is None:
        return []
    few = min(m.cross, m.along, key=lambda a: a.extent)
    many = m.along if few is m.cross else m.cross
    beside = (many.source if few is m.cross else many.to) == few.extent
    fits = [n // m.item for n in (64, 32, 16) if n <= target.vector_bytes and many.extent * m.item >= n]
    if few.extent <= _FEW and beside and fits:
        return [Plan("permute woven", partial(_woven, body, m, fits[0]))]
    square = _square(m, target)
    if square is None:
        return []
    kept = Plan("permute", partial(_squares, body, m, square, False))
    if square.bytes < 64 or m.along.extent * m.item % 64:
        return [kept]
    past = Plan("permute past caches", partial(_squares, body, m, square, True))
    return [past, kept] if 4 * m.bytes >= target.l3 else [kept, past]


def _kernel(body: Fn, module: Module, tasks: int) -> Kernel:
    text = launch.finish(module, [launch.Phase("move", tasks)], 2)
    return Kernel(body.in_types, body.out_types, text)


def _count(m: Move, pieces: int) -> tuple[int, int]:
    """Tasks for so many pieces, and the pieces of each."""
    tasks = max(1, min(_TASKS, m.bytes // _GRAIN, pieces))
    each = -(-pieces // tasks)
    return -(-pieces // each), each


def _places(f: Function, m: Move, row: Value) -> tuple[Value, Value]:
    """Where a row begins in the parameter and in the result."""
    source, to = f.i64(m.offset), f.i64(0)
    for axis in reversed(m.outer):
        at, row = row % axis.extent, row // axis.extent
        source, to = source + at * axis.source, to + at * axis.to
    base = [f.load(f.args[0], "ptr", 8 * n) for n in range(2)]
    return f.offset(base[0], source * m.item), f.offset(base[1], to * m.item)


def _squares(body: Fn, m: Move, s: _Square, stream: bool) -> Kernel:
    """Bands of squares: `_BAND` lines of squares along the cross axis, each read from one end to the other."""
    high, wide = _LENGTH * s.up, _BAND * s.far
    ups, fars = -(-m.cross.extent // high), -(-m.along.extent // wide)
    pieces = m.rows * ups * fars
    tasks, each = _count(m, pieces)
    module = Module()
    f = Function(module, "band", ["ptr", "ptr", "i64", "i64"], linkage="internal")

    def band(stream: bool) -> None:
        low, left = f.args[2], f.args[3]
        bottom, right = f.min_int(low + high, m.cross.extent), f.min_int(left + wide, m.along.extent)
        with f.loop(left, right, s.far) as x, f.loop(low, bottom, s.up) as y:
            u, v = f.min_int(y, m.cross.extent - s.up), f.min_int(x, m.along.extent - s.far)
            source = f.offset(f.args[0], (u + v * m.along.source) * m.item)
            _turn(f, m, s, source, f.offset(f.args[1], (u * m.cross.to + v) * m.item), stream)

    if stream:
        at = f.emit(f"ptrtoint ptr {f.args[1].name} to i64", "i64")
        f.either(f.compare("eq", at & 63, 0), lambda: band(True), lambda: band(False))
    else:
        band(False)
    f.give()
    f = Function(module, "move", ["ptr", "i64", "ptr"])
    first = f.args[1] * each
    with f.loop(first, f.min_int(first + each, pieces)) as piece:
        row, rest = piece // (ups * fars), piece % (ups * fars)
        source, to = _places(f, m, row)
        f.call("@band", "void", source, to, rest % ups * high, rest // ups * wide)
    f.give()
    return _kernel(body, module, tasks)


def _turn(f: Function, m: Move, s: _Square, source: Value, to: Value, stream: bool) -> None:
    """One square: lines of the cross axis to lines of the axis along."""
    kind, step = f"i{8 * m.item}", m.along.source * m.item
    lines = [f.load(source, vector(kind, s.up), n * step, m.known) for n in range(s.far)]
    while len(lines) > s.up:  # neighbours become one item of twice the size
        lines = [_paired(f, lines[n], lines[n + 1]) for n in range(0, len(lines), 2)]
    for n, line in enumerate(turned(lines)):
        f.store(f.bitcast(line, vector(kind, s.far)), to, n * m.cross.to * m.item, m.known, stream)


def _paired(f: Function, a: Value, b: Value) -> Value:
    """Two lines' items side by side, as items of twice the size."""
    count, wide = lanes(a.type), 2 * size(element(a.type))
    both = f.shuffle(a, b, [n // 2 + (count if n % 2 else 0) for n in range(2 * count)])
    return f.bitcast(both, vector(f"i{8 * wide}", count))


def _woven(body: Fn, m: Move, width: int) -> Kernel:
    """Pieces of lines of the long axis."""
    few, many = (m.cross, m.along) if m.cross.extent < m.along.extent else (m.along, m.cross)
    apart = few is m.cross  # the long axis' lines are in the result
    length = max(width, _LINE // m.item // width * width)
    parts = -(-many.extent // length)
    tasks, each = _count(m, m.rows * parts)
    module = Module()
    f = Function(module, "move", ["ptr", "i64", "ptr"])
    first, kind = f.args[1] * each, vector(f"i{8 * m.item}", width)
    with f.loop(first, f.min_int(first + each, m.rows * parts)) as piece:
        row, low = piece // parts, piece % parts * length
        source, to = _places(f, m, row)
        with f.loop(low, f.min_int(low + length, many.extent), width) as at:
            at = f.min_int(at, many.extent - width) * m.item
            if apart:
                place = f.offset(source, at * few.extent)
                whole = [f.load(place, kind, n * width * m.item, m.known) for n in range(few.extent)]
                for n, line in enumerate(_dealt(f, whole)):
                    f.store(line, f.offset(to, at), n * few.to * m.item, m.known)
            else:
                place = f.offset(source, at)
                whole = [f.load(place, kind, n * few.source * m.item, m.known) for n in range(few.extent)]
                for n, line in enumerate(_wove(f, whole)):
                    f.store(line, f.offset(to, at * few.extent), n * width * m.item, m.known)
    f.give()
    return _kernel(body, module, tasks)


def _dealt(f: Function, lines: Sequence[Value]) -> list[Value]:
    """Vector n has every element of the lines' succession whose number leaves n, by their number."""
    width = lanes(lines[0].type)
    return [_picked(f, lines, [divmod(k * len(lines) + n, width) for k in range(width)]) for n in range(len(lines))]


def _wove(f: Function, lines: Sequence[Value]) -> list[Value]:
    """The first element of each line, then the second of each."""
    width, count = lanes(lines[0].type), len(lines)
    order = [divmod(k, count)[::-1] for k in range(width * count)]
    return [_picked(f, lines, order[n * width : (n + 1) * width]) for n in range(count)]


def _picked(f: Function, lines: Sequence[Value], places: Sequence[tuple[int, int]]) -> Value:
    """A vector of elements by line and lane."""
    made, width = lines[0], len(places)
    for k in range(1, len(lines)):
        order = [
            width + at if line == k else (at if k == 1 and line == 0 else n) for n, (line, at) in enumerate(places)
        ]
        made = f.shuffle(made, lines[k], order)
    return made
