"""What becomes of a convolution's sums: the nodes after it as formulas, and the code that applies them to a tile.

`read` takes bodies in which elementwise nodes and transposes follow the convolution (see gemm_finish) and whose outputs
all have either their channels last (vectors run along channels) or the width last (vectors run along it).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from treadle.base.dtypes import DType, float32
from treadle.formula.expr import Axis, Call, Expr, Read, Source, free, post_order
from treadle.formula.expr import read as read_at
from treadle.ir.node import Fn, Node
from treadle.kernels.expr import Emitter, cost, strides
from treadle.kernels.llvm import Function, Module, Value
from treadle.kernels.target import Target
from treadle.kernels.templates import gemm_finish
from treadle.kernels.templates.conv_micro import LINE, Arith
from treadle.kernels.templates.conv_pack import transposed
from treadle.kernels.templates.conv_sums import Moments

Places = tuple[dict[Source, Value], list[Value]]


@dataclass(frozen=True)
class Operand:
    """What gemm_finish asks of an operand: the number of the buffer, which no output may share."""

    param: int


@dataclass(frozen=True)
class Dims:
    """A convolution as gemm_finish sees a product: its axes in memory order, "n" the one of the vectors."""

    dims: tuple[tuple[str, int], ...]
    dtype: DType
    anchor: Node
    left: Operand
    right: Operand


@dataclass
class Tail:
    """The formulas of a body. letters: which of the result's axes the "b" axes of the finish are; last: the channels
    are the vectors' axis, else the width is."""

    finish: gemm_finish.Finish
    letters: str
    along: str
    target: Target
    moments: Moments | None = None  # also wanted of an output (see conv_sums)

    @property
    def last(self) -> bool:
        """Whether vectors run along the channels."""
        return self.along != "w"

    def plain(self, order: str) -> bool:
        """Whether the sums go, rounded, to one output with its axes in this order."""
        outputs = self.finish.outputs
        if len(outputs) != 1 or outputs[0].expr != read_at(self.finish.product):
            return False
        return self.in_order(0, order)

    def in_order(self, output: int, order: str) -> bool:
        """Whether an output has its axes in this order."""
        if any(len(parts) > 1 for kind in self.finish.axes.values() for parts in kind):
            return False
        axes = [self._axis(c) for c in order if c in self.letters + self.along]
        return [a for a in self.finish.outputs[output].axes if a.extent > 1] == [a for a in axes if a.extent > 1]

    def aliases(self, inputs: int) -> tuple[tuple[int, int], ...]:
        """(output, input) pairs of a kernel with so many inputs that may share memory."""
        later = () if self.moments is None else (self.moments.other, self.moments.mean)  # read after the outputs
        found = [(self.finish.outputs[i].buffer - inputs, n) for i, n in self.finish.aliases() if n not in later]
        return tuple(found)

    def _axis(self, letter: str) -> Axis:
        if letter == self.along:
            return self.finish.along
        return self.finish.axes["b"][self.letters.index(letter)][0]

    def counts_places(self) -> bool:
        """Whether operands and outputs depend on image, row and column only by the number of the place among all: then
        that number may be given for the last of them that there is, with 0 for the others."""
        groups = [self.finish.axes["b"][i] for i, c in enumerate(self.letters) if c in "nhw"]
        wanted = [a for parts in groups for a in parts]
        if not groups or self.along == "w" or any(len(parts) > 1 for parts in groups):
            return False
        for axes in [*[o.axes for o in self.finish.outputs], *[axes for _, axes in self.finish.read_at()]]:
            own = [i for i, a in enumerate(axes) if a in wanted]
            if own and ([axes[i] for i in own] != wanted or own[-1] - own[0] + 1 != len(own)):
                return False
        return True

    def places(self, f: Function, buffers: Value) -> Places:
        """Addresses of operands and outputs."""
        given: dict[Source, Value] = {
            p: f.load(buffers, "ptr", 8 * buffer) for (buffer, _), p in self.finish.operands.items()
        }
        return given, [f.load(buffers, "ptr", 8 * out.buffer) for out in self.finish.outputs]

    def vector(
        self, f: Function, places: Places, at: Mapping[str, Value], sums: Value,
        mask: Value | None, arith: Arith,
    ) -> None:  # fmt: skip
        """All outputs of one vector of sums; `at` has the first lane's index along each axis of the result."""
        self.vectors(f, places, [at], [sums], mask, arith)

    def vectors(
        self, f: Function, places: Places, at: Sequence[Mapping[str, Value]], sums: Sequence[Value],
        mask: Value | None, arith: Arith, begun: bool = False,
    ) -> None:  # fmt: skip
        """All outputs of some vectors of sums; nothing is stored before all is computed, so that LLVM sees that what
        they have in common (values of the channel) is the same. begun: the sums began with `beginning`."""
        found: list[tuple[Value, Value]] = []
        first = self._first_sum() if begun else None
        for here, each in zip(at, sums, strict=True):
            found += self._outputs(f, places, here, each, mask, arith, [] if first is None else [first[0]])
        for value, to in found:
            if mask is None:
                f.store(value, to)
            else:
                f.store_masked(value, to, mask)

    def _outputs(
        self, f: Function, places: Places, at: Mapping[str, Value], sums: Value, mask: Value | None, arith: Arith,
        done: Sequence[Expr],
    ) -> list[tuple[Value, Value]]:  # fmt: skip
        """Vectors and their addresses. done: expressions that the sums are the values of."""
        axes = self._indices(at)
        dtype = self.finish.product.type.dtype
        wide = self._widened()
        value = sums if dtype is float32 or wide else arith.narrow(sums, dtype.short)
        emitter = Emitter(
            f, arith.lanes, axes, self.finish.along, places[0], {self.finish.product: value}, mask, self.target
        )
        emitter.preset(dict.fromkeys([*wide, *done], sums))
        found = []
        for out, place in zip(self.finish.outputs, places[1], strict=True):
            found.append((emitter.stored(out.expr), _address(f, place, out.axes, axes, out.expr.dtype.bytes)))
        return found

    def _widened(self) -> list[Expr]:
        """The casts of the sums to float32, if nothing else reads them: then no 16-bit number is made of them first."""
        every = post_order(*[out.expr for out in self.finish.outputs])
        readers = [e for e in every if isinstance(e, Call) and any(self._is_product(a) for a in e.args)]
        casts: list[Expr] = [e for e in readers if e.op == "cast" and e.dtype is float32]
        alone = len(casts) == len(readers) and not any(self._is_product(out.expr) for out in self.finish.outputs)
        return casts if alone and self.moments is None else []

    def _first_sum(self) -> tuple[Expr, Expr] | None:
        """What is added to the sums before anything else, and depends on the channel alone: (the sum, what is added);
        None if there is no such thing, or something else reads the sums."""
        sums = [read_at(self.finish.product)] if self.finish.product.type.dtype is float32 else self._widened()
        outputs = [out.expr for out in self.finish.outputs]
        readers = [e for e in post_order(*outputs) if isinstance(e, Call) and any(a in sums for a in e.args)]
        if self.moments is not None or len(sums) != 1 or len(readers) != 1 or readers[0].op != "add":
            return None
        others = [a for a in readers[0].args if a is not sums[0]]
        if len(others) != 1 or sums[0] in outputs or not free(others[0]) <= {*self.finish.axes["n"][0]}:
            return None
        return readers[0], others[0]

    def beginning(self, f: Function, places: Places, channel: Value, mask: Value | None, arith: Arith) -> Value | None:
        """What a vector of sums may begin with: a bias."""
        first = self._first_sum()
        if first is None:
            return None
        axes: dict[Axis, Value] = {}
        spread(axes, self.finish.axes["n"][0], channel)
        return Emitter(f, arith.lanes, axes, self.finish.along, places[0], {}, mask, self.target).value(first[1])

    def cost(self) -> int:
        """Instructions for a vector, about."""
        return sum(cost(out.expr) for out in self.finish.outputs)

    def _is_product(self, expr: Expr) -> bool:
        return isinstance(expr, Read) and expr.source is self.finish.product

    def _indices(self, at: Mapping[str, Value]) -> dict[Axis, Value]:
        axes: dict[Axis, Value] = {}
        for letter, parts in zip(self.letters, self.finish.axes["b"], strict=True):
            spread(axes, parts, at[letter])
        spread(axes, self.finish.axes["n"][0], at[self.along])
        return axes

    def ask(self, f: Function, places: Places, at: Mapping[str, Value], count: Value | int) -> None:
        """Have the lines on their way that so many elements behind each other will need: of outputs, and of operands
        that have an element of their own for each. Vectors run along the channels."""
        axes = self._indices(at)
        every = {*[a for parts in self.finish.axes["b"] for a in parts], *self.finish.axes["n"][0]}
        wanted = [(places[0][source], source.type.dtype.bytes, order, False) for source, order in self.finish.read_at()]
        wanted = [w for w in wanted if every <= set(w[2])]
        outputs = zip(self.finish.outputs, places[1], strict=True)
        wanted += [(place, out.expr.dtype.bytes, out.axes, True) for out, place in outputs]
        near = 3  # the first cache
        if self.moments is not None and self.moments.other >= 0:
            with_it = next(out for out in self.finish.outputs if out.buffer == self.moments.value)
            other = f.load(f.args[0], "ptr", 8 * self.moments.other)
            wanted.insert(0, (other, with_it.expr.dtype.bytes, with_it.axes, False))
            near = 2  # it is read some tiles later
        for start, size, order, written in wanted:
            here = _address(f, start, order, axes, size)
            with f.loop(0, f.i64(count) * size, LINE) as line:
                f.prefetch(here, line, locality=near, write=written)
            near = 3


def _address(f: Function, start: Value, order: tuple[Axis, ...], axes: Mapping[Axis, Value], size: int) -> Value:
    index = f.i64(0)
    for axis, step in zip(order, strides([a.extent for a in order]), strict=True):
        index = index + axes[axis] * step
    return f.offset(start, index * size)


def spread(axes: dict[Axis, Value], parts: list[Axis], index: Value) -> None:
    """The value of each part of an axis."""
    for axis in reversed(parts[1:]):
        axes[axis] = index % axis.extent
        index = index // axis.extent
    axes[parts[0]] = index


def read(
    body: Fn, anchor: Node, sizes: Mapping[str, int], along: str, operands: tuple[int, int], target: Target
) -> Tail | None:
    """The formulas of a body around a convolution. sizes: of the result's axes by letter, in memory order; along: the
    axis that the outputs must have last; operands: numbers of the convolution's inputs. None if it is not like that."""
    letters = "".join([c for c, n in sizes.items() if c != along and n > 1])
    dims = tuple([("n" if c == along else "b", n) for c, n in sizes.items() if n > 1])
    left, right = (Operand(i) for i in operands)
    problem: Any = Dims(dims, anchor.outputs[0].dtype, anchor, left, right)
    finish = gemm_finish.read(body, problem)
    if finish is None or finish.width_divides():  # a vector would reach from one part of the axis into the next
        return None
    return Tail(finish, letters, along, target)


@dataclass
class TileTail:
    """Writes the function that finishes a tile: void(buffers, sums, image, row, col, channel, limit, high, wide,
    vectors); sums are [tile row][tile column][vector], row and col the destination of the first; `limit` channels are
    left in the group."""

    tail: Tail
    arith: Arith
    steps: tuple[int, int]
    pitch: tuple[int, int]
    edges: bool  # there are vectors that are not full
    flat: tuple[int, int, int] = (0, 0, 0)  # height and width of images whose places were joined in rows of a width

    def write(self, module: Module, name: str) -> None:
        """Add it to the module."""
        f = Function(module, name, ["ptr", "ptr", *["i64"] * 8], linkage="internal", attrs="noinline")
        buffers, sums, image, row, col, channel, limit, high, wide, vectors = f.args
        places = self.tail.places(f, buffers)
        if not self.tail.last:
            with f.loop(0, high) as i:
                at = {"n": image, "h": row + i * self.steps[0], "w": col}
                self._across(f, places, f.offset(sums, i * self.pitch[0]), at, channel, limit, wide, vectors)
            f.give()
            return
        with f.loop(0, vectors) as v:
            first = v * self.arith.lanes
            start = f.offset(sums, v * self.arith.bytes)
            down, right = (image, row), (col, channel + first)
            if not self.edges:
                self._places(f, places, start, down, right, None)
            else:
                left = limit - first
                f.either(
                    f.compare("sge", left, self.arith.lanes),
                    partial(self._places, f, places, start, down, right, None),
                    partial(self._places, f, places, start, down, right, f.mask(left, self.arith.lanes)),
                )
        f.give()

    def in_registers(self, f: Function, tile: tuple[int, int], sums: list[list[Value]], mask: Value | None) -> None:
        """The same for sums that are in registers: see conv_micro.Finish. Of outputs with their channels last."""
        buffers, image, row, col, channel = f.args[4:9]
        places = self.tail.places(f, buffers)
        at = [
            self._at(f, image, row + i * self.steps[0], col + j * self.steps[1])
            for i in range(tile[0]) for j in range(tile[1])
        ]  # fmt: skip
        for v in range(len(sums[0])):
            here = [{**a, "o": channel + v * self.arith.lanes} for a in at]
            only = mask if v == len(sums[0]) - 1 else None
            self.tail.vectors(f, places, here, [total[v] for total in sums], only, self.arith, begun=True)

    def begin(self, f: Function, vectors: int, mask: Value | None) -> list[Value] | None:
        """What the sums of each vector begin with, for those that `in_registers` finishes: see conv_micro.Begin."""
        places, channel = self.tail.places(f, f.args[4]), f.args[8]
        found = []
        for v in range(vectors):
            only = mask if v == vectors - 1 else None
            found.append(self.tail.beginning(f, places, channel + v * self.arith.lanes, only, self.arith))
        made = [value for value in found if value is not None]
        return made or None

    def write_ask(self, module: Module, name: str) -> None:
        """Add void(buffers, image, row, col, channel, high, wide, vectors), to be called some time before a tile is
        finished: what it will read and write is on its way then. Of outputs with their channels last."""
        f = Function(module, name, ["ptr", *["i64"] * 7], linkage="internal", attrs="noinline")
        buffers, image, row, col, channel, high, wide, vectors = f.args
        places = self.tail.places(f, buffers)
        with f.loop(0, high) as i, f.loop(0, wide) as j:
            at = self._at(f, image, row + i * self.steps[0], col + j * self.steps[1])
            self.tail.ask(f, places, {**at, "o": channel}, vectors * self.arith.lanes)
        f.give()

    def _places(
        self, f: Function, places: Places, sums: Value, down: tuple[Value, Value], right: tuple[Value, Value],
        mask: Value | None,
    ) -> None:  # fmt: skip
        """One vector of channels of all places, some of a row at a time."""
        (image, row), (col, channel), (high, wide) = down, right, f.args[7:9]

        def finish(i: Value, j: Value, count: int) -> None:
            here = f.offset(sums, i * self.pitch[0], j * self.pitch[1])
            totals = [f.load(here, self.arith.vector, n * self.pitch[1]) for n in range(count)]
            at = [self._at(f, image, row + i * self.steps[0], col + (j + n) * self.steps[1]) for n in range(count)]
            self.tail.vectors(f, places, [{**a, "o": channel} for a in at], totals, mask, self.arith)

        with f.loop(0, high) as i:
            done = f.variable("i64", 0)
            if self.block > 1:
                with f.loop(0, wide - (self.block - 1), self.block) as j:
                    finish(i, j, self.block)
                    done.set(j + self.block)
            with f.loop(done.get(), wide) as j:
                finish(i, j, 1)

    @property
    def block(self) -> int:
        """Places of a row that are finished together."""
        wide = self.pitch[0] // self.pitch[1]
        return max((n for n in range(2, 8) if wide % n == 0), default=min(wide, 4))

    def _at(self, f: Function, image: Value, row: Value, col: Value) -> dict[str, Value]:
        height, width, joined = self.flat
        if not joined:
            return {"n": image, "h": row, "w": col}
        place = row * joined + col
        if self.tail.counts_places():
            last = max(self.tail.letters.replace("o", ""), key="nhw".index)
            return {"n": f.i64(0), "h": f.i64(0), "w": f.i64(0), last: place}
        return {"n": place // (height * width), "h": place // width % height, "w": place % width}

    def _across(
        self, f: Function, places: Any, sums: Value, at: dict[str, Value], channel: Value, limit: Value, wide: Value,
        vectors: Value,
    ) -> None:  # fmt: skip
        """Vectors along the width: squares of places by channels are turned."""
        lanes = self.arith.lanes
        square = f.alloca(self.arith.vector, lanes)
        with f.loop(0, vectors) as v, f.loop(0, wide, lanes) as x:
            rows = []
            for j in range(lanes):
                place = f.min_int(x + j, wide - 1) * self.pitch[1] + v * self.arith.bytes
                rows.append(f.load(sums, self.arith.vector, place))
            for i, value in enumerate(transposed(f, rows)):
                f.store(value, square, i * self.arith.bytes)
            some = f.mask(wide - x, lanes)
            with f.loop(0, f.min_int(limit - v * lanes, lanes)) as c:
                total = f.load(square, self.arith.vector, c * self.arith.bytes)
                here = {**at, "w": at["w"] + x, "o": channel + v * lanes + c}
                self.tail.vector(f, places, here, total, some, self.arith)
