"""Hooks on the gradients of tensors: `hook_gradient(x, hook)` and the method `x.register_hook(hook)`.

Each puts an identity behind the tensor whose gradient is the hook, so it works in every mode and under every
transformation. The hook is traced: it sees symbolic gradients and is part of the program.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Self

from treadle.api.gradients import custom_gradient
from treadle.base import arguments
from treadle.base.errors import UserError
from treadle.frontend import tape as taping
from treadle.frontend import tensor as tensors
from treadle.frontend import trace as tracing
from treadle.frontend import tree
from treadle.frontend.pysrc.runtime import callee
from treadle.frontend.tensor import Tensor

Hook = Callable[[Tensor], Any]


def hook_gradient(x: Any, hook: Hook) -> Any:
    """x itself, where `hook(gradient)` is called with the gradient that arrives at this place in a backward pass.

    x: a float tensor or a container of tensors (each on its own; others pass). What the hook returns takes the
    gradient's place; None leaves it as it is. The gradient is that of the uses of the result, not of x elsewhere.
    Raises E0320 for a hook that cannot be called, changes a tensor, or returns another shape or dtype.

        loss = lambda w: (td.hook_gradient(w, lambda g: g.clip(-1, 1)) ** 4).sum()
    """
    if not callable(hook):
        raise UserError("E0320", f"the hook is {arguments.brief(hook)}", fix="pass a function of the gradient")

    @custom_gradient
    def identity(tensor: Any) -> Any:
        return tensor, lambda gradient: _hooked(hook, gradient)

    def place(leaf: Any) -> Any:
        if not (tracing.is_tensor(leaf) and leaf.dtype.is_inexact):
            return leaf
        return identity(leaf.strong())

    return tree.tree_map(place, x)


def _hooked(hook: Hook, gradient: Tensor) -> Tensor:
    trace = tracing.current()
    before = set() if trace is None else set(trace.changed)
    new = callee(hook)(gradient)
    if trace is not None and set(trace.changed) != before:
        fix = "only return a new gradient; get gradients to look at from td.grad, or print with td.debug_print"
        raise UserError("E0320", "a hook changes a tensor, which would be lost", fix=fix)
    if new is None:
        return gradient
    if getattr(new, "type", None) != gradient.type:
        found = getattr(new, "type", arguments.brief(new))
        raise UserError("E0320", f"a hook returned {found} for a gradient {gradient.type}", fix="keep shape and dtype")
    return new  # type: ignore[no-any-return]


class GradientHook:
    """What `register_hook` gives: `remove()` takes the hook away from what is computed later; also at the end of a
    `with` block."""

    def __init__(self, tensor: Tensor | None = None, before: Any = None) -> None:
        self._tensor = None if tensor is None else weakref.ref(tensor)
        self._before, self._here = before, None if tensor is None else tensor._value

    def remove(self) -> None:
        """Take the hook away; once it is gone, or the tensor has other numbers, nothing happens."""
        tensor = None if self._tensor is None else self._tensor()
        if tensor is not None and tensor._value is self._here:
            tensor._value = self._before
        self._tensor = self._before = self._here = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def register(tensor: Tensor, hook: Hook) -> GradientHook:
    """See `Tensor.register_hook`."""
    trace, tape = tracing.current(), taping.current()
    plain = trace is None and tape is None
    _check_made_here(tensor, trace, tape)
    hooked = hook_gradient(tensor, hook)
    if plain or hooked is tensor:
        return GradientHook()
    before, tensor._value = tensor._value, hooked._value
    return GradientHook(tensor, before)


def _check_made_here(tensor: Tensor, trace: tracing.Trace | None, tape: taping.Tape | None) -> None:
    """Raise E0320 for a tensor from outside the function, or an argument: giving it another value would be a change of
    state."""
    if trace is not None:
        outside = tensor._trace is not trace or tensor._value.node is None
    elif tape is not None:
        outside = not tape.knows(tensor._value) or tape.place(tensor._value) in tape.leaves
    else:
        outside = type(tensor) is not Tensor  # a parameter
    if outside:
        why = f"the tensor {tensor.type} is a parameter, an argument or from outside of the function"
        fix = "use y = td.hook_gradient(x, hook) in the function and go on with y, or change what td.grad returns"
        raise UserError("E0320", why, fix=fix)


tensors.hooks.register_hook = register
