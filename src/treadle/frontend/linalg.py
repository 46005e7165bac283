"""`td.linalg`: factors, systems, spectra and norms of matrices in the last two axes; leading axes are a batch.

Integers become float32. The numbers are not known when a program is compiled, so that what NumPy raises an error for
(singular, not positive definite, NaN) gives infinities or NaN. CPUs use LAPACK, other devices loops of plain ops.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle import ops
from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.frontend import functions as td
from treadle.frontend import shaping, systems
from treadle.frontend.create import eye, ones_like, zeros, zeros_like
from treadle.frontend.lift import floating, integer, lift
from treadle.frontend.systems import (
    cholesky_inverse,
    cholesky_solve,
    complement,
    householder_product,
    kron,
    lu,
    lu_solve,
    tensorinv,
    tensorsolve,
    vander,
)

__all__ = [
    "cholesky", "cholesky_inverse", "cholesky_solve", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals",
    "eigvalsh", "expm", "householder_product", "inv", "kron", "lstsq", "lu", "lu_factor", "lu_solve", "matmul",
    "matrix_exp", "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "multi_dot", "norm", "outer",
    "pinv", "qr", "slogdet", "solve", "solve_triangular", "svd", "svdvals", "tensordot", "tensorinv", "tensorsolve",
    "trace", "vander", "vecdot", "vector_norm",
]  # fmt: skip

adjoint, matrix_transpose = systems.adjoint, shaping.matrix_transpose
matmul, outer, tensordot = td.matmul, td.outer, td.tensordot


# --- factors and systems ----------------------------------------------------------------------------------------------


def cholesky(x: Any, upper: bool = False) -> Any:
    """The lower triangular L with L L^H = x (or the upper one, its adjoint), of Hermitian positive definite x.

    NaN in the triangle where x is not positive definite. Raises E0180 unless x is square, E0181 for 16-bit floats.
    """
    found = ops.cholesky(floating(x))
    return adjoint(found) if upper else found


def qr(x: Any, mode: str = "reduced") -> Any:
    """(Q, R) with Q R = x: [..., m, k] and [..., k, n], k = min(m, n); mode "r" gives R alone.

    mode "complete": k = m; the columns of Q beyond min(m, n) have no derivative. Raises E0103 for another mode, E0180,
    E0181.
    """
    if mode not in ("reduced", "r", "complete"):
        raise UserError("E0103", f"mode {mode!r} of qr", fix="use 'reduced', 'complete' or 'r'")
    x = floating(x)
    q, r = ops.qr(x)
    if mode == "complete" and x.shape[-2] > x.shape[-1]:
        more = zeros((*x.shape[:-2], x.shape[-2] - x.shape[-1], x.shape[-1]), dtype=x.dtype)
        return shaping.concatenate([q, complement(q)], axis=-1), shaping.concatenate([r, more], axis=-2)
    return r if mode == "r" else (q, r)


def lu_factor(x: Any) -> tuple[Any, Any]:
    """(factors, pivots): L below the diagonal, U on and above it; row i was exchanged with row pivots[i]."""
    found: tuple[Any, Any] = ops.lu(floating(x))
    return found


def solve(a: Any, b: Any) -> Any:
    """The x with a x = b. b: [n], or [..., n, c]; leading axes broadcast. Raises E0180 when the shapes do not fit."""
    a, b = floating(a), floating(b)
    if b.ndim == 1:
        return shaping.squeeze(ops.solve(a, shaping.expand_dims(b, 1)), -1)
    return ops.solve(a, b)


def solve_triangular(a: Any, b: Any, *, upper: bool, unitriangular: bool = False, transposed: bool = False) -> Any:
    """The x with a x = b (a^T x = b if transposed), of which one triangle of a is read. b: [..., n, c].

    unitriangular: the diagonal is taken as ones. Raises E0180, E0181.
    """
    return ops.triangular_solve(floating(a), floating(b), lower=not upper, transposed=transposed, unit=unitriangular)


def inv(x: Any) -> Any:
    """The inverse. Raises E0180 unless x is square, E0181 for 16-bit floats."""
    return ops.inverse(floating(x))


def det(x: Any) -> Any:
    """The determinant. Raises E0180 unless x is square, E0181 for 16-bit floats."""
    return ops.det(floating(x))


def slogdet(x: Any) -> tuple[Any, Any]:
    """(sign, log): the determinant is sign * exp(log). Raises E0180, E0181."""
    found: tuple[Any, Any] = ops.slogdet(floating(x))
    return found


# --- spectra ----------------------------------------------------------------------------------------------------------


def eigh(x: Any, UPLO: str = "L") -> tuple[Any, Any]:
    """(w, V): eigenvalues, ascending, and eigenvectors in the columns of V, of x Hermitian; its lower triangle is read,
    the upper one with UPLO="U".

    The gradient for V does not exist at equal eigenvalues (see `treadle.ops.decompositions`). Raises E0103 for another
    UPLO, E0180, E0181.
    """
    if UPLO not in ("L", "U"):
        raise UserError("E0103", f"UPLO={UPLO!r}", fix="use 'L' or 'U'")
    x = floating(x)
    found: tuple[Any, Any] = ops.eigh(adjoint(x) if UPLO == "U" and x.ndim > 1 else x)
    return found


def eigvalsh(x: Any, UPLO: str = "L") -> Any:
    """The eigenvalues of Hermitian x, ascending. Raises as `eigh`."""
    return eigh(x, UPLO)[0]


def eig(x: Any) -> tuple[Any, Any]:
    """(w, V): complex eigenvalues, in no special order, and eigenvectors in the columns of V. Raises E0180, E0181."""
    found: tuple[Any, Any] = ops.eig(floating(x))
    return found


def eigvals(x: Any) -> Any:
    """The eigenvalues, complex, in no special order. Raises E0180, E0181."""
    return eig(x)[0]


def svd(x: Any, full_matrices: bool = False) -> tuple[Any, Any, Any]:
    """(U, s, Vh) with U diag(s) Vh = x, s descending: [..., m, k], [..., k], [..., k, n], k = min(m, n).

    full_matrices: U [..., m, m] and Vh [..., n, n]; what is beyond k has no derivative. Raises E0180, E0181.
    """
    u, s, vh = ops.svd(floating(x))
    if full_matrices and u.shape[-2] > s.shape[-1]:
        u = shaping.concatenate([u, complement(u)], axis=-1)
    if full_matrices and vh.shape[-1] > s.shape[-1]:
        vh = shaping.concatenate([vh, adjoint(complement(adjoint(vh)))], axis=-2)
    return u, s, vh


def svdvals(x: Any) -> Any:
    """The singular values, descending: [..., min(m, n)]. Raises E0180, E0181."""
    return svd(x)[1]


def _cutoff(s: Any, shape: Sequence[int], rtol: Any, atol: Any = 0) -> Any:
    """[..., 1]: what singular values must exceed to count. rtol, atol: numbers, or tensors that broadcast to it."""
    share = max(shape[-2:]) * float(np.finfo(s.dtype.np).eps) if rtol is None else rtol
    return td.maximum(td.max(s, axis=-1, keepdims=True) * share, atol)


def _of_hermitian(x: Any) -> tuple[Any, Any, Any]:
    """As `svd`, for Hermitian x, by `eigh`; not in order."""
    w, v = eigh(x)
    return v, td.abs(w), adjoint(v * shaping.expand_dims(td.where(w < 0, -1.0, 1.0).astype(x.dtype), -2))


def pinv(x: Any, rtol: Any = None, hermitian: bool = False) -> Any:
    """The Moore-Penrose inverse [..., n, m]; singular values up to rtol times the largest count as 0.

    rtol: default max(m, n) * eps. hermitian: x is, and its lower triangle is read. The gradient needs full rank.
    Raises E0180, E0181.
    """
    x = floating(x)
    if x.ndim > 1 and 0 in x.shape[-2:]:
        return shaping.matrix_transpose(x)
    u, s, vh = _of_hermitian(x) if hermitian else svd(x)
    keep = s > _cutoff(s, x.shape, rtol)
    scale = td.where(keep, 1 / td.where(keep, s, ones_like(s)), zeros_like(s))
    return td.matmul(adjoint(vh) * shaping.expand_dims(scale, -2), adjoint(u))


def matrix_rank(x: Any, rtol: Any = None, *, atol: Any = 0, hermitian: bool = False) -> Any:
    """How many singular values exceed rtol (default max(m, n) * eps) times the largest, and atol: int64[...].

    hermitian: x is, and its lower triangle is read. Raises E0180, E0181.
    """
    x = floating(x)
    s = td.abs(eigvalsh(x)) if hermitian else svdvals(x)
    if 0 in x.shape[-2:]:
        return zeros(x.shape[:-2], dtype=dtypes.int64)
    return td.sum((s > _cutoff(s, x.shape, rtol, atol)).astype(dtypes.int64), axis=-1)


def lstsq(a: Any, b: Any, rtol: Any = None) -> Any:
    """The shortest x that makes |a x - b| smallest. a: [..., m, n], b: [m] or [..., m, c] -> [n] or [..., n, c].

    rtol: as `pinv`. Raises E0180, E0181, E0114.
    """
    return td.matmul(pinv(a, rtol), floating(b))


# --- powers and norms -------------------------------------------------------------------------------------------------


def matrix_exp(x: Any) -> Any:
    """The exponential: the sum over k of x^k / k!. Raises E0180 unless x is square, E0181 for 16-bit floats."""
    return ops.matrix_exp(floating(x))


expm = matrix_exp


def matrix_power(x: Any, n: int) -> Any:
    """x multiplied by itself n times, by repeated squaring; of the inverse for negative n, the identity for n = 0.

    Raises E0180 unless x is square.
    """
    x, n = lift(x), integer(n, "the power")
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise UserError("E0180", f"needs square matrices, got {x.type}", fix="make the last two sizes equal")
    if n == 0:
        return shaping.broadcast_to(eye(x.shape[-1], dtype=x.dtype), x.shape)
    base, n = (inv(x), -n) if n < 0 else (x, n)
    found = None
    while n:
        if n & 1:
            found = base if found is None else td.matmul(found, base)
        n >>= 1
        base = td.matmul(base, base) if n else base
    return found


def multi_dot(xs: Sequence[Any]) -> Any:
    """The product of matrices (the first and the last may be vectors) in the cheapest order.

    Raises E0103 for fewer than two.
    """
    if len(xs) < 2:
        raise UserError("E0103", f"multi_dot of {len(xs)} matrices", fix="give two or more")
    mats = [lift(x) for x in xs]
    first, last = mats[0].ndim == 1, mats[-1].ndim == 1
    mats[0] = shaping.expand_dims(mats[0], 0) if first else mats[0]
    mats[-1] = shaping.expand_dims(mats[-1], 1) if last else mats[-1]
    sizes = [m.shape[0] for m in mats] + [mats[-1].shape[1]]
    out = _chain(mats, sizes, {}, 0, len(mats))[1]()
    out = shaping.squeeze(out, 0) if first else out
    return shaping.squeeze(out, -1) if last else out


def _chain(mats: Sequence[Any], sizes: Sequence[int], known: dict[tuple[int, int], Any], i: int, j: int) -> Any:
    """(cost, function that makes it) of the product of mats i to j - 1, the best of all first splits."""
    if j - i == 1:
        return 0, lambda: mats[i]
    if (i, j) not in known:
        choices = []
        for k in range(i + 1, j):
            left, right = _chain(mats, sizes, known, i, k), _chain(mats, sizes, known, k, j)
            cost = left[0] + right[0] + sizes[i] * sizes[k] * sizes[j]
            choices.append((cost, lambda left=left, right=right: td.matmul(left[1](), right[1]())))
        known[i, j] = min(choices, key=lambda c: c[0])
    return known[i, j]


def vector_norm(x: Any, ord: float = 2, axis: Any = None, keepdims: bool = False) -> Any:
    """(sum of |x|^ord)^(1 / ord) over `axis` (default: all); inf and -inf: largest and smallest, 0: how many are not 0.

    The derivative of the 2-norm at 0 is 0. Raises E0107 for wrong axes.
    """
    return td.norm(x, ord, axis, keepdims)


def matrix_norm(x: Any, ord: Any = "fro", keepdims: bool = False) -> Any:
    """A norm of the matrices in the last two axes: "fro", "nuc", 1, -1, 2, -2, inf or -inf, as `numpy.linalg.norm`.

    Raises E0103 for another norm, E0180 for fewer than two axes.
    """
    x = floating(x)
    if x.ndim < 2:
        raise UserError("E0180", f"needs matrices in the last two axes, got {x.type}", fix="give it two axes or more")
    if ord == "fro":
        out = vector_norm(x, 2, axis=(-2, -1))
    elif ord in (1, -1, math.inf, -math.inf):
        sums = td.sum(td.abs(x), axis=-2 if abs(ord) == 1 else -1)
        out = (td.max if ord > 0 else td.min)(sums, axis=-1)
    elif ord in ("nuc", 2, -2):
        s = svdvals(x)
        out = td.sum(s, axis=-1) if ord == "nuc" else (td.max if ord > 0 else td.min)(s, axis=-1)
    else:
        raise UserError("E0103", f"there is no matrix norm {ord!r}", fix="use 'fro', 'nuc', 1, -1, 2, -2, inf or -inf")
    return shaping.expand_dims(shaping.expand_dims(out, -1), -1) if keepdims else out


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """As `numpy.linalg.norm`: the 2-norm of all elements; with `ord` a vector's norm along one axis, a matrix's along
    two. Raises E0103, E0107."""
    x = floating(x)
    axes = None if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    if ord is None:
        return vector_norm(x, 2, axes, keepdims)
    if (axes is None and x.ndim == 1) or (axes is not None and len(axes) == 1):
        return vector_norm(x, ord, axes, keepdims)
    if axes is None and x.ndim != 2:
        raise UserError("E0103", f"norm {ord!r} of a tensor with {x.ndim} axes", fix="name one axis, or two")
    if axes is not None and len(axes) != 2:
        raise UserError("E0107", f"a norm along {len(axes)} axes", fix="name one axis, or two")
    axes = (0, 1) if axes is None else axes
    out = matrix_norm(shaping.moveaxis(x, axes, (-2, -1)), ord)
    if not keepdims:
        return out
    kept = [a % x.ndim for a in axes]
    return shaping.reshape(out, tuple([1 if i in kept else n for i, n in enumerate(x.shape)]))


def cond(x: Any, p: Any = None) -> Any:
    """The largest singular value divided by the smallest (p = -2: the other way); infinite for singular x.

    p: another norm, as of `matrix_norm`: norm(x) * norm(inv(x)), of square x. Raises E0103, E0180, E0181.
    """
    if p in (None, 2, -2):
        s = svdvals(x)
        most, least = td.max(s, axis=-1), td.min(s, axis=-1)
        return least / most if p == -2 else most / least
    found = matrix_norm(x, p) * matrix_norm(inv(x), p)
    return td.where(td.isnan(found) & ~td.any(td.isnan(td.abs(floating(x))), axis=(-2, -1)), math.inf, found)


# --- products ---------------------------------------------------------------------------------------------------------


def diagonal(x: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    """The elements of the diagonal number `offset` (above the main one if positive) of two axes, as a new last axis."""
    x, k = shaping.moveaxis(lift(x), (dim1, dim2), (-2, -1)), integer(offset, "offset")
    m, n = x.shape[-2:]
    rows, columns = max(0, -k), max(0, k)
    size = max(0, min(m - rows, n - columns))
    rows, columns = min(rows, m - size), min(columns, n - size)
    x = shaping.cut(shaping.cut(x, x.ndim - 2, rows, rows + size), x.ndim - 1, columns, columns + size)
    return shaping.diagonal(x)


def trace(x: Any, offset: int = 0) -> Any:
    """The sum of the diagonal number `offset` of the last two axes."""
    return td.sum(diagonal(x, offset), axis=-1)


def vecdot(x: Any, y: Any, axis: int = -1) -> Any:
    """The sum of conj(x) * y along an axis; the others broadcast."""
    x = lift(x)
    return td.sum((td.conj(x) if x.dtype.kind == "c" else x) * lift(y), axis=axis)


def cross(x: Any, y: Any, axis: int = -1) -> Any:
    """The vector product along an axis of size 3. Raises E0103 for another size."""
    x, y = lift(x), lift(y)
    if x.shape[axis] != 3 or y.shape[axis] != 3:
        raise UserError("E0103", f"cross of shapes {list(x.shape)} and {list(y.shape)}", fix="use an axis of size 3")
    return td.roll(x, -1, axis) * td.roll(y, -2, axis) - td.roll(x, -2, axis) * td.roll(y, -1, axis)
