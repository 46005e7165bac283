"""The only way to make nodes: `apply(op, args, attrs)` asks the op for the result types and appends to the current
builder.

`with Builder("main") as b:` makes `b` current for this thread; `b.param(type)` adds parameters; `b.finish(outputs)`
gives the `Fn`. Values of an enclosing builder may not be used inside: regions take what they need as parameters.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.base.where import UNKNOWN, here
from treadle.ir.node import Attrs, Fn, Node, Value
from treadle.ir.types import TensorType, Types


class _Stack(threading.local):
    def __init__(self) -> None:
        self.builders: list[Builder] = []


_stack = _Stack()


class Builder:
    """Collects nodes in order. `fns` are the module's other functions, shared by nested builders."""

    def __init__(self, name: str = "main", fns: dict[str, Fn] | None = None) -> None:
        self.name = re.sub(r"[^\w.]", "_", name)
        self.params, self.nodes = list[Value](), list[Node]()
        self.fns: dict[str, Fn] = {} if fns is None else fns

    def __enter__(self) -> Builder:
        _stack.builders.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _stack.builders.pop()

    def param(self, type: TensorType) -> Value:
        """A new parameter, after those there are."""
        value = Value(type)
        self.params.append(value)
        return value

    def finish(self, outputs: Sequence[Value]) -> Fn:
        """The function built so far, with these outputs."""
        return Fn(self.name, tuple(self.params), tuple(self.nodes), tuple(outputs))


def current() -> Builder:
    """The builder that nodes are appended to. Raises E0201 outside any."""
    if not _stack.builders:
        raise UserError(
            "E0201", "an IR value was used outside the function being traced", fix="return it from the function"
        )
    return _stack.builders[-1]


def active() -> bool:
    """Whether this thread is building."""
    return bool(_stack.builders)


def apply(op: Any, args: Sequence[Any], attrs: Attrs) -> Any:
    """The results of `op` on `args` (IR values, or what its `prepare` rule accepts): one value or a tuple.

    Errors of the op's rules are given its name and the user's line.
    """
    if isinstance(attrs.get("dtype"), str):
        attrs = {**attrs, "dtype": dtypes.of(attrs["dtype"])}
    try:
        prepare = op.rules.get("prepare")
        if prepare is not None:
            args = prepare(*args)
        for position, arg in enumerate(args):
            if not isinstance(arg, Value):
                raise UserError("E0102", f"argument {position} is {arg!r}, not a tensor", fix="wrap it: td.tensor(...)")
        if op.arity not in (None, len(args)):
            raise TypeError(f"{len(args)} tensors, not {op.arity}")
        types = op.rules["type"](*[a.type for a in args], **attrs)
    except UserError as error:
        if error.why.startswith(f"{op.name}:"):
            raise
        raise error.named(op.name, here()) from None
    except (TypeError, AttributeError) as error:
        wanted = ", ".join(op.params)
        what = re.sub(r"^\S*\.?<?\w+>?\(\) ", "", str(error))
        raise UserError("E0103", f"{op.name}({wanted}) does not take these arguments: {what}", fix=op.doc) from error
    outputs = append(op, tuple(args), attrs, types if isinstance(types, tuple) else (types,)).outputs
    return outputs if isinstance(types, tuple) else outputs[0]


def append(op: Any, inputs: tuple[Value, ...], attrs: Attrs, types: Types) -> Node:
    """Append a node whose types are known; the position is the user's current line."""
    node = Node(op, inputs, attrs, types, here())
    current().nodes.append(node)
    return node


def emit(node: Node, inputs: tuple[Value, ...], attrs: Attrs | None = None) -> tuple[Value, ...]:
    """Append a copy of `node` on other inputs of the same types, keeping its position; returns the copy's results.

    A node without a position (one of an expansion) takes that of the moment.
    """
    attrs = node.attrs if attrs is None else attrs
    position = here() if node.where is UNKNOWN else node.where
    copy = Node(node.op, inputs, attrs, tuple([o.type for o in node.outputs]), position)
    current().nodes.append(copy)
    return copy.outputs


def trace(
    function: Callable[..., Any], types: Sequence[TensorType], name: str = "", fns: dict[str, Fn] | None = None
) -> Fn:
    """Run `function` on fresh parameters of the given types; what it returns (a value or a sequence) is the outputs."""
    with Builder(name or getattr(function, "__name__", "fn"), fns) as builder:
        outputs = function(*[builder.param(t) for t in types])
        if isinstance(outputs, Value):
            outputs = (outputs,)
        return builder.finish(tuple(outputs))


def inline(fn: Fn, args: Sequence[Value]) -> tuple[Value, ...]:
    """Append copies of the nodes of `fn` on `args`; returns the values that stand for its outputs."""
    twin: dict[Value, Value] = dict(zip(fn.params, args, strict=True))
    for node in fn.nodes:
        twin.update(zip(node.outputs, emit(node, tuple([twin[v] for v in node.inputs])), strict=True))
    return tuple([twin[v] for v in fn.outputs])
