"""Training steps against the peers: step time, compile time, peak memory; into bench/results/train_steps.json.

    python bench/train_steps.py                                              every model, f32 and bf16, all cores
    python bench/train_steps.py --models gpt_small --dtype bf16 --quick      one of them in less than a minute
    python bench/train_steps.py --models resnet50,gpt_small --dtype f32,bf16,high --threads 1,2

Ratios are peer / Treadle: above 1, Treadle is faster. Treadle and JAX take turns in one process; PyTorch, in the peers'
environment, takes its turns in a worker process. Losses of three steps and gradients of the first from equal weights
must agree before anything is timed. Each model in each precision is a process of its own; new numbers replace old ones
in the file, --quick writes none. Ends with 1 if anything disagrees or fails, or if --strict is given and a goal missed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import bounds
import checks
import harness as H
import limits
import weights as W

MODELS = ("mlp", "lenet", "resnet18", "resnet50", "resnet50_64", "mobilenet_v2", "gpt", "gpt_small", "bert", "lstm_lm")
HIGH = ("resnet50", "gpt_small")  # the models that are also measured in "high", against the peers' f32
# Smallest ratio to the best peer: by model, by precision, else the last.
GOALS = {
    ("resnet50", "bf16"): 1.8, ("resnet50", "f32"): 1.1,
    ("gpt_small", "bf16"): 1.8, ("gpt_small", "f32"): 1.0, ("gpt_small", "high"): 2.0,
    ("lstm_lm", "bf16"): 1.5, ("lstm_lm", "f32"): 1.5,
    "bf16": 1.3, "f32": 1.0, "high": 1.0,
}  # fmt: skip
COMPILE_GOAL = {"torch_compiled": 1.0}
CACHED = ("treadle", "jax", "jax_nhwc", "torch_compiled")  # the sides that keep compiled programs on disk


def peers_of(model: str, args: argparse.Namespace) -> list[str]:
    """The sides to compare with: those asked for, else those that are there (PyTorch alone when it must be quick)."""
    if args.peers:
        return [str(p) for p in args.peers.split(",") if p]
    if args.quick:
        return ["torch" if H.available("torch") else "jax"]
    names = ["jax", "torch", *(() if args.no_compiled else ("torch_compiled",)), "mindspore"]
    if W.family(model) in ("resnet", "mobilenet"):
        names[1:1] = ["jax_nhwc", "torch_nhwc"]
    return [n for n in names if H.available(n) and (n != "mindspore" or W.family(model) in W.MINDSPORE)]


def precision_of(side: str, wanted: str) -> str:
    """ "high" is Treadle's own: its peers compute in f32."""
    return "f32" if wanted == "high" and side != "treadle" else wanted


def measure(model: str, dtype: str, args: argparse.Namespace) -> dict[str, Any]:
    """Everything about one model in one precision."""
    peers = peers_of(model, args)
    names = ([] if args.peers_only else ["treadle"]) + peers
    precision = {n: precision_of(n, dtype) for n in names}
    result: dict[str, Any] = {"model": model, "precision": dtype, "threads": args.cores, "device": args.device}
    result |= {"config": W.config(model), "load_before": H.load_average(), "absent": {}}
    peaks = {} if args.check_only or args.peers_only or args.device != "cpu" else limits.measure()
    with contextlib.ExitStack() as stack, checks.folder() as folder:
        sides = []
        for name in names:
            try:
                sides.append(H.open_side(name, model, {"precision": precision[name]}))
            except RuntimeError as error:
                if name == "treadle":
                    raise
                result["absent"][name] = str(error)  # printed by `report`
                continue
            stack.callback(sides[-1].close)
        result["versions"] = {side.side: side.versions() for side in sides}
        result["check"] = check(sides, precision, model, Path(folder))
        if not result["check"]["agree"] or args.check_only:
            return result
        seconds, budget, rounds = (0.2, 12.0, 5) if args.quick else (1.0, args.seconds, args.rounds)
        k, rounds = H.calibrate(sides, seconds, budget, rounds)
        times = H.interleave(sides, k, rounds)
    result |= {"k": k, "rounds": rounds, "ours": sides[0].side}
    result["step_s"] = {n: {"min": min(t), "median": statistics.median(t), "blocks": t} for n, t in times.items()}
    result["ratio"] = H.speedups(times, result["ours"])
    result["best_peer"] = H.best_peer(result["ratio"])
    if peaks:
        fastest = {n: t["min"] for n, t in result["step_s"].items()}
        bound = bounds.of(treadle_module(model, W.config(model, precision=dtype)), dtype, peaks)
        if bound["seconds"]:  # else the model has no products
            result["bound"] = bounds.shares(bound, fastest, result["best_peer"])
    if args.fresh and not args.quick:
        result |= measure_fresh([s.side for s in sides], model, precision, args.fresh)
    result["goals"] = {} if args.peers_only else goals(result)
    return result


def treadle_module(model: str, cfg: W.Config) -> Any:
    """The traced training step."""
    import treadle_models

    return treadle_models.module(model, cfg)


def check(sides: list[Any], precision: dict[str, str], model: str, folder: Path) -> dict[str, Any]:
    """Compare all with a peer in float32: one of them, or PyTorch (without it JAX) for this alone."""
    found = checks.evidence(sides, folder)
    exact = [n for n in ("torch", "jax") if n in found and precision[n] == "f32"]
    if exact:
        return checks.agreement(found, found[exact[0]], exact[0], precision, "treadle")
    name = "torch" if H.available("torch") else "jax"
    other = H.open_side(name, model, {"precision": "f32"})
    try:
        reference = checks.evidence([other], folder)[name]
    finally:
        other.close()
    return checks.agreement(found, reference, f"{name} in f32", precision, "treadle")


def measure_fresh(names: list[str], model: str, precision: dict[str, str], times: int) -> dict[str, Any]:
    """Compile seconds and peak MiB of each side: best of `times` new processes without a cache; `warm_s`: with one."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    changes = {name: {"precision": precision[name]} for name in names}
    for _ in range(times):  # one process of each side per turn, so that a busy minute hits all alike
        for name in names:
            rows[name].append(H.fresh(name, model, changes[name]))
    out: dict[str, Any] = {}
    for name, row in rows.items():
        out[name] = {"peak_mib": statistics.median(r["memory"]["peak_mib"] for r in row), "all": row}
        if row[0]["compile"]:  # torch without torch.compile compiles nothing
            out[name]["compile_s"] = min(r["compile"]["total_s"] for r in row)
            if name not in CACHED:
                continue
            with tempfile.TemporaryDirectory(prefix="treadle-bench-") as cache:
                H.fresh(name, model, changes[name], cache)
                out[name]["warm_s"] = H.fresh(name, model, changes[name], cache)["compile"]["total_s"]
    ours = out[names[0]]["compile_s"]
    ratio = {n: new["compile_s"] / ours for n, new in out.items() if n != names[0] and "compile_s" in new}
    return {"fresh": out, "compile_ratio": ratio}


def goals(result: dict[str, Any]) -> dict[str, Any]:
    """What was promised, and whether it holds: the step against the best peer, compiling against torch.compile."""
    out = {}
    if result["best_peer"]:
        limit = GOALS.get((result["model"], result["precision"])) or GOALS[result["precision"]]
        out["step"] = {"ratio": result["ratio"][result["best_peer"]]["median"], "limit": limit}
    for peer, limit in COMPILE_GOAL.items():
        if peer in result.get("compile_ratio", {}):
            out["compile"] = {"ratio": result["compile_ratio"][peer], "limit": limit}
    return {name: {**goal, "met": goal["ratio"] >= goal["limit"]} for name, goal in out.items()}


def report(result: dict[str, Any]) -> str:
    """The table of one entry."""
    found, title = result["check"], f"{result['model']} {result['precision']} {result['threads']}t"
    lines = [f"{side} is left out: {why}" for side, why in result["absent"].items()]
    if not found["agree"]:
        return "\n".join([*lines, f"{title}: the sides disagree, nothing was timed", *found["wrong"]])
    off = {side: d["all"] for side, d in found["gradient_difference"].items()}
    if "step_s" not in result:
        return "\n".join([*lines, f"{title}: agree; losses {found['loss_difference']}, gradients {off}"])
    rows = []
    for name, t in result["step_s"].items():
        new, ratio = result.get("fresh", {}).get(name, {}), result["ratio"].get(name, {})
        speed = [t["min"] * 1e3, t["median"] * 1e3, ratio.get("median", "-"), ratio.get("min", "-")]
        made = [new.get("compile_s", "-"), new.get("warm_s", "-"), round(new["peak_mib"]) if new else "-"]
        rows.append([name, *speed, *made, off.get(name, "-")])
    ours = f"x / {result['ours']}"
    head = [title, "min ms", "median ms", ours, "of minima", "compile s", "warm s", "peak MiB", "gradients off by"]
    lines.append(H.table(head, rows))
    if "bound" in result:
        lines.append(bounds.line(result["bound"]))
    for name, goal in result["goals"].items():
        lines.append(f"goal {name}: {goal['ratio']:.3f} >= {goal['limit']} {'met' if goal['met'] else 'MISSED'}")
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--models", default=",".join(MODELS), help="of " + ", ".join(W.CONFIGS))
    parser.add_argument("--dtype", default="", help="f32, bf16, high; default: what each model is shown in")
    parser.add_argument("--threads", default="", help="numbers of cores and threads, with commas; default: all")
    parser.add_argument("--quick", action="store_true", help="in a minute: PyTorch eager only, few rounds, no file")
    parser.add_argument("--peers", default="", help="sides to compare with, of " + ", ".join(H.SIDES))
    parser.add_argument("--rounds", type=int, default=12, help="at most so many blocks per side")
    parser.add_argument("--seconds", type=float, default=180.0, help="for the blocks of a model; at least 3 are timed")
    parser.add_argument("--fresh", type=int, default=1, help="new processes per side for compile time; 0: none")
    parser.add_argument("--check-only", action="store_true", help="compare losses and gradients, time nothing")
    parser.add_argument("--peers-only", action="store_true", help="without Treadle")
    parser.add_argument("--no-compiled", action="store_true", help="without torch.compile, which compiles for long")
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--name", default="train_steps", help="of the file in bench/results")
    parser.add_argument("--strict", action="store_true", help="end with 1 when a goal is missed")
    args = parser.parse_args()
    if unknown := [m for m in args.models.split(",") if m not in W.CONFIGS]:
        parser.error(f"no model {', '.join(unknown)}; there are {', '.join(W.CONFIGS)}")
    if unknown := [d for d in args.dtype.split(",") if d and d not in W.PRECISIONS]:
        parser.error(f"no precision {', '.join(unknown)}; there are {', '.join(W.PRECISIONS)}")
    return args


def entries(args: argparse.Namespace) -> list[tuple[str, str, str]]:
    """(model, precision, threads) of everything that is asked for."""
    out = []
    for threads in args.threads.split(","):
        for model in args.models.split(","):
            usual = ["f32"] if model == "dispatch" else ["f32", "bf16", *(["high"] if model in HIGH else [])]
            out += [(model, dtype, threads) for dtype in (args.dtype.split(",") if args.dtype else usual)]
    return out


def one(model: str, dtype: str, threads: str, args: argparse.Namespace) -> int:
    """Measure an entry here, print it, put it into the file; 1 for a disagreement or, if strict, a missed goal."""
    # Before any framework loads, here and in the workers, which inherit it.
    os.environ.update(BENCH_DEVICE=args.device, JAX_ENABLE_COMPILATION_CACHE="false", TREADLE_CACHE="0")
    os.environ["JAX_PLATFORMS"] = "cpu" if args.device == "cpu" else "cuda"
    if threads:
        H.use_threads(int(threads))
    args.cores = H.machine()["cores"]
    result = measure(model, dtype, args)
    print(report(result), flush=True)
    if "step_s" in result and not args.quick:
        H.merge(args.name, {f"{model} {dtype} {args.cores}t": result})
    met = all(g["met"] for g in result.get("goals", {}).values())
    return 0 if result["check"]["agree"] and (met or not args.strict) else 1


def main() -> int:
    """0 if everything agrees (with --strict: and every goal is met), else 1."""
    args = arguments()
    wanted = entries(args)
    load = H.load_average()
    if load is not None and load > 0.5:
        print(f"others are busy here (load {load}): ratios of minima may hold, medians may not")
    if not H.available("torch"):
        print("no peers' environment (make bench-peers): JAX only")
    if len(wanted) == 1:
        return one(*wanted[0], args)
    worst, rest = 0, sys.argv[1:]
    for model, dtype, threads in wanted:  # the last of two equal options counts
        own = ["--models", model, "--dtype", dtype, "--threads", threads]
        worst = max(worst, abs(subprocess.run([sys.executable, __file__, *rest, *own], check=False).returncode))
        print(flush=True)
    return worst


if __name__ == "__main__":
    sys.exit(main())
