"""The IR itself: a `Module` holds functions; an `Fn` is parameters, nodes in order, outputs; a `Node` applies an op.

Nothing here changes after it is made. A `Value` is a parameter (`node is None`) or a result of a node. Regions (bodies
of `if`, `while`, `scan`) are `Fn` attributes that see only their own parameters. `Op` is the record a node points to;
what an op *means* is declared in `treadle.ops`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from treadle.base.where import UNKNOWN, Where
from treadle.ir.types import TensorType, Types

if TYPE_CHECKING:
    Rule = Callable[..., Any]

Attrs = Mapping[str, Any]


class Value:
    """One SSA value: its type, the node that makes it (None: a parameter) and which result of the node it is."""

    __slots__ = ("index", "node", "type")

    def __init__(self, type: TensorType, node: Node | None = None, index: int = 0) -> None:
        self.type, self.node, self.index = type, node, index

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> Any:
        return self.type.dtype

    @property
    def ndim(self) -> int:
        return len(self.type.shape)

    def __repr__(self) -> str:
        source = "param" if self.node is None else f"{self.node.op.name}#{self.index}"
        return f"<{source}: {self.type}>"

    __array_ufunc__ = None  # NumPy arrays on the left leave the operator to us

    if TYPE_CHECKING:  # hung on by ops/_operators.py

        def __add__(self, other: Any) -> Value: ...
        def __radd__(self, other: Any) -> Value: ...
        def __sub__(self, other: Any) -> Value: ...
        def __rsub__(self, other: Any) -> Value: ...
        def __mul__(self, other: Any) -> Value: ...
        def __rmul__(self, other: Any) -> Value: ...
        def __truediv__(self, other: Any) -> Value: ...
        def __rtruediv__(self, other: Any) -> Value: ...
        def __pow__(self, other: Any) -> Value: ...
        def __rpow__(self, other: Any) -> Value: ...
        def __matmul__(self, other: Any) -> Value: ...
        def __neg__(self) -> Value: ...
        def __lt__(self, other: Any) -> Value: ...
        def __le__(self, other: Any) -> Value: ...
        def __gt__(self, other: Any) -> Value: ...
        def __ge__(self, other: Any) -> Value: ...


class Node:
    """An op applied to values: results, attributes (numbers, names, tuples, types, `Fn`s) and the source position."""

    __slots__ = ("attrs", "inputs", "op", "outputs", "where")

    def __init__(self, op: Any, inputs: tuple[Value, ...], attrs: Attrs, types: Types, where: Where = UNKNOWN) -> None:
        self.op, self.inputs, self.attrs, self.where = op, inputs, attrs, where
        self.outputs = tuple([Value(t, self, i) for i, t in enumerate(types)])

    def regions(self) -> Iterator[tuple[str, Fn]]:
        """The attributes that are functions, by name."""
        if self.op.has_regions:
            for name, attr in self.attrs.items():
                if isinstance(attr, Fn):
                    yield name, attr

    def __repr__(self) -> str:
        return f"<{self.op.name} at {self.where}>"


class Fn:
    """A function: parameters, nodes in execution order, outputs. It sees no value from outside itself."""

    __slots__ = ("name", "nodes", "outputs", "params")

    def __init__(
        self, name: str, params: tuple[Value, ...], nodes: tuple[Node, ...], outputs: tuple[Value, ...]
    ) -> None:
        self.name, self.params, self.nodes, self.outputs = name, params, nodes, outputs

    @property
    def in_types(self) -> Types:
        return tuple([p.type for p in self.params])

    @property
    def out_types(self) -> Types:
        return tuple([o.type for o in self.outputs])

    def __str__(self) -> str:
        from treadle.ir.printer import print_fn

        return print_fn(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Fn):
            return NotImplemented
        return self is other or same_fn(self, other)

    def __hash__(self) -> int:
        return hash((self.name, len(self.params), len(self.nodes), len(self.outputs)))


class Module:
    """Functions by name; `main` is the one that is run. `call` nodes name the others."""

    __slots__ = ("fns",)

    def __init__(self, fns: Mapping[str, Fn]) -> None:
        self.fns = dict(fns)

    @classmethod
    def of(cls, fn: Fn, callees: Mapping[str, Fn] | None = None) -> Module:
        """A module whose main function is `fn`."""
        main = fn if fn.name == "main" else Fn("main", fn.params, fn.nodes, fn.outputs)
        return cls({"main": main, **{k: v for k, v in (callees or {}).items() if k != "main"}})

    @property
    def main(self) -> Fn:
        return self.fns["main"]

    def callees(self) -> dict[str, Fn]:
        """All functions but main."""
        return {k: v for k, v in self.fns.items() if k != "main"}

    def __str__(self) -> str:
        from treadle.ir.printer import print_module

        return print_module(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Module):
            return NotImplemented
        return self.fns == other.fns and list(self.fns) == list(other.fns)

    def __hash__(self) -> int:
        return hash(tuple(self.fns))


def same_fn(a: Fn, b: Fn) -> bool:
    """Structural equality: same ops, wiring, attributes, types and positions; names of values do not matter."""
    if a.name != b.name or a.in_types != b.in_types or len(a.nodes) != len(b.nodes):
        return False
    twin: dict[Value, Value] = dict(zip(a.params, b.params, strict=True))
    for m, n in zip(a.nodes, b.nodes, strict=True):
        wired = len(m.inputs) == len(n.inputs) and all(
            twin.get(x) is y for x, y in zip(m.inputs, n.inputs, strict=True)
        )
        if m.op is not n.op or not wired or m.where != n.where or not same_attrs(m.attrs, n.attrs):
            return False
        if [o.type for o in m.outputs] != [o.type for o in n.outputs]:
            return False
        twin.update(zip(m.outputs, n.outputs, strict=True))
    return len(a.outputs) == len(b.outputs) and all(twin.get(x) is y for x, y in zip(a.outputs, b.outputs, strict=True))


def same_attrs(a: Attrs, b: Attrs) -> bool:
    """Equal attributes; floats compare by their bits, so NaN equals NaN and 0.0 differs from -0.0."""
    return a.keys() == b.keys() and all(attr_key(a[k]) == attr_key(b[k]) for k in a)


def attr_key(attr: Any) -> Any:
    """A hashable stand-in for an attribute that is equal exactly when the attributes are."""
    if isinstance(attr, float):
        return "float", attr.hex()
    if isinstance(attr, complex):
        return "complex", attr.real.hex(), attr.imag.hex()
    if isinstance(attr, tuple):
        return tuple([attr_key(x) for x in attr])
    return type(attr).__name__, attr
