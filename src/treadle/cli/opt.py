"""`treadle opt FILE.ir -p "inline,cse,dce"`: IR text in, passes, IR text out. Times and differences go to stderr."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import treadle.ops  # noqa: F401 (registers the ops that the text names)
from treadle.base import text
from treadle.base.errors import UserError
from treadle.base.events import Event, collected
from treadle.base.flags import override
from treadle.base.where import UNKNOWN, at
from treadle.cli.shrink import shrink
from treadle.ir.node import Module
from treadle.ir.parser import parse_module
from treadle.ir.printer import print_module
from treadle.ir.verify import verify
from treadle.transforms.pipeline import DEFAULT, Pass, Pipeline


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("file", metavar="FILE", help="a file of IR text, - for standard input")
    parser.add_argument("-p", "--pipeline", default=DEFAULT, help="passes with commas between (default: %(default)s)")
    parser.add_argument("--between", action="store_true", help="print what each pass changes")
    parser.add_argument("--time", action="store_true", help="print seconds and node counts of each pass")
    parser.add_argument("--verify", action="store_true", help="check the IR before and after each pass")
    parser.add_argument("--shrink", action="store_true", help="reduce IR on which the pipeline fails")
    parser.add_argument("--where", action="store_true", help="print source positions")


def run(options: argparse.Namespace) -> int:
    """Run the command; 0 when the passes succeed."""
    with at(UNKNOWN):  # errors are about the text: no line of Python is to be named
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    module = read(options.file)
    pipeline = Pipeline.parse(options.pipeline)
    with override(verify=options.verify or options.shrink):
        if options.verify:
            verify(module)
        if options.shrink:
            return _shrink(module, pipeline, options.where)
        with collected("transforms") as passes:
            module = pipeline.run(module, _print_diff if options.between else None)
    if options.time:
        print(timings(passes), file=sys.stderr)
    print(print_module(module, options.where), end="")
    return 0


def read(file: str) -> Module:
    """The module of a file of IR text (- for standard input). Raises E0710 when it cannot be read."""
    try:
        body = sys.stdin.read() if file == "-" else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError("E0710", f"{file} cannot be read: {error}", fix="name a file of IR text") from None
    return parse_module(body)


def timings(passes: Sequence[Event]) -> str:
    """A table of the passes, given their events."""
    rows = []
    for e in passes:
        rules = ", ".join(f"{name} x{count}" for name, count in sorted(e.payload["rules"].items()))
        rows.append((e.name, f"{e.seconds * 1e3:.2f}", e.payload["nodes_before"], e.payload["nodes_after"], rules))
    return text.table(("pass", "ms", "nodes before", "after", "fired"), rows)


def _print_diff(step: Pass, before: Module, after: Module) -> None:
    changes = text.diff(str(before), str(after), step.name) if after is not before else ""
    print(changes or f"pass {step}: no change", file=sys.stderr)


def _shrink(module: Module, pipeline: Pipeline, where: bool) -> int:
    """Print the smallest module on which the pipeline still fails. Raises E0711 when it does not fail at all."""
    if not _fails(module, pipeline):
        why = f"the pipeline {pipeline} does not fail on this module"
        raise UserError("E0711", why, fix="leave --shrink out")
    small = shrink(module, lambda m: _fails(m, pipeline))
    print(print_module(small, where), end="")
    return 1


def _fails(module: Module, pipeline: Pipeline) -> bool:
    try:
        for step in pipeline.passes:
            module = verify(step(module))
    except UserError:
        return False  # a refusal is an answer
    except Exception:  # whatever else goes wrong is the failure that is looked for
        return True
    return False
