"""The steps of an LSTM or GRU: a tile is some rows times all gates of as many hidden units as a vector has lanes.

Products h w^T start from the inputs' part, so that the gates of a unit meet in registers; then the state follows.
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


class Forward(Steps):
    """Operands: x, h and c (LSTM), w, b (GRU). Results: all h, then of an LSTM last c, all c, gates; else gates."""

    def __init__(self, p: Layer, target: Target) -> None:
        super().__init__(p, target, p.gates, 6 if target.registers > 16 else 2)
        m = self.m
        self.lstm = p.gates == 4
        self.depth = p.hidden // 2 if m.pairs else p.hidden  # units of a row of h
        self.panel = self.depth * p.gates * m.bytes
        self.counters = self.reserve(p.steps * LINE)
        self.weights = self.reserve(self.groups * self.panel)
        self.cells = self.reserve(p.rows * p.hidden * 4)
        self.states = self.factors(p.hidden)

    def kernel(self, inputs: Types, outputs: Types) -> Kernel:
        """The finished kernel."""
        p = self.p
        f = Function(self.module, "pack", ["ptr", "i64", "ptr"])
        self._pack(f)
        f.give()
        f = Function(self.module, "steps", ["ptr", "i64", "ptr"])
        self.step(f, self.counters, lambda step, group: self._units(f, step, group))
        f.give()
        phases = [Phase("pack", self.groups), Phase("steps", p.steps * self.chunks)]
        text = launch.finish(self.module, phases, p.buffers + 1, threads=self.chunks)
        return Kernel(inputs, outputs, text, self.used)

    def _pack(self, f: Function) -> None:
        """A group's weights as [depth][gates][lanes], and its part of the first state."""
        p, m = self.p, self.m
        self.clear(f, self.counters, p.steps)
        unit = f.args[1] * m.lanes
        w, to = self.operand(f, 3 if self.lstm else 2), f.offset(self.space(f, self.weights), f.args[1] * self.panel)
        row_bytes, size = p.hidden * p.item, 4 if m.pairs else p.item

        def block(gate: Value, k: Value, mask: Value | None, count: int) -> None:
            rows = []
            for i in range(m.lanes):
                row = gate * p.hidden + f.min_int(unit + i, p.hidden - 1)
                place = f.offset(w, row * row_bytes, k * size)
                if m.pairs:
                    kind = vector("i32", m.lanes)
                    rows.append(f.load(place, kind) if mask is None else f.load_masked(place, kind, mask))
                else:
                    rows.append(_tiles.load_floats(f, m, p.kind, place, mask))
            for i, each in enumerate(_tiles.transposed(f, rows)[:count]):
                f.store(each, f.offset(to, ((k + i) * p.gates + gate) * m.bytes))

        full = self.depth - self.depth % m.lanes
        with f.loop(0, p.gates) as gate:
            if full:
                with f.loop(0, full, m.lanes) as k:
                    block(gate, k, None, m.lanes)
            if self.depth > full:
                rest = self.depth - full
                block(gate, f.i64(full), f.mask(f.i64(rest), m.lanes), rest)
        self._start(f, unit)

    def _start(self, f: Function, unit: Value) -> None:
        """Copy a few columns of the first state."""
        p, m, mask = self.p, self.m, self.mask(f, unit)
        with f.loop(0, p.rows) as row:
            at = row * p.hidden + unit
            h = _tiles.load_floats(f, m, p.kind, f.offset(self.operand(f, 1), at * p.item), mask)
            self.put_factor(f, h, self.states, f.i64(0), (row, unit), mask)
            if self.lstm:
                c = _tiles.load_floats(f, m, p.kind, f.offset(self.operand(f, 2), at * p.item), mask)
                _tiles.store_floats(f, m, "f32", c, f.offset(self.space(f, self.cells), at * 4), mask)

    def _units(self, f: Function, step: Value, group: Value) -> None:
        """One step of a group of hidden units."""
        p, m = self.p, self.m
        unit = group * m.lanes
        mask = self.mask(f, unit)
        time = f.i64(p.steps - 1) - step if p.reverse else step
        size, row_bytes = p.rows * p.hidden, self.states[1]
        state = self.factor_at(f, self.states, step)
        panel = f.offset(self.space(f, self.weights), group * self.panel)
        x = f.offset(self.operand(f, 0), time * (size * p.gates * p.item))
        bias = []
        if not self.lstm:
            bias = [
                _tiles.load_floats(f, m, p.kind, f.offset(self.operand(f, 3), (unit + c * p.hidden) * p.item), mask)
                for c in range(3)
            ]

        def start(row: Value, r: int, c: int) -> Value:
            if c == 2 and bias:
                return bias[2]
            at = (row + r) * (p.gates * p.hidden) + unit + c * p.hidden
            given = _tiles.load_floats(f, m, p.kind, f.offset(x, at * p.item), mask)
            return given + bias[c] if bias else given

        def some(row: Value, rows: int) -> None:
            found = _tiles.tile(
                f, m, rows, p.gates, self.depth, (f.offset(state, row * row_bytes), row_bytes, 4),
                lambda k, c: _tiles.units(f, m, f.offset(panel, k * (p.gates * m.bytes), c * m.bytes)),
                lambda r, c: start(row, r, c),
            )  # fmt: skip
            _tiles.keep(f, m, found, f.args[2])
            with f.loop(0, rows) as r:
                sums = [
                    f.load(f.offset(f.args[2], r * (p.gates * m.bytes), c * m.bytes), m.floats) for c in range(p.gates)
                ]
                if self.lstm:
                    self._lstm(f, sums, step, time, row + r, unit, mask)
                else:
                    self._gru(f, sums, step, time, row + r, unit, mask)

        self.row_tiles(f, some)

    def _put(self, f: Function, x: Value, i: int, at: Value, mask: Value | None) -> None:
        """A vector of a result, if that is wanted."""
        to = self.result(f, i)
        if to is not None:
            _tiles.store_floats(f, self.m, self.p.kind, x, f.offset(to, at * self.p.item), mask)

    def _gates(self, f: Function, values: list[Value], i: int, row: Value, unit: Value, mask: Value | None) -> None:
        """The four vectors that the gradient wants. row: counted over all steps."""
        for c, each in enumerate(values):
            self._put(f, each, i, row * (4 * self.p.hidden) + unit + c * self.p.hidden, mask)

    def _lstm(
        self, f: Function, sums: list[Value], step: Value, time: Value, row: Value, unit: Value, mask: Value | None
    ) -> None:
        p, m = self.p, self.m
        i, o, forget, g = (vmath.sigmoid(sums[0]), vmath.sigmoid(sums[3]), vmath.sigmoid(sums[1]), vmath.tanh(sums[2]))
        at = row * p.hidden + unit
        place = f.offset(self.space(f, self.cells), at * 4)
        c = forget * _tiles.load_floats(f, m, "f32", place, mask) + i * g
        _tiles.store_floats(f, m, "f32", c, place, mask)
        everywhere = (time * p.rows + row) * p.hidden + unit
        self._state(f, o * vmath.tanh(c), everywhere, step, row, unit, mask)
        with f.when(f.compare("eq", step, p.steps - 1)):
            self._put(f, c, 1, at, mask)
        if len(p.results) > 2:
            self._put(f, c, 2, everywhere, mask)
            self._gates(f, [i, forget, g, o], 3, time * p.rows + row, unit, mask)

    def _state(
        self, f: Function, h: Value, everywhere: Value, step: Value, row: Value, unit: Value, mask: Value | None
    ) -> None:
        """The new h, as a result and for the next step."""
        self._put(f, h, 0, everywhere, mask)
        self.put_factor(f, h, self.states, step + 1, (row, unit), mask)

    def _gru(
        self, f: Function, sums: list[Value], step: Value, time: Value, row: Value, unit: Value, mask: Value | None
    ) -> None:
        p, m = self.p, self.m
        r, z = vmath.sigmoid(sums[0]), vmath.sigmoid(sums[1])
        flat = time * p.rows + row
        inside = f.offset(self.operand(f, 0), (flat * (3 * p.hidden) + unit + 2 * p.hidden) * p.item)
        n = vmath.tanh(_tiles.load_floats(f, m, p.kind, inside, mask) + r * sums[2])
        size = 2 if m.pairs else 4
        here = f.offset(self.factor_at(f, self.states, step), row * self.states[1], unit * size)
        h = (1.0 - z) * n + z * _tiles.load_floats(f, m, self.factor, here, mask)
        self._state(f, h, flat * p.hidden + unit, step, row, unit, mask)
        if len(p.results) > 1:
            self._gates(f, [r, z, n, sums[2]], 1, flat, unit, mask)
