"""Which kernel computes a group of nodes: `choose(body)` gives a `Choice`: a loaded kernel, or the reason for none.

Templates are asked in the order of `templates()`. A body that none takes, and one for which a measurement said that
XLA's own code is faster, is left to XLA. Equal bodies are one kernel. Decisions are kept on disk (recall.py).
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path

from treadle.base import events
from treadle.ir.node import Fn
from treadle.ir.printer import print_fn
from treadle.kernels import jit, recall, target, tunings
from treadle.kernels.kernel import Kernel, Plan

_lock = threading.RLock()
_chosen: dict[str, Choice] = {}
_offers: dict[str, list[Plan]] = {}  # of bodies that were asked about and not chosen for yet
_forced: ContextVar[str | None] = ContextVar("plan", default=None)
_NO_TEMPLATE = "no template takes this body"


@dataclass(frozen=True)
class Loaded:
    """A kernel: its name among the targets of custom calls, what a call of it needs (see Kernel), and its code, which
    another thread may still be compiling."""

    name: str
    workspace: int
    aliases: tuple[tuple[int, int], ...]
    pending: Future[jit.Code]

    @property
    def code(self) -> jit.Code:
        """The code, once it is there. Raises RuntimeError where LLVM refuses it."""
        return self.pending.result()


@dataclass(frozen=True)
class Choice:
    """What was decided about a body: the plan that runs and its kernel, or why there is none."""

    key: str
    plan: str
    loaded: Loaded | None
    why: str = ""


def key_of(body: Fn) -> str:
    """The same for bodies that compute the same: their text without names and positions."""
    return hashlib.sha256(_text(body).encode()).hexdigest()[:20]


def _text(body: Fn) -> str:
    return print_fn(Fn("body", body.params, body.nodes, body.outputs))


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
        if key in _chosen:
            return bool(_chosen[key].plan)
        if key not in _offers:
            known = recall.find(_text(body), tunings.fastest(key)) if _all_ours(body) else None
            if known is not None:
                return bool(known.plan)
            _offers[key] = plans(body)
        return bool(_offers[key])


def load(kernel: Kernel, plan: str, pool: Executor | None = None) -> Loaded:
    """A kernel that a plan of this name has made, compiled or taken from the cache; with a pool, by its threads."""
    name = f"treadle.{hashlib.sha256(kernel.text.encode()).hexdigest()[:24]}"
    with events.span("kernels", "kernel", plan=plan, target=name):
        code = compiled(kernel.text, pool)
    return Loaded(name, kernel.workspace, kernel.aliases, code)


def compiled(text: str, pool: Executor | None = None) -> Future[jit.Code]:
    """The code of a text, by the threads of a pool if there is one that still takes work: once the main thread has
    ended, none does, but other threads may go on."""
    if pool is not None:
        with suppress(RuntimeError):
            return pool.submit(jit.load, text)
    return _done(jit.load(text))


def _done(code: jit.Code) -> Future[jit.Code]:
    made: Future[jit.Code] = Future()
    made.set_result(code)
    return made


def choose(body: Fn, pool: Executor | None = None) -> Choice:
    """The kernel for a body: that of the plan which was measured to be the fastest, else the most promising one. pool:
    its threads compile kernels that are not there yet."""
    key = key_of(body)
    forced = _forced.get()
    if forced is not None:
        return _choose(key, body, forced, pool)
    with _lock:
        found = _chosen.get(key)
        if found is None:
            found = _chosen[key] = _choose(key, body, tunings.fastest(key), pool)
        return found


def forced() -> str | None:
    """The plan that `only` wants."""
    return _forced.get()


@contextmanager
def only(plan: str) -> Iterator[None]:
    """Every body is computed by the plan of this name inside the block ("xla": none of ours)."""
    token = _forced.set(plan)
    try:
        yield
    finally:
        _forced.reset(token)


def _choose(key: str, body: Fn, wanted: str | None, pool: Executor | None) -> Choice:
    if wanted == tunings.XLA:
        return Choice(key, tunings.XLA, None, "XLA's own code was measured to be faster")
    text, ours = _text(body), _all_ours(body)
    known = recall.find(text, wanted) if ours and key not in _offers else None
    found = _recalled(key, known) if known is not None else None
    if found is not None:
        return found
    offers = _offers.pop(key, None) or plans(body)
    if not offers:
        known = recall.Known("")
        choice = Choice(key, "", None, _NO_TEMPLATE)
    else:
        plan = next((p for p in offers if p.name == wanted), offers[0])
        kernel = plan.build()
        made = load(kernel, plan.name, pool)
        code = jit.key_of(kernel.text, target.host())
        known = recall.Known(plan.name, made.name, made.workspace, made.aliases, code)
        choice = Choice(key, plan.name, made)
    if ours:
        recall.keep(text, wanted, known)
    return choice


def _recalled(key: str, known: recall.Known) -> Choice | None:
    """The choice of an earlier process; None if its code is not on the disk any more."""
    if not known.plan:
        return Choice(key, "", None, _NO_TEMPLATE)
    code = jit.recall(known.code)
    if code is None:
        return None
    return Choice(key, known.plan, Loaded(known.name, known.workspace, known.aliases, _done(code)))


def _all_ours(body: Fn) -> bool:
    """Whether all ops are Treadle's own, so that their rules are part of what `recall` hashes."""
    return all(getattr(n.op.rules["type"], "__module__", "").startswith("treadle.ops.") for n in body.nodes)


def forget() -> None:
    """Choose again: there are new measurements."""
    with _lock:
        _chosen.clear()
