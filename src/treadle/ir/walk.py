"""Reading IR: all functions of a module with their regions, users of values, nodes in order, sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from treadle.base.errors import UserError
from treadle.ir.node import Fn, Module, Node, Value


def all_fns(root: Module | Fn) -> Iterator[Fn]:
    """Every function, regions included, outer before inner."""
    for fn in root.fns.values() if isinstance(root, Module) else [root]:
        yield fn
        for node in fn.nodes:
            for _, region in node.regions():
                yield from all_fns(region)


def all_nodes(root: Module | Fn) -> Iterator[Node]:
    """Every node, those of regions included."""
    for fn in all_fns(root):
        yield from fn.nodes


def fn_named(fns: Mapping[str, Fn], name: str) -> Fn:
    """The function that a call names. Raises E0248 for one that is still being traced, as it differentiates or batches
    a call of itself."""
    if name not in fns:
        why = f"{name.partition('.')[0]} calls td.grad, td.vmap or the like of itself, and a tensor decides when"
        fix = "let a Python number stop it, or apply td.grad and td.vmap outside of the function"
        raise UserError("E0248", f"{why} to stop: each level would be another program", fix=fix)
    return fns[name]


def users(fn: Fn) -> dict[Value, list[Node]]:
    """For each value, the nodes of `fn` that take it, in order (outputs of `fn` are not counted)."""
    found: dict[Value, list[Node]] = {}
    for node in fn.nodes:
        for value in node.inputs:
            found.setdefault(value, []).append(node)
    return found


def has_effect(node: Node, fns: Mapping[str, Fn] | None = None) -> bool:
    """Whether running the node does something beside its results, the regions that run and the functions it calls
    included.

    Calls count only when `fns`, the module's functions, are given.
    """
    return _has_effect(node, fns or {}, set())


def _has_effect(node: Node, fns: Mapping[str, Fn], seen: set[str]) -> bool:
    if node.op.rules.get("effect"):
        return True
    callee = node.attrs.get("callee", "")
    if callee in fns and callee not in seen:
        seen.add(callee)
        if any(_has_effect(n, fns, seen) for n in fns[callee].nodes):
            return True
    regions = [region for name, region in node.regions() if name != "backward"]  # that of a gradient given by hand
    return any(_has_effect(n, fns, seen) for region in regions for n in region.nodes)


def needed(fn: Fn, outputs: tuple[Value, ...], fns: Mapping[str, Fn] | None = None) -> set[Node]:
    """The nodes that `outputs` depend on, with those that have an effect (see `has_effect`)."""
    live = {v.node for v in outputs if v.node is not None}
    for node in reversed(fn.nodes):
        if node in live or has_effect(node, fns):
            live.add(node)
            live.update([v.node for v in node.inputs if v.node is not None])
    return live


def callees(fn: Fn) -> set[str]:
    """Names of the functions that `fn` calls, regions included."""
    return {n.attrs["callee"] for n in all_nodes(fn) if "callee" in n.attrs}
