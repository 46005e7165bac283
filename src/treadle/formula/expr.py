"""Scalar expressions over index variables: one element of a tensor as a formula of its indices and of other tensors.

An `Expr` is immutable and interned: equal expressions are one object, so `==`, `hash` and dictionaries are cheap. Its
`dtype` is known from birth. A `Call` names an elementwise IR op, whose rules (reference, lowering, gradient, vector
code) are the meaning: there is no second table of functions here. `Placeholder` and `Compute` are the tensors that
expressions read; both compare by identity, as do `Axis` and `Param`. Indices are int64 and are clamped when read.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from treadle.base import dtypes
from treadle.base.dtypes import DType, bool_, float32, int64
from treadle.base.errors import UserError
from treadle.ir import op as op_table
from treadle.ir.node import attr_key
from treadle.ir.types import TensorType


class Expr:
    """One scalar value. `parts` are the expressions directly inside, `open` what it depends on (see `free`)."""

    __slots__ = ("__weakref__", "dtype", "open", "parts")
    dtype: DType
    parts: tuple[Expr, ...]
    open: frozenset[Expr]


class Const(Expr):
    """A number of an element type; `value` is a Python bool, int, float or complex."""

    __slots__ = ("value",)
    value: Any


class Axis(Expr):
    """An index variable that runs from 0 up to, not including, `extent`; int64. Two axes are never equal."""

    __slots__ = ("extent", "name")

    def __init__(self, name: str, extent: int) -> None:
        self.name, self.extent, self.dtype, self.parts = name, extent, int64, ()

    def __repr__(self) -> str:
        return f"<axis {self.name}:{self.extent}>"


class Param(Expr):
    """A scalar that stands for a value inside a combiner. Two are never equal."""

    __slots__ = ("name",)

    def __init__(self, name: str, dtype: DType) -> None:
        self.name, self.dtype, self.parts = name, dtype, ()


class Placeholder:
    """A tensor that is given from outside."""

    __slots__ = ("__weakref__", "name", "type")

    def __init__(self, name: str, type: TensorType) -> None:
        self.name, self.type = name, type


class Compute:
    """A tensor whose element at `axes` is `body`."""

    __slots__ = ("__weakref__", "axes", "body", "name", "type")

    def __init__(self, name: str, axes: Sequence[Axis], body: Expr) -> None:
        self.name, self.axes, self.body = name, tuple(axes), body
        self.type = TensorType(body.dtype, tuple([a.extent for a in axes]))


Source = Placeholder | Compute


class Read(Expr):
    """The element of `source` at `indices` (= `parts`), each clamped to 0..size-1."""

    __slots__ = ("source",)
    source: Source

    @property
    def indices(self) -> tuple[Expr, ...]:
        return self.parts


class Call(Expr):
    """An elementwise IR op, by name, on scalars (`args` = `parts`); `attrs` are sorted (name, value) pairs."""

    __slots__ = ("attrs", "op")
    op: str
    attrs: tuple[tuple[str, Any], ...]

    @property
    def args(self) -> tuple[Expr, ...]:
        return self.parts


class Combiner:
    """How a reduction joins two partial results: `results` are expressions of the params `left` and `right`.

    `kind` is the op's name where the combiner is plain ("add", "mul", "maximum", "minimum"), else "". It must be
    associative; `init` holds its neutral constants, one per part.
    """

    __slots__ = ("__weakref__", "init", "kind", "left", "results", "right")

    def __init__(
        self,
        left: Sequence[Param],
        right: Sequence[Param],
        results: Sequence[Expr],
        init: Sequence[Expr],
        kind: str = "",
    ) -> None:
        self.left, self.right, self.results = tuple(left), tuple(right), tuple(results)
        self.init, self.kind = tuple(init), kind

    def join(self, left: Sequence[Expr], right: Sequence[Expr]) -> tuple[Expr, ...]:
        """The results for two tuples of expressions."""
        to = dict(zip((*self.left, *self.right), (*left, *right), strict=True))
        return tuple([substitute(r, to) for r in self.results])


class Reduce(Expr):
    """Part `index` of `combiner` over the `bodies` (= `parts`) at every point of `axes`.

    Plain sums and products of 16-bit floats are kept in float32 and rounded once.
    """

    __slots__ = ("axes", "combiner", "index")
    combiner: Combiner
    axes: tuple[Axis, ...]
    index: int

    @property
    def bodies(self) -> tuple[Expr, ...]:
        return self.parts


_made: weakref.WeakValueDictionary[Any, Expr] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def _intern(kind: type[Any], parts: tuple[Expr, ...], dtype: DType, **fields: Any) -> Any:
    """The one object with these fields."""
    key = (kind, parts, dtype, *[attr_key(f) for f in fields.values()])
    with _lock:
        found = _made.get(key)
        if found is None:
            found = object.__new__(kind)
            found.parts, found.dtype = parts, dtype
            found.open = frozenset().union(*[free(p) for p in parts]) - frozenset(fields.get("axes", ()))
            for name, field in fields.items():
                setattr(found, name, field)
            _made[key] = found
    return found


def const(value: Any, dtype: DType) -> Const:
    """A constant, rounded to the element type. Raises E0115 for an integer that it cannot hold."""
    if dtype.is_integer:
        info = np.iinfo(dtype.np)
        if not info.min <= int(value) <= info.max:
            raise UserError("E0115", f"{value} is not in the range of {dtype.name}", fix="use a wider type")
        value = int(value)
    elif dtype is bool_:
        value = bool(value)
    else:
        with np.errstate(all="ignore"):
            exact = np.asarray(value).astype(dtype.np)
        value = complex(exact) if dtype.kind == "c" else float(exact)
    made: Const = _intern(Const, (), dtype, value=value)
    return made


def index(value: int) -> Const:
    """An int64 constant."""
    return const(value, int64)


TRUE, FALSE = const(True, bool_), const(False, bool_)


def call(name: str, *args: Expr, **attrs: Any) -> Call:
    """The elementwise op `name` on scalars. Raises what the op's type rule raises for wrong element types."""
    rule = op_table.get(name).rules["type"]
    dtype: DType = rule(*[TensorType(a.dtype, ()) for a in args], **attrs).dtype
    made: Call = _intern(Call, args, dtype, op=name, attrs=tuple(sorted(attrs.items())))
    return made


def read(source: Source, *indices: Expr) -> Read:
    """The element of `source` at `indices`; integers are cast to int64. Raises E0139 for a source without elements."""
    if len(indices) != source.type.rank:
        why = f"{source.name} has {source.type.rank} axes, {len(indices)} indices were given"
        raise UserError("E0107", why, fix="give one index per axis")
    for i in indices:
        if not i.dtype.is_integer:
            raise UserError("E0138", f"an index of {source.name} is {i.dtype}", fix="cast it to an integer")
    wide = tuple([i if i.dtype is int64 else call("cast", i, dtype=int64) for i in indices])
    made: Read = _intern(Read, wide, source.type.dtype, source=source)
    return made


def reduce(combiner: Combiner, bodies: Sequence[Expr], axes: Sequence[Axis], index: int = 0) -> Expr:
    """Part `index` of a reduction; over no axes a plain one is its body."""
    if not axes and combiner.kind:
        return bodies[0]
    made: Expr = _intern(
        Reduce, tuple(bodies), bodies[index].dtype, combiner=combiner, axes=tuple(axes), index=index
    )  # fmt: skip
    return made


_plain: dict[tuple[str, DType], Combiner] = {}


def plain(kind: str, dtype: DType) -> Combiner:
    """The combiner of an op with a neutral element: add, mul, maximum, minimum."""
    key = kind, dtype
    if key not in _plain:
        left, right = Param("l", dtype), Param("r", dtype)
        init = const(_neutral(kind, dtype), dtype)
        made = Combiner((left,), (right,), (call(kind, left, right),), (init,), kind)
        return _plain.setdefault(key, made)
    return _plain[key]


def _neutral(kind: str, dtype: DType) -> Any:
    if kind in ("add", "mul"):
        return int(kind == "mul")
    if kind not in ("maximum", "minimum"):
        raise UserError("E0103", f"{kind!r} is no plain reduction", fix="use a combiner")
    highest = kind == "minimum"
    if dtype.is_float:
        return float("inf") if highest else float("-inf")
    if dtype is bool_:
        return highest
    info = np.iinfo(dtype.np)
    return int(info.max if highest else info.min)


def fold(kind: str, body: Expr, axes: Sequence[Axis]) -> Expr:
    """A plain reduction of one body."""
    return reduce(plain(kind, body.dtype), (body,), axes)


def rebuild(expr: Expr, parts: Sequence[Expr]) -> Expr:
    """`expr` with other parts (of any types for a Call)."""
    if isinstance(expr, Call):
        return call(expr.op, *parts, **dict(expr.attrs))
    if isinstance(expr, Read):
        return read(expr.source, *parts)
    if isinstance(expr, Reduce):
        return reduce(expr.combiner, parts, expr.axes, expr.index)
    return expr


def post_order(*roots: Expr) -> Iterator[Expr]:
    """Every expression inside the roots once, parts first; sources that are read are not entered."""
    seen: set[Expr] = set()
    for root in roots:
        stack: list[tuple[Expr, bool]] = [(root, False)]
        while stack:
            expr, done = stack.pop()
            if done:
                yield expr
            elif expr not in seen:
                seen.add(expr)
                stack.append((expr, True))
                stack.extend((p, False) for p in reversed(expr.parts))


def rewrite(expr: Expr, step: Callable[[Expr, tuple[Expr, ...]], Expr]) -> Expr:
    """`step(old, new parts)` on every expression inside, parts first; what it gives takes the place of the old one."""
    done: dict[Expr, Expr] = {}
    for each in post_order(expr):
        done[each] = step(each, tuple([done[p] for p in each.parts]))
    return done[expr]


def with_parts(expr: Expr, parts: tuple[Expr, ...]) -> Expr:
    """`rebuild`, but the same object where nothing changed."""
    return expr if parts == expr.parts else rebuild(expr, parts)


def substitute(expr: Expr, to: Mapping[Any, Expr]) -> Expr:
    """`expr` with axes and params replaced. Bound axes of reductions are renewed, so nothing is captured."""
    keys = frozenset(to)
    done: dict[Expr, Expr] = {}
    stack = [expr]
    while stack:
        each = stack[-1]
        if each in done:
            stack.pop()
        elif not keys & free(each):
            done[each] = each
        elif isinstance(each, Axis | Param):
            done[each] = to[each]
        elif isinstance(each, Reduce):
            fresh = {a: Axis(a.name, a.extent) for a in each.axes}
            inner = {**{k: v for k, v in to.items() if k not in fresh}, **fresh}
            bodies = [substitute(b, inner) for b in each.bodies]
            done[each] = reduce(each.combiner, bodies, tuple(fresh.values()), each.index)
        elif todo := [p for p in each.parts if p not in done]:
            stack.extend(todo)
        else:
            done[each] = with_parts(each, tuple([done[p] for p in each.parts]))
    return done[expr]


def free(expr: Expr) -> frozenset[Expr]:
    """The axes and params that `expr` depends on and does not bind."""
    return frozenset((expr,)) if isinstance(expr, Axis | Param) else expr.open


def reads(*exprs: Expr) -> list[Read]:
    """Every Read inside, once, in order."""
    return [e for e in post_order(*exprs) if isinstance(e, Read)]


def sources(roots: Iterable[Source]) -> list[Source]:
    """The roots and all they read, directly or not; what is read comes first."""
    order: dict[Source, None] = {}
    stack: list[tuple[Source, bool]] = [(r, False) for r in reversed(list(roots))]
    while stack:
        source, done = stack.pop()
        if source in order:
            continue
        if done or isinstance(source, Placeholder):
            order[source] = None
            continue
        stack.append((source, True))
        stack.extend((r.source, False) for r in reads(source.body))
    return list(order)


def element(compute: Compute, indices: Sequence[Expr]) -> Expr:
    """The body of `compute` at `indices`, which must be inside it: the read, inlined."""
    return substitute(compute.body, dict(zip(compute.axes, indices, strict=True)))


def weak(value: Any, like: DType | None) -> Expr:
    """A Python number beside a value of type `like` (NumPy's weak rule for numbers); an Expr as it is."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, bool):
        return const(value, bool_ if like is None or like is bool_ else like)
    if isinstance(value, int):
        return const(value, like if like is not None and like is not bool_ else int64)
    if isinstance(value, float):
        return const(value, like if like is not None and like.is_inexact else float32)
    if isinstance(value, np.generic):
        return const(value.item(), dtypes.of(value.dtype))
    raise UserError("E0102", f"{value!r} is no scalar of a formula", fix="use numbers, index variables or elements")
