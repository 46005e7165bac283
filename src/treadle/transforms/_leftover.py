"""Groups of what no anchor's group took: reductions of rows, and chains of elementwise nodes.

`groups(grouping)` adds them after all others, where there is work enough. A reduction takes the elementwise nodes that
nothing else reads with it; one of integers is left to XLA where XLA makes them. A chain is left to XLA where a
reduction reads it that stays there, as XLA computes both in one pass, and a single node where XLA would compute it with
those before or after it. `wide(fn)` lets large reductions of 16-bit floats give float32 first, which XLA computes
faster too. `moves(grouping, groups)` adds the
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

# Bytes that a group reads and writes. Programs of one group: reductions are 2 to 6 times as fast as XLA's
# from 32 KiB on, exp and tanh 1.1 to 2 times from 64 KiB on, additions 2 to 4 times from 96 KiB on.
LEAST_BYTES = 1 << 16
LEAST_CHEAP = 1 << 17  # of chains without dear ops: less is of no weight in a program
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

    reductions = [i for i, node in enumerate(g.fn.nodes) if g.kinds[i] in ("reduce", "fold") and _is_wanted(node)]
    chains = [i for i, node in enumerate(g.fn.nodes) if g.kinds[i] == "elementwise" and _is_link(node)]
    found: list[Group] = []
    for i, reduces in [*[(i, True) for i in reductions], *[(i, False) for i in chains]]:
        if g.taken >> i & 1:
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
    """Whether a reduction is of a kind that kernels compute, and XLA more slowly than they."""
    of = node.inputs[0].dtype if node.inputs else None
    return node.op.rules.get("group") in ("reduce", "fold") and of is not None and (of.is_float or of.is_integer)


def _is_short(value: Value) -> bool:
    return value.dtype in (bfloat16, float16)


def _is_dear(node: Node) -> bool:
    composed = node.op.rules.get("amp") == "wide" or "expand" in node.op.rules
    return composed or any(_is_short(v) for v in (*node.inputs, *node.outputs))


def _is_link(node: Node) -> bool:
    """Whether a chain may begin with a node: a dear one, or one of so much data that bytes alone are worth a kernel."""
    return _is_float(node) and (_is_dear(node) or node.outputs[0].type.bytes >= LEAST_CHEAP // 4)


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
    if reduces:
        apart = _is_float(g.fn.nodes[group.anchor]) or not _makers_of_xla(g, group, reads)
        return moved >= LEAST_BYTES and apart
    if moved < (LEAST_BYTES if any(_is_dear(g.fn.nodes[i]) for i in own) else LEAST_CHEAP):
        return False
    if len(own) == 1:
        return not _is_fused_by_xla(g, group, reads)
    readers = {j for i in leaving for j in bits(g.users[i])}
    size = g.fn.nodes[group.anchor].outputs[0].type.size
    taken = g.taken | g.copied
    return not any(not taken >> j & 1 and g.fn.nodes[j].outputs[0].type.size < size for j in readers)


def _is_fused_by_xla(g: _Grouping, group: Group, reads: set[Value]) -> bool:
    """Whether XLA would compute a group's one node together with one that it reads from or that reads from it."""
    apart = g.taken | g.copied
    return bool(_makers_of_xla(g, group, reads)) or any(not apart >> j & 1 for j in bits(g.users[group.anchor]))


def _makers_of_xla(g: _Grouping, group: Group, reads: set[Value]) -> list[int]:
    """Nodes that make what a group reads and are in no group."""
    ours = g.taken | group.copies
    return [i for v in reads if v.node is not None and not ours >> (i := g.number[v.node]) & 1]
