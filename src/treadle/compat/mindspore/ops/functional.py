"""`mindspore.ops.functional`: the functions of `ops`."""

# ruff: noqa: F403 (each part lists its names)
from typing import TYPE_CHECKING

from treadle.compat.mindspore import ops as _ops
from treadle.compat.mindspore.ops import *

__all__ = list(_ops.__all__)

if not TYPE_CHECKING:
    __getattr__ = _ops.__getattr__
