"""Repeated layers become one function that is called several times, so that later stages see each layer once.

How a repetition is found: every node gets a symbol (op, attributes, types, which inputs are constants). A stretch of
the node list whose symbols equal those `period` places further on is a row of copies. Which values the copies read is
then compared exactly: inside wiring must be the same in all of them, outside values become parameters.
Nodes without inputs (constants) belong to no copy: each function makes its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from treadle.ir.node import Fn, Module, Node, Value, attr_key
from treadle.ir.op import get
from treadle.ir.printer import print_fn
from treadle.ir.rewrite import note
from treadle.ir.types import Types
from treadle.ir.walk import has_effect
from treadle.transforms.pipeline import Pass

_PERIODS = 64  # candidates that are tried; the distance of equal layers gets by far the most votes
_CUTS = 50_000  # work spent on finding the best cut, in nodes looked at
_WINDOW = 4  # neighbours that have to agree before a distance gets a vote


@dataclass(frozen=True)
class Outline(Pass):
    """Turns repeated runs of at least `min_nodes` nodes that occur at least `min_copies` times into called functions.

    Exact: the same ops run in the same order within each copy; nodes with effects are left alone. Positions of the
    function's nodes are those of the first copy.
    """

    min_nodes: int = 8
    min_copies: int = 2

    def __call__(self, module: Module) -> Module:
        fns = dict(module.fns)
        todo = list(fns)
        while todo:
            name = todo.pop(0)
            before = set(fns)
            fns[name] = _outline(fns[name], fns, self)
            todo += [new for new in fns if new not in before]
        return module if len(fns) == len(module.fns) else Module(fns)


@dataclass(frozen=True)
class _Group:
    """Copies of one stretch: where each begins in the node list, how long they are."""

    starts: tuple[int, ...]
    length: int

    @property
    def saved(self) -> int:
        return (len(self.starts) - 1) * self.length


def _outline(fn: Fn, fns: dict[str, Fn], options: Outline) -> Fn:
    """`fn` with its repetitions called; the new functions are put into `fns`. Repeats until nothing is worth it."""
    while True:
        free = [n for n in fn.nodes if not n.inputs and not has_effect(n, fns)]
        constants = {n: _symbol(n) for n in free}
        nodes = [n for n in fn.nodes if n not in constants]
        found = _best(_Row(nodes, constants, fn, fns), options)
        if found is None:
            return fn
        fn = found.replaced(free)


class _Row:
    """The nodes of a function that may be copies of each other, and their symbols as numbers."""

    def __init__(self, nodes: list[Node], constants: dict[Node, Any], fn: Fn, fns: dict[str, Fn]) -> None:
        self.nodes, self.constants, self.fn, self.fns = nodes, constants, fn, fns
        self.place = {node: i for i, node in enumerate(nodes)}
        numbers: dict[Any, int] = {}
        self.symbols = np.array([self._number(n, i, numbers) for i, n in enumerate(nodes)], np.int64)
        self.uses: dict[Value, list[int]] = {}
        for i, node in enumerate(nodes):
            for value in node.inputs:
                self.uses.setdefault(value, []).append(i)
        self.outputs = set(fn.outputs)

    def _number(self, node: Node, place: int, numbers: dict[Any, int]) -> int:
        """A number that equal nodes share; one of its own for a node with an effect."""
        if has_effect(node, self.fns):
            return -1 - place
        sources = tuple([(v.type, self.constants.get(v.node) if v.node else None) for v in node.inputs])
        return numbers.setdefault((_symbol(node), sources), len(numbers))

    def at(self, value: Value) -> int:
        """The place of the node that makes the value; -1 for parameters and constants."""
        return -1 if value.node is None else self.place.get(value.node, -1)

    def periods(self) -> list[int]:
        """Distances at which equal stretches follow each other, those with the most votes first."""
        if len(self.symbols) < 2 * _WINDOW:
            return []
        windows = np.lib.stride_tricks.sliding_window_view(self.symbols, _WINDOW)
        votes: Counter[int] = Counter()
        last: dict[bytes, int] = {}
        for i, window in enumerate(windows):
            key = window.tobytes()
            if key in last:
                votes[i - last[key]] += 1
            last[key] = i
        return [distance for distance, _ in votes.most_common(_PERIODS)]

    def runs(self, period: int) -> Iterator[tuple[int, int]]:
        """Stretches (start, length) that repeat themselves after `period` nodes, the last copy included."""
        equal = np.concatenate([[False], self.symbols[:-period] == self.symbols[period:], [False]])
        edges = np.flatnonzero(equal[1:] != equal[:-1])
        for start, end in zip(edges[::2], edges[1::2], strict=True):
            yield int(start), int(end - start) + period

    def wiring(self, start: int, length: int) -> tuple[Any, ...]:
        """What each input of a stretch is: (place within, result) of an inside value, None of an outside one."""
        found = []
        for node in self.nodes[start : start + length]:
            for value in node.inputs:
                place = self.at(value) - start
                found.append((place, value.index) if 0 <= place < length else None)
        return tuple(found)

    def crossing(self, start: int, length: int) -> int:
        """Number of values that a stretch would take and give: fewer is a better cut."""
        taken, given = set(), 0
        for place in range(start, start + length):
            node = self.nodes[place]
            outside = [v for v in node.inputs if not start <= self.at(v) < start + length]
            taken |= {v for v in outside if v.node not in self.constants}
            given += sum(self.is_result(o, start, length) for o in node.outputs)
        return len(taken) + given

    def common_scope(self, place: int) -> int:
        """How many parts of the scope path a node shares with the one before: few at the border of two layers."""
        if place == 0:
            return 0
        one, two = (self.nodes[p].where.scope.split("/") for p in (place - 1, place))
        return next((i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))

    def is_result(self, value: Value, start: int, length: int) -> bool:
        """Whether something after the stretch reads the value."""
        return value in self.outputs or any(i >= start + length for i in self.uses.get(value, ()))


def _symbol(node: Node) -> Any:
    attrs = tuple([(k, print_fn(v) if isinstance(v, Fn) else attr_key(v)) for k, v in sorted(node.attrs.items())])
    return node.op.name, attrs, tuple([o.type for o in node.outputs])


def _best(row: _Row, options: Outline) -> _Copies | None:
    """The repetition that saves most nodes, ready to be replaced; None when there is none worth it."""
    candidates = []
    for period in row.periods():
        if period < options.min_nodes:
            continue
        for start, length in row.runs(period):
            if length >= period * options.min_copies:
                candidates.append((length // period * period - period, -period, start, length))
    best: _Group | None = None
    for at_most, negative, start, length in sorted(candidates, reverse=True):
        if best is not None and at_most <= best.saved:
            break
        group = _cut(row, start, length, -negative, options)
        if group is not None and (best is None or group.saved > best.saved):
            best = group
    return None if best is None else _Copies(row, best)


def _cut(row: _Row, start: int, length: int, period: int, options: Outline) -> _Group | None:
    """The copies in a run, cut where the fewest values cross; None when too few of them are wired alike."""
    copies, rest = divmod(length, period)
    phases = list(range(period if copies > options.min_copies else rest + 1))  # beyond `rest`: one copy less
    phases.sort(key=lambda p: row.common_scope(start + p))
    phases = phases[: max(16, _CUTS // period)]
    middle = start + period * (max(copies - 2, 0) // 2)
    phases.sort(key=lambda p: row.crossing(middle + p, period))
    best: _Group | None = None
    for phase in phases[:4]:
        alike: dict[tuple[Any, ...], list[int]] = {}
        for s in range(start + phase, start + length - period + 1, period):
            alike.setdefault(row.wiring(s, period), []).append(s)
        most: list[int] = max(alike.values(), key=len)
        group = _Group(tuple(most), period)
        if len(group.starts) >= options.min_copies and (best is None or group.saved > best.saved):
            best = group
    return best


class _Copies:
    """Replaces the copies of a group by calls of one new function."""

    def __init__(self, row: _Row, group: _Group) -> None:
        self.row, self.group = row, group

    def replaced(self, free: list[Node]) -> Fn:
        """The function with calls in place of the copies; the new callee is put among the module's functions."""
        row, length = self.row, self.group.length
        outside = self._outside()
        results = self._results()
        callee = self._callee(list(outside), results)
        row.fns[callee.name] = callee
        note("outlined", len(self.group.starts))
        twin: dict[Value, Value] = {}
        nodes = list(free)
        begins = {s: c for c, s in enumerate(self.group.starts)}
        place = 0
        while place < len(row.nodes):
            if place in begins:
                copy = begins[place]
                inputs = tuple([twin.get(v[copy], v[copy]) for v in outside.values()])
                attrs = {"callee": callee.name, "results": callee.out_types}
                call = Node(get("call"), inputs, attrs, callee.out_types, row.nodes[place].where)
                olds = [row.nodes[place + j].outputs[i] for j, i in results]
                twin.update(zip(olds, call.outputs, strict=True))
                nodes.append(call)
                place += length
            else:
                nodes.append(_mapped(row.nodes[place], twin))
                place += 1
        fn = row.fn
        return Fn(fn.name, fn.params, tuple(nodes), tuple([twin.get(o, o) for o in fn.outputs]))

    def _outside(self) -> dict[tuple[Value, ...], tuple[Value, ...]]:
        """The outside values that copies read: one entry per parameter, with the value that each copy passes."""
        row, length = self.row, self.group.length
        found: dict[tuple[Value, ...], tuple[Value, ...]] = {}
        for j in range(length):
            for values in zip(*[row.nodes[s + j].inputs for s in self.group.starts], strict=True):
                inside = 0 <= row.at(values[0]) - self.group.starts[0] < length
                if not inside and values[0].node not in row.constants:
                    found[values] = values
        return found

    def _results(self) -> list[tuple[int, int]]:
        """The values (place in a copy, result) that something outside reads, in at least one copy."""
        row, length = self.row, self.group.length
        return [
            (j, i)
            for j in range(length)
            for i, _ in enumerate(row.nodes[self.group.starts[0] + j].outputs)
            if any(row.is_result(row.nodes[s + j].outputs[i], s, length) for s in self.group.starts)
        ]

    def _callee(self, outside: Sequence[tuple[Value, ...]], results: list[tuple[int, int]]) -> Fn:
        row, first = self.row, self.group.starts[0]
        params = tuple([Value(v[0].type) for v in outside])
        at = dict(zip(outside, params, strict=True))
        twin: dict[Value, Value] = {}
        nodes: list[Node] = []
        for j in range(self.group.length):
            node = row.nodes[first + j]
            inputs = []
            for i, value in enumerate(node.inputs):
                values = tuple([row.nodes[s + j].inputs[i] for s in self.group.starts])
                if value not in twin and values not in at:
                    assert value.node is not None
                    nodes.append(_copied(value.node, ()))
                    twin.update(zip(value.node.outputs, nodes[-1].outputs, strict=True))
                inputs.append(at[values] if values in at else twin[value])
            nodes.append(_copied(node, tuple(inputs)))
            twin.update(zip(node.outputs, nodes[-1].outputs, strict=True))
        outputs = tuple([twin[row.nodes[first + j].outputs[i]] for j, i in results])
        return Fn(self._name(), params, tuple(nodes), outputs)

    def _name(self) -> str:
        """A free name that says which part of the model repeats: the scope of its first node, numbers left out."""
        row, first = self.row, self.group.starts[0]
        scopes = [n.where.scope.split("/") for n in row.nodes[first : first + self.group.length]]
        common = []
        for parts in zip(*scopes, strict=False):
            if len(set(parts)) > 1:
                break
            common.append(re.sub(r"\W*\d+$", "", parts[0]))
        name = re.sub(r"\W+", "_", "_".join(filter(None, common))).strip("_") or f"{row.fn.name}_part"
        if not name[0].isalpha():
            name = f"part_{name}"
        taken = (name, *(f"{name}_{i}" for i in range(2, len(row.fns) + 3)))
        return next(n for n in taken if n not in row.fns)


def _copied(node: Node, inputs: tuple[Value, ...]) -> Node:
    types: Types = tuple([o.type for o in node.outputs])
    return Node(node.op, inputs, node.attrs, types, node.where)


def _mapped(node: Node, twin: dict[Value, Value]) -> Node:
    """The node on the values that stand for its inputs, entered into `twin`; itself when nothing differs."""
    inputs = tuple([twin.get(v, v) for v in node.inputs])
    if inputs == node.inputs:
        return node
    new = _copied(node, inputs)
    twin.update(zip(node.outputs, new.outputs, strict=True))
    return new
