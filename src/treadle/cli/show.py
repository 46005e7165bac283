"""`treadle show FILE:FUNCTION --stage ...`: what one stage of the compiler makes of a function.

The file is imported; FUNCTION may be dotted (`net.forward`) and may be a cell or a jitted function. Its arguments are
tensors of the types of `--args "f32[4,8],i32[4]"` (drawn with a fixed seed), else the file's `example_args`, a tuple.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from treadle.base import dtypes, events, text
from treadle.base.errors import InternalError, UserError
from treadle.base.where import UNKNOWN, Where
from treadle.ir.node import Module
from treadle.ir.printer import print_module
from treadle.ir.types import TensorType, type_of

STAGES = {
    "source": "the function as the compiler reads it: decisions and loops are calls of _td_; no arguments are needed",
    "front": "the IR that tracing gives",
    "grad": "the IR of the gradients of all float inputs; the cotangents of the outputs are its last parameters",
    "opt": "the IR after the passes",
    "fuse": "which groups of nodes our own kernels compute, which not and why, and what that saves",
    "hlo": "the StableHLO text that is compiled",
    "loops": "the kernels: the IR of each, its schedule, its phases and their tasks",
    "llvm": "the kernels in LLVM's IR",
    "asm": "the kernels in machine code",
    "run": "the results on the arguments, and what the stages did",
}
_SHOWN = 6


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "stages:\n" + "\n".join(f"  {name:<6} {what}" for name, what in STAGES.items())
    parser.add_argument("target", metavar="FILE:FUNCTION", help="a Python file and the function in it")
    parser.add_argument("--stage", choices=STAGES, default="front", help="default: %(default)s")
    parser.add_argument("--args", default=None, metavar="TYPES", help='types of the arguments: "f32[4,8],i32[4]"')
    parser.add_argument("--where", action="store_true", help="print source positions")


def run(options: argparse.Namespace) -> int:
    """Run the command; 0 when the stage succeeds."""
    if options.stage == "source":
        function, name, _, _ = located(options.target)
        print(source_text(function, name), end="")
        return 0
    function, values = target(options.target, options.args)
    print(called(lambda: stage_text(options.stage, function, values, options.where)), end="")
    return 0


def located(place: str) -> tuple[Callable[..., Any], str, Any, str]:
    """The function at FILE:FUNCTION, its name, its module and file. Raises E0712 for a place without a function."""
    file, colon, name = place.rpartition(":")
    if not colon or not name:
        fail("E0712", f"{place!r} names no function", "write FILE:FUNCTION, as in net.py:loss")
    module = load(file)
    return find(module, name), name, module, file


def target(place: str, types: str | None) -> tuple[Callable[..., Any], Sequence[Any]]:
    """The function at FILE:FUNCTION, and its arguments: of the given types, else the file's example."""
    function, name, module, file = located(place)
    values = draw(parse_types(types)) if types is not None else example(module, file)
    check_arguments(function, values, name)
    return function, values


def stage_text(stage: str, function: Callable[..., Any], values: Sequence[Any], where: bool) -> str:
    """What the stage gives, as text ending in a newline."""
    from treadle import driver
    from treadle.api import kernel_report
    from treadle.api.programs import jit, trace_module
    from treadle.transforms.grad import vjp

    if stage == "run":
        return _run(jit(function), values)
    module: Module = trace_module(function, *values)
    if stage == "grad":
        module = vjp(module)
    if stage in ("opt", "hlo", "fuse", *kernel_report.CODE):
        module = driver.optimise(module)
    if stage == "fuse":
        return kernel_report.report(module)
    if stage in kernel_report.CODE:
        return kernel_report.texts(module, stage)
    if stage == "hlo":
        body = driver.stablehlo(module, debug=where)
        return body if body.endswith("\n") else body + "\n"
    return print_module(module, where)


def source_text(function: Callable[..., Any], name: str) -> str:
    """The rewritten source. Raises E0712 where there is none."""
    from treadle.api.programs import Jitted
    from treadle.frontend.pysrc.convert import source_of

    text = source_of(function.function if isinstance(function, Jitted) else function)
    if not text:
        fail("E0712", f"{name} has no source that is rewritten", "name a function or method, as in net.construct")
    return text + "\n"


def _run(function: Callable[..., Any], values: Sequence[Any]) -> str:
    from treadle.frontend import tree

    with events.collected() as found:
        leaves, _ = tree.flatten(function(*values))
    lines = [_line(i, leaf) for i, leaf in enumerate(leaves)]
    rows = [(e.stage, e.name, text.seconds(e.seconds)) for e in found]
    return "\n".join([*lines, "", text.table(("stage", "what", "time"), rows)]) + "\n"


def _line(place: int, leaf: Any) -> str:
    if not hasattr(leaf, "dtype"):
        return f"result {place}: {leaf!r}"
    array = np.asarray(leaf)
    numbers = ", ".join(f"{x:.6g}" if array.dtype.kind == "f" else str(x) for x in array.reshape(-1)[:_SHOWN])
    return f"result {place}: {type_of(array)} [{numbers}{', ...' if array.size > _SHOWN else ''}]"


def load(file: str) -> Any:
    """The Python file as a module. Raises E0710 when it is not there, E0713 when it raises."""
    path = Path(file)
    spec = importlib.util.spec_from_file_location(path.stem, path) if path.is_file() else None
    if spec is None or spec.loader is None:
        fail("E0710", f"{file} is not a Python file that can be read", "name a file ending in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent.resolve()))
    loader = spec.loader
    called(lambda: loader.exec_module(module))
    return module


def called(action: Callable[[], Any]) -> Any:
    """What `action`, which runs the user's code, returns. Raises E0713 with the user's line for what it raises."""
    try:
        return action()
    except (UserError, InternalError):
        raise
    except SyntaxError as error:
        place = Where(error.filename or "", error.lineno or 0)
        raise UserError("E0713", f"SyntaxError: {error.msg}", fix="mend the file", where=place) from None
    except Exception as error:
        home = str(Path(__file__).resolve().parents[1])
        frames = [f for f in traceback.extract_tb(error.__traceback__) if _is_users(f.filename, home)]
        if not frames:
            raise
        place = Where(frames[-1].filename, frames[-1].lineno or 0)
        raise UserError("E0713", f"{type(error).__name__}: {error}", fix="mend the function", where=place) from None


def _is_users(file: str, home: str) -> bool:
    return not file.startswith((home, "<frozen"))


def find(module: Any, name: str) -> Any:
    """The attribute, dots followed. Raises E0712 when it is not there or cannot be called."""
    found = module
    for part in name.split("."):
        if not hasattr(found, part):
            known = ", ".join(n for n, x in vars(module).items() if callable(x) and not n.startswith("_"))
            fail("E0712", f"{module.__name__} has no {name}", f"it has {known}" if known else "define it")
        found = getattr(found, part)
    if not callable(found):
        fail("E0712", f"{name} is {found!r}, not a function", "name a function or a cell")
    return found


def parse_types(line: str) -> list[TensorType]:
    """The types that a text such as "f32[4,8], i32[]" names. Raises E0714."""
    rest = re.sub(r"\s+", "", line)
    found = []
    for part in filter(None, re.split(r",(?![^\[]*\])", rest)):
        match = re.fullmatch(r"([a-z]+\d*)\[((?:\d+(?:,\d+)*)?)\]", part)
        if match is None:
            fail("E0714", f"{part!r} is not a type", 'write types as "f32[4,8],i32[4]"; f32[] is one number')
        shape = tuple([int(n) for n in match[2].split(",") if n])
        found.append(TensorType(dtypes.of(match[1]), shape))
    return found


def draw(types: Sequence[TensorType]) -> list[Any]:
    """Arrays of the types: floats normally distributed, integers from 0 to 4, with a fixed seed."""
    rng = np.random.default_rng(0)
    numbers = [rng.integers(0, 5, t.shape) if t.dtype.kind in "biu" else rng.normal(size=t.shape) for t in types]
    return [np.asarray(n).astype(t.dtype.np) for n, t in zip(numbers, types, strict=True)]


def example(module: Any, file: str) -> Sequence[Any]:
    """The file's `example_args`. Raises E0714 when it has none."""
    given = getattr(module, "example_args", None)
    if given is None:
        fail("E0714", f"{file} has no example_args", 'give the types of the arguments: --args "f32[4,8]"')
    return given if isinstance(given, tuple | list) else (given,)


def check_arguments(function: Callable[..., Any], values: Sequence[Any], name: str) -> None:
    """Raise E0714 when the function does not take so many arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a callable that does not say what it takes
        return
    try:
        signature.bind(*values)
    except TypeError as error:
        fail("E0714", f"{name}{signature} with {len(values)} arguments: {error}", 'give them: --args "f32[4,8],i32[4]"')


def fail(code: str, why: str, fix: str) -> NoReturn:
    """Raise a user error about the command line, which has no line of code."""
    raise UserError(code, why, fix=fix, where=UNKNOWN)
