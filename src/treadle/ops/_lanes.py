"""A formula in other ops: what the op `compute` expands to.

Each expression becomes one tensor over exactly the index variables that it depends on, in the order in which they were
bound. Reads become slices and transposes where each index is a variable with a step, lookups along one axis where the
axes do not mix, else one lookup in the flattened tensor. Sums of products become `contract`, with conditions moved into
the factors (a factor is 0 where the condition fails, as in a convolution's padding); other reductions are the ops'.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from string import ascii_letters
from typing import Any

import numpy as np

from treadle.base.dtypes import int32, int64
from treadle.base.errors import UserError
from treadle.formula.affine import affine, bounds, clamped, every
from treadle.formula.expr import (
    Axis,
    Call,
    Combiner,
    Compute,
    Const,
    Expr,
    Param,
    Read,
    Reduce,
    Source,
    call,
    const,
    free,
    index,
    post_order,
)
from treadle.formula.interp import run_op
from treadle.formula.simplify import factors, product
from treadle.formula.text import Formula
from treadle.ir.node import Value
from treadle.ir.op import get
from treadle.ir.types import Literal
from treadle.ops import _convolved, _phases

_TABLE = 1 << 16  # index arithmetic over at most so many points is computed ahead
_OPS = {"add": "reduce_sum", "mul": "reduce_prod", "maximum": "reduce_max", "minimum": "reduce_min"}
Lanes = tuple[Value, tuple[Axis, ...]]


def expand(formula: Formula, values: Sequence[Value]) -> tuple[Value, ...]:
    """The outputs of the formula for the operands `values`."""
    known: dict[Source, Value] = dict(zip(formula.placeholders, values, strict=True))

    def lower(compute: Compute) -> Value:
        lanes = _Lanes(known, compute.axes)
        return lanes.spread(lanes.value(compute.body), compute.axes)

    for each in formula.computes:
        known[each] = _phases.lowered(each, lower)
    return tuple([known[o] for o in formula.outputs])


def _full(value: Any, shape: tuple[int, ...], dtype: Any) -> Value:
    made: Value = get("full")(value=value, shape=shape, dtype=dtype)
    return made


class _Lanes:
    """Expressions of one tensor as IR values; `axes` are the variables bound so far, in order."""

    def __init__(self, known: dict[Source, Value], axes: tuple[Axis, ...]) -> None:
        self.known, self.axes = known, axes
        self.done: dict[Expr, Lanes] = {}
        self.groups: dict[Any, list[Lanes]] = {}

    def value(self, expr: Expr) -> Lanes:
        """The value over the variables that it depends on."""
        if expr not in self.done:
            self.done[expr] = self._value(expr)
        return self.done[expr]

    def ordered(self, axes: Any) -> tuple[Axis, ...]:
        return tuple([a for a in self.axes if a in axes])

    def spread(self, lanes: Lanes, axes: Sequence[Axis]) -> Value:
        """The value repeated over `axes`, which are in order and include its own."""
        value, own = lanes
        shape = tuple([a.extent for a in axes])
        if tuple(own) != tuple(axes):
            value = get("reshape")(value, shape=tuple([a.extent if a in own else 1 for a in axes]))
        return value if value.shape == shape else get("broadcast_to")(value, shape=shape)

    def _value(self, expr: Expr) -> Lanes:
        if isinstance(expr, Const):
            return _full(expr.value, (), expr.dtype), ()
        if isinstance(expr, Axis):
            return get("iota")(shape=(expr.extent,), axis=0, dtype=int64), (expr,)
        axes = self.ordered(free(expr))
        if isinstance(expr, Call) and self._is_table(expr, axes):
            return get("constant")(value=Literal(table(expr, axes))), axes
        if isinstance(expr, Read):
            return self._read(expr, axes)
        if isinstance(expr, Reduce):
            return self._reduce(expr)
        assert isinstance(expr, Call)
        args = [self.value(a) for a in expr.args]
        axes = self.ordered({a for _, own in args for a in own})
        return get(expr.op)(*[self.spread(a, axes) for a in args], **dict(expr.attrs)), axes

    @staticmethod
    def _is_table(expr: Expr, axes: Sequence[Axis]) -> bool:
        """Index arithmetic, small enough to be a constant."""
        small = bool(axes) and math.prod([a.extent for a in axes]) <= _TABLE
        return small and expr.dtype.kind in "bi" and all(isinstance(e, Axis | Const | Call) for e in post_order(expr))

    # --- reads ---

    def _read(self, expr: Read, axes: tuple[Axis, ...]) -> Lanes:
        value = self.known[expr.source]
        if value.type.size == 0 and all(a.extent for a in axes):
            raise UserError("E0139", f"{expr.source.name} has no elements to read", fix="give it one")
        if value.type.size == 0:
            return _full(0, tuple([a.extent for a in axes]), expr.dtype), axes
        owners = [free(i) for i in expr.indices]
        mixed = any(a & b for n, a in enumerate(owners) for b in owners[:n])
        if mixed:
            return self._flat(expr, value)
        value, got = self._by_axis(expr, value)
        return _convolved.ordered(value, got, axes), axes

    def loose(self, expr: Expr) -> Lanes:
        """The value with its variables in any order: a read as it is."""
        if isinstance(expr, Read) and expr not in self.done and self.known[expr.source].type.size:
            owners = [free(i) for i in expr.indices]
            if not any(a & b for n, a in enumerate(owners) for b in owners[:n]):
                return self._by_axis(expr, self.known[expr.source])
        return self.value(expr)

    def _by_axis(self, expr: Read, value: Value) -> Lanes:
        """Slices and lookups, one axis of the source after the other."""
        got: list[Axis] = []
        dim = 0
        for place in expr.indices:
            value, own = self._along(value, dim, place)
            got.extend(own)
            dim += len(own)
        return value, tuple(got)

    def _along(self, value: Value, dim: int, place: Expr) -> tuple[Value, list[Axis]]:
        """The source with axis `dim` replaced by the variables of the index `place`."""
        size = value.shape[dim]
        found, (low, high) = affine(place), bounds(place)
        inside = low >= 0 and high < size
        if found is not None and not found[0]:
            first = min(max(found[1], 0), size - 1)
            part = _part(value, dim, first, first + 1, 1)
            return get("reshape")(part, shape=(*value.shape[:dim], *value.shape[dim + 1 :])), []
        if found is not None and len(found[0]) == 1 and inside:
            ((axis, step),) = found[0].items()
            first = found[1] if step > 0 else found[1] + step * (axis.extent - 1)
            if axis.extent == 0:
                return _part(value, dim, 0, 0, 1), [axis]
            part = _part(value, dim, first, first + abs(step) * (axis.extent - 1) + 1, abs(step))
            return (part if step > 0 else get("reverse")(part, axes=(dim,))), [axis]
        at, own = self.value(clamped(place, size))
        return get("take")(value, self._narrow(at, size), axis=dim), list(own)

    @staticmethod
    def _narrow(index: Value, size: int) -> Value:
        made: Value = get("cast")(index, dtype=int32) if size < 1 << 31 else index
        return made

    def _flat(self, expr: Read, value: Value) -> Lanes:
        """One lookup of all elements in the flattened source."""
        total: Expr | None = None
        for place, size in zip(expr.indices, value.shape, strict=True):
            inside = clamped(place, size)
            total = inside if total is None else call("add", call("mul", total, index(size)), inside)
        assert total is not None
        at, own = self.value(total)
        flat = get("reshape")(value, shape=(value.type.size,))
        return get("take")(flat, self._narrow(at, value.type.size), axis=0), own

    # --- reductions ---

    def _reduce(self, expr: Reduce) -> Lanes:
        inner = _Lanes(self.known, (*[a for a in self.axes if a not in expr.axes], *expr.axes))
        kind = expr.combiner.kind
        if any(a.extent == 0 for a in expr.axes):
            init = expr.combiner.init[expr.index]
            assert isinstance(init, Const)
            return _full(init.value, (), expr.dtype), ()
        if kind == "add" and expr.dtype.kind != "b":
            for form in (_convolved.added, _convolved.convolved, _product):
                found = form(inner, expr)
                if found is not None:
                    return found
        if kind:
            return _plain(inner, expr)
        key = expr.combiner, expr.parts, expr.axes
        if key not in self.groups:
            self.groups[key] = _folded(inner, expr)
        return self.groups[key][expr.index]


def table(expr: Expr, axes: tuple[Axis, ...]) -> np.ndarray[Any, Any]:
    """Index arithmetic as an array over its axes."""
    done: dict[Expr, Any] = {}
    with np.errstate(all="ignore"):
        for each in post_order(expr):
            if isinstance(each, Axis):
                shape = [-1 if a is each else 1 for a in axes]
                done[each] = np.arange(each.extent).reshape(shape)
            elif isinstance(each, Const):
                done[each] = np.full((1,) * len(axes), each.value, each.dtype.np)
            else:
                assert isinstance(each, Call)
                done[each] = run_op(each, [done[p] for p in each.parts])
    return np.broadcast_to(done[expr], [a.extent for a in axes])


def _part(value: Value, dim: int, start: int, limit: int, step: int) -> Value:
    """A slice along one axis."""
    if (start, limit, step) == (0, value.shape[dim], 1):
        return value
    rank = len(value.shape)
    made: Value = get("slice")(
        value,
        starts=tuple([start if d == dim else 0 for d in range(rank)]),
        limits=tuple([limit if d == dim else n for d, n in enumerate(value.shape)]),
        strides=tuple([step if d == dim else 1 for d in range(rank)]),
    )
    return made


def _plain(inner: _Lanes, expr: Reduce) -> Lanes:
    body = inner.value(expr.parts[0])
    axes = inner.ordered({*body[1], *expr.axes})
    kept = tuple([a for a in axes if a not in expr.axes])
    name = _OPS[expr.combiner.kind]
    if expr.dtype.kind == "b":
        name = "reduce_or" if expr.combiner.kind == "maximum" else "reduce_and"
    places = tuple([n for n, a in enumerate(axes) if a in expr.axes])
    if not all(a.extent for a in kept):
        return _full(0, tuple([a.extent for a in kept]), expr.dtype), kept
    return get(name)(inner.spread(body, axes), axes=places), kept


def _product(inner: _Lanes, expr: Reduce) -> Lanes | None:
    """A sum of products as `contract`; None where there are no two factors that share a variable of the sum."""
    if not expr.dtype.is_inexact:
        return None
    conds, body = _convolved.guarded(expr.parts[0])
    parts = factors(body)
    negative = False
    if isinstance(body, Call) and body.op == "neg":
        parts, negative = factors(body.args[0]), True
    summed = frozenset(expr.axes)
    sides = _two_sides([p for p in parts if free(p)], summed)
    if sides is None:
        return None
    sides[0].extend([p for p in parts if not free(p)])
    values = []
    for side in sides:
        own = frozenset().union(*[free(p) for p in side])
        mine = [c for c in conds if free(c) <= own]
        conds = [c for c in conds if c not in mine]
        values.append(_masked(inner, side, mine))
    if conds:
        return None
    made = _contracted(inner, values[0], values[1], summed)
    return (get("neg")(made[0]), made[1]) if negative else made


def _two_sides(parts: list[Expr], summed: frozenset[Expr]) -> list[list[Expr]] | None:
    """The factors in two groups that share a variable of the sum and each have one that the other has not."""
    parts = sorted(parts, key=lambda p: -len(free(p)))
    for n, other in enumerate(parts[1:], 1):
        a, b = free(parts[0]), free(other)
        if a & b & summed and (b - a):
            sides, axes = [[parts[0]], [other]], [set(a), set(b)]
            for m, p in enumerate(parts[1:], 1):
                if m != n:
                    grow = [len(free(p) - axes[s]) for s in (0, 1)]
                    s = int(grow[1] < grow[0])
                    sides[s].append(p)
                    axes[s] |= free(p)
            return sides
    return None


def _masked(inner: _Lanes, side: list[Expr], conds: list[Expr]) -> Lanes:
    """The product of the factors, 0 where a condition fails."""
    body = product(side)
    if conds:
        body = call("select", every(conds), body, const(0, body.dtype))
    return inner.loose(body)


def _contracted(inner: _Lanes, x: Lanes, y: Lanes, summed: frozenset[Expr]) -> Lanes:
    letters = {a: ascii_letters[n] for n, a in enumerate(inner.ordered({*x[1], *y[1]}))}
    both = set(x[1]) & set(y[1])
    sides = []
    for value, own in (x, y):  # what only one side has and the result lacks is summed before
        alone = tuple([n for n, a in enumerate(own) if a in summed and a not in both])
        kept = tuple([a for a in own if a not in summed or a in both])
        sides.append((get("reduce_sum")(value, axes=alone) if alone else value, kept))
    missing = [a for a in summed if isinstance(a, Axis) and a not in letters]
    out = inner.ordered({a for _, own in sides for a in own if a not in summed})
    spec = ",".join(["".join([letters[a] for a in own]) for _, own in sides])
    made = get("contract")(sides[0][0], sides[1][0], spec=f"{spec}->{''.join([letters[a] for a in out])}")
    times = math.prod([a.extent for a in missing])
    return (made if times == 1 else get("mul")(made, times)), out


def _folded(inner: _Lanes, expr: Reduce) -> list[Lanes]:
    """An own reduction: neighbours are joined until one is left."""
    bodies = [inner.value(b) for b in expr.parts]
    axes = inner.ordered({a for _, own in bodies for a in own} | set(expr.axes))
    kept = tuple([a for a in axes if a not in expr.axes])
    order = (*kept, *expr.axes)
    perm = tuple([axes.index(a) for a in order])
    count = math.prod([a.extent for a in expr.axes])
    shape = tuple([a.extent for a in kept])
    parts = []
    for body in bodies:
        whole = inner.spread(body, axes)
        moved = whole if perm == tuple(range(len(perm))) else get("transpose")(whole, perm=perm)
        parts.append(get("reshape")(moved, shape=(*shape, count)))
    dim = len(shape)
    while count > 1:
        even = count // 2 * 2
        left, right = ([_part(p, dim, first, even, 2) for p in parts] for first in (0, 1))
        joined = _joined(expr.combiner, left, right)
        rest = [_part(p, dim, even, count, 1) for p in parts]
        parts = [get("concatenate")(j, r, axis=dim) if even < count else j for j, r in zip(joined, rest, strict=True)]
        count = count // 2 + count % 2
    last = [get("reshape")(p, shape=shape) for p in parts]
    start = [_full(i.value, shape, i.dtype) for i in expr.combiner.init if isinstance(i, Const)]
    return [(v, kept) for v in _joined(expr.combiner, start, last)]


def _joined(combiner: Combiner, left: Sequence[Value], right: Sequence[Value]) -> list[Value]:
    known: dict[Expr, Value] = dict(zip((*combiner.left, *combiner.right), (*left, *right), strict=True))
    shape = left[0].shape
    for each in post_order(*combiner.results):
        if isinstance(each, Const):
            known[each] = _full(each.value, shape, each.dtype)
        elif isinstance(each, Call):
            known[each] = get(each.op)(*[known[a] for a in each.args], **dict(each.attrs))
        elif not isinstance(each, Param):
            raise UserError("E0103", "a combiner reads a tensor", fix="join only the two partial results")
    return [known[r] for r in combiner.results]
