"""Primitives of reductions and order: see `_primitive`."""

from __future__ import annotations

from typing import Any

from treadle.base import dtypes
from treadle.compat.mindspore.ops import _reduce
from treadle.compat.mindspore.ops._primitive import _of

ReduceSum = _of("ReduceSum", _reduce.reduce_sum, keep_dims=False)
ReduceMean = _of("ReduceMean", _reduce.reduce_mean, keep_dims=False)
ReduceMax = _of("ReduceMax", _reduce.reduce_max, keep_dims=False)
ReduceMin = _of("ReduceMin", _reduce.reduce_min, keep_dims=False)
ReduceProd = _of("ReduceProd", _reduce.reduce_prod, keep_dims=False)
ReduceAll = _of("ReduceAll", _reduce.reduce_all, keep_dims=False)
ReduceAny = _of("ReduceAny", _reduce.reduce_any, keep_dims=False)
Argmax = _of("Argmax", _reduce.argmax_typed, axis=-1, output_type=dtypes.int32)
Argmin = _of("Argmin", _reduce.argmin_typed, axis=-1, output_type=dtypes.int32)
ArgMaxWithValue = _of("ArgMaxWithValue", _reduce.argmax_with_value, axis=0, keep_dims=False)
ArgMinWithValue = _of("ArgMinWithValue", _reduce.argmin_with_value, axis=0, keep_dims=False)
CumSum, Sort = _of("CumSum", _reduce.cumsum), _of("Sort", _reduce.sort, axis=-1, descending=False)


def _top_k(x: Any, k: int, sorted: bool) -> Any:
    """(the k largest elements of the last axis, their places int32)."""
    return _reduce.topk(x, k)


TopK = _of("TopK", _top_k, sorted=True)


__all__ = [
    "ArgMaxWithValue", "ArgMinWithValue", "Argmax", "Argmin", "CumSum", "ReduceAll", "ReduceAny", "ReduceMax",
    "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "Sort", "TopK",
]  # fmt: skip
