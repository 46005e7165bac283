"""What batch rules share: the first axis of a batched value merged into another one and taken out again; bodies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from treadle.base.dtypes import int32, int64
from treadle.ir import op as op_table
from treadle.ir.node import Fn, Value
from treadle.ir.walk import all_nodes, has_effect

Outputs = tuple[Sequence[Value], Sequence[bool]]


def moved(x: Value, source: int, target: int) -> Value:
    """x with the axis `source` at the place `target` of the result."""
    perm = [i for i in range(x.ndim) if i != source]
    perm.insert(target, source)
    made: Value = op_table.get("transpose")(x, perm=tuple(perm))
    return made


def reshaped(x: Value, *shape: int) -> Value:
    made: Value = op_table.get("reshape")(x, shape=shape)
    return made


def merged(x: Value, axis: int) -> Value:
    """The lanes merged into the axis that is number `axis` of one lane, as its slow part."""
    y = moved(x, 0, axis)
    return reshaped(y, *y.shape[:axis], y.shape[axis] * y.shape[axis + 1], *y.shape[axis + 2 :])


def parted(x: Value, axis: int, size: int) -> Value:
    """The opposite of `merged`."""
    y = reshaped(x, *x.shape[:axis], size, x.shape[axis] // size if size else 0, *x.shape[axis + 1 :])
    return moved(y, axis, 0)


def own_places(indices: Value, count: int) -> Value:
    """indices[lane, ...], clamped to 0..count-1, as places on the merged axis of size lanes * count."""
    size = indices.shape[0]
    if size * count > 2**31 - 1:
        indices = op_table.get("cast")(indices, dtype=int64)
    inside = op_table.get("clamp")(0, indices, count - 1)
    first = op_table.get("iota")(shape=indices.shape, axis=0, dtype=indices.dtype)
    made: Value = inside + first * count
    return made


def settled(step: Callable[[list[bool]], Sequence[bool]], flags: Sequence[bool]) -> list[bool]:
    """Flags of a loop's carry that the body does not add to any more: step(flags before a trip) -> after it."""
    while True:
        after = [a or b for a, b in zip(flags, step(list(flags)), strict=True)]
        if after == list(flags):
            return after
        flags = after


def acts(fn: Fn, fns: Mapping[str, Fn]) -> bool:
    """Whether running `fn` does something beside its results."""
    return any(has_effect(node, fns) for node in all_nodes(fn))


def chosen(lanes: Value, x: Value, y: Value) -> Value:
    """x in the lanes where `lanes` (bool[size]) is true, y in the others; y may be the value of one lane."""
    get = op_table.get
    column = reshaped(lanes, *lanes.shape, *[1] * (x.ndim - 1))
    spread = y if y.shape == x.shape else get("broadcast_to")(y, shape=x.shape)
    made: Value = get("select")(get("broadcast_to")(column, shape=x.shape), x, spread)
    return made


def stand_in(lanes: Value, values: Sequence[Value], flags: Sequence[bool]) -> list[Value]:
    """The values with every lane that is not in `lanes` replaced by the first one that is.

    So a body is run only on what it would be run on in a Python loop: it ends for every lane, and no lane whose result
    is thrown away has an infinite derivative, which times a cotangent of 0 would be NaN.
    """
    get = op_table.get
    first = get("argmax")(get("cast")(lanes, dtype=int32), axis=0)
    return [chosen(lanes, v, get("take")(v, first, axis=0)) if f else v for v, f in zip(values, flags, strict=True)]
