"""The order of effects made visible to XLA, which knows no other order than that of the data.

`ordered(module)` gives main one more parameter and one more result, the token, and leads it through every call of
Python, into bodies of loops and branches and into called functions. Ops with bodies say how in their `ordered` rule:
rule(run, inputs, token, **attrs) -> (outputs, token); those without one are expanded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from treadle.base import where
from treadle.base.errors import UserError
from treadle.ir import build
from treadle.ir.interp import expansion
from treadle.ir.node import Fn, Module, Node, Value
from treadle.ir.walk import has_effect
from treadle.ops.effects import TOKEN

Outputs = tuple[Sequence[Value], Value]


def acts(module: Module) -> bool:
    """Whether running the module does something beside its results."""
    return any(has_effect(node, module.fns) for node in module.main.nodes)


def ordered(module: Module) -> Module:
    """The module with a token as the last parameter and the last result of main; itself where nothing acts."""
    if not acts(module):
        return module
    run = _Ordering(dict(module.fns))
    run.fns["main"] = run.region(module.main)
    return Module(run.fns)


class _Ordering:
    """What the rules ask for. fns: the functions of the module, to which those with a token are added."""

    def __init__(self, fns: dict[str, Fn]) -> None:
        self.fns = fns

    def acts(self, fn: Fn) -> bool:
        """Whether running `fn` does something beside its results."""
        return any(has_effect(node, self.fns) for node in fn.nodes)

    def inline(self, fn: Fn, args: Sequence[Value], token: Value) -> Outputs:
        """The outputs of `fn` on `args`, computed here, and the token after them."""
        twin: dict[Value, Value] = dict(zip(fn.params, args, strict=True))
        for node in fn.nodes:
            inputs = tuple([twin[v] for v in node.inputs])
            with where.at(node.where):
                if has_effect(node, self.fns):
                    outputs, token = self._node(node, inputs, token)
                else:
                    outputs = build.emit(node, inputs)
            twin.update(zip(node.outputs, outputs, strict=True))
        return [twin[o] for o in fn.outputs], token

    def _node(self, node: Node, inputs: tuple[Value, ...], token: Value) -> Outputs:
        rule = node.op.rules.get("ordered")
        if rule:
            found: Outputs = rule(self, inputs, token, **node.attrs)
            return found
        if not node.op.rules.get("expand"):
            why = f"a program cannot call Python from inside {node.op.name}"
            raise UserError("E0416", why, fix="print and check outside it", where=node.where)
        return self.inline(expansion(node.op, tuple([v.type for v in inputs]), node.attrs), inputs, token)

    def traced(self, body: Callable[..., Any], values: Sequence[Value], name: str) -> Fn:
        """A body over values of these types."""
        return build.trace(body, [v.type for v in values], name, self.fns)

    def region(self, fn: Fn) -> Fn:
        """`fn` with a token as its last parameter and its last output."""

        def body(*args: Value) -> list[Value]:
            outputs, token = self.inline(fn, args[:-1], args[-1])
            return [*outputs, token]

        return build.trace(body, [*fn.in_types, TOKEN], fn.name, self.fns)

    def callee(self, name: str) -> str:
        """The name of the function `name` with a token; it is made once."""
        new = f"{name}.ordered"
        if new not in self.fns:
            self.fns[new] = self.fns[name]  # a function that calls itself finds its own copy; lowering refuses it
            made = self.region(self.fns[name])
            self.fns[new] = Fn(new, made.params, made.nodes, made.outputs)
        return new
