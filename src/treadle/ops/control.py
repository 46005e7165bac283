"""Branches and loops whose course the data decides: `if` and `while`.

Bodies are `Fn` attributes that see only their own parameters. Every op here has a `reverse` rule instead of `grad`:
reverse(run, inputs, flags, **attrs) -> (outputs, pullback), where `run` is the reverse-mode run (it splits bodies by
`run.linearise`) and `flags` says which inputs need a gradient.

The reverse of `while` keeps residuals on stacks of fixed capacity C, written round: entry i at i mod C. The backward
loop walks one segment of at most C trips at a time; for an earlier segment the loop is run again from its start. So
the gradient is exact for any trip count, without a rerun of the program; more than C trips only cost time
(docs/decisions/0002).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from treadle.base.dtypes import int64
from treadle.base.errors import UserError
from treadle.ir import build
from treadle.ir.node import Fn, Node, Value
from treadle.ir.quiet import quiet
from treadle.ir.types import TensorType, Types, bool_, f64, i32
from treadle.ops import _padding
from treadle.ops._batching import acts, chosen, settled, stand_in
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._pruning import carried, either, reads, slim
from treadle.ops._regions import (
    AXES,
    Reversed,
    inexact,
    need,
    number,
    peek,
    picked,
    push,
    region,
    spread,
    types_of,
    zeros,
)
from treadle.ops.bits import bit_and
from treadle.ops.compare import greater, less, logical_and, logical_not
from treadle.ops.dynamic import dynamic_slice
from treadle.ops.elementwise import add, minimum, sub
from treadle.ops.reduce import reduce_or
from treadle.ops.shape import reshape

_STACK_BYTES = 64 << 20
_MOST_SAVED = 1024


# ------------------------------------------------------------------------------------------------------------------ if
@op(has_regions=True, axes=AXES)
def if_(pred: Value, *operands: Value, then: Fn, orelse: Fn) -> Any:
    """then(*operands) where pred (bool[]) is true, else orelse(*operands); only the branch taken runs.

    Raises E0170 when pred is no single bool, E0171 when the branches take or return different types.
    """


if_.padded(_padding.if_)


@if_.type
def _(pred: TensorType, *operands: TensorType, then: Fn, orelse: Fn) -> Types:
    need(pred == bool_[()], "E0170", f"the condition is {pred}", "it must be one bool: bool[]")
    for branch in (then, orelse):
        need(
            branch.in_types == operands,
            "E0171",
            f"{branch.name} takes {branch.in_types}, given {operands}",
            "pass these",
        )
    both = f"{then.name} returns {then.out_types}, {orelse.name} {orelse.out_types}"
    need(then.out_types == orelse.out_types, "E0171", both, "return the same types from both branches")
    return then.out_types


@if_.ref
def _(run: Any, pred: Any, *operands: Any, then: Fn, orelse: Fn) -> Any:
    return run(then if bool(pred) else orelse, *operands)


@if_.hlo
def _(b: Any, pred: Any, *operands: Any, then: Fn, orelse: Fn) -> Any:
    branches = [b.region((), lambda inner, fn=fn: inner.inline(fn, *operands)) for fn in (then, orelse)]
    return b.op("if", pred, regions=branches)


@if_.reverse
def _(run: Any, inputs: tuple[Value, ...], flags: tuple[bool, ...], *, then: Fn, orelse: Fn) -> Reversed:
    pred, *operands = inputs
    outs = inexact(then.out_types)
    lines = [run.linearise(fn, flags[1:], outs) for fn in (then, orelse)]
    slots, where = _share_slots([line.residual_types for line in lines])
    n = len(then.outputs)

    def ahead(line: Any, place: list[int]) -> Fn:
        def body(*args: Value) -> list[Value]:
            results = build.inline(line.forward, args)
            saved = dict(zip(place, results[n:], strict=True))
            return [*results[:n], *[saved[i] if i in saved else zeros(t) for i, t in enumerate(slots)]]

        return region(body, types_of(operands), line.forward.name)

    def back(line: Any, place: list[int]) -> Fn:
        def body(*args: Value) -> Sequence[Value]:
            return build.inline(line.backward, [*[args[i] for i in place], *args[len(slots) :]])

        return region(body, [*slots, *picked(then.out_types, outs)], line.backward.name)

    results = if_(pred, *operands, then=ahead(lines[0], where[0]), orelse=ahead(lines[1], where[1]))
    saved = results[n:]

    def pullback(*cts: Value) -> list[Value | None]:
        grads = if_(pred, *saved, *picked(cts, outs), then=back(lines[0], where[0]), orelse=back(lines[1], where[1]))
        return [None, *spread(grads, flags[1:])]

    return tuple(results[:n]), pullback


def _share_slots(needs: Sequence[Types]) -> tuple[list[TensorType], list[list[int]]]:
    """Places for the residuals of both branches, shared where the types are equal; and each branch's places."""
    slots: list[TensorType] = []
    places = []
    for types in needs:
        free = list(range(len(slots)))
        place = []
        for t in types:
            spot = next((i for i in free if slots[i] == t), None)
            if spot is None:
                spot = len(slots)
                slots.append(t)
            else:
                free.remove(spot)
            place.append(spot)
        places.append(place)
    return slots, places


@if_.jvp
def _(run: Any, inputs: tuple[Value, ...], tangents: Any, *, then: Fn, orelse: Fn) -> Any:
    flags = [t is not None for t in tangents[1:]]
    found = [run.region(fn, flags)[1] for fn in (then, orelse)]
    outs = [a or b for a, b in zip(*found, strict=True)]
    bodies = {k: run.region(fn, flags, outs)[0] for k, fn in (("then", then), ("orelse", orelse))}
    results = if_(*inputs, *picked(tangents[1:], flags), **bodies)
    return results[: len(outs)], spread(results[len(outs) :], outs)


@if_.batch
def _(run: Any, inputs: tuple[Value, ...], flags: tuple[bool, ...], *, then: Fn, orelse: Fn) -> Any:
    """Where lanes differ in the condition, each branch runs for the lanes that take it, if there are any; branches with
    an effect run a lane at a time."""
    found = [run.region(fn, flags[1:])[1] for fn in (then, orelse)]
    outs = [a or b for a, b in zip(*found, strict=True)]
    if not flags[0]:
        bodies = {k: run.region(fn, flags[1:], outs)[0] for k, fn in (("then", then), ("orelse", orelse))}
        return if_(*inputs, **bodies), outs
    if run.size == 0 or any(acts(fn, run.fns) for fn in (then, orelse)):
        return NotImplemented
    pred, *operands = inputs
    both = [_taken(run, lanes, fn, operands, flags[1:]) for lanes, fn in ((pred, then), (logical_not(pred), orelse))]
    return [chosen(pred, x, y) for x, y in zip(*both, strict=True)], [True] * len(outs)


def _taken(run: Any, lanes: Value, branch: Fn, operands: Sequence[Value], flags: Sequence[bool]) -> tuple[Value, ...]:
    """The branch in the lanes given, anything in the others; it does not run when no lane takes it."""
    body, _ = run.region(branch, flags, [True] * len(branch.outputs))

    def some(lanes: Value, *args: Value) -> tuple[Value, ...]:
        return build.inline(body, stand_in(lanes, args, flags))

    def none(lanes: Value, *args: Value) -> list[Value]:
        return [zeros(t) for t in body.out_types]

    args = [lanes, *operands]
    bodies = {"then": region(some, types_of(args), body.name), "orelse": region(none, types_of(args), "none")}
    return tuple(if_(reduce_or(lanes, axes=(0,)), *args, **bodies))


@if_.onnx
def _(g: Any, pred: str, *operands: str, then: Fn, orelse: Fn) -> Any:
    """A branch sees the names around it."""
    branches = [g.graph((), fn.out_types, lambda fn=fn: g.inline(fn, *operands)) for fn in (then, orelse)]
    return g.node("If", pred, outputs=len(then.outputs), then_branch=branches[0], else_branch=branches[1])


@if_.prune
def _(node: Node, used: tuple[bool, ...]) -> Sequence[Value | None] | None:
    pred, *operands = node.inputs
    branches = {name: node.attrs[name] for name in ("then", "orelse")}
    read = either(*[reads(fn, used) for fn in branches.values()])
    if not any(used) or all([*used, *read]):
        return None
    bodies = {name: slim(fn, read, used) for name, fn in branches.items()}
    return spread(if_(pred, *picked(operands, read), **bodies), used)


@if_.samples
def _(s: Samples) -> Iterator[Sample]:
    def mul_add(x: Value, y: Value) -> tuple[Value, Value]:
        return x * y, x + y

    def only_y(x: Value, y: Value) -> tuple[Value, Value]:
        return y * y * y, y

    then, orelse = (build.trace(f, [f64[2], f64[2]]) for f in (mul_add, only_y))
    for pred in (True, False):
        yield s(np.array(pred), f64[2], f64[2], then=then, orelse=orelse)
    one = build.trace(lambda x, y: x, [f64[2], f64[2]], "one")
    yield s(np.array(True), f64[2], f64[2], then=then, orelse=one, bad="E0171")
    odd = build.trace(lambda x, y: (x, less(x, y)), [f64[2], f64[2]], "odd")
    yield s(np.array(True), f64[2], f64[2], then=then, orelse=odd, bad="E0171")
    yield s(np.array(True), f64[3], f64[2], then=then, orelse=orelse, bad="E0171")
    yield s(np.array([True]), f64[2], f64[2], then=then, orelse=orelse, bad="E0170")


# --------------------------------------------------------------------------------------------------------------- while
@op(has_regions=True, axes=AXES)
def while_(*inputs: Value, cond: Fn, body: Fn, n_consts: int, capacity: int = 0) -> Any:
    """Repeat carry = body(consts, carry) while cond(consts, carry); returns the last carry.

    inputs: n_consts constants, then the initial carry. capacity: trips whose residuals a gradient keeps before it has
    to run the loop again (0: chosen by size). Raises E0170 when cond gives no single bool, E0172 when the carry
    changes type.
    """


while_.padded(_padding.while_)


@while_.type
def _(*inputs: TensorType, cond: Fn, body: Fn, n_consts: int, capacity: int = 0) -> Types:
    for fn in (cond, body):
        need(fn.in_types == inputs, "E0172", f"{fn.name} takes {fn.in_types}, given {inputs}", "pass these types")
    need(cond.out_types == (bool_[()],), "E0170", f"the condition gives {cond.out_types}", "return one bool: bool[]")
    for i, (before, after) in enumerate(zip(inputs[n_consts:], body.out_types, strict=False)):
        need(before == after, "E0172", f"carry {i} is {before} before the body and {after} after it", "keep the type")
    same = len(body.outputs) == len(inputs) - n_consts
    need(same, "E0172", f"the body returns {len(body.outputs)} values of {len(inputs) - n_consts}", "return the carry")
    return body.out_types


@while_.ref
def _(run: Any, *inputs: Any, cond: Fn, body: Fn, n_consts: int, capacity: int = 0) -> Any:
    consts, carry = inputs[:n_consts], inputs[n_consts:]
    while bool(run(cond, *consts, *carry)[0]):
        carry = run(body, *consts, *carry)
    return tuple(carry)


@while_.hlo
def _(b: Any, *inputs: Any, cond: Fn, body: Fn, n_consts: int, capacity: int = 0) -> Any:
    consts, carry = inputs[:n_consts], inputs[n_consts:]
    types = b.types[n_consts:]
    test = b.region(types, lambda inner, *args: inner.inline(cond, *consts, *args))
    step = b.region(types, lambda inner, *args: inner.inline(body, *consts, *args))
    return b.op("while", *carry, regions=[test, step])


def _capacity(types: Sequence[TensorType]) -> int:
    """Trips to keep by default: a power of two up to 1024 whose stacks stay under 64 MiB, at least 8."""
    trips = max(8, min(_MOST_SAVED, _STACK_BYTES // max(1, sum(t.bytes for t in types))))
    return 1 << (int(trips).bit_length() - 1)


@while_.reverse
def _(run: Any, inputs: tuple[Value, ...], flags: tuple[bool, ...], **attrs: Any) -> Reversed:
    return _WhileReverse(run, inputs, flags, **attrs).build()


class _WhileReverse:
    """The two loops of a reversed `while` (the scheme is in the module's docstring).

    A carry that the backward pass reads before and after a trip is on one stack: row i has it before the trip, row
    i + 1 after it. Such a stack has a row more, for the end, and one that is written where there is nothing to write.
    """

    def __init__(
        self,
        run: Any,
        inputs: tuple[Value, ...],
        flags: tuple[bool, ...],
        *,
        cond: Fn,
        body: Fn,
        n_consts: int,
        capacity: int = 0,
    ) -> None:
        self.n, self.cond = n_consts, cond
        self.consts, self.init = inputs[:n_consts], inputs[n_consts:]
        self.live = inexact(body.out_types)
        self.wrt = [*flags[:n_consts], *self.live]
        self.flags = flags
        self.line = run.linearise(body, self.wrt, self.live)
        self.again = quiet(self.line.forward, run.context.fns)
        self.after = self._kept_after()
        self.stacked = [
            (p is None or p >= n_consts) and j is None for p, j in zip(self.line.from_param, self.after, strict=True)
        ]
        self.saved = picked(self.line.residual_types, self.stacked)
        # The carries read after a trip, and the stacks that have them from before it.
        place = {p: i for i, p in enumerate(picked(self.line.from_param, self.stacked)) if p is not None}
        self.stack_of = {j: place[n_consts + j] for j in self.after if j is not None}
        self.trips = capacity or _capacity(self.saved)

    def _kept_after(self) -> list[int | None]:
        """For each residual that is a carry after its trip, and is kept before the next one anyway: which carry."""
        outputs, from_param = self.line.forward.outputs, self.line.from_param
        k = len(self.init)
        kept = [j for j in range(k) if self.n + j in from_param]
        place = {outputs[j]: j for j in kept}
        return [place.get(r) if p is None else None for r, p in zip(outputs[k:], from_param, strict=True)]

    def loop(self, stop: Value | None, init: Sequence[Value], stacks: Sequence[Value]) -> tuple[Value, ...]:
        """Run forward and keep residuals: (carry, trip count, stacks). stop: the count to end at (default: cond
        decides)."""
        k, extra = len(init), [] if stop is None else [stop]
        skip = len(extra) + self.n

        def test(*args: Value) -> Any:
            if stop is not None:
                return less(args[skip + k], args[0])
            return build.inline(self.cond, args[: self.n + k])

        def step(*args: Value) -> list[Value]:
            consts, carry, count, kept = (
                args[len(extra) : skip],
                args[skip : skip + k],
                args[skip + k],
                args[skip + k + 1 :],
            )
            results = build.inline(self.line.forward if stop is None else self.again, [*consts, *carry])
            slot = _remainder(count, self.trips)
            new = [push(s, r, slot) for s, r in zip(kept, picked(results[k:], self.stacked), strict=True)]
            return [*results[:k], add(count, 1), *new]

        args = [*extra, *self.consts, *init, number(0), *stacks]
        types = types_of(args)
        bodies = {"cond": region(test, types, "again"), "body": region(step, types, "keep")}
        return tuple(while_(*args, **bodies, n_consts=skip, capacity=self.trips))

    def build(self) -> Reversed:
        """Outputs of the forward loop, and the pullback."""
        longer = self.stack_of.values()
        rows = [self.trips + 2 if i in longer else self.trips for i in range(len(self.saved))]
        stacks = [zeros(TensorType(t.dtype, (n, *t.shape))) for t, n in zip(self.saved, rows, strict=True)]
        results = self.loop(None, self.init, stacks)
        k = len(self.init)
        count = results[k]
        stacks = self.ended(results[:k], results[k + 1 :], add(_remainder(sub(count, 1), self.trips), 1))
        fixed = [self.consts[p] for p in self.line.from_param if p is not None and p < self.n]

        def pullback(*cts: Value) -> list[Value | None]:
            grads = self.backward(count, stacks, fixed, picked(cts, self.live))
            n_live = sum(self.live)
            ends = [
                g if f else None for g, f in zip(spread(grads[:n_live], self.live), self.flags[self.n :], strict=True)
            ]
            return [*spread(grads[n_live:], self.flags[: self.n]), *ends]

        return tuple(results[:k]), pullback

    def ended(self, carry: Sequence[Value], stacks: Sequence[Value], row: Value) -> list[Value]:
        """The stacks with the carry after the last trip in `row`, where the trip before finds it."""
        made = list(stacks)
        for j, i in self.stack_of.items():
            made[i] = push(made[i], carry[j], row)
        return made

    def backward(self, count: Value, stacks: list[Value], fixed: list[Value], cts: list[Value]) -> Sequence[Value]:
        """Cotangents of the live carry at the start, then sums of the constants' gradients."""
        sums = [zeros(t.type) for t, f in zip(self.consts, self.flags, strict=False) if f]
        state = [*cts, *sums]
        consts = [*fixed, *self.consts, *self.init]
        a, z = len(fixed), len(state)

        def more(*args: Value) -> Any:
            return greater(args[len(consts)], 0)

        def segment(*args: Value) -> list[Value]:
            """The stacks are filled before they are read, not after, so that XLA can fill them in place."""
            held, (end, refill, *rest) = args[: len(consts)], args[len(consts) :]
            again = self.with_inputs(held[a : a + self.n], held[a + self.n :])
            filled = again.loop(refill, again.init, rest[z:])
            k = len(self.init)
            # Without a refill the row is there already, and the one behind it takes what nobody reads.
            row = sub(self.trips + 1, minimum(refill, 1))
            stacks = self.ended(filled[:k], filled[k + 1 :], row)
            start = sub(end, add(_remainder(sub(end, 1), self.trips), 1))
            state = self.walk_back(start, end, held[:a], rest[:z], stacks)
            return [start, start, *state, *stacks]

        # The last segment is on the stacks: nothing to run again.
        args = [*consts, count, number(0), *state, *stacks]
        types = types_of(args)
        # A second derivative keeps one segment, which has whole stacks: mostly there is one.
        bodies = {"cond": region(more, types, "segments"), "body": region(segment, types, "segment")}
        ends = while_(*args, **bodies, n_consts=len(consts), capacity=1)
        return tuple(ends[2 : 2 + z])

    def with_inputs(self, consts: Sequence[Value], init: Sequence[Value]) -> _WhileReverse:
        """The same loop on other values (inside a region)."""
        twin = object.__new__(_WhileReverse)
        twin.__dict__.update(self.__dict__, consts=tuple(consts), init=tuple(init))
        return twin

    def walk_back(
        self, start: Value, end: Value, fixed: Sequence[Value], state: Sequence[Value], stacks: Sequence[Value]
    ) -> tuple[Value, ...]:
        """The state after the trips end-1 down to start are reversed."""
        held = [start, *fixed, *stacks]
        n_live, a = sum(self.live), 1 + len(fixed)

        def test(*args: Value) -> Any:
            return greater(args[len(held)], args[0])

        def step(*args: Value) -> list[Value]:
            i, before = sub(args[len(held)], 1), args[len(held) + 1 :]
            slot = _remainder(i, self.trips)
            kept, still = iter([peek(s, slot) for s in args[a : len(held)]]), iter(args[1:a])
            after = {j: peek(args[a + i], add(slot, 1)) for j, i in self.stack_of.items()}
            residuals = [
                after[j] if j is not None else next(kept) if s else next(still)
                for j, s in zip(self.after, self.stacked, strict=True)
            ]
            grads = build.inline(self.line.backward, [*residuals, *before[:n_live]])
            n_const = len(grads) - n_live
            sums = [add(x, g) for x, g in zip(before[n_live:], grads[:n_const], strict=True)]
            return [i, *grads[n_const:], *sums]

        args = [*held, end, *state]
        types = types_of(args)
        bodies = {"cond": region(test, types, "back"), "body": region(step, types, "reverse")}
        return tuple(while_(*args, **bodies, n_consts=len(held), capacity=self.trips)[1:])


def _remainder(x: Value, n: int) -> Value:
    """x mod n for x >= 0 and n a power of two or any positive int."""
    if n & (n - 1):
        raise UserError("E0173", f"capacity {n} is not a power of two", fix=f"use {1 << n.bit_length()}")
    from_bits: Value = bit_and(x, number(n - 1))
    return from_bits


@while_.jvp
def _(
    run: Any, inputs: tuple[Value, ...], tangents: Any, *, cond: Fn, body: Fn, n_consts: int, capacity: int = 0
) -> Any:
    given = [t is not None for t in tangents]
    still = given[:n_consts]
    carried = settled(lambda flags: run.region(body, [*still, *flags])[1], given[n_consts:])
    pushed, _ = run.region(body, [*still, *carried], carried)
    n, k, m = n_consts, len(carried), sum(still)

    def parts(args: Sequence[Value]) -> tuple[Sequence[Value], ...]:
        """Constants, their tangents, carry, its tangents."""
        return args[:n], args[n : n + m], args[n + m : n + m + k], args[n + m + k :]

    def test(*args: Value) -> Any:
        consts, _, carry, _ = parts(args)
        return build.inline(cond, [*consts, *carry])

    def step(*args: Value) -> Any:
        consts, dconsts, carry, dcarry = parts(args)
        return build.inline(pushed, [*consts, *carry, *dconsts, *dcarry])

    moving = [run.or_zeros(t, v) for t, v in zip(tangents[n:], inputs[n:], strict=True)]
    args = [*inputs[:n], *picked(tangents[:n], still), *inputs[n:], *picked(moving, carried)]
    types = types_of(args)
    bodies = {"cond": region(test, types, cond.name), "body": region(step, types, pushed.name)}
    results = while_(*args, **bodies, n_consts=n + m, capacity=capacity)
    return results[:k], spread(results[k:], carried)


@while_.batch
def _(
    run: Any,
    inputs: tuple[Value, ...],
    flags: tuple[bool, ...],
    *,
    cond: Fn,
    body: Fn,
    n_consts: int,
    capacity: int = 0,
) -> Any:
    """Where lanes differ in the condition, the loop runs until all are done; one that is done keeps its carry. A body
    with an effect runs a lane at a time."""
    still = list(flags[:n_consts])
    carried = settled(lambda now: run.region(body, [*still, *now])[1], flags[n_consts:])
    masked = run.region(cond, [*still, *carried])[1][0]
    if masked and (run.size == 0 or acts(body, run.fns) or acts(cond, run.fns)):
        return NotImplemented
    carried = [True] * len(carried) if masked else carried
    tested, _ = run.region(cond, [*still, *carried])
    stepped, _ = run.region(body, [*still, *carried], carried)

    def test(*args: Value) -> Any:
        (live,) = build.inline(tested, args)
        return reduce_or(live, axes=(0,)) if masked else live

    def step(*args: Value) -> Any:
        if not masked:
            return build.inline(stepped, args)
        (live,) = build.inline(tested, args)
        new = build.inline(stepped, stand_in(live, args, [*still, *carried]))
        return [chosen(live, a, b) for a, b in zip(new, args[n_consts:], strict=True)]

    init = [run.spread(v) if c and not f else v for v, f, c in zip(inputs[n_consts:], flags[n_consts:], carried)]
    args = [*inputs[:n_consts], *init]
    types = types_of(args)
    bodies = {"cond": region(test, types, tested.name), "body": region(step, types, stepped.name)}
    return while_(*args, **bodies, n_consts=n_consts, capacity=capacity), carried


@while_.onnx
def _(g: Any, *inputs: str, cond: Fn, body: Fn, n_consts: int, capacity: int = 0) -> Any:
    """A Loop without a limit: the condition is computed before it, and in its body for the next trip."""
    consts, carry = inputs[:n_consts], inputs[n_consts:]
    types = (TensorType(int64, ()), bool_[()], *body.out_types)

    def step(trip: str, go: str, *carry: str) -> tuple[str, ...]:
        new = g.inline(body, *consts, *carry)
        return (*g.inline(cond, *consts, *new), *new)

    graph = g.graph(types, types[1:], step)
    return g.node("Loop", "", *g.inline(cond, *consts, *carry), *carry, outputs=len(carry), body=graph)


@while_.prune
def _(node: Node, used: tuple[bool, ...]) -> Sequence[Value | None] | None:
    cond, body, n = node.attrs["cond"], node.attrs["body"], node.attrs["n_consts"]
    tested = reads(cond, [True])
    wanted = carried(body, n, either(used, tested[n:]))
    read = [*either(tested[:n], reads(body, wanted)[:n]), *wanted]
    if not any(wanted) or all(read):
        return None
    bodies = {"cond": slim(cond, read, [True]), "body": slim(body, read, wanted)}
    attrs = {**node.attrs, **bodies, "n_consts": sum(read[:n])}
    return spread(while_(*picked(node.inputs, read), **attrs), wanted)


@while_.samples
def _(s: Samples) -> Iterator[Sample]:
    def below(w: Value, n: Value, x: Value) -> Value:
        return logical_and(less(n, 5), less(reshape(dynamic_slice(x, number(0), sizes=(1,)), shape=()), 50.0))  # type: ignore[no-any-return]

    def grow(w: Value, n: Value, x: Value) -> tuple[Value, Value]:
        return add(n, 1), x * w + x

    types = [f64[2], i32[()], f64[2]]
    cond, body = build.trace(below, types), build.trace(grow, types)
    for capacity in (0, 2, 4):
        yield s(f64[2], np.int32(1), f64[2], cond=cond, body=body, n_consts=1, capacity=capacity)
    yield s(f64[2], np.int32(9), f64[2], cond=cond, body=body, n_consts=1)
    wrong = build.trace(lambda w, n, x: (n, n), types, "wrong")
    yield s(f64[2], np.int32(0), f64[2], cond=cond, body=wrong, n_consts=1, bad="E0172")
    yield s(f64[2], np.int32(0), f64[2], cond=wrong, body=body, n_consts=1, bad="E0170")
