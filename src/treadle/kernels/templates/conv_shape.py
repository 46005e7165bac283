"""Convolutions as places and taps: what `conv` and `conv_input_grad` have in common.

`forward` and `data_gradient` turn a convolution's sizes into a `Problem`: source image, destination image and parts. A
part is a grid of destination places, all with the same taps: place (i, j) of the grid is destination
(out0 + (i, j) * step_out), and a tap (a, b) of it reads source (i, j) * step_in + (a, b), zero outside the image.
The gradient of a strided convolution has one part for each remainder by the stride (no product with a zero is made).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

Pair = tuple[int, int]


@dataclass(frozen=True)
class Spec:
    """A 2-d convolution: x [n, channels, *size], w [outputs, channels / groups, *kernel], y [n, outputs, *out]."""

    n: int
    channels: int
    outputs: int
    size: Pair
    out: Pair
    kernel: Pair
    stride: Pair
    padding: tuple[Pair, Pair]
    dilation: Pair
    groups: int


@dataclass(frozen=True)
class Tap:
    """One element of the kernel: where it reads, relative to a place, and its number in the kernel (row-major)."""

    row: int
    col: int
    number: int


@dataclass(frozen=True)
class Part:
    """A grid of destination places that share their taps. rows, cols: its extent; rest: places of the last row, where
    it is not full."""

    rows: int
    cols: int
    out0: Pair
    taps: tuple[Tap, ...]
    rest: int = 0


@dataclass(frozen=True)
class Problem:
    """n images; source and destination: height, width, channels; weights as [outer, inner / groups, kernel] where the
    destination's channels are `outer` (forward) or `inner` (backward)."""

    n: int
    source: tuple[int, int, int]
    target: tuple[int, int, int]
    groups: int
    step_in: Pair
    step_out: Pair
    parts: tuple[Part, ...]
    taps: int
    backward: bool
    flat: int = 0  # places of all images, where the images were joined; 0: they were not

    @property
    def inner(self) -> int:
        """Source channels of a group."""
        return self.source[2] // self.groups

    @property
    def outer(self) -> int:
        """Destination channels of a group."""
        return self.target[2] // self.groups

    def reach(self) -> tuple[Pair, Pair]:
        """The first and last row and column that taps read, relative to the first place of the grid and to the last."""
        rows = [t.row for p in self.parts for t in p.taps] or [0]
        cols = [t.col for p in self.parts for t in p.taps] or [0]
        return (min(rows), max(rows)), (min(cols), max(cols))

    def inside(self) -> bool:
        """Whether no tap reads outside the source."""
        for part in self.parts:
            for tap in part.taps:
                for place, extent, step, room in (
                    (tap.row, part.rows, self.step_in[0], self.source[0]),
                    (tap.col, part.cols, self.step_in[1], self.source[1]),
                ):
                    if place < 0 or (extent - 1) * step + place >= room:
                        return False
        return True


def forward(spec: Spec) -> Problem:
    """y from x and w."""
    taps = tuple(
        Tap(row, col, number)
        for number, (row, col) in enumerate(
            (i * spec.dilation[0] - spec.padding[0][0], j * spec.dilation[1] - spec.padding[1][0])
            for i in range(spec.kernel[0])
            for j in range(spec.kernel[1])
        )
    )
    part = Part(*spec.out, (0, 0), taps)
    source, target = (*spec.size, spec.channels), (*spec.out, spec.outputs)
    return Problem(spec.n, source, target, spec.groups, spec.stride, (1, 1), (part,), len(taps), False)


def data_gradient(spec: Spec) -> Problem:
    """dx from dy and w: for each remainder of a place by the stride, the taps that reach it."""
    parts = []
    for first_row, rows, row_taps in _remainders(spec, 0):
        for first_col, cols, col_taps in _remainders(spec, 1):
            taps = [Tap(a, b, i * spec.kernel[1] + j) for i, a in row_taps for j, b in col_taps]
            taps.sort(key=lambda t: (t.row, t.col))
            parts.append(Part(rows, cols, (first_row, first_col), tuple(taps)))
    source, target = (*spec.out, spec.outputs), (*spec.size, spec.channels)
    taps_all = spec.kernel[0] * spec.kernel[1]
    return Problem(spec.n, source, target, spec.groups, (1, 1), spec.stride, tuple(parts), taps_all, True)


def _remainders(spec: Spec, axis: int) -> Iterator[tuple[int, int, list[Pair]]]:
    """(first place, number of places, taps as (kernel index, offset)) for each remainder by the stride."""
    stride, low, apart = spec.stride[axis], spec.padding[axis][0], spec.dilation[axis]
    for first in range(min(stride, spec.size[axis])):
        taps = [(k, (first + low - k * apart) // stride) for k in range(spec.kernel[axis])]
        taps = [(k, at) for k, at in taps if at * stride == first + low - k * apart]
        yield first, -(-(spec.size[axis] - first) // stride), taps


def joined(p: Problem, width: int) -> Problem:
    """The same product with all places of all images in rows of `width`: for one tap that stays where it is."""
    if not pointwise(p):
        return p
    places = p.n * p.target[0] * p.target[1]
    rows, rest = -(-places // width), places % width
    source, target = (rows, width, p.source[2]), (rows, width, p.target[2])
    part = Part(rows, width, (0, 0), p.parts[0].taps, rest)
    return replace(p, n=1, source=source, target=target, parts=(part,), flat=places)


def pointwise(p: Problem) -> bool:
    """Whether each place of the destination reads just the same place of the source."""
    if len(p.parts) != 1 or p.step_in != (1, 1) or p.step_out != (1, 1) or p.source[:2] != p.target[:2]:
        return False
    taps = p.parts[0].taps
    return len(taps) == 1 and taps[0].row == taps[0].col == 0


def weight_gradient_taps(spec: Spec) -> tuple[Tap, ...]:
    """The taps of the kernel relative to a place of y times the stride."""
    return forward(spec).parts[0].taps
