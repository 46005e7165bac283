"""Sums of products in a formula that are convolutions, and those that add at positions: as `conv` and `index_sum`.

`convolved(lanes, expr)` finds a read whose spatial indices are `t * stride + k * dilation + offset` (t of the result, k
summed) times a factor that depends on k, under no other condition than that the read is inside; with groups, where one
index is `g`, `g * per + c` or `f // n * per + c` (g and f of result and factor, c summed). `added(lanes, expr)`
finds a sum under the condition that a position, which depends on summed variables only, equals a variable of the
result. Both give None for other sums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from treadle.base.dtypes import int32, int64
from treadle.formula.affine import Linear, affine, conjuncts, every, facts, linear, proves
from treadle.formula.expr import Axis, Call, Const, Expr, Read, Reduce, call, const, fold, free, post_order
from treadle.formula.rules import between
from treadle.formula.simplify import factors, product
from treadle.ir.node import Value
from treadle.ir.op import get

Lanes = tuple[Value, tuple[Axis, ...]]


def guarded(body: Expr) -> tuple[list[Expr], Expr]:
    """The conditions outside which the body is 0, and the body where they hold."""
    conds: list[Expr] = []
    while isinstance(body, Call) and body.op == "select" and isinstance(body.args[2], Const) and not body.args[2].value:
        conds.extend(conjuncts(body.args[0]))
        body = body.args[1]
    return conds, body


@dataclass(frozen=True)
class _Window:
    """One spatial axis: place = out * stride + tap * dilation + offset."""

    dim: int
    out: Axis
    tap: Axis
    stride: int
    dilation: int
    offset: int


@dataclass(frozen=True)
class _Groups:
    """An index axis // every * per + channel, which counts groups of channels, at `dim`."""

    dim: int
    axis: Axis
    every: int
    channel: Axis | None

    @property
    def count(self) -> int:
        return self.axis.extent // self.every


@dataclass(frozen=True)
class _Roles:
    """What the axes of a read are, by its dimensions, of which the one of groups with channels is two: plain ones,
    windows, groups. shape: its sizes."""

    shape: tuple[int, ...]
    plain: dict[int, Axis]
    windows: list[_Window]
    groups: _Groups | None


def convolved(lanes: Any, expr: Reduce) -> Lanes | None:
    """The sum as a convolution, where it is one."""
    conds, body = guarded(expr.parts[0])
    parts = factors(body)
    inner: list[Expr] = []
    for n, part in enumerate(parts):  # conditions may stand in the factor that reads
        own, value = guarded(part)
        if isinstance(value, Read):
            conds, parts[n] = [*conds, *own], value
    for x in parts:
        inner = [p for p in parts if p is not x]
        if isinstance(x, Read) and inner and expr.dtype.is_float:
            found = _roles(x, inner, conds, frozenset(expr.axes))
            if found is not None:
                return _written(lanes, x, inner, found)
    return None


def _roles(x: Read, others: Sequence[Expr], conds: Sequence[Expr], summed: frozenset[Expr]) -> _Roles | None:
    """The roles of the read's axes; None where it is no convolution."""
    kernel = frozenset[Expr]().union(*[free(p) for p in others])
    shape, plain, windows, groups = list[int](), dict[int, Axis](), list[_Window](), None
    for place, size in zip(x.indices, x.source.type.shape, strict=True):
        dim = len(shape)
        shape.append(size)
        if isinstance(place, Axis) and place.extent == size and (place in summed) == (place in kernel):
            plain[dim] = place
            continue
        grouped = None if groups else _grouped(dim, place, size, summed, kernel)
        if grouped is not None:
            groups = grouped
            if grouped.channel is not None:
                shape[dim:] = [grouped.count, grouped.channel.extent]
                plain[dim + 1] = grouped.channel
            continue
        window = _window(dim, place, summed, kernel)
        if window is None:
            return None
        windows.append(window)
    used = [*plain.values(), *[w.out for w in windows], *[w.tap for w in windows], *([groups.axis] if groups else [])]
    if not any(w.tap in summed for w in windows) or len(set(used)) < len(used) or not summed <= set(used):
        return None
    filled = all(a.extent for a in summed | kernel if isinstance(a, Axis))
    return _Roles(tuple(shape), plain, windows, groups) if filled and _only_inside(x, conds) else None


def _window(dim: int, place: Expr, summed: frozenset[Expr], kernel: frozenset[Expr]) -> _Window | None:
    """The index as a place of the result and one of the kernel."""
    found = affine(place)
    if found is None:
        return None
    taps = [(a, c) for a, c in found[0].items() if a in summed and a in kernel]
    outs = [(a, c) for a, c in found[0].items() if a not in summed and a not in kernel and c > 0]
    if len(outs) != 1 or len(found[0]) != 1 + len(taps) or len(taps) > 1:
        return None
    tap, dilation = taps[0] if taps else (Axis("one", 1), 1)
    return _Window(dim, outs[0][0], tap, outs[0][1], dilation, found[1])


def _grouped(dim: int, place: Expr, size: int, summed: frozenset[Expr], kernel: frozenset[Expr]) -> _Groups | None:
    """The index as that of groups of channels, which are all there; None where it is another."""
    found = linear(place)
    atoms = [(a, c) for a, c in found.terms.items() if not isinstance(a, Axis) or (a not in summed and a in kernel)]
    rest = [a for a in found.terms if a not in dict(atoms)]
    if found.offset or len(atoms) != 1 or len(rest) > 1:
        return None
    (axis, per), every = atoms[0], 1
    if isinstance(axis, Call) and axis.op == "floor_div" and isinstance(axis.args[1], Const):
        every, axis = int(axis.args[1].value), axis.args[0]
    channel = rest[0] if rest else None
    if not isinstance(axis, Axis) or axis in summed or axis not in kernel or every < 1 or axis.extent % every:
        return None
    if channel is not None and not (
        isinstance(channel, Axis) and found.terms[channel] == 1 and (channel in summed) == (channel in kernel)
    ):
        return None
    groups = _Groups(dim, axis, every, channel)
    return groups if per == (channel.extent if channel else 1) and groups.count * per == size else None


def _only_inside(x: Read, conds: Sequence[Expr]) -> bool:
    """Whether the conditions say that the read is inside, no less and no more."""
    known = [f for c in conds for f in facts(c)]
    inside = []
    for place, size in zip(x.indices, x.source.type.shape, strict=True):
        inside += [linear(place), Linear({}, size - 1).plus(linear(place), -1)]
    enough = all(proves(known, claim) for claim in inside)
    return enough and all(facts(c) and all(proves(inside, f) for f in facts(c)) for c in conds)


def _written(lanes: Any, x: Read, others: list[Expr], roles: _Roles) -> Lanes:
    windows, groups = roles.windows, roles.groups
    value, own = lanes.value(product(others))
    taps = [w.tap for w in windows]
    channels = {d: a for d, a in roles.plain.items() if a in own}
    batch = {d: a for d, a in roles.plain.items() if a not in own}
    first, grouped = ([groups.axis], [groups.dim]) if groups else ([], [])
    results = first + [a for a in own if a not in (*taps, *channels.values(), *first)]
    kernel = ordered(value, own, [*results, *channels.values(), *[a for a in taps if a in own]])
    count = math.prod([a.extent for a in channels.values()])
    kernel = get("reshape")(
        kernel, shape=(math.prod([a.extent for a in results]), count, *[a.extent for a in taps])
    )  # fmt: skip
    flip = tuple([2 + n for n, w in enumerate(windows) if w.dilation < 0])
    kernel = get("reverse")(kernel, axes=flip) if flip else kernel
    image = get("reshape")(lanes.known[x.source], shape=roles.shape)
    image = get("transpose")(image, perm=(*batch, *grouped, *channels, *[w.dim for w in windows]))
    parts, places = groups.count if groups else 1, image.shape[len(roles.shape) - len(windows) :]
    image = get("reshape")(image, shape=(math.prod([a.extent for a in batch.values()]), parts * count, *places))
    padding = []
    for n, w in enumerate(windows):
        reach = abs(w.dilation) * (w.tap.extent - 1)
        low = -w.offset + (reach if w.dilation < 0 else 0)
        high = w.stride * (w.out.extent - 1) + reach + 1 - image.shape[2 + n] - low
        image = _cut(image, 2 + n, max(-low, 0), max(-high, 0))
        padding.append((max(low, 0), max(high, 0)))
    made = get("conv")(
        image, kernel, stride=tuple([w.stride for w in windows]), padding=tuple(padding),
        dilation=tuple([abs(w.dilation) for w in windows]), groups=parts,
    )  # fmt: skip
    axes = [*batch.values(), *results, *[w.out for w in windows]]
    made = get("reshape")(made, shape=tuple([a.extent for a in axes]))
    wanted = lanes.ordered(set(axes))
    return ordered(made, tuple(axes), wanted), wanted


def ordered(value: Value, own: tuple[Axis, ...], wanted: Sequence[Axis]) -> Value:
    perm = tuple([own.index(a) for a in wanted])
    made: Value = value if perm == tuple(range(len(perm))) else get("transpose")(value, perm=perm)
    return made


def _cut(value: Value, dim: int, before: int, after: int) -> Value:
    """Without the first and last elements of an axis."""
    if not before and not after:
        return value
    rank = len(value.shape)
    made: Value = get("slice")(
        value,
        starts=tuple([before if d == dim else 0 for d in range(rank)]),
        limits=tuple([n - after if d == dim else n for d, n in enumerate(value.shape)]),
        strides=(1,) * rank,
    )
    return made


# --- adding at positions ----------------------------------------------------------------------------------------------


def added(lanes: Any, expr: Reduce) -> Lanes | None:
    """The sum as `index_sum`, where it adds at positions that are data."""
    conds, body = guarded(expr.parts[0])
    summed = frozenset(expr.axes)
    for n, cond in enumerate(conds):
        if not (isinstance(cond, Call) and cond.op == "equal" and cond.args[0].dtype in (int32, int64)):
            continue
        rest, sides = conds[:n] + conds[n + 1 :], [_as_int64(a) for a in cond.args]
        for place, target in (sides, sides[::-1]):
            mine = free(place)
            data = any(isinstance(e, Read) for e in post_order(place))
            apart = isinstance(target, Axis) and not any(target in free(e) for e in (body, *rest))
            if data and mine and mine <= summed and apart and target not in summed and isinstance(target, Axis):
                return _at_positions(lanes, expr, place, target, [*rest, between(place, 0, target.extent)], body)
    return None


def _as_int64(side: Expr) -> Expr:
    """One side of a comparison of int32 or int64, as int64; a variable that was cast (it fits) is the variable."""
    if (
        isinstance(side, Call)
        and side.op == "cast"
        and isinstance(side.args[0], Axis)
        and side.args[0].extent < 1 << 31
    ):
        return side.args[0]
    return side if side.dtype is int64 else call("cast", side, dtype=int64)


def _at_positions(
    lanes: Any, expr: Reduce, place: Expr, target: Axis, conds: Sequence[Expr], body: Expr
) -> Lanes | None:
    mine = free(place)
    if target.extent == 0 or any(a.extent == 0 for a in expr.axes):
        return None
    value = call("select", every(conds), body, const(0, body.dtype))
    total = fold("add", value, [a for a in expr.axes if a not in mine])
    found = lanes.value(total)
    positions, own = lanes.value(place)
    kept = tuple([a for a in found[1] if a not in mine])
    updates = lanes.spread(found, lanes.ordered({*found[1], *own}))
    updates = ordered(updates, lanes.ordered({*found[1], *own}), (*kept, *own))
    narrow = get("cast")(positions, dtype=int32) if target.extent < 1 << 31 else positions
    made = get("index_sum")(narrow, updates, axis=len(kept), size=target.extent)
    wanted = lanes.ordered({*kept, target})
    return ordered(made, (*kept, target), wanted), wanted
