"""Axes rules read: which axis of which operand is which axis of the result; and the FLOPs that follow from them.

An axes rule is text such as `"... m k, k n -> ... m n"`: one list of names per operand and result. `...` stands for the
axes that are not named, `!x` marks an axis that cannot be split, `1` an axis of size 1. A name that no result has is
summed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from treadle.ir.interp import expansion
from treadle.ir.node import Fn, Module, Node
from treadle.ir.types import TensorType


@dataclass(frozen=True)
class Axes:
    """A rule for given types: for each operand and result one name per axis; `whole` names cannot be split."""

    ins: tuple[tuple[str, ...], ...]
    outs: tuple[tuple[str, ...], ...]
    whole: frozenset[str]

    def splittable(self) -> list[str]:
        """Names of operands' axes that may be split."""
        return sorted({n for names in self.ins for n in names} - self.whole - {"1"})

    def sizes(self, types: Sequence[TensorType]) -> dict[str, int]:
        """Size of each axis of the operands, by name."""
        return {n: d for names, t in zip(self.ins, types, strict=True) for n, d in zip(names, t.shape, strict=True)}

    def contracted(self) -> set[str]:
        """Names that two operands or more share and no result has: what a product sums over."""
        kept = {n for names in self.outs for n in names} | {"1"}
        everywhere = [n for names in self.ins for n in set(names)]
        return {n for n in everywhere if everywhere.count(n) > 1} - kept


def parse_axes(text: str, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Axes:
    """Read the text of a rule. Raises ValueError when it does not fit the types."""
    left, arrow, right = text.partition("->")
    if not arrow:
        raise ValueError(f"axes rule {text!r} has no ->")
    whole = frozenset(word[1:] for word in text.replace(",", " ").split() if word.startswith("!"))
    return Axes(_lists(text, left, ins), _lists(text, right, outs), whole)


def _lists(text: str, side: str, types: Sequence[TensorType]) -> tuple[tuple[str, ...], ...]:
    groups = [g.split() for g in side.split(",")] if types else []
    if len(groups) != len(types):
        raise ValueError(f"axes rule {text!r} names {len(groups)} tensors, there are {len(types)}")
    return tuple([_names(text, group, t) for group, t in zip(groups, types, strict=True)])


def _names(text: str, words: list[str], type: TensorType) -> tuple[str, ...]:
    rest = type.rank - len([w for w in words if w != "..."])
    if rest < 0 or (rest and "..." not in words):
        raise ValueError(f"axes rule {text!r} does not fit {type}")
    spread = [f"...{i}" for i in range(rest)]
    return tuple([n.lstrip("!") for w in words for n in (spread if w == "..." else [w])])


def axes_of(node: Node) -> Axes | None:
    """The axes of a node, or None where its op has no rule (it can only be replicated)."""
    rule = node.op.rules["axes"]
    types = [v.type for v in node.inputs]
    text = rule(*types, **node.attrs) if callable(rule) else rule
    return parse_axes(text, types, [o.type for o in node.outputs]) if isinstance(text, str) else None


def flops(root: Module | Fn) -> int:
    """Floating-point operations of one run: two per multiply-add of products and convolutions, one per element
    elsewhere.

    A `scan` counts its trips; the body of a `while`, whose trips are not known, and the dearer branch of an `if` count
    once.
    """
    module = root if isinstance(root, Module) else Module.of(root)
    return _fn_flops(module.main, module)


def _fn_flops(fn: Fn, module: Module) -> int:
    return sum(node_flops(node, module) for node in fn.nodes)


def node_flops(node: Node, module: Module) -> int:
    """FLOPs of one node (see `flops`)."""
    rule: Any = node.op.rules.get("flops")
    types = [v.type for v in node.inputs]
    if rule is not None:
        return int(rule(types, [o.type for o in node.outputs], **node.attrs))
    if "callee" in node.attrs:
        return _fn_flops(module.fns[node.attrs["callee"]], module)
    bodies = [_fn_flops(region, module) for _, region in node.regions()]
    if bodies:
        return max(bodies) * int(node.attrs.get("length", 1))
    if not node.outputs or not node.outputs[0].type.dtype.is_inexact or not node.inputs:
        return 0
    if "expand" in node.op.rules and "ref" not in node.op.rules:
        return _fn_flops(expansion(node.op, tuple(types), node.attrs), module)
    return _from_axes(node)


def _from_axes(node: Node) -> int:
    axes = axes_of(node)
    if axes is None:
        return 0
    sizes = axes.sizes([v.type for v in node.inputs])
    kept = {n for names in axes.outs for n in names}
    work = math.prod(sizes.values())
    if axes.contracted():
        return 2 * work
    moves = len(axes.ins) == 1 and len(kept) == len(sizes) and axes.outs[0] != axes.ins[0]
    return 0 if moves or not kept <= set(sizes) else work
