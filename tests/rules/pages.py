"""Pages of documentation as programs: `check_page(file, folder)` runs a page and says where it is not true.

In a page,

* ```` ```python ```` blocks are one program, run in order; a ```` ```text ```` block right after one is what it prints;
* a ```` ```python FILE ```` block is written to FILE before anything runs;
* a ```` ```console ```` block holds lines `$ command`, each followed by what the command prints.

`...` in what is printed stands for anything. Warnings are errors.
"""

import difflib
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
END = "\x1e"  # printed after each block, so that the output can be cut there


@dataclass(frozen=True)
class Block:
    """A fenced block: what stands after the fence, the line of its first line of text, and the text."""

    kind: str
    line: int
    text: str


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page in order."""
    found: list[Block] = []
    kind, start, body = "", 0, []
    inside = False
    for number, line in enumerate(page.splitlines(), 1):
        if not line.strip().startswith("```"):
            body.append(line)
            continue
        if inside:
            found.append(Block(kind, start, "\n".join(body)))
        kind, start, body, inside = line.strip()[3:].strip(), number + 1, [], not inside
    return found


def program(page: str) -> str:
    """The page's python blocks as one program with the page's line numbers; "" if there are none."""
    lines = [""] * (len(page.splitlines()) + 1)
    python = [b for b in blocks(page) if b.kind == "python"]
    for block in python:
        text = block.text.split("\n")
        lines[block.line - 1 : block.line - 1 + len(text)] = text
        lines[block.line - 1 + len(text)] = f"print({END!r}, end='', flush=True)"
    return "\n".join(lines) + "\n" if python else ""


def differs(expected: str, found: str) -> str:
    """ "" if `found` is what is expected, else a comparison of the two."""
    want, have = ("\n".join(map(str.rstrip, t.strip().splitlines())) for t in (expected, found))
    if re.fullmatch(".*".join(map(re.escape, want.split("..."))), have, re.DOTALL):
        return ""
    return "\n".join(difflib.unified_diff(want.splitlines(), have.splitlines(), "in the page", "printed", lineterm=""))


def has_program(page: str) -> bool:
    """Whether anything of the page can be run."""
    return any(b.kind == "console" or b.kind.startswith("python") for b in blocks(page))


def check_page(file: Path, folder: Path) -> list[str]:
    """Run the page in an empty folder; what is not as it says, as `page:line: what`."""
    page = file.read_text(encoding="utf-8")
    for block in blocks(page):
        if block.kind.startswith("python "):
            (folder / block.kind.removeprefix("python ")).write_text(block.text + "\n")
    return [*_check_python(file.name, page, folder), *_check_commands(file.name, page, folder)]


def _check_python(name: str, page: str, folder: Path) -> list[str]:
    text = program(page)
    if not text:
        return []
    (folder / f"{name}.py").write_text(text)
    result = _run([sys.executable, "-W", "error", f"{name}.py"], folder)
    if result.returncode:
        return [f"{name}: a snippet fails (the line is the page's)\n{result.stderr}"]
    found = []
    outputs = iter(result.stdout.split(END))
    printed = {b.line: next(outputs) for b in blocks(page) if b.kind == "python"}
    for first, second in pairwise(blocks(page)):
        if first.kind == "python" and second.kind == "text" and (what := differs(second.text, printed[first.line])):
            found.append(f"{name}:{second.line}: the snippet before prints something else\n{what}")
    return found


def _check_commands(name: str, page: str, folder: Path) -> list[str]:
    found = []
    _scripts(folder / "bin")
    for block in blocks(page):
        if block.kind != "console":
            continue
        for offset, command, expected in commands(block.text):
            result = _run(["bash", "-c", command], folder, both=True)
            if what := differs(expected, result.stdout):
                found.append(f"{name}:{block.line + offset}: {command} prints something else\n{what}")
    return found


def commands(text: str) -> list[tuple[int, str, str]]:
    """The commands of a console block: line in the block, command, what it prints."""
    found: list[tuple[int, str, str]] = []
    for offset, line in enumerate(text.splitlines()):
        if line.startswith("$ "):
            found.append((offset, line[2:], ""))
        else:
            place, command, output = found[-1]
            found[-1] = (place, command, f"{output}{line}\n")
    return found


def _scripts(folder: Path) -> None:
    """`python` and `treadle` of this checkout, with warnings as errors."""
    folder.mkdir(exist_ok=True)
    python = f"exec {shlex.quote(sys.executable)} -W error"
    for name, arguments in {"python": "", "treadle": "-m treadle.cli.main"}.items():
        script = folder / name
        script.write_text(f'#!/bin/sh\n{python} {arguments} "$@"\n')
        script.chmod(0o755)


def _run(command: list[str], folder: Path, both: bool = False) -> subprocess.CompletedProcess[str]:
    """Run in the folder; with `both`, errors go into the output."""
    path = f"{folder / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TREADLE_") or k == "TREADLE_CACHE_DIR"}
    environment = {**kept, "PYTHONPATH": str(ROOT / "src"), "PATH": path, "COLUMNS": "100"}
    errors = subprocess.STDOUT if both else subprocess.PIPE
    return subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True, timeout=300
    )
