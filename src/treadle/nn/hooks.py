"""Hooks of cells: functions that see, and may replace, what goes into a cell, what comes out, and their gradients.

`Hooks` holds those of one cell; a `Handle` takes one away again. In a compiled function hooks run while it is traced:
they are part of the program and see symbolic tensors; adding or removing one makes the program anew.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from treadle.api import _apply
from treadle.api.gradients import custom_gradient
from treadle.base.errors import UserError
from treadle.frontend import tape as taping
from treadle.frontend import trace as tracing
from treadle.frontend.create import zeros
from treadle.frontend.pysrc.runtime import callee
from treadle.frontend.tensor import Tensor
from treadle.frontend.trace import clock

Hook = Callable[..., Any]
KINDS = ("before", "after", "backward_before", "backward")
_numbers = itertools.count()


class Handle:
    """What registering a hook gives: `remove()` takes the hook away; as a context manager it does so at the end."""

    def __init__(self, table: dict[int, Any], number: int) -> None:
        self._table, self._number = table, number

    def remove(self) -> None:
        """Take the hook away; once it is gone, nothing happens."""
        if self._table.pop(self._number, None) is not None:
            clock.tick()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class Hooks:
    """The hooks of one cell by kind and number, in the order in which they run; with each, whether it takes kwargs."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[int, tuple[Hook, bool]]] = {kind: {} for kind in KINDS}

    def add(self, kind: str, hook: Hook, prepend: bool, with_kwargs: bool) -> Handle:
        """Register a hook at the end, or the front. Raises E0524 for what cannot be called."""
        if not callable(hook):
            raise UserError("E0524", f"the hook is {hook!r}", fix="pass a function")
        table, number = self.tables[kind], next(_numbers)
        rest = dict(table) if prepend else {}
        if prepend:
            table.clear()
        table[number] = (hook, with_kwargs)
        table.update(rest)
        clock.tick()
        return Handle(table, number)

    def key(self) -> tuple[tuple[int, ...], ...]:
        """What a compiled call depends on: which hooks there are."""
        return tuple([tuple(self.tables[kind]) for kind in KINDS])

    def run(self, cell: Any, forward: Hook, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """forward(*args, **kwargs) between the hooks of `cell`."""
        for hook, with_kwargs in list(self.tables["before"].values()):
            hook = callee(hook)
            new = hook(cell, args, kwargs) if with_kwargs else hook(cell, args)
            if with_kwargs and new is not None:
                if not (isinstance(new, tuple) and len(new) == 2):
                    raise UserError("E0524", f"a pre-hook returned {type(new).__name__}", fix="return (args, kwargs)")
                args, kwargs = new
            elif new is not None:
                args = new if isinstance(new, tuple) else (new,)
        watched = self.tables["backward"] or self.tables["backward_before"]
        if watched and (tracing.current() is not None or taping.current() is not None):
            result = self._watched(cell, forward, args, kwargs)
        else:
            result = forward(*args, **kwargs)
        for hook, with_kwargs in list(self.tables["after"].values()):
            hook = callee(hook)
            new = hook(cell, args, kwargs, result) if with_kwargs else hook(cell, args, result)
            result = result if new is None else new
        return result

    def _watched(self, cell: Any, forward: Hook, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """`forward` between two identities: the gradient of the one at the end hands its cotangents, through tensors
        that are added to nothing, to the gradient of the one at the start, so that hooks see both."""
        traced = _apply.trace(forward, args, dict(kwargs))
        leaves = [_apply.as_tensor(x) for x in _apply.dynamic_leaves(args, dict(kwargs))]
        count = len(_apply.dynamic_leaves(args))
        wanted = [i for i, x in enumerate(leaves[:count]) if x.dtype.is_inexact and x._weak is None]
        types = [t for t in traced.fn.out_types[: traced.num_outputs] if t.dtype.is_inexact]
        carriers = [zeros(t.shape, dtype=t.dtype) for t in types]
        if wanted:
            inputs, carriers = self._start(cell, [leaves[i] for i in wanted], carriers)
            for i, x in zip(wanted, inputs, strict=True):
                leaves[i] = x
        outputs = _apply.run(traced, leaves)
        floats = [i for i, y in enumerate(outputs) if y.dtype.is_inexact]
        for i, y in zip(floats, self._end(cell, [outputs[i] for i in floats], carriers), strict=True):
            outputs[i] = y
        return traced.result(outputs)

    def _start(self, cell: Any, xs: list[Tensor], carriers: list[Any]) -> tuple[list[Tensor], list[Any]]:
        count, hooks = len(xs), [hook for hook, _ in self.tables["backward"].values()]

        def pull(*grads: Any) -> list[Any]:
            found, seeds = list(grads[:count]), tuple(grads[count:])
            for hook in hooks:
                found = _replaced(found, _called(hook, cell, tuple(found), seeds), "full backward hook")
            return [*found, *seeds]

        @custom_gradient
        def start(*tensors: Any) -> Any:
            return list(tensors), pull

        made = start(*xs, *carriers)
        return made[:count], made[count:]

    def _end(self, cell: Any, ys: list[Tensor], carriers: list[Any]) -> list[Tensor]:
        count, hooks = len(ys), [hook for hook, _ in self.tables["backward_before"].values()]

        def pull(*grads: Any) -> list[Any]:
            found = list(grads)
            for hook in hooks:
                found = _replaced(found, _called(hook, cell, tuple(found)), "full backward pre-hook")
            return [*found, *found]

        @custom_gradient
        def end(*tensors: Any) -> Any:
            return list(tensors[:count]), pull

        return list(end(*ys, *carriers)) if ys else []


def _called(hook: Hook, *args: Any) -> Any:
    """What the hook returns. Raises E0524 when it changes a tensor: the backward pass is a function of its inputs."""
    trace = tracing.current()
    before = set() if trace is None else set(trace.changed)
    new = callee(hook)(*args)
    if trace is not None and set(trace.changed) != before:
        fix = "only return new gradients; get gradients to look at from td.grad"
        raise UserError("E0524", "a backward hook changes a tensor, which would be lost", fix=fix)
    return new


def _replaced(old: Sequence[Any], new: Any, what: str) -> list[Any]:
    """The hook's gradients; None stands for no change. Raises E0524 for another number or types."""
    if new is None:
        return list(old)
    given = list(new) if isinstance(new, tuple | list) else [new]
    if len(given) != len(old):
        why = f"a {what} returned {len(given)} gradients for {len(old)}"
        raise UserError("E0524", why, fix="return a tuple with one for each, or None")
    kept = [o if g is None else g for o, g in zip(old, given, strict=True)]
    for o, g in zip(old, kept, strict=True):
        if getattr(g, "type", None) != o.type:
            why = f"a {what} returned {getattr(g, 'type', repr(g))} for a gradient {o.type}"
            raise UserError("E0524", why, fix="keep its shape and dtype")
    return kept
