"""`Tensor`: a mutable handle on an immutable value, which is an array (eager) or an IR value (inside a traced
function).

Every op reaches `__treadle_op__`: in a trace it builds a node, else the executor that the driver installed runs the op
at once. `x += 1` and `x[i] = v` give the handle another value; indexing and reshaping give new tensors, never views.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle.base import arguments, dtypes
from treadle.base.dtypes import DType
from treadle.base.errors import UserError
from treadle.frontend import casting, interop, quick
from treadle.frontend import tape as taping
from treadle.frontend import trace as tracing
from treadle.frontend.methods import TensorMethods
from treadle.frontend.numbers import NumberMethods
from treadle.frontend.trace import Trace
from treadle.ir import op as op_table
from treadle.ir.build import apply
from treadle.ir.node import Value
from treadle.ir.op import Op
from treadle.ir.types import TensorType

Executor = Callable[[Op, Sequence[Any], dict[str, Any]], Any]


class _Hooks:
    """What higher layers install: how to run one op, to bring a device array to the host, to hook a gradient."""

    def __init__(self) -> None:
        self.run_op: Executor | None = None
        self.to_numpy: Callable[[Any], np.ndarray[Any, Any]] = np.asarray
        self.register_hook: Callable[[Tensor, Callable[[Any], Any]], Any] | None = None


hooks = _Hooks()


class Tensor(TensorMethods):
    """An array with a fixed type. Tensor(data, dtype=None): data is a number, nested list, NumPy array or tensor.

    Python floats become float32 and ints int64 unless `dtype` says otherwise; NumPy arrays keep their type.
    Raises E0101 for element types that are none.
    """

    __slots__ = ("__weakref__", "_trace", "_value", "_weak")
    _value: Any
    _trace: Trace | None
    _weak: type | None

    def __init__(self, data: Any, dtype: Any = None) -> None:
        self._trace, self._weak = None, None
        if isinstance(data, Tensor):
            same = data.strong().copy() if dtype is None else data.astype(dtype)
            self._value, self._trace = same._value, same._trace
            return
        array = arguments.array(data)
        if not isinstance(data, list | tuple | int | float | complex):  # a list has just been copied
            array = np.array(array, copy=True)
        if not hasattr(data, "dtype") and dtype is None:
            dtype = {"f": dtypes.float32, "c": dtypes.complex64}.get(array.dtype.kind)
        target = dtypes.of(array.dtype if dtype is None else dtype)
        if not hasattr(data, "dtype"):
            _check_range(array, target)
        self._value = array if array.dtype == target.np else array.astype(target.np)

    @classmethod
    def _of(cls, value: Any, trace: Trace | None = None, weak: type | None = None) -> Tensor:
        """A handle on a value that is there already."""
        made = object.__new__(Tensor if weak is None else Number)
        made._value, made._trace, made._weak = value, trace, weak
        if trace is not None:
            trace.made.append(weakref.ref(made))
        return made

    def _set(self, other: Tensor) -> None:
        """Give this handle the value of another, of the same type (E0503)."""
        if other.type != self.type:
            raise UserError("E0503", f"a tensor {self.type} cannot become {other.type}", fix="keep shape and dtype")
        trace = tracing.current()
        if trace is not None:
            trace.write(self, trace.read(other))
        else:
            if other._trace is not None:
                tracing.refuse_escaped()
            self._value, self._trace = other._value, None
            if taping.owners:
                taping.note_change(self)

    # ------------------------------------------------------------------------------------------------ ops
    @staticmethod
    def __treadle_op__(op: Op, args: Sequence[Any], attrs: dict[str, Any]) -> Any:
        if "amp" in op.rules:
            args, attrs = casting.applied(op, args, attrs)
        trace = tracing.current()
        if trace is None:
            if hooks.run_op is None:
                raise UserError("E0203", "tensors need the runtime", fix="import treadle, not its parts")
            try:
                return hooks.run_op(op, args, attrs)
            except UserError as error:
                if error.code != "E0402":
                    raise
            with tracing.state_lock:  # a program of another thread had taken the array: now it is back
                return hooks.run_op(op, args, attrs)
        values = [
            trace.read(a)
            if isinstance(a, Tensor)
            else trace.constant(a)
            if isinstance(a, np.ndarray | np.generic)
            else a
            for a in args
        ]
        result = apply(op, strengthen(values, args), attrs)
        if isinstance(result, Value):
            return Tensor._of(result, trace)
        return tuple([Tensor._of(r, trace) for r in result])

    # ------------------------------------------------------------------------------------------------ facts
    @property
    def type(self) -> TensorType:
        """The IR type: element type and sizes."""
        value = self._value
        return value.type if isinstance(value, Value) else TensorType(dtypes.of(value.dtype), tuple(value.shape))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._value.shape)

    @property
    def dtype(self) -> DType:
        return dtypes.of(self._value.dtype)

    @property
    def ndim(self) -> int:
        return len(self._value.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.type.size

    def __len__(self) -> int:
        if not self.shape:
            raise UserError("E0107", "a 0-d tensor has no length", fix="use .size or .ndim")
        return self.shape[0]

    # ------------------------------------------------------------------------------------------------ to Python
    def numpy(self) -> np.ndarray[Any, Any]:
        """The elements as a NumPy array (a copy: later changes of either are not seen by the other)."""
        if tracing.is_symbolic(self):
            if self._trace is not None and not self._trace.open:
                tracing.refuse_escaped()
            raise UserError(
                "E0204",
                f"the numbers of a tensor {self.type} are not known while the function is being traced",
                fix="return the tensor and look at it outside, or run in eager mode",
            )
        array = np.array(tracing.settled(lambda: hooks.to_numpy(self._value)), copy=True)
        if (trace := tracing.current()) is not None:
            trace.note_numbers(self, array)
        return array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """As `numpy`; copy=False gives a read-only view of the memory (ValueError where only a copy can be had)."""
        if copy is not False:
            array = self.numpy()
            return array if dtype is None else array.astype(dtype, copy=False)
        return interop.numpy_view(self, dtype)

    def item(self) -> Any:
        """The only element as a Python number. Raises E0205 when there is more than one."""
        if self.size != 1:
            raise UserError("E0205", f"{self.type} has {self.size} elements, not one", fix="index it, or use .tolist()")
        return self.numpy().item()

    def tolist(self) -> Any:
        """Nested Python lists of the elements."""
        return self.numpy().tolist()

    def _scalar(self, wanted: str) -> Any:
        if tracing.is_symbolic(self):
            raise UserError(
                "E0206",
                f"{wanted} of a tensor {self.type} is asked for while the function is traced: it has no value yet",
                fix="use td.cond, td.while_loop or td.where for decisions on tensors, or run in eager mode",
            )
        return self.item()

    def __bool__(self) -> bool:
        return bool(self._scalar("the truth value"))

    def _refuse_complex(self) -> None:
        if self.dtype.kind == "c":
            raise UserError("E0106", f"{self.type} is no real number", fix="take td.real(x) or td.abs(x) first")

    def __int__(self) -> int:
        self._refuse_complex()
        return int(self._scalar("the int"))

    def __float__(self) -> float:
        self._refuse_complex()
        return float(self._scalar("the float"))

    def __complex__(self) -> complex:
        return complex(self._scalar("the complex number"))

    def __index__(self) -> int:
        if not self.dtype.is_integer:
            raise UserError("E0106", f"{self.type} cannot be an index", fix="cast it to an integer type")
        return int(self._scalar("the int"))

    def __repr__(self) -> str:
        if tracing.is_symbolic(self):
            return f"Tensor({self.type}, traced)"
        body = interop.text_of(self.numpy(), "Tensor(")
        return f"Tensor({body}, dtype={self.dtype.name})"

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    def __hash__(self) -> int:
        return id(self)

    __array_priority__ = 100
    __array_ufunc__ = None

    # ------------------------------------------------------------------------------------------------ gradients
    def register_hook(self, hook: Callable[[Any], Any]) -> Any:
        """Call `hook(gradient)` in a backward pass with the gradient of all later uses of this tensor; what it returns
        takes its place, None leaves it. Hooks registered later run first. For tensors made inside a function that is
        differentiated; outside of one nothing happens. Returns a handle with `remove()`. Raises E0320 for parameters
        and arguments (see `td.hook_gradient`)."""
        if hooks.register_hook is None:
            raise UserError("E0203", "tensors need the runtime", fix="import treadle, not its parts")
        return hooks.register_hook(self, hook)

    # ------------------------------------------------------------------------------------------------ change
    def astype(self, dtype: Any) -> Tensor:
        """The same elements in another type, as a new tensor."""
        target = dtypes.of(dtype)
        if target is self.dtype and self._weak is None:
            return self.copy()
        if self._weak is None:
            short: Tensor | None = quick.converted(self, target.np)
            return self._cast(target) if short is None else short
        trace = tracing.current()
        value = self._value if trace is None else trace.read(self)
        return Tensor._of(value, self._trace if trace is None else trace)._cast(target)

    def _cast(self, target: DType) -> Tensor:
        made: Tensor = op_table.get("cast")(self, dtype=target)
        return made

    def strong(self) -> Tensor:
        """The tensor itself; a Python number that is an input of a traced function becomes what `tensor` makes of such
        a number: float32, complex64, int64 or bool."""
        return self if self._weak is None else self.astype(_STRONG[self._weak])

    def copy(self) -> Tensor:
        """Another handle with the same value: changing one leaves the other alone."""
        trace = tracing.current()
        if trace is None:
            return Tensor._of(self._value, self._trace, self._weak)
        return Tensor._of(trace.read(self), trace, self._weak)

    def __copy__(self) -> Tensor:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        return Tensor, (self.numpy(),)

    def assign(self, value: Any) -> Tensor:
        """Give this tensor new elements of the same shape; they are cast to its type. Raises E0503 for another
        shape."""
        new = value if isinstance(value, Tensor) else Tensor(value)
        self._set(new.astype(self.dtype))
        return self


class Number(NumberMethods, Tensor):
    """A Python number that is an input of a traced function; `_weak` is its kind."""

    __slots__ = ()


_STRONG = {bool: dtypes.bool_, int: dtypes.int64, float: dtypes.float32, complex: dtypes.complex64}


def _check_range(array: np.ndarray[Any, Any], target: DType) -> None:
    """Python numbers must fit: E0115 for an integer type that cannot hold them, E0111 for complex ones made real."""
    if target.is_integer and array.dtype.kind in "iu" and array.size:
        for number in (array.min(), array.max()):
            dtypes.check_fits(int(number), target)
    if array.dtype.kind == "c" and target.kind != "c" and array.imag.any():
        raise UserError("E0111", f"complex numbers as {target.name}", fix="take the real parts first")


def make_tensor(value: Value, trace: Trace, weak: type | None) -> Tensor:
    """A symbolic tensor."""
    return Tensor._of(value, trace, weak)


def strengthen(values: list[Any], args: Sequence[Any]) -> list[Any]:
    """Weak operands (Python numbers that are inputs) cast to the type they take beside the others, as NumPy does.

    A number of a higher kind (a float beside integers) takes the integers with it, as a literal number would.
    """
    weak = [isinstance(a, Tensor) and a._weak is not None for a in args]
    if not any(weak):
        return values
    strong = [v.dtype for v, w in zip(values, weak, strict=True) if not w and isinstance(v, Value)]
    kinds = [a._weak for a in args if isinstance(a, Tensor) and a._weak is not None]
    target = dtypes.promote(*[_STRONG[kind] for kind in kinds])
    if strong:
        target = dtypes.promote(*strong)
        for kind in kinds:
            target = dtypes.promote_scalar(target, kind)
    raised = bool(strong) and target.kind not in {d.kind for d in strong}
    cast = op_table.get("cast")
    return [cast(v, dtype=target) if w or (raised and _is_integer(v)) else v for v, w in zip(values, weak, strict=True)]


def _is_integer(value: Any) -> bool:
    return isinstance(value, Value) and value.dtype.is_integer
