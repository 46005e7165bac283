"""`mindspore.common.parameter`."""

from treadle.compat.mindspore._tensor import Parameter, ParameterTuple

__all__ = ["Parameter", "ParameterTuple"]
