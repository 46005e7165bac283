"""More of `td.linalg`: factors of any shape and what is solved with them, reflections, and systems of tensors.

Matrices stand in the last two axes; leading axes are a batch, which broadcasts where two tensors meet.
"""

from __future__ import annotations

import math
from typing import Any

from treadle import ops
from treadle.base.errors import UserError
from treadle.frontend import functions as td
from treadle.frontend import shaping
from treadle.frontend.create import eye, ones_like, zeros
from treadle.frontend.lift import cast, floating, integer, ints, lift, one_axis
from treadle.ops._types import broadcast_shapes

__all__ = [
    "adjoint", "cholesky_inverse", "cholesky_solve", "complement", "householder_product", "kron", "lu", "lu_solve",
    "tensorinv", "tensorsolve", "vander",
]  # fmt: skip


def adjoint(x: Any) -> Any:
    """The conjugate transpose."""
    x = lift(x)
    turned = shaping.matrix_transpose(x)
    return td.conj(turned) if x.dtype.kind == "c" else turned


# --- LU ---------------------------------------------------------------------------------------------------------------


def lu(x: Any) -> tuple[Any, Any, Any]:
    """(P, L, U) with P L U = x: a permutation [..., m, m], L [..., m, k] with ones on its diagonal, U [..., k, n].

    x: [..., m, n], k = min(m, n). The gradient needs independent columns (the first k). Raises E0180, E0181.
    """
    x = floating(x)
    if x.ndim < 2:
        raise UserError("E0180", f"needs matrices in the last two axes, got {x.type}", fix="give it two axes or more")
    m, n = x.shape[-2:]
    k = min(m, n)
    square = shaping.cut(x, x.ndim - 1, 0, k)
    if m > n:
        rest = shaping.broadcast_to(eye(m, m - n, k=-n, dtype=x.dtype), (*x.shape[:-2], m, m - n))
        order = ops.permutation_of_pivots(ops.lu(_with(td.stop_gradient(x), rest * 0))[1])
        square = _with(_rows(x, order), rest)  # in this order no row is exchanged; the last factors are the identity
    factors, pivots = ops.lu(square)
    order = order if m > n else ops.permutation_of_pivots(pivots)
    places = td.one_hot(order, m, dtype=x.dtype)
    lower = shaping.cut(shaping.tril(factors, -1), x.ndim - 1, 0, k) + eye(m, k, dtype=x.dtype)
    upper = shaping.triu(shaping.cut(shaping.cut(factors, x.ndim - 2, 0, k), x.ndim - 1, 0, k))
    if n > m:
        others = _rows(shaping.cut(x, x.ndim - 1, m, n), order)
        solved = ops.triangular_solve(lower, others, lower=True, transposed=False, unit=True)
        upper = _with(upper, solved)
    return shaping.matrix_transpose(places), lower, upper


def _with(x: Any, y: Any) -> Any:
    return shaping.concatenate([x, y], axis=-1)


def _rows(x: Any, order: Any) -> Any:
    """x[..., order[..., i], :]."""
    return td.take_along_axis(x, shaping.broadcast_to(shaping.expand_dims(order, -1), x.shape), axis=-2)


def _columns(x: Any) -> tuple[Any, bool]:
    """A right side with an axis of columns, and whether it was given as one vector."""
    x = floating(x)
    return (shaping.expand_dims(x, -1), True) if x.ndim == 1 else (x, False)


def _together(a: Any, b: Any) -> tuple[Any, Any]:
    """The leading axes broadcast."""
    if a.ndim < 2 or b.ndim < 2 or a.shape[:-2] == b.shape[:-2]:
        return a, b
    lead = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return shaping.broadcast_to(a, lead + a.shape[-2:]), shaping.broadcast_to(b, lead + b.shape[-2:])


def lu_solve(factors: Any, pivots: Any, b: Any) -> Any:
    """The x with a x = b, from `lu_factor(a)`. b: [n] or [..., n, c]; leading axes broadcast. Raises E0180, E0138."""
    b, single = _columns(b)
    factors, b = _together(floating(factors), b)
    order = shaping.broadcast_to(ops.permutation_of_pivots(lift(pivots)), factors.shape[:-1])
    half = ops.triangular_solve(factors, _rows(b, order), lower=True, transposed=False, unit=True)
    found = ops.triangular_solve(factors, half, lower=False, transposed=False, unit=False)
    return shaping.squeeze(found, -1) if single else found


# --- Cholesky ---------------------------------------------------------------------------------------------------------


def cholesky_solve(b: Any, factor: Any, upper: bool = False) -> Any:
    """The x with a x = b, from the factor L (or its adjoint, if `upper`) of a. b: [n] or [..., n, c].

    Raises E0180 when the shapes do not fit, E0181 for other element types.
    """
    b, single = _columns(b)
    low, b = _together(adjoint(floating(factor)) if upper else floating(factor), b)
    half = ops.triangular_solve(low, b, lower=True, transposed=False, unit=False)
    found = ops.triangular_solve(adjoint(low), half, lower=False, transposed=False, unit=False)
    return shaping.squeeze(found, -1) if single else found


def cholesky_inverse(factor: Any, upper: bool = False) -> Any:
    """The inverse of a, from its factor as in `cholesky_solve`. Raises E0180, E0181."""
    factor = floating(factor)
    return cholesky_solve(shaping.broadcast_to(eye(factor.shape[-1], dtype=factor.dtype), factor.shape), factor, upper)


# --- orthogonal matrices ----------------------------------------------------------------------------------------------


def householder_product(vectors: Any, tau: Any) -> Any:
    """The first n columns of H_1 ... H_k, H_i = 1 - tau[i] v v^H with v = 1 at i and column i of `vectors` below.

    vectors: [..., m, n], m >= n; tau: [..., k], k <= n -> [..., m, n]. By one triangular system (Joffrain et al. 2006,
    doi:10.1145/1141885.1141886). Raises E0180 for other shapes, E0181 for other element types.
    """
    vectors, tau = floating(vectors), floating(tau)
    m, n = vectors.shape[-2:] if vectors.ndim > 1 else (0, 1)
    k = tau.shape[-1] if tau.ndim else 0
    if not m >= n >= k or not tau.ndim or vectors.shape[:-2] != tau.shape[:-1]:
        why = f"reflections by {vectors.type} and {tau.type}"
        raise UserError("E0180", why, fix="give vectors [..., m, n] and tau [..., k] with m >= n >= k")
    v = shaping.tril(shaping.cut(vectors, vectors.ndim - 1, 0, k), -1) + eye(m, k, dtype=vectors.dtype)
    inner = shaping.triu(td.matmul(adjoint(v), v), 1) * shaping.expand_dims(tau, -1)
    first = adjoint(shaping.cut(v, v.ndim - 2, 0, n)) * shaping.expand_dims(tau, -1)
    found = ops.triangular_solve(inner, first, lower=False, transposed=False, unit=True)
    return eye(m, n, dtype=vectors.dtype) - td.matmul(v, found)


def complement(q: Any) -> Any:
    """Orthonormal columns [..., m, m - k] that are orthogonal to those of q [..., m, k]; they have no derivative."""
    q = td.stop_gradient(q)
    m, k = q.shape[-2:]
    whole = _with(q, shaping.broadcast_to(eye(m, dtype=q.dtype), (*q.shape[:-2], m, m)))
    found = ops.qr(whole)[0]
    return td.stop_gradient(shaping.cut(found, found.ndim - 1, k, m))


# --- tensors as matrices ----------------------------------------------------------------------------------------------


def tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    """The x with tensordot(a, x, x.ndim) = b, as `numpy.linalg.tensorsolve`; `axes` of a go to its end first.

    Raises E0180 unless a is a square matrix when seen so.
    """
    a, b = floating(a), floating(b)
    if axes is not None:
        last = [one_axis(i, a.ndim) for i in ints((axes,), "an axis")]
        a = shaping.permute(a, (*[i for i in range(a.ndim) if i not in last], *last))
    shape, size = a.shape[b.ndim :], math.prod(b.shape)
    if math.prod(shape) != size or a.shape[: b.ndim] != b.shape:
        raise UserError("E0180", f"{a.type} is no square matrix over {b.type}", fix="give a the axes of b, then x's")
    flat = ops.solve(shaping.reshape(a, (size, size)), shaping.reshape(b, (size, 1)))
    return shaping.reshape(flat, shape)


def tensorinv(x: Any, ind: int = 2) -> Any:
    """The tensor y with tensordot(y, x, ind) the identity, as `numpy.linalg.tensorinv`.

    Raises E0103 for ind < 1, E0180 unless the sizes of the first `ind` axes and of the others have one product.
    """
    x, count = floating(x), integer(ind, "ind")
    if count < 1:
        raise UserError("E0103", f"tensorinv with ind={count}", fix="give 1 or more")
    first, last = x.shape[:count], x.shape[count:]
    size = math.prod(last)
    if math.prod(first) != size:
        raise UserError("E0180", f"{x.type} is no square matrix with ind={count}", fix="choose another ind")
    return shaping.reshape(ops.inverse(shaping.reshape(x, (size, size))), (*last, *first))


# --- made matrices ----------------------------------------------------------------------------------------------------


def kron(x: Any, y: Any) -> Any:
    """The Kronecker product: blocks x[i, j, ...] * y; the tensor with fewer axes gets axes of size 1 in front."""
    x, y = lift(x), lift(y)
    rank = max(x.ndim, y.ndim)
    m, n = [(1,) * (rank - t.ndim) + tuple(t.shape) for t in (x, y)]
    left = shaping.reshape(x, tuple([s for a in m for s in (a, 1)]))
    right = shaping.reshape(y, tuple([s for a in n for s in (1, a)]))
    return shaping.reshape(left * right, tuple([a * b for a, b in zip(m, n, strict=True)]))


def vander(x: Any, N: int | None = None) -> Any:
    """The powers 0 to N - 1 (default: as many as x has elements) of x [..., n] -> [..., n, N].

    Raises E0107 for a single number, E0109 for N < 0.
    """
    x = lift(x)
    if not x.ndim:
        raise UserError("E0107", "vander of a single number", fix="give a vector")
    count = x.shape[-1] if N is None else integer(N, "N")
    if count < 0:
        raise UserError("E0109", f"vander with N={count}", fix="give 0 or more")
    if count == 0:
        return zeros((*x.shape, 0), dtype=x.dtype)
    column = shaping.expand_dims(x, -1)
    rest = shaping.broadcast_to(column, (*x.shape, count - 1))
    whole = _with(ones_like(column), rest)
    return cast(td.cumprod(whole, axis=-1), x.dtype)
