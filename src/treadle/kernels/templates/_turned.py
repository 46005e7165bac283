"""The code of a phase in which squares are turned: reads whose lines lie across those that are written.

A square of lanes x lanes elements is loaded in lines along the axis `cross` and turned in registers; what is left at
the edges is gathered. See `_passes.Phase.turned`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from treadle.formula.affine import linear
from treadle.formula.expr import Axis, Read, reads
from treadle.kernels.expr import Emitter
from treadle.kernels.llvm import Value

if TYPE_CHECKING:
    from treadle.kernels.templates._passes import Writer


def run(w: Writer) -> None:
    """Write the function."""
    f, p, lanes = w.f, w.phase, w.lanes
    cross, along = p.inner
    base = Emitter(f, lanes, {}, along, w.buffers, target=w.target)
    row = base.inside(w.decoded(w.task // p.chunks))
    low = (w.task % p.chunks) * p.chunk
    high = f.min_int(low + p.chunk, cross.extent)
    length = high - low
    squares = low + (length - length % lanes)
    whole = along.extent // lanes * lanes
    with f.loop(low, squares, lanes) as u:
        with f.loop(0, whole, lanes) as v:
            _square(w, row, u, v)
        if whole < along.extent:
            with f.loop(0, lanes) as k:
                _rest(w, row, u + k, f.i64(whole))
    with f.loop(squares, high) as u, f.loop(0, along.extent, lanes) as v:
        _rest(w, row, u, v)
    f.give()


def _rest(w: Writer, e: Emitter, u: Value, v: Value) -> None:
    cross, along = w.phase.inner
    mask = w.f.mask(w.unknown(along.extent) - v, w.lanes)
    w.results(e.inside({cross: u, along: v}, mask), mask, set())


def _square(w: Writer, e: Emitter, u: Value, v: Value) -> None:
    """Every line of a square, with the turned reads given."""
    cross, along = w.phase.inner
    found = dict.fromkeys(r for i in w.phase.outs for t in i.terms for r in reads(t) if _turns(r, cross, along))
    lines = {r: turned(_lines(w, e, r, u, v)) for r in found}
    for k in range(w.lanes):
        at = e.inside({cross: u + k, along: v})
        at.preset({r: at.loaded(r, lines[r][k]) for r in found})
        w.results(at, None, set())


def _turns(r: Read, cross: Axis, along: Axis) -> bool:
    terms = linear(r.parts[0]).terms if len(r.parts) == 1 else {}
    return abs(terms.get(along, 0)) > 1 and terms.get(cross, 0) == 1


def _lines(w: Writer, e: Emitter, r: Read, u: Value, v: Value) -> list[Value]:
    """The square's lines as they are in memory: along `cross`, one for each place of `along`."""
    cross, along = w.phase.inner
    made = []
    for k in range(w.lanes):
        across = Emitter(w.f, w.lanes, {**e.axes, cross: u, along: v + k}, cross, w.buffers, target=w.target)
        made.append(across.raw(r))
    return made


def turned(lines: Sequence[Value]) -> list[Value]:
    """The transpose of a square of vectors, in halving steps."""
    lines, count = list(lines), len(lines)
    f, step = lines[0].f, count // 2
    while step:
        for i in [i for i in range(count) if not i & step]:
            a, b = lines[i], lines[i + step]
            low = [n if not n & step else count + n - step for n in range(count)]
            high = [n + step if not n & step else count + n for n in range(count)]
            lines[i], lines[i + step] = f.shuffle(a, b, low), f.shuffle(a, b, high)
        step //= 2
    return lines
