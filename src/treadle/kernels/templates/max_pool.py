"""The largest element of windows of channels-last images, and its gradient: `plans(body, target)` for bodies around it.

Vectors run along channels; 16-bit floats are compared as float32. The gradient's tasks are bands of rows of x: first
each window that reaches into the band gives its dy and the number of the element that takes it, then each element adds
up what the windows over it give to it. So windows at the border of two bands are looked at twice, and nothing is
written by two tasks. What follows is done to whole rows, by conv_finish.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from treadle.base.dtypes import bfloat16, float16, float32
from treadle.ir.node import Fn, Node, Value
from treadle.kernels import launch, llvm
from treadle.kernels.kernel import Kernel, Plan
from treadle.kernels.launch import Phase
from treadle.kernels.llvm import Function, Module
from treadle.kernels.target import Target
from treadle.kernels.templates import conv_finish
from treadle.kernels.templates.conv_finish import Tail, TileTail
from treadle.kernels.templates.conv_micro import WIDTH, arith
from treadle.kernels.templates.gemm_problem import dense, view_of
from treadle.ops.pool import max_pool, max_pool_grad

SCRATCH = 6 << 20
_TASKS_PER_CORE = 4
_MOST = 49  # elements of a window, whose code is written out for each
_LOWEST = {"f32": 0xFF800000, "bf16": 0xFF80, "f16": 0xFC00}

Pair = tuple[int, int]


@dataclass(frozen=True)
class Pooling:
    """x: images [n, height, width, channels], y: windows [n, height, width, channels]; low: padding before the first
    row and column."""

    n: int
    channels: int
    x: Pair
    y: Pair
    window: Pair
    stride: Pair
    low: Pair
    dtype: str
    gradient: bool


def plans(body: Fn, target: Target) -> list[Plan]:
    """The one way to compute a body around a maximum of windows; [] for others."""
    anchors = [n for n in body.nodes if n.op in (max_pool, max_pool_grad)]
    if len(anchors) != 1 or any(True for n in body.nodes for _ in n.regions()):
        return []
    anchor = anchors[0]
    p = _pooling(anchor)
    if p is None or p.channels * 2 < target.lanes(32):
        return []
    params = [_image(body, v) for v in anchor.inputs]
    if None in params:
        return []
    (h, w), read = (p.x if p.gradient else p.y), [i for i in params if i is not None]
    sizes = {"n": p.n, "o": p.channels, "h": h, "w": w}
    tail = conv_finish.read(body, anchor, sizes, "o", (read[0], read[-1]), target)
    if tail is None:
        return []
    kernel = MaxPool(p, target, (read[0], read[-1]), tail)
    if kernel.scratch() > SCRATCH:
        return []
    return [Plan(f"max_pool rows {kernel.rows}", partial(_make, body, kernel))]


def _pooling(anchor: Node) -> Pooling | None:
    """The sizes of windows over two axes, in floats that overlap or lie apart; None for others."""
    x, y = anchor.inputs[0], (anchor.inputs[-1] if anchor.op is max_pool_grad else anchor.outputs[0])
    window, stride, padding = (anchor.attrs[name] for name in ("window", "stride", "padding"))
    if x.ndim != 4 or len(window) != 2 or x.dtype not in (float32, bfloat16, float16) or 0 in (*x.shape, *y.shape):
        return None
    if window[0] * window[1] > _MOST:
        return None
    low, (n, channels, *size) = (padding[0][0], padding[1][0]), x.shape
    given, made = (size[0], size[1]), (y.shape[2], y.shape[3])
    return Pooling(n, channels, given, made, window, stride, low, x.dtype.short, anchor.op is max_pool_grad)


def _image(body: Fn, value: Value) -> int | None:
    """The number of the input that a value is, if that has its channels last."""
    view = view_of(body, value)
    if view is None or view.offset or view.dtype is not view.used_as:
        return None
    n, c, *size = value.shape
    last = dense((n, *size, c))
    wanted = (last[0], last[-1], *last[1:-1])
    same = all(a == b for a, b, extent in zip(view.strides, wanted, value.shape, strict=True) if extent > 1)
    return view.param if same else None


def _make(body: Fn, kernel: MaxPool) -> Kernel:
    count = len(body.params) + len(body.outputs)
    module = Module()
    text = launch.finish(module, kernel.build(module), count)
    return Kernel(body.in_types, body.out_types, text, 0, kernel.tail.aliases(len(body.params)))


@dataclass
class MaxPool:
    """One kernel. params: numbers of the buffers of x and dy."""

    pooling: Pooling
    target: Target
    params: Pair
    tail: Tail
    rows: int = field(init=False)  # of a task, of y or, for the gradient, of x

    def __post_init__(self) -> None:
        p = self.pooling
        self.arith = arith(self.target, "f32")
        self.columns = -(-p.channels // self.arith.lanes)
        self.place = self.columns * self.arith.bytes  # bytes of a place's channels, as f32
        self.numbers = p.window[0] * p.window[1]
        # Windows that reach the image's columns: the first, which may lie before it, and how many.
        self.first = -((p.window[1] - 1 - p.low[1]) // p.stride[1])
        self.slots = (p.x[1] - 1 + p.low[1]) // p.stride[1] - self.first + 1
        height, width = p.x if p.gradient else p.y
        self.strip = width * self.place
        self.rows = self._rows(height)
        self.blocks = -(-height // self.rows)
        edges = p.channels % self.arith.lanes != 0
        self.finish = TileTail(self.tail, self.arith, (1, 1), (self.strip, self.place), edges)

    @property
    def _line(self) -> int:
        """Bytes of a row of windows: of what each gives, and to which element."""
        return self.slots * self.place

    def _windows(self, rows: int) -> int:
        """Rows of windows that may reach so many rows of x."""
        p = self.pooling
        return (rows + p.window[0] - 2) // p.stride[0] + 1

    def _rows(self, height: int) -> int:
        p = self.pooling
        most = max(height * p.n // (_TASKS_PER_CORE * max(self.target.cores, 2)), 1)
        if p.gradient:
            while most > p.stride[0] and self._windows(most) * 2 * self._line > self.target.l2 // 3:
                most -= 1
            most = max(most // p.stride[0], 1) * p.stride[0]
        most = min(most, height)
        even = -(-height // -(-height // most))
        return -(-even // p.stride[0]) * p.stride[0] if p.gradient else even

    def scratch(self) -> int:
        """Bytes of scratch that a task needs."""
        return self.strip + (2 * self._windows(self.rows) * self._line if self.pooling.gradient else 0)

    def build(self, module: Module) -> list[Phase]:
        """Write the functions; returns the phases."""
        p = self.pooling
        self.finish.write(module, "finish")
        bits, kind = _LOWEST[p.dtype], f"i{8 * WIDTH[p.dtype]}"
        size = self.columns * self.arith.lanes
        module.table("lowest", [bits] * size, kind)
        f = Function(module, "pool", ["ptr", "i64", "ptr"])
        image, block = f.args[1] // self.blocks, f.args[1] % self.blocks
        first = block * self.rows
        height = (p.x if p.gradient else p.y)[0]
        stop = f.min_int(first + self.rows, height)
        if p.gradient:
            self._gradient(f, image, first, stop)
        else:
            with f.loop(first, stop) as row:
                with f.loop(0, p.y[1]) as col:
                    place = f.offset(f.args[2], col * self.place)
                    for channel, mask in self._channels(f):
                        best, _ = self._largest(f, self._element(f, image, row, col), channel, mask, None)
                        f.store(best, place, channel * 4)
                self._done(f, image, row)
        f.give()
        return [Phase("pool", p.n * self.blocks)]

    def _done(self, f: Function, image: llvm.Value, row: llvm.Value) -> None:
        p = self.pooling
        width = p.x[1] if p.gradient else p.y[1]
        ends = [f.i64(n) for n in (0, 0, p.channels, 1, width, self.columns)]
        f.call("@finish", "void", f.args[0], f.args[2], image, row, *ends)

    def _channels(self, f: Function) -> Iterator[tuple[llvm.Value, llvm.Value | None]]:
        """Whole vectors of channels, as a loop, then what is left."""
        lanes, channels = self.arith.lanes, self.pooling.channels
        whole = channels // lanes * lanes
        if whole:
            with f.loop(0, whole, lanes) as channel:
                yield channel, None
        if whole < channels:
            yield f.i64(whole), f.mask(f.i64(channels - whole), lanes)

    def _element(self, f: Function, image: llvm.Value, row: llvm.Value, col: llvm.Value) -> list[llvm.Value]:
        """Where the elements of a window are; outside the image the lowest number is."""
        p, width = self.pooling, WIDTH[self.pooling.dtype]
        x = f.load(f.args[0], "ptr", 8 * self.params[0])
        down, right = row * p.stride[0] - p.low[0], col * p.stride[1] - p.low[1]
        places = []
        for i in range(p.window[0]):
            for j in range(p.window[1]):
                inside = f.compare("ult", down + i, p.x[0]) & f.compare("ult", right + j, p.x[1])
                at = ((image * p.x[0] + down + i) * p.x[1] + right + j) * (p.channels * width)
                places.append(f.select(inside, f.offset(x, at), f.symbol("@lowest")))
        return places

    def _largest(
        self, f: Function, places: list[llvm.Value], channel: llvm.Value, mask: llvm.Value | None,
        start: llvm.Value | None,
    ) -> tuple[llvm.Value, llvm.Value | None]:  # fmt: skip
        """The first of the largest elements (NaN before all), and its number, for which the one of the first element
        inside the image is given: that is taken if nothing is larger than minus infinity."""
        p, how = self.pooling, self.arith
        best, number = f.constant(float("-inf"), how.vector), start
        for k, place in enumerate(places):
            one = how.load(f, f.offset(place, channel * WIDTH[p.dtype]), p.dtype, mask)
            wins = f.compare("ult", best, one) & f.compare("ord", best, best)
            best = f.select(wins, one, best)
            if number is not None:
                number = f.select(wins, f.splat(f.constant(k, "i32"), how.lanes), number)
        return best, number

    # --- the gradient ---------------------------------------------------------------------------------------------

    def _gradient(self, f: Function, image: llvm.Value, first: llvm.Value, stop: llvm.Value) -> None:
        """Rows first..stop of x; first is a multiple of the stride."""
        p = self.pooling
        reach = (p.window[0] - 1 - p.low[0]) // p.stride[0]
        top = first // p.stride[0] - reach  # the first row of windows that reaches the band, if it is there
        given = f.offset(f.args[2], self.strip)
        count = (stop - 1 + p.low[0]) // p.stride[0] - top + 1
        with f.loop(0, count) as i:
            self._give(f, image, top + i, f.offset(given, i * (2 * self._line)))
        for part in range(p.stride[0]):
            low = f.i64(part)
            with f.loop(first + low, stop, p.stride[0]) as row:
                over = (row + p.low[0]) // p.stride[0] - top
                for right in range(min(p.stride[1], p.x[1])):
                    self._take(f, f.offset(given, over * (2 * self._line)), part, right)
                self._done(f, image, row)

    def _give(self, f: Function, image: llvm.Value, row: llvm.Value, line: llvm.Value) -> None:
        """A row of windows: dy of each, and behind them the numbers of the elements that take it; -1: there is no such
        window."""
        p, how = self.pooling, self.arith
        ints = llvm.vector("i32", how.lanes)
        dy = f.load(f.args[0], "ptr", 8 * self.params[1])

        def none(start: llvm.Value, stop: llvm.Value) -> None:
            with f.loop(start * self.place, stop * self.place, how.bytes) as at:
                f.store(f.constant(-1, ints), f.offset(line, self._line), at)

        def windows() -> None:
            none(f.i64(0), f.i64(-self.first))
            none(f.i64(p.y[1] - self.first), f.i64(self.slots))
            with f.loop(0, min(p.y[1], self.slots + self.first)) as col:
                places = self._element(f, image, row, col)
                down = f.max_int(p.low[0] - row * p.stride[0], 0)
                right = f.max_int(p.low[1] - col * p.stride[1], 0)
                start = f.emit(f"trunc i64 {(down * p.window[1] + right).name} to i32", "i32")
                to = f.offset(line, (col - self.first) * self.place)
                own = f.offset(dy, ((image * p.y[0] + row) * p.y[1] + col) * (p.channels * WIDTH[p.dtype]))
                for channel, mask in self._channels(f):
                    _, number = self._largest(f, places, channel, mask, f.splat(start, how.lanes))
                    assert number is not None
                    value = how.load(f, f.offset(own, channel * WIDTH[p.dtype]), p.dtype, mask)
                    f.store(value, to, channel * 4)
                    f.store(number, to, channel * 4 + self._line)

        f.either(f.compare("ult", row, p.y[0]), windows, lambda: none(f.i64(0), f.i64(self.slots)))

    def _take(self, f: Function, line: llvm.Value, part: int, right: int) -> None:
        """What each `stride`th element of a row of x, from `right` on, takes of the windows over it. line: of the
        lowest of these; part: the row's remainder by the stride."""
        p, how = self.pooling, self.arith
        down, across = (part + p.low[0]) % p.stride[0], (right + p.low[1]) % p.stride[1]
        taps = [
            (i, j, i * p.window[1] + j)
            for i in range(down, p.window[0], p.stride[0])
            for j in range(across, p.window[1], p.stride[1])
        ]
        ints = llvm.vector("i32", how.lanes)
        with f.loop(right, p.x[1], p.stride[1]) as col:
            slot = (col + p.low[1]) // p.stride[1] - self.first
            here, to = f.offset(line, slot * self.place), f.offset(f.args[2], col * self.place)
            with f.loop(0, self.place, how.bytes) as at:
                total = f.constant(0.0, how.vector)
                for i, j, number in taps:
                    back = -(i // p.stride[0]) * (2 * self._line) - (j // p.stride[1]) * self.place
                    hit = f.compare("eq", f.load(f.offset(here, back + self._line), ints, at), number)
                    total = total + f.select(hit, f.load(f.offset(here, back), how.vector, at), 0.0)
                f.store(total, to, at)
