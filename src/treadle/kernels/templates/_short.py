"""The code of a phase that reduces many short rows to a number each: as many rows at once as a vector has lanes.

Each row's vector of partial results stays in a register; a tree of shuffles then makes one vector of all rows' results
of them, in the order in which `Writer` joins the lanes of one row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.formula.expr import Reduce, Source, reads
from treadle.kernels.expr import Emitter, byte_size, cost
from treadle.kernels.llvm import Value
from treadle.kernels.nests import Item
from treadle.kernels.target import Target
from treadle.kernels.vmath import stored

if TYPE_CHECKING:
    from treadle.kernels.templates._passes import Phase, Writer

_VECTORS, _COST = 4, 6  # of a row; instructions of a term: the code has them for each row and vector


def fits(p: Phase, lanes: int, target: Target) -> bool:
    """Whether a phase is of this kind; rows of several vectors, which are read by jumps, are so only in the caches."""
    if len(p.levels) != 1 or p.outs or p.columns or p.parted or p.chunk or len(p.inner) != 1 or len(p.rows) != 1:
        return False
    made, extent = {i.place for i in p.levels[0]}, p.inner[0].extent
    if extent > lanes and 8 * p.count * extent > target.l3:
        return False
    short = extent <= _VECTORS * lanes and p.count >= 4 * lanes
    alone = all(r.source in made for i in p.row_outs for r in reads(i.expr))
    whole = all(i.axes == p.rows for i in (*p.levels[0], *p.row_outs))
    return short and alone and whole and sum(cost(t) for i in p.levels[0] for t in i.terms) <= _COST


def run(w: Writer) -> None:
    """Write the function."""
    f, p, lanes = w.f, w.phase, w.lanes
    made = {i.place for i in p.levels[0]}
    readable = {s: b for s, b in w.buffers.items() if s not in made}
    base = Emitter(f, lanes, {}, w.along, readable, target=w.target)
    base.prepare(*[t for i in w.items() for t in i.terms])
    rest = w.along.extent % lanes
    mask = f.mask(w.unknown(rest), lanes) if rest else None
    first = w.task * p.block
    last = f.min_int(first + p.block, p.count)
    whole = first + (last - first) - (last - first) % lanes
    with f.loop(first, whole, lanes) as row:
        _rows(w, base, row, mask)
    with f.loop(whole, last) as row:
        w.row(base.inside(w.decoded(row)))
    f.give()


def _rows(w: Writer, base: Emitter, row: Value, mask: Value | None) -> None:
    """The results of `lanes` rows from one on, stored."""
    f, p, lanes, (level,) = w.f, w.phase, w.lanes, w.phase.levels
    vectors = -(-w.along.extent // lanes)
    found: dict[int, list[list[Value]]] = {n: [] for n in range(len(level))}
    for r in range(lanes):
        here = base.inside({p.rows[0]: row + r})
        parts = {n: w.starts(i) for n, i in enumerate(level)}
        for v in range(vectors):
            masked = mask if v == vectors - 1 else None
            at = here.inside({w.along: f.i64(v * lanes)}, masked)
            for n, i in enumerate(level):
                values = [at.value(t) for t in i.terms]
                if masked is not None:
                    values = [f.select(masked, x, s) for x, s in zip(values, w.starts(i), strict=True)]
                parts[n] = at.joined(w.combiner(i), parts[n], values) if v else values
        for n in found:
            found[n].append(parts[n])
    given: dict[Source, Value] = {}
    for n, i in enumerate(level):
        assert isinstance(i.expr, Reduce)
        given[i.place] = base.rounded(_turned(w, base, i, found[n])[i.expr.index], i.expr.dtype)
    e = base.inside({p.rows[0]: row}, given=given)
    for i in [*[i for i in level if i.place in w.buffers], *p.row_outs]:
        value = e.stored(w.own(i))
        f.store(value, f.offset(w.buffers[i.place], row * byte_size(stored(i.place.type.dtype))))


def _turned(w: Writer, e: Emitter, item: Item, rows: list[list[Value]]) -> list[Value]:
    """The lanes of each row's vectors joined: lane r is row r's result."""
    f, half = w.f, w.lanes // 2
    while half:
        places = [(lane // (2 * half) * (2 * half) + lane % half, lane // half % 2) for lane in range(w.lanes)]
        joined = []
        for a, b in zip(rows[:half], rows[half:], strict=True):
            low = [f.shuffle(x, y, [at + of * w.lanes for at, of in places]) for x, y in zip(a, b, strict=True)]
            high = [f.shuffle(x, y, [at + half + of * w.lanes for at, of in places]) for x, y in zip(a, b, strict=True)]
            joined.append(e.joined(w.combiner(item), low, high))
        rows, half = joined, half // 2
    return rows[0]
