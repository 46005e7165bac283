"""Several compiled programs that run one after the other and are called as one: `Chain` stands where an `Executable`
does.

Arrays travel in numbered slots: the first ones are the inputs; each run reads some and fills others. What nothing reads
any more is let go at once. Programs are started without waiting for each other's results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from treadle.ir.types import TensorType
from treadle.runtime import pjrt
from treadle.runtime.executable import Executable, MemoryReport, Placement


class Run(NamedTuple):
    """One run: the program, the slots it reads and fills, and those that nothing reads afterwards."""

    program: Executable
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    frees: tuple[int, ...]


class Chain(Executable):
    """Programs in a row behind one signature, checked as that of a single program.

    runs: in order. slots: how many there are. results: the slots of the outputs. Donated inputs are only used up where
    a program takes their memory. If a run fails, inputs that runs before it took are gone.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        slots: int,
        results: Sequence[int],
        inputs: Sequence[TensorType],
        outputs: Sequence[TensorType],
        donated: Sequence[int] = (),
        name: str = "program",
        argument_names: Sequence[str] = (),
    ) -> None:
        # Not the constructor of Executable, which compiles: only what checking the arguments of a call needs.
        self.name, self.inputs, self.outputs = name, tuple(inputs), tuple(outputs)
        self.donated, self.argument_names = tuple(donated), tuple(argument_names)
        self.runs, self.slots, self.results = tuple(runs), slots, tuple(results)
        self.programs = tuple({id(r.program): r.program for r in runs}.values())
        self.placement = Placement.on(pjrt.default_device(), len(self.inputs), len(self.outputs))
        self._check_size()
        self.from_cache = all(p.from_cache for p in self.programs)
        self.compile_seconds = sum(p.compile_seconds for p in self.programs)
        self._avals = [pjrt.aval(t) for t in self.inputs]
        self._shardings = list(self.placement.inputs)
        self._run = self._run_all
        self._error, self._is_deleted = pjrt.execution_error(), pjrt.deleted_test()

    def _run_all(self, arrays: Sequence[Any]) -> list[Any]:
        held: list[Any] = [*arrays, *[None] * (self.slots - len(arrays))]
        for program, inputs, outputs, frees in self.runs:
            made = program._run([held[i] for i in inputs])
            for slot, array in zip(outputs, made):
                held[slot] = array
            for slot in frees:
                held[slot] = None
        return [held[i] for i in self.results]

    def memory(self) -> MemoryReport:
        """What the device holds at most: the arrays between the programs count as temporaries."""
        reports = {id(p): p.memory() for p in self.programs}
        alive: dict[int, int] = {}  # slot between the programs -> bytes
        peak = aliased = 0
        for run in self.runs:
            report = reports[id(run.program)]
            sizes = [t.bytes for t in run.program.outputs]
            alive |= {s: size for s, size in zip(run.outputs, sizes, strict=True) if s not in self.results}
            peak = max(peak, sum(alive.values()) + report.temporaries)
            aliased += report.aliased
            for slot in run.frees:
                alive.pop(slot, None)
        code = sum(r.code for r in reports.values())
        inputs, outputs = (sum(t.bytes for t in types) for types in (self.inputs, self.outputs))
        return MemoryReport(inputs, outputs, peak, aliased, code)

    def cost_analysis(self) -> dict[str, float]:
        """XLA's own counts, added over the runs; a loop's body counts once."""
        total: dict[str, float] = {}
        for run in self.runs:
            for key, value in run.program.cost_analysis().items():
                total[key] = total.get(key, 0.0) + value
        return total

    def hlo_text(self) -> str:
        """The optimised programs, each once."""
        counts = {id(p): sum(r.program is p for r in self.runs) for p in self.programs}
        return "\n\n".join(f"// run {counts[id(p)]} times\n{p.hlo_text()}" for p in self.programs)
