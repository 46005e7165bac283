"""Primitives: classes such as `ops.MatMul(transpose_b=True)`, whose objects are functions with their options fixed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from treadle.base.errors import UserError
from treadle.compat.mindspore.ops import _math, _products, _unary


class Primitive:
    """Base: `fields` are the options with their defaults, in order; `function` gets the inputs and then the options."""

    fields: ClassVar[dict[str, Any]] = {}
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
Abs, Neg = _of("Abs", _unary.abs), _of("Neg", _unary.neg)
Sign, Square = _of("Sign", _unary.sign), _of("Square", _unary.square)
Exp, Log, Log1p = _of("Exp", _unary.exp), _of("Log", _unary.log), _of("Log1p", _unary.log1p)
Sqrt, Rsqrt, Reciprocal = _of("Sqrt", _unary.sqrt), _of("Rsqrt", _unary.rsqrt), _of("Reciprocal", _unary.reciprocal)
Sin, Cos, Erf = _of("Sin", _unary.sin), _of("Cos", _unary.cos), _of("Erf", _unary.erf)
Floor, Ceil, Round = _of("Floor", _unary.floor), _of("Ceil", _unary.ceil), _of("Round", _unary.round)
Equal, NotEqual = _of("Equal", _math.equal), _of("NotEqual", _math.not_equal)
Greater, GreaterEqual = _of("Greater", _math.greater), _of("GreaterEqual", _math.greater_equal)
Less, LessEqual = _of("Less", _math.less), _of("LessEqual", _math.less_equal)
LogicalAnd, LogicalOr = _of("LogicalAnd", _math.logical_and), _of("LogicalOr", _math.logical_or)
LogicalNot = _of("LogicalNot", _unary.logical_not)
MatMul = _of("MatMul", _products.matmul_transposed, transpose_a=False, transpose_b=False)
BatchMatMul = _of("BatchMatMul", _products.matmul_transposed, transpose_a=False, transpose_b=False)
BiasAdd, AddN = _of("BiasAdd", _products.bias_add), _of("AddN", _math.addn)
Cast, Assign = _of("Cast", _math.cast), _of("Assign", _math.assign)
AssignAdd, AssignSub = _of("AssignAdd", _math.assign_add), _of("AssignSub", _math.assign_sub)
Depend, Select = _of("Depend", _math.depend), _of("Select", _math.where)


__all__ = [
    "Abs", "Add", "AddN", "Assign", "AssignAdd", "AssignSub", "BatchMatMul", "BiasAdd", "Cast", "Ceil", "Cos",
    "Depend", "Div", "Equal", "Erf", "Exp", "Floor", "FloorDiv", "FloorMod", "Greater", "GreaterEqual", "Less",
    "LessEqual", "Log", "Log1p", "LogicalAnd", "LogicalNot", "LogicalOr", "MatMul", "Maximum", "Minimum", "Mul",
    "Neg", "NotEqual", "Pow", "Primitive", "RealDiv", "Reciprocal", "Round", "Rsqrt", "Select", "Sign", "Sin", "Sqrt",
    "Square", "Sub",
]  # fmt: skip
