"""How long `import treadle` takes beside `import numpy`: fresh processes in turns, medians, one JSON file.

Run: `python bench/import_time.py [--runs 10]`; it writes bench/results/import_time.json.
Each process times its own import statement, so the start of the interpreter is left out.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "bench" / "results" / "import_time.json"
LIMIT_S = 0.15
SCRIPT = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"


def import_s(module: str) -> float:
    """Seconds that one fresh process spends in `import module`."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", SCRIPT.format(module)]
    return float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    runs = parser.parse_args().runs
    times: dict[str, list[float]] = {"treadle": [], "numpy": []}
    for module in times:
        import_s(module)  # writes the byte code and fills the file cache
    for _ in range(runs):
        for module, seconds in times.items():
            seconds.append(import_s(module))
    median = {module: statistics.median(seconds) for module, seconds in times.items()}
    result = {
        "what": "median seconds of the import statement in a fresh process",
        "runs": runs,
        "treadle_s": median["treadle"],
        "numpy_s": median["numpy"],
        "treadle_over_numpy": median["treadle"] / median["numpy"],
        "limit_s": LIMIT_S,
        "under_limit": median["treadle"] < LIMIT_S,
        "all_s": times,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(f"import treadle {median['treadle']:.3f} s, numpy {median['numpy']:.3f} s; limit {LIMIT_S} s")


if __name__ == "__main__":
    main()
