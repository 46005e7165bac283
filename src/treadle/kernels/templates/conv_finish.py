"""What becomes of a convolution's sums: the nodes after it as formulas, and the code that applies them to a tile.

`read` takes bodies in which elementwise nodes and transposes follow the convolution (see gemm_finish) and whose outputs
all have either their channels last (vectors run along channels) or the width last (vectors run along it).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from treadle.base.dtypes import DType, float32
from treadle.formula.expr import Axis, Source
from treadle.formula.expr import read as read_at
from treadle.ir.node import Fn, Node
from treadle.kernels.expr import Emitter, strides
from treadle.kernels.llvm import Function, Module, Value
from treadle.kernels.target import Target
from treadle.kernels.templates import gemm_finish
from treadle.kernels.templates.conv_micro import Arith
from treadle.kernels.templates.conv_pack import transposed

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

    @property
    def last(self) -> bool:
        """Whether vectors run along the channels."""
        return self.along != "w"

    def plain(self, order: str) -> bool:
        """Whether the sums go, rounded, to one output with its axes in this order."""
        outputs = self.finish.outputs
        axes = [self._axis(c) for c in order if c in self.letters + self.along]
        divided = any(len(parts) > 1 for kind in self.finish.axes.values() for parts in kind)
        if len(outputs) != 1 or divided or outputs[0].expr != read_at(self.finish.product):
            return False
        return [a for a in outputs[0].axes if a.extent > 1] == [a for a in axes if a.extent > 1]

    def _axis(self, letter: str) -> Axis:
        if letter == self.along:
            return self.finish.along
        return self.finish.axes["b"][self.letters.index(letter)][0]

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
        axes: dict[Axis, Value] = {}
        for letter, parts in zip(self.letters, self.finish.axes["b"], strict=True):
            spread(axes, parts, at[letter])
        spread(axes, self.finish.axes["n"][0], at[self.along])
        dtype = self.finish.product.type.dtype
        value = sums if dtype is float32 else arith.narrow(sums, dtype.short)
        emitter = Emitter(
            f, arith.lanes, axes, self.finish.along, places[0], {self.finish.product: value}, mask, self.target
        )
        values = [emitter.stored(out.expr) for out in self.finish.outputs]
        for out, place, each in zip(self.finish.outputs, places[1], values, strict=True):
            index = f.i64(0)
            for axis, step in zip(out.axes, strides([a.extent for a in out.axes]), strict=True):
                index = index + axes[axis] * step
            to = f.offset(place, index * out.expr.dtype.bytes)
            if mask is None:
                f.store(each, to)
            else:
                f.store_masked(each, to, mask)


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
    return None if finish is None else Tail(finish, letters, along, target)


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
        with f.loop(0, high) as i:
            if self.tail.last:
                with f.loop(0, wide) as j:
                    at = self._at(f, image, row + i * self.steps[0], col + j * self.steps[1])
                    here = f.offset(sums, i * self.pitch[0], j * self.pitch[1])
                    with f.loop(0, vectors) as v:
                        first = v * self.arith.lanes
                        total = f.load(here, self.arith.vector, v * self.arith.bytes)
                        some = f.mask(limit - first, self.arith.lanes) if self.edges else None
                        self.tail.vector(f, places, {**at, "o": channel + first}, total, some, self.arith)
            else:
                here = f.offset(sums, i * self.pitch[0])
                at = {"n": image, "h": row + i * self.steps[0], "w": col}
                self._across(f, places, here, at, channel, limit, wide, vectors)
        f.give()

    def _at(self, f: Function, image: Value, row: Value, col: Value) -> dict[str, Value]:
        height, width, joined = self.flat
        if not joined:
            return {"n": image, "h": row, "w": col}
        place = row * joined + col
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
