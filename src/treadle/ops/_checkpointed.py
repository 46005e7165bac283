"""Loops whose gradient keeps few carries and computes the rest again: values in, values out, built from other loops.

A loop of n trips becomes a loop over blocks of trips, each block a rematerialised loop. The gradient keeps the carry at
the start of each block; on the way back it runs one block again and keeps that block's residuals. With blocks of
sqrt(n) trips both are sqrt(n), and the forward work is done twice. Source: Griewank & Walther 2008, "Evaluating
Derivatives", section 12.2 (with one level).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle.ir import build
from treadle.ir.node import Fn, Value
from treadle.ops._regions import cut, number, region, types_of
from treadle.ops.calls import remat
from treadle.ops.compare import less, logical_and
from treadle.ops.control import while_
from treadle.ops.elementwise import add
from treadle.ops.loops import scan
from treadle.ops.shape import concatenate, reshape, slice_


def power_above(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()


def blocked_while(*inputs: Value, cond: Fn, body: Fn, n_consts: int, every: int, blocks: int) -> tuple[Value, ...]:
    """The last carry of `while_`; a gradient keeps the carry of every `every` trips, at most `blocks` of them at once.

    Beyond every * blocks trips it stays exact and runs the loop again from its start (control.py). The condition is
    computed once for each trip, as in the plain loop.
    """
    n = n_consts

    def step(*args: Value) -> list[Value]:
        """One trip of a block: constants, count, go, carry -> count, go, carry."""
        new = build.inline(body, [*args[:n], *args[n + 2 :]])
        return [add(args[n], 1), *build.inline(cond, [*args[:n], *new]), *new]

    def block(*args: Value) -> Sequence[Value]:
        """Constants, go, carry -> go, carry."""
        started = [*args[:n], number(0), *args[n:]]
        types = types_of(started)
        test = region(lambda *a: logical_and(less(a[n], every), a[n + 1]), types, "in_block")
        trips = {"n_consts": n, "capacity": power_above(every)}
        return tuple(while_(*started, cond=test, body=region(step, types, body.name), **trips)[1:])

    args = [*inputs[:n], *build.inline(cond, inputs), *inputs[n:]]
    types = types_of(args)
    of_block = region(block, types, "block")
    test = region(lambda *a: a[n], types, cond.name)
    whole = region(lambda *a: remat(*a, body=of_block), types, "blocks")
    return tuple(while_(*args, cond=test, body=whole, n_consts=n, capacity=blocks)[1:])


def blocked_scan(
    *inputs: Value, body: Fn, n_consts: int, n_carry: int, length: int, reverse: bool, every: int
) -> tuple[Value, ...]:
    """(carry, ys) of `scan`; a gradient keeps the carry of every `every` trips. What does not fill a block is a block
    of its own, at the end of xs."""
    n, m = n_consts, n_consts + n_carry
    full = length // every

    def run(values: Sequence[Value], trips: int) -> tuple[Value, ...]:
        """A rematerialised scan of `trips` steps."""
        counts = {"n_consts": n, "n_carry": n_carry, "length": trips, "reverse": reverse}
        of_block = region(lambda *a: scan(*a, body=body, **counts), types_of(values), body.name)
        return tuple(remat(*values, body=of_block))

    def blocks(carry: Sequence[Value]) -> tuple[Sequence[Value], Sequence[Value]]:
        """Carry and ys of the full blocks."""
        xs = [_rows(x, 0, full * every) for x in inputs[m:]]
        cut_up = [reshape(x, shape=(full, every, *x.shape[1:])) for x in xs]
        args = [*inputs[:n], *carry, *cut_up]
        types = [*types_of(args[:m]), *[x.type.with_shape(x.shape[1:]) for x in cut_up]]
        fn = region(lambda *a: run(a, every), types, "block")
        results = scan(*args, body=fn, n_consts=n, n_carry=n_carry, length=full, reverse=reverse)
        new, ys = cut(results, [n_carry, len(results) - n_carry])
        return new, [reshape(y, shape=(full * every, *y.shape[2:])) for y in ys]

    def rest(carry: Sequence[Value]) -> tuple[Sequence[Value], Sequence[Value]]:
        """Carry and ys of the trips behind the full blocks."""
        values = [*inputs[:n], *carry, *[_rows(x, full * every, length) for x in inputs[m:]]]
        results = run(values, length - full * every)
        return results[:n_carry], results[n_carry:]

    parts = [part for part, there in ((blocks, full), (rest, length % every)) if there]
    carry: Sequence[Value] = inputs[n:m]
    stacks: list[Sequence[Value]] = []
    for part in reversed(parts) if reverse else parts:
        carry, ys = part(carry)
        stacks.append(ys)
    stacks = stacks[::-1] if reverse else stacks
    joined = [concatenate(*ys, axis=0) if len(ys) > 1 else ys[0] for ys in zip(*stacks, strict=True)]
    return (*carry, *joined)


def _rows(x: Value, start: int, stop: int) -> Any:
    """x[start:stop] along the first axis."""
    if (start, stop) == (0, x.shape[0]):
        return x
    starts, limits = (start, *[0] * (x.ndim - 1)), (stop, *x.shape[1:])
    return slice_(x, starts=starts, limits=limits, strides=(1,) * x.ndim)
