"""The linear algebra of the standard, over `td.linalg`. Matrices are the last two axes; leading axes are a batch."""

from __future__ import annotations

from typing import Any, NamedTuple

from treadle.array._types import one, two
from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.frontend import functions as td
from treadle.frontend import linalg as la
from treadle.frontend import products, shaping
from treadle.frontend.lift import cast, one_axis
from treadle.ops._types import broadcast_shapes

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul", "matrix_norm", "matrix_power",
    "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot",
    "trace", "vecdot", "vector_norm",
]  # fmt: skip


class EighResult(NamedTuple):
    """Eigenvalues, ascending, and eigenvectors in columns."""

    eigenvalues: Any
    eigenvectors: Any


class QRResult(NamedTuple):
    """Q with orthonormal columns, R upper triangular."""

    Q: Any
    R: Any


class SlogdetResult(NamedTuple):
    """The determinant is sign * exp(logabsdet)."""

    sign: Any
    logabsdet: Any


class SVDResult(NamedTuple):
    """Left vectors in columns, singular values, descending, right vectors in rows."""

    U: Any
    S: Any
    Vh: Any


matmul, matrix_transpose = two(td.matmul, "matmul"), one(shaping.matrix_transpose, "matrix_transpose")
det, inv, eigvalsh = one(la.det, "det"), one(la.inv, "inv"), one(la.eigvalsh, "eigvalsh")
svdvals, solve = one(la.svdvals, "svdvals"), two(la.solve, "solve")


def cholesky(x: Any, /, *, upper: bool = False) -> Any:
    """The lower triangular L with L L^H = x, or its adjoint. Raises E0180, E0181."""
    return la.cholesky(x, upper)


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """The vector product along an axis of size 3, counted in both alike; the other axes broadcast. Raises E0103."""
    shape = broadcast_shapes(tuple(x1.shape), tuple(x2.shape))
    for x in (x1, x2):
        if x.shape[axis] != 3:
            raise UserError("E0103", f"cross along an axis of size {x.shape[axis]}", fix="use an axis of size 3")
    return la.cross(td.broadcast_to(x1, shape), td.broadcast_to(x2, shape), axis)


def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """The diagonal number `offset` of the last two axes, as a last axis. Raises E0107 for fewer than two."""
    return la.diagonal(x, offset)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """The sum of the diagonal number `offset` of the last two axes."""
    return td.sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def eigh(x: Any, /) -> EighResult:
    """Eigenvalues, ascending, and eigenvectors of Hermitian x. Raises E0180, E0181."""
    return EighResult(*la.eigh(x))


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """A norm of the matrices: "fro", "nuc", 1, -1, 2, -2, inf or -inf. Raises E0103, E0180."""
    return la.matrix_norm(x, ord, keepdims)


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Any:
    """(sum of |x|^ord)^(1 / ord) over axes (all unless named); inf, -inf and 0 as `numpy.linalg.vector_norm`."""
    return la.vector_norm(x, ord, axis, keepdims)


def matrix_power(x: Any, n: int, /) -> Any:
    """x multiplied by itself n times; the inverse for negative n. Raises E0180."""
    return la.matrix_power(x, n)


def _rtol(rtol: Any) -> Any:
    """A tolerance for each matrix, beside their singular values."""
    return rtol if rtol is None or isinstance(rtol, int | float) else shaping.expand_dims(rtol, -1)


def matrix_rank(x: Any, /, *, rtol: Any = None) -> Any:
    """How many singular values exceed rtol (default max(m, n) * eps) times the largest: int64."""
    return la.matrix_rank(x, _rtol(rtol))


def pinv(x: Any, /, *, rtol: Any = None) -> Any:
    """The Moore-Penrose inverse; singular values up to rtol times the largest count as 0."""
    return la.pinv(x, _rtol(rtol))


def outer(x1: Any, x2: Any, /) -> Any:
    """result[i, j] = x1[i] * x2[j], of vectors."""
    return products.outer(x1, x2)


def qr(x: Any, /, *, mode: str = "reduced") -> QRResult:
    """Q R = x. mode: "reduced" for Q of min(m, n) columns, "complete" for m. Raises E0103, E0180, E0181."""
    if mode not in ("reduced", "complete"):
        raise UserError("E0103", f"mode {mode!r} of qr", fix="use 'reduced' or 'complete'")
    return QRResult(*la.qr(x, mode))


def slogdet(x: Any, /) -> SlogdetResult:
    """Sign and logarithm of the size of the determinant. Raises E0180, E0181."""
    return SlogdetResult(*la.slogdet(x))


def svd(x: Any, /, *, full_matrices: bool = True) -> SVDResult:
    """U diag(S) Vh = x; with full matrices U and Vh are square. Raises E0180, E0181."""
    return SVDResult(*la.svd(x, full_matrices))


def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Any:
    """The sum over pairs of axes: the last n of x1 with the first n of x2, or (axes of x1, axes of x2)."""
    return products.tensordot(x1, x2, axes)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """The sum of conj(x1) * x2 along an axis, counted in both alike; the others broadcast. Raises E0114."""
    if x1.shape[axis] != x2.shape[axis]:
        why = f"axis {axis} of {list(x1.shape)} and of {list(x2.shape)}"
        raise UserError("E0114", why, fix="give both the same size")
    shape = broadcast_shapes(tuple(x1.shape), tuple(x2.shape))
    kind = dtypes.promote(x1.dtype, x2.dtype)
    left, right = (td.broadcast_to(cast(x, kind), shape) for x in (x1, x2))
    at = one_axis(axis, len(shape))
    return td.sum(td.conj(left) * right, axis=at, dtype=kind)
