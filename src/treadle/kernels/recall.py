"""What was decided about bodies, kept on disk, so that a later process need not ask the templates again.

`find(text, wanted)` gives the `Known` of a body's text, `keep` writes one. An entry counts for the CPU, and for the
source of everything that decides what a kernel is: templates, formulas and the ops' rules.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

from treadle.base import cache, events
from treadle.kernels import target

_SOURCES = ("base", "ir", "ops", "formula", "kernels")


@dataclass(frozen=True)
class Known:
    """plan: its name, "" where no template takes the body. Of its kernel: what Loaded and Kernel say, and the key of
    its code on disk (jit.key_of)."""

    plan: str
    name: str = ""
    workspace: int = 0
    aliases: tuple[tuple[int, int], ...] = ()
    code: str = ""


def find(text: str, wanted: str | None) -> Known | None:
    """What an earlier process decided about a body when `wanted` was the plan to be taken; None if nothing is known."""
    store = cache.current()
    body = store.get(_key(text, wanted)) if store is not None else None
    if body is None:
        return None
    try:
        entry = json.loads(body)
        aliases = tuple([(int(a), int(b)) for a, b in entry["aliases"]])
        return Known(str(entry["plan"]), str(entry["name"]), int(entry["workspace"]), aliases, str(entry["code"]))
    except (ValueError, KeyError, TypeError) as error:
        events.record("kernels", "decision unreadable", why=str(error))
        return None


def keep(text: str, wanted: str | None, known: Known) -> None:
    """Write what was decided, if there is a cache."""
    store = cache.current()
    if store is not None:
        store.put(_key(text, wanted), json.dumps(asdict(known)).encode())


def _key(text: str, wanted: str | None) -> str:
    machine = target.host()
    sizes = f"{machine.cores} {machine.l1} {machine.l2} {machine.l3}"
    return cache.key("decision", text, wanted or "", machine.triple, machine.cpu, machine.text(), sizes, _sources())


@lru_cache(maxsize=1)
def _sources() -> str:
    """A hash of the source that kernels come from."""
    root = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for folder in _SOURCES:
        for file in sorted((root / folder).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()
