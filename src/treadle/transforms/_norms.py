"""Groups of several reductions along the same rows, and of what is computed from them at every place: norms, softmaxes
and statistics that are written out as means, sums and elementwise nodes.

`groups(grouping)` begins with a reduction that no other group has, and adds whatever is connected to it and has the
size of the rows' elements or of their results: one kernel reads the rows once, XLA once for each reduction and again
for what follows. Rows may also be all axes but one between others, as a channel's of images: runs through memory, one
for each image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

from treadle.ir.node import Node, Value
from treadle.ir.rewrite import note
from treadle.ops.reduce import broadcast_to
from treadle.ops.shape import reshape
from treadle.transforms.sets import bits

if TYPE_CHECKING:
    from treadle.transforms.fuse import Group, _Grouping

LEAST_BYTES = 1 << 16  # of the rows
LEAST_RUN, FEW_ROWS = 1 << 10, 8  # bytes that rows have side by side; rows: fewer are shared among threads otherwise
MOST_NODES = 32


def groups(g: _Grouping) -> list[Group]:
    """The groups, marked as taken."""
    from treadle.transforms.fuse import Group

    found: list[Group] = []
    least = 0 if g.small else LEAST_BYTES
    reductions = [i for i in range(len(g.fn.nodes)) if _reduces_rows(g, i)]
    of: dict[Value, list[int]] = {}
    for i in reductions:
        of.setdefault(g.fn.nodes[i].inputs[0], []).append(i)
    for i in reductions:
        if g.taken >> i & 1 or g.fn.nodes[i].inputs[0].type.bytes < least:
            continue
        group = Group(i, 1 << i)
        g.taken |= 1 << i
        _grow(g, group, of)
        if _is_worth(g, group):
            for member in bits(group.members):
                g._views(group, g.fn.nodes[member])
            g._close(group)
            note("groups of rows")
            found.append(group)
        else:
            g.taken &= ~group.members
    return found


def _reduces_rows(g: _Grouping, i: int) -> bool:
    """Whether a node reduces axes that end with the last one, with rows that are long and many enough."""
    node = g.fn.nodes[i]
    if g.kinds[i] not in ("reduce", "fold") or "axes" not in node.attrs or not node.inputs[0].dtype.is_float:
        return False
    x, axes = node.inputs[0], {a for a in node.attrs["axes"] if node.inputs[0].shape[a] > 1}
    kept = [a for a in range(x.ndim) if a not in axes and x.shape[a] > 1]
    if not axes or prod(x.shape[a] for a in kept) < FEW_ROWS or max(axes) < max(kept):
        return False
    run = prod(x.shape[a] for a in range(max(kept) + 1, x.ndim)) * (x.dtype.bits // 8)
    return bool(max(kept) < min(axes) or run >= LEAST_RUN)


def _grow(g: _Grouping, group: Group, of: Mapping[Value, Sequence[int]]) -> None:
    """All that is connected, is of one of the two sizes, and leaves no path out of the group and back; without moves
    at its end. of: the reductions of each value."""
    anchor = g.fn.nodes[group.anchor]
    frontier = [group.anchor]
    while frontier and group.members.bit_count() < MOST_NODES:
        at = frontier.pop(0)
        inputs = g.fn.nodes[at].inputs
        makers = [g.number[v.node] for v in inputs if v.node is not None]
        for i in dict.fromkeys([*makers, *bits(g.users[at]), *[j for v in inputs for j in of.get(v, ())]]):
            if not group.members >> i & 1 and _fits(g, anchor, i) and g._add(group, i):
                frontier.append(i)
    while ends := [i for i in bits(group.members) if g.kinds[i] == "move" and not g.users[i] & group.members]:
        for i in ends:
            group.members &= ~(1 << i)
            g.taken &= ~(1 << i)


def _fits(g: _Grouping, anchor: Node, i: int) -> bool:
    """Whether a node may belong to a reduction's group."""
    node, x, small = g.fn.nodes[i], anchor.inputs[0], anchor.outputs[0].type.size
    size = node.outputs[0].type.size
    if not all(v.dtype.is_float or v.dtype.kind == "b" for v in (*node.inputs, *node.outputs)):
        return False
    if g.kinds[i] == "elementwise":
        return size in (small, x.type.size)
    if g.kinds[i] == "move":
        return node.op in (reshape, broadcast_to) and node.inputs[0].type.size == small and size in (small, x.type.size)
    same = node.attrs.get("axes") is not None and set(node.attrs["axes"]) == set(anchor.attrs["axes"])
    return same and _reduces_rows(g, i) and node.inputs[0].shape == x.shape


def _is_worth(g: _Grouping, group: Group) -> bool:
    """Whether XLA would read the rows several times, and nothing large that was only moved is stored."""
    own = list(bits(group.members))
    anchor = g.fn.nodes[group.anchor]
    large = [i for i in own if g.fn.nodes[i].outputs[0].type.size == anchor.inputs[0].type.size]
    leaving = [i for i in large if g.users[i] & ~group.members or g.fn.nodes[i].outputs[0] in g.results]
    if any(g.kinds[i] == "move" for i in leaving):
        return False
    spread = any(g.kinds[i] == "move" for i in large)
    return spread or sum(g.kinds[i] in ("reduce", "fold") for i in own) > 1
