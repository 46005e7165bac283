"""What is made of matrix factors: solutions, inverses, determinants, and the exponential of matrices.

Matrices stand in the last two axes. Systems are solved by LU. Solutions for singular matrices are infinite or NaN, and
no error, as the numbers are not known when a program is compiled.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from treadle.base.dtypes import int32
from treadle.ir.node import Value
from treadle.ir.types import TensorType, c64, c128, f16, f32, f64
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._matrices import NO_ONNX, eye, like, part, square
from treadle.ops._regions import number, region, types_of
from treadle.ops._types import broadcast_shapes, cast_together
from treadle.ops.casting import cast
from treadle.ops.compare import equal, greater, is_finite, not_equal, select
from treadle.ops.control import while_
from treadle.ops.creation import full, iota
from treadle.ops.decompositions import spread_values
from treadle.ops.elementwise import abs, ceil, clamp, sub
from treadle.ops.factorizations import lu, permutation_of_pivots, systems, take_rows, triangular_solve
from treadle.ops.functions import log, pow
from treadle.ops.products import matmul, swap
from treadle.ops.reduce import broadcast_to, reduce_max, reduce_prod, reduce_sum
from treadle.ops.shape import concatenate, slice_, zeros_like


def _same_batches(a: Any, b: Any) -> tuple[Value, ...]:
    """Promoted, the leading axes broadcast."""
    a, b = cast_together(a, b)
    if a.ndim < 2 or b.ndim < 2 or a.shape[:-2] == b.shape[:-2]:
        return a, b
    lead = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return broadcast_to(a, shape=lead + a.shape[-2:]), broadcast_to(b, shape=lead + b.shape[-2:])


# --- systems ----------------------------------------------------------------------------------------------------------


@op(type=systems, prepare=_same_batches, axes="... !i !j, ... !k !c -> ... !l !d", onnx=NO_ONNX)
def solve(a: Value, b: Value) -> Any:
    """The x with a x = b. a: [..., n, n], b: [..., n, c] -> [..., n, c]; leading axes broadcast.

    Raises E0180 when the shapes do not fit, E0181 for other element types.
    """


@solve.expand
def _(a: Value, b: Value) -> Any:
    factors, pivots = lu(a)
    rows = take_rows(b, permutation_of_pivots(pivots)) if b.type.size else b
    half = triangular_solve(factors, rows, lower=True, transposed=False, unit=True)
    return triangular_solve(factors, half, lower=False, transposed=False, unit=False)


@solve.grad
def _(a: Value, b: Value, out: Value, d: Value) -> tuple[Value, Value]:
    db = solve(swap(a), d)
    return -(db @ swap(out)), db


@solve.samples
def _(s: Samples) -> Iterator[Sample]:
    for t, c in ((f64[3, 3], 2), (f64[2, 2, 2], 1), (f64[1, 1], 1), (f64[0, 2, 2], 1), (f64[0, 0], 2), (f64[2, 2], 0)):
        yield s(spread_values(s, t), t.with_shape((*t.shape[:-1], c)))
    yield s(spread_values(s, f64[3, 3]), f64[2, 3, 1])
    yield s(spread_values(s, f32[3, 3]), f32[3, 2], tol=1e-4)
    yield s(spread_values(s, c128[3, 3]), c128[3, 2])
    yield s(spread_values(s, c64[2, 2]), c64[2, 2], tol=1e-4)
    yield s(f64[2, 2], f64[3, 2], bad="E0180")
    yield s(f16[2, 2], f16[2, 2], bad="E0181")


def _squares(s: Samples) -> Iterator[Sample]:
    for t in (f64[3, 3], f64[2, 2, 2], f64[1, 1], f64[0, 3, 3], f64[0, 0], c128[3, 3]):
        yield s(spread_values(s, t))
    for t in (f32[3, 3], c64[2, 2, 2]):
        yield s(spread_values(s, t), tol=1e-4)
    yield s(f64[2, 3], bad="E0180")
    yield s(f16[2, 2], bad="E0181")


@op(type=square, axes="... !i !j -> ... !k !l", onnx=NO_ONNX, samples=_squares)
def inverse(x: Value) -> Any:
    """The matrix whose product with x is the identity. x: [..., n, n]. Raises E0180, E0181."""


@inverse.expand
def _(x: Value) -> Any:
    return solve(x, eye(x.shape, x.dtype))


@inverse.grad
def _(x: Value, out: Value, d: Value) -> tuple[Value]:
    turned = swap(out)
    return (-(turned @ d @ turned),)


# --- determinants -----------------------------------------------------------------------------------------------------


def _scalars(x: TensorType) -> TensorType:
    return square(x).with_shape(x.shape[:-2])


def _pivots_and_sign(x: Value) -> tuple[Value, Value]:
    """The diagonal of U [..., n], and the sign [...] of the exchanges of rows, in the type of x."""
    factors, exchanges = lu(x)
    r = x.ndim
    main = reduce_sum(select(equal(eye(x.shape, x.dtype), 0), zeros_like(factors), factors), axes=(r - 1,))
    moved = not_equal(exchanges, iota(shape=exchanges.shape, axis=r - 2, dtype=int32))
    ones = full(value=1, shape=exchanges.shape, dtype=int32)
    return main, cast(reduce_prod(select(moved, -ones, ones), axes=(r - 2,)), dtype=x.dtype)


@op(type=_scalars, axes="... !i !j -> ...", onnx=NO_ONNX, samples=_squares)
def det(x: Value) -> Any:
    """The determinant. x: [..., n, n] -> [...]; 1 for n = 0. The gradient needs invertible x. Raises E0180, E0181."""


@det.expand
def _(x: Value) -> Any:
    main, sign = _pivots_and_sign(x)
    return reduce_prod(main, axes=(x.ndim - 2,)) * sign


@op(axes="... !i !j -> ..., ...", onnx=NO_ONNX, samples=_squares)
def slogdet(x: Value) -> Any:
    """(sign, log): the determinant is sign * exp(log); (0, -inf) where it is 0. The gradient needs invertible x.

    x: [..., n, n] -> sign [...] of the type of x, of size 1; log real [...]. Raises E0180, E0181.
    """


@slogdet.type
def _(x: TensorType) -> tuple[TensorType, TensorType]:
    sign = _scalars(x)
    return sign, sign.with_dtype(part(x.dtype))


@slogdet.expand
def _(x: Value) -> Any:
    main, sign = _pivots_and_sign(x)
    size, axes = abs(main), (x.ndim - 2,)
    zero = equal(size, 0)
    units = select(zero, zeros_like(main), main / like(select(zero, zeros_like(size) + 1, size), x.dtype))
    return reduce_prod(units, axes=axes) * sign, reduce_sum(log(size), axes=axes)


# --- the exponential --------------------------------------------------------------------------------------------------

_ORDER = 13
_LIMIT = 5.371920351148152  # largest 1-norm for which the approximant of this order has double precision
_WEIGHTS = [
    float(math.factorial(2 * _ORDER - k) * math.factorial(_ORDER) // math.factorial(k) // math.factorial(_ORDER - k))
    / math.factorial(_ORDER)
    for k in range(_ORDER + 1)
]


@op(type=square, axes="... !i !j -> ... !k !l", onnx=NO_ONNX)
def matrix_exp(x: Value) -> Any:
    """The sum over k of x^k / k!, by a quotient of polynomials of degree 13 and repeated squaring; a batch is squared
    as often as its largest matrix needs.

    x: [..., n, n]. Source: Higham 2005, doi:10.1137/04061101X. Raises E0180, E0181.
    """


@matrix_exp.expand
def _(x: Value) -> Any:
    if x.type.size == 0:
        return x
    r = x.ndim
    sizes = reduce_sum(abs(x), axes=(r - 2,))
    size = reduce_max(sizes, axes=tuple(range(r - 1)))
    count = clamp(0, ceil(log(size / _LIMIT) / math.log(2)), 2000)
    count = select(is_finite(count), count, zeros_like(count))
    half = full(value=0.5, shape=(), dtype=count.dtype)
    small = x * like(pow(half, count), x.dtype)
    types = types_of([number(0), x])
    loop = while_(
        cast(count, dtype=int32),
        _quotient(small),
        cond=region(lambda left, y: greater(left, 0), types, "unsquared"),
        body=region(lambda left, y: [sub(left, 1), matmul(y, y)], types, "squared"),
        n_consts=0,
    )
    return loop[1]


def _quotient(x: Value) -> Value:
    """exp(x) for small x: (v - u)^-1 (v + u) with the odd powers in u and the even ones in v."""
    w = _WEIGHTS
    one = eye(x.shape, x.dtype)
    x2 = x @ x
    x4 = x2 @ x2
    x6 = x4 @ x2
    odd = x6 @ (x6 * w[13] + x4 * w[11] + x2 * w[9]) + x6 * w[7] + x4 * w[5] + x2 * w[3] + one * w[1]
    v = x6 @ (x6 * w[12] + x4 * w[10] + x2 * w[8]) + x6 * w[6] + x4 * w[4] + x2 * w[2] + one * w[0]
    u = x @ odd
    made: Value = solve(v - u, v + u)
    return made


@matrix_exp.grad
def _(x: Value, out: Value, d: Value) -> tuple[Value]:
    """exp([[x^T, d], [0, x^T]]) has the gradient in its upper right corner (Najfeld & Havel 1995)."""
    turned, r, n = swap(x), x.ndim, x.shape[-1]
    above = concatenate(turned, d, axis=r - 1)
    below = concatenate(zeros_like(x), turned, axis=r - 1)
    whole = matrix_exp(concatenate(above, below, axis=r - 2))
    lead = x.shape[:-2]
    starts, limits = (0,) * len(lead) + (0, n), (*lead, n, 2 * n)
    return (slice_(whole, starts=starts, limits=limits, strides=(1,) * r),)


@matrix_exp.samples
def _(s: Samples) -> Iterator[Sample]:
    for t in (f64[3, 3], f64[2, 2, 2], f64[1, 1], f64[0, 3, 3], f64[0, 0], c128[2, 2]):
        yield s(t)
    yield s(s.uniform(f64[2, 2], -12.0, 12.0), tol=1e-6, gradient=False)
    for t in (f32[3, 3], c64[2, 2, 2]):
        yield s(t, tol=2e-4)
    yield s(f64[2, 3], bad="E0180")
    yield s(f16[2, 2], bad="E0181")
