"""Attention forward without the matrix of scores: blocks of queries as lanes, keys as rows, a running maximum.

For a block of queries and a block of keys: scores^T = K Q^T (rows are keys, so the maximum and the sum are taken lane
by lane), p = 2^(scores - maximum), and y^T is scaled to the new maximum and gets V^T p. Scores are in units of log2.
Source: Dao et al. 2022, arXiv:2205.14135; the order of the axes is our own.
"""

from __future__ import annotations

from treadle.ir.types import Types
from treadle.kernels import launch
from treadle.kernels.kernel import Kernel
from treadle.kernels.launch import Phase
from treadle.kernels.llvm import Function, Module, Value, Variable
from treadle.kernels.templates import _tiles
from treadle.kernels.templates._attention_bits import Bits
from treadle.kernels.templates._attention_shape import Problem
from treadle.kernels.templates._operands import Operands, pack_columns, rows_out
from treadle.kernels.templates._tiles import LN2, LOG2E, Machine


class Forward:
    """keys: of a block; queries: of a task; copies: of rows that do not lie one after another.

    `used`: bytes of scratch memory, after `kernel`.
    """

    def __init__(self, p: Problem, m: Machine, keys: int, queries: int, copies: bool = True) -> None:
        self.p, self.m, self.keys, self.queries, self.copies = p, m, keys, queries, copies
        self.module = Module()
        self.f = Function(self.module, "attend", ["ptr", "i64", "ptr"])
        self.tall = min(m.tall, p.keys)
        self.line = m.block * 4  # bytes of a row of scores
        self.used = 0

    def room(self, bytes: int) -> Value:
        """Scratch memory, with a line more so that equal places of two arrays do not meet in the cache."""
        at = self.f.offset(self.f.args[2], self.used)
        self.used += (bytes + 63) // 64 * 64 + 64
        return at

    def kernel(self, inputs: Types, outputs: Types) -> Kernel:
        """The finished kernel."""
        blocks = -(-self.p.rows // self.queries)
        f = self.f
        head, block = f.args[1] // blocks, f.i64(blocks - 1) - f.args[1] % blocks
        self._task(head, block * self.queries)
        f.give()
        text = launch.finish(self.module, [Phase("attend", self.p.heads * blocks)], self.p.buffers)
        return Kernel(inputs, outputs, text)

    def _task(self, head: Value, first: Value) -> None:
        f, p, m = self.f, self.p, self.m
        limit = f.min_int(first + self.queries, p.keys) if p.causal else None
        self.x = Operands(f, m, p, head, self.room, limit)
        self.x.copies = self.copies
        self.k, self.v = self.x.rows(1, p.depth), self.x.summed(2, p.width)
        self.columns = self.room(self.x.steps(p.depth) * self.line)
        self.scores = f.offset(self.room((self.keys + 2 * m.tall + 2) * self.line), m.tall * self.line)
        self.y = self.room((p.width + m.lanes) * self.line)
        self.mask = self.x.mask(self.keys + m.tall + m.lanes)
        self.bits = Bits(self.x, p.seeds, p.rate, self.keys + 2) if p.seeds is not None else None
        self.most = [f.variable(m.floats) for _ in range(m.wide)]
        self.total = [f.variable(m.floats) for _ in range(m.wide)]
        last = f.min_int(first + self.queries, p.rows)
        with f.loop(first, last, m.block) as row:
            self._block(head, row)

    def _block(self, head: Value, row: Value) -> None:
        """All keys for a block of queries from `row` on."""
        f, p, m = self.f, self.p, self.m
        factor = 1.0 if m.pairs else p.scale * LOG2E
        pack_columns(self.x, p.inputs[0], row, p.rows, p.depth, self.columns, factor)
        for c in range(m.wide):
            self.most[c].set(float("-inf"))
            self.total[c].set(0.0)
        with f.loop(0, (p.width + m.lanes) * self.line, m.bytes) as at:
            f.store(f.constant(0.0, m.floats), f.offset(self.y, at))
        end = f.min_int(row + m.block, p.keys) if p.causal else f.i64(p.keys)
        with f.loop(0, end, self.keys) as key:
            self._keys(row, key, f.min_int(end - key, self.keys))
        self._finish(head, row)

    def _keys(self, row: Value, key: Value, count: Value) -> None:
        """A block of `count` keys from `key` on."""
        f, p, m = self.f, self.p, self.m
        new = [f.variable(m.floats, each.get()) for each in self.most]
        if self.mask:
            self.mask.load(row, key, count, self.tall)
        lanes = f.lane_numbers(m.lanes)
        diagonal = f.compare("sgt", key + count + (self.tall - 1), row) if p.causal else None
        with f.loop(0, count, self.tall) as i:
            start = f.min_int(key + i, p.keys - self.tall)
            self._scores(start, start - key, row, lanes, new, diagonal)
        if m.pairs:
            for c in range(m.wide):
                f.store(f.constant(float("-inf"), m.floats), f.offset(self.scores, count * self.line, c * m.bytes))
        safe, shrink = list[Value](), list[Value]()
        for c in range(m.wide):
            top = new[c].get()
            safe.append(f.select(f.compare("oeq", top, float("-inf")), 0.0, top))
            shrink.append(_tiles.exp2(f, m, self.most[c].get() - safe[c]))
            self.total[c].set(self.total[c].get() * shrink[c])
            self.most[c].set(top)
        if self.bits:
            self.bits.load(row, key, count, 1)
        self._powers(key, count, safe)
        self._sums(key, count, shrink)

    def _scores(
        self, key: Value, at: Value, row: Value, lanes: Value, new: list[Variable], diagonal: Value | None
    ) -> None:
        """scores^T of a few keys, written to row `at` of the block; `new` are the maxima so far."""
        f, m = self.f, self.m
        found = _tiles.tile(
            f, m, self.tall, m.wide, self.x.steps(self.p.depth), self.k.at(key),
            lambda k, c: _tiles.units(f, m, f.offset(self.columns, k * self.line, c * m.bytes)), None,
        )  # fmt: skip
        found = self.x.scored(found, key, self.mask)

        def write(hide: bool) -> None:
            for c in range(m.wide):
                top = new[c].get()
                place = lanes + f.splat(f.convert("trunc", row - key + c * m.lanes, "i32"), m.lanes)
                for r in range(self.tall):
                    s = found[r][c]
                    if hide:
                        s = f.select(f.compare("sge", place, r), s, float("-inf"))
                    f.store(s, f.offset(self.scores, at * self.line, r * self.line + c * m.bytes))
                    top = _tiles.larger(f, s, top)
                new[c].set(top)

        if diagonal is None:
            write(False)
        else:
            f.either(diagonal, lambda: write(True), lambda: write(False))

    def _powers(self, key: Value, count: Value, safe: list[Value]) -> None:
        """Scores become p, as units in the place of the scores; `total` gets their sums, also of what is dropped."""
        f, m = self.f, self.m
        step = 2 if m.pairs else 1
        with f.loop(0, count, step) as i:
            for c in range(m.wide):
                at = f.offset(self.scores, i * self.line, c * m.bytes)
                p = [_tiles.exp2(f, m, f.load(at, m.floats, u * self.line) - safe[c]) for u in range(step)]
                self.total[c].set(self.total[c].get() + (p[0] if step == 1 else p[0] + p[1]))
                if self.bits:
                    p = [self.bits.dropped(each, key + i, u, c, scaled=False) for u, each in enumerate(p)]
                if m.pairs:
                    half = f.offset(self.scores, (i >> 1) * self.line, c * m.bytes)
                    f.store(_tiles.paired(f, m, p[0], p[1]), half)
                else:
                    f.store(p[0], at)

    def _sums(self, key: Value, count: Value, shrink: list[Value]) -> None:
        """y^T = y^T * shrink + V^T p."""
        f, p, m = self.f, self.p, self.m
        steps = (count + 1) >> 1 if m.pairs else count
        base, row = self.v.units_at(key)
        full = p.width - p.width % m.tall

        def part(column: Value | int, rows: int) -> None:
            y = f.offset(self.y, f.i64(column) * self.line)
            found = _tiles.tile(
                f, m, rows, m.wide, steps, (f.offset(base, f.i64(column) * 4), 4, row),
                lambda k, c: _tiles.units(f, m, f.offset(self.scores, k * self.line, c * m.bytes)),
                lambda r, c: f.load(y, m.floats, r * self.line + c * m.bytes) * shrink[c],
            )  # fmt: skip
            for r in range(rows):
                for c in range(m.wide):
                    f.store(found[r][c], f.offset(y, r * self.line + c * m.bytes))

        if full:
            with f.loop(0, full, m.tall) as column:
                part(column, m.tall)
        if p.width > full:
            part(full, p.width - full)

    def _finish(self, head: Value, row: Value) -> None:
        """Divide by the sums, and write the rows and, if they are wanted, log(sum(exp))."""
        f, p, m = self.f, self.p, self.m
        out, sums = p.outputs[0], p.outputs[1] if len(p.outputs) > 1 else None
        inverse, one = f.alloca(m.floats, m.wide), self.bits.factor if self.bits else 1.0
        for c in range(m.wide):
            f.store(one / self.total[c].get(), inverse, c * m.bytes)
        if out is not None:
            rows_out(self.x, out, row, p.rows, p.width, self.y, inverse)
        if sums is None:
            return
        place = self.x.pointer(sums, output=True)
        for c in range(m.wide):
            log = (self.most[c].get() + _tiles.log2(f, m, self.total[c].get())) * LN2
            mask = f.mask(f.i64(p.rows) - row - c * m.lanes, m.lanes)
            f.store_masked(log, f.offset(place, (row + c * m.lanes) * 4), mask)
