"""Primitives: classes such as `ops.MatMul(transpose_b=True)`, whose objects are functions with their options fixed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.compat.mindspore.ops import _math, _reduce


class Primitive:
    """Base: `fields` are the options with their defaults, in order; `function` gets the inputs and then the options."""

    fields: dict[str, Any] = {}
    function: Callable[..., Any]

    def __init__(self, *args: Any, **options: Any) -> None:
        names = list(self.fields)
        given = dict(zip(names, args, strict=False)) | options
        if len(args) > len(names) or set(given) - set(names):
            why = f"{type(self).__name__} has no option {', '.join(sorted(set(given) - set(names))) or len(args)}"
            raise UserError("E0594", why, fix=f"its options are {', '.join(names) or 'none'}")
        self.options = {**self.fields, **given}

    def __call__(self, *inputs: Any) -> Any:
        return type(self).function(*inputs, **self.options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.options.items())})"


def _of(name: str, function: Callable[..., Any], **fields: Any) -> Any:
    """A primitive class."""
    body = {"function": staticmethod(function), "fields": fields, "__doc__": function.__doc__}
    return type(name, (Primitive,), {**body, "__module__": __name__})


Add, Sub, Mul = _of("Add", _math.add), _of("Sub", _math.sub), _of("Mul", _math.mul)
Div, RealDiv = _of("Div", _math.div), _of("RealDiv", _math.div)
FloorDiv, FloorMod, Pow = _of("FloorDiv", _math.floor_div), _of("FloorMod", _math.mod), _of("Pow", _math.pow)
Maximum, Minimum = _of("Maximum", _math.maximum), _of("Minimum", _math.minimum)
Abs, Neg = _of("Abs", _math.abs), _of("Neg", _math.neg)
Sign, Square = _of("Sign", _math.sign), _of("Square", _math.square)
Exp, Log, Log1p = _of("Exp", _math.exp), _of("Log", _math.log), _of("Log1p", _math.log1p)
Sqrt, Rsqrt, Reciprocal = _of("Sqrt", _math.sqrt), _of("Rsqrt", _math.rsqrt), _of("Reciprocal", _math.reciprocal)
Sin, Cos, Erf = _of("Sin", _math.sin), _of("Cos", _math.cos), _of("Erf", _math.erf)
Floor, Ceil, Round = _of("Floor", _math.floor), _of("Ceil", _math.ceil), _of("Round", _math.round)
Equal, NotEqual = _of("Equal", _math.equal), _of("NotEqual", _math.not_equal)
Greater, GreaterEqual = _of("Greater", _math.greater), _of("GreaterEqual", _math.greater_equal)
Less, LessEqual = _of("Less", _math.less), _of("LessEqual", _math.less_equal)
LogicalAnd, LogicalOr = _of("LogicalAnd", _math.logical_and), _of("LogicalOr", _math.logical_or)
LogicalNot = _of("LogicalNot", _math.logical_not)
MatMul = _of("MatMul", _math.matmul_transposed, transpose_a=False, transpose_b=False)
BatchMatMul = _of("BatchMatMul", _math.matmul_transposed, transpose_a=False, transpose_b=False)
BiasAdd, AddN = _of("BiasAdd", _math.bias_add), _of("AddN", _math.addn)
Cast, Assign = _of("Cast", _math.cast), _of("Assign", _math.assign)
AssignAdd, AssignSub = _of("AssignAdd", _math.assign_add), _of("AssignSub", _math.assign_sub)
Depend, Select = _of("Depend", _math.depend), _of("Select", _math.where)

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
    "Abs", "Add", "AddN", "ArgMaxWithValue", "ArgMinWithValue", "Argmax", "Argmin", "Assign", "AssignAdd", "AssignSub",
    "BatchMatMul", "BiasAdd", "Cast", "Ceil", "Cos", "CumSum", "Depend", "Div", "Equal", "Erf", "Exp", "Floor",
    "FloorDiv", "FloorMod", "Greater", "GreaterEqual", "Less", "LessEqual", "Log", "Log1p", "LogicalAnd", "LogicalNot",
    "LogicalOr", "MatMul", "Maximum", "Minimum", "Mul", "Neg", "NotEqual", "Pow", "Primitive", "RealDiv", "Reciprocal",
    "ReduceAll", "ReduceAny", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "Round", "Rsqrt",
    "Select", "Sign", "Sin", "Sort", "Sqrt", "Square", "Sub", "TopK",
]  # fmt: skip
