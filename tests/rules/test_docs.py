"""The documents are true: every ```python snippet runs, the page of flags equals the table, links lead somewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.rules.checks import say

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def program(text: str) -> str:
    """The page's python snippets as one program with the page's line numbers; "" if there are none."""
    lines, inside, found = [], False, False
    for line in text.splitlines():
        fence = line.strip().startswith("```")
        inside = not inside and line.strip() == "```python" if fence else inside
        found |= inside
        lines.append(line if inside and not fence else "")
    return "\n".join(lines) + "\n" if found else ""


def run_page(page: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the snippets in a process of their own, in an empty folder, warnings being errors."""
    file = folder / f"{page.name}.py"
    file.write_text(program(page.read_text(encoding="utf-8")))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-W", "error", file.name]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("page", [p for p in PAGES if program(p.read_text(encoding="utf-8"))], ids=lambda p: p.name)
def test_snippets_run(page, tmp_path):
    result = run_page(page, tmp_path)
    if result.returncode:
        what = f"{page.relative_to(ROOT)}: a snippet fails (the line is the page's)\n{result.stderr}"
        pytest.fail(what, pytrace=False)


def test_a_failing_snippet_fails_at_the_pages_line(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("text\n```python\nx = 1\n```\n```sh\nfalse\n```\n```python\nassert x == 2, 'seen'\n```\n")
    result = run_page(page, tmp_path)
    assert result.returncode == 1
    assert 'page.md.py", line 9' in result.stderr
    assert "seen" in result.stderr


def dead_links(root: Path, pages: list[Path]) -> list[str]:
    """Relative links to files that are not there."""
    found = []
    for page in pages:
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            for target in re.findall(r"\]\(([^)#\s]+)", line):
                if "://" not in target and not (page.parent / target).exists():
                    found.append(say(root, page, number, f"{target} is not there"))
    return found


def test_links():
    assert dead_links(ROOT, PAGES) == []


def test_a_dead_link_is_found(tmp_path):
    (tmp_path / "a.md").write_text("[self](a.md#x) [web](https://example.com)\n[no](b.md)\n")
    assert dead_links(tmp_path, [tmp_path / "a.md"]) == ["a.md:2: b.md is not there"]


def undocumented(table: str, page: str) -> list[str]:
    """Lines in which the page differs from the text generated from the table of flags."""
    here, there = page.splitlines(), table.splitlines()
    lines = range(max(len(here), len(there)))
    return [f"docs/flags.md:{i + 1}: run `make docs`" for i in lines if here[i : i + 1] != there[i : i + 1]]


def flags_table() -> str:
    command = [sys.executable, "-m", "treadle.base.flags"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_flags_are_documented():
    assert undocumented(flags_table(), (ROOT / "docs" / "flags.md").read_text()) == []


def test_an_undocumented_flag_is_found():
    assert undocumented("a\nb\n", "a\n") == ["docs/flags.md:2: run `make docs`"]
    assert undocumented("a\n", "b\n") == ["docs/flags.md:1: run `make docs`"]
