"""Forward-mode differentiation, function to function: `jvp(fn, wrt)` takes tangents along and gives those of the
outputs.

A node's tangents come from, in this order: its op's `jvp` rule; for an elementwise op, its `grad` rule (the Jacobian is
diagonal, so that it is its own transpose); the op's expansion where it has no gradient of its own; else reverse mode
applied twice to that one node (the transpose of the transpose). A `jvp` rule is "linear" (in all float operands
together), "multilinear" (in each float operand alone), or rule(run, inputs, tangents, **attrs) -> (outputs, tangents),
where None is a tangent of zeros and `run.region` differentiates bodies. Source: Griewank & Walther 2008, chapter 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from treadle.base import where
from treadle.base.errors import UserError, internal_error
from treadle.ir.build import Builder, emit, inline
from treadle.ir.interp import expansion
from treadle.ir.node import Fn, Node, Value
from treadle.ir.op import get
from treadle.ir.quiet import quiet
from treadle.ir.walk import fn_named, needed
from treadle.ops._axes import axes_of
from treadle.transforms.grad import value_and_vjp, zeros

Tangents = Sequence["Value | None"]
Pushed = tuple[Sequence[Value], Tangents]


@dataclass
class Forward:
    """One forward-mode run. fns: the module's functions, to which those with tangents are added."""

    fns: dict[str, Fn]
    made: set[str] = field(default_factory=set)
    bodies: dict[Any, tuple[Fn, list[bool], Fn]] = field(default_factory=dict)

    def replay(self, fn: Fn, args: Sequence[Value], tangents: Tangents) -> Pushed:
        """Outputs of `fn` on `args` and their tangents."""
        twin: dict[Value, Value] = dict(zip(fn.params, args, strict=True))
        moves = {p: t for p, t in zip(fn.params, tangents, strict=True) if t is not None}
        for node in fn.nodes:
            inputs = tuple([twin[v] for v in node.inputs])
            moving = any(v in moves for v in node.inputs) and any(o.type.dtype.is_inexact for o in node.outputs)
            with where.at(where.here() if node.where is where.UNKNOWN else node.where):
                if moving:
                    outputs, pushed = self._push(node, inputs, [moves.get(v) for v in node.inputs])
                    _check(node, pushed)
                    moves.update({o: t for o, t in zip(node.outputs, pushed, strict=True) if t is not None})
                else:
                    outputs = emit(node, inputs)
            twin.update(zip(node.outputs, outputs, strict=True))
        return [twin[o] for o in fn.outputs], [moves.get(o) for o in fn.outputs]

    def _push(self, node: Node, inputs: tuple[Value, ...], tangents: Tangents) -> Pushed:
        rules = node.op.rules
        rule = rules.get("jvp")
        if callable(rule):
            done: Pushed = rule(self, inputs, tangents, **node.attrs)
            return done
        if rule == "linear":
            outputs, pushed = emit(node, inputs), emit(node, _moved(inputs, tangents))
            return outputs, [t if t.dtype.is_inexact else None for t in pushed]
        if rule == "multilinear":
            return emit(node, inputs), [_multilinear(node, inputs, tangents)]
        if rules.get("grad") and "saved" not in rules and _is_elementwise(node):
            return _elementwise(node, inputs, tangents)
        if "expand" in rules and not {"grad", "reverse"} & set(rules):
            return self.replay(expansion(node.op, tuple([v.type for v in inputs]), node.attrs), inputs, tangents)
        return self._twice_reversed(node, inputs, tangents)

    def _twice_reversed(self, node: Node, inputs: tuple[Value, ...], tangents: Tangents) -> Pushed:
        """The gradients of a node are linear in its cotangents; the transpose of that map takes tangents to tangents.

        The map is the same at every cotangent: zeros are as good as any.
        """
        with Builder(node.op.name, self.fns) as single:
            fn = quiet(single.finish(emit(node, tuple([single.param(v.type) for v in inputs]))), self.fns)
        joint = value_and_vjp(fn, [i for i, t in enumerate(tangents) if t is not None], self.fns)
        back = _only(joint, len(fn.outputs), self.fns)
        twice = value_and_vjp(back, range(len(inputs), len(back.params)), self.fns)
        push = _only(twice, len(back.outputs), self.fns)
        outputs = emit(node, inputs)
        inexact = [o.type.dtype.is_inexact for o in outputs]
        seeds = [zeros(o.type) for o, is_x in zip(outputs, inexact, strict=True) if is_x]
        pushed = iter(inline(push, [*inputs, *seeds, *[t for t in tangents if t is not None]]))
        return outputs, [next(pushed) if is_x else None for is_x in inexact]

    def region(self, fn: Fn, flags: Sequence[bool], outs: Sequence[bool] | None = None) -> tuple[Fn, list[bool]]:
        """A body with tangents: inputs + tangents of those flagged -> outputs + tangents of the outputs flagged.

        outs: which outputs get one (default: those that move); the flags are returned too. Each is made once: rules of
        nested loops ask again and again.
        """
        key = (id(fn), tuple(flags), outs if outs is None else tuple(outs))
        if key not in self.bodies:
            self.bodies[key] = (*self._region(fn, flags, outs), fn)
        return self.bodies[key][:2]

    def _region(self, fn: Fn, flags: Sequence[bool], outs: Sequence[bool] | None) -> tuple[Fn, list[bool]]:
        with Builder(f"{fn.name}.jvp", self.fns) as b:
            args = [b.param(t) for t in fn.in_types]
            tangents = [b.param(t) if f else None for t, f in zip(fn.in_types, flags, strict=True)]
            outputs, pushed = self.replay(fn, args, tangents)
            wanted = [t is not None for t in pushed] if outs is None else list(outs)
            found = [_or_zeros(t, o) for t, o, w in zip(pushed, outputs, wanted, strict=True) if w]
            return b.finish([*outputs, *found]), wanted

    @staticmethod
    def or_zeros(tangent: Value | None, like: Value) -> Value:
        """The tangent, or zeros of the type of the value."""
        return _or_zeros(tangent, like)

    def callee(self, name: str, flags: Sequence[bool]) -> str:
        """The name of the function `name` with tangents of the inputs flagged and of every inexact output; it is made
        once and put into the module. A function that calls itself calls its own copy."""
        pushed = f"{name}.jvp{''.join('1' if f else '0' for f in flags)}"
        if pushed not in self.made:
            self.made.add(pushed)
            plain = fn_named(self.fns, name)
            fn, _ = self.region(plain, flags, [t.dtype.is_inexact for t in plain.out_types])
            self.fns[pushed] = Fn(pushed, fn.params, fn.nodes, fn.outputs)
        return pushed


def _or_zeros(tangent: Value | None, like: Value) -> Value:
    return zeros(like.type) if tangent is None else tangent


def _check(node: Node, tangents: Tangents) -> None:
    for output, tangent in zip(node.outputs, tangents, strict=True):
        if tangent is not None and tangent.type != output.type:
            internal_error(f"the tangent of {node.op.name} is {tangent.type} for a result {output.type}")


def _moved(inputs: tuple[Value, ...], tangents: Tangents) -> tuple[Value, ...]:
    """Tangents in the place of the float inputs, zeros where there is none; the other inputs as they are."""
    pairs = zip(inputs, tangents, strict=True)
    return tuple([_or_zeros(t, v) if v.type.dtype.is_inexact else v for v, t in pairs])


def _multilinear(node: Node, inputs: tuple[Value, ...], tangents: Tangents) -> Value:
    """The product rule: one term for each operand that moves."""
    terms: list[Value] = []
    for i, tangent in enumerate(tangents):
        if tangent is not None:
            terms += emit(node, (*inputs[:i], tangent, *inputs[i + 1 :]))
    return _sum(terms)


def _sum(terms: Sequence[Value]) -> Value:
    total = terms[0]
    for term in terms[1:]:
        total = get("add")(total, term)
    return total


def _is_elementwise(node: Node) -> bool:
    """One result, each element of which depends on the elements of the operands at the same place only; all the types
    that are differentiated are the same."""
    if len(node.outputs) != 1 or not isinstance(node.op.rules["axes"], str):
        return False
    axes = axes_of(node)
    out = node.outputs[0].type
    same_place = axes is not None and not axes.whole and all(names == axes.outs[0] for names in axes.ins)
    return same_place and all(v.type == out for v in node.inputs if v.type.dtype.is_inexact)


def _elementwise(node: Node, inputs: tuple[Value, ...], tangents: Tangents) -> Pushed:
    outputs = emit(node, inputs)
    terms = []
    for i, tangent in enumerate(tangents):
        if tangent is not None:
            term = node.op.rules["grad"](*inputs, *outputs, tangent, **node.attrs)[i]
            if term is not None:
                terms.append(term)
    return outputs, [_sum(terms) if terms else None]


def _only(fn: Fn, skip: int, fns: dict[str, Fn]) -> Fn:
    """`fn` without its first outputs and what only they need."""
    outputs = fn.outputs[skip:]
    live = needed(Fn(fn.name, fn.params, fn.nodes, outputs), outputs, fns)
    return Fn(fn.name, fn.params, tuple([n for n in fn.nodes if n in live]), outputs)


def jvp(fn: Fn, wrt: Sequence[int], fns: dict[str, Fn] | None = None) -> Fn:
    """One function: inputs + tangents of the inputs `wrt` -> outputs + tangents of every inexact output.

    `fns` receives the functions that the result calls. Raises E0305 when an input in `wrt` is not float or complex,
    E0303 where an op has no derivative.
    """
    for i in wrt:
        if not fn.in_types[i].dtype.is_inexact:
            raise UserError("E0305", f"argument {i} is {fn.in_types[i]}", fix="differentiate float tensors: cast it")
    run = Forward({} if fns is None else fns)
    with Builder(f"{fn.name}.jvp", run.fns) as b:
        args = [b.param(t) for t in fn.in_types]
        given = {i: b.param(fn.in_types[i]) for i in wrt}
        outputs, tangents = run.replay(fn, args, [given.get(i) for i in range(len(args))])
        live = [(t, o) for t, o in zip(tangents, outputs, strict=True) if o.type.dtype.is_inexact]
        return b.finish([*outputs, *[_or_zeros(t, o) for t, o in live]])
