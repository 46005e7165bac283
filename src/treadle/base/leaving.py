"""Work that the end of the process waits for: `with leaving.held(): ...`, in any thread.

Compilers written in C++ do not survive that the interpreter ends while they run in a daemon thread: their memory is
torn down, or the thread is stopped inside them, and the process crashes. So the end waits for those that run; no daemon
thread begins with another, and none that has finished goes on. The main thread may: what `atexit` calls runs in it.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_changed = threading.Condition()
_count = 0  # of threads inside a block
_ended = False


class _Own(threading.local):
    depth = 0


_own = _Own()


@contextmanager
def held() -> Iterator[None]:
    """The process does not end inside the block; blocks may be nested. Once it ends, a daemon thread stays for ever
    where it enters or leaves, as the interpreter would make it do at its next step."""
    if _own.depth == 0:
        _enter(1)
    _own.depth += 1
    try:
        yield
    finally:
        _own.depth -= 1
        if _own.depth == 0:
            _enter(-1)


def _enter(step: int) -> None:
    """step: 1 at the start, -1 at the end."""
    global _count
    with _changed:
        stay = _ended and threading.current_thread() is not threading.main_thread()
        if step < 0 or not stay:
            _count += step
        _changed.notify_all()
    if stay:
        threading.Event().wait()


def _wait() -> None:
    global _ended
    with _changed:
        _ended = True
        _changed.wait_for(lambda: _count == 0)


def first() -> None:
    """Wait before what other packages have left for the end until now: jax takes its clients down there."""
    atexit.unregister(_wait)
    atexit.register(_wait)


def _forget() -> None:
    """In a forked process, which has none of the other threads."""
    global _changed, _count
    _changed, _count = threading.Condition(), 0
    _own.depth = 0


first()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
