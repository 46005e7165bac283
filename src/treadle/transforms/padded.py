"""Padding made exact, function to function: one program at the bucket's sizes that computes what the function computes
at any smaller sizes.

The same Python function is traced at several points (sizes of the dimensions); the traces are read side by side, node
by node. Point 0 is the bucket, whose shapes the program has; point 1 is the call at hand, whose numbers it uses: a
number or literal that differs between the points becomes an input (`Extra`) with its value at point 1. The other points
vary one dimension each, so that it shows which sizes come from which dimension. Whatever cannot be told apart for sure
is refused (E0260, E0261); nothing is guessed.

What stands in the padding of a value may be anything, NaN included. Where an op would let it into a result, it is
replaced first: by the op's `padded` rule, by zeros in sums and products, or in the op's expansion.

A `padded` rule is rule(run, group) -> [(value, axes), ...], or NotImplemented to go on as without it. `run` is the
`Padding`, `group` the node at all points with its padded operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from treadle.base import where
from treadle.base.dtypes import DType, int32
from treadle.base.errors import UserError, internal_error
from treadle.ir.build import Builder, emit
from treadle.ir.interp import expansion
from treadle.ir.node import Attrs, Fn, Node, Value, attr_key, same_attrs
from treadle.ir.op import get
from treadle.ir.types import TensorType
from treadle.ops._axes import axes_of


@dataclass(frozen=True)
class Dim:
    """`offset` more than the size of a named dimension."""

    name: str
    offset: int = 0


# A padded axis: its factors, the last running fastest; None for an axis without padding.
Axis = tuple[int | Dim, ...] | None
Axes = tuple[Axis, ...]
Point = Mapping[str, int]
Fill = Callable[[DType], Any]
Env = dict[Value, list["Item"]]
SCALAR = TensorType(int32, ())


@dataclass(frozen=True, eq=False)
class Item:
    """A value of the new function, and which of its axes are padded."""

    new: Value
    axes: Axes

    @property
    def padded(self) -> bool:
        return any(a is not None for a in self.axes)


@dataclass(frozen=True)
class Extra:
    """An input that the sizes decide: a number or literal of the trace at the real sizes, not padded yet."""

    type: TensorType
    axes: Axes
    array: np.ndarray[Any, Any]


@dataclass
class Scope:
    """What is at hand in one body: the real sizes (i32), the extras so far, masks and masked values made before."""

    sizes: dict[str, Value]
    extras: list[tuple[Extra, Value]] = field(default_factory=list)
    made: dict[Any, Value] = field(default_factory=dict)
    items: dict[Any, list[Item]] = field(default_factory=dict)


@dataclass(frozen=True)
class Body:
    """A function read at all points: its parameters, what it takes beside them, its results."""

    name: str
    params: list[Value]
    scope: Scope
    nodes: tuple[Node, ...]
    outputs: list[Item]

    def close(self, at: int, extras: Sequence[tuple[Extra, Value]]) -> Fn:
        """The function with the sizes and `extras` (its own and those of others) as parameters from position `at`."""
        own = {id(v) for _, v in self.scope.extras}
        more = [v if id(v) in own else Value(v.type) for _, v in extras]
        params = [*self.params[:at], *self.scope.sizes.values(), *more, *self.params[at:]]
        return Fn(self.name, tuple(params), self.nodes, tuple([o.new for o in self.outputs]))


@dataclass(frozen=True)
class Group:
    """One node at all points, and its operands in the new function."""

    nodes: tuple[Node, ...]
    items: tuple[Item, ...]

    @property
    def attrs(self) -> Attrs:
        return self.nodes[0].attrs

    @property
    def place(self) -> where.Where:
        return self.nodes[0].where

    def each(self, name: str) -> list[Any]:
        """An attribute at all points."""
        return [n.attrs[name] for n in self.nodes]

    def same(self, name: str) -> bool:
        """Whether an attribute is equal at all points."""
        return all(same_attrs({name: n.attrs[name]}, {name: self.attrs[name]}) for n in self.nodes)


Results = list[tuple[Value, Axes]]


@dataclass(frozen=True)
class Padded:
    """The new function: parameters are the arguments, the sizes, the extras, the captured values."""

    fn: Fn
    extras: tuple[Extra, ...]
    out_axes: tuple[Axes, ...]


def pad_fn(
    fns: Sequence[Fn], tables: Sequence[Mapping[str, Fn]], points: Sequence[Point], axes: Sequence[Axes]
) -> Padded:
    """The function traced at `points` as one program. axes: those of the arguments, which are the first parameters;
    `tables` are the functions that each trace calls.

    Raises E0260 for an op that cannot take padding there, E0261 where the traces differ in more than sizes.
    """
    run = Padding(tuple(points), tuple(tables))
    plain: list[Axes] = [(None,) * p.type.rank for p in fns[0].params[len(axes) :]]
    body = run.body(fns, [*axes, *plain], masked=True)
    fn = body.close(len(axes), body.scope.extras)
    extras = tuple([e for e, _ in body.scope.extras])
    return Padded(Fn(fns[0].name, fn.params, fn.nodes, fn.outputs), extras, tuple([o.axes for o in body.outputs]))


class Padding:
    """One reading of the traces at all points."""

    def __init__(self, points: tuple[Point, ...], tables: tuple[Mapping[str, Fn], ...]) -> None:
        self.points, self.tables = points, tables
        self.scope = Scope({})
        self.calling: list[str] = []
        self._merged: dict[tuple[int, ...], Axis] = {}

    # ---------------------------------------------------------------------------------------------------- reading
    def body(self, fns: Sequence[Fn], axes: Sequence[Axes], masked: bool = False) -> Body:
        """A function at all points, read in a scope of its own. masked: with zeros in the padding of its results."""
        outer = self.scope
        with Builder(fns[0].name) as b:
            params = [b.param(t) for t in fns[0].in_types]
            self.scope = scope = Scope({name: Value(SCALAR) for name in self.points[0]})
            try:
                outputs = self.replay(fns, [Item(p, a) for p, a in zip(params, axes, strict=True)])
                if masked:
                    outputs = [Item(self.mask(o, range(len(o.axes)), _zero), o.axes) for o in outputs]
            finally:
                self.scope = outer
        return Body(fns[0].name, params, scope, tuple(b.nodes), outputs)

    def close(self, bodies: Sequence[Body], at: int) -> tuple[list[Fn], list[Value]]:
        """The bodies as functions with equal parameters; and the operands for those inserted at `at`."""
        extras = [pair for body in bodies for pair in body.scope.extras]
        operands = [*self.scope.sizes.values(), *[self.extra(e.type, e.axes, e.array) for e, _ in extras]]
        return [body.close(at, extras) for body in bodies], operands

    def replay(self, fns: Sequence[Fn], items: Sequence[Item]) -> list[Item]:
        """What stands for the outputs of a function, appended to the function being built."""
        kinds = [[(t.dtype, t.rank) for t in fn.in_types] for fn in fns]
        if any(kind != kinds[0] for kind in kinds):
            self.differ(*fns[0].nodes[:1])
        env = [{p: [i] for p, i in zip(fn.params, items, strict=True)} for fn in fns]
        rest = [list(fn.nodes) for fn in fns]
        for each in rest:
            each.reverse()
        while any(rest):
            nodes = [each[-1] if each else None for each in rest]
            missing: list[bool] = []
            if len({n and n.op for n in nodes}) > 1:
                nodes, missing = self._completed(nodes, rest, env)
            group = self._group([n for n in nodes if n is not None], env)
            with where.at(where.here() if group.place is where.UNKNOWN else group.place):
                found = self._read(group, lined_up=any(missing))
            for k, node in enumerate(group.nodes):
                if missing and missing[k]:
                    env[k][node.inputs[0] if node.inputs else node.outputs[0]] = [
                        *(env[k][node.inputs[0]] if node.inputs else []),
                        found[0],
                    ]
                else:
                    rest[k].pop()
                    env[k].update((o, [i]) for o, i in zip(node.outputs, found, strict=True))
        return self._common([[env[k][o] for o in fn.outputs] for k, fn in enumerate(fns)], fns[0].nodes[-1:])

    def _completed(
        self, nodes: Sequence[Node | None], rest: Sequence[list[Node]], env: Sequence[Env]
    ) -> tuple[list[Node | None], list[bool]]:
        """The nodes, where some traces lack one that does nothing there (x[:n] of n elements), with that one added; and
        where that is so. Its first operand stands for its result, too. What such a node takes beside that (the 0 of a
        `pad`) is lacking with it, and is added as a node without use."""
        for first in nodes:
            missing = [n is None or first is None or n.op is not first.op for n in nodes]
            if first is None or not _may_lack(first):
                continue
            k = missing.index(False)
            others = {n and n.op for n, m in zip(nodes, missing, strict=True) if m}
            ahead = [n.op for n in rest[k][-2 : -2 - _AHEAD : -1]]
            idle = [_may_lack(n) for n in rest[k][-2 : -2 - _AHEAD : -1]]
            reach = next((i for i, op in enumerate(ahead) if {op} == others), None)
            if len(others) > 1 or (None not in others and (reach is None or not all(idle[:reach]))):
                continue
            done: list[Node | None] = []
            for n, m, each in zip(nodes, missing, env, strict=True):
                done.append(self._idle(first, env[k], each) if m else n)
            if None not in done:
                return done, missing
        self.differ(*[n for n in nodes if n is not None][:1])

    def _idle(self, node: Node, there: Env, here: Env) -> Node | None:
        """`node` of another trace as one that does nothing in this one; None where its operands are not there."""
        operands = []
        for v in node.inputs:
            found = [w for item in there[v] for w, items in here.items() if item in items]
            if not found:
                return None
            operands.append(found[0])
        attrs = node.op.rules["padded"].identity(operands[0].type) if operands else node.attrs
        types = (operands[0].type,) if operands else tuple([o.type for o in node.outputs])
        return Node(node.op, tuple(operands), attrs, types, node.where)

    def _group(self, nodes: Sequence[Node], env: Sequence[Env]) -> Group:
        first = nodes[0]
        kinds = [(n.op, [(o.type.dtype, o.type.rank) for o in n.outputs]) for n in nodes]
        if any(kind != kinds[0] for kind in kinds):
            self.differ(first)
        inputs = self._common([[each[v] for v in n.inputs] for n, each in zip(nodes, env, strict=True)], [first])
        return Group(tuple(nodes), tuple(inputs))

    def _common(self, inputs: Sequence[Sequence[list[Item]]], nodes: Sequence[Node]) -> list[Item]:
        """The operands that all points agree on: a value may stand for several items at a point, not at all."""
        if len({len(i) for i in inputs}) > 1:
            self.differ(*nodes)
        found = []
        for each in zip(*inputs, strict=True):
            both = [i for i in each[0] if all(i in other for other in each[1:])]
            if not both:
                self.differ(*nodes)
            found.append(both[-1])
        return found

    def _read(self, group: Group, lined_up: bool) -> list[Item]:
        """What stands for the results of a node. Equal constants are one item: traces that lack one line up again."""
        node = group.nodes[0]
        if lined_up and group.items:
            try:
                return self._checked(group, self._visit(group))
            except UserError:  # it does do something in the traces that lack it
                self.differ(node)
        key = ("constant", node.op, tuple([(k, attr_key(v)) for n in group.nodes for k, v in sorted(n.attrs.items())]))
        if group.items or node.op.rules.get("effect"):
            return self._checked(group, self._visit(group))
        if key not in self.scope.items:
            self.scope.items[key] = self._checked(group, self._visit(group))
        return self.scope.items[key]

    def _visit(self, group: Group) -> Results:
        node = group.nodes[0]
        rules = node.op.rules
        same = not node.op.has_regions and all(same_attrs(n.attrs, node.attrs) for n in group.nodes)
        if same and not any(i.padded for i in group.items) and self._fixed(group):
            return self.results(group, emit(node, tuple([i.new for i in group.items])), {})
        rule = rules.get("padded")
        if rule and all(a in getattr(rule, "varies", ()) or group.same(a) for a in group.attrs):
            found: Results = rule(self, group)
            if found is not NotImplemented:
                return found
        elif not rule and same and not rules.get("effect"):
            found = self.emit(group, _zero if rules.get("jvp") in ("linear", "multilinear") else None, whole=False)
            if found is not NotImplemented:
                return found
        if rules.get("expand"):
            fns = [expansion(n.op, tuple([v.type for v in n.inputs]), n.attrs) for n in group.nodes]
            return [(i.new, i.axes) for i in self.replay(fns, group.items)]
        if rule:
            self.differ(node)
        differs = rules.get("effect") and not any(i.padded for i in group.items)
        return self.refuse(group, "acts on a size" if differs else "needs that axis whole")

    def _fixed(self, group: Group) -> bool:
        types = [[o.type for o in n.outputs] for n in group.nodes]
        return all(t == types[0] for t in types)

    def _checked(self, group: Group, results: Results) -> list[Item]:
        """The results as items, if they have the right sizes at all points."""
        for j, (new, axes) in enumerate(results):
            for k, node in enumerate(group.nodes):
                wanted, plain = node.outputs[j].type.shape, group.nodes[0].outputs[j].type.shape
                sizes = tuple([n if a is None else self.extent(a, k) for n, a in zip(plain, axes, strict=True)])
                if sizes != wanted:
                    self.refuse(group, f"gives sizes {list(wanted)} that do not follow from those of its operands")
            if new.type != group.nodes[0].outputs[j].type:
                internal_error(f"padded {group.nodes[0].op.name} is {new.type}, not {group.nodes[0].outputs[j].type}")
        return [Item(new, axes) for new, axes in results]

    # ------------------------------------------------------------------------------------------- what rules use
    def emit(self, group: Group, fill: Fill | None, *, whole: bool = True, places: bool = False) -> Any:
        """The node itself at the bucket's sizes. By its axes rule, padded axes pass through or are cut: summed, or
        needed whole. `fill` gives what is put into the padding of cut axes; without it, or for axes needed
        whole unless `whole`, NotImplemented. places: see `single`."""
        node = group.nodes[0]
        names = axes_of(node)
        if names is None:
            if any(i.padded for i in group.items):
                return NotImplemented
            return self.results(group, emit(node, tuple([i.new for i in group.items])), {})
        some = {n for each in names.outs for n in each} - names.whole - {"1"}
        kept = {n for n in some if all(n in each for each in names.outs)}  # the others are summed in a result
        seen: dict[str, Axis] = {}
        inputs = []
        for item, each in zip(group.items, names.ins, strict=True):
            cut = []
            for i, (axis, name) in enumerate(zip(item.axes, each, strict=True)):
                if name in some and seen.setdefault(name, axis) != axis:
                    self.refuse(group, "joins axes that are padded in different ways")
                if name not in kept and axis is not None:
                    cut.append(i)
                    if places:
                        self.single(group, axis)
                    if name in names.whole and not whole:
                        return NotImplemented
            if cut and fill is None:
                return NotImplemented
            inputs.append(self.mask(item, cut, fill) if cut and fill is not None else item.new)
        known = {(j, i): seen[n] for j, each in enumerate(names.outs) for i, n in enumerate(each) if n in seen}
        return self.results(group, emit(node, tuple(inputs)), known)

    def results(self, group: Group, values: Sequence[Value], known: Mapping[tuple[int, int], Axis]) -> Results:
        """The results with their axes: the known ones by (result, axis), the others by their sizes at all points."""
        found: Results = []
        for j, value in enumerate(values):
            rank = group.nodes[0].outputs[j].type.rank
            axes = [known[j, i] if (j, i) in known else self.classify(group, j, i) for i in range(rank)]
            found.append((value, tuple(axes)))
        return found

    def classify(self, group: Group, result: int, axis: int) -> Axis:
        """How an axis of a result depends on the dimensions, from its size at all points."""
        sizes = [n.outputs[result].type.shape[axis] for n in group.nodes]
        if len(set(sizes)) == 1:
            return None
        for name in self.points[0]:
            offsets = {s - p[name] for s, p in zip(sizes, self.points, strict=True)}
            if len(offsets) == 1:
                return (Dim(name, offsets.pop()),)
        merged = self._merged.get(tuple(sizes))
        if merged is None:
            self.refuse(group, f"makes an axis of size {sizes[1]}, which is no dimension, nor one more or less a fixed")
        return merged

    def merge(self, axis: tuple[int | Dim, ...]) -> Axis:
        """A padded axis of several factors; other axes of its sizes are taken to be the same, if no two differ."""
        if len(axis) > 1:
            sizes = tuple([self.extent(axis, k) for k in range(len(self.points))])
            if self._merged.setdefault(sizes, axis) != axis:
                self._merged[sizes] = None
        return axis

    def extent(self, axis: Axis, point: int) -> int:
        """The size of a padded axis at a point."""
        assert axis is not None
        return math.prod(f if isinstance(f, int) else self.points[point][f.name] + f.offset for f in axis)

    def count(self, axis: Axis) -> Value:
        """The real size of an axis that is one dimension, as i32[]. Raises E0260 for merged axes."""
        assert axis is not None
        (factor,) = axis
        assert isinstance(factor, Dim)
        size = self.scope.sizes[factor.name]
        return size if not factor.offset else get("add")(size, factor.offset)

    def single(self, group: Group, axis: Axis) -> bool:
        """Whether an axis is one dimension (True) or not padded (False). Raises E0260 for axes merged into one."""
        if axis is not None and len(axis) > 1:
            self.refuse(group, "looks at places of an axis that was made of several by a reshape")
        return axis is not None

    def extra(self, type: TensorType, axes: Axes, array: Any) -> Value:
        """An input with these numbers, those of point 1."""
        value = Value(type)
        self.scope.extras.append((Extra(type, axes, np.asarray(array, type.dtype.np)), value))
        return value

    def number(self, value: Any, dtype: DType) -> Value:
        """A 0-d input."""
        return self.extra(TensorType(dtype, ()), (), value)

    def mask(self, item: Item, cut: Sequence[int], fill: Fill | Value) -> Value:
        """The value with `fill` in the padding along the axes `cut`."""
        x = item.new
        cut = [i for i in cut if item.axes[i] is not None]
        with_fill = fill if isinstance(fill, Value) else fill(x.dtype)
        key = ("masked", x, tuple(cut), id(with_fill) if isinstance(with_fill, Value) else repr(with_fill))
        if not cut:
            return x
        if key not in self.scope.made:
            keep = None
            for i in cut:
                line = get("reshape")(self.places(item.axes[i]), shape=_line(x.shape, i))
                here = get("broadcast_to")(line, shape=x.shape)
                keep = here if keep is None else get("logical_and")(keep, here)
            if not isinstance(with_fill, Value):
                with_fill = get("full")(value=with_fill, shape=(), dtype=x.dtype)
            spread = get("broadcast_to")(with_fill, shape=x.shape)
            self.scope.made[key] = get("select")(keep, x, spread)
        return self.scope.made[key]

    def places(self, axis: Axis) -> Value:
        """Which places of a padded axis are real: bool[size]."""
        assert axis is not None
        if axis not in self.scope.made:
            shape = tuple([f if isinstance(f, int) else self.points[0][f.name] + f.offset for f in axis])
            keep = None
            for i, f in enumerate(axis):
                if isinstance(f, Dim):
                    limit = get("broadcast_to")(self.count((f,)), shape=shape)
                    here = get("less")(get("iota")(shape=shape, axis=i, dtype=int32), limit)
                    keep = here if keep is None else get("logical_and")(keep, here)
            self.scope.made[axis] = get("reshape")(keep, shape=(math.prod(shape),))
        return self.scope.made[axis]

    # ------------------------------------------------------------------------------------------------ refusals
    def refuse(self, group: Group, why: str) -> NoReturn:
        """Raise E0260 for the op of this group."""
        node = group.nodes[0]
        names = sorted({f.name for i in group.items for a in i.axes if a for f in a if isinstance(f, Dim)})
        over = f" over {' and '.join(names)}" if names else ""
        raise UserError(
            "E0260",
            f"{node.op.name}{over} {why}, so it cannot be padded",
            fix="rewrite that line (docs/dynamic-shapes.md), or leave the dimension out of dynamic=",
            where=None if node.where is where.UNKNOWN else node.where,  # of an expansion: where the op stands
        )

    def differ(self, node: Node | None = None) -> NoReturn:
        """Raise E0261: the function is not the same at all points from this node on."""
        sizes = " and ".join(str(dict(p)) for p in self.points[:2])
        raise UserError(
            "E0261",
            f"the function does other things at other sizes (traced at {sizes})",
            fix="do not branch or loop in Python on a dynamic size: use td.where, td.scan or a loop over a tensor",
            where=None if node is None or node.where is where.UNKNOWN else node.where,
        )


_AHEAD = 4  # nodes to look ahead for where traces meet again


def _may_lack(node: Node) -> bool:
    """Whether a trace may be without the node where it does nothing: what has no operands, or an identity."""
    rule = node.op.rules.get("padded")
    return rule is not None and (not node.inputs or hasattr(rule, "identity"))


def _zero(dtype: DType) -> Any:
    return False if dtype.kind == "b" else 0


def _line(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return tuple([n if i == axis else 1 for i, n in enumerate(shape)])


def _factors(shape: Sequence[int], axes: Axes, sizes: Point) -> list[int]:
    parts = [axis or (n,) for n, axis in zip(shape, axes, strict=True)]
    return [f if isinstance(f, int) else sizes[f.name] + f.offset for part in parts for f in part]


def widened(array: np.ndarray[Any, Any], axes: Axes, real: Point, bucket: Point) -> np.ndarray[Any, Any]:
    """An array of the real sizes with zeros up to those of the bucket."""
    small, large = (_factors(array.shape, axes, p) for p in (real, bucket))
    out = np.zeros(large, array.dtype)
    out[tuple([slice(n) for n in small])] = array.reshape(small)
    return out.reshape(outer_shape(array.shape, axes, bucket))


def narrowed(array: np.ndarray[Any, Any], axes: Axes, real: Point, bucket: Point) -> np.ndarray[Any, Any]:
    """The part of an array of the bucket's sizes that is real (a copy)."""
    small, large = (_factors(array.shape, axes, p) for p in (real, bucket))
    part = array.reshape(large)[tuple([slice(n) for n in small])]
    return part.reshape(outer_shape(array.shape, axes, real)).copy()


def outer_shape(shape: Sequence[int], axes: Axes, sizes: Point) -> tuple[int, ...]:
    """A shape with its padded axes at these sizes."""
    return tuple([math.prod(_factors((n,), (axis,), sizes)) for n, axis in zip(shape, axes, strict=True)])
