"""From the syntax tree of a function to one in which control flow calls the runtime (`_td_`, see runtime.py).

    if t: a            ->   def _td_then(): nonlocal x; a
    else: b                 def _td_else(): nonlocal x; b
                            _td_.if_(t, _td_then, _td_else, <state>)

`while` and `for` become `_td_.while_` and `_td_.for_` likewise; `a and b`, `not a`, `a if t else b`, `a < b < c`,
`in`, `assert` and every call get a function of the runtime. Whether a tensor decides is found out when it runs: if none
does, the runtime does what Python does. Statements with `yield` or `await` inside stay as they are.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from treadle.frontend.pysrc.exits import loops_without_jumps, without_jumps
from treadle.frontend.pysrc.matching import without_matches
from treadle.frontend.pysrc.names import Names, contains, inside, names_of, parameters
from treadle.frontend.pysrc.walrus import without_walrus

SUSPENDS = (ast.Yield, ast.YieldFrom, ast.Await)
# Builtins that look at the frame that calls them.
OF_FRAME = frozenset({"locals", "vars", "dir", "eval", "exec", "globals", "super"})


def rewritten(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, owner: str) -> ast.FunctionDef | ast.Lambda:
    """The function, rewritten in place, without decorators, defaults and annotations. owner: the class around it."""
    if owner:
        _Mangler(owner).visit(node)
    return Rewriter().function(node)


class _Mangler(ast.NodeTransformer):
    """Private names as the compiler writes them inside a class."""

    def __init__(self, owner: str) -> None:
        self.owner = owner

    def _mangled(self, name: str) -> str:
        return f"_{self.owner}{name}" if name.startswith("__") and not name.endswith("__") else name

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        node.attr = self._mangled(node.attr)
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> Any:
        node.id = self._mangled(node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg = self._mangled(node.arg)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node


class Rewriter(ast.NodeTransformer):
    """Rewrites one function; functions inside get a rewriter of their own."""

    def __init__(self) -> None:
        self.count = 0
        self.local: set[str] = set()
        self.globals: set[str] = set()
        self.maybe: set[str] = set()  # names that some branch or loop binds
        self.first_parameter = ""
        self._name_of_state = ""

    # -------------------------------------------------------------------------------------------------- functions
    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> ast.FunctionDef | ast.Lambda:
        """The root: its decorators have been applied, its defaults are kept by the caller."""
        names = parameters(node.args)
        self.first_parameter = names[0] if names else ""
        _strip(node.args)
        if isinstance(node, ast.Lambda):
            self.local = set(names)
            node.body = self.visit(node.body)
            return node
        assert isinstance(node, ast.FunctionDef)
        node.decorator_list, node.returns = [], None
        node.body = self._body(node)
        return node

    def _body(self, node: ast.FunctionDef) -> list[ast.stmt]:
        found = names_of(node.body)
        self.globals = found.globals
        body = without_walrus(without_matches(node.body))
        body = loops_without_jumps(body) if contains(body, SUSPENDS) else without_jumps(body)
        bound = names_of(body).bound - self.globals
        self.local = bound | found.nonlocals | found.deep | set(parameters(node.args))
        blocks = [n for n in inside(body) if isinstance(n, ast.If | ast.While | ast.For)]
        self.maybe = {n for n in names_of(blocks).bound & bound if not n.startswith("_td_")}
        made = self._block(body)
        own = sorted(bound - found.nonlocals - set(parameters(node.args)))
        if not own:
            return made
        # The nested functions bind them: this makes them variables of this one, without a value.
        targets: list[ast.expr] = [ast.Name(n, ast.Store()) for n in own]
        return [_at(ast.If(ast.Constant(False), [ast.Assign(targets, ast.Constant(None))], []), node.body[0]), *made]

    def _block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for statement in body:
            made = self.visit(statement)
            out += made if isinstance(made, list) else [made]
        return out

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.decorator_list = [self.visit(d) for d in node.decorator_list]
        _visit_defaults(self, node.args)
        inner = Rewriter()
        inner.first_parameter = next(iter(parameters(node.args)), "")
        node.body = inner._body(node)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        _visit_defaults(self, node.args)
        inner = Rewriter()
        inner.local = set(parameters(node.args))
        inner.first_parameter = next(iter(parameters(node.args)), "")
        node.body = inner.visit(node.body)
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Its methods; what else stands in the class is run by Python."""
        node.body = [self.visit(s) if isinstance(s, ast.FunctionDef) else s for s in node.body]
        return node

    # -------------------------------------------------------------------------------------------------- statements
    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        if _jumps_out([*node.body, *node.orelse]) or contains([node], SUSPENDS):
            return self._plain(node)
        names, guards = _assigned([*node.body, *node.orelse]), hasattr(node, "td_guard")
        if guards:  # it gives values back to names that are only read, too
            names.bound |= names.read & self.local
        then, orelse = self._name("then"), self._name("else")
        flags = [n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)] if guards else []
        test = self.visit(node.test)
        made = [
            self._define(then, self._block(node.body), names),
            self._define(orelse, self._block(node.orelse), names),
            *self._state(names),
            ast.Expr(
                _call(
                    "guard" if guards else "if_",
                    [test, _load(then), _load(orelse), _load(self._name_of_state), *_texts(guards, flags)],
                )
            ),
        ]
        return [_at(s, node) for s in made]

    def visit_While(self, node: ast.While) -> ast.AST | list[ast.stmt]:
        if _jumps_out(node.body) or contains([node], SUSPENDS) or hasattr(node, "td_plain"):
            return self._plain(node)
        names = _assigned([node.test, *node.body])
        test, body = self._name("test"), self._name("body")
        stop = getattr(node, "td_break", None)
        made = [
            self._define(test, [ast.Return(self.visit(node.test))], names),
            self._define(body, self._block(node.body), names),
            *self._state(names, stop),
            ast.Expr(_call("while_", [_load(test), _load(body), _stopped(stop), _load(self._name_of_state)])),
        ]
        return [_at(s, node) for s in [*made, *self._block(node.orelse)]]

    def visit_For(self, node: ast.For) -> ast.AST | list[ast.stmt]:
        if _jumps_out(node.body) or contains([node], SUSPENDS) or hasattr(node, "td_plain"):
            return self._plain(node)
        names = _assigned([node.target, *node.body])
        body, stop = self._name("body"), getattr(node, "td_break", None)
        iterable = self.visit(node.iter)
        take = ast.Assign([self.visit(node.target)], _load("_td_item"))
        made = [
            self._define(body, [_at(take, node), *self._block(node.body)], names, ["_td_item"]),
            *self._state(names, stop),
            ast.Expr(_call("for_", [iterable, _load(body), _stopped(stop), _load(self._name_of_state)])),
        ]
        return [_at(s, node) for s in [*made, *self._block(node.orelse)]]

    def _plain(self, node: ast.stmt) -> ast.AST:
        """The statement as Python runs it; a tensor that decides is refused by its `bool`."""
        for name in ("body", "orelse"):
            setattr(node, name, self._block(getattr(node, name)))
        for name in ("test", "iter", "target"):
            if hasattr(node, name):
                setattr(node, name, self.visit(getattr(node, name)))
        return node

    def visit_Try(self, node: ast.Try | ast.TryStar) -> ast.AST:
        self._blocks_of_try(node)
        inside = ast.With([ast.withitem(_call("Catching", []))], node.body)
        node.body = [_at(inside, node.body[0])]
        return node

    def visit_TryStar(self, node: ast.TryStar) -> Any:
        return self.visit_Try(node)

    def visit_With(self, node: ast.With) -> ast.AST:
        for item in node.items:
            item.context_expr = _at(_call("manager", [self.visit(item.context_expr)]), item.context_expr)
            if item.optional_vars is not None:
                item.optional_vars = self.visit(item.optional_vars)
        node.body = self._block(node.body)
        return node

    def _blocks_of_try(self, node: ast.Try | ast.TryStar) -> None:
        """The blocks of a `try`."""
        node.body, node.orelse, node.finalbody = map(self._block, (node.body, node.orelse, node.finalbody))
        for handler in node.handlers:
            if handler.type is not None:
                handler.type = self.visit(handler.type)
            handler.body = self._block(handler.body)

    def visit_Assert(self, node: ast.Assert) -> Any:
        message = self.visit(node.msg) if node.msg is not None else ast.Constant(None)
        return _at(ast.Expr(_call("assert_", [self.visit(node.test), _thunk(message)])), node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if node.value is None:
            return _at(ast.Pass(), node)
        return _at(ast.Assign([self.visit(node.target)], self.visit(node.value)), node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST | list[ast.stmt]:
        """What is put into containers at places that a tensor may tell is put there by the runtime."""
        value = self.visit(node.value)
        if len(node.targets) == 1 and _is_place(node.targets[0]):
            return [_at(self._put(node.targets[0], value), node)]
        after: list[ast.stmt] = []
        targets = [self._target(t, after) for t in node.targets]
        return [_at(s, node) for s in [ast.Assign(targets, value), *after]]

    def _target(self, target: ast.expr, after: list[ast.stmt]) -> ast.expr:
        """The target with names for the places in it, which are filled afterwards."""
        if isinstance(target, ast.Tuple | ast.List):
            target.elts = [self._target(t, after) for t in target.elts]
            return target
        if not _is_place(target):
            return self.visit(target)  # type: ignore[no-any-return]
        name = self._name("put")
        after.append(self._put(target, _load(name)))
        return ast.Name(name, ast.Store())

    def _put(self, target: Any, value: ast.expr) -> ast.stmt:
        return ast.Expr(_call("put", [value, self.visit(target.value), self.visit(target.slice)]))

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        if not _is_place(node.target) or _keeps([node.value]):
            return self.generic_visit(node)
        target: Any = node.target
        parts = [self.visit(target.value), self.visit(target.slice), ast.Constant(type(node.op).__name__)]
        return _at(ast.Expr(_call("augment", [*parts, _thunk(self.visit(node.value))])), node)

    def visit_Match(self, node: ast.Match) -> ast.AST:
        node.subject = self.visit(node.subject)
        for case in node.cases:
            if case.guard is not None:
                case.guard = self.visit(case.guard)
            case.body = self._block(case.body)
        return node

    # ------------------------------------------------------------------------------------------------- expressions
    def visit_IfExp(self, node: ast.IfExp) -> Any:
        if _keeps([node.body, node.orelse]):
            return self.generic_visit(node)
        parts = [self.visit(node.test), _thunk(self.visit(node.body)), _thunk(self.visit(node.orelse))]
        return _at(_call("if_expression", parts), node)

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        if _keeps(node.values[1:]):
            return self.generic_visit(node)
        values = [self.visit(v) for v in node.values]
        name = "and_" if isinstance(node.op, ast.And) else "or_"
        return _at(_call(name, [values[0], *map(_thunk, values[1:])]), node)

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        """`%` may make a text."""
        self.generic_visit(node)
        return _at(_call("modulo", [node.left, node.right]), node) if isinstance(node.op, ast.Mod) else node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        self.generic_visit(node)
        return _at(_call("not_", [node.operand]), node) if isinstance(node.op, ast.Not) else node

    def visit_Compare(self, node: ast.Compare) -> Any:
        membership = any(isinstance(o, ast.In | ast.NotIn) for o in node.ops)
        if _keeps(node.comparators) or (len(node.ops) == 1 and not membership):
            return self.generic_visit(node)
        links = [
            ast.Tuple([ast.Constant(type(o).__name__), _thunk(self.visit(c))], ast.Load())
            for o, c in zip(node.ops, node.comparators, strict=True)
        ]
        return _at(_call("compare", [self.visit(node.left), *links]), node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Any:
        """A text that shows tensors is put together when the program runs."""
        parts: list[ast.expr] = []
        for value in node.values:
            if isinstance(value, ast.FormattedValue):
                spec = self.visit(value.format_spec) if value.format_spec is not None else ast.Constant("")
                parts.append(ast.Tuple([self.visit(value.value), ast.Constant(value.conversion), spec], ast.Load()))
            else:
                parts.append(value)
        return _at(_call("text", parts), node)

    def visit_Name(self, node: ast.Name) -> Any:
        """A name that may have no value is looked at before it is used."""
        return _at(_call("bound", [node]), node) if isinstance(node.ctx, ast.Load) and node.id in self.maybe else node

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        """A property may decide on tensors."""
        if isinstance(node.value, ast.Name) and node.value.id == "_td_":
            return node
        node.value = self.visit(node.value)
        if not isinstance(node.ctx, ast.Load):
            return node
        return _at(_call("attribute", [node.value, ast.Constant(node.attr)]), node)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        """A tensor may tell the place."""
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load) or not _is_place(node):
            return node
        return _at(_call("item", [node.value, node.slice]), node)

    def visit_Call(self, node: ast.Call) -> Any:
        node.args = [self.visit(a) for a in node.args]
        node.keywords = [self.visit(k) for k in node.keywords]
        if isinstance(node.func, ast.Name) and node.func.id in OF_FRAME:
            if node.func.id == "super" and not node.args and self.first_parameter:
                node.args = [_load("__class__"), _load(self.first_parameter)]
            return node
        if (
            isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "_td_"
        ):
            return node
        node.func = _at(_call("callee", [self.visit(node.func)]), node.func)
        return node

    # ------------------------------------------------------------------------------------------------------- state
    def _name(self, what: str) -> str:
        self.count += 1
        return f"_td_{what}{self.count}"

    def _define(self, name: str, body: list[ast.stmt], names: Names, params: Sequence[str] = ()) -> ast.FunctionDef:
        """A nested function whose assignments are those of this one."""
        declared: list[ast.stmt] = []
        if bound := sorted(names.bound & self.local):
            declared.append(ast.Nonlocal(bound))
        if outer := sorted(names.bound & self.globals):
            declared.append(ast.Global(outer))
        body = [s for s in body if not isinstance(s, ast.Nonlocal | ast.Global)]
        args = ast.arguments([], [ast.arg(p) for p in params], None, [], [], None, [])
        return ast.FunctionDef(name, args, [*declared, *(body or [ast.Pass()])], [], None, None)

    def _state(self, names: Names, *more: str | None) -> list[ast.stmt]:
        """What a branch or loop may change: (names, a getter for each, a setter for all; names that are only read)."""
        bound = sorted((names.bound | {m for m in more if m}) - {"_td_item"})
        written = [*bound, *sorted(a for a in names.attributes if a.split(".")[0] not in names.bound)]
        read = sorted(n for n in names.read if n not in written and n.split(".")[0] not in names.bound)
        read = [n for n in read if not n.startswith("_td_")]
        setter, state = self._name("set"), self._name("state")
        self._name_of_state = state
        values = [ast.Subscript(_load("_td_v"), ast.Constant(i), ast.Load()) for i in range(len(written))]
        assigns: list[ast.stmt] = []
        for name, value in zip(written, values, strict=True):
            target = _expression(name, ast.Store())
            if "." in name:
                condition = _call("is_bound", [value])
                assigns.append(ast.If(condition, [ast.Assign([target], value)], []))
            else:
                assigns.append(ast.Assign([target], value))
        getters = [_thunk(_expression(n, ast.Load())) for n in (*written, *read)]
        made = _call(
            "State",
            [
                ast.Tuple([ast.Constant(n) for n in written], ast.Load()),
                ast.Tuple([ast.Constant(n) for n in read], ast.Load()),
                ast.Tuple(list(getters), ast.Load()),
                _load(setter),
            ],
        )
        return [
            self._define(setter, assigns, Names(bound=set(bound)), ["_td_v"]),
            ast.Assign([ast.Name(state, ast.Store())], made),
        ]


def _assigned(nodes: Sequence[ast.AST]) -> Names:
    """The names of a block; what functions defined in it declare nonlocal is bound by it. Those of `match` are read
    in the block alone that gives them a value."""
    names = names_of(nodes)
    names.bound = {n for n in names.bound | names.deep if not n.startswith(("_td_subject", "_td_match"))}
    return names


def _jumps_out(body: Sequence[ast.stmt]) -> bool:
    """Whether a jump that leaves these statements is still there (in functions with `yield`)."""
    return contains(body, (ast.Return, ast.Break, ast.Continue))


def _is_place(target: ast.expr) -> bool:
    """Whether it is `a[i]`, one element."""
    if not isinstance(target, ast.Subscript):
        return False
    parts = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
    return not any(isinstance(p, ast.Slice | ast.Starred) for p in parts)


def _keeps(parts: Sequence[ast.expr]) -> bool:
    """Whether an expression has to stay in its place: it binds a name or suspends the function."""
    return contains(parts, (ast.NamedExpr, *SUSPENDS))


def _strip(args: ast.arguments) -> None:
    """Without annotations; defaults become placeholders, as the function object brings its own."""
    for part in [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]:
        if part is not None:
            part.annotation = None
    args.defaults = [ast.Constant(None) for _ in args.defaults]
    args.kw_defaults = [None if d is None else ast.Constant(None) for d in args.kw_defaults]


def _visit_defaults(visitor: ast.NodeTransformer, args: ast.arguments) -> None:
    args.defaults = [visitor.visit(d) for d in args.defaults]
    args.kw_defaults = [None if d is None else visitor.visit(d) for d in args.kw_defaults]


def _texts(wanted: bool, texts: Sequence[str]) -> list[ast.expr]:
    return [ast.Tuple([ast.Constant(t) for t in texts], ast.Load())] if wanted else []


def _stopped(stop: str | None) -> ast.expr:
    return ast.Constant(None) if stop is None else _thunk(_load(stop))


def _expression(name: str, ctx: ast.expr_context) -> ast.expr:
    first, *rest = name.split(".")
    made: ast.expr = ast.Name(first, ast.Load() if rest else ctx)
    for i, part in enumerate(rest):
        made = ast.Attribute(made, part, ctx if i == len(rest) - 1 else ast.Load())
    return made


def _load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _thunk(value: ast.expr) -> ast.Lambda:
    return ast.Lambda(ast.arguments([], [], None, [], [], None, []), value)


def _call(name: str, args: Sequence[ast.expr]) -> ast.Call:
    return ast.Call(ast.Attribute(_load("_td_"), name, ast.Load()), list(args), [])


def _at(node: Any, at: ast.AST) -> Any:
    ast.copy_location(node, at)
    return ast.fix_missing_locations(node)


__all__ = ["rewritten"]
