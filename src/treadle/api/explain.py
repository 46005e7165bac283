"""`td.explain(function)`: what of a function was compiled, what ran as Python, and why it was compiled again.

A compiled function keeps its programs; the report tells of each what it takes, its size, why it was made, and the
functions that were called while it was traced. It is text: nothing is run or compiled for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from treadle.api.programs import Jitted, Program
from treadle.base.errors import UserError
from treadle.frontend.pysrc.convert import source_of
from treadle.ir.walk import all_nodes


class Explanation(str):
    """The report; shown as it is, also at a prompt."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def explain(function: Callable[..., Any], source: bool = False) -> Explanation:
    """What became of a jitted function, as text to print.

        print(td.explain(step))

    source: also the source as the compiler sees it, in which decisions and loops are calls of `_td_`. Any function can
    be asked for that. Raises E0213 for what cannot be called.
    """
    if not callable(function):
        raise UserError("E0213", f"{function!r} is not callable", fix="pass a function, a method or a cell")
    jitted = function if isinstance(function, Jitted) else None
    lines = [*_compiled(jitted)] if jitted is not None else [f"{_name(function)} is not compiled: put @td.jit above it"]
    if source:
        written = source_of(jitted.function if jitted is not None else function)
        lines += ["", written or "its source cannot be found: it is run by Python as it is"]
    return Explanation("\n".join(lines))


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def _compiled(jitted: Jitted) -> list[str]:
    programs = jitted.programs()
    if not programs:
        return [f"{jitted.name} has no programs yet: it is compiled when it is called"]
    lines = [f"{jitted.name}: {len(programs)} program{'s' if len(programs) > 1 else ''}"]
    for i, program in enumerate(programs):
        lines += [*_program(i, program)]
    return lines


def _program(place: int, program: Program) -> list[str]:
    types = ", ".join(map(str, program.module.main.in_types[: program.traced.num_args]))
    before, after = (sum(1 for _ in all_nodes(m)) for m in (program.module, program.optimised))
    state = f"{len(program.fixed) + len(program.updated)} read, {len(program.traced.changed)} changed"
    lines = [
        f"program {place}: ({types})",
        f"  because     {program.why or 'first call'}",
        f"  size        {before} nodes traced, {after} after the passes",
        f"  tensors     from outside: {state}",
    ]
    done = sorted(name for name, what in program.calls.items() if what == "compiled")
    rest = sorted(f"{name}: {what}" for name, what in program.calls.items() if what != "compiled")
    lines += [f"  {'compiled' if i == 0 else '':<12}{name}" for i, name in enumerate(done)]
    return [*lines, *[f"  {'not' if i == 0 else '':<12}{name}" for i, name in enumerate(rest)]]


__all__ = ["Explanation", "explain"]
