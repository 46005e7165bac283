"""`match` written as `if`, so that tensors may decide in its patterns and guards.

    match s:               ->   _td_subject1 = s
        case (a, 1) if g:       _td_match1 = _td_.match(_td_subject1, ("sequence", ...))
            b                   if _td_match1.found:
        case _:                     a = _td_match1.names["a"]
            c                       if g: b
                                    else: c
                                else: c

`without_matches` takes the statements of a function and gives them without `match`; fitting.py holds what they call.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence
from typing import Any

from treadle.frontend.pysrc.names import SCOPES

_MOST_GUARDS = 4  # each doubles what comes after it


def without_matches(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements with each `match` as assignments and nested `if`s."""
    visitor = _Matches()
    return ast.Module([visitor.visit(s) for s in body], []).body


class _Matches(ast.NodeTransformer):
    def __init__(self) -> None:
        self.count = 0

    def visit(self, node: ast.AST) -> Any:
        return node if isinstance(node, SCOPES) else super().visit(node)

    def visit_Match(self, node: ast.Match) -> ast.AST:
        self.generic_visit(node)
        if sum(case.guard is not None for case in node.cases) > _MOST_GUARDS:
            return node
        self.count += 1
        return _as_ifs(node, str(self.count))


def _as_ifs(node: ast.Match, number: str) -> ast.stmt:
    subject, found = f"_td_subject{number}", f"_td_match{number}"
    orelse: list[ast.stmt] = []
    for case in reversed(node.cases):
        body, rest = case.body, orelse
        if case.guard is not None:
            body, rest = [_at(ast.If(case.guard, case.body, orelse), case.body[0])], copy.deepcopy(orelse)
        test = _test(case.pattern, subject)
        if test is not None:
            name = case.pattern.name if isinstance(case.pattern, ast.MatchAs) else None
            binds = [ast.Assign([ast.Name(name, ast.Store())], _load(subject))] if name is not None else []
            made: list[ast.stmt] = [ast.If(test, [*binds, *body], rest)]
        else:
            call = _runtime("match", [_load(subject), _spec(case.pattern)])
            names = _attribute(found, "names")
            binds = [
                ast.Assign([ast.Name(n, ast.Store())], ast.Subscript(names, ast.Constant(n), ast.Load()))
                for n in _names(case.pattern)
            ]
            branch = ast.If(_attribute(found, "found"), [*binds, *body], rest)
            made = [ast.Assign([ast.Name(found, ast.Store())], call), branch]
        orelse = [_at(s, case.body[0]) for s in made]
    start = ast.Assign([ast.Name(subject, ast.Store())], node.subject)
    return _at(ast.If(ast.Constant(True), [start, *orelse], []), node)  # type: ignore[no-any-return]


def _test(pattern: ast.pattern, subject: str) -> ast.expr | None:
    """A test for values, alternatives of them, names and `_`; None for patterns that look inside."""
    if isinstance(pattern, ast.MatchValue):
        return ast.Compare(_load(subject), [ast.Eq()], [pattern.value])
    if isinstance(pattern, ast.MatchSingleton):
        return ast.Compare(_load(subject), [ast.Is()], [ast.Constant(pattern.value)])
    if isinstance(pattern, ast.MatchAs) and pattern.pattern is None:
        return ast.Constant(True)
    if isinstance(pattern, ast.MatchOr):
        parts = [_test(p, subject) for p in pattern.patterns]
        found = [p for p in parts if p is not None]
        return ast.BoolOp(ast.Or(), found) if len(found) == len(parts) else None
    return None


def _spec(pattern: ast.pattern) -> ast.expr:
    """The pattern as an expression, for `match`."""
    if isinstance(pattern, ast.MatchValue):
        return _tuple(ast.Constant("value"), _thunk(pattern.value))
    if isinstance(pattern, ast.MatchSingleton):
        return _tuple(ast.Constant("is"), ast.Constant(pattern.value))
    if isinstance(pattern, ast.MatchAs):
        inner = _tuple(ast.Constant("any")) if pattern.pattern is None else _spec(pattern.pattern)
        return inner if pattern.name is None else _tuple(ast.Constant("as"), inner, ast.Constant(pattern.name))
    if isinstance(pattern, ast.MatchOr):
        return _tuple(ast.Constant("or"), *map(_spec, pattern.patterns))
    if isinstance(pattern, ast.MatchStar):
        return _tuple(ast.Constant("star"), ast.Constant(pattern.name))
    if isinstance(pattern, ast.MatchSequence):
        return _tuple(ast.Constant("sequence"), *map(_spec, pattern.patterns))
    if isinstance(pattern, ast.MatchMapping):
        pairs = [_tuple(_thunk(k), _spec(p)) for k, p in zip(pattern.keys, pattern.patterns, strict=True)]
        return _tuple(ast.Constant("mapping"), ast.Constant(pattern.rest), *pairs)
    assert isinstance(pattern, ast.MatchClass)
    named = [_tuple(ast.Constant(n), _spec(p)) for n, p in zip(pattern.kwd_attrs, pattern.kwd_patterns, strict=True)]
    return _tuple(ast.Constant("class"), _thunk(pattern.cls), _tuple(*map(_spec, pattern.patterns)), _tuple(*named))


def _names(pattern: ast.pattern) -> list[str]:
    """The names that a pattern binds."""
    found = [getattr(n, "rest" if isinstance(n, ast.MatchMapping) else "name", None) for n in ast.walk(pattern)
             if isinstance(n, ast.MatchAs | ast.MatchStar | ast.MatchMapping)]  # fmt: skip
    return list(dict.fromkeys(n for n in found if n is not None))


# ------------------------------------------------------------------------------------------------------ building nodes
def _load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _attribute(owner: str, name: str) -> ast.Attribute:
    return ast.Attribute(_load(owner), name, ast.Load())


def _runtime(name: str, args: list[ast.expr]) -> ast.Call:
    return ast.Call(_attribute("_td_", name), args, [])


def _tuple(*parts: ast.expr) -> ast.expr:
    return ast.Tuple(list(parts), ast.Load())


def _thunk(value: ast.expr) -> ast.Lambda:
    return ast.Lambda(ast.arguments([], [], None, [], [], None, []), value)


def _at(node: Any, at: ast.AST) -> Any:
    ast.copy_location(node, at)
    return ast.fix_missing_locations(node)
