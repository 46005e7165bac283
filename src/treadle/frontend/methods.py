"""Operators and methods of `Tensor`, made of the surface functions.

Operators promote and broadcast as NumPy does, Python numbers being weak. `x += y` and `x[i] = v` change the tensor
itself: its handle gets a new value of its old type. Everything else gives new tensors.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from treadle.base import arguments, dtypes, elsewhere
from treadle.base.errors import UserError, UserTypeError, no_attribute
from treadle.frontend import counting, elementwise, functions, indexing, interop, logic, quick
from treadle.frontend import scatter as scattering
from treadle.frontend.lift import fresh, is_array, is_number, is_tensor, register_tensor, weak_type
from treadle.ops import products

KINDS = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}


def _operator(function: Callable[..., Any], op: Any = None, short: Callable[..., Any] = quick.pairwise) -> Any:
    """x op y; anything but tensors, arrays and numbers is left to the other operand. op: where it is not the one that
    the function wraps."""
    op = op or getattr(function, "__wrapped__", None)
    direct = None if op is None else op.numpy_function()

    def method(self: Any, other: Any) -> Any:
        return function(self, other) if _fits(other) else _refused(other)

    return method if direct is None else short(direct, method)


def _reflected(function: Callable[..., Any]) -> Any:
    """y op x."""
    op = getattr(function, "__wrapped__", None)
    direct = None if op is None else op.numpy_function()

    def method(self: Any, other: Any) -> Any:
        return function(other, self) if _fits(other) else _refused(other)

    return method if direct is None else quick.reflected(direct, method)


def _fits(other: Any) -> bool:
    return is_tensor(other) or is_number(other) or is_array(other)


def _refused(other: Any) -> Any:
    """NotImplemented, so that Python asks the other operand; E0102 where that is a plain value without numbers."""
    if isinstance(other, str | bytes | list | tuple | dict | set | types.FunctionType | None):
        why = f"a tensor and {arguments.brief(other)} cannot be operands of one operation"
        raise UserTypeError("E0102", why, fix="make it a tensor of numbers: td.tensor(...)")
    return NotImplemented


def _in_place(function: Callable[..., Any]) -> Any:
    """x op= y: x keeps its type. A Python number that is an input of a traced function is replaced, as numbers are."""

    def method(self: Any, other: Any) -> Any:
        if not _fits(other):
            return _refused(other)
        result = function(self, other)
        if weak_type(self) is not None:
            return result
        if KINDS[result.dtype.kind] > KINDS[self.dtype.kind]:
            why = f"the result is {result.dtype}, the tensor {self.type}, which cannot hold it"
            raise UserError("E0504", why, fix="write x = x + y instead of x += y, or cast the result")
        self._set(result.astype(self.dtype))
        return self

    return method


class TensorMethods(interop.StandardMethods):
    """Mixed into Tensor."""

    __slots__ = ()

    def __init_subclass__(cls, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        register_tensor(cls)

    # --------------------------------------------------------------------------------------------------- operators
    __add__, __radd__, __iadd__ = (f(elementwise.add) for f in (_operator, _reflected, _in_place))
    __sub__, __rsub__, __isub__ = (f(elementwise.subtract) for f in (_operator, _reflected, _in_place))
    __mul__, __rmul__, __imul__ = (f(elementwise.multiply) for f in (_operator, _reflected, _in_place))
    __truediv__, __rtruediv__, __itruediv__ = (f(elementwise.divide) for f in (_operator, _reflected, _in_place))
    __floordiv__, __rfloordiv__, __ifloordiv__ = (
        f(elementwise.floor_divide) for f in (_operator, _reflected, _in_place)
    )
    __mod__, __rmod__, __imod__ = (f(elementwise.remainder) for f in (_operator, _reflected, _in_place))
    __pow__, __rpow__, __ipow__ = (f(elementwise.pow) for f in (_operator, _reflected, _in_place))
    __matmul__ = _operator(functions.matmul, products.matmul, quick.product)
    __rmatmul__, __imatmul__ = _reflected(functions.matmul), _in_place(functions.matmul)
    __and__, __rand__, __iand__ = (f(logic.bitwise_and) for f in (_operator, _reflected, _in_place))
    __or__, __ror__, __ior__ = (f(logic.bitwise_or) for f in (_operator, _reflected, _in_place))
    __xor__, __rxor__, __ixor__ = (f(logic.bitwise_xor) for f in (_operator, _reflected, _in_place))
    __lshift__, __rlshift__, __ilshift__ = (f(logic.bitwise_left_shift) for f in (_operator, _reflected, _in_place))
    __rshift__, __rrshift__, __irshift__ = (f(logic.bitwise_right_shift) for f in (_operator, _reflected, _in_place))
    __lt__, __le__ = _operator(logic.less), _operator(logic.less_equal)
    __gt__, __ge__ = _operator(logic.greater), _operator(logic.greater_equal)

    def __eq__(self, other: Any) -> Any:
        """Elementwise, bool; with None or anything that is no number, array or tensor: False."""
        return logic.equal(self, other) if _fits(other) else False

    def __ne__(self, other: Any) -> Any:
        return logic.not_equal(self, other) if _fits(other) else True

    def __neg__(self) -> Any:
        return elementwise.negative(self)

    def __pos__(self) -> Any:
        return fresh(self)

    def __abs__(self) -> Any:
        return elementwise.abs(self)

    def __invert__(self) -> Any:
        return logic.bitwise_not(self)

    if not TYPE_CHECKING:  # type checkers know the attributes

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            raise no_attribute(f"a {type(self).__name__}", name, lambda: dir(type(self)), elsewhere.TENSOR)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    # ---------------------------------------------------------------------------------------------------- indexing
    def __getitem__(self, index: Any) -> Any:
        found = quick.item(self, index)
        return indexing.get(self, index) if found is None else found

    def __setitem__(self: Any, index: Any, value: Any) -> None:
        if weak_type(self) is not None:
            raise UserError("E0505", "a Python number has no elements to set", fix="pass a tensor: td.tensor(...)")
        self._set(indexing.put(self, index, value))

    @property
    def at(self) -> Any:
        """x.at[index].add(v): x with v added at index, a new tensor; so also set, multiply, divide, max, min."""
        return scattering.At(self)

    def __iter__(self: Any) -> Iterator[Any]:
        if not self.shape:
            raise UserError("E0107", "a 0-d tensor has no axis to go along", fix="use .item()")
        return iter([self[i] for i in range(self.shape[0])])

    # ------------------------------------------------------------------------------------------------------ shapes
    @property
    def T(self) -> Any:
        """The axes in opposite order."""
        found = quick.transposed(self)
        return functions.transpose(self) if found is None else found

    @property
    def mT(self) -> Any:
        """The last two axes exchanged."""
        return functions.matrix_transpose(self)

    def dim(self: Any) -> Any:
        """The number of axes."""
        return len(self.shape)

    def numel(self: Any) -> Any:
        """The number of elements."""
        return self.size

    def clone(self) -> Any:
        """Another tensor with the same elements; derivatives pass through."""
        return fresh(self)

    def detach(self) -> Any:
        """The same elements, which derivatives do not pass."""
        return functions.stop_gradient(self)

    def to(self: Any, dtype: Any) -> Any:
        """The same elements in another type. Raises E0103 for the name of a device."""
        if isinstance(dtype, str) and dtype.split(":")[0] in ("cpu", "cuda", "gpu", "tpu", "mps"):
            fix = f"choose the device in the environment: TREADLE_PLATFORM={dtype.split(':')[0]}"
            raise UserError("E0103", f"{dtype!r} is a device; .to() takes an element type", fix=fix)
        made = self.astype(dtype)
        return fresh(made) if made is self else made

    def half(self) -> Any:
        """As float16."""
        return self.to(dtypes.float16)

    def bfloat16(self) -> Any:
        """As bfloat16."""
        return self.to(dtypes.bfloat16)

    def float(self) -> Any:
        """As float32."""
        return self.to(dtypes.float32)

    def double(self) -> Any:
        """As float64."""
        return self.to(dtypes.float64)

    def int(self) -> Any:
        """As int32; floats round toward zero."""
        return self.to(dtypes.int32)

    def long(self) -> Any:
        """As int64; floats round toward zero."""
        return self.to(dtypes.int64)

    def bool(self) -> Any:
        """Whether each element is not zero."""
        return self.to(dtypes.bool_)

    # ------------------------------------------------- functions whose first argument is the tensor, as methods
    sum, prod, mean, max, min = functions.sum, functions.prod, functions.mean, functions.max, functions.min
    amax, amin, all, any, var = functions.amax, functions.amin, functions.all, functions.any, functions.var
    std, logsumexp, norm, cumsum = functions.std, functions.logsumexp, functions.norm, functions.cumsum
    argmax, argmin, sort, argsort = functions.argmax, functions.argmin, functions.sort, functions.argsort
    topk, reshape, flatten, squeeze = functions.topk, functions.reshape, functions.flatten, functions.squeeze
    unsqueeze, expand_dims, transpose = functions.unsqueeze, functions.expand_dims, functions.transpose
    permute, swapaxes, moveaxis = functions.permute, functions.swapaxes, functions.moveaxis
    broadcast_to, expand, split = functions.broadcast_to, functions.expand, functions.split
    chunk, tile, repeat_interleave = functions.chunk, functions.tile, functions.repeat_interleave
    flip, roll, tril, triu = functions.flip, functions.roll, functions.tril, functions.triu
    diagonal, trace, take, gather = functions.diagonal, functions.trace, functions.take, functions.gather
    take_along_axis, matmul, dot = functions.take_along_axis, functions.matmul, functions.dot
    outer, softmax, log_softmax = functions.outer, functions.softmax, functions.log_softmax
    clip, clamp, maximum, minimum = functions.clip, functions.clamp, functions.maximum, functions.minimum
    pow, exp, expm1, log, log1p = functions.pow, functions.exp, functions.expm1, functions.log, functions.log1p
    log2, log10, sqrt, rsqrt = functions.log2, functions.log10, functions.sqrt, functions.rsqrt
    square, reciprocal, sin, cos = functions.square, functions.reciprocal, functions.sin, functions.cos
    tan, sinh, cosh, arcsin = functions.tan, functions.sinh, functions.cosh, functions.arcsin
    arccos, arctan, tanh, sigmoid = functions.arccos, functions.arctan, functions.tanh, functions.sigmoid
    relu, erf, erfinv, abs = functions.relu, functions.erf, functions.erfinv, functions.abs
    sign, floor, ceil, round = functions.sign, functions.floor, functions.ceil, functions.round
    trunc, isfinite, isnan, isinf = functions.trunc, functions.isfinite, functions.isnan, functions.isinf
    real, imag, conj, add, sub = functions.real, functions.imag, functions.conj, functions.add, functions.sub
    mul, div, neg, equal = functions.mul, functions.div, functions.neg, functions.equal
    logical_and, logical_or, logical_xor = functions.logical_and, functions.logical_or, functions.logical_xor
    logical_not, remainder, floor_divide = functions.logical_not, functions.remainder, functions.floor_divide
    scatter, scatter_add, scatter_reduce = scattering.scatter, scattering.scatter_add, scattering.scatter_reduce
    index_add, index_copy, index_fill = scattering.index_add, scattering.index_copy, scattering.index_fill
    index_reduce, masked_fill = scattering.index_reduce, scattering.masked_fill
    masked_scatter, put_along_axis = scattering.masked_scatter, scattering.put_along_axis
    masked_select, unique, nonzero = counting.masked_select, counting.unique, counting.nonzero
    argwhere, count_nonzero = counting.argwhere, counting.count_nonzero
    view = functions.reshape  # there are no views: another shape is another tensor
