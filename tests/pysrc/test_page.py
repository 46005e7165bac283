"""docs/python.md names every code that the source front end raises, and each of them is raised by a function here."""

import ast
import re
from pathlib import Path

from tests.pysrc.test_corpus import REFUSED

import treadle

SOURCE = Path(treadle.__file__).parent
FILES = [*sorted((SOURCE / "frontend/pysrc").glob("*.py")), SOURCE / "api/staging.py", SOURCE / "api/recursing.py"]
PAGE = (Path(__file__).resolve().parents[2] / "docs/python.md").read_text(encoding="utf-8")
ELSEWHERE = {"E0216", "E0217", "E0227", "E0260"}  # of other parts, on the page because they concern what Python does


def raised(text):
    """The codes of the errors that a file makes."""
    calls = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    firsts = [n.args[0] for n in calls if n.func.id == "UserError" and n.args]
    return {a.value for a in firsts if isinstance(a, ast.Constant) and isinstance(a.value, str)}


def listed(page):
    """The codes of the table of what is refused."""
    return {c for line in page.splitlines() if line.startswith("| ") for c in re.findall(r"\bE\d{4}\b", line)}


CODES = set().union(*[raised(f.read_text(encoding="utf-8")) for f in FILES])


def test_the_page_lists_all_codes():
    assert listed(PAGE) == CODES | ELSEWHERE


def test_each_is_raised_by_the_corpus():
    assert CODES - {case.refused for case in REFUSED.values()} == set()


def test_a_missing_code_would_be_found():
    assert raised('raise UserError("E0999", why, fix="x")') == {"E0999"}
    assert listed("| a | E0999 | b |\nE0998") == {"E0999"}
