"""Constant folding: nodes whose inputs are known are computed now, by the ops' references, and become constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from treadle.base import where
from treadle.base.errors import UserError
from treadle.ir import interp
from treadle.ir.build import Builder
from treadle.ir.host import Host
from treadle.ir.node import Fn, Module, Node, Value
from treadle.ir.rewrite import map_fns, map_regions, note, with_inputs
from treadle.ir.types import Literal, TensorType
from treadle.ops.creation import constant, full
from treadle.transforms.pipeline import Pass


@dataclass(frozen=True)
class Fold(Pass):
    """Computes nodes with constant inputs; a result whose elements are all one becomes `full`, others `constant`.

    Exact as the reference is: transcendental functions may differ from a device's in the last bit. limit: elements of
    the largest tensor that is computed; elementwise ops on filled tensors are folded at any size. Effects, calls and
    regions stay.
    """

    limit: int = 1024

    def __call__(self, module: Module) -> Module:
        return map_fns(module, lambda fn: _Folder(self.limit).run(fn))


class _Folder:
    """Folds one function; `known` holds the numbers of values, computed when first asked for."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.arrays: dict[Value, Any] = {}

    def run(self, fn: Fn) -> Fn:
        twin: dict[Value, Value] = {}
        nodes: list[Node] = []
        for node in fn.nodes:
            inputs = tuple([twin.get(v, v) for v in node.inputs]) if twin else node.inputs
            attrs = map_regions(node, _Folder(self.limit).run) if node.op.has_regions else None
            new = with_inputs(node, inputs, attrs)
            folded = self.fold(new)
            if folded is None:
                nodes.append(new)
            else:
                note("folded")
                nodes += [v.node for v in folded if v.node is not None]
            if folded is not None or new is not node:
                twin.update(zip(node.outputs, folded or new.outputs, strict=True))
        if tuple(nodes) == fn.nodes:
            return fn
        return Fn(fn.name, fn.params, tuple(nodes), tuple([twin.get(o, o) for o in fn.outputs]))

    def fold(self, node: Node) -> tuple[Value, ...] | None:
        """Constants in place of the results of `node`, or None when its inputs are not all known or too large."""
        if not node.inputs or not all(_is_source(v.node) for v in node.inputs) or not _is_pure(node):
            return None
        if is_elementwise(node) and all(v.node.op is full for v in node.inputs if v.node is not None):
            results = _on_scalars(node)
        elif all(v.type.size <= self.limit for v in (*node.inputs, *node.outputs)):
            arrays = [self.known(v) for v in node.inputs]
            results = None if any(a is None for a in arrays) else _computed(node, arrays)
        else:
            return None
        if results is None:
            return None
        with Builder(), where.at(node.where):
            made = [_literal(r, o.type) for r, o in zip(results, node.outputs, strict=True)]
        return tuple([m for m in made if m is not None]) if None not in made else None

    def known(self, value: Value) -> Any:
        """The numbers of a result of a node without inputs; None when the reference cannot give them."""
        if value not in self.arrays:
            node = value.node
            results = None if node is None else _computed(node, [])
            self.arrays[value] = None if results is None else results[value.index]
        return self.arrays[value]


def _is_source(node: Node | None) -> bool:
    return node is not None and not node.inputs and _is_pure(node)


def _is_pure(node: Node) -> bool:
    if any(isinstance(a, Host) for a in node.attrs.values()):  # to be called when the program runs
        return False
    return not (node.op.rules.get("effect") or node.op.has_regions or "callee" in node.attrs)


def is_elementwise(node: Node) -> bool:
    """Whether an element of the result comes from those at the same place: the axes rule is `..., ... -> ...`."""
    axes = node.op.rules.get("axes")
    return isinstance(axes, str) and not axes.replace("...", "").strip(" ,->") and bool(node.inputs)


def _computed(node: Node, arrays: list[Any]) -> list[Any] | None:
    if not (node.op.rules.get("ref") or node.op.rules.get("expand")):
        return None
    try:
        return interp.run_node(node, arrays, {})
    except UserError:  # what the program does wrong is said when it runs, at the user's line
        return None


def _on_scalars(node: Node) -> list[Any] | None:
    """The one element of each result of an elementwise node on filled tensors, as 0-d arrays."""
    scalars = [Value(TensorType(v.dtype, ())) for v in node.inputs]
    arrays = [np.full((), v.node.attrs["value"], v.dtype.np) for v in node.inputs if v.node is not None]
    types = tuple([TensorType(o.dtype, ()) for o in node.outputs])
    small = Node(node.op, tuple(scalars), node.attrs, types, node.where)
    return _computed(small, arrays)


def _literal(array: Any, type: TensorType) -> Value | None:
    """`full` when all elements are one number with the same bits (or all NaN), else `constant` (None: too large)."""
    flat = np.ascontiguousarray(array).reshape(-1)
    made: Value
    if flat.size and type.dtype.kind != "c":
        number = {"b": bool, "f": float}.get(type.dtype.kind, int)(flat[0])
        same = np.full(flat.shape, number, type.dtype.np).tobytes() == flat.tobytes()
        if same or (type.dtype.is_float and bool(np.isnan(flat.astype(np.float64)).all())):
            made = full(value=number, shape=type.shape, dtype=type.dtype)
            return made
    if flat.size != type.size:
        return None
    made = constant(value=Literal(np.asarray(array).reshape(type.shape)))
    return made
