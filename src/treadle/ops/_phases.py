"""Formulas that treat every m-th index alike (`(i + c) mod m`, as gradients of strided operators do), phase by phase.

`phases(compute)` gives an axis that occurs so; `split` then gives one tensor per residue, in which the remainder is a
number and the quotient a variable, and `joined` puts their values back in turn. Each phase of a strided convolution's
gradient is a plain convolution with a part of the taps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from treadle.formula.affine import affine
from treadle.formula.expr import Axis, Call, Compute, Const, Expr, Reduce, call, fold, index, post_order, substitute
from treadle.formula.simplify import simplify
from treadle.formula.solve import Term, tidied
from treadle.ir.node import Value
from treadle.ir.op import get
from treadle.ops._convolved import guarded

_MOST = 4  # residues of one axis


class Phases(NamedTuple):
    """Axis number `dim` occurs as (axis + offset) mod `residues`; quotients run from `first`, `quotients` of them."""

    dim: int
    offset: int
    residues: int
    first: int
    quotients: int


def phases(compute: Compute) -> Phases | None:
    """The first axis of the result that occurs in a remainder; None where there is none, or where it is no sum."""
    if not (isinstance(compute.body, Reduce) and compute.body.combiner.kind == "add"):
        return None
    for each in post_order(compute.body):
        if not (isinstance(each, Call) and each.op == "remainder" and isinstance(each.args[1], Const)):
            continue
        found, m = affine(each.args[0]), each.args[1].value
        if found is None or len(found[0]) != 1 or not 1 < m <= _MOST:
            continue
        ((axis, step),) = found[0].items()
        if step == 1 and axis in compute.axes and axis.extent >= m:
            first, last = found[1] // m, (found[1] + axis.extent - 1) // m
            return Phases(compute.axes.index(axis), found[1], m, first, last - first + 1)
    return None


def split(compute: Compute, at: Phases) -> list[Compute]:
    """One tensor per residue; the axis has become the quotient."""
    found = []
    for residue in range(at.residues):
        q = Axis("q", at.quotients)
        place = call("add", call("mul", q, index(at.residues)), index(at.first * at.residues + residue - at.offset))
        body = _renewed(simplify(substitute(compute.body, {compute.axes[at.dim]: place})))
        axes = (*compute.axes[: at.dim], q, *compute.axes[at.dim + 1 :])
        found.append(Compute(f"{compute.name}_{residue}", axes, body))
    return found


def _renewed(body: Expr) -> Expr:
    """The sum with its conditions tidied and variables of one point gone."""
    if not isinstance(body, Reduce):
        return body
    conds, value = guarded(body.parts[0])
    term = tidied(Term(body.axes, tuple(conds), value))
    narrow: dict[Axis, Expr] = {}
    for axis in term.axes:  # a tap that meets this residue only up to a bound below its extent
        bound = _bound(term.conds, axis)
        if bound < axis.extent:
            narrow[axis] = Axis(axis.name, max(bound, 1))
    if narrow:
        conds = [substitute(c, narrow) for c in term.conds]
        axes = [a for a in [narrow.get(a, a) for a in term.axes] if isinstance(a, Axis)]
        term = tidied(Term(tuple(axes), tuple(conds), substitute(term.value, narrow)))
    return simplify(term.expr()) if term.axes else fold("add", simplify(term.expr()), ())


def _bound(conds: Sequence[Expr], axis: Axis) -> int:
    """The least number that conditions on this axis alone keep it under."""
    least = axis.extent
    for c in conds:
        if isinstance(c, Call) and c.op == "less" and isinstance(c.args[1], Const):
            found = affine(c.args[0])
            if found is not None and list(found[0]) == [axis] and found[0][axis] > 0:
                least = min(least, -(-(c.args[1].value - found[1]) // found[0][axis]))
    return least


def joined(parts: Sequence[Value], at: Phases, size: int) -> Value:
    """The values of the residues in turn along the axis."""
    shape = parts[0].shape
    lead, rest = shape[: at.dim], shape[at.dim + 1 :]
    lifted = [get("reshape")(p, shape=(*lead, at.quotients, 1, *rest)) for p in parts]
    whole = get("concatenate")(*lifted, axis=at.dim + 1)
    whole = get("reshape")(whole, shape=(*lead, at.quotients * at.residues, *rest))
    start = at.offset - at.first * at.residues
    made: Value = get("slice")(
        whole,
        starts=(*[0] * len(lead), start, *[0] * len(rest)),
        limits=(*lead, start + size, *rest),
        strides=(1,) * len(shape),
    )
    return made


def lowered(compute: Compute, lower: Any) -> Value:
    """The value of a tensor; `lower(compute)` gives that of one without remainders of result axes."""
    at = phases(compute)
    if at is None:
        made: Value = lower(compute)
        return made
    return joined([lowered(part, lower) for part in split(compute, at)], at, compute.axes[at.dim].extent)
