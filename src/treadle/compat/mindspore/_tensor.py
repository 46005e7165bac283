"""`Tensor` and `Parameter` with MindSpore's methods, and `tag`, which gives Treadle's results those methods.

Both are Treadle's own classes with other methods: the handle is the same, so programs, gradients and state see no
difference. Functions of this package call Treadle and `tag` what comes back.
"""

# mypy: disable-error-code="override"
# The methods have the arguments of MindSpore, not those of the class that they replace.
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from treadle.base import dtypes
from treadle.base.dtypes import DType
from treadle.base.errors import UserError
from treadle.frontend import functions as fn
from treadle.frontend import tensor as base
from treadle.frontend import trace as tracing
from treadle.nn import cell as base_cell

_KINDS = "biufc"


def tag(value: Any) -> Any:
    """`value` itself; Treadle's tensors in it (also in tuples, lists, dicts) have MindSpore's methods from now on."""
    kind = type(value)
    if kind is base.Tensor:
        value.__class__ = Tensor
    elif isinstance(value, tuple | list):
        for item in value:
            tag(item)
    elif kind is dict:
        for item in value.values():
            tag(item)
    return value


def tagged(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of Treadle whose results have MindSpore's methods."""

    @functools.wraps(function, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        return tag(function(*args, **kwargs))

    return call


def promoted(x: DType, y: DType) -> DType:
    """The element type of an operation of two tensors: of the higher kind the type itself, else NumPy's rule."""
    if x is y:
        return x
    ranks = [_KINDS.index("i" if d.kind == "u" else d.kind) for d in (x, y)]
    return dtypes.promote(x, y) if ranks[0] == ranks[1] else (x if ranks[0] > ranks[1] else y)


def together(x: Any, y: Any) -> tuple[Any, Any]:
    """Two operands in their common type; Python numbers stay as they are, NumPy's become such."""
    x, y = (v.item() if isinstance(v, np.generic) else Tensor(v) if isinstance(v, np.ndarray) else v for v in (x, y))
    strong = [isinstance(v, base.Tensor) and v._weak is None for v in (x, y)]
    if not all(strong) or x.dtype is y.dtype:
        return x, y
    kind = promoted(x.dtype, y.dtype)
    return x.astype(kind), y.astype(kind)


def quotient_operands(x: Any, y: Any) -> tuple[Any, Any]:
    """As `together`; integers as float32, as a true quotient of integers is."""
    x, y = together(x, y)
    whole = [v for v in (x, y) if isinstance(v, base.Tensor) and v._weak is None and not v.dtype.is_inexact]
    floats = [v for v in (x, y) if isinstance(v, base.Tensor) and v.dtype.is_inexact]
    if whole and not floats:
        x, y = (v.astype(dtypes.float32) if isinstance(v, base.Tensor) else v for v in (x, y))
    return x, y


def every_axis(axis: Any) -> Any:
    """MindSpore's axis: an empty tuple means all axes, as None does."""
    return None if isinstance(axis, tuple | list) and not axis else tuple(axis) if isinstance(axis, list) else axis


def type_name(dtype: DType) -> str:
    """MindSpore's name of an element type: Float32, BFloat16, Bool."""
    return {"bool": "Bool", "bfloat16": "BFloat16"}.get(dtype.name, dtype.name.replace("uint", "UInt").capitalize())


class Tensor(base.Tensor):
    """Tensor(input_data, dtype), or Tensor(shape=, dtype=, init=Initializer), which is filled at once.

    Operations of two types take the higher kind's type (int64 with float32 gives float32). Raises E0590 for both data
    and init.
    """

    __slots__ = ()

    def __init__(self, input_data: Any = None, dtype: Any = None, shape: Any = None, init: Any = None) -> None:
        if (input_data is None) == (init is None):
            why = "a Tensor is made of data or of an initialiser"
            raise UserError("E0590", why, fix="give input_data, or shape, dtype and init")
        if init is not None:
            input_data = init.array((shape,) if isinstance(shape, int) else tuple(shape), dtype or dtypes.float32)
        super().__init__(input_data, dtype)

    # ------------------------------------------------------------------------------------------------ facts, text
    def asnumpy(self) -> np.ndarray[Any, Any]:
        """The elements as a NumPy array, a copy."""
        return self.numpy()

    def __str__(self) -> str:
        return repr(self) if tracing.is_symbolic(self) else str(self.numpy())

    def __repr__(self) -> str:
        facts = f"shape={list(self.shape)}, dtype={type_name(self.dtype)}"
        if tracing.is_symbolic(self):
            return f"Tensor({facts}, traced)"
        return f"Tensor({facts}, value=\n{np.array2string(self.numpy(), separator=', ')})"

    @property
    def T(self) -> Any:
        """The axes in opposite order."""
        return tag(fn.transpose(self))

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.bytes

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.dtype.bytes

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next along each axis."""
        sizes = [math.prod(self.shape[i + 1 :]) for i in range(self.ndim)]
        return tuple([n * self.dtype.bytes for n in sizes])

    @property
    def data(self) -> Any:
        """The tensor itself."""
        return self

    def item(self, index: Any = None) -> Any:
        """The only element as a Python number, or the one at `index` (of the flat tensor for an int)."""
        if index is None:
            return super().item()
        found = self.reshape(-1)[index] if isinstance(index, int) else self[tuple(index)]
        return found.item()

    @staticmethod
    def from_numpy(array: Any) -> Any:
        """A tensor with the elements of an array; the memory is not shared."""
        return Tensor(array)

    def init_data(self, *_: Any) -> Any:
        """The tensor itself: initialisers fill at once."""
        return self

    # ------------------------------------------------------------------------------------------------ reductions
    def sum(self, axis: Any = None, dtype: Any = None, keepdims: bool = False, initial: Any = None) -> Any:
        """The sum over axes, in `dtype` if given."""
        out = fn.sum(self if dtype is None else self.astype(dtype), every_axis(axis), keepdims)
        return tag(out if initial is None else out + initial)

    def mean(self, axis: Any = None, keep_dims: bool = False, *, dtype: Any = None, keepdims: bool = False) -> Any:
        """The mean over axes."""
        return tag(fn.mean(self if dtype is None else self.astype(dtype), every_axis(axis), keep_dims or keepdims))

    def prod(self, axis: Any = None, keep_dims: bool = False, dtype: Any = None) -> Any:
        """The product over axes."""
        return tag(fn.prod(self if dtype is None else self.astype(dtype), every_axis(axis), keep_dims))

    def max(self, axis: Any = None, keepdims: bool = False, *, return_indices: bool = False) -> Any:
        """The largest element over an axis; with return_indices (values, places)."""
        return _extreme(fn.max, fn.argmax, self, axis, keepdims, return_indices)

    def min(self, axis: Any = None, keepdims: bool = False, *, return_indices: bool = False) -> Any:
        """The smallest element over an axis; with return_indices (values, places)."""
        return _extreme(fn.min, fn.argmin, self, axis, keepdims, return_indices)

    def argmax(self, axis: Any = None, keepdims: bool = False) -> Any:
        """The place of the largest element, int64; of the flat tensor without an axis."""
        return tag(fn.argmax(self, axis, keepdims).astype(dtypes.int64))

    def argmin(self, axis: Any = None, keepdims: bool = False) -> Any:
        """The place of the smallest element, int64."""
        return tag(fn.argmin(self, axis, keepdims).astype(dtypes.int64))

    def all(self, axis: Any = None, keep_dims: bool = False) -> Any:
        """Whether all elements over axes are true."""
        return tag(fn.all(self, every_axis(axis), keep_dims))

    def any(self, axis: Any = None, keep_dims: bool = False) -> Any:
        """Whether any element over axes is true."""
        return tag(fn.any(self, every_axis(axis), keep_dims))

    def var(self, axis: Any = None, ddof: float = 0, keepdims: bool = False) -> Any:
        """The variance over axes; ddof is taken off the count."""
        return tag(fn.var(self, every_axis(axis), keepdims, ddof=ddof))

    def std(self, axis: Any = None, ddof: float = 0, keepdims: bool = False) -> Any:
        """The standard deviation over axes."""
        return tag(fn.std(self, every_axis(axis), keepdims, ddof=ddof))

    # ------------------------------------------------------------------------------------------------ shapes
    def split(self, split_size_or_sections: Any, axis: int = 0) -> Any:
        """Pieces of this size (the last one may be smaller), or of these sizes."""
        return tag(split_pieces(self, split_size_or_sections, axis))

    def expand_as(self, x: Any) -> Any:
        """Repeated to the shape of x."""
        return tag(fn.broadcast_to(self, tuple(x.shape)))

    def repeat(self, repeats: int, axis: Any = None) -> Any:
        """Each element repeated in place, as `numpy.repeat`."""
        return tag(fn.repeat_interleave(self, repeats, axis))

    def gather(self, input_indices: Any, axis: int) -> Any:
        """The slices at these indices of an axis."""
        return tag(fn.take(self, input_indices, axis))

    def view_as(self, other: Any) -> Any:
        """In the shape of another tensor."""
        return tag(fn.reshape(self, tuple(other.shape)))

    def fill(self, value: Any) -> Any:
        """A tensor of the same shape and type, filled with one number."""
        return Tensor(np.full(self.shape, value, self.dtype.np))

    def copy(self) -> Any:
        """Another handle with the same value."""
        return tag(super().copy())

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        """The same elements in another type, a new tensor; without `copy` the tensor itself if it has the type."""
        target = dtypes.of(dtype)
        return self if not copy and target is self.dtype else tag(super().astype(target))

    def type_as(self, other: Any) -> Any:
        """In the element type of another tensor."""
        return self.astype(other.dtype)

    def set_data(self, data: Any, slice_shape: bool = False) -> Any:
        """Give the tensor new elements of the same shape."""
        return self.assign(data)

    def value(self) -> Any:
        """A plain tensor with the elements as they are now."""
        return self.copy()


def _extreme(values: Any, places: Any, x: Any, axis: Any, keep: bool, both: bool) -> Any:
    found = tag(values(x, every_axis(axis), keep))
    return (found, tag(places(x, axis, keep).astype(dtypes.int64))) if both else found


def split_pieces(x: Any, size: Any, axis: int) -> tuple[Any, ...]:
    """Pieces of `size` along an axis, the last one maybe smaller; a tuple or list gives each size."""
    if isinstance(size, int):
        length = x.shape[axis]
        size = [min(size, length - i) for i in range(0, length, size)]
    found: tuple[Any, ...] = fn.split(x, tuple(size), axis)
    return found


def _operator(name: str) -> Any:
    plain = getattr(base.Tensor, name)
    prepare = quotient_operands if "truediv" in name else together

    def method(self: Any, other: Any) -> Any:
        return tag(plain(*prepare(self, other)))

    return functools.update_wrapper(method, plain, assigned=("__doc__",), updated=())


def _give_methods() -> None:
    """Operators that promote as MindSpore's, and Treadle's other methods with tagged results."""
    every = dir(base.Tensor)
    names = [n[3:-2] for n in every if n.startswith("__r") and f"__{n[3:-2]}__" in every]  # those with a reflected form
    for name in names:
        setattr(Tensor, f"__{name}__", _operator(f"__{name}__"))
        setattr(Tensor, f"__r{name}__", _operator(f"__r{name}__"))
        setattr(Tensor, f"__i{name}__", getattr(Tensor, f"__{name}__"))  # x += y gives a new tensor
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(Tensor, f"__{name}__", _operator(f"__{name}__"))
    for name in ("__neg__", "__pos__", "__abs__", "__invert__", "__getitem__", "__iter__"):
        setattr(Tensor, name, tagged(getattr(base.Tensor, name)))
    Tensor.__iter__ = lambda self: iter([self[i] for i in range(len(self))])  # type: ignore[method-assign]
    Tensor.__hash__ = base.Tensor.__hash__  # type: ignore[method-assign]
    for name in every:
        found = getattr(base.Tensor, name)
        if (
            not name.startswith("_")
            and name not in vars(Tensor)
            and callable(found)
            and name not in ("numpy", "tolist")
        ):
            setattr(Tensor, name, tagged(found))


_give_methods()


class Parameter(Tensor, base_cell.Parameter):
    """A tensor that a network learns. Parameter(default_input, name, requires_grad): data, a number or a tensor.

    Without a name it takes that of the attribute it is given to; cells put their own names in front.
    """

    __slots__ = ()

    def __init__(
        self,
        default_input: Any,
        name: str | None = None,
        requires_grad: bool = True,
        layerwise_parallel: bool = False,
        parallel_optimizer: bool = True,
    ) -> None:
        base_cell.Parameter.__init__(self, default_input, name or "Parameter", requires_grad)

    def clone(self, init: Any = "same") -> Any:
        """Another parameter with these elements, or with new ones by an initialiser, its name or a number."""
        from treadle.compat.mindspore.common.initializer import initializer

        data = self.copy() if init == "same" else initializer(init, self.shape, self.dtype)
        return Parameter(data, self.name, self.requires_grad)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return Parameter(self.copy(), self.name, self.requires_grad)

    def __reduce__(self) -> tuple[Any, ...]:
        return Parameter, (self.numpy(), self.name, self.requires_grad)

    def __repr__(self) -> str:
        facts = f"name={self.name}, shape={tuple(self.shape)}, dtype={type_name(self.dtype)}"
        return f"Parameter ({facts}, requires_grad={self.requires_grad})"

    __str__ = __repr__


class ParameterTuple(tuple[Any, ...]):
    """Parameters in a fixed order. Raises E0590 for what is no parameter."""

    __slots__ = ()

    def __new__(cls, parameters: Iterable[Any]) -> ParameterTuple:
        found = list(parameters)
        if wrong := [p for p in found if not isinstance(p, base_cell.Parameter)]:
            raise UserError("E0590", f"a ParameterTuple of {type(wrong[0]).__name__}", fix="give Parameters only")
        return super().__new__(cls, found)

    def clone(self, prefix: str, init: Any = "same") -> ParameterTuple:
        """Copies, with `prefix` and a dot before their names."""
        made = []
        for p in self:
            twin = p.clone(init)
            twin.name = f"{prefix}.{p.name}"
            made.append(twin)
        return ParameterTuple(made)
