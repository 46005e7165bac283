"""Keeps images with their channels last, [N, *spatial, C], where convolutions and what surrounds them work on them.

Users write [N, C, *spatial], and so do the ops. This pass puts transposes around each op that declares which of its
operands and results are images (rule `images`), and carries elementwise nodes, broadcasts and sums over spatial axes to
the same side; so what was between two convolutions has its channels last throughout, and the transposes that remain
stand beside the ops, where transforms/fuse takes them into the kernels. What something else needs is turned back. A
user's own transpose between the two orders costs nothing: what it gives is what the other side has already. A
convolution of single places, from a parameter to a result, needs no other layout: it becomes a product. Nor
does one of images that only the user has, where a kernel takes it along their rows (which the caller knows). Before
that, convolutions over three axes become ones over two (_volumes.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from treadle.base import where
from treadle.base.dtypes import float32
from treadle.ir import build
from treadle.ir.build import Builder
from treadle.ir.node import Fn, Module, Node, Value
from treadle.ir.rewrite import map_fns, note
from treadle.ir.types import TensorType
from treadle.ops.convolution import conv, conv_input_grad
from treadle.ops.creation import full
from treadle.ops.products import contract
from treadle.ops.reduce import broadcast_to, reduce_mean, reduce_sum
from treadle.ops.shape import reshape, transpose
from treadle.transforms._volumes import as_planes
from treadle.transforms.dce import remove_dead
from treadle.transforms.fuse import convolves, expanded, kind
from treadle.transforms.pipeline import Pass

LEAST_PLACES = 512  # of an image: the products of fewer are slower than convolutions
Takes = Callable[[Node], bool]


@dataclass(frozen=True)
class Layout(Pass):
    """Channels last, in functions (regions are left alone) that have a convolution; exact but for the order of sums.
    small: also where the convolutions are too little work for kernels."""

    small: bool = False

    def __call__(self, module: Module, takes: Takes = lambda node: False) -> Module:
        """takes: whether a kernel takes a node along the rows of images as users have them."""

        def change(fn: Fn) -> Fn:
            return _Turner(as_planes(expanded(fn)), module, takes).run() if self._turns(fn, module) else fn

        return map_fns(module, change)

    def _turns(self, fn: Fn, module: Module) -> bool:
        return convolves(fn, module) or (self.small and any("images" in n.op.rules for n in fn.nodes))


def to_last(rank: int) -> tuple[int, ...]:
    """The permutation that puts axis 1 last."""
    return (0, *range(2, rank), 1)


def to_second(rank: int) -> tuple[int, ...]:
    """The permutation that puts the last axis at 1."""
    return (0, rank - 1, *range(1, rank - 1))


class _Turner:
    """Writes a function again. `first` and `last`: the new values that stand for an old one, as it was and turned."""

    def __init__(self, fn: Fn, module: Module, takes: Takes) -> None:
        self.fn, self.module, self.takes = fn, module, takes
        self.first: dict[Value, Value] = {p: p for p in fn.params}
        self.last: dict[Value, Value] = {}
        self.read = {v for node in fn.nodes for v in node.inputs}

    def run(self) -> Fn:
        """The new function, without what is not needed any more."""
        with Builder(self.fn.name) as builder:
            builder.params = list(self.fn.params)
            for node in self.fn.nodes:
                with where.at(node.where):
                    self._node(node)
            made = builder.finish([self._first(o) for o in self.fn.outputs])
        return remove_dead(made, self.module.fns)

    def _node(self, node: Node) -> None:
        if node.op in (conv, conv_input_grad) and self._is_product(node):
            self._product(node)
        elif "images" in node.op.rules and node.inputs[0].ndim > 2 and not self._stays(node):
            self._images(node)
        elif node.op is transpose and node.inputs[0].ndim > 3 and self._between(node):
            note("transposes of users' left out")
        elif self._follows(node):
            self._turned(node)
        elif node.op in (reduce_sum, reduce_mean) and self._over_space(node):
            axes = tuple([node.inputs[0].ndim - 1 if a == 1 else max(a - 1, 0) for a in node.attrs["axes"]])
            self.first[node.outputs[0]] = node.op(self.last[node.inputs[0]], axes=tuple(sorted(axes)))
        else:
            self.first.update(
                zip(node.outputs, build.emit(node, tuple([self._first(v) for v in node.inputs])), strict=True)
            )

    def _between(self, node: Node) -> bool:
        """Take a user's transpose from one order to the other, whose result is there, for done; whether it is one."""
        (x,), (out,), rank = node.inputs, node.outputs, node.inputs[0].ndim
        if node.attrs["perm"] == to_second(rank):
            self.last[out] = self._first(x)
        elif node.attrs["perm"] == to_last(rank) and x in self.last:
            self.first[out] = self.last[x]
        else:
            return False
        return True

    def _images(self, node: Node) -> None:
        """Transposes around an op that takes or gives images."""
        ins, outs = node.op.rules["images"]
        rank = node.inputs[0].ndim
        inputs = [
            transpose(self._last(v), perm=to_second(rank)) if i in ins else self._first(v)
            for i, v in enumerate(node.inputs)
        ]
        for i, (old, new) in enumerate(zip(node.outputs, build.emit(node, tuple(inputs)), strict=True)):
            if i in outs:
                self.last[old] = transpose(new, perm=to_last(rank))
            else:
                self.first[old] = new
        note(f"{node.op.name} turned")

    def _stays(self, node: Node) -> bool:
        """Whether only the user has the images of an op that a kernel takes along their rows."""
        ins, outs = node.op.rules["images"]
        others = any(node.inputs[i].node is not None for i in ins) or any(node.outputs[i] in self.read for i in outs)
        return not others and self.takes(node)

    def _is_product(self, node: Node) -> bool:
        """Whether a convolution takes one place to one place, and only the user has its images. (float32: XLA on CPUs
        refuses some of these products of bfloat16, should no kernel take one.)"""
        x, w, attrs = *node.inputs, node.attrs
        single = attrs["groups"] == 1 and prod(w.shape[2:]) == 1
        still = all(s == 1 for s in attrs["stride"]) and not any(n for pair in attrs["padding"] for n in pair)
        alone = x.node is None and node.outputs[0] not in self.read
        return single and still and alone and x.dtype is float32 and prod(x.shape[2:]) >= LEAST_PLACES

    def _product(self, node: Node) -> None:
        """out[n] = w x[n], with the places of an image as columns."""
        x, w = [self._first(v) for v in node.inputs]
        flat, matrix = reshape(x, shape=(*x.shape[:2], prod(x.shape[2:]))), reshape(w, shape=w.shape[:2])
        level = {"precision": node.attrs["precision"]} if "precision" in node.attrs else {}
        made = contract(matrix, flat, spec="oc,ncs->nos" if node.op is conv else "oc,nos->ncs", **level)
        self.first[node.outputs[0]] = reshape(made, shape=node.outputs[0].shape)
        note(f"{node.op.name} as a product")

    def _follows(self, node: Node) -> bool:
        """Whether an elementwise node has an operand that is turned already."""
        if len(node.outputs) != 1 or kind(node) != "elementwise" or node.outputs[0].ndim < 3:
            return False
        return any(v in self.last for v in node.inputs)

    def _turned(self, node: Node) -> None:
        inputs = tuple([self._last(v) for v in node.inputs])
        made = Node(node.op, inputs, node.attrs, (_type(node.outputs[0]),), node.where)
        build.current().nodes.append(made)
        self.last[node.outputs[0]] = made.outputs[0]

    def _over_space(self, node: Node) -> bool:
        axes, x = node.attrs["axes"], node.inputs[0]
        return x in self.last and x not in self.first and set(range(2, x.ndim)) <= set(axes)

    def _first(self, v: Value) -> Value:
        """The value as it was."""
        if v not in self.first:
            self.first[v] = transpose(self.last[v], perm=to_second(v.ndim))
        return self.first[v]

    def _last(self, v: Value) -> Value:
        """The value with its channels last."""
        if v not in self.last:
            self.last[v] = self._made_last(v)
        return self.last[v]

    def _made_last(self, v: Value) -> Value:
        shape = _type(v).shape
        if v.node is not None and v.node.op is full:
            made: Value = full(value=v.node.attrs["value"], shape=shape, dtype=v.dtype)
            return made
        if v.node is not None and v.node.op is broadcast_to:
            x = self._first(v.node.inputs[0])
            whole = reshape(x, shape=(1,) * (v.ndim - x.ndim) + x.shape)
            spread: Value = broadcast_to(transpose(whole, perm=to_last(v.ndim)), shape=shape)
            return spread
        turned: Value = transpose(self._first(v), perm=to_last(v.ndim))
        return turned


def _type(v: Value) -> TensorType:
    """The type of a value that is turned."""
    return v.type.with_shape(tuple([v.shape[i] for i in to_last(v.ndim)]))
