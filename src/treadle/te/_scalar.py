"""`Scalar`: an expression with operators, what the function given to `te.compute` receives and returns.

Numbers are weak beside values of tensors, and so are index variables: `x[i] * 2 + i` has the type of x. Comparisons
give bool scalars (also `==`), to be used with `te.if_then_else`, `te.all`, `te.any`; a Python `if` is refused.
"""

from __future__ import annotations

from typing import Any

from treadle.base import dtypes
from treadle.base.dtypes import DType, float32, int64
from treadle.base.errors import UserError
from treadle.formula.expr import Axis, Call, Const, Expr, call, const, post_order


class Scalar:
    """One value inside a formula; `expr` is the expression."""

    __slots__ = ("expr",)

    def __init__(self, expr: Expr) -> None:
        self.expr = expr

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.expr.dtype

    @property
    def weak(self) -> bool:
        """Index arithmetic: takes the type of the values beside it."""
        return self.dtype is int64 and all(isinstance(e, Axis | Const | Call) for e in post_order(self.expr))

    def astype(self, dtype: Any) -> Scalar:
        """The value in another element type."""
        target = dtypes.of(dtype)
        return self if target is self.dtype else Scalar(call("cast", self.expr, dtype=target))

    def __add__(self, other: Any) -> Scalar:
        return apply("add", self, other)

    def __radd__(self, other: Any) -> Scalar:
        return apply("add", other, self)

    def __sub__(self, other: Any) -> Scalar:
        return apply("sub", self, other)

    def __rsub__(self, other: Any) -> Scalar:
        return apply("sub", other, self)

    def __mul__(self, other: Any) -> Scalar:
        return apply("mul", self, other)

    def __rmul__(self, other: Any) -> Scalar:
        return apply("mul", other, self)

    def __truediv__(self, other: Any) -> Scalar:
        return divided(self, other)

    def __rtruediv__(self, other: Any) -> Scalar:
        return divided(other, self)

    def __floordiv__(self, other: Any) -> Scalar:
        return apply("floor_div", self, other)

    def __rfloordiv__(self, other: Any) -> Scalar:
        return apply("floor_div", other, self)

    def __mod__(self, other: Any) -> Scalar:
        return apply("remainder", self, other)

    def __rmod__(self, other: Any) -> Scalar:
        return apply("remainder", other, self)

    def __pow__(self, other: Any) -> Scalar:
        return apply("pow", self, other)

    def __rpow__(self, other: Any) -> Scalar:
        return apply("pow", other, self)

    def __neg__(self) -> Scalar:
        return apply("neg", self)

    def __abs__(self) -> Scalar:
        return apply("abs", self)

    def __lt__(self, other: Any) -> Scalar:
        return apply("less", self, other)

    def __le__(self, other: Any) -> Scalar:
        return apply("less_equal", self, other)

    def __gt__(self, other: Any) -> Scalar:
        return apply("greater", self, other)

    def __ge__(self, other: Any) -> Scalar:
        return apply("greater_equal", self, other)

    def __eq__(self, other: object) -> Scalar:  # type: ignore[override]
        return apply("equal", self, other)

    def __ne__(self, other: object) -> Scalar:  # type: ignore[override]
        return apply("not_equal", self, other)

    def __and__(self, other: Any) -> Scalar:
        return apply("logical_and", self, other)

    def __or__(self, other: Any) -> Scalar:
        return apply("logical_or", self, other)

    def __invert__(self) -> Scalar:
        return apply("logical_not", self)

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        why = "a formula has no truth value while it is written: it stands for every element"
        raise UserError("E0206", why, fix="te.if_then_else(cond, a, b), te.all(...), te.any(...)")

    def __repr__(self) -> str:
        return f"<te scalar {self.dtype}>"


def lift(x: Any, like: DType | None = None) -> Scalar:
    """A scalar of a number (typed as `like` where that can hold its kind), a scalar as it is. Raises E0102."""
    if isinstance(x, Scalar):
        return x
    if isinstance(x, Expr):
        return Scalar(x)
    if hasattr(x, "dtype") and not getattr(x, "shape", None):
        return Scalar(const(x.item(), dtypes.of(x.dtype)))
    if not isinstance(x, bool | int | float | complex):
        raise UserError("E0102", f"{x!r} is no scalar of a formula", fix="use numbers, index variables or elements")
    plain = {bool: dtypes.bool_, int: int64, float: float32, complex: dtypes.complex64}[type(x)]
    return Scalar(const(x, plain if like is None else dtypes.promote_scalar(like, type(x))))


def together(*values: Any) -> list[Scalar]:
    """Scalars of one element type: NumPy's promotion, numbers and index arithmetic being weak."""
    strong = [v.dtype for v in values if isinstance(v, Scalar) and not v.weak]
    strong += [dtypes.of(v.dtype) for v in values if not isinstance(v, Scalar) and hasattr(v, "dtype")]
    if not strong:
        kinds = [int if isinstance(v, Scalar) else type(v) for v in values]
        target = int64 if int in kinds or any(isinstance(v, Scalar) for v in values) else dtypes.bool_
    else:
        target = dtypes.promote(*strong)
        kinds = [int if isinstance(v, Scalar) else type(v) for v in values if isinstance(v, Scalar) and v.weak]
        kinds += [type(v) for v in values if isinstance(v, bool | int | float | complex) and not hasattr(v, "dtype")]
    for kind in kinds:
        if kind in (int, float, complex):
            target = dtypes.promote_scalar(target, kind)
    return [_typed(v, target) for v in values]


def _typed(value: Any, target: DType) -> Scalar:
    if isinstance(value, int | float | complex) and not hasattr(value, "dtype"):
        return Scalar(const(value, target))
    return lift(value).astype(target)


def apply(name: str, *values: Any, **attrs: Any) -> Scalar:
    """The elementwise op `name` on scalars and numbers of one type."""
    return Scalar(call(name, *[s.expr for s in together(*values)], **attrs))


def divided(x: Any, y: Any) -> Scalar:
    """x / y; integers are divided as float32, as tensors are."""
    a, b = together(x, y)
    return apply("div", a, b) if a.dtype.is_inexact else apply("div", a.astype(float32), b.astype(float32))


def select(cond: Any, x: Any, y: Any) -> Scalar:
    """x where cond holds, else y; the side that is not chosen has no influence on the derivative."""
    a, b = together(x, y)
    return Scalar(call("select", lift(cond).expr, a.expr, b.expr))
