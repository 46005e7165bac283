"""Numbers that equal calls take one by one from a vector are handed to them as one piece of it.

An optimiser keeps the step counts of all parameters in one vector, so the update of each layer takes many numbers out
of it, at places of its own: as many small kernels as parameters. `in_rows` moves taking them apart into the function
that is called, where it is the same for all layers.
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.ir import build
from treadle.ir.node import Fn, Module, Node, Value
from treadle.ir.rewrite import rebuild
from treadle.ops.calls import call
from treadle.ops.shape import reshape, slice_
from treadle.transforms.dce import Dce

_Places = tuple[tuple[int, int], ...]  # (operand, place of its number after the first one)


def in_rows(module: Module, calls: Sequence[Node]) -> Module:
    """The module where it is possible for all of the `calls` in main to a function; itself where it is for none."""
    by_callee: dict[str, list[Node]] = {}
    for node in calls:
        by_callee.setdefault(node.attrs["callee"], []).append(node)
    places = {name: found for name, nodes in by_callee.items() if (found := _common(nodes))}
    if not places:
        return module
    fns = dict(module.fns)
    for name, found in places.items():
        fns[name] = _taking_row(fns[name], by_callee[name][0], found)
    chosen = {node for name in places for node in by_callee[name]}

    def visit(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        if node not in chosen:
            return None
        name = node.attrs["callee"]
        results: Sequence[Value] = call(*_with_row(inputs, places[name]), callee=name, results=node.attrs["results"])
        return results

    fns["main"] = rebuild(module.main, visit, fns)
    return Dce()(Module(fns))


def _number(value: Value) -> tuple[Value, int] | None:
    """The vector and the place that a number is taken from."""
    node = value.node
    if value.shape or node is None or node.op.name != "reshape":
        return None
    source = node.inputs[0].node
    if source is None or source.op.name != "slice" or source.inputs[0].ndim != 1:
        return None
    return source.inputs[0], source.attrs["starts"][0]


def _common(calls: Sequence[Node]) -> _Places:
    """The operands that are such numbers, at the same distances in every call; nothing when that gains nothing."""
    found: set[_Places] = set()
    for node in calls:
        numbers = [(i, at) for i, v in enumerate(node.inputs) if (at := _number(v)) is not None]
        mine = [(i, place) for i, (vector, place) in numbers if vector is numbers[0][1][0]]
        first = min([place for _, place in mine], default=0)
        found.add(tuple([(i, place - first) for i, place in mine]))
    places = found.pop()
    dense = len(places) > 1 and max(p for _, p in places) < 2 * len(places)
    return places if dense and not found else ()


def _with_row(inputs: Sequence[Value], places: _Places) -> list[Value]:
    """The operands of a call, its numbers replaced by one piece of their vector, which comes last."""
    taken = {i for i, _ in places}
    found = [at for i in taken if (at := _number(inputs[i])) is not None]
    start, length = min(place for _, place in found), 1 + max(p for _, p in places)
    row = slice_(found[0][0], starts=(start,), limits=(start + length,), strides=(1,))
    return [*[v for i, v in enumerate(inputs) if i not in taken], row]


def _taking_row(fn: Fn, example: Node, places: _Places) -> Fn:
    """`fn` with one vector as its last parameter in place of the numbers."""
    number = dict(places)
    kept = [i for i in range(len(fn.params)) if i not in number]
    vector = _number(example.inputs[places[0][0]])
    assert vector is not None
    row = vector[0].type.with_shape((1 + max(number.values()),))

    def body(*args: Value) -> Sequence[Value]:
        given = dict(zip(kept, args[:-1], strict=True))
        for i, p in places:
            given[i] = reshape(slice_(args[-1], starts=(p,), limits=(p + 1,), strides=(1,)), shape=())
        return build.inline(fn, [given[i] for i in range(len(fn.params))])

    return build.trace(body, [*[fn.in_types[i] for i in kept], row], fn.name)
