"""What a traced function read from Python around it: plain values that the program has fixed, and whether they changed.

`watch(function)` looks at the globals and closure variables that the function's code names, and those of the functions
among them, as far as the code is the user's. Numbers, strings, None, containers of them, and those attributes of
objects that the code names are remembered; `changed(watched)` compares. Code of installed packages is taken not to
change.
"""

from __future__ import annotations

import operator
import sys
import sysconfig
import types
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from treadle.base.where import is_hidden
from treadle.frontend.trace import is_tensor
from treadle.ir.node import attr_key

_SCALARS = (bool, int, float, complex, str, bytes, type(None))
_MOST_ENTRIES = 256
_INSTALLED = tuple({p for k in ("purelib", "platlib", "stdlib") if (p := sysconfig.get_paths().get(k))})
_MISSING = object()
_MOST_BYTES = 1 << 14
_NOT_DATA = (types.ModuleType, types.FunctionType, types.MethodType, types.BuiltinFunctionType)


@dataclass(frozen=True, slots=True)
class Watched:
    """A place that is read again at each call, what it held when the program was traced, and its name for messages.

    surely: a quick test that is true only of a value that is still the same.
    """

    name: str
    read: Callable[[], Any]
    names: frozenset[str]
    was: Any
    surely: Callable[[Any], bool]


def watch(function: Any) -> list[Watched]:
    """The watched values of a function (or of the method, partial or jitted function that wraps it)."""
    found: list[Watched] = []
    _visit(function, found, set())
    return found


def changed(watched: list[Watched]) -> str:
    """The name of the first value that is no longer what it was, "" if all are."""
    for each in watched:
        value = each.read()
        if each.surely(value):
            continue
        if isinstance(each.was, _SameAll) or _snapshot(value, each.names) != each.was:
            return each.name
    return ""


def _quick(value: Any, snapshot: Any) -> Callable[[Any], bool]:
    """A test of what a place holds: true if that is `value` itself, which was given this snapshot and cannot have
    changed; false where one must look."""
    if isinstance(snapshot, _SameAll):
        return snapshot.holds
    if isinstance(value, _SCALARS):
        return lambda now: now is value
    if isinstance(snapshot, _Same) and not isinstance(value, np.ndarray):
        ref = snapshot.ref
        return lambda now: now is not None and now is ref()
    kind = type(value)
    if kind is dict and all(isinstance(v, _SCALARS) for each in value.items() for v in each):
        return _held(dict, [v for each in value.items() for v in each], lambda now: [v for e in now.items() for v in e])
    if kind in (list, tuple) and all(isinstance(v, _SCALARS) for v in value):
        return _held(kind, list(value), lambda now: now)
    return lambda now: False


def _held(kind: type, held: list[Any], entries: Callable[[Any], Any]) -> Callable[[Any], bool]:
    """Whether a container still has these very entries, which never change."""

    def holds(now: Any) -> bool:
        return type(now) is kind and len(found := entries(now)) == len(held) and all(map(operator.is_, found, held))

    return holds


def _visit(function: Any, found: list[Watched], seen: set[int]) -> None:
    function = getattr(function, "function", function)  # a jitted function
    function = getattr(function, "func", function)  # functools.partial
    owner = getattr(function, "__self__", None)
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    if not isinstance(code, types.CodeType) or id(code) in seen or not _is_users(code.co_filename):
        return
    seen.add(id(code))
    names = frozenset(name for part in _codes(code) for name in part.co_names)
    if owner is not None:
        weak = hasattr(type(owner), "__weakref__") or isinstance(owner, type)
        _add("self", weakref.ref(owner) if weak else lambda: owner, names, found, seen)
    if defaults := _defaults(function):
        snapshot = _snapshot(defaults, names)
        if snapshot is not _MISSING:
            found.append(Watched("a default", lambda: _defaults(function), names, snapshot, _quick(defaults, snapshot)))
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        _add(name, _cell_reader(cell), names, found, seen)
    for name in sorted(names & function.__globals__.keys()):
        _add(name, _global_reader(function.__globals__, name), names, found, seen)


def _defaults(function: Any) -> Any:
    return (function.__defaults__ or ()) + tuple((function.__kwdefaults__ or {}).values())


def _is_users(file: str) -> bool:
    return not is_hidden(file) and not file.startswith(_INSTALLED)


def _add(name: str, read: Callable[[], Any], names: frozenset[str], found: list[Watched], seen: set[int]) -> None:
    value = read()
    snapshot = _snapshot(value, names)
    if snapshot is not _MISSING:
        found.append(Watched(name, read, names, snapshot, _quick(value, snapshot)))
    if hasattr(value, "__code__") or hasattr(value, "__func__") or hasattr(value, "function"):
        _visit(value, found, seen)


@dataclass(frozen=True, slots=True)
class _Same:
    """The very same object: a tensor or cell that a name is bound to. Held weakly."""

    ref: Callable[[], Any]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.ref() is not None and self.ref() is other.ref()

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class _SameAll:
    """The very same tensors in a list or tuple, as a training step's parameters: compared in one go at each call."""

    kind: type
    tensors: tuple[Any, ...]

    def holds(self, value: Any) -> bool:
        if not isinstance(value, list | tuple) or type(value) is not self.kind or len(value) != len(self.tensors):
            return False
        return all(map(operator.is_, value, self.tensors))


def _snapshot(value: Any, names: frozenset[str], depth: int = 0) -> Any:
    """A comparable copy of plain values and identities, `_MISSING` for what is neither."""
    if isinstance(value, _SCALARS):
        return attr_key(value)
    if is_tensor(value) or hasattr(type(value), "settings"):
        return _Same(weakref.ref(value))
    if isinstance(value, np.ndarray):
        return (value.dtype, value.shape, value.tobytes()) if value.nbytes <= _MOST_BYTES else _Same(weakref.ref(value))
    if depth == 0 and type(value) in (list, tuple) and value and all(map(is_tensor, value)):
        return _SameAll(type(value), tuple(value))
    if isinstance(value, list | tuple | set | frozenset) and len(value) <= _MOST_ENTRIES and depth < 4:
        parts = [_snapshot(v, names, depth + 1) for v in value]
        ordered = parts if isinstance(value, list | tuple) else sorted(map(repr, parts))
        return _MISSING if any(p is _MISSING for p in parts) else (type(value), ordered)
    if isinstance(value, dict) and len(value) <= _MOST_ENTRIES and depth < 4:
        entries = [(repr(k), _snapshot(v, names, depth + 1)) for k, v in value.items()]
        return _MISSING if any(v is _MISSING for _, v in entries) else (dict, entries)
    return _attributes(value, names, depth) if depth < 3 else _MISSING


def _attributes(value: Any, names: frozenset[str], depth: int) -> Any:
    """The attributes in `names` of an object of a user's class (a configuration, a namespace), and of the class."""
    kind = type(value)
    own = getattr(value, "__dict__", None)
    if not isinstance(own, dict) or isinstance(value, _NOT_DATA):
        return _MISSING
    if kind is not types.SimpleNamespace and not _is_users(_file_of(kind)):
        return _MISSING
    held = {**{k: v for k, v in vars(kind).items() if k in names and not callable(v)}, **own}
    parts = [(k, s) for k, v in held.items() if k in names and (s := _snapshot(v, names, depth + 1)) is not _MISSING]
    return (kind, parts) if parts else _MISSING


def _file_of(kind: type) -> str:
    module = sys.modules.get(kind.__module__)
    return getattr(module, "__file__", None) or "<typed in>"


def _cell_reader(cell: types.CellType) -> Callable[[], Any]:
    def read() -> Any:
        try:
            return cell.cell_contents
        except ValueError:
            return _MISSING

    return read


def _global_reader(space: dict[str, Any], name: str) -> Callable[[], Any]:
    return lambda: space.get(name, _MISSING)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _codes(const)
