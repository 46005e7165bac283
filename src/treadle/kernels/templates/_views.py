"""Strided views: how a value of a body lies in one of its parameters, or in one of its outputs.

`of_input(value, body)` goes back from a value to the parameter that it is a part of, through nodes that only move
elements (transpose, slice, reshape, broadcast); `of_output(value, body)` on to the output that holds it, alone or
joined to others. NumPy's own views tell where the elements are. Offsets and strides are in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from treadle.ir.node import Fn, Node, Value
from treadle.ops.shape import concatenate


@dataclass(frozen=True)
class View:
    """buffer: number of the parameter or output; offset and strides in bytes, sizes by axis."""

    buffer: int
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    def lead(self, axes: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Sizes and strides of the first axes, neighbours merged where they lie one after another."""
        sizes, strides = list[int](), list[int]()
        for n, stride in zip(self.sizes[:axes], self.strides[:axes], strict=True):
            if n == 1:
                continue
            if sizes and strides[-1] == n * stride:
                sizes[-1], strides[-1] = sizes[-1] * n, stride
            else:
                sizes.append(n)
                strides.append(stride)
        return tuple(sizes), tuple(strides)


def dense(buffer: int, sizes: Sequence[int], item: int) -> View:
    """A whole row-major array."""
    strides, step = list[int](), item
    for n in reversed(sizes):
        strides.append(step)
        step *= n
    return View(buffer, 0, tuple(sizes), tuple(reversed(strides)))


def of_input(value: Value, body: Fn) -> View | None:
    """Where a value lies in the parameter that it is a part of; None where it is more than a view."""
    path = list[Node]()
    while value.node is not None:
        if not _moves(value.node):
            return None
        path.append(value.node)
        value = value.node.inputs[0]
    whole: Any = np.empty(value.shape, f"V{value.dtype.bytes}")  # memory that nobody touches
    now = whole
    for node in reversed(path):
        now = node.op.rules["ref"](now, **node.attrs)
        if now.size and not np.may_share_memory(now, whole):
            return None
    offset = now.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    return View(body.params.index(value), offset, now.shape, now.strides)


def of_output(value: Value, body: Fn) -> View | None:
    """Where a value lies in the one output that is made of it, or of it and others; None if it is used otherwise, or
    not whole."""
    path = list[tuple[Node, Value]]()
    start = value
    while value not in body.outputs:
        users = [n for n in body.nodes if value in n.inputs]
        if len(users) != 1 or not _keeps(users[0], value):
            return None
        path.append((users[0], value))
        value = users[0].outputs[0]
    if body.outputs.count(value) != 1 or any(value in n.inputs for n in body.nodes):
        return None
    buffer, item = body.outputs.index(value), value.dtype.bytes
    if not path:
        return dense(buffer, value.shape, item)
    return _inverse(buffer, item, start.shape, path)


def _keeps(node: Node, value: Value) -> bool:
    """Whether all elements of an operand are in the node's result, each once."""
    if node.op is concatenate:
        return node.inputs.count(value) == 1
    return _moves(node) and node.outputs[0].type.size == value.type.size


def _moves(node: Node) -> bool:
    return node.op.rules.get("group") == "move" and len(node.inputs) == 1


def _inverse(buffer: int, item: int, sizes: tuple[int, ...], path: Sequence[tuple[Node, Value]]) -> View | None:
    """The view of the first value in the last node's result, if its elements lie there with strides. path: nodes, and
    what of each one's operands it is."""
    count = int(np.prod(sizes))
    order: Any = np.arange(count).reshape(sizes)
    for node, value in path:
        given = [order if v is value else np.full(v.shape, -1) for v in node.inputs]
        order = node.op.rules["ref"](*given, **node.attrs)
    places, flat = np.full(count, -1), order.ravel()
    found = np.flatnonzero(flat >= 0)
    places[flat[found]] = found
    if count == 0 or (places < 0).any():
        return None
    places = places.reshape(sizes)
    first = int(places.flat[0])
    steps = [int(places[tuple([int(i == k) for i in range(len(sizes))])]) - first if n > 1 else 0
             for k, n in enumerate(sizes)]  # fmt: skip
    if any((np.diff(places, axis=k) != step).any() for k, step in enumerate(steps)):
        return None
    return View(buffer, first * item, sizes, tuple([step * item for step in steps]))
