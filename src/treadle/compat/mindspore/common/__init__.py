"""`common.dtype`, `common.initializer` and what MindSpore keeps beside them."""

from treadle.compat.mindspore._seed import get_seed, set_seed
from treadle.compat.mindspore._tensor import Parameter, ParameterTuple, Tensor
from treadle.compat.mindspore.common import dtype, initializer

__all__ = ["Parameter", "ParameterTuple", "Tensor", "dtype", "get_seed", "initializer", "set_seed"]
