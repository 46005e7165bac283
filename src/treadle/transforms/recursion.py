"""Functions that call themselves, as one loop with a stack: `as_loop(fn, name, fns)`.

The functions are cut at the recursive calls into blocks (`_blocks.py`); each trip of a `while` runs one of them, chosen
by a counter. What a block reads is in registers. A call puts the registers that are read after it on stacks, one for
each register, and a return takes them off again; a call whose results are returned as they are needs no stack. The
gradient is that of the loop: its residuals are those of the block that ran, never a stack (see ops/stacks.py).

The stacks hold `flags.recursion` calls, or as many as fit into 256 MiB, at least 64. A call too many stops the program
with E0312.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from treadle.base.errors import UserError
from treadle.base.flags import flags
from treadle.ir import build
from treadle.ir.host import Host
from treadle.ir.node import Fn, Value
from treadle.ir.types import TensorType, i32
from treadle.ir.walk import all_nodes, callees
from treadle.ops._regions import number, region, types_of, zeros
from treadle.ops.compare import equal, greater, less, select
from treadle.ops.control import if_, while_
from treadle.ops.creation import full
from treadle.ops.effects import host_call
from treadle.ops.elementwise import add
from treadle.ops.stacks import exchange
from treadle.transforms._blocks import Block, Branch, Call, Cut, Jump, Return, cut, liveness, reached, settle
from treadle.transforms.dce import remove_dead

_STACK_BYTES = 256 << 20
_FEWEST = 64
_COPIED = 24  # nodes: what follows a branch is built into both sides up to this size, for that saves a trip
_DOWN, _STAY, _UP = 1, 0, -1


def as_loop(fn: Fn, name: str, fns: Mapping[str, Fn], capacity: int = 0) -> Fn:
    """The function `fn`, which calls itself by `name`, without recursion. Functions of `fns` that it calls are part of
    the loop if they call it again, themselves, or one that does; all others stay called. A `remat` with such a call
    inside becomes its body.

    capacity: calls that may be open at once, 0 for the flag's number (see the module). Raises E0313 for a call from
    inside an op that cannot be taken apart. A program that goes deeper raises E0312 when it runs.
    """
    fns = {**fns, name: fn}
    group = {key: remove_dead(fns[key], fns) for key in _group(name, fns)}
    if not group:
        return fn
    return build.trace(lambda *args: _Machine(group, name, capacity).run(args), fn.in_types, fn.name, dict(fns))


def _group(name: str, fns: Mapping[str, Fn]) -> list[str]:
    """`name` and the functions that it calls, directly or not: those of them that call themselves or come to one that
    does."""

    def called(start: str) -> set[str]:
        found: set[str] = set()
        todo = [start]
        while todo:
            new = (callees(fns[todo.pop()]) & fns.keys()) - found
            found |= new
            todo += new
        return found

    below = {key: called(key) for key in fns}
    circular = {key for key in fns if key in below[key]}
    return [key for key in fns if key in {name, *below[name]} and {key, *below[key]} & circular]


@dataclass(frozen=True)
class _TooDeep:
    """What the program does when the stacks are full."""

    name: str
    capacity: int

    def __call__(self) -> None:
        why = f"{self.name} called itself more than {self.capacity} deep"
        raise UserError("E0312", why, fix="set TREADLE_RECURSION to more, or write it as a loop")


class _Machine:
    """The loop of a group of functions."""

    def __init__(self, group: Mapping[str, Fn], entry: str, capacity: int) -> None:
        self.entry, self.cuts = entry, cut(group)
        self.outs = {name: fn.out_types for name, fn in group.items()}
        self.given, self.fixed = settle(self.cuts, entry)
        self.blocks = reached(self.cuts, entry)
        live = liveness(self.blocks, self.cuts, {*self.given, *self.fixed})
        order = _order(self.blocks, self.cuts)
        self.live = {b: [v for v in order if v in live[b]] for b in self.blocks}
        self.pcs = {block: i for i, block in enumerate(_starts(self.blocks, self.cuts))}
        self.results = _Slots()
        for types in self.outs.values():
            self.results.places(types)
        self.registers = _Registers(self)
        self.stacked = self.registers.stacked
        self.deep = any(isinstance(b.end, Call) for b in self.blocks)
        frame = 4 + sum(t.bytes for t in self.stacked)
        fits = max(_FEWEST, _STACK_BYTES // frame)
        self.capacity = capacity or min(max(1, flags.recursion), fits)

    # ------------------------------------------------------------------------------------------------------- the loop
    def run(self, args: Sequence[Value]) -> list[Value]:
        """The results for the arguments of the entry."""
        used = self._used()
        consts = [a for a, g in zip(args, self.given, strict=True) if g in used]
        self.globals = [g for g in self.given if g in used]
        first = self.cuts[self.entry]
        start = dict(zip(first.params, args, strict=True))
        carry = [number(self.pcs[first.first]), *self._filled(first.first, start), *map(zeros, self.results.types)]
        if self.deep:
            rows = self.capacity + 2  # row 0 is the caller's, the last one is written where nothing is to be kept
            done = full(value=len(self.pcs), shape=(rows,), dtype=i32[()].dtype)
            stacks = [zeros(TensorType(t.dtype, (rows, *t.shape))) for t in self.stacked]
            carry += [number(0), done, *stacks]
        inputs = [*consts, *carry]
        n, types = len(consts), types_of(inputs)
        bodies = {
            "cond": region(lambda *a: less(a[n], len(self.pcs)), types, "more"),
            "body": region(lambda *a: self.trip(a[:n], a[n:]), types, "trip"),
        }
        ends = while_(*inputs, **bodies, n_consts=n, capacity=0)
        if self.deep:
            self._check(ends[0])
        results = ends[1 + len(self.registers.types) :]
        return [results[i] for i in self.results.places(self.outs[self.entry])]

    def _check(self, pc: Value) -> None:
        host = Host.of(_TooDeep(self.entry.partition(".")[0], self.capacity), "too deep")

        def fail() -> Any:
            return build.apply(host_call, (), {"host": host, "ordered": False})

        over = equal(pc, len(self.pcs) + 1)
        if_(over, then=region(fail, (), "fails"), orelse=region(lambda: (), (), "holds"))

    def _used(self) -> set[Value]:
        used = {v for i in self.fixed.values() for v in i.inputs}
        for block in self.blocks:
            used |= {v for i in block.items for v in i.inputs}
            match block.end:
                case Jump(_, moves):
                    used |= set(moves.values())
                case Branch(pred, _, _):
                    used.add(pred)
                case Call(_, args, _, _):
                    used |= set(args)
                case Return(values):
                    used |= set(values)
        return used

    def trip(self, consts: Sequence[Value], carry: Sequence[Value]) -> list[Value]:
        """The carry after the block that the counter names."""
        n = 1 + len(self.registers.types) + len(self.results.types)
        parts = self.chosen(0, len(self.pcs), (*carry[:1], *consts, *carry[1:n]))
        if not self.deep:
            return list(parts)
        way, back, *rest = parts
        k = len(self.stacked)
        items, (pc, *registers) = rest[:k], rest[k:]
        depth, rows, stacks = carry[n], carry[n + 1], carry[n + 2 :]
        down, up = greater(way, 0), less(way, 0)
        after = add(depth, way)
        row = select(down, after, select(up, depth, number(self.capacity + 1)))
        before, rows = exchange(rows, back, row)
        pc = select(up, before, pc)
        pc = select(greater(after, self.capacity), number(len(self.pcs) + 1), pc)
        stacks = list(stacks)
        for i, item in enumerate(items):
            saved, stacks[i] = exchange(stacks[i], item, row)
            registers[i] = select(up, saved, registers[i])
        return [pc, *registers, after, rows, *stacks]

    def chosen(self, low: int, high: int, args: Sequence[Value]) -> Sequence[Value]:
        """What the block of the counter args[0] gives, if that is in low..high-1."""
        if high - low == 1:
            return self.block(low, args[1:])
        middle = (low + high) // 2

        def side(low: int, high: int) -> Fn:
            return region(lambda *a: self.chosen(low, high, a), types_of(args), "blocks")

        found: Sequence[Value] = if_(less(args[0], middle), *args, then=side(low, middle), orelse=side(middle, high))
        return found

    # ----------------------------------------------------------------------------------------------------- the blocks
    def block(self, place: int, args: Sequence[Value]) -> list[Value]:
        """What a block gives: where to (down, stay, up), the counter and the registers to be put on the stacks (these
        only with stacks), the next counter, registers and results."""
        block = list(self.pcs)[place]
        n, k = len(self.globals), len(self.registers.types)
        env = dict(zip(self.globals, args[:n], strict=True))
        env |= {v: args[n + i] for v, i in self.registers.of(block).items()}
        env |= {v: args[n + k + i] for v, i in self.registers.results.get(block, {}).items()}
        return self.go_on(block, env)

    def go_on(self, block: Block, env: dict[Value, Value]) -> list[Value]:
        for item in block.items:
            inputs = tuple([self.value(v, env) for v in item.inputs])
            env.update(zip(item.outputs, build.emit(item.node, inputs), strict=True))
        match block.end:
            case Branch(pred, then, orelse):
                return self.branch(self.value(pred, env), then, orelse, env)
            case Jump(target, moves) if target not in self.pcs:
                new = {v: self.value(moves.get(v, v), env) for v in self.live[target]}
                return self.go_on(target, {**env, **new})
            case Jump(target, moves):
                new = {v: self.value(moves.get(v, v), env) for v in self.live[target]}
                return self.finish(_STAY, target, new)
            case Call(callee, given, results, back):
                one = self.cuts[callee]
                live = self.live[one.first]
                new = {p: self.value(a, env) for p, a in zip(one.params, given, strict=True) if p in live}
                kept = {v: self.value(v, env) for v in self.live[back] if v not in results}
                return self.finish(_DOWN, one.first, new, back, kept)
            case Return(values):
                return self.finish(_UP, None, {}, results=[self.value(v, env) for v in values])

    def branch(self, pred: Value, then: Block, orelse: Block, env: dict[Value, Value]) -> list[Value]:
        needed = {*self.live[then], *self.live[orelse], *self.globals}
        names = [v for v in env if v in needed]
        values = [env[v] for v in names]

        def side(block: Block) -> Fn:
            return region(
                lambda *args: self.go_on(block, dict(zip(names, args, strict=True))), types_of(values), "side"
            )

        return list(if_(pred, *values, then=side(then), orelse=side(orelse)))

    def value(self, variable: Value, env: dict[Value, Value]) -> Value:
        """The value of a variable; what is the same in every call is made where it is read."""
        if variable not in env:
            item = self.fixed[variable]
            inputs = tuple([self.value(v, env) for v in item.inputs])
            env.update(zip(item.outputs, build.emit(item.node, inputs), strict=True))
        return env[variable]

    def finish(
        self,
        way: int,
        target: Block | None,
        new: Mapping[Value, Value],
        back: Block | None = None,
        kept: Mapping[Value, Value] | None = None,
        results: Sequence[Value] = (),
    ) -> list[Value]:
        place = len(self.pcs) if target is None else self.pcs[target]
        registers = self._filled(target, new)
        items = self._filled(back, kept or {})[: len(self.stacked)]
        found = self.results.filled(results)
        if not self.deep:
            return [number(place), *registers, *found]
        back_place = len(self.pcs) if back is None else self.pcs[back]
        return [number(way), number(back_place), *items, number(place), *registers, *found]

    def _filled(self, block: Block | None, values: Mapping[Value, Value]) -> list[Value]:
        """The registers as the block wants them; zeros in those that it does not read."""
        found = {} if block is None else {i: values[v] for v, i in self.registers.of(block).items()}
        return [found[i] if i in found else zeros(t) for i, t in enumerate(self.registers.types)]


# ------------------------------------------------------------------------------------------------- blocks of the loop
def _starts(blocks: Sequence[Block], cuts: Mapping[str, Cut]) -> list[Block]:
    """The blocks that a trip begins with: those of functions, of what follows a call, of loops, and large ones that
    are reached in several ways. All others are built into the trips that come to them."""
    comes: dict[Block, int] = {}
    for block in blocks:
        if isinstance(block.end, Jump):
            comes[block.end.target] = comes.get(block.end.target, 0) + 1
    found = {one.first for one in cuts.values()} | {b for b in blocks if b.header}
    found |= {b.end.back for b in blocks if isinstance(b.end, Call)}
    sizes: dict[Block, int] = {}

    def size(block: Block) -> int:
        if block not in sizes:
            total = sum(1 + sum(1 for _, body in i.node.regions() for _ in all_nodes(body)) for i in block.items)
            for each in [] if isinstance(block.end, Call) else block.next(cuts):
                total += 1 if each in found else size(each)
            sizes[block] = total
            if comes.get(block, 0) > 1 and total > _COPIED:
                found.add(block)
        return 1 if block in found else sizes[block]

    for block in blocks:
        size(block)
    return [b for b in blocks if b in found]


def _order(blocks: Sequence[Block], cuts: Mapping[str, Cut]) -> list[Value]:
    """All variables, in the order of the program."""
    found: dict[Value, None] = {}
    for one in cuts.values():
        found.update(dict.fromkeys(one.params))
    for block in blocks:
        found.update(dict.fromkeys([v for i in block.items for v in i.outputs]))
        if isinstance(block.end, Jump):
            found.update(dict.fromkeys(block.end.moves))
        elif isinstance(block.end, Call):
            found.update(dict.fromkeys(block.end.results))
    return list(found)


@dataclass
class _Slots:
    """Registers for results: types, of which each list of results takes some."""

    types: list[TensorType] = field(default_factory=list)

    def places(self, wanted: Iterable[TensorType]) -> list[int]:
        """The first free slot of its type for each; new ones are made where there are too few."""
        taken: list[int] = []
        for t in wanted:
            spot = next((i for i, own in enumerate(self.types) if own == t and i not in taken), None)
            if spot is None:
                spot = len(self.types)
                self.types.append(t)
            taken.append(spot)
        return taken

    def filled(self, values: Sequence[Value]) -> list[Value]:
        found = dict(zip(self.places(types_of(values)), values, strict=True))
        return [found[i] if i in found else zeros(t) for i, t in enumerate(self.types)]


class _Registers:
    """Where each variable is between trips. The first registers are those that calls keep on stacks.

    types: of the registers; stacked: of the first ones; results: for what follows a call, the slots of its results.
    """

    def __init__(self, machine: _Machine) -> None:
        self.results: dict[Block, dict[Value, int]] = {}
        for block in machine.blocks:
            if isinstance(block.end, Call):
                results = block.end.results
                self.results[block.end.back] = dict(
                    zip(results, machine.results.places(types_of(results)), strict=True)
                )
        self.needs = {b: [v for v in machine.live[b] if v not in self.results.get(b, ())] for b in machine.pcs}
        kept = {v: None for b in self.results for v in self.needs[b]}
        others = {v: None for needs in self.needs.values() for v in needs if v not in kept}
        self.place: dict[Value, int] = {}
        self.types: list[TensorType] = []
        self._allocate(kept)
        self.stacked = list(self.types)
        self._allocate(others)

    def _allocate(self, variables: Iterable[Value]) -> None:
        """A register for each, of its type and with no other variable that is read at the same time."""
        for v in variables:
            rivals = {w for needs in self.needs.values() if v in needs for w in needs}
            taken = {self.place[w] for w in rivals if w in self.place}
            spot = next((i for i, t in enumerate(self.types) if t == v.type and i not in taken), None)
            if spot is None:
                spot = len(self.types)
                self.types.append(v.type)
            self.place[v] = spot

    def of(self, block: Block) -> dict[Value, int]:
        """The registers of the variables that a block reads."""
        return {v: self.place[v] for v in self.needs[block]}
