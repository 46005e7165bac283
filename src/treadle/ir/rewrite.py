"""Rewriting: `rebuild` changes a function node by node; `@rule` declares "this pattern becomes that"; `apply_rules`
runs rules until none fires; `note` counts what fired for whoever asked with `counting`.

A pattern and its replacement are written with the ops themselves:

    @rule(match=lambda x: neg(neg(x)))
    def double_neg(x):
        "-(-x) -> x. Two ops fewer; exact."
        return x

Attributes of the pattern may be holes too (`p` in `transpose(x, perm=p)`); `check=` says when it may fire.
Functions are immutable, so what a rewrite leaves alone is shared: an unchanged node, function or module is the same
object afterwards, and `after is before` says that nothing happened.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from treadle.base import where
from treadle.base.errors import internal_error
from treadle.ir.build import Builder
from treadle.ir.node import Attrs, Fn, Module, Node, Value, attr_key

Visit = Callable[[Node, tuple[Value, ...]], "Node | Sequence[Value] | None"]

_counts: ContextVar[dict[str, int] | None] = ContextVar("rewrite counts", default=None)


@contextmanager
def counting() -> Iterator[dict[str, int]]:
    """Collects in a dict how often each rule (or whatever else calls `note`) fired inside the block."""
    counts: dict[str, int] = {}
    token = _counts.set(counts)
    try:
        yield counts
    finally:
        _counts.reset(token)


def note(name: str, count: int = 1) -> None:
    """Say that something happened `count` times."""
    counts = _counts.get()
    if counts is not None and count:
        counts[name] = counts.get(name, 0) + count


def with_inputs(node: Node, inputs: tuple[Value, ...], attrs: Attrs | None = None) -> Node:
    """`node` on other inputs of the same types, and with other attributes if given; itself when nothing differs."""
    if attrs is None or attrs is node.attrs:
        attrs = node.attrs
        if inputs == node.inputs:
            return node
    return Node(node.op, inputs, attrs, tuple([o.type for o in node.outputs]), node.where)


def rebuild(fn: Fn, visit: Visit, fns: dict[str, Fn] | None = None) -> Fn:
    """`fn` after `visit(node, new_inputs)` gave, for each node in order, values for its results, a node in its place,
    or None to keep it (on the new inputs). Nodes that stay as they are, and the parameters, are shared with `fn`.

    What `visit` builds carries the position of the node. A replacement of another type is an internal error.
    """
    with Builder(fn.name, fns) as builder:
        builder.params = list(fn.params)
        twin: dict[Value, Value] = {}
        same = True
        for node in fn.nodes:
            inputs = tuple([twin.get(v, v) for v in node.inputs])
            with where.at(node.where):
                result = visit(node, inputs)
            if result is None:
                result = with_inputs(node, inputs)
            if isinstance(result, Node):
                builder.nodes.append(result)
                if result is node:
                    continue
                result = result.outputs
            same = False
            _substitute(twin, fn, node, result)
        return fn if same else builder.finish([twin.get(o, o) for o in fn.outputs])


def _substitute(twin: dict[Value, Value], fn: Fn, node: Node, results: Sequence[Value]) -> None:
    for old, new in zip(node.outputs, results, strict=True):
        if old.type != new.type:
            internal_error(f"a rewrite of {node.op.name} changed {old.type} to {new.type}", before=str(fn))
        twin[old] = new


def map_regions(node: Node, change: Callable[[Fn], Fn]) -> Attrs:
    """The attributes of `node` with `change` applied to each region; the same mapping when none changed."""
    changed = {k: change(region) for k, region in node.regions()}
    if all(fn is node.attrs[k] for k, fn in changed.items()):
        return node.attrs
    return {**node.attrs, **changed}


def map_fns(module: Module, change: Callable[[Fn], Fn]) -> Module:
    """`change` applied to every function of the module; the same module when none changed."""
    fns = {name: change(fn) for name, fn in module.fns.items()}
    return module if all(fn is module.fns[name] for name, fn in fns.items()) else Module(fns)


class Pattern:
    """A pattern node: an op on patterns, or a hole (`op is None`) that matches anything, the same thing each time."""

    def __init__(self, op: Any = None, args: tuple[Any, ...] = (), attrs: dict[str, Any] | None = None) -> None:
        self.op, self.args, self.attrs = op, args, attrs or {}

    @staticmethod
    def __treadle_op__(op: Any, args: tuple[Any, ...], attrs: dict[str, Any]) -> Pattern:
        return Pattern(op, args, attrs)


@dataclass(frozen=True)
class Rule:
    """A named rewrite. `into(**holes)` builds the replacement; `check(**holes)` gives a reason not to fire, or "" ."""

    name: str
    doc: str
    pattern: Pattern
    holes: tuple[Pattern, ...]
    into: Callable[..., Any]
    check: Callable[..., str]

    def match(self, node: Node, inputs: tuple[Value, ...]) -> dict[int, Any] | str:
        """The holes' contents (by position), or the reason why the rule does not fire here."""
        found: dict[int, Any] = {}
        reason = self._match_node(self.pattern, node, inputs, found)
        if not reason:
            reason = self.check(*[found[id(h)] for h in self.holes])
        return reason or {i: found[id(h)] for i, h in enumerate(self.holes)}

    def _match_node(self, pattern: Pattern, node: Node, inputs: tuple[Value, ...], found: dict[int, Any]) -> str:
        if node.op is not pattern.op:
            return f"{node.op.name} is not {pattern.op.name}"
        if len(inputs) != len(pattern.args) or len(node.outputs) != 1:
            return f"{node.op.name} has {len(inputs)} inputs and {len(node.outputs)} results"
        for name, want in pattern.attrs.items():
            attr = node.attrs.get(name)
            if isinstance(want, Pattern):
                if id(want) in found and attr_key(found[id(want)]) != attr_key(attr):
                    return f"attribute {name} differs"
                found[id(want)] = attr
            elif attr_key(want) != attr_key(attr):
                return f"attribute {name} is {attr}, not {want}"
        for want, value in zip(pattern.args, inputs, strict=True):
            reason = self._match_value(want, value, found)
            if reason:
                return reason
        return ""

    def _match_value(self, pattern: Pattern, value: Value, found: dict[int, Any]) -> str:
        if pattern.op is None:
            if found.setdefault(id(pattern), value) is not value:
                return "two values that should be the same are not"
            return ""
        if value.node is None:
            return f"a parameter is not {pattern.op.name}"
        return self._match_node(pattern, value.node, value.node.inputs, found)


def rule(match: Callable[..., Any], check: Callable[..., str] | None = None) -> Callable[[Callable[..., Any]], Rule]:
    """Declare a rewrite rule (see the module's docstring)."""
    holes = tuple([Pattern() for _ in inspect.signature(match).parameters])

    def declare(into: Callable[..., Any]) -> Rule:
        doc = inspect.getdoc(into) or ""
        return Rule(into.__name__, doc, match(*holes), holes, into, check or (lambda *_: ""))

    return declare


def apply_rules(fn: Fn, rules: Sequence[Rule], fired: dict[str, int] | None = None, budget: int = 50) -> Fn:
    """`fn` with the rules applied everywhere, regions included, until none fires. `fired` counts firings by name.

    Patterns look from a node to its inputs, so one walk in order is enough: what a rule builds is tried again at once.
    Raises an internal error when rules fire more than `budget` times for one node: rules that undo each other.
    """
    by_op: dict[Any, list[Rule]] = {}
    for r in rules:
        by_op.setdefault(r.pattern.op, []).append(r)
    with counting() as counts:
        result = _Applier(by_op, budget).run(fn)
    for name, count in counts.items():
        note(name, count)
        if fired is not None:
            fired[name] = fired.get(name, 0) + count
    return result


class _Applier:
    """The state of one `apply_rules`: rules by the op they match, and how often they may fire for one node."""

    def __init__(self, by_op: dict[Any, list[Rule]], budget: int) -> None:
        self.by_op, self.budget = by_op, budget

    def run(self, fn: Fn) -> Fn:
        nodes: list[Node] = []
        twin: dict[Value, Value] = {}
        for node in fn.nodes:
            self.place(node, nodes, twin, [0])
        outputs = tuple([twin.get(o, o) for o in fn.outputs])
        same = outputs == fn.outputs and tuple(nodes) == fn.nodes
        return fn if same else Fn(fn.name, fn.params, tuple(nodes), outputs)

    def place(self, node: Node, nodes: list[Node], twin: dict[Value, Value], spent: list[int]) -> None:
        """Append `node`, or what the rules make of it, and write into `twin` what stands for its results."""
        inputs = tuple([twin.get(v, v) for v in node.inputs])
        for r in self.by_op.get(node.op, ()):
            holes = r.match(node, inputs)
            if not isinstance(holes, dict):
                continue
            spent[0] += 1
            if spent[0] > self.budget:
                internal_error(f"rules still fire after {self.budget} times at {node!r}; the last one is {r.name}")
            built, result = self.replacement(r, node, holes)
            note(r.name)
            for new in built:
                self.place(new, nodes, twin, spent)
            twin[node.outputs[0]] = twin.get(result, result)
            return
        attrs = map_regions(node, self.run) if node.op.has_regions else None
        kept = with_inputs(node, inputs, attrs)
        nodes.append(kept)
        if kept is not node:
            twin.update(zip(node.outputs, kept.outputs, strict=True))

    def replacement(self, r: Rule, node: Node, holes: dict[int, Any]) -> tuple[list[Node], Value]:
        """What the rule builds for `node`: the new nodes in order, and the value that stands for the node's result."""
        with Builder() as builder, where.at(node.where):
            result = r.into(*holes.values())
        if not isinstance(result, Value) or result.type != node.outputs[0].type:
            found = result.type if isinstance(result, Value) else type(result).__name__
            internal_error(f"rule {r.name} changed {node.outputs[0].type} to {found}")
        return builder.nodes, result
