"""Eager calls beside PyTorch and NumPy: 34 ops on float32 arrays of 1 to 1,000,000 elements, and the gradient of a
small network; writes bench/results/eager_ops.json.

    python bench/eager_ops.py [--rounds 7] [--sizes 1,100,10000,100000,1000000]

Each library answers in a process of its own (PyTorch and NumPy in the peers' environment); for every op and size they
take turns, and all results are compared before anything is timed. A ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import base64
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import harness as H
import numpy as np

SIZES = (1, 100, 10_000, 100_000, 1_000_000)
SIDES = ("treadle", "torch", "numpy")
# name: what Treadle, PyTorch and NumPy run; "-": NumPy has no such function. x, y: [n]; m, k: square; i: positions.
CASES = {
    "add": ("x + y", "x + y", "x + y"),
    "subtract": ("x - y", "x - y", "x - y"),
    "multiply by a number": ("x * 2.5", "x * 2.5", "x * 2.5"),
    "divide": ("x / y", "x / y", "x / y"),
    "negative": ("-x", "-x", "-x"),
    "abs": ("L.abs(x)", "L.abs(x)", "L.abs(x)"),
    "square": ("x ** 2", "x ** 2", "x ** 2"),
    "greater": ("x > y", "x > y", "x > y"),
    "maximum": ("L.maximum(x, y)", "L.maximum(x, y)", "L.maximum(x, y)"),
    "where": ("L.where(c, x, y)", "L.where(c, x, y)", "L.where(c, x, y)"),
    "exp": ("L.exp(x)", "L.exp(x)", "L.exp(x)"),
    "log": ("L.log(x)", "L.log(x)", "L.log(x)"),
    "sqrt": ("L.sqrt(x)", "L.sqrt(x)", "L.sqrt(x)"),
    "tanh": ("L.tanh(x)", "L.tanh(x)", "L.tanh(x)"),
    "sin": ("L.sin(x)", "L.sin(x)", "L.sin(x)"),
    "relu": ("F.relu(x)", "F.relu(x)", "-"),
    "add a row": ("m + r", "m + r", "m + r"),
    "sum": ("x.sum()", "x.sum()", "x.sum()"),
    "sum of rows": ("m.sum(1)", "m.sum(1)", "m.sum(1)"),
    "mean": ("x.mean()", "x.mean()", "x.mean()"),
    "max": ("x.max()", "x.max()", "x.max()"),
    "argmax": ("x.argmax()", "x.argmax()", "x.argmax()"),
    "cumsum": ("L.cumsum(x, 0)", "L.cumsum(x, 0)", "L.cumsum(x, 0)"),
    "sort": ("L.sort(x)", "L.sort(x)[0]", "L.sort(x)"),
    "softmax": ("F.softmax(m, -1)", "F.softmax(m, -1)", "-"),
    "matmul": ("m @ k", "m @ k", "m @ k"),
    "transpose": ("m.T + k", "m.T + k", "m.T + k"),
    "reshape": ("m.reshape(-1)", "m.reshape(-1)", "m.reshape(-1)"),
    "concatenate": ("L.concatenate([x, y])", "L.concatenate([x, y])", "L.concatenate([x, y])"),
    "cast": ("x.astype(L.float64)", "x.to(L.float64)", "x.astype(L.float64)"),
    "one row": ("m[0]", "m[0]", "m[0]"),
    "a slice": ("x[:-1]", "x[:-1]", "x[:-1]"),
    "take": ("x[i]", "x[i]", "x[i]"),
    "mask": ("x[c]", "x[c]", "x[c]"),
}
GOALS = {"add": 1.0, "matmul": 1.5, "sum": 1.5, "sum of rows": 1.5, "one row": 1.5, "a slice": 1.5, "take": 1.5}
GRADIENT = "gradient of a network"


def arrays(n: int) -> dict[str, Any]:
    """The operands for n elements, the same on every side."""
    rng = np.random.default_rng(n)
    side = math.isqrt(n)
    x, y = rng.uniform(0.5, 1.5, (2, n)).astype("f4")
    m, k = rng.uniform(-1, 1, (2, side, side)).astype("f4")
    return {"x": x, "y": y, "m": m, "k": k, "r": m[0].copy(), "c": x > y, "i": rng.integers(0, n, max(1, n // 2))}


class Side:
    """One library: `prepare` makes the call of a case, `value` its result, `block` times it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sync: Callable[[Any], Any] = lambda result: result
        if name == "numpy":
            self.scope: dict[str, Any] = {"L": np}
            self.tensor: Callable[[Any], Any] = np.asarray
        elif name == "torch":
            import torch

            self.scope = {"L": torch, "F": torch.nn.functional}
            self.tensor = torch.tensor
        else:
            import treadle as td
            from treadle.runtime import pjrt

            def sync(result: Any) -> None:
                if not isinstance(result._value, np.ndarray):
                    pjrt.block_until_ready([result._value])

            self.scope, self.tensor, self.sync = {"L": td, "F": td.nn.functional}, td.Tensor, sync

    def prepare(self, case: str, n: int) -> None:
        """Make `self.call`."""
        given = {key: self.tensor(a) for key, a in arrays(n).items()}
        if case == GRADIENT:
            self.call = self._network(n)
            return
        source = CASES[case][SIDES.index(self.name)]
        self.call = eval(f"lambda: {source}", {**self.scope, **given})

    def _network(self, n: int) -> Callable[[], Any]:
        """Loss and gradients of two layers, 16 to 32 to 4, on a batch of n; the value is the first gradient."""
        rng = np.random.default_rng(0)
        shapes = (n, 16), (16, 32), (32,), (32, 4), (4,)
        x, w1, b1, w2, b2 = [self.tensor(rng.uniform(-1, 1, s).astype("f4")) for s in shapes]
        relu = self.scope["F"].relu
        weights = [w1, b1, w2, b2]
        if self.name == "torch":
            grad = self.scope["L"].autograd.grad
            for w in weights:
                w.requires_grad_()
            return lambda: grad(((relu(x @ w1 + b1) @ w2 + b2) ** 2).mean(), weights)[0]
        both = self.scope["L"].value_and_grad(lambda: ((relu(x @ w1 + b1) @ w2 + b2) ** 2).mean(), weights)
        return lambda: both()[1][0]

    def value(self) -> Any:
        """The result as bytes in text, and the first call's seconds."""
        start = time.perf_counter()
        result = self.call()
        self.sync(result)
        seconds = time.perf_counter() - start
        array = np.asarray(result.detach() if self.name == "torch" else result).astype(np.float64)
        return {"bytes": base64.b64encode(array.tobytes()).decode(), "first_s": seconds}

    def block(self, count: int) -> float:
        """Seconds per call."""
        call, sync = self.call, self.sync
        start = time.perf_counter()
        for _ in range(count):
            sync(call())
        return (time.perf_counter() - start) / count


def serve(name: str) -> None:
    """Answer JSON lines: ["prepare", case, n], ["value"], ["block", count]."""
    answers, sys.stdout = sys.stdout, sys.stderr
    side = Side(name)
    for line in sys.stdin:
        what, *args = json.loads(line)
        answers.write(json.dumps(getattr(side, what)(*args)) + "\n")
        answers.flush()


class Worker:
    """A side in a process."""

    def __init__(self, name: str) -> None:
        python = sys.executable if name == "treadle" else str(H.peers_python())
        command = [python, __file__, "--serve", name]
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *what: Any) -> Any:
        """The answer. Raises RuntimeError when the worker has died."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker of {self.name} died at {what}")
        return json.loads(line)

    def close(self) -> None:
        """End it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def measure(workers: list[Worker], case: str, n: int, rounds: int) -> dict[str, Any]:
    """One row: whether the results agree, microseconds of each side, ratios to the peers."""
    used = [w for w in workers if case == GRADIENT or CASES[case][SIDES.index(w.name)] != "-"]
    if case == GRADIENT:
        used = [w for w in used if w.name != "numpy"]
    values = {}
    for w in used:
        w.ask("prepare", case, n)
        values[w.name] = w.ask("value")
    found = {name: np.frombuffer(base64.b64decode(v["bytes"])) for name, v in values.items()}
    ours = found["treadle"]
    agree = all(a.shape == ours.shape and np.allclose(a, ours, rtol=2e-4, atol=2e-4) for a in found.values())
    row: dict[str, Any] = {"agree": agree, "first_ms": {k: v["first_s"] * 1e3 for k, v in values.items()}}
    if not agree:
        return row
    times: dict[str, list[float]] = {w.name: [] for w in used}
    counts = {w.name: max(3, min(3000, int(0.02 / max(w.ask("block", 3), 1e-7)))) for w in used}
    for r in range(rounds):
        for w in [*used[r % len(used) :], *used[: r % len(used)]]:
            times[w.name].append(w.ask("block", counts[w.name]))
    row["microseconds"] = {name: statistics.median(t) * 1e6 for name, t in times.items()}
    row["ratio"] = {
        name: statistics.median(a / b for a, b in zip(times["treadle"], t))
        for name, t in times.items()
        if name != "treadle"
    }
    return row


def main() -> int:
    """0 if all results agree."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--serve")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    args = parser.parse_args()
    if args.serve:
        serve(args.serve)
        return 0
    if H.peers_python() is None:
        print("the peers' environment is missing: run `make bench-peers`")
        return 1
    workers = [Worker(name) for name in SIDES]
    rows: dict[str, dict[str, Any]] = {}
    for case in [*CASES, GRADIENT]:
        for n in [8] if case == GRADIENT else map(int, args.sizes.split(",")):
            row = rows.setdefault(case, {})[str(n)] = measure(workers, case, n, args.rounds)
            ratios = {k: round(v, 2) for k, v in row.get("ratio", {}).items()}
            times = {k: round(v, 1) for k, v in row.get("microseconds", {}).items()}
            print(f"{case} [{n}]: {ratios} us {times}" if row["agree"] else f"{case} [{n}]: DIFFERENT", flush=True)
    for w in workers:
        w.close()
    H.save("eager_ops", {"goals": GOALS, "cases": rows})
    return 0 if all(r["agree"] for sizes in rows.values() for r in sizes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
