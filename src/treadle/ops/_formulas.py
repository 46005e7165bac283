"""The `formula` rules of ops that move, look up and reduce: one element of the result (see formula/of_fn.py).

Each is the rule of the op of its name; `folded` makes that of a plain reduction.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

from treadle.base.dtypes import DType, int32, int64
from treadle.formula.affine import every, tidy
from treadle.formula.expr import Expr, call, const, fold, index
from treadle.formula.rules import Operand, Rule, between, flat, number, shifted, unflat
from treadle.ir.types import Literal

Ints = tuple[int, ...]


def full(t: Rule, *, value: float, shape: Ints, dtype: DType) -> Expr:
    return number(value, t.type)


def constant(t: Rule, *, value: Literal) -> Any:
    """Numbers that are all the same; others are no formula."""
    elements = value.array.ravel()
    same = elements.size > 0 and elements.tobytes() == elements[:1].tobytes() * elements.size
    return number(elements[0].item(), t.type) if same else NotImplemented


def iota(t: Rule, *, shape: Ints, axis: int, dtype: DType) -> Expr:
    return _cast(t.out[axis], dtype)


def _cast(x: Expr, dtype: DType) -> Expr:
    return x if x.dtype is dtype else call("cast", x, dtype=dtype)


def broadcast_to(t: Rule, x: Operand, *, shape: Ints) -> Expr:
    own = t.out[len(shape) - x.type.rank :]
    return x(*[index(0) if n == 1 else i for i, n in zip(own, x.shape, strict=True)])


def reshape(t: Rule, x: Operand, *, shape: Ints) -> Expr:
    return x(*unflat(flat(t.out, shape), x.shape))


def transpose(t: Rule, x: Operand, *, perm: Ints) -> Expr:
    return x(*[t.out[perm.index(d)] for d in range(len(perm))])


def reverse(t: Rule, x: Operand, *, axes: Ints) -> Expr:
    return x(*[shifted(i, x.shape[d] - 1, -1) if d in axes else i for d, i in enumerate(t.out)])


def slice_(t: Rule, x: Operand, *, starts: Ints, limits: Ints, strides: Ints) -> Expr:
    return x(*[shifted(i, start, step) for i, start, step in zip(t.out, starts, strides, strict=True)])


def pad(t: Rule, x: Operand, value: Operand, *, low: Ints, high: Ints, interior: Ints) -> Expr:
    if 0 in x.shape:
        return value()
    places, conds = [], []
    for i, n, before, inside in zip(t.out, x.shape, low, interior, strict=True):
        place, step = shifted(i, -before), inside + 1
        conds.append(between(place, 0, (n - 1) * step + 1))
        if step > 1:
            conds.append(call("equal", tidy(call("remainder", place, index(step))), index(0)))
        places.append(tidy(call("floor_div", place, index(step))))
    return call("select", every(conds), x(*places), value())


def concatenate(t: Rule, *xs: Operand, axis: int) -> Expr:
    parts = [x for x in xs if x.shape[axis]] or list(xs[-1:])
    stop = sum([x.shape[axis] for x in parts])
    result: Expr | None = None
    for x in reversed(parts):
        here = x(*[shifted(i, x.shape[axis] - stop) if d == axis else i for d, i in enumerate(t.out)])
        result = here if result is None else call("select", call("less", t.out[axis], index(stop)), here, result)
        stop -= x.shape[axis]
    assert result is not None
    return result


def take(t: Rule, x: Operand, indices: Operand, *, axis: int) -> Expr:
    rank = indices.type.rank
    place = _cast(indices(*t.out[axis : axis + rank]), int64)
    return x(*t.out[:axis], place, *t.out[axis + rank :])


def take_along_axis(t: Rule, x: Operand, indices: Operand, *, axis: int) -> Expr:
    place = _cast(indices(*t.out), int64)
    return x(*[place if d == axis else i for d, i in enumerate(t.out)])


def one_hot(t: Rule, indices: Operand, *, depth: int, dtype: DType) -> Expr:
    hit = call("equal", _cast(indices(*t.out[:-1]), int64), t.out[-1])
    return call("select", hit, const(1, dtype), const(0, dtype))


def max_pool_grad(
    t: Rule, x: Operand, dy: Operand, *, window: Ints, stride: Ints, padding: tuple[tuple[int, int], ...]
) -> Any:
    """Windows side by side: dy of the element's window if the element is its first maximum."""
    if window != stride or any(map(any, padding)):
        return NotImplemented
    rank = len(window)
    lead, at = t.out[: x.type.rank - rank], t.out[x.type.rank - rank :]
    place = [tidy(call("floor_div", i, index(w))) for i, w in zip(at, window, strict=True)]
    parts = [
        x(*lead, *[shifted(p, k, w) for p, k, w in zip(place, own, window, strict=True)])
        for own in product(*map(range, window))
    ]
    best: Expr = parts[0]
    first: Expr = const(0, int32)
    for n, part in enumerate(parts[1:], 1):
        later = call("logical_not", call("greater_equal", best, part))
        wins = call("logical_and", later, call("equal", best, best))
        best, first = call("select", wins, part, best), call("select", wins, const(n, int32), first)
    own = flat([tidy(call("remainder", i, index(w))) for i, w in zip(at, window, strict=True)], window)
    inside = [between(p, 0, n) for p, n in zip(place, dy.shape[x.type.rank - rank :], strict=True)]
    hit = call("equal", first, _cast(own, int32))
    return call("select", every([*inside, hit]), dy(*lead, *place), number(0, t.type))


def matmul(t: Rule, x: Operand, y: Operand, *, precision: str = "") -> Expr:
    k = t.axis(x.shape[-1])
    *lead, row, column = t.out
    return fold("add", call("mul", x(*lead, row, k), y(*lead, k, column)), (k,))


def contract(t: Rule, x: Operand, y: Operand, *, spec: str, precision: str = "") -> Expr:
    left, _, out = spec.partition("->")
    of_x, _, of_y = left.partition(",")
    place = dict(zip(out, t.out, strict=True))
    summed = [c for c in of_x if c not in place]
    place |= {c: t.axis(x.shape[of_x.index(c)], c) for c in summed}
    product = call("mul", x(*[place[c] for c in of_x]), y(*[place[c] for c in of_y]))
    return fold("add", product, [place[c] for c in summed])


def folded(kind: str) -> Callable[..., Expr]:
    """The rule of the plain reduction by `kind`."""

    def rule(t: Rule, x: Operand, *, axes: Ints) -> Expr:
        inner = {d: t.axis(x.shape[d]) for d in axes}
        own = iter(t.out)
        element = x(*[inner[d] if d in inner else next(own) for d in range(x.type.rank)])
        return fold(kind, element, [*inner.values()])

    return rule
