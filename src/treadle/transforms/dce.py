"""Dead code: nodes, results and functions that nothing needs are left out. What has an effect stays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from treadle.base import where
from treadle.ir.build import Builder
from treadle.ir.node import Fn, Module, Node, Value
from treadle.ir.rewrite import map_fns, map_regions, note, with_inputs
from treadle.ir.walk import callees, has_effect
from treadle.transforms.pipeline import Pass


@dataclass(frozen=True)
class Dce(Pass):
    """Leaves out unused nodes (in regions too), results of region ops that nobody reads, and functions nobody calls.

    An op may declare `prune(node, used) -> values or None`: `used` says of each result whether it is read; it
    builds what replaces the node and gives one value per result, None where not used; None for "leave it".
    """

    def __call__(self, module: Module) -> Module:
        module = map_fns(module, lambda fn: remove_dead(fn, module.fns))
        reached = reachable(module)
        if len(reached) == len(module.fns):
            return module
        note("unused function", len(module.fns) - len(reached))
        return Module({name: fn for name, fn in module.fns.items() if name in reached})


def reachable(module: Module) -> set[str]:
    """Names of main and of all functions that are called from it, directly or not."""
    found, todo = {"main"}, ["main"]
    while todo:
        new = callees(module.fns[todo.pop()]) & module.fns.keys() - found
        found |= new
        todo += new
    return found


def remove_dead(fn: Fn, fns: Mapping[str, Fn] | None = None) -> Fn:
    """`fn` without the nodes that its outputs do not need; `fns`: the functions of the module, for calls' effects."""
    kept = _live(fn, fns or {})
    if any(n.op.has_regions for n in kept):
        pruned = _prune(fn, kept, fns or {})
        if pruned is not None:
            return remove_dead(pruned, fns)
    if len(kept) == len(fn.nodes):
        return fn
    note("unused node", len(fn.nodes) - len(kept))
    return Fn(fn.name, fn.params, tuple(kept), fn.outputs)


def _live(fn: Fn, fns: Mapping[str, Fn]) -> list[Node]:
    live: set[Node | None] = {v.node for v in fn.outputs}
    kept = []
    for node in reversed(fn.nodes):
        if node in live or has_effect(node, fns):
            kept.append(node)
            live.update([v.node for v in node.inputs])
    return kept[::-1]


def _prune(fn: Fn, kept: list[Node], fns: Mapping[str, Fn]) -> Fn | None:
    """`fn` with smaller regions and without results that nobody reads, or None when there is nothing to do."""
    used = {v for node in kept for v in node.inputs} | set(fn.outputs)
    twin: dict[Value, Value] = {}
    nodes: list[Node] = []
    for node in kept:
        inputs = tuple([twin.get(v, v) for v in node.inputs])
        attrs = map_regions(node, lambda region: remove_dead(region, fns)) if node.op.has_regions else None
        new = with_inputs(node, inputs, attrs)
        results = _pruned(new, tuple([o in used for o in node.outputs]), nodes)
        if results is None:
            nodes.append(new)
            results = new.outputs
        twin.update({o: r for o, r in zip(node.outputs, results, strict=True) if r is not None and r is not o})
    if nodes == kept:
        return None
    return Fn(fn.name, fn.params, tuple(nodes), tuple([twin.get(o, o) for o in fn.outputs]))


def _pruned(node: Node, used: tuple[bool, ...], nodes: list[Node]) -> tuple[Value | None, ...] | None:
    """What the op's `prune` rule makes of the node, its new nodes appended to `nodes`; None when it leaves it alone."""
    prune = node.op.rules.get("prune")
    if not prune:
        return None
    with Builder() as builder, where.at(node.where):
        results = prune(node, used)
    if results is None:
        return None
    note(f"unused result of {node.op.name}")
    nodes += builder.nodes
    return tuple(results)
