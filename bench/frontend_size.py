"""Seconds from the Python of a training step to optimised IR, and on to StableHLO; bench/results/frontend_size.json.

    python bench/frontend_size.py --models resnet50,gpt24 --runs 5

Each run is a new process, which measures the first time and a second time (`again`: nothing left to import). The goal
is held against the median of first times: tracing, differentiating and optimising together. Ends with 1 if it is missed
and --strict is given. No device is used.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import harness as H
import weights as W

GOAL_S = 1.5
PARTS = ("trace_s", "optimise_s", "lower_s")


def measure(model: str) -> dict[str, Any]:
    """Times of this process. trace_s: the whole step, differentiated and with the optimiser's update; of it `forward_s`
    is what the model and its loss alone take."""
    import treadle_models as M

    from treadle import driver, ir
    from treadle.api import _apply

    cfg = W.config(model)
    (net, _), train = M.training(model, cfg)
    batch = tuple(M.td.Tensor(a) for a in W.batch(model, cfg))
    with driver.pjrt.mlir_context():  # loads jaxlib and the dialects
        pass

    def once() -> dict[str, Any]:
        marks = [time.perf_counter()]
        _apply.trace(net.forward, batch)
        marks.append(time.perf_counter())
        traced = _apply.trace(train, batch)
        marks.append(time.perf_counter())
        module = ir.node.Module.of(traced.fn, traced.fns)
        optimised = driver.optimise(module)
        marks.append(time.perf_counter())
        with driver.pjrt.mlir_context() as context:
            driver.lower_module(optimised, context)
        marks.append(time.perf_counter())
        forward, trace, optimise, lower = (b - a for a, b in itertools.pairwise(marks))
        return {
            "forward_s": forward,
            "trace_s": trace,
            "optimise_s": optimise,
            "lower_s": lower,
            "nodes_traced": len(traced.fn.nodes),
            "nodes_optimised": len(optimised.main.nodes),
        }

    return {"first": once(), "again": once()}


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians over the processes, and whether the goal is met."""
    out: dict[str, Any] = {"all": runs}
    for which in ("first", "again"):
        rows = [run[which] for run in runs]
        out[which] = {part: statistics.median(row[part] for row in rows) for part in ("forward_s", *PARTS)}
        totals = [row["trace_s"] + row["optimise_s"] for row in rows]
        out[which]["total_s"] = statistics.median(totals)
    out["nodes"] = {k: runs[0]["first"][k] for k in ("nodes_traced", "nodes_optimised")}
    out["goal"] = {"limit_s": GOAL_S, "met": out["first"]["total_s"] < GOAL_S}
    return out


def report(results: dict[str, Any]) -> str:
    """The table."""
    rows = [
        [f"{model}, {which}", *[r[which][p] for p in PARTS], r[which]["total_s"], r["nodes"]["nodes_traced"]]
        for model, r in results.items()
        for which in ("first", "again")
    ]
    lines = [H.table(["seconds", "trace+grad", "optimise", "lower", "without lower", "nodes"], rows)]
    lines += [
        f"goal {model}: {r['first']['total_s']:.2f} < {GOAL_S} s {'met' if r['goal']['met'] else 'MISSED'}"
        for model, r in results.items()
    ]
    return "\n".join(lines)


def main() -> int:
    """0, or with --strict 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--models", default="resnet50,gpt24", help="of " + ", ".join(W.CONFIGS))
    parser.add_argument("--runs", type=int, default=5, help="new processes for each model")
    parser.add_argument("--strict", action="store_true", help="end with 1 when a goal is missed")
    parser.add_argument("--one", metavar="MODEL", help="measure in this process and print JSON")
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one)))
        return 0
    load = H.load_average()
    results: dict[str, Any] = {}
    for model in args.models.split(","):
        runs = []
        for _ in range(args.runs):
            command = [sys.executable, str(Path(__file__).resolve()), "--one", model]
            runs.append(json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout))
        results[model] = summary(runs)
    print(report(results))
    print(f"written to {H.save('frontend_size', {'load_before': load, 'models': results})}")
    return 0 if all(r["goal"]["met"] for r in results.values()) or not args.strict else 1


if __name__ == "__main__":
    sys.exit(main())
