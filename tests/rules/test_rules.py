"""The code keeps the rules of checks.py. Exceptions are listed here, each with its reason."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.rules import checks

ROOT = Path(__file__).resolve().parents[2]

# "file" or "file:function" -> why it is larger than the rule allows.
LARGE: dict[str, str] = {}
# "file" -> why it lists ops by name though it is not in ops/.
TABLES: dict[str, str] = {
    "src/treadle/formula/affine.py": "sums, divisions and comparisons of index variables are what it is about",
    "src/treadle/formula/simplify.py": "an identity of arithmetic is about several ops; each stands with its proof",
    "src/treadle/nn/init.py": "gains of initial weights by the name of the function that follows, PyTorch's interface",
    "src/treadle/transforms/_blocks.py": "control goes through `if`, `while`, `remat` and `call` each in its own way",
}


def keep(found: list[str]) -> None:
    if found:
        pytest.fail("\n".join(found), pytrace=False)


@pytest.mark.parametrize(
    "rule",
    [
        checks.import_ranks,
        checks.third_parties,
        checks.environment,
        checks.unfinished,
        checks.ascii_only,
        checks.machine_paths,
    ],
    ids=lambda rule: rule.__name__,
)
def test_rule(rule):
    keep(rule(ROOT))


def test_sizes():
    keep(checks.judge(checks.sizes(ROOT), LARGE))


def test_no_table_of_ops_outside_ops():
    script = "import treadle.ops; from treadle.ir.op import OPS; print(*OPS)"
    ops = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert len(ops) > 20
    keep(checks.judge(checks.op_tables(ROOT, ops), TABLES))
