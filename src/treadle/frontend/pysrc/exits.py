"""`return`, `break` and `continue` written without jumps, so that what is left is nested `if`, `while` and `for`.

    if a: return b        ->    if a: value = b            (the rest moves into the branch that goes on)
    return c                    else: value = c
                                return value

Where neither branch surely leaves, a flag says whether one did, and what follows is guarded by it. Loops end by a flag
too: `_td_break`, `_td_continue`, `_td_done` are Python bools until a branch on a tensor sets them.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from treadle.frontend.pysrc.names import contains

DONE, VALUE = "_td_done", "_td_value"
FLAGS = ("_td_done", "_td_break", "_td_continue")
LOOPS = ast.While | ast.For | ast.AsyncFor
Block = list[ast.stmt]
_STAYS = (ast.Yield, ast.YieldFrom, ast.Await, ast.Return)  # a loop with one of these keeps its jumps


def without_jumps(body: Sequence[ast.stmt]) -> Block:
    """The body of a function with one `return` at most, at its end."""
    body = list(body)
    if not _has(body, ast.Return):
        return _Loops().block(body)
    if isinstance(body[-1], ast.Return) and not _has(body[:-1], ast.Return):
        return [*_Loops().block(body[:-1]), body[-1]]
    lowered = _Returns().block(body, in_loop=False)
    last = ast.Return(value=ast.Call(_runtime("result"), [_load(VALUE)], []))
    start = [_assign(DONE, ast.Constant(False)), _assign(VALUE, ast.Call(_runtime("nothing"), [], []))]
    return [*start, *_Loops().block(lowered), _placed(last, body[-1])]


def loops_without_jumps(body: Sequence[ast.stmt]) -> Block:
    """The body of a generator; jumps stay in what suspends or returns."""
    return _Loops().block(body)


def leaves(body: Sequence[ast.stmt]) -> bool:
    """Whether the block surely ends in a jump."""
    if not body:
        return False
    last = body[-1]
    if isinstance(last, ast.Return | ast.Break | ast.Continue | ast.Raise):
        return True
    if isinstance(last, ast.If):
        return leaves(last.body) and leaves(last.orelse)
    return isinstance(last, ast.With) and leaves(last.body)


class _Returns:
    """`return` as an assignment; in a loop, followed by `break`."""

    def block(self, body: Sequence[ast.stmt], in_loop: bool) -> Block:
        out: Block = []
        for i, node in enumerate(body):
            if isinstance(node, ast.Return):
                value = node.value or ast.Constant(None)
                out += [_placed(_assign(VALUE, value), node), _placed(_assign(DONE, ast.Constant(True)), node)]
                return [*out, _placed(ast.Break(), node)] if in_loop else out
            if not _has([node], ast.Return):
                out.append(node)
                continue
            rest = list(body[i + 1 :])
            if isinstance(node, ast.If) and not in_loop and (leaves(node.body) or leaves(node.orelse)):
                first, second = (
                    (node.body, [*node.orelse, *rest]) if leaves(node.body) else ([*node.body, *rest], node.orelse)
                )
                out.append(_if(node.test, self.block(first, in_loop), self.block(second, in_loop), node))
                return out
            out.append(self._inside(node, in_loop))
            if rest:
                guarded = self.block(rest, in_loop)
                if isinstance(node, LOOPS) and in_loop:
                    out.append(_guard(_load(DONE), [ast.Break()], guarded, node))
                elif in_loop:
                    out += guarded  # the `break` behind the assignment skips it
                else:
                    out.append(_guard(_not(_load(DONE)), guarded, [], rest[0]))
            elif isinstance(node, LOOPS) and in_loop:
                out.append(_guard(_load(DONE), [ast.Break()], [], node))
            return out
        return out

    def _inside(self, node: ast.stmt, in_loop: bool) -> ast.stmt:
        """The statement with the returns of its blocks lowered."""
        loop = isinstance(node, LOOPS)
        if isinstance(node, ast.Try) and node.orelse and _has(node.body, ast.Return) and not in_loop:
            node.orelse = [_guard(_not(_load(DONE)), node.orelse, [], node.orelse[0])]
        for name in ("body", "orelse", "finalbody"):
            if isinstance(found := getattr(node, name, None), list) and found and isinstance(found[0], ast.stmt):
                setattr(node, name, self.block(found, in_loop or (loop and name == "body")))
        for part in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]:
            part.body = self.block(part.body, in_loop)
        return node


class _Loops:
    """`break` and `continue` as flags. A loop that has them gets attributes `td_break`, the name of its flag."""

    def __init__(self) -> None:
        self.count = 0

    def block(self, body: Sequence[ast.stmt]) -> Block:
        return [s for node in body for s in self.statement(node)]

    def statement(self, node: ast.stmt) -> Block:
        if isinstance(node, LOOPS):
            return self._loop(node)
        for name in ("body", "orelse", "finalbody"):
            found = getattr(node, name, None)
            if isinstance(found, list) and found and isinstance(found[0], ast.stmt) and not _is_scope(node):
                setattr(node, name, self.block(found))
        for part in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]:
            part.body = self.block(part.body)
        return [node]

    def _loop(self, node: ast.While | ast.For | ast.AsyncFor) -> Block:
        if isinstance(node, ast.AsyncFor) or contains(node.body, _STAYS):
            node.td_plain = True  # type: ignore[union-attr]
            node.body, node.orelse = self.block(node.body), self.block(node.orelse)
            return [node]
        broken, skipped = _jumps(node.body)
        self.count += 1
        stop, skip = f"_td_break{self.count}", f"_td_continue{self.count}"
        body = _flagged(node.body, stop, skip)
        if skipped:
            body = [_placed(_assign(skip, ast.Constant(False)), node), *body]
        orelse = node.orelse
        node.body, node.orelse = self.block(body), []
        if not broken:
            return [node, *self.block(orelse)]
        node.td_break = stop  # type: ignore[union-attr]
        start = _placed(_assign(stop, ast.Constant(False)), node)
        after = [_guard(_not(_load(stop)), self.block(orelse), [], orelse[0])] if orelse else []
        return [start, node, *after]


def _jumps(body: Sequence[ast.stmt]) -> tuple[bool, bool]:
    """Whether a `break` and a `continue` of this loop stand in its body."""
    found = list(_own(body))
    return any(isinstance(n, ast.Break) for n in found), any(isinstance(n, ast.Continue) for n in found)


def _own(body: Sequence[ast.AST]) -> list[ast.AST]:
    """Statements of the loop's body, without those of inner loops (their `else` is the outer loop's) and scopes."""
    out: list[ast.AST] = []
    for node in body:
        out.append(node)
        if isinstance(node, LOOPS):
            out += _own(node.orelse)
        elif not _is_scope(node):
            out += _own(list(ast.iter_child_nodes(node)))
    return out


def _flagged(body: Sequence[ast.stmt], stop: str, skip: str) -> Block:
    """The block with jumps as assignments; what a jump skips is moved into the other branch, or guarded."""
    out: Block = []
    for i, node in enumerate(body):
        if isinstance(node, ast.Break | ast.Continue):
            out.append(_placed(_assign(stop if isinstance(node, ast.Break) else skip, ast.Constant(True)), node))
            return out
        broken, skipped = _jumps([node]) if not isinstance(node, LOOPS) else _jumps(node.orelse)
        if not (broken or skipped):
            out.append(node)
            continue
        rest = list(body[i + 1 :])
        if isinstance(node, ast.If) and (leaves(node.body) or leaves(node.orelse)):
            first, second = (
                (node.body, [*node.orelse, *rest]) if leaves(node.body) else ([*node.body, *rest], node.orelse)
            )
            out.append(_if(node.test, _flagged(first, stop, skip), _flagged(second, stop, skip), node))
            return out
        flags = [_load(f) for f, used in ((stop, broken), (skip, skipped)) if used]
        jumped: ast.expr = flags[0] if len(flags) == 1 else ast.BoolOp(ast.Or(), list(flags))
        if isinstance(node, ast.Try) and node.orelse and any(_jumps(node.body)):
            node.orelse = [_guard(_not(jumped), node.orelse, [], node.orelse[0])]
        for name in ("body", "orelse", "finalbody"):
            found = getattr(node, name, None)
            own = isinstance(node, LOOPS) and name == "body"  # the jumps there are those of that loop
            if not own and isinstance(found, list) and found and isinstance(found[0], ast.stmt):
                setattr(node, name, _flagged(found, stop, skip))
        for part in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]:
            part.body = _flagged(part.body, stop, skip)
        out.append(node)
        if rest:
            out.append(_guard(_not(jumped), _flagged(rest, stop, skip), [], rest[0]))
        return out
    return out


# ------------------------------------------------------------------------------------------------------ building nodes
def _has(body: Sequence[ast.stmt], kind: type) -> bool:
    return contains(body, kind)


def _is_scope(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda)


def _load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _runtime(name: str) -> ast.Attribute:
    return ast.Attribute(_load("_td_"), name, ast.Load())


def _assign(name: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def _not(value: ast.expr) -> ast.UnaryOp:
    return ast.UnaryOp(ast.Not(), value)


def _if(test: ast.expr, body: Block, orelse: Block, at: ast.AST) -> ast.stmt:
    return _placed(ast.If(test, body or [ast.Pass()], orelse), at)


def _guard(test: ast.expr, body: Block, orelse: Block, at: ast.AST) -> ast.stmt:
    """An `if` on flags of jumps."""
    made = _if(test, body, orelse, at)
    made.td_guard = True  # type: ignore[attr-defined]
    return made


def _placed(node: ast.stmt, at: ast.AST) -> ast.stmt:
    """The node, and what is new below it, at the line of another."""
    ast.copy_location(node, at)
    return ast.fix_missing_locations(node)
