"""`mindspore.common.tensor`."""

from treadle.compat.mindspore._tensor import Tensor

__all__ = ["Tensor"]
