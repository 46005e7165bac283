"""Functions that call themselves where a tensor decides, as recursive IR functions, and these as loops.

What comes in is the function and its arguments, as pysrc/recursion.py has found it to come up inside itself; its result
goes out, computed by the loop that transforms/recursion.py makes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle.api import _apply
from treadle.api.staging import _Out, _Part
from treadle.base.errors import UserError
from treadle.frontend import trace as tracing
from treadle.frontend import tree
from treadle.frontend.lift import literal
from treadle.frontend.pysrc import recursion
from treadle.frontend.pysrc.recursion import BottomError, calls
from treadle.frontend.tensor import Tensor
from treadle.frontend.trace import Traced, is_tensor
from treadle.ir import build
from treadle.ir import op as op_table
from treadle.ir.node import Fn, Value
from treadle.ir.types import Types
from treadle.ir.walk import callees
from treadle.transforms.recursion import as_loop


class _Recursive:
    """A function that calls itself: its name in the IR, and what is known of it so far: the tensors from outside that
    it captures, the types, kinds and container of its results; and all that the last trace captured, which knew the
    types or not.

    On the outermost of those being traced: `made` counts the functions, `group` are those within that call it.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.outermost: _Recursive = next(iter(_active()), self)
        self.group: dict[str, Fn] = {}
        self.made = 0
        self.outermost.made += 1
        self.name = f"{function.__name__}.recursive{self.outermost.made}"
        self.captured: list[Any] = []
        self.seen: list[Any] = []
        self.full = False
        self.types: Types | None = None
        self.kinds: list[type | None] = []
        self.result: Callable[[Sequence[Any]], Any] = list

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The inner call."""
        if self.types is None:
            raise BottomError
        trace = tracing.current()
        assert trace is not None
        leaves = [x for x in tree.flatten((args, kwargs))[0] if is_tensor(x)]
        outputs = self.node([trace.read(x) for x in [*leaves, *self.captured]], self.types)
        made = [Tensor._of(o, trace, kind) for o, kind in zip(outputs, self.kinds, strict=True)]
        return self.result(made)

    def node(self, operands: Sequence[Value], types: Types) -> Sequence[Value]:
        """The results of a call node."""
        attrs = {"callee": self.name, "results": types}
        return build.append(op_table.get("call"), tuple(operands), attrs, types).outputs

    def outputs(self, fn: Fn, operands: Sequence[Value], fns: dict[str, Fn]) -> Sequence[Value]:
        """The results of the function: of a loop, or of a call when it calls functions that are still being traced, for
        it is part of their loop."""
        group = self.outermost.group
        if self.outermost is not self and callees(fn) & {*group, *[each.name for each in _active()]}:
            group[self.name] = fn
            return self.node(operands, fn.out_types)
        return build.inline(as_loop(fn, self.name, {**fns, **group}), operands)


def _active() -> list[_Recursive]:
    """Those being traced, the outermost first."""
    return [call.__self__ for call in calls.known.values()]  # type: ignore[attr-defined]


def recursive(key: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a function that calls itself with arguments of these types, as one loop with a stack.

    It is traced until its result types and the tensors that it reads from outside no longer change. Raises E0245 when
    it changes tensors from outside, E0215 when no branch returns.
    """
    leaves, shape = tree.flatten((args, kwargs))
    dynamic = [x for x in leaves if is_tensor(x)]
    fns = _apply.outer_fns()
    spec = _Recursive(function)
    calls.known[key] = spec.call
    try:
        for _ in range(8):
            part = _traced_body(function, dynamic, leaves, shape)
            if not _learn(spec, part):
                break
        else:
            why = f"the result of {function.__name__}, which calls itself, is of another type with every call"
            raise UserError("E0221", why, fix="return the same dtypes, shapes and containers from all calls")
    finally:
        del calls.known[key]
    trace = tracing.current()
    assert trace is not None
    operands = [trace.read(x) for x in [*dynamic, *spec.captured]]
    outputs = spec.outputs(_settled(spec, part.traced, len(dynamic), fns), operands, fns)
    made = [Tensor._of(o, trace, kind) for o, kind in zip(outputs, spec.kinds, strict=True)]
    return spec.result(made)


def _traced_body(function: Any, dynamic: Sequence[Any], leaves: Sequence[Any], shape: tree.TreeDef) -> _Part:
    def body(given: list[Any]) -> list[Any]:
        rest = iter(given)
        a, k = shape.unflatten([next(rest) if is_tensor(x) else x for x in leaves])
        return [function(*a, **k)]

    try:
        part = _Part(body, dynamic)
    except BottomError:
        why = f"{function.__name__} calls itself in every branch: it never returns"
        raise UserError("E0215", why, fix="return without a call for some value of its arguments") from None
    if part.traced.changed or part.traced.changed_args:
        why = f"{function.__name__}, which calls itself, changes a tensor that was there before"
        raise UserError("E0245", why, fix="return the new value instead")
    return part


def _learn(spec: _Recursive, part: _Part) -> bool:
    """Whether the trace has told something new about the function.

    A tensor with numbers that only this trace captures was made by it: it is not from outside.
    """
    kinds = [x.kind for leaves in part.leaves for x in leaves if isinstance(x, _Out)]
    types = part.traced.fn.out_types
    now = list(part.traced.captured)
    before = set(map(id, spec.seen))
    captured = [t for t in now if t._trace is not None or id(t) in before]
    same = spec.types == types and spec.kinds == kinds and list(map(id, captured)) == list(map(id, spec.captured))
    same = same and (spec.full or len(captured) == len(now))
    spec.full = spec.types == types
    spec.types, spec.kinds, spec.captured, spec.seen = types, kinds, captured, now
    spec.result = lambda tensors: part.shapes[0].unflatten(part.traced.result(tensors)[0])
    return not same


def _settled(spec: _Recursive, traced: Traced, num_args: int, fns: dict[str, Fn]) -> Fn:
    """The function of its arguments and what it captures from outside; the tensors that it made are numbers in it."""
    outside = set(map(id, spec.captured))

    def body(*values: Value) -> Sequence[Value]:
        rest = iter(values[num_args:])
        captured = [next(rest) if id(t) in outside else literal(np.asarray(t._value)) for t in traced.captured]
        return build.inline(traced.fn, [*values[:num_args], *captured])

    types = [*traced.fn.in_types[:num_args], *[t.type for t in spec.captured]]
    return build.trace(body, types, spec.name, fns)


def install() -> None:
    """Give the source front end the way to trace such functions."""
    recursion.hooks.recursive = recursive
