"""The gradient of an LSTM's or GRU's steps, from the last to the first; one more step gives the first state's.

A step needs dh = (what came in) + (gradient of the gates of the step after) w: a tile is some rows times a few vectors
of hidden units, whose gates' gradients follow from dh in registers and are the operand of the next step.
"""

from __future__ import annotations

from treadle.ir.types import Types
from treadle.kernels import launch, vmath
from treadle.kernels.kernel import Kernel
from treadle.kernels.launch import Phase
from treadle.kernels.llvm import Function, Value, vector
from treadle.kernels.target import Target
from treadle.kernels.templates import _tiles
from treadle.kernels.templates._recurrent import LINE, Layer, Steps


class Backward(Steps):
    """Operands: LSTM: c, w, cs, gates, dh, dc; GRU: h, w, hs, gates, dh. Results: LSTM: dx, dh, dc; GRU: dx, the
    gradient of h w^T + b, dh."""

    def __init__(self, p: Layer, target: Target) -> None:
        super().__init__(p, target, 2, 8 if target.registers > 16 else 4)
        m = self.m
        self.lstm = p.gates == 4
        self.width = p.gates * p.hidden
        self.depth = self.width // 2 if m.pairs else self.width
        self.panel = self.depth * m.wide * m.bytes
        self.counters = self.reserve((p.steps + 1) * LINE)
        self.weights = self.reserve(self.groups * self.panel)
        self.carry = self.reserve(p.rows * p.hidden * 4)  # of dc; GRU: of the part of dh that passes by
        self.slopes = self.factors(self.width)

    def kernel(self, inputs: Types, outputs: Types) -> Kernel:
        """The finished kernel."""
        p = self.p
        f = Function(self.module, "pack", ["ptr", "i64", "ptr"])
        self._pack(f)
        f.give()
        f = Function(self.module, "steps", ["ptr", "i64", "ptr"])
        self.step(f, self.counters, lambda step, group: self._units(f, step, group))
        f.give()
        phases = [Phase("pack", self.groups), Phase("steps", (p.steps + 1) * self.chunks)]
        text = launch.finish(self.module, phases, p.buffers + 1, threads=self.chunks)
        return Kernel(inputs, outputs, text, self.used)

    def _pack(self, f: Function) -> None:
        """A group's weights as [gates * H][vectors][lanes], and its part of the last state's gradient."""
        p, m = self.p, self.m
        self.clear(f, self.counters, p.steps + 1)
        w, to = self.operand(f, 1), f.offset(self.space(f, self.weights), f.args[1] * self.panel)
        row = p.hidden * p.item
        half = vector("i16", m.lanes)
        with f.loop(0, m.wide) as c:
            unit = f.args[1] * self.units + c * m.lanes
            mask = self.mask(f, unit)
            with f.loop(0, self.depth) as k:
                there = f.offset(to, (k * m.wide + c) * m.bytes)
                if m.pairs:
                    here = f.offset(w, k * (2 * row), unit * 2)
                    low, high = (
                        f.convert(
                            "zext",
                            f.load(here, half, u * row) if mask is None else f.load_masked(here, half, mask, u * row),
                            "i32",
                        )
                        for u in (0, 1)
                    )
                    f.store(low | (high << 16), there)
                else:
                    here = f.offset(w, k * row, unit * p.item)
                    f.store(_tiles.load_floats(f, m, p.kind, here, mask), there)
            with f.loop(0, p.rows) as n:
                at = n * p.hidden + unit
                start = f.constant(0.0, m.floats)
                if self.lstm:
                    start = _tiles.load_floats(f, m, p.kind, f.offset(self.operand(f, 5), at * p.item), mask)
                _tiles.store_floats(f, m, "f32", start, f.offset(self.space(f, self.carry), at * 4), mask)
                for i in range(p.gates):  # nothing follows the last step
                    column = unit + i * p.hidden
                    self.put_factor(f, f.constant(0.0, m.floats), self.slopes, f.i64(0), (n, column), mask)

    def _units(self, f: Function, step: Value, group: Value) -> None:
        """One step of a group of hidden units; the last one gives the first state's gradient."""
        p, m = self.p, self.m
        time = step if p.reverse else f.i64(p.steps - 1) - step
        there, row_bytes = self.factor_at(f, self.slopes, step), self.slopes[1]
        panel = f.offset(self.space(f, self.weights), group * self.panel)

        def some(row: Value, rows: int) -> None:
            self._ask(f, time, row, rows, group)
            found = _tiles.tile(
                f, m, rows, m.wide, self.depth, (f.offset(there, row * row_bytes), row_bytes, 4),
                lambda k, c: _tiles.units(f, m, f.offset(panel, k * (m.wide * m.bytes), c * m.bytes)), None,
            )  # fmt: skip
            _tiles.keep(f, m, found, f.args[2])
            with f.loop(0, rows) as r, f.loop(0, m.wide) as c:
                given = f.load(f.offset(f.args[2], (r * m.wide + c) * m.bytes), m.floats)
                unit = group * self.units + c * m.lanes
                self._unit(f, given, step, time, row + r, unit)

        self.row_tiles(f, some)

    def _ask(self, f: Function, time: Value, row: Value, rows: int, group: Value) -> None:
        """Fetch what a tile's units need into the cache while their products are summed; of no step does no harm."""
        p, item = self.p, self.p.item
        with f.loop(0, rows) as r:
            flat = time * p.rows + row + r
            unit = group * self.units
            for at in range(0, self.units * item, LINE):
                for i in (2, 4):
                    f.prefetch(self.operand(f, i), (flat * p.hidden + unit) * item + at)
                for c in range(4):
                    f.prefetch(self.operand(f, 3), (flat * (4 * p.hidden) + unit + c * p.hidden) * item + at)
                to = self.result(f, 0)
                if to is not None:
                    for c in range(p.gates):
                        f.prefetch(to, (flat * self.width + unit + c * p.hidden) * item + at, write=True)

    def _unit(self, f: Function, given: Value, step: Value, time: Value, row: Value, unit: Value) -> None:
        """One vector: its gates' gradients, or after the last step the state's."""
        p, m = self.p, self.m
        mask = self.mask(f, unit)
        at = row * p.hidden + unit
        carry = f.offset(self.space(f, self.carry), at * 4)
        old = _tiles.load_floats(f, m, "f32", carry, mask)

        def last() -> None:
            if self.lstm:
                self._put(f, given, 1, at, mask)
                self._put(f, old, 2, at, mask)
            else:
                self._put(f, given + old, 2, at, mask)

        def more() -> None:
            flat = time * p.rows + row
            d = given + self._load(f, 4, flat * p.hidden + unit, mask)
            gates = [self._load(f, 3, flat * (4 * p.hidden) + unit + c * p.hidden, mask) for c in range(4)]
            before = self._before(f, step, time, at, mask)
            if self.lstm:
                new, slopes = self._lstm(f, d, old, gates, before, flat * p.hidden + unit, mask)
                self._slopes(f, 0, slopes, flat, unit, mask)
                made = slopes
            else:
                d = d + old
                r, z, n, hn = gates
                dn = d * (1.0 - z) * (1.0 - n * n)
                dr, dz = dn * hn * r * (1.0 - r), d * (before - n) * z * (1.0 - z)
                new = d * z
                made = [dr, dz, dn * r]
                self._slopes(f, 0, [dr, dz, dn], flat, unit, mask)
                self._slopes(f, 1, made, flat, unit, mask)
            for i, each in enumerate(made):
                self.put_factor(f, each, self.slopes, step + 1, (row, unit + i * p.hidden), mask)
            _tiles.store_floats(f, m, "f32", new, carry, mask)

        f.either(f.compare("eq", step, p.steps), last, more)

    def _lstm(
        self, f: Function, d: Value, dc: Value, gates: list[Value], before: Value, at: Value, mask: Value | None
    ) -> tuple[Value, list[Value]]:
        """The gradient of the c before, and those of the gates."""
        i, forget, g, o = gates
        t = vmath.tanh(self._load(f, 2, at, mask))
        inner = dc + d * o * (1.0 - t * t)
        slopes = [
            inner * g * i * (1.0 - i),
            inner * before * forget * (1.0 - forget),
            inner * i * (1.0 - g * g),
            d * t * o * (1.0 - o),
        ]
        return inner * forget, slopes

    def _before(self, f: Function, step: Value, time: Value, at: Value, mask: Value | None) -> Value:
        """A vector of c (LSTM) or h (GRU) before the step."""
        p = self.p
        before = time + 1 if p.reverse else time - 1
        there = f.offset(self.operand(f, 2), before * (p.rows * p.hidden * p.item))
        here = f.select(f.compare("eq", step, p.steps - 1), self.operand(f, 0), there)
        return _tiles.load_floats(f, self.m, p.kind, f.offset(here, at * p.item), mask)

    def _load(self, f: Function, i: int, at: Value, mask: Value | None) -> Value:
        return _tiles.load_floats(f, self.m, self.p.kind, f.offset(self.operand(f, i), at * self.p.item), mask)

    def _put(self, f: Function, x: Value, i: int, at: Value, mask: Value | None) -> None:
        """A vector of a result, if that is wanted."""
        to = self.result(f, i)
        if to is not None:
            _tiles.store_floats(f, self.m, self.p.kind, x, f.offset(to, at * self.p.item), mask)

    def _slopes(self, f: Function, i: int, values: list[Value], flat: Value, unit: Value, mask: Value | None) -> None:
        """The gates' gradients as result i."""
        for c, each in enumerate(values):
            self._put(f, each, i, flat * self.width + unit + c * self.p.hidden, mask)
