"""Hangs +, -, *, @, [] and comparisons on `ir.Value`, so that rules read like formulas and `ir` knows no op."""

from __future__ import annotations

from typing import Any

from treadle.ir import op as op_table
from treadle.ir.node import Value

_BINARY = {
    "__add__": "add", "__sub__": "sub", "__mul__": "mul", "__truediv__": "div", "__pow__": "pow",
    "__matmul__": "matmul",
    "__lt__": "less", "__le__": "less_equal", "__gt__": "greater", "__ge__": "greater_equal",
}  # fmt: skip


def _forward(name: str) -> Any:
    return lambda x, y: op_table.get(name)(x, y)


def _backward(name: str) -> Any:
    return lambda x, y: op_table.get(name)(y, x)


def install() -> None:
    """Give `Value` its operators."""
    for method, name in _BINARY.items():
        setattr(Value, method, _forward(name))
        if name in ("add", "sub", "mul", "div", "pow", "matmul"):
            setattr(Value, method.replace("__", "__r", 1), _backward(name))
    setattr(Value, "__neg__", lambda x: op_table.get("neg")(x))  # noqa: B010 (the class declares it for type checkers)
