"""Settings of how exactly to compute: `autocast` (16-bit products) and `precision` (float32 products), each for a block
or a function, `set_precision` for everything.

They hold where tensors meet ops: in eager mode at once; in a compiled, differentiated or mapped function while it is
traced, so that loops, branches and gradients keep them. A compiled function has a program for each setting.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from treadle.base import arguments, dtypes
from treadle.base.errors import UserError
from treadle.base.flags import flags
from treadle.frontend import casting
from treadle.frontend import trace as tracing
from treadle.frontend.pysrc.convert import converted
from treadle.frontend.trace import clock
from treadle.ops._precision import check

__all__ = ["autocast", "get_precision", "precision", "set_precision"]


class _Open(threading.local):
    """The blocks that this thread has entered."""

    def __init__(self) -> None:
        self.blocks: list[AbstractContextManager[None]] = []


class _Block:
    """`with block:` any number of times, nested too, or `@block` on a function."""

    def __init__(self, **settings: Any) -> None:
        self._settings = settings
        self._open = _Open()

    def __enter__(self) -> None:
        block = casting.within(**self._settings)
        block.__enter__()
        self._open.blocks.append(block)

    def __exit__(self, *error: Any) -> None:
        self._open.blocks.pop().__exit__(*error)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, called inside such a block."""
        arguments.function(function, "what is to be decorated")

        @functools.wraps(function, updated=())
        def run(*args: Any, **kwargs: Any) -> Any:
            with casting.within(**self._settings):
                return (function if tracing.current() is None else converted(function))(*args, **kwargs)

        return run


class autocast(_Block):
    """Products (matmul, convolution, attention, recurrent cells) in 16 bits, with sums in float32.

    Their float32 operands are cast to `dtype`, float32 parameters get float32 gradients. Losses, softmax, exp, log,
    powers and sums take float32 instead; norms keep their statistics in float32; all else takes the type it is given,
    float32 where both meet (ops.md says which op is which). level: "O0" computes as if there were no autocast, "O1" and
    "O2" as described (in "O2" the parameters are 16-bit too: see `td.amp.initialize`). enabled=False is "O0".
    Raises E0195 for another dtype or level.
    """

    def __init__(self, level: str = "O1", dtype: Any = dtypes.bfloat16, enabled: bool = True) -> None:
        super().__init__(dtype=half(dtype) if check_level(level) != "O0" and enabled else None)


class precision(_Block):
    """How exactly products of float32 are computed: "highest" (as float32), "high" (about 1e-5, three products of
    bfloat16 where that is faster), "medium" (bfloat16 operands, about 1e-2). Sums are float32 in all.

    A level is a bound: a device may be more exact. Gradients have the level of the product that they are of. Raises
    E0194 for another level. See docs/precision.md.
    """

    def __init__(self, level: str) -> None:
        super().__init__(level=check(level))


def set_precision(level: str) -> None:
    """The `precision` wherever no block says otherwise, in every thread. Also `TREADLE_PRECISION`. Raises E0194."""
    flags.set("precision", check(level))
    clock.tick()


def get_precision() -> str:
    """The level that products of float32 have here."""
    return casting.level()


def half(dtype: Any) -> dtypes.DType:
    """A 16-bit float type. Raises E0195 for another."""
    found = dtypes.of(dtype)
    if found not in (dtypes.bfloat16, dtypes.float16):
        raise UserError("E0195", f"autocast to {found.name}", fix="use td.bfloat16 or td.float16")
    return found


def check_level(level: Any) -> str:
    """The level. Raises E0195 for one that there is not."""
    if level not in ("O0", "O1", "O2"):
        raise UserError("E0195", f"level {level!r} of mixed precision", fix="use 'O0', 'O1' or 'O2'")
    return str(level)
