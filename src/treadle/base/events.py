"""An append-only record of what the stages did. Everything that shows something to a person reads only this.

A stage calls `record(stage, name, seconds, **payload)` or `with span(stage, name) as payload:`; readers use `events()`
or `subscribe(function)`.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from treadle.base.errors import UserError
from treadle.base.flags import flags


@dataclass(frozen=True)
class Event:
    """One thing that happened: the stage, its name there, how long it took in seconds, and details."""

    stage: str
    name: str
    seconds: float
    payload: dict[str, Any] = field(default_factory=dict)
    time: float = 0.0


_KEEP = 10_000
_events: deque[Event] = deque(maxlen=_KEEP)
_readers: list[Callable[[Event], None]] = []
_lock = threading.Lock()


def record(stage: str, name: str, seconds: float = 0.0, **payload: Any) -> Event:
    """Append an event and hand it to every reader; the last 10,000 are kept."""
    event = Event(stage, name, seconds, payload, time.time())
    _events.append(event)
    if flags.events:
        _append(flags.events, json.dumps(asdict(event), default=str))
    for reader in _readers:
        reader(event)
    return event


def _append(path: str, line: str) -> None:
    """Add a line to the file. Raises E0704 when it cannot be written."""
    try:
        with _lock, open(path, "a") as file:
            file.write(line + "\n")
    except OSError as error:
        why = f"TREADLE_EVENTS={path!r} cannot be written: {error.strerror}"
        raise UserError("E0704", why, fix="name a file in a folder that is there, or unset TREADLE_EVENTS") from None


@contextmanager
def span(stage: str, name: str, **payload: Any) -> Iterator[dict[str, Any]]:
    """Record the block as one event with its duration; the block may add to the payload."""
    start = time.perf_counter()
    yield payload
    record(stage, name, time.perf_counter() - start, **payload)


def events(stage: str = "") -> list[Event]:
    """The recorded events, oldest first; of one stage if it is named."""
    return [e for e in _events if not stage or e.stage == stage]


@contextmanager
def collected(stage: str = "") -> Iterator[list[Event]]:
    """The events of the block, of one stage if it is named. (Counting `events()` before and after misses those that
    push old ones out.)"""
    found: list[Event] = []
    stop = subscribe(lambda e: found.append(e) if not stage or e.stage == stage else None)
    try:
        yield found
    finally:
        stop()


def subscribe(reader: Callable[[Event], None]) -> Callable[[], None]:
    """Call `reader` with every later event; returns the function that ends it."""
    _readers.append(reader)
    return lambda: _readers.remove(reader)
