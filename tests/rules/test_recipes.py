"""The recipes of CONTRIBUTING.md work: followed to the letter in a copy, an op takes one file, a pass one and its
test."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.rules.pages import blocks

ROOT = Path(__file__).resolve().parents[2]
RECIPES = blocks((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))


@pytest.fixture
def copy(tmp_path):
    """A copy of the sources and tests."""
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "golden"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def run_tests(copy: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(copy / "src")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=300)
    return done.stdout if done.returncode else f"passed\n{done.stdout}"


def test_an_op_takes_one_file(copy):
    (recipe,) = [b.text for b in RECIPES if "@op(" in b.text]
    imports, declaration = recipe.split("\n\n\n", 1)
    family = copy / "src" / "treadle" / "ops" / "activation.py"
    family.write_text(f"{family.read_text()}\n\n{declaration}\n")
    for line in filter(None, imports.splitlines()):
        assert line.partition("import ")[0] in family.read_text(), f"not imported there yet: {line}"
    result = run_tests(copy, "tests/ops", "-k", "squash")
    assert result.startswith("passed"), result
    family.write_text(family.read_text().replace("scale * scale", "scale"))
    assert "FAILED" in run_tests(copy, "tests/ops", "-k", "squash and differences")


def test_a_pass_takes_one_file_and_its_test(copy):
    files = {b.kind.removeprefix("python "): b.text for b in RECIPES if b.kind.startswith("python ")}
    source = copy / "src" / "treadle" / "transforms" / "double.py"
    source.write_text(files["double.py"] + "\n")
    (copy / "tests" / "transforms" / "test_double.py").write_text(files["test_double.py"] + "\n")
    result = run_tests(copy, "tests/transforms/test_double.py", "tests/transforms/test_pipeline.py")
    assert result.startswith("passed"), result
    source.write_text(source.read_text().replace("add(x, x)", "add(x, two)"))
    assert "FAILED" in run_tests(copy, "tests/transforms/test_double.py")
