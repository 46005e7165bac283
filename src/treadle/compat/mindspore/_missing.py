"""What a script asks for and this package lacks: an error that names the nearest function of Treadle."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from treadle.base.errors import UserAttributeError, UserError

# Where Treadle keeps what a module of MindSpore holds.
_HOMES = [
    ("treadle.nn", "td.nn"),
    ("treadle.nn.functional", "td.nn.functional"),
    ("treadle.frontend.functions", "td"),
    ("treadle.optim", "td.optim"),
    ("treadle.train", "td.train"),
    ("treadle.frontend.create", "td"),
    ("treadle.frontend.linalg", "td.linalg"),
    ("treadle.api", "td"),
]


def nearest(name: str) -> str:
    """The public name of Treadle that is most like `name`, with its module: "td.nn.Conv3d"; "" if none is."""
    every = {n: f"{short}.{n}" for home, short in reversed(_HOMES) for n in importlib.import_module(home).__all__}
    lower = {n.lower(): n for n in every}
    plain = name.lower().replace("_", "")
    close = difflib.get_close_matches(plain, lower, n=1, cutoff=0.7)
    return every[lower[close[0]]] if close else ""


def missing(module: str) -> Callable[[str], Any]:
    """The `__getattr__` of a package: its modules are loaded when asked for; E0592 for a name that it lacks."""
    shown = module.replace("treadle.compat.", "")

    def lacks(name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        if hasattr(sys.modules[module], "__path__") and importlib.util.find_spec(f"{module}.{name}") is not None:
            return importlib.import_module(f"{module}.{name}")
        why = f"{shown}.{name} is not covered by treadle.compat.mindspore"
        # `from module import name` would put its own error in place of an AttributeError
        asked = sys._getframe(1).f_code.co_name
        if asked == "_handle_fromlist":
            raise UserError("E0592", why, fix=_fix(name))
        raise UserAttributeError("E0592", why, fix=lambda: _fix(name))

    return lacks


def _fix(name: str) -> str:
    near = nearest(name)
    return f"the nearest of Treadle is {near}" if near else "write it with treadle.compat.mindspore.ops"


def not_covered(what: str, fix: str) -> NoReturn:
    """E0592 for an option that is not covered."""
    raise UserError("E0592", f"{what} is not covered by treadle.compat.mindspore", fix=fix)
