"""Small programs on the host: the NumPy references of their ops one after the other, without XLA.

A call of XLA costs about ten times a NumPy call on few elements, and a new shape costs a compilation; so eager mode
runs small operands here. `program(fn)` gives a function of NumPy arrays, or None where the function is to be compiled:
large arrays, much work, bodies, effects, an op that says `host=No("reason")`, or a device that is not the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from treadle.base.flags import flags
from treadle.base.small import limit, quietly
from treadle.ir import interp
from treadle.ir.node import Fn, Module, Node, Value
from treadle.ops._axes import node_flops
from treadle.runtime import pjrt

Array = np.ndarray[Any, Any]
Program = Callable[[Sequence[Array]], list[Array]]

# Work above which a compiled program is faster in spite of its start: about 0.1 ms of NumPy.
MAX_FLOPS = 1 << 22


def find_limit() -> int:
    """The number of elements up to which an array is small on this platform; 0 where all has to be compiled."""
    most = 0 if flags.debug >= 2 or pjrt.default_device().platform != "cpu" else flags.host_elements
    limit.now = 0 if flags.debug_nans else most
    return most


def program(fn: Fn) -> Program | None:
    """A function that runs `fn` on arrays of its parameters' types, or None if it is to be compiled."""
    plan = _Plan(fn.params, find_limit())
    if not plan.add(fn):
        return None
    steps, results, run = plan.steps, [plan.slots[o] for o in fn.outputs], _run
    return lambda arrays: quietly(run, steps, results, arrays)


class _Step:
    """One reference call: places of its operands, and the types of its results, which are added in order."""

    __slots__ = ("attrs", "dtypes", "function", "places")

    def __init__(self, node: Node, places: tuple[int, ...]) -> None:
        self.function, self.attrs, self.places = _function(node), dict(node.attrs), places
        self.dtypes = [o.type.dtype.np for o in node.outputs]
        if not places and len(self.dtypes) == 1:  # the same each time
            constant = np.asarray(quietly(partial(self.function, **self.attrs)), self.dtypes[0])
            self.function, self.attrs = lambda: constant, {}


def _function(node: Node) -> Callable[..., Any]:
    """The NumPy function of an op on floats of one type, which costs less than the reference; else the reference."""
    kinds = {v.dtype.name for v in node.inputs}
    direct = node.op.numpy_function() if kinds in ({"float32"}, {"float64"}) and not node.attrs else None
    found: Callable[..., Any] = direct or node.op.rules["ref"]
    return found


class _Plan:
    """Reference calls in order, and the place of every value in the list of arrays that grows with them."""

    def __init__(self, params: Sequence[Value], most: int) -> None:
        self.most, self.steps = most, list[_Step]()
        self.slots: dict[Value, int] = {p: i for i, p in enumerate(params)}
        self.count = len(params)

    def add(self, fn: Fn) -> bool:
        """Add the nodes of `fn`, ops without a reference expanded; False if one does not run here."""
        return all(p.type.size <= self.most for p in fn.params) and all(map(self._add_node, fn.nodes))

    def _add_node(self, node: Node) -> bool:
        if not _runs_here(node) or any(o.type.size > self.most for o in node.outputs):
            return False
        places = [self.slots[v] for v in node.inputs]
        if "ref" in node.op.rules:
            self.steps.append(_Step(node, tuple(places)))
            self.slots.update(zip(node.outputs, range(self.count, self.count + len(node.outputs)), strict=True))
            self.count += len(node.outputs)
            return True
        inner = interp.expansion(node.op, tuple([v.type for v in node.inputs]), node.attrs)
        self.slots.update(zip(inner.params, places, strict=True))
        if not self.add(inner):
            return False
        self.slots.update({o: self.slots[v] for o, v in zip(node.outputs, inner.outputs, strict=True)})
        return True


def _runs_here(node: Node) -> bool:
    op = node.op
    if op.has_regions or op.rule("effect") or "callee" in node.attrs or not op.rules.get("host", True):
        return False
    return node_flops(node, Module({})) <= MAX_FLOPS


def _run(steps: Sequence[_Step], results: Sequence[int], arrays: Sequence[Array]) -> list[Array]:
    values = list(arrays)
    for step in steps:
        found = step.function(*[values[i] for i in step.places], **step.attrs)
        if type(found) is tuple:
            values += [np.asarray(f, dtype) for f, dtype in zip(found, step.dtypes, strict=True)]
        else:
            dtype = step.dtypes[0]
            values.append(found if type(found) is np.ndarray and found.dtype is dtype else np.asarray(found, dtype))
    return [values[i] for i in results]
