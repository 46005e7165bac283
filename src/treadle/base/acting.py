"""Which thread a piece of work belongs to. XLA runs the Python functions of a program in any thread it likes, while the
thread that called the program waits: the work is that thread's, and so are the locks that it holds.

`with acting_for(thread):` says so; `OwnedLock` is a lock that can be taken again by the thread that has it, also
through another thread that acts for it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Acting(threading.local):
    def __init__(self) -> None:
        self.owner: int | None = None


_acting = _Acting()


def owner() -> int:
    """The number of the thread whose work this thread does: mostly its own."""
    return threading.get_ident() if _acting.owner is None else _acting.owner


@contextmanager
def acting_for(thread: int) -> Iterator[None]:
    """Inside, this thread does the work of another, which waits for it."""
    before = _acting.owner
    _acting.owner = thread
    try:
        yield
    finally:
        _acting.owner = before


class OwnedLock:
    """`with lock:` lets one owner in at a time, as often as it asks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None
        self._depth = 0

    def __enter__(self) -> None:
        me = owner()
        if self._owner != me:  # nobody but `me` can make it `me`
            self._lock.acquire()
            self._owner = me
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            self._lock.release()
