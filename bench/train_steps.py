"""Training steps against the peers: step time, compile time, peak memory; writes bench/results/train_steps.json.

    python bench/train_steps.py --models mlp,resnet50,gpt,dispatch --rounds 10
    python bench/train_steps.py --peers-only      without Treadle: the reference is JAX

Treadle and JAX take turns in one process; PyTorch, in the peers' environment, takes its turns in a worker process.
Losses of three steps from equal weights must agree before anything is timed. Ends with 1 if they do not, or if a goal
is missed and --strict is given.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from typing import Any

import harness as H
import weights as W

# Largest allowed Treadle / JAX ratio: the step, and for `dispatch` the whole call, and compiling.
GOALS = {"step": 1.05, "dispatch": 1.0, "compile": 1.0}
COMPARED_STEPS = 3
RTOL = 1e-3


def sides_of(model: str, peers_only: bool, compiled: bool) -> list[str]:
    """The sides that run a model here; torch only where its environment exists."""
    names = [] if peers_only else ["treadle"]
    names += ["jax", "jax_nhwc"] if model == "resnet50" else ["jax"]
    if H.peers_python() is not None:
        names += ["torch", "torch_compiled"] if compiled else ["torch"]
    return names


def measure_fresh(names: list[str], model: str, times: int) -> dict[str, Any]:
    """Compile seconds and peak MiB of each side: best of `times` new processes, with every value."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for _ in range(times):  # one process of each side per turn, so that a busy minute hits all alike
        for name in names:
            rows[name].append(H.fresh(name, model))
    out: dict[str, Any] = {}
    for name, row in rows.items():
        out[name] = {"peak_mib": statistics.median(r["memory"]["peak_mib"] for r in row), "all": row}
        if row[0]["compile"]:  # torch without torch.compile compiles nothing
            out[name]["compile_s"] = min(r["compile"]["total_s"] for r in row)
    return out


def measure(model: str, args: argparse.Namespace) -> dict[str, Any]:
    """Everything about one model; `goals` is empty without Treadle."""
    names = sides_of(model, args.peers_only, not args.no_compiled)
    cfg = W.config(model)
    result: dict[str, Any] = {"config": cfg, "k": cfg["k"], "rounds": args.rounds}
    with H.opened(names, model) as sides:
        result["versions"] = {side.side: side.versions() for side in sides}
        result["check"] = H.compare({s.side: s.losses(COMPARED_STEPS) for s in sides}, "jax", RTOL)
        if not result["check"]["agree"]:
            return result
        times = H.interleave(sides, cfg["k"], args.rounds)
    result["step_s"] = {n: {"min": min(t), "median": statistics.median(t), "blocks": t} for n, t in times.items()}
    ours = names[0]
    result["step_ratio"] = {n: H.ratio(times, ours, n) for n in names[1:]}
    if args.fresh:
        result["fresh"] = measure_fresh(names, model, args.fresh)
        best = result["fresh"][ours]["compile_s"]
        result["compile_ratio"] = {
            n: best / new["compile_s"] for n, new in result["fresh"].items() if n != ours and "compile_s" in new
        }
    result["ours"] = ours
    result["goals"] = {} if args.peers_only else goals(model, result)
    return result


def goals(model: str, result: dict[str, Any]) -> dict[str, Any]:
    """What was promised, and whether it holds: steps against the faster JAX variant, compiling against plain `jax`."""
    peers = [n for n in result["step_ratio"] if n.startswith("jax")]
    limit = GOALS["dispatch" if model == "dispatch" else "step"]
    step = max(result["step_ratio"][n]["median"] for n in peers)
    out = {"step": {"ratio": step, "limit": limit, "met": step <= limit}}
    if "compile_ratio" in result:
        compile_ = result["compile_ratio"]["jax"]
        out["compile"] = {"ratio": compile_, "limit": GOALS["compile"], "met": compile_ <= GOALS["compile"]}
    return out


def report(model: str, result: dict[str, Any]) -> str:
    """The table of one model."""
    check = result["check"]
    if not check["agree"]:
        return f"{model}: losses differ by more than {RTOL}: {check['losses']}"
    ours = result["ours"]
    rows = []
    for name, t in result["step_s"].items():
        new = result.get("fresh", {}).get(name, {})
        ratio = result["step_ratio"].get(name, {})
        rows.append(
            [
                name,
                t["min"] * 1e3,
                t["median"] * 1e3,
                ratio.get("median", "-"),
                ratio.get("min", "-"),
                new.get("compile_s", "-"),
                result.get("compile_ratio", {}).get(name, "-"),
                round(new["peak_mib"]) if new else "-",
            ]
        )
    head = [model, "min ms", "median ms", f"{ours}/it", "of minima", "compile s", f"{ours}/it", "peak MiB"]
    lines = [H.table(head, rows)]
    lines += [
        f"goal {n}: {g['ratio']:.3f} <= {g['limit']} {'met' if g['met'] else 'MISSED'}"
        for n, g in result["goals"].items()
    ]
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--models", default="mlp,resnet50,gpt,dispatch", help="of " + ", ".join(W.CONFIGS))
    parser.add_argument("--rounds", type=int, default=10, help="blocks per side")
    parser.add_argument("--fresh", type=int, default=2, help="new processes per side for compile time; 0: none")
    parser.add_argument("--peers-only", action="store_true", help="without Treadle")
    parser.add_argument("--no-compiled", action="store_true", help="without torch.compile, which compiles for long")
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--name", default="train_steps", help="of the file in bench/results")
    parser.add_argument("--strict", action="store_true", help="end with 1 when a goal is missed")
    return parser.parse_args()


def main() -> int:
    """0 if the losses agree everywhere (with --strict: and every goal is met), else 1."""
    args = arguments()
    # Before any framework loads, here and in the workers, which inherit it: one device kind, and no compiled program
    # from disk.
    os.environ.update(BENCH_DEVICE=args.device, JAX_ENABLE_COMPILATION_CACHE="false", TREADLE_CACHE="0")
    os.environ["JAX_PLATFORMS"] = "cpu" if args.device == "cpu" else "cuda"
    if H.peers_python() is None:
        print("no peers' environment (make bench-peers): JAX only")
    load = H.load_average()
    if load is not None and load > 0.5:
        print(f"others are busy here (load {load}): ratios of minima may hold, medians may not")
    results: dict[str, Any] = {}
    for model in args.models.split(","):
        results[model] = measure(model, args)
        print(report(model, results[model]), end="\n\n", flush=True)
        path = H.save(args.name, {"device": args.device, "load_before": load, "models": results})
    print(f"written to {path}")
    agree = all(r["check"]["agree"] for r in results.values())
    met = all(g["met"] for r in results.values() for g in r.get("goals", {}).values())
    return 0 if agree and (met or not args.strict) else 1


if __name__ == "__main__":
    sys.exit(main())
