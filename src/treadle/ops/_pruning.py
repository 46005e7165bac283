"""Smaller bodies: which parameters of a region are read when only some of its results are, and the region without the
rest. The `prune` rules of ops with bodies are made of these.

A node that has an effect, or calls a function (which may have one), stays, and so does what it reads.
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.ir.node import Fn, Node, Value
from treadle.ir.walk import all_nodes, has_effect
from treadle.ops._regions import picked


def _acts(node: Node) -> bool:
    inside = [node, *[n for _, region in node.regions() for n in all_nodes(region)]]
    return has_effect(node) or any("callee" in n.attrs for n in inside)


def _live(fn: Fn, outputs: Sequence[Value]) -> tuple[list[Node], set[Value]]:
    """The nodes that these outputs need, in order, and every value that is read then."""
    read = set(outputs)
    live: list[Node] = []
    for node in reversed(fn.nodes):
        if any(o in read for o in node.outputs) or _acts(node):
            live.append(node)
            read.update(node.inputs)
    return live[::-1], read


def reads(fn: Fn, results: Sequence[bool]) -> list[bool]:
    """Which parameters are read where only these results are wanted."""
    _, read = _live(fn, picked(fn.outputs, results))
    return [p in read for p in fn.params]


def slim(fn: Fn, params: Sequence[bool], results: Sequence[bool]) -> Fn:
    """The region with these parameters (all that are read) and results only."""
    outputs = picked(fn.outputs, results)
    nodes, _ = _live(fn, outputs)
    return Fn(fn.name, tuple(picked(fn.params, params)), tuple(nodes), tuple(outputs))


def either(*flags: Sequence[bool]) -> list[bool]:
    """Position by position, whether one of them is true."""
    return [any(column) for column in zip(*flags, strict=True)]


def carried(body: Fn, first: int, wanted: Sequence[bool], others: Sequence[bool] = ()) -> list[bool]:
    """Which carries a loop needs: those wanted, and those that the new values of needed ones are made of.

    first: the position of the first carry among the parameters; others: which further results of the body are wanted.
    """
    wanted = list(wanted)
    while True:
        read = reads(body, [*wanted, *others])
        more = either(wanted, read[first : first + len(wanted)])
        if more == wanted:
            return wanted
        wanted = more
