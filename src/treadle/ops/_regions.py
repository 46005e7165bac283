"""What the ops with bodies share: building regions, stacks for residuals, sorting gradients back into place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from treadle.base.dtypes import int32
from treadle.base.errors import UserError
from treadle.ir import build
from treadle.ir.node import Fn, Value
from treadle.ir.op import No
from treadle.ir.types import TensorType, Types
from treadle.ops.creation import full
from treadle.ops.dynamic import dynamic_slice, dynamic_update_slice
from treadle.ops.shape import reshape

Reversed = tuple[tuple[Value, ...], Callable[..., Sequence["Value | None"]]]
AXES = No("a body may do anything along any axis")


def number(value: int) -> Value:
    made: Value = full(value=value, shape=(), dtype=int32)
    return made


def zeros(type: TensorType) -> Value:
    made: Value = full(value=0, shape=type.shape, dtype=type.dtype)
    return made


def push(stack: Value, item: Value, index: Value) -> Value:
    """stack[index] = item, along the first axis."""
    row = reshape(item, shape=(1, *item.shape))
    pushed: Value = dynamic_update_slice(stack, row, index, *[number(0)] * item.ndim)
    return pushed


def peek(stack: Value, index: Value) -> Value:
    """stack[index] along the first axis."""
    shape = stack.shape[1:]
    item: Value = reshape(dynamic_slice(stack, index, *[number(0)] * len(shape), sizes=(1, *shape)), shape=shape)
    return item


def region(body: Callable[..., Any], types: Sequence[TensorType], name: str) -> Fn:
    """A region built by `body`; the module's functions stay reachable."""
    return build.trace(body, types, name, build.current().fns)


def types_of(values: Sequence[Value]) -> Types:
    return tuple([v.type for v in values])


def need(ok: bool, code: str, why: str, fix: str) -> None:
    if not ok:
        raise UserError(code, why, fix)


def spread(grads: Sequence[Value], flags: Sequence[bool]) -> list[Value | None]:
    """One entry per flag: the next gradient where it is set, None elsewhere."""
    rest = iter(grads)
    return [next(rest) if f else None for f in flags]


def picked(values: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
    return [v for v, f in zip(values, flags, strict=True) if f]


def cut(values: Sequence[Value], sizes: Sequence[int]) -> list[Sequence[Value]]:
    """Consecutive groups of the values, of the given sizes."""
    ends = list(accumulate(sizes))
    return [values[end - n : end] for n, end in zip(sizes, ends, strict=True)]


def inexact(types: Sequence[TensorType]) -> list[bool]:
    return [t.dtype.is_inexact for t in types]
