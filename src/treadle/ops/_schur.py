"""eig in plain ops, for devices without LAPACK: Hessenberg form, QR steps with shifts, triangular eigenvectors.

All matrices of a batch take their steps together; each has its own active block, and rests when it is triangular.
Real matrices are treated as complex ones, so that imaginary parts which should be 0 are rounding. Sources: Golub & Van
Loan, "Matrix Computations", 7.4 to 7.6; Wilkinson's shift; an exceptional shift in every tenth step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle.base.dtypes import int32
from treadle.ir.node import Value
from treadle.ir.types import TensorType
from treadle.ops._elimination import (
    _squares,
    column,
    element,
    outer_of,
    places,
    row,
    size_of,
    wide,
)  # fmt: skip
from treadle.ops._jacobi import _cut, _main, _or_nan
from treadle.ops._matrices import adjoint, along_columns, along_rows, conjugate, eye, finite_or_nan, like, part
from treadle.ops._regions import number, region, types_of
from treadle.ops.casting import cast
from treadle.ops.compare import (
    equal,
    greater,
    greater_equal,
    is_finite,
    less,
    less_equal,
    logical_and,
    select,
)  # fmt: skip
from treadle.ops.complex import imag, make_complex, real
from treadle.ops.control import while_
from treadle.ops.elementwise import abs, add, maximum, remainder
from treadle.ops.functions import sqrt
from treadle.ops.loops import scan
from treadle.ops.reduce import broadcast_to, reduce_max, reduce_or, reduce_sum
from treadle.ops.shape import concatenate, pad, reshape, zeros_like

STEPS = 30  # for each eigenvalue, at most


def eigen_pairs(x: Value, to: Any) -> tuple[Value, Value]:
    """(w, V) as `eig` gives them, in any order; the factors of the vectors are free. to: the complex type."""
    r, n = x.ndim, x.shape[-1]
    x = like(finite_or_nan(x), to)
    scale = size_of(x)
    a = x / like(wide(scale, x.shape), to)
    h, z = _hessenberg(a)
    t, z = _triangular(h, z) if n > 1 else (h, z)
    w, v = _main(t), z @ _vectors(t)
    length = sqrt(reduce_sum(_squares(v), axes=(r - 2,)))
    v = v / like(along_columns(length, n), to)
    good = is_finite(reduce_sum(_squares(w), axes=(r - 2,)))
    return w * like(wide(scale, w.shape), to), _or_nan(v, good)


# --- Hessenberg form --------------------------------------------------------------------------------------------------


def _hessenberg(a: Value) -> tuple[Value, Value]:
    """(H, Z) with a = Z H Z^H, H zero below the first subdiagonal."""
    n = a.shape[-1]
    start = eye(a.shape, a.dtype)
    if n < 3:
        return a, start
    body = region(_reduced, [a.type, start.type, TensorType(int32, ())], "reduce")
    made = scan(a, start, places((n - 2,), 0), body=body, n_consts=0, n_carry=2, length=n - 2)
    return made[0], made[1]


def _reduced(a: Value, z: Value, i: Value) -> tuple[Value, Value]:
    """Column i becomes zero below the subdiagonal, by a reflection of both sides."""
    r = a.ndim
    x = column(a, i)
    index, below = places(x.shape, r - 2), broadcast_to(i + 1, shape=x.shape)
    x = select(greater_equal(index, below), x, zeros_like(x))
    alpha = element(x, i + 1)
    rest = reduce_sum(select(greater(index, below), _squares(x), zeros_like(_squares(x))), axes=(r - 2,))
    length, size = sqrt(rest + _squares(alpha)), abs(alpha)
    none = equal(size, 0)
    unit = select(none, zeros_like(alpha) + 1, alpha / like(select(none, zeros_like(size) + 1, size), a.dtype))
    beta = unit * like(length, a.dtype)
    v = select(equal(index, below), wide(alpha + beta, x.shape), x)
    squares = reduce_sum(_squares(v), axes=(r - 2,))
    done = equal(rest, 0)
    tau = like(select(done, zeros_like(rest), 2 / select(done, zeros_like(rest) + 1, squares)), a.dtype)
    a = a - outer_of(v, a, tau)
    a = a - adjoint(outer_of(v, adjoint(a), tau))
    rows, columns = places(a.shape, r - 2), places(a.shape, r - 1)
    at = broadcast_to(i, shape=a.shape)
    gone = logical_and(equal(columns, at), greater(rows, at + 1))
    return select(gone, zeros_like(a), a), z - adjoint(outer_of(v, adjoint(z), tau))


# --- QR steps ---------------------------------------------------------------------------------------------------------


def _below(h: Value) -> Value:
    """The subdiagonal as [..., n], its element i left of h[i, i]; 0 first."""
    r = h.ndim
    found = _main(_cut(_cut(h, r - 2, 1, h.shape[-1]), r - 1, 0, h.shape[-1] - 1))
    made: Value = pad(found, 0, low=(0,) * (r - 2) + (1,), high=(0,) * (r - 1), interior=(0,) * (r - 1))
    return made


def _before(v: Value) -> Value:
    """v moved on by one place, [..., n]; its first element twice."""
    axis = v.ndim - 1
    made: Value = concatenate(_cut(v, axis, 0, 1), _cut(v, axis, 0, v.shape[-1] - 1), axis=axis)
    return made


def _deflated(h: Value) -> tuple[Value, Value, Value]:
    """h with negligible elements of the subdiagonal set to 0; the last row of the last block that is not triangular,
    0 if all are; and its first row. int32[...]."""
    r, n = h.ndim, h.shape[-1]
    sub, main = abs(_below(h)), abs(_main(h))
    eps = float(np.finfo(part(h.dtype).np).eps)
    total = sqrt(reduce_sum(_squares(h), axes=(r - 2, r - 1)))
    near = main + _before(main)
    near = select(equal(near, 0), wide(total, near.shape), near)
    kept = greater(sub, near * eps)
    rows, columns = places(h.shape, r - 2), places(h.shape, r - 1)
    cleared = logical_and(equal(rows, columns + 1), equal(along_rows(cast(kept, dtype=int32), n), 0))
    index = places(sub.shape, r - 2)
    last = reduce_max(select(kept, index, zeros_like(index)), axes=(r - 2,))
    split = logical_and(less_equal(index, wide(last, index.shape)), equal(cast(kept, dtype=int32), 0))
    first = reduce_max(select(split, index, zeros_like(index)), axes=(r - 2,))
    return select(cleared, zeros_like(h), h), last, first


def _at(v: Value, index: Value) -> Value:
    """v[..., index[...]]."""
    here = equal(places(v.shape, v.ndim - 1), wide(index, v.shape))
    made: Value = reduce_sum(select(here, v, zeros_like(v)), axes=(v.ndim - 1,))
    return made


def _root(z: Value) -> Value:
    """A square root of complex numbers."""
    a, b, size = real(z), imag(z), abs(z)
    long = sqrt((size + abs(a)) / 2)
    none = equal(long, 0)
    short = b / select(none, zeros_like(long) + 1, long * 2)
    left = greater(zeros_like(a), a)
    made: Value = make_complex(select(left, short, long), select(left, long, short))
    return made


def _shift(h: Value, last: Value, count: Value) -> Value:
    """The eigenvalue of the last 2 by 2 block that is nearer to its last element; now and then another number."""
    main, sub = _main(h), _below(h)
    r, n = h.ndim, h.shape[-1]
    above = _main(_cut(_cut(h, r - 2, 0, n - 1), r - 1, 1, n))
    above = pad(above, 0, low=(0,) * (r - 2) + (1,), high=(0,) * (r - 1), interior=(0,) * (r - 1))
    d, a = _at(main, last), _at(_before(main), last)
    product = _at(sub, last) * _at(above, last)
    half = (a - d) / 2
    root = _root(half * half + product)
    root = select(greater(abs(half - root), abs(half + root)), -root, root)
    bottom = half + root
    none = equal(abs(bottom), 0)
    found = d - select(none, zeros_like(d), product / select(none, zeros_like(d) + 1, bottom))
    other = d + like(abs(_at(sub, last)) * 0.75, d.dtype)
    often = broadcast_to(equal(remainder(count, 10), 9), shape=d.shape)
    made: Value = select(greater(last, 0), select(often, other, found), zeros_like(d))
    return made


def _triangular(h: Value, z: Value) -> tuple[Value, Value]:
    """The Schur form: (T, Z) with T triangular, from H and its Z."""
    n = h.shape[-1]
    types = types_of([number(0), h, z])

    def again(count: Value, h: Value, z: Value) -> Value:
        last = _deflated(h)[1]
        open_ = reduce_or(greater(last, 0), axes=tuple(range(last.ndim)))
        some: Value = logical_and(less(count, STEPS * n), open_)
        return some

    def body(count: Value, h: Value, z: Value) -> list[Value]:
        return [add(count, 1), *_step(h, z, count)]

    loop = while_(number(0), h, z, cond=region(again, types, "block"), body=region(body, types, "qr_step"), n_consts=0)
    return _deflated(loop[1])[0], loop[2]


def _step(h: Value, z: Value, count: Value) -> tuple[Value, Value]:
    """One QR step of the active block, applied to the whole matrix: rotations of rows first, then of columns."""
    n = h.shape[-1]
    h, last, first = _deflated(h)
    shift = _shift(h, last, count)
    one = eye(h.shape, h.dtype)
    a = h - one * wide(shift, h.shape)
    pairs = places((n - 1,), 0)
    types = [last.type, first.type, a.type, TensorType(int32, ())]
    shape = {"n_consts": 2, "length": n - 1}
    a, cosines, sines = scan(last, first, a, pairs, body=region(_rows_turned, types, "turn_rows"), n_carry=1, **shape)
    rotation = [cosines.type.with_shape(cosines.shape[1:])] * 2
    types = [a.type, z.type, TensorType(int32, ()), *rotation]
    body = region(_columns_turned, types, "turn_columns")
    a, z = scan(a, z, pairs, cosines, sines, body=body, n_consts=0, n_carry=2, length=n - 1)
    return a + one * wide(shift, h.shape), z


def _rows_turned(last: Value, first: Value, a: Value, i: Value) -> tuple[Value, Value, Value]:
    """Rows i and i + 1 rotated so that a[i + 1, i] is 0, where both are in the active block: (a, cos, sin)."""
    r, n = a.ndim, a.shape[-1]
    p, q = row(a, i), row(a, i + 1)
    x, y = element(p, i), element(q, i)
    here = broadcast_to(i, shape=last.shape)
    active = logical_and(greater_equal(here, first), less(here, last))
    length = sqrt(_squares(x) + _squares(y))
    active = logical_and(active, greater(length, 0))
    safe = like(select(active, length, zeros_like(length) + 1), a.dtype)
    c = select(active, x / safe, zeros_like(x) + 1)
    s = select(active, y / safe, zeros_like(y))
    c_wide, s_wide = wide(c, p.shape), wide(s, p.shape)
    top = conjugate(c_wide) * p + conjugate(s_wide) * q
    bottom = c_wide * q - s_wide * p
    rows = places(a.shape, r - 2)
    at = broadcast_to(i, shape=a.shape)
    a = select(equal(rows, at), along_columns(top, n), select(equal(rows, at + 1), along_columns(bottom, n), a))
    return a, c, s


def _columns_turned(a: Value, z: Value, i: Value, c: Value, s: Value) -> tuple[Value, Value]:
    """Columns i and i + 1 of both rotated by the adjoint of that."""
    return _turned(a, i, c, s), _turned(z, i, c, s)


def _turned(a: Value, i: Value, c: Value, s: Value) -> Value:
    r, n = a.ndim, a.shape[-1]
    p, q = column(a, i), column(a, i + 1)
    c, s = wide(c, p.shape), wide(s, p.shape)
    left, right = c * p + s * q, conjugate(c) * q - conjugate(s) * p
    columns = places(a.shape, r - 1)
    at = broadcast_to(i, shape=a.shape)
    made: Value = select(
        equal(columns, at), along_rows(left, n), select(equal(columns, at + 1), along_rows(right, n), a)
    )
    return made


# --- eigenvectors -----------------------------------------------------------------------------------------------------


def _vectors(t: Value) -> Value:
    """Eigenvectors of triangular matrices, in the columns of an upper triangular one: the last row first."""
    r, n = t.ndim, t.shape[-1]
    w = _main(t)
    eps = float(np.finfo(part(t.dtype).np).eps)
    least = sqrt(reduce_sum(_squares(t), axes=(r - 2, r - 1))) * eps
    least = maximum(least, float(np.finfo(part(t.dtype).np).tiny))
    types = [t.type, w.type, least.type, t.type, TensorType(int32, ())]
    body = region(_vectors_row, types, "back")
    start = eye(t.shape, t.dtype)
    made = scan(t, w, least, start, places((n,), 0), body=body, n_consts=3, n_carry=1, length=n, reverse=True)
    y: Value = made[0] if isinstance(made, tuple) else made
    return y


def _vectors_row(t: Value, w: Value, least: Value, y: Value, i: Value) -> Value:
    """Row i of all vectors right of the diagonal. A vector that grows large is made smaller as a whole."""
    r, n = t.ndim, t.shape[-1]
    index = places(w.shape, r - 2)
    right = greater(index, broadcast_to(i, shape=index.shape))
    line = select(right, row(t, i), zeros_like(w))
    sums = reshape(reshape(line, shape=(*w.shape[:-1], 1, n)) @ y, shape=w.shape)
    gap = w - wide(element(w, i), w.shape)
    small = wide(least, w.shape)
    gap = select(less(abs(gap), small), like(small, w.dtype), gap)
    found = select(right, sums / gap, zeros_like(w))
    size = abs(found)
    shrink = 1 / select(greater(size, 1e8), size, zeros_like(size) + 1)
    rows, columns, at = places(y.shape, r - 2), places(y.shape, r - 1), broadcast_to(i, shape=y.shape)
    y = select(logical_and(equal(rows, at), greater(columns, at)), along_columns(found, n), y)
    return y * like(along_columns(shrink, n), y.dtype)
