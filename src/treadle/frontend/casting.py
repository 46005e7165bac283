"""What `td.amp.autocast` and `td.precision` do to a call of an op on tensors: its operands in other float types, and
the attribute `precision`. Tensors and attributes go in, those that the op is called with come out.

Which ops are touched is in their declarations (`amp`, see ops/_declare.py). Operands of a "narrow" op that are float32
or 16-bit are cast to the type of the autocast, 16-bit ones of a "wide" op to float32; where an operand is float64 or
complex all stay. Both settings belong to the thread; programs are kept apart by `setting`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from treadle.base import dtypes
from treadle.base.dtypes import DType
from treadle.base.flags import flags
from treadle.frontend.trace import _stack
from treadle.ir import op as op_table
from treadle.ir.op import Op
from treadle.ops._precision import HIGHEST, applies


class _Setting(threading.local):
    dtype: DType | None = None  # of products under autocast
    level: str | None = None  # of float32 products; None: that of the flag


_setting = _Setting()
_NARROW = (dtypes.float32, dtypes.float16, dtypes.bfloat16)
_HALF = (dtypes.float16, dtypes.bfloat16)
_KEEP = object()


def dtype() -> DType | None:
    """The element type of products under the autocast of this thread, None without one."""
    return _setting.dtype


def level() -> str:
    """How exactly this thread computes products of float32."""
    return str(flags.precision) if _setting.level is None else _setting.level


def setting() -> tuple[tuple[str, str], ...]:
    """What a program that is traced now depends on, in words; empty where nothing is set."""
    found = () if _setting.dtype is None else (("autocast", _setting.dtype.name),)
    return found if (now := level()) == HIGHEST else (*found, ("precision", now))


@contextmanager
def within(dtype: Any = _KEEP, level: Any = _KEEP) -> Iterator[None]:
    """Other settings of this thread inside the block."""
    before = _setting.dtype, _setting.level
    _setting.dtype = before[0] if dtype is _KEEP else dtype
    _setting.level = before[1] if level is _KEEP else level
    _stack.busy += 1  # products take no short cut
    try:
        yield
    finally:
        _stack.busy -= 1
        _setting.dtype, _setting.level = before


def follow(x: Any, y: Any) -> Any:
    """x, a term to be added to the product y: in y's type where autocast has made that 16-bit."""
    return _cast(x, y.dtype) if _setting.dtype is not None and y.dtype is _setting.dtype else x


def applied(op: Op, args: Sequence[Any], attrs: dict[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    """Operands and attributes of a call as the settings want them. op: one that declares `amp`."""
    narrow = op.rules["amp"] == "narrow"
    if _setting.dtype is not None:
        target = _setting.dtype if narrow else dtypes.float32
        sources = _NARROW if narrow else _HALF
        known = [_dtype(a) for a in args]
        if all(d is None or d in _NARROW or not d.is_inexact for d in known):
            args = [_cast(a, target) if d in sources else a for a, d in zip(args, known, strict=True)]
    if narrow:
        wanted = attrs.get("precision", HIGHEST if flags.precision == HIGHEST and _setting.level is None else level())
        if wanted == HIGHEST or not applies(args):
            if "precision" in attrs:
                attrs = {k: v for k, v in attrs.items() if k != "precision"}
        else:
            attrs = {**attrs, "precision": wanted}
    return args, attrs


def _dtype(x: Any) -> DType | None:
    """The element type of a tensor or array; None for a number, which follows the others."""
    if getattr(x, "_weak", None) is not None or not hasattr(x, "dtype"):
        return None
    return dtypes.of(x.dtype)


def _cast(x: Any, target: DType) -> Any:
    if dtypes.of(x.dtype) is target:
        return x
    if isinstance(x, np.ndarray | np.generic):
        return np.asarray(x).astype(target.np)
    return op_table.get("cast")(x, dtype=target)
