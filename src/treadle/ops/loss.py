"""Cross entropy of logits against class labels, per sample. Other losses are compositions made in `treadle.nn`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle.base.dtypes import int32, int64
from treadle.base.errors import UserError
from treadle.ir.node import Value
from treadle.ir.types import TensorType, bf16, f16, f32, f64, i32, i64
from treadle.ops._declare import Sample, Samples, op
from treadle.ops.casting import cast
from treadle.ops.compare import equal, greater_equal, is_inf, less, logical_and, select
from treadle.ops.creation import full, iota
from treadle.ops.functions import exp, log
from treadle.ops.index import take_along_axis
from treadle.ops.norm import exp_shift
from treadle.ops.reduce import reduce_sum, wide, wide_dtype, widen
from treadle.ops.shape import LETTERS, reshape, zeros_like


@op(group="loss", batch="leading", onnx="expand")
def cross_entropy(logits: Value, labels: Value, *, ignore_index: int | None) -> Any:
    """log(sum(exp(logits))) - logits[label] of each sample; 0 where the label is `ignore_index`.

    logits: float[..., C], labels: integer[...] -> float[...], float32 for 16-bit logits. Another label outside 0 to
    C - 1 gives NaN. Raises E0106 for logits that are no floats, E0160 for labels that are no integers, E0161 for
    unfit shapes.
    """


@op(group="loss", batch="leading", onnx="expand")
def cross_entropy_fwd(logits: Value, labels: Value, *, ignore_index: int | None) -> Any:
    """`cross_entropy` that also gives shift = max(logits) and total = sum(exp(logits - shift)), for the gradient.

    In one program with the gradient, the two share exp(logits - shift). shift counts as a constant (see `exp_shift`).
    Raises as `cross_entropy`.
    """


@op(group="loss", batch="leading", onnx="expand")
def cross_entropy_grad(
    logits: Value, labels: Value, shift: Value, total: Value, d: Value, *, ignore_index: int | None
) -> Any:
    """(exp(logits - shift) / total - one_hot(label)) * d: the gradient of `cross_entropy` for the logits.

    A label that is ignored gives 0, another outside 0 to C - 1 NaN. Raises as `cross_entropy`, and E0162 for shift,
    total or d of another type than the loss.
    """


def _loss_type(logits: TensorType, labels: TensorType) -> TensorType:
    if not logits.dtype.is_float:
        raise UserError("E0106", f"the logits are {logits}", fix="cast them to a float type")
    if not labels.dtype.is_integer:
        raise UserError("E0160", f"the labels are {labels}", fix="give the integer index of each class")
    if not logits.rank or labels.shape != logits.shape[:-1] or not logits.shape[-1]:
        why = f"logits {logits}, labels {labels}"
        raise UserError("E0161", why, fix="shape logits [..., C] with C >= 1 and labels [...]")
    return TensorType(wide_dtype(logits.dtype), labels.shape)


@cross_entropy.type
def _(logits: TensorType, labels: TensorType, *, ignore_index: int | None) -> TensorType:
    return _loss_type(logits, labels)


@cross_entropy_fwd.type
def _(logits: TensorType, labels: TensorType, *, ignore_index: int | None) -> Any:
    return (_loss_type(logits, labels),) * 3


@cross_entropy_grad.type
def _(logits: TensorType, labels: TensorType, *given: TensorType, ignore_index: int | None) -> Any:
    wanted = _loss_type(logits, labels)
    if given != (wanted,) * 3:
        why = f"shift, total and d are {', '.join(map(str, given))}"
        raise UserError("E0162", why, fix=f"give all the type {wanted}")
    return logits


def _axes(operands: int, results: int) -> Any:
    """The samples may be split, the classes not."""

    def rule(logits: TensorType, *_: TensorType, ignore_index: int | None) -> str:
        names = " ".join(LETTERS[: logits.rank - 1])
        losses = ", ".join([names] * max(results, 1)) if results else f"{names} !z"
        return f"{names} !z, " + ", ".join([names] * operands) + " -> " + losses

    return rule


cross_entropy.axes(_axes(1, 1))
cross_entropy_fwd.axes(_axes(1, 3))
cross_entropy_grad.axes(_axes(4, 0))


def _reference(logits: Any, labels: Any, ignore_index: int | None) -> tuple[Any, Any, Any]:
    x, classes = logits.astype(np.float64), logits.shape[-1]
    shift = x.max(-1)
    shift = np.where(np.isinf(shift), 0, shift)
    total = np.exp(x - shift[..., None]).sum(-1)
    y = labels.astype(np.int64)
    good = (y >= 0) & (y < classes)
    chosen = np.take_along_axis(x, np.where(good, y, 0)[..., None], -1)[..., 0]
    loss = np.where(good, np.log(total) + shift - chosen, np.nan)
    loss = loss if ignore_index is None else np.where(y == ignore_index, 0.0, loss)
    kind = np.float32 if logits.dtype.itemsize == 2 else logits.dtype
    return loss.astype(kind), shift.astype(kind), total.astype(kind)


@cross_entropy.ref
def _(logits: Any, labels: Any, *, ignore_index: int | None) -> Any:
    return _reference(logits, labels, ignore_index)[0]


@cross_entropy_fwd.ref
def _(logits: Any, labels: Any, *, ignore_index: int | None) -> Any:
    return _reference(logits, labels, ignore_index)


def _signed(labels: Value) -> Value:
    """Labels as int32 or int64, which hold every class and whatever else they may be."""
    if labels.dtype in (int32, int64):
        return labels
    signed: Value = cast(labels, dtype=int32 if labels.dtype.bits < 32 else int64)
    return signed


def _judged(x: Value, labels: Value, classes: int, ignore_index: int | None) -> Value:
    """x, of the labels' shape, with NaN for labels that name no class and 0 for those to ignore."""
    good = logical_and(greater_equal(labels, 0), less(labels, classes))
    judged: Value = select(good, x, full(value=math.nan, shape=x.shape, dtype=x.dtype))
    if ignore_index is None:
        return judged
    zero = full(value=0, shape=x.shape, dtype=x.dtype)
    return select(equal(labels, ignore_index), zero, judged)  # type: ignore[no-any-return]


@cross_entropy.expand
def _(logits: Value, labels: Value, *, ignore_index: int | None) -> Any:
    return cross_entropy_fwd(logits, labels, ignore_index=ignore_index)[0]


@cross_entropy_fwd.expand
def _(logits: Value, labels: Value, *, ignore_index: int | None) -> Any:
    x, labels, last = wide(logits), _signed(labels), logits.ndim - 1
    largest = exp_shift(x, axes=(last,))
    shift = select(is_inf(largest), zeros_like(largest), largest)
    total = reduce_sum(exp(x - widen(shift, x, (last,))), axes=(last,))
    place = reshape(labels, shape=(*labels.shape, 1))
    chosen = reshape(take_along_axis(x, place, axis=last), shape=labels.shape)
    return _judged(log(total) + (shift - chosen), labels, logits.shape[-1], ignore_index), shift, total


@cross_entropy.saved
def _(logits: Value, labels: Value, *, ignore_index: int | None) -> Any:
    loss, shift, total = cross_entropy_fwd(logits, labels, ignore_index=ignore_index)
    return (loss,), (shift, total)


@cross_entropy.grad
def _(logits: Value, labels: Value, loss: Value, saved: Any, d: Value, *, ignore_index: int | None) -> Any:
    return cross_entropy_grad(logits, labels, *saved, d, ignore_index=ignore_index), None


@cross_entropy_grad.expand
def _(logits: Value, labels: Value, shift: Value, total: Value, d: Value, *, ignore_index: int | None) -> Any:
    x, labels, last = wide(logits), _signed(labels), (logits.ndim - 1,)
    weight = widen(_judged(d, labels, logits.shape[-1], ignore_index), x, last)
    classes = iota(shape=x.shape, axis=last[0], dtype=labels.dtype)
    share = exp(x - widen(shift, x, last)) * widen(1 / total, x, last)
    hit = select(equal(classes, widen(labels, x, last)), share - 1.0, share)
    return cast(hit * weight, dtype=logits.dtype)


def _loss_samples(more: int, gradient: bool = True) -> Any:
    """Samples with so many tensors of the loss's type after the labels."""

    def make(s: Samples) -> Iterator[Sample]:
        for shape, labels in (((3, 4), i32), ((2, 3, 2), i64), ((4,), i32), ((2, 1), i32), ((0, 3), i32)):
            lead, classes = shape[:-1], shape[-1]
            chosen = s.ints(labels[lead], 0, classes)
            yield s(f64[shape], chosen, *[f64[lead]] * more, ignore_index=None, gradient=gradient)
        yield s(f64[4, 3], np.array([0, 2, -100, 1]), *[f64[4]] * more, ignore_index=-100, gradient=gradient)
        yield s(f64[4, 3], np.array([0, 3, -1, 2]), *[f64[4]] * more, ignore_index=None, gradient=False)
        yield s(f64[3, 3], np.array([0, 3, 2], np.uint8), *[f64[3]] * more, ignore_index=2, gradient=False)
        yield s(f64[2, 300], np.array([0, 44], np.uint8), *[f64[2]] * more, ignore_index=None, gradient=gradient)
        for kind in (f32, bf16, f16):
            yield s(kind[2, 3], np.array([2, 0]), *[f32[2]] * more, ignore_index=None, gradient=gradient)
        yield s(f64[2, 3], f64[2], *[f64[2]] * more, ignore_index=None, bad="E0160")
        yield s(f64[2, 3], i32[3], *[f64[2]] * more, ignore_index=None, bad="E0161")
        yield s(i32[2, 3], i32[2], *[f64[2]] * more, ignore_index=None, bad="E0106")
        if more:
            yield s(f64[2, 3], np.array([0, 1]), *[f64[3]] * more, ignore_index=None, bad="E0162")

    return make


cross_entropy.samples(_loss_samples(0))
cross_entropy_fwd.samples(_loss_samples(0, gradient=False))  # the derivative of total leaves out that of shift
cross_entropy_grad.samples(_loss_samples(3))
