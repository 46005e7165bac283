"""`td.amp`, mixed precision: `autocast`, `GradScaler`, and `initialize`, which makes the parameters of a net 16-bit.

A net and an optimiser go in and are changed in place; what comes out is the block to compute losses in.
"""

from __future__ import annotations

from typing import Any

from treadle.api.precision import autocast, check_level, half
from treadle.base import arguments, dtypes
from treadle.base.errors import UserError
from treadle.frontend.trace import clock
from treadle.nn.cell import Cell
from treadle.nn.norm import ChannelNorm, GroupNorm, LayerNorm, RMSNorm
from treadle.optim.optimizer import Optimizer
from treadle.optim.scaling import GradScaler

__all__ = ["GradScaler", "autocast", "initialize"]

_NORMS = (ChannelNorm, GroupNorm, LayerNorm, RMSNorm)


def initialize(
    net: Cell, optimizer: Optimizer | None = None, level: str = "O1", dtype: Any = dtypes.bfloat16
) -> autocast:
    """The block for losses and gradients of this net: `with block:`, or `@block` on the function that makes them.

    "O0", "O1": the net stays as it is. "O2": its float32 parameters become 16-bit, but for those of norms; the
    optimiser keeps float32 masters of them, which it changes, saves and rounds to the parameters after each step.
    Do this before anything is compiled. Raises E0195 for another level or dtype, or without an optimiser of these
    parameters in "O2".
    """
    if not isinstance(net, Cell) or not isinstance(optimizer, Optimizer | None):
        why = f"initialize got {arguments.brief(net)} and {arguments.brief(optimizer)}"
        raise UserError("E0195", why, fix="pass a td.Cell and an optimiser of td.optim")
    block = autocast(level, dtype)
    if check_level(level) == "O2":
        kept = {id(p) for cell in net.cells() if isinstance(cell, _NORMS) for p in cell.parameters()}
        fitting = (dtypes.float32, half(dtype))
        found = [p for p in net.parameters() if p.dtype in fitting and id(p) not in kept]
        _narrow(found, optimizer, half(dtype))
    return block


def _narrow(params: list[Any], optimizer: Optimizer | None, dtype: dtypes.DType) -> None:
    """Make the parameters 16-bit, with masters in the optimiser."""
    known = set() if optimizer is None else {id(p) for p in optimizer.params}
    if optimizer is None or not known & {id(p) for p in params}:
        why = "16-bit parameters need an optimiser that keeps float32 masters of them"
        raise UserError("E0195", why, fix="pass the optimiser of net.parameters()")
    optimizer.keep_masters([p for p in params if id(p) in known])
    for p in params:
        p._value = p.astype(dtype)._value
    clock.tick()
