"""Functions (`ops.matmul`), primitives (`ops.MatMul()`) and functions of functions under `mindspore.ops`' names."""

# ruff: noqa: F403 (each part lists its names)
from typing import TYPE_CHECKING

from treadle.compat.mindspore import _grad
from treadle.compat.mindspore._missing import missing as _missing
from treadle.compat.mindspore.ops import (
    _make,
    _math,
    _nn,
    _primitive,
    _primitive_more,
    _primitive_reduce,
    _products,
    _reduce,
    _shape,
    _unary,
    composite,
)
from treadle.compat.mindspore.ops._make import *
from treadle.compat.mindspore.ops._math import *
from treadle.compat.mindspore.ops._nn import *
from treadle.compat.mindspore.ops._primitive import *
from treadle.compat.mindspore.ops._primitive_more import *
from treadle.compat.mindspore.ops._primitive_reduce import *
from treadle.compat.mindspore.ops._products import *
from treadle.compat.mindspore.ops._reduce import *
from treadle.compat.mindspore.ops._shape import *
from treadle.compat.mindspore.ops._unary import *
from treadle.compat.mindspore.ops.composite import *

grad, value_and_grad, stop_gradient = _grad.grad, _grad.value_and_grad, _grad.stop_gradient
get_grad, vmap, jvp, vjp = _grad.get_grad, _grad.vmap, _grad.jvp, _grad.vjp
range, slice = _make.arange, _shape.slice_sized
tuple_to_array, scalar_to_array = _shape.stack, _make.scalar_to_tensor

_PARTS = (_make, _math, _nn, _products, _reduce, _shape, _unary, composite)
_CLASSES = (_primitive, _primitive_more, _primitive_reduce)
__all__ = ["get_grad", "grad", "jvp", "range", "scalar_to_array", "slice", "stop_gradient", "value_and_grad"]
__all__ += ["tuple_to_array", "vjp", "vmap", *[name for part in (*_PARTS, *_CLASSES) for name in part.__all__]]

if not TYPE_CHECKING:
    __getattr__ = _missing(__name__)
