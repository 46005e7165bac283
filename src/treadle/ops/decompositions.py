"""Spectra of matrices in the last two axes: eigh and svd (eig is in `eigen.py`), by LAPACK on CPUs and by Jacobi's
rotations (`_jacobi.py`) on other devices.

Vectors are determined up to a factor of size 1. Here that factor is fixed, so that every back end gives the same ones:
of each vector the first element that has 9/10 of the size of the largest is real and positive.

Gradients: Ionescu, Vantzos & Sminchisescu 2015, arXiv:1509.07838; Wan & Zhang 2019, arXiv:1909.02659 for complex
numbers. The derivative of vectors that belong to equal values does not exist; the terms that would divide by zero are
left out, so that the gradient is right for functions that do not depend on the choice of these vectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle.base.dtypes import int32
from treadle.ir.node import Value
from treadle.ir.types import TensorType, c64, c128, f16, f32, f64
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._jacobi import hermitian_spectrum, singular_factors
from treadle.ops._matrices import (
    NO_ONNX,
    adjoint,
    along_columns,
    along_rows,
    conjugate,
    diagonal,
    each,
    eye,
    finite_or_nan,
    imag_part,
    inline_in,
    lapack,
    like,
    lower_gradient,
    matrix,
    nothing,
    part,
    rotated,
    square,
    unless_failed,
)  # fmt: skip
from treadle.ops.casting import cast
from treadle.ops.compare import equal, greater_equal, logical_or, select
from treadle.ops.creation import iota
from treadle.ops.elementwise import abs
from treadle.ops.products import swap
from treadle.ops.reduce import reduce_max, reduce_min, reduce_sum
from treadle.ops.shape import zeros_like

SHARE = 0.9  # of the largest element


# --- the factor of vectors --------------------------------------------------------------------------------------------


def chosen(v: Value) -> Value:
    """1 at the element of each column that is real and positive in normal vectors, else 0; in the real type."""
    r, n = v.ndim, v.shape[-2]
    size = abs(v)
    places = iota(shape=v.shape, axis=r - 2, dtype=int32)
    tall = greater_equal(size, along_columns(reduce_max(size, axes=(r - 2,)), n) * SHARE)
    first = reduce_min(select(tall, places, n), axes=(r - 2,))
    made: Value = cast(equal(places, along_columns(first, n)), dtype=size.dtype)
    return made


def factors(v: Value) -> Value:
    """[..., k]: what the columns of v [..., n, k] are multiplied by to become normal."""
    r = v.ndim
    element = reduce_sum(v * like(chosen(v), v.dtype), axes=(r - 2,))
    made: Value = conjugate(element) / like(abs(element), v.dtype)
    return made


def normal_factors(v: Any) -> Any:
    """`factors` in NumPy."""
    size = np.abs(v)
    first = np.argmax(size >= SHARE * np.max(size, axis=-2, keepdims=True), axis=-2)
    element = np.take_along_axis(v, first[..., None, :], -2)[..., 0, :]
    return np.conj(element) / np.abs(element)


def turned_columns(v: Value) -> Value:
    return v * along_columns(factors(v), v.shape[-2])


def _turned_pair(u: Value, vh: Value) -> tuple[Value, Value]:
    """Columns of u made normal, rows of vh turned the other way, so that the product stays."""
    f = factors(u)
    return u * along_columns(f, u.shape[-2]), vh * along_rows(conjugate(f), vh.shape[-1])


def through_factor(v: Value, total: Value) -> Value:
    """What the fixed factor of complex normal columns v adds to their cotangent (unconjugated).

    A change dv is followed by a turn by -Im(dv_k) / v_k at the fixed element k, with effect Im(total) on the result.
    """
    r = v.ndim
    at = chosen(v)
    size = reduce_sum(abs(v) * at, axes=(r - 2,))
    return rotated(-(at * along_columns(imag_part(total) / size, v.shape[-2])))


def gaps_of(values: Value) -> Value:
    """1 / (values[j] - values[i]), 0 where they are equal."""
    n, r = values.shape[-1], values.ndim
    columns, rows = along_columns(values, n), along_rows(values, n)
    places = [iota(shape=columns.shape, axis=a, dtype=int32) for a in (r - 1, r)]
    gap = columns - rows
    same = logical_or(equal(gap, 0), equal(*places))  # a compiler may compute values twice, rounded differently
    one = zeros_like(gap) + 1
    made: Value = select(same, zeros_like(gap), one / select(same, one, gap))
    return made


# --- Hermitian matrices -----------------------------------------------------------------------------------------------


@op(axes="... !i !j -> ... !k, ... !l !m", onnx=NO_ONNX)
def eigh(x: Value) -> Any:
    """(w, V): eigenvalues, ascending, and in the columns of V the eigenvectors of a Hermitian matrix.

    x: [..., n, n], read from its lower triangle -> w real [..., n], V [..., n, n] with x V = V diag(w). The factor of
    the vectors and the gradient at equal values are as the module says. Raises E0180, E0181.
    """


@eigh.type
def _(x: TensorType) -> tuple[TensorType, TensorType]:
    return TensorType(part(square(x).dtype), x.shape[:-1]), x


@eigh.ref
def _(x: Any) -> Any:
    w, v = each(np.linalg.eigh, x, [x.shape[-1:], x.shape[-2:]], [x.real.dtype, x.dtype], finite=True)
    return (w, v * normal_factors(v)[..., None, :]) if x.size else (w, v)


@eigh.expand
def _(x: Value) -> Any:
    w, v = hermitian_spectrum(x)
    return w, turned_columns(v) if x.type.size else v


@eigh.hlo
def _(b: Any, x: Any) -> Any:
    t, (values, _) = b.types[0], b.out
    if not b.lapack:
        return NotImplemented
    if t.size == 0:
        return nothing(b)
    x = inline_in(b, finite_or_nan, [t], x)[0]
    info = TensorType(int32, t.shape[:-2])
    routine = "heevd" if t.dtype.kind == "c" else "syevd"
    v, w, failed = lapack(b, routine, [x], [t], [t, values, info], mode="V", uplo="L")
    turned = inline_in(b, turned_columns, [t], v)[0]
    return unless_failed(b, [w, turned], [values, t], failed, info)


@eigh.grad
def _(x: Value, w: Value, v: Value, dw: Value, dv: Value) -> tuple[Value]:
    if x.type.size == 0:
        return (x * 0,)
    if x.dtype.kind == "c":
        dv = dv + through_factor(v, reduce_sum(dv * v, axes=(x.ndim - 2,)))
    gaps = like(gaps_of(w), x.dtype)
    inner = eye(x.shape, x.dtype) * like(along_rows(dw, x.shape[-1]), x.dtype) + gaps * (adjoint(v) @ conjugate(dv))
    whole = v @ inner @ adjoint(v)
    return (conjugate(lower_gradient((whole + adjoint(whole)) / 2)),)


def spread_values(s: Samples, type: TensorType) -> Any:
    """Matrices whose values are well apart."""
    m, n = type.shape[-2:]
    steps = np.zeros((m, n))
    np.fill_diagonal(steps, 3.0 * np.arange(1, min(m, n) + 1))
    return (s.draw(type) + steps).astype(type.dtype.np)


@eigh.samples
def _(s: Samples) -> Iterator[Sample]:
    for t in (f64[3, 3], f64[2, 2, 2], f64[1, 1], f64[0, 3, 3], f64[0, 0], c128[3, 3]):
        yield s(spread_values(s, t))
    yield s(np.array([[[2.0, np.inf], [1.0, 1.0]], [[np.nan, 1.0], [1.0, 1.0]]]), gradient=False)
    for t in (f32[3, 3], c64[2, 2, 2]):
        yield s(spread_values(s, t), tol=2e-4)
    yield s(f64[2, 3], bad="E0180")
    yield s(f16[2, 2], bad="E0181")


# --- singular values --------------------------------------------------------------------------------------------------


@op(axes="... !i !j -> ... !k !l, ... !m, ... !n !o", onnx=NO_ONNX)
def svd(x: Value) -> Any:
    """(U, s, Vh) with U diag(s) Vh = x, U^H U = 1, Vh Vh^H = 1, s >= 0 descending: the thin decomposition.

    x: [..., m, n] -> U [..., m, k], s real [..., k], Vh [..., k, n], k = min(m, n). The columns of U have the factor
    that the module says. The gradient needs s > 0; at equal values as the module says. Raises E0180, E0181.
    """


@svd.type
def _(x: TensorType) -> tuple[TensorType, ...]:
    *lead, m, n = matrix(x).shape
    k = min(m, n)
    return x.with_shape((*lead, m, k)), TensorType(part(x.dtype), (*lead, k)), x.with_shape((*lead, k, n))


@svd.ref
def _(x: Any) -> Any:
    m, n = x.shape[-2:]
    k = min(m, n)
    dtypes = [x.dtype, x.real.dtype, x.dtype]
    u, s, vh = each(lambda a: np.linalg.svd(a, full_matrices=False), x, [(m, k), (k,), (k, n)], dtypes, finite=True)
    if not x.size:
        return u, s, vh
    f = normal_factors(u)
    return u * f[..., None, :], s, vh * np.conj(f)[..., None]


@svd.expand
def _(x: Value) -> Any:
    u, s, vh = singular_factors(x)
    u, vh = _turned_pair(u, vh) if x.type.size else (u, vh)
    return u, s, vh


@svd.hlo
def _(b: Any, x: Any) -> Any:
    t, (left, values, right) = b.types[0], b.out
    if not b.lapack:
        return NotImplemented
    if t.size == 0:
        return nothing(b)
    x = inline_in(b, finite_or_nan, [t], x)[0]
    info = TensorType(int32, t.shape[:-2])
    _, s, u, vh, failed = lapack(b, "gesdd", [x], [t], [t, values, left, right, info], mode="S")
    u, vh = inline_in(b, _turned_pair, [left, right], u, vh)
    return unless_failed(b, [u, s, vh], [left, values, right], failed, info)


@svd.grad
def _(x: Value, u: Value, s: Value, vh: Value, du: Value, ds: Value, dvh: Value) -> tuple[Value]:
    if x.type.size == 0:
        return (x * 0,)
    r, (m, n), k = x.ndim, x.shape[-2:], s.shape[-1]
    if x.dtype.kind == "c":
        turn = reduce_sum(du * u, axes=(r - 2,)) - reduce_sum(dvh * vh, axes=(r - 1,))
        du = du + through_factor(u, turn)
    gu, gv = conjugate(du), swap(dvh)  # of U and of V, in conjugated pairing
    v, scale = adjoint(vh), like(s, x.dtype)
    gaps = like(gaps_of(s * s), x.dtype)
    a, c = gaps * (adjoint(u) @ gu), gaps * (vh @ gv)
    inner = (a + adjoint(a)) * along_columns(scale, k) + (c + adjoint(c)) * along_rows(scale, k)
    inner = inner + eye(inner.shape, x.dtype) * along_rows(like(ds, x.dtype), k)
    if x.dtype.kind == "c":
        own = diagonal(vh @ gv)
        inner = inner + (adjoint(own) - own) / (2 * along_rows(scale, k))
    g = u @ inner @ vh
    if m > k:
        g = g + ((gu - u @ (adjoint(u) @ gu)) / along_columns(scale, m)) @ vh
    if n > k:
        g = g + u @ (adjoint(gv - v @ (vh @ gv)) / along_rows(scale, n))
    return (conjugate(g),)


@svd.samples
def _(s: Samples) -> Iterator[Sample]:
    for t in (f64[3, 3], f64[4, 2], f64[2, 3], f64[2, 3, 2], f64[1, 1], f64[0, 3, 2], f64[3, 0], c128[2, 2]):
        yield s(spread_values(s, t))
    yield s(spread_values(s, c128[3, 2]))
    yield s(spread_values(s, c128[2, 3]))
    yield s(np.array([[[2.0, np.inf], [1.0, 1.0]], [[np.nan, 1.0], [1.0, 1.0]]]), gradient=False)
    for t in (f32[3, 2], c64[2, 2, 2]):
        yield s(spread_values(s, t), tol=2e-4)
    yield s(f64[3], bad="E0180")
    yield s(f16[2, 2], bad="E0181")
