"""Functions that call themselves where a tensor decides when to stop.

Calls of rewritten functions are watched. One that comes up again inside its own branch on a tensor, with arguments of
the same types, would be traced without end: the first of the two calls starts over, and the stage above makes a
recursive IR function of it (`hooks.recursive`), in which the inner call is a call. Recursion that Python numbers stop
never gets there.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

from treadle.base.errors import UserError
from treadle.frontend import trace as tracing
from treadle.frontend import tree
from treadle.frontend.pysrc.convert import is_converted
from treadle.frontend.trace import is_tensor
from treadle.ir.node import attr_key

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


class FoundError(BaseException):
    """A call has come up again inside itself. (No Exception: nothing of the user's may catch it.)"""

    def __init__(self, key: Any) -> None:
        super().__init__(key)
        self.key = key


class BottomError(BaseException):
    """A recursive call whose result type is not known yet: the branch that makes it says nothing about types."""


class _Calls(threading.local):
    def __init__(self) -> None:
        self.running: list[tuple[Any, int]] = []  # keys of calls, and how many traces there were
        self.derived: list[Any] = []  # keys of functions being traced for td.grad and the like
        self.known: dict[Any, Callable[..., Any]] = {}  # what to do for a call of a function being made recursive


calls = _Calls()


class _Hooks:
    """recursive(key, function, args, kwargs): the result of a recursive function. Installed by api/recursing.py."""

    recursive: Callable[..., Any]


hooks = _Hooks()


def watched(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, looking whether it runs already."""

    @functools.wraps(function, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        key = _key(function, args, kwargs)
        if key is None:
            return function(*args, **kwargs)
        again = calls.known.get(key)
        if again is not None:
            return again(*args, **kwargs)
        depth = len(tracing._stack.traces)
        if any(k == key and depth > d for k, d in calls.running):
            raise FoundError(key)
        calls.running.append((key, depth))
        try:
            return function(*args, **kwargs)
        except FoundError as found:
            if found.key != key or any(k == key for k, _ in calls.running[:-1]):
                raise
        finally:
            calls.running.pop()
        return hooks.recursive(key, function, args, kwargs)

    return call


_MOST_DERIVED = 4


@contextlib.contextmanager
def derived(function: Any, made: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[None]:
    """Around the trace of a function for td.grad, td.vmap and the like. made: the function, rewritten.

    Raises E0248 for one that has come up so several times inside itself: no tensor can stop that while it is traced.
    """
    inner = getattr(function, "__func__", function)
    key = _key(function, args, kwargs) if is_converted(made) else None
    if key is not None:
        key = (*key, id(getattr(function, "__self__", None)), *map(id, inner.__closure__ or ()))
        if calls.derived.count(key) == _MOST_DERIVED:
            why = f"{inner.__name__} calls td.grad, td.vmap or the like of itself, and a tensor decides when to stop"
            fix = "let a Python number stop it, or apply td.grad and td.vmap outside of the function"
            raise UserError("E0248", f"{why}: each level would be another program", fix=fix)
    calls.derived.append(key)
    try:
        yield
    finally:
        calls.derived.pop()


def _key(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The code and the kinds of the arguments; None outside a trace, and where no argument is a tensor."""
    if tracing.current() is None:
        return None
    leaves, shape = tree.flatten((args, kwargs))
    if not any(map(is_tensor, leaves)):
        return None
    kinds = [(x._weak, x.type) if is_tensor(x) else attr_key(x) if isinstance(x, _PLAIN) else id(x) for x in leaves]
    function = getattr(function, "__func__", function)
    return id(function.__code__), shape, tuple(kinds)


