"""Groups of what no anchor's group took: reductions of rows, and chains of elementwise nodes that XLA computes slowly.

`groups(grouping)` adds them after all others. A reduction over the last axes, or a large one over the first, takes the
elementwise nodes that nothing else reads with it. A chain is taken where it has 16-bit floats or an op that consists of
others (sigmoids, exponentials), has several results, or moves more than caches hold (XLA's stores read what they
overwrite); not where a reduction reads it that stays with XLA, which computes both in one pass. `wide(fn)` lets large
reductions of 16-bit floats give float32 first, which XLA computes faster too. `moves(grouping, groups)` adds the
transposes that no group has taken for itself: XLA's run at a tenth of the memory's pace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from treadle.base.dtypes import bfloat16, float16, float32
from treadle.ir.node import Fn, Node, Value
from treadle.ir.rewrite import note, rebuild
from treadle.ops.casting import cast
from treadle.ops.convolution import conv_weight_grad
from treadle.ops.shape import transpose
from treadle.transforms.sets import bits

if TYPE_CHECKING:
    from treadle.transforms.fuse import Group, _Grouping

LEAST_BYTES = 1 << 19  # that a group reads and writes
LEAST_CHEAP, LEAST_SEVERAL = 32 << 20, 2 << 20  # the same of chains without dear ops: of one result, of several
LEAST_COLUMNS = 8 << 20  # of what is reduced over its first axes
MOST_NODES = 24
LEAST_MOVED = 1 << 18  # bytes of a transpose of its own: less gains nothing
LEAST_IMAGES = 1 << 14  # the same of one that turns images for weight gradients: a kernel reads their channels last


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
        chains = g.kinds[i] == "elementwise" and _is_float(node) and (_is_dear(node) or _is_large(node))
        if g.taken >> i & 1 or not (reduces or chains):
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


def moves(g: _Grouping, made: Sequence[Group]) -> list[Group]:
    """Groups of one transpose that turns lines into columns, with the moves before it; marked as taken. made: the
    groups there are, which have copies of their own of some moves: one that nobody else reads is not computed."""
    from treadle.transforms.fuse import Group

    found: list[Group] = []
    grouped = sum([group.members for group in made])
    read = sum([1 << i for i in set().union(*[_outside(g, group) for group in made])])
    for i, node in reversed(list(enumerate(g.fn.nodes))):
        own = 1 << i
        if grouped & own or not (read & own or not g.kinds[i] or any(o in g.results for o in node.outputs)):
            continue
        least = LEAST_IMAGES if _is_for_weights(g, i) else LEAST_MOVED
        turns = g.kinds[i] == "move" and _turns(node) and node.outputs[0].type.bytes >= least
        if not turns or any(g.kinds[j] in _THEIRS for j in bits(g.users[i] & ~grouped)):
            for v in node.inputs:
                read |= 0 if v.node is None else 1 << g.number[v.node]
            continue
        group = Group(i, own, whole=True)
        g.taken |= own
        g._views(group, node, ("move",))
        g._close(group)
        note("leftover transposes")
        found.append(group)
        for j in _outside(g, group):
            read |= 1 << j
    return found


def _outside(g: _Grouping, group: Group) -> set[int]:
    """The nodes whose results a group reads."""
    makers = {g.number[v.node] for i in group.order for v in g.fn.nodes[i].inputs if v.node is not None}
    return makers - set(group.order)


_THEIRS = ("product", "convolution")  # XLA's own take a transpose into themselves


def _is_for_weights(g: _Grouping, i: int) -> bool:
    """Whether a transpose, of a parameter maybe, turns images for a weight gradient's kernel, which turns them back."""
    back = [j for j in bits(g.users[i]) if g.fn.nodes[j].op is transpose]
    return any(g.fn.nodes[k].op is conv_weight_grad for j in back for k in bits(g.users[j]))


def _turns(node: Node) -> bool:
    """Whether a transpose puts another axis last."""
    if node.op is not transpose:
        return False
    order = [a for a in node.attrs["perm"] if node.inputs[0].shape[a] > 1]
    return bool(order) and order[-1] != max(order)


def _is_wanted(node: Node) -> bool:
    """Whether a reduction is of a kind that XLA computes more slowly than a kernel."""
    if node.op.rules.get("group") not in ("reduce", "fold") or not node.inputs[0].dtype.is_float:
        return False
    axes, rank = node.attrs.get("axes") or (node.attrs.get("axis"),), node.inputs[0].ndim
    last = bool(axes) and tuple(sorted(axes)) == tuple(range(rank - len(axes), rank))
    first = tuple(sorted(axes)) == tuple(range(len(axes))) and node.inputs[0].type.bytes >= LEAST_COLUMNS
    return last or first or bool(node.op.rules["group"] == "fold" and _is_short(node.inputs[0]))


def _is_short(value: Value) -> bool:
    return value.dtype in (bfloat16, float16)


def _is_dear(node: Node) -> bool:
    composed = node.op.rules.get("amp") == "wide" or "expand" in node.op.rules
    return composed or any(_is_short(v) for v in (*node.inputs, *node.outputs))


def _is_large(node: Node) -> bool:
    """Whether a chain with this node may be worth a kernel for its bytes alone."""
    return node.outputs[0].type.bytes >= LEAST_SEVERAL // 4


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
    least = LEAST_BYTES
    if not reduces and not any(_is_dear(g.fn.nodes[i]) for i in own):
        least = LEAST_SEVERAL if len(leaving) > 1 else LEAST_CHEAP
    if moved < least or (not reduces and len(own) < 2):
        return False
    if reduces:
        return True
    readers = {j for i in leaving for j in bits(g.users[i])}
    size = g.fn.nodes[group.anchor].outputs[0].type.size
    taken = g.taken | g.copied
    return not any(not taken >> j & 1 and g.fn.nodes[j].outputs[0].type.size < size for j in readers)
