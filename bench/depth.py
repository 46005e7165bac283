"""What depth costs: compile time and step time of GPT training steps with few and many equal layers; depth.json.

    python bench/depth.py --layers 2,8,24 --widths 256,512 --rounds 8

Each is compiled as Treadle does by default (`parts`: equal layers are programs of their own) and as one program
(`whole`: TREADLE_PARTS=0). Compile times are those of new processes, one of each kind per turn; steps of both take
turns in one process and must give the same losses. CPU seconds, on all cores, change little when others are busy. Ends
with 1 if losses differ, or if a goal is missed and --strict is given.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from typing import Any

import harness as H
import weights as W

KINDS = {"parts": "1", "whole": "0"}
COMPILE_GOAL = 1.5  # compile time of the deepest over that of the shallowest
STEP_GOAL = 1.05  # step time in parts over that as one program
RTOL = 1e-4


def compile_times(changes: dict[str, int], times: int) -> dict[str, Any]:
    """Best wall and CPU seconds, and peak MiB, of new processes of each kind."""
    rows: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    for _ in range(times):
        for kind, value in KINDS.items():
            os.environ["TREADLE_PARTS"] = value
            rows[kind].append(H.fresh("treadle", "gpt", changes))
    del os.environ["TREADLE_PARTS"]
    return {
        kind: {
            "wall_s": min(r["compile"]["total_s"] for r in row),
            "cpu_s": min(r["compile"]["cpu_s"] for r in row),
            "peak_mib": min(r["memory"]["peak_mib"] for r in row),
            "all": row,
        }
        for kind, row in rows.items()
    }


def step_times(changes: dict[str, int], rounds: int) -> dict[str, Any]:
    """Wall and CPU seconds per step of both kinds, in turns; the losses of the first steps; programs and runs."""
    from treadle.base.flags import override

    sides, losses, programs = {}, {}, {}
    for kind, value in KINDS.items():
        with override(parts=value):
            sides[kind] = H.Local("treadle", "gpt", changes)
            losses[kind] = sides[kind].losses(3)
            programs[kind] = _programs(sides[kind])
    out: dict[str, Any] = {kind: {"wall_s": [], "cpu_s": []} for kind in KINDS}
    for turn in range(rounds):
        for kind in list(KINDS)[:: 1 if turn % 2 else -1]:
            side = sides[kind]
            time.sleep(H.SETTLE_S)
            busy = time.process_time()
            out[kind]["wall_s"].append(side.block(1))
            out[kind]["cpu_s"].append((time.process_time() - busy) / 2)  # a block is one step more than it times
    ratios = {
        f"{unit}_{name}": pick(out["parts"][unit]) / pick(out["whole"][unit])
        for unit in ("wall_s", "cpu_s")
        for name, pick in (("min", min), ("median", statistics.median))
    }
    same = H.compare(losses, "whole", RTOL)
    return {"times": out, "ratio": ratios, "check": same, "programs": programs}


def _programs(side: H.Local) -> dict[str, int]:
    """How many programs the step is, and how many runs of them."""
    (program,) = side.step.__closure__[0].cell_contents.programs()
    made = program.executable
    return {"programs": len(getattr(made, "programs", [made])), "runs": len(getattr(made, "runs", [made]))}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The goals: deepest over shallowest compile time in parts, and the worst step ratio, both in CPU seconds."""
    first, last = rows[0], rows[-1]
    growth = {
        f"{kind}_{unit}": last["compile"][kind][unit] / first["compile"][kind][unit]
        for kind in KINDS
        for unit in ("wall_s", "cpu_s")
    }
    worst = max(row["steps"]["ratio"]["cpu_s_min"] for row in rows)
    goals = {
        "compile": {"ratio": growth["parts_cpu_s"], "limit": COMPILE_GOAL},
        "step": {"ratio": worst, "limit": STEP_GOAL},
    }
    return {"growth": growth, "goals": {k: {**g, "met": g["ratio"] <= g["limit"]} for k, g in goals.items()}}


def report(width: str, found: dict[str, Any]) -> str:
    """The table of one width."""
    head = [
        f"width {width}",
        "compile s",
        "cpu",
        "whole s",
        "cpu",
        "programs",
        "runs",
        "step/whole cpu",
        "wall med",
        "MiB",
    ]
    rows = []
    for row in found["rows"]:
        parts, whole, steps = row["compile"]["parts"], row["compile"]["whole"], row["steps"]
        counts, ratio = steps["programs"]["parts"], steps["ratio"]
        rows.append(
            [
                f"{row['layers']} layers",
                parts["wall_s"],
                parts["cpu_s"],
                whole["wall_s"],
                whole["cpu_s"],
                counts["programs"],
                counts["runs"],
                ratio["cpu_s_min"],
                ratio["wall_s_median"],
                f"{parts['peak_mib']:.0f}/{whole['peak_mib']:.0f}",
            ]
        )
    lines = [H.table(head, rows)]
    lines += [
        f"goal {n}: {g['ratio']:.3f} <= {g['limit']} {'met' if g['met'] else 'MISSED'}"
        for n, g in found["goals"].items()
    ]
    return "\n".join(lines)


def main() -> int:
    """0 if all losses agree (with --strict: and every goal is met), else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--layers", default="2,8,24")
    parser.add_argument("--widths", default="256", help="model widths; heads of 64")
    parser.add_argument("--rounds", type=int, default=8, help="timed steps of each kind")
    parser.add_argument("--fresh", type=int, default=1, help="new processes of each kind for compile time")
    parser.add_argument("--strict", action="store_true", help="end with 1 when a goal is missed")
    args = parser.parse_args()
    os.environ.update(TREADLE_CACHE="0", JAX_PLATFORMS="cpu")
    load, results = H.load_average(), {}
    for width in args.widths.split(","):
        rows = []
        for layers in map(int, args.layers.split(",")):
            changes = {"layers": layers, "d": int(width), "heads": int(width) // 64}
            compiled = compile_times(changes, args.fresh)
            rows.append({"layers": layers, "compile": compiled, "steps": step_times(changes, args.rounds)})
        results[width] = {"rows": rows, **summary(rows)}
        print(report(width, results[width]), end="\n\n", flush=True)
        path = H.save("depth", {"config": W.config("gpt"), "load_before": load, "widths": results})
    print(f"written to {path}")
    agree = all(row["steps"]["check"]["agree"] for found in results.values() for row in found["rows"])
    met = all(g["met"] for found in results.values() for g in found["goals"].values())
    return 0 if agree and (met or not args.strict) else 1


if __name__ == "__main__":
    sys.exit(main())
