"""Which names a piece of a function binds and reads. Nested functions and classes are other scopes: only their own name
counts, except what they declare `nonlocal`.

Names are written as in the source: `x`, and for attributes of names `self.h`, `self.cell.h`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

SCOPES = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef
COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


@dataclass
class Names:
    """bound: plain names; attributes: `a.b` that are assigned; read: plain names and attribute chains that are read;
    nonlocals, globals: what is declared so; deep: what functions inside declare nonlocal."""

    bound: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    nonlocals: set[str] = field(default_factory=set)
    globals: set[str] = field(default_factory=set)
    deep: set[str] = field(default_factory=set)


def names_of(nodes: Iterable[ast.AST]) -> Names:
    """The names of some statements or expressions of one scope."""
    visitor = _Visitor()
    for node in nodes:
        visitor.visit(node)
    return visitor.names


class _Visitor(ast.NodeVisitor):
    def __init__(self) -> None:
        self.names = Names()
        self.hidden: list[set[str]] = []  # variables of the comprehensions around

    def visit_Name(self, node: ast.Name) -> None:
        if any(node.id in h for h in self.hidden):
            return
        if isinstance(node.ctx, ast.Load):
            self.names.read.add(node.id)
        else:
            self.names.bound.add(node.id)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.names.bound.add(node.target.id)
        self.visit(node.value)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        chain = chain_of(node)
        if chain is not None and not any(chain.split(".")[0] in h for h in self.hidden):
            (self.names.read if isinstance(node.ctx, ast.Load) else self.names.attributes).add(chain)
        self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.names.read.add(node.target.id)
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        self.names.globals.update(node.names)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.names.nonlocals.update(node.names)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.names.bound.add(node.name)
        self.generic_visit(node)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        self.names.bound.update(a.asname or a.name.split(".")[0] for a in node.names)

    visit_ImportFrom = visit_Import

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        if node.name:
            self.names.bound.add(node.name)
        self.generic_visit(node)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        if node.name:
            self.names.bound.add(node.name)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        if node.rest:
            self.names.bound.add(node.rest)
        self.generic_visit(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.names.bound.add(node.name)
        for part in [*node.decorator_list, *node.args.defaults, *[d for d in node.args.kw_defaults if d]]:
            self.visit(part)
        inner = names_of(node.body)
        self.names.deep |= inner.nonlocals | (inner.deep - inner.bound - set(parameters(node.args)))
        self.names.read |= {n for n in inner.read if n.split(".")[0] not in inner.bound | set(parameters(node.args))}

    visit_FunctionDef = visit_AsyncFunctionDef = _function

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for part in [*node.args.defaults, *[d for d in node.args.kw_defaults if d]]:
            self.visit(part)
        inner = names_of([node.body])
        self.names.read |= {n for n in inner.read if n.split(".")[0] not in set(parameters(node.args))}

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.names.bound.add(node.name)
        for part in [*node.decorator_list, *node.bases, *[k.value for k in node.keywords]]:
            self.visit(part)
        inner = names_of(node.body)
        self.names.deep |= inner.deep
        self.names.read |= {n for n in inner.read if n.split(".")[0] not in inner.bound}

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        own = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
        self.hidden.append(own)
        self.generic_visit(node)
        self.hidden.pop()

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension


def parameters(args: ast.arguments) -> list[str]:
    """The names of all parameters."""
    parts = [*args.posonlyargs, *args.args, *([args.vararg] if args.vararg else []), *args.kwonlyargs]
    return [a.arg for a in [*parts, *([args.kwarg] if args.kwarg else [])]]


def chain_of(node: ast.AST) -> str | None:
    """`a.b.c` of an attribute chain that starts at a name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def inside(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """All nodes below, without the bodies of other scopes."""
    for node in nodes:
        yield node
        if not isinstance(node, SCOPES):
            yield from inside(ast.iter_child_nodes(node))


def contains(nodes: Iterable[ast.AST], kinds: type | tuple[type, ...]) -> bool:
    """Whether a node of these kinds stands among them or below, in this scope."""
    return any(isinstance(n, kinds) for n in inside(nodes))
