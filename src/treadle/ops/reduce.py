"""Reductions over axes, and their opposite, broadcasting. `axes` are sorted ints >= 0; the reduced axes are dropped.

16-bit floats are summed, multiplied and averaged in float32 and rounded once. `cumsum` keeps its axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle.base.dtypes import DType, bool_, float32
from treadle.base.errors import UserError
from treadle.ir.node import Value
from treadle.ir.op import No
from treadle.ir.types import TensorType, bf16, f16, f32, f64, i32
from treadle.ops import _formulas, _padding
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._types import normal_axes, normal_axis, same_float, same_inexact, same_number, same_real
from treadle.ops.casting import cast
from treadle.ops.compare import equal, is_inf, less, logical_and, select
from treadle.ops.functions import exp, log
from treadle.ops.shape import LETTERS, concatenate, pad, reshape, slice_, transpose, zeros_like


def reduced(x: TensorType, *, axes: tuple[int, ...]) -> TensorType:
    """The type without the reduced axes."""
    if normal_axes(axes, x.rank) != axes:
        raise UserError("E0107", f"axes {axes} are not sorted and counted from the front", fix="use axis= of td.sum")
    return x.with_shape(tuple([n for i, n in enumerate(x.shape) if i not in axes]))


def keep_axes(x: TensorType, *, axes: tuple[int, ...]) -> str:
    """The axes rule of a reduction that sums partial results: `a b -> a`."""
    names = LETTERS[: x.rank]
    return " ".join(names) + " -> " + " ".join(n for i, n in enumerate(names) if i not in axes)


def widen(value: Value, like: Value, axes: tuple[int, ...]) -> Value:
    """A reduced value spread over the reduced axes again, to the shape of `like`."""
    kept = tuple([1 if i in axes else n for i, n in enumerate(like.shape)])
    spread: Value = broadcast_to(reshape(value, shape=kept), shape=like.shape)
    return spread


def _spread(x: Any, *, shape: tuple[int, ...]) -> Any:
    """np.broadcast_to, which costs five times as much on few elements."""
    if not (x.size and x.flags.c_contiguous and x.dtype.isbuiltin == 1):
        return np.broadcast_to(x, shape)
    skip = len(shape) - x.ndim
    strides = [s if n == m else 0 for s, n, m in zip(x.strides, x.shape, shape[skip:])]
    return np.ndarray(shape, x.dtype, x, 0, [0] * skip + strides)


@op(formula=_formulas.broadcast_to, group="move", jvp="linear", ref=_spread)
def broadcast_to(x: Value, *, shape: tuple[int, ...]) -> Any:
    """x repeated along new leading axes and axes of size 1, as NumPy. Raises E0108 when x does not fit `shape`."""


broadcast_to.padded(_padding.broadcast_to)


@broadcast_to.type
def _(x: TensorType, *, shape: tuple[int, ...]) -> TensorType:
    tail = shape[len(shape) - x.rank :] if len(shape) >= x.rank else None
    if tail is None or any(a not in (1, b) for a, b in zip(x.shape, tail, strict=True)):
        raise UserError("E0108", f"{x} does not broadcast to {list(shape)}", fix="equal sizes or 1, from the back")
    return x.with_shape(shape)


@broadcast_to.axes
def _(x: TensorType, *, shape: tuple[int, ...]) -> str:
    names, skip = LETTERS[: len(shape)], len(shape) - x.rank
    ins = [names[skip + i] if n == shape[skip + i] else "1" for i, n in enumerate(x.shape)]
    return " ".join(ins) + " -> " + " ".join(names)


@broadcast_to.hlo
def _(b: Any, x: Any, *, shape: tuple[int, ...]) -> Any:
    return b.broadcast(x, b.types[0], b.out[0])


@broadcast_to.onnx
def _(g: Any, x: str, *, shape: tuple[int, ...]) -> Any:
    return g.node("Expand", x, g.const(np.array(shape, np.int64)))


@broadcast_to.grad
def _(x: Value, out: Value, d: Value, *, shape: tuple[int, ...]) -> tuple[Value]:
    skip = len(shape) - x.ndim
    grown = tuple(i for i, n in enumerate(shape) if i < skip or (x.shape[i - skip] == 1 and n != 1))
    return (reshape(reduce_sum(d, axes=grown), shape=x.shape),)


@broadcast_to.batch
def _(run: Any, inputs: Any, flags: Any, *, shape: tuple[int, ...]) -> Any:
    (x,) = inputs
    column = reshape(x, shape=(run.size, *[1] * (len(shape) + 1 - x.ndim), *x.shape[1:]))
    return [broadcast_to(column, shape=(run.size, *shape))], [True]


@broadcast_to.samples
def _(s: Samples) -> Iterator[Sample]:
    yield s(f64[()], shape=(2, 3))
    yield s(f64[3], shape=(2, 3))
    yield s(f64[2, 1], shape=(4, 2, 3))
    yield s(f64[1, 3], shape=(0, 3))
    yield s(f64[2, 3], shape=(2, 3))
    yield s(i32[1], shape=(2,))
    yield s(f64[2], shape=(3,), bad="E0108")
    yield s(f64[2, 2], shape=(2,), bad="E0108")


def reductions(s: Samples) -> Iterator[Sample]:
    """Samples of a reduction: every kind of axes, empty, 0-d, narrow types, wrong axes."""
    yield s(f64[2, 3], axes=(0,))
    yield s(f64[2, 3, 4], axes=(0, 2))
    yield s(f64[()], axes=())
    yield s(f64[2, 3], axes=())
    yield s(f64[1, 3], axes=(0, 1))
    yield s(f32[2, 3], axes=(1,))
    yield s(i32[2, 3], axes=(1,))
    yield s(bf16[3], axes=(0,))
    yield s(f16[3], axes=(0,))
    yield s(f64[2], axes=(1,), bad="E0107")
    yield s(f64[2, 2], axes=(1, 0), bad="E0107")


def reductions_and_empty(s: Samples) -> Iterator[Sample]:
    """The same with an empty axis, for reductions that have a value there."""
    yield s(f64[0, 3], axes=(0,))
    yield from reductions(s)


def keep_axes_whole(x: TensorType, *, axes: tuple[int, ...]) -> str:
    """The axes rule of a reduction whose partial results do not add up: `a !b -> a`."""
    names = LETTERS[: x.rank]
    ins = " ".join("!" * (i in axes) + n for i, n in enumerate(names))
    return f"{ins} -> {' '.join(n for i, n in enumerate(names) if i not in axes)}"


def onnx_reduce(name: str) -> Any:
    """The ONNX rule of a reduction called `name` there. Without the flag, ONNX takes no axes for all axes."""

    def rule(g: Any, x: str, *, axes: tuple[int, ...]) -> Any:
        return g.node(name, x, g.const(np.array(axes, np.int64)), keepdims=0, noop_with_empty_axes=1)

    return rule


def wide_dtype(dtype: DType) -> DType:
    """The element type that sums are kept in: float32 for the 16-bit floats, else the type itself."""
    return float32 if dtype.is_float and dtype.bits == 16 else dtype


def wide(x: Value) -> Value:
    """x as float32 if its elements are 16-bit floats."""
    target = wide_dtype(x.dtype)
    made: Value = x if target is x.dtype else cast(x, dtype=target)
    return made


def wide_array(x: Any) -> Any:
    """A NumPy array as float32 if its elements are 16-bit floats (bf16 has kind V in NumPy)."""
    return x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind not in "iu" else x


def _number_type(x: TensorType, *, axes: tuple[int, ...]) -> TensorType:
    return reduced(same_number(x), axes=axes)


def _number_samples(s: Samples) -> Iterator[Sample]:
    yield from reductions_and_empty(s)
    yield s(np.array([True]), axes=(0,), bad="E0106")


@op(
    group="reduce", formula=_formulas.folded("add"),
    amp="wide",
    host=np.add.reduce,
    jvp="linear",
    batch="shift axes",
    type=_number_type,
    axes=keep_axes,
    onnx=onnx_reduce("ReduceSum"),
    samples=_number_samples,
)
def reduce_sum(x: Value, *, axes: tuple[int, ...]) -> Any:
    """Sum over `axes`; an empty sum is 0; 16-bit floats are summed in float32. Raises E0106 for bool, E0107."""


@reduce_sum.ref
def _(x: Any, *, axes: tuple[int, ...]) -> Any:
    y = wide_array(x)
    total = np.add.reduce(y, axis=axes, dtype=y.dtype)
    return total if y is x else total.astype(x.dtype)


@reduce_sum.hlo
def _(b: Any, x: Any, *, axes: tuple[int, ...]) -> Any:
    return b.reduce("add", x, b.types[0], axes, init=0)


@reduce_sum.grad
def _(x: Value, out: Value, d: Value, *, axes: tuple[int, ...]) -> tuple[Value]:
    return (widen(d, x, axes),)


def _extreme_type(x: TensorType, *, axes: tuple[int, ...]) -> TensorType:
    same_real(x)
    out = reduced(x, axes=axes)
    if any(x.shape[i] == 0 for i in axes):
        raise UserError("E0130", f"no element is largest or smallest in {x} over {axes}", fix="keep empty tensors out")
    return out


def _extreme_samples(s: Samples) -> Iterator[Sample]:
    yield from reductions(s)
    yield s(f64[0, 3], axes=(1,))
    yield s(f64[0, 3], axes=(0,), bad="E0130")
    yield s(np.array([True, False]), axes=(0,), bad="E0106")


def _extreme_grad(x: Value, out: Value, d: Value, *, axes: tuple[int, ...]) -> tuple[Value]:
    hit = cast(equal(x, widen(out, x, axes)), dtype=x.dtype)
    share = d / reduce_sum(hit, axes=axes)
    return (widen(share, x, axes) * hit,)


def _least(dtype: DType) -> Any:
    """What never wins a maximum."""
    return float("-inf") if dtype.is_float else int(np.iinfo(dtype.np).min)


def _most(dtype: DType) -> Any:
    """What never wins a minimum."""
    return float("inf") if dtype.is_float else int(np.iinfo(dtype.np).max)


def extreme_region(b: Any, dtype: DType, direction: str) -> Any:
    """The body of a reduction of floats by maximum ("GT") or minimum ("LT"), in which NaN wins.

    It is written out since XLA's library for CPUs (jaxlib 0.10.2) loses NaN in reductions that it knows as a maximum.
    """
    scalar, flag = TensorType(dtype, ()), TensorType(bool_, ())

    def better(b: Any, p: Any, q: Any) -> Any:
        wins = b.op("compare", p, q, types=flag, comparison_direction=f"#stablehlo<comparison_direction {direction}>")
        is_nan = b.op("compare", p, p, types=flag, comparison_direction="#stablehlo<comparison_direction NE>")
        return b.op("select", b.op("or", wins, is_nan, types=flag), p, q, types=scalar)

    return b.region((scalar, scalar), better)


def _hlo_extreme(b: Any, x: Any, axes: tuple[int, ...], kind: str, direction: str, init: Any) -> Any:
    type = b.types[0]
    if not type.dtype.is_float:
        return b.reduce(kind, x, type, axes, init=init)
    region = extreme_region(b, type.dtype, direction)
    return b.op("reduce", x, b.splat(init, type.with_shape(())), regions=(region,), dimensions=axes)


@op(
    group="fold", host=np.maximum.reduce, formula=_formulas.folded("maximum"),
    batch="shift axes",
    type=_extreme_type,
    grad=_extreme_grad,
    axes=keep_axes_whole,
    onnx=onnx_reduce("ReduceMax"),
    samples=_extreme_samples,
)
def reduce_max(x: Value, *, axes: tuple[int, ...]) -> Any:
    """Largest element over `axes`; NaN if there is one. The gradient is shared equally among equal largest elements.

    Raises E0130 when there is no element, E0106 for bool or complex, E0107 for wrong axes.
    """


reduce_max.padded(_padding.filled(_padding.least))


@reduce_max.ref
def _(x: Any, *, axes: tuple[int, ...]) -> Any:
    return np.max(wide_array(x), axis=axes).astype(x.dtype)


@reduce_max.hlo
def _(b: Any, x: Any, *, axes: tuple[int, ...]) -> Any:
    return _hlo_extreme(b, x, axes, "maximum", "GT", _least(b.types[0].dtype))


@op(
    group="fold", host=np.minimum.reduce, formula=_formulas.folded("minimum"),
    batch="shift axes",
    type=_extreme_type,
    grad=_extreme_grad,
    axes=keep_axes_whole,
    onnx=onnx_reduce("ReduceMin"),
    samples=_extreme_samples,
)
def reduce_min(x: Value, *, axes: tuple[int, ...]) -> Any:
    """Smallest element over `axes`; NaN if there is one. The gradient is shared equally among equal smallest elements.

    Raises E0130 when there is no element, E0106 for bool or complex, E0107 for wrong axes.
    """


reduce_min.padded(_padding.filled(_padding.most))


@reduce_min.ref
def _(x: Any, *, axes: tuple[int, ...]) -> Any:
    return np.min(wide_array(x), axis=axes).astype(x.dtype)


@reduce_min.hlo
def _(b: Any, x: Any, *, axes: tuple[int, ...]) -> Any:
    return _hlo_extreme(b, x, axes, "minimum", "LT", _most(b.types[0].dtype))


@op(
    amp="wide", formula=_formulas.folded("mul"),
    host=np.multiply.reduce, batch="shift axes", type=_number_type, axes=keep_axes_whole, onnx=onnx_reduce("ReduceProd")
)
def reduce_prod(x: Value, *, axes: tuple[int, ...]) -> Any:
    """Product over `axes`; an empty product is 1. The gradient is right where elements are zero, to any order.

    Raises E0106 for bool, E0107 for wrong axes.
    """


reduce_prod.padded(_padding.filled(_padding.one))


@reduce_prod.ref
def _(x: Any, *, axes: tuple[int, ...]) -> Any:
    y = wide_array(x)
    return np.prod(y, axis=axes, dtype=y.dtype).astype(x.dtype)


@reduce_prod.hlo
def _(b: Any, x: Any, *, axes: tuple[int, ...]) -> Any:
    return b.reduce("multiply", x, b.types[0], axes, init=1)


@reduce_prod.grad
def _(x: Value, out: Value, d: Value, *, axes: tuple[int, ...]) -> tuple[Value]:
    """Multiply in a binary tree and differentiate that: no division, log2(n) levels, O(n) work."""
    if x.type.size == 0:
        return (zeros_like(x),)
    perm = (*[i for i in range(x.ndim) if i not in axes], *axes)
    count = math.prod(x.shape[i] for i in axes)
    part: Value = reshape(transpose(x, perm=perm), shape=(*out.shape, count))
    halves = []
    while part.shape[-1] > 1:
        left, right = _split_last(_even(part))
        halves.append((left, right, part.shape[-1]))
        part = left * right
    back: Value = reshape(d, shape=part.shape)
    for left, right, n in reversed(halves):
        back = _first(concatenate(back * right, back * left, axis=back.ndim - 1), n)
    moved = tuple([x.shape[p] for p in perm])
    return (transpose(reshape(back, shape=moved), perm=tuple([perm.index(i) for i in range(x.ndim)])),)


def _even(x: Value) -> Value:
    """x with a 1 appended to the last axis if that has an odd size."""
    none = (0,) * x.ndim
    made: Value = pad(x, 1, low=none, high=(*none[1:], 1), interior=none) if x.shape[-1] % 2 else x
    return made


def _split_last(x: Value) -> tuple[Value, Value]:
    """The two halves of the last axis."""
    half, ones, none = x.shape[-1] // 2, (1,) * x.ndim, (0,) * x.ndim
    left = slice_(x, starts=none, limits=(*x.shape[:-1], half), strides=ones)
    return left, slice_(x, starts=(*none[1:], half), limits=x.shape, strides=ones)


def _first(x: Value, count: int) -> Value:
    """The first `count` elements of the last axis."""
    made: Value = slice_(x, starts=(0,) * x.ndim, limits=(*x.shape[:-1], count), strides=(1,) * x.ndim)
    return made


@reduce_prod.samples
def _(s: Samples) -> Iterator[Sample]:
    yield from _number_samples(s)
    yield s(f64[5], axes=(0,))
    yield s(np.array([2.0, 0.0, 3.0]), axes=(0,))
    yield s(np.array([[0.0, 0.0, 3.0], [1.0, 2.0, 0.0]]), axes=(1,))


def _host_mean(x: Any, axis: int | None) -> Any:
    return np.add.reduce(x, axis) / (x.size if axis is None else x.shape[axis])


def _float_type(x: TensorType, *, axes: tuple[int, ...]) -> TensorType:
    return reduced(same_inexact(x), axes=axes)


@op(
    group="fold", amp="wide",
    host=_host_mean,
    jvp="linear",
    batch="shift axes",
    type=_float_type,
    axes=keep_axes_whole,
    onnx=onnx_reduce("ReduceMean"),
)
def reduce_mean(x: Value, *, axes: tuple[int, ...]) -> Any:
    """Mean over `axes`: sum / count, in float32 for 16-bit floats; NaN of no elements. Raises E0106 for integers."""


@reduce_mean.expand
def _(x: Value, *, axes: tuple[int, ...]) -> Value:
    total = reduce_sum(wide(x), axes=axes)
    return _narrow(total / float(math.prod(x.shape[i] for i in axes)), x)


def _narrow(value: Value, like: Value) -> Value:
    """`value` in the element type of `like`."""
    made: Value = value if value.dtype is like.dtype else cast(value, dtype=like.dtype)
    return made


@reduce_mean.samples
def _(s: Samples) -> Iterator[Sample]:
    yield from (r for r in reductions(s) if r.bad or r.types[0].dtype.is_inexact)
    yield s(f64[0, 2], axes=(1,))
    yield s(i32[3], axes=(0,), bad="E0106")


def _bool_type(x: TensorType, *, axes: tuple[int, ...]) -> TensorType:
    if x.dtype is not bool_:
        raise UserError("E0106", f"needs a bool tensor, got {x}", fix="compare first: x != 0")
    return reduced(x, axes=axes)


def _bool_samples(s: Samples) -> Iterator[Sample]:
    for shape, axes in (((2, 3), (0,)), ((2, 3, 2), (0, 2)), ((), ()), ((0, 3), (0,)), ((1, 3), (0, 1)), ((2, 3), ())):
        yield s(TensorType(bool_, shape), axes=axes)
    yield s(np.array([True]), axes=(1,), bad="E0107")
    yield s(i32[2], axes=(0,), bad="E0106")


@op(
    batch="shift axes", formula=_formulas.folded("minimum"),
    type=_bool_type,
    ref=lambda x, *, axes: np.all(x, axis=axes),
    grad=No("truth values have no derivative"),
    axes=keep_axes_whole,
    hlo=lambda b, x, *, axes: b.reduce("and", x, b.types[0], axes, init=True),
    onnx=onnx_reduce("ReduceMin"),
    samples=_bool_samples,
)
def reduce_and(x: Value, *, axes: tuple[int, ...]) -> Any:
    """Whether all elements over `axes` are true; true of none. x: bool[...]. Raises E0106, E0107."""


reduce_and.padded(_padding.filled(_padding.one))


@op(
    batch="shift axes", formula=_formulas.folded("maximum"),
    type=_bool_type,
    ref=lambda x, *, axes: np.any(x, axis=axes),
    grad=No("truth values have no derivative"),
    axes=keep_axes_whole,
    hlo=lambda b, x, *, axes: b.reduce("or", x, b.types[0], axes, init=False),
    onnx=onnx_reduce("ReduceMax"),
    samples=_bool_samples,
)
def reduce_or(x: Value, *, axes: tuple[int, ...]) -> Any:
    """Whether any element over `axes` is true; false of none. x: bool[...]. Raises E0106, E0107."""


reduce_or.padded(_padding.filled(_padding.zero))


@op(amp="wide", batch="shift axes", type=_extreme_type, axes=keep_axes_whole, onnx="expand")
def logsumexp(x: Value, *, axes: tuple[int, ...]) -> Any:
    """log(sum(exp(x))) over `axes` without overflow: the largest element m is taken out first.

    -inf everywhere gives -inf, +inf anywhere +inf. Raises E0106 for anything but floats, E0130, E0107.
    """


@logsumexp.type
def _(x: TensorType, *, axes: tuple[int, ...]) -> TensorType:
    return _extreme_type(same_float(x), axes=axes)


def _finite_or_zero(x: Value) -> Value:
    """x with infinities replaced by 0, so that inf - inf cannot arise; NaN stays."""
    made: Value = select(is_inf(x), zeros_like(x), x)
    return made


@logsumexp.expand
def _(x: Value, *, axes: tuple[int, ...]) -> Value:
    y = wide(x)
    m = _finite_or_zero(reduce_max(y, axes=axes))
    return _narrow(log(reduce_sum(exp(y - widen(m, y, axes)), axes=axes)) + m, x)


@logsumexp.grad
def _(x: Value, out: Value, d: Value, *, axes: tuple[int, ...]) -> tuple[Value]:
    """d * softmax(x): 0 where all are -inf; NaN at +inf, where the share is undefined."""
    y = wide(x)
    top = wide(out)
    lowest = logical_and(is_inf(top), less(top, zeros_like(top)))
    share = exp(y - widen(select(lowest, zeros_like(top), top), y, axes))
    return (_narrow(widen(wide(d), y, axes) * share, x),)


@logsumexp.samples
def _(s: Samples) -> Iterator[Sample]:
    yield from (r for r in reductions(s) if r.bad or r.types[0].dtype.is_float)
    yield s(f64[0, 3], axes=(1,))
    yield s(f64[0, 3], axes=(0,), bad="E0130")
    yield s(i32[3], axes=(0,), bad="E0106")


@op(amp="wide", jvp="linear", batch="shift axis")
def cumsum(x: Value, *, axis: int, reverse: bool) -> Any:
    """Running sum along `axis`, each element included; from the end if `reverse`. 16-bit floats are summed in float32.

    Raises E0106 for bool, E0107 for a wrong axis.
    """


cumsum.padded(_padding.filled(_padding.zero))


@cumsum.type
def _(x: TensorType, *, axis: int, reverse: bool) -> TensorType:
    if normal_axis(axis, x.rank) != axis:
        raise UserError("E0107", f"axis {axis} is counted from the back", fix=f"use {axis % x.rank}")
    return same_number(x)


@cumsum.ref
def _(x: Any, *, axis: int, reverse: bool) -> Any:
    y = wide_array(x)
    y = np.flip(y, axis) if reverse else y
    y = np.cumsum(y, axis, dtype=y.dtype).astype(x.dtype)
    return np.flip(y, axis) if reverse else y


@cumsum.axes
def _(x: TensorType, *, axis: int, reverse: bool) -> str:
    names = " ".join("!" * (i == axis) + n for i, n in enumerate(LETTERS[: x.rank]))
    return f"{names} -> {names}"


@cumsum.hlo
def _(b: Any, x: Any, *, axis: int, reverse: bool) -> Any:
    """Windows that reach back to the start; XLA turns them into a scan of blocks."""
    type = b.types[0]
    work = type.with_dtype(wide_dtype(type.dtype))
    scalar, reach = work.with_shape(()), max(type.shape[axis] - 1, 0)
    sides = tuple([((0, reach) if reverse else (reach, 0)) if i == axis else (0, 0) for i in range(type.rank)])
    total = b.op(
        "reduce_window",
        b.convert(x, type, work),
        b.splat(0 if type.dtype.is_integer else complex(-0.0, -0.0) if type.dtype.kind == "c" else -0.0, scalar),
        types=work,
        regions=(b.region((scalar, scalar), lambda b, p, q: b.op("add", p, q, types=scalar)),),
        window_dimensions=tuple([reach + 1 if i == axis else 1 for i in range(type.rank)]),
        padding=sides,
    )
    return b.convert(total, work, type)


@cumsum.grad
def _(x: Value, out: Value, d: Value, *, axis: int, reverse: bool) -> tuple[Value]:
    return (cumsum(d, axis=axis, reverse=not reverse),)


@cumsum.onnx
def _(g: Any, x: str, *, axis: int, reverse: bool) -> Any:
    return g.node("CumSum", x, g.const(np.array(axis, np.int64)), reverse=int(reverse))


@cumsum.samples
def _(s: Samples) -> Iterator[Sample]:
    yield s(f64[3], axis=0, reverse=False)
    yield s(f64[2, 5], axis=1, reverse=True)
    yield s(f64[40, 2], axis=0, reverse=False)
    yield s(f64[1, 1], axis=1, reverse=False)
    yield s(f64[0, 3], axis=0, reverse=False)
    yield s(i32[4], axis=0, reverse=False)
    yield s(bf16[3], axis=0, reverse=True)
    yield s(f16[3], axis=0, reverse=False)
    yield s(np.array([True]), axis=0, reverse=False, bad="E0106")
    yield s(f64[2], axis=1, reverse=False, bad="E0107")
    yield s(f64[2], axis=-1, reverse=False, bad="E0107")
