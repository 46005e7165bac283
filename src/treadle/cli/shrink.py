"""Makes a module smaller while it keeps a property (usually: a pass fails on it). Greedy, large cuts first."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from treadle.ir.node import Fn, Module, Node, Value
from treadle.ir.rewrite import with_inputs
from treadle.transforms.dce import reachable, remove_dead

Keeps = Callable[[Module], bool]


def shrink(module: Module, keeps: Keeps) -> Module:
    """The smallest module found for which `keeps` holds; it holds for the given one."""
    while True:
        smaller = next((m for m in _smaller(module) if keeps(m)), None)
        if smaller is None:
            return module
        module = smaller


def _smaller(module: Module) -> Iterator[Module]:
    """Modules a step smaller: fewer outputs, nodes turned into parameters (many first), no unused parameters."""
    reached = reachable(module)
    if len(reached) < len(module.fns):
        yield Module({name: fn for name, fn in module.fns.items() if name in reached})
    fn = module.main  # the types of other functions are fixed by their calls
    for smaller in _fewer_outputs(fn):
        yield _with_main(module, smaller)
    pruned = remove_dead(fn)
    if pruned is not fn:
        yield _with_main(module, pruned)
    used = {v for n in fn.nodes for v in n.inputs} | set(fn.outputs)
    if not used.issuperset(fn.params):
        yield _with_main(module, Fn(fn.name, tuple([p for p in fn.params if p in used]), fn.nodes, fn.outputs))
    size = len(fn.nodes)
    while size:
        for start in range(0, len(fn.nodes), size):
            yield _with_main(module, _without(fn, set(fn.nodes[start : start + size])))
        size //= 2


def _with_main(module: Module, main: Fn) -> Module:
    return Module({**module.fns, "main": main})


def _fewer_outputs(fn: Fn) -> Iterator[Fn]:
    half = len(fn.outputs) // 2
    for outputs in ((), fn.outputs[:half], fn.outputs[half:]):
        if len(outputs) < len(fn.outputs):
            yield Fn(fn.name, fn.params, fn.nodes, outputs)
    for output in fn.outputs:  # a cut through the middle: give what the last node took
        if output.node is not None and output.node.inputs:
            rest = tuple(dict.fromkeys([o for o in fn.outputs if o is not output] + list(output.node.inputs)))
            yield Fn(fn.name, fn.params, fn.nodes, rest)


def _without(fn: Fn, dropped: set[Node]) -> Fn:
    """`fn` with parameters in place of the results of the dropped nodes."""
    twin: dict[Value, Value] = {}
    params, nodes = list(fn.params), []
    for node in fn.nodes:
        if node in dropped:
            twin.update({o: Value(o.type) for o in node.outputs})
            params += [twin[o] for o in node.outputs]
            continue
        new = with_inputs(node, tuple([twin.get(v, v) for v in node.inputs]))
        nodes.append(new)
        if new is not node:
            twin.update(zip(node.outputs, new.outputs, strict=True))
    return Fn(fn.name, tuple(params), tuple(nodes), tuple([twin.get(o, o) for o in fn.outputs]))
