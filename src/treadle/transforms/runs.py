"""Groups that have kernels and follow one another become one group, a run, whose kernels are called at once.

`with_runs(module, takes)` takes a module with groups (transforms/fuse) and gives it with runs in the place of groups in
a row that have little work each: a run is a `fused` node whose body has `fused` nodes and the reshapes between them.
`takes` says whether a kernel computes a group. What does not need the run's results goes before it. The threads that a
kernel wakes take longer to come than a small one takes to run (kernels/runs.py).
"""

from __future__ import annotations

from collections.abc import Callable

from treadle.ir.node import Fn, Module, Node, Value
from treadle.ops._axes import node_flops
from treadle.ops.groups import fused
from treadle.ops.shape import reshape

LEAST = 3  # kernels in a run
MOST_S = 5e-4  # that a kernel takes on one core, on average: of larger ones waking threads is a small part
CORE_FLOPS, BYTES = 6e10, 1e10  # per second: what one core computes, what the memory moves

Takes = Callable[[Node], bool]


def is_run(body: Fn) -> bool:
    """Whether a group's body is that of a run."""
    return any(node.op is fused for node in body.nodes)


def with_runs(module: Module, takes: Takes) -> Module:
    """The module with runs in its main function; itself where there are none."""
    made = _Runs(module, takes).made()
    return module if made is module.main else Module.of(made, module.callees())


class _Runs:
    """nodes: the new function's, so far; members: the nodes of the run being gathered; inside: what these make; twin:
    the new value of an old one."""

    def __init__(self, module: Module, takes: Takes) -> None:
        self.module, self.takes, self.main = module, takes, module.main
        self.readers: dict[Value, list[Node]] = {}
        for node in self.main.nodes:
            for v in node.inputs:
                self.readers.setdefault(v, []).append(node)
        self.nodes: list[Node] = []
        self.members: list[Node] = []
        self.inside: set[Value] = set()
        self.twin: dict[Value, Value] = {}

    def made(self) -> Fn:
        """The function with runs; the old one where there are none."""
        for node in self.main.nodes:
            within = any(v in self.inside for v in node.inputs)
            if (node.op is fused and self.takes(node)) or (node.op is reshape and within):
                self.members.append(node)
                self.inside.update(node.outputs)
            else:
                if within:
                    self._close()
                self.nodes.append(_copied(node, self.twin))
        self._close()
        if not self.twin:
            return self.main
        outputs = tuple([self.twin.get(o, o) for o in self.main.outputs])
        return Fn(self.main.name, self.main.params, tuple(self.nodes), outputs)

    def _close(self) -> None:
        """The run ends here."""
        kernels = [n for n in self.members if n.op is fused]
        if len(kernels) >= LEAST and sum(map(self._seconds, kernels)) <= MOST_S * len(kernels):
            self._add(kernels)
        else:
            self.nodes += [_copied(n, self.twin) for n in self.members]
        self.members, self.inside = [], set()

    def _seconds(self, node: Node) -> float:
        moved = sum(v.type.bytes for v in (*node.inputs, *node.outputs))
        return node_flops(node, self.module) / CORE_FLOPS + moved / BYTES

    def _add(self, kernels: list[Node]) -> None:
        """One node for the members. Reshapes that others read are made again behind it."""
        own, kept = set(self.members), set(self.main.outputs)
        reshapes = [n for n in self.members if n.op is reshape and self._leaves(n.outputs[0], own, kept)]
        again = set(reshapes)
        for node in reversed(self.members):  # and those that these are made of
            if node.op is reshape and any(node.outputs[0] in n.inputs for n in again):
                again.add(node)
        needed = kept | {v for n in again for v in n.inputs}
        outputs = [o for n in kernels for o in n.outputs if self._leaves(o, own, needed)]
        inputs = list(dict.fromkeys([v for n in self.members for v in n.inputs if v not in self.inside]))
        params = tuple([Value(v.type) for v in inputs])
        within = dict(zip(inputs, params, strict=True))
        nodes = tuple([_copied(n, within) for n in self.members])
        body = Fn("run", params, nodes, tuple([within[o] for o in outputs]))
        given = tuple([self.twin.get(v, v) for v in inputs])
        run = Node(fused, given, {"body": body}, body.out_types, kernels[0].where)
        self.nodes.append(run)
        self.twin.update(zip(outputs, run.outputs, strict=True))
        self.nodes += [_copied(n, self.twin) for n in self.members if n in again]

    def _leaves(self, value: Value, own: set[Node], kept: set[Value]) -> bool:
        """Whether somebody outside the run reads a value of it, or it is among those kept."""
        return value in kept or any(n not in own for n in self.readers.get(value, ()))


def _copied(node: Node, twin: dict[Value, Value]) -> Node:
    """The node on the new values; what a changed node makes is new too."""
    inputs = tuple([twin.get(v, v) for v in node.inputs])
    if inputs == node.inputs:
        return node
    made = Node(node.op, inputs, node.attrs, tuple([o.type for o in node.outputs]), node.where)
    twin.update(zip(node.outputs, made.outputs, strict=True))
    return made
