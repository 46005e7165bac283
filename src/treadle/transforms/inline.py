"""Calls of functions that do not call themselves are replaced by the functions' nodes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from treadle.ir import build
from treadle.ir.node import Fn, Module, Node, Value
from treadle.ir.rewrite import map_regions, note, rebuild, with_inputs
from treadle.ir.walk import all_nodes, callees
from treadle.transforms.pipeline import Pass


@dataclass(frozen=True)
class Inline(Pass):
    """Replaces `call` nodes by the body of the function, in regions too; exact. Recursive functions stay calls.

    max_nodes: only functions of at most so many nodes (0: no limit); only_once: only those called at one place.
    """

    max_nodes: int = 0
    only_once: bool = False

    def __call__(self, module: Module) -> Module:
        sites = Counter(n.attrs["callee"] for n in all_nodes(module) if "callee" in n.attrs)
        if not sites:
            return module
        done: dict[str, Fn] = {}
        chosen: dict[str, Fn] = {}
        for name in _callees_first(module):
            fn = done[name] = _inline(module.fns[name], chosen)
            small = not self.max_nodes or sum(1 for _ in all_nodes(fn)) <= self.max_nodes
            rare = not self.only_once or sites[name] <= 1
            if small and rare and name not in _reached(module, name):
                chosen[name] = fn
        if all(fn is module.fns[name] for name, fn in done.items()):
            return module
        return Module({name: done[name] for name in module.fns})


def _callees_first(module: Module) -> list[str]:
    """All function names, each after those it calls, as far as there is no cycle."""
    order: dict[str, None] = {}
    seen: set[str] = set()
    todo = [(name, False) for name in module.fns]
    while todo:
        name, entered = todo.pop()
        if entered:
            order[name] = None
        elif name not in seen:
            seen.add(name)
            todo.append((name, True))
            todo += [(c, False) for c in sorted(callees(module.fns[name])) if c not in seen]
    return list(order)


def _reached(module: Module, name: str) -> set[str]:
    """The functions that are called from `name`, directly or not; with `name` itself only when it is in a cycle."""
    found: set[str] = set()
    todo = [name]
    while todo:
        new = callees(module.fns[todo.pop()]) - found
        found |= new
        todo += new
    return found


def _inline(fn: Fn, chosen: dict[str, Fn]) -> Fn:
    def visit(node: Node, inputs: tuple[Value, ...]) -> Node | tuple[Value, ...] | None:
        callee = chosen.get(node.attrs.get("callee", ""))
        if callee is not None:
            note("inlined")
            return build.inline(callee, inputs)
        if node.op.has_regions:
            return with_inputs(node, inputs, map_regions(node, lambda region: _inline(region, chosen)))
        return None

    return rebuild(fn, visit)
