"""`mindspore.ops.operations`: the primitives of `ops`."""

# ruff: noqa: F403 (each part lists its names)
from typing import TYPE_CHECKING

from treadle.compat.mindspore import ops as _ops
from treadle.compat.mindspore.ops import _primitive, _primitive_more, _primitive_reduce
from treadle.compat.mindspore.ops._primitive import *
from treadle.compat.mindspore.ops._primitive_more import *
from treadle.compat.mindspore.ops._primitive_reduce import *

__all__ = [*_primitive.__all__, *_primitive_more.__all__, *_primitive_reduce.__all__]

if not TYPE_CHECKING:
    __getattr__ = _ops.__getattr__
