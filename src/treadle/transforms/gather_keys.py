"""One call for all keys: `fold_in` of one key and many single numbers becomes one `fold_in` of the vector of them.

Each dropout of a network makes its key by a call of its own. Threefry costs as much to compile for one number as for a
thousand, so that the keys took half of the compile time of a program with dropout; their bits do not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from treadle.base import where
from treadle.ir.build import Builder
from treadle.ir.node import Fn, Module, Node, Value
from treadle.ir.rewrite import map_fns, map_regions, note, with_inputs
from treadle.ir.walk import has_effect
from treadle.ops.random import fold_in
from treadle.ops.shape import concatenate, reshape, slice_
from treadle.transforms.pipeline import Pass


@dataclass(frozen=True)
class GatherKeys(Pass):
    """Merges `fold_in` calls on single numbers that share the key, where none of the numbers depends on another's
    result; in regions too; exact."""

    def __call__(self, module: Module) -> Module:
        return map_fns(module, lambda fn: gather(fn, module.fns))


def gather(fn: Fn, fns: Mapping[str, Fn]) -> Fn:
    """`fn` with one `fold_in` for each key."""
    groups = _groups(fn, fns)
    if not groups and not any(n.op.has_regions for n in fn.nodes):
        return fn
    twin: dict[Value, Value] = {}
    nodes: list[Node] = []
    for node in _ordered(fn, groups):
        attrs = map_regions(node, lambda region: gather(region, fns)) if node.op.has_regions else None
        group = groups.get(node)
        if group is None:
            new = with_inputs(node, tuple([twin.get(v, v) for v in node.inputs]), attrs)
            nodes.append(new)
            results = new.outputs
        elif node.outputs[0] in twin:
            continue  # a later member of a group that is there already
        else:
            inputs = [tuple([twin.get(v, v) for v in n.inputs]) for n in group]
            results = tuple(_together(node, inputs, nodes))
            twin.update(zip([n.outputs[0] for n in group], results, strict=True))
            note("keys gathered", len(group))
            continue
        twin.update({o: r for o, r in zip(node.outputs, results, strict=True) if o is not r})
    if tuple(nodes) == fn.nodes:
        return fn
    return Fn(fn.name, fn.params, tuple(nodes), tuple([twin.get(o, o) for o in fn.outputs]))


def _groups(fn: Fn, fns: Mapping[str, Fn]) -> dict[Node, list[Node]]:
    """For each call that can be merged, all calls that it is merged with, in order."""
    found: dict[Value, list[Node]] = {}
    for node in fn.nodes:
        if node.op.name == fold_in.name and node.inputs[1].shape == ():
            found.setdefault(node.inputs[0], []).append(node)
    groups: dict[Node, list[Node]] = {}
    for members in found.values():
        fixed = _late(fn, members, fns) if len(members) > 1 else set()
        free = [n for n in members if n.inputs[1] not in fixed]
        if len(free) > 1:
            groups.update(dict.fromkeys(free, free))
    return groups


def _late(fn: Fn, members: Sequence[Node], fns: Mapping[str, Fn]) -> set[Value]:
    """Values that cannot be had before the first member: made of a member's result, or of a node with an effect."""
    late: set[Value] = set()
    calls = set(members)
    for node in fn.nodes:
        if node in calls or any(v in late for v in node.inputs) or has_effect(node, fns):
            late.update(node.outputs)
    return late


def _ordered(fn: Fn, groups: Mapping[Node, list[Node]]) -> list[Node]:
    """The nodes in an order in which the numbers of a whole group are there before its first member."""
    done: set[Node] = set()
    order: list[Node] = []

    def emit(node: Node) -> None:
        todo = [node]
        while todo:  # a chain of counters is as long as the program has draws
            top = todo[-1]
            wanted = [v for n in groups.get(top, [top]) for v in n.inputs]
            before = [] if top in done else [v.node for v in wanted if v.node is not None and v.node not in done]
            if before:
                todo += before[::-1]
                continue
            todo.pop()
            if top not in done:
                done.update(groups.get(top, [top]))
                order.append(top)

    for node in fn.nodes:
        emit(node)
    return order


def _together(first: Node, inputs: Sequence[tuple[Value, ...]], nodes: list[Node]) -> list[Value]:
    """The results of all calls by one; what builds them is appended to `nodes`."""
    with Builder() as builder, where.at(first.where):
        numbers = concatenate(*[reshape(data, shape=(1,)) for _, data in inputs], axis=0)
        keys = fold_in(inputs[0][0], numbers)
        results = []
        for i in range(len(inputs)):
            row = slice_(keys, starts=(i, 0), limits=(i + 1, 2), strides=(1, 1))
            results.append(reshape(row, shape=(2,)))
    nodes += builder.nodes
    return results
