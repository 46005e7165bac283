"""Running products, maxima, minima and logarithms of sums along an axis, each element included; `cumsum` is in reduce.

All are computed by doubling: after step k each element has gathered the 2**k elements up to it (Hillis & Steele 1986,
"Data parallel algorithms", doi:10.1145/7902.7903). So there are log2(n) steps, and gradients of any order come from
them: they are right where elements are zero, and cost log2(n) times the memory of x. Nothing is divided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from treadle.base.dtypes import int32
from treadle.base.errors import UserError
from treadle.ir.node import Value
from treadle.ir.types import TensorType, bf16, f16, f32, f64, i32
from treadle.ops import _padding
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._types import in_float32, normal_axis, same_float, same_number, same_real
from treadle.ops.compare import greater_equal, is_nan, less_equal, logical_or, select
from treadle.ops.creation import iota
from treadle.ops.index import scatter_add_along
from treadle.ops.reduce import wide_array
from treadle.ops.shape import LETTERS, concatenate, slice_, zeros_like
from treadle.ops.shape import reverse as flip
from treadle.ops.trigonometry import logaddexp

_LIMIT = 2**31 - 1
Combine = Callable[[tuple[Value, ...], tuple[Value, ...]], tuple[Value, ...]]


def _check_axis(x: TensorType, axis: int) -> None:
    if normal_axis(axis, x.rank) != axis:
        raise UserError("E0107", f"axis {axis} is counted from the back", fix=f"use {axis % x.rank}")


def _along(x: TensorType, axis: int, results: int = 1) -> str:
    names = " ".join("!" * (i == axis) + n for i, n in enumerate(LETTERS[: x.rank]))
    return f"{names} -> " + ", ".join([names] * results)


def _part(x: Value, axis: int, first: int, last: int) -> Value:
    """x[first:last] along the axis."""
    starts = tuple([first if i == axis else 0 for i in range(x.ndim)])
    limits = tuple([last if i == axis else n for i, n in enumerate(x.shape)])
    part: Value = slice_(x, starts=starts, limits=limits, strides=(1,) * x.ndim)
    return part


def _doubled(values: tuple[Value, ...], axis: int, reverse: bool, combine: Combine) -> tuple[Value, ...]:
    """The running `combine(earlier, later)` of several tensors at once."""
    if reverse:
        values = tuple([flip(v, axes=(axis,)) for v in values])
    size, step = values[0].shape[axis], 1
    while step < size:
        heads = tuple([_part(v, axis, 0, step) for v in values])
        earlier = tuple([_part(v, axis, 0, size - step) for v in values])
        later = tuple([_part(v, axis, step, size) for v in values])
        joined = combine(earlier, later)
        values = tuple([concatenate(h, j, axis=axis) for h, j in zip(heads, joined, strict=True)])
        step *= 2
    return tuple([flip(v, axes=(axis,)) for v in values]) if reverse else values


def _accumulated(x: Any, axis: int, reverse: bool, function: Any) -> Any:
    """The running function of a NumPy array."""
    y = np.flip(wide_array(x), axis) if reverse else wide_array(x)
    y = function(y, axis).astype(x.dtype)
    return np.flip(y, axis) if reverse else y


def _samples(s: Samples) -> Iterator[Sample]:
    yield s(f64[3], axis=0, reverse=False)
    yield s(f64[2, 5], axis=1, reverse=True)
    yield s(f64[9, 2], axis=0, reverse=False)
    yield s(f64[1, 1], axis=1, reverse=False)
    yield s(f64[0, 3], axis=0, reverse=False)
    yield s(f64[2, 0, 2], axis=2, reverse=True)
    yield s(f32[4], axis=0, reverse=False)
    yield s(bf16[3], axis=0, reverse=True)
    yield s(f16[3], axis=0, reverse=False)
    yield s(np.array([1.0, np.inf, np.nan, 2.0]), axis=0, reverse=False, gradient=False)
    yield s(np.array([True]), axis=0, reverse=False, bad="E0106")
    yield s(f64[2], axis=1, reverse=False, bad="E0107")
    yield s(f64[2], axis=-1, reverse=False, bad="E0107")


# ------------------------------------------------------------------------------------------------------------- product
@op(amp="wide", batch="shift axis", onnx="expand", axes=lambda x, *, axis, reverse: _along(x, axis))
def cumprod(x: Value, *, axis: int, reverse: bool) -> Any:
    """Running product along `axis`, from the end if `reverse`. 16-bit floats are multiplied in float32.

    Raises E0106 for bool, E0107 for a wrong axis.
    """


cumprod.padded(_padding.filled(_padding.one))


@cumprod.type
def _(x: TensorType, *, axis: int, reverse: bool) -> TensorType:
    _check_axis(x, axis)
    return same_number(x)


@cumprod.ref
def _(x: Any, *, axis: int, reverse: bool) -> Any:
    return _accumulated(x, axis, reverse, lambda y, axis: np.cumprod(y, axis, dtype=y.dtype))


@cumprod.expand
@in_float32
def _(x: Value, *, axis: int, reverse: bool) -> Any:
    return _doubled((x,), axis, reverse, lambda a, b: (a[0] * b[0],))[0]


@cumprod.samples
def _(s: Samples) -> Iterator[Sample]:
    yield from _samples(s)
    yield s(np.array([2.0, 0.0, 3.0, 0.0, -1.5, 2.0]), axis=0, reverse=False)
    yield s(i32[4], axis=0, reverse=False)


# -------------------------------------------------------------------------------------------------- logarithm of sums
@op(amp="wide", batch="shift axis", onnx="expand", axes=lambda x, *, axis, reverse: _along(x, axis))
def cumlogsumexp(x: Value, *, axis: int, reverse: bool) -> Any:
    """log of the running sum of exp(x) along `axis` without overflow, from the end if `reverse`.

    Raises E0106 for tensors that are not float, E0107 for a wrong axis.
    """


cumlogsumexp.padded(_padding.filled(_padding.least))


@cumlogsumexp.type
def _(x: TensorType, *, axis: int, reverse: bool) -> TensorType:
    _check_axis(x, axis)
    return same_float(x)


@cumlogsumexp.ref
def _(x: Any, *, axis: int, reverse: bool) -> Any:
    return _accumulated(x, axis, reverse, np.logaddexp.accumulate)


@cumlogsumexp.expand
@in_float32
def _(x: Value, *, axis: int, reverse: bool) -> Any:
    return _doubled((x,), axis, reverse, lambda a, b: (logaddexp(a[0], b[0]),))[0]


@cumlogsumexp.samples
def _(s: Samples) -> Iterator[Sample]:
    yield from _samples(s)
    yield s(np.array([-np.inf, -np.inf, 1000.0, 999.0, -1000.0]), axis=0, reverse=False, gradient=False)


# ------------------------------------------------------------------------------------------------ maximum and minimum
def _extreme_type(x: TensorType, *, axis: int, reverse: bool) -> tuple[TensorType, TensorType]:
    _check_axis(x, axis)
    if x.shape[axis] > _LIMIT:
        raise UserError("E0131", f"an int32 index does not reach the end of axis {axis} of {x}", fix="split it")
    return same_real(x), x.with_dtype(int32)


def _extreme_ref(better: Any) -> Callable[..., Any]:
    """Element by element: the running place moves on where the next element is as good, or the first NaN."""

    def rule(x: Any, *, axis: int, reverse: bool) -> Any:
        y = np.moveaxis(wide_array(x), axis, 0)
        size = y.shape[0]
        places = np.empty(y.shape, np.int32)
        order = range(size - 1, -1, -1) if reverse else range(size)
        best, place = None, np.zeros(y.shape[1:], np.int32)
        for i in order:
            moves = np.ones(y.shape[1:], bool) if best is None else better(y[i], best) | np.isnan(y[i])
            best = y[i] if best is None else np.where(moves, y[i], best)
            place = np.where(moves, np.int32(i), place)
            places[i] = place
        places = np.moveaxis(places, 0, axis)
        return np.take_along_axis(x, places, axis), places

    return rule


def _extreme_expand(better: Any) -> Callable[..., Any]:
    def combine(a: tuple[Value, ...], b: tuple[Value, ...]) -> tuple[Value, ...]:
        moves = better(b[0], a[0])
        if b[0].dtype.is_float:
            moves = logical_or(moves, is_nan(b[0]))
        return select(moves, b[0], a[0]), select(moves, b[1], a[1])

    def rule(x: Value, *, axis: int, reverse: bool) -> Any:
        return _doubled((x, iota(shape=x.shape, axis=axis, dtype=int32)), axis, reverse, combine)

    return rule


def _extreme_grad(
    x: Value, out: Value, index: Value, d: Value, _: Value, *, axis: int, reverse: bool
) -> tuple[Value | None]:
    return (scatter_add_along(zeros_like(x), index, d, axis=axis),)


def _extreme_samples(s: Samples) -> Iterator[Sample]:
    yield from _samples(s)
    yield s(np.array([2, 1, 2, 3, 0, 3], np.int32), axis=0, reverse=False)
    yield s(np.array([[2, 1], [2, 3], [1, 0]], np.uint8), axis=0, reverse=True)


@op(
    batch="shift axis", type=_extreme_type, ref=_extreme_ref(np.greater_equal), expand=_extreme_expand(greater_equal),
    grad=_extreme_grad, axes=lambda x, *, axis, reverse: _along(x, axis, 2), onnx="expand", samples=_extreme_samples,
)  # fmt: skip
def cummax(x: Value, *, axis: int, reverse: bool) -> Any:
    """Running maximum along `axis`, from the end if `reverse`, and where it is (int32), the latest among equal ones.

    NaN stays from its place on. Raises E0106 for bool or complex, E0107, E0131 from 2**31 elements on.
    """


cummax.padded(_padding.filled(_padding.least))


@op(
    batch="shift axis", type=_extreme_type, ref=_extreme_ref(np.less_equal), expand=_extreme_expand(less_equal),
    grad=_extreme_grad, axes=lambda x, *, axis, reverse: _along(x, axis, 2), onnx="expand", samples=_extreme_samples,
)  # fmt: skip
def cummin(x: Value, *, axis: int, reverse: bool) -> Any:
    """Running minimum along `axis`, from the end if `reverse`, and where it is (int32), the latest among equal ones.

    NaN stays from its place on. Raises E0106 for bool or complex, E0107, E0131 from 2**31 elements on.
    """


cummin.padded(_padding.filled(_padding.most))
