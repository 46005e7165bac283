"""The `padded` rules of the ops: what an op does where an axis of an operand is padded (transforms/padded.py).

rule(run, group) -> [(value, axes), ...] or NotImplemented. `group.items` are the operands, `group.nodes` the node at
every point, of which 0 has the program's sizes and 1 the real numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle.base.dtypes import DType, int32, uint32
from treadle.ir import build
from treadle.ir.node import Fn, Value
from treadle.ir.op import get
from treadle.ir.types import TensorType

Rule = Callable[[Any, Any], Any]


def zero(dtype: DType) -> Any:
    return False if dtype.kind == "b" else 0


def one(dtype: DType) -> Any:
    return True if dtype.kind == "b" else 1


def least(dtype: DType) -> Any:
    """What never wins a maximum."""
    if dtype.kind == "b":
        return False
    return float("-inf") if dtype.is_float else int(np.iinfo(dtype.np).min)


def most(dtype: DType) -> Any:
    """What never wins a minimum."""
    if dtype.kind == "b":
        return True
    return float("inf") if dtype.is_float else int(np.iinfo(dtype.np).max)


def varies(*names: str) -> Callable[[Rule], Rule]:
    """A rule that takes account of differences between the sizes in these attributes; no others may differ."""

    def mark(rule: Rule) -> Rule:
        rule.varies = frozenset(names)  # type: ignore[attr-defined]
        return rule

    return mark


def filled(fill: Callable[[DType], Any], *sizes: str, places: bool = False) -> Rule:
    """The op itself with this in the padding. sizes: attributes that only tell the size of the result. places: the op
    looks at places of the axis, not only at which elements there are before one."""
    return varies(*sizes)(lambda run, group: run.emit(group, fill, places=places))


def sort(run: Any, group: Any) -> Any:
    """Padding comes last: behind NaN, which is the greatest; among equals it is behind what is real."""
    down = group.attrs["descending"]
    return run.emit(group, lambda t: least(t) if down else float("nan") if t.is_float else most(t), places=True)


# ------------------------------------------------------------------------------------------------------ from nothing
@varies("value", "shape")
def full(run: Any, group: Any) -> Any:
    """A number that depends on a size is an input."""
    shape, dtype = group.attrs["shape"], group.attrs["dtype"]
    if group.same("value"):
        made = get("full")(**group.attrs)
    else:
        made = get("broadcast_to")(run.number(group.nodes[1].attrs["value"], dtype), shape=shape)
    return run.results(group, [made], {})


@varies("value")
def constant(run: Any, group: Any) -> Any:
    """Numbers that depend on a size are an input."""
    (_, axes), *_ = run.results(group, [None], {})
    return [(run.extra(group.nodes[0].outputs[0].type, axes, group.nodes[1].attrs["value"].array), axes)]


@varies("shape")
def iota(run: Any, group: Any) -> Any:
    found = run.results(group, [get("iota")(**group.attrs)], {})
    run.single(group, found[0][1][group.attrs["axis"]])
    return found


@varies("shape")
def random_bits(run: Any, group: Any) -> Any:
    """Element i of a draw is a function of i: the place of an element at the real sizes."""
    shape, dtype = group.attrs["shape"], group.attrs["dtype"]
    (_, axes), *_ = run.results(group, [None], {})
    padded = [run.single(group, a) for a in axes]
    if not any(padded[1:]):
        return [(get("random_bits")(group.items[0].new, shape=shape, dtype=dtype), axes)]
    if group.nodes[0].outputs[0].type.size >= 2**32:
        return run.refuse(group, "draws 2**32 numbers or more")
    index = get("full")(value=0, shape=shape, dtype=uint32)
    stride = get("full")(value=1, shape=(), dtype=uint32)
    for i in reversed(range(len(shape))):
        index = index + get("iota")(shape=shape, axis=i, dtype=uint32) * get("broadcast_to")(stride, shape=shape)
        size = shape[i] if axes[i] is None else get("cast")(run.count(axes[i]), dtype=uint32)
        stride = stride * size
    from treadle.ops.random import bits_at

    return [(bits_at(group.items[0].new, index, dtype), axes)]


# ------------------------------------------------------------------------------------------------------------- shapes
@varies("shape")
def reshape(run: Any, group: Any) -> Any:
    """Factors of the axes in a row; each new axis takes some, splitting fixed ones. A padded one stays whole."""
    (item,) = group.items
    rest = [f for n, axis in zip(item.new.shape, item.axes, strict=True) for f in (axis or (n,)) if f != 1]
    shape, axes = group.attrs["shape"], []
    if 0 in shape:
        return run.results(group, [get("reshape")(item.new, shape=shape)], {})
    for n in shape:
        taken: list[Any] = []
        while n > 1:
            size = (rest[0] if isinstance(rest[0], int) else run.extent((rest[0],), 0)) if rest else 0
            if size and n % size == 0:
                taken.append(rest.pop(0))
                n //= size
            elif size % n == 0 and isinstance(rest[0], int):
                taken.append(n)
                rest[0], n = size // n, 1
            else:
                run.refuse(group, "splits that axis")
        axes.append(run.merge(tuple(taken)) if any(not isinstance(f, int) for f in taken) else None)
    return [(get("reshape")(item.new, shape=shape), tuple(axes))]


@varies("shape")
def broadcast_to(run: Any, group: Any) -> Any:
    (item,) = group.items
    skip = len(group.attrs["shape"]) - item.new.ndim
    known = {(0, skip + i): a for i, a in enumerate(item.axes) if a is not None}
    return run.results(group, [get("broadcast_to")(item.new, **group.attrs)], known)


def reverse(run: Any, group: Any) -> Any:
    """Place i of a padded axis is place size - 1 - i."""
    (item,) = group.items
    x, plain = item.new, []
    for i in group.attrs["axes"]:
        if run.single(group, item.axes[i]):
            places = run.count(item.axes[i]) - 1 - get("iota")(shape=(x.shape[i],), axis=0, dtype=int32)
            x = get("take")(x, places, axis=i)
        else:
            plain.append(i)
    return [(get("reverse")(x, axes=tuple(plain)) if plain else x, item.axes)]


@varies("starts", "limits", "strides")
def slice_(run: Any, group: Any) -> Any:
    """Axes that begin at a place that depends on a size are taken place by place."""
    (item,) = group.items
    x, out = item.new, group.nodes[0].outputs[0].type
    starts, limits, strides = (list(group.attrs[a]) for a in ("starts", "limits", "strides"))
    known = {}
    for i, axis in enumerate(item.axes):
        cut = any(
            n.attrs["starts"][i] or n.attrs["limits"][i] != n.inputs[0].shape[i] or n.attrs["strides"][i] != 1
            for n in group.nodes
        )
        if not cut:
            known[0, i] = axis
            continue
        run.single(group, axis)
        if len({(n.attrs["starts"][i], n.attrs["strides"][i]) for n in group.nodes}) > 1:
            start, stride = (run.number(group.nodes[1].attrs[a][i], int32) for a in ("starts", "strides"))
            places = get("iota")(shape=(out.shape[i],), axis=0, dtype=int32)
            x = get("take")(x, places * stride + start, axis=i)
            starts[i], limits[i], strides[i] = 0, out.shape[i], 1
    attrs = {"starts": tuple(starts), "limits": tuple(limits), "strides": tuple(strides)}
    return run.results(group, [get("slice")(x, **attrs)], known)


@varies("low", "high")
def pad(run: Any, group: Any) -> Any:
    """The padding behind is of the same value as the border. An axis whose place depends on a size is written there."""
    item, value = group.items
    shape, moved = group.nodes[0].outputs[0].type.shape, []
    known, cut = {}, []
    for i, axis in enumerate(item.axes):
        counts = {(n.attrs["low"][i], n.attrs["high"][i], n.attrs["interior"][i]) for n in group.nodes}
        if counts == {(0, 0, 0)}:
            known[0, i] = axis
            continue
        run.single(group, axis)
        cut.append(i)
        if len({c[0] for c in counts}) > 1:
            if axis is not None or any(c[2] for c in counts):
                run.refuse(group, "begins at a place that depends on a size")
            moved.append(i)
    x = run.mask(item, cut, value.new)
    if not moved:
        return run.results(group, [get("pad")(x, value.new, **group.attrs)], known)
    sides = {a: tuple([0 if i in moved else n for i, n in enumerate(group.attrs[a])]) for a in ("low", "high")}
    x = get("pad")(x, value.new, **sides, interior=group.attrs["interior"])
    lows = [run.number(group.nodes[1].attrs["low"][i] if i in moved else 0, int32) for i in range(len(shape))]
    ground = get("broadcast_to")(value.new, shape=shape)
    return run.results(group, [get("dynamic_update_slice")(ground, x, *lows)], known)


def concatenate(run: Any, group: Any) -> Any:
    """Each part overwrites the padding of the one before."""
    at = group.attrs["axis"]
    parts = [i for i in group.items if i.new.shape[at]]
    padded = [run.single(group, i.axes[at]) for i in parts]
    out = group.nodes[0].outputs[0].type
    known = {(0, i): a for i, a in enumerate(group.items[0].axes) if i != at}
    if any(i.axes[k] != known[0, k] for i in parts for k in range(out.rank) if k != at):
        run.refuse(group, "joins axes that are padded in different ways")
    if not any(padded[:-1]):
        return run.results(group, [get("concatenate")(*[i.new for i in group.items], axis=at)], known)
    total = get("full")(value=zero(out.dtype), shape=out.shape, dtype=out.dtype)
    start = get("full")(value=0, shape=(), dtype=int32)
    origin = start
    for item in parts:
        total = get("dynamic_update_slice")(total, item.new, *[start if i == at else origin for i in range(out.rank)])
        start = start + (item.new.shape[at] if item.axes[at] is None else run.count(item.axes[at]))
    return run.results(group, [total], known)


# What does nothing: traces leave such a node out, so it may be missing at some sizes.
reshape.identity = broadcast_to.identity = lambda type: {"shape": type.shape}  # type: ignore[attr-defined]
slice_.identity = lambda type: {  # type: ignore[attr-defined]
    "starts": (0,) * type.rank,
    "limits": type.shape,
    "strides": (1,) * type.rank,
}
pad.identity = lambda type: dict.fromkeys(("low", "high", "interior"), (0,) * type.rank)  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------------------------------------ indices
def _inside(run: Any, group: Any, indices: Any, axis: Any) -> Any:
    """Indices clamped to the real places of an axis."""
    x = indices.new
    if not run.single(group, axis):
        return x
    last = get("cast")(run.count(axis) - 1, dtype=x.dtype)
    return get("minimum")(x, get("broadcast_to")(last, shape=x.shape))


def take(run: Any, group: Any) -> Any:
    """Indices count within the real places."""
    x, indices = group.items
    axis = group.attrs["axis"]
    known = {(0, i): a for i, a in enumerate([*x.axes[:axis], *indices.axes, *x.axes[axis + 1 :]])}
    return run.results(group, [get("take")(x.new, _inside(run, group, indices, x.axes[axis]), **group.attrs)], known)


def take_along_axis(run: Any, group: Any) -> Any:
    x, indices = group.items
    axis = group.attrs["axis"]
    if any(a != b for i, (a, b) in enumerate(zip(x.axes, indices.axes, strict=True)) if i != axis):
        run.refuse(group, "joins axes that are padded in different ways")
    made = get("take_along_axis")(x.new, _inside(run, group, indices, x.axes[axis]), axis=axis)
    return [(made, indices.axes)]


@varies("size")
def index_sum(run: Any, group: Any) -> Any:
    """Padding adds zeros; the size may be a dimension."""
    indices, updates = group.items
    axis, rank = group.attrs["axis"], indices.new.ndim
    places = range(axis, axis + rank)
    if indices.axes != updates.axes[axis : axis + rank]:
        run.refuse(group, "joins axes that are padded in different ways")
    size = run.classify(group, 0, axis)
    known = {(0, i if i < axis else i - rank + 1): a for i, a in enumerate(updates.axes) if i not in places}
    made = get("index_sum")(_inside(run, group, indices, size), run.mask(updates, places, zero), **group.attrs)
    return run.results(group, [made], known)


def scatter_add(run: Any, group: Any) -> Any:
    """`index_add` and `scatter_add_along`: padding adds zeros."""
    x, indices, updates = group.items
    axis, rank = group.attrs["axis"], updates.new.ndim - x.new.ndim + 1
    name = group.nodes[0].op.name
    rest = [*updates.axes[:axis], x.axes[axis], *updates.axes[axis + rank :]]
    if tuple(rest) != x.axes:
        run.refuse(group, "joins axes that are padded in different ways")
    zeros = run.mask(updates, range(axis, axis + rank), zero)
    return [(get(name)(x.new, _inside(run, group, indices, x.axes[axis]), zeros, axis=axis), x.axes)]


def _starts(run: Any, group: Any, x: Any, sizes: Sequence[Any], starts: Sequence[Any]) -> list[Value]:
    """Starts clamped as at the real sizes. sizes: (size, axis of the part) for each axis of x."""
    clamped = []
    for axis, (size, part), start in zip(x.axes, sizes, starts, strict=True):
        if part is not None and axis != part:
            run.refuse(group, "moves a padded part about in another axis")
        if axis is not None and part is None:
            run.single(group, axis)
            last = get("cast")(run.count(axis) - size, dtype=start.new.dtype)
            clamped.append(get("minimum")(start.new, last))
        else:
            clamped.append(start.new)
    return clamped


@varies("sizes")
def dynamic_slice(run: Any, group: Any) -> Any:
    """An axis taken whole stays padded; within the real places of another a part of fixed size is taken."""
    x, *starts = group.items
    (_, axes), *_ = run.results(
        group, [None], {(0, i): a for i, a in enumerate(x.axes) if a is not None and _whole(group, i)}
    )
    sizes = group.attrs["sizes"]
    found = _starts(run, group, x, list(zip(sizes, axes, strict=True)), starts)
    return [(get("dynamic_slice")(x.new, *found, sizes=sizes), axes)]


def _whole(group: Any, i: int) -> bool:
    return all(n.attrs["sizes"][i] == n.inputs[0].shape[i] for n in group.nodes)


def dynamic_update_slice(run: Any, group: Any) -> Any:
    x, update, *starts = group.items
    found = _starts(run, group, x, list(zip(update.new.shape, update.axes, strict=True)), starts)
    return [(get("dynamic_update_slice")(x.new, update.new, *found), x.axes)]


# ------------------------------------------------------------------------------------------------------------- bodies
def _spread(flag: Value, type: TensorType) -> Value:
    made: Value = get("broadcast_to")(flag, shape=type.shape)
    return made


@varies("callee", "results")
def call(run: Any, group: Any) -> Any:
    """The function itself, in place."""
    names = group.each("callee")
    if names[0] in run.calling:
        run.refuse(group, "calls itself")
    run.calling.append(names[0])
    try:
        found = run.replay([t[n] for t, n in zip(run.tables, names, strict=True)], group.items)
    finally:
        run.calling.pop()
    return [(i.new, i.axes) for i in found]


@varies("body", "backward")
def custom_vjp(run: Any, group: Any) -> Any:
    """After differentiation only the function itself is left."""
    found = run.replay(group.each("body"), group.items)
    return [(i.new, i.axes) for i in found[: group.attrs["n_outputs"]]]


def barrier(run: Any, group: Any) -> Any:
    values = get("barrier")(*[i.new for i in group.items])
    return [(v, i.axes) for v, i in zip(values, group.items, strict=True)]


@varies("body")
def remat(run: Any, group: Any) -> Any:
    body = run.body(group.each("body"), [i.axes for i in group.items])
    (fn,), more = run.close([body], len(group.items))
    values = get("remat")(*[i.new for i in group.items], *more, body=fn)
    return [(v, o.axes) for v, o in zip(values, body.outputs, strict=True)]


@varies("then", "orelse")
def if_(run: Any, group: Any) -> Any:
    pred, *operands = group.items
    bodies = [run.body(group.each(name), [i.axes for i in operands]) for name in ("then", "orelse")]
    if any(a.axes != b.axes for a, b in zip(*[b.outputs for b in bodies], strict=True)):
        run.refuse(group, "has branches whose results are padded in different ways")
    (then, orelse), more = run.close(bodies, len(operands))
    values = get("if")(pred.new, *[i.new for i in operands], *more, then=then, orelse=orelse)
    return [(v, o.axes) for v, o in zip(values, bodies[0].outputs, strict=True)]


@varies("cond", "body")
def while_(run: Any, group: Any) -> Any:
    n = group.attrs["n_consts"]
    axes = [i.axes for i in group.items]
    bodies = [run.body(group.each(name), axes) for name in ("cond", "body")]
    if any(o.axes != a for o, a in zip(bodies[1].outputs, axes[n:], strict=True)):
        run.refuse(group, "has a carry that is padded in different ways before and after a trip")
    (cond, body), more = run.close(bodies, n)
    inputs = [i.new for i in group.items]
    attrs = {**group.attrs, "cond": cond, "body": body, "n_consts": n + len(more)}
    values = get("while")(*inputs[:n], *more, *inputs[n:], **attrs)
    return list(zip(values, axes[n:], strict=True))


@varies("body", "length")
def scan(run: Any, group: Any) -> Any:
    """Over a padded axis, the trips beyond the real ones leave the carry as it is."""
    n, k, length = group.attrs["n_consts"], group.attrs["n_carry"], group.each("length")
    fixed, xs = group.items[: n + k], group.items[n + k :]
    axis = None
    if len(set(length)) > 1:
        axis = _trips(run, group, length)
    if any(x.axes[0] != axis for x in xs):
        run.refuse(group, "goes along an axis that was made of several by a reshape")
    body = run.body(group.each("body"), [*[i.axes for i in fixed], *[x.axes[1:] for x in xs]])
    if any(o.axes != i.axes for o, i in zip(body.outputs, fixed[n:])):
        run.refuse(group, "has a carry that is padded in different ways before and after a trip")
    (fn,), more = run.close([body], n)
    inputs = [i.new for i in group.items]
    attrs = {**group.attrs, "n_consts": n + len(more)}
    operands = [*inputs[:n], *more, *inputs[n:]]
    if axis is not None:
        limit = run.count(axis)
        operands = [limit, *operands, get("iota")(shape=(length[0],), axis=0, dtype=int32)]
        fn = _while_real(fn, 1 + n + len(more), k)
        attrs["n_consts"] += 1
    values = get("scan")(*operands, **{**attrs, "body": fn})
    known = [o.axes if j < k else (axis, *o.axes) for j, o in enumerate(body.outputs)]
    return list(zip(values, known, strict=True))


def _trips(run: Any, group: Any, length: list[int]) -> Any:
    """The dimension that the number of trips is."""
    for xs in group.items[group.attrs["n_consts"] + group.attrs["n_carry"] :]:
        if xs.axes[0] is not None and len(xs.axes[0]) == 1:
            return xs.axes[0]
    for j, out in enumerate(group.nodes[0].outputs):
        if j >= group.attrs["n_carry"] and out.type.rank:
            return run.classify(group, j, 0)
    return run.refuse(group, f"makes {length[1]} trips over nothing")


def _while_real(fn: Fn, at: int, carries: int) -> Fn:
    """A body with a first parameter, the number of real trips, and a last, the trip: beyond, the carry stays."""

    def body(*args: Value) -> list[Value]:
        real = get("less")(args[-1], args[0])
        before, outputs = args[at : at + carries], build.inline(fn, args[1:-1])
        after = [get("select")(_spread(real, o.type), o, b) for o, b in zip(outputs[:carries], before, strict=True)]
        return [*after, *outputs[carries:]]

    scalar = TensorType(int32, ())
    return build.trace(body, [scalar, *fn.in_types, scalar], fn.name, build.current().fns)
