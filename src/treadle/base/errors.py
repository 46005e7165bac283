"""The two kinds of failure. `UserError`: the caller can mend it; it names code, cause, the user's line and the fix.
`InternalError`: a fault of Treadle itself; it writes a folder from which the fault can be reproduced.

Codes: E01 types and shapes, E02 front end, E03 transforms, E04 runtime, E05 library, E06 files, E07 flags and tools.
"""

from __future__ import annotations

import difflib
import json
import platform
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from treadle.base.where import UNKNOWN, Where, here, is_hidden, is_package


class UserError(Exception):
    """What is wrong (`why`, with the values), where in the user's code, how to mend it (`fix`), and a stable `code`."""

    def __init__(self, code: str, why: str, fix: str = "", where: Where | None = None) -> None:
        self.code, self.why, self.fix = code, why, fix
        self.where = here() if where is None else where
        super().__init__(code, why, fix)

    def __str__(self) -> str:
        text = f"{self.code} {self.why}"
        if self.where is not UNKNOWN:
            text += f"\n  at  {self.where}"
            if source := self.where.source_line():
                text += f"\n      {source}"
        if self.fix:
            text += f"\n  fix {self.fix}"
        return text

    def named(self, op_name: str, where: Where) -> UserError:
        """The same error, said of the op `op_name` at the position `where`."""
        why = self.why if self.why.startswith(f"{op_name}:") else f"{op_name}: {self.why}"
        return type(self)(self.code, why, self.fix, where)


class UserAttributeError(UserError, AttributeError):
    """A name that something lacks; `hasattr` sees it as any other. The fix is made when it is read: seldom."""

    def __init__(self, code: str, why: str, fix: str | Callable[[], str] = "", where: Where | None = None) -> None:
        super().__init__(code, why, "", where)
        self._make_fix = fix

    @property
    def fix(self) -> str:
        """How to mend it."""
        return self._make_fix if isinstance(self._make_fix, str) else self._make_fix()

    @fix.setter
    def fix(self, text: str) -> None:
        self._make_fix = text


def no_attribute(
    owner: str, name: str, known: Callable[[], Iterable[str]], elsewhere: Mapping[str, str]
) -> UserAttributeError:
    """The error for a name that `owner` lacks; the fix is that of `elsewhere`, or names the nearest known one."""

    def fix() -> str:
        near = difflib.get_close_matches(name, [k for k in known() if not k.startswith("_")], n=1)
        return elsewhere.get(name) or (f"did you mean {near[0]!r}?" if near else "look for it in the documentation")

    return UserAttributeError("E0219", f"{owner} has no attribute {name!r}", fix=fix)


class UserKeyError(UserError, KeyError):
    """A name that a container does not have."""


class UserTypeError(UserError, TypeError):
    """An operand that no tensor can be combined with."""


class UserIndexError(UserError, IndexError):
    """A position that a tensor does not have, or what is no position."""


class UserValueError(UserError, ValueError):
    """An argument for which a standard that Treadle keeps to asks for a ValueError."""


def show_only_users_frames() -> None:
    """What the user's program did wrong is printed without the package's own frames: they say nothing of the mistake.

    So are exceptions that the user's own code raised while the package was running it.
    """
    before, before_in_threads = sys.excepthook, threading.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        before(kind, error, _shown(error, trace))

    def hook_in_threads(args: Any) -> None:
        if args.exc_value is not None:
            trace = _shown(args.exc_value, args.exc_traceback)
            args = threading.ExceptHookArgs((args.exc_type, args.exc_value, trace, args.thread))
        before_in_threads(args)

    sys.excepthook, threading.excepthook = hook, hook_in_threads


def _shown(error: BaseException, trace: TracebackType | None) -> TracebackType | None:
    """The traceback to be printed; also of the errors that led to this one."""
    if not _is_users(error, trace):
        return trace
    error.__traceback__ = trace
    _strip(error)
    return error.__traceback__


_STEPS = (str(Path("pysrc", "lookup.py")), str(Path("pysrc", "builtin.py")))


def _is_users(error: BaseException, trace: TracebackType | None) -> bool:
    """Whether the mistake is the user's: our error says so, or it was raised in a line of theirs."""
    ours = True
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.endswith(_STEPS):  # which do what the user's line says: d[k], int(s)
            ours = is_package(file) or (ours and is_hidden(file))  # a library that the user called does not decide
        trace = trace.tb_next
    return isinstance(error, UserError) or not ours


def _strip(error: BaseException) -> None:
    """Only the user's frames in the error and in those that led to it; those that were raised inside are left out."""
    error.__traceback__ = users_frames(error.__traceback__)
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is None:
        return
    caught = cause.__traceback__  # begins where it was caught
    if caught is not None and not is_hidden(caught.tb_frame.f_code.co_filename):
        _strip(cause)
    else:
        error.__cause__, error.__suppress_context__ = None, True


def users_frames(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames of hidden files."""
    if trace is None:
        return None
    rest = users_frames(trace.tb_next)
    if is_hidden(trace.tb_frame.f_code.co_filename):
        return rest
    return TracebackType(rest, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)


class InternalError(Exception):
    """A fault of Treadle. The message names the folder with everything needed to reproduce it."""


def internal_error(why: str, **files: str) -> NoReturn:
    """Write `files` (name -> text, usually IR before the failing step) and the versions to a folder, then raise."""
    folder = Path(tempfile.mkdtemp(prefix="treadle-fault-"))
    for name, text in files.items():
        (folder / f"{name}.txt").write_text(text)
    versions = {"python": sys.version, "machine": platform.platform(), "why": why, "argv": sys.argv}
    (folder / "fault.json").write_text(json.dumps(versions, indent=1))
    raise InternalError(f"{why}\n  this is a fault of Treadle, not of your program; what reproduces it is in {folder}")
