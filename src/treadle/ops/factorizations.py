"""Triangular factors of matrices in the last two axes: Cholesky, LU and QR, and triangular systems.

CPUs compute them by LAPACK; other devices have Cholesky and triangular systems of XLA, and LU and QR of
`_elimination.py`. Gradients: Giles 2008, "Collected matrix derivative results"; for QR
Walter & Lehmann 2010, arXiv:1001.1654.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle.base.dtypes import bool_, int32
from treadle.base.errors import UserError
from treadle.ir import build
from treadle.ir.node import Value
from treadle.ir.op import No
from treadle.ir.types import TensorType, c64, c128, f16, f32, f64, i32
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._elimination import eliminated, reflected
from treadle.ops._matrices import (
    NO_ONNX,
    adjoint,
    conjugate,
    diagonal,
    each,
    eye,
    lapack,
    like,
    lower,
    lower_gradient,
    matrix,
    nothing,
    real_part,
    square,
    unless_failed,
    upper,
)  # fmt: skip
from treadle.ops._regions import need, region
from treadle.ops._types import cast_together
from treadle.ops.compare import equal, select
from treadle.ops.creation import iota
from treadle.ops.index import take_along_axis
from treadle.ops.loops import scan
from treadle.ops.products import swap
from treadle.ops.reduce import broadcast_to, reduce_sum
from treadle.ops.shape import concatenate, reshape, slice_, transpose
from treadle.ops.sorting import argsort


def positive(s: Samples, type: TensorType) -> Any:
    """Hermitian matrices with eigenvalues of 1/2 or more, of different sizes on the diagonal."""
    x = s.draw(type)
    n = type.shape[-1]
    made = x @ np.conj(np.swapaxes(x, -1, -2)) + 0.5 * np.diag(np.arange(1, n + 1))
    return made.astype(x.dtype)


# --- Cholesky ---------------------------------------------------------------------------------------------------------


@op(type=square, axes="... !i !j -> ... !k !l", onnx=NO_ONNX)
def cholesky(x: Value) -> Any:
    """The lower triangular L with L L^H = x. x: Hermitian positive definite [..., n, n], read from its lower triangle.

    NaN in the triangle where x is not positive definite. Raises E0181 for other element types, E0180 for other shapes.
    """


@cholesky.ref
def _(x: Any) -> Any:
    return np.tril(each(lambda a: (np.linalg.cholesky(a),), x, [x.shape[-2:]], [x.dtype])[0])


@cholesky.hlo
def _(b: Any, x: Any) -> Any:
    t = b.types[0]
    if t.size == 0:
        return nothing(b)
    if b.lapack:
        info = TensorType(int32, t.shape[:-2])
        made, failed = lapack(b, "potrf", [x], [t], [t, info], uplo="L")
        (made,) = unless_failed(b, [made], [t], failed, info)
    else:
        made = b.op("cholesky", x, lower=True)
    count = t.with_dtype(int32)
    row, column = [b.op("iota", types=count, iota_dimension=a) for a in (t.rank - 2, t.rank - 1)]
    mask = b.op(
        "compare", row, column, types=t.with_dtype(bool_), comparison_direction="#stablehlo<comparison_direction GE>"
    )
    return b.op("select", mask, made, b.splat(0, t))


@cholesky.grad
def _(x: Value, out: Value, d: Value) -> tuple[Value]:
    g = lower(conjugate(d))
    inner = lower(adjoint(out) @ g)
    inner = inner - diagonal(inner) / 2
    bar = conjugate(out)  # L^-H y is solved with conj(L) transposed
    left = triangular_solve(bar, inner, lower=True, transposed=True, unit=False)
    whole = adjoint(triangular_solve(bar, adjoint(left), lower=True, transposed=True, unit=False))
    return (conjugate(lower_gradient((whole + adjoint(whole)) / 2)),)


@cholesky.samples
def _(s: Samples) -> Iterator[Sample]:
    for t in (f64[3, 3], f64[2, 2, 2], f64[1, 1], f64[0, 3, 3], f64[0, 0], f32[3, 3], c128[3, 3], c64[2, 2, 2]):
        yield s(positive(s, t))
    yield s(np.stack([np.eye(3), np.diag([1.0, 2.0, -1.0])]), gradient=False)
    yield s(f64[2, 3], bad="E0180")
    yield s(f16[2, 2], bad="E0181")


# --- triangular systems -----------------------------------------------------------------------------------------------


@op(prepare=cast_together, axes="... !i !j, ... !k c -> ... !l c", onnx=NO_ONNX)
def triangular_solve(a: Value, b: Value, *, lower: bool, transposed: bool, unit: bool) -> Any:
    """The x with a x = b, or a^T x = b if `transposed`. a: [..., n, n], b: [..., n, c] -> [..., n, c].

    Only the lower (else the upper) triangle of a is read; if `unit`, its diagonal is not read and taken as ones.
    Raises E0180 for other shapes, E0181 for other element types, E0105 when the types differ.
    """


@triangular_solve.type
def _(a: TensorType, b: TensorType, *, lower: bool, transposed: bool, unit: bool) -> TensorType:
    return systems(a, b)


def systems(a: TensorType, b: TensorType) -> TensorType:
    """The type of the solutions of a x = b. Raises E0180 when the shapes do not fit."""
    square(a)
    matrix(b)
    if a.dtype is not b.dtype:
        raise UserError("E0105", f"the types differ: {a} and {b}", fix="cast one of them")
    if a.shape[:-1] != b.shape[:-1]:
        raise UserError("E0180", f"the systems are {a}, the right sides {b}", fix=f"give these {a.shape[-1]} rows")
    return b


@triangular_solve.ref
def _(a: Any, b: Any, *, lower: bool, transposed: bool, unit: bool) -> Any:
    """Substitution, one unknown after the other."""
    if transposed:
        a, lower = np.swapaxes(a, -1, -2), not lower
    n = a.shape[-1]
    x = np.zeros_like(b)
    for i in range(n) if lower else reversed(range(n)):
        known = slice(0, i) if lower else slice(i + 1, n)
        rest = b[..., i, :] - (a[..., i : i + 1, known] @ x[..., known, :])[..., 0, :]
        x[..., i, :] = rest if unit else rest / a[..., i, i][..., None]
    return x


@triangular_solve.hlo
def _(b: Any, a: Any, y: Any, *, lower: bool, transposed: bool, unit: bool) -> Any:
    if b.out[0].size == 0:
        return nothing(b)
    mode = "TRANSPOSE" if transposed else "NO_TRANSPOSE"
    return b.op(
        "triangular_solve", a, y, left_side=True, lower=lower, unit_diagonal=unit,
        transpose_a=f"#stablehlo<transpose {mode}>",
    )  # fmt: skip


@triangular_solve.grad
def _(a: Value, b: Value, out: Value, d: Value, *, lower: bool, transposed: bool, unit: bool) -> tuple[Value, Value]:
    db = triangular_solve(a, d, lower=lower, transposed=not transposed, unit=unit)
    da = -(out @ swap(db)) if transposed else -(db @ swap(out))
    return _triangle(da, lower, 1 if unit else 0), db


def _triangle(x: Value, low: bool, skip: int) -> Value:
    return lower(x, -skip) if low else upper(x, skip)


@triangular_solve.samples
def _(s: Samples) -> Iterator[Sample]:
    for t, c in ((f64[3, 3], 2), (f64[2, 2, 2], 1), (f64[0, 0], 2), (f64[0, 2, 2], 1), (f32[3, 3], 2), (c128[2, 2], 2)):
        a = s.draw(t) + 2 * np.eye(t.shape[-1], dtype=t.dtype.np) * np.sign(s.draw(t).real)
        b = t.with_shape((*t.shape[:-1], c))
        for low, turned, unit in ((True, False, False), (False, False, True), (True, True, True), (False, True, False)):
            yield s(a.astype(t.dtype.np), b, lower=low, transposed=turned, unit=unit)
    yield s(f64[2, 2], f64[3, 2], lower=True, transposed=False, unit=False, bad="E0180")
    yield s(f16[2, 2], f16[2, 2], lower=True, transposed=False, unit=False, bad="E0181")


# --- LU ---------------------------------------------------------------------------------------------------------------


@op(axes="... !i !j -> ... !k !l, ... !m", onnx=NO_ONNX)
def lu(x: Value) -> Any:
    """(factors, pivots): L below the diagonal of the factors, its diagonal of ones left out, U on and above it.

    x: [..., n, n]. pivots: int32[..., n], the row that row i was exchanged with at step i; the matrix with its rows so
    exchanged is L U. Where x is singular U has a zero on its diagonal. Raises E0180, E0181.
    """


@lu.type
def _(x: TensorType) -> tuple[TensorType, TensorType]:
    return square(x), TensorType(int32, x.shape[:-1])


@lu.ref
def _(x: Any) -> Any:
    return each(_lu, x, [x.shape[-2:], x.shape[-1:]], [x.dtype, np.int32])


def _lu(x: Any) -> tuple[Any, Any]:
    """Gaussian elimination with the largest element of each column (|re| + |im|, as LAPACK) as pivot."""
    a = x.copy()
    n = len(a)
    pivots = np.arange(n)
    for i in range(n):
        size = np.abs(a[i:, i].real) + np.abs(a[i:, i].imag)
        p = pivots[i] = i + int(np.argmax(size))
        a[[i, p]] = a[[p, i]]
        if a[i, i] != 0:
            a[i + 1 :, i] /= a[i, i]
        a[i + 1 :, i + 1 :] -= np.outer(a[i + 1 :, i], a[i, i + 1 :])
    return a, pivots


lu.expand(eliminated)


@lu.hlo
def _(b: Any, x: Any) -> Any:
    t = b.types[0]
    if not b.lapack:
        return NotImplemented
    if t.size == 0:
        return nothing(b)
    info = TensorType(int32, t.shape[:-2])
    factors, pivots, _ = lapack(b, "getrf", [x], [t], [*b.out, info])
    return factors, b.op("subtract", pivots, b.splat(1, b.out[1]), types=b.out[1])


@lu.grad
def _(x: Value, factors: Value, pivots: Value, d: Value, _: Any) -> tuple[Value]:
    """With P x = L U: the gradient for P x is L^-T (tril(L^T dL, -1) + triu(dU U^T)) U^-T, unconjugated."""
    n = x.shape[-1]
    if n == 0:
        return (d,)
    left, right = lower(factors, -1) + eye(x.shape, x.dtype), upper(factors)
    inner = lower(swap(left) @ lower(d, -1), -1) + upper(upper(d) @ swap(right))
    half = triangular_solve(factors, inner, lower=True, transposed=True, unit=True)
    both = swap(triangular_solve(factors, swap(half), lower=False, transposed=False, unit=False))
    places = argsort(permutation_of_pivots(pivots), axis=x.ndim - 2, descending=False)
    return (take_rows(both, places),)


def take_rows(x: Value, rows: Value) -> Value:
    """x[..., rows[..., i], :]."""
    spread = broadcast_to(reshape(rows, shape=(*rows.shape, 1)), shape=(*rows.shape, x.shape[-1]))
    made: Value = take_along_axis(x, spread, axis=x.ndim - 2)
    return made


@lu.samples
def _(s: Samples) -> Iterator[Sample]:
    yield s(np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 2.0], [0.0, 3.0, 4.0]]), gradient=False)
    for t in (f64[3, 3], f64[2, 2, 2], f64[1, 1], f64[0, 3, 3], f64[0, 0], f32[3, 3], c128[3, 3], c64[2, 2, 2]):
        yield s(t)
    yield s(f64[2, 3], bad="E0180")
    yield s(f16[2, 2], bad="E0181")


@op(grad=No("the result is an index"), axes="... !i -> ... !j", onnx=NO_ONNX)
def permutation_of_pivots(pivots: Value) -> Any:
    """The rows in the order that exchanges give: row i with row pivots[i], for i = 0, 1, ... pivots: int32[..., n].

    Raises E0138 for other element types, E0180 for no axis.
    """


@permutation_of_pivots.type
def _(pivots: TensorType) -> TensorType:
    need(pivots.dtype is int32, "E0138", f"pivots are {pivots}", "give what lu gives")
    need(pivots.rank > 0, "E0180", f"pivots are {pivots}", "give what lu gives")
    return pivots


@permutation_of_pivots.ref
def _(pivots: Any) -> Any:
    out = np.zeros_like(pivots)
    for index in np.ndindex(*pivots.shape[:-1]):
        order = np.arange(pivots.shape[-1])
        for i, p in enumerate(pivots[index]):
            order[[i, p]] = order[[p, i]]
        out[index] = order
    return out


@permutation_of_pivots.expand
def _(pivots: Value) -> Any:
    """A scan over the exchanges; both elements are found by masks, for all batches at once."""
    r, n = pivots.ndim, pivots.shape[-1]
    places = iota(shape=pivots.shape, axis=r - 1, dtype=int32)
    if n == 0:
        return places
    steps = transpose(pivots, perm=(r - 1, *range(r - 1)))
    count = iota(shape=(n,), axis=0, dtype=int32)

    def step(order: Value, i: Value, p: Value) -> Value:
        index = iota(shape=order.shape, axis=r - 1, dtype=int32)
        other = broadcast_to(reshape(p, shape=(*p.shape, 1)), shape=order.shape)
        here, there = equal(index, broadcast_to(i, shape=order.shape)), equal(index, other)
        zero = index * 0
        at = [reduce_sum(select(mask, order, zero), axes=(r - 1,)) for mask in (here, there)]
        first, second = [broadcast_to(reshape(v, shape=(*p.shape, 1)), shape=order.shape) for v in at]
        made: Value = select(here, second, select(there, first, order))
        return made

    types = [places.type, TensorType(int32, ()), steps.type.with_shape(steps.shape[1:])]
    body = region(step, types, "exchange")
    order: Value = scan(places, count, steps, body=body, n_consts=0, n_carry=1, length=n)
    return order[0] if isinstance(order, tuple) else order


@permutation_of_pivots.samples
def _(s: Samples) -> Iterator[Sample]:
    yield s(np.array([2, 2, 2], np.int32))
    yield s(np.array([[1, 1, 3, 3], [0, 3, 2, 3]], np.int32))
    yield s(i32[0])
    yield s(i32[0, 3])
    yield s(f64[3], bad="E0138")
    yield s(np.int32(1), bad="E0180")


# --- QR ---------------------------------------------------------------------------------------------------------------


@op(axes="... !i !j -> ... !k !l, ... !m !n", onnx=NO_ONNX)
def qr(x: Value) -> Any:
    """(Q, R) with Q R = x, Q^H Q = 1, R upper triangular with a real diagonal of either sign, as LAPACK gives it.

    x: [..., m, n] -> Q [..., m, k], R [..., k, n], k = min(m, n). The gradient needs independent columns (the first k).
    Raises E0180, E0181.
    """


@qr.type
def _(x: TensorType) -> tuple[TensorType, TensorType]:
    m, n = matrix(x).shape[-2:]
    k = min(m, n)
    return x.with_shape((*x.shape[:-2], m, k)), x.with_shape((*x.shape[:-2], k, n))


@qr.ref
def _(x: Any) -> Any:
    m, n = x.shape[-2:]
    k = min(m, n)
    return each(np.linalg.qr, x, [(m, k), (k, n)], [x.dtype, x.dtype])


qr.expand(reflected)


@qr.hlo
def _(b: Any, x: Any) -> Any:
    t, (q_type, r_type) = b.types[0], b.out
    if not b.lapack:
        return NotImplemented
    if t.size == 0:
        return nothing(b)
    tau = t.with_shape((*t.shape[:-2], q_type.shape[-1]))
    packed, scales = lapack(b, "geqrf", [x], [t], [t, tau])
    cut = _cut(b, packed, t, q_type)
    form = "ungqr" if t.dtype.kind == "c" else "orgqr"
    q = lapack(b, form, [cut, scales], [q_type, tau], [q_type])
    r = _cut(b, packed, t, r_type)
    return q, b.inline(_upper_fn(r_type), r)[0]


def _cut(b: Any, x: Any, t: TensorType, to: TensorType) -> Any:
    """The first rows and columns of x."""
    return b.op("slice", x, types=to, start_indices=(0,) * t.rank, limit_indices=to.shape, strides=(1,) * t.rank)


def _upper_fn(t: TensorType) -> Any:
    return build.trace(upper, [t], "upper")


@qr.grad
def _(x: Value, q: Value, r: Value, dq: Value, dr: Value) -> tuple[Value]:
    """The first k columns as a tall matrix; the others are q r2, so that q's gradient gets x2 dr2^H."""
    k, n = q.shape[-1], x.shape[-1]
    if x.type.size == 0:
        return (x * 0,)
    gq, gr = conjugate(dq), upper(conjugate(dr))
    if k == n:
        return (conjugate(_tall(q, r, gq, gr)),)
    rest = _columns(gr, k, n)
    gq = gq + _columns(x, k, n) @ adjoint(rest)
    first = _tall(q, _columns(r, 0, k), gq, _columns(gr, 0, k))
    return (conjugate(concatenate(first, q @ rest, axis=x.ndim - 1)),)


def _columns(x: Value, start: int, stop: int) -> Value:
    lead = x.shape[:-1]
    made: Value = slice_(x, starts=(0,) * len(lead) + (start,), limits=(*lead, stop), strides=(1,) * x.ndim)
    return made


def _tall(q: Value, r: Value, gq: Value, gr: Value) -> Value:
    """(gq + q H) r^-H, where H is the Hermitian matrix with the lower triangle of r gr^H - gq^H q."""
    inner = r @ adjoint(gr) - adjoint(gq) @ q
    below = lower(inner, -1)
    hermitian = below + adjoint(below) + like(real_part(diagonal(inner)), q.dtype)
    found = triangular_solve(r, adjoint(gq + q @ hermitian), lower=False, transposed=False, unit=False)
    return adjoint(found)


@qr.samples
def _(s: Samples) -> Iterator[Sample]:
    for t in (f64[3, 3], f64[4, 2], f64[2, 3], f64[2, 3, 2], f64[1, 1], f64[0, 3, 2], f64[3, 0], f32[3, 2], c64[2, 2]):
        yield s(t)
    yield s(c128[3, 2])
    yield s(c128[3, 3])
    yield s(c128[2, 4])
    yield s(f64[3], bad="E0180")
    yield s(f16[2, 2], bad="E0181")
