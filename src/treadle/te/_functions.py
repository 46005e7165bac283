"""Functions of scalars, te tensors and real tensors: elementwise ones by the name of their op, choices, reductions.

A scalar argument gives a scalar; a tensor gives a tensor, element by element with broadcasting.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from treadle.base import dtypes
from treadle.base.dtypes import float32
from treadle.base.errors import UserError
from treadle.formula.expr import const
from treadle.ir.op import get
from treadle.ops._types import normal_axes
from treadle.te import _scalar
from treadle.te._bridge import is_real, on_tensors
from treadle.te._scalar import Scalar, apply, lift, together
from treadle.te._tensor import ReduceAxis, Tensor, compute, plain, reduce_axis, whole


def elementwise(on_scalars: Callable[..., Any], *args: Any, name: str = "") -> Any:
    """A function of scalars on whatever the arguments are."""
    if not builtins.any(isinstance(a, Tensor) or is_real(a) for a in args):
        return on_scalars(*args)
    return on_tensors(lambda *given: whole(on_scalars, *given, name=name), *args)


def of(name: str) -> Callable[..., Any]:
    """The function of the elementwise op `name`; integers become float32 where the op takes floats only."""

    def function(*args: Any) -> Any:
        return elementwise(lambda *given: _applied(name, given), *args, name=name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The op `{name}` on a scalar or on each element of a tensor: {get(name).doc.splitlines()[0]}"
    return function


def _applied(name: str, args: tuple[Any, ...]) -> Scalar:
    values = together(*args)
    try:
        return apply(name, *values)
    except UserError as error:
        if error.code != "E0106" or values[0].dtype.is_inexact:
            raise
        return apply(name, *[v.astype(float32) for v in values])


def cast(x: Any, dtype: Any) -> Any:
    """x with another element type."""
    return elementwise(lambda v: lift(v).astype(dtype), x, name="cast")


def if_then_else(cond: Any, x: Any, y: Any) -> Any:
    """x where cond holds, else y; only the chosen side counts, in the derivative too."""
    return elementwise(_scalar.select, cond, x, y, name="select")


def all(*conds: Any) -> Scalar:
    """Whether every condition holds."""
    return _joined("logical_and", conds)


def any(*conds: Any) -> Scalar:
    """Whether one of the conditions holds."""
    return _joined("logical_or", conds)


def _joined(name: str, conds: tuple[Any, ...]) -> Scalar:
    if not conds:
        raise UserError("E0103", "no condition is given", fix="te.all(i > 0, j > 0)")
    result = lift(conds[0])
    for c in conds[1:]:
        result = apply(name, result, lift(c))
    return result


def constant(value: Any, dtype: Any = None) -> Scalar:
    """A number as a scalar of an element type."""
    return lift(value) if dtype is None else Scalar(const(value, dtypes.of(dtype)))


def reduction(kind: str, doc: str) -> Callable[..., Any]:
    """The function of a plain reduction."""

    def function(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        if isinstance(x, Tensor) or is_real(x):
            return on_tensors(lambda t: reduced(kind, t, axis, keepdims), x)
        if axis is None:
            raise UserError("E0107", "a scalar is reduced over variables", fix="te.sum(x[i, k], axis=k)")
        return plain(kind, x, axis)

    function.__doc__ = (
        f"{doc}\n\nOf a scalar: axis is a `te.reduce_axis` or several. Of a tensor: axis counts its axes."
    )
    return function


def reduced(kind: str, x: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
    """A tensor reduced over axes counted from the front or back; None: over all. Raises E0107."""
    axes = normal_axes(tuple(axis) if isinstance(axis, list) else axis, x.ndim)
    inner = {a: reduce_axis(x.shape[a], f"k{a}") for a in axes}
    shape = [1 if a in inner else n for a, n in enumerate(x.shape) if keepdims or a not in inner]

    def element(*indices: Any) -> Any:
        own = iter([i for a, i in enumerate(indices) if a not in inner] if keepdims else indices)
        return plain(kind, x[tuple([inner[a] if a in inner else next(own) for a in range(x.ndim)])], [*inner.values()])

    made: Tensor = compute(shape, element, {"add": "sum", "mul": "prod"}.get(kind, kind))
    return made


def is_axes(axis: Any) -> bool:
    """Whether these are variables of a reduction."""
    return builtins.all(isinstance(a, ReduceAxis) for a in (axis if isinstance(axis, tuple | list) else (axis,)))
