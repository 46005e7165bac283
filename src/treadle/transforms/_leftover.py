"""Groups of what no anchor's group took: reductions of rows, and chains of elementwise nodes that XLA computes slowly.

`groups(grouping)` adds them after all others. A reduction over the last axes takes the elementwise nodes that nothing
else reads with it. A chain is taken where it has 16-bit floats or an op that consists of others (sigmoids,
exponentials); not where a reduction reads it that stays with XLA, which computes both in one pass. `wide(fn)` lets
large reductions of 16-bit floats give float32 first, which XLA computes faster too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from treadle.base.dtypes import bfloat16, float16, float32
from treadle.ir.node import Fn, Node, Value
from treadle.ir.rewrite import note, rebuild
from treadle.ops.casting import cast
from treadle.transforms.sets import bits

if TYPE_CHECKING:
    from treadle.transforms.fuse import Group, _Grouping

LEAST_BYTES = 1 << 19  # that a group reads and writes
MOST_NODES = 24


def wide(fn: Fn) -> Fn:
    """`fn` with the large reductions that `groups` may take in float32, and rounded after that as they were."""

    def visit(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        if not _is_wanted(node) or not _is_short(node.inputs[0]) or node.inputs[0].type.bytes < LEAST_BYTES:
            return None
        made = node.op(cast(inputs[0], dtype=float32), **node.attrs)
        return [cast(made, dtype=node.outputs[0].dtype)]

    return rebuild(fn, visit)


def groups(g: _Grouping) -> list[Group]:
    """The groups, marked as taken."""
    from treadle.transforms.fuse import Group

    found: list[Group] = []
    for i, node in enumerate(g.fn.nodes):
        reduces = g.kinds[i] in ("reduce", "fold") and _is_wanted(node)
        if g.taken >> i & 1 or not (reduces or (g.kinds[i] == "elementwise" and _is_dear(node) and _is_float(node))):
            continue
        group = Group(i, 1 << i)
        g.taken |= 1 << i
        _grow(g, group, reduces)
        if _is_worth(g, group, reduces):
            g._close(group)
            note("leftover reductions" if reduces else "leftover chains")
            found.append(group)
        else:
            g.taken &= ~group.members
    return found


def _is_wanted(node: Node) -> bool:
    """Whether a reduction is of a kind that XLA computes more slowly than a kernel."""
    if node.op.rules.get("group") not in ("reduce", "fold") or not node.inputs[0].dtype.is_float:
        return False
    axes, rank = node.attrs["axes"], node.inputs[0].ndim
    last = bool(axes) and tuple(sorted(axes)) == tuple(range(rank - len(axes), rank))
    return last or bool(node.op.rules["group"] == "fold" and _is_short(node.inputs[0]))


def _is_short(value: Value) -> bool:
    return value.dtype in (bfloat16, float16)


def _is_dear(node: Node) -> bool:
    composed = node.op.rules.get("amp") == "wide" or "expand" in node.op.rules
    return composed or any(_is_short(v) for v in (*node.inputs, *node.outputs))


def _is_float(node: Node) -> bool:
    """Whether numbers that a node works with are floats: integers are those of random numbers, long chains."""
    return all(v.dtype.is_float or v.dtype.kind == "b" for v in (*node.inputs, *node.outputs))


def _grow(g: _Grouping, group: Group, reduces: bool) -> None:
    """Elementwise nodes before that nobody else reads; for a chain also those after, and before in any case."""
    size = g.fn.nodes[group.anchor].inputs[0].type.size
    frontier = [group.anchor]
    while frontier and group.members.bit_count() < MOST_NODES:
        at = frontier.pop(0)
        node = g.fn.nodes[at]
        near = [g.number[v.node] for v in node.inputs if v.node is not None]
        near += [] if reduces else bits(g.users[at])
        for i in dict.fromkeys(near):
            other = g.fn.nodes[i]
            fits = g.kinds[i] == "elementwise" and other.outputs[0].type.size == size and _is_float(other)
            if reduces:
                fits = fits and not g.users[i] & ~group.members and all(o not in g.results for o in other.outputs)
            if fits and not group.members >> i & 1 and g._add(group, i):
                frontier.append(i)
    for i in list(bits(group.members)):
        g._views(group, g.fn.nodes[i])


def _is_worth(g: _Grouping, group: Group, reduces: bool) -> bool:
    own = list(bits(group.members))
    inside = {o for i in own for o in g.fn.nodes[i].outputs}
    reads = {v for i in own for v in g.fn.nodes[i].inputs} - inside
    leaving = [i for i in own if g.users[i] & ~group.members or any(o in g.results for o in g.fn.nodes[i].outputs)]
    moved = sum(v.type.bytes for v in reads) + sum(o.type.bytes for i in leaving for o in g.fn.nodes[i].outputs)
    if moved < LEAST_BYTES or (not reduces and len(own) < 2):
        return False
    if reduces:
        return True
    readers = {j for i in leaving for j in bits(g.users[i])}
    size = g.fn.nodes[group.anchor].outputs[0].type.size
    taken = g.taken | g.copied
    return not any(not taken >> j & 1 and g.fn.nodes[j].outputs[0].type.size < size for j in readers)
