"""Runs passes in order. A pass is a frozen dataclass in the file of its name; its fields are its options.

`Pipeline.parse("inline,cse,fold{limit=64},dce").run(module)` gives the module after the passes. A new pass needs no
list to be edited: file `my_pass.py` with `class MyPass(Pass)`. Each pass is recorded as an event of stage "transforms".
"""

from __future__ import annotations

import importlib
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, dataclass, fields
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from treadle.base import text
from treadle.base.errors import UserError, internal_error
from treadle.base.events import record
from treadle.base.flags import flags
from treadle.ir.node import Module
from treadle.ir.printer import print_module
from treadle.ir.rewrite import counting
from treadle.ir.verify import verify
from treadle.ir.walk import all_nodes

DEFAULT = "inline,algebra,fold,algebra,cse,gather_keys,dce"
"""What `jit` runs after differentiation and before the plan."""


class Pass:
    """A step from module to module. It changes nothing in place, and gives the same object when nothing changed."""

    name: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        cls.name = cls.__module__.rpartition(".")[2]

    def __call__(self, module: Module) -> Module:
        raise TypeError(f"pass {self.name} does not say what it does")

    def __str__(self) -> str:
        """The text that `parse` reads back: the name, and the options that are not the defaults."""
        own: tuple[Field[Any], ...] = fields(self)  # type: ignore[arg-type]
        options = [f"{f.name}={getattr(self, f.name)}" for f in own if getattr(self, f.name) != f.default]
        return self.name + (f"{{{','.join(options)}}}" if options else "")


@dataclass(frozen=True)
class Pipeline:
    """Passes in order. `str` and `parse` are inverse."""

    passes: tuple[Pass, ...]

    @classmethod
    def parse(cls, line: str) -> Pipeline:
        """The pipeline that the text names. Raises E0380 for an unknown pass, E0381 for a wrong option or form."""
        return cls(tuple([_load(name, options) for name, options in _split(line)]))

    def __str__(self) -> str:
        return ",".join(map(str, self.passes))

    def run(self, module: Module, between: Callable[[Pass, Module, Module], None] | None = None) -> Module:
        """The module after all passes; `between(pass, before, after)` is called after each."""
        for step in self.passes:
            after = self._step(step, module)
            if between is not None:
                between(step, module, after)
            module = after
        return module

    def _step(self, step: Pass, before: Module) -> Module:
        start = time.perf_counter()
        with counting() as rules:
            try:
                after = step(before)
                if flags.verify:
                    verify(after)
            except UserError:
                raise
            except Exception as error:
                _fault(step, before, error)
        nodes = [sum(1 for _ in all_nodes(m)) for m in (before, after)]
        changed = after is not before
        seconds = time.perf_counter() - start
        record(
            "transforms", step.name, seconds, nodes_before=nodes[0], nodes_after=nodes[1], changed=changed, rules=rules
        )
        if changed and flags.debug >= 3:
            _show(step, before, after, f"{nodes[0]} -> {nodes[1]} nodes, {text.seconds(seconds)}", rules)
        return after


def _show(step: Pass, before: Module, after: Module, what: str, rules: dict[str, int]) -> None:
    fired = ", ".join(f"{name} x{count}" for name, count in sorted(rules.items()))
    print(f"pass {step}: {what}{f' ({fired})' if fired else ''}", file=sys.stderr)
    if flags.debug >= 5:
        print(text.diff(str(before), str(after), step.name), file=sys.stderr)


def _fault(step: Pass, before: Module, error: Exception) -> NoReturn:
    """Write what reproduces the failure of a pass, and raise."""
    module = print_module(before, where=True)
    command = f'treadle opt module.txt -p "{step}" --verify'
    try:
        internal_error(f"pass {step} failed: {error}", module=module, pipeline=str(step), command=command)
    except Exception as fault:
        raise fault from error


_STEP = re.compile(r"\s*([a-z_][a-z0-9_]*)\s*(?:\{([^{}]*)\})?\s*(,|$)")


def _split(line: str) -> Iterator[tuple[str, dict[str, str]]]:
    position = 0
    while line[position:].strip():
        match = _STEP.match(line, position)
        if match is None:
            fix = "write pass names with commas between, options in braces: cse,fold{limit=64},dce"
            raise UserError("E0381", f"pipeline {line!r} cannot be read from {line[position:]!r} on", fix=fix)
        options = {}
        for item in filter(None, (s.strip() for s in (match[2] or "").split(","))):
            key, _, value = item.partition("=")
            options[key.strip()] = value.strip()
        yield match[1], options
        position = match.end()


def names() -> list[str]:
    """The files of this folder that hold a pass, found by reading them; no pass is imported."""
    files = Path(__file__).parent.glob("*.py")
    return sorted(f.stem for f in files if re.search(rf"^class {_class_name(f.stem)}\(Pass\)", f.read_text(), re.M))


def _class_name(name: str) -> str:
    return name.title().replace("_", "")


def _load(name: str, options: dict[str, str]) -> Pass:
    module = f"{__package__}.{name}"
    found = getattr(importlib.import_module(module), _class_name(name), None) if find_spec(module) else None
    if not (isinstance(found, type) and issubclass(found, Pass)):
        near = get_close_matches(name, names(), 1)
        raise UserError("E0380", f"there is no pass {name!r}", fix=f"use {near[0] if near else ', '.join(names())}")
    own: dict[str, Field[Any]] = {f.name: f for f in fields(found)}  # type: ignore[arg-type]
    for key in options:
        if key not in own:
            known = ", ".join(own) or "none"
            raise UserError("E0381", f"pass {name} has no option {key!r}", fix=f"its options: {known}")
    made: Pass = found(**{key: _option(name, own[key], value) for key, value in options.items()})
    return made


def _option(name: str, option: Field[Any], value: str) -> Any:
    """The value of an option, of the type of its default. Raises E0381."""
    kind = str if option.default is MISSING else type(option.default)
    try:
        return {"True": True, "False": False}[value] if kind is bool else kind(value)
    except (KeyError, ValueError):
        why = f"pass {name}: option {option.name}={value!r} is no {kind.__name__}"
        raise UserError("E0381", why, fix=f"the default is {option.name}={option.default}") from None
