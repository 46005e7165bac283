"""`td.sparse`: tensors that keep the elements which are not zero: COO (any axes) and CSR (matrices).

A sparse tensor is `values` [n] with their places; elements that have one place add up, and zeros may stand among the
values, so that all shapes are known when a program is compiled. Both kinds are containers (see `td.tree`): they go in
and out of jitted functions. Products, sums and `to_dense` have derivatives for the values and for dense operands; to
differentiate by the values, make the sparse tensor from them inside the function.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle import ops
from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.frontend import counting, shaping, tree
from treadle.frontend import functions as td
from treadle.frontend.create import arange, ones, zeros, zeros_like
from treadle.frontend.lift import (
    cast,
    integer,
    ints,
    is_array,
    is_number,
    is_tensor,
    lift,
    many_axes,
    one_axis,
    operand,
    positions,
)  # fmt: skip
from treadle.frontend.scatter import known

__all__ = ["COO", "CSR", "coo", "csr", "from_dense", "identity", "sampled_matmul"]

Ints = tuple[int, ...]


def _number(x: Any) -> bool:
    return is_number(x) or ((is_tensor(x) or is_array(x)) and x.ndim == 0)


class _Sparse:
    """What both kinds have in common."""

    __slots__ = ("shape", "values")
    __array_ufunc__ = None  # NumPy arrays leave operators to us
    __hash__ = None  # type: ignore[assignment]

    values: Any
    shape: Ints

    @property
    def dtype(self) -> dtypes.DType:
        """The type of the elements."""
        found: dtypes.DType = self.values.dtype
        return found

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nse(self) -> int:
        """How many elements are kept."""
        count: int = self.values.shape[0]
        return count

    @property
    def T(self) -> Any:
        """The transpose."""
        return self.transpose()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.dtype}{list(self.shape)}, {self.nse} elements)"

    def __bool__(self) -> bool:
        raise UserError("E0103", f"the truth of {self!r}", fix="ask for that of .to_dense()")

    def to_coo(self) -> COO:
        """As a COO tensor; itself if it is one."""
        if isinstance(self, COO):
            return self
        me: Any = self
        rows = counting.searchsorted(me.starts, arange(self.nse, dtype=me.starts.dtype), side="right") - 1
        places = shaping.stack([cast(rows, me.columns.dtype), me.columns], axis=0)
        return COO._of(self.values, places, self.shape)

    def with_values(self, values: Any) -> Any:
        """Other values at the same places. Raises E0103 for another number of them."""
        made = copy.copy(self)
        made.values = lift(values)
        if tuple(made.values.shape) != (self.nse,):
            raise UserError("E0103", f"values {made.values.type} for {self!r}", fix=f"give {self.nse} of them")
        return made

    def transpose(self, *axes: Any) -> Any:
        """With its axes in another order (the reverse one if left out), as COO or CSR as it is. Raises E0113."""
        here = self.to_coo()
        order = tuple([one_axis(a, self.ndim) for a in ints(axes, "an axis")]) or tuple(range(self.ndim))[::-1]
        if sorted(order) != list(range(self.ndim)):
            raise UserError("E0113", f"axes {axes} of {self!r}", fix="name each axis once")
        indices = shaping.stack([here.indices[a] for a in order], axis=0)
        made = COO._of(self.values, indices, tuple([self.shape[a] for a in order]))
        return made.to_csr() if isinstance(self, CSR) else made

    def astype(self, dtype: Any) -> Any:
        """With elements of another type."""
        return self.with_values(self.values.astype(dtype))

    def to_dense(self) -> Any:
        """The dense tensor."""
        return self.to_coo().sum(())

    def sum(self, axis: Any = None) -> Any:
        """The sum over axes (None: all), a dense tensor."""
        return self.to_coo().sum(axis)

    def __neg__(self) -> Any:
        return self.with_values(-self.values)

    def __mul__(self, other: Any) -> Any:
        """Times a number, a dense tensor that broadcasts to this shape, or a sparse tensor of this shape: sparse."""
        if _number(other):
            return self.with_values(self.values * other)
        here = self.to_coo()
        return self.with_values(self.values * _at(other, here))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        """Divided by a number or a dense tensor: sparse; zeros that are not kept stay zero."""
        if isinstance(other, _Sparse):
            raise UserError("E0103", "a quotient of sparse tensors is not sparse", fix="use .to_dense()")
        return self.with_values(self.values / (other if _number(other) else _at(other, self.to_coo())))

    def __add__(self, other: Any) -> Any:
        """The sum: sparse with a sparse tensor of this shape, else dense. Raises E0108 for another shape."""
        if not isinstance(other, _Sparse):
            return self.to_dense() + other
        if self.shape != other.shape:
            why = f"shapes {list(self.shape)} and {list(other.shape)} of sparse tensors"
            raise UserError("E0108", why, fix="give them one shape")
        x, y = self.to_coo(), other.to_coo()
        kind = dtypes.promote(x.dtype, y.dtype)
        values = shaping.concatenate([cast(x.values, kind), cast(y.values, kind)], axis=0)
        places = [cast(lift(s.indices), dtypes.int64) for s in (x, y)]
        made = COO._of(values, shaping.concatenate(places, axis=1), self.shape)
        return made.to_csr() if isinstance(self, CSR) and isinstance(other, CSR) else made

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self + (-other)

    def __rsub__(self, other: Any) -> Any:
        return (-self) + other

    def __matmul__(self, other: Any) -> Any:
        """[m, n] @ dense [n] or [..., n, k] -> dense. Raises E0114 when the sizes do not fit, or both are sparse."""
        other = _dense_factor(other)
        here = self._matrix()
        m, n = here.shape
        axis = max(other.ndim - 2, 0)
        if other.shape[axis] != n:
            raise UserError("E0114", f"{self!r} @ {other.type}", fix=f"give the right one {n} rows")
        picked = ops.take(other, here.indices[1], axis=axis)
        values = here.values if other.ndim == 1 else shaping.expand_dims(here.values, 1)
        return _added(here.indices[0], picked * values, axis, m)

    def __rmatmul__(self, other: Any) -> Any:
        """dense [m] or [..., k, m] @ [m, n] -> dense."""
        other = _dense_factor(other)
        here = self._matrix()
        m, n = here.shape
        if other.shape[-1] != m:
            raise UserError("E0114", f"{other.type} @ {self!r}", fix=f"give the left one {m} columns")
        picked = ops.take(other, here.indices[0], axis=other.ndim - 1)
        return _added(here.indices[1], picked * here.values, other.ndim - 1, n)

    def _matrix(self) -> COO:
        if self.ndim != 2:
            raise UserError("E0114", f"{self!r} in a matrix product", fix="give it two axes")
        return self.to_coo()


class COO(_Sparse):
    """values [n]; indices: int [axes, n], a row for each axis. Made by `coo` and `from_dense`."""

    __slots__ = ("indices",)
    indices: Any

    @classmethod
    def _of(cls, values: Any, indices: Any, shape: Ints) -> COO:
        made = cls.__new__(cls)
        made.values, made.indices, made.shape = values, indices, shape
        return made

    def to_csr(self) -> CSR:
        """As a CSR matrix, its elements in the order of rows, then columns. Raises E0103 unless it has two axes."""
        if self.ndim != 2:
            raise UserError("E0103", f"{self!r} as CSR", fix="CSR is for two axes")
        order = td.argsort(_flat(self.indices, self.shape))
        rows, columns = [ops.take(self.indices[a], order, axis=0) for a in (0, 1)]
        starts = counting.searchsorted(rows, arange(self.shape[0] + 1, dtype=rows.dtype))
        return CSR._of(ops.take(self.values, order, axis=0), columns, cast(starts, rows.dtype), self.shape)

    def sum(self, axis: Any = None) -> Any:
        gone = many_axes(axis, self.ndim)
        kept = [a for a in range(self.ndim) if a not in gone]
        shape = tuple([self.shape[a] for a in kept])
        values = cast(self.values, dtypes.int64) if gone and self.dtype.kind in "bi" else self.values
        if not kept:
            return td.sum(values)
        places = _flat([self.indices[a] for a in kept], shape)
        return shaping.reshape(_added(places, values, 0, math.prod(shape)), shape)

    def coalesce(self) -> COO:
        """The same tensor with its elements in row order and those of one place added up; the room that this frees is
        filled with zeros at the last place."""
        flat = _flat(self.indices, self.shape)
        if self.nse < 2:
            return self
        order = td.argsort(flat)
        flat, values = [ops.take(x, order, axis=0) for x in (flat, self.values)]
        new = cast(flat[1:] != flat[:-1], dtypes.int32)
        group = shaping.concatenate([new[:1] * 0, td.cumsum(new, axis=0)], axis=0)
        total = _added(group, values, 0, self.nse)
        first = counting.searchsorted(group, arange(self.nse, dtype=dtypes.int32))
        places = ops.take(flat, td.minimum(first, self.nse - 1), axis=0)
        return COO._of(total, _unravelled(places, self.shape), self.shape)


class CSR(_Sparse):
    """A matrix: values [n] row after row, columns int [n], starts int [rows + 1]: row i is starts[i] to starts[i+1]."""

    __slots__ = ("columns", "starts")
    columns: Any
    starts: Any

    @classmethod
    def _of(cls, values: Any, columns: Any, starts: Any, shape: Ints) -> CSR:
        made = cls.__new__(cls)
        made.values, made.columns, made.starts, made.shape = values, columns, starts, shape
        return made

    def to_csr(self) -> CSR:
        return self


# --- making them ------------------------------------------------------------------------------------------------------


def coo(indices: Any, values: Any, shape: Sequence[int]) -> COO:
    """A COO tensor. indices: integers [axes, n], negative ones count from the back; values: [n].

    Raises E0103 when the numbers of indices and values differ, E0138 for indices that are no integers, E0506 for one
    out of range.
    """
    sizes, values = ints((tuple(shape),)), lift(values)
    rows = indices if isinstance(indices, list | tuple) else [indices[a] for a in range(len(indices))]
    if len(rows) != len(sizes) or not sizes:
        why = f"{len(rows)} rows of indices for shape {list(sizes)}"
        raise UserError("E0103", why, fix="give one row for each axis")
    places = [lift(operand(positions(row, n))) for row, n in zip(rows, sizes, strict=True)]
    if values.ndim != 1 or any(p.shape != values.shape for p in places):
        why = f"values {values.type} with indices of shape {[list(p.shape) for p in places]}"
        raise UserError("E0103", why, fix="give as many indices as values")
    kind = dtypes.int64 if any(p.dtype is dtypes.int64 for p in places) else dtypes.int32
    return COO._of(values, shaping.stack([cast(p, kind) for p in places], axis=0), sizes)


def csr(starts: Any, columns: Any, values: Any, shape: Sequence[int]) -> CSR:
    """A CSR matrix. starts: integers [rows + 1] from 0 up to n, columns: integers [n], values: [n].

    Raises E0103 for other shapes or starts that fall, E0138 for indices that are no integers, E0506 for one out of
    range.
    """
    sizes, values = ints((tuple(shape),)), lift(values)
    if len(sizes) != 2:
        raise UserError("E0103", f"CSR of shape {list(sizes)}", fix="CSR is for two axes")
    columns = lift(operand(positions(columns, sizes[1])))
    starts = lift(operand(positions(starts, values.size + 1)))
    if values.ndim != 1 or columns.shape != values.shape or tuple(starts.shape) != (sizes[0] + 1,):
        why = f"values {values.type}, columns {columns.type}, starts {starts.type} for shape {list(sizes)}"
        raise UserError("E0103", why, fix=f"give as many columns as values, and {sizes[0] + 1} starts")
    found = known(starts)
    if found is not None and (found[0] != 0 or found[-1] != values.size or (np.diff(found) < 0).any()):
        raise UserError("E0103", f"starts {found.tolist()}", fix=f"begin with 0, end with {values.size}, never fall")
    kind = dtypes.promote(starts.dtype, columns.dtype)
    return CSR._of(values, cast(columns, kind), cast(starts, kind), sizes)


def from_dense(x: Any, nse: int | None = None, layout: str = "coo") -> Any:
    """The sparse form of a dense tensor. nse: how much room, needed while traced; with less than there are elements
    that are not zero, the last ones are left out. layout: "coo" or "csr". Raises E0103, E0107, E0507."""
    if layout not in ("coo", "csr"):
        raise UserError("E0103", f"layout {layout!r}", fix="use 'coo' or 'csr'")
    x = lift(x)
    if not x.ndim:
        raise UserError("E0107", "a number as sparse tensor", fix="give it an axis")
    flat = shaping.reshape(x, (x.size,))
    last = max(x.size - 1, 0)
    places = counting.flatnonzero(x, size=nse, fill_value=last)
    there = arange(places.shape[0]) < counting.count_nonzero(x)
    picked = ops.take(flat, places, axis=0) if x.size else zeros_like(places).astype(x.dtype)
    values = td.where(there, picked, zeros_like(picked))
    made = COO._of(values, _unravelled(places, tuple(x.shape)), tuple(x.shape))
    return made.to_csr() if layout == "csr" else made


def identity(n: int, dtype: Any = dtypes.float32) -> CSR:
    """The identity matrix, as CSR."""
    size = integer(n, "n")
    return CSR._of(ones(size, dtype=dtype), arange(size), arange(size + 1), (size, size))


def sampled_matmul(pattern: Any, x: Any, y: Any) -> Any:
    """The elements of x @ y at the places of `pattern` (its values do not count), as a sparse matrix like it.

    x: [m, k], y: [k, n], pattern: [m, n]. Raises E0114 when the shapes do not fit.
    """
    x, y, here = lift(x), lift(y), pattern._matrix()
    if (x.ndim, y.ndim) != (2, 2) or x.shape[1] != y.shape[0] or (x.shape[0], y.shape[1]) != here.shape:
        raise UserError("E0114", f"{x.type} @ {y.type} at the places of {pattern!r}", fix="give shapes that fit")
    rows = ops.take(x, here.indices[0], axis=0)
    columns = ops.take(shaping.matrix_transpose(y), here.indices[1], axis=0)
    return pattern.with_values(td.sum(rows * columns, axis=1))


# --- places -----------------------------------------------------------------------------------------------------------


def _flat(indices: Any, shape: Ints) -> Any:
    """The position in row order of each element, int32, or int64 in large tensors."""
    kind = dtypes.int64 if math.prod(shape) > 2**31 - 1 else dtypes.int32
    total: Any = None
    for row, n in zip([indices[a] for a in range(len(shape))], shape, strict=True):
        row = cast(row, kind)
        total = row if total is None else total * n + row
    return total


def _unravelled(places: Any, shape: Ints) -> Any:
    """Rows of indices from positions in row order."""
    rows = []
    for n in reversed(shape):
        rows.append(places % max(n, 1))
        places = places // max(n, 1)
    return shaping.stack(rows[::-1], axis=0)


def _added(places: Any, updates: Any, axis: int, size: int) -> Any:
    """Zeros of the size along the axis, to which the updates are added."""
    if not places.shape[0]:
        shape = (*updates.shape[:axis], size, *updates.shape[axis + 1 :])
        return zeros(shape, dtype=updates.dtype)
    return ops.index_sum(places, updates, axis=axis, size=size)


def _at(other: Any, here: COO) -> Any:
    """The elements of another tensor at the places of a sparse one. Raises E0108 unless it broadcasts to its shape."""
    if isinstance(other, _Sparse):
        if other.shape != here.shape:
            why = f"shapes {list(here.shape)} and {list(other.shape)} of sparse tensors"
            raise UserError("E0108", why, fix="give them one shape")
        return _looked_up(other.to_coo().coalesce(), here)
    x = lift(other)
    sizes = (1,) * (here.ndim - x.ndim) + tuple(x.shape)
    if len(sizes) != here.ndim or any(n not in (1, m) for n, m in zip(sizes, here.shape, strict=True)):
        raise UserError("E0108", f"{x.type} beside {here!r}", fix="give a shape that broadcasts to that")
    if not here.nse:
        return zeros(0, dtype=x.dtype)
    rows = [here.indices[a] if n > 1 else here.indices[a] * 0 for a, n in enumerate(sizes)]
    return ops.take(shaping.reshape(x, (x.size,)), _flat(rows, sizes), axis=0)


def _looked_up(other: COO, here: COO) -> Any:
    """The elements of a sorted sparse tensor without repetitions at the places of another, 0 where it has none.

    After the repetitions come zeros at the last place, so that the first element found there is the right one."""
    if not other.nse or not here.nse:
        return zeros(here.nse, dtype=other.dtype)
    line, wanted = _flat(other.indices, other.shape), _flat(here.indices, here.shape)
    found = td.minimum(counting.searchsorted(line, wanted), other.nse - 1)
    picked = ops.take(other.values, found, axis=0)
    return td.where(ops.take(line, found, axis=0) == wanted, picked, zeros_like(picked))


def _dense_factor(x: Any) -> Any:
    if isinstance(x, _Sparse):
        raise UserError("E0114", "a product of two sparse matrices", fix="make one dense: a @ b.to_dense()")
    x = lift(x)
    if not x.ndim:
        raise UserError("E0114", "a number in a matrix product", fix="use *")
    return x


tree.register(
    COO,
    lambda t: ((("values", t.shape), "indices"), (t.values, t.indices)),
    lambda keys, children: COO._of(children[0], children[1], keys[0][1]),
)
tree.register(
    CSR,
    lambda t: ((("values", t.shape), "columns", "starts"), (t.values, t.columns, t.starts)),
    lambda keys, children: CSR._of(children[0], children[1], children[2], keys[0][1]),
)
