"""The innermost code of matrix products: a tile of accumulators in registers to which columns times rows are added.

`Isa` says how one step multiplies: a `unit` (32 bits: one float, or a pair of bfloat16 along the summed axis) of the
left operand, spread over a vector, times a vector of units of the right one. `Tile(f, isa, rows, vectors)` holds the
sums; `multiply` runs along the summed axis over operands in memory, both given by a place and strides in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from treadle.kernels.llvm import Function, Operand, Value, vector
from treadle.kernels.target import Target

UNIT = 4  # bytes
LINE = 64  # bytes; 16 units


@dataclass(frozen=True)
class Isa:
    """lanes: floats of a vector; pairs: units are two bfloat16, multiplied by the CPU's own instruction for it.

    narrows, halves: the CPU converts float to bfloat16, and half from and to float, by instructions.
    """

    lanes: int
    registers: int
    pairs: bool = False
    narrows: bool = False
    halves: bool = False

    @staticmethod
    def of(target: Target, pairs: bool = False) -> Isa:
        """The widest of a CPU. Raises ValueError for pairs where the CPU has no instruction for them."""
        if pairs and not target.has("avx512bf16"):
            raise ValueError("no instruction for pairs of bfloat16")
        halves = target.has("avx512") or "f16c" in target.features or target.triple.startswith(("aarch64", "arm64"))
        return Isa(target.lanes(32), target.registers, pairs, target.has("avx512bf16"), halves)

    @property
    def bytes(self) -> int:
        """Of a vector."""
        return self.lanes * UNIT

    @property
    def sums(self) -> str:
        """Type of a vector of accumulators."""
        return vector("float", self.lanes)

    @property
    def units(self) -> str:
        """Type of a vector of units."""
        return vector("i32", self.lanes) if self.pairs else self.sums

    @property
    def per_unit(self) -> int:
        """Elements of the summed axis in a unit."""
        return 2 if self.pairs else 1

    def spread(self, f: Function, place: Value, offset: Operand = 0, half: bool = False) -> Value:
        """The unit at a place in all lanes; half: only its first element is there, the other is 0."""
        if half:
            one = f.convert("zext", f.load(place, "i16", offset), "i32")
        else:
            one = f.load(place, "i32" if self.pairs else "float", offset, 2 if self.pairs else UNIT)
        return f.splat(one, self.lanes)

    def step(self, f: Function, sums: Value, a: Value, b: Value) -> Value:
        """sums + a * b, for pairs the sum of both products."""
        if self.pairs:
            wide = vector("bfloat", 2 * self.lanes)
            name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * self.lanes}"
            return f.intrinsic(name, self.sums, sums, f.bitcast(a, wide), f.bitcast(b, wide))
        return f.intrinsic(f"llvm.fmuladd.v{self.lanes}f32", self.sums, a, b, sums)


@dataclass(frozen=True)
class Strided:
    """Units in memory: place, bytes from one to the next along the summed axis, and along the other one.

    The other axis of a right operand is that of its vectors, whose units lie side by side.
    """

    place: Value
    inner: int
    outer: int


@dataclass(frozen=True)
class Ahead:
    """What is asked for while a tile is computed, because it comes from the third cache or from memory. rows: of the
    left operand, those of the next tile; steps: how far before its use the right operand is, 0 for not at all."""

    rows: Strided | None
    steps: int = 0


class Tile:
    """rows x vectors accumulators, in registers as long as there are enough of them."""

    def __init__(self, f: Function, isa: Isa, rows: int, vectors: int) -> None:
        self.f, self.isa, self.rows, self.vectors = f, isa, rows, vectors
        self.sums = [[f.variable(isa.sums) for _ in range(vectors)] for _ in range(rows)]

    def clear(self) -> None:
        """All sums 0."""
        for row in self.sums:
            for each in row:
                each.set(0.0)

    def load(self, place: Value, row_bytes: int) -> None:
        """Take sums that `store` has written."""
        for r, row in enumerate(self.sums):
            for v, each in enumerate(row):
                each.set(self.f.load(place, self.isa.sums, r * row_bytes + v * self.isa.bytes))

    def store(self, place: Value, row_bytes: int, masks: Sequence[Value | None] = ()) -> None:
        """Write the sums. masks: for each vector the lanes to be written, None for all."""
        for r, row in enumerate(self.sums):
            for v, each in enumerate(row):
                at, mask = r * row_bytes + v * self.isa.bytes, masks[v] if masks else None
                if mask is None:
                    self.f.store(each.get(), place, at)
                else:
                    self.f.store_masked(each.get(), place, mask, at)

    def multiply(
        self, depth: Operand, a: Strided, b: Strided, masks: Sequence[Value | None] = (), ahead: Ahead | None = None
    ) -> None:
        """Add the product of `depth` units. masks: lanes of b's vectors that may be read; ahead: what to ask for."""
        with self.f.loop(0, depth) as k:
            if ahead is not None:
                self._ask(ahead, k, b)
            self._step(self.f.offset(a.place, k * a.inner), a.outer, self.f.offset(b.place, k * b.inner), b, masks)

    def _ask(self, ahead: Ahead, k: Value, b: Strided) -> None:
        """Few lines in each step, so that they arrive while others are multiplied; they need not be there."""
        f, rows = self.f, ahead.rows
        if rows is not None and rows.inner == UNIT:  # a line is 16 units of a row: another row in each step
            f.prefetch(rows.place, (k & 15) * rows.outer + (k >> 4) * LINE, locality=2)
        elif rows is not None:
            f.prefetch(rows.place, k * rows.inner + (self.rows - 1) * rows.outer, locality=2)
        for v in range(self.vectors if ahead.steps else 0):
            f.prefetch(b.place, (k + ahead.steps) * b.inner + v * b.outer, locality=2)

    def multiply_half(self, at: Operand, a: Strided, b: Strided) -> None:
        """Add the product of unit `at`, of which a has the first element only."""
        place = self.f.offset(a.place, self.f.i64(at) * a.inner)
        self._step(place, a.outer, self.f.offset(b.place, self.f.i64(at) * b.inner), b, (), True)

    def _step(
        self, a: Value, a_row: int, b: Value, columns: Strided, masks: Sequence[Value | None], half: bool = False
    ) -> None:
        f, isa = self.f, self.isa
        right = []
        for v in range(self.vectors):
            mask = masks[v] if masks else None
            if mask is None:
                right.append(f.load(b, isa.units, v * columns.outer))
            else:
                right.append(f.load_masked(b, isa.units, mask, v * columns.outer))
        for r, row in enumerate(self.sums):
            left = isa.spread(f, a, r * a_row, half)
            for each, vec in zip(row, right, strict=True):
                each.set(isa.step(f, each.get(), left, vec))


def first_lanes(f: Function, lanes: int, count: int) -> Value | None:
    """The mask of the first `count` lanes; None where that is all of them."""
    if count >= lanes:
        return None
    items = ", ".join("i1 true" if i < count else "i1 false" for i in range(lanes))
    return Value(f"<{items}>", vector("i1", lanes), f)


def row_limit(isa: Isa, vectors: int) -> int:
    """Rows of the tallest tile that leaves registers for the operands of a step."""
    return max((isa.registers - vectors - 1) // vectors, 1)
