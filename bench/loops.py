"""Gradients of loops beside JAX: time, temporary memory, compile time; writes bench/results/loops.json.

    python bench/loops.py --rounds 10

A recurrent network h = tanh(h @ w + x[i]) of 1,000 steps as a `while` loop whose trip count is data, beside the same as
a `lax.scan` of fixed length in JAX; a loop that ends after 100 of at most 1,024 steps beside JAX's masked scan; and one
scan of 10 and of 10,000 steps, which must be equally large and compile equally fast. Gradients must agree before
anything is timed. The sides take turns in one process. Ends with 1 if gradients disagree (with --strict: or a goal is
missed).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import harness as H
import numpy as np

# Largest allowed Treadle / JAX ratios: of time and of temporary bytes; and of compile time and nodes, long / short.
GOALS = {"recurrent": 1.1, "stops early": 0.2, "temporaries": 1.0, "compile": 1.1, "nodes": 1.1}
RTOL = 1e-3
SIZES = {"small": (8, 32), "large": (32, 128)}  # rows, features


class Side:
    """One compiled gradient: `call` runs it and waits; it answers with an array."""

    def __init__(self, side: str, call: Callable[[], Any], temporaries: int):
        self.side, self.call, self.temporaries = side, call, temporaries

    def block(self, k: int) -> float:
        """Seconds per call of k calls in a row, after one that is not timed."""
        self.call()
        start = time.perf_counter()
        for _ in range(k):
            self.call()
        return (time.perf_counter() - start) / k


def data(steps: int, rows: int, features: int) -> tuple[np.ndarray, ...]:
    """Weights, inputs, initial state, float32."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=(features, features)) / np.sqrt(features)
    x = rng.normal(size=(steps, rows, features)) / 10
    return tuple([a.astype(np.float32) for a in (w, x, np.zeros((rows, features)))])


def treadle_while(arrays: tuple[np.ndarray, ...], trips: int) -> Side:
    """The gradient by w of a `while` of `trips` steps, a number the program does not know."""
    import treadle as td

    def loss(w: Any, x: Any, h: Any, n: Any) -> Any:
        def step(state: Any) -> Any:
            i, h = state
            return i + 1, td.tanh(h @ w + x[i])

        _, h = td.while_loop(lambda state: state[0] < n, step, (td.zeros((), dtype=td.int32), h))
        return (h * h).sum()

    gradient, args = td.jit(td.grad(loss)), [td.tensor(a) for a in (*arrays, np.int32(trips))]
    gradient(*args)
    temporaries = gradient.programs()[0].executable.memory().temporaries
    return Side("treadle while", lambda: gradient(*args).numpy(), temporaries)


def treadle_scan(arrays: tuple[np.ndarray, ...]) -> Side:
    """The same as a `scan` of fixed length."""
    import treadle as td

    def loss(w: Any, x: Any, h: Any) -> Any:
        h, _ = td.scan(lambda h, row: (td.tanh(h @ w + row), None), h, x)
        return (h * h).sum()

    gradient, args = td.jit(td.grad(loss)), [td.tensor(a) for a in arrays]
    gradient(*args)
    temporaries = gradient.programs()[0].executable.memory().temporaries
    return Side("treadle scan", lambda: gradient(*args).numpy(), temporaries)


def jax_scan(arrays: tuple[np.ndarray, ...], trips: int | None = None) -> Side:
    """The gradient by w of a `lax.scan`; trips: the steps from there on keep the state (a masked scan)."""
    import jax
    import jax.numpy as jnp

    def loss(w: Any, x: Any, h: Any, n: Any) -> Any:
        def step(state: Any, row: Any) -> Any:
            i, h = state
            new = jnp.tanh(h @ w + row)
            return (i + 1, jnp.where(i < n, new, h)), None

        def plain(h: Any, row: Any) -> Any:
            return jnp.tanh(h @ w + row), None

        h = jax.lax.scan(plain, h, x)[0] if trips is None else jax.lax.scan(step, (0, h), x)[0][1]
        return (h * h).sum()

    args = [jnp.asarray(a) for a in (*arrays, np.int32(trips or 0))]
    compiled = jax.jit(jax.grad(loss)).lower(*args).compile()
    name = "jax scan" if trips is None else "jax masked scan"
    call = lambda: np.asarray(compiled(*args))
    return Side(name, call, compiled.memory_analysis().temp_size_in_bytes)


def measure(sides: list[Side], goal: str, k: int, rounds: int) -> dict[str, Any]:
    """Agreement, times, ratios to the last side, and the goals of the first."""
    grads = {s.side: s.call() for s in sides}
    peer = sides[-1].side
    scale = float(np.abs(grads[peer]).max())
    far = {name: float(np.abs(g - grads[peer]).max()) / scale for name, g in grads.items()}
    result: dict[str, Any] = {"far": far, "agree": all(f <= RTOL for f in far.values())}
    if not result["agree"]:
        return result
    times = H.interleave(sides, k, rounds)  # type: ignore[arg-type]
    result["seconds"] = {n: {"min": min(t), "median": statistics.median(t), "blocks": t} for n, t in times.items()}
    result["ratio"] = {s.side: H.ratio(times, s.side, peer) for s in sides[:-1]}
    result["temporaries"] = {s.side: s.temporaries for s in sides}
    ours = sides[0]
    found = {goal: result["ratio"][ours.side]["median"], "temporaries": ours.temporaries / sides[-1].temporaries}
    result["goals"] = {n: {"ratio": r, "limit": GOALS[n], "met": r <= GOALS[n]} for n, r in found.items()}
    return result


def compiling(times: int) -> dict[str, Any]:
    """Nodes, seconds in front end and compiler of the gradient of a scan of 10 and of 10,000 steps: best of `times`."""
    import treadle as td
    from treadle.ir.walk import all_nodes

    nodes: dict[int, int] = {}
    seconds: dict[int, list[float]] = {10: [], 10_000: []}
    for turn in range(times):
        for steps in list(seconds)[:: 1 if turn % 2 else -1]:
            w, x, h = data(steps, 4, 8)
            loss = lambda w, x, h: td.scan(lambda h, row: (td.tanh(h @ w + row), None), h, x)[0].sum()
            gradient, args = td.jit(td.grad(loss)), [td.tensor(a) for a in (w, x, h)]
            marks = []
            for _ in range(2):  # the second call only runs
                start = time.perf_counter()
                gradient(*args).numpy()
                marks.append(time.perf_counter() - start)
            seconds[steps].append(marks[0] - marks[1])
            nodes[steps] = len(list(all_nodes(gradient.programs()[0].optimised)))
    found = {"compile": min(seconds[10_000]) / min(seconds[10]), "nodes": nodes[10_000] / nodes[10]}
    goals = {n: {"ratio": r, "limit": GOALS[n], "met": r <= GOALS[n]} for n, r in found.items()}
    return {"agree": True, "seconds_all": seconds, "nodes": nodes, "goals": goals}


def report(name: str, result: dict[str, Any]) -> str:
    """The table of one case."""
    if not result["agree"]:
        return f"{name}: gradients differ: {result['far']}"
    lines = [] if "seconds" in result else [name]
    if "seconds" in result:
        rows = []
        for side, t in result["seconds"].items():
            ratio = result["ratio"].get(side, {})
            mib = result["temporaries"][side] / 2**20
            rows.append([side, t["min"] * 1e3, t["median"] * 1e3, ratio.get("median", "-"), ratio.get("min", "-"), mib])
        lines.append(H.table([name, "min ms", "median ms", "to the last", "of minima", "temporary MiB"], rows))
    lines += [
        f"goal {n}: {g['ratio']:.3f} <= {g['limit']} {'met' if g['met'] else 'MISSED'}"
        for n, g in result["goals"].items()
    ]
    return "\n".join(lines)


def cases(rounds: int) -> dict[str, Callable[[], dict[str, Any]]]:
    """What is measured, by name."""
    found: dict[str, Callable[[], dict[str, Any]]] = {}
    for size, (rows, features) in SIZES.items():
        k = 20 if size == "small" else 2

        def full(rows: int = rows, features: int = features, k: int = k) -> dict[str, Any]:
            arrays = data(1000, rows, features)
            sides = [treadle_while(arrays, 1000), treadle_scan(arrays), jax_scan(arrays)]
            return measure(sides, "recurrent", k, rounds)

        def early(rows: int = rows, features: int = features, k: int = k) -> dict[str, Any]:
            arrays = data(1024, rows, features)
            return measure([treadle_while(arrays, 100), jax_scan(arrays, 100)], "stops early", k, rounds)

        found[f"1,000 steps, {size}"] = full
        found[f"100 of 1,024 steps, {size}"] = early
    found["10,000 steps beside 10"] = lambda: compiling(7)
    return found


def main() -> int:
    """0 if the gradients agree (with --strict: and every goal is met), else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=10, help="blocks per side")
    parser.add_argument("--strict", action="store_true", help="end with 1 when a goal is missed")
    args = parser.parse_args()
    os.environ.update(JAX_PLATFORMS="cpu", JAX_ENABLE_COMPILATION_CACHE="false", TREADLE_CACHE="0")
    load = H.load_average()
    if load is not None and load > 0.5:
        print(f"others are busy here (load {load}): ratios of minima may hold, medians may not")
    results: dict[str, Any] = {}
    for name, case in cases(args.rounds).items():
        results[name] = case()
        print(report(name, results[name]), end="\n\n", flush=True)
    path = H.save("loops", {"load_before": load, "cases": results})
    print(f"written to {path}")
    agree = all(r["agree"] for r in results.values())
    met = all(g["met"] for r in results.values() for g in r.get("goals", {}).values())
    return 0 if agree and (met or not args.strict) else 1


if __name__ == "__main__":
    sys.exit(main())
