"""`import treadle` loads numpy and the standard library, nothing else."""

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
before = set(sys.modules)
import treadle
loaded = {name.split(".")[0] for name in set(sys.modules) - before}
print(*sorted(loaded - set(sys.stdlib_module_names) - {"numpy", "treadle"}))
"""


def third_parties_loaded(src: Path) -> list[str]:
    """Top-level modules beside numpy and the standard library that a fresh process has after `import treadle`."""
    command = [sys.executable, "-c", SCRIPT, str(src)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_import_loads_only_numpy():
    assert third_parties_loaded(Path(__file__).resolve().parents[2] / "src") == []


def test_the_check_can_fail(tmp_path):
    (tmp_path / "treadle").mkdir()
    (tmp_path / "treadle" / "__init__.py").write_text("import json, numpy\nfrom treadle import late\n")
    (tmp_path / "treadle" / "late.py").write_text("import thirdparty.deep\n")
    (tmp_path / "thirdparty").mkdir()
    (tmp_path / "thirdparty" / "deep.py").write_text("")
    assert third_parties_loaded(tmp_path) == ["thirdparty"]
