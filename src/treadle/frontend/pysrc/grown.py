"""Lists that grow in a rolled loop: the stack of what was appended, and the slices of it that the list then holds.

`fill` puts the slices into the list; `whole` tells `td.stack` that it is given all slices of a stack, in order, so that
it can give the stack itself.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any


class _Slices(threading.local):
    def __init__(self) -> None:
        self.known: dict[int, tuple[Any, Any, int]] = {}  # by id of the IR value: it, the stack, the place


_slices = _Slices()


def forget() -> None:
    """Forget all slices, when a function has been traced."""
    _slices.known.clear()


def fill(container: list[Any], stacks: Sequence[Any], length: int) -> None:
    """Append what `length` trips have appended, one element of each stack in each trip."""
    if len(stacks) > 1 and len({s.type for s in stacks}) == 1:
        stacks, length = [_woven(stacks)], length * len(stacks)
    for i in range(length):
        for stack in stacks:
            part = stack[i]
            _slices.known[id(part._value)] = part._value, stack, i
            container.append(part)


def _woven(stacks: Sequence[Any]) -> Any:
    """One stack of all elements: the first of each, the second of each, ..."""
    from treadle.frontend.shaping import concatenate, expand_dims

    side_by_side = concatenate([expand_dims(s, 1) for s in stacks], 1)
    return side_by_side.reshape((-1, *stacks[0].shape[1:]))


def joined(parts: Sequence[Any]) -> list[Any] | None:
    """The tensors with each full run of slices as its stack: (tensor, whether it is a stack). None without a run."""
    if not _slices.known:
        return None
    found: list[Any] = []
    place = 0
    while place < len(parts):
        stack = _stack_from(parts, place)
        found.append((parts[place], False) if stack is None else (stack, True))
        place += 1 if stack is None else stack.shape[0]
    return found if any(is_stack for _, is_stack in found) else None


def _stack_from(parts: Sequence[Any], place: int) -> Any:
    """The stack whose slices all stand from this place on, in order; None if there is none."""
    entry = _slices.known.get(id(parts[place]._value))
    if entry is None or entry[2] != 0:
        return None
    stack = entry[1]
    count = stack.shape[0]
    rest = [_slices.known.get(id(p._value)) for p in parts[place : place + count]]
    fits = all(e is not None and e[1] is stack and e[2] == i for i, e in enumerate(rest))
    return stack if fits and len(rest) == count else None
