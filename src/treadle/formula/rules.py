"""What the ops' `formula` rules work with: operands that are read, the variables of the result, and index helpers.

A rule is `rule(t, *operands, **attrs) -> expression` (or one per result); see `formula.of_fn`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from treadle.formula.affine import clamped, tidy
from treadle.formula.expr import Axis, Const, Expr, Source, call, const, index, read
from treadle.ir.types import TensorType


class Operand:
    """A tensor that a rule reads: `x(i, j)` is its element; indices that may be outside are clamped."""

    def __init__(self, type: TensorType, at: Callable[[tuple[Expr, ...]], Expr]) -> None:
        self.type, self._at = type, at

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of its axes."""
        return self.type.shape

    def __call__(self, *indices: Expr) -> Expr:
        return self._at(tuple([clamped(tidy(i), n) for i, n in zip(indices, self.type.shape, strict=True)]))


def operand_of(source: Source) -> Operand:
    """The tensor as an operand."""
    return Operand(source.type, lambda indices: read(source, *indices))


class Rule:
    """What a `formula` rule is given: `out`, the variables of the result, and `type`, the result's type."""

    def __init__(self, types: Sequence[TensorType]) -> None:
        self.types = tuple(types)
        self.type = types[0]
        self.out = axes_for(types[0].shape)

    def axis(self, extent: int, name: str = "k") -> Axis:
        """A new variable to reduce over."""
        return Axis(name, extent)


@lru_cache(maxsize=4096)
def axes_for(shape: tuple[int, ...]) -> tuple[Axis, ...]:
    """Index variables for the axes of a tensor: the same for equal shapes, so that chains need no renaming."""
    return tuple([Axis("ijklmnop"[d] if d < 8 else f"i{d}", n) for d, n in enumerate(shape)])


def flat(indices: Sequence[Expr], shape: Sequence[int]) -> Expr:
    """The position of an element in the flattened tensor."""
    total: Expr = index(0)
    for i, n in zip(indices, shape, strict=True):
        total = call("add", call("mul", total, index(n)), i)
    return tidy(total)


def unflat(place: Expr, shape: Sequence[int]) -> tuple[Expr, ...]:
    """The indices of the element at a position of the flattened tensor."""
    found: list[Expr] = []
    for n in reversed(shape):
        found.append(tidy(call("remainder", place, index(n))))
        place = tidy(call("floor_div", place, index(n)))
    return tuple(reversed(found))


def shifted(axis: Expr, by: int, times: int = 1) -> Expr:
    """axis * times + by."""
    return tidy(call("add", call("mul", axis, index(times)), index(by)))


def between(place: Expr, low: int, high: int) -> Expr:
    """low <= place < high."""
    return call("logical_and", call("greater_equal", place, index(low)), call("less", place, index(high)))


def number(value: Any, type: TensorType) -> Const:
    """A constant of a tensor's element type."""
    return const(value, type.dtype)
