"""The code of one phase over rows: `write(module, name, phase, memory, target)`.

A task takes some rows, points of the axes `rows`, and maybe a chunk of the vector axis. For each row it runs through
the `inner` axes once per level of reductions, keeping sums in registers, then once for the results. Terms that are
dear and needed in several runs are kept in scratch. Reductions over the rows (`columns`) gather in scratch and are
stored per task, to be joined in a later phase.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod

from treadle.formula.affine import linear
from treadle.formula.expr import Axis, Call, Combiner, Const, Expr, Read, Reduce, Source, free, post_order, read
from treadle.kernels.expr import Emitter, byte_size, cost
from treadle.kernels.llvm import Function, Module, Value, Variable, size, vector
from treadle.kernels.nests import Item, number_of
from treadle.kernels.target import Target
from treadle.kernels.templates import _short
from treadle.kernels.vmath import computed, stored

SCRATCH = 256 << 10  # what rows that are kept may take: they should stay in the second cache
_DEAR = 10  # instructions from which on a term is kept rather than computed again
_APART = 192  # bytes between rows in scratch, so that they do not start at the same place of a page
_PIECE = 1 << 10  # bytes of a row that registers hold the sums of
_ASKED = 1 << 10, 1 << 15  # bytes of runs through memory of which the next one is asked for
_BLOCK = 64  # steps after which sums are added to the total, so that errors do not pile up


@dataclass(frozen=True)
class Phase:
    """rows: axes of the tasks; a task takes `block` of their points. inner: the other axes, the last one that of the
    vectors; a task takes `chunk` places of it (0: all). levels: reductions over `inner`, each level reading those
    before; outs: items over all axes; row_outs: items over the rows alone; columns: reductions over the rows. parted:
    the (only) level is of partial results, one for each row and chunk. turned: `inner` are two axes whose squares are
    turned in registers; a task takes one row and `chunk` places of the first. stream: outs are written past the caches
    where they are aligned."""

    rows: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    levels: tuple[tuple[Item, ...], ...] = ()
    outs: tuple[Item, ...] = ()
    row_outs: tuple[Item, ...] = ()
    columns: tuple[Item, ...] = ()
    parted: bool = False
    turned: bool = False
    stream: bool = False
    block: int = 1
    chunk: int = 0
    unroll: int = 2

    @property
    def count(self) -> int:
        """Number of rows."""
        return prod(a.extent for a in self.rows)

    @property
    def chunks(self) -> int:
        """Tasks that share a row."""
        return -(-self.inner[0 if self.turned else -1].extent // self.chunk) if self.chunk else 1

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return -(-self.count // self.block) * self.chunks


@dataclass
class Memory:
    """Where tensors are: number of the kernel's buffer and offset in it, in bytes. buffers: how many there are."""

    buffers: int
    at: dict[Source, tuple[int, int]] = field(default_factory=dict)


def write(module: Module, name: str, phase: Phase, memory: Memory, target: Target) -> None:
    """Add the phase's function."""
    writer = Writer(module, name, phase, memory, target)
    if phase.turned:
        from treadle.kernels.templates import _turned

        _turned.run(writer)
    elif _only_columns(phase, target):
        from treadle.kernels.templates import _columns

        _columns.run(writer)
    elif _short.fits(phase, writer.lanes, target):
        _short.run(writer)
    else:
        writer.run()


def _only_columns(phase: Phase, target: Target) -> bool:
    """Whether nothing but columns is reduced, few enough or in so little memory that rows are read in pieces."""
    if not phase.columns or len(phase.inner) > 1 or phase.levels or phase.outs or phase.row_outs:
        return False
    width = 4 * phase.inner[0].extent
    return width <= _PIECE or phase.count * width <= target.l2


class Writer:
    """What is known while a phase is written."""

    def __init__(self, module: Module, name: str, phase: Phase, memory: Memory, target: Target) -> None:
        self.f = f = Function(module, name, ["ptr", "i64", "ptr"])
        self.phase, self.target = phase, target
        self.lanes = target.lanes(32)
        used = sorted({n for n, _ in memory.at.values()})
        bases = {n: f.load(f.args[0], "ptr", 8 * n) for n in used}
        self.buffers = {s: f.offset(bases[n], offset) for s, (n, offset) in memory.at.items()}
        self.task, self.scratch = f.args[1], f.args[2]
        self.along = phase.inner[-1]
        self.room = 0  # bytes of scratch in use
        self.kept: dict[Expr, int] = {}  # offset in scratch of terms that are kept
        self.sums: dict[Item, list[int]] = {}  # offsets of the columns' parts
        self.streaming = False

    def run(self) -> None:
        """Write the function."""
        f = self.f
        self._plan_scratch()
        if self.phase.stream:
            bits = f.i64(0)
            for item in self.phase.outs:
                bits = bits | f.emit(f"ptrtoint ptr {self.buffers[item.place].name} to i64", "i64")
            aligned = f.compare("eq", bits & 63, 0)
            f.either(aligned, lambda: self._body(True), lambda: self._body(False))
        else:
            self._body(False)
        f.give()

    def _body(self, streaming: bool) -> None:
        f, p, self.streaming = self.f, self.phase, streaming
        made = {i.place for level in p.levels for i in level}  # not to be read from memory
        readable = {s: b for s, b in self.buffers.items() if s not in made}
        base = Emitter(f, self.lanes, {}, self.along, readable, target=self.target)
        for item in p.columns:
            self._clear(item)
        base.prepare(*[t for i in self.items() for t in i.terms])
        block = self.task if p.chunks == 1 else self.task // p.chunks
        first = block * p.block
        last = f.min_int(first + p.block, p.count) if p.count % p.block else first + p.block
        if p.count == 1:
            self.row(base)
        else:
            with f.loop(first, last) as row:
                self.row(base.inside(self.decoded(row)))
        for item in p.columns:
            self._give(item)

    def items(self) -> list[Item]:
        """All items that are written."""
        p = self.phase
        return [*[i for level in p.levels for i in level], *p.outs, *p.row_outs, *p.columns]

    def decoded(self, row: Value) -> dict[Axis, Value]:
        """The axes' values at a row."""
        at: dict[Axis, Value] = {}
        for a in reversed(self.phase.rows[1:]):
            at[a], row = row % a.extent, row // a.extent
        if self.phase.rows:
            at[self.phase.rows[0]] = row
        return at

    # --- a row --------------------------------------------------------------------------------------------------------

    def row(self, e: Emitter) -> None:
        """Everything at the row where e is."""
        p = self.phase
        known: set[Expr] = set()
        e.prepare(*[t for i in self.items() for t in i.terms])
        for level in p.levels:
            given = self._reduced(e, level, known)
            if p.parted:
                return
            e = e.inside({}, given=given)
            e.prepare(*[t for i in self.items() for t in i.terms])
        for item in [*[i for level in p.levels for i in level if i.place in self.buffers], *p.row_outs]:
            self._store_one(e, item)
        if p.outs or p.columns:
            self._lines(e, self.phase.unroll, lambda at, mask, u: self.results(at, mask, known))

    def _store_one(self, e: Emitter, item: Item) -> None:
        """One number per row."""
        value = self.f.extract(e.stored(self.own(item)), 0)
        self.f.store(value, self._place(e, item))

    def own(self, item: Item) -> Expr:
        """What is stored of an item: a reduction's result is given."""
        return item.expr if not item.reduced else read(item.place, number_of(item.axes))

    def _place(self, e: Emitter, item: Item) -> Value:
        """The address of the item's element here."""
        number = e.scalar(linear(item.number))
        return self.f.offset(self.buffers[item.place], number * byte_size(stored(item.place.type.dtype)))

    def results(self, e: Emitter, mask: Value | None, known: set[Expr]) -> None:
        """Store what is known at a vector."""
        self._load_kept(e, known)
        values = [(i, e.stored(i.expr)) for i in self.phase.outs]
        for item, value in values:  # stored after all is read: an output may share memory with an input
            place = self._place(e, item)
            if mask is None:
                self.f.store(value, place, stream=self.streaming)
            else:
                self.f.store_masked(value, place, mask)
        self._gather(e, mask)

    # --- reductions along the row -------------------------------------------------------------------------------------

    def _reduced(self, e: Emitter, level: Sequence[Item], known: set[Expr]) -> dict[Source, Value]:
        """The results of a level's reductions, in all lanes."""
        totals = {i: self.neutral(i) for i in level}
        unroll = self.phase.unroll
        self._now: dict[Item, list[list[Variable]]] = {}

        def begin() -> None:
            self._now = {i: [self.neutral(i) for _ in range(unroll)] for i in level}

        def step(at: Emitter, mask: Value | None, u: int) -> None:
            self._load_kept(at, known)
            if mask is None and level is self.phase.levels[0]:
                self._ask(at, level, u)
            for i in level:
                self.join(at, i, self._now[i][u], [at.value(t) for t in i.terms], mask)
            self._keep(at, [t for i in level for t in i.terms], known)

        def end() -> None:
            for i in level:
                for part in self._now[i]:
                    self.join(e, i, totals[i], [v.get() for v in part], None)

        self._lines(e, unroll, step, (begin, end))
        known |= {t for t in self.kept if any(t in post_order(x) for i in level for x in i.terms)}
        parts = {i: self._across(e, i, [v.get() for v in totals[i]]) for i in level}
        if self.phase.parted:
            for i in level:
                self._give_part(e, i, parts[i])
        return {i.place: e.rounded(parts[i][i.expr.index], i.expr.dtype) for i in level if isinstance(i.expr, Reduce)}

    def _ask(self, e: Emitter, level: Sequence[Item], u: int) -> None:
        """Lines of the runs through memory that come next: each is too short for the CPU to see where it goes."""
        for r in dict.fromkeys([r for i in level for r in i.reads if len(self.phase.inner) > 1 and len(r.parts) == 1]):
            here, each = linear(r.parts[0]), byte_size(stored(r.dtype))
            step, run = here.terms.get(self.phase.inner[-2], 0) * each, self.along.extent * each
            if here.terms.get(self.along) != 1 or r.source not in self.buffers or run >= abs(step):
                continue
            far = 4 * self.phase.count * self._width() * each >= self.target.l3
            if far and _ASKED[0] <= run <= _ASKED[1] and u * self.lanes * each % 64 == 0:
                self.f.prefetch(self.buffers[r.source], e.scalar(here) * each + step, locality=2)

    def _give_part(self, e: Emitter, item: Item, parts: Sequence[Value]) -> None:
        """Partial results to where `item.place` is: rows, then chunks, then parts."""
        p = self.phase
        row = e.scalar(linear(number_of(p.rows))) * p.chunks
        where = (row + self.task % p.chunks) if p.chunks > 1 else row
        for n, v in enumerate(parts):
            each = size(v.type) // self.lanes
            self.f.store(
                self.f.extract(v, 0), self.f.offset(self.buffers[item.place], where * (len(parts) * each), n * each)
            )

    def neutral(self, item: Item) -> list[Variable]:
        """Places for partial results, which hold the neutral element."""
        return [self.f.variable(t, s) for t, s in self._starts(item)]

    def starts(self, item: Item) -> list[Value]:
        """The neutral vectors."""
        return [s for _, s in self._starts(item)]

    def _starts(self, item: Item) -> list[tuple[str, Value]]:
        """Type and neutral vector of each part of a reduction."""
        assert isinstance(item.expr, Reduce)
        types = [vector(computed(t.dtype), self.lanes) for t in item.terms]
        values = [c.value for c in item.expr.combiner.init if isinstance(c, Const)]
        return [(t, self.f.constant(v, t)) for t, v in zip(types, values, strict=True)]

    def join(
        self, e: Emitter, item: Item, into: Sequence[Variable], values: Sequence[Value], mask: Value | None
    ) -> None:
        """Values added to partial results; those of lanes that do not count are neutral."""
        combiner = self.combiner(item)
        if mask is not None:
            starts = self._starts(item)
            values = [self.f.select(mask, v, s) for v, (_, s) in zip(values, starts, strict=True)]
        for v, new in zip(into, e.joined(combiner, [v.get() for v in into], values), strict=True):
            v.set(new)

    def combiner(self, item: Item) -> Combiner:
        """How a reduction joins two results."""
        assert isinstance(item.expr, Reduce)
        return item.expr.combiner

    def _across(self, e: Emitter, item: Item, parts: list[Value]) -> list[Value]:
        """The lanes joined, in all lanes."""
        distance = self.lanes // 2
        while distance:
            order = [i ^ distance for i in range(self.lanes)]
            turned = [self.f.shuffle(v, v, order) for v in parts]
            parts = e.joined(self.combiner(item), parts, turned)
            distance //= 2
        return parts

    # --- columns ------------------------------------------------------------------------------------------------------

    def _width(self) -> int:
        return prod(a.extent for a in self.phase.inner)

    def _clear(self, item: Item) -> None:
        for (type, start), offset in zip(self._starts(item), self.sums[item], strict=True):
            step = size(type)
            with self.f.loop(0, -(-self._width() // self.lanes) * step, step) as i:
                self.f.store(start, self.f.offset(self.scratch, offset, i))

    def _gather(self, e: Emitter, mask: Value | None) -> None:
        """Add a row's part of every column to what there is; all is loaded before anything is stored."""
        if not self.phase.columns:
            return
        place = e.scalar(linear(number_of(self.phase.inner)))
        stores: list[tuple[Value, Value]] = []
        for item in self.phase.columns:
            starts = self._starts(item)
            values = [e.value(t) for t in item.terms]
            if mask is not None:
                values = [self.f.select(mask, v, s) for v, (_, s) in zip(values, starts, strict=True)]
            places = [
                self.f.offset(self.scratch, offset, place * (size(t) // self.lanes))
                for offset, (t, _) in zip(self.sums[item], starts, strict=True)
            ]
            old = [self.f.load(p, t) for p, (t, _) in zip(places, starts, strict=True)]
            stores += zip(e.joined(self.combiner(item), old, values), places, strict=True)
        for value, where in stores:
            self.f.store(value, where)

    def _give(self, item: Item) -> None:
        """The task's part of the columns, to where `item.place` is: tasks, then parts, then columns."""
        starts = self._starts(item)
        width = self._width()
        base = self.buffers[item.place]
        for n, ((type, _), offset) in enumerate(zip(starts, self.sums[item], strict=True)):
            each = size(type) // self.lanes
            row = self.f.offset(base, (self.task * len(starts) + n) * (width * each))
            source = self.f.offset(self.scratch, offset)
            with self.f.loop(0, width, self.lanes) as i:
                value = self.f.load(self.f.offset(source, i * each), type)
                mask = self.f.mask(self.unknown(width) - i, self.lanes)
                self.f.store_masked(value, self.f.offset(row, i * each), mask)

    # --- runs over the row --------------------------------------------------------------------------------------------

    def _lines(
        self, e: Emitter, unroll: int, step: Callable[[Emitter, Value | None, int], None],
        around: tuple[Callable[[], None], Callable[[], None]] | None = None,
    ) -> None:  # fmt: skip
        """step(emitter, mask, which) at every vector of the inner axes; around: called before and after a block."""
        begin, end = around or (lambda: None, lambda: None)
        with self._outer(e, self.phase.inner[:-1]) as at:
            f, p, extent = self.f, self.phase, self.along.extent
            whole = _BLOCK * unroll * self.lanes
            if p.chunk:
                low = (self.task % p.chunks) * p.chunk
                high = f.min_int(low + p.chunk, extent)
                begin()
                self._line(at, low, high, unroll, step)
                end()
            elif extent <= whole * 2 or around is None:
                begin()
                self._line(at, f.i64(0), extent, unroll, step)
                end()
            else:
                with f.loop(0, extent, whole) as low:
                    begin()
                    self._line(at, low, f.min_int(low + whole, extent), unroll, step)
                    end()

    @contextmanager
    def _outer(self, e: Emitter, axes: Sequence[Axis]) -> Iterator[Emitter]:
        if not axes:
            yield e
            return
        with self.f.loop(0, axes[0].extent) as i:
            inner = e.inside({axes[0]: i})
            inner.prepare(*[t for item in self.items() for t in item.terms])
            with self._outer(inner, axes[1:]) as found:
                yield found

    def _line(self, e: Emitter, low: Value, high: Value | int, unroll: int, step: Callable[..., None]) -> None:
        f, many = self.f, unroll * self.lanes
        if isinstance(high, int):
            whole: Value | int = high // many * many
            rest = high % many
        else:
            length = high - low
            whole, rest = low + (length - length % many), 1
        if not isinstance(whole, int) or whole:
            with f.loop(low, whole, many) as i:
                for u in range(unroll):
                    step(e.inside({self.along: i + u * self.lanes}), None, u)
        if rest:
            with f.loop(whole, high, self.lanes) as i:
                mask = f.mask((self.unknown(high) if isinstance(high, int) else high) - i, self.lanes)
                step(e.inside({self.along: i}, mask), mask, 0)

    def unknown(self, number: int) -> Value:
        """A number that LLVM cannot see: it stores too much for a known mask of one lane of 8 or 16 bits (LLVM 22)."""
        zero = "@zero = global i64 0"
        if zero not in self.f.module.globals:
            self.f.module.globals.append(zero)
        return self.f.load(self.f.symbol("@zero"), "i64") + number

    # --- scratch ------------------------------------------------------------------------------------------------------

    def _plan_scratch(self) -> None:
        p = self.phase
        width = -(-self._width() // self.lanes) * self.lanes
        for item in p.columns:
            self.sums[item] = []
            for type, _ in self._starts(item):
                self.sums[item].append(self.room)
                self.room += width * (size(type) // self.lanes) + _APART
        runs = [[t for i in level for t in i.terms] for level in p.levels]
        runs.append([t for i in (*p.outs, *p.columns) for t in i.terms])
        if p.chunk or (self.along.extent % self.lanes and len(p.inner) > 1):
            return
        for term in _shared(runs, set(p.inner)):
            bytes = width * byte_size(computed(term.dtype))
            if self.room + bytes <= SCRATCH:
                self.kept[term] = self.room
                self.room += bytes + _APART

    def _at(self, e: Emitter, term: Expr) -> Value:
        place = e.scalar(linear(number_of(self.phase.inner))) * byte_size(computed(term.dtype))
        return self.f.offset(self.scratch, self.kept[term], place)

    def _load_kept(self, e: Emitter, known: set[Expr]) -> None:
        for term in known:
            e.preset({term: self.f.load(self._at(e, term), vector(computed(term.dtype), self.lanes), align=4)})

    def _keep(self, e: Emitter, terms: Sequence[Expr], known: set[Expr]) -> None:
        inside = set(post_order(*terms))
        for term in self.kept:
            if term in inside and term not in known:
                self.f.store(e.value(term), self._at(e, term))


def _shared(runs: Sequence[Sequence[Expr]], inner: set[Axis]) -> list[Expr]:
    """Terms that an earlier run computes, a later one needs, and that are dear; none inside another."""
    found: list[Expr] = []
    before: set[Expr] = set()
    for run in runs:
        stack, seen = list(run), set[Expr]()
        while stack:
            e = stack.pop()
            if e in seen or e in found or isinstance(e, Read):  # where a read is costs nothing, as a rule
                continue
            seen.add(e)
            good = isinstance(e, Call) and e.dtype.kind != "b" and free(e) & inner
            if good and e in before and cost(e) >= _DEAR:
                found.append(e)
            else:
                stack.extend(e.parts)
        before |= set(post_order(*run))
    return found
