"""Kernels in a row as one call of XLA's: `plan(body, kernel_of)` gives a `Run` for a body of groups (transforms/runs).

What only the run's kernels read lies in one workspace, each value from the kernel that makes it to the last one that
reads it (first fit). A call wakes threads once: between kernels they wait for each other as they do between the phases
of one kernel, by looking at a counter, and after a while by giving their core away (launch.py).
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from treadle.ir.node import Fn, Node, Value
from treadle.kernels import jit, launch
from treadle.kernels.divided import Divided
from treadle.kernels.engine import Loaded
from treadle.ops.groups import fused

ALIGN = 64
Kernel = Loaded | Divided
Place = tuple[int, int]  # the buffer of a call of XLA's, and the first byte in it
_lock = threading.Lock()
_descriptions: dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]] = {}  # programs read them as long as they live


@dataclass(frozen=True)
class Run:
    """name: among the targets of custom calls. workspace: bytes of the call's last result, 0 for none. calls: for each
    kernel where its operands and results are, and its scratch if it wants some. buffers: of the call."""

    name: str
    workspace: int
    buffers: int
    calls: tuple[tuple[Kernel, tuple[Place, ...]], ...] = field(repr=False)

    @property
    def code(self) -> jit.Code:
        """The handler's code, with the description at its place, once the kernels' are there. Raises RuntimeError where
        LLVM refuses one."""
        with _lock:
            code = jit.load(launch.run_handler(self.name))
            if self.name not in _descriptions:
                words = _descriptions[self.name] = np.array(self._description(), np.int64)
                code.set_pointer("place", words.ctypes.data)
            return code

    def _description(self) -> list[int]:
        phases: list[tuple[int, int, int]] = []
        places: list[Place] = []
        threads = tiles = 0
        for kernel, given in self.calls:
            own, numbers, most, uses_tiles = launch.read(kernel.code.address("describe"))
            phases += [(function, tasks, len(places)) for function, tasks in own]
            places += [given[n] if n >= 0 else (-1, 0) for n in numbers]
            threads, tiles = max(threads, most), max(tiles, uses_tiles)
        return launch.described(phases, places, self.buffers, threads, tiles)


def plan(body: Fn, kernel_of: Callable[[Node], Kernel | None]) -> Run | None:
    """The run of a body; None where one of its groups has no kernel."""
    kernels = [(node, kernel_of(node)) for node in body.nodes if node.op is fused]
    calls: list[tuple[Kernel, tuple[Place, ...]]] = []
    where: dict[Value, Place] = {p: (i, 0) for i, p in enumerate(body.params)}
    where |= {o: (len(body.params) + i, 0) for i, o in enumerate(body.outputs)}
    work = len(body.params) + len(body.outputs)
    last = {_root(v): i for i, (node, _) in enumerate(kernels) for v in node.inputs}
    arena = Arena()
    for i, (node, kernel) in enumerate(kernels):
        if kernel is None:
            return None
        for o in node.outputs:
            if o not in where:
                where[o] = work, arena.take(o.type.bytes, last.get(o, i))
        places = [where[_root(v)] for v in (*node.inputs, *node.outputs)]
        scratch = kernel.workspace if isinstance(kernel, Loaded) else 0
        if scratch:
            places.append((work, arena.take(scratch, i)))
        calls.append((kernel, tuple(places)))
        arena.free(i)
    told = repr([(kernel.name, places) for kernel, places in calls])
    name = f"treadle.run.{hashlib.sha256(told.encode()).hexdigest()[:24]}"
    return Run(name, arena.size, work + (arena.size > 0), tuple(calls))


def _root(value: Value) -> Value:
    """The value in whose memory this one is."""
    while value.node is not None and value.node.op is not fused:
        value = value.node.inputs[0]
    return value


class Arena:
    """Places in one block of memory, first fit. size: of the block, so far."""

    def __init__(self) -> None:
        self._used: list[tuple[int, int, int]] = []  # start, end, the last kernel that reads it
        self.size = 0

    def take(self, bytes: int, last: int) -> int:
        """A place that is free again after kernel number `last`."""
        bytes = max(-(-bytes // ALIGN) * ALIGN, ALIGN)
        at = 0
        for start, end, _ in sorted(self._used):
            if start - at >= bytes:
                break
            at = max(at, end)
        self._used.append((at, at + bytes, last))
        self.size = max(self.size, at + bytes)
        return at

    def free(self, now: int) -> None:
        """Kernel number `now` is done."""
        self._used = [place for place in self._used if place[2] > now]
