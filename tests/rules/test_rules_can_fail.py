"""Each rule, given a small tree with a planted breach, names the file and the line; given none, it is silent."""

import types

import pytest
from tests.rules import checks

OPS = {"add", "mul", "exp", "tanh"}


def tree(root, files):
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return root


def op_tables(root):
    return checks.op_tables(root, OPS)


# rule, file, text, the line of the breach or 0 where the text keeps the rule
CASES = [
    (checks.import_ranks, "ir/a.py", "import os\nfrom treadle.ops import add\n", 2),
    (checks.import_ranks, "ir/a.py", "from treadle import ops\n", 1),
    (checks.import_ranks, "ir/a.py", "from treadle import Tensor\n", 1),
    (checks.import_ranks, "ir/a.py", "import treadle.ops.elementwise\n", 1),
    (checks.import_ranks, "ir/a.py", "def f():\n    from ..lower import x\n", 2),
    (checks.import_ranks, "plan/a.py", "import treadle.lower.hlo\n", 1),
    (checks.import_ranks, "driver.py", "\nfrom treadle.api import x\n", 2),
    (checks.import_ranks, "optim/a.py", "from treadle.train import x\n", 1),
    (checks.import_ranks, "cli/a.py", "from treadle.export import x\n", 1),
    (checks.import_ranks, "odd/a.py", "x = 1\n", 1),
    (checks.import_ranks, "__init__.py", "from treadle.api import jit\n", 0),
    (checks.import_ranks, "ops/a.py", "from treadle.ir import node\nfrom . import b\nfrom ..base import c\n", 0),
    (checks.import_ranks, "train/a.py", "import numpy\nimport treadle.nn.cell\nfrom treadle import data, api\n", 0),
    (checks.import_ranks, "cli/a.py", "import treadle as td\n", 0),
    (checks.third_parties, "plan/a.py", "def f():\n    import jax\n", 2),
    (checks.third_parties, "nn/a.py", "from jaxlib.mlir import ir\n", 1),
    (checks.third_parties, "base/a.py", "import ml_dtypes\n", 1),
    (checks.third_parties, "base/a.py", "import requests\n", 1),
    (checks.third_parties, "__init__.py", "import rich\n", 1),
    (checks.third_parties, "base/a.py", "def f():\n    import ml_dtypes\nimport numpy.linalg, json\n", 0),
    (checks.third_parties, "base/a.py", "if TYPE_CHECKING:\n    import ml_dtypes\n", 0),
    (checks.third_parties, "lower/a.py", "from jaxlib.mlir import ir\n", 0),
    (checks.environment, "nn/a.py", "import os\nx = os.environ['A']\n", 2),
    (checks.environment, "nn/a.py", "import os\nx = os.getenv('A')\n", 2),
    (checks.environment, "nn/a.py", "from os import environ as e\n", 1),
    (checks.environment, "base/flags.py", "import os\nx = os.environ['A']\n", 0),
    (checks.sizes, "nn/a.py", "x = 1\n" * 601, 600),
    (checks.sizes, "nn/a.py", "x = 1\n" * 600, 0),
    (checks.sizes, "nn/a.py", "\ndef f():\n" + "    x = 1\n" * 60, 2),
    (checks.sizes, "nn/a.py", "\ndef f():\n" + "    x = 1\n" * 59, 0),
    (checks.sizes, "nn/a.py", "".join(f"x{i} = 1\n" for i in range(61)), 1),
    (checks.sizes, "nn/a.py", "".join(f"x{i} = 1\n" for i in range(60)), 0),
    (op_tables, "nn/a.py", "x = 1\ny = {'add': 1, 'mul': 2, 'exp': 3}\n", 2),
    (op_tables, "nn/a.py", "y = {ops.add: 1, ops.mul: 2, tanh: 3}\n", 1),
    (op_tables, "nn/a.py", "y = dict(add=1, mul=2, exp=3)\n", 1),
    (op_tables, "nn/a.py", "y = x in ('add', 'mul', 'exp')\n", 1),
    (op_tables, "nn/a.py", "y = [('add', 1), ('mul', 2), ('exp', 3)]\n", 1),
    (op_tables, "nn/a.py", "y = {'add', 'mul', 'exp', 'other'}\n", 1),
    (op_tables, "nn/a.py", "match x:\n    case 'add' | 'mul': y = 1\n    case 'exp': y = 2\n", 1),
    (op_tables, "nn/a.py", "def f(x):\n    if x == 'add': return 1\n    if x == 'mul' or 'exp' == x: return 2\n", 1),
    (op_tables, "nn/a.py", "y = {'add': 1, 'mul': 2, 'other': 3}\nz = exp(add(1, mul(2, tanh(3))))\n", 0),
    (op_tables, "nn/a.py", "__all__ = ['add', 'mul', 'exp']\n", 0),
    (op_tables, "ops/a.py", "y = {'add': 1, 'mul': 2, 'exp': 3}\n", 0),
    (checks.unfinished, "nn/a.py", "x = 1\n# TO" "DO later\n", 2),
    (checks.unfinished, "nn/a.py", "def f():\n    raise NotImplemented" "Error\n", 2),
    (checks.unfinished, "nn/a.py", "try:\n    x = 1\nexcept Exception:\n    pass\n", 3),
    (checks.unfinished, "nn/a.py", "def __eq__(s, o):\n    return NotImplemented\n", 0),
    (checks.ascii_only, "nn/a.py", "x = 1\n# na\u00efve\n", 2),
    (checks.machine_paths, "nn/a.py", "x = 1\ny = '/ho" "me/me/x'\n", 2),
    (checks.machine_paths, "nn/a.py", "y = 'https://py" "pi.org/simple'\n", 1),
    (checks.machine_paths, "nn/a.py", "y = a/home/b + './work/x'\n", 0),
]


@pytest.mark.parametrize(("rule", "name", "text", "line"), CASES)
def test_rule_on_a_toy_tree(tmp_path, rule, name, text, line):
    tree(tmp_path, {"src/treadle/base/good.py": "import numpy\n", f"src/treadle/{name}": text})
    found = rule(tmp_path)
    if line:
        assert len(found) == 1
        assert found[0].startswith(f"src/treadle/{name}:{line}: ")
    else:
        assert found == []


def test_every_rule_has_a_case_of_each_kind():
    functions = [f for f in vars(checks).values() if isinstance(f, types.FunctionType)]
    rules = {f for f in functions if "root" in f.__annotations__ and f.__annotations__["return"] == list[str]}
    rules.remove(checks.op_tables)
    for rule in (*rules, op_tables):
        assert any(case[0] is rule and case[3] for case in CASES), f"{rule.__name__} has no planted breach"


def test_exceptions_cover_what_they_name_and_must_be_needed(tmp_path):
    long = "def f():\n" + "    x = 1\n" * 601
    tree(tmp_path, {"src/treadle/nn/a.py": long, "src/treadle/nn/b.py": long})
    found = checks.sizes(tmp_path)
    a, b = "src/treadle/nn/a.py", "src/treadle/nn/b.py"
    assert len(found) == 4
    assert checks.judge(found, [a]) == found[2:]
    assert checks.judge(found, [f"{a}:f", b]) == found[:1]
    assert checks.judge(found, [a, b, f"{a}:g"]) == [f"{a}:g keeps the rule now: take it off the list"]


def test_code_outside_the_package_is_read_too(tmp_path):
    tree(tmp_path, dict.fromkeys(["tests/a.py", "Makefile", "tests/__pycache__/a.py"], "# \u00e4\n"))
    tree(tmp_path, dict.fromkeys(["docs/a.md", ".venv/a.py"], "/ro" "ot/x\n"))
    assert [b.split(": ")[0] for b in checks.ascii_only(tmp_path)] == ["tests/a.py:1", "Makefile:1"]
    assert [b.split(": ")[0] for b in checks.machine_paths(tmp_path)] == ["docs/a.md:1"]
