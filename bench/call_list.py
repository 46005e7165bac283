"""An experiment: training steps as lists of native calls (`call_plan.py`) beside kernels called from XLA's programs.

    python bench/call_list.py --models resnet50,gpt_small --dtype f32 [--threads 1] [--rounds 7]

Both forms start from the same arrays, must give the same results, and take turns in one process. Compile seconds and
peak memory are those of new processes. Prints a line of JSON for each model: milliseconds of a step (shortest, median;
by the clock and of the CPU), ratios (above 1: the list is faster), kernels and islands alone. Decision 12 has them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness as H
import numpy as np
import treadle_models as T
import weights as W
import worker
from call_plan import CallList, Native, aligned, as_type, on_host

from treadle import driver
from treadle.api.programs import Program
from treadle.ir import build
from treadle.ir.node import Module, Value
from treadle.ir.types import f32
from treadle.kernels import engine
from treadle.ops.functions import tanh
from treadle.ops.groups import fused
from treadle.runtime import pjrt

SIDES = ("programs", "list")


@dataclass
class Step:
    """A training step before it is compiled. donate: parameter -> the output that is its new value."""

    module: Module
    donate: dict[int, int]
    arrays: list[Any]


def step_of(model: str, precision: str) -> Step:
    """The bench's training step of a model: module, donations, arguments."""
    cfg = W.config(model, precision=precision)
    _, train = T._made(model, cfg)
    batch = T.put(model, cfg, W.batch(model, cfg))
    with _not_compiled() as given:
        program = Program("train", train, batch, {})
    tensors = [*batch, *program.fixed, *program.updated]
    return Step(given["module"], dict(given["donate"]), [t._value for t in tensors])


@contextmanager
def _not_compiled() -> Iterator[dict[str, Any]]:
    """Programs made inside are only asked for what they would compile."""
    given: dict[str, Any] = {}
    before = driver.compile_module

    def keep(module: Module, name: str, donate: Mapping[int, int], names: Sequence[str]) -> None:
        given.update(module=module, donate=donate)

    driver.compile_module = keep  # type: ignore[assignment]
    try:
        yield given
    finally:
        driver.compile_module = before


class Programs:
    """The form in use: XLA's programs call the kernels."""

    def __init__(self, step: Step) -> None:
        self.donate = step.donate
        self.program = driver.compile_module(step.module, "train", step.donate)
        self.arrays = [pjrt.put(on_host(a)) for a in step.arrays]

    def run(self) -> list[Any]:
        """One step; all its outputs."""
        outputs = self.program.call_unchecked(self.arrays)
        for parameter, output in self.donate.items():
            self.arrays[parameter] = outputs[output]
        return outputs

    def block(self, k: int) -> float:
        """Seconds per step of k steps."""
        start = time.perf_counter()
        for _ in range(k):
            outputs = self.run()
        pjrt.block_until_ready(outputs)
        return (time.perf_counter() - start) / k

    def planned_bytes(self) -> int:
        """Of temporaries."""
        return self.program.memory().temporaries


def difference(programs: Programs, calls: CallList) -> float:
    """Runs one step of each from the same state; the largest difference of an output, of its largest element."""
    found = 0.0
    outputs = programs.run()
    calls.run()
    donated = {o: p for p, o in calls.donate.items()}
    for i, (theirs, v) in enumerate(zip(outputs, calls.main.outputs, strict=True)):
        ours = as_type(calls.memory[p], p.type) if (p := _param(calls, donated.get(i))) is not None else calls.value(v)
        a, b = np.asarray(pjrt.to_numpy(theirs), np.float64), np.asarray(ours, np.float64)
        if not np.isfinite(a).all():
            raise RuntimeError(f"output {i} is not finite")
        found = max(found, float(np.abs(a - b).max(initial=0) / (np.abs(a).max(initial=0) + 1e-30)))
    return found


def _param(calls: CallList, number: int | None) -> Value | None:
    return None if number is None else calls.main.params[number]


def compare(model: str, precision: str, args: argparse.Namespace) -> dict[str, Any]:
    """Both forms in one process."""
    step = step_of(model, precision)
    programs, calls = Programs(step), CallList(step.module, step.donate, step.arrays, args.cores)
    result: dict[str, Any] = {"difference": difference(programs, calls), **calls.counts()}
    sides = {"programs": programs, "list": calls}
    k = max(1, round(args.seconds / programs.block(2)))
    times: dict[str, list[float]] = {name: [] for name in SIDES}
    busy: dict[str, list[float]] = {name: [] for name in SIDES}
    for turn in range(args.rounds):
        for name in SIDES[:: 1 if turn % 2 else -1]:
            time.sleep(H.SETTLE_S)
            sides[name].block(1)
            start = time.process_time()
            times[name].append(sides[name].block(k))
            busy[name].append((time.process_time() - start) / k)
    for name in SIDES:
        for kind, found in (("ms", times[name]), ("cpu_ms", busy[name])):
            result[f"{name}_{kind}"] = [round(1e3 * t, 2) for t in (min(found), statistics.median(found))]
        result[f"{name}_planned_mib"] = round(sides[name].planned_bytes() / 2**20, 1)
    for kind, found in (("ratio", times), ("cpu_ratio", busy)):  # above 1: the list is faster
        result[kind] = round(statistics.median(a / b for a, b in zip(found["programs"], found["list"], strict=True)), 3)
    result["islands_alone_cpu_ms"] = round(1e3 * calls.island_seconds(), 2)
    result["kernels_alone_cpu_ms"] = round(1e3 * calls.kernel_seconds(), 2)
    return result


def fresh(form: str, model: str, precision: str, args: argparse.Namespace) -> dict[str, float]:
    """Compile seconds and peak memory of a form in this, a new process."""
    step = step_of(model, precision)
    before, start, busy = worker.peak_mib(), time.perf_counter(), time.process_time()
    made = Programs(step) if form == "programs" else CallList(step.module, step.donate, step.arrays, args.cores)
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    step.arrays.clear()
    for _ in range(3):
        made.block(1)
    return {
        "compile_s": round(seconds, 2),
        "compile_cpu_s": round(busy, 2),
        "peak_mib": round(worker.peak_mib() - before, 1),
    }


def call_overhead(count: int = 200) -> dict[str, float]:
    """Microseconds of a call of the smallest kernel: from a program of XLA's, and from the list."""
    body = build.trace(lambda x: tanh(x), [f32[16]])
    loaded = engine.choose(body).loaded
    assert loaded is not None

    def chain(x: Value) -> Value:
        for _ in range(count):
            (x,) = fused(x, body=body)
        return x

    program = driver.compile_grouped(Module.of(build.trace(chain, [f32[16]])), "chain")
    x = pjrt.put(np.ones(16, np.float32))
    a, b = (as_type(aligned(64), f32[16]) for _ in range(2))
    a[...] = 1
    places = [np.array([p.ctypes.data for p in ((a, b) if i % 2 else (b, a))], np.int64) for i in range(count)]
    native = Native(places, [loaded.code] * count, None)
    theirs, ours = [], []
    for _ in range(50):
        start = time.perf_counter()
        pjrt.block_until_ready(program.call([x]))
        theirs.append(time.perf_counter() - start)
        start = time.perf_counter()
        native.run()
        ours.append(time.perf_counter() - start)
    return {"program_us": round(1e6 * min(theirs) / count, 3), "list_us": round(1e6 * min(ours) / count, 3)}


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="resnet50,gpt_small")
    parser.add_argument("--dtype", default="f32")
    parser.add_argument("--threads", type=int, default=0, help="cores and threads; 0: all, at most two")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a block")
    parser.add_argument("--fresh", default="", help="programs or list: its compile seconds and memory")
    args = parser.parse_args()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    args.cores = min(args.threads or cores, 2)
    H.use_threads(args.cores)
    if args.fresh:
        print(json.dumps(fresh(args.fresh, args.models, args.dtype, args)))
        return 0
    print(json.dumps({"call": call_overhead(), "threads": args.cores, "load": H.load_average()}), flush=True)
    for model in args.models.split(","):
        for precision in args.dtype.split(","):
            result = compare(model, precision, args)
            for form in SIDES:
                result[form] = _in_new_process(form, model, precision, args)
            print(json.dumps({"model": model, "precision": precision, **result}), flush=True)
    return 0


def _in_new_process(form: str, model: str, precision: str, args: argparse.Namespace) -> dict[str, float]:
    command = [sys.executable, str(Path(__file__)), "--fresh", form, "--models", model, "--dtype", precision]
    command += ["--threads", str(args.cores)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, "TREADLE_CACHE": "0"}
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    sys.exit(main())
