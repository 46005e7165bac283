"""`treadle COMMAND ...`: reads the arguments, loads the command's file, prints errors as text.

Exit codes: 0 fine, 1 the command found something wrong, 2 a mistake of the caller, 3 a fault of Treadle.
A command is a file of this folder with `SUMMARY`, `arguments(parser)` and `run(options) -> exit code`.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from treadle.base.errors import InternalError, UserError

COMMANDS = {
    "opt": "run passes over IR text",
    "show": "print what one stage makes of a function",
    "tune": "measure the kernels of a function for later compilations",
    "doctor": "say what Treadle finds on this machine",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; `arguments` are those of the process unless given. Returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser("treadle", description="Tools around the compiler.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    named = next((a for a in given if not a.startswith("-")), "")
    for name, summary in COMMANDS.items():
        sub = commands.add_parser(name, help=summary, description=summary)
        if name == named:
            importlib.import_module(f"treadle.cli.{name}").arguments(sub)
    try:
        options = parser.parse_args(given)
    except SystemExit as stop:
        return int(stop.code or 0)
    try:
        code = int(importlib.import_module(f"treadle.cli.{options.command}").run(options))
        sys.stdout.flush()
        return code
    except UserError as error:
        print(f"error {error}", file=sys.stderr)
        return 2
    except InternalError as error:
        print(f"fault {error}", file=sys.stderr)
        return 3
    except BrokenPipeError:  # the reader (`| head`) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())
