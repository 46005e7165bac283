"""Switches that make a program say more: `debug_nans` looks for NaN after every op, `deterministic` asks for the same
bits in every run.

Each takes effect at once; used as `with td.debug_nans():` it ends with the block.
"""

from __future__ import annotations

from types import TracebackType

from treadle import driver
from treadle.base.errors import UserError
from treadle.base.flags import flags


class _Switch:
    """A flag that has just been set; leaving the `with` block gives it its old value."""

    def __init__(self, name: str, value: int | bool) -> None:
        self.name, self.before = name, _set(name, value)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        _set(self.name, self.before)


def _set(name: str, value: int | bool) -> int | bool:
    """Set the flag, and let eager mode know; the value before."""
    before: int | bool = flags.set(name, value)
    if before != getattr(flags, name):
        driver.forget_eager_programs()
    return before


def _bool(on: bool) -> bool:
    if not isinstance(on, bool):
        raise UserError("E0103", f"on is {on!r}", fix="give True or False")
    return on


def debug_nans(on: bool = True, *, inf: bool = False) -> _Switch:
    """Stop at the first op whose result has NaN; inf: or an infinity. Also `TREADLE_DEBUG_NANS=1` (2: infinities too).

    Raises E0415, which names the op, the line, how many elements are bad and the ranges of the operands. In eager mode
    every op is checked; a compiled program's results are, and when they are bad it is run again op by op to find the
    first one. State that the program was to change keeps the values from before the call. An op whose NaN is not used
    afterwards (the other side of a `where`) counts too. Every result is brought to the host: this is slow.

        with td.debug_nans():
            trainer.fit(data)
    """
    return _Switch("debug_nans", (2 if inf else 1) if _bool(on) else 0)


def deterministic(on: bool = True) -> _Switch:
    """The same program on the same machine gives the same bits in every run. Also `TREADLE_DETERMINISTIC=1`.

    On a GPU, XLA is told to use no kernel whose additions come in any order (scatter-add, some convolutions) and not to
    choose kernels by measuring them; both cost speed. The CPU back end has no such kernels. Programs compiled before
    are compiled again. Eager and compiled runs still differ in the last bits: XLA fuses and reorders within a program.
    """
    return _Switch("deterministic", _bool(on))
