"""Which kernel computes a group of nodes: `choose(body)` gives a `Choice`: a loaded kernel, or the reason for none.

Templates are asked in the order of `templates()`. A body that none takes, and one for which a measurement said that
XLA's own code is faster, is left to XLA. Equal bodies are one kernel.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path

from treadle.base import events
from treadle.ir.node import Fn
from treadle.ir.printer import print_fn
from treadle.kernels import jit, target, tunings
from treadle.kernels.kernel import Kernel, Plan

_lock = threading.RLock()
_chosen: dict[str, Choice] = {}
_offers: dict[str, list[Plan]] = {}  # of bodies that were asked about and not chosen for yet
_forced: ContextVar[str | None] = ContextVar("plan", default=None)


@dataclass(frozen=True)
class Loaded:
    """A kernel ready to be called: its name among the targets of custom calls, and the address of its handler."""

    name: str
    kernel: Kernel
    code: jit.Code


@dataclass(frozen=True)
class Choice:
    """What was decided about a body: the plan that runs and its kernel, or why there is none."""

    key: str
    plan: str
    loaded: Loaded | None
    why: str = ""


def key_of(body: Fn) -> str:
    """The same for bodies that compute the same: their text without names and positions."""
    text = print_fn(Fn("body", body.params, body.nodes, body.outputs))
    return hashlib.sha256(text.encode()).hexdigest()[:20]


@lru_cache(maxsize=1)
def templates() -> tuple[str, ...]:
    """Names of the files of templates/ that offer plans, those for particular ops first, the general one last."""
    files = sorted((Path(__file__).parent / "templates").glob("[a-z]*.py"))
    names = [f.stem for f in files if "\ndef plans(" in f.read_text()]
    return tuple(sorted(names, key=lambda n: (n == "loops", n)))


def plans(body: Fn, machine: target.Target | None = None) -> list[Plan]:
    """All ways in which the templates can compute the body, the most promising first."""
    found: list[Plan] = []
    for name in templates():
        found += import_module(f"treadle.kernels.templates.{name}").plans(body, machine or target.host())
        if found:
            break
    return found


def takes(body: Fn) -> bool:
    """Whether a template computes the body. What it offers is kept until the body is compiled."""
    key = key_of(body)
    with _lock:
        if key not in _offers:
            _offers[key] = plans(body)
        return bool(_offers[key])


def load(plan: Plan) -> Loaded:
    """The kernel of a plan, compiled or taken from the cache."""
    start = time.perf_counter()
    kernel = plan.build()
    code = jit.load(kernel.text)
    name = f"treadle.{hashlib.sha256(kernel.text.encode()).hexdigest()[:24]}"
    events.record("kernels", "kernel", time.perf_counter() - start, plan=plan.name, target=name)
    return Loaded(name, kernel, code)


def choose(body: Fn) -> Choice:
    """The kernel for a body: that of the plan which was measured to be the fastest, else the most promising one."""
    key = key_of(body)
    forced = _forced.get()
    if forced is not None:
        return _choose(key, body, forced)
    with _lock:
        found = _chosen.get(key)
        if found is None:
            found = _chosen[key] = _choose(key, body, tunings.fastest(key))
        return found


@contextmanager
def only(plan: str) -> Iterator[None]:
    """Every body is computed by the plan of this name inside the block ("xla": none of ours)."""
    token = _forced.set(plan)
    try:
        yield
    finally:
        _forced.reset(token)


def _choose(key: str, body: Fn, wanted: str | None) -> Choice:
    if wanted == tunings.XLA:
        return Choice(key, tunings.XLA, None, "XLA's own code was measured to be faster")
    offers = _offers.pop(key, None) or plans(body)
    if not offers:
        return Choice(key, "", None, "no template takes this body")
    plan = next((p for p in offers if p.name == wanted), offers[0])
    return Choice(key, plan.name, load(plan))


def forget() -> None:
    """Choose again: there are new measurements."""
    with _lock:
        _chosen.clear()
