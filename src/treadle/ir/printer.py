"""IR to text. The grammar is in docs/ir.md; `ir.parser` reads it back to the identical module.

Values are numbered in order (`%a0` parameters, `%0` results), so that an unrelated change does not move names.
Source positions are printed when `where=True`.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from treadle.base.dtypes import DType
from treadle.base.where import UNKNOWN
from treadle.ir.host import Host
from treadle.ir.node import Fn, Module, Node, Value
from treadle.ir.types import Literal, TensorType, Types

HEADER = "treadle-ir 1"
_READABLE = 16


def print_module(module: Module, where: bool = False) -> str:
    """The text of every function, main first."""
    return "\n\n".join([HEADER, *[print_fn(f, where) for f in module.fns.values()]]) + "\n"


def print_fn(fn: Fn, where: bool = False, indent: str = "") -> str:
    """The text of one function."""
    return "fn " + _body(fn, where, indent)


def _body(fn: Fn, where: bool, indent: str) -> str:
    names = {p: f"%a{i}" for i, p in enumerate(fn.params)}
    lines = []
    for node in fn.nodes:
        for out in node.outputs:
            names[out] = f"%{len(names) - len(fn.params)}"
        lines.append(f"{indent}  {_node(node, names, where, indent + '  ')}")
    params = ", ".join(f"{names[p]}: {p.type}" for p in fn.params)
    outs = ", ".join(names[o] for o in fn.outputs)
    head = f"{fn.name}({params}) -> ({print_types(fn.out_types)}) {{"
    return "\n".join([head, *lines, f"{indent}  return {outs}".rstrip(), f"{indent}}}"])


def print_types(types: Types) -> str:
    return ", ".join(map(str, types))


def _node(node: Node, names: dict[Value, str], where: bool, indent: str) -> str:
    outs = ", ".join(names[o] for o in node.outputs)
    text = f"{outs} = {node.op.name}" if outs else node.op.name
    if node.inputs:
        text += " " + ", ".join(names[i] for i in node.inputs)
    if node.attrs:
        text += " {" + ", ".join(f"{k}={print_attr(v, where, indent)}" for k, v in sorted(node.attrs.items())) + "}"
    text += f" : {print_types(tuple([o.type for o in node.outputs]))}"
    if where and node.where is not UNKNOWN:
        text += f" @ {json.dumps(node.where.file)}:{node.where.line}"
        if node.where.scope:
            text += f" in {json.dumps(node.where.scope)}"
    return text


def print_attr(attr: Any, where: bool = False, indent: str = "") -> str:
    """The text of an attribute value."""
    if isinstance(attr, Fn):
        return "fn " + _body(attr, where, indent)
    if isinstance(attr, str):
        return json.dumps(attr)
    if isinstance(attr, tuple):
        inner = ", ".join(print_attr(a, where, indent) for a in attr)
        return f"({inner},)" if len(attr) == 1 else f"({inner})"
    if isinstance(attr, Literal):
        return f"dense {attr.type} {_elements(attr)}"
    if isinstance(attr, complex):
        return f"complex({attr.real!r}, {attr.imag!r})"
    if attr is None or isinstance(attr, bool | int | float | DType | TensorType | Host):
        return str(attr)
    raise TypeError(f"{attr!r} of type {type(attr).__name__} cannot be an attribute")


def _elements(literal: Literal) -> str:
    """The elements as a list where that is short and exact, else the bytes in hexadecimal."""
    array = literal.array
    if array.size <= _READABLE and array.dtype.kind in "biuf" and array.dtype.itemsize in (1, 2, 4, 8):
        # A NaN is "nan" in text, so one with another payload is not exact.
        elements = [x.item() if x.dtype.kind in "biu" else float(repr(float(x))) for x in array.ravel()]
        read = [float(repr(x)) if isinstance(x, float) else x for x in elements]  # the sign of NaN is lost in its text
        if np.array(read, dtype=array.dtype).tobytes() == array.tobytes():
            return f"[{', '.join(map(repr, elements))}]"
    return f'"{array.tobytes().hex()}"'
