"""`make gpu-check`: does Treadle work on the NVIDIA GPU of this machine? A line per part and a verdict.

Five minutes at most. Parts: the op samples (every op, its gradient too, against NumPy), the demo with few epochs, and
the training steps of an MLP and a small GPT beside JAX (and PyTorch where it can be imported). Their whole output goes
to runs/gpu_check.log. Ends with 0 when all parts pass, or when there is no GPU, which it says; with 1 when a part
fails, or when there is a GPU that jaxlib cannot use. Needs the extra `cuda`: pip install -e '.[all,cuda]'.
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[1]
LOG = ROOT / "runs" / "gpu_check.log"
PROBE_S = 30
PROBE = "import jax; print(*[d.device_kind for d in jax.devices('cuda')], sep=', ')"

# float32 in float32 on all sides: JAX, left alone, lets a GPU round the factors to TF32's ten bits.
CUDA = {"TREADLE_PLATFORM": "cuda", "JAX_PLATFORMS": "cuda,cpu", "JAX_DEFAULT_MATMUL_PRECISION": "highest",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # fmt: skip


@dataclass(frozen=True)
class Part:
    """A command with its own time limit. said: its result in a few words, from its output.

    partial: running out of time is no failure (each line of the output that stands is a result).
    """

    name: str
    command: Sequence[str]
    limit_s: float
    said: Callable[[str], str]
    partial: bool = False
    env: dict[str, str] = field(default_factory=lambda: dict(CUDA))


@dataclass(frozen=True)
class Outcome:
    """How a part ended; `line` is what is printed."""

    name: str
    passed: bool
    seconds: float
    said: str

    @property
    def line(self) -> str:
        return f"{self.name:<14} {'passed' if self.passed else 'FAILED':<7} {self.seconds:5.1f} s  {self.said}"


def tests_said(output: str) -> str:
    """Counts from the lines of `pytest -v`, which are there also when it was stopped."""
    counts = {word: len(re.findall(rf"\b{word}\b +\[", output)) for word in ("PASSED", "FAILED", "ERROR")}
    first = re.search(r"(\S+) (?:FAILED|ERROR) +\[", output)
    text = ", ".join(f"{n} {word.lower()}" for word, n in counts.items() if n or word == "PASSED")
    return text + (f", the first: {first[1]}" if first else "")


def demo_said(output: str) -> str:
    """The accuracy that the demo prints."""
    found = re.search(r"held-out accuracy \S+ %", output)
    return found[0] if found else "no accuracy printed"


def bench_said(output: str) -> str:
    """JAX's time / Treadle's by the goals' lines, in the order of the models."""
    models = re.findall(r"^(\S+) \S+ \S+ +min ms", output, re.M)
    ratios = re.findall(r"^goal step: (\S+)", output, re.M)
    return ", ".join(f"{m} {r} of JAX's speed" for m, r in zip(models, ratios)) or "nothing measured"


def parts() -> list[Part]:
    """What is checked, in order; the limits and the probe together stay under five minutes."""
    python = sys.executable
    tests = [python, "-u", "-m", "pytest", "-v", "-p", "no:cacheprovider", "-k", "back_end_agrees"]
    bench = [python, "bench/train_steps.py", "--models", "mlp,gpt", "--dtype", "f32", "--device", "gpu"]
    bench += ["--rounds", "5", "--seconds", "20", "--fresh", "0", "--peers", "jax"]
    env = dict(CUDA)
    if "BENCH_PEERS_PYTHON" not in os.environ and importlib.util.find_spec("torch") is not None:
        env["BENCH_PEERS_PYTHON"] = python
    return [
        Part("op samples", [*tests, "tests/ops/test_generated.py"], 130, tests_said, partial=True),
        Part("demo", [python, "examples/digits.py", "--epochs", "5"], 60, demo_said),
        Part("beside JAX", [*bench, "--no-compiled", "--name", "gpu_check"], 75, bench_said, env=env),
    ]


def run(part: Part, log: IO[str], cwd: Path = ROOT) -> Outcome:
    """Run a part; at its limit it is ended with all that it has started, and its output until then is kept."""
    start = time.perf_counter()
    environment = {**os.environ, **part.env}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    process = subprocess.Popen(
        part.command, cwd=cwd, env=environment, text=True, errors="replace", start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    late = False
    try:
        output, _ = process.communicate(timeout=part.limit_s)
    except subprocess.TimeoutExpired:
        late = True
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    log.write(f"== {part.name}: {' '.join(part.command)}\n{output}\n")
    said = part.said(output)
    failed = re.search(r"\b[1-9]\d* (failed|error)", said) is not None or said.startswith("0 passed")
    passed = not failed and (part.partial if late else process.returncode == 0)
    if late:
        said += f"; stopped at its limit of {part.limit_s:g} s"
    elif process.returncode:
        said += f"; ended with {process.returncode}: {last_line(output)}"
    return Outcome(part.name, passed, time.perf_counter() - start, said)


def last_line(output: str) -> str:
    """The last line that says anything."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no output"


def hardware() -> list[str]:
    """NVIDIA's device files: what a driver leaves where there is a GPU."""
    return sorted(str(p) for pattern in ("nvidia[0-9]*", "dxg") for p in Path("/dev").glob(pattern))


def jax_device() -> tuple[str, str]:
    """The kinds of JAX's CUDA devices, "" when it has none; and, then, why."""
    environment = {k: v for k, v in os.environ.items() if k != "JAX_PLATFORMS"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROBE], env=environment, capture_output=True, text=True, timeout=PROBE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return "", f"no answer in {PROBE_S} s"
    return (done.stdout.strip(), "") if done.returncode == 0 else ("", last_line(done.stderr))


def main() -> int:
    """See the module's text."""
    files = hardware()
    kinds, why = jax_device()
    if not kinds and not files:
        print(f"no GPU here: no device file /dev/nvidia0 (or /dev/dxg), and JAX has no CUDA device ({why})")
        return 0
    if not kinds:
        print(f"there is a GPU ({', '.join(files)}), but JAX has no CUDA device ({why}); pip install -e '.[all,cuda]'")
        return 1
    print(f"GPU: {kinds}", flush=True)
    outcomes = []
    LOG.parent.mkdir(parents=True, exist_ok=True)
    with LOG.open("w") as log:
        for part in parts():
            outcomes.append(run(part, log))
            print(outcomes[-1].line, flush=True)
    failed = [o.name for o in outcomes if not o.passed]
    print(f"Treadle on the GPU: {'failed: ' + ', '.join(failed) if failed else 'all parts passed'}; output in {LOG}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
