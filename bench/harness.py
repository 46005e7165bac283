"""Measuring ratios: sides that take turns, blocks of k steps, correctness before speed, JSON and a table after it.

A side is one framework running one job (a training step, an inference): `Local` in this process or `Remote` in a worker
process of another Python. `interleave` gives block times per side; `compare` checks losses; `speedups` gives the ratios
peer / ours; `save` and `merge` write bench/results/<name>.json. Only numpy and the standard library are loaded here; a
side's own module loads its framework.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import weights as W

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "results"
SETTLE_S = 0.03  # the last side's idle threads spin for some milliseconds; let them go to sleep

# side -> (module, config options, environment: "" is this one)
SIDES: dict[str, tuple[str, dict[str, Any], str]] = {
    "treadle": ("treadle_models", {}, ""),
    "jax": ("jax_models", {}, ""),
    "jax_nhwc": ("jax_models", {"layout": "NHWC"}, ""),
    "torch": ("torch_models", {}, "peers"),
    "torch_nhwc": ("torch_models", {"channels_last": True}, "peers"),
    "torch_compiled": ("torch_models", {"compiled": True}, "peers"),
    "mindspore": ("mindspore_models", {}, "mindspore"),
    "onnxruntime": ("onnxruntime_models", {}, "onnxruntime"),
    "openvino": ("openvino_models", {}, "openvino"),
}
F32_ONLY = ("mindspore", "onnxruntime")
# environment -> (variable with its Python, folder that `make bench-peers` makes)
ENVIRONMENTS = {
    "peers": ("BENCH_PEERS_PYTHON", ".venv-peers"),
    "mindspore": ("BENCH_MINDSPORE_PYTHON", ".venv-peers-mindspore"),
    "onnxruntime": ("BENCH_ONNXRUNTIME_PYTHON", ".venv-peers-onnxruntime"),
    "openvino": ("BENCH_OPENVINO_PYTHON", ".venv-peers-openvino"),
}
# Every library that keeps threads of its own reads one of these when it is loaded.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BENCH_THREADS")


class Local:
    """One training step on one side in this process."""

    def __init__(self, side: str, model: str, changes: dict[str, Any] | None = None):
        module, options, _ = SIDES[side]
        self.side, self.module = side, importlib.import_module(module)
        self.cfg = {**W.config(model, **(changes or {})), **options}
        self.state, self.step = self.module.make(model, self.cfg)
        self.batch = self.module.put(model, self.cfg, W.batch(model, self.cfg))

    def losses(self, n: int) -> list[float]:
        """The losses of the next n steps."""
        out = []
        for _ in range(n):
            self.state, loss = self.step(self.state, self.batch)
            out.append(float(np.asarray(loss)))
        return out

    def gradients(self, path: str) -> int:
        """Write the gradients of the first step, the only one so far, to an .npz file; how many there are."""
        found = self.module.gradients(self.state, self.cfg)
        np.savez(path, **found)
        return len(found)

    def block(self, k: int) -> float:
        """Seconds per step of k steps in a row, after one untimed step that fills the caches again."""
        self.state, loss = self.step(self.state, self.batch)
        self.module.wait((self.state, loss))
        start = time.perf_counter()
        for _ in range(k):
            self.state, loss = self.step(self.state, self.batch)
        self.module.wait((self.state, loss))
        return (time.perf_counter() - start) / k

    def versions(self) -> dict[str, str]:
        """Versions of the framework and its device."""
        return dict(self.module.versions())

    def close(self) -> None:
        """Let go of the state."""
        self.state = self.batch = self.step = None


class LocalInference(Local):
    """One inference on one side in this process; `changes` may hold `onnx`, the file that some sides read."""

    def __init__(self, side: str, model: str, changes: dict[str, Any] | None = None):
        module, options, _ = SIDES[side]
        changes = dict(changes or {})
        self.side, self.module, more = side, importlib.import_module(module), {"onnx": changes.pop("onnx", "")}
        self.cfg = {**W.config(model, **changes), **options, **more}
        self.run = self.module.inference(model, self.cfg)
        self.inputs = self.module.put(model, self.cfg, W.inputs(model, self.cfg))

    def output(self, path: str) -> list[int]:
        """Write the result to an .npy file; its shape."""
        result = np.asarray(self.run(*self.inputs), np.float32)
        np.save(path, result)
        return list(result.shape)

    def block(self, k: int) -> float:
        """Seconds per call of k calls, each waited for, after one untimed."""
        self.module.wait(self.run(*self.inputs))
        start = time.perf_counter()
        for _ in range(k):
            self.module.wait(self.run(*self.inputs))
        return (time.perf_counter() - start) / k

    def close(self) -> None:
        """Let go of the model."""
        self.run = self.inputs = None


JOBS: dict[str, Any] = {"train": Local, "inference": LocalInference}


class Remote:
    """The same in a worker process: one JSON line asks, one answers. Raises RuntimeError when the worker fails."""

    def __init__(self, side: str, model: str, changes: dict[str, Any] | None = None, job: str = "train"):
        self.side = side
        command = [str(python_of(side)), str(HERE / "worker.py"), side, model, json.dumps(changes or {}), job]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker of {self.side} stopped with code {self.process.wait()}: see its message")
        return json.loads(line)

    def _ask(self, name: str, *args: Any) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([name, *args]) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def losses(self, n: int) -> list[float]:
        """The losses of the next n steps."""
        return list(self._ask("losses", n))

    def gradients(self, path: str) -> int:
        """Have the gradients of the first step written to an .npz file; how many there are."""
        return int(self._ask("gradients", path))

    def output(self, path: str) -> list[int]:
        """Have the result of an inference written to an .npy file; its shape."""
        return list(self._ask("output", path))

    def block(self, k: int) -> float:
        """Seconds per step of a block, timed inside the worker."""
        return float(self._ask("block", k))

    def versions(self) -> dict[str, str]:
        """Versions of the framework and its device."""
        return dict(self._ask("versions"))

    def close(self) -> None:
        """End the worker."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)
        assert self.process.stdout is not None
        self.process.stdout.close()


def environment(name: str) -> Path | None:
    """The Python of one of the ENVIRONMENTS (its variable, else its folder here), or None when there is none."""
    variable, folder = ENVIRONMENTS[name]
    path = Path(os.environ.get(variable) or ROOT / folder / "bin" / "python")
    return path if path.exists() else None


def peers_python() -> Path | None:
    """The Python of the environment with PyTorch and JAX, or None when there is none."""
    return environment("peers")


def python_of(side: str) -> Path:
    """The Python that runs a side. Raises RuntimeError when its environment is missing."""
    name = SIDES[side][2]
    if not name:
        return Path(sys.executable)
    path = environment(name)
    if path is None:
        raise RuntimeError(f"{side} needs an environment: run `make bench-peers` or set {ENVIRONMENTS[name][0]}")
    return path


def available(side: str) -> bool:
    """Whether the environment of a side is there."""
    return not SIDES[side][2] or environment(SIDES[side][2]) is not None


def use_threads(n: int) -> None:
    """Let this process, and the workers that it starts, use n cores and n threads; before any framework is loaded.

    XLA counts the cores that it may use; the others read THREAD_VARIABLES.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-n:])  # the last: interrupts prefer the first
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(n)))


def open_side(
    name: str, model: str, changes: dict[str, Any] | None = None, job: str = "train"
) -> Local | LocalInference | Remote:
    """One side, in this process or in a worker. Raises RuntimeError for a precision that the side lacks."""
    if name in F32_ONLY and (changes or {}).get("precision", "f32") != "f32":
        raise RuntimeError(f"{name} computes these models on a CPU in float32 only")
    return Remote(name, model, changes, job) if SIDES[name][2] else JOBS[job](name, model, changes)


def calibrate(sides: Sequence[Any], seconds: float, budget: float, rounds: int) -> tuple[int, int]:
    """(k, rounds): blocks of about `seconds` of the median side, at most `rounds` of them, at least 3, in `budget`."""
    times = [side.block(1) for side in sides]
    k = max(1, round(seconds / statistics.median(times)))
    return k, max(3, min(rounds, int(budget / (sum(times) * (k + 1)))))


def interleave(sides: Sequence[Any], k: int, rounds: int) -> dict[str, list[float]]:
    """Seconds per step of every block: in each round every side runs k steps; the order turns by one each round."""
    times: dict[str, list[float]] = {side.side: [] for side in sides}
    for round_ in range(rounds):
        shift = round_ % len(sides)
        for side in [*sides[shift:], *sides[:shift]]:
            time.sleep(SETTLE_S)
            times[side.side].append(side.block(k))
    return times


def compare(losses: dict[str, list[float]], reference: str, rtol: float) -> dict[str, Any]:
    """Whether every side's losses equal the reference's to rtol, relative; with the largest difference of each."""
    want = np.array(losses[reference])
    far = {side: float(np.max(np.abs(np.array(got) - want) / np.abs(want))) for side, got in losses.items()}
    # written so that a NaN, which compares false, fails
    return {
        "reference": reference,
        "rtol": rtol,
        "losses": losses,
        "largest_relative_difference": far,
        "agree": all(value <= rtol for value in far.values()),
    }


def ratio(times: dict[str, list[float]], ours: str, peer: str) -> dict[str, float]:
    """ours / peer by median, by minimum, and the median of the ratios of each round."""
    a, b = times[ours], times[peer]
    return {
        "median": statistics.median(a) / statistics.median(b),
        "min": min(a) / min(b),
        "median_of_rounds": statistics.median(x / y for x, y in zip(a, b)),
    }


def speedups(times: dict[str, list[float]], ours: str) -> dict[str, dict[str, float]]:
    """Of every other side: its time / ours, above 1 where ours is faster; `median`: of the ratios of each round."""
    out = {}
    for peer, b in times.items():
        if peer != ours:
            a = times[ours]
            out[peer] = {"median": statistics.median(y / x for x, y in zip(a, b)), "min": min(b) / min(a)}
    return out


def best_peer(ratios: dict[str, dict[str, float]]) -> str | None:
    """The peer with the smallest ratio: the one to beat."""
    return min(ratios, key=lambda peer: ratios[peer]["median"]) if ratios else None


def fresh(side: str, model: str, changes: dict[str, Any] | None = None, cache: str | None = None) -> dict[str, Any]:
    """Compile seconds and peak memory of a new process (worker.py `fresh`). Raises RuntimeError when it fails.

    cache: a folder where compiled programs are kept, for a warm start; None: nothing comes from the disk.
    """
    command = [str(python_of(side)), str(HERE / "worker.py"), side, model, json.dumps(changes or {}), "fresh"]
    env = dict(os.environ)
    if cache is not None:
        env.update(BENCH_CACHE=cache, TREADLE_CACHE="1", TREADLE_CACHE_DIR=cache, JAX_ENABLE_COMPILATION_CACHE="true")
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=env)
    if done.returncode:
        raise RuntimeError(f"a fresh process for {model} on {side} ended with code {done.returncode}: see its message")
    return dict(json.loads(done.stdout))


def machine() -> dict[str, Any]:
    """The processor's name, cores this process may use, memory in GiB, system."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": model,
        "cores": cores,
        "memory_gib": round(memory, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def load_average() -> float | None:
    """Processes that wanted a core in the last minute: before a bench starts, whether others were busy."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def save(name: str, result: dict[str, Any]) -> Path:
    """Write bench/results/<name>.json with the machine and the date."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    stamp = {"name": name, "date": time.strftime("%Y-%m-%d"), "machine": machine()}
    path.write_text(json.dumps({**stamp, **result}, indent=1) + "\n")
    return path


def merge(name: str, entries: dict[str, Any], about: Callable[[dict[str, Any]], dict[str, Any]] = lambda _: {}) -> Path:
    """Write bench/results/<name>.json with these entries, each dated, among those that were there. about: what else
    the file says, of all of them.

    Entries of another processor are thrown away: one file, one machine.
    """
    path = RESULTS / f"{name}.json"
    kept: dict[str, Any] = {}
    if path.exists():
        old = json.loads(path.read_text())
        if old["machine"]["cpu"] == machine()["cpu"]:
            kept = old.get("entries", {})
    whole = {**kept, **{n: {"date": time.strftime("%Y-%m-%d"), **e} for n, e in entries.items()}}
    return save(name, {**about(whole), "entries": whole})


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Columns wide enough for their text; numbers with three digits that count."""
    cells = [list(head), *[[f"{c:.3g}" if isinstance(c, float) else str(c) for c in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    pad = [str.ljust] + [str.rjust] * (len(head) - 1)
    lines = ["  ".join(side(c, w) for side, c, w in zip(pad, row, widths)) for row in cells]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])
