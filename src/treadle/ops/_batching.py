"""What batch rules share: the first axis of a batched value merged into another one and taken out again; bodies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from treadle.base.dtypes import int64
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


def only_when_asked(fn: Fn, fns: Mapping[str, Fn]) -> bool:
    """Whether `fn` must not be run where its result is not wanted: it has an effect, or may never end (a `while` or
    recursion)."""
    return _only_when_asked(fn, fns, ())


def _only_when_asked(fn: Fn, fns: Mapping[str, Fn], running: tuple[str, ...]) -> bool:
    for node in all_nodes(fn):
        callee = node.attrs.get("callee")
        if has_effect(node) or "cond" in node.attrs or callee in running:
            return True
        if callee is not None and _only_when_asked(fns[callee], fns, (*running, callee)):
            return True
    return False
