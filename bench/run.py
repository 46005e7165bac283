"""`make bench`: runs the benches that are in this folder, one process each; ends with the worst of their codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
BENCHES = (
    ("import_time.py",),
    ("frontend_size.py",),
    ("train_steps.py", "--threads", ",1"),  # with all cores, then with one
    ("inference.py", "--threads", ",1"),
    ("op_sweeps.py", "--threads", ",1"),
    ("eager_ops.py",),
    ("loops.py",),
    ("depth.py",),
)


def main() -> int:
    """0 if every bench ended with 0."""
    worst = 0
    for name, *options in BENCHES:
        if not (HERE / name).exists():
            print(f"== {name}: not there, left out", flush=True)
            continue
        print(f"== {name}", flush=True)
        worst = max(worst, abs(subprocess.run([sys.executable, str(HERE / name), *options], check=False).returncode))
    return worst


if __name__ == "__main__":
    sys.exit(main())
