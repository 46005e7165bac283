"""Text to IR: the inverse of `ir.printer`. Errors are `UserError` E0192 with line and column of the text."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

import numpy as np

from treadle.base import dtypes
from treadle.base.dtypes import DType
from treadle.base.errors import UserError
from treadle.base.where import UNKNOWN, Where
from treadle.ir import op as op_table
from treadle.ir.node import Fn, Module, Node, Value
from treadle.ir.printer import HEADER
from treadle.ir.types import Literal, TensorType

_TOKEN = re.compile(
    r"""(?P<space>\s+|\#[^\n]*)
      |(?P<string>"(?:[^"\\]|\\.)*")
      |(?P<value>%[A-Za-z0-9_]+)
      |(?P<number>-?(?:inf|nan)\b|-?\d+(?:\.\d*)?(?:e[+-]?\d+)?)
      |(?P<name>[A-Za-z_][A-Za-z0-9_.\-]*)
      |(?P<mark>->|[()\[\]{},:=@])""",
    re.X,
)
_SIMPLE = {"True": True, "False": False, "None": None}


class _Parser:
    """Recursive descent over the tokens; `names` maps `%name` to the value inside the function being read."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.tokens: list[tuple[str, str, int]] = []
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                self._fail(f"unexpected {text[position]!r}", position)
            if match.lastgroup != "space":
                self.tokens.append((str(match.lastgroup), match.group(), position))
            position = match.end()
        self.tokens.append(("end", "end of text", len(text)))

    def _fail(self, why: str, position: int) -> NoReturn:
        line = self.text.count("\n", 0, position) + 1
        column = position - (self.text.rfind("\n", 0, position) + 1) + 1
        raise UserError("E0192", f"IR text, line {line} column {column}: {why}", fix="docs/ir.md has the grammar")

    def fail(self, why: str) -> NoReturn:
        self._fail(why, self.tokens[self.at][2])

    def peek(self) -> str:
        return self.tokens[self.at][1]

    def kind(self) -> str:
        return self.tokens[self.at][0]

    def take(self, kind: str) -> str:
        if self.kind() != kind:
            self.fail(f"expected a {kind}, found {self.peek()!r}")
        self.at += 1
        return self.tokens[self.at - 1][1]

    def accept(self, text: str) -> bool:
        if self.peek() == text and self.kind() in ("mark", "name"):
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            self.fail(f"expected {text!r}, found {self.peek()!r}")

    def module(self) -> Module:
        fns: dict[str, Fn] = {}
        while self.kind() != "end":
            self.expect("fn")
            fn = self.fn()
            if fn.name in fns:
                self.fail(f"function {fn.name!r} is there twice")
            fns[fn.name] = fn
        if "main" not in fns:
            self.fail("there is no function main")
        return Module(fns)

    def fn(self) -> Fn:
        name = self.take("name")
        names: dict[str, Value] = {}
        params = []
        self.expect("(")
        while not self.accept(")"):
            label = self.take("value")
            self.expect(":")
            names[label] = Value(self.type())
            params.append(names[label])
            self.accept(",")
        self.expect("->")
        self.expect("(")
        types = self.types(")")
        self.expect(")")
        self.expect("{")
        nodes = []
        while not self.accept("return"):
            nodes.append(self.node(names))
        outputs = []
        while not self.accept("}"):
            outputs.append(self.value(names))
            self.accept(",")
        if tuple([o.type for o in outputs]) != types:
            self.fail(f"function {name} returns other types than its head says")
        return Fn(name, tuple(params), tuple(nodes), tuple(outputs))

    def value(self, names: dict[str, Value]) -> Value:
        label = self.take("value")
        if label not in names:
            self.at -= 1
            self.fail(f"{label} is not defined here")
        return names[label]

    def node(self, names: dict[str, Value]) -> Node:
        labels = []
        while self.kind() == "value":
            labels.append(self.take("value"))
            self.accept(",")
        if labels:
            self.expect("=")
        if self.kind() == "name" and self.peek() not in op_table.OPS:
            self.fail(f"there is no op {self.peek()!r}")
        op = op_table.get(self.take("name"))
        inputs = []
        while self.kind() == "value":
            inputs.append(self.value(names))
            self.accept(",")
        attrs = {}
        if self.accept("{"):
            while not self.accept("}"):
                key = self.take("name")
                self.expect("=")
                attrs[key] = self.attr()
                self.accept(",")
        self.expect(":")
        types = self.types("@") if labels else ()
        if len(types) != len(labels):
            self.fail(f"{op.name} has {len(labels)} results but {len(types)} types")
        node = Node(op, tuple(inputs), attrs, types, self.where())
        names.update(zip(labels, node.outputs, strict=True))
        return node

    def where(self) -> Where:
        if not self.accept("@"):
            return UNKNOWN
        file = json.loads(self.take("string"))
        self.expect(":")
        line = int(self.take("number"))
        return Where(file, line, json.loads(self.take("string")) if self.accept("in") else "")

    def types(self, end: str) -> tuple[TensorType, ...]:
        found = []
        while self.kind() == "name" and self.peek() in dtypes._BY_NAME:
            found.append(self.type())
            if not self.accept(","):
                break
        return tuple(found)

    def type(self) -> TensorType:
        dtype = self.dtype()
        shape = []
        self.expect("[")
        while not self.accept("]"):
            shape.append(int(self.take("number")))
            self.accept(",")
        return TensorType(dtype, tuple(shape))

    def dtype(self) -> DType:
        if self.kind() == "name" and self.peek() not in dtypes._BY_NAME:
            self.fail(f"{self.peek()!r} is not an element type")
        return dtypes.of(self.take("name"))

    def attr(self) -> Any:
        kind, text = self.kind(), self.peek()
        if kind == "string":
            return json.loads(self.take("string"))
        if kind == "number":
            return self.number()
        if self.accept("("):
            items = []
            while not self.accept(")"):
                items.append(self.attr())
                self.accept(",")
            return tuple(items)
        if kind != "name":
            self.fail(f"{text!r} is no attribute")
        if text in _SIMPLE:
            self.at += 1
            return _SIMPLE[text]
        if self.accept("fn"):
            return self.fn()
        if self.accept("dense"):
            return self.literal()
        if self.accept("complex"):
            self.expect("(")
            real = float(self.number())
            self.expect(",")
            imaginary = float(self.number())
            self.expect(")")
            return complex(real, imaginary)
        if self.tokens[self.at + 1][1] == "[":
            return self.type()
        if text == "host":
            self.fail("a Python function cannot be read from text: it belonged to the process that wrote it")
        return self.dtype()

    def number(self) -> int | float:
        text = self.take("number")
        return int(text) if re.fullmatch(r"-?\d+", text) else float(text)

    def literal(self) -> Literal:
        type = self.type()
        if self.kind() == "string":
            flat = np.frombuffer(bytes.fromhex(json.loads(self.take("string"))), dtype=type.dtype.np)
        else:
            self.expect("[")
            items: list[Any] = []
            while not self.accept("]"):
                items.append(self.number() if self.kind() == "number" else _SIMPLE[self.take("name")])
                self.accept(",")
            flat = np.array(items, dtype=type.dtype.np)
        if flat.size != type.size:
            self.fail(f"{flat.size} elements for {type}")
        return Literal(flat.reshape(type.shape))


def parse_module(text: str) -> Module:
    """The module that `print_module` wrote. Raises E0192 with line and column for any other text."""
    body = text.lstrip()
    if not body.startswith(HEADER):
        head = body.splitlines()[0] if body else ""
        raise UserError(
            "E0192", f"the IR text begins with {head!r}, not with {HEADER!r}", fix="write it with this version"
        )
    offset = text.index(HEADER)
    return _Parser(" " * offset + " " * len(HEADER) + text[offset + len(HEADER) :]).module()


def parse_fn(text: str) -> Fn:
    """One function, as `str(fn)` printed it."""
    parser = _Parser(text)
    parser.expect("fn")
    return parser.fn()
