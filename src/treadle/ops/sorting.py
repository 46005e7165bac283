"""Order along an axis: sort, argsort, top_k, argmax, argmin. Index results are int32.

NaN counts as the greatest value: last in ascending order (as NumPy), first in descending order, and what argmax finds.
Every sort is stable: equal elements keep their order, in both directions; -0.0 equals 0.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle.base.dtypes import bfloat16, bool_, float32, int32
from treadle.base.errors import UserError
from treadle.ir.interp import expansion
from treadle.ir.node import Value
from treadle.ir.op import No
from treadle.ir.types import TensorType, bf16, f32, f64, u8
from treadle.ops import _padding
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._types import normal_axis, same_real
from treadle.ops.compare import equal, is_nan, logical_or, select
from treadle.ops.creation import full, iota
from treadle.ops.index import hlo_take_along, scatter_add_along
from treadle.ops.reduce import reduce_max, reduce_min, wide_array, widen
from treadle.ops.shape import LETTERS, slice_, zeros_like

_LIMIT = 2**31 - 1


def _check(x: TensorType, axis: int) -> None:
    same_real(x)
    if normal_axis(axis, x.rank) != axis:
        raise UserError("E0107", f"axis {axis} is counted from the back", fix=f"use {axis % x.rank}")
    if x.shape[axis] > _LIMIT:
        raise UserError("E0131", f"an int32 index does not reach the end of axis {axis} of {x}", fix="split it")


def _along(x: TensorType, axis: int, results: int) -> str:
    """The axes rule of ops that keep the axis but need it whole."""
    names = " ".join("!" * (i == axis) + n for i, n in enumerate(LETTERS[: x.rank]))
    return f"{names} -> " + ", ".join([names] * results)


def _compare(b: Any, x: Any, y: Any, direction: str, type: TensorType) -> Any:
    """x `direction` y, of the bool type given."""
    return b.op("compare", x, y, types=type, comparison_direction=f"#stablehlo<comparison_direction {direction}>")


def _before(b: Any, x: Any, y: Any, is_float: bool, descending: bool) -> Any:
    """Whether x comes strictly before y: smaller (or greater), NaN being the greatest."""
    flag = TensorType(bool_, ())
    first = _compare(b, x, y, "GT" if descending else "LT", flag)
    if not is_float:
        return first
    x_nan, y_nan = _compare(b, x, x, "NE", flag), _compare(b, y, y, "NE", flag)
    late, early = (y_nan, x_nan) if descending else (x_nan, y_nan)
    return b.op("or", first, b.op("and", early, b.op("not", late, types=flag), types=flag), types=flag)


def _sorted(b: Any, operands: tuple[Any, ...], types: tuple[TensorType, ...], axis: int, descending: bool) -> Any:
    """The operands sorted by the first one."""
    is_float = types[0].dtype.is_float
    scalars = [t.with_shape(()) for t in types for _ in (0, 1)]
    comparator = b.region(scalars, lambda b, x, y, *_: _before(b, x, y, is_float, descending))
    return b.op("sort", *operands, types=types, regions=(comparator,), dimension=axis, is_stable=True)


def _order(x: Any, axis: int, descending: bool) -> Any:
    """The stable order of a NumPy array."""
    y = wide_array(x)
    if not descending:
        return np.argsort(y, axis, kind="stable")
    return np.flip(y.shape[axis] - 1 - np.argsort(np.flip(y, axis), axis, kind="stable"), axis)


def _samples(s: Samples) -> Iterator[Sample]:
    for descending in (False, True):
        yield s(f64[5], axis=0, descending=descending)
        yield s(f64[3, 4, 2], axis=1, descending=descending)
        yield s(np.array([2, 1, 2, 0, 1], np.int32), axis=0, descending=descending)
        yield s(bf16[2, 3], axis=1, descending=descending)
    yield s(f32[1, 1], axis=0, descending=False)
    yield s(u8[4], axis=0, descending=True)
    yield s(f64[0, 3], axis=0, descending=False)
    yield s(f64[0, 3], axis=1, descending=True)
    yield s(np.array([1.0, np.nan, -np.inf, np.inf, np.nan, 0.5]), axis=0, descending=False, gradient=False)
    yield s(np.array([1.0, np.nan, -np.inf, np.inf, np.nan, 0.5]), axis=0, descending=True, gradient=False)
    yield s(f64[3], axis=1, descending=False, bad="E0107")
    yield s(f64[3], axis=-1, descending=False, bad="E0107")
    yield s(np.array([True, False]), axis=0, descending=False, bad="E0106")


def _onnx_top_k(g: Any, x: str, count: int, axis: int, descending: bool) -> Any:
    """ONNX orders by TopK only: values and int32 indices. It takes no bfloat16 and leaves open where NaN goes."""
    dtype, k = g.types[0].dtype, g.const(np.array([count], np.int64))
    x = g.node("Cast", x, to=float32) if dtype is bfloat16 else x
    values, indices = g.node("TopK", x, k, outputs=2, axis=axis, largest=descending, sorted=1)
    values = g.node("Cast", values, to=dtype) if dtype is bfloat16 else values
    return values, g.node("Cast", indices, to=int32)


@op(batch="shift axis", samples=_samples)
def sort_with_index(x: Value, *, axis: int, descending: bool) -> Any:
    """x sorted along `axis`, and for each element its index before sorting (int32). Raises E0106, E0107, E0131."""


sort_with_index.padded(_padding.sort)


@sort_with_index.type
def _(x: TensorType, *, axis: int, descending: bool) -> tuple[TensorType, TensorType]:
    _check(x, axis)
    return x, x.with_dtype(int32)


@sort_with_index.ref
def _(x: Any, *, axis: int, descending: bool) -> Any:
    order = _order(x, axis, descending)
    return np.take_along_axis(x, order, axis), order.astype(np.int32)


@sort_with_index.axes
def _(x: TensorType, *, axis: int, descending: bool) -> str:
    return _along(x, axis, 2)


@sort_with_index.hlo
def _(b: Any, x: Any, *, axis: int, descending: bool) -> Any:
    return _sorted(b, (x, b.op("iota", types=b.out[1], iota_dimension=axis)), b.out, axis, descending)


@sort_with_index.grad
def _(x: Value, out: Value, index: Value, d: Value, _: Value, *, axis: int, descending: bool) -> tuple[Value]:
    return (scatter_add_along(zeros_like(x), index, d, axis=axis),)


@sort_with_index.onnx
def _(g: Any, x: str, *, axis: int, descending: bool) -> Any:
    return _onnx_top_k(g, x, g.types[0].shape[axis], axis, descending)


@op(batch="shift axis", samples=_samples, axes=lambda x, *, axis, descending: _along(x, axis, 1))
def sort(x: Value, *, axis: int, descending: bool) -> Any:
    """x sorted along `axis`. Raises E0106 for bool or complex, E0107 for a wrong axis, E0131 from 2**31 elements on."""


sort.padded(_padding.sort)


@sort.type
def _(x: TensorType, *, axis: int, descending: bool) -> TensorType:
    _check(x, axis)
    return x


@sort.ref
def _(x: Any, *, axis: int, descending: bool) -> Any:
    return np.take_along_axis(x, _order(x, axis, descending), axis)


@sort.hlo
def _(b: Any, x: Any, *, axis: int, descending: bool) -> Any:
    return _sorted(b, (x,), b.types, axis, descending)


@sort.saved
def _(x: Value, *, axis: int, descending: bool) -> tuple[tuple[Value], tuple[Value]]:
    values, index = sort_with_index(x, axis=axis, descending=descending)
    return (values,), (index,)


@sort.grad
def _(x: Value, out: Value, kept: tuple[Value], d: Value, *, axis: int, descending: bool) -> tuple[Value]:
    return (scatter_add_along(zeros_like(x), kept[0], d, axis=axis),)


@sort.onnx
def _(g: Any, x: str, *, axis: int, descending: bool) -> Any:
    return _onnx_top_k(g, x, g.types[0].shape[axis], axis, descending)[0]


@op(
    batch="shift axis",
    samples=_samples,
    grad=lambda *_, axis, descending: (None,),
    axes=lambda x, *, axis, descending: _along(x, axis, 1),
)
def argsort(x: Value, *, axis: int, descending: bool) -> Any:
    """The indices (int32) that sort x along `axis`. Raises E0106, E0107, E0131."""


@argsort.type
def _(x: TensorType, *, axis: int, descending: bool) -> TensorType:
    _check(x, axis)
    return x.with_dtype(int32)


@argsort.ref
def _(x: Any, *, axis: int, descending: bool) -> Any:
    return _order(x, axis, descending).astype(np.int32)


@argsort.expand
def _(x: Value, *, axis: int, descending: bool) -> Value:
    index: Value = sort_with_index(x, axis=axis, descending=descending)[1]
    return index


@argsort.onnx
def _(g: Any, x: str, *, axis: int, descending: bool) -> Any:
    return _onnx_top_k(g, x, g.types[0].shape[axis], axis, descending)[1]


@op(batch="leading")
def top_k(x: Value, *, k: int) -> Any:
    """The k greatest elements of the last axis in descending order, and their indices (int32); NaN is the greatest.

    Raises E0142 for a k below 0 or above the size of the axis, E0106, E0107 for a 0-d tensor, E0131.
    """


top_k.padded(_padding.filled(_padding.least, places=True))


@top_k.type
def _(x: TensorType, *, k: int) -> tuple[TensorType, TensorType]:
    _check(x, normal_axis(-1, x.rank))
    if not 0 <= k <= x.shape[-1]:
        raise UserError("E0142", f"the {k} greatest of {x.shape[-1]} elements", fix=f"use a k of 0 to {x.shape[-1]}")
    out = x.with_shape((*x.shape[:-1], k))
    return out, out.with_dtype(int32)


@top_k.ref
def _(x: Any, *, k: int) -> Any:
    order = _order(x, x.ndim - 1, True)[..., :k]
    return np.take_along_axis(x, order, -1), order.astype(np.int32)


@top_k.axes
def _(x: TensorType, *, k: int) -> str:
    lead = " ".join(LETTERS[: x.rank - 1])
    return f"{lead} !n -> {lead} !k, {lead} !k"


@top_k.expand
def _(x: Value, *, k: int) -> tuple[Value, Value]:
    values, index = sort_with_index(x, axis=x.ndim - 1, descending=True)
    starts, limits, strides = (0,) * x.ndim, (*x.shape[:-1], k), (1,) * x.ndim
    return (
        slice_(values, starts=starts, limits=limits, strides=strides),
        slice_(index, starts=starts, limits=limits, strides=strides),
    )


@top_k.hlo
def _(b: Any, x: Any, *, k: int) -> Any:
    """XLA's own top_k, 100 times faster than a sort for float32; it tells 0 from -0 and NaNs apart: make them one."""
    type, axis = b.types[0], b.types[0].rank - 1
    if not type.dtype.is_float or type.dtype.bits > 32 or b.out[0].size == 0:
        return b.inline(expansion(top_k, b.types, {"k": k}), x)
    work, flags = type.with_dtype(float32), type.with_dtype(bool_)
    key = b.convert(x, type, work)
    for value, direction, other in ((float("nan"), "NE", key), (0.0, "EQ", b.splat(0, work))):
        hit = _compare(b, key, other, direction, flags)
        key = b.op("select", hit, b.splat(value, work), key, types=work)
    index = b.op("chlo.top_k", key, types=(b.out[0].with_dtype(float32), b.out[1]), k=k)[1]
    return hlo_take_along(b, x, index, type, b.out[0], axis), index


@top_k.grad
def _(x: Value, out: Value, index: Value, d: Value, _: Value, *, k: int) -> tuple[Value]:
    return (scatter_add_along(zeros_like(x), index, d, axis=x.ndim - 1) if out.type.size else zeros_like(x),)


@top_k.onnx
def _(g: Any, x: str, *, k: int) -> Any:
    return _onnx_top_k(g, x, k, g.types[0].rank - 1, True)


@top_k.samples
def _(s: Samples) -> Iterator[Sample]:
    yield s(f64[5], k=2)
    yield s(f64[2, 3, 4], k=4)
    yield s(f64[1, 1], k=1)
    yield s(f64[2, 3], k=0)
    yield s(f64[0, 3], k=2)
    yield s(f64[2, 0], k=0)
    yield s(bf16[2, 4], k=3)
    yield s(np.array([2, 1, 2, 0, 1], np.int32), k=4)
    yield s(np.array([1.0, np.nan, np.inf, np.nan]), k=3, gradient=False)
    yield s(f64[2, 3], k=4, bad="E0142")
    yield s(f64[()], k=1, bad="E0107")
    yield s(np.array([True, False]), k=1, bad="E0106")


def _extreme_type(x: TensorType, *, axis: int) -> TensorType:
    _check(x, axis)
    if x.shape[axis] == 0:
        raise UserError("E0130", f"no element is largest or smallest: {x} along axis {axis}", fix="keep empty axes out")
    return TensorType(int32, (*x.shape[:axis], *x.shape[axis + 1 :]))


def _extreme_axes(x: TensorType, *, axis: int) -> str:
    names = LETTERS[: x.rank]
    ins = " ".join("!" * (i == axis) + n for i, n in enumerate(names))
    return f"{ins} -> {' '.join(n for i, n in enumerate(names) if i != axis)}"


def _first_place(x: Value, extreme: Value, axis: int) -> Value:
    """The first place of `extreme`, the largest or smallest element; where that is NaN, of the first NaN."""
    hit = equal(x, widen(extreme, x, (axis,)))
    if x.dtype.is_float:
        hit = logical_or(hit, is_nan(x))
    none = full(value=_LIMIT, shape=x.shape, dtype=int32)
    places = select(hit, iota(shape=x.shape, axis=axis, dtype=int32), none)
    first: Value = reduce_min(places, axes=(axis,))
    return first


def _onnx_extreme(name: str) -> Any:
    def rule(g: Any, x: str, *, axis: int) -> Any:
        return g.node("Cast", g.node(name, x, axis=axis, keepdims=0, select_last_index=0), to=int32)

    return rule


def _extreme_samples(s: Samples) -> Iterator[Sample]:
    yield s(f64[5], axis=0)
    yield s(f64[2, 3, 4], axis=1)
    yield s(f64[1, 1], axis=0)
    yield s(f64[0, 3], axis=1)
    yield s(bf16[4], axis=0)
    yield s(np.array([[2, 1, 2], [0, 1, 0]], np.int32), axis=1)
    yield s(np.array([1.0, np.nan, -np.inf, np.nan, np.inf]), axis=0)
    yield s(np.array([-np.inf, -np.inf]), axis=0)
    yield s(np.array([0, 255, 255, 0], np.uint8), axis=0)
    yield s(f64[0, 3], axis=0, bad="E0130")
    yield s(f64[2], axis=1, bad="E0107")
    yield s(np.array([True]), axis=0, bad="E0106")


@op(
    batch="shift axis",
    type=_extreme_type,
    ref=lambda x, *, axis: np.argmax(wide_array(x), axis).astype(np.int32),
    grad=No("the result is an index"),
    axes=_extreme_axes,
    expand=lambda x, *, axis: _first_place(x, reduce_max(x, axes=(axis,)), axis),
    group="fold",
    onnx=_onnx_extreme("ArgMax"),
    samples=_extreme_samples,
)
def argmax(x: Value, *, axis: int) -> Any:
    """Index (int32) of the largest element along `axis`, of the first one among equals, of the first NaN if any.

    Raises E0130 for an empty axis, E0131 for one of 2**31 or more, E0106, E0107.
    """


@op(
    batch="shift axis",
    type=_extreme_type,
    ref=lambda x, *, axis: np.argmin(wide_array(x), axis).astype(np.int32),
    grad=No("the result is an index"),
    axes=_extreme_axes,
    expand=lambda x, *, axis: _first_place(x, reduce_min(x, axes=(axis,)), axis),
    group="fold",
    onnx=_onnx_extreme("ArgMin"),
    samples=_extreme_samples,
)
def argmin(x: Value, *, axis: int) -> Any:
    """Index (int32) of the smallest element along `axis`, of the first one among equals, of the first NaN if any.

    Raises E0130 for an empty axis, E0131 for one of 2**31 or more, E0106, E0107.
    """
