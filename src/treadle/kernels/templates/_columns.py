"""The code of a phase that only reduces over rows: each task sums its rows with the columns' sums in registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.kernels.expr import Emitter
from treadle.kernels.llvm import Value, size

if TYPE_CHECKING:
    from treadle.kernels.templates._passes import Writer

_SUMS = 16  # registers for sums


def run(w: Writer) -> None:
    """Write the function."""
    f, p, lanes = w.f, w.phase, w.lanes
    base = Emitter(f, lanes, {}, w.along, w.buffers, target=w.target)
    first = w.task * p.block
    last = f.min_int(first + p.block, p.count)
    extent, parts = w.along.extent, sum(len(i.terms) for i in p.columns)
    count = next((n for n in (16, 8, 4) if n * parts <= _SUMS and n * lanes <= extent), 2)
    many = count * lanes
    whole = extent // many * many
    if whole:
        with f.loop(0, whole, many) as low:
            _sums(w, base, low, count, None, (first, last))
    if whole < extent:
        with f.loop(whole, extent, lanes) as low:
            _sums(w, base, low, 1, f.mask(w.unknown(extent) - low, lanes), (first, last))
    f.give()


def _sums(w: Writer, e: Emitter, low: Value, count: int, mask: Value | None, rows: tuple[Value, Value]) -> None:
    """The sums of some vectors of columns over the task's rows, stored as `Writer.give` does."""
    f, columns = w.f, w.phase.columns
    kept = {i: [w.neutral(i) for _ in range(count)] for i in columns}
    with f.loop(*rows) as row:
        here = e.inside(w.decoded(row))
        for u in range(count):
            at = here.inside({w.along: low + u * w.lanes}, mask)
            for i in columns:
                w.join(at, i, kept[i][u], [at.value(t) for t in i.terms], None)
    for i in columns:
        width = w.along.extent
        for u, parts in enumerate(kept[i]):
            for n, part in enumerate(parts):
                each = size(part.type) // w.lanes
                line = (w.task * len(parts) + n) * width + low + u * w.lanes
                place = f.offset(w.buffers[i.place], line * each)
                if mask is None:
                    f.store(part.get(), place)
                else:
                    f.store_masked(part.get(), place, mask)
