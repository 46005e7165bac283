"""LU and QR in plain ops, for devices without LAPACK: a step for each column, on all matrices of a batch at once.

The results are LAPACK's up to rounding: the same pivots, the same signs. Sources: Golub & Van Loan, "Matrix
Computations", 3.4 and 5.2 (reflections with LAPACK's choice of the sign, so that R's diagonal is real).
"""

from __future__ import annotations

from typing import Any

from treadle.base.dtypes import int32, uint32, uint64
from treadle.ir.node import Value
from treadle.ir.types import TensorType
from treadle.ops._matrices import along_columns, along_rows, conjugate, eye, imag_part, like, real_part, upper
from treadle.ops._regions import number, region
from treadle.ops.bits import bit_and, bitcast
from treadle.ops.compare import equal, greater, greater_equal, is_finite, logical_and, select
from treadle.ops.creation import iota
from treadle.ops.dynamic import dynamic_slice
from treadle.ops.elementwise import abs
from treadle.ops.functions import sqrt
from treadle.ops.loops import scan
from treadle.ops.reduce import broadcast_to, reduce_max, reduce_sum
from treadle.ops.shape import reshape, slice_, transpose, zeros_like
from treadle.ops.sorting import argmax


def places(shape: tuple[int, ...], axis: int) -> Value:
    """int32: the index along an axis, of each element."""
    made: Value = iota(shape=shape, axis=axis, dtype=int32)
    return made


def wide(scalar: Value, shape: tuple[int, ...]) -> Value:
    """[...] repeated along new last axes."""
    skip = len(shape) - scalar.ndim
    made: Value = broadcast_to(reshape(scalar, shape=(*scalar.shape, *[1] * skip)), shape=shape)
    return made


def size_of(x: Value) -> Value:
    """A power of two near the largest absolute value of each matrix [...], so that no division by it rounds; 1 where
    that is 0, infinite, NaN, or less than a normal number."""
    r = x.ndim
    found = reduce_max(abs(x), axes=(r - 2, r - 1))
    narrow = found.dtype.bits == 32
    bits, mask = (uint32, 0x7F800000) if narrow else (uint64, 0x7FF0000000000000)
    power = bitcast(bit_and(bitcast(found, dtype=bits), mask), dtype=found.dtype)
    good = logical_and(greater(power, 0), is_finite(power))
    made: Value = select(good, power, zeros_like(found) + 1)
    return made


def column(a: Value, i: Value) -> Value:
    """a[..., :, i] as [..., m]. i: int32 scalar."""
    lead, zero = a.shape[:-1], number(0)
    made: Value = reshape(dynamic_slice(a, *[zero] * (a.ndim - 1), i, sizes=(*lead, 1)), shape=lead)
    return made


def row(a: Value, i: Value) -> Value:
    """a[..., i, :] as [..., n]."""
    *lead, _, n = a.shape
    zero = number(0)
    found = dynamic_slice(a, *[zero] * (a.ndim - 2), i, zero, sizes=(*lead, 1, n))
    made: Value = reshape(found, shape=(*lead, n))
    return made


def element(v: Value, i: Value) -> Value:
    """v[..., i] as [...]."""
    lead = v.shape[:-1]
    made: Value = reshape(dynamic_slice(v, *[number(0)] * len(lead), i, sizes=(*lead, 1)), shape=lead)
    return made


def _stacked_last(x: Value) -> Value:
    """The first axis moved to the end."""
    made: Value = transpose(x, perm=(*range(1, x.ndim), 0))
    return made


# --- LU ---------------------------------------------------------------------------------------------------------------


def eliminated(x: Value) -> Any:
    """What `lu` gives: x [..., n, n] -> factors [..., n, n], pivots int32[..., n]."""
    n, r = x.shape[-1], x.ndim
    if x.type.size == 0:
        return zeros_like(x), places(x.shape[:-1], r - 2)

    def step(a: Value, i: Value) -> tuple[Value, Value]:
        rows, columns = places(a.shape, r - 2), places(a.shape, r - 1)
        here = broadcast_to(i, shape=a.shape)
        index = places(a.shape[:-1], r - 2)
        first = column(a, i)
        size = abs(first) if a.dtype.kind != "c" else abs(real_part(first)) + abs(imag_part(first))
        size = select(greater_equal(index, broadcast_to(i, shape=index.shape)), size, zeros_like(size) - 1)
        pivot = argmax(size, axis=r - 2)
        there = wide(pivot, a.shape)
        chosen = reduce_sum(select(equal(rows, there), a, zeros_like(a)), axes=(r - 2,))
        old = along_columns(row(a, i), n)
        a = select(equal(rows, here), along_columns(chosen, n), select(equal(rows, there), old, a))
        first, top = column(a, i), element(chosen, i)
        zero = wide(equal(top, 0), first.shape)
        shares = select(zero, first, first / select(zero, zeros_like(first) + 1, wide(top, first.shape)))
        below = greater(rows, here)
        update = a - along_rows(shares, n) * along_columns(chosen, n)
        inner, left = logical_and(below, greater(columns, here)), logical_and(below, equal(columns, here))
        return select(inner, update, select(left, along_rows(shares, n), a)), pivot

    body = region(step, [x.type, TensorType(int32, ())], "eliminate")
    factors, pivots = scan(x, places((n,), 0), body=body, n_consts=0, n_carry=1, length=n)
    return factors, _stacked_last(pivots)


# --- QR ---------------------------------------------------------------------------------------------------------------


def reflected(x: Value) -> tuple[Value, Value]:
    """What `qr` gives: x [..., m, n] -> Q [..., m, k], R [..., k, n], k = min(m, n)."""
    *lead, m, n = x.shape
    k = min(m, n)
    if x.type.size == 0:
        return zeros_like(x, (*lead, m, k)), zeros_like(x, (*lead, k, n))
    scale = like(size_of(x), x.dtype)
    types = [x.type, TensorType(int32, ())]
    count = places((k,), 0)
    shape = {"n_consts": 0, "n_carry": 1, "length": k}
    a, vectors, taus = scan(x / wide(scale, x.shape), count, body=region(_reflect, types, "reflect"), **shape)
    start = eye((*lead, m, k), x.dtype)
    types = [start.type, vectors.type.with_shape(vectors.shape[1:]), taus.type.with_shape(taus.shape[1:])]
    body = region(lambda q, v, tau: q - outer_of(v, q, tau), types, "apply")
    q = scan(start, vectors, taus, body=body, **shape, reverse=True)
    q = q[0] if isinstance(q, tuple) else q
    top = slice_(a, starts=(0,) * x.ndim, limits=(*lead, k, n), strides=(1,) * x.ndim)
    return q, upper(top) * wide(scale, top.shape)


def outer_of(v: Value, a: Value, tau: Value) -> Value:
    """tau v (v^H a): what I - tau v v^H takes away from a. v: [..., m], a: [..., m, n], tau: [...]."""
    m, n = a.shape[-2:]
    along = reshape(reshape(conjugate(v), shape=(*v.shape[:-1], 1, m)) @ a, shape=(*v.shape[:-1], n))
    return wide(tau, a.shape) * along_rows(v, n) * along_columns(along, m)


def _reflect(a: Value, i: Value) -> tuple[Value, Value, Value]:
    """Column i becomes zero below the diagonal. Gives the new a, the vector v [..., m] and tau [...]."""
    r = a.ndim
    index = places(a.shape[:-1], r - 2)
    here = broadcast_to(i, shape=index.shape)
    whole = column(a, i)
    alpha = element(whole, i)
    below = select(greater(index, here), whole, zeros_like(whole))
    rest = reduce_sum(_squares(below), axes=(r - 2,))
    length = sqrt(rest + _squares(alpha))
    beta = select(greater_equal(real_part(alpha), 0), -length, length)
    done = equal(rest, 0)
    if a.dtype.kind == "c":
        done = logical_and(done, equal(imag_part(alpha), 0))
    beta = like(select(done, real_part(alpha), beta), a.dtype)
    one = zeros_like(alpha) + 1
    tau = select(done, zeros_like(alpha), (beta - alpha) / select(done, one, beta))
    v = below / wide(select(done, one, alpha - beta), below.shape)
    v = select(equal(index, here), zeros_like(v) + 1, v)
    a = a - outer_of(v, a, conjugate(tau))
    rows, columns, at = places(a.shape, r - 2), places(a.shape, r - 1), broadcast_to(i, shape=a.shape)
    cleared = select(equal(rows, at), wide(beta, a.shape), select(greater(rows, at), zeros_like(a), a))
    return select(equal(columns, at), cleared, a), v, tau


def _squares(x: Value) -> Value:
    """|x|^2."""
    made: Value = x * x if x.dtype.kind != "c" else real_part(x) * real_part(x) + imag_part(x) * imag_part(x)
    return made
