"""Shared type rules, argument preparation and sample makers of the op families."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from treadle.base import dtypes
from treadle.base.dtypes import DType
from treadle.base.errors import UserError
from treadle.ir import op as op_table
from treadle.ir.node import Value
from treadle.ir.types import Literal, TensorType, bf16, bool_, c64, c128, f16, f32, f64, i8, i32, i64, u8, u32
from treadle.ops._declare import Sample, Samples


def same(*types: TensorType) -> TensorType:
    """All operands have one type, which is the result's."""
    if len(set(types)) > 1:
        names = " and ".join(map(str, types))
        raise UserError("E0105", f"the types differ: {names}", fix="broadcast or cast one of them")
    return types[0]


def same_kind(kinds: str, word: str) -> Callable[..., TensorType]:
    """Like `same`, for element types of these kinds only."""

    def rule(*types: TensorType) -> TensorType:
        for t in types:
            if t.dtype.kind not in kinds:
                raise UserError("E0106", f"needs {word} tensors, got {t}", fix="cast it first: x.astype(td.float32)")
        return same(*types)

    return rule


same_float = same_kind("f", "float")
same_inexact = same_kind("fc", "float or complex")
same_number = same_kind("iufc", "number")
same_real = same_kind("iuf", "real number")
same_bits = same_kind("biu", "integer or bool")


def compare_type(*types: TensorType) -> TensorType:
    """bool of the operands' common shape."""
    return same(*types).with_dtype(dtypes.bool_)


def normal_axis(axis: int, rank: int) -> int:
    """`axis` counted from the front. Raises E0107 when the tensor has no such axis."""
    if not isinstance(axis, int) or not -rank <= axis < rank:
        raise UserError("E0107", f"axis {axis} of a tensor with {rank} axes", fix=f"use {-rank} to {rank - 1}")
    return axis % rank


def normal_axes(axes: int | tuple[int, ...] | None, rank: int) -> tuple[int, ...]:
    """Axes counted from the front, sorted; None means all. Raises E0107 for an axis that is absent or named twice."""
    if axes is None:
        return tuple(range(rank))
    found = tuple(sorted(normal_axis(a, rank) for a in ((axes,) if isinstance(axes, int) else axes)))
    if len(set(found)) < len(found):
        raise UserError("E0107", f"axes {axes} name one axis twice", fix="name each axis once")
    return found


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The NumPy broadcast of shapes. Raises E0108 when they do not fit."""
    rank = max(map(len, shapes))
    result = []
    for i in range(-rank, 0):
        sizes = {s[i] for s in shapes if len(s) >= -i} - {1}
        if len(sizes) > 1:
            text = " and ".join(str(list(s)) for s in shapes)
            why = f"shapes {text} do not broadcast at axis {i}"
            raise UserError("E0108", why, fix="make the sizes equal, or one of them 1")
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def lift_scalar(scalar: Any, dtype: DType) -> Value:
    """A Python number as a 0-d value, of the type that NumPy's weak scalar rule gives beside `dtype`."""
    found = dtypes.promote_scalar(dtype, type(scalar))
    made: Value
    if isinstance(scalar, complex):
        made = op_table.get("constant")(value=Literal(np.array(scalar, found.np)))
    else:
        made = op_table.get("full")(value=scalar, shape=(), dtype=found)
    return made


def is_scalar(x: Any) -> bool:
    """A plain Python number (NumPy scalars are not: they carry a type)."""
    return isinstance(x, bool | int | float | complex) and not hasattr(x, "dtype")


def promoted(*args: Any) -> tuple[Value, ...]:
    """Arguments as values of one type: NumPy promotion with weak Python scalars, then broadcasting."""
    values = [a for a in args if isinstance(a, Value)]
    first = values[0].type if values else None
    if first is not None and len(values) == len(args) and all(v.type == first for v in values):
        return tuple(args)
    return broadcasted(*cast_together(*args))


def cast_together(*args: Any) -> tuple[Value, ...]:
    """Arguments as values of one element type; Python scalars become 0-d values."""
    tensors = [a.dtype for a in args if isinstance(a, Value)]
    if not tensors:
        raise UserError("E0102", f"none of {args} is a tensor", fix="wrap one: td.tensor(...)")
    target = dtypes.promote(*tensors)
    for a in args:
        if is_scalar(a):
            target = dtypes.promote_scalar(target, type(a))
    out = []
    for a in args:
        if is_scalar(a):
            out.append(lift_scalar(a, target))
        elif isinstance(a, Value):
            out.append(a if a.dtype is target else op_table.get("cast")(a, dtype=target))
        else:
            raise UserError("E0102", f"{a!r} is not a tensor", fix="wrap it: td.tensor(...)")
    return tuple(out)


def broadcasted(*values: Value) -> tuple[Value, ...]:
    """Values broadcast to their common shape (E0108 when there is none)."""
    shape = broadcast_shapes(*[v.shape for v in values])
    widen = op_table.get("broadcast_to")
    return tuple([v if v.shape == shape else widen(v, shape=shape) for v in values])


def widened(ref: Callable[..., Any]) -> Callable[..., Any]:
    """A reference rule that computes 16-bit floats in float32 and rounds once at the end."""

    def rule(*arrays: Any, **attrs: Any) -> Any:
        narrow = next((a.dtype for a in arrays if a.dtype.itemsize == 2 and a.dtype.kind not in "iu"), None)
        if narrow is None:
            return ref(*arrays, **attrs)
        return ref(*[a.astype(np.float32) if a.dtype == narrow else a for a in arrays], **attrs).astype(narrow)

    rule.direct = ref if isinstance(ref, np.ufunc) else None  # type: ignore[attr-defined]
    return rule


def in_float32(expand: Callable[..., Any]) -> Callable[..., Any]:
    """An expansion that computes 16-bit floats in float32 and rounds once at the end."""

    def rule(*values: Value, **attrs: Any) -> Any:
        cast = op_table.get("cast")
        narrow = values[0].dtype
        if not narrow.is_float or narrow.bits != 16:
            return expand(*values, **attrs)
        return cast(expand(*[cast(v, dtype=dtypes.float32) for v in values], **attrs), dtype=narrow)

    return rule


def floats(n: int, low: float | None = None, high: float = 1.5, **attrs: Any) -> Callable[[Samples], Iterator[Sample]]:
    """Samples of an elementwise op on n float tensors: 0-d to 2-d, size 1, empty, narrow types, an integer (bad)."""

    def make(s: Samples) -> Iterator[Sample]:
        for t in (f64[()], f64[3], f64[2, 3], f64[1, 3], f64[0, 3], f32[2, 2], f16[3], bf16[3]):
            yield s(*[t if low is None else s.uniform(t, low, high) for _ in range(n)], **attrs)
        yield s(*[i32[3]] * n, bad="E0106", **attrs)

    return make


def numbers(n: int, with_complex: bool = True, **attrs: Any) -> Callable[[Samples], Iterator[Sample]]:
    """Samples of an elementwise op on n tensors of numbers of any kind; bool tensors are wrong."""

    def make(s: Samples) -> Iterator[Sample]:
        for t in (f64[()], f64[3], f64[2, 3], f64[1, 3], f64[0, 3], f32[2, 2], f16[3], bf16[3]):
            yield s(*[t] * n, **attrs)
        for t in (i32[3], i64[2, 2], u8[4]):
            yield s(*[t] * n, **attrs)
        if with_complex:
            yield s(*[c64[2, 2]] * n, **attrs)
            yield s(*[c128[3]] * n, **attrs)
        yield s(*[bool_[3]] * n, bad="E0106", **attrs)
        if n > 1:
            yield s(f64[2], *[f64[3]] * (n - 1), bad="E0108", **attrs)

    return make


def integers(n: int, with_bool: bool = False, **attrs: Any) -> Callable[[Samples], Iterator[Sample]]:
    """Samples of an elementwise op on n integer tensors (and bool ones, if it takes them); floats are wrong."""

    def make(s: Samples) -> Iterator[Sample]:
        for t in (i32[()], i32[2, 3], i64[3], u8[1, 3], u32[4], i8[5], i32[0, 2]):
            low = 0 if t.dtype.kind == "u" else -100
            yield s(*[s.ints(t, low, 100) for _ in range(n)], **attrs)
        if with_bool:
            yield s(*[bool_[2, 3]] * n, **attrs)
        yield s(*[f64[3]] * n, bad="E0106", **attrs)

    return make
