"""Measuring ratios: sides that take turns, blocks of k steps, correctness before speed, JSON and a table after it.

A side is one framework running one model: `Local` in this process or `Remote` in a worker process of another Python.
`interleave` gives block times per side; `compare` checks losses; `save` writes bench/results/<name>.json.
Only numpy and the standard library are loaded here; a side's own module loads its framework.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import weights as W

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "results"
SETTLE_S = 0.03  # the last side's idle threads spin for some milliseconds; let them go to sleep

# side -> (module, config options, lives in the peers' environment)
SIDES: dict[str, tuple[str, dict[str, Any], bool]] = {
    "treadle": ("treadle_models", {}, False),
    "jax": ("jax_models", {}, False),
    "jax_nhwc": ("jax_models", {"layout": "NHWC"}, False),
    "torch": ("torch_models", {}, True),
    "torch_compiled": ("torch_models", {"compiled": True}, True),
}


class Local:
    """One model on one side in this process."""

    def __init__(self, side: str, model: str, changes: dict[str, Any] | None = None):
        module, options, _ = SIDES[side]
        self.side, self.module = side, importlib.import_module(module)
        cfg = {**W.config(model, **(changes or {})), **options}
        self.state, self.step = self.module.make(model, cfg)
        self.batch = self.module.put(model, cfg, W.batch(model, cfg))

    def losses(self, n: int) -> list[float]:
        """The losses of the next n steps."""
        out = []
        for _ in range(n):
            self.state, loss = self.step(self.state, self.batch)
            out.append(float(np.asarray(loss)))
        return out

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
        self.state = self.batch = None


class Remote:
    """The same in a worker process: one JSON line asks, one answers. Raises RuntimeError when the worker fails."""

    def __init__(self, side: str, model: str, changes: dict[str, Any] | None = None):
        self.side = side
        command = [str(python_of(side)), str(HERE / "worker.py"), side, model, json.dumps(changes or {})]
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


def peers_python() -> Path | None:
    """The Python of the peers' environment (BENCH_PEERS_PYTHON or .venv-peers), or None when there is none."""
    path = Path(os.environ.get("BENCH_PEERS_PYTHON") or ROOT / ".venv-peers" / "bin" / "python")
    return path if path.exists() else None


def python_of(side: str) -> Path:
    """The Python that runs a side. Raises RuntimeError when the peers' environment is missing."""
    if not SIDES[side][2]:
        return Path(sys.executable)
    path = peers_python()
    if path is None:
        raise RuntimeError(f"{side} needs the peers' environment: run `make bench-peers` or set BENCH_PEERS_PYTHON")
    return path


@contextlib.contextmanager
def opened(names: Sequence[str], model: str, changes: dict[str, Any] | None = None) -> Iterator[list[Local | Remote]]:
    """The sides of one model, closed at the end."""
    with contextlib.ExitStack() as stack:
        sides: list[Local | Remote] = []
        for name in names:
            side = (Remote if SIDES[name][2] else Local)(name, model, changes)
            stack.callback(side.close)
            sides.append(side)
        yield sides


def interleave(sides: Sequence[Local | Remote], k: int, rounds: int) -> dict[str, list[float]]:
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


def fresh(side: str, model: str, changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """Compile seconds and peak memory of a new process (worker.py `fresh`). Raises RuntimeError when it fails."""
    command = [str(python_of(side)), str(HERE / "worker.py"), side, model, json.dumps(changes or {}), "fresh"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
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


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Columns wide enough for their text; numbers with three digits that count."""
    cells = [list(head), *[[f"{c:.3g}" if isinstance(c, float) else str(c) for c in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    pad = [str.ljust] + [str.rjust] * (len(head) - 1)
    lines = ["  ".join(side(c, w) for side, c, w in zip(pad, row, widths)) for row in cells]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])
