"""What the groups of a module became: `report(module)` is a table of kernels and of refusals, with their reasons.

`texts(module, "llvm" | "asm" | "loops")` gives the code of the kernels themselves.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from treadle import driver
from treadle.base import text
from treadle.ir.node import Fn, Module
from treadle.ir.walk import all_nodes
from treadle.ops.groups import fused
from treadle.transforms.fuse import smaller
from treadle.transforms.runs import is_run, with_runs

CODE = ("loops", "llvm", "asm")


@dataclass(frozen=True)
class Row:
    """One kind of group. count: how often it stands in the module; plan: of its kernel, "" where XLA computes it, and
    then why; before, after: bytes that its nodes move one by one, and as one kernel."""

    count: int
    ops: str
    plan: str
    why: str
    before: int
    after: int


def rows(module: Module) -> list[Row]:
    """The groups of a module as it is compiled, those that were tried in smaller ones among them."""
    return _rows(driver.grouped(module))


def _rows(made: Module) -> list[Row]:
    counts: Counter[str] = Counter()
    bodies: dict[str, Fn] = {}
    for body in _bodies(made):
        counts[str(body)] += 1
        bodies[str(body)] = body
    return [_row(body, counts[key]) for key, body in bodies.items()]


def _bodies(module: Module) -> Iterator[Fn]:
    """The bodies of all groups; of one without a kernel also those of the smaller groups in its place."""
    from treadle.kernels import engine, tunings  # loads llvmlite

    for node in all_nodes(module):
        if node.op is fused:
            body = node.attrs["body"]
            yield body
            choice = engine.choose(body)
            if choice.loaded is None and choice.plan != tunings.XLA:
                inner = smaller(body)
                if inner is not body:
                    yield from _bodies(Module.of(inner))


def _row(body: Fn, count: int) -> Row:
    from treadle.kernels import engine

    choice = engine.choose(body)
    names = Counter(n.op.name for n in body.nodes)
    ops = " ".join(name if n == 1 else f"{name}*{n}" for name, n in names.items())
    before = sum(v.type.bytes for n in body.nodes for v in (*n.inputs, *n.outputs))
    after = sum(v.type.bytes for v in (*body.params, *body.outputs))
    return Row(count, ops, choice.plan if choice.loaded else "", choice.why, before, after)


def report(module: Module) -> str:
    """The table, and what all groups with kernels save: passes over memory and bytes."""
    made = driver.grouped(module)
    found = _rows(made)
    table = [(str(r.count), r.ops, r.plan or f"XLA: {r.why}", text.size(r.before), text.size(r.after)) for r in found]
    ours = [r for r in found if r.plan]
    launches = sum(r.count * len(r.ops.split()) for r in ours), sum(r.count for r in ours)
    moved = sum(r.count * r.before for r in ours), sum(r.count * r.after for r in ours)
    last = (
        f"{launches[1]} kernels for {launches[0]} kinds of nodes; "
        f"{text.size(moved[1])} instead of {text.size(moved[0])} through memory"
    )
    runs = _runs(made)
    if runs:
        last += f"; {sum(runs)} of them in {len(runs)} {'call' if len(runs) == 1 else 'calls'} of several"
    head = ("count", "nodes", "kernel, or why none", "bytes one by one", "as a group")
    return text.table(head, table) + f"\n{last}\n"


def _runs(grouped: Module) -> list[int]:
    """How many kernels each run of a module calls at once, where it is compiled without donations."""
    from treadle.kernels import engine

    made = with_runs(grouped, lambda node: engine.choose(node.attrs["body"]).loaded is not None)
    bodies = [n.attrs["body"] for n in made.main.nodes if n.op is fused and is_run(n.attrs["body"])]
    return [sum(n.op is fused for n in body.nodes) for body in bodies]


def texts(module: Module, form: str) -> str:
    """The kernels' code: "loops" (phases and tasks of each), "llvm" or "asm"."""
    from treadle.kernels import engine, jit

    parts, seen = list[str](), set[str]()
    for body in _bodies(driver.grouped(module)):
        choice = engine.choose(body)
        if choice.loaded is None or choice.loaded.name in seen:
            continue
        seen.add(choice.loaded.name)
        code = next(p for p in engine.plans(body) if p.name == choice.plan).build().text
        shown = code if form == "llvm" else jit.assembly(code) if form == "asm" else _phases(code)
        parts.append(f"; {choice.plan}\n{body}\n{shown}")
    return "\n".join(parts) or "no kernels\n"


def _phases(code: str) -> str:
    """The description of a kernel: its phases and how many tasks each has."""
    line = next(row for row in code.splitlines() if row.startswith("@describe"))
    return "".join(
        [f"phase {name}: {tasks} tasks\n" for name, tasks in re.findall(r"@(\w+) to i64\), i64 (\d+)", line)]
    )
