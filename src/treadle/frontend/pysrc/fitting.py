"""Whether a subject fits a pattern of `match`: `match(subject, pattern)` says so, and what the names in it hold.

Patterns are nested tuples, made by matching.py: a kind and its parts, with values and classes in functions, as they are
looked at only when their turn comes. Where a tensor decides, the answer is a bool of the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from treadle.frontend.pysrc import builtin
from treadle.frontend.pysrc.builtin import is_symbolic


class Match:
    """found: whether the pattern fits, a bool or one of the trace; names: what its names hold then."""

    def __init__(self, subject: Any, pattern: tuple[Any, ...]) -> None:
        self.names: dict[str, Any] = {}
        self.found = _fits(subject, pattern, self.names)


def match(subject: Any, pattern: tuple[Any, ...]) -> Match:
    """Whether a subject fits a pattern."""
    return Match(subject, pattern)


def _fits(subject: Any, pattern: tuple[Any, ...], names: dict[str, Any]) -> Any:
    kind, *rest = pattern
    if kind == "value":
        equal = subject == rest[0]()
        return equal if is_symbolic(equal) else bool(equal)
    if kind == "is":
        return subject is rest[0]
    if kind == "any":
        return True
    if kind == "as":
        names[rest[1]] = subject
        return _fits(subject, rest[0], names)
    return _INSIDE[kind](subject, rest, names)


def _one_of(subject: Any, patterns: list[Any], names: dict[str, Any]) -> Any:
    """The first alternative that fits gives the names."""
    from treadle.frontend.pysrc import runtime

    first, *rest = patterns
    own: dict[str, Any] = {}
    found = _fits(subject, first, own)
    if not rest or (not is_symbolic(found) and found):
        names.update(own)
        return found
    others: dict[str, Any] = {}
    second = _one_of(subject, rest, others)
    if not is_symbolic(found) or (not is_symbolic(second) and not second):
        names.update(others if not is_symbolic(found) else own)
        return second if not is_symbolic(found) else found
    for name, value in own.items():
        names[name] = runtime.if_expression(found, lambda v=value: v, lambda n=name: others[n])  # type: ignore[misc]
    return runtime.or_(found, lambda: second)


def _all(parts: Sequence[tuple[Any, Any]], names: dict[str, Any]) -> Any:
    """Whether each value fits its pattern."""
    from treadle.frontend.pysrc import runtime

    found: Any = True
    for value, pattern in parts:
        one = _fits(value, pattern, names)
        if not is_symbolic(one) and not one:
            return False
        found = runtime.and_(found, lambda one=one: one)  # type: ignore[misc]
    return found


def _sequence(subject: Any, patterns: list[Any], names: dict[str, Any]) -> Any:
    if not isinstance(subject, Sequence) or isinstance(subject, str | bytes | bytearray):
        return False
    values, stars = list(subject), [i for i, p in enumerate(patterns) if p[0] == "star"]
    if not stars:
        return len(values) == len(patterns) and _all(list(zip(values, patterns, strict=True)), names)
    before, after = stars[0], len(patterns) - stars[0] - 1
    if len(values) < before + after:
        return False
    if (name := patterns[before][1]) is not None:
        names[name] = values[before : len(values) - after]
    ends = [*zip(values[:before], patterns[:before], strict=True)]
    ends += zip(values[len(values) - after :], patterns[before + 1 :], strict=True) if after else []
    return _all(ends, names)


def _mapping(subject: Any, rest: list[Any], names: dict[str, Any]) -> Any:
    if not isinstance(subject, Mapping):
        return False
    name, *pairs = rest
    keys = [key() for key, _ in pairs]
    if any(k not in subject for k in keys):
        return False
    if name is not None:
        names[name] = {k: v for k, v in subject.items() if k not in keys}
    return _all([(subject[k], p) for k, (_, p) in zip(keys, pairs, strict=True)], names)


_ITSELF = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)


def _instance(subject: Any, rest: list[Any], names: dict[str, Any]) -> Any:
    from treadle.frontend.pysrc import runtime

    kind, patterns, named = rest[0](), rest[1], list(rest[2])
    if not builtin.REPLACED[isinstance](subject, kind):
        return False
    parts: list[tuple[Any, Any]] = []
    if patterns and kind in _ITSELF:
        parts, patterns = [(subject, patterns[0])], patterns[1:]
    known = getattr(kind, "__match_args__", ())
    if len(patterns) > len(known):
        raise TypeError(f"{kind.__name__}() accepts {len(known)} positional sub-patterns ({len(patterns)} given)")
    for name, pattern in [*zip(known, patterns), *named]:
        try:
            parts.append((runtime.attribute(subject, name), pattern))
        except AttributeError:
            return False
    return _all(parts, names)


_INSIDE: dict[str, Callable[[Any, list[Any], dict[str, Any]], Any]] = {
    "or": _one_of, "sequence": _sequence, "mapping": _mapping, "class": _instance,
}  # fmt: skip
