"""Reads a matrix product out of an IR function: which elements of which inputs are multiplied, and what follows.

`read(body)` finds the one product, follows its operands through transpose, reshape, broadcast, slice and
cast to inputs, and gives every axis its size and strides: a `Problem` with at most one axis of rows (m), of columns
(n) and of sums (k); what cannot be merged into these becomes batch axes. None for what is not of this form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from treadle.base.dtypes import DType, bfloat16, float16, float32
from treadle.ir.node import Fn, Node, Value
from treadle.ops._axes import axes_of
from treadle.ops.casting import cast
from treadle.ops.reduce import broadcast_to
from treadle.ops.shape import reshape, slice_, transpose

_FLOATS = (float32, bfloat16, float16)


@dataclass(frozen=True)
class View:
    """How an input is read: its number, its element type in memory and as multiplied; number of the first element;
    for each axis size and stride in elements."""

    param: int
    dtype: DType
    used_as: DType
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Side:
    """An operand of the product: input number, element types in memory and as multiplied, first element and strides.

    outer: along its rows (left operand) or columns (right operand); inner: along the sum; batch: along the batch axes.
    """

    param: int
    dtype: DType
    used_as: DType
    offset: int
    outer: int
    inner: int
    batch: tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """out[batch, m, n] = sum over k of left[batch, m, k] * right[batch, n, k].

    dims: the axes of the result in memory, from the slowest, as (kind, size) with kind "b", "m" or "n"; the batch axes
    stand in the same order as in `batch`. precision: as the op's attribute. anchor: the product's node.
    """

    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    left: Side
    right: Side
    dims: tuple[tuple[str, int], ...]
    dtype: DType
    precision: str
    anchor: Node

    @property
    def batches(self) -> int:
        """Number of products."""
        total = 1
        for size in self.batch:
            total *= size
        return total

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * self.batches * self.m * self.n * self.k

    def out_strides(self) -> tuple[tuple[int, ...], int, int]:
        """Strides of the result in elements along the batch axes, m and n."""
        step, found = 1, dict[str, list[int]](b=[], m=[], n=[])
        for kind, size in reversed(self.dims):
            found[kind].insert(0, step)
            step *= size
        return tuple(found["b"]), (found["m"] or [0])[0], (found["n"] or [0])[0]


def read(body: Fn, swapped: bool = False, kinds: Sequence[DType] = _FLOATS) -> Problem | None:
    """The product in a function that has exactly one, None if there is another number or one that is not taken.

    swapped: with the second operand on the left, so that rows become columns. kinds: types of operands and results.
    """
    anchors = [n for n in body.nodes if n.op.rules.get("group") == "product"]
    if len(anchors) != 1 or any(True for n in body.nodes for _ in n.regions()):
        return None
    anchor, names = anchors[0], axes_of(anchors[0])
    if anchor.outputs[0].dtype not in kinds or names is None or not anchor.outputs[0].type.size:
        return None
    sides = [_named(body, v, letters, kinds) for v, letters in zip(anchor.inputs, names.ins, strict=True)]
    if sides[0] is None or sides[1] is None:
        return None
    x, y = (sides[1], sides[0]) if swapped else (sides[0], sides[1])
    return _problem(anchor, x, y, names.outs[0])


@dataclass
class _Named:
    """An operand with its axes by name."""

    view: View
    strides: dict[str, int]
    sizes: dict[str, int]


def _named(body: Fn, value: Value, names: Sequence[str], kinds: Sequence[DType]) -> _Named | None:
    view = view_of(body, value, kinds)
    if view is None:
        return None
    return _Named(view, dict(zip(names, view.strides, strict=True)), dict(zip(names, view.sizes, strict=True)))


# ------------------------------------------------------------------------------------------------- operands to inputs
def view_of(body: Fn, value: Value, kinds: Sequence[DType] = _FLOATS) -> View | None:
    """How the value is read from an input, if by index arithmetic and casts alone. kinds: element types that may be."""
    path: list[Node] = []
    now = value
    while now.node is not None:
        if now.node.op not in (transpose, reshape, broadcast_to, slice_, cast):
            return None
        path.append(now.node)
        now = now.node.inputs[0]
    if now.dtype not in kinds or value.dtype not in kinds:
        return None
    types = [now.dtype, *[n.outputs[0].dtype for n in reversed(path) if n.op is cast]]
    if sum(a is not b for a, b in pairwise(types)) > 1:
        return None
    offset, sizes, strides = 0, now.shape, dense(now.shape)
    for node in reversed(path):
        if node.op is slice_:
            offset += sum(a * s for a, s in zip(node.attrs["starts"], strides, strict=True))
        moved = _moved(node, sizes, strides)
        if moved is None:
            return None
        sizes, strides = moved
    return View(body.params.index(now), now.dtype, value.dtype, offset, sizes, strides)


def dense(sizes: Sequence[int]) -> tuple[int, ...]:
    """Strides of a row-major array."""
    strides, step = list[int](), 1
    for size in reversed(sizes):
        strides.insert(0, step)
        step *= size
    return tuple(strides)


_Layout = tuple[tuple[int, ...], tuple[int, ...]]


def _moved(node: Node, sizes: tuple[int, ...], strides: tuple[int, ...]) -> _Layout | None:
    """Sizes and strides after a node that only moves elements."""
    if node.op is transpose:
        perm = node.attrs["perm"]
        return tuple([sizes[p] for p in perm]), tuple([strides[p] for p in perm])
    wanted = node.outputs[0].shape
    if node.op is slice_:
        return wanted, tuple([s * by for s, by in zip(strides, node.attrs["strides"], strict=True)])
    if node.op is broadcast_to:
        skip = len(wanted) - len(sizes)
        kept = [s if n == w else 0 for n, s, w in zip(sizes, strides, wanted[skip:], strict=True)]
        return wanted, (0,) * skip + tuple(kept)
    if node.op is reshape:
        found = _reshaped(sizes, strides, wanted)
        return None if found is None else (wanted, found)
    return sizes, strides


def _reshaped(sizes: tuple[int, ...], strides: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...] | None:
    """Strides of the same elements under other axes, None where they need a copy."""
    if 0 in wanted:
        return dense(wanted)
    old = [(n, s) for n, s in zip(sizes, strides, strict=True) if n != 1]
    made: list[int] = []
    at, left, step = len(old), 1, 0  # what is left of the old axis, or of several that lie one after the other
    for size in reversed(wanted):
        if size == 1:
            made.insert(0, 0)
            continue
        if left == 1:
            at -= 1
            left, step = old[at]
        while size % left == 0 and size > left:  # take the next old axis in, if it continues this one
            whole = left
            at -= 1
            if at < 0 or old[at][1] != step * whole:
                return None
            left *= old[at][0]
        if left % size:
            return None
        made.insert(0, step)
        left, step = left // size, step * size
    return tuple(made)


# --------------------------------------------------------------------------------------------------- letters to axes
def _problem(anchor: Node, x: _Named, y: _Named, out: Sequence[str]) -> Problem | None:
    sizes = {**x.sizes, **y.sizes}
    summed = _merge([c for c in x.sizes if c not in out and sizes[c] != 1], sizes, [x.strides, y.strides])
    if summed is None or len(summed) > 1:
        return None
    groups = _axes(out, sizes, x.strides, y.strides)
    rows = [g for g in groups if g[0] == "m"]
    tall = max(rows, key=lambda g: sizes[g[1]], default=None)
    columns = [g for g in groups if g[0] == "n"]
    wide = columns[-1] if columns else None
    dims = [(kind if (kind, c) in (tall, wide) else "b", c) for kind, c in groups]
    batch = [c for kind, c in dims if kind == "b"]
    k = summed[0] if summed else ""
    left, right = (
        Side(s.view.param, s.view.dtype, s.view.used_as, s.view.offset, s.strides.get(own, 0) if own else 0,
             s.strides.get(k, 1), tuple([s.strides.get(c, 0) for c in batch]))
        for s, own in ((x, tall[1] if tall else ""), (y, wide[1] if wide else ""))
    )  # fmt: skip
    return Problem(
        batch=tuple([sizes[c] for c in batch]), m=sizes[tall[1]] if tall else 1, n=sizes[wide[1]] if wide else 1,
        k=sizes[k] if k else 1, left=left, right=right, dims=tuple([(kind, sizes[c]) for kind, c in dims]),
        dtype=anchor.outputs[0].dtype, precision=anchor.attrs.get("precision", "highest"), anchor=anchor,
    )  # fmt: skip


def _merge(letters: list[str], sizes: dict[str, int], views: list[dict[str, int]]) -> list[str] | None:
    """Letters of sums, those that follow each other in all operands made one (under the name of the last)."""
    left = sorted(letters, key=lambda c: -views[0][c])
    done: list[str] = []
    for c in left:
        if done and all(v[done[-1]] == v[c] * sizes[c] for v in views):
            sizes[c] *= sizes[done.pop()]
        done.append(c)
    return done


def _axes(out: Sequence[str], sizes: dict[str, int], x: dict[str, int], y: dict[str, int]) -> list[tuple[str, str]]:
    """Axes of the result as (kind, letter); neighbours of a kind that are one axis everywhere are merged."""
    done: list[tuple[str, str]] = []
    for c in out:
        if sizes[c] == 1:
            continue
        kind = "b" if c in x and c in y else "m" if c in x else "n"
        if done and done[-1][0] == kind:
            before = done[-1][1]
            if all(v[before] == v[c] * sizes[c] for v in (x, y) if c in v):
                sizes[c] *= sizes[before]
                done.pop()
        done.append((kind, c))
    return done
