"""Names that hold one tensor, list or object or another as a tensor decides: none of these may be changed in place.

After a branch such a name holds a new one, a copy. Were the copy or what it was copied from changed, the other would
not change with it, as it does in eager mode. `merged` and `copied` remember both; `unchanged_in_place`, around a traced
function, raises E0247 when one of them has changed at its end.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Any

from treadle.base.errors import UserError
from treadle.base.where import Where, here
from treadle.frontend import trace as tracing
from treadle.frontend.trace import is_tensor


class _Watched(threading.local):
    found: list[tuple[Any, Any, str, Where]] | None = None  # an object, what it held then, the name and the line


_watched = _Watched()


def merged(tensor: Any, seen: Sequence[Any], name: str) -> None:
    """Remember that a name holds this tensor where it held those seen, on one way or another, which may have others."""
    if _watched.found is not None:
        _watched.found += [(x, _content(x), name, here()) for x in (tensor, *seen)]


def copied(new: Sequence[Any], originals: Sequence[Any], name: str) -> None:
    """Remember that a name holds new containers and objects where it held others, on one way or another."""
    if _watched.found is not None:
        _watched.found += [(x, _content(x), name, here()) for x in (*new, *originals)]


@contextlib.contextmanager
def unchanged_in_place() -> Iterator[None]:
    """Around a traced function. Raises E0247 when something remembered has been changed in place."""
    outer, _watched.found = _watched.found, []
    try:
        yield
        for each, before, name, place in _watched.found:
            now = _content(each)
            if len(now) != len(before) or any(a is not b for a, b in zip(now, before, strict=True)):
                raise changed_in_place(name, place)
    finally:
        _watched.found = outer


def changed_in_place(name: str, place: Where | None = None) -> UserError:
    """The error E0247. place: the line of the branch or loop."""
    why = f"{name}, which a branch or loop may have replaced, is changed in place, or another name of what it was is"
    fix = "make a new one, x = x + 1 or [*x, 1], or start with a copy, x.copy()"
    return UserError("E0247", why, fix=fix, where=place or here())


def _content(x: Any) -> list[Any]:
    """What a tensor or container holds."""
    if is_tensor(x):
        outside = tracing._stack.traces[0].changed.get(id(x)) if tracing._stack.traces else None
        return [x._value if outside is None else outside[1]]
    if isinstance(x, dict):
        return [part for pair in x.items() for part in pair]
    if isinstance(x, set):
        return sorted(x, key=id)
    return list(x) if isinstance(x, list | deque) else [part for pair in vars(x).items() for part in pair]


def is_older(tensor: Any) -> bool:
    """Whether a tensor was not made in a branch or trip that is over."""
    return tensor._trace is None or bool(tensor._trace.open)


def holders(values: Sequence[Any]) -> Counter[int]:
    """How many of the values, or of the tuples among them, hold each object; by its id."""
    found: Counter[int] = Counter()
    for value in values:
        found += holders(value) if isinstance(value, tuple) else Counter([id(value)])
    return found
