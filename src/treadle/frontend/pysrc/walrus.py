"""`:=` behind `and` or `or` in a test, written as nested `if`s: where a tensor decides, such an operand is a branch.

    if a and (y := b): c   ->   if a:
    else: d                         if (y := b): c
                                    else: d
                                else: d

`without_walrus` takes the statements of a function and gives them so; a `while` with such a test becomes one that ends
by `break`. Elsewhere such an operand stays, and a tensor that decides about it is refused.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence
from typing import Any

from treadle.frontend.pysrc.names import SCOPES, contains


def without_walrus(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements without `:=` behind the first operand of a test."""
    visitor = _Splitter()
    return ast.Module([visitor.visit(s) for s in body], []).body


class _Splitter(ast.NodeTransformer):
    def visit(self, node: ast.AST) -> Any:
        return node if isinstance(node, SCOPES) else super().visit(node)

    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        return _split(node)

    def visit_While(self, node: ast.While) -> ast.AST:
        self.generic_visit(node)
        if node.orelse or not _is_split(node.test):
            return node
        stop: list[ast.stmt] = [ast.Break()]
        node.body = [_at(_split(ast.If(node.test, node.body, stop)), node)]
        node.test = _at(ast.Constant(True), node.test)
        return node


def _is_split(test: ast.expr) -> bool:
    return isinstance(test, ast.BoolOp) and contains(test.values[1:], ast.NamedExpr)


def _split(node: ast.If) -> ast.If:
    test = node.test
    if not _is_split(test):
        return node
    assert isinstance(test, ast.BoolOp)
    first, rest = test.values[0], test.values[1:]
    after = rest[0] if len(rest) == 1 else ast.BoolOp(test.op, rest)
    if isinstance(test.op, ast.And):
        made = ast.If(first, [_split(ast.If(after, node.body, node.orelse))], copy.deepcopy(node.orelse))
    else:
        made = ast.If(first, copy.deepcopy(node.body), [_split(ast.If(after, node.body, node.orelse))])
    return _at(made, node)  # type: ignore[no-any-return]


def _at(node: Any, at: ast.AST) -> Any:
    ast.copy_location(node, at)
    return ast.fix_missing_locations(node)
