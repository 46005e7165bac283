"""What each stage of the compiler made of a function, in ten lines: `stages(loss, params, *args)` gives the text.

`report(module, executable)` gives memory and FLOPs of one compiled program.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from treadle import driver
from treadle.api import _apply
from treadle.api.gradients import value_and_grad
from treadle.api.programs import Program
from treadle.base import events, text
from treadle.ir.node import Module
from treadle.ir.walk import all_nodes
from treadle.ops._axes import flops, node_flops
from treadle.runtime.executable import Executable
from treadle.transforms.pipeline import DEFAULT


def report(module: Module, executable: Executable) -> dict[str, Any]:
    """FLOPs of one run and bytes of memory by kind, of a compiled program."""
    memory = executable.memory()
    return {
        "flops": flops(module),
        "arguments": memory.arguments,
        "outputs": memory.outputs,
        "temporaries": memory.temporaries,
        "aliased": memory.aliased,
        "total": memory.total,
        "compile_seconds": executable.compile_seconds,
        "from_cache": executable.from_cache,
    }


def stages(loss: Callable[..., Any], params: Sequence[Any], *args: Any, name: str = "function") -> str:
    """A text of one line per stage for the training step `value_and_grad(loss, params)(*args)`, which is run a few
    times.

    loss: a function of `args` to one float, reading the tensors `params`. Nothing is changed but what `loss` changes.
    """
    rows = [("python", f"{name}: {len(params)} tensors, {sum(p.size for p in params):,} parameters")]
    start = time.perf_counter()
    front = _apply.trace(loss, args)
    rows.append(("front", f"{_count(Module.of(front.fn, front.fns))} traced in {_since(start)}"))
    start = time.perf_counter()
    step = _apply.trace(value_and_grad(loss, list(params)), args)
    rows.append(("grad", f"{_count(Module.of(step.fn, step.fns))} with the gradient, in {_since(start)}"))
    program = Program(name, value_and_grad(loss, list(params)), args, {})
    passes = events.events("transforms")[-_num_passes() :]
    changes = ", ".join(f"{e.name} {e.payload['nodes_after'] - e.payload['nodes_before']:+d}" for e in passes)
    rows.append(
        ("opt", f"{_count(program.optimised)} after {changes}, in {text.seconds(sum(e.seconds for e in passes))}")
    )
    rows.append(("work", _work(program.optimised)))
    rows.append(("state", _state(program)))
    hlo = driver.stablehlo(program.optimised)
    rows.append(("hlo", f"{hlo.count('stablehlo.')} StableHLO operations, {len(hlo) / 1024:.0f} KiB of text"))
    optimised = program.executable.hlo_text()
    kernels = len(re.findall(r"^ *(?:ROOT )?%\S+ = .*? fusion\(", optimised, re.M))
    how = "loaded from the cache" if program.executable.from_cache else "compiled"
    rows.append(("xla", f"{kernels} fused kernels, {how} in {text.seconds(program.executable.compile_seconds)}"))
    kept = program.prepared.bytes if program.prepared is not None else 0
    made = f"; {text.size(kept)} of the arguments made of weights beforehand" if kept else ""
    rows.append(("memory", f"{program.executable.memory()}{made}"))
    rows.append(("run", _run(program, args)))
    return "\n".join(f"{stage:>7}  {line}" for stage, line in rows)


def _since(start: float) -> str:
    return text.seconds(time.perf_counter() - start)


def _num_passes() -> int:
    return len(DEFAULT.split(","))


def _count(module: Module) -> str:
    names = Counter(node.op.name for node in all_nodes(module))
    most = ", ".join(f"{count} {name}" for name, count in names.most_common(4))
    return f"{sum(names.values())} nodes ({most}, ...)"


def _work(module: Module) -> str:
    """Where the FLOPs are."""
    found: Counter[str] = Counter()
    for node in module.main.nodes:
        found[node.op.name] += node_flops(node, module)
    total = sum(found.values())
    parts = [f"{count / total:.0%} {name}" for name, count in found.most_common(4) if count]
    return f"{total / 1e6:,.3g} MFLOP: {', '.join(parts) or 'nothing'}"


def _state(program: Program) -> str:
    """What the program reads beside its arguments, and what it changes."""
    read, changed = [*program.fixed, *program.updated], program.traced.changed
    size = text.size(sum(t.type.bytes for t in read))
    return f"{len(read)} tensors read from outside, {size}; {len(changed)} of them changed, in donated memory"


def _run(program: Program, args: tuple[Any, ...]) -> str:
    leaves = _apply.dynamic_leaves(args)
    program(leaves)
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        loss = program(leaves)[0]
        loss.numpy()
        best = min(best, time.perf_counter() - start)
    work = flops(program.module)
    return f"{text.seconds(best)} a step, {work / 1e9:.3f} GFLOP, {work / best / 1e9:.1f} GFLOP/s"
