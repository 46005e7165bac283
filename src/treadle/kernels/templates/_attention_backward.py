"""The gradient of attention: probabilities are computed again from the rows' sums, block by block.

Keys are rows, queries lanes: p = 2^(scores - sums), dp^T = V dy^T, ds = p * (dp - sum(y * dy)) * scale; then
dv += p^T dy, dk += ds^T q, dq += ds k. A task does some of the blocks of keys of one head, so dk and dv are complete
after it; dq is summed over a head's tasks by a second phase if there are several.
"""

from __future__ import annotations

from treadle.ir.types import Types
from treadle.kernels import launch
from treadle.kernels.kernel import Kernel
from treadle.kernels.launch import Phase
from treadle.kernels.llvm import Function, Module, Value, vector
from treadle.kernels.templates import _tiles
from treadle.kernels.templates._attention_bits import Bits
from treadle.kernels.templates._attention_shape import Problem
from treadle.kernels.templates._operands import Operands, Rows, along, pack_columns
from treadle.kernels.templates._tiles import LOG2E, Machine
from treadle.kernels.templates._views import View


class Backward:
    """keys: of a block; groups: tasks that share a head; copies: of rows that do not lie one after another.

    `used`: bytes of scratch memory, after `kernel`.
    """

    def __init__(self, p: Problem, m: Machine, keys: int, groups: int, copies: bool = True) -> None:
        self.p, self.m, self.keys, self.groups, self.copies = p, m, keys, groups, copies
        self.module = Module()
        self.f = Function(self.module, "gradient", ["ptr", "i64", "ptr"])
        self.tall = min(m.tall, p.keys)
        self.line = m.block * 4
        self.blocks = -(-p.rows // m.block)
        self.pad = [-(-n // m.lanes) * m.lanes for n in (p.depth, p.width)]  # floats of a row of sums
        self.used = 0

    def room(self, bytes: int) -> Value:
        """Scratch memory, with a line more so that equal places of two arrays do not meet in the cache."""
        at = self.f.offset(self.f.args[2], self.used)
        self.used += (bytes + 63) // 64 * 64 + 64
        return at

    def kernel(self, inputs: Types, outputs: Types) -> Kernel:
        """The finished kernel."""
        f, p = self.f, self.p
        bytes = self.blocks * self.m.block * self.pad[0] * 4  # of one task's part of dq
        head, group = f.args[1] // self.groups, f.args[1] % self.groups
        self._task(head, group, bytes)
        f.give()
        phases = [Phase("gradient", p.heads * self.groups)]
        workspace = 0
        if self.groups > 1 and p.outputs[0] is not None:
            workspace = p.heads * self.groups * bytes
            phases.append(self._gather(bytes))
        text = launch.finish(self.module, phases, p.buffers + (workspace > 0))
        return Kernel(inputs, outputs, text, workspace)

    def _task(self, head: Value, group: Value, bytes: int) -> None:
        f, p, m = self.f, self.p, self.m
        self.x = x = Operands(f, m, p, head, self.room)
        x.copies = self.copies
        self.k, self.v = x.rows(1, p.depth), x.rows(2, p.width)
        self.k_sum = x.summed(1, p.depth) if m.pairs else self.k
        self.q_sum, self.d_sum = x.summed(0, p.depth), x.summed(5, p.width)
        self.q = self._columns(0, p.depth, 1.0 if m.pairs else p.scale * LOG2E)
        self.d = self._columns(5, p.width, 1.0)
        self._rows()
        slack = (self.keys + 2 * m.tall + 2) * self.line
        front = m.tall * self.line
        self.shares, self.slopes = f.offset(self.room(slack), front), f.offset(self.room(slack), front)
        self.mixed = self.room(slack) if m.pairs else self.slopes
        self.tile = [self.room(self.tall * self.line) for _ in range(2)]
        self.mask = x.mask(self.keys + m.tall + m.lanes)
        self.bits = Bits(x, p.seeds, p.rate, self.keys + m.tall + 2) if p.seeds is not None else None
        self.dk, self.dv = (self.room((self.keys + m.tall) * n * 4) for n in self.pad)
        if self.groups > 1:
            self.dq = f.offset(f.load(f.args[0], "ptr", 8 * p.buffers), f.args[1] * bytes)
        else:
            self.dq = self.room(bytes)
        self._zero(self.dq, bytes)
        with f.loop(group * self.keys, p.keys, self.keys * self.groups) as key:
            self._keys(key, f.min_int(f.i64(p.keys) - key, self.keys))
        if self.groups == 1 and p.outputs[0] is not None:
            self._write(x, p.outputs[0], (f.i64(0), f.i64(p.rows)), 0, [self.dq])

    def _columns(self, index: int, depth: int, factor: float) -> Value:
        """All rows of an operand as columns, block by block."""
        f, m = self.f, self.m
        size = self.x.steps(depth) * self.line
        to = self.room(self.blocks * size)
        with f.loop(0, self.blocks) as i:
            there = f.offset(to, i * size)
            pack_columns(self.x, self.p.inputs[index], i * m.block, self.p.rows, depth, there, factor, zeros=True)
        return to

    def _rows(self) -> None:
        """The rows' sums in units of log2 (inf beyond the last row) and sum(y * dy)."""
        f, p, m, x = self.f, self.p, self.m, self.x
        count = self.blocks * m.block
        self.sums, self.dots = self.room(count * 4), self.room(count * 4)
        given = x.pointer(p.inputs[4])
        with f.loop(0, count, m.lanes) as i:
            inside = f.mask(f.i64(p.rows) - i, m.lanes)
            found = f.load_masked(f.offset(given, i * 4), m.floats, inside, other=float("inf")) * LOG2E
            f.store(found, f.offset(self.sums, i * 4))
            f.store(f.constant(0.0, m.floats), f.offset(self.dots, i * 4))
        y, d = (x.pointer(p.inputs[i]) for i in (3, 5))
        with f.loop(0, p.rows) as i:
            total = f.variable(m.floats, 0.0)
            rows = [f.offset(a, i * p.inputs[n].strides[-2]) for a, n in ((y, 3), (d, 5))]

            def add(at: Value, mask: Value | None) -> None:
                a, b = (_tiles.load_floats(f, m, p.kind, f.offset(r, at * p.item), mask) for r in rows)
                total.set(total.get() + a * b)

            along(f, m, p.width, add)
            f.store(f.total(total.get()), f.offset(self.dots, i * 4))

    def _zero(self, place: Value, bytes: int) -> None:
        with self.f.loop(0, bytes, self.m.bytes) as at:
            self.f.store(self.f.constant(0.0, self.m.floats), self.f.offset(place, at))

    def _keys(self, key: Value, count: Value) -> None:
        """One block of keys with all queries that see it."""
        f, p, m = self.f, self.p, self.m
        self._zero(self.dk, self.keys * self.pad[0] * 4)
        self._zero(self.dv, self.keys * self.pad[1] * 4)
        first = key // m.block if p.causal else f.i64(0)
        with f.loop(first, self.blocks) as block:
            self._pair(key, count, block)
        for i, place in enumerate((self.dk, self.dv)):
            view = p.outputs[1 + i]
            if view is not None:
                self._write(self.x, view, (key, count), i, [place])

    def _pair(self, key: Value, count: Value, block: Value) -> None:
        """A block of keys with a block of queries."""
        f, p, m = self.f, self.p, self.m
        row = block * m.block
        if self.mask:
            self.mask.load(row, key, count, self.tall)
        if self.bits:
            self.bits.load(row, key, count, self.tall)
        with f.loop(0, count, self.tall) as i:
            start = f.min_int(key + i, p.keys - self.tall)
            self._slopes(start, start - key, block)
        queries = f.min_int(f.i64(p.rows) - row, m.block)
        steps, keys = queries, count
        if m.pairs:
            self._mix(count)
            steps, keys = (queries + 1) >> 1, (count + 1) >> 1
        half = self.line // 2 if m.pairs else self.line
        for a, b, to, n in ((self.shares, self.d_sum, self.dv, 1), (self.slopes, self.q_sum, self.dk, 0)):
            with f.loop(0, count, self.tall) as i:
                here = (f.offset(a, i * half), half, 4)
                self._add(here, b, row, steps, f.offset(to, i * (self.pad[n] * 4)), self.tall, n)
        to = f.offset(self.dq, row * (self.pad[0] * 4))
        full = m.block - m.block % m.tall
        with f.loop(0, full, m.tall) as i:
            here = (f.offset(self.mixed, i * 4), 4, self.line)
            self._add(here, self.k_sum, key, keys, f.offset(to, i * (self.pad[0] * 4)), m.tall, 0)
        if full < m.block:
            here = (f.offset(self.mixed, full * 4), 4, self.line)
            self._add(here, self.k_sum, key, keys, f.offset(to, full * self.pad[0] * 4), m.block - full, 0)

    def _slopes(self, key: Value, at: Value, block: Value) -> None:
        """p and ds of a few keys from `key` on, written to row `at`."""
        f, p, m, x = self.f, self.p, self.m, self.x

        def product(rows: Rows, columns: Value, depth: int) -> list[list[Value]]:
            steps = x.steps(depth)
            there = f.offset(columns, block * (steps * self.line))
            return _tiles.tile(
                f, m, self.tall, m.wide, steps, rows.at(key),
                lambda k, c: _tiles.units(f, m, f.offset(there, k * self.line, c * m.bytes)), None,
            )  # fmt: skip

        # By way of memory: in registers, the scores would be in the way of the second product's sums.
        for place, found in (
            (self.tile[0], x.scored(product(self.k, self.q, p.depth), key, self.mask)),
            (self.tile[1], product(self.v, self.d, p.width)),
        ):
            _tiles.keep(f, m, found, place)
        row, lanes = block * m.block, f.lane_numbers(m.lanes)
        sums, dots = (
            [f.load(f.offset(rows, row * 4, c * m.bytes), m.floats) for c in range(m.wide)]
            for rows in (self.sums, self.dots)
        )
        with f.loop(0, self.tall) as r:
            for c in range(m.wide):
                score, slope = (f.load(f.offset(t, r * self.line, c * m.bytes), m.floats) for t in self.tile)
                if p.causal:
                    place = lanes + f.splat(f.convert("trunc", row - key - r + c * m.lanes, "i32"), m.lanes)
                    score = f.select(f.compare("sge", place, 0), score, float("-inf"))
                share = _tiles.exp2(f, m, score - sums[c])
                if self.bits:
                    slope = self.bits.dropped(slope, key + r, 0, c)
                    self._keep(self.bits.dropped(share, key + r, 0, c), self.shares, at + r, c)
                else:
                    self._keep(share, self.shares, at + r, c)
                self._keep(share * (slope - dots[c]) * p.scale, self.slopes, at + r, c)

    def _keep(self, x: Value, place: Value, at: Value, c: int) -> None:
        """Write a vector of a row of p or ds: floats, or bfloats where there are pairs."""
        f, m = self.f, self.m
        size = 2 if m.pairs else 4
        row = size * m.block
        there = f.offset(place, at * row, c * m.lanes * size)
        _tiles.store_floats(f, m, "bf16" if m.pairs else "f32", x, there)

    def _mix(self, count: Value) -> None:
        """ds with two keys in a unit, for the sum over keys."""
        f, m = self.f, self.m
        half, row = vector("i16", m.lanes), 2 * m.block
        for c in range(m.wide):
            f.store(f.constant(0, half), f.offset(self.slopes, count * row, c * m.lanes * 2))
        with f.loop(0, count, 2) as i:
            for c in range(m.wide):
                here = f.offset(self.slopes, i * row, c * m.lanes * 2)
                low, high = (f.convert("zext", f.load(here, half, u * row), "i32") for u in (0, 1))
                f.store(low | (high << 16), f.offset(self.mixed, (i >> 1) * self.line, c * m.bytes))

    def _add(
        self, a: tuple[Value, int, int], b: Rows, first: Value, steps: Value, to: Value, rows: int, which: int
    ) -> None:
        """to[rows, ...] += a b, b's rows from `first` on; which: 0 for the depth, 1 for the width."""
        f, m, step = self.f, self.m, self.pad[which] * 4
        width = self.p.width if which else self.p.depth
        base, row = b.units_at(first)

        def part(at: Value | int, columns: int, mask: Value | None) -> None:
            here, there = f.offset(base, f.i64(at) * 4), f.offset(to, f.i64(at) * 4)

            def units(k: Value, c: int) -> Value:
                place = f.offset(here, k * row, c * m.bytes)
                return _tiles.units(f, m, place, mask if c == columns - 1 else None)

            found = _tiles.tile(
                f, m, rows, columns, steps, a, units, lambda r, c: f.load(there, m.floats, r * step + c * m.bytes)
            )
            for r in range(rows):
                for c in range(columns):
                    f.store(found[r][c], f.offset(there, r * step + c * m.bytes))

        full = width - width % m.block
        if full:
            with f.loop(0, full, m.block) as at:
                part(at, m.wide, None)
        if width > full:
            rest = width - full
            tail = f.mask(f.i64(rest % m.lanes), m.lanes) if rest % m.lanes else None
            part(full, -(-rest // m.lanes), tail)

    def _write(self, x: Operands, view: View, rows: tuple[Value, Value], which: int, sources: list[Value]) -> None:
        """The sums of rows of floats as rows of an output: from the first so many. which: 0 for dq and dk, 1 for dv."""
        f, m, (first, count) = x.f, self.m, rows
        pad, width = self.pad[which], self.p.width if which else self.p.depth
        to, step = x.pointer(view, output=True), view.strides[-2]
        with f.loop(0, count) as i:

            def move(at: Value, mask: Value | None) -> None:
                parts = [f.load(f.offset(s, i * (pad * 4), at * 4), m.floats) for s in sources]
                total = parts[0]
                for part in parts[1:]:
                    total = total + part
                there = f.offset(to, (first + i) * step, at * self.p.item)
                _tiles.store_floats(f, m, self.p.kind, total, there, mask)

            along(f, m, width, move)

    def _gather(self, bytes: int) -> Phase:
        """The phase that sums the tasks' parts of dq."""
        p, m = self.p, self.m
        f = Function(self.module, "gather", ["ptr", "i64", "ptr"])
        parts = -(-p.rows // 64)
        head, first = f.args[1] // parts, f.args[1] % parts * 64
        x = Operands(f, m, p, head, self.room)
        base = f.offset(f.load(f.args[0], "ptr", 8 * p.buffers), head * (self.groups * bytes))
        base = f.offset(base, first * (self.pad[0] * 4))
        sources = [f.offset(base, g * bytes) for g in range(self.groups)]
        assert p.outputs[0] is not None
        count = f.min_int(f.i64(p.rows) - first, 64)
        self._write(x, p.outputs[0], (first, count), 0, sources)
        f.give()
        return Phase("gather", p.heads * parts)
