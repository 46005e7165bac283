"""Random arguments of calls: shapes of all ranks, empty and of size 1 too; broadcasting pairs; numbers of one type.

A `Draw` belongs to one call; all floats of the call have the type `Draw.float`. Arrays of bfloat16 are float32 arrays
of numbers that bfloat16 holds, wrapped in `Narrow`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

FLOATS = ("float32", "float64", "float32", "float64", "bfloat16")
FULL = ("float32", "float64")


@dataclass(frozen=True)
class Narrow:
    """A bfloat16 array, as the float32 array of its numbers."""

    array: Any


class Draw:
    """Draws the arguments of one call from `rng`; `types`: the float types to choose from."""

    def __init__(self, rng: np.random.Generator, types: tuple[str, ...] = FLOATS) -> None:
        self.rng = rng
        self.float = str(rng.choice(types))

    def pick(self, *options: Any) -> Any:
        """One of the options."""
        return options[int(self.rng.integers(len(options)))]

    def int(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def flag(self) -> bool:
        return bool(self.rng.integers(2))

    def shape(self, low: int = 0, high: int = 4, empty: bool = True) -> tuple[int, ...]:
        """low to high axes, mostly of 2 to 5 places, some of 1, few of 0."""
        sizes = [1, 2, 3, 4, 5, 3] + [0] * (empty and self.rng.random() < 0.3)
        return tuple(self.pick(*sizes) for _ in range(self.int(low, high)))

    def axis(self, shape: tuple[int, ...]) -> int:
        """An axis, counted from either end."""
        return self.int(-len(shape), len(shape) - 1)

    def axes(self, shape: tuple[int, ...]) -> Any:
        """None, one axis, or several."""
        if not shape or self.rng.random() < 0.25:
            return None
        if self.flag():
            return self.axis(shape)
        count = self.int(1, len(shape))
        return tuple(int(a) - len(shape) * self.flag() for a in self.rng.permutation(len(shape))[:count])

    def narrower(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that broadcasts to `shape`: some sizes become 1, some leading axes are gone."""
        sizes = tuple(1 if self.rng.random() < 0.3 else n for n in shape)
        return sizes[self.int(0, len(sizes)) :] if self.rng.random() < 0.4 else sizes

    def pair(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Two shapes that broadcast."""
        shape = self.shape()
        both = shape, self.narrower(shape)
        return both if self.flag() else both[::-1]

    def array(self, shape: tuple[int, ...], low: float | None = None, high: float = 2.0) -> Any:
        """Floats of the call's type: normally distributed, or between low and high."""
        rng = self.rng
        values = np.asarray(rng.standard_normal(shape) if low is None else rng.uniform(low, high, shape))
        if self.float != "bfloat16":
            return values.astype(self.float)
        bits = values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
        return Narrow(np.asarray(bits).view(np.float32))

    def complex(self, shape: tuple[int, ...]) -> Any:
        values = self.rng.standard_normal(shape) + 1j * self.rng.standard_normal(shape)
        return np.asarray(values).astype("complex64" if self.float == "float32" else "complex128")

    def apart(self, shape: tuple[int, ...]) -> Any:
        """Floats that all differ by 0.1 at least, in any order: no ties."""
        count = math.prod(shape)
        values = (self.rng.permutation(count) - count / 2 + 0.25) / 8
        return self.exact(values.reshape(shape))

    def exact(self, values: Any) -> Any:
        """The call's type of numbers that bfloat16 holds."""
        values = np.asarray(values)
        return Narrow(values.astype(np.float32)) if self.float == "bfloat16" else values.astype(self.float)

    def ints(self, shape: tuple[int, ...], low: int, high: int, dtype: str = "") -> Any:
        """Whole numbers from low to high, both included."""
        dtype = dtype or self.pick("int32", "int64")
        return np.asarray(self.rng.integers(low, high + 1, shape)).astype(dtype)

    def bools(self, shape: tuple[int, ...]) -> Any:
        return np.asarray(self.rng.integers(0, 2, shape)).astype(bool)
