"""eigh and svd in plain ops, for devices without LAPACK: rotations of many pairs of columns at once (Jacobi's method).

A tournament brings every column together with every other one once in a sweep: columns j and j + n/2 are a pair, then
all but the first move on by one place. Sources: Golub & Van Loan, "Matrix Computations", 8.5 and 8.6.3; Brent & Luk
1985, doi:10.1137/0906007 (the order of pairs). Sweeps end when what is left is rounding.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from treadle.ir.node import Value
from treadle.ops._elimination import _squares, places, reflected, size_of, wide
from treadle.ops._matrices import (
    adjoint,
    along_columns,
    along_rows,
    conjugate,
    diagonal,
    eye,
    finite_or_nan,
    like,
    lower,
    part,
    real_part,
)  # fmt: skip
from treadle.ops._regions import number, region, types_of
from treadle.ops.compare import equal, greater, greater_equal, is_finite, less, logical_and, logical_or, select
from treadle.ops.control import while_
from treadle.ops.creation import full
from treadle.ops.elementwise import abs, add, maximum
from treadle.ops.functions import sqrt
from treadle.ops.index import take_along_axis
from treadle.ops.loops import scan
from treadle.ops.reduce import reduce_max, reduce_or, reduce_sum
from treadle.ops.shape import concatenate, pad, slice_, zeros_like
from treadle.ops.sorting import argsort

SWEEPS = 40  # 6 to 12 are usual


def _cut(x: Value, axis: int, start: int, stop: int) -> Value:
    limits = (*x.shape[:axis], stop, *x.shape[axis + 1 :])
    starts = tuple([start if a == axis else 0 for a in range(x.ndim)])
    made: Value = slice_(x, starts=starts, limits=limits, strides=(1,) * x.ndim)
    return made


def _moved_on(x: Value, axis: int) -> Value:
    """The next round of the tournament along an axis; n - 1 rounds lead back to the first."""
    n = x.shape[axis]
    h = n // 2
    if n == 2:
        return x
    pieces = [(0, 1), (h, h + 1), (1, h - 1), (h + 1, n), (h - 1, h)]
    made: Value = concatenate(*[_cut(x, axis, a, b) for a, b in pieces if a < b], axis=axis)
    return made


def _angles(a: Value, d: Value, b: Value) -> tuple[Value, Value, Value, Value]:
    """The rotation that makes [[a, b], [conj(b), d]] diagonal: (factor of size 1, cos, sin, a's loss = d's gain).

    With u = factor: columns (p, q) become (u c p - s q, u s p + c q). a, d: real [..., h]; b: [..., h].
    """
    size = abs(b)
    none = equal(size, 0)
    safe = select(none, zeros_like(size) + 1, size)
    turn = (d - a) / (safe * 2)
    angle = 1 / (abs(turn) + sqrt(turn * turn + 1))
    angle = select(greater_equal(turn, 0), angle, -angle)
    angle = select(none, zeros_like(angle), angle)
    c = 1 / sqrt(angle * angle + 1)
    factor = select(none, zeros_like(b) + 1, b / like(safe, b.dtype))
    return factor, like(c, b.dtype), like(angle * c, b.dtype), angle * size


def _rotated(x: Value, axis: int, factor: Value, c: Value, s: Value) -> Value:
    """Pairs along the last axis (columns) or the one before (rows, with the conjugate factor) rotated."""
    h = x.shape[axis] // 2
    p, q = _cut(x, axis, 0, h), _cut(x, axis, h, 2 * h)
    spread = along_rows if axis == x.ndim - 2 else along_columns
    other = p.shape[2 * x.ndim - 3 - axis]
    u, c, s = [spread(v, other) for v in (factor, c, s)]
    made: Value = concatenate(u * c * p - s * q, u * s * p + c * q, axis=axis)
    return made


def _even(x: Value, axes: tuple[int, ...]) -> Value:
    """x with a row or column of zeros more where its size is odd."""
    high = tuple([x.shape[a] % 2 if a in axes else 0 for a in range(x.ndim)])
    made: Value = pad(x, 0, low=(0,) * x.ndim, high=high, interior=(0,) * x.ndim)
    return made


def _repeated(state: list[Value], body: Any, left: Any) -> tuple[Value, ...]:
    """body(*state) again and again while an element of left(*state) is true, SWEEPS times at most."""
    types = types_of([number(0), *state])

    def again(count: Value, *args: Value) -> Value:
        open_ = left(*args)
        some: Value = logical_and(less(count, SWEEPS), reduce_or(open_, axes=tuple(range(open_.ndim))))
        return some

    def sweep(count: Value, *args: Value) -> list[Value]:
        return [add(count, 1), *body(*args)]

    loop = while_(
        number(0), *state, cond=region(again, types, "unfinished"), body=region(sweep, types, "sweep"), n_consts=0
    )
    return tuple(loop[1:])


def _rounds(state: list[Value], step: Any) -> tuple[Value, ...]:
    """step(*state) for each round of a sweep; the first tensor's last axis has the columns."""
    n = state[0].shape[-1]
    body = region(step, types_of(state), "round")
    made = scan(*state, body=body, n_consts=0, n_carry=len(state), length=n - 1)
    return made if isinstance(made, tuple) else (made,)


def _ordered(values: Value, vectors: list[Value], descending: bool) -> tuple[Value, list[Value]]:
    """Sorted values [..., k], and columns in the same order."""
    axis = values.ndim - 1
    order = argsort(values, axis=axis, descending=descending)
    made = [take_along_axis(v, along_columns(order, v.shape[-2]), axis=axis + 1) for v in vectors]
    return take_along_axis(values, order, axis=axis), made


def _or_nan(x: Value, good: Value) -> Value:
    """x, NaN where good [...] is false."""
    nan = like(full(value=math.nan, shape=x.shape, dtype=part(x.dtype)), x.dtype)
    made: Value = select(wide(good, x.shape), x, nan)
    return made


def _eps(x: Value) -> float:
    return float(np.finfo(part(x.dtype).np).eps)


# --- Hermitian matrices -----------------------------------------------------------------------------------------------


def hermitian_spectrum(x: Value) -> tuple[Value, Value]:
    """(w, V) of a Hermitian x [..., n, n], read from its lower triangle: w real [..., n] ascending; the factors of V
    are free."""
    n, r = x.shape[-1], x.ndim
    if x.type.size == 0:
        return zeros_like(real_part(x), x.shape[:-1]), zeros_like(x)
    x = finite_or_nan(x)
    x = lower(x, -1) + adjoint(lower(x, -1)) + like(real_part(diagonal(x)), x.dtype)
    scale = size_of(x)
    a = _even(x / like(wide(scale, x.shape), x.dtype), (r - 2, r - 1))
    a, v = _repeated([a, eye(a.shape, x.dtype)], lambda a, v: _rounds([a, v], _hermitian_round), _unfinished)
    w = _main(real_part(a))
    v = _cut(_cut(v, r - 2, 0, n), r - 1, 0, n)
    w, (v,) = _ordered(_cut(w, r - 2, 0, n), [v], descending=False)
    return w * wide(scale, w.shape), _or_nan(v, is_finite(reduce_sum(w, axes=(r - 2,))))


def _main(x: Value) -> Value:
    """The diagonal [..., n]."""
    made: Value = reduce_sum(select(_on_diagonal(x), x, zeros_like(x)), axes=(x.ndim - 1,))
    return made


def _on_diagonal(x: Value) -> Value:
    made: Value = equal(places(x.shape, x.ndim - 2), places(x.shape, x.ndim - 1))
    return made


def _unfinished(a: Value, v: Value) -> Value:
    """[...]: whether more than rounding stands beside the diagonal."""
    axes = (a.ndim - 2, a.ndim - 1)
    squares = _squares(a)
    beside = reduce_sum(select(_on_diagonal(a), zeros_like(squares), squares), axes=axes)
    made: Value = greater(beside, reduce_sum(squares, axes=axes) * _eps(a) ** 2)
    return made


def _hermitian_round(a: Value, v: Value) -> tuple[Value, Value]:
    """One rotation of each pair; the elements that it makes zero, and the diagonal, are set exactly."""
    r, n = a.ndim, a.shape[-1]
    h, rows, columns = n // 2, r - 2, r - 1
    top, bottom = _cut(a, rows, 0, h), _cut(a, rows, h, n)
    first, last = [real_part(_main(_cut(x, columns, s, s + h))) for x, s in ((top, 0), (bottom, h))]
    factor, c, s, gain = _angles(first, last, _main(_cut(top, columns, h, n)))
    a = _rotated(_rotated(a, columns, factor, c, s), rows, conjugate(factor), c, s)
    i, j = places(a.shape, rows), places(a.shape, columns)
    pair = logical_or(equal(i - j, h), equal(j - i, h))
    main = like(concatenate(first - gain, last + gain, axis=r - 2), a.dtype)
    a = select(pair, zeros_like(a), select(_on_diagonal(a), along_rows(main, n), a))
    v = _rotated(v, columns, factor, c, s)
    return _moved_on(_moved_on(a, rows), columns), _moved_on(v, columns)


# --- singular values --------------------------------------------------------------------------------------------------


def singular_factors(x: Value) -> tuple[Value, Value, Value]:
    """(U, s, Vh) as `svd` gives them; the factors of the vectors are free.

    The columns of R, where x = Q R, are rotated until all are orthogonal: R V = B. Of B, in order of size, the Q of
    `reflected` is U but for factors of size 1; it is orthogonal also where singular values are zero.
    """
    *lead, m, n = x.shape
    if m < n:
        u, s, vh = singular_factors(adjoint(x))
        return adjoint(vh), s, adjoint(u)
    if x.type.size == 0:
        return zeros_like(x), zeros_like(real_part(x), (*lead, n)), zeros_like(x, (*lead, n, n))
    r = x.ndim
    x = finite_or_nan(x)
    scale = size_of(x)
    q, a = reflected(x / like(wide(scale, x.shape), x.dtype))
    wide_a = _even(a, (r - 1,))
    start = [wide_a, eye((*lead, *wide_a.shape[-1:] * 2), x.dtype)]
    worst = full(value=math.inf, shape=tuple(lead), dtype=part(x.dtype))
    v = _repeated([*start, worst], _column_sweep, lambda b, v, worst: greater(worst, _limit(b)))[1]
    v = _cut(_cut(v, r - 2, 0, n), r - 1, 0, n)
    b = a @ v
    s, (b, v) = _ordered(_lengths(b), [b, v], descending=True)
    u, triangle = reflected(b)
    main = _main(triangle)
    size = abs(main)
    none = equal(size, 0)
    unit = main / like(select(none, zeros_like(size) + 1, size), x.dtype)
    unit = select(none, zeros_like(unit) + 1, unit)
    good = is_finite(reduce_sum(s, axes=(r - 2,)))
    u = (q @ u) * along_columns(unit, m)
    return _or_nan(u, good), s * wide(scale, s.shape), _or_nan(adjoint(v), good)


def _lengths(b: Value) -> Value:
    """Of the columns."""
    made: Value = sqrt(reduce_sum(_squares(b), axes=(b.ndim - 2,)))
    return made


def _limit(b: Value) -> float:
    """Cosines up to this are rounding."""
    return 4 * _eps(b) * math.sqrt(b.shape[-2])


def _column_sweep(b: Value, v: Value, worst: Value) -> tuple[Value, ...]:
    """All pairs of columns once; worst: the largest cosine that was met."""
    return _rounds([b, v, zeros_like(worst)], _column_round)


def _column_round(b: Value, v: Value, worst: Value) -> tuple[Value, Value, Value]:
    r, n = b.ndim, b.shape[-1]
    h, axis = n // 2, r - 1
    p, q = _cut(b, axis, 0, h), _cut(b, axis, h, n)
    first, last = [reduce_sum(_squares(c), axes=(r - 2,)) for c in (p, q)]
    product = reduce_sum(conjugate(p) * q, axes=(r - 2,))
    factor, c, s, _ = _angles(first, last, product)
    whole = along_rows(reduce_sum(first + last, axes=(r - 2,)), h)
    noise = select(equal(whole, 0), zeros_like(whole) + 1, whole) * _eps(b) ** 2
    cosine = abs(product) / (sqrt(first) * sqrt(last) + noise)
    widest = reduce_max(cosine, axes=(r - 2,))
    b, v = _rotated(b, axis, factor, c, s), _rotated(v, axis, factor, c, s)
    return _moved_on(b, axis), _moved_on(v, axis), maximum(worst, widest)
