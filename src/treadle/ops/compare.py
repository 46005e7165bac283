"""Comparisons, logic on bools, choice by element. Comparisons follow IEEE 754: NaN equals nothing, itself included."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.ir.node import Value
from treadle.ir.op import No
from treadle.ir.types import TensorType, bf16, bool_, c64, c128, f16, f32, f64, i32, u8
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._types import (
    broadcasted,
    cast_together,
    compare_type,
    floats,
    is_scalar,
    lift_scalar,
    promoted,
    same,
    same_float,
    same_kind,
)

NO_GRAD = No("the result is bool")
BINARY = "..., ... -> ..."
same_bool = same_kind("b", "bool")


def _order_type(*types: TensorType) -> TensorType:
    if types[0].dtype.kind == "c":
        raise UserError("E0106", f"{types[0]} has no order", fix="compare abs(x), or real and imaginary parts")
    return compare_type(*types)


def _direction(name: str) -> Callable[..., Any]:
    return lambda b, x, y: b.op("compare", x, y, comparison_direction=f"#stablehlo<comparison_direction {name}>")


def _pairs(s: Samples, with_complex: bool) -> Iterator[Sample]:
    few = np.array([0, 1, 1, 2])
    for kind in (np.float64, np.float32, np.int32, np.uint8):
        yield s(few.astype(kind), few[::-1].astype(kind))
    special = np.array([np.nan, np.nan, np.inf, -np.inf, -0.0])
    yield s(special, np.array([np.nan, 1.0, np.inf, np.inf, 0.0]))
    yield s(np.array([255, 1], np.uint8), np.array([1, 255], np.uint8))
    for t in (f64[()], f64[0, 3], bf16[2, 2], f16[1, 3], bool_[4]):
        yield s(t, t)
    yield s(f64[2], f64[3], bad="E0108")
    yield s(c64[2], c64[2], bad="" if with_complex else "E0106")


def any_pairs(s: Samples) -> Iterator[Sample]:
    """Pairs of every type, with ties and special values."""
    yield from _pairs(s, True)


def ordered_pairs(s: Samples) -> Iterator[Sample]:
    """The same, complex numbers being wrong."""
    yield from _pairs(s, False)


def bools(n: int) -> Callable[[Samples], Iterator[Sample]]:
    """Samples of an op on n bool tensors; others are wrong."""

    def make(s: Samples) -> Iterator[Sample]:
        for t in (bool_[()], bool_[4], bool_[2, 3], bool_[1, 2], bool_[0, 2]):
            yield s(*[t] * n)
        yield s(*[i32[3]] * n, bad="E0106")

    return make


@op(
    type=compare_type, prepare=promoted, ref=np.equal, grad=NO_GRAD, axes=BINARY, hlo=_direction("EQ"), onnx="Equal",
    samples=any_pairs,
)  # fmt: skip
def equal(x: Value, y: Value) -> Any:
    """x == y of each element, bool. Raises E0108 when the shapes do not broadcast."""


equal.kernel(lambda b, x, y: b.compare("eq", x, y))


@op(
    type=compare_type, prepare=promoted, ref=np.not_equal, grad=NO_GRAD, axes=BINARY, hlo=_direction("NE"),
    onnx=lambda g, x, y: g.node("Not", g.node("Equal", x, y)), samples=any_pairs,
)  # fmt: skip
def not_equal(x: Value, y: Value) -> Any:
    """x != y of each element, bool. Raises E0108 when the shapes do not broadcast."""


not_equal.kernel(lambda b, x, y: b.compare("ne", x, y))


@op(
    type=_order_type, prepare=promoted, ref=np.less, grad=NO_GRAD, axes=BINARY, hlo=_direction("LT"), onnx="Less",
    samples=ordered_pairs,
)  # fmt: skip
def less(x: Value, y: Value) -> Any:
    """x < y of each element, bool. Raises E0106 for complex numbers, E0108 when the shapes do not broadcast."""


less.kernel(lambda b, x, y: b.compare("lt", x, y))


@op(
    type=_order_type, prepare=promoted, ref=np.less_equal, grad=NO_GRAD, axes=BINARY, hlo=_direction("LE"),
    onnx="LessOrEqual", samples=ordered_pairs,
)  # fmt: skip
def less_equal(x: Value, y: Value) -> Any:
    """x <= y of each element, bool. Raises E0106 for complex numbers, E0108 when the shapes do not broadcast."""


less_equal.kernel(lambda b, x, y: b.compare("le", x, y))


@op(
    type=_order_type, prepare=promoted, ref=np.greater, grad=NO_GRAD, axes=BINARY, hlo=_direction("GT"), onnx="Greater",
    samples=ordered_pairs,
)  # fmt: skip
def greater(x: Value, y: Value) -> Any:
    """x > y of each element, bool. Raises E0106 for complex numbers, E0108 when the shapes do not broadcast."""


greater.kernel(lambda b, x, y: b.compare("gt", x, y))


@op(
    type=_order_type, prepare=promoted, ref=np.greater_equal, grad=NO_GRAD, axes=BINARY, hlo=_direction("GE"),
    onnx="GreaterOrEqual", samples=ordered_pairs,
)  # fmt: skip
def greater_equal(x: Value, y: Value) -> Any:
    """x >= y of each element, bool. Raises E0106 for complex numbers, E0108 when the shapes do not broadcast."""


greater_equal.kernel(lambda b, x, y: b.compare("ge", x, y))


@op(
    type=same_bool, prepare=promoted, ref=np.logical_and, grad=NO_GRAD, axes=BINARY, hlo="and", onnx="And",
    samples=bools(2),
)  # fmt: skip
def logical_and(x: Value, y: Value) -> Any:
    """Both, of each element. Raises E0106 for tensors that are not bool."""


logical_and.kernel(lambda b, x, y: x & y)


@op(
    type=same_bool, prepare=promoted, ref=np.logical_or, grad=NO_GRAD, axes=BINARY, hlo="or", onnx="Or",
    samples=bools(2),
)  # fmt: skip
def logical_or(x: Value, y: Value) -> Any:
    """One or both, of each element. Raises E0106 for tensors that are not bool."""


logical_or.kernel(lambda b, x, y: x | y)


@op(
    type=same_bool, prepare=promoted, ref=np.logical_xor, grad=NO_GRAD, axes=BINARY, hlo="xor", onnx="Xor",
    samples=bools(2),
)  # fmt: skip
def logical_xor(x: Value, y: Value) -> Any:
    """One but not both, of each element. Raises E0106 for tensors that are not bool."""


logical_xor.kernel(lambda b, x, y: x ^ y)


@op(type=same_bool, ref=np.logical_not, grad=NO_GRAD, axes="... -> ...", hlo="not", onnx="Not", samples=bools(1))
def logical_not(x: Value) -> Any:
    """The opposite of each element. Raises E0106 for tensors that are not bool."""


logical_not.kernel(lambda b, x: x ^ 1)


@op(ref=np.where, axes="..., ..., ... -> ...", hlo="select", onnx="Where")
def select(cond: Value, x: Value, y: Value) -> Any:
    """x where cond holds, else y; the derivative of the one not chosen is 0, whatever its value.

    cond: bool; x and y are promoted, all three broadcast; two Python floats are float32, two ints int64.
    Raises E0106 when cond is not bool, E0108 for unfit shapes.
    """


select.kernel(lambda b, cond, x, y: b.exact(b.select(cond, x, y)))


@select.prepare
def _(cond: Any, x: Any, y: Any) -> tuple[Value, ...]:
    if not isinstance(cond, Value):
        raise UserError("E0102", f"the condition {cond!r} is not a tensor", fix="use a plain Python if")
    if is_scalar(x) and is_scalar(y):
        target = dtypes.promote_scalar(dtypes.promote_scalar(dtypes.bool_, type(x)), type(y))
        return broadcasted(cond, lift_scalar(x, target), lift_scalar(y, target))
    return broadcasted(cond, *cast_together(x, y))


@select.type
def _(cond: TensorType, x: TensorType, y: TensorType) -> TensorType:
    same_bool(cond)
    if cond.shape != x.shape:
        raise UserError("E0105", f"the condition is {cond}, the values {x}", fix="broadcast them to one shape")
    return same(x, y)


@select.grad
def _(cond: Value, x: Value, y: Value, out: Value, d: Value) -> tuple[Value | None, ...]:
    return None, select(cond, d, 0), select(cond, 0, d)


@select.samples
def _(s: Samples) -> Iterator[Sample]:
    for shape in ((), (2, 3), (1, 3), (0, 2)):
        yield s(bool_[shape], f64[shape], f64[shape])
    for t in (f32[4], bf16[4], i32[4], bool_[4], u8[4]):
        yield s(bool_[4], t, t)
    yield s(bool_[4], c128[4], c128[4])
    yield s(np.array([True, False]), np.array([1.0, np.nan]), np.array([np.nan, 2.0]), gradient=False)
    yield s(i32[2], f64[2], f64[2], bad="E0106")
    yield s(bool_[2], f64[3], f64[3], bad="E0108")


def special_values(s: Samples) -> Iterator[Sample]:
    """Floats of each width with NaN and infinities among them; integers are wrong."""
    for kind in (f64, f32, f16, bf16):
        yield s(np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5]).astype(kind[()].dtype.np))
    yield from floats(1)(s)


@op(
    type=lambda x: same_float(x).with_dtype(dtypes.bool_), ref=np.isfinite, grad=NO_GRAD, axes="... -> ...",
    hlo="is_finite", samples=special_values,
)  # fmt: skip
def is_finite(x: Value) -> Any:
    """Whether each element is neither infinite nor NaN. Raises E0106 for tensors that are not float."""


is_finite.kernel(lambda b, x: b.compare("lt", b.magnitude(x), float("inf")))


@is_finite.onnx
def _(g: Any, x: Any) -> Any:
    return g.node("Not", g.node("Or", g.node("IsInf", x), g.node("IsNaN", x)))


@op(
    type=lambda x: same_float(x).with_dtype(dtypes.bool_), ref=np.isnan, expand=lambda x: not_equal(x, x), grad=NO_GRAD,
    axes="... -> ...", onnx="IsNaN", samples=special_values,
)  # fmt: skip
def is_nan(x: Value) -> Any:
    """Whether each element is not a number. Raises E0106 for tensors that are not float."""


@op(
    type=lambda x: same_float(x).with_dtype(dtypes.bool_), ref=np.isinf, grad=NO_GRAD, axes="... -> ...", onnx="IsInf",
    samples=special_values,
    expand=lambda x: logical_or(equal(x, float("inf")), equal(x, float("-inf"))),
)  # fmt: skip
def is_inf(x: Value) -> Any:
    """Whether each element is infinite, of either sign. Raises E0106 for tensors that are not float."""
