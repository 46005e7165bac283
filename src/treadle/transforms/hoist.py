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


@dataclass(frozen=True)
class Hoisted:
    """prepare: the fixed parameters, in order, -> values; main: all parameters, then these values -> the results."""

    prepare: Module
    main: Module


def hoist(module: Module, fixed: Collection[int]) -> Hoisted | None:
    """The module in two; fixed: numbers of the parameters of main that stay the same."""
    if not fixed:
        return None
    main = module.main
    known = {main.params[i] for i in fixed}
    early = _early(main, known, module)
    values = _crossing(main, early)
    if not values:
        return None
    params = [main.params[i] for i in sorted(fixed)]
    prepare = _function("prepare", params, [n for n in main.nodes if n in early], values)
    late = [n for n in main.nodes if n not in early or not n.inputs]
    rest = _function("main", [*main.params, *values], late, main.outputs)
    return Hoisted(
        Module.of(remove_dead(prepare, module.fns), module.callees()),
        Module.of(remove_dead(rest, module.fns), module.callees()),
    )


def _early(main: Fn, known: set[Value], module: Module) -> set[Node]:
    """The nodes that need nothing but fixed values, and do not make them larger (a broadcast is cheaper where it is
    used). Constants belong to both sides."""
    found: set[Node] = set()
    known = set(known)
    for node in main.nodes:
        grows = sum(o.type.bytes for o in node.outputs) > 2 * sum(v.type.bytes for v in node.inputs)
        if has_effect(node, module.fns) or "callee" in node.attrs or (node.inputs and grows):
            continue
        if any(isinstance(a, Host) for a in node.attrs.values()):
            continue
        if all(v in known for v in node.inputs):
            found.add(node)
            known.update(node.outputs)
    return found


def _crossing(main: Fn, early: set[Node]) -> list[Value]:
    """Values of early nodes that the others need, constants apart."""
    needed = [v for n in main.nodes if n not in early for v in n.inputs]
    mine = [v for v in [*needed, *main.outputs] if v.node in early and v.node is not None and v.node.inputs]
    return list(dict.fromkeys(mine))


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
