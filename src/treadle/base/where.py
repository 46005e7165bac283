"""Source positions: which line of the user's code made a node, and in which part of the model (scope path).

`here()` gives the first frame outside the package; `scope("fc1")` names a part of a model for all that runs inside it.
"""

from __future__ import annotations

import linecache
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import TracebackType

import numpy as np

_PACKAGE = str(Path(__file__).resolve().parent.parent) + os.sep
_STANDARD = str(Path(os.__file__).parent) + os.sep  # contextlib, importlib, copy, ...
_NUMPY = str(Path(np.__file__).parent) + os.sep
_hidden = [_PACKAGE, _NUMPY, "<frozen "]


@dataclass(frozen=True, slots=True)
class Where:
    """A line of a file (line 0: unknown) and the scope path of the model part, such as `net/layer3/conv`."""

    file: str
    line: int
    scope: str = ""

    def __str__(self) -> str:
        text = f"{self.file}:{self.line}"
        return f"{text} in {self.scope}" if self.scope else text

    def source_line(self) -> str:
        """The text of the line, or "" where the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()


UNKNOWN = Where("", 0)


class _Scopes(threading.local):
    def __init__(self) -> None:
        self.path = ""
        self.override: Where | None = None


_scopes = _Scopes()


@lru_cache(maxsize=1 << 16)
def _where(file: str, line: int, scope: str) -> Where:
    return Where(file, line, scope)


@lru_cache(maxsize=1 << 12)
def is_hidden(file: str) -> bool:
    """Whether a file's lines are never the user's: the package's own, NumPy's, those of the standard library, and what
    `hide` was given."""
    if file.startswith(_STANDARD):
        return "-packages" not in file.removeprefix(_STANDARD).split(os.sep)[0]
    return any(file.startswith(prefix) for prefix in _hidden)


def is_package(file: str) -> bool:
    """Whether a file is the package's own."""
    return file.startswith(_PACKAGE)


def hide(folder: str) -> None:
    """Never report lines of files below `folder` as the user's."""
    _hidden.append(str(Path(folder).resolve()) + os.sep)
    is_hidden.cache_clear()


def here() -> Where:
    """The innermost line outside the package, with the current scope path."""
    if _scopes.override is not None:
        return _scopes.override
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not is_hidden(code.co_filename):
            return _where(code.co_filename, frame.f_lineno, _scopes.path)
        if frame.f_back is None:
            break
        frame = frame.f_back
    return _where(frame.f_code.co_filename, frame.f_lineno, _scopes.path)


def of_traceback(trace: TracebackType | None) -> Where:
    """The innermost line of a traceback that is the user's; `here()` where there is none."""
    found = None
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        found = found if is_hidden(file) else _where(file, trace.tb_lineno, _scopes.path)
        trace = trace.tb_next
    return here() if found is None else found


def scope_path() -> str:
    """The current scope path, "" outside any scope."""
    return _scopes.path


@contextmanager
def scope(name: str) -> Iterator[None]:
    """Everything built inside belongs to the model part `name`, below the current one."""
    before = _scopes.path
    _scopes.path = f"{before}/{name}" if before else name
    try:
        yield
    finally:
        _scopes.path = before


@contextmanager
def at(where: Where) -> Iterator[None]:
    """Everything built inside carries the position `where`: transforms use it to keep the positions of their input."""
    before = _scopes.override
    _scopes.override = where
    try:
        yield
    finally:
        _scopes.override = before
