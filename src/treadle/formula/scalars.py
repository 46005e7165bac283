"""What an elementwise op means on scalars: IR functions of scalars as expressions, and the local derivatives of a call.

`apply_fn(fn, args)` gives the outputs of an IR function of 0-d values as expressions. `pull(call, d)` gives, for each
argument, the cotangent that the op's own gradient rule gives for the cotangent `d`; None where that is zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from treadle.base import where
from treadle.base.errors import UserError
from treadle.formula.expr import Call, Expr, Param, call, substitute, with_parts
from treadle.formula.expr import rewrite as rewrite_expr
from treadle.formula.rules import Operand, Rule
from treadle.ir import build
from treadle.ir import op as op_table
from treadle.ir.interp import expansion
from treadle.ir.node import Fn, Node, Value
from treadle.ir.types import TensorType


def is_elementwise(op: Any) -> bool:
    """Whether each element of the one result depends on the elements at its own position only."""
    axes = op.rules.get("axes")
    return isinstance(axes, str) and set(axes.replace(",", " ").replace("->", " ").split()) == {"..."}


def apply_fn(fn: Fn, args: Sequence[Expr]) -> tuple[Expr, ...]:
    """The outputs of a function of 0-d values. Raises E0303 for an op that is not elementwise."""
    env: dict[Value, Expr] = dict(zip(fn.params, args, strict=True))
    for node in fn.nodes:
        results = _node(node, [env[v] for v in node.inputs])
        env.update(zip(node.outputs, results, strict=True))
    return tuple([env[o] for o in fn.outputs])


def _node(node: Node, args: list[Expr]) -> Sequence[Expr]:
    op = node.op
    if rule := op.rules.get("formula"):
        operands = [_scalar(v.type, a) for v, a in zip(node.inputs, args, strict=True)]
        found = rule(Rule([o.type for o in node.outputs]), *operands, **node.attrs)
        return found if isinstance(found, tuple) else (found,)
    if is_elementwise(op) and len(node.outputs) == 1:
        return [call(op.name, *args, **node.attrs)]
    if op.rules.get("expand"):
        return apply_fn(expansion(op, tuple([v.type for v in node.inputs]), node.attrs), args)
    raise UserError("E0303", f"{op.name} is no function of single elements", fix="use elementwise ops in formulas")


def _scalar(type: TensorType, value: Expr) -> Operand:
    return Operand(type, lambda _: value)


def has_gradient(expr: Call) -> bool:
    """Whether the op states its derivative itself (or that it has none)."""
    rules = op_table.get(expr.op).rules
    return "grad" in rules or "reverse" in rules


def expanded(expr: Expr) -> Expr:
    """The expression with calls whose op states no derivative written in other ops."""

    def step(old: Expr, parts: tuple[Expr, ...]) -> Expr:
        if isinstance(old, Call) and old.dtype.is_inexact and not has_gradient(old):
            types = tuple([TensorType(p.dtype, ()) for p in parts])
            (made,) = apply_fn(expansion(op_table.get(old.op), types, dict(old.attrs)), parts)
            return expanded(made)
        return with_parts(old, parts)

    return rewrite_expr(expr, step)


def pull(expr: Call, d: Expr) -> list[Expr | None]:
    """The cotangents of the arguments of a call for the cotangent `d` of its value."""
    params, out, seed, grads = _rule(expr.op, tuple([a.dtype for a in expr.args]), expr.attrs)
    to: dict[Any, Expr] = {**dict(zip(params, expr.args, strict=True)), out: expr, seed: d}
    return [None if g is None else substitute(g, to) for g in grads]


@lru_cache(maxsize=4096)
def _rule(name: str, dtypes: tuple[Any, ...], attrs: tuple[tuple[str, Any], ...]) -> Any:
    op = op_table.get(name)
    result = op.rules["type"](*[TensorType(t, ()) for t in dtypes], **dict(attrs)).dtype
    params = [Param(f"x{i}", t) for i, t in enumerate(dtypes)]
    out, seed = Param("out", result), Param("d", result)
    if not result.is_inexact:
        return params, out, seed, [None] * len(params)
    given: list[Any] = []

    def rule(*values: Value) -> list[Value]:
        inputs, (y, d) = values[:-2], values[-2:]
        if "grad" not in op.rules:  # a reverse rule without pullback: nothing flows back
            if op.rules["reverse"](None, inputs, (True,) * len(inputs))[1] is not None:
                raise UserError("E0303", f"{name} has no derivative as a formula", fix="write it in other ops")
            found: Any = (None,) * len(inputs)
        elif not op.rules["grad"]:
            raise UserError("E0303", f"{name} has no derivative: {op.rules['grad'].reason}", fix="stop the gradient")
        elif "saved" in op.rules:
            outputs, kept = op.rules["saved"](*inputs, **dict(attrs))
            found = op.rules["grad"](*inputs, *outputs, kept, d, **dict(attrs))
        else:
            found = op.rules["grad"](*inputs, y, d, **dict(attrs))
        given.extend(found)
        return [g for g in found if g is not None]

    types = [TensorType(p.dtype, ()) for p in (*params, out, seed)]
    with where.at(where.UNKNOWN):
        fn = build.trace(rule, types, f"grad_{name}")
    exprs = iter(apply_fn(fn, [*params, out, seed]))
    return params, out, seed, [None if g is None else next(exprs) for g in given]
