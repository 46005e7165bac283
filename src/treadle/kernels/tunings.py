"""What measurements said: for a body (engine.key_of) the seconds that each plan took on this CPU; kept on disk.

One JSON file per kind of CPU in the cache's folder. Several processes may write it: each adds what it measured to what
is there then, and the file is replaced as a whole.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

from treadle.base import cache, events
from treadle.kernels import target

XLA = "xla"  # the name of XLA's own code among the plans
_lock = threading.RLock()
_known: dict[Path | None, dict[str, dict[str, float]]] = {}


def fastest(key: str) -> str | None:
    """The plan that was measured to be the fastest; None if nothing was measured."""
    times = _table().get(key)
    return min(times, key=lambda plan: times[plan]) if times else None


def seconds(key: str) -> dict[str, float]:
    """What was measured: plan -> seconds."""
    return dict(_table().get(key, {}))


def add(measured: Mapping[str, Mapping[str, float]]) -> None:
    """Keep measurements, on disk too if there is a cache: key -> plan -> seconds."""
    with _lock:
        path = _path()
        table = _read(path)
        for key, times in measured.items():
            table[key] = {**table.get(key, {}), **times}
        _known[path] = table
        if path is not None:
            _write(path, table)


def _table() -> dict[str, dict[str, float]]:
    with _lock:
        path = _path()
        if path not in _known:
            _known[path] = _read(path)
        return _known[path]


def _path() -> Path | None:
    store = cache.current()
    machine = target.host()
    name = cache.key(machine.cpu, machine.text(), str(machine.cores), str(machine.l2), str(machine.l3))[:16]
    return None if store is None else store.folder / f"kernels-{name}.json"


def _read(path: Path | None) -> dict[str, dict[str, float]]:
    """What the file holds; what cannot be read counts as nothing measured, and is recorded."""
    if path is None:
        return dict(_known.get(None, {}))
    try:
        table: dict[str, dict[str, float]] = json.loads(path.read_text())
        return {str(key): {str(p): float(t) for p, t in times.items()} for key, times in table.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        events.record("kernels", "measurements unreadable", file=str(path), why=str(error))
        return {}


def _write(path: Path, table: Mapping[str, Mapping[str, float]]) -> None:
    try:
        handle, name = tempfile.mkstemp(prefix="tmp-", dir=path.parent)
        with os.fdopen(handle, "w") as file:
            json.dump(table, file)
        os.replace(name, path)
    except OSError as error:
        events.record("kernels", "measurements not kept", file=str(path), why=str(error))
