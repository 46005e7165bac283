"""Gathers nodes into `fused` groups, each of which one kernel can compute: the work before, after and around an anchor.

An anchor is a product, a convolution, attention, a recurrent layer, a norm or a loss (the op's rule `group` says so).
Around it gather what is cheaper there than in a pass over memory of its own: the elementwise nodes that follow (bias,
activation, residual, casts, the derivative's mask), reshapes and transposes before and after, and the updates of the
optimiser beside each other. A group is never made where a path leaves it and comes back. What was gathered and what was
not is counted among the pass's rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from treadle.base import where
from treadle.base.dtypes import bfloat16, float16, float32
from treadle.ir import build
from treadle.ir.interp import expansion
from treadle.ir.node import Fn, Module, Node, Value
from treadle.ir.rewrite import map_regions, note, rebuild, with_inputs
from treadle.ir.walk import has_effect
from treadle.ops._axes import axes_of, node_flops
from treadle.ops.casting import cast
from treadle.ops.convolution import conv, conv_input_grad, conv_weight_grad
from treadle.ops.elementwise import add
from treadle.ops.groups import fused
from treadle.ops.norm_batch import (
    batch_norm,
    batch_norm_grad,
    batch_norm_grad_summed,
    batch_norm_inference,
    channel_moments,
    channel_sums,
)
from treadle.ops.reduce import broadcast_to
from treadle.ops.shape import concatenate, reshape, transpose
from treadle.transforms import _leftover, _norms
from treadle.transforms.dce import remove_dead
from treadle.transforms.pipeline import Pass
from treadle.transforms.sets import bits

ANCHORS = ("product", "convolution", "attention", "recurrent", "row", "loss", "pool")  # values of the op's rule `group`
LEAST_BYTES, LEAST_FLOPS = 1 << 16, 1 << 18  # an anchor that moves and computes less is left to XLA
LEAST_CONVOLVED = 1 << 21  # operations of all convolutions together
LEAST_TURNED, FEW_CHANNELS = 1 << 18, 4  # images of as many bytes and more channels are turned by a kernel of their own
LEAST_NORM = 3 << 20  # bytes of what is normalised; less is still in the caches when its moments are wanted
LEAST_GRAD = 3 << 19  # the same of the gradient of that, of depthwise convolutions; as much again is read beside it
LEAST_WHOLE = 6 << 20  # and of others: their kernels have less time to spare for that, strided ones none


@dataclass(frozen=True)
class Fuse(Pass):
    """level 0: nothing; 1: anchors alone; 2: with what surrounds them; 3: also where there is so little work that XLA's
    code costs no more. views: with the moves before an anchor; sums: with sums of a product's rows and columns; losses:
    a product with the loss of its rows and the loss's gradient; alone: with nothing, as at level 1."""

    level: int = 2
    views: bool = True
    sums: bool = True
    losses: bool = True
    alone: bool = False

    def __call__(self, module: Module) -> Module:
        if not self.level:
            return module
        fns = {name: remove_dead(self._fn(fn, module), module.fns) for name, fn in module.fns.items()}
        return module if all(fns[n] is fn for n, fn in module.fns.items()) else Module(fns)

    def _fn(self, fn: Fn, module: Module) -> Fn:
        inner = expanded(_in_regions(fn, lambda region: self._fn(region, module)))
        if self.sums and (self.level > 2 or (self.level == 2 and convolves(inner, module))):
            inner = _with_moments(inner)
        if self.level > 1 and not self.alone:
            inner = _leftover.wide(inner)
        groups = _Grouping(inner, module, self).run()
        return _Emitter(inner, groups).run() if groups else inner


def _in_regions(fn: Fn, change: Callable[[Fn], Fn]) -> Fn:
    """`fn` with its nodes' regions changed; bodies of groups stay as they are."""
    nodes: list[Node] = []
    twin: dict[Value, Value] = {}
    for node in fn.nodes:
        inputs = tuple([twin.get(v, v) for v in node.inputs])
        regions = node.op.has_regions and node.op is not fused
        new = with_inputs(node, inputs, map_regions(node, change) if regions else None)
        nodes.append(new)
        if new is not node:
            twin.update(zip(node.outputs, new.outputs, strict=True))
    if not twin and tuple(nodes) == fn.nodes:
        return fn
    return Fn(fn.name, fn.params, tuple(nodes), tuple([twin.get(o, o) for o in fn.outputs]))


def expanded(fn: Fn) -> Fn:
    """`fn` with the expansions of nodes whose rule `group` is "expand" in their place."""

    def visit(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        if kind(node) != "expand":
            return None
        return build.inline(expansion(node.op, tuple([v.type for v in node.inputs]), node.attrs), inputs)

    return rebuild(fn, visit)


def _with_moments(fn: Fn) -> Fn:
    """`fn` with `batch_norm` of a convolution's result, channels last, as `channel_moments`, which the convolution's
    group takes, and `batch_norm_inference` with these; and with `batch_norm_grad` of what data gradients give as
    `channel_sums`, which their group takes, and what remains."""
    summed = set[Value]()

    def visit(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        if node.op is batch_norm_grad:
            return _with_sums(node, inputs, summed)
        if node.op is not batch_norm or node.inputs[0].type.bytes < LEAST_NORM:
            return None
        x, scale, bias = inputs
        turned = x.node.inputs[0] if x.node is not None and x.node.op is transpose else x
        back = (0, x.ndim - 1, *range(1, x.ndim - 1))
        if turned is x or x.node is None or x.node.attrs["perm"] != back or not _is_convolved(turned):
            return None
        note("batch_norm with moments of a convolution")
        mean, var = channel_moments(turned, axis=x.ndim - 1)
        return [batch_norm_inference(x, scale, bias, mean, var, **node.attrs), mean, var]

    return rebuild(fn, visit)


def _with_sums(node: Node, inputs: tuple[Value, ...], summed: set[Value]) -> Sequence[Value] | None:
    """`batch_norm_grad` in two, if a convolution's group may give dy. summed: what groups have sums of already."""
    x, _, mean, _, dy, *_ = inputs
    back = (0, x.ndim - 1, *range(1, x.ndim - 1))
    turned = [v.node.inputs[0] for v in (dy, x) if v.node and v.node.op is transpose and v.node.attrs["perm"] == back]
    if len(turned) < 2 or turned[0] in summed or not _is_convolved_back(turned[0]):
        return None
    summed.add(turned[0])
    note("batch_norm_grad with sums of a convolution")
    sums = channel_sums(*turned, mean, axis=x.ndim - 1)
    return list(batch_norm_grad_summed(*inputs, *sums, **node.attrs))


def _is_convolved_back(dy: Value) -> bool:
    """Whether elementwise nodes and moves make dy of a convolution's result, or a data gradient's, and sums of it
    cost less there than in a pass of their own."""
    stack, seen = [dy], {dy}
    while stack:
        node = stack.pop().node
        if node is None or node.outputs[0].type.size != dy.type.size:
            continue
        if node.op in (conv, conv_input_grad):
            one = node.outputs[0].shape[1] if node.op is conv_input_grad else node.inputs[0].shape[1]
            if node.attrs["groups"] == one > 1:
                return dy.type.bytes >= LEAST_GRAD
            return node.attrs["groups"] == 1 == max(node.attrs["stride"]) and dy.type.bytes >= LEAST_WHOLE
        if kind(node) in ("elementwise", "move"):
            new = [v for v in node.inputs if v not in seen]
            stack += new
            seen.update(new)
    return False


def _is_convolved(x: Value) -> bool:
    """Whether x is a convolution's result with its channels moved to the end, maybe with a bias."""
    node = x.node
    if node is not None and node.op is add:
        spread = [v.node is not None and v.node.op is broadcast_to for v in node.inputs]
        node = node.inputs[1 if spread[0] else 0].node if any(spread) else None
    if node is None or node.op is not transpose or node.attrs["perm"] != (0, *range(2, x.ndim), 1):
        return False
    before = node.inputs[0].node
    if before is None or before.op.rules.get("group") != "convolution":
        return False
    return before.attrs["groups"] in (1, before.inputs[0].shape[1]) and before.op is conv


def kind(node: Node) -> str:
    """How a node takes part: the op's rule `group`, "elementwise", "constant", or "" for one that stays alone."""
    rule = node.op.rules.get("group")
    if rule:
        return str(rule(node) if callable(rule) else rule)
    if node.op.has_regions or node.op.rules.get("effect"):
        return ""
    if not node.inputs:
        return "constant" if all(o.type.size <= 1 or node.op.name == "full" for o in node.outputs) else ""
    axes = axes_of(node)
    if axes is None or any(names != axes.outs[0] for names in (*axes.ins, *axes.outs)):
        return ""
    return "elementwise" if not axes.whole and all(v.type.shape == node.outputs[0].shape for v in node.inputs) else ""


def _comes_from(value: Value, node: Node) -> bool:
    """Whether a value is a node's result, reshaped maybe."""
    while value.node is not None and value.node.op is reshape:
        value = value.node.inputs[0]
    return value.node is node


def convolves(fn: Fn, module: Module) -> bool:
    """Whether a function has convolutions that are worth kernels."""
    flops = [node_flops(n, module) for n in fn.nodes if n.op.rules.get("group") == "convolution"]
    return sum(flops) >= LEAST_CONVOLVED


@dataclass
class Group:
    """Nodes by number, as sets of bits. anchor: the node that it was begun with; copies: moves and constants that it
    repeats for itself; order: all of them, once it is complete; whole: nothing is added to it."""

    anchor: int
    members: int
    copies: int = 0
    order: list[int] = field(default_factory=list)
    whole: bool = False


class _Grouping:
    """Grows groups from anchors. Sets of nodes are integers with a bit per node of the function."""

    def __init__(self, fn: Fn, module: Module, options: Fuse) -> None:
        self.fn, self.module, self.sums = fn, module, options.sums
        self.losses = options.losses and not (options.alone or options.level == 1)
        self.images = convolves(fn, module)
        self.alone, self.small = options.alone or options.level == 1, options.level > 2
        self.moves = ("move", "constant") if options.views else ("constant",)
        self.number = {node: i for i, node in enumerate(fn.nodes)}
        self.kinds = ["" if has_effect(n, module.fns) else kind(n) for n in fn.nodes]
        self.kinds = ["row" if k == "expand" else k for k in self.kinds]  # those left are of _with_moments
        self.users: list[int] = [0] * len(fn.nodes)
        self.before: list[int] = [0] * len(fn.nodes)  # all that a node depends on, itself included
        for i, node in enumerate(fn.nodes):
            self.before[i] = 1 << i
            for v in node.inputs:
                if v.node is not None:
                    self.users[self.number[v.node]] |= 1 << i
                    self.before[i] |= self.before[self.number[v.node]]
        self.results = set(fn.outputs)
        self.readers = Counter([*[v for n in fn.nodes for v in n.inputs], *fn.outputs])
        if options.views:
            self.kinds = ["narrow" if self._is_packed(i) else k for i, k in enumerate(self.kinds)]
        self.taken = self.copied = 0

    def run(self) -> list[Group]:
        """The groups, in the order of their anchors."""
        anchors = [i for i, k in enumerate(self.kinds) if k in ANCHORS and (self.small or self._is_work(i))]
        whole = [g for g in map(self._to_losses, anchors) if g is not None] if self.losses else []
        found = [*whole, *[self._begun(i) for i in anchors if not self.taken >> i & 1]]
        for group in found:
            self._grow(group)
        left = [i for i, k in enumerate(self.kinds) if k == "moments" and not self.taken >> i & 1]
        for group in [self._begun(i) for i in left]:
            self._grow(group)
            found.append(group)
        if not self.alone:
            found += self._updates()
            found += _norms.groups(self)
            found += _leftover.groups(self)
            found += _leftover.moves(self, found)
        return found

    def _bytes(self, i: int) -> int:
        return sum(v.type.bytes for v in (*self.fn.nodes[i].inputs, *self.fn.nodes[i].outputs))

    def _is_work(self, i: int) -> bool:
        """Whether a kernel may pay; of nodes that work on images, all together: they pass images on to each other."""
        if "images" in self.fn.nodes[i].op.rules and (self.images or self.kinds[i] != "pool"):
            return self.images
        node = self.fn.nodes[i]
        return self._bytes(i) >= LEAST_BYTES or node_flops(node, self.module) >= LEAST_FLOPS

    def _is_packed(self, i: int) -> bool:
        """Whether a node makes a parameter narrower for products alone, which can do that while they pack it."""
        node = self.fn.nodes[i]
        if node.op is not cast or node.inputs[0].node is not None or node.inputs[0].dtype is not float32:
            return False
        return node.outputs[0].dtype in (bfloat16, float16) and self._for_products(i)

    def _for_products(self, i: int) -> bool:
        if self.readers[self.fn.nodes[i].outputs[0]] != self.users[i].bit_count():
            return False
        return all(
            (self.kinds[j] == "product" and (self.small or self._is_work(j)))
            or (self.kinds[j] == "move" and self._for_products(j))
            for j in bits(self.users[i])
        )

    def _begun(self, i: int) -> Group:
        """The group of an anchor, with the move of its result that nobody else reads."""
        group = Group(i, 1 << i)
        self.taken |= group.members
        if not self.alone:
            for user in bits(self.users[i]):
                if self.kinds[user] == "move" and self._follows(group, self.fn.nodes[i], self.fn.nodes[user], user):
                    self._add(group, user)
        return group

    def _to_losses(self, i: int) -> Group | None:
        """A product, the losses of its rows, their gradients and what lies between, if a gradient can take the place of
        the rows in memory."""
        if self.kinds[i] != "product":
            return None
        losses = [j for j, k in enumerate(self.kinds) if k == "loss" and self.before[j] >> i & 1]
        members = 1 << i
        for j in losses:
            members |= self.before[j]
        members = sum([1 << j for j in bits(members) if self.before[j] >> i & 1])
        fits = ("elementwise", "move", "constant", "loss")
        if not losses or members & self.taken or any(self.kinds[j] not in fits for j in bits(members & ~(1 << i))):
            return None
        given = self.fn.nodes[losses[0]].inputs[0].type
        if not any(o.type == given for j in losses for o in self.fn.nodes[j].outputs) or not self._legal(members, i):
            return None
        self.taken |= members
        group = Group(i, members, whole=True)
        for j in bits(members):
            packs = ("narrow",) if j == i else ()
            self._views(group, self.fn.nodes[j], (*self.moves, *packs))
        return group

    def _grow(self, group: Group) -> None:
        if not self.alone and not group.whole:
            packs = ("narrow",) if self.kinds[group.anchor] == "product" else ()
            self._views(group, self.fn.nodes[group.anchor], (*self.moves, *packs))
            self._followers(group)
        self._close(group)
        note(f"{self.kinds[group.anchor]} groups")

    def _updates(self) -> list[Group]:
        """The optimiser's updates that do not wait for each other, in groups of their op and attributes."""
        found: dict[str, Group] = {}
        for i, node in enumerate(self.fn.nodes):
            if self.kinds[i] == "update":
                key = f"{node.op.name} {sorted(node.attrs.items())} {node.inputs[0].dtype}"
                group = found.get(key)
                if group is None or not self._add(group, i):
                    group = found[key] = Group(i, 1 << i)
                    self.taken |= 1 << i
        groups = [g for g in found.values() if self.small or sum(map(self._bytes, bits(g.members))) >= LEAST_BYTES]
        for group in groups:
            self._close(group)
        return groups

    def _legal(self, members: int, extra: int) -> bool:
        """Whether no path leaves the set with the extra node and comes back into it."""
        both = members | 1 << extra
        depends = users = 0
        for i in bits(both):
            depends |= self.before[i]
            users |= self.users[i]
        return not (users & ~both & depends)

    def _add(self, group: Group, i: int) -> bool:
        if self.taken >> i & 1 or not self._legal(group.members, i):
            return False
        group.members |= 1 << i
        self.taken |= 1 << i
        return True

    def _views(self, group: Group, node: Node, kinds: Sequence[str] = ("move", "constant")) -> None:
        """The moves and constants that a member reads and no group makes. They cost the kernel nothing, so the group
        has its own copy of one that others read too."""
        for v in node.inputs:
            i = -1 if v.node is None else self.number[v.node]
            if i >= 0 and self.kinds[i] in kinds and not self.taken >> i & 1 and not self._is_turned(group, i):
                group.copies |= 1 << i
                self.copied |= 1 << i
                self._views(group, self.fn.nodes[i], kinds)

    def _followers(self, group: Group) -> None:
        """Elementwise nodes of the anchor's results, sums of them over rows or columns, and moves of a result that
        nobody else reads."""
        frontier = list(bits(group.members))
        while frontier:
            at = frontier.pop(0)
            for i in bits(self.users[at] & ~group.members):
                if self._follows(group, self.fn.nodes[at], self.fn.nodes[i], i) and self._add(group, i):
                    self._views(group, self.fn.nodes[i])
                    if self.kinds[i] not in ("reduce", "moments"):
                        frontier.append(i)

    def _follows(self, group: Group, before: Node, node: Node, i: int) -> bool:
        size = self.fn.nodes[group.anchor].outputs[0].type.size
        if node.op is concatenate:
            return self._joins(group, node)
        if self.kinds[i] == "elementwise":
            return node.outputs[0].type.size == size
        if self.kinds[i] == "reduce":
            axes, rank = node.attrs["axes"], node.inputs[0].ndim
            return (
                self.sums
                and self.kinds[group.anchor] == "product"
                and tuple(axes) in (tuple(range(rank - 1)), (rank - 1,))
            )
        if self.kinds[i] == "moments":
            fits = self.kinds[group.anchor] == "convolution" and node.inputs[0].type.size == size
            alone = all(self.kinds[j] != "moments" for j in bits(group.members))
            return self.sums and fits and alone and node.inputs[0].node is before
        if self._is_turned(group, i):
            return False
        alone = self.kinds[i] == "move" and self.readers[node.inputs[0]] == 1 and not self.copied >> i & 1
        turned = any("images" in self.fn.nodes[j].op.rules for j in bits(self.users[i]))  # transforms/layout's, theirs
        if not alone or turned or node.inputs[0].node is not before:
            return False
        return node.outputs[0].type.size in (size, before.outputs[0].type.size if self._joined(group) else size)

    def _joins(self, group: Group, node: Node) -> bool:
        """Whether a node joins results of attention (the gradients of its operands) that nobody else reads."""
        makers = [self.number[v.node] if v.node is not None and self.readers[v] == 1 else -1 for v in node.inputs]
        return self.kinds[group.anchor] == "attention" and all(m >= 0 and group.members >> m & 1 for m in makers)

    def _joined(self, group: Group) -> bool:
        return any(self.fn.nodes[j].op is concatenate for j in bits(group.members))

    def _is_turned(self, group: Group, i: int) -> bool:
        """Whether a node turns images from or to the user's layout beside a convolution: one that reads or writes such
        images itself is slower than a kernel that only turns them and one after the other. Gradients with a stride are
        not written so at all; nor are weights read in another order, or images that are parts of more axes."""
        node = self.fn.nodes[i]
        if node.op is not transpose or self.kinds[group.anchor] != "convolution":
            return False
        x, perm, anchor = node.inputs[0], node.attrs["perm"], self.fn.nodes[group.anchor]
        least = LEAST_TURNED if anchor.op is not conv_weight_grad else _leftover.LEAST_IMAGES
        weights = anchor.op is not conv_weight_grad and _comes_from(anchor.inputs[1], node)
        if weights or x.ndim > anchor.inputs[0].ndim:
            return True
        strided = anchor.op is conv_input_grad and anchor.attrs["stride"][-1] > 1
        back = perm == (0, x.ndim - 1, *range(1, x.ndim - 1)) and x.ndim > 2
        if not (back and strided) and (x.type.bytes < least or x.ndim < 3):
            return False
        if perm == (0, *range(2, x.ndim), 1):
            return x.shape[1] > FEW_CHANNELS and (x.node is None or "images" not in x.node.op.rules)
        readers = list(bits(self.users[i]))
        back = back and (strided or x.shape[-1] > FEW_CHANNELS)
        return back and not any("images" in self.fn.nodes[j].op.rules or self.kinds[j] == "pool" for j in readers)

    def _close(self, group: Group) -> None:
        """From here on the group counts as one node: whoever depends on one member depends on all."""
        group.copies &= ~group.members
        group.order = list(bits(group.members | group.copies))
        whole = group.members
        for i in group.order:
            whole |= self.before[i] & ~group.copies
        first = (group.members & -group.members).bit_length() - 1
        for i in range(first, len(self.before)):
            if self.before[i] & group.members:
                self.before[i] |= whole


class _Emitter:
    """Writes a function again with each group as one node, in an order that its data allows."""

    def __init__(self, fn: Fn, groups: Sequence[Group]) -> None:
        self.fn, self.owner = fn, {i: g for g in groups for i in bits(g.members)}
        self.number = {node: i for i, node in enumerate(fn.nodes)}
        self.uses = Counter(v for n in fn.nodes for v in n.inputs)
        self.results = set(fn.outputs)
        self.nodes, self.done = list[Node](), set[int]()
        self.twin: dict[Value, Value] = {}

    def run(self) -> Fn:
        """The new function."""
        for i in range(len(self.fn.nodes)):
            self._place(i)
        outputs = tuple([self.twin.get(o, o) for o in self.fn.outputs])
        return Fn(self.fn.name, self.fn.params, tuple(self.nodes), outputs)

    def _place(self, i: int) -> None:
        """Write node i, or its group, and before that what it needs."""
        stack = [i]
        while stack:
            at = stack[-1]
            if at in self.done:
                stack.pop()
                continue
            group = self.owner.get(at)
            members = group.order if group else [at]
            inside = {*members, *self.done}
            makers = [self.number[v.node] for m in members for v in self.fn.nodes[m].inputs if v.node is not None]
            missing = [m for m in makers if m not in inside]
            if missing:
                stack += missing
                continue
            stack.pop()
            self.done.update(bits(group.members) if group else members)
            made = self._group(group) if group else self._single(self.fn.nodes[at])
            self.nodes.append(made)

    def _single(self, node: Node) -> Node:
        new = with_inputs(node, tuple([self.twin.get(v, v) for v in node.inputs]))
        if new is not node:
            self.twin.update(zip(node.outputs, new.outputs, strict=True))
        return new

    def _group(self, group: Group) -> Node:
        members = [self.fn.nodes[i] for i in group.order]
        anchor = self.fn.nodes[group.anchor]
        inside = {o for n in members for o in n.outputs}
        operands = list(dict.fromkeys(v for n in members for v in n.inputs if v not in inside))
        own = [self.fn.nodes[i] for i in bits(group.members)]
        used = Counter(v for n in own for v in n.inputs)
        outputs = [o for n in own for o in n.outputs if o in self.results or self.uses[o] > used[o]]

        def body(*values: Value) -> list[Value]:
            known = dict(zip(operands, values, strict=True))
            for n in members:
                with where.at(n.where):
                    known.update(zip(n.outputs, build.emit(n, tuple([known[v] for v in n.inputs])), strict=True))
            return [known[o] for o in outputs]

        made = build.trace(body, [v.type for v in operands], anchor.op.name)
        inputs = tuple([self.twin.get(v, v) for v in operands])
        node = Node(fused, inputs, {"body": made}, made.out_types, anchor.where)
        self.twin.update(zip(outputs, node.outputs, strict=True))
        return node


def smaller(body: Fn) -> Fn:
    """A group's nodes in smaller groups, for a body that no kernel takes: without losses, without sums, without the
    moves before the anchor, the anchor alone; in the end without groups."""
    without: list[dict[str, bool]] = [{"sums": False}, {"views": False}]
    without += [{"sums": False, "views": False}, {"alone": True}]
    if sum(kind(n) in ANCHORS for n in body.nodes) > 1:
        without.insert(0, {})
    for options in without:
        made = Fuse(3, losses=False, **options)(Module.of(body)).main
        if max([len(n.attrs["body"].nodes) for n in made.nodes if n.op is fused], default=0) < len(body.nodes):
            return made
    return body
