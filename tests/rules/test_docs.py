"""The documents are true: what they show runs and prints that, generated pages are current, links lead somewhere."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.rules import pages
from tests.rules.checks import say

import treadle.ops  # noqa: F401 (the ops that IR text names)
from treadle.ir.parser import parse_module
from treadle.ir.printer import print_module
from treadle.ir.verify import verify

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def can_run(page: Path) -> bool:
    return pages.has_program(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", [p for p in PAGES if can_run(p)], ids=lambda p: p.name)
def test_page_is_true(page, tmp_path):
    found = pages.check_page(page, tmp_path)
    if found:
        pytest.fail("\n\n".join(found), pytrace=False)


def test_what_is_not_true_is_found(tmp_path):
    page, folder = tmp_path / "page.md", tmp_path / "run"
    folder.mkdir()
    page.write_text("text\n```python\nx = 1\n```\n```sh\nfalse\n```\n```python\nassert x == 2, 'seen'\n```\n")
    (found,) = pages.check_page(page, folder)
    assert 'page.md.py", line 9' in found
    assert "seen" in found
    more = "```python\nprint('3 s')\n```\n```text\n... s\n```\n"
    page.write_text("```python\nprint('one')\n```\nprints\n```text\ntwo\n```\n" + more)
    (found,) = pages.check_page(page, folder)
    assert found.startswith("page.md:6: ")
    assert "+one" in found
    page.write_text("```python a.py\nprint('one')\n```\n```console\n$ python a.py\none\n$ python a.py\ntwo\n```\n")
    (found,) = pages.check_page(page, folder)
    assert found.startswith("page.md:7: python a.py")


def dead_links(root: Path, pages: list[Path]) -> list[str]:
    """Relative links to files that are not there; code is not text."""
    found = []
    for page in pages:
        code = False
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            code ^= line.startswith("```")
            for target in [] if code else re.findall(r"\]\(([^)#\s]+)", line):
                if "://" not in target and not (page.parent / target).exists():
                    found.append(say(root, page, number, f"{target} is not there"))
    return found


def test_links():
    assert dead_links(ROOT, PAGES) == []


def test_a_dead_link_is_found(tmp_path):
    text = "[self](a.md#x) [web](https://example.com)\n[no](b.md)\n```python\nx[0](y)\n```\n"
    (tmp_path / "a.md").write_text(text)
    assert dead_links(tmp_path, [tmp_path / "a.md"]) == ["a.md:2: b.md is not there"]


def stale(name: str, table: str, page: str) -> list[str]:
    """Lines in which a page differs from the text that is generated for it."""
    here, there = page.splitlines(), table.splitlines()
    lines = range(max(len(here), len(there)))
    return [f"docs/{name}:{i + 1}: run `make docs`" for i in lines if here[i : i + 1] != there[i : i + 1]]


def generated(source: str) -> str:
    """What a module, or a script given by its path, prints."""
    what = [str(ROOT / source)] if source.endswith(".py") else ["-m", source]
    command = [sys.executable, "-W", "error", *what]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    "name, module",
    [("flags.md", "treadle.base.flags"), ("ops.md", "treadle.ops._document"), ("bench.md", "bench/page.py")],
)
def test_generated_page_is_current(name, module):
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    found = stale(name, generated(module), page)
    if found:
        pytest.fail("\n".join(found[:10]), pytrace=False)
    assert module in (ROOT / "Makefile").read_text(), "`make docs` does not write it"


def test_a_stale_page_is_found():
    assert stale("a.md", "a\nb\n", "a\n") == ["docs/a.md:2: run `make docs`"]
    assert stale("a.md", "a\n", "b\n") == ["docs/a.md:1: run `make docs`"]


def raised_codes(root: Path) -> set[str]:
    """The codes of the user errors that the package can raise: every E0... constant but those that samples expect."""
    found = set()
    for file in sorted((root / "src").rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
        expected = {id(k.value) for call in calls for k in call.keywords if k.arg == "bad"}
        constants = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and id(n) not in expected]
        found |= {n.value for n in constants if isinstance(n.value, str) and re.fullmatch(r"E0\d{3}", n.value)}
    return found


def documented_codes(page: str) -> list[str]:
    """The codes in the first column of the tables."""
    return re.findall(r"^\| (E0\d{3}) \|", page, re.MULTILINE)


def test_errors_are_documented():
    codes = documented_codes((ROOT / "docs" / "errors.md").read_text(encoding="utf-8"))
    raised = raised_codes(ROOT)
    assert sorted(raised - set(codes)) == [], "docs/errors.md lacks codes"
    assert sorted(set(codes) - raised) == [], "docs/errors.md has codes that nothing raises"
    assert codes == sorted(set(codes)), "docs/errors.md is not in the order of the codes, or has one twice"


def test_codes_are_found(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text('raise UserError("E0101", "")\ny = s(bad="E0102")\n"see E0103"\n')
    assert raised_codes(tmp_path) == {"E0101"}
    assert documented_codes("| E0101 | x | y |\ntext E0102\n") == ["E0101"]


def test_the_example_of_the_ir_is_legal():
    page = (ROOT / "docs" / "ir.md").read_text(encoding="utf-8")
    (example,) = [b.text for b in pages.blocks(page) if b.text.startswith("treadle-ir")]
    module = verify(parse_module(example))
    assert print_module(module, where=True).strip() == example
