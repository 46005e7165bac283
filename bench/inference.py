"""Inference of trained models against the peers, at batch 1 and 8; into bench/results/inference.json.

    python bench/inference.py                                                   everything, all cores
    python bench/inference.py --models minilm --batches 1 --dtype f32 --quick   one of them; writes no file

Ratios are peer / Treadle: above 1, Treadle is faster. Every side has the same weights; ONNX Runtime and OpenVINO read
them from an ONNX file that PyTorch writes. Results must equal PyTorch's in float32 before anything is timed. Each entry
is a process of its own. Ends with 1 if anything disagrees or fails, or if --strict is given and a goal missed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import harness as H
import numpy as np
import weights as W

MODELS = {"resnet50": "resnet50", "mobilenet_v2": "mobilenet_v2", "minilm": "minilm", "gpt_prefill": "gpt_small"}
PEERS = ("torch", "torch_nhwc", "torch_compiled", "jax", "onnxruntime", "openvino")
GOALS = {"f32": 0.9, "bf16": 1.2}
RTOL = {"f32": 1e-3, "bf16": 0.1}  # of the norm of the difference, over that of the result
BF16_TIMES, BF16_PLUS = 2.0, 0.01  # Treadle's bf16 error may be the largest of the peers' times this, plus that


def export(model: str, changes: dict[str, Any], folder: str) -> str:
    """Have PyTorch write the model as ONNX; the file. Raises RuntimeError when it cannot."""
    path = str(Path(folder) / "model.onnx")
    command = [str(H.python_of("torch")), str(H.HERE / "onnx_export.py"), model, json.dumps(changes), path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"no ONNX file of {model}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return path


def measure(name: str, batch: int, dtype: str, args: argparse.Namespace) -> dict[str, Any]:
    """Everything about one model at one batch size in one precision."""
    model, peers = MODELS[name], args.peers.split(",") if args.peers else [p for p in PEERS if H.available(p)]
    if W.family(model) not in ("resnet", "mobilenet"):
        peers = [p for p in peers if p != "torch_nhwc"]
    if args.quick and not args.peers:
        peers = [p for p in peers if p not in ("torch_compiled", "jax")]
    changes: dict[str, Any] = {"batch": batch, "precision": dtype}
    result: dict[str, Any] = {"model": name, "batch": batch, "precision": dtype, "threads": args.cores}
    result |= {"config": W.config(model, **changes), "load_before": H.load_average(), "absent": {}}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="treadle-bench-"))
        onnx = export(model, {"batch": batch}, folder) if {"onnxruntime", "openvino"} & set(peers) else ""
        sides: list[Any] = []
        for side in ["treadle", *peers]:
            try:
                sides.append(H.open_side(side, model, {**changes, "onnx": onnx}, "inference"))
            except RuntimeError as error:
                if side == "treadle":
                    raise
                result["absent"][side] = str(error)  # printed by `report`
                continue
            stack.callback(sides[-1].close)
        result["versions"] = {side.side: side.versions() for side in sides}
        result["check"] = check(sides, model, {"batch": batch}, dtype, folder)
        if not result["check"]["agree"] or args.check_only:
            return result
        seconds, budget, rounds = (0.1, 8.0, 5) if args.quick else (0.5, args.seconds, args.rounds)
        k, rounds = H.calibrate(sides, seconds, budget, rounds)
        times = H.interleave(sides, k, rounds)
    result |= {"k": k, "rounds": rounds}
    result["call_s"] = {n: {"min": min(t), "median": statistics.median(t), "blocks": t} for n, t in times.items()}
    result["ratio"] = H.speedups(times, "treadle")
    result["best_peer"] = best = H.best_peer(result["ratio"])
    if best:
        ratio = result["ratio"][best]["median"]
        result["goal"] = {"ratio": ratio, "limit": GOALS[dtype], "met": ratio >= GOALS[dtype]}
    return result


def check(sides: list[Any], model: str, changes: dict[str, Any], dtype: str, folder: str) -> dict[str, Any]:
    """Compare every result with PyTorch's (without it JAX's) in float32."""
    name = "torch" if H.available("torch") else "jax"
    other = H.open_side(name, model, {**changes, "precision": "f32"}, "inference")
    try:
        other.output(f"{folder}/right.npy")
    finally:
        other.close()
    right, off = np.load(f"{folder}/right.npy").astype(np.float64), {}
    for side in sides:
        side.output(f"{folder}/{side.side}.npy")
        left = np.load(f"{folder}/{side.side}.npy").astype(np.float64)
        same = left.shape == right.shape
        off[side.side] = float(np.linalg.norm(left - right) / np.linalg.norm(right)) if same else float("nan")
    wrong = [f"{side} is {share:.2g} off" for side, share in off.items() if not share <= RTOL[dtype]]
    peers = [share for side, share in off.items() if side != "treadle"]
    if dtype == "bf16" and peers and not off["treadle"] <= BF16_TIMES * max(peers) + BF16_PLUS:
        wrong.append(f"treadle is {off['treadle']:.2g} off in bf16, the peers at most {max(peers):.2g}")
    return {"reference": f"{name} in f32", "difference": off, "wrong": wrong, "agree": not wrong}


def report(result: dict[str, Any]) -> str:
    """The table of one entry."""
    title = f"{result['model']} b{result['batch']} {result['precision']} {result['threads']}t"
    lines = [f"{side} is left out: {why}" for side, why in result["absent"].items()]
    off = result["check"]["difference"]
    if "call_s" not in result:
        said = "agree" if result["check"]["agree"] else "the sides disagree, nothing was timed"
        return "\n".join([*lines, f"{title}: {said}; off by {off}", *result["check"]["wrong"]])
    rows = []
    for name, t in result["call_s"].items():
        ratio = result["ratio"].get(name, {})
        rows.append(
            [name, t["min"] * 1e3, t["median"] * 1e3, ratio.get("median", "-"), ratio.get("min", "-"), off[name]]
        )
    lines.append(H.table([title, "min ms", "median ms", "x / treadle", "of minima", "off by"], rows))
    if goal := result.get("goal"):
        lines.append(f"goal: {goal['ratio']:.3f} >= {goal['limit']} {'met' if goal['met'] else 'MISSED'}")
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--models", default=",".join(MODELS), help="of " + ", ".join(MODELS))
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--dtype", default="f32,bf16")
    parser.add_argument("--threads", default="", help="numbers of cores and threads, with commas; default: all")
    parser.add_argument("--quick", action="store_true", help="few rounds, without peers that compile for long; no file")
    parser.add_argument("--peers", default="", help="sides to compare with, of " + ", ".join(PEERS))
    parser.add_argument("--rounds", type=int, default=12, help="at most so many blocks per side")
    parser.add_argument("--seconds", type=float, default=60.0, help="for the blocks of an entry; at least 3 are timed")
    parser.add_argument("--check-only", action="store_true", help="compare results, time nothing")
    parser.add_argument("--name", default="inference", help="of the file in bench/results")
    parser.add_argument("--strict", action="store_true", help="end with 1 when a goal is missed")
    args = parser.parse_args()
    if unknown := [m for m in args.models.split(",") if m not in MODELS]:
        parser.error(f"no model {', '.join(unknown)}; there are {', '.join(MODELS)}")
    if unknown := [d for d in args.dtype.split(",") if d not in GOALS]:
        parser.error(f"no precision {', '.join(unknown)}; there are {', '.join(GOALS)}")
    return args


def one(model: str, batch: str, dtype: str, threads: str, args: argparse.Namespace) -> int:
    """Measure an entry here, print it, put it into the file; 1 for a disagreement or, if strict, a missed goal."""
    os.environ.update(JAX_ENABLE_COMPILATION_CACHE="false", TREADLE_CACHE="0", JAX_PLATFORMS="cpu")
    if threads:
        H.use_threads(int(threads))
    args.cores = H.machine()["cores"]
    result = measure(model, int(batch), dtype, args)
    print(report(result), flush=True)
    if "call_s" in result and not args.quick:
        H.merge(args.name, {f"{model} b{batch} {dtype} {args.cores}t": result})
    met = result.get("goal", {"met": True})["met"]
    return 0 if result["check"]["agree"] and (met or not args.strict) else 1


def main() -> int:
    """0 if everything agrees (with --strict: and every goal is met), else 1."""
    args = arguments()
    axes = [args.threads.split(","), args.models.split(","), args.batches.split(","), args.dtype.split(",")]
    wanted = [(m, b, d, t) for t in axes[0] for m in axes[1] for b in axes[2] for d in axes[3]]
    if len(wanted) == 1:
        return one(*wanted[0], args)
    worst = 0
    for model, batch, dtype, threads in wanted:  # the last of two equal options counts
        own = ["--models", model, "--batches", batch, "--dtype", dtype, "--threads", threads]
        done = subprocess.run([sys.executable, __file__, *sys.argv[1:], *own], check=False)
        worst = max(worst, abs(done.returncode))
        print(flush=True)
    return worst


if __name__ == "__main__":
    sys.exit(main())
