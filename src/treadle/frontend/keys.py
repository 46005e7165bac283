"""Keys of compiled programs: what must be equal for a program to be used again, and in words what was not.

The key of a call: the shape of the argument tree and for each leaf its type (tensors), the word "float" (Python floats
are inputs), or the value itself (everything else is fixed in the program).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from treadle.base.errors import UserError
from treadle.frontend import casting
from treadle.frontend.trace import is_dynamic, is_tensor, leaf_type
from treadle.frontend.tree import TreeDef, argument_name


class Typed(NamedTuple):
    """What counts of a tensor or NumPy array; weak: float or complex for a number, which takes others' types."""

    dtype: Any
    shape: tuple[int, ...]
    weak: type | None


class Fixed(NamedTuple):
    """What counts of a leaf that is no input: all of it."""

    type: type
    value: Any


@dataclass(frozen=True)
class Key:
    """The argument tree's shape, one entry per leaf, and what autocast and precision are set to."""

    shape: TreeDef
    leaves: tuple[Any, ...]
    setting: tuple[Any, ...] = ()

    def __hash__(self) -> int:
        return hash((self.shape, self.leaves))


def key_of(leaves: Sequence[Any], shape: TreeDef) -> Key:
    """The key of a call. Raises E0207 for an argument that is neither a tensor nor hashable."""
    entries: tuple[Any, ...] = tuple([counted(leaf) for leaf in leaves])
    tensors = [id(leaf) for leaf in leaves if is_tensor(leaf)]
    if len(set(tensors)) < len(tensors):
        entries += (("same tensors", tuple([tensors.index(i) for i in tensors])),)
    try:
        hash(entries)
    except TypeError:
        bad = next(
            i for i, leaf in enumerate(leaves) if not is_dynamic(leaf) and getattr(type(leaf), "__hash__", None) is None
        )
        path = argument_name(shape.paths()[bad])
        raise UserError(
            "E0207",
            f"{path} is a {type(leaves[bad]).__name__}, which can neither be an input nor be compared",
            fix="pass tensors, NumPy arrays, numbers, strings, or containers of them",
        ) from None
    return Key(shape, entries, casting.setting())


def counted(leaf: Any) -> Typed | Fixed | type:
    """What of a leaf decides which program fits; of a Python float or complex its class. Raises E0207 for an iterator.

    api/again.py compares the same.
    """
    if is_tensor(leaf):
        value = leaf._value
        return Typed(value.dtype, value.shape, leaf._weak)
    if type(leaf) in (float, complex):
        return type(leaf)
    if is_dynamic(leaf):
        return Typed(leaf.dtype, leaf.shape, None)
    if isinstance(leaf, Iterator):
        why = f"an argument is a {type(leaf).__name__}, which can be gone through only once"
        raise UserError("E0207", why, fix="pass a list or tuple: list(...)")
    return Fixed(type(leaf), leaf)


def explain(new: Key, old: Sequence[Key]) -> str:
    """Why no program of the `old` keys fits: the first difference from the nearest one."""
    if not old:
        return "first call"
    return min((_differences(new, key) for key in old), key=len)[0]


def _differences(new: Key, old: Key) -> list[str]:
    if new.shape != old.shape:
        return [f"the arguments are {new.shape}, before {old.shape}"]
    paths = new.shape.paths()
    found = [
        f"{argument_name(p)} is {_show(a)}, before {_show(b)}"
        for p, a, b in zip(paths, new.leaves, old.leaves, strict=False)
        if a != b
    ]
    if new.setting != old.setting:
        found.append(f"the setting is {_words(new.setting)}, before {_words(old.setting)}")
    if not found and new.leaves != old.leaves:
        found = ["other arguments are the same tensor"]
    return found or ["a setting or a captured tensor changed"]


def _words(setting: tuple[Any, ...]) -> str:
    return ", ".join(f"{name} {value}" for name, value in setting) or "no autocast"


def _show(entry: Any) -> str:
    if isinstance(entry, Typed):
        return f"{entry.dtype}{list(entry.shape)}"
    if isinstance(entry, Fixed):
        return f"{entry.value!r} (fixed in the program)"
    return f"a {entry.__name__}"


def describe(leaf: Any) -> str:
    """A dynamic leaf's type in words."""
    return str(leaf_type(leaf))
