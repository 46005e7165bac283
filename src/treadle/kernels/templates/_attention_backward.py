"""The gradient of attention: probabilities are computed again from the rows' sums, block by block.

Keys are rows, queries lanes: p = 2^(scores - sums), dp^T = V dy^T, ds = p * (dp - sum(y * dy)) * scale; then
dv += p^T dy, dk += ds^T q, dq += ds k. A task does some of the blocks of keys of one head, so dk and dv are complete
after it; dq is summed over a head's tasks by a second phase if there are several.

p and ds of a block of keys are kept for many blocks of queries (`span`), so that the sums over queries are long.
Causal: what no query of a block sees is left out, by tiles of keys in the first two products and in the others by their
sums' bounds.
"""

from __future__ import annotations

from treadle.ir.types import Types
from treadle.kernels import launch
from treadle.kernels.kernel import Kernel
from treadle.kernels.launch import Phase
from treadle.kernels.llvm import Function, Module, Value, vector
from treadle.kernels.templates import _tiles
from treadle.kernels.templates._attention_bits import Bits
from treadle.kernels.templates._attention_mask_grad import MaskGrad
from treadle.kernels.templates._attention_shape import Problem
from treadle.kernels.templates._operands import Operands, Rows, along, ask, pack_columns
from treadle.kernels.templates._tiles import LOG2E, Machine
from treadle.kernels.templates._views import View


class Backward:
    """keys: of a block; groups: tasks that share a head; copies: of rows that do not lie one after another; span:
    blocks of queries whose p and ds are kept.

    `used`: bytes of scratch memory, after `kernel`.
    """

    def __init__(self, p: Problem, m: Machine, keys: int, groups: int, copies: bool = True, span: int = 8) -> None:
        self.p, self.m, self.keys, self.groups, self.copies = p, m, keys, groups, copies
        self.module = Module()
        self.f = Function(self.module, "gradient", ["ptr", "i64", "ptr"])
        self.tall = min(m.tall, p.keys)
        self.line = m.block * 4
        self.blocks = -(-p.rows // m.block)
        self.span = min(span, self.blocks)
        # Sums that are complete at once need no start, unless there are keys which no query sees.
        self.once = self.span == self.blocks and not (p.causal and p.keys > p.rows)
        self.row = self.span * self.line + 64  # bytes of a row of units, a line more as rows are read side by side
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
        workspace = p.heads * self.groups * bytes if self.groups > 1 else 0
        steep = p.outputs[3] if len(p.outputs) > 3 else None
        self.steep = MaskGrad(f, p, self.m, steep, workspace) if steep else None
        self._task(head, group, bytes)
        f.give()
        phases = [Phase("gradient", p.heads * self.groups)]
        if self.groups > 1 and p.outputs[0] is not None:
            phases.append(self._gather(bytes))
        if self.steep:
            phases.append(self.steep.gather(self.module))
            workspace += self.steep.bytes
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
        slack = (self.keys + 2 * m.tall + 2) * self.row
        front = m.tall * self.row
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
        if self.steep:
            self.steep.begin(head)
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
        """The rows' sums in units of log2 (inf beyond the last row) and sum(y * dy), times the scale unless ds is
        wanted without it."""
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
            ask(f, rows[0], p.inputs[3].strides[-2], p.width * p.item)

            def add(at: Value, mask: Value | None) -> None:
                a, b = (_tiles.load_floats(f, m, p.kind, f.offset(r, at * p.item), mask) for r in rows)
                total.set(total.get() + a * b)

            along(f, m, p.width, add)
            f.store(f.total(total.get()) * (1.0 if self.steep else p.scale), f.offset(self.dots, i * 4))

    def _zero(self, place: Value, bytes: int) -> None:
        with self.f.loop(0, bytes, self.m.bytes) as at:
            self.f.store(self.f.constant(0.0, self.m.floats), self.f.offset(place, at))

    def _keys(self, key: Value, count: Value) -> None:
        """One block of keys with all queries that see it."""
        f, p, m = self.f, self.p, self.m
        if not self.once:
            self._zero(self.dk, self.keys * self.pad[0] * 4)
            self._zero(self.dv, self.keys * self.pad[1] * 4)
        if self.steep:
            self.steep.clear(key, count)
        first = key // m.block if p.causal else f.i64(0)
        with f.loop(first, self.blocks, self.span) as block:
            self._span(key, count, block)
        for i, place in enumerate((self.dk, self.dv)):
            view = p.outputs[1 + i]
            if view is not None:
                self._write(self.x, view, (key, count), i, [place])

    def _seen(self, key: Value, count: Value, row: Value) -> Value:
        """How many keys of a block the block of queries from `row` on sees."""
        return self.f.min_int(count, row + self.m.block - key) if self.p.causal else count

    def _span(self, key: Value, count: Value, first: Value) -> None:
        """A block of keys with `span` blocks of queries from `first` on."""
        f, p, m = self.f, self.p, self.m
        last = f.min_int(first + self.span, self.blocks)
        with f.loop(first, last) as block:
            self._pair(key, count, block, (block - first) * self.line)
        row = first * m.block
        queries = f.min_int(f.i64(p.rows) - row, self.span * m.block)
        for a, b, to, n in ((self.shares, self.d_sum, self.dv, 1), (self.slopes, self.q_sum, self.dk, 0)):
            with f.loop(0, self._seen(key, count, (last - 1) * m.block), self.tall) as i:
                # Queries before the tile's first key do not see it.
                hidden = f.max_int(f.min_int(key + i - row, queries - 1), 0) if p.causal else f.i64(0)
                steps = queries
                if m.pairs:
                    hidden, steps = hidden >> 1, (queries + 1) >> 1
                here = f.offset(a, i * (self.row // 2 if m.pairs else self.row), hidden * 4)
                start = row + (hidden * 2 if m.pairs else hidden)
                there = f.offset(to, i * (self.pad[n] * 4))
                self._add((here, self._step, 4), b, start, steps - hidden, there, self.tall, n, self.once)

    @property
    def _step(self) -> int:
        """Bytes from one key's p or ds to the next one's."""
        return self.row // 2 if self.m.pairs else self.row

    def _pair(self, key: Value, count: Value, block: Value, column: Value) -> None:
        """p and ds of a block of keys with a block of queries, into the columns from `column` (bytes of units) on, and
        what they give for dq."""
        f, p, m = self.f, self.p, self.m
        row = block * m.block
        seen = self._seen(key, count, row)
        if self.mask:
            self.mask.load(row, key, seen, self.tall)
        if self.bits:
            self.bits.load(row, key, seen, self.tall)
        with f.loop(0, seen, self.tall) as i:
            start = f.min_int(key + i, p.keys - self.tall)
            if self.steep:
                self.steep.keys = key + i, key + count
            self._tile(start, start - key, block, column)
        if m.pairs:
            self._mix(seen, column)
        to = f.offset(self.dq, row * (self.pad[0] * 4))

        def rows(first: Value | int, tall: int) -> None:
            keys = f.min_int(seen, row + first + tall - key) if p.causal else seen
            here = (f.offset(self.mixed, column, f.i64(first) * 4), 4, self.row)
            there = f.offset(to, f.i64(first) * (self.pad[0] * 4))
            self._add(here, self.k_sum, key, (keys + 1) >> 1 if m.pairs else keys, there, tall, 0)

        full = m.block - m.block % m.tall
        with f.loop(0, full, m.tall) as i:
            rows(i, m.tall)
        if full < m.block:
            rows(full, m.block - full)

    def _tile(self, key: Value, at: Value, block: Value, column: Value) -> None:
        """p and ds of a few keys from `key` on, written to row `at`."""
        f, p, m = self.f, self.p, self.m
        half, row = m.wide // 2, block * m.block
        everything = range(m.wide)
        if not p.causal:
            self._products(key, block, everything)
            self._slopes(key, at, row, column, everything, False)
            return

        def upper() -> None:
            with f.loop(0, self.tall) as r:
                for c in range(half):
                    for to in (self.shares, self.slopes):
                        self._keep(f.constant(0.0, m.floats), to, at + r, column, c)
            self._products(key, block, everything[half:])
            self._slopes(key, at, row, column, everything[half:], True)

        def whole() -> None:
            self._products(key, block, everything)
            f.either(
                f.compare("sgt", key + (self.tall - 1), row),
                lambda: self._slopes(key, at, row, column, everything, True),
                lambda: self._slopes(key, at, row, column, everything, False),
            )

        if half:
            f.either(f.compare("sge", key - row, half * m.lanes), upper, whole)
        else:
            whole()

    def _products(self, key: Value, block: Value, columns: range) -> None:
        """Scores and the slopes of the shares, of some of the vectors of a tile. By way of memory: in registers, the
        scores would be in the way of the second product's sums."""
        f, p, m, x = self.f, self.p, self.m, self.x
        first = columns[0] * m.bytes
        operands = (self.k, self.q, p.depth), (self.v, self.d, p.width)
        for place, (rows, lanes, depth) in zip(self.tile, operands, strict=True):
            steps = x.steps(depth)
            there = f.offset(lanes, block * (steps * self.line), first)

            def units(k: Value, c: int, there: Value = there) -> Value:
                return _tiles.units(f, m, f.offset(there, k * self.line, c * m.bytes))

            found = _tiles.tile(f, m, self.tall, len(columns), steps, rows.at(key), units, None)
            for r, vectors in enumerate(found):
                for c, each in zip(columns, vectors, strict=True):
                    f.store(each, f.offset(place, r * self.line + c * m.bytes))

    def _slopes(self, key: Value, at: Value, row: Value, column: Value, columns: range, hide: bool) -> None:
        """p and ds from what `_products` has left."""
        f, p, m = self.f, self.p, self.m
        factor = p.scale * LOG2E if m.pairs else 1.0
        sums, dots = (
            {c: f.load(f.offset(rows, row * 4, c * m.bytes), m.floats) for c in columns}
            for rows in (self.sums, self.dots)
        )
        lanes = f.lane_numbers(m.lanes)
        with f.loop(0, self.tall) as r:
            for c in columns:
                score, slope = (f.load(f.offset(t, r * self.line, c * m.bytes), m.floats) for t in self.tile)
                if self.mask:
                    score = score * factor + self.mask.value(key + r, 0, c) * LOG2E - sums[c]
                else:
                    score = score * factor - sums[c]
                if hide:
                    place = lanes + f.splat(f.convert("trunc", row - key - r + c * m.lanes, "i32"), m.lanes)
                    score = f.select(f.compare("sge", place, 0), score, float("-inf"))
                share = _tiles.exp2(f, m, score)
                if self.bits:
                    slope = self.bits.dropped(slope, key + r, 0, c)
                    self._keep(self.bits.dropped(share, key + r, 0, c), self.shares, at + r, column, c)
                else:
                    self._keep(share, self.shares, at + r, column, c)
                if self.steep:
                    slope = share * (slope - dots[c])
                    self.steep.keep(slope, key + r, row, c)
                    slope = slope * p.scale
                else:
                    slope = share * (slope * p.scale - dots[c])
                self._keep(slope, self.slopes, at + r, column, c)

    def _keep(self, x: Value, place: Value, at: Value, column: Value, c: int) -> None:
        """Write a vector of a row of p or ds: floats, or bfloats where there are pairs."""
        f, m = self.f, self.m
        size = 2 if m.pairs else 4
        there = f.offset(place, at * self._step, column >> 1 if m.pairs else column, c * m.lanes * size)
        _tiles.store_floats(f, m, "bf16" if m.pairs else "f32", x, there)

    def _mix(self, count: Value, column: Value) -> None:
        """ds with two keys in a unit, for the sum over keys."""
        f, m, row = self.f, self.m, self._step
        half, base = vector("i16", m.lanes), f.offset(self.slopes, column >> 1)
        for c in range(m.wide):
            f.store(f.constant(0, half), f.offset(base, count * row, c * m.lanes * 2))
        with f.loop(0, count, 2) as i:
            for c in range(m.wide):
                here = f.offset(base, i * row, c * m.lanes * 2)
                low, high = (f.convert("zext", f.load(here, half, u * row), "i32") for u in (0, 1))
                f.store(low | (high << 16), f.offset(self.mixed, (i >> 1) * self.row, column, c * m.bytes))

    def _add(
        self,
        a: tuple[Value, int, int],
        b: Rows,
        first: Value,
        steps: Value,
        to: Value,
        rows: int,
        which: int,
        new: bool = False,
    ) -> None:
        """to[rows, ...] += a b, b's rows from `first` on; which: 0 for the depth, 1 for the width; new: = instead."""
        f, m, step = self.f, self.m, self.pad[which] * 4
        width = self.p.width if which else self.p.depth
        base, row = b.units_at(first)

        def part(at: Value | int, columns: int, mask: Value | None) -> None:
            here, there = f.offset(base, f.i64(at) * 4), f.offset(to, f.i64(at) * 4)

            def units(k: Value, c: int) -> Value:
                place = f.offset(here, k * row, c * m.bytes)
                return _tiles.units(f, m, place, mask if c == columns - 1 else None)

            def start(r: int, c: int) -> Value:
                return f.load(there, m.floats, r * step + c * m.bytes)

            found = _tiles.tile(f, m, rows, columns, steps, a, units, None if new else start)
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
        f, p, m, (first, count) = x.f, self.p, self.m, rows
        pad, width = self.pad[which], self.p.width if which else self.p.depth
        to, step = x.pointer(view, output=True), view.strides[-2]
        with f.loop(0, count) as i:
            ask(f, f.offset(to, (first + i) * step), step, width * p.item, write=True)

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
