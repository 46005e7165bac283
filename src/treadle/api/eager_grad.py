"""Gradients in eager mode: the function runs as it stands, on numbers, while a tape records its ops.

What the tape holds becomes a `Fn`, which is differentiated like any other; of the result only the backward part runs,
on the arrays that the tape has kept. A tape with the same calls runs the same backward program, so a training step
costs its ops and not their differentiation.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from treadle import driver
from treadle.base import arguments, where
from treadle.base.errors import UserError
from treadle.base.flags import flags as switches
from treadle.frontend import tape as taping
from treadle.frontend import trace as tracing
from treadle.frontend import tree
from treadle.frontend.tape import Tape
from treadle.frontend.tensor import Tensor
from treadle.frontend.trace import is_tensor
from treadle.ir import build
from treadle.ir.node import Fn, Module, Node, Value
from treadle.ir.quiet import quiet
from treadle.ir.types import TensorType, Types, type_of
from treadle.ir.walk import has_effect
from treadle.runtime import host
from treadle.transforms.grad import value_and_vjp

# Of the types of the results: which of them start with a cotangent of ones.
Seeds = Callable[[Sequence[TensorType]], Sequence[bool]]

# Programs of backward parts that are kept; a training loop needs one.
MAX_PROGRAMS = 256


class _Owned:
    """Tensors to differentiate by, while a tape runs."""

    def __init__(self, tensors: Sequence[Tensor], tape: Tape) -> None:
        self.tensors, self.tape = tensors, tape
        self.owners = list[taping.Owner]()

    def __enter__(self) -> _Owned:
        try:
            for t in self.tensors:
                self.owners.append(taping.own(t, self.tape))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for owner in self.owners:
            taping.disown(owner, self.tape)

    def changed(self, i: int) -> bool:
        """Whether tensor i has got other numbers. (Its array may have been moved to the device.)"""
        owner, value = self.owners[i], self.tensors[i]._value
        return value is not owner.before and not self.tape.equal(value, owner.own)

    def fresh(self, result: Any) -> Any:
        """What the function returned, with tensors of its own."""
        originals = {id(o.own): o.before for o in self.owners if not o.moved}
        return tree.tree_map(lambda x: Tensor._of(originals.get(id(x._value), x._value)) if is_tensor(x) else x, result)


def by_tensors(
    function: Callable[..., Any], args: Any, kwargs: Any, tensors: Sequence[Tensor], seeds: Seeds
) -> tuple[Any, list[Tensor]]:
    """(what the function returned, the gradients of these tensors)."""
    unique = list({id(t): t for t in tensors}.values())
    result, grads, _ = _run(function, args, kwargs, unique, seeds)
    found = dict(zip(map(id, unique), grads, strict=True))
    return result, [found[id(t)] for t in tensors]


def by_arguments(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any, chosen: Sequence[int], seeds: Seeds
) -> tuple[Any, list[Tensor]]:
    """(what the function returned, the gradients of all leaves of the chosen arguments).

    The function gets tensors of its own for them; what it writes into those is written into the caller's.
    """
    outside: list[Any] = []
    inside: list[Tensor] = []
    new_args = list(args)
    for i in chosen:
        leaves, shape = tree.flatten(args[i])
        handles = [Tensor._of(x._value) if is_tensor(x) else Tensor(x) for x in leaves]
        outside, inside = [*outside, *leaves], [*inside, *handles]
        new_args[i] = shape.unflatten(handles)
    result, grads, owned = _run(function, tuple(new_args), kwargs, inside, seeds)
    for i, (leaf, tensor, owner) in enumerate(zip(outside, inside, owned.owners, strict=True)):
        if is_tensor(leaf) and owned.changed(i):
            if owned.tape.knows(owner.before) or leaf._value is not owner.before:
                tracing.refuse_alias(i)
            leaf._set(tensor)
    return result, grads


def _run(
    function: Callable[..., Any], args: Any, kwargs: Any, wrt: Sequence[Tensor], seeds: Seeds
) -> tuple[Any, list[Tensor], _Owned]:
    tape = Tape()
    with _Owned(wrt, tape) as owned:
        places = [tape.place(o.own) for o in owned.owners]
        try:
            with tape:
                result = arguments.call(function, args, kwargs)
            _refuse_foreign(tape)
            results = [leaf for leaf in tree.flatten(result)[0] if is_tensor(leaf)]
            grads = gradients(tape, results, seeds([t.type for t in results]), places)
        except UserError as error:
            if error.code == "E0402":  # a program of another thread has taken an array: let it end
                with tracing.state_lock:
                    _refuse_foreign(tape, tape.foreign)
            raise
        return owned.fresh(result), grads, owned


def _refuse_foreign(tape: Tape, lost: Sequence[Any] = ()) -> None:
    """Raise E0322 if the function read what another thread gave to a tensor, or `lost` is not empty."""
    if lost or any(map(tape.knows, tape.foreign)):
        why = "another thread changed a tensor that is differentiated by, while the function read it"
        raise UserError("E0322", why, fix="let one thread at a time compute gradients and update the tensors") from None


def gradients(tape: Tape, results: Sequence[Tensor], seeds: Sequence[bool], wrt: Sequence[int]) -> list[Tensor]:
    """The gradients of the places `wrt`, where the results flagged in `seeds` start with ones."""
    outs = [tape.place(t._value) for t in results]
    types = tuple([type_of(tape.values[p]) for p in wrt])
    key = (tuple(tape.calls), tuple(tape.leaves), tuple(outs), tuple(seeds), tuple(wrt), types)
    backward = _backwards.get(key)
    if backward is None:
        backward = _backwards[key] = _differentiate(tape, outs, seeds, wrt)
        if len(_backwards) > MAX_PROGRAMS:
            _backwards.popitem(last=False)
    values = [tape.values[p] for p in backward.places]
    if backward.program is None or switches.debug_nans:
        return driver.run_fn(backward.fn, backward.fns, [Tensor._of(v) for v in values])
    return [Tensor._of(o) for o in backward.program([driver._on_host(v) for v in values])]


@dataclass(frozen=True)
class _Backward:
    """fn: arrays at `places` of the tape -> gradients; `program` runs it on the host where all is small."""

    fn: Fn
    fns: Mapping[str, Fn]
    places: tuple[int, ...]
    program: host.Program | None


_backwards: OrderedDict[Any, _Backward] = OrderedDict()


def _differentiate(tape: Tape, outs: Sequence[int], seeds: Sequence[bool], wrt: Sequence[int]) -> _Backward:
    fns: dict[str, Fn] = {}
    fn, places = _function(tape, outs, fns)
    flags = [*seeds, *[False] * len(places)]
    joint = value_and_vjp(fn, [tape.leaves.index(p) for p in wrt], fns, flags)
    module = driver.optimise(Module.of(joint, fns), "cse,dce")
    joint, n = module.main, len(outs)
    known: dict[Value, int] = {}
    for value, place in zip([*joint.params, *joint.outputs[n : n + len(places)]], [*tape.leaves, *places], strict=True):
        known.setdefault(value, place)
    fn, used = _cut(joint, joint.outputs[n + len(places) :], known, module.callees())
    module = driver.optimise(Module.of(fn, module.callees()), "algebra,fold,algebra,cse,dce")
    return _Backward(module.main, module.callees(), used, host.program(module.main))


def _function(tape: Tape, outs: Sequence[int], fns: dict[str, Fn]) -> tuple[Fn, list[int]]:
    """What the tape holds as a function of its leaves; its outputs are `outs`, then the arrays at the places given."""
    with build.Builder("tape", fns) as b:
        values: dict[int, Value] = {p: b.param(type_of(tape.values[p])) for p in tape.leaves}
        for (plan, operands, first), line in zip(tape.calls, tape.lines, strict=True):
            fns.update(plan.fns)
            with where.at(line):
                results = _replayed(quiet(plan.differentiable, fns), [values[p] for p in operands])
            values.update(enumerate(results, first))
        places = [p for p in values if values[p].node is not None]
        return b.finish([*[values[p] for p in outs], *[values[p] for p in places]]), places


def _replayed(fn: Fn, args: Sequence[Value]) -> list[Value]:
    """The outputs of `fn` on `args`, its nodes at the position of the moment: a plan serves many lines."""
    twin: dict[Value, Value] = dict(zip(fn.params, args, strict=True))
    for node in fn.nodes:
        types: Types = tuple([o.type for o in node.outputs])
        made = build.append(node.op, tuple([twin[v] for v in node.inputs]), node.attrs, types)
        twin.update(zip(node.outputs, made.outputs, strict=True))
    return [twin[o] for o in fn.outputs]


def _cut(
    fn: Fn, wanted: Sequence[Value], known: Mapping[Value, int], fns: Mapping[str, Fn]
) -> tuple[Fn, tuple[int, ...]]:
    """The part of `fn` that computes `wanted` from the values `known`; and the places of those that it takes."""
    needed: set[Node] = set()
    pending = list(wanted)
    for node in fn.nodes:
        if has_effect(node, fns):  # of a gradient given by hand
            needed.add(node)
            pending += node.inputs
    while pending:
        value = pending.pop()
        if value not in known and value.node is not None and value.node not in needed:
            needed.add(value.node)
            pending += value.node.inputs
    with build.Builder("backward", dict(fns)) as b:
        twin: dict[Value, Value] = {}
        used: list[int] = []

        def read(value: Value) -> Value:
            if value not in twin:
                twin[value] = b.param(value.type)
                used.append(known[value])
            return twin[value]

        for node in fn.nodes:
            if node in needed:
                outputs = build.emit(node, tuple(map(read, node.inputs)))
                twin.update({old: new for old, new in zip(node.outputs, outputs, strict=True) if old not in known})
        return b.finish([read(v) for v in wanted]), tuple(used)
