"""The meaning of a formula: its tensors computed with NumPy, every element of a tensor at once, in chunks.

`evaluate(formula, *arrays)` gives the outputs. Inside, a value is an array whose leading axes are those of the scope in
order (the compute's axes, then those of the reductions around), each of full extent or 1. Calls run the op's own
reference rule, or its expansion.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from treadle.base.dtypes import float32
from treadle.base.errors import UserError
from treadle.formula.expr import Axis, Call, Combiner, Compute, Const, Expr, Param, Read, Reduce, Source, post_order
from treadle.formula.text import Formula
from treadle.ir import interp as ir_interp
from treadle.ir import op as op_table
from treadle.ir.types import TensorType, type_of

Array = np.ndarray[Any, Any]
_CHUNK = 1 << 19  # points of a block with its reductions


def evaluate(formula: Formula, *arrays: Any) -> tuple[Array, ...]:
    """The outputs for arrays of the placeholders' types. Raises E0104 for arrays of other types."""
    given = [np.asarray(a) for a in arrays]
    if tuple([type_of(a) for a in given]) != formula.in_types:
        wanted = ", ".join(map(str, formula.in_types))
        raise UserError("E0104", f"the formula takes ({wanted}), got {[str(type_of(a)) for a in given]}", fix="cast")
    known: dict[Source, Array] = dict(zip(formula.placeholders, given, strict=True))
    with np.errstate(all="ignore"):
        for each in formula.computes:
            known[each] = compute_array(each, known)
    return tuple([known[o] for o in formula.outputs])


def compute_array(compute: Compute, known: Mapping[Source, Array]) -> Array:
    """The elements of one tensor, given those that it reads."""
    out = np.empty(compute.type.shape, compute.type.dtype.np)
    if out.size == 0:
        return out
    if not compute.axes:
        return np.asarray(_Scope(known, {}, ()).full(compute.body), out.dtype).reshape(())
    for ranges in _blocks(compute.axes, max(1, _CHUNK // max(1, _largest_reduction(compute.body)))):
        places = tuple([slice(*ranges[a]) for a in compute.axes])
        out[places] = _Scope(known, ranges, compute.axes).full(compute.body)
    return out


def _blocks(axes: Sequence[Axis], most: int) -> Iterator[dict[Axis, tuple[int, int]]]:
    """Ranges that cover the axes in blocks of at most `most` points: last axes whole, the first ones one by one."""
    steps, left = [], most
    for axis in reversed(axes):
        steps.append(max(1, min(axis.extent, left)))
        left //= steps[-1]
    starts = [range(0, a.extent, step) for a, step in zip(axes, reversed(steps), strict=True)]
    for block in itertools.product(*starts):
        yield {a: (b, min(b + r.step, a.extent)) for a, b, r in zip(axes, block, starts, strict=True)}


@lru_cache(maxsize=4096)
def _largest_reduction(expr: Expr) -> int:
    """Most points of nested reductions around a part of the expression."""
    best: dict[Expr, int] = {}
    for each in post_order(expr):
        inside = max([best[p] for p in each.parts], default=1)
        best[each] = inside * math.prod([a.extent for a in each.axes]) if isinstance(each, Reduce) else inside
    return best[expr]


class _Scope:
    """Evaluates expressions for all points of `axes`; `ranges` narrows some of them."""

    def __init__(self, known: Mapping[Source, Array], ranges: Mapping[Axis, tuple[int, int]], axes: tuple[Axis, ...]):
        self.known, self.ranges, self.axes = known, ranges, axes
        self.done: dict[Any, Any] = {}

    def extent(self, axis: Axis) -> int:
        start, stop = self.ranges.get(axis, (0, axis.extent))
        return stop - start

    def full(self, expr: Expr) -> Array:
        """The value with every axis of the scope at its extent."""
        return np.broadcast_to(self.value(expr), [self.extent(a) for a in self.axes])

    def value(self, expr: Expr) -> Array:
        if expr not in self.done:
            self.done[expr] = self._value(expr)
        found: Array = self.done[expr]
        return found

    def _value(self, expr: Expr) -> Array:
        rank = len(self.axes)
        if isinstance(expr, Const):
            return np.full((1,) * rank, expr.value, expr.dtype.np)
        if isinstance(expr, Axis):
            place = rank - 1 - self.axes[::-1].index(expr)  # the innermost, should one be bound twice
            start, stop = self.ranges.get(expr, (0, expr.extent))
            return np.arange(start, stop).reshape([-1 if i == place else 1 for i in range(rank)])
        if isinstance(expr, Read):
            array = self.known[expr.source]
            if array.size == 0:
                raise UserError("E0139", f"{expr.source.name} has no elements to read", fix="give it one")
            if expr.parts and (whole := self._in_order(expr, array)) is not None:
                return whole
            places = [np.clip(self.value(i), 0, n - 1) for i, n in zip(expr.parts, array.shape, strict=True)]
            return array[tuple(places)] if places else np.broadcast_to(array, (1,) * rank)
        if isinstance(expr, Reduce):
            return self._reduce(expr)
        assert isinstance(expr, Call), expr
        return run_op(expr, [self.value(p) for p in expr.parts])

    def _in_order(self, expr: Read, array: Array) -> Array | None:
        """The source as it is, where its axes are variables of the scope in their order; else None."""
        shape, last = [1] * len(self.axes), -1
        parts = []
        for place, size in zip(expr.parts, array.shape, strict=True):
            if not (isinstance(place, Axis) and place.extent == size) or self.axes.count(place) != 1:
                return None
            at = self.axes.index(place)
            if at <= last:
                return None
            start, stop = self.ranges.get(place, (0, size))
            shape[at], last = stop - start, at
            parts.append(slice(start, stop))
        return array[tuple(parts)].reshape(shape)

    def _reduce(self, expr: Reduce) -> Array:
        if any(a.extent == 0 for a in expr.axes):
            return self.value(expr.combiner.init[expr.index])
        key = expr.combiner, expr.parts, expr.axes  # the parts of a tuple are computed together
        if key not in self.done:
            inner = _Scope(self.known, {k: v for k, v in self.ranges.items() if k not in expr.axes}, ())
            inner.axes = (*self.axes, *expr.axes)
            rank = len(self.axes)
            bodies = []
            for body in expr.parts:
                value = inner.value(body)
                shape = (*value.shape[:rank], *[a.extent for a in expr.axes])
                bodies.append(np.broadcast_to(value, shape).reshape(*value.shape[:rank], -1))
            self.done[key] = fold_arrays(expr.combiner, bodies)
        found: Array = self.done[key][expr.index]
        return found


def fold_arrays(combiner: Combiner, bodies: Sequence[Array]) -> list[Array]:
    """The bodies reduced over their last axis."""
    if combiner.kind:
        (x,) = bodies
        narrow = combiner.init[0].dtype.is_float and x.dtype.itemsize == 2 and combiner.kind in ("add", "mul")
        wide = x.astype(float32.np) if narrow else x
        init = combiner.init[0]
        assert isinstance(init, Const)
        if wide.shape[-1] == 0:
            return [np.full(wide.shape[:-1], init.value, x.dtype)]
        ufunc = getattr(np, {"mul": "multiply"}.get(combiner.kind, combiner.kind))
        return [ufunc.reduce(wide, axis=-1, dtype=wide.dtype).astype(x.dtype)]
    shape = np.broadcast_shapes(*[b.shape for b in bodies])
    parts = [np.broadcast_to(b, shape) for b in bodies]
    while parts[0].shape[-1] > 1:  # neighbours are joined, so the order is kept
        even = parts[0].shape[-1] // 2 * 2
        joined = _join(combiner, [p[..., 0:even:2] for p in parts], [p[..., 1:even:2] for p in parts])
        parts = [np.concatenate([j, p[..., even:]], -1) for j, p in zip(joined, parts, strict=True)]
    init_values = [np.full(shape[:-1], getattr(i, "value", 0), i.dtype.np) for i in combiner.init]
    if parts[0].shape[-1] == 0:
        return init_values
    return [np.asarray(r) for r in _join(combiner, init_values, [p[..., 0] for p in parts])]


def _join(combiner: Combiner, left: Sequence[Array], right: Sequence[Array]) -> list[Array]:
    given = dict(zip((*combiner.left, *combiner.right), (*left, *right), strict=True))
    shape = left[0].shape

    def value(expr: Expr) -> Array:
        if isinstance(expr, Param):
            return given[expr]
        if isinstance(expr, Const):
            return np.full((1,) * len(shape), expr.value, expr.dtype.np)
        assert isinstance(expr, Call), "a combiner is made of calls"
        return run_op(expr, [value(p) for p in expr.parts])

    return [np.broadcast_to(value(r), shape) for r in combiner.results]


def run_op(expr: Call, arrays: Sequence[Array]) -> Array:
    """One op on arrays of one rank whose sizes may be 1 where others are not."""
    op = op_table.get(expr.op)
    attrs = dict(expr.attrs)
    shape = np.broadcast_shapes(*[a.shape for a in arrays])
    ref = op.rules.get("ref")
    if isinstance(ref, np.ufunc):
        result = ref(*arrays)
    elif ref is not None:
        result = ref(*[np.broadcast_to(a, shape) for a in arrays], **attrs)
    else:
        types = tuple([TensorType(p.dtype, shape) for p in expr.parts])
        whole = [np.broadcast_to(a, shape) for a in arrays]
        (result,) = ir_interp.run_fn(ir_interp.expansion(op, types, attrs), {}, *whole)
    made = np.asarray(result)
    return made if made.dtype == expr.dtype.np else made.astype(expr.dtype.np)
