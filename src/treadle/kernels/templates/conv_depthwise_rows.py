"""Depthwise convolutions that read the source where it is, row by row, without a padded copy of it.

For each row of places the rows of the source that its taps reach are had by pointers, those beyond the image by one to
zeros. The first and the last tile of a row know their columns and take zeros for what lies outside; `fits` says whether
all others are inside. The rows that the next row of places needs are asked for meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass

from treadle.kernels.llvm import Function, Value
from treadle.kernels.templates.conv_depthwise import Depthwise
from treadle.kernels.templates.conv_micro import WIDTH
from treadle.kernels.templates.conv_shape import Part, Problem


def fits(p: Problem, width: int) -> bool:
    """Whether only the first and the last tile of `width` places of a row can reach beyond the image."""
    for part in p.parts:
        last = (part.cols - 1) // width * width if part.cols else 0
        cols = [tap.col for tap in part.taps]
        if not cols or last <= width:
            continue
        if width * p.step_in[1] + min(cols) < 0 or (last - 1) * p.step_in[1] + max(cols) >= p.source[1]:
            return False
    return True


@dataclass(frozen=True)
class _Tile:
    """Places beside each other of a part; col: the first one, where it is known."""

    number: int
    part: Part
    count: int
    col: int | None


@dataclass
class DepthwiseRows(Depthwise):
    """Outputs or data gradients, of channels-last images. The fields are those of Depthwise; planar must be False."""

    def scratch(self) -> int:
        """Bytes of scratch that a task needs: a row of zeros."""
        return self._row_bytes() + 256

    def _row_bytes(self) -> int:
        return self.problem.source[1] * self.channels * WIDTH[self.dtype]

    def _begin(self, f: Function, source: Value, first: Value) -> None:
        """The row of zeros, for tasks that reach beyond the image."""
        p = self.problem
        low, high = first * p.step_in[0] + self.top, (first + self.schedule.rows - 1) * p.step_in[0] + self.bottom
        beyond = f.compare("slt", low, 0) | f.compare("sge", high, p.source[0])
        with f.when(beyond), f.loop(0, self._row_bytes(), self.arith.bytes) as at:
            f.store(f.constant(0.0, self.arith.vector), f.args[2], at)

    def _row(self, f: Function, number: int, part: Part, source: Value, at: tuple[Value, Value, Value]) -> None:
        """One row of places: the first tile, those between, the last one."""
        p, (image, _, row), width = self.problem, at, self.schedule.width
        rows = []
        for tap_row in self._tap_rows(part):
            there = row * p.step_in[0] + tap_row
            inside = f.compare("ult", there, p.source[0])
            rows.append(f.select(inside, f.offset(source, there * self._row_bytes()), f.args[2]))
        ahead = f.offset(source, ((row + 1) * p.step_in[0] + self.bottom + 1 - p.step_in[0]) * self._row_bytes())
        last = (part.cols - 1) // width * width
        if last > width:
            with f.loop(width, last, width) as col:
                self._call(f, _Tile(number, part, width, None), rows, ahead, (image, row, col))
        for at_end in dict.fromkeys((0, last)):
            tile = _Tile(number, part, min(width, part.cols - at_end), at_end)
            self._call(f, tile, rows, ahead, (image, row, f.i64(at_end)))

    def _tap_rows(self, part: Part) -> list[int]:
        return list(dict.fromkeys(t.row for t in part.taps))

    def _call(self, f: Function, tile: _Tile, rows: list[Value], ahead: Value, at: tuple[Value, Value, Value]) -> None:
        name = f"places_{tile.number}_{tile.count}" + ("" if tile.col is None else f"_from_{tile.col}")
        if all(g.name != name for g in self.module.functions):
            self._write_tile(name, tile)
        col = at[2] * (self.problem.step_in[1] * self.channels * WIDTH[self.dtype])
        f.call(f"@{name}", "void", f.args[0], *at, *[f.offset(pointer, col) for pointer in (ahead, *rows)])

    def _write_tile(self, name: str, tile: _Tile) -> None:
        """void(buffers, image, row, col, ahead, rows of the source...), the latter at the column of the first place"""
        rows = self._tap_rows(tile.part)
        params = ["ptr", "i64", "i64", "i64", "ptr", *["ptr"] * len(rows)]
        f = Function(self.module, name, params, linkage="internal", attrs="noinline")
        given = dict(zip(rows, f.args[5:], strict=True))

        def sums(channel: Value, mask: Value | None) -> list[Value]:
            self._ask(f, tile, channel)
            return self._tile_sums(f, tile, given, channel, mask)

        self._all_channels(f, tile.part, (f.args[1], f.args[2], f.args[3]), tile.count, sums)
        f.give()

    def _ask(self, f: Function, tile: _Tile, channel: Value) -> None:
        """The places of the next rows of the source that lie below the tile, at one vector of channels."""
        place = self.channels * WIDTH[self.dtype]
        for row in range(self.problem.step_in[0]):
            for col in range(tile.count * self.problem.step_in[1]):
                at = f.offset(f.args[4], channel * WIDTH[self.dtype], row * self._row_bytes() + col * place)
                f.prefetch(at, locality=2)

    def _tile_sums(
        self, f: Function, tile: _Tile, rows: dict[int, Value], channel: Value, mask: Value | None
    ) -> list[Value]:
        """A vector of channels of each place."""
        p, how, width = self.problem, self.arith, WIDTH[self.dtype]
        weights = f.offset(f.load(f.args[0], "ptr", 8 * self.buffers[3]), channel * 4)
        sums: list[Value] = [f.constant(0.0, how.vector)] * tile.count
        loaded: dict[tuple[int, int], Value] = {}
        for tap in tile.part.taps:
            weight = f.load(weights, how.vector, tap.number * self.line)
            for j in range(tile.count):
                col = j * p.step_in[1] + tap.col
                if (tap.row, col) not in loaded:
                    known = None if tile.col is None else tile.col * p.step_in[1] + col
                    if known is None or 0 <= known < p.source[1]:
                        place = f.offset(rows[tap.row], channel * width, col * self.channels * width)
                        loaded[tap.row, col] = how.load(f, place, self.dtype, mask)
                    else:
                        loaded[tap.row, col] = f.constant(0.0, how.vector)
                sums[j] = how.add(f, sums[j], loaded[tap.row, col], weight)
        return sums
