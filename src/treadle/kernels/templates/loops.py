"""Pointwise, broadcast and index ops, and reductions over any axes, as loops over vectors.

`plans(body, target)` takes every body whose formula `nests.nest` can write as items over common axes and
`_schedule.schedule` can share among tasks; no plan for others.
"""

from __future__ import annotations

from functools import partial

from treadle.ir.node import Fn
from treadle.kernels.kernel import Plan
from treadle.kernels.nests import nest
from treadle.kernels.target import Target
from treadle.kernels.templates._schedule import schedule


def why_not(body: Fn, target: Target) -> str:
    """The reason why there are no plans; "" if there are."""
    found = nest(body)
    made = found if isinstance(found, str) else schedule(found, target)
    return made if isinstance(made, str) else ""


def plans(body: Fn, target: Target) -> list[Plan]:
    """Ways in which the loops may be written out, the usual one first."""
    found = nest(body)
    if isinstance(found, str):
        return []
    made = schedule(found, target)
    if isinstance(made, str):
        return []
    usual = Plan("loops", lambda: made.kernel(target))
    return [usual, *[Plan(f"loops x{n}", partial(made.kernel, target, n)) for n in (1, 4)]]
