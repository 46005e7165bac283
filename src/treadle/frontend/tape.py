"""The tape of eager gradients: which ops ran, on which arrays.

While a function that is to be differentiated runs eagerly, every op call is written down as (plan, places of its
operands, place of its first result). Places number the arrays of the tape, which are told apart by identity: an array
never changes, and every result is an array of its own. What is read from outside becomes a leaf.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle.base import where
from treadle.frontend.trace import _stack

Call = tuple[Any, tuple[int, ...], int]


def current() -> Tape | None:
    """The innermost tape of this thread that records."""
    return _stack.tapes[-1] if _stack.tapes else None


class Tape:
    """`with Tape() as tape:` records the ops that this thread runs."""

    def __init__(self) -> None:
        self.values = list[Any]()
        self.leaves = list[int]()
        self.calls = list[Call]()
        self.lines = list[where.Where]()
        self._places: dict[int, int] = {}
        self._twins = list[Any]()  # held, so that their ids are not given away

    def __enter__(self) -> Tape:
        _stack.tapes.append(self)
        _stack.busy += 1
        return self

    def __exit__(self, *_: object) -> None:
        _stack.tapes.pop()
        _stack.busy -= 1

    def place(self, value: Any) -> int:
        """The place of an array; one that no recorded op made is a new leaf."""
        found = self._places.get(id(value))
        if found is None:
            found = self._add(value)
            self.leaves.append(found)
        return found

    def knows(self, value: Any) -> bool:
        """Whether the array is on the tape."""
        return id(value) in self._places

    def equal(self, new: Any, old: Any) -> bool:
        """Whether `new` is `old`, or the same numbers in another form."""
        return new is old or (self.knows(new) and self._places[id(new)] == self._places.get(id(old)))

    def same(self, new: Any, old: Any) -> None:
        """`new` holds the same numbers as `old` in another form, and stands for it."""
        self._places[id(new)] = self.place(old)
        self._twins.append(new)

    def record(self, plan: Any, inputs: Sequence[Any], outputs: list[Any]) -> list[Any]:
        """Write down that `plan` made `outputs` of `inputs`; the outputs, each an array of its own."""
        places = tuple([self.place(v) for v in inputs])
        made = [o.view() if id(o) in self._places and type(o) is np.ndarray else o for o in outputs]
        self.calls.append((plan, places, len(self.values)))
        self.lines.append(where.here())
        for o in made:
            self._add(o)
        return made

    def _add(self, value: Any) -> int:
        place = self._places[id(value)] = len(self.values)
        self.values.append(value)
        return place
