"""One side in its own process: answers commands on stdin, or measures compile time and memory once and ends.

    worker.py SIDE MODEL CHANGES train      ["block", k], ["losses", n], ["gradients", file] or ["versions"] per line in
    worker.py SIDE MODEL CHANGES inference  ["block", k], ["output", file] or ["versions"] per line in
    worker.py SIDE MODEL CHANGES fresh      compile seconds, peak MiB after imports and after steps, as one JSON line

Standard output carries answers only: whatever a framework prints goes to standard error.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

import harness
import weights as W


def peak_mib() -> float:
    """Peak resident memory of this program. VmHWM where there is one: ru_maxrss also remembers the parent's size."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def measure(side: str, model: str, changes: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a process that has compiled nothing before: {"compile": seconds, "memory": MiB}."""
    module, options, _ = harness.SIDES[side]
    loaded = importlib.import_module(module)
    imported = peak_mib()
    seconds, state, step, batch = loaded.compiled(model, {**W.config(model, **changes), **options})
    compiled = peak_mib()
    for _ in range(3):
        state, loss = step(state, batch)
    loaded.wait((state, loss))
    return {"compile": seconds, "memory": {"imported_mib": imported, "compiled_mib": compiled, "peak_mib": peak_mib()}}


def serve(answers: Any, side: str, model: str, changes: dict[str, Any], job: str) -> None:
    """Answer commands, each a method's name and its arguments, with JSON until stdin closes."""
    local = harness.JOBS[job](side, model, changes)

    def answer(value: Any) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    answer("ready")
    for line in sys.stdin:
        name, *args = json.loads(line)
        answer(getattr(local, name)(*args))


def main() -> None:
    """See the module's text."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    side, model, changes, job = sys.argv[1:]
    if job == "fresh":
        answers.write(json.dumps(measure(side, model, json.loads(changes))) + "\n")
        answers.flush()
    else:
        serve(answers, side, model, json.loads(changes), job)


if __name__ == "__main__":
    main()
