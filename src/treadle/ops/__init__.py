"""All ops. A family file declares each op with all its rules (`_declare.py` has the contract); adding an op touches
one file.

Importing this package imports every family, which registers its ops; each op is also a name here, and can be called on
IR values and on tensors. A name that Python keeps for itself has an underscore behind it: `ops.if_`.
"""

import difflib
import importlib
import pkgutil

from treadle.base.errors import UserAttributeError
from treadle.ir.op import Op
from treadle.ops import _operators
from treadle.ops._declare import OPS, No, Sample, Samples, check_declarations

__all__ = ["OPS", "No", "Op", "Sample", "Samples"]

for _found in pkgutil.iter_modules(__path__):
    if not _found.name.startswith("_"):
        _family = importlib.import_module(f"{__name__}.{_found.name}")
        globals().update({name: op for name, op in vars(_family).items() if isinstance(op, Op)})

_operators.install()
check_declarations()


def __getattr__(name: str) -> Op:
    if name.startswith("__"):
        raise AttributeError(name)
    near = difflib.get_close_matches(name, OPS, n=1)
    fix = f"docs/ops.md lists them{f'; did you mean {near[0]!r}?' if near else ''}"
    raise UserAttributeError("E0219", f"there is no op {name!r}", fix=fix)
