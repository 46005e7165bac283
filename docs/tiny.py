"""Treadle in one file: the whole idea, without the breadth.

A Python function is run once on symbols, which gives a program (`trace`). A program can be printed (`show`), run with
NumPy (`run`), differentiated into another program (`gradient`) and rewritten into a better one (`simplify`). The real
thing has the same parts under src/treadle, named at each section; tests/test_tiny.py compares the two.

    def f(x, w):
        return total(tanh(x @ w))

    program = trace(f, Type((2, 3)), Type((3, 4)))
    print(show(gradient(program)))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

# ---------------------------------------------------------------------------------------- types (ir/types.py)


@dataclass(frozen=True)
class Type:
    """A tensor's type: its sizes. All elements are float64 here."""

    shape: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"f64[{','.join(map(str, self.shape))}]"


# ------------------------------------------------------------------------------- values and nodes (ir/node.py)


@dataclass(eq=False)
class Value:
    """One intermediate result of a program: a type, and the node that makes it (None: it is a parameter).

    Operators on values add nodes to the program that is being built, so a Python function called with values writes
    a program.
    """

    type: Type
    node: Node | None = None

    def __add__(self, other: Any) -> Value:
        return add(*fit(self, other))

    def __radd__(self, other: Any) -> Value:
        return add(*fit(other, self))

    def __mul__(self, other: Any) -> Value:
        return mul(*fit(self, other))

    def __rmul__(self, other: Any) -> Value:
        return mul(*fit(other, self))

    def __sub__(self, other: Any) -> Value:
        return self + -1.0 * lift(other)

    def __rsub__(self, other: Any) -> Value:
        return lift(other) + -1.0 * self

    def __neg__(self) -> Value:
        return -1.0 * self

    def __matmul__(self, other: Value) -> Value:
        return matmul(self, other)

    def __bool__(self) -> bool:
        raise TypeError("a symbol has no truth value: it stands for numbers that are not there yet")


@dataclass(eq=False)
class Node:
    """One step: an op on values, with attributes that are fixed in the program."""

    op: Op
    inputs: tuple[Value, ...]
    attrs: dict[str, Any]
    output: Value = field(init=False)


@dataclass(frozen=True)
class Program:
    """Parameters, steps in order, results. Nothing is ever changed: a transform makes a new program."""

    params: tuple[Value, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]


# ----------------------------------------------------------------------- building and tracing (ir/build.py)

_building: list[list[Node]] = []


def append(op: Op, inputs: tuple[Value, ...], attrs: dict[str, Any]) -> Value:
    """Add a node to the program being built; its type comes from the op's type rule, so wrong programs never exist."""
    if not _building:
        raise TypeError("no function is being traced")
    node = Node(op, inputs, attrs)
    node.output = Value(op.type(*[v.type for v in inputs], **attrs), node)
    _building[-1].append(node)
    return node.output


def trace(function: Callable[..., Any], *types: Type) -> Program:
    """The program that a Python function writes when it is called with one symbol per type."""
    params = tuple(Value(t) for t in types)
    _building.append([])
    try:
        result = function(*params)
        outputs = tuple(map(lift, result if isinstance(result, tuple) else (result,)))
        return Program(params, tuple(_building[-1]), outputs)
    finally:
        _building.pop()


def lift(x: Any) -> Value:
    """A value; a Python number becomes a constant."""
    return x if isinstance(x, Value) else constant(number=float(x))


def fit(x: Any, y: Any) -> tuple[Value, Value]:
    """Two values of one shape: a single number is spread over the shape of the other."""
    x, y = lift(x), lift(y)
    shape = x.type.shape or y.type.shape
    return spread_to(x, shape), spread_to(y, shape)


def spread_to(x: Value, shape: tuple[int, ...]) -> Value:
    return x if x.type.shape == shape else spread(x, shape=shape)


# --------------------------------------------------------------------------- ops (ops/_declare.py, ops/*.py)


@dataclass(frozen=True, eq=False)
class Op:
    """All that is known of an op, in one place: its type rule, its meaning in NumPy and its gradient.

    grad(inputs, output, d, attrs) gives one cotangent per input, written in ops, so that it can be differentiated too.
    """

    name: str
    type: Callable[..., Type]
    ref: Callable[..., Any]
    grad: Callable[..., tuple[Value, ...]]

    def __call__(self, *inputs: Value, **attrs: Any) -> Value:
        return append(self, inputs, attrs)


def same(x: Type, *others: Type) -> Type:
    """The type rule of elementwise ops."""
    if any(o != x for o in others):
        raise TypeError(f"the types differ: {' and '.join(map(str, (x, *others)))}")
    return x


def spread_type(x: Type, shape: tuple[int, ...]) -> Type:
    if x.shape:
        raise TypeError(f"only one number can be spread, not {x}")
    return Type(shape)


def matmul_type(x: Type, y: Type) -> Type:
    if len(x.shape) != 2 or len(y.shape) != 2 or x.shape[1] != y.shape[0]:
        raise TypeError(f"{x} @ {y} does not fit")
    return Type((x.shape[0], y.shape[1]))


def transpose_type(x: Type) -> Type:
    return Type(x.shape[::-1])


constant = Op("constant", lambda number: Type(), lambda number: np.float64(number), lambda ins, out, d, attrs: ())

add = Op("add", same, np.add, lambda ins, out, d, attrs: (d, d))

mul = Op("mul", same, np.multiply, lambda ins, out, d, attrs: (d * ins[1], d * ins[0]))

tanh = Op("tanh", same, np.tanh, lambda ins, out, d, attrs: (d * (1.0 - out * out),))

exp = Op("exp", same, np.exp, lambda ins, out, d, attrs: (d * out,))

sin = Op("sin", same, np.sin, lambda ins, out, d, attrs: (d * cos(ins[0]),))

cos: Op = Op("cos", same, np.cos, lambda ins, out, d, attrs: (-d * sin(ins[0]),))

total = Op(  # the sum of all elements
    "total", lambda x: Type(), lambda x: np.sum(x), lambda ins, out, d, attrs: (spread_to(d, ins[0].type.shape),)
)

spread = Op(  # one number everywhere: what `total` undoes
    "spread", spread_type, lambda x, shape: np.broadcast_to(x, shape), lambda ins, out, d, attrs: (total(d),)
)

matmul = Op(
    "matmul", matmul_type, np.matmul,
    lambda ins, out, d, attrs: (d @ transpose(ins[1]), transpose(ins[0]) @ d),
)  # fmt: skip

transpose: Op = Op("transpose", transpose_type, np.transpose, lambda ins, out, d, attrs: (transpose(d),))


# ------------------------------------------------------------------------------------ text (ir/printer.py)


def show(program: Program) -> str:
    """The program as text, a line per node."""
    names = {p: f"%a{i}" for i, p in enumerate(program.params)}
    names |= {n.output: f"%{i}" for i, n in enumerate(program.nodes)}

    def listed(values: Sequence[Value]) -> str:
        return ", ".join(names[v] for v in values)

    head = ", ".join(f"{names[p]}: {p.type}" for p in program.params)
    lines = [f"fn main({head}) -> ({', '.join(str(o.type) for o in program.outputs)}) {{"]
    for node in program.nodes:
        attrs = f" {{{', '.join(f'{k}={v}' for k, v in node.attrs.items())}}}" if node.attrs else ""
        operands = f" {listed(node.inputs)}" if node.inputs else ""
        lines.append(f"  {names[node.output]} = {node.op.name}{operands}{attrs} : {node.output.type}")
    return "\n".join([*lines, f"  return {listed(program.outputs)}", "}"])


# ------------------------------------------------------------------------------- running (ir/interp.py)


def run(program: Program, *arrays: Any) -> tuple[Any, ...]:
    """The results for these arrays, node by node. A compiler would translate the nodes instead (lower/, runtime/)."""
    found: dict[Value, Any] = {}
    for param, array in zip(program.params, arrays, strict=True):
        found[param] = np.asarray(array, np.float64)
        if found[param].shape != param.type.shape:
            raise TypeError(f"a parameter is {param.type}, the array has shape {found[param].shape}")
    for node in program.nodes:
        found[node.output] = node.op.ref(*[found[v] for v in node.inputs], **node.attrs)
    return tuple(found[o] for o in program.outputs)


# ----------------------------------------------------------------------- differentiating (transforms/grad.py)


def replay(program: Program, args: Sequence[Value]) -> dict[Value, Value]:
    """Write the nodes of a program into the one being built; what stands for each of its values there."""
    twin = dict(zip(program.params, args, strict=True))
    for node in program.nodes:
        twin[node.output] = append(node.op, tuple(twin[v] for v in node.inputs), node.attrs)
    return twin


def gradient(program: Program) -> Program:
    """The program for the gradients of the one result, a single number, with respect to all parameters.

    Reverse mode: walk the nodes backwards. The cotangent of a value says how much the result changes with it; an op's
    rule turns the cotangent of its result into those of its inputs; contributions to one value are added. The result
    is an ordinary program, so it can be differentiated again.
    """

    def body(*args: Value) -> tuple[Value, ...]:
        twin = replay(program, args)
        cotangent: dict[Value, Value] = {twin[program.outputs[0]]: constant(number=1.0)}
        for node in reversed(program.nodes):
            out = twin[node.output]
            if out not in cotangent:
                continue  # the result does not depend on it
            inputs = tuple(twin[v] for v in node.inputs)
            for value, part in zip(inputs, node.op.grad(inputs, out, cotangent[out], node.attrs), strict=True):
                cotangent[value] = cotangent[value] + part if value in cotangent else part
        return tuple(cotangent[a] if a in cotangent else spread_to(lift(0.0), a.type.shape) for a in args)

    if [o.type for o in program.outputs] != [Type()]:
        raise TypeError("only a single number has a gradient: take the total")
    return trace(body, *[p.type for p in program.params])


# -------------------------------------------------------------- rewriting (ir/rewrite.py, transforms/algebra.py)


def number_in(value: Value) -> float | None:
    """The number that every element of the value is known to be, else None."""
    node = value.node
    while node is not None and node.op is spread:
        node = node.inputs[0].node
    return node.attrs["number"] if node is not None and node.op is constant else None


def times_one(node: Node, inputs: tuple[Value, ...]) -> Value | None:
    """The one rule: 1 * x -> x, x * 1 -> x. One op fewer; exact."""
    if node.op is mul:
        for one, x in (inputs, inputs[::-1]):
            if number_in(one) == 1.0:
                return x
    return None


Rule = Callable[[Node, tuple[Value, ...]], Value | None]


def rewrite(program: Program, rule: Rule) -> Program:
    """The program with the rule applied to every node."""

    def body(*args: Value) -> tuple[Value, ...]:
        twin = dict(zip(program.params, args, strict=True))
        for node in program.nodes:
            inputs = tuple(twin[v] for v in node.inputs)
            better = rule(node, inputs)
            twin[node.output] = append(node.op, inputs, node.attrs) if better is None else better
        return tuple(twin[o] for o in program.outputs)

    return trace(body, *[p.type for p in program.params])


def without_dead(program: Program) -> Program:
    """The program without the nodes that its results do not need (transforms/dce.py)."""
    needed = set(program.outputs)
    kept = []
    for node in reversed(program.nodes):
        if node.output in needed:
            kept.append(node)
            needed.update(node.inputs)
    return Program(program.params, tuple(reversed(kept)), program.outputs)


def simplify(program: Program) -> Program:
    """What the compiler does before it hands on: rules, then dead code."""
    return without_dead(rewrite(program, times_one))


if __name__ == "__main__":

    def f(x: Value, w: Value) -> Value:
        return total(tanh(x @ w))

    program = trace(f, Type((2, 3)), Type((3, 4)))
    print(show(program), show(gradient(program)), show(simplify(gradient(program))), sep="\n\n")
