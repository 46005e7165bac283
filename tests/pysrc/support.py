"""Runs one function eager and compiled and tells the differences; `case` and `made` put functions into a corpus.

A call is described by its inputs: floats and lists become float64 tensors, `Raw(x)` and all else is passed as it is.
What is compared: results (values, dtypes, containers), what was printed, exceptions (type and message), and the state
that `made` functions show, after each of the calls; then gradients of the float tensors.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import io
from collections.abc import Callable
from typing import Any

import numpy as np

import treadle as td
from treadle.api import _apply
from treadle.base.errors import UserError
from treadle.frontend.effects import guarded
from treadle.frontend.pysrc import converted
from treadle.ir import interp
from treadle.ir.node import Module


@dataclasses.dataclass(frozen=True)
class Raw:
    """An input that is passed as it is (a Python float, a list of numbers)."""

    value: Any


@dataclasses.dataclass(frozen=True)
class Case:
    """name; make: a new (function, state getter); inputs: one tuple for each call; grad: whether to compare gradients;
    refused: the code of the error that compiling must give, "" for none."""

    name: str
    make: Callable[[], tuple[Callable[..., Any], Callable[[], Any]]]
    inputs: tuple[tuple[Any, ...], ...]
    grad: bool = True
    refused: str = ""


def _nothing() -> None:
    return None


class Corpus:
    """The cases of one file, by name."""

    def __init__(self) -> None:
        self.cases: dict[str, Case] = {}

    def case(self, *inputs: tuple[Any, ...], grad: bool = True, refused: str = "") -> Callable[[Any], Any]:
        """A function that is the same for each run."""

        def add(function: Any) -> Any:
            self._add(Case(function.__name__, lambda: (function, _nothing), inputs, grad, refused))
            return function

        return add

    def made(self, *inputs: tuple[Any, ...], grad: bool = True, refused: str = "") -> Callable[[Any], Any]:
        """A function that makes the function to run, or it and one that tells the state."""

        def add(maker: Any) -> Any:
            def make() -> Any:
                found = maker()
                return found if isinstance(found, tuple) else (found, _nothing)

            self._add(Case(maker.__name__, make, inputs, grad, refused))
            return maker

        return add

    def _add(self, case: Case) -> None:
        assert case.name not in self.cases, case.name
        self.cases[case.name] = case


def value_of(x: Any) -> Any:
    """What is passed for an input."""
    if isinstance(x, Raw):
        return copy.deepcopy(x.value)
    if isinstance(x, float | list):
        return td.tensor(np.asarray(x, np.float64))
    return td.tensor(x) if isinstance(x, np.ndarray | np.generic) else x


def plain(x: Any) -> Any:
    """A result in a form to compare: tensors as arrays, containers with their class, objects by attributes."""
    if isinstance(x, td.Tensor):
        return np.asarray(x.numpy())
    if isinstance(x, dict):
        return (type(x).__name__, [(repr(k), plain(v)) for k, v in x.items()])
    if isinstance(x, set | frozenset):
        return (type(x).__name__, sorted(map(repr, x)))
    if isinstance(x, tuple | list):
        return (type(x).__name__, [plain(v) for v in x])
    if type(x).__module__ not in ("builtins", "numpy") and hasattr(x, "__dict__"):
        return (type(x).__name__, [(k, plain(v)) for k, v in sorted(vars(x).items())])
    return x


def differences(a: Any, b: Any, where: str = "result") -> list[str]:
    """How two plain results differ. A Python number and a 0-d tensor of its value are the same."""
    numbers = (bool, int, float, complex, np.ndarray, np.generic)
    if isinstance(a, numbers) and isinstance(b, numbers):
        x, y = np.asarray(a), np.asarray(b)
        both = isinstance(a, np.ndarray) and isinstance(b, np.ndarray)
        if x.shape != y.shape or (both and x.dtype != y.dtype) or not np.allclose(x, y, 1e-9, 1e-11, equal_nan=True):
            return [f"{where}: {a!r} {x.dtype} and {b!r} {y.dtype}"]
        return []
    if type(a) is not type(b):
        return [f"{where}: {a!r} and {b!r}"]
    if isinstance(a, tuple | list):
        if len(a) != len(b):
            return [f"{where}: {a!r} and {b!r}"]
        return [d for i, (x, y) in enumerate(zip(a, b)) for d in differences(x, y, f"{where}[{i}]")]
    return [] if a == b else [f"{where}: {a!r} and {b!r}"]


def outcome(function: Callable[..., Any], inputs: tuple[Any, ...]) -> tuple[str, Any, str]:
    """(kind of end, result or message, what was printed) of one call."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            end, found = "result", plain(function(*[value_of(x) for x in inputs]))
        except UserError as error:
            end, found = "UserError", f"{error.code} {error.why} ({error.where})"
        except Exception as error:
            end, found = type(error).__name__, str(error)
    return end, found, printed.getvalue()


def runs(case: Case, wrap: Callable[[Any], Any]) -> list[Any]:
    """The outcome and the state after each call, the first one repeated at the end."""
    function, state = case.make()
    function = wrap(function)
    return [(*outcome(function, args), plain(state())) for args in (*case.inputs, case.inputs[0])]


def mismatches(case: Case, compiler: Callable[[Any], Any] = td.jit) -> list[str]:
    """The differences between eager and compiled."""
    eager = runs(case, lambda f: f)
    compiled = runs(case, compiler)
    found = [f"eager: {found}" for end, found, *_ in eager if end == "UserError"]
    for args, a, b in zip((*case.inputs, case.inputs[0]), eager, compiled):
        for what, x, y in zip(("end", "result", "print", "state"), a, b):
            found += [f"{args} {d}" for d in differences(x, y, what)]
    return found


def loss_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """The sum of all float tensors in what the function returns."""

    def loss(*args: Any) -> Any:
        return summed(function(*args))

    return loss


def summed(x: Any) -> Any:
    """The sum of the float tensors in a result, each with a weight by its place; 0 where there are none."""
    total = td.tensor(np.float64(0))
    for i, leaf in enumerate(leaves_of(x)):
        if isinstance(leaf, td.Tensor) and leaf.dtype == td.float64:
            total = total + (leaf * (1.0 + 0.1 * i)).sum()
    return total


def leaves_of(x: Any) -> list[Any]:
    """What a result holds, without containers."""
    parts = x.values() if isinstance(x, dict) else x if isinstance(x, tuple | list) else None
    if parts is None and type(x).__module__ not in ("builtins", "numpy") and not isinstance(x, td.Tensor):
        parts = vars(x).values() if hasattr(x, "__dict__") else None
    return [x] if parts is None else [leaf for part in parts for leaf in leaves_of(part)]


def gradient_mismatches(case: Case, compiler: Callable[[Any], Any] = td.jit) -> list[str]:
    """The differences between eager and compiled gradients of the float64 tensors."""
    places = tuple(i for i, x in enumerate(case.inputs[0]) if isinstance(x, float | list))
    if not places:
        return []
    found, made = [], [case.make()[0], case.make()[0]]
    eager = td.grad(loss_of(made[0]), argnums=places)
    compiled = compiler(td.grad(loss_of(made[1]), argnums=places))
    for args in case.inputs:
        ends = [outcome(f, args) for f in (eager, compiled)]
        found += [f"{args} {d}" for d in differences(*[list(e[:2]) for e in ends], "gradient")]
    return found


def refusal(case: Case) -> str:
    """The code of the error that compiling gives, "" for none."""
    function, _ = case.make()
    compiled = td.jit(function)
    ends = [outcome(compiled, args)[:2] for args in case.inputs]
    return next((found[:5] for end, found in ends if end == "UserError"), "")


def interpreted(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function traced as by `jit`, its IR run by the interpreter: for many programs, as nothing is compiled."""
    known: dict[Any, tuple[Any, Module]] = {}

    def call(*args: Any) -> Any:
        leaves = [x for x in args if isinstance(x, td.Tensor | float)]
        key = tuple([type(x) if isinstance(x, td.Tensor | float) else repr(x) for x in args])
        if key not in known:
            traced = _apply.trace(guarded(converted(function)), args, {}, plain=True)
            known[key] = traced, Module.of(traced.fn, traced.fns)
        traced, module = known[key]
        outputs = interp.run(module, *[np.asarray(x) for x in (*leaves, *traced.captured)])
        return traced.result([td.tensor(x) for x in outputs[: traced.num_outputs]])

    return call
