"""From a nest to phases: `schedule(nest, target)` gives a `Schedule`, or the reason why this engine leaves it to XLA.

Reductions along rows (axes that end with the one that is contiguous in memory) happen within a task; others, and those
of few long rows, are gathered by all tasks and joined in a phase of their own, and what reads them comes later. The
number of tasks depends on shapes alone, so results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from treadle.formula.affine import Linear, from_linear, linear
from treadle.formula.expr import (
    Axis,
    Call,
    Expr,
    Placeholder,
    Reduce,
    free,
    post_order,
    read,
    reads,
    reduce,
    rewrite,
    with_parts,
)
from treadle.ir.types import TensorType
from treadle.kernels import launch
from treadle.kernels.expr import byte_size, cost
from treadle.kernels.kernel import Kernel
from treadle.kernels.llvm import Function, Module
from treadle.kernels.nests import Item, Nest, number_of
from treadle.kernels.target import Target
from treadle.kernels.templates._many import Form, Many, Piece, form_of
from treadle.kernels.templates._many import write as write_many
from treadle.kernels.templates._passes import SCRATCH, Memory, Phase, write
from treadle.kernels.vmath import computed, stored

GRAIN = 16 << 10  # elements that a task has at least
TASKS = 32  # tasks of a large phase
_FEW_ROWS = 8
_DEAR, _ROWS = 3, 64  # terms of so many instructions are computed once where they are needed so often
_FEW = 60  # instructions per vector up to which memory sets the pace; a GELU has about as many
_NONE = (Axis("one", 1),)  # of loops over single numbers: one for all of them, which may share memory (see aliases_of)
_LARGE, _AGAIN = 1000, 8  # terms of an item; uses of an element: more is the business of other templates, or of XLA


@dataclass(frozen=True)
class Schedule:
    """stages: phases that may run at once, stage after stage. workspace: bytes beside inputs and outputs."""

    nest: Nest
    stages: tuple[tuple[Phase | Many, ...], ...]
    memory: Memory
    workspace: int

    def kernel(self, target: Target, unroll: int = 0) -> Kernel:
        """The finished kernel."""
        m, phases = Module(), []
        for n, stage in enumerate(self.stages):
            names = []
            for k, phase in enumerate(stage):
                names.append(f"phase{n}_{k}")
                if isinstance(phase, Many):
                    write_many(m, names[-1], phase, self.memory.at, target)
                else:
                    write(m, names[-1], replace(phase, unroll=unroll) if unroll else phase, self.memory, target)
            phases.append(_together(m, f"stage{n}", names, [p.tasks for p in stage]))
        text = launch.finish(m, phases, self.memory.buffers)
        inputs = tuple([whole.type for _, whole in self.nest.inputs])
        aliases = aliases_of(self.nest, len(self.stages) > 1)
        return Kernel(inputs, self.nest.results, text, self.workspace, aliases)


def _together(m: Module, name: str, names: Sequence[str], tasks: Sequence[int]) -> launch.Phase:
    """One phase of the tasks of several functions."""
    if len(names) == 1:
        return launch.Phase(names[0], tasks[0])
    f = Function(m, name, ["ptr", "i64", "ptr"])
    start = 0
    for each, count in zip(names, tasks, strict=True):
        here = f.compare("sge", f.args[1], start) & f.compare("slt", f.args[1], start + count)
        with f.when(here):
            f.call(f"@{each}", "void", f.args[0], f.args[1] - start, f.args[2])
        start += count
    f.give()
    return launch.Phase(name, start)


def aliases_of(nest: Nest, alone: bool = False) -> tuple[tuple[int, int], ...]:
    """(output, input) pairs that may share memory: the input is read at the place alone where the output is written.
    alone: and by nothing else, which may come in another stage."""
    readers: dict[Placeholder, list[Item]] = {}
    for item in nest.items:
        for source in {r.source for r in item.reads if isinstance(r.source, Placeholder)}:
            readers.setdefault(source, []).append(item)
    fits: dict[int, list[int]] = {}
    for item in [i for i in nest.items if i.outs and not i.reduced]:
        mine = {r.source for r in item.reads}
        fits[item.outs[0]] = [
            n
            for n, (flat, whole) in enumerate(nest.inputs)
            if flat in mine and whole not in readers and whole.type == nest.results[item.outs[0]]
            if not alone or readers[flat] == [item]
            if all(_only_at(i, flat, item) for i in readers[flat])
        ]
    found: dict[int, int] = {}
    for out, places in sorted(fits.items(), key=lambda pair: len(pair[1])):  # the state of an optimiser: read by fewest
        free = [n for n in places if n not in found.values()]
        if free:
            found[out] = min(free, key=lambda n: (len(readers[nest.inputs[n][0]]), -n))  # state follows the gradient
    return tuple(sorted(found.items()))


def _only_at(reader: Item, source: Placeholder, item: Item) -> bool:
    """Whether the source is read where `item` is written, and is not needed after that."""
    if reader is not item and not reader.reduced and reader.axes != item.axes:
        return False
    return all(r.source is not source or linear(r.parts[0]) == linear(item.number) for r in reader.reads)


def schedule(nest: Nest, target: Target, hoist: bool = True) -> Schedule | str:
    """The phases of a nest. hoist: with dear terms that many rows share computed once, in a phase before."""
    if any(len(i.outs) > 1 for i in nest.items):
        return "one result twice"
    if any(len(list(post_order(*i.terms))) > _LARGE for i in nest.items):
        return "very many terms"
    moved = sum(t.type.size for _, t in nest.inputs) + sum(t.size for t in nest.results)
    if any(prod(a.extent for a in (*i.axes, *i.reduced)) > _AGAIN * moved for i in nest.items):
        return "every element is used very often"
    nest = _hoisted(nest) if hoist else nest
    made = _Scheduler(nest, target)
    why = made.roles()
    if why:
        return why
    made.stages()
    made.stream()
    return Schedule(nest, tuple(made.done), made.memory, made.workspace)


def _hoisted(nest: Nest) -> Nest:
    """Dear terms that need few of an item's axes, the last one among them, as items of their own: computed once."""
    items: list[Item] = []
    for item in nest.items:
        axes = [a for a in nest.domain if a in item.axes or a in item.reduced] if nest.stats else item.axes
        found: dict[Expr, Expr] = {}
        terms = []
        for term in item.terms:
            for e in _rare(term, axes):
                own = [a for a in axes if a in free(e)]
                made = Item(Placeholder("once", TensorType(e.dtype, (prod(a.extent for a in own),))), tuple(own), e)
                items.append(made)
                found[e] = read(made.place, made.number)
            terms.append(_swapped(term, found))
        if found and isinstance(item.expr, Reduce):
            item = replace(item, expr=reduce(item.expr.combiner, terms, item.reduced, item.expr.index))
        elif found:
            item = replace(item, expr=terms[0])
        items.append(item)
    return replace(nest, items=tuple(items))


def _swapped(term: Expr, to: Mapping[Expr, Expr]) -> Expr:
    return rewrite(term, lambda old, parts: to.get(old) or with_parts(old, parts))


def _rare(term: Expr, axes: Sequence[Axis]) -> list[Expr]:
    """The largest such terms inside."""
    found: list[Expr] = []
    stack, seen = [term], set[Expr]()
    while stack:
        e = stack.pop()
        if e in seen or not isinstance(e, Call):
            continue
        seen.add(e)
        rest = prod(a.extent for a in axes if a not in free(e))
        if axes and axes[-1] in free(e) and rest >= _ROWS and e.dtype.kind != "b" and cost(e) >= _DEAR:
            found.append(e)
        else:
            stack.extend(e.parts)
    return found


class _Scheduler:
    def __init__(self, nest: Nest, target: Target) -> None:
        self.nest, self.target = nest, target
        self.memory = Memory(len(nest.inputs) + len(nest.results))
        for n, (flat, whole) in enumerate(nest.inputs):
            self.memory.at[flat] = self.memory.at[whole] = (n, 0)
        for item in nest.items:
            for n in item.outs:
                self.memory.at[item.place] = (len(nest.inputs) + n, 0)
        self.workspace = 0
        self.done: list[tuple[Phase | Many, ...]] = []
        self.rows: tuple[Axis, ...] = ()
        self.inner: tuple[Axis, ...] = ()
        self.row_stats: list[Item] = []
        self.split = False

    def _room(self, bytes: int) -> tuple[int, int]:
        at = self.workspace
        self.workspace += -(-bytes // 64) * 64
        number = len(self.nest.inputs) + len(self.nest.results)
        self.memory.buffers = number + 1
        return number, at

    # --- what each item is --------------------------------------------------------------------------------------------

    def roles(self) -> str:
        """Decide on rows and columns; the reason if the items do not fit."""
        nest, stats = self.nest, self.nest.stats
        if not stats:
            return ""
        along = nest.domain[-1]
        if any({*s.axes, *s.reduced} != set(nest.domain) for s in stats):
            return "reductions over different axes"
        self.row_stats = [s for s in stats if along in s.reduced]
        columns = [s for s in stats if along not in s.reduced]
        kept = set(self.row_stats[0].axes) if self.row_stats else set(columns[0].reduced)
        if any(set(s.axes) != kept for s in self.row_stats) or any(set(s.reduced) != kept for s in columns):
            return "reductions over different axes"
        self.rows = tuple([d for d in nest.domain if d in kept])
        self.inner = tuple([d for d in nest.domain if d not in kept])
        for s in columns:
            if list(s.axes) != list(self.inner):
                return "a reduction to a transposed result"
        if any(self._is_full(i) and i.axes[-1] is not along for i in nest.items):
            return "a transposed result beside a reduction"
        count, width = prod(a.extent for a in self.rows), prod(a.extent for a in self.inner)
        self.split = bool(self.row_stats) and count < _FEW_ROWS and width >= 4 * GRAIN
        if self.split and columns:
            return "columns of few long rows"
        partial = [*columns, *(self.row_stats if self.split else [])]
        if any(t.dtype.kind == "b" or (t.dtype.is_float and t.dtype.bits == 16) for s in partial for t in s.terms):
            return "partial results of 16 bits"
        if any(len({t.dtype for t in s.terms}) > 1 for s in partial):
            return "partial results of several types"
        if columns and 8 * width * len(columns) > SCRATCH * 4:
            return "wide columns"
        return ""

    def _is_full(self, item: Item) -> bool:
        return not item.reduced and bool(self.nest.stats) and set(item.axes) == set(self.nest.domain)

    def _is_global(self, item: Item) -> bool:
        return bool(item.reduced) and (self.split or item not in self.row_stats)

    def _stage_of(self) -> dict[Item, int]:
        stage: dict[Item, int] = {}
        for item in self.nest.items:
            stage[item] = max([stage[d] + self._apart(d, item) for d in self.nest.uses(item)], default=0)
        return stage

    def _apart(self, used: Item, item: Item) -> bool:
        """Whether `item` must come in a stage after `used`."""
        if self._is_global(used) or not used.reduced:
            return True
        own = self._is_full(item) or item.reduced or set(item.axes) == set(self.rows)
        return not own

    # --- phases -------------------------------------------------------------------------------------------------------

    def stages(self) -> None:
        """All phases, stage by stage."""
        stage = self._stage_of()
        for reader in self.nest.items:  # what a later stage reads has to be in memory
            for item in self.nest.uses(reader):
                if stage[reader] > stage[item] and item.place not in self.memory.at:
                    self.memory.at[item.place] = self._room(item.place.type.bytes)
        for s in range(max(stage.values(), default=0) + 1):
            self._stage([i for i in self.nest.items if stage[i] == s])

    def _stage(self, items: list[Item]) -> None:
        levels: list[list[Item]] = []
        depth: dict[Item, int] = {}
        for item in items:
            if item.reduced and not self._is_global(item):
                depth[item] = max([depth[d] + 1 for d in self.nest.uses(item) if d in depth], default=0)
                levels += [[] for _ in range(depth[item] + 1 - len(levels))]
                levels[depth[item]].append(item)
        columns = [i for i in items if self._is_global(i) and not self.split]
        inside = set(depth)
        reading = [i for i in items if not i.reduced and set(self.nest.uses(i)) & inside]
        full = [i for i in items if self._is_full(i) and (i in reading or columns or levels)]
        short = [i for i in reading if i not in full]
        phases: list[Phase | Many] = []
        if levels or columns:
            phases.append(self._row_phase(levels, full, short, columns))
        parts = [i for i in items if self._is_global(i) and self.split]
        if parts:
            phases.append(self._split_phase(parts))
        rest = [i for i in items if not i.reduced and i not in full and i not in short]
        phases += self._loops(rest)
        if phases:
            self.done.append(tuple(phases))
        if columns or parts:
            first = phases[0]
            assert isinstance(first, Phase)
            self.done.append(tuple(self._joins(columns or parts, first)))

    def _row_phase(
        self, levels: list[list[Item]], full: list[Item], short: list[Item], columns: list[Item]
    ) -> Phase:  # fmt: skip
        width = prod(a.extent for a in self.inner)
        phase = Phase(
            self.rows, self.inner, tuple([tuple(level) for level in levels]), tuple(full), tuple(short), tuple(columns)
        )
        grain = max(GRAIN, 8 * width) if columns else GRAIN
        tasks = max(1, min(TASKS, phase.count * width // grain))
        phase = replace(phase, block=-(-phase.count // tasks), unroll=4 if not full else 2)
        return replace(phase, columns=self._parted(columns, phase.tasks * width))

    def _parted(self, items: Sequence[Item], count: int) -> tuple[Item, ...]:
        """The items with places for so many partial results instead of their own."""
        made = []
        for item in items:
            dtype = item.terms[0].dtype
            size = count * len(item.terms)
            place = Placeholder("part", TensorType(dtype, (size,)))
            self.memory.at[place] = self._room(size * byte_size(computed(dtype)))
            made.append(replace(item, place=place))
        return tuple(made)

    def _split_phase(self, parts: list[Item]) -> Phase:
        width, count = prod(a.extent for a in self.inner), prod(a.extent for a in self.rows)
        chunks = max(1, min(TASKS, width * count // GRAIN) // count)
        chunk = _chunk(self.inner[-1].extent, chunks)
        phase = Phase(self.rows, self.inner, parted=True, chunk=chunk, unroll=4)
        return replace(phase, levels=(self._parted(parts, phase.count * phase.chunks),))

    def _joins(self, items: Sequence[Item], phase: Phase) -> list[Phase | Many]:
        """Phases that join the partial results of a phase, each into the place of its item."""
        made: list[Phase | Many] = []
        parts = phase.columns or phase.levels[0]
        for item, part in zip(items, parts, strict=True):
            assert isinstance(item.expr, Reduce)
            t = Axis("t", phase.tasks if phase.columns else phase.chunks)
            width, count = prod(a.extent for a in item.axes), len(item.terms)
            own, bodies = linear(number_of(item.axes)), []
            for n in range(count):
                if phase.columns:
                    place = Linear({t: count * width}, n * width).plus(own)
                else:
                    place = Linear({t: count}, n).plus(own, t.extent * count)
                bodies.append(read(part.place, from_linear(place)))
            expr = reduce(item.expr.combiner, bodies, (t,), item.expr.index)
            made += self._loops([Item(item.place, item.axes, expr)])
        return made

    def stream(self) -> None:
        """Large results that nothing reads again here are written past the caches."""
        total = sum(t.type.bytes for _, t in self.nest.inputs) + sum(t.bytes for t in self.nest.results)
        if total <= self.target.l3 or (len(self.done) > 1 and self.nest.stats):
            return
        last = [replace(p, stream=_streams(p, self.target)) if isinstance(p, Phase) else p for p in self.done[-1]]
        self.done[-1:] = [tuple(last)]

    def _loops(self, items: Sequence[Item]) -> list[Phase | Many]:
        """Pointwise phases, one for each set of axes; loops that differ in their tensors alone are one phase."""
        groups: dict[tuple[Axis, ...], list[Item]] = {}
        for item in items:
            groups.setdefault(item.axes or _NONE, []).append(item)
        lanes = self.target.lanes(32)
        found = {axes: form_of(axes[0], group) if len(axes) == 1 else None for axes, group in groups.items()}
        many: dict[Form, list[Piece]] = {}
        for pair in found.values():
            if pair is not None:
                many.setdefault(pair[0], []).append(pair[1])
        phases: list[Phase | Many] = []
        for axes, group in groups.items():
            pair = found.get(axes)
            alike = many[pair[0]] if pair is not None else []
            if len(alike) < 2:
                phases.append(_pointwise(axes, tuple(group), lanes))
            elif pair is not None and alike[0] is pair[1]:
                phases.append(Many(pair[0], tuple(alike)))
        return phases


def _pointwise(axes: tuple[Axis, ...], items: tuple[Item, ...], lanes: int) -> Phase:
    cross = _crossing(axes, items, lanes)
    if cross is not None:
        rows = tuple([a for a in axes[:-1] if a is not cross])
        turned = Phase(rows, (cross, axes[-1]), outs=items, turned=True)
        tasks = max(1, min(2 * TASKS, turned.count * cross.extent * axes[-1].extent // GRAIN))
        each = cross.extent // lanes // max(1, -(-tasks // turned.count))
        return replace(turned, chunk=lanes * max(each, 1))
    phase = Phase(axes[:-1], axes[-1:], outs=items)
    work = phase.count * axes[-1].extent
    tasks = max(1, min(2 * TASKS, work // GRAIN))
    if phase.count >= tasks:
        return replace(phase, block=-(-phase.count // tasks))
    return replace(phase, chunk=_chunk(axes[-1].extent, -(-tasks // phase.count)))


def _streams(phase: Phase, target: Target) -> bool:
    """Whether all outs are lines of whole vectors, stored side by side."""
    lanes = target.lanes(32)
    for item in phase.outs:
        width = byte_size(stored(item.place.type.dtype))
        if item.axes[-1:] != phase.inner[-1:] or width * lanes != 64:
            return False
        if len(item.axes) > 1 and item.axes[-1].extent * width % 64:
            return False
    few = bool(phase.levels) or sum(cost(i.expr) for i in phase.outs) <= _FEW
    return bool(phase.outs) and not phase.turned and few


def _crossing(axes: tuple[Axis, ...], items: tuple[Item, ...], lanes: int) -> Axis | None:
    """The axis along which reads are lines that are not lines along the last axis: squares are turned there."""
    along, found = axes[-1], set[Axis]()
    for r in [r for i in items for t in i.terms for r in reads(t)]:
        terms = linear(r.parts[0]).terms if len(r.parts) == 1 else {}
        if abs(terms.get(along, 0)) > 1:
            found |= {a for a, c in terms.items() if c == 1 and isinstance(a, Axis) and a in axes}
    large = [a for a in found if a.extent >= lanes and along.extent >= lanes]
    return large[0] if len(found) == 1 and large else None


def _chunk(extent: int, count: int) -> int:
    """Places that each of so many tasks takes; 0 for one task."""
    return 0 if count <= 1 else -(-extent // (64 * count)) * 64
