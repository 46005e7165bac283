"""Which operands' memory a kernel may take for its results: `Lifetimes(fn, ending).ending_at(node)`, their numbers.

XLA copies an operand that shares memory with a result and is read later, or may be: its copy costs what a pass over the
tensor costs. So a kernel shares the memory of an operand only where every other reader comes before it by its data,
and where nobody outside keeps the value.
"""

from __future__ import annotations

from collections.abc import Collection

from treadle.ir.node import Fn, Node, Value
from treadle.ops.shape import reshape


class Lifetimes:
    """Of the values of a function. ending: parameters, by number, whose memory nobody needs once they are read."""

    def __init__(self, fn: Fn, ending: Collection[int]) -> None:
        self.kept = {_root(v) for v in fn.outputs} | {p for i, p in enumerate(fn.params) if i not in ending}
        self.before: dict[Node, int] = {}  # all that a node depends on, itself included, as a set of bits
        self.readers: dict[Value, int] = {}
        for i, node in enumerate(fn.nodes):
            found = 1 << i
            for v in node.inputs:
                found |= self.before[v.node] if v.node is not None else 0
                if node.op is not reshape:
                    self.readers[_root(v)] = self.readers.get(_root(v), 0) | 1 << i
            self.before[node] = found

    def ending_at(self, node: Node) -> frozenset[int]:
        """Numbers of the operands whose values end with this node."""
        roots = [_root(v) for v in node.inputs]
        return frozenset([i for i, root in enumerate(roots) if roots.count(root) == 1 and self._ends(root, node)])

    def _ends(self, root: Value, node: Node) -> bool:
        made = root.node is None or bool(root.node.inputs)  # what has no operands may be a constant of the program
        return made and root not in self.kept and not self.readers[root] & ~self.before[node]


def _root(value: Value) -> Value:
    """The value in whose memory this one is."""
    while value.node is not None and value.node.op is reshape:
        value = value.node.inputs[0]
    return value
