"""Eigenvalues and eigenvectors of any square matrix, by LAPACK on CPUs and by `_schur.py` on other devices.

Gradient: Boeddeker et al. 2017, arXiv:1701.00392; at equal eigenvalues as `decompositions.py` says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle.base.dtypes import DType, complex64, complex128, float32, int32
from treadle.ir.node import Value
from treadle.ir.types import TensorType, c64, c128, f16, f32, f64
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._matrices import (
    NO_ONNX,
    along_columns,
    along_rows,
    conjugate,
    each,
    eye,
    finite_or_nan,
    inline_in,
    lapack,
    like,
    nothing,
    part,
    square,
    unless_failed,
)  # fmt: skip
from treadle.ops._schur import eigen_pairs
from treadle.ops.complex import make_complex, real
from treadle.ops.decompositions import gaps_of, normal_factors, spread_values, through_factor, turned_columns
from treadle.ops.linalg import solve
from treadle.ops.products import swap
from treadle.ops.reduce import reduce_sum


@op(axes="... !i !j -> ... !k, ... !l !m", onnx=NO_ONNX)
def eig(x: Value) -> Any:
    """(w, V): eigenvalues, in no special order, and in the columns of V eigenvectors of length 1; both complex.

    x: [..., n, n] -> w [..., n], V [..., n, n] with x V = V diag(w). Of each vector the first element that has 9/10 of
    the size of the largest is real and positive. Raises E0180, E0181.
    """


@eig.type
def _(x: TensorType) -> tuple[TensorType, TensorType]:
    wide = square(x).with_dtype(complex64 if part(x.dtype) is float32 else complex128)
    return wide.with_shape(x.shape[:-1]), wide


@eig.ref
def _(x: Any) -> Any:
    wide = np.result_type(x.dtype, np.complex64)
    w, v = each(np.linalg.eig, x, [x.shape[-1:], x.shape[-2:]], [wide, wide], finite=True)
    return (w, v * normal_factors(v)[..., None, :]) if x.size else (w, v)


@eig.hlo
def _(b: Any, x: Any) -> Any:
    t, (values, vectors) = b.types[0], b.out
    if t.size == 0:
        return nothing(b)
    if not b.lapack:  # no `expand`, which promises the order of the reference: that of LAPACK
        return inline_in(b, lambda x: _portable(x, vectors.dtype), [t], x)
    x = inline_in(b, finite_or_nan, [t], x)[0]
    info = TensorType(int32, t.shape[:-2])
    parts = [values] if t.dtype.kind == "c" else [values.with_dtype(t.dtype)] * 2
    modes = {"compute_left": "N", "compute_right": "V"}
    *found, _, v, failed = lapack(b, "geev", [x], [t], [*parts, vectors, vectors, info], **modes)
    w = found[0] if len(found) == 1 else inline_in(b, make_complex, parts, *found)[0]
    turned = inline_in(b, turned_columns, [vectors], v)[0]
    return unless_failed(b, [w, turned], [values, vectors], failed, info)


def _portable(x: Value, dtype: DType) -> tuple[Value, Value]:
    w, v = eigen_pairs(x, dtype)
    return w, turned_columns(v)


@eig.grad
def _(x: Value, w: Value, v: Value, dw: Value, dv: Value) -> tuple[Value]:
    """With M = V^-1 dx V: dw is its diagonal; dV = V (M / gaps), less what changes length and factor of the vectors."""
    if x.type.size == 0:
        return (x * 0,)
    n, r = x.shape[-1], x.ndim
    total = reduce_sum(dv * v, axes=(r - 2,))
    longer = conjugate(v) * like(along_columns(real(total), n), v.dtype)
    dv = dv - longer + through_factor(v, total)
    inner = eye(v.shape, v.dtype) * along_rows(dw, n) + gaps_of(w) * (swap(v) @ dv)
    found = solve(swap(v), inner) @ swap(v)
    return (found if x.dtype.kind == "c" else real(found),)


@eig.samples
def _(s: Samples) -> Iterator[Sample]:
    for t in (f64[3, 3], f64[2, 2, 2], f64[1, 1], f64[0, 3, 3], f64[0, 0], c128[3, 3]):
        yield s(spread_values(s, t))
    yield s(np.array([[0.0, 1.0], [-1.0, 0.0]]))
    yield s(np.array([[[2.0, np.inf], [1.0, 1.0]], [[np.nan, 1.0], [1.0, 1.0]]]), gradient=False)
    for t in (f32[3, 3], c64[2, 2, 2]):
        yield s(spread_values(s, t), tol=2e-4)
    yield s(f64[2, 3], bad="E0180")
    yield s(f16[2, 2], bad="E0181")
