"""Functions without their effects, for the parts of a gradient that run a body once more: what a body prints or checks
is printed and checked by its first run.

`quiet(fn, fns)` leaves out every node that has an effect and no results, in bodies and in called functions too.
"""

from __future__ import annotations

from treadle.ir.node import Fn, Node, Value
from treadle.ir.rewrite import map_regions, with_inputs
from treadle.ir.walk import has_effect


def _given(node: Node) -> dict[str, object]:
    return {name: fn for name, fn in node.regions() if name == "backward"}


def quiet(fn: Fn, fns: dict[str, Fn]) -> Fn:
    """`fn` without effects, itself if it has none; functions that it calls are put into `fns` as `name.quiet`."""
    if not any(has_effect(node, fns) for node in fn.nodes):
        return fn
    twin: dict[Value, Value] = {}
    nodes: list[Node] = []
    for node in fn.nodes:
        if not node.outputs and has_effect(node, fns):
            continue
        new = with_inputs(node, tuple([twin.get(v, v) for v in node.inputs]))
        if has_effect(node, fns):
            new = with_inputs(new, new.inputs, _attrs(node, fns))
        nodes.append(new)
        twin.update({old: value for old, value in zip(node.outputs, new.outputs, strict=True) if old is not value})
    return Fn(fn.name, fn.params, tuple(nodes), tuple([twin.get(o, o) for o in fn.outputs]))


def _attrs(node: Node, fns: dict[str, Fn]) -> dict[str, object]:
    # a gradient given by hand is run by the gradient alone: for the first time
    attrs = {**map_regions(node, lambda region: quiet(region, fns)), **_given(node)}
    callee = attrs.get("callee")
    if callee in fns:
        name = f"{callee}.quiet"
        if name not in fns:
            fns[name] = fns[callee]  # so that a function that calls itself finds its own copy
            made = quiet(fns[callee], fns)
            fns[name] = Fn(name, made.params, made.nodes, made.outputs)
        attrs["callee"] = name
    return attrs
