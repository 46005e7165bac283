"""Common subexpressions: of nodes that compute the same thing, the first stays and serves all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from treadle.ir.node import Fn, Module, Node, Value, attr_key
from treadle.ir.rewrite import map_fns, map_regions, note, with_inputs
from treadle.ir.walk import has_effect
from treadle.transforms.pipeline import Pass


@dataclass(frozen=True)
class Cse(Pass):
    """Merges nodes of the same op, inputs and attributes (bit for bit), in regions too; exact. Effects stay apart."""

    def __call__(self, module: Module) -> Module:
        return map_fns(module, lambda fn: merge_equal(fn, module.fns))


def merge_equal(fn: Fn, fns: Mapping[str, Fn]) -> Fn:
    """`fn` with equal nodes merged; `fns` are the functions of the module, for calls' effects."""
    twin: dict[Value, Value] = {}
    nodes: list[Node] = []
    first: dict[Any, Node] = {}
    for node in fn.nodes:
        inputs = tuple([twin.get(v, v) for v in node.inputs]) if twin else node.inputs
        attrs = map_regions(node, lambda region: merge_equal(region, fns)) if node.op.has_regions else None
        new = with_inputs(node, inputs, attrs)
        same = new if has_effect(new, fns) else first.setdefault(_key(new), new)
        if same is new:
            nodes.append(new)
        else:
            note("merged")
        if same is not node:
            twin.update(zip(node.outputs, same.outputs, strict=True))
    if tuple(nodes) == fn.nodes:
        return fn
    return Fn(fn.name, fn.params, tuple(nodes), tuple([twin.get(o, o) for o in fn.outputs]))


def _key(node: Node) -> Any:
    attrs = node.attrs
    return node.op.name, node.inputs, tuple([(k, attr_key(attrs[k])) for k in sorted(attrs)]) if attrs else ()
