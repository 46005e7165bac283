"""Reverse-mode differentiation, function to function, to any order (the result is ordinary IR).

`value_and_vjp(fn, wrt)` is one joint function; `linearise(fn, wrt)` splits it: `forward` also returns residuals, and
`backward` takes them with the cotangents. Region ops bring a `reverse` rule, which gets the `Reverse` run to recurse
with.

Each node of the forward part leaves a pullback on a tape; the backward part calls them in reverse order. Positions of
the differentiated nodes are kept. Source of the scheme: Griewank & Walther 2008, "Evaluating Derivatives", chapter 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from treadle.base import where
from treadle.base.errors import UserError, internal_error
from treadle.ir.build import Builder, emit
from treadle.ir.interp import expansion
from treadle.ir.node import Fn, Module, Node, Value
from treadle.ir.op import get
from treadle.ir.types import TensorType, Types
from treadle.ir.walk import fn_named, needed

Pullback = Callable[..., Sequence["Value | None"]]


@dataclass(frozen=True)
class Linear:
    """A function split for reverse mode.

    forward: inputs -> outputs + residuals. backward: residuals + cotangents of the outputs `outs` -> gradients of
    `wrt`. from_param[i]: the input that residual i simply is, or None.
    """

    forward: Fn
    backward: Fn
    from_param: tuple[int | None, ...]

    @property
    def residual_types(self) -> Types:
        n = len(self.from_param)
        return self.forward.out_types[len(self.forward.outputs) - n :]


@dataclass(frozen=True)
class _Entry:
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    pullback: Pullback
    node: Node
    place: where.Where  # the node's position; of a node of an expansion, that of the node which was expanded


@dataclass(frozen=True)
class Context:
    """What nested runs share: the module's functions (new ones are added), split callees, and those being split."""

    fns: dict[str, Fn]
    callees: dict[tuple[str, tuple[bool, ...]], Linear] = field(default_factory=dict)
    running: tuple[str, ...] = ()


class Reverse:
    """One reverse-mode run: `replay` builds the forward nodes and the tape, `pull` the backward nodes."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.active: set[Value] = set()
        self.tape: list[_Entry] = []

    def replay(self, fn: Fn, args: Sequence[Value]) -> tuple[Value, ...]:
        """The outputs of `fn` on `args`; whatever depends on an active value is recorded."""
        twin: dict[Value, Value] = dict(zip(fn.params, args, strict=True))
        for node in fn.nodes:
            inputs = tuple([twin[v] for v in node.inputs])
            differentiable = any(o.type.dtype.is_inexact for o in node.outputs)
            if differentiable and any(v in self.active for v in inputs):
                with where.at(where.here() if node.where is where.UNKNOWN else node.where):
                    outputs = self._record(node, inputs)
            else:
                outputs = emit(node, inputs)
            twin.update(zip(node.outputs, outputs, strict=True))
        return tuple([twin[v] for v in fn.outputs])

    def _record(self, node: Node, inputs: tuple[Value, ...]) -> tuple[Value, ...]:
        rules, attrs = node.op.rules, node.attrs
        pullback: Pullback | None
        if "reverse" in rules:
            flags = tuple([v in self.active and v.type.dtype.is_inexact for v in inputs])
            outputs, pullback = rules["reverse"](self, inputs, flags, **attrs)
        elif "saved" in rules:
            outputs, saved = rules["saved"](*inputs, **attrs)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)

            def pullback(*cts: Value) -> Sequence[Value | None]:
                grads: Sequence[Value | None] = rules["grad"](*inputs, *outputs, saved, *cts, **attrs)
                return grads
        elif "grad" in rules:
            outputs = emit(node, inputs)
            pullback = _plain_pullback(node, inputs, outputs)
        else:
            types = tuple([v.type for v in inputs])
            return self.replay(expansion(node.op, types, attrs), inputs)
        if pullback is None:
            return tuple(outputs)
        self.active.update(o for o in outputs if o.type.dtype.is_inexact)
        self.tape.append(_Entry(inputs, outputs, pullback, node, where.here()))
        return tuple(outputs)

    def pull(self, seeds: Iterable[tuple[Value, Value | None]], wrt: Sequence[Value]) -> list[Value]:
        """Gradients of `wrt` (zeros where nothing arrives), given (output, cotangent) pairs."""
        cts: dict[Value, Value] = {}
        for output, seed in seeds:
            if seed is not None and output in self.active:
                _accumulate(cts, output, seed)
        for entry in reversed(self.tape):
            if not any(o in cts for o in entry.outputs):
                continue
            with where.at(entry.place):
                grads = entry.pullback(*[cts[o] if o in cts else zeros(o.type) for o in entry.outputs])
                if len(grads) != len(entry.inputs):
                    internal_error(
                        f"the gradient of {entry.node.op.name} gave {len(grads)} of {len(entry.inputs)} cotangents"
                    )
                for value, grad in zip(entry.inputs, grads, strict=True):
                    if grad is not None and value in self.active:
                        if grad.type != value.type:
                            internal_error(
                                f"the gradient of {entry.node.op.name} is {grad.type} for an input {value.type}"
                            )
                        _accumulate(cts, value, grad)
        return [cts[v] if v in cts else zeros(v.type) for v in wrt]

    def linearise(self, fn: Fn, wrt: Sequence[bool], outs: Sequence[bool] | None = None) -> Linear:
        """Split a region of the function being differentiated."""
        return linearise(fn, wrt, outs, self.context)

    def linearise_callee(self, name: str, wrt: tuple[bool, ...]) -> tuple[str, str, Linear]:
        """Names of the forward and backward functions of the callee `name`, made once and put into the module.

        Raises E0304 for a function that calls itself: its residuals have no fixed number.
        """
        context = self.context
        if name in context.running:
            cycle = " -> ".join([*context.running, name])
            raise UserError(
                "E0304", f"the gradient of a recursive function ({cycle})", fix="write the recursion as a loop"
            )
        suffix = "".join("1" if w else "0" for w in wrt)
        forward, backward = f"{name}.fwd{suffix}", f"{name}.bwd{suffix}"
        if (name, wrt) not in context.callees:
            inner = replace(context, running=(*context.running, name))
            linear = linearise(fn_named(context.fns, name), wrt, None, inner)
            context.fns[forward] = renamed(linear.forward, forward)
            context.fns[backward] = renamed(linear.backward, backward)
            context.callees[name, wrt] = linear
        return forward, backward, context.callees[name, wrt]


def _plain_pullback(node: Node, inputs: tuple[Value, ...], outputs: tuple[Value, ...]) -> Pullback:
    rule = node.op.rules["grad"]
    if not rule:

        def refuse(*_: Value) -> Sequence[Value | None]:
            why = f"{node.op.name} has no derivative: {rule.reason}"
            raise UserError("E0303", why, fix="wrap its input in td.stop_gradient", where=where.here())

        return refuse
    return lambda *cts: rule(*inputs, *outputs, *cts, **node.attrs)


def zeros(type: TensorType) -> Value:
    """A value of the type with every element 0."""
    made: Value = get("full")(value=0, shape=type.shape, dtype=type.dtype)
    return made


def ones(type: TensorType) -> Value:
    """A value of the type with every element 1."""
    made: Value = get("full")(value=1, shape=type.shape, dtype=type.dtype)
    return made


def _accumulate(cts: dict[Value, Value], value: Value, grad: Value) -> None:
    cts[value] = get("add")(cts[value], grad) if value in cts else grad


def renamed(fn: Fn, name: str) -> Fn:
    """The same function under another name."""
    return Fn(name, fn.params, fn.nodes, fn.outputs)


def linearise(
    fn: Fn,
    wrt: Sequence[bool],
    outs: Sequence[bool] | None = None,
    context: Context | None = None,
) -> Linear:
    """`fn` split into forward and backward. wrt: which inputs; outs: which outputs get a cotangent (default: all
    inexact)."""
    outs = [t.dtype.is_inexact for t in fn.out_types] if outs is None else outs
    run = Reverse(Context({}) if context is None else context)
    fns = run.context.fns
    with Builder(f"{fn.name}.fwd", fns) as ahead:
        args = [ahead.param(t) for t in fn.in_types]
        wanted = [a for a, w in zip(args, wrt, strict=True) if w]
        run.active.update(wanted)
        outputs = run.replay(fn, args)
        with Builder(f"{fn.name}.bwd", fns) as back:
            targets = [o for o, want in zip(outputs, outs, strict=True) if want]
            cts = [back.param(o.type) for o in targets]
            grads = run.pull(zip(targets, cts, strict=True), wanted)
            live = needed(back.finish(grads), tuple(grads), fns)
            back.nodes = [node for node in back.nodes if node in live]  # what only dead nodes read need not be kept
        residuals = _free_values(back, grads)
        forward = ahead.finish([*outputs, *residuals])
    position = {a: i for i, a in enumerate(args)}
    return Linear(forward, _close(back, residuals, cts, grads), tuple([position.get(r) for r in residuals]))


def _free_values(back: Builder, grads: Sequence[Value]) -> list[Value]:
    """Values of the forward part that the backward part reads, constants excluded, each once."""
    own = {*back.params, *[o for n in back.nodes for o in n.outputs]}
    used = [v for n in back.nodes for v in n.inputs] + list(grads)
    return list(dict.fromkeys(v for v in used if v not in own and not _is_constant(v)))


def _is_constant(value: Value) -> bool:
    """Made from nothing but literals: cheaper to make again than to keep."""
    return value.node is not None and all(_is_constant(v) for v in value.node.inputs)


def _close(back: Builder, residuals: Sequence[Value], cts: Sequence[Value], grads: Sequence[Value]) -> Fn:
    """The backward nodes as a function of residuals and cotangents."""
    with Builder(back.name, back.fns) as closed:
        twin = {r: closed.param(r.type) for r in residuals}
        twin.update({c: closed.param(c.type) for c in cts})

        def find(value: Value) -> Value:
            if value not in twin:
                assert value.node is not None
                twin.update(zip(value.node.outputs, emit(value.node, tuple(map(find, value.node.inputs))), strict=True))
            return twin[value]

        for node in back.nodes:
            twin.update(zip(node.outputs, emit(node, tuple(map(find, node.inputs))), strict=True))
        return closed.finish([find(g) for g in grads])


def value_and_vjp(
    fn: Fn, wrt: Sequence[int], fns: dict[str, Fn] | None = None, seeds: str | Sequence[bool] = "params"
) -> Fn:
    """One function: inputs (+ cotangents) -> outputs + gradients of the inputs `wrt`.

    seeds: "params" adds a parameter per inexact output; "ones" starts from ones for each inexact output; a sequence of
    flags starts from ones for the outputs flagged. `fns` receives the functions that the result calls.
    Raises E0305 when an input in `wrt` is not float or complex.
    """
    run = Reverse(Context({} if fns is None else fns, running=(fn.name,)))
    with Builder(f"{fn.name}.grad", run.context.fns) as joint:
        args = [joint.param(t) for t in fn.in_types]
        wanted = [args[i] for i in wrt]
        for i in wrt:
            if not args[i].type.dtype.is_inexact:
                raise UserError(
                    "E0305", f"argument {i} is {args[i].type}", fix="differentiate float tensors: cast it first"
                )
        run.active.update(wanted)
        inexact = [t.dtype.is_inexact for t in fn.out_types]
        cts: list[Value | None]
        if seeds == "params":
            cts = [joint.param(t) if is_x else None for t, is_x in zip(fn.out_types, inexact, strict=True)]
            outputs = run.replay(fn, args)
        else:
            outputs = run.replay(fn, args)
            flags = inexact if isinstance(seeds, str) else seeds
            cts = [ones(t) if f else None for t, f in zip(fn.out_types, flags, strict=True)]
        grads = run.pull(zip(outputs, cts, strict=True), wanted)
        return joint.finish([*outputs, *grads])


def vjp(root: Module | Fn, wrt: Sequence[int] | None = None) -> Module:
    """A module whose main takes the inputs and the cotangents of the inexact outputs and gives the gradients of `wrt`.

    wrt: positions of inputs; default: every float or complex one.
    """
    module = root if isinstance(root, Module) else Module.of(root)
    fns = dict(module.fns)
    main = module.main
    if wrt is None:
        wrt = [i for i, t in enumerate(main.in_types) if t.dtype.is_inexact]
    joint = value_and_vjp(main, wrt, fns)
    fns.pop("main")
    outputs = joint.outputs[len(main.outputs) :]
    return Module.of(Fn("main", joint.params, joint.nodes, outputs), fns)
