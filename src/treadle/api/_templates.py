"""What a traced function wants to show, raise or pass to Python, with places where the tensors' values go.

`Places` takes values with tensors in them and gives templates; a template makes the same of the arrays that the program
has when it runs. Templates are equal when they do the same, so that a function traced again gives equal IR.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from treadle.base.errors import UserError
from treadle.base.where import Where
from treadle.frontend import tree
from treadle.frontend.pysrc.builtin import Text, formatted
from treadle.frontend.tensor import Number, Tensor

Arrays = Sequence[np.ndarray[Any, Any]]
_PLAIN = (str, int, float, bool, complex, bytes, type(None))


# --------------------------------------------------------------------------------------------------------------- values
class Same:
    """An object itself. Equal for plain values that are shown alike, else for the same object."""

    __slots__ = ("key", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.key = (type(value), repr(value)) if type(value) in _PLAIN else id(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def made(self, arrays: Arrays) -> Any:
        return self.value


@dataclass(frozen=True)
class Shown:
    """An object as it was shown while tracing."""

    text: str

    def made(self, arrays: Arrays) -> Shown:
        return self

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Place:
    """A tensor: the number of its array, and its class."""

    number: int
    kind: type

    def made(self, arrays: Arrays) -> Any:
        array = arrays[self.number]
        if issubclass(self.kind, Number):
            return array.item()
        made: Any = object.__new__(self.kind)
        made._value, made._trace, made._weak = array, None, None
        return made


@dataclass(frozen=True)
class Tree:
    """A container of the above, or one of them."""

    shape: tree.TreeDef
    leaves: tuple[Any, ...]

    @property
    def has_tensors(self) -> bool:
        return any(isinstance(leaf, Place) for leaf in self.leaves)

    def made(self, arrays: Arrays) -> Any:
        return self.shape.unflatten([leaf.made(arrays) for leaf in self.leaves])

    def text(self, arrays: Arrays) -> str:
        return str(self.made(arrays))


# ---------------------------------------------------------------------------------------------------------------- texts
@dataclass(frozen=True)
class Fixed:
    """A text without tensors."""

    value: str

    def text(self, arrays: Arrays) -> str:
        return self.value


@dataclass(frozen=True)
class Formatted:
    """A value in an f-string, with its conversion (-1: none) and format."""

    value: Tree
    conversion: int
    form: Any

    def text(self, arrays: Arrays) -> str:
        return formatted(self.value.made(arrays), self.conversion, self.form.text(arrays))


@dataclass(frozen=True)
class Joined:
    """An f-string."""

    parts: tuple[Any, ...]

    def text(self, arrays: Arrays) -> str:
        return "".join([p.text(arrays) for p in self.parts])

    made = text


@dataclass(frozen=True)
class Format:
    """line.format(*args, **kwargs), both in one tree."""

    line: str
    values: Tree

    def text(self, arrays: Arrays) -> str:
        args, kwargs = self.values.made(arrays)
        return self.line.format(*args, **kwargs)

    made = text


class Places:
    """The tensors that a template needs when the program runs, each once."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []

    def tree(self, value: Any, shown: bool = False) -> Tree:
        """A container with places for its tensors. shown: other objects but plain ones by the text that shows them now;
        else they are kept as they are."""
        leaves, shape = tree.flatten(value)
        return Tree(shape, tuple([self._leaf(leaf, shown) for leaf in leaves]))

    def text(self, part: Any) -> Tree | Joined | Fixed:
        """What `print` shows of an argument."""
        if isinstance(part, Text):
            return Joined(tuple([Fixed(p) if isinstance(p, str) else self._formatted(*p) for p in part.parts]))
        found = self.tree(part, shown=True)
        return found if found.has_tensors else Fixed(str(part))

    def part(self, value: Any) -> Tree | Joined:
        """What an exception holds."""
        if isinstance(value, Text):
            found = self.text(value)
            assert isinstance(found, Joined)
            return found
        return self.tree(value)

    def _formatted(self, value: Any, conversion: int, form: Any) -> Formatted | Fixed:
        found, spec = self.tree(value, shown=True), self.text(form)
        if not found.has_tensors and isinstance(spec, Fixed):
            return Fixed(formatted(value, conversion, spec.value))
        return Formatted(found if found.has_tensors else self.tree(value), conversion, spec)

    def _leaf(self, leaf: Any, shown: bool) -> Same | Shown | Place:
        if not isinstance(leaf, Tensor):
            return Shown(repr(leaf)) if shown and type(leaf) not in _PLAIN else Same(leaf)
        place = next((i for i, t in enumerate(self.tensors) if t is leaf), len(self.tensors))
        if place == len(self.tensors):
            self.tensors.append(leaf)
        return Place(place, type(leaf))


# ------------------------------------------------------------------------------------------------ what a program calls
_NO_FILE = Same(None)


@dataclass(frozen=True)
class Print:
    """`print` of texts."""

    parts: tuple[Any, ...]
    sep: str = " "
    end: str = "\n"
    file: Same = _NO_FILE
    flush: bool = False

    def __call__(self, *arrays: Any) -> None:
        texts = [p.text(arrays) for p in self.parts]
        print(*texts, sep=self.sep, end=self.end, file=self.file.value, flush=self.flush)


@dataclass(frozen=True)
class Raise:
    """`raise kind(*args)` at a line of the user; state: attributes of the exception."""

    kind: type[BaseException]
    args: tuple[Any, ...]
    state: tuple[tuple[str, Any], ...]
    place: Where

    def __call__(self, *arrays: Any) -> NoReturn:
        args = tuple([a.made(arrays) for a in self.args])
        if isinstance(self.kind.__init__, types.FunctionType):  # it may take other arguments than it keeps
            error = self.kind.__new__(self.kind, *args)
            error.args = args
        else:
            error = self.kind(*args)
        error.__dict__.update({k: v.made(arrays) for k, v in self.state})
        raise_at(error, self.place)


def raise_at(error: BaseException, place: Where) -> NoReturn:
    """Raise with a traceback that ends in the line of the user's function, as it would if Python had run it."""
    if place.line > 0:
        code = compile("\n" * (place.line - 1) + "raise error", place.file, "exec")
        exec(code.replace(co_name="compiled function"), {"error": error})
    raise error


@dataclass(frozen=True)
class Call:
    """function(*args, **kwargs), both in one tree."""

    function: Same
    values: Tree

    def __call__(self, *arrays: Any) -> Any:
        args, kwargs = self.values.made(arrays)
        return self.function.value(*args, **kwargs)


@dataclass(frozen=True)
class Compute:
    """A call whose results are arrays; shape: of the container that it returns."""

    call: Call
    shape: tree.TreeDef

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        leaves, shape = tree.flatten(self.call(*arrays))
        if shape != self.shape:
            why = f"pure_callback: the function returned {shape}, not {self.shape}"
            raise UserError("E0178", why, fix="return the containers that the results were told by")
        return tuple([leaf.numpy() if isinstance(leaf, Tensor) else np.asarray(leaf) for leaf in leaves])
