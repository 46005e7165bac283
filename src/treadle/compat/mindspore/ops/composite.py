"""Functions of functions: `GradOperation`, `HyperMap`, `Map`, `MultitypeFuncGraph`, `partial`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from treadle.base.dtypes import DType
from treadle.base.errors import UserError
from treadle.compat.mindspore._grad import GradOperation
from treadle.frontend import tensor as base

partial = functools.partial


def _is(name: str, value: Any) -> bool:
    """Whether a value is of a kind of `MultitypeFuncGraph`."""
    if name == "Tensor":
        return isinstance(value, base.Tensor | np.ndarray)
    if name in ("Number", "Float", "Float32", "Int"):
        return isinstance(value, int | float) and not isinstance(value, bool)
    plain: dict[str, Any] = {"Bool": bool, "String": str, "Tuple": tuple, "List": list, "Dictionary": dict}
    if name in plain:
        return isinstance(value, plain[name])
    if name == "None":
        return value is None
    return (name == "Function" and callable(value)) or (name == "TypeType" and isinstance(value, DType))


class MultitypeFuncGraph:
    """A function that is chosen by the kinds of its arguments: @graph.register("Tensor", "Number")."""

    def __init__(self, name: str, read_value: bool = False) -> None:
        self.name = name
        self.entries: list[tuple[tuple[str, ...], Callable[..., Any]]] = []

    def register(self, *kinds: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """A decorator for the function of these kinds: names, or classes."""
        names = tuple([k if isinstance(k, str) else getattr(k, "__name__", str(k)) for k in kinds])

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            self.entries.append((names, function))
            return function

        return add

    def __call__(self, *args: Any) -> Any:
        """Call the function that fits. Raises E0594 if none does."""
        for names, function in self.entries:
            if len(names) == len(args) and all(map(_is, names, args)):
                return function(*args)
        found = ", ".join(type(a).__name__ for a in args)
        raise UserError("E0594", f"{self.name} has no function for ({found})", fix="register one for these kinds")


class HyperMap:
    """HyperMap(op)(a, b) or HyperMap()(op, a, b): op of corresponding elements of tuples and lists, nested ones too."""

    deep = True

    def __init__(self, ops: Callable[..., Any] | None = None, reverse: bool = False) -> None:
        self.ops = ops

    def __call__(self, *args: Any) -> Any:
        function, rest = (args[0], args[1:]) if self.ops is None else (self.ops, args)
        return self._apply(function, rest, top=True)

    def _apply(self, function: Callable[..., Any], args: tuple[Any, ...], top: bool) -> Any:
        nested = [a for a in args if isinstance(a, tuple | list)]
        if not nested or not (top or self.deep):
            return function(*args)
        if len(nested) < len(args) or len({len(a) for a in nested}) > 1:
            why = f"{type(self).__name__} of containers that do not correspond"
            raise UserError("E0594", why, fix="give tuples of one length; fix other values with ops.partial")
        made = [self._apply(function, items, top=False) for items in zip(*args, strict=True)]
        return type(args[0])(made) if type(args[0]) in (tuple, list) else tuple(made)


class Map(HyperMap):
    """As `HyperMap`, of the outermost level only."""

    deep = False


__all__ = ["GradOperation", "HyperMap", "Map", "MultitypeFuncGraph", "partial"]
