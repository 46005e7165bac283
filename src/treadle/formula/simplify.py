"""Algebra on expressions: `simplify(expr)` applies the rules to a fixpoint (at most `_ROUNDS` times).

The rules, each exact on numbers unless said: index arithmetic in normal form; x*1, x*-1, x/1, x-0, x+0 (loses the sign
of -0); negations moved outward; conditions that ranges decide; select with equal or decided sides; constants folded;
cast to the own type; and one of real algebra, used where a derivative brings it: e * 1/(e + k) = 1 - k * 1/(e + k).
Where e overflows the left side is NaN and the right side the limit, 1.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from treadle.base.dtypes import bool_, int64
from treadle.formula.affine import bounds, settle, tidy
from treadle.formula.expr import (
    FALSE,
    TRUE,
    Call,
    Compute,
    Const,
    Expr,
    Read,
    Reduce,
    call,
    const,
    element,
    rewrite,
    with_parts,
)
from treadle.formula.interp import run_op

_ROUNDS = 8


def simplify(expr: Expr) -> Expr:
    """An expression of the same value, shorter where a rule fits."""
    for _ in range(_ROUNDS):
        new = rewrite(expr, _step)
        if new is expr:
            break
        expr = new
    return expr


def tidy_indices(expr: Expr) -> Expr:
    """Only index arithmetic and the comparisons of indices, which is exact in every respect."""

    def step(old: Expr, parts: tuple[Expr, ...]) -> Expr:
        new = with_parts(old, parts)
        if isinstance(new, Call) and (new.dtype is int64 or new.dtype is bool_):
            return _step(new, new.parts)
        return new

    return rewrite(expr, step)


def _step(old: Expr, parts: tuple[Expr, ...]) -> Expr:
    expr = with_parts(old, parts)
    if isinstance(expr, Reduce):
        zero = expr.combiner.kind and expr.parts[0] is expr.combiner.init[0] and expr.combiner.kind == "add"
        return expr.parts[0] if zero else expr
    if not isinstance(expr, Call):
        return expr
    if expr.args and all(isinstance(a, Const) for a in expr.args):
        return _folded(expr)
    if expr.dtype is int64:
        expr = tidy(expr)
    if not isinstance(expr, Call):
        return expr
    rule = _RULES.get(expr.op)
    return expr if rule is None else rule(expr)


def _folded(expr: Call) -> Expr:
    arrays = [np.full((), a.value, a.dtype.np) for a in expr.args if isinstance(a, Const)]
    with np.errstate(all="ignore"):
        return const(run_op(expr, arrays).item(), expr.dtype)


def is_const(expr: Expr, value: float) -> bool:
    """Whether the expression is this number (0 is not -0)."""
    return isinstance(expr, Const) and expr is const(value, expr.dtype)


def negated(expr: Expr) -> Expr | None:
    """What the expression is the negative of."""
    return expr.args[0] if isinstance(expr, Call) and expr.op == "neg" else None


def _mul(expr: Call) -> Expr:
    a, b = expr.args
    for x, y in ((a, b), (b, a)):
        if is_const(x, 1):
            return y
        if is_const(x, -1) and expr.dtype.kind in "fic":
            return call("neg", y)
        inner = negated(x)
        if inner is not None:
            return call("neg", call("mul", inner, y) if x is a else call("mul", y, inner))
    return _logistic(expr)


def _div(expr: Call) -> Expr:
    a, b = expr.args
    if is_const(b, 1):
        return a
    for x in (a, b):
        inner = negated(x)
        if inner is not None:
            return call("neg", call("div", inner, b) if x is a else call("div", a, inner))
    return expr


def _add(expr: Call) -> Expr:
    a, b = expr.args
    for x, y in ((a, b), (b, a)):
        if is_const(x, 0) or is_const(x, -0.0) if x.dtype.is_inexact else is_const(x, 0):
            return y
        inner = negated(x)
        if inner is not None:
            return call("sub", y, inner)
    return expr


def _sub(expr: Call) -> Expr:
    a, b = expr.args
    if is_const(b, 0):
        return a
    inner = negated(b)
    return expr if inner is None else call("add", a, inner)


def _neg(expr: Call) -> Expr:
    inner = negated(expr.args[0])
    return expr if inner is None else inner


def _select(expr: Call) -> Expr:
    cond, a, b = expr.args
    return a if cond is TRUE or a is b else b if cond is FALSE else expr


def _cast(expr: Call) -> Expr:
    return expr.args[0] if expr.args[0].dtype is expr.dtype else expr


def _and(expr: Call) -> Expr:
    a, b = expr.args
    return FALSE if FALSE in (a, b) else b if a is TRUE or a is b else a if b is TRUE else expr


def _or(expr: Call) -> Expr:
    a, b = expr.args
    return TRUE if TRUE in (a, b) else b if a is FALSE or a is b else a if b is FALSE else expr


_RULES: dict[str, Callable[[Call], Expr]] = {
    "mul": _mul, "div": _div, "add": _add, "sub": _sub, "neg": _neg, "select": _select, "cast": _cast,
    "logical_and": _and, "logical_or": _or, "less": settle, "less_equal": settle, "greater": settle,
    "greater_equal": settle, "equal": settle, "not_equal": settle,
}  # fmt: skip


# --- e / (e + k) ------------------------------------------------------------------------------------------------------


def definition(expr: Expr) -> Expr:
    """What a read of a pointwise tensor stands for, where its indices are inside; else the expression."""
    for _ in range(64):
        if not (isinstance(expr, Read) and isinstance(expr.source, Compute)):
            break
        if isinstance(expr.source.body, Reduce) or not _inside(expr):
            break
        expr = element(expr.source, expr.indices)
    return expr


def _inside(expr: Read) -> bool:
    ranges = [bounds(i) for i in expr.indices]
    return all(low >= 0 and high < n for (low, high), n in zip(ranges, expr.source.type.shape, strict=True))


def _below(expr: Expr) -> Expr | None:
    """d where the expression is 1 / d."""
    found = definition(expr)
    if isinstance(found, Call) and found.op == "reciprocal":
        return found.args[0]
    if isinstance(found, Call) and found.op == "div" and is_const(found.args[0], 1):
        return found.args[1]
    return None


def factors(expr: Expr) -> list[Expr]:
    """The expression as a product."""
    if isinstance(expr, Call) and expr.op == "mul":
        return [f for a in expr.args for f in factors(a)]
    return [expr]


def _logistic(expr: Call) -> Expr:
    """e * 1/(e + k) = 1 - k * 1/(e + k), wherever both are factors of a product."""
    parts = factors(expr)
    for i, inverse in enumerate(parts):
        below = _below(inverse)
        sum = None if below is None else definition(below)
        if not (isinstance(sum, Call) and sum.op == "add"):
            continue
        for e, k in (sum.args, sum.args[::-1]):
            place = next((j for j, p in enumerate(parts) if _same(p, e) and j != i), None)
            if isinstance(k, Const) and place is not None:
                scaled = inverse if is_const(k, 1) else call("mul", k, inverse)
                rest = [p for j, p in enumerate(parts) if j not in (i, place)]
                return product([*rest, call("sub", const(1, expr.dtype), scaled)])
    return expr


def _same(a: Expr, b: Expr) -> bool:
    return a is b or definition(a) is definition(b)


def product(parts: list[Expr]) -> Expr:
    """The product of factors, from the left."""
    result = parts[0]
    for p in parts[1:]:
        result = call("mul", result, p)
    return result
