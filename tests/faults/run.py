"""Does the suite notice mistakes? Each fault of `FAULTS` is planted in a copy of the package, and its tests run there.

`python -m tests.faults.run [--jobs N] [--quick] [WORD ...]` (words choose faults by name) says for each fault whether
it was caught. Exit code 0: all caught; 1: some missed (a hole in the suite: add a test); 2: the list is stale, or the
tests fail without any fault.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.faults.faults import FAULTS
from tests.faults.kinds import Fault

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "treadle"
_FAILED, _SECONDS = 1, 600  # pytest's exit code for "tests failed"; longest time of one fault
_CRASHES = (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS)  # what a kernel that writes elsewhere makes of pytest


def stale() -> list[str]:
    """Faults whose text does not stand exactly once in the package, and names that are there twice."""
    names = [f.name for f in FAULTS]
    found = [f"{name}: there twice" for name in sorted({n for n in names if names.count(n) > 1})]
    for fault in FAULTS:
        count = (PACKAGE / fault.file).read_text().count(fault.before)
        if count != 1:
            found.append(f"{fault.name}: its text is {count} times in {fault.file}")
    return found


def plant(fault: Fault, source: Path) -> None:
    """Put the fault into the copy of src/ at `source`."""
    path = source / "treadle" / fault.file
    path.write_text(path.read_text().replace(fault.before, fault.after))


def run_tests(source: Path, tests: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run pytest on the package at `source`, compiled programs kept in a folder of this run."""
    settings = {"PYTHONPATH": str(source), "TREADLE_CACHE_DIR": str(folder / "cache"), "TMPDIR": str(folder)}
    environment = {**os.environ, **settings}
    options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow and not device"]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    try:
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, -1, f"no end after {_SECONDS} s", "")


def check(fault: Fault, base: Path, folder: Path) -> tuple[Fault, str, float]:
    """(the fault, "caught", "missed" or what went wrong, seconds)."""
    start = time.perf_counter()
    source = Path(tempfile.mkdtemp(prefix="fault-", dir=folder)) / "src"
    shutil.copytree(base, source)
    plant(fault, source)
    done = run_tests(source, fault.tests, folder)
    shutil.rmtree(source.parent)
    tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
    verdict = f"pytest ended with {done.returncode}:\n{tail}"
    if done.returncode == 0:
        verdict = "missed"
    failed = done.returncode == _FAILED and re.search(r"^\d+ failed", done.stdout, re.MULTILINE)  # not: "1 error"
    if failed or done.returncode in _CRASHES:
        verdict = "caught"
    return fault, verdict, time.perf_counter() - start


def run(faults: Sequence[Fault], jobs: int, say: bool = True) -> dict[str, str]:
    """The verdict on each fault by name. Raises AssertionError when the tests fail without a fault."""
    with tempfile.TemporaryDirectory(prefix="treadle-faults-") as name:
        folder = Path(name)
        (folder / "cache").mkdir(mode=0o700)
        base = folder / "src"
        shutil.copytree(ROOT / "src", base, ignore=shutil.ignore_patterns("*.egg-info"))
        start = time.perf_counter()
        done = run_tests(base, sorted({t for f in faults for t in f.tests}), folder)
        assert done.returncode == 0, f"the tests fail without a fault\n{done.stdout[-3000:]}{done.stderr[-1000:]}"
        if say:
            print(f"without a fault: {done.stdout.strip().splitlines()[-1]}", flush=True)
        verdicts = {}
        with ThreadPoolExecutor(jobs) as pool:
            for fault, verdict, seconds in pool.map(lambda f: check(f, base, folder), faults):
                verdicts[fault.name] = verdict
                if say:
                    print(f"{verdict.splitlines()[0]:8} {seconds:5.1f} s  {fault.name}", flush=True)
        if say:
            caught = sum(v == "caught" for v in verdicts.values())
            print(f"{caught} of {len(verdicts)} faults caught in {time.perf_counter() - start:.0f} s")
    return verdicts


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1))
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(arguments)
    if old := stale():
        print("the list is stale:", *old, sep="\n")
        return 2
    chosen = [f for f in FAULTS if (f.quick or not options.quick) and all(w in f.name for w in options.words)]
    if not chosen:
        print("no fault has all of these words in its name")
        return 2
    verdicts = run(chosen, options.jobs)
    for name, verdict in verdicts.items():
        if verdict not in ("caught", "missed"):
            print(f"--- {name}: {verdict}")
    if any(v not in ("caught", "missed") for v in verdicts.values()):
        return 2
    return int("missed" in verdicts.values())


if __name__ == "__main__":
    sys.exit(main())
