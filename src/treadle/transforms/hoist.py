"""Takes out of a program what depends only on parameters that stay the same from call to call.

`hoist(module, fixed)` gives two modules: one that makes values of the fixed parameters alone (casts, transposes, packed
weights), to be run when one of them has changed, and the program itself, which takes these values as its last
parameters. None where nothing would be gained.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from treadle.ir import build
from treadle.ir.build import Builder
from treadle.ir.host import Host
from treadle.ir.node import Fn, Module, Node, Value
from treadle.ir.walk import has_effect
from treadle.transforms.dce import remove_dead
from treadle.transforms.fuse import expanded


@dataclass(frozen=True)
class Hoisted:
    """prepare: the fixed parameters, in order, -> values; main: all parameters, then these values -> the results."""

    prepare: Module
    main: Module


def hoist(module: Module, fixed: Collection[int], checks: int = 0) -> Hoisted | None:
    """The module in two; fixed: numbers of the parameters of main that stay the same. checks: so many of the last
    results, which depend on nothing else, are not main's but the last ones of prepare."""
    if not fixed:
        return None
    main = expanded(module.main)
    early = early_nodes(main, {main.params[i] for i in fixed}, module)
    whole, checked = main.outputs, main.outputs[len(main.outputs) - checks :]
    main = Fn(main.name, main.params, main.nodes, whole[: len(whole) - checks])
    values = _crossing(main, early)
    if not values and not checked:
        return None
    params = [main.params[i] for i in sorted(fixed)]
    prepare = _function("prepare", params, [n for n in main.nodes if n in early], [*values, *checked])
    known = set(values)
    late = [n for n in main.nodes if n not in early or not known.issuperset(n.outputs)]
    rest = _function("main", [*main.params, *values], late, main.outputs)
    return Hoisted(
        Module.of(remove_dead(prepare, module.fns), module.callees()),
        Module.of(remove_dead(rest, module.fns), module.callees()),
    )


def early_nodes(main: Fn, known: set[Value], module: Module) -> dict[Node, int]:
    """The nodes that need nothing but fixed values, and the bytes of the parameters that each depends on."""
    found: dict[Node, int] = {}
    sources: dict[Value, frozenset[Value]] = {v: frozenset([v]) for v in known}
    for node in main.nodes:
        if has_effect(node, module.fns) or "callee" in node.attrs:
            continue
        if any(isinstance(a, Host) for a in node.attrs.values()):
            continue
        if all(v in sources for v in node.inputs):
            mine = frozenset[Value]().union(*[sources[v] for v in node.inputs])
            found[node] = sum(v.type.bytes for v in mine)
            sources.update(dict.fromkeys(node.outputs, mine))
    return found


def _crossing(main: Fn, early: dict[Node, int]) -> list[Value]:
    """What is handed over: values of early nodes that the others need. Not what is larger than what it is made of (a
    broadcast is cheaper where it is used), nor what depends on no parameter: both parts make these."""
    found: dict[Value, None] = {}
    todo = [v for n in main.nodes if n not in early for v in n.inputs] + list(main.outputs)
    seen: set[Value] = set()
    while todo:
        v = todo.pop()
        node = v.node
        if v in seen or node is None or node not in early:
            continue
        seen.add(v)
        made, read = sum(o.type.bytes for o in node.outputs), sum(i.type.bytes for i in node.inputs)
        if early[node] and made <= 2 * read and made <= 2 * early[node]:
            found[v] = None
        else:
            todo += node.inputs
    order = {o: i for i, o in enumerate([o for n in main.nodes for o in n.outputs])}
    return sorted(found, key=lambda v: order[v])


def _function(name: str, params: list[Value], nodes: list[Node], outputs: Sequence[Value]) -> Fn:
    """A function of copies of the nodes; `params` are the values that its parameters stand for."""
    with Builder(name) as builder:
        twin = {v: builder.param(v.type) for v in params}
        for node in nodes:
            fresh = [o for o in node.outputs if o not in twin]
            if fresh:
                made = build.emit(node, tuple([twin[v] for v in node.inputs]))
                twin.update({o: m for o, m in zip(node.outputs, made, strict=True) if o not in twin})
        return builder.finish([twin[o] for o in outputs])
