"""Groups whose kernels pack an operand that stays the same from call to call are given it packed.

`with_panels(module, fixed, spare, offer)` takes a module with groups (transforms/fuse) and the numbers of main's
parameters that stay the same. Where `offer` has a kernel in two for a group and the operand that it packs is such a
parameter, the group gets the panels instead (beside it, if the kernel reads it too), as a new parameter of main; those
from number `spare` on that nobody reads any more are left out. With the module comes what its parameters are now: old
ones by number, and `Wanted`. `parts_with_panels` does the same for a module in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from treadle.base.dtypes import uint8
from treadle.ir.node import Fn, Module, Node, Value
from treadle.ir.types import TensorType
from treadle.ops.groups import fused
from treadle.transforms.parts import Part, Parts, Run


class Offer(NamedTuple):
    """A kernel that takes panels, u8[bytes], of the operand of this number. reads: it reads the operand too."""

    kernel: str
    operand: int
    bytes: int
    reads: bool = False


class Wanted(NamedTuple):
    """Panels for a kernel, to be made of a parameter."""

    param: int
    kernel: str
    bytes: int

    @property
    def type(self) -> TensorType:
        """Of the panels."""
        return TensorType(uint8, (self.bytes,))


Offers = Callable[[Fn], Offer | None]
Params = tuple[int | Wanted, ...]


def with_panels(module: Module, fixed: Collection[int], spare: int, offer: Offers) -> tuple[Module, Params]:
    """The module and what its parameters are. Groups in the bodies of loops and branches stay as they are."""
    main = module.main
    number = {p: i for i, p in enumerate(main.params) if i in fixed}
    panels: dict[Wanted, Value] = {}
    twin: dict[Value, Value] = {}
    nodes: list[Node] = []
    for node in main.nodes:
        inputs, attrs = tuple([twin.get(v, v) for v in node.inputs]), node.attrs
        found = offer(node.attrs["body"]) if _may_have(node, number) else None
        if found is not None and node.inputs[found.operand] in number:
            wanted = Wanted(number[node.inputs[found.operand]], found.kernel, found.bytes)
            packed, at = panels.setdefault(wanted, Value(wanted.type)), found.operand
            inputs = (*inputs, packed) if found.reads else (*inputs[:at], packed, *inputs[at + 1 :])
            attrs = {**attrs, "panels": found.kernel}
        made = node
        if inputs != node.inputs:
            made = Node(node.op, inputs, attrs, tuple([o.type for o in node.outputs]), node.where)
            twin.update(zip(node.outputs, made.outputs, strict=True))
        nodes.append(made)
    if not panels:
        return module, tuple(range(len(main.params)))
    outputs = tuple([twin.get(o, o) for o in main.outputs])
    read = {v for n in nodes for v in n.inputs} | set(outputs)
    kept = [i for i, p in enumerate(main.params) if i < spare or p in read]
    new = Fn(main.name, (*[main.params[i] for i in kept], *panels.values()), tuple(nodes), outputs)
    return Module.of(new, module.callees()), (*kept, *panels)


def _may_have(node: Node, fixed: dict[Value, int]) -> bool:
    return node.op is fused and not node.attrs.get("panels") and any(v in fixed for v in node.inputs)


def parts_with_panels(
    parts: Parts, count: int, fixed: Collection[int], spare: int, offer: Offers
) -> tuple[Parts, Params]:
    """Parts whose modules have groups, for a module of `count` parameters, and what these are now. A part takes panels
    where the operand is a fixed parameter of the module in each of its runs."""
    programs, params = list[Part](), list[Params]()
    for nth, part in enumerate(parts.programs):
        runs = [r for r in parts.runs if r.part == nth]
        same = [i for i in range(len(part.module.main.params)) if all(r.inputs[i] in fixed for r in runs)]
        module, mine = with_panels(part.module, same, 0, offer)
        kept = {old: new for new, old in enumerate(mine) if isinstance(old, int)}
        donate = {kept[i]: o for i, o in part.donate.items() if i in kept}
        programs.append(replace(part, module=module, donate=donate))
        params.append(mine)
    inputs: list[list[int | Wanted]] = [
        [r.inputs[p] if isinstance(p, int) else p._replace(param=r.inputs[p.param]) for p in params[r.part]]
        for r in parts.runs
    ]
    read = {p for each in inputs for p in each} | set(parts.outputs)
    panels = dict.fromkeys([p for each in inputs for p in each if isinstance(p, Wanted)])
    whole: Params = (*[i for i in range(count) if i < spare or i in read], *panels)
    slot: dict[int | Wanted, int] = {p: i for i, p in enumerate(whole)}
    slot |= {s: len(whole) + s - count for s in range(count, parts.slots)}
    runs_now = [
        Run(r.part, _slots(slot, mine), _slots(slot, r.outputs), _slots(slot, [s for s in r.frees if s in slot]))
        for r, mine in zip(parts.runs, inputs, strict=True)
    ]
    return Parts(tuple(programs), tuple(runs_now), len(slot), _slots(slot, parts.outputs)), whole


def _slots(slot: dict[int | Wanted, int], old: Sequence[int | Wanted]) -> tuple[int, ...]:
    return tuple([slot[s] for s in old])
