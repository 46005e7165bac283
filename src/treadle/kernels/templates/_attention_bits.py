"""Which weights of attention are dropped, block by block: the bits of ops/dropped_attention.py, keys as rows.

A block's bits are made before its scores are used, two keys at a time (a block of Threefry-2x32 has a word for each of
them), and lie in scratch memory as the scores do.
"""

from __future__ import annotations

from treadle.kernels.llvm import Function, Value, vector
from treadle.kernels.templates._operands import Operands
from treadle.kernels.templates._views import View
from treadle.ops.dropped_attention import factor, threshold
from treadle.ops.random import PARITY, ROTATIONS


class Bits:
    """The bits of a block of keys and queries of one head. most: keys of a block."""

    def __init__(self, x: Operands, seeds: View, rate: float, most: int) -> None:
        f, m = x.f, x.m
        self.x, self.kind = x, vector("i32", m.lanes)
        self.least, self.factor = threshold(rate), factor(rate)
        place = x.pointer(seeds)
        first, second = (f.load(place, "i32", i * seeds.strides[-1], align=4) for i in (0, 1))
        words = first, second, first ^ second ^ _signed(PARITY)
        self.words = [f.splat(w, m.lanes) for w in words]
        self.place = x.room((most + 2) * m.block * 4)
        self.first = f.variable("i64", 0)

    def load(self, row: Value, key: Value, count: Value, least: int) -> None:
        """For queries from `row` on and keys from `key` on; also the `least` last keys, if some of them are before."""
        f, m, line = self.x.f, self.x.m, self.x.m.block * 4
        first = (f.min_int(key, self.x.p.keys - least) >> 1) << 1
        self.first.set(first)
        lanes = f.lane_numbers(m.lanes)
        with f.loop(first, key + count + (least - 1), 2) as k:
            pair = f.splat(f.convert("trunc", k >> 1, "i32"), m.lanes)
            for c in range(m.wide):
                query = lanes + f.splat(f.convert("trunc", row + c * m.lanes, "i32"), m.lanes)
                for i, word in enumerate(self._block(f, query, pair)):
                    f.store(word, f.offset(self.place, (k - first) * line, i * line + c * m.bytes))

    def _block(self, f: Function, x0: Value, x1: Value) -> tuple[Value, Value]:
        """Threefry-2x32 with 20 rounds, as ops/random.py has it."""
        x0, x1 = x0 + self.words[0], x1 + self.words[1]
        for group in range(5):
            for r in ROTATIONS[group % 2]:
                x0 = x0 + x1
                turned = f.intrinsic(f"llvm.fshl.v{self.x.m.lanes}i32", self.kind, x1, x1, f.constant(r, self.kind))
                x1 = turned ^ x0
            x0, x1 = x0 + self.words[(group + 1) % 3], x1 + self.words[(group + 2) % 3] + (group + 1)
        return x0, x1

    def dropped(self, x: Value, key: Value, r: int, c: int, scaled: bool = True) -> Value:
        """The vector c of weights (or of their slopes) of the key r after `key`: 0 where they are dropped. scaled: the
        others larger."""
        f, m = self.x.f, self.x.m
        bits = f.load(f.offset(self.place, (key - self.first.get() + r) * (m.block * 4), c * m.bytes), self.kind)
        kept = f.compare("uge", bits, _signed(self.least))
        return f.select(kept, x * self.factor if scaled else x, 0.0)


def _signed(word: int) -> int:
    """The same 32 bits as a signed number."""
    return word - 2**32 if word >= 2**31 else word
