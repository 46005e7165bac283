"""Splits a module with repeated layers into programs that are compiled once each and run one after the other.

`split(module, donate)` gives `Parts`: the programs, as modules of their own, and the order in which they run on
numbered slots; or None where one program is better. Equal layers, forward and backward, share one program
(transforms/outline.py finds them), and what lies between is gathered into as few programs as the data allows. So
compile time does not grow with depth, and nothing is stacked or copied: a layer's program reads that layer's arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from treadle.ir.host import Host
from treadle.ir.node import Fn, Module, Node, Value
from treadle.ir.printer import print_fn
from treadle.ir.walk import all_nodes, callees, has_effect
from treadle.ops._axes import node_flops
from treadle.transforms._rows import in_rows
from treadle.transforms.outline import Outline

MIN_COPIES = 3  # equal layers from which they are a program of their own
MIN_NODES = 4  # of a layer
MIN_SHARE = 0.6  # of the nodes must be saved: below, compiling gets little faster
RUN_S = 4e-5  # what starting one more program costs
MIN_RUN_S = 10 * RUN_S  # what runs shorter is no program of its own
MAX_RUNS_SHARE = 0.015  # of the estimated time may go into starting programs
CORE_FLOPS, BYTES = 6e10, 1e10  # per second: what one core computes, what the memory moves


@dataclass(frozen=True)
class Part:
    """One program. donate: its parameters whose memory it may take -> the output that takes it. runs: how often."""

    module: Module
    donate: Mapping[int, int]
    runs: int


@dataclass(frozen=True)
class Run:
    """One run of the program number `part`: slots that it reads and fills, and those that nothing reads afterwards."""

    part: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    frees: tuple[int, ...] = ()


@dataclass(frozen=True)
class Parts:
    """Programs and their runs. The first slots are the module's parameters; `outputs` are the slots of its results."""

    programs: tuple[Part, ...]
    runs: tuple[Run, ...]
    slots: int
    outputs: tuple[int, ...]

    def __str__(self) -> str:
        return f"{len(self.programs)} programs in {len(self.runs)} runs"


def split(module: Module, donate: Mapping[int, int | None] | None = None, cores: int = 1) -> Parts | None:
    """The module in parts, when that saves most of its nodes and starting the parts costs little; else None.

    donate: parameters of main whose memory may be taken -> the output that takes it. cores: those of the machine.
    Modules that call Python stay whole: the order of their effects is kept inside one program.
    """
    main, fns = module.main, module.fns
    if len(main.nodes) < MIN_COPIES * MIN_NODES or not _is_pure(module) or not _has_own_outputs(main):
        return None
    first, rest = _bookkeeping(main)
    in_order = Module({**fns, "main": Fn("main", main.params, (*first, *rest), main.outputs)})
    outlined = Outline(min_nodes=MIN_NODES, min_copies=MIN_COPIES)(in_order)
    callees = {name: fn for name, fn in outlined.fns.items() if name not in fns}
    seconds = {name: _seconds(fn, outlined, cores, {}) for name, fn in callees.items()}
    parts = {name for name in callees if seconds[name] > MIN_RUN_S}
    calls = [n for n in outlined.main.nodes if n.attrs.get("callee") in parts]
    sizes = [len(outlined.fns[n.attrs["callee"]].nodes) for n in calls]
    if sum(sizes) - sum(len(callees[name].nodes) for name in parts) < MIN_SHARE * len(rest):
        return None
    outlined = in_rows(outlined, calls)
    segments = _segments(outlined.main, frozenset([n for n in outlined.main.nodes if n.attrs.get("callee") in parts]))
    if len(segments) * RUN_S > MAX_RUNS_SHARE * _seconds(outlined.main, outlined, cores, seconds):
        return None
    return _Splitter(outlined, segments, donate or {}).parts()


def _bookkeeping(main: Fn) -> tuple[list[Node], list[Node]]:
    """The nodes that compute step counts, random keys and places from the parameters alone, and the others.

    They stand where they were needed first, say amid the first layer, which is then not equal to the second one.
    """
    known: set[Value] = set(main.params)
    found: tuple[list[Node], list[Node]] = ([], [])
    for node in main.nodes:
        small = sum(o.type.bytes for o in node.outputs) <= 2 * sum(v.type.bytes for v in node.inputs) + 32
        whole = not any(o.dtype.is_inexact for o in node.outputs)
        mine = small and whole and all(v in known or (v.node and not v.node.inputs) for v in node.inputs)
        if mine or not node.inputs:
            known.update(node.outputs)
        found[0 if mine or not node.inputs else 1].append(node)
    return found


def _is_pure(module: Module) -> bool:
    hosts = any(isinstance(a, Host) for node in all_nodes(module) for a in node.attrs.values())
    return not hosts and not any(has_effect(node, module.fns) for node in module.main.nodes)


def _has_own_outputs(main: Fn) -> bool:
    """Whether each result is an array of its own: neither a parameter nor twice the same value."""
    return all(o.node is not None for o in main.outputs) and len(set(main.outputs)) == len(main.outputs)


def _seconds(fn: Fn, module: Module, cores: int, known: Mapping[str, float]) -> float:
    """A rough estimate of the time that one run takes, from products and from the bytes that go in and out.

    known: that of functions it calls.
    """
    called: list[str] = [n.attrs.get("callee", "") for n in fn.nodes]
    work = sum(node_flops(n, module) for n, name in zip(fn.nodes, called, strict=True) if name not in known)
    moved = sum(v.type.bytes for v in (*fn.params, *fn.outputs))
    return sum(known[c] for c in called if c in known) + work / (CORE_FLOPS * cores) + moved / BYTES


def _segments(main: Fn, calls: frozenset[Node]) -> list[list[Node]]:
    """The nodes in the order in which they will run: each call alone, all else in as few groups as the data allows.

    Nodes without inputs are in no group: each program makes its own. Of the calls that can run, the last one of the
    function runs first: what it reads, say the gradients of a layer for its update, can be given up earliest.
    """
    place = {node: i for i, node in enumerate(main.nodes)}
    users: dict[Node, list[Node]] = {}
    missing: dict[Node, int] = {}
    for node in main.nodes:
        sources = {v.node for v in node.inputs if v.node is not None and v.node.inputs}
        missing[node] = len(sources)
        for source in sources:
            users.setdefault(source, []).append(node)
    ready = [n for n in main.nodes if n.inputs and not missing[n]]
    waiting_calls, rest = [n for n in ready if n in calls], [n for n in ready if n not in calls]
    segments: list[list[Node]] = []

    def run(node: Node) -> None:
        for user in users.get(node, ()):
            missing[user] -= 1
            if not missing[user]:
                (waiting_calls if user in calls else rest).append(user)

    while rest or waiting_calls:
        group: list[Node] = []
        while rest:
            group.append(rest.pop())
            run(group[-1])
        if group:
            segments.append(sorted(group, key=lambda n: place[n]))
        while waiting_calls:
            last = max(waiting_calls, key=lambda n: place[n])
            waiting_calls.remove(last)
            segments.append([last])
            run(last)
    return segments


def _equal(module: Module) -> dict[str, str]:
    """Function -> the first one of the module that differs from it in nothing but the name."""
    first: dict[str, str] = {}
    texts = {n: print_fn(Fn("same", f.params, f.nodes, f.outputs)) for n, f in module.fns.items() if n != "main"}
    return {name: first.setdefault(text, name) for name, text in texts.items()}


class _Splitter:
    """Makes the programs of the segments: what each reads, gives, and whose memory it may take."""

    def __init__(self, module: Module, segments: list[list[Node]], donate: Mapping[int, int | None]) -> None:
        self.module, self.main, self.segments = module, module.main, segments
        self.results = frozenset(self.main.outputs)
        self.read = [self._outside(nodes) for nodes in segments]
        self.last = {v: i for i, values in enumerate(self.read) for v in values}
        self.slot: dict[Value, int] = {p: i for i, p in enumerate(self.main.params)}
        self.targets = {self.main.params[p]: self.main.outputs[o] for p, o in donate.items() if o is not None}
        self.equal = _equal(module)
        self.numbers: dict[str, int] = {}  # text of a program -> its number
        self.fns: list[Fn] = []
        self.donations: list[dict[int, int]] = []
        self.runs: list[Run] = []

    def parts(self) -> Parts:
        """All of it."""
        for i, nodes in enumerate(self.segments):
            given = self._given(nodes, i)
            self._add(self._fn(nodes, self.read[i], given), self.read[i], given, i)
        counts = [sum(r.part == n for r in self.runs) for n in range(len(self.fns))]
        programs = [
            Part(self._module(fn), donate, count)
            for fn, donate, count in zip(self.fns, self.donations, counts, strict=True)
        ]
        return Parts(
            tuple(programs), tuple(self.runs), len(self.slot), tuple([self.slot[o] for o in self.main.outputs])
        )

    def _outside(self, nodes: Sequence[Node]) -> list[Value]:
        """What the nodes read from outside, each once. A call reads exactly its operands, in their order."""
        made = {o for n in nodes for o in n.outputs}
        wanted = [v for n in nodes for v in n.inputs if v not in made and (v.node is None or v.node.inputs)]
        return list(dict.fromkeys(wanted))

    def _given(self, nodes: Sequence[Node], place: int) -> list[Value]:
        """What others read of the nodes' results; of a call all results, so that all its runs are of one program. The
        first segment also gives results of main that depend on nothing."""
        alone = len(nodes) == 1 and "callee" in nodes[0].attrs
        given = [o for n in nodes for o in n.outputs if alone or o in self.results or self.last.get(o, -1) > place]
        if place == 0:
            given += [o for o in self.main.outputs if o.node is not None and not o.node.inputs]
        return given

    def _fn(self, nodes: Sequence[Node], read: Sequence[Value], given: Sequence[Value]) -> Fn:
        """The function of a segment: its nodes, with copies of the nodes without inputs that they read."""
        twin: dict[Value, Value] = {v: Value(v.type) for v in read}
        params = tuple([twin[v] for v in read])
        made: list[Node] = []

        def place(node: Node) -> None:
            attrs = node.attrs
            if "callee" in attrs:
                attrs = {**attrs, "callee": self.equal.get(attrs["callee"], attrs["callee"])}
            types = tuple([o.type for o in node.outputs])
            copy = Node(node.op, tuple([twin[v] for v in node.inputs]), attrs, types, node.where)
            twin.update(zip(node.outputs, copy.outputs, strict=True))
            made.append(copy)

        def need(values: Iterable[Value]) -> None:
            for value in values:
                if value not in twin and value.node is not None:
                    place(value.node)

        for node in nodes:
            need(node.inputs)
            place(node)
        need(given)
        return Fn("main", params, tuple(made), tuple([twin[o] for o in given]))

    def _add(self, fn: Fn, read: Sequence[Value], given: Sequence[Value], place: int) -> None:
        """Note a run of `fn`; equal functions are one program, which takes only memory that is free in each run."""
        for value in given:
            self.slot[value] = len(self.slot)
        number = self.numbers.setdefault(print_fn(fn), len(self.fns))
        free = self._donations(read, given, place)
        if number == len(self.fns):
            self.fns.append(fn)
            self.donations.append(free)
        else:
            known = self.donations[number]
            self.donations[number] = {i: o for i, o in known.items() if free.get(i) == o}
        frees = [self.slot[v] for v in (*read, *given) if self.last.get(v, -1) <= place and v not in self.results]
        ins, outs = (tuple([self.slot[v] for v in values]) for values in (read, given))
        self.runs.append(Run(number, ins, outs, tuple(frees)))

    def _donations(self, read: Sequence[Value], given: Sequence[Value], place: int) -> dict[int, int]:
        """Parameters of the module that this run reads last, where it also makes what takes their memory."""
        at = {value: i for i, value in enumerate(given)}
        targets = [(i, self.targets.get(v)) for i, v in enumerate(read) if self.last[v] == place]
        return {i: at[target] for i, target in targets if target is not None and target in at}

    def _module(self, fn: Fn) -> Module:
        """The function with those of the module that it can reach."""
        wanted, todo = set[str](), callees(fn)
        while todo:
            wanted |= todo
            todo = set[str]().union(*[callees(self.module.fns[name]) for name in todo]) - wanted
        return Module.of(fn, {k: f for k, f in self.module.fns.items() if k in wanted})
