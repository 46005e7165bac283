"""Single ops against the peers, and against the machine's limits; into bench/results/op_sweeps.json.

    python bench/op_sweeps.py                                             all, f32 and bf16, all cores
    python bench/op_sweeps.py --kinds conv --match "depthwise" --quick    some; writes no file
    python bench/op_sweeps.py --fast                                      all, short; some ten minutes; writes the file

Kinds: gemm, conv (ResNet-50's and MobileNetV2's shapes, with both gradients), rows (softmax, layer norm), attention,
lstm, reduce, chain. Ratios are peer / Treadle: above 1, Treadle is faster. Every side's result must equal PyTorch's in
float32 (of operands rounded to bf16, for bf16) before anything is timed. Small ops work on up to 16 operand sets in one
call, so that what is measured is the op. Each side is a process; they take turns. Ends with 1 if anything disagrees.
Like is held against like: convolutions of images [N, C, H, W] against peers that have such images, and in an entry of
their own, "channels last", those whose images lie as [N, H, W, C] in memory on both sides.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import harness as H
import limits
import numpy as np
import op_cases

# side -> (module, options, environment)
SIDES: dict[str, tuple[str, dict[str, Any], str]] = {
    "treadle": ("treadle_ops", {}, ""),
    "treadle_nhwc": ("treadle_ops", {"channels_last": True}, ""),
    "jax": ("jax_ops", {}, ""),
    "torch": ("torch_ops", {}, "peers"),
    "torch_nhwc": ("torch_ops", {"channels_last": True}, "peers"),
    "torch_compiled": ("torch_ops", {"compiled": True}, "peers"),
}
RTOL = {"f32": 1e-4, "bf16": 2e-2}  # norm of the difference over that of the result
PRODUCTS = ("gemm", "conv", "attention", "lstm")
PEERS_TIMES = 5  # a peer may be this much further off; one that is more is left out
STREAMED_BYTES = 64 << 20  # a call that moves less may find its operands in the caches
COMPILED_KINDS = ("softmax", "layer_norm", "reduce", "chain")  # the others call the same library either way
LOWEST, MEDIAN = 0.85, {"f32": 1.0, "bf16": 1.2}  # goals: of every ratio to the best peer; of their median
LAST = "channels last"


class Worker:
    """A side in its process: `prepare`, `write` and `block` answer as `Server` does."""

    def __init__(self, side: str):
        environment = SIDES[side][2]
        python = str(H.environment(environment)) if environment else sys.executable
        self.side, self.command = side, [python, __file__, "--serve", side]
        self._start()

    def _start(self) -> None:
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *what: Any) -> Any:
        """The answer. Raises RuntimeError with the side's own message, or when it has died; then another one starts."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            self._start()
            raise RuntimeError(f"{self.side}: its process ended with {code} at {what[0]}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{self.side}: {answer['error']}")
        return answer["value"]

    def close(self) -> None:
        """End it."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()


class Server:
    """What a worker process does."""

    def __init__(self, side: str):
        module, self.options, _ = SIDES[side]
        self.module = importlib.import_module(module)
        self.call: Any = None

    def prepare(self, case: dict[str, Any], dtype: str, copies: int) -> float:
        """Make the call, and run it once; its seconds."""
        self.call = None  # before the next one takes memory
        self.call = self.module.Call(op_cases.from_dict(case), dtype, copies, **self.options)
        start = time.perf_counter()
        self.call.once()
        return time.perf_counter() - start

    def write(self, path: str) -> int:
        """Write the results of the first operand set to an .npz file; how many."""
        found = self.call.result()
        np.savez(path, *found)
        return len(found)

    def reference(self, case: dict[str, Any], dtype: str, path: str) -> int:
        """The same of the reference, on the side that has one."""
        found = self.module.reference(op_cases.from_dict(case), dtype)
        np.savez(path, *found)
        return len(found)

    def block(self, k: int, cpu: bool = False) -> float:
        """Seconds of a call, of k in a row after one that is not timed; cpu: of the process's threads together."""
        once, clock = self.call.once, time.process_time if cpu else time.perf_counter
        once()
        start = clock()
        for _ in range(k):
            once()
        return (clock() - start) / k


def serve(side: str) -> None:
    """Answer JSON lines until stdin closes; what a side cannot compute is an answer too."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    server = Server(side)
    for line in sys.stdin:
        what, *args = json.loads(line)
        try:
            answer = {"value": getattr(server, what)(*args)}
        except Exception as error:  # reported by the parent with the case's name
            answer = {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def sides_of(case: op_cases.Case, workers: dict[str, Worker]) -> list[str]:
    """The sides that compute a case."""
    left_out = set() if case.kind in COMPILED_KINDS else {"torch_compiled"}
    return [side for side in workers if side not in left_out and (case.kind == "conv" or not _is_last(side))]


def _is_last(side: str) -> bool:
    """Whether a side has images with their channels last."""
    return side.endswith("_nhwc")


def distance(path: str, right: Sequence[np.ndarray]) -> float:
    """Norm of the difference over that of the reference, of all results together."""
    with np.load(path) as left:
        found = [left[n].astype(np.float64) for n in left.files]
    if [a.shape for a in found] != [a.shape for a in right]:
        return float("nan")
    apart = sum(float(np.sum((a - b) ** 2)) for a, b in zip(found, right))
    return float((apart / max(sum(float(np.sum(b.astype(np.float64) ** 2)) for b in right), 1e-30)) ** 0.5)


def measure(
    case: op_cases.Case, dtype: str, workers: dict[str, Worker], folder: str, args: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """An entry, or two: of the sides with images [N, C, H, W], "", and of those with channels last."""
    copies, given = case.copies(2 if dtype == "bf16" else 4), case.as_dict()
    workers["torch"].ask("reference", given, dtype, f"{folder}/right.npz")
    with np.load(f"{folder}/right.npz") as file:
        right = [file[n] for n in file.files]
    off, once, absent = dict[str, float](), dict[str, float](), dict[str, str]()
    for side in sides_of(case, workers):
        try:
            workers[side].ask("prepare", given, dtype, copies)
            workers[side].ask("write", f"{folder}/{side}.npz")
            once[side] = workers[side].ask("block", 1)
        except RuntimeError as error:
            absent[side] = str(error)  # printed by `line`
            continue
        off[side] = distance(f"{folder}/{side}.npz", right)
        if not side.startswith("treadle") and not off[side] <= PEERS_TIMES * RTOL[dtype]:
            absent[side] = f"{side} is {off.pop(side):.2g} off"
    right_ones = [side for side in off if not side.startswith("treadle") or off[side] <= RTOL[dtype]]
    times = _times(right_ones, once, workers, args)
    whole = {"kind": case.kind, "form": case.form, "precision": dtype, "copies": copies}
    found = {}
    for layout in ("", LAST) if "treadle_nhwc" in sides_of(case, workers) else ("",):
        agree = ("treadle_nhwc" if layout else "treadle") in right_ones
        found[layout] = {**whole, "layout": layout, "agree": agree}
        found[layout] |= {"absent": _of(absent, layout), "difference": _of(off, layout)}
        if agree:
            found[layout] |= _ratios(_of(times, layout), copies)
    return found


def _of(sides: dict[str, Any], layout: str) -> dict[str, Any]:
    """What is known of the sides with such images; Treadle is "treadle" among them."""
    found = {side: value for side, value in sides.items() if _is_last(side) == bool(layout)}
    return {"treadle" if side == "treadle_nhwc" else side: value for side, value in found.items()}


def _times(
    sides: Sequence[str], once: dict[str, float], workers: dict[str, Worker], args: argparse.Namespace
) -> dict[str, list[float]]:
    """Seconds of a call in each round, by side."""
    seconds, rounds = (0.02, 3) if args.quick or args.fast else (0.1, args.rounds)
    times: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(rounds):
        for side in sorted(sides, key=list(sides).index, reverse=bool(turn % 2)):
            time.sleep(H.SETTLE_S)
            times[side].append(workers[side].ask("block", max(1, round(seconds / once[side])), args.cpu))
    return times


def _ratios(times: dict[str, list[float]], copies: int) -> dict[str, Any]:
    """What an entry says of the times of its sides."""
    ratio = H.speedups(times, "treadle")
    unit = 1e6 / copies
    each = {side: {"min": min(t) * unit, "median": statistics.median(t) * unit} for side, t in times.items()}
    return {"microseconds": each, "ratio": ratio, "best_peer": H.best_peer(ratio)}


def shares(case: op_cases.Case, entry: dict[str, Any], limit: dict[str, float]) -> dict[str, float]:
    """What part of the machine's limit each side reaches: of the arithmetic peak or of the copy bandwidth.

    The bandwidth counts for large calls only; other calls that are not products have no limit here.
    """
    width = 2 if entry["precision"] == "bf16" else 4
    peak = limit.get("bf16_gflops" if width == 2 else "f32_gflops") or limit["f32_gflops"]
    streamed = case.bytes(width) * entry["copies"] >= STREAMED_BYTES
    if not streamed and case.kind not in PRODUCTS:
        return {}
    least = max(case.flops / peak / 1e9, case.bytes(width) / limit["copy_gb_s"] / 1e9 if streamed else 0.0)
    return {side: least * 1e6 / t["min"] for side, t in entry["microseconds"].items()}


def line(name: str, entry: dict[str, Any]) -> str:
    """The entry in a line: the median ratio to each peer, that of the minima, the time of one op."""
    said = "".join(f"\n    {why}" for why in entry["absent"].values())
    if not entry["agree"]:
        return f"{name}: DIFFERENT {entry['difference']}{said}"
    ratios = "  ".join(f"{side} {r['median']:.2f} ({r['min']:.2f})" for side, r in entry["ratio"].items())
    share = f", {entry['share']['treadle']:.0%} of the limit" if entry["share"] else ""
    return f"{name}: {ratios}   {entry['microseconds']['treadle']['median']:.4g} us{share}{said}"


def by_kind(entries: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Of each kind of op, precision and number of threads: how the ratios to the best peers are spread."""
    groups: dict[str, dict[str, float]] = {}
    for name, e in entries.items():
        if e["agree"] and e.get("best_peer"):
            last = f", {LAST}" if e.get("layout") else ""
            key = f"{e['kind']}{last} {e['precision']} {e['threads']}t"
            groups.setdefault(key, {})[name] = e["ratio"][e["best_peer"]]["median"]
    return {key: _spread(best) for key, best in groups.items()}


def _spread(best: dict[str, float]) -> dict[str, Any]:
    """below: the share of the cases that miss the goal of each."""
    low = min(best, key=lambda n: best[n])
    below = sum(ratio < LOWEST for ratio in best.values()) / len(best)
    median = statistics.median(best.values())
    return {"cases": len(best), "median": median, "lowest": best[low], "case": low, "below": below}


def summary(entries: dict[str, Any]) -> list[str]:
    """The spread of each kind, and the goals by precision."""
    out = []
    for key, found in by_kind(entries).items():
        low = f"lowest {found['lowest']:.2f} ({found['case']})"
        out.append(f"{key}: median {found['median']:.2f}, {low}, {found['below']:.0%} below {LOWEST}")
    for dtype, limit in MEDIAN.items():
        best = {n: e["ratio"][e["best_peer"]]["median"] for n, e in entries.items() if _counts(e, dtype)}
        if best:
            found = _spread(best)
            low = f"lowest {found['lowest']:.2f} ({found['case']})"
            met = "met" if found["lowest"] >= LOWEST and found["median"] >= limit else "MISSED"
            out.append(f"{dtype}: median {found['median']:.2f} >= {limit}, {low} >= {LOWEST}: {met}")
    return out


def _counts(entry: dict[str, Any], dtype: str) -> bool:
    return bool(entry["agree"] and entry["precision"] == dtype and entry["best_peer"])


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--kinds", default=",".join(op_cases.KINDS))
    parser.add_argument("--match", default="", help="only cases whose name holds this")
    parser.add_argument("--dtype", default="f32,bf16")
    parser.add_argument("--threads", default="", help="numbers of cores and threads, with commas; default: all")
    parser.add_argument("--peers", default="", help="of " + ", ".join(SIDES))
    parser.add_argument("--quick", action="store_true", help="short blocks, no torch.compile, no JAX; writes no file")
    parser.add_argument("--fast", action="store_true", help="as short as --quick, but writes the file")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cpu", action="store_true", help="CPU time, for a busy machine; with --threads 1 --quick")
    parser.add_argument("--name", default="op_sweeps", help="of the file in bench/results")
    parser.add_argument("--list", action="store_true", help="name the cases, run nothing")
    return parser.parse_args()


def run(args: argparse.Namespace) -> int:
    """All cases with the cores that this process may use."""
    wanted = [c for c in op_cases.cases(tuple(args.kinds.split(","))) if args.match in c.name]
    peers = (
        args.peers.split(",")
        if args.peers
        else ["torch", "torch_nhwc", *([] if args.quick or args.fast else ["torch_compiled", "jax"])]
    )
    peers += ["treadle_nhwc"] if "torch_nhwc" in peers and any(c.kind == "conv" for c in wanted) else []
    names = ["treadle", *dict.fromkeys(["torch", *peers])]  # PyTorch is also the reference
    cores, entries = H.machine()["cores"], {}
    limit = limits.measure(quick=args.quick or args.fast)
    print(f"limits with {cores} cores: " + ", ".join(f"{n} {v:.4g}" for n, v in limit.items()), flush=True)
    workers = {name: Worker(name) for name in names}
    try:
        with tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder:
            for dtype in args.dtype.split(","):
                for case in wanted:
                    for layout, entry in measure(case, dtype, workers, folder, args).items():
                        name = f"{case.name}{f', {layout}' if layout else ''} {dtype} {cores}t"
                        if entry["agree"]:
                            entry |= {"share": shares(case, entry, limit), "flops": case.flops}
                        entries[name] = {"threads": cores, "limits": limit, **entry}
                        print(line(name, entry), flush=True)
    finally:
        for worker in workers.values():
            worker.close()
    print("\n".join(summary(entries)))
    if not args.quick:
        print(f"written to {H.merge(args.name, entries, lambda found: {'by_kind': by_kind(found)})}")
    return 0 if all(e["agree"] for e in entries.values()) else 1


def main() -> int:
    """0 if all results agree."""
    args = arguments()
    if args.serve:
        serve(args.serve)
        return 0
    if args.list:
        print("\n".join(c.name for c in op_cases.cases(tuple(args.kinds.split(",")))))
        return 0
    if not H.available("torch"):
        print("the peers' environment is missing: run `make bench-peers` or set BENCH_PEERS_PYTHON")
        return 1
    os.environ.update(JAX_ENABLE_COMPILATION_CACHE="false", TREADLE_CACHE="0", JAX_PLATFORMS="cpu")
    os.environ["NUMPY_MADVISE_HUGEPAGE"] = "0"  # or sides that take NumPy's memory as it is would read it twice as fast
    counts = args.threads.split(",")
    if len(counts) == 1:
        if counts[0]:
            H.use_threads(int(counts[0]))
        return run(args)
    command = [sys.executable, __file__, *sys.argv[1:], "--threads"]
    return max(abs(subprocess.run([*command, n], check=False).returncode) for n in counts)


if __name__ == "__main__":
    sys.exit(main())
