"""The tape of eager gradients: which ops ran, on which arrays.

While a function that is to be differentiated runs eagerly, every op call is written down as (plan, places of its
operands, place of its first result). Places number the arrays of the tape, which are told apart by identity: an array
never changes, and every result is an array of its own. What is read from outside becomes a leaf.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle.base import where
from treadle.frontend.trace import _stack

Call = tuple[Any, tuple[int, ...], int]


def current() -> Tape | None:
    """The innermost tape of this thread that records."""
    return _stack.tapes[-1] if _stack.tapes else None


def twin(value: Any) -> Any:
    """The same numbers as another object."""
    return value.view() if isinstance(value, np.ndarray) else device_twin[0](value)


# How the runtime makes another object of a device array.
device_twin: list[Callable[[Any], Any]] = []


class Tape:
    """`with Tape() as tape:` records the ops that this thread runs."""

    def __init__(self) -> None:
        self.values = list[Any]()
        self.leaves = list[int]()
        self.calls = list[Call]()
        self.lines = list[where.Where]()
        self._places: dict[int, int] = {}
        self._twins = list[Any]()  # held, so that their ids are not given away
        self.foreign = list[Any]()  # what other threads gave to tensors that are differentiated by

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
        self.calls.append((plan, places, len(self.values)))
        self.lines.append(where.here())
        made = []
        for o in outputs:
            own = twin(o) if id(o) in self._places else o
            self._add(own)
            made.append(own)
        return made

    def _add(self, value: Any) -> int:
        place = self._places[id(value)] = len(self.values)
        self.values.append(value)
        return place


class Owner:
    """A tensor that is differentiated by, while a tape runs: it holds `own`, an array that no other tensor holds, so
    that none is taken for it, in place of `before`. Threads that differentiate by it at the same time share it."""

    __slots__ = ("before", "holders", "moved", "own", "tapes", "tensor")

    def __init__(self, tensor: Any) -> None:
        self.tensor, self.tapes, self.moved = tensor, list[Tape](), False
        self.before = self.own = value = tensor._value
        self.holders = sys.getrefcount(value)


class _Lone:
    """Something that alone holds a value."""

    def __init__(self) -> None:
        self._value = object()


_ALONE = Owner(_Lone()).holders
owners: dict[int, list[Owner]] = {}  # by the tensor's id; the last one is that of the value which it has now
_owning = threading.Lock()


def own(tensor: Any, tape: Tape) -> Owner:
    """Begin to differentiate by a tensor; `disown` ends it."""
    with _owning:
        known = owners.setdefault(id(tensor), [])
        if not known or tensor._value is not known[-1].own:
            known.append(Owner(tensor))
            if known[-1].holders > _ALONE:
                known[-1].own = tensor._value = twin(tensor._value)
        known[-1].tapes.append(tape)
        return known[-1]


def disown(owner: Owner, tape: Tape) -> None:
    """After the last tape, a tensor that was not changed holds its old array again."""
    with _owning:
        owner.tapes.remove(tape)
        if owner.tapes:
            return
        if owner.tensor._value is owner.own and not owner.moved:
            owner.tensor._value = owner.before
        known = owners[id(owner.tensor)]
        known.remove(owner)
        if not known:
            del owners[id(owner.tensor)]


def replace(tensor: Any, old: Any, new: Any) -> None:
    """Let a tensor hold the same numbers in another form, unless a tape of another thread knows it by the old one."""
    tape = current()
    with _owning:
        known = owners.get(id(tensor), ())
        if tensor._value is old and all([o.tapes == [tape] for o in known]):  # noqa: C419
            tensor._value = new
            if tape is not None:
                tape.same(new, old)
            for owner in known:
                if owner.own is old:
                    owner.own, owner.moved = new, True


def note_change(tensor: Any) -> None:
    """Tell the tapes of other threads that a tensor has got another value, which they would take for a constant."""
    tape = current()
    with _owning:
        for owner in owners.get(id(tensor), ()):
            for other in owner.tapes:
                if other is not tape:
                    other.foreign.append(tensor._value)
