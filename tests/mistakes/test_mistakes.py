"""Every mistake ends in a clear error: its code, the user's line, the fix, and no line of Treadle in the traceback."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.mistakes.page import GROUPS, message, page
from tests.mistakes.run import SECONDS, Mistake, Outcome, compiled, read, read_lines, run, run_script

ROOT = Path(__file__).resolve().parents[2]
MISTAKES, LINES = read(), read_lines()
COMPILED = compiled(LINES)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    return run([*MISTAKES, *LINES, *COMPILED], tmp_path_factory.mktemp("mistakes"))


def faults(mistake: Mistake, outcome: Outcome) -> list[str]:
    """What is wrong with how a mistake is reported."""
    if not re.fullmatch(r"E0\d{3}", outcome.code):
        return [f"it ends with {outcome.kind or 'no error'}: {outcome.printed}"]
    found = []
    if outcome.code != mistake.code:
        found.append(f"the code is {outcome.code}, not {mistake.code}")
    files = re.findall(r'^ *File "(.*?)", line', outcome.printed, re.MULTILINE)
    if others := [f for f in files if not f.endswith(f"{mistake.name}.py")]:
        found.append(f"the traceback shows {others[0]}")
    said = message(mistake, outcome)
    if not re.search(rf"^  at  program\.py:{mistake.line}( in .*)?$", said, re.MULTILINE):
        found.append(f"line {mistake.line} is not the one shown: {said}")
    if not re.search(r"^  fix \S", said, re.MULTILINE):
        found.append("it names no fix")
    if not outcome.printed.startswith("Traceback (most recent call last):\n"):
        found.append(f"something else is printed first: {outcome.printed[:80]}")
    if outcome.seconds > SECONDS:
        found.append(f"it takes {outcome.seconds:.1f} s")
    return found


@pytest.mark.parametrize("mistake", [*MISTAKES, *LINES], ids=lambda m: m.name)
def test_mistake(mistake: Mistake, outcomes: dict[str, Outcome]) -> None:
    assert faults(mistake, outcomes[mistake.name]) == []


@pytest.mark.parametrize("mistake", COMPILED, ids=lambda m: m.name)
def test_mistake_in_a_compiled_function(mistake: Mistake, outcomes: dict[str, Outcome]) -> None:
    """As clear as in eager mode; the code may be another, as numbers are not known while tracing."""
    assert [f for f in faults(mistake, outcomes[mistake.name]) if not f.startswith("the code is")] == []


def test_there_are_enough() -> None:
    assert len(MISTAKES) >= 80
    assert len({m.title for m in MISTAKES}) == len(MISTAKES), "two have one title"
    assert {m.group for m in MISTAKES} == set(GROUPS)


def test_the_page_is_current(outcomes: dict[str, Outcome]) -> None:
    written = (ROOT / "docs" / "mistakes.md").read_text(encoding="utf-8")
    assert written == page(MISTAKES, outcomes), "run `make docs`"


@pytest.mark.parametrize(
    "program, wanted",
    [
        ("1 / 0  #!", "it ends with ZeroDivisionError"),
        ("td.ones(3)  #!", "it ends with no error"),
        ("td.zeros(-1)\npass  #!", "line 3 is not the one shown"),
        ("td.tensor(None)  #!", "the code is E0102, not E0109"),
        ("raise td.UserError('E0109', 'no')  #!", "it names no fix"),
    ],
)
def test_a_bad_report_is_found(program: str, wanted: str, tmp_path: Path) -> None:
    mistake = Mistake("x", "x_00", "E0109", "x", program)
    path = tmp_path / "x_00.py"
    path.write_text(mistake.script, encoding="utf-8")
    assert any(wanted in f for f in faults(mistake, run_script(path)))


def test_errors_in_threads_and_of_the_users_own_code_show_no_frame_of_the_package(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(
        "import threading\nimport treadle as td\n\ndef wrong():\n    td.ones(3) + td.ones(4)\n\n"
        "t = threading.Thread(target=wrong)\nt.start()\nt.join()\n\n"
        "@td.jit\ndef f(x):\n    try:\n        td.zeros(-1)\n    except td.UserError:\n        return {}['key']\n\n"
        "f(td.ones(3))\n",
        encoding="utf-8",
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, env=environment, timeout=120)
    assert "E0108" in done.stderr
    assert "KeyError: 'key'" in done.stderr
    assert "During handling" in done.stderr
    assert "src/treadle" not in done.stderr, done.stderr


def test_a_frame_of_the_package_is_found() -> None:
    said = "treadle.base.errors.UserError: E0109 no\n  at  x_00.py:2\n  fix it\n"
    printed = f'Traceback (most recent call last):\n  File "treadle/a.py", line 1, in f\n{said}'
    outcome = Outcome("x_00", "UserError", "E0109", printed, 0.0)
    assert faults(Mistake("x", "x_00", "E0109", "x", "f()  #!"), outcome) == ["the traceback shows treadle/a.py"]
