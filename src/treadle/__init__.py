"""Treadle: deep learning in plain Python, compiled for every device.

`import treadle as td`; then `td.jit`, `td.grad`, `td.Tensor`, `td.nn`, `td.optim`, `td.train` (see the README). The
parts are loaded when first asked for, so that the import itself costs little more than NumPy's.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from treadle import array, data, ir, nn, ops, optim, te, train
    from treadle.api import *
    from treadle.base.dtypes import *
    from treadle.base.errors import InternalError, UserError
    from treadle.frontend import fft, linalg, random, sparse, tree
    from treadle.frontend.counting import *
    from treadle.frontend.create import *
    from treadle.frontend.functions import *
    from treadle.frontend.interop import *
    from treadle.frontend.scatter import *
    from treadle.frontend.segments import *
    from treadle.frontend.tensor import Tensor
    from treadle.nn.cell import Cell, Parameter
    from treadle.optim import amp

__version__ = "0.1.0"

_PACKAGES = ("api", "array", "data", "ir", "nn", "ops", "optim", "te", "train")
_SPACES = {
    "amp": "treadle.optim.amp",
    "fft": "treadle.frontend.fft",
    "linalg": "treadle.frontend.linalg",
    "random": "treadle.frontend.random",
    "sparse": "treadle.frontend.sparse",
}
_SINGLE = {
    "Cell": "treadle.nn.cell",
    "InternalError": "treadle.base.errors",
    "Parameter": "treadle.nn.cell",
    "Tensor": "treadle.frontend.tensor",
    "UserError": "treadle.base.errors",
    "tree": "treadle.frontend",
}
# Whole modules whose `__all__` is public here; an earlier one wins.
_MODULES = (
    "treadle.api",
    "treadle.base.dtypes",
    "treadle.frontend.create",
    "treadle.frontend.functions",
    "treadle.frontend.interop",
    "treadle.frontend.scatter",
    "treadle.frontend.segments",
    "treadle.frontend.counting",
)


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted({*_PACKAGES, *_SPACES, *_SINGLE, *[n for m in _MODULES for n in _loaded(m).__all__]})
    if name.startswith("__"):
        raise AttributeError(name)
    _loaded("treadle.driver")
    if name in _PACKAGES:
        found: Any = _loaded(f"treadle.{name}")
    elif name in _SPACES:
        found = _loaded(_SPACES[name])
    elif name in _SINGLE:
        found = getattr(_loaded(_SINGLE[name]), name)
    else:
        home = next((m for m in map(_loaded, _MODULES) if name in m.__all__), None)
        if home is None:
            hints = _loaded("treadle.base.elsewhere").TREADLE
            error = _loaded("treadle.base.errors").no_attribute
            raise error("treadle", name, lambda: __getattr__("__all__"), hints)
        found = getattr(home, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*globals(), *__getattr__("__all__")]


def _loaded(module: str) -> Any:
    return importlib.import_module(module)
