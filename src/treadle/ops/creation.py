"""Ops that make tensors from nothing: a filled tensor, a literal, a running index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle.base.dtypes import DType, bool_, check_fits, complex64, float32, float64, int32
from treadle.base.errors import UserError
from treadle.ir.op import No
from treadle.ir.types import Literal, TensorType
from treadle.ops import _formulas, _padding
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._types import normal_axis


def check_shape(shape: tuple[int, ...]) -> None:
    """Raise E0109 unless all sizes are ints >= 0."""
    if not all(isinstance(d, int) and d >= 0 for d in shape):
        why = f"shape {shape} has a size that is not an int >= 0"
        raise UserError("E0109", why, fix="give the sizes as Python ints")


def _expanded(g: Any, array: Any, shape: tuple[int, ...]) -> Any:
    """ONNX: a constant repeated to `shape`."""
    return g.node("Expand", g.const(array), g.const(np.array(shape, np.int64)))


@op(
    ref=lambda *, value, shape, dtype: np.full(shape, value, dtype.np), formula=_formulas.full,
    grad=No("it has no tensor inputs"),
    axes="-> ...",
    hlo=lambda b, *, value, shape, dtype: b.splat(value, b.out[0]),
    onnx=lambda g, *, value, shape, dtype: _expanded(g, np.array(value, dtype.np), shape),
)
def full(*, value: float, shape: tuple[int, ...], dtype: DType) -> Any:
    """A tensor of `shape` and `dtype` with every element `value`.

    Raises E0109 for a negative size, E0115 for a number that the type cannot hold, E0110 for a complex value: a
    `constant` may be complex.
    """


full.padded(_padding.full)


@full.type
def _(*, value: float, shape: tuple[int, ...], dtype: DType) -> TensorType:
    check_shape(shape)
    check_fits(value, dtype)
    if isinstance(value, complex):
        raise UserError("E0110", f"a tensor of {dtype} cannot be filled with {value}", fix="use a real value")
    return TensorType(dtype, shape)


@full.samples
def _(s: Samples) -> Iterator[Sample]:
    yield s(value=1.5, shape=(2,), dtype=float64)
    yield s(value=float("-inf"), shape=(0, 3), dtype=float32)
    yield s(value=True, shape=(), dtype=bool_)
    yield s(value=2.5, shape=(1, 2), dtype=complex64)
    yield s(value=1, shape=(-1,), dtype=int32, bad="E0109")
    yield s(value=1j, shape=(1,), dtype=int32, bad="E0110")
    yield s(value=1 << 31, shape=(1,), dtype=int32, bad="E0115")


@op(
    type=lambda *, value: value.type, formula=_formulas.constant,
    ref=lambda *, value: value.array,
    grad=No("it has no tensor inputs"),
    axes=No("the numbers are given whole"),
    hlo=lambda b, *, value: b.constant(value.array),
    onnx=lambda g, *, value: g.const(value.array),
)
def constant(*, value: Literal) -> Any:
    """The tensor with the elements of `value`."""


constant.padded(_padding.constant)


@constant.samples
def _(s: Samples) -> Iterator[Sample]:
    yield s(value=Literal(np.array([1.0, -0.0, np.nan, np.inf])))
    yield s(value=Literal(np.array([[True, False]])))
    yield s(value=Literal(np.array(1 + 2j, np.complex64)))
    yield s(value=Literal(np.zeros((0, 2), np.float32)))


@op(
    grad=No("it has no tensor inputs"), formula=_formulas.iota,
    axes=No("an element depends on its global index"),
    hlo=lambda b, *, shape, axis, dtype: b.op("iota", iota_dimension=axis),
    onnx=lambda g, *, shape, axis, dtype: _expanded(g, _index(shape, axis, dtype), shape),
)
def iota(*, shape: tuple[int, ...], axis: int, dtype: DType) -> Any:
    """result[..., i, ...] = i along `axis`. Raises E0107 for an axis that is not there."""


iota.padded(_padding.iota)


@iota.type
def _(*, shape: tuple[int, ...], axis: int, dtype: DType) -> TensorType:
    check_shape(shape)
    if normal_axis(axis, len(shape)) != axis:
        raise UserError("E0107", f"axis {axis} is counted from the back", fix=f"use {axis % len(shape)}")
    return TensorType(dtype, shape)


def _index(shape: tuple[int, ...], axis: int, dtype: DType) -> Any:
    """0, 1, ... along `axis`, the other axes of size 1."""
    return np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))]).astype(dtype.np)


@iota.ref
def _(*, shape: tuple[int, ...], axis: int, dtype: DType) -> Any:
    return np.broadcast_to(_index(shape, axis, dtype), shape)


@iota.samples
def _(s: Samples) -> Iterator[Sample]:
    yield s(shape=(3,), axis=0, dtype=int32)
    yield s(shape=(2, 3), axis=1, dtype=float32)
    yield s(shape=(0, 3), axis=0, dtype=int32)
    yield s(shape=(3,), axis=1, dtype=int32, bad="E0107")
    yield s(shape=(-3,), axis=0, dtype=int32, bad="E0109")
