"""IR functions as formulas: `of_fn(fn)` gives the formula of elementwise, index and reduction ops, None for others.

An elementwise op is a call at the same indices; an op with a `formula` rule gives its element itself; another is looked
at through its expansion. A rule is `rule(t, *sources, **attrs) -> expression` (or one per result): `t.out` are the
index variables of the result, `t.axis(n)` makes one to reduce over, `x(*indices)` is an element of an operand and
`x.type` its type. It may also give a list of operands, or NotImplemented. Pointwise results are written into those that
read them; reductions become tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from treadle.formula.expr import (
    Axis,
    Compute,
    Expr,
    Placeholder,
    Read,
    Reduce,
    call,
    post_order,
    substitute,
)
from treadle.formula.rules import Operand, Rule, axes_for, operand_of
from treadle.formula.scalars import is_elementwise
from treadle.formula.simplify import simplify
from treadle.formula.text import Formula
from treadle.ir.interp import expansion
from treadle.ir.node import Fn, Node, Value
from treadle.ir.types import TensorType

_LARGE = 300  # expressions written into each other up to this size


def of_fn(fn: Fn) -> Formula | None:
    """The formula of a function; None where an op of it has none."""
    places = [Placeholder(f"a{n}", t) for n, t in enumerate(fn.in_types)]
    results = _run(fn, [operand_of(p) for p in places])
    if results is None:
        return None
    outputs = []
    for n, result in enumerate(results):
        axes = axes_for(result.type.shape)
        body = result(*axes)
        if isinstance(body, Read) and isinstance(body.source, Compute) and body.parts == axes:
            outputs.append(body.source)
        else:
            outputs.append(Compute(f"out{n}", axes, body))
    return Formula(places, outputs)


def _run(fn: Fn, args: Sequence[Operand]) -> list[Operand] | None:
    env: dict[Value, Operand] = dict(zip(fn.params, args, strict=True))
    for node in fn.nodes:
        results = _node(node, [env[v] for v in node.inputs])
        if results is None:
            return None
        env.update(zip(node.outputs, results, strict=True))
    return [env[o] for o in fn.outputs]


def _node(node: Node, args: list[Operand]) -> Sequence[Operand] | None:
    op, types = node.op, [o.type for o in node.outputs]
    if op.has_regions or op.rules.get("effect"):
        return None
    if op.rules.get("formula"):
        return _by_rule(op.rules["formula"], node, args, types)
    if is_elementwise(op) and len(types) == 1:
        attrs = dict(node.attrs)
        return [_stored(op.name, types[0], lambda i: call(op.name, *[a(*i) for a in args], **attrs))]
    if op.rules.get("expand"):
        return _run(expansion(op, tuple([v.type for v in node.inputs]), node.attrs), args)
    return None


def _by_rule(rule: Any, node: Node, args: list[Operand], types: Sequence[TensorType]) -> list[Operand] | None:
    t = Rule(types)
    found = rule(t, *args, **node.attrs)
    if found is NotImplemented:
        return None
    if isinstance(found, list):
        return found
    bodies = found if isinstance(found, tuple) else (found,)
    results = []
    for body, type in zip(bodies, types, strict=True):
        results.append(_stored(node.op.name, type, _at_axes(simplify(body), t.out)))
    return results


def _at_axes(body: Expr, axes: tuple[Axis, ...]) -> Callable[[tuple[Expr, ...]], Expr]:
    return lambda indices: body if indices == axes else substitute(body, dict(zip(axes, indices, strict=True)))


def _stored(name: str, type: TensorType, at: Callable[[tuple[Expr, ...]], Expr]) -> Operand:
    """A pointwise result as it is; one with a reduction, or a large one, as a tensor that is read."""
    axes = axes_for(type.shape)
    body = at(axes)
    nodes = list(post_order(body))
    if any(isinstance(e, Reduce) for e in nodes) or len(nodes) > _LARGE:
        return operand_of(Compute(name, axes, body))
    return Operand(type, _at_axes(body, axes))
