"""The two kinds of failure. `UserError`: the caller can mend it; it names code, cause, the user's line and the fix.
`InternalError`: a fault of Treadle itself; it writes a folder from which the fault can be reproduced.

Codes: E01 types and shapes, E02 front end, E03 transforms, E04 runtime, E05 library, E06 files, E07 flags and tools.
"""

from __future__ import annotations

import json
import platform
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from treadle.base.where import UNKNOWN, Where, here, is_hidden


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


def show_only_users_frames() -> None:
    """Uncaught `UserError`s are printed without the package's own frames: they say nothing of the mistake."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, UserError):
            error.__traceback__ = trace = users_frames(trace)
        before(kind, error, trace)

    sys.excepthook = hook


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
