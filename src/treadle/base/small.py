"""What counts as small in eager mode, and NumPy without its warnings. Small CPU arrays are computed by NumPy: a call of
XLA costs about ten times as much on few elements, and a new shape costs a compilation."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any

import numpy as np


class _Limit:
    """`now`: elements up to which an array counts as small. It is 0 until the runtime has seen the platform, and
    where every op has to pass through the runtime."""

    now = 0


limit = _Limit()

_quiet = contextvars.Context()
_quiet.run(np.seterr, all="ignore")
_enter = _quiet.run


def quietly(function: Callable[..., Any], *args: Any) -> Any:
    """function(*args), which must have no side effects, without NumPy's warnings of overflow and the like."""
    try:
        return _enter(function, *args)
    except RuntimeError:  # another thread, or a finalizer that ran in between, is in the context
        return _quiet.copy().run(function, *args)
