"""Measures kernels beside XLA's own code: `tune(module)` tries each group's plans and keeps what was fastest.

Everything is measured as it will run: inside a compiled program, with all threads, on arrays that are not in the caches
(each call takes the next set of them). Candidates take turns; the median of their times counts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle import driver
from treadle.base import events
from treadle.ir import build
from treadle.ir.node import Fn, Module
from treadle.ir.types import TensorType
from treadle.ir.walk import all_nodes
from treadle.ops.groups import fused
from treadle.runtime import pjrt
from treadle.runtime.executable import Executable

COLD_BYTES = 64 << 20  # the sets of arrays together: more than the caches hold
MAX_SETS = 24
ROUNDS, SHORTEST_S = 5, 2e-3  # turns of each candidate, and how long one of its turns is at least
MARGIN = 1.03  # one of ours must be so much faster than XLA's code to be taken


def tune(module: Module, budget: float = 60.0, again: bool = False) -> dict[str, dict[str, float]]:
    """Seconds of each plan for each group of the module that has not been measured yet (again: all), until `budget`
    seconds are over; they are kept for later compilations. Without llvmlite there are no groups."""
    from treadle.kernels import engine, tunings

    start, measured = time.perf_counter(), dict[str, dict[str, float]]()
    for body in groups(module):
        key = engine.key_of(body)
        if key in measured or (tunings.seconds(key) and not again):
            continue
        if time.perf_counter() - start > budget:
            events.record("kernels", "tuning stopped", budget=budget)
            break
        names = [p.name for p in engine.plans(body)]
        if names:
            measured[key] = _measure(body, [tunings.XLA, *names])
    tunings.add(measured)
    engine.forget()
    return measured


def groups(module: Module) -> list[Fn]:
    """The bodies of the groups that a module is compiled in, equal ones once."""
    nodes = all_nodes(driver.grouped(module))
    return list({str(n.attrs["body"]): n.attrs["body"] for n in nodes if n.op is fused}.values())


def _measure(body: Fn, names: Sequence[str]) -> dict[str, float]:
    """Median seconds of one call by each plan."""
    from treadle.kernels import engine, tunings

    module = Module.of(_whole(body))
    programs: dict[str, Executable] = {}
    for name in names:
        with engine.only(name):
            programs[name] = driver.compile_grouped(module, "tune")
    sets = _arrays(body.in_types)
    times: dict[str, list[float]] = {name: [] for name in names}
    counts = {name: _count(program, sets) for name, program in programs.items()}
    for turn in range(ROUNDS):
        for name in names[:: 1 if turn % 2 else -1]:
            times[name].append(_block(programs[name], sets, counts[name]))
    found = {name: statistics.median(t) for name, t in times.items()}
    found[tunings.XLA] /= MARGIN
    return found


def _whole(body: Fn) -> Fn:
    """A function that is the one group."""
    return build.trace(lambda *values: fused(*values, body=body), body.in_types)


def _arrays(types: Sequence[TensorType]) -> list[list[Any]]:
    """Sets of arguments of the types, so many that they are not all in the caches."""
    rng = np.random.default_rng(0)
    one = max(sum(t.bytes for t in types), 1)
    return [[pjrt.put(_random(rng, t)) for t in types] for _ in range(max(1, min(MAX_SETS, COLD_BYTES // one)))]


def _random(rng: np.random.Generator, type: TensorType) -> np.ndarray[Any, Any]:
    if type.dtype.kind == "b":
        return rng.integers(0, 2, type.shape).astype(bool)
    if type.dtype.kind in "iu":
        return rng.integers(0, 3, type.shape).astype(type.dtype.np)
    return np.asarray(rng.standard_normal(type.shape)).astype(type.dtype.np)


def _block(program: Executable, sets: Sequence[Sequence[Any]], count: int) -> float:
    """Seconds per call of `count` calls."""
    start = time.perf_counter()
    for i in range(count):
        results = program.call(sets[i % len(sets)])
    pjrt.block_until_ready(results)
    return (time.perf_counter() - start) / count


def _count(program: Executable, sets: Sequence[Sequence[Any]]) -> int:
    """Calls that a turn takes; runs the program first."""
    _block(program, sets, 2)
    return max(1, int(SHORTEST_S / _block(program, sets, 2)))
