"""`te.Tensor`: a tensor of a formula, and what makes one: placeholder, compute, reductions.

`x[i, j]` (or `x(i, j)`) is an element; `+ - * /` and the functions of `treadle.te` work on whole tensors too and then
give tensors, with NumPy's broadcasting. Indices out of range are clamped into it: guard what should be zero with
`te.if_then_else`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from treadle.base import dtypes
from treadle.base.dtypes import DType, float32
from treadle.base.errors import UserError
from treadle.formula import expr as formula_expr
from treadle.formula.expr import Axis, Combiner, Compute, Const, Expr, Param, Placeholder, Source
from treadle.formula.simplify import tidy_indices
from treadle.ir.types import TensorType
from treadle.ops._types import broadcast_shapes
from treadle.te import _scalar
from treadle.te._scalar import Scalar


class Tensor:
    """A tensor of a formula; `source` is the placeholder or computed tensor of `treadle.formula`."""

    __slots__ = ("__weakref__", "source")

    def __init__(self, source: Source) -> None:
        self.source = source

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return self.source.type.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.source.type.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.source.type.rank

    @property
    def name(self) -> str:
        """The name it was given."""
        return self.source.name

    def __getitem__(self, indices: Any) -> Scalar:
        given = indices if isinstance(indices, tuple) else (indices,)
        return Scalar(formula_expr.read(self.source, *[_index(i) for i in given]))

    def __call__(self, *indices: Any) -> Scalar:
        return self[indices]

    def __add__(self, other: Any) -> Tensor:
        return whole(_scalar.Scalar.__add__, self, other)

    def __radd__(self, other: Any) -> Tensor:
        return whole(_scalar.Scalar.__radd__, self, other)

    def __sub__(self, other: Any) -> Tensor:
        return whole(_scalar.Scalar.__sub__, self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return whole(_scalar.Scalar.__rsub__, self, other)

    def __mul__(self, other: Any) -> Tensor:
        return whole(_scalar.Scalar.__mul__, self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return whole(_scalar.Scalar.__rmul__, self, other)

    def __truediv__(self, other: Any) -> Tensor:
        return whole(_scalar.Scalar.__truediv__, self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return whole(_scalar.Scalar.__rtruediv__, self, other)

    def __pow__(self, other: Any) -> Tensor:
        return whole(_scalar.Scalar.__pow__, self, other)

    def __neg__(self) -> Tensor:
        return whole(_scalar.Scalar.__neg__, self)

    def __repr__(self) -> str:
        return f"<te tensor {self.name}: {self.source.type}>"


def _index(i: Any) -> Expr:
    if isinstance(i, slice) or i is None or i is Ellipsis:
        raise UserError("E0107", "an element needs an index for every axis", fix="x[i, j]: one scalar per axis")
    return _scalar.lift(i).expr


def _shape(shape: Any) -> tuple[int, ...]:
    return (int(shape),) if isinstance(shape, int) else tuple([int(n) for n in shape])


def placeholder(shape: Any, dtype: Any = float32, name: str = "x") -> Tensor:
    """A tensor that is given when the operator is called. shape: sizes; dtype: element type."""
    return Tensor(Placeholder(name, TensorType(dtypes.of(dtype), _shape(shape))))


def compute(shape: Any, fn: Callable[..., Any], name: str = "compute") -> Any:
    """The tensor whose element at indices i, j, ... is `fn(i, j, ...)`; several tensors where fn gives a tuple.

    Raises E0109 for a negative size, and what the expressions raise.
    """
    sizes = _shape(shape)
    if any(n < 0 for n in sizes):
        raise UserError("E0109", f"the shape {list(sizes)} has a negative size", fix="use sizes of 0 and more")
    axes = [Axis("ijklmnop"[d] if d < 8 else f"i{d}", n) for d, n in enumerate(sizes)]
    body = fn(*[Scalar(a) for a in axes])
    if isinstance(body, tuple | list):
        return tuple([_computed(f"{name}_{n}", axes, b) for n, b in enumerate(body)])
    return _computed(name, axes, body)


def _computed(name: str, axes: Sequence[Axis], body: Any) -> Tensor:
    expr = _scalar.lift(body).expr
    loose = [a for a in formula_expr.free(expr) if a not in axes]
    if loose:
        names = ", ".join(a.name for a in loose if isinstance(a, Axis | Param))
        raise UserError("E0103", f"{name} uses {names} outside a reduction", fix="reduce over it: te.sum(..., axis=k)")
    return Tensor(Compute(name, axes, tidy_indices(expr)))


def whole(fn: Callable[..., Any], *args: Any, name: str = "") -> Tensor:
    """A function of scalars applied to each element of tensors and numbers, broadcast together."""
    shape = broadcast_shapes(*[a.shape for a in args if isinstance(a, Tensor)])

    def element(*indices: Scalar) -> Any:
        return fn(*[_at(a, indices) if isinstance(a, Tensor) else a for a in args])

    made: Tensor = compute(shape, element, name or fn.__name__.strip("_"))
    return made


def _at(x: Tensor, indices: tuple[Scalar, ...]) -> Scalar:
    own = indices[len(indices) - x.ndim :]
    return x[tuple([0 if n == 1 else i for n, i in zip(x.shape, own, strict=True)])]


class ReduceAxis(Scalar):
    """An index variable of a reduction, from `start` up to, not including, `start + extent`."""

    __slots__ = ("axis",)

    def __init__(self, axis: Axis, start: int) -> None:
        self.axis = axis
        super().__init__((Scalar(axis) + start).expr if start else axis)


def reduce_axis(bounds: Any, name: str = "k") -> ReduceAxis:
    """A variable to reduce over: `reduce_axis(n)` or `reduce_axis((start, stop))`."""
    start, stop = (0, bounds) if isinstance(bounds, int) else bounds
    if stop < start:
        raise UserError("E0109", f"a reduction from {start} to {stop}", fix="give start <= stop")
    return ReduceAxis(Axis(name, int(stop) - int(start)), int(start))


def _reduced(combiner: Combiner, bodies: Sequence[Expr], axis: Any) -> tuple[Scalar, ...]:
    """All parts of a reduction; its axes are renewed, so that one variable may serve several reductions."""
    given = axis if isinstance(axis, tuple | list) else (axis,)
    if not all(isinstance(a, ReduceAxis) for a in given):
        raise UserError("E0107", f"{axis!r} is no axis to reduce over", fix="k = te.reduce_axis(n)")
    fresh = {a.axis: Axis(a.axis.name, a.axis.extent) for a in given}
    renewed = [formula_expr.substitute(b, fresh) for b in bodies]
    axes = tuple(fresh.values())
    return tuple([Scalar(formula_expr.reduce(combiner, renewed, axes, n)) for n in range(len(bodies))])


def plain(kind: str, x: Any, axis: Any) -> Scalar:
    """A reduction by one of add, mul, maximum, minimum."""
    body = _scalar.lift(x)
    return _reduced(formula_expr.plain(kind, body.dtype), (body.expr,), axis)[0]


def comm_reducer(fcombine: Callable[..., Any], fidentity: Callable[..., Any], name: str = "reduce") -> Any:
    """An own reduction: fcombine(x, y) joins two partial results, fidentity(dtype) is neutral.

    For several results at once both take and give tuples: fcombine((x0, x1), (y0, y1)), fidentity(dtype0, dtype1). The
    result is called as `r(value or values, axis=k)`. fcombine must be associative.
    """

    def reducer(x: Any, axis: Any) -> Any:
        several = isinstance(x, tuple | list)
        bodies = [_scalar.lift(v) for v in (x if several else (x,))]
        left = [Param(f"l{n}", b.dtype) for n, b in enumerate(bodies)]
        right = [Param(f"r{n}", b.dtype) for n, b in enumerate(bodies)]
        a, b = [Scalar(p) for p in left], [Scalar(p) for p in right]
        joined = fcombine(tuple(a), tuple(b)) if several else (fcombine(a[0], b[0]),)
        init = fidentity(*[s.dtype for s in bodies])
        neutral = [_neutral(v, s.dtype) for v, s in zip(init if several else (init,), bodies, strict=True)]
        results = [_scalar.lift(r, s.dtype).astype(s.dtype).expr for r, s in zip(joined, bodies, strict=True)]
        loose = [e for r in results for e in formula_expr.free(r) if e not in {*left, *right}]
        if loose or any(formula_expr.reads(r) for r in results):
            raise UserError("E0103", f"{name} uses more than its two arguments", fix="join only x and y")
        made = _reduced(Combiner(left, right, results, neutral), [s.expr for s in bodies], axis)
        return made if several else made[0]

    reducer.__name__ = name
    return reducer


def _neutral(value: Any, dtype: DType) -> Expr:
    expr = _scalar.lift(value, dtype).expr
    if not isinstance(expr, Const):
        raise UserError("E0103", f"the neutral element {value!r} is no number", fix="return a Python number")
    return formula_expr.const(expr.value, dtype)
