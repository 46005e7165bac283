"""The mistakes as scripts: `read()` gives those of the text files beside this one, `run(mistakes)` what they print.

In a text file, `## CODE what was done` begins a mistake; the lines below are its program, after the line PRELUDE. The
line that the message must point at ends in `#!`. A line `env NAME=value` sets a variable of the environment.
In lines.txt each line is a mistake of its own: a code and a program of one line.

`python run.py FOLDER` (used by `run`) runs every program of the folder, each as a script, and prints a line of JSON for
each: its name, how it ended, the seconds it took.
"""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
PRELUDE = "import numpy as np; import treadle as td; from treadle import data, nn, optim, train"
SECONDS = 20  # for one program


@dataclass(frozen=True)
class Mistake:
    """One program with a mistake. `line`: the number of the line to be shown; 1, the prelude's, if none is marked."""

    group: str
    name: str
    code: str
    title: str
    program: str
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def script(self) -> str:
        return f"{PRELUDE}\n{self.program}".replace("  #!", "")

    @property
    def line(self) -> int:
        return next((n for n, text in enumerate(self.program.splitlines(), 2) if text.endswith("#!")), 1)


@dataclass(frozen=True)
class Outcome:
    """What came of it: `printed` by the interpreter for the exception that ended it; "" if none did."""

    name: str
    kind: str
    code: str
    printed: str
    seconds: float


def read(folder: Path = HERE) -> list[Mistake]:
    """All mistakes, by file and in order."""
    found = []
    for file in sorted(folder.glob("?_*.txt")):
        parts = re.split(r"^## ", file.read_text(encoding="utf-8"), flags=re.M)
        for number, part in enumerate(parts[1:]):
            head, _, program = part.partition("\n")
            code, _, title = head.partition(" ")
            environment = dict(re.findall(r"^env (\w+)=(.*)$", program, re.M))
            program = re.sub(r"^env .*\n", "", program, flags=re.M).strip("\n")
            found.append(Mistake(file.stem, f"{file.stem}_{number:02}", code, title, program, environment))
    return found


def read_lines(file: Path = HERE / "lines.txt") -> list[Mistake]:
    """The mistakes of one line each."""
    pairs = [line.split(" ", 1) for line in file.read_text(encoding="utf-8").splitlines()]
    return [Mistake("lines", f"line_{i:03}", c, p, f"{p}  #!") for i, (c, p) in enumerate(pairs, 1)]


def compiled(mistakes: list[Mistake]) -> list[Mistake]:
    """The mistakes of one line that make no layers, each inside a compiled function; there, what needs the number of a
    tensor (E0205) may be put off until it is known."""
    made = []
    for m in mistakes:
        if m.code != "E0205" and not re.search(r"\b(nn|optim|data|train)\.", m.program):
            program = f"@td.jit\ndef f():\n    {m.program}\n\nf()"
            made.append(Mistake(m.group, f"jit_{m.name}", m.code, f"{m.title}, compiled", program))
    return made


def run(mistakes: list[Mistake], folder: Path) -> dict[str, Outcome]:
    """Run the programs: one process for all, and one for each that needs its own environment."""
    batches: dict[str, list[Mistake]] = {}
    for mistake in mistakes:
        batches.setdefault(mistake.name if mistake.environment else "all", []).append(mistake)
    found = {}
    for name, batch in batches.items():
        place = folder / name
        place.mkdir()
        for mistake in batch:
            (place / f"{mistake.name}.py").write_text(mistake.script, encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1] / "src"), "TREADLE_VERIFY": "0"}
        command = [sys.executable, str(Path(__file__)), str(place)]
        result = subprocess.run(
            command, env={**environment, **batch[0].environment}, capture_output=True, text=True, timeout=300
        )
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        if result.returncode or len(lines) != len(batch):
            raise AssertionError(f"after {lines[-1:]} the process ended with {result.returncode}: {result.stderr}")
        found |= {line["name"]: Outcome(**line) for line in lines}
    return found


def _stop(*_: object) -> None:
    raise TimeoutError(f"not done after {SECONDS} s")


def run_script(path: Path) -> Outcome:
    """Run one program as `python FILE` would; the exception that ends it is printed by the hook of the moment."""
    from treadle.base.flags import flags

    start, kind, code, printed = time.perf_counter(), "", "", io.StringIO()
    before = dict(flags.__dict__)
    if "treadle.frontend.create" in sys.modules:  # random numbers do not depend on the programs before
        sys.modules["treadle.frontend.create"].manual_seed(0)
    signal.signal(signal.SIGALRM, _stop)
    signal.alarm(SECONDS)
    try:
        with redirect_stdout(io.StringIO()):
            exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), {"__name__": "__main__"})
    except BaseException as error:
        kind, code = type(error).__name__, getattr(error, "code", "")
        trace = error.__traceback__
        with redirect_stderr(printed):
            sys.excepthook(type(error), error, trace.tb_next if trace else None)
    finally:
        signal.alarm(0)
        flags.__dict__.clear()  # what the program has switched on
        flags.__dict__.update(before)
    return Outcome(path.stem, kind, str(code), printed.getvalue(), time.perf_counter() - start)


def main(folder: Path) -> None:
    os.chdir(folder)
    for path in sorted(folder.glob("*.py")):
        print(json.dumps(run_script(path).__dict__), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
