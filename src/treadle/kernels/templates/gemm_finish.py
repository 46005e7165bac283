"""What becomes of a product before it is stored: the nodes around it as formulas over the result's axes.

`read(body, problem)` follows every output of the body back to the product through elementwise nodes, and through
transposes and reshapes, which only change where an element lies. An axis that such a node (or a broadcast operand)
divides is divided everywhere. None if an output is of another form, has no vector code, or would not be written along
its rows. `Store` writes the code that finishes a tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from treadle.base.dtypes import bfloat16, float16, float32
from treadle.formula.expr import Axis, Expr, Placeholder, Source, call, const
from treadle.formula.expr import read as read_at
from treadle.ir.node import Fn, Node, Value
from treadle.ir.types import TensorType
from treadle.kernels import llvm, vmath
from treadle.kernels.expr import Emitter, lowered, refuses, rounded_late
from treadle.kernels.llvm import Function, Module
from treadle.kernels.microkernels import Isa, Tile, first_lanes
from treadle.kernels.target import Target
from treadle.kernels.templates.gemm_problem import Problem, dense
from treadle.kernels.templates.gemm_sums import Totals, store_first, store_some
from treadle.kernels.templates.gemm_tile import Place
from treadle.ops.creation import constant, full
from treadle.ops.reduce import broadcast_to, reduce_sum
from treadle.ops.shape import reshape, transpose

_LINE = 64  # bytes
_ROUNDS = 8  # of dividing axes
_SUMMED = (float32, bfloat16, float16)


class _Divide(Exception):
    """An axis has to be two: its inner part of this size."""

    def __init__(self, axis: Axis, inner: int) -> None:
        self.axis, self.inner = axis, inner


class _Refuse(Exception):
    """The body is not of this form."""


@dataclass(frozen=True)
class Output:
    """One output: its formula, its axes from the slowest, its number among the kernel's buffers.

    summed: the formula is summed over all axes but those of the columns, which are its own.
    """

    expr: Expr
    axes: tuple[Axis, ...]
    buffer: int
    summed: bool = False


@dataclass
class Finish:
    """The formulas of all outputs. axes: what the axes of the result, by kind, are divided into ("b": of each batch
    axis); product: stands for the product's element; operands: inputs that are read, by buffer and shape."""

    problem: Problem
    axes: dict[str, list[list[Axis]]]
    product: Placeholder
    outputs: list[Output] = field(default_factory=list)
    operands: dict[tuple[int, tuple[int, ...]], Placeholder] = field(default_factory=dict)

    @property
    def along(self) -> Axis:
        """The axis of the vectors."""
        return self.axes["n"][0][-1]

    @property
    def is_plain(self) -> bool:
        """Whether the sums go to one output as they are, but for rounding to its type."""
        only = self.outputs[0]
        divided = any(len(parts) > 1 for kind in self.axes.values() for parts in kind)
        return len(self.outputs) == 1 and only.expr is self._sum() and not divided and not only.summed

    def _sum(self) -> Expr:
        return read_at(self.product)

    def width_divides(self) -> int:
        """Tiles must not be wider than what divides this; 0: any width."""
        return self.along.extent if len(self.axes["n"][0]) > 1 else 0

    def aliases(self) -> tuple[tuple[int, int], ...]:
        """(output, input) pairs that may share memory: the input is read at the output's own places only."""
        found = []
        used = {self.problem.left.param, self.problem.right.param}
        for i, out in enumerate(self.outputs):
            for (buffer, shape), source in self.operands.items():
                same = shape == tuple([a.extent for a in out.axes]) and source.type.dtype is out.expr.dtype
                same = same and not out.summed
                alone = sum(b == buffer for b, _ in self.operands) == 1 and buffer not in used
                if same and alone and all(r == out.axes for r in self._places[source]):
                    used.add(buffer)
                    found.append((i, buffer))
                    break
        return tuple(found)

    def read_at(self) -> list[tuple[Placeholder, tuple[Axis, ...]]]:
        """The operands that are read, and by which axes."""
        return [(source, axes) for source, found in self._places.items() for axes in found]

    _places: dict[Placeholder, list[tuple[Axis, ...]]] = field(default_factory=dict)


def read(body: Fn, problem: Problem) -> Finish | None:
    """The formulas of a body, None if it is not of this form."""
    axes: dict[str, list[list[Axis]]] = {"b": [], "m": [], "n": []}
    for kind, size in problem.dims:
        axes[kind].append([Axis(kind, size)])
    for kind in "mn":
        axes[kind] = axes[kind] or [[Axis(kind, 1)]]
    for _ in range(_ROUNDS):
        try:
            return _Reader(body, problem, axes).run()
        except _Divide as need:
            axes = {kind: [_divided(parts, need) for parts in groups] for kind, groups in axes.items()}
        except _Refuse:
            return None
    return None


def _divided(parts: list[Axis], need: _Divide) -> list[Axis]:
    found: list[Axis] = []
    for axis in parts:
        if axis is need.axis:
            outer = axis.extent // need.inner
            found += [Axis(axis.name, outer), Axis(axis.name, need.inner)]
        else:
            found.append(axis)
    return found


class _Reader:
    """One attempt with axes as they are divided so far."""

    def __init__(self, body: Fn, problem: Problem, axes: dict[str, list[list[Axis]]]) -> None:
        self.body, self.anchor = body, problem.anchor.outputs[0]
        self.finish = Finish(problem, axes, Placeholder("product", TensorType(problem.dtype, ())))
        kinds = {kind: iter(groups) for kind, groups in axes.items()}
        order = [a for kind, _ in problem.dims for a in next(kinds[kind])]
        self.axes: dict[Value, tuple[Axis, ...]] = {self.anchor: tuple(order)}  # of values that depend on the product
        self.sums: dict[Value, Value] = {}  # of what they are sums

    def run(self) -> Finish:
        for node in self.body.nodes:
            self._follow(node)
        for i, out in enumerate(self.body.outputs):
            value, buffer = self.sums.get(out, out), len(self.body.params) + i
            if value not in self.axes:
                raise _Refuse
            expr = rounded_late(lowered(self._expr(value, self.axes[value])))
            own = tuple(self.finish.axes["n"][0]) if out in self.sums else self.axes[out]
            self.finish.outputs.append(Output(expr, own, buffer, out in self.sums))
        if refuses([o.expr for o in self.finish.outputs]):
            raise _Refuse
        along = self.finish.along
        for out_ in self.finish.outputs:
            if along.extent > 1 and (not out_.axes or out_.axes[-1] is not along):
                raise _Refuse
        return self.finish

    def _follow(self, node: Node) -> None:
        """Where the elements of a node lie that depends on the product."""
        before = [self.axes[v] for v in node.inputs if v in self.axes]
        if not before:
            return
        if node.op is transpose:
            parts = cut(before[0], node.inputs[0].shape)
            self.axes[node.outputs[0]] = tuple([a for p in node.attrs["perm"] for a in parts[p]])
        elif node.op is reduce_sum:
            self._sum(node)
        elif node.op is reshape or _is_elementwise(node):
            self.axes.update(dict.fromkeys(node.outputs, before[0]))
        else:
            raise _Refuse

    def _sum(self, node: Node) -> None:
        """A sum over all rows: of floats, and over all axes but those of the columns."""
        of = node.inputs[0]
        parts = cut(self.axes[of], of.shape)
        kept = [a for i, part in enumerate(parts) if i not in node.attrs["axes"] for a in part]
        if kept != [a for a in self.finish.axes["n"][0] if a.extent > 1] or of.dtype not in _SUMMED:
            raise _Refuse
        self.sums[node.outputs[0]] = of

    def _expr(self, value: Value, axes: tuple[Axis, ...]) -> Expr:
        """The element of a value whose axes (those of size 1 left out) are these."""
        if value is self.anchor:
            if axes != self.axes[value]:
                raise _Refuse
            return read_at(self.finish.product)
        node = value.node
        if node is None:
            return self._operand(value, axes)
        if node.op is full or node.op is constant:
            if value.type.size != 1 and node.op is constant:
                raise _Refuse
            number = node.attrs["value"] if node.op is full else node.attrs["value"].array.item()
            return const(number, value.dtype)
        if node.op is transpose:
            parts = cut(axes, value.shape)
            back = {p: i for i, p in enumerate(node.attrs["perm"])}
            return self._expr(node.inputs[0], tuple([a for p in range(len(back)) for a in parts[back[p]]]))
        if node.op is reshape:
            return self._expr(node.inputs[0], axes)
        if node.op is broadcast_to:
            return self._expr(node.inputs[0], _kept(axes, node.inputs[0].shape, value.shape))
        if not _is_elementwise(node) or len(node.outputs) != 1:
            raise _Refuse
        return call(node.op.name, *[self._expr(v, axes) for v in node.inputs], **node.attrs)

    def _operand(self, value: Value, axes: tuple[Axis, ...]) -> Expr:
        buffer, shape = self.body.params.index(value), tuple([a.extent for a in axes])
        if prod(shape) != value.type.size:
            raise _Refuse
        key = buffer, shape
        source = self.finish.operands.setdefault(key, Placeholder(f"in{buffer}", TensorType(value.dtype, shape)))
        self.finish._places.setdefault(source, []).append(axes)
        return read_at(source, *axes)


def _is_elementwise(node: Node) -> bool:
    """Whether a node's every element is made from the operands' elements at the same place."""
    if node.op.has_regions or node.op.rules.get("group"):
        return False
    rule = node.op.rules.get("axes")
    same = all(v.shape == node.outputs[0].shape for v in (*node.inputs, *node.outputs))
    return isinstance(rule, str) and same and all(w == "..." for w in rule.replace(",", " ").replace("->", " ").split())


def cut(axes: Sequence[Axis], sizes: Sequence[int]) -> list[tuple[Axis, ...]]:
    """The axes (in order) that make up each of these sizes. Raises _Divide if one of them has a part of an axis."""
    found, at = list[tuple[Axis, ...]](), len(axes)
    for size in reversed(sizes):
        group, left = list[Axis](), size
        while left > 1:
            if not at:
                raise _Refuse
            axis = axes[at - 1]
            if left % axis.extent:
                if axis.extent % left:
                    raise _Refuse
                raise _Divide(axis, left)
            group.insert(0, axis)
            left //= axis.extent
            at -= 1
        found.insert(0, tuple(group))
    return found


def _kept(axes: tuple[Axis, ...], small: Sequence[int], large: Sequence[int]) -> tuple[Axis, ...]:
    """The axes of a tensor of sizes `small` that is broadcast to `large`, whose axes are these."""
    small = (1,) * (len(large) - len(small)) + tuple(small)
    runs: list[tuple[bool, int]] = []  # neighbours that are both kept, or both new
    for a, b in zip(small, large, strict=True):
        if b == 1:
            continue
        if runs and runs[-1][0] == (a == b):
            runs[-1] = a == b, runs[-1][1] * b
        else:
            runs.append((a == b, b))
    groups = cut(axes, [size for _, size in runs])
    return tuple([a for (kept, _), group in zip(runs, groups, strict=True) if kept for a in group])


# ------------------------------------------------------------------------------------------------------------- code
class Store:
    """Writes the results of tiles; adds the functions that it needs to the module."""

    def __init__(self, finish: Finish, isa: Isa, target: Target, module: Module) -> None:
        self.finish, self.isa, self.target, self.module = finish, isa, target, module
        self._made: dict[int, str] = {}
        self._asking = set[str]()
        summed = tuple([(o.buffer, o.expr.dtype) for o in finish.outputs if o.summed])
        self.buffers = max(o.buffer for o in finish.outputs) + 1
        self.totals = Totals(summed, self.buffers) if summed else None

    def step(self, place: Place) -> int:
        """Bytes from one row of waiting sums to the next."""
        return -(-place.columns // self.isa.lanes) * self.isa.bytes

    def tile(self, f: Function, sums: llvm.Value, place: Place, tile: Tile) -> None:
        """Finish the sums of a tile; `sums` is memory for them."""
        if self.finish.is_plain:
            self._plain(f, place, tile)
        else:
            tile.store(sums, self.step(place))
            self.memory(f, sums, place)

    def memory(self, f: Function, sums: llvm.Value, place: Place) -> None:
        """Finish sums that are in memory, rows `step` bytes apart."""
        if place.columns not in self._made:
            name = self._made[place.columns] = f"finish{place.columns}"
            _Rows(self.finish, self.isa, self.target, self.module, name, place.columns, place.apart).write()
        name = self._made[place.columns]
        f.call(f"@{name}", "void", f.args[0], sums, place.batch, place.row, f.i64(place.rows), place.column,
               place.totals)  # fmt: skip

    def ahead(self, f: Function, place: Place) -> None:
        """Have the lines of memory on their way that the results of a tile will take, and the operands at their places.
        Asked for when they are written, lines come from the third cache or memory while nothing is computed."""
        name = f"ahead{place.columns}"
        if name not in self._asking:
            self._asking.add(name)
            self._write_ahead(Function(self.module, name, ["ptr", *["i64"] * 4], linkage="internal", attrs="noinline"),
                              place.columns)  # fmt: skip
        f.call(f"@{name}", "void", f.args[0], place.batch, place.row, f.i64(place.rows), place.column)

    def _write_ahead(self, f: Function, columns: int) -> None:
        """The function for tiles of so many columns: (buffers, batch, row, rows, column)."""
        fin, axes = self.finish, _batch_axes(self.finish, f.args[1])
        _spread(axes, fin.axes["n"][0], f.args[4])
        every = {a for kind in fin.axes.values() for parts in kind for a in parts if a.extent > 1}
        numbers = {source: buffer for (buffer, _), source in fin.operands.items()}
        wanted = [(numbers[s], s.type.dtype.bytes, order, False) for s, order in fin.read_at() if every <= set(order)]
        wanted += [(o.buffer, o.expr.dtype.bytes, o.axes, True) for o in fin.outputs if not o.summed]
        wanted = [w for w in wanted if w[2] and w[2][-1] is fin.along]
        starts = [f.load(f.args[0], "ptr", 8 * buffer) for buffer, *_ in wanted]
        with f.loop(0, f.args[3]) as r:
            _spread(axes, fin.axes["m"][0], f.args[2] + r)
            for start, (_, size, order, written) in zip(starts, wanted, strict=True):
                index = f.i64(0)
                for axis, step in zip(order, dense([a.extent for a in order]), strict=True):
                    index = index + axes[axis] * step
                here = f.offset(start, index * size)
                for line in range(0, columns * size, _LINE):
                    f.prefetch(here, line, write=written)
        f.give()

    def _plain(self, f: Function, place: Place, tile: Tile) -> None:
        """Sums go straight to the output."""
        out = self.finish.outputs[0]
        steps, size = _strides(out), out.expr.dtype.bytes
        at, index, rest = f.load(f.args[0], "ptr", 8 * out.buffer), f.i64(0), place.batch
        for (axis,) in reversed(self.finish.axes["b"]):
            index = index + rest % axis.extent * steps[axis]
            rest = rest // axis.extent
        row = steps.get(self.finish.axes["m"][0][0], 0)
        index = index + place.row * row + place.column
        lanes, to = self.isa.lanes, f.offset(at, index * size)
        if size == 4:
            masks = [first_lanes(f, lanes, place.columns - v * lanes) for v in range(tile.vectors)]
            tile.store(to, row * size, masks)
            return
        for r, sums in enumerate(tile.sums):
            for v, each in enumerate(sums):
                here = f.offset(to, (r * row + v * lanes) * size)
                store_some(f, self._narrow(each.get()), here, place.columns - v * lanes)

    def _narrow(self, value: llvm.Value) -> llvm.Value:
        """Sums rounded to the product's type."""
        kind = vmath.half_kind(self.finish.problem.dtype)
        return vmath.narrow(value, kind, self.isa.narrows if kind == "bfloat" else self.isa.halves)


def _strides(out: Output) -> dict[Axis, int]:
    return dict(zip(out.axes, dense([a.extent for a in out.axes]), strict=True))


class _Rows:
    """The function that finishes a tile: (buffers, sums, batch, row, rows, column, totals), for a number of columns;
    apart: bytes from the totals of one sum to those of the next."""

    def __init__(
        self, finish: Finish, isa: Isa, target: Target, module: Module, name: str, columns: int, apart: int
    ) -> None:
        self.finish, self.isa, self.target, self.columns, self.apart = finish, isa, target, columns, apart
        kinds = ["ptr", "ptr", "i64", "i64", "i64", "i64", "ptr"]
        # Inlined, its constants would take the registers that the product needs.
        self.f = Function(module, name, kinds, linkage="internal", attrs="noinline")
        self.places: dict[Source, llvm.Value] = {}

    def write(self) -> None:
        f = self.f
        _, sums, batch, first, rows, column, _ = f.args
        step = -(-self.columns // self.isa.lanes) * self.isa.bytes
        self.places = {p: f.load(f.args[0], "ptr", 8 * buffer) for (buffer, _), p in self.finish.operands.items()}
        outs = [f.load(f.args[0], "ptr", 8 * o.buffer) for o in self.finish.outputs]
        axes = _batch_axes(self.finish, batch)
        whole, tail = divmod(self.columns, self.isa.lanes)
        with f.loop(0, rows) as r:
            at, here = f.offset(sums, r * step), dict(axes)
            _spread(here, self.finish.axes["m"][0], first + r)
            if whole:
                with f.loop(0, whole) as v:
                    self._vector(at, v * self.isa.lanes, column, here, outs, None)
            if tail:
                mask = first_lanes(f, self.isa.lanes, tail)
                self._vector(at, f.i64(whole * self.isa.lanes), column, here, outs, mask)
        f.give()

    def _vector(
        self, sums: llvm.Value, lane: llvm.Value, column: llvm.Value, axes: dict[Axis, llvm.Value],
        outs: Sequence[llvm.Value], mask: llvm.Value | None,
    ) -> None:  # fmt: skip
        """The outputs of one vector of sums; all are computed before any is stored."""
        f, isa = self.f, self.isa
        here = dict(axes)
        _spread(here, self.finish.axes["n"][0], column + lane)
        value = f.load(f.offset(sums, lane * 4), isa.sums)
        if self.finish.problem.dtype.bits == 16:
            kind = vmath.half_kind(self.finish.problem.dtype)
            value = vmath.narrow(value, kind, isa.narrows if kind == "bfloat" else isa.halves)
        emitter = Emitter(f, isa.lanes, here, self.finish.along, self.places, {self.finish.product: value}, mask,
                          self.target)  # fmt: skip
        values = [emitter.value(o.expr) if o.summed else emitter.stored(o.expr) for o in self.finish.outputs]
        totals = f.offset(f.args[6], lane * 4)
        for out, place, each in zip(self.finish.outputs, outs, values, strict=True):
            if out.summed:
                f.store(f.load(totals, isa.sums) + each, totals)
                totals = f.offset(totals, self.apart)
                continue
            steps = _strides(out)
            index = f.i64(0)
            for axis, step in steps.items():
                index = index + here[axis] * step
            to = f.offset(place, index * out.expr.dtype.bytes)
            if mask is None:
                f.store(each, to)
            else:
                store_first(f, each, to, self.columns % isa.lanes)


def _batch_axes(finish: Finish, batch: llvm.Value) -> dict[Axis, llvm.Value]:
    """The values of the batch axes' parts for a product of the batch."""
    axes: dict[Axis, llvm.Value] = {}
    for parts in reversed(finish.axes["b"]):
        size = prod(a.extent for a in parts)
        _spread(axes, parts, batch % size)
        batch = batch // size
    return axes


def _spread(axes: dict[Axis, llvm.Value], parts: Sequence[Axis], index: llvm.Value) -> None:
    """The value of each part of an axis."""
    for axis in reversed(parts[1:]):
        axes[axis] = index % axis.extent
        index = index // axis.extent
    axes[parts[0]] = index
