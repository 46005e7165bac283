"""Batching, function to function: `batch(fn, flags, size)` runs `fn` on `size` lanes at once, in one set of nodes.

Each flagged input, and every output, has a new first axis of `size`; the other inputs are the same for all lanes. A
node whose inputs do not depend on the lane stays as it is. Another is batched by, in this order: its op's `batch` rule;
the op itself with one more leading axis, where its axes rule lets `...` lead everywhere; its expansion; and if there is
none of these, a `scan` over the lanes of that one node, which is always right.

A `batch` rule is "leading" (the op takes another leading axis, attributes unchanged), "leading n" (so do its first n
operands, the others must not differ between lanes), "shift attr" (so, with 1 added to the axes in the attribute), or
rule(run, inputs, flags, **attrs) -> (outputs, which of them are batched); NotImplemented goes on to the next way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from treadle.base import where
from treadle.base.errors import internal_error
from treadle.ir.build import Builder, apply, emit, trace
from treadle.ir.interp import expansion
from treadle.ir.node import Attrs, Fn, Node, Value
from treadle.ir.op import Op, get
from treadle.ir.types import TensorType
from treadle.ir.walk import fn_named

Batched = tuple[Sequence[Value], Sequence[bool]]


@dataclass
class Batch:
    """One batching run of `size` lanes. fns: the module's functions, to which batched ones are added."""

    size: int
    fns: dict[str, Fn]
    made: set[str] = field(default_factory=set)
    bodies: dict[Any, tuple[Fn, list[bool], Fn]] = field(default_factory=dict)

    def replay(self, fn: Fn, args: Sequence[Value], flags: Sequence[bool]) -> Batched:
        """Outputs of `fn` on `args`, and which of them are batched."""
        twin: dict[Value, Value] = dict(zip(fn.params, args, strict=True))
        lanes = {p for p, f in zip(fn.params, flags, strict=True) if f}
        for node in fn.nodes:
            inputs = tuple([twin[v] for v in node.inputs])
            with where.at(where.here() if node.where is where.UNKNOWN else node.where):
                if any(v in lanes for v in node.inputs):
                    outputs, found = self._batch(node, inputs, tuple([v in lanes for v in node.inputs]))
                    self._check(node, outputs, found)
                    lanes.update([o for o, f in zip(node.outputs, found, strict=True) if f])
                else:
                    outputs = emit(node, inputs)
            twin.update(zip(node.outputs, outputs, strict=True))
        return [twin[o] for o in fn.outputs], [o in lanes for o in fn.outputs]

    def _batch(self, node: Node, inputs: tuple[Value, ...], flags: tuple[bool, ...]) -> Batched:
        op, attrs = node.op, node.attrs
        rule = op.rules.get("batch") or ("leading" if _leads_everywhere(op) else None)
        if isinstance(rule, str):
            found = self._by_text(rule, op, inputs, flags, attrs)
        else:
            found = rule(self, inputs, flags, **attrs) if rule is not None else NotImplemented
        if found is not NotImplemented:
            done: Batched = found
            return done
        if op.rules.get("expand"):
            return self.replay(expansion(op, tuple([v.type for v in node.inputs]), attrs), inputs, flags)
        return self._each(node, inputs, flags)

    def _by_text(self, rule: str, op: Op, inputs: tuple[Value, ...], flags: tuple[bool, ...], attrs: Attrs) -> Any:
        word, _, what = rule.partition(" ")
        count = int(what) if word == "leading" and what else len(inputs)
        if any(flags[count:]):
            return NotImplemented
        changed = dict(attrs)
        if word == "shift":
            at = attrs[what]
            changed[what] = tuple([a + 1 for a in at]) if isinstance(at, tuple) else at + 1
        outputs = apply(op, [*self.all(inputs[:count], flags[:count]), *inputs[count:]], changed)
        outputs = (outputs,) if isinstance(outputs, Value) else outputs
        return outputs, [True] * len(outputs)

    def _each(self, node: Node, inputs: tuple[Value, ...], flags: tuple[bool, ...]) -> Batched:
        """The node run for one lane after the other."""
        fixed = [v for v, f in zip(inputs, flags, strict=True) if not f]
        stacked = [v for v, f in zip(inputs, flags, strict=True) if f]

        def one(*args: Value) -> tuple[Value, ...]:
            same, lane = iter(args[: len(fixed)]), iter(args[len(fixed) :])
            return emit(node, tuple([next(lane) if f else next(same) for f in flags]))

        types = [*[v.type for v in fixed], *[v.type.with_shape(v.shape[1:]) for v in stacked]]
        body = trace(one, types, node.op.name, self.fns)
        shape = {"n_consts": len(fixed), "n_carry": 0, "length": self.size, "reverse": False}
        outputs: tuple[Value, ...] = get("scan")(*fixed, *stacked, body=body, **shape)
        return outputs, [True] * len(outputs)

    def _check(self, node: Node, outputs: Sequence[Value], flags: Sequence[bool]) -> None:
        for new, old, f in zip(outputs, node.outputs, flags, strict=True):
            wanted = self.type(old.type) if f else old.type
            if new.type != wanted:
                internal_error(f"the batched {node.op.name} gives {new.type} instead of {wanted}")

    def type(self, type: TensorType) -> TensorType:
        """The type with the lanes as first axis."""
        return type.with_shape((self.size, *type.shape))

    def spread(self, value: Value) -> Value:
        """A value that is the same for all lanes, once for each."""
        made: Value = get("broadcast_to")(value, shape=(self.size, *value.shape))
        return made

    def all(self, values: Sequence[Value], flags: Sequence[bool]) -> list[Value]:
        """The values, all of them batched."""
        return [v if f else self.spread(v) for v, f in zip(values, flags, strict=True)]

    def region(self, fn: Fn, flags: Sequence[bool], outs: Sequence[bool] | None = None) -> tuple[Fn, list[bool]]:
        """A batched body, and which of its outputs are batched. outs: those that must be (default: as few as can).

        Each is made once: rules of nested loops ask again and again.
        """
        key = (id(fn), tuple(flags), outs if outs is None else tuple(outs))
        if key not in self.bodies:
            self.bodies[key] = (*self._region(fn, flags, outs), fn)
        return self.bodies[key][:2]

    def _region(self, fn: Fn, flags: Sequence[bool], outs: Sequence[bool] | None) -> tuple[Fn, list[bool]]:
        with Builder(f"{fn.name}.batch", self.fns) as b:
            args = [b.param(self.type(t) if f else t) for t, f in zip(fn.in_types, flags, strict=True)]
            outputs, found = self.replay(fn, args, flags)
            wanted = list(found) if outs is None else [a or b for a, b in zip(outs, found, strict=True)]
            spread = [self.spread(o) if w and not f else o for o, f, w in zip(outputs, found, wanted, strict=True)]
            return b.finish(spread), wanted

    def callee(self, name: str, flags: Sequence[bool]) -> str:
        """The name of the function `name` batched in the inputs flagged and in every output; it is made once and put
        into the module."""
        batched = f"{name}.batch{self.size}_{''.join('1' if f else '0' for f in flags)}"
        if batched not in self.made:
            self.made.add(batched)
            plain = fn_named(self.fns, name)
            fn, _ = self.region(plain, flags, [True] * len(plain.outputs))
            self.fns[batched] = Fn(batched, fn.params, fn.nodes, fn.outputs)
        return batched


def _leads_everywhere(op: Op) -> bool:
    """Whether the axes rule is a text in which every operand and every result begins with `...`."""
    text = op.rules["axes"]
    if not isinstance(text, str):
        return False
    left, _, right = text.partition("->")
    return all(group.split()[:1] == ["..."] for side in (left, right) for group in side.split(","))


def batch(fn: Fn, flags: Sequence[bool], size: int, fns: dict[str, Fn] | None = None) -> Fn:
    """`fn` on `size` lanes: inputs flagged and all outputs get a new first axis; `fns` receives the functions that the
    result calls."""
    run = Batch(size, {} if fns is None else fns)
    batched, _ = run.region(fn, flags, [True] * len(fn.outputs))
    return batched
