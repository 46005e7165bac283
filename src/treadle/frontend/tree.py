"""Nested containers: `flatten(tree)` gives the leaves and a hashable `TreeDef` that puts leaves back into the same
shape.

Containers are tuples, named tuples, lists, dicts (in insertion order) and their subclasses, dataclasses and classes
given to `register`; everything else is a leaf.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from treadle.base.errors import UserError


@dataclasses.dataclass(frozen=True, slots=True)
class TreeDef:
    """The shape of a tree. kind: None for a leaf, else the container's class; keys: what tells the children apart."""

    kind: type | None
    keys: tuple[Any, ...] = ()
    children: tuple[TreeDef, ...] = ()

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The tree with these leaves. Raises E0210 when their number is wrong."""
        rest = iter(leaves)
        tree = self._build(rest)
        if next(rest, _END) is not _END:
            raise UserError(
                "E0210", f"more leaves than the {self.num_leaves} of the tree", fix="pass as many as flatten gave"
            )
        return tree

    def _build(self, leaves: Iterator[Any]) -> Any:
        if self.kind is None:
            leaf = next(leaves, _END)
            if leaf is _END:
                raise UserError("E0210", "fewer leaves than the tree has", fix="pass as many as flatten gave")
            return leaf
        return _codec(self.kind).join(self.kind, self.keys, [c._build(leaves) for c in self.children])

    @property
    def num_leaves(self) -> int:
        return 1 if self.kind is None else sum(c.num_leaves for c in self.children)

    def paths(self, prefix: str = "") -> list[str]:
        """For each leaf, how to reach it: `[0].weight['a']`."""
        if self.kind is None:
            return [prefix]
        steps = [f".{k}" if dataclasses.is_dataclass(self.kind) else f"[{k!r}]" for k in self.keys]
        return [p for step, child in zip(steps, self.children, strict=True) for p in child.paths(prefix + step)]

    def __str__(self) -> str:
        if self.kind is None:
            return "*"
        inside = ", ".join(f"{k}: {c}" for k, c in zip(self.keys, self.children, strict=True))
        return f"{self.kind.__name__}({inside})"


_END = object()
LEAF = TreeDef(None)


@dataclasses.dataclass(frozen=True)
class _Codec:
    """How a container class is taken apart (tree -> keys, children) and put together (class, keys, children ->
    tree)."""

    split: Callable[[Any], tuple[tuple[Any, ...], Sequence[Any]]]
    join: Callable[[type, tuple[Any, ...], list[Any]], Any]


def _join_dataclass(kind: type, keys: tuple[Any, ...], children: list[Any]) -> Any:
    made: Any = object.__new__(kind)
    for key, child in zip(keys, children, strict=True):
        object.__setattr__(made, key, child)
    return made


def _join_dict(kind: type, keys: tuple[Any, ...], children: list[Any]) -> Any:
    made: Any = kind.__new__(kind)  # type: ignore[call-overload]
    made.update(zip(keys, children, strict=True))
    return made


_SEQUENCE = _Codec(lambda t: (tuple(range(len(t))), t), lambda kind, _, children: kind(children))
_NAMED = _Codec(lambda t: (tuple(range(len(t))), t), lambda kind, _, children: kind(*children))
_DICT = _Codec(lambda t: (tuple(t), list(t.values())), _join_dict)
_DATA = _Codec(
    lambda t: (tuple([f.name for f in dataclasses.fields(t)]), [getattr(t, f.name) for f in dataclasses.fields(t)]),
    _join_dataclass,
)
_codecs: dict[type, _Codec | None] = {tuple: _SEQUENCE, list: _SEQUENCE, dict: _DICT}


def _codec(kind: type) -> Any:
    if kind not in _codecs:
        if issubclass(kind, tuple):
            _codecs[kind] = _NAMED if hasattr(kind, "_fields") else _SEQUENCE
        elif issubclass(kind, dict | list):
            _codecs[kind] = _DICT if issubclass(kind, dict) else _SEQUENCE
        else:
            _codecs[kind] = _DATA if dataclasses.is_dataclass(kind) else None
    return _codecs[kind]


def register(
    kind: type, split: Callable[[Any], tuple[tuple[Any, ...], Sequence[Any]]], join: Callable[..., Any]
) -> None:
    """Make `kind` a container: split(tree) -> (keys, children); join(keys, children) -> tree."""
    _codecs[kind] = _Codec(split, lambda _, keys, children: join(keys, children))


def flatten(tree: Any) -> tuple[list[Any], TreeDef]:
    """Leaves in order and the shape of the tree."""
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves)


def _flatten(tree: Any, leaves: list[Any]) -> TreeDef:
    codec = _codec(type(tree))
    if codec is None:
        leaves.append(tree)
        return LEAF
    keys, children = codec.split(tree)
    return TreeDef(type(tree), keys, tuple([_flatten(c, leaves) for c in children]))


Reader = Callable[[Any], "list[Any] | None"]


def reader(shape: TreeDef) -> Reader:
    """A function that gives the leaves of a tree of this shape as `flatten` does, faster, and None for another shape.

    What stands in a leaf's place is not looked at: the caller compares the classes. Written out in Python, a line or
    two for each container, and compiled.
    """
    scope: dict[str, Any] = {}
    lines: list[str] = []
    parts = _reading(shape, "t", lines, scope)
    text = "\n ".join(["def read(t):", *lines, f"return [{', '.join(parts)}]"])
    exec(text, scope)
    made: Reader = scope["read"]
    return made


def _reading(shape: TreeDef, name: str, lines: list[str], scope: dict[str, Any]) -> list[str]:
    """Add the lines that take apart what the variable `name` holds; the entries of the list of leaves."""
    if shape.kind is None:
        return [name]
    at, kind, count = len(scope), shape.kind, len(shape.children)
    scope[f"kind{at}"], scope[f"keys{at}"] = kind, shape.keys
    lines.append(f"if type({name}) is not kind{at}: return None")
    inside = name
    if kind is dict:
        lines.append(f"if tuple({name}) != keys{at}: return None")
        inside = f"{name}.values()"
    elif kind in (tuple, list):
        lines.append(f"if len({name}) != {count}: return None")
    else:
        scope[f"split{at}"] = lambda tree: _codec(kind).split(tree)
        lines += [f"k, c{at} = split{at}({name})", f"if k != keys{at} or len(c{at}) != {count}: return None"]
        inside = f"c{at}"
    if all(child.kind is None for child in shape.children):
        return [f"*{inside}"]
    names = [f"{name}_{i}" for i in range(count)]
    lines.append(f"{', '.join(names)}, = {inside}")
    return [part for n, child in zip(names, shape.children, strict=True) for part in _reading(child, n, lines, scope)]


def tree_map(function: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """`function` applied leaf by leaf to trees of one shape. Raises E0211 when the shapes differ."""
    leaves, shape = flatten(tree)
    others = []
    for other in rest:
        found, other_shape = flatten(other)
        if other_shape != shape:
            raise UserError("E0211", f"the trees differ: {shape} and {other_shape}", fix="pass trees of one shape")
        others.append(found)
    return shape.unflatten([function(*xs) for xs in zip(leaves, *others, strict=True)])


def argument_name(path: str) -> str:
    """The path of a leaf of (args, kwargs) in words: `[0][1]['w']` is `argument 1['w']`."""
    if path.startswith("[0]["):
        position, _, rest = path[4:].partition("]")
        return f"argument {position}{rest}"
    return f"argument {path[3:]}"
