"""A Python number that is an input of a traced function: it computes as a Python number does and stays one.

In eager mode such a number is a plain float; here it is a 0-d IR value in double precision whose kind (bool, int,
float, complex) is remembered. With another number it gives a number again, with a tensor it takes the tensor's type;
functions that make a tensor of a float make the same tensor of it (`Tensor.strong`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.frontend import trace as tracing
from treadle.frontend.lift import cast, is_number, weak_type, wrapped
from treadle.frontend.methods import TensorMethods
from treadle.ops import compare, elementwise, functions

_WIDE = {bool: dtypes.bool_, int: dtypes.int64, float: dtypes.float64, complex: dtypes.complex128}
_KINDS: dict[str, type] = {"b": bool, "i": int, "f": float, "c": complex}
_ORDER = list(_WIDE)


def compute(op: Callable[..., Any], *numbers: Any, least: type = int) -> Any:
    """An op on Python numbers of which some are inputs of the trace, in the highest kind among them (at least `least`).

    Raises E0202 where the trace is over.
    """
    trace = tracing.current()
    if trace is None:
        raise UserError("E0202", "an input of a traced function is used after it ended", fix="return it instead")
    kind = max([least, *[weak_type(x) or type(x) for x in numbers]], key=_ORDER.index)
    result = op(*[kind(x) if is_number(x) else cast(trace.read(x), _WIDE[kind]) for x in numbers])
    return wrapped(result, _KINDS[result.dtype.kind])


def _pair(op: Callable[..., Any], name: str, least: type = int) -> tuple[Any, Any]:
    """x op y and y op x; beside a tensor or array as for tensors."""
    plain, reflected = (getattr(TensorMethods, f"__{prefix}{name}__") for prefix in ("", "r"))

    def method(self: Any, other: Any) -> Any:
        return compute(op, self, other, least=least) if _is_number(other) else plain(self, other)

    def mirrored(self: Any, other: Any) -> Any:
        return compute(op, other, self, least=least) if _is_number(other) else reflected(self, other)

    return method, mirrored


def _comparison(op: Callable[..., Any], name: str) -> Any:
    plain = getattr(TensorMethods, f"__{name}__")

    def method(self: Any, other: Any) -> Any:
        return compute(op, self, other) if _is_number(other) else plain(self, other)

    return method


def _is_number(x: Any) -> bool:
    return is_number(x) or weak_type(x) is not None


def _whole(op: Callable[..., Any]) -> Any:
    """A rounding to an int."""

    def method(self: Any) -> Any:
        rounded = compute(op, self, least=float)
        return compute(lambda x: cast(x, dtypes.int64), rounded, least=float)

    return method


class NumberMethods:
    """Mixed into the class of such numbers, before the tensor's own methods."""

    __slots__ = ()

    __add__, __radd__ = _pair(elementwise.add, "add")
    __sub__, __rsub__ = _pair(elementwise.sub, "sub")
    __mul__, __rmul__ = _pair(elementwise.mul, "mul")
    __truediv__, __rtruediv__ = _pair(elementwise.div, "truediv", float)
    __floordiv__, __rfloordiv__ = _pair(elementwise.floor_div, "floordiv")
    __mod__, __rmod__ = _pair(elementwise.remainder, "mod")
    __pow__, __rpow__ = _pair(functions.pow, "pow")
    # A number cannot be changed: `s += 1` gives the name another one.
    __iadd__, __isub__, __imul__, __itruediv__ = __add__, __sub__, __mul__, __truediv__
    __ifloordiv__, __imod__, __ipow__ = __floordiv__, __mod__, __pow__
    __lt__, __le__ = _comparison(compare.less, "lt"), _comparison(compare.less_equal, "le")
    __gt__, __ge__ = _comparison(compare.greater, "gt"), _comparison(compare.greater_equal, "ge")
    __eq__, __ne__ = _comparison(compare.equal, "eq"), _comparison(compare.not_equal, "ne")
    __trunc__, __floor__, __ceil__ = _whole(elementwise.trunc), _whole(elementwise.floor), _whole(elementwise.ceil)

    def __neg__(self) -> Any:
        return compute(elementwise.neg, self)

    def __pos__(self) -> Any:
        return compute(lambda x: x, self)

    def __abs__(self) -> Any:
        return compute(elementwise.abs, self)

    def __round__(self, digits: Any = None) -> Any:
        if digits is not None:
            why = "a Python number that is an input of a traced function is rounded to decimals"
            raise UserError("E0206", why, fix="round it outside, or use td.round on a tensor")
        return _whole(elementwise.round)(self)

    def __hash__(self) -> int:
        """Raises E0249: two equal numbers would be two keys."""
        if not tracing.is_symbolic(self):
            return id(self)
        why = "a number that a tensor tells is put into a set, or is a key of a dict, while the function is traced"
        raise UserError("E0249", why, fix="compare it with ==; d[int(n)], d.get(int(n)) and in may be used")
