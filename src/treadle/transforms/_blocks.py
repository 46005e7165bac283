"""Functions that call one another, cut at these calls into blocks: the graph that `recursion.py` makes a loop of.

`cut(fns)` gives the blocks by function. Only bodies with such a call inside are taken apart, into branches and
jumps; every other node is an item of a block. Variables are `Value`s of their own, written by items, jumps and calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from treadle.base.errors import UserError
from treadle.ir.interp import expansion
from treadle.ir.node import Fn, Node, Value
from treadle.ir.walk import all_nodes, has_effect


@dataclass(frozen=True)
class Item:
    """A node on variables, each of which it alone writes."""

    node: Node
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


@dataclass(frozen=True)
class Jump:
    """Go on with `target` after the assignments `moves` (new variable: old one), made all at once."""

    target: Block
    moves: Mapping[Value, Value]


@dataclass(frozen=True)
class Branch:
    """Go on with `then` where `pred` is true, else with `orelse`."""

    pred: Value
    then: Block
    orelse: Block


@dataclass(frozen=True)
class Call:
    """Call a function of the group; `back` goes on with its results."""

    callee: str
    args: tuple[Value, ...]
    results: tuple[Value, ...]
    back: Block


@dataclass(frozen=True)
class Return:
    values: tuple[Value, ...]


End = Jump | Branch | Call | Return


@dataclass(eq=False)
class Block:
    """Items in order, and what comes after them."""

    items: list[Item] = field(default_factory=list)
    end: End = Return(())
    header: bool = False  # of a loop

    def next(self, cuts: Mapping[str, Cut]) -> list[Block]:
        """The blocks that may come after this one, those of a called function included."""
        match self.end:
            case Jump(target, _):
                return [target]
            case Branch(_, then, orelse):
                return [then, orelse]
            case Call(callee, _, _, back):
                return [cuts[callee].first, back]
        return []


@dataclass(frozen=True)
class Cut:
    """A function of the group: its parameters and its first block."""

    params: tuple[Value, ...]
    first: Block


def cut(fns: Mapping[str, Fn]) -> dict[str, Cut]:
    """The functions as blocks. Raises E0313 for a call from a body that cannot be taken apart."""
    cutter = _Cutter(fns)
    cuts = {name: cutter.function(name) for name in fns}
    for block in [b for name in cuts for b in reached(cuts, name)]:
        _shorten(block, cuts)
    return cuts


def reached(cuts: Mapping[str, Cut], entry: str) -> list[Block]:
    """The blocks from the first one of `entry` on."""
    found = {cuts[entry].first: None}
    todo = list(found)
    while todo:
        new = [b for b in todo.pop().next(cuts) if b not in found]
        found.update(dict.fromkeys(new))
        todo += new
    return list(found)


class _Cutter:
    """Appends nodes to `block`, the one being filled."""

    def __init__(self, fns: Mapping[str, Fn]) -> None:
        self.fns = fns
        self.block = Block()

    def function(self, name: str) -> Cut:
        fn = self.fns[name]
        params = _fresh(fn.params)
        first = self.block = Block()
        outputs = self.run(fn, params)
        self.block.end = Return(tuple(outputs))
        return Cut(params, first)

    def calls(self, node: Node) -> bool:
        """Whether it calls a function of the group, itself or in a body."""
        if node.attrs.get("callee") in self.fns:
            return True
        return any(n.attrs.get("callee") in self.fns for _, body in node.regions() for n in all_nodes(body))

    def run(self, fn: Fn, args: Sequence[Value]) -> list[Value]:
        """The variables of the outputs of `fn`."""
        twin: dict[Value, Value] = dict(zip(fn.params, args, strict=True))
        for node in fn.nodes:
            inputs = tuple([twin[v] for v in node.inputs])
            if self.calls(node):
                outputs = self.apart(node, inputs)
            else:
                outputs = _fresh(node.outputs)
                self.block.items.append(Item(node, inputs, tuple(outputs)))
            twin.update(zip(node.outputs, outputs, strict=True))
        return [twin[v] for v in fn.outputs]

    def apart(self, node: Node, inputs: tuple[Value, ...]) -> Sequence[Value]:
        """The variables of the results of a node with calls inside."""
        if node.op.name == "call":
            results, back = _fresh(node.outputs), Block()
            self.block.end = Call(node.attrs["callee"], inputs, results, back)
            self.block = back
            return results
        if node.op.name == "if":
            return self.branch(node, inputs)
        if node.op.name == "while":
            return self.loop(node, inputs)
        if node.op.name == "remat":
            return self.run(node.attrs["body"], inputs)
        if not node.op.rules.get("expand"):
            why = f"a function calls itself from inside {node.op.name}"
            raise UserError("E0313", why, fix="call it outside", where=node.where)
        return self.run(expansion(node.op, tuple([v.type for v in inputs]), node.attrs), inputs)

    def branch(self, node: Node, inputs: tuple[Value, ...]) -> Sequence[Value]:
        pred, *operands = inputs
        sides, join, results = (Block(), Block()), Block(), _fresh(node.outputs)
        self.block.end = Branch(pred, *sides)
        for side, name in zip(sides, ("then", "orelse"), strict=True):
            self.block = side
            outputs = self.run(node.attrs[name], operands)
            self.block.end = Jump(join, dict(zip(results, outputs, strict=True)))
        self.block = join
        return results

    def loop(self, node: Node, inputs: tuple[Value, ...]) -> Sequence[Value]:
        n = node.attrs["n_consts"]
        consts, carry = inputs[:n], _fresh(node.outputs)
        header, body, after = Block(header=True), Block(), Block()
        self.block.end = Jump(header, dict(zip(carry, inputs[n:], strict=True)))
        self.block = header
        (go,) = self.run(node.attrs["cond"], [*consts, *carry])
        self.block.end = Branch(go, body, after)
        self.block = body
        new = self.run(node.attrs["body"], [*consts, *carry])
        self.block.end = Jump(header, dict(zip(carry, new, strict=True)))
        self.block = after
        return carry


def _fresh(values: Sequence[Value]) -> tuple[Value, ...]:
    return tuple([Value(v.type) for v in values])


def _shorten(block: Block, cuts: Mapping[str, Cut]) -> None:
    """A jump to nothing but a return becomes the return; a call whose results are returned becomes a jump."""
    end = block.end
    if isinstance(end, Jump):
        values = _returned(end.target, end.moves)
        block.end = end if values is None else Return(values)
    elif isinstance(end, Call) and _returned(end.back, {}) == end.results:
        callee = cuts[end.callee]
        block.end = Jump(callee.first, dict(zip(callee.params, end.args, strict=True)))


def _returned(block: Block, moves: Mapping[Value, Value]) -> tuple[Value, ...] | None:
    """What is returned by going on with `block`, if that is all that happens."""
    now, seen = dict(moves), set[Block]()
    while not block.items and isinstance(block.end, Jump) and block not in seen:
        seen.add(block)
        end = block.end
        now.update({new: now.get(old, old) for new, old in end.moves.items()})
        block = end.target
    if block.items or not isinstance(block.end, Return):
        return None
    return tuple([now.get(v, v) for v in block.end.values])


# ------------------------------------------------------------------------------------------------- what never changes
def settle(cuts: Mapping[str, Cut], entry: str) -> tuple[tuple[Value, ...], dict[Value, Item]]:
    """Take out of the blocks what is the same in every call.

    Returns a variable for each argument of the entry as it was given from outside, put in place of all those that are
    always equal to it; and the items made from nothing but these, by their results: they are no longer in the blocks.
    """
    blocks = reached(cuts, entry)
    given = tuple([Value(p.type) for p in cuts[entry].params])
    origin = _origins(blocks, cuts, dict(zip(cuts[entry].params, given, strict=True)))
    same = {v: o for v, o in origin.items() if o is not None}
    for block in blocks:
        block.items = [Item(i.node, _renamed(i.inputs, same), i.outputs) for i in block.items]
        block.end = _rename_end(block.end, same)
    fixed: dict[Value, Item] = {}
    for block in blocks:  # what a later block fixes is not seen to be fixed in an earlier one: no harm
        kept = []
        for item in block.items:
            if all(v in given or v in fixed for v in item.inputs) and not has_effect(item.node) and _plain(item.node):
                fixed.update(dict.fromkeys(item.outputs, item))
            else:
                kept.append(item)
        block.items = kept
    return given, fixed


def _plain(node: Node) -> bool:
    return "callee" not in node.attrs and not node.op.has_regions


def _origins(blocks: Sequence[Block], cuts: Mapping[str, Cut], start: dict[Value, Value]) -> dict[Value, Value | None]:
    """For each variable written by jumps and calls alone, the one argument from outside that it always is; or None."""
    origin: dict[Value, Value | None] = dict(start)
    moves = [pair for b in blocks for pair in _moves(b.end, cuts)]
    written = {v for b in blocks for i in b.items for v in i.outputs}
    written |= {v for b in blocks if isinstance(b.end, Call) for v in b.end.results}
    origin.update(dict.fromkeys(written, None))
    changed = True
    while changed:
        changed = False
        for new, old in moves:
            if old in origin and (new not in origin or (origin[new] is not origin[old] and origin[new] is not None)):
                origin[new] = origin[old] if new not in origin else None
                changed = True
    return origin


def _moves(end: End, cuts: Mapping[str, Cut]) -> Iterator[tuple[Value, Value]]:
    if isinstance(end, Jump):
        yield from end.moves.items()
    elif isinstance(end, Call):
        yield from zip(cuts[end.callee].params, end.args, strict=True)


def _renamed(values: Sequence[Value], same: Mapping[Value, Value]) -> tuple[Value, ...]:
    return tuple([same.get(v, v) for v in values])


def _rename_end(end: End, same: Mapping[Value, Value]) -> End:
    match end:
        case Jump(target, moves):
            return Jump(target, {new: same.get(old, old) for new, old in moves.items() if new not in same})
        case Branch(pred, then, orelse):
            return Branch(same.get(pred, pred), then, orelse)
        case Call(callee, args, results, back):
            return Call(callee, _renamed(args, same), results, back)
        case Return(values):
            return Return(_renamed(values, same))


# ----------------------------------------------------------------------------------------------------------- liveness
def liveness(blocks: Sequence[Block], cuts: Mapping[str, Cut], aside: set[Value]) -> dict[Block, set[Value]]:
    """The variables that are read from each block on, but for those `aside`; dead items leave the blocks."""
    live: dict[Block, set[Value]] = {b: set() for b in blocks}
    changed = True
    while changed:
        changed = False
        for block in reversed(blocks):
            found, _ = _before(block, _after(block.end, live, cuts), aside)
            if found != live[block]:
                live[block], changed = found, True
    for block in blocks:
        _, block.items = _before(block, _after(block.end, live, cuts), aside)
    return live


def _after(end: End, live: Mapping[Block, set[Value]], cuts: Mapping[str, Cut]) -> set[Value]:
    """What is read by the end of a block and after it."""
    match end:
        case Jump(target, moves):
            return {moves.get(v, v) for v in live[target]}
        case Branch(pred, then, orelse):
            return {pred} | live[then] | live[orelse]
        case Call(callee, args, results, back):
            one = cuts[callee]
            needed = {a for p, a in zip(one.params, args, strict=True) if p in live[one.first]}
            return needed | (live[back] - set(results))
        case Return(values):
            return set(values)


def _before(block: Block, after: set[Value], aside: set[Value]) -> tuple[set[Value], list[Item]]:
    """What is read from the start of the block on, and the items that are not dead."""
    found, kept = set(after), []
    for item in reversed(block.items):
        if any(v in found for v in item.outputs) or has_effect(item.node) or "callee" in item.node.attrs:
            kept.append(item)
            found -= set(item.outputs)
            found |= set(item.inputs)
    return found - aside, kept[::-1]
