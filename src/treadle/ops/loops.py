"""`scan`: a loop of known length over the first axis of its inputs, with a carry. Its gradient is a scan the other
way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from treadle.base.dtypes import int64
from treadle.ir import build
from treadle.ir.node import Fn, Node, Value
from treadle.ir.types import TensorType, Types, f32, f64, i32
from treadle.ops import _padding
from treadle.ops._batching import moved, settled
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._pruning import carried, reads, slim
from treadle.ops._regions import (
    AXES,
    Reversed,
    cut,
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
from treadle.ops.compare import less
from treadle.ops.control import while_
from treadle.ops.elementwise import add, sub


@op(has_regions=True, axes=AXES)
def scan(*inputs: Value, body: Fn, n_consts: int, n_carry: int, length: int, reverse: bool = False) -> Any:
    """(carry, ys): repeat carry, y = body(consts, carry, x) for x in xs along their first axis; ys are stacked.

    inputs: n_consts constants, n_carry initial carries, then xs, each [length, ...]. reverse: from the last x to the
    first. Raises E0174 when lengths or types do not fit.
    """


scan.padded(_padding.scan)


@scan.type
def _(*inputs: TensorType, body: Fn, n_consts: int, n_carry: int, length: int, reverse: bool = False) -> Types:
    fixed, xs = inputs[: n_consts + n_carry], inputs[n_consts + n_carry :]
    for i, x in enumerate(xs):
        need(
            x.rank > 0 and x.shape[0] == length,
            "E0174",
            f"xs {i} is {x}, length is {length}",
            "stack along the first axis",
        )
    given = (*fixed, *[x.with_shape(x.shape[1:]) for x in xs])
    need(body.in_types == given, "E0174", f"{body.name} takes {body.in_types}, given {given}", "pass these types")
    carry = body.out_types[:n_carry]
    need(carry == fixed[n_consts:], "E0174", f"the carry {fixed[n_consts:]} becomes {carry}", "keep the carry's types")
    return (*carry, *[TensorType(t.dtype, (length, *t.shape)) for t in body.out_types[n_carry:]])


@scan.ref
def _(run: Any, *inputs: Any, body: Fn, n_consts: int, n_carry: int, length: int, reverse: bool = False) -> Any:
    consts, carry, xs = inputs[:n_consts], inputs[n_consts : n_consts + n_carry], inputs[n_consts + n_carry :]
    ys = [np.zeros((length, *t.shape), t.dtype.np) for t in body.out_types[n_carry:]]
    for i in reversed(range(length)) if reverse else range(length):
        results = run(body, *consts, *carry, *[x[i] for x in xs])
        carry = results[:n_carry]
        for y, r in zip(ys, results[n_carry:], strict=True):
            y[i] = r
    return (*carry, *ys)


@scan.expand
def _(*inputs: Value, body: Fn, n_consts: int, n_carry: int, length: int, reverse: bool = False) -> tuple[Value, ...]:
    """A `while` with a counter that reads slices of xs and writes slices of ys."""
    consts, init, xs = inputs[:n_consts], inputs[n_consts : n_consts + n_carry], inputs[n_consts + n_carry :]
    stacks = [zeros(TensorType(t.dtype, (length, *t.shape))) for t in body.out_types[n_carry:]]
    if length == 0:
        return (*init, *stacks)
    held = [*consts, *xs]

    def again(*args: Value) -> Any:
        return less(args[len(held)], length)

    def step(*args: Value) -> list[Value]:
        count, carry, ys = args[len(held)], args[len(held) + 1 :][:n_carry], args[len(held) + 1 + n_carry :]
        at = sub(length - 1, count) if reverse else count
        slices = [peek(x, at) for x in args[n_consts : len(held)]]
        results = build.inline(body, [*args[:n_consts], *carry, *slices])
        return [
            add(count, 1),
            *results[:n_carry],
            *[push(y, r, at) for y, r in zip(ys, results[n_carry:], strict=True)],
        ]

    args = [*held, number(0), *init, *stacks]
    types = types_of(args)
    loop = while_(*args, cond=region(again, types, "again"), body=region(step, types, "step"), n_consts=len(held))
    return tuple(loop[1:])


@scan.reverse
def _(
    run: Any,
    inputs: tuple[Value, ...],
    flags: tuple[bool, ...],
    *,
    body: Fn,
    n_consts: int,
    n_carry: int,
    length: int,
    reverse: bool = False,
) -> Reversed:
    live = inexact(body.out_types)
    wrt = [*flags[:n_consts], *live[:n_carry], *flags[n_consts + n_carry :]]
    line = run.linearise(body, wrt, live)
    n_out, n_live = len(body.outputs), sum(live[:n_carry])
    fixed = [p is not None and p < n_consts for p in line.from_param]
    shape = {"n_consts": n_consts, "n_carry": n_carry, "length": length, "reverse": reverse}
    ahead = region(
        lambda *a: _without_fixed(build.inline(line.forward, a), n_out, fixed), body.in_types, line.forward.name
    )
    results = scan(*inputs, body=ahead, **shape)
    consts = [inputs[p] for p, f in zip(line.from_param, fixed, strict=True) if f]
    saved = results[n_out:]
    n_sums = sum(flags[:n_consts])

    def back(*args: Value) -> list[Value]:
        """(fixed residuals; carry cotangents, sums; stacked residuals, cotangents of ys) -> (carry, sums; x
        gradients)."""
        still, rest = iter(args[: len(consts)]), args[len(consts) :]
        cts, sums, xs = rest[:n_live], rest[n_live : n_live + n_sums], rest[n_live + n_sums :]
        stacked = iter(xs[: len(saved)])
        residuals = [next(still) if f else next(stacked) for f in fixed]
        grads = build.inline(line.backward, [*residuals, *cts, *xs[len(saved) :]])
        new = [add(a, g) for a, g in zip(sums, grads[:n_sums], strict=True)]
        return [*grads[n_sums : n_sums + n_live], *new, *grads[n_sums + n_live :]]

    def pullback(*cts: Value) -> list[Value | None]:
        carry = picked(cts[:n_carry], live[:n_carry])
        sums = [zeros(c.type) for c in picked(inputs[:n_consts], flags[:n_consts])]
        xs = [*saved, *picked(cts[n_carry:n_out], live[n_carry:])]
        args = [*consts, *carry, *sums, *xs]
        slices = [*types_of([*consts, *carry, *sums]), *[x.type.with_shape(x.shape[1:]) for x in xs]]
        turned = {"n_consts": len(consts), "n_carry": n_live + n_sums, "length": length, "reverse": not reverse}
        grads = scan(*args, body=region(back, slices, line.backward.name), **turned)
        n_state = n_live + n_sums
        ends = spread(grads[:n_live], live[:n_carry])
        init = [g if f else None for g, f in zip(ends, flags[n_consts : n_consts + n_carry], strict=True)]
        return [
            *spread(grads[n_live:n_state], flags[:n_consts]),
            *init,
            *spread(grads[n_state:], flags[n_consts + n_carry :]),
        ]

    return tuple(results[:n_out]), pullback


def _without_fixed(results: Sequence[Value], n_out: int, fixed: Sequence[bool]) -> list[Value]:
    """Residuals that are constants of the loop need no stacking."""
    return [*results[:n_out], *[r for r, f in zip(results[n_out:], fixed, strict=True) if not f]]


@scan.jvp
def _(
    run: Any, inputs: tuple[Value, ...], tangents: Any, *, body: Fn, n_consts: int, n_carry: int, **trips: Any
) -> Any:
    given = [t is not None for t in tangents]
    n, m = n_consts, n_consts + n_carry
    still, rows = given[:n], given[m:]
    carried = settled(lambda now: run.region(body, [*still, *now, *rows])[1][:n_carry], given[n:m])
    flags = [*still, *carried, *rows]
    outs = [*carried, *run.region(body, flags)[1][n_carry:]]
    pushed, _ = run.region(body, flags, outs)
    sizes = [n, sum(still), n_carry, sum(carried), len(rows), sum(rows)]

    def step(*args: Value) -> list[Value]:
        consts, dconsts, carry, dcarry, xs, dxs = cut(args, sizes)
        results = build.inline(pushed, [*consts, *carry, *xs, *dconsts, *dcarry, *dxs])
        new, ys, dnew, dys = cut(results, [n_carry, len(outs) - n_carry, sum(carried), sum(outs[n_carry:])])
        return [*new, *dnew, *ys, *dys]

    moving = picked([run.or_zeros(t, v) for t, v in zip(tangents[n:m], inputs[n:m], strict=True)], carried)
    fixed = [*inputs[:n], *picked(tangents[:n], still), *inputs[n:m], *moving]
    xs = [*inputs[m:], *picked(tangents[m:], rows)]
    types = [*types_of(fixed), *[x.type.with_shape(x.shape[1:]) for x in xs]]
    counts = {"n_consts": sizes[0] + sizes[1], "n_carry": sizes[2] + sizes[3]}
    results = scan(*fixed, *xs, body=region(step, types, pushed.name), **counts, **trips)
    new, dnew, ys, dys = cut(results, [n_carry, sizes[3], len(outs) - n_carry, sum(outs[n_carry:])])
    return [*new, *ys], spread([*dnew, *dys], outs)


@scan.batch
def _(
    run: Any, inputs: tuple[Value, ...], flags: tuple[bool, ...], *, body: Fn, n_consts: int, n_carry: int, **trips: Any
) -> Any:
    """One scan whose carry, slices and constants are batched where they differ between lanes."""
    m = n_consts + n_carry
    still, rows = flags[:n_consts], flags[m:]
    carried = settled(lambda now: run.region(body, [*still, *now, *rows])[1][:n_carry], flags[n_consts:m])
    wide = [*still, *carried, *rows]
    outs = [*carried, *run.region(body, wide)[1][n_carry:]]
    stepped, _ = run.region(body, wide, outs)
    init = [run.spread(v) if c and not f else v for v, f, c in zip(inputs[n_consts:m], flags[n_consts:m], carried)]
    xs = [moved(x, 0, 1) if f else x for x, f in zip(inputs[m:], rows, strict=True)]
    results = scan(*inputs[:n_consts], *init, *xs, body=stepped, n_consts=n_consts, n_carry=n_carry, **trips)
    ys = [moved(y, 0, 1) if f else y for y, f in zip(results[n_carry:], outs[n_carry:], strict=True)]
    return [*results[:n_carry], *ys], outs


@scan.onnx
def _(g: Any, *inputs: str, body: Fn, n_consts: int, n_carry: int, length: int, reverse: bool = False) -> Any:
    """A Scan with the constants seen from outside; without xs it goes over the trip numbers. Stacks are turned round by
    slices, for few runtimes know the directions of Scan."""
    m = n_consts + n_carry
    consts, init, xs = inputs[:n_consts], inputs[n_consts:m], inputs[m:]
    stacks = [TensorType(t.dtype, (length, *t.shape)) for t in body.out_types[n_carry:]]
    if length == 0:
        return (*init, *[g.const(np.zeros(t.shape, t.dtype.np)) for t in stacks])

    def turned(name: str) -> str:
        ends = [g.const(np.array([n])) for n in (-1, -length - 1, 0, -1)]
        made: str = g.node("Slice", name, *ends) if reverse else name
        return made

    rows = [turned(x) for x in xs] or [g.const(np.arange(length))]
    types = body.in_types[n_consts:] if xs else (*body.in_types[n_consts:], TensorType(int64, ()))

    def step(*args: str) -> Any:
        return g.inline(body, *consts, *(args if xs else args[:-1]))

    outputs = n_carry + len(stacks)
    graph = g.graph(types, body.out_types, step)
    made = g.node("Scan", *init, *rows, outputs=outputs, body=graph, num_scan_inputs=len(rows))
    results = made if isinstance(made, tuple) else (made,)
    return (*results[:n_carry], *[turned(y) for y in results[n_carry:]])


@scan.prune
def _(node: Node, used: tuple[bool, ...]) -> Sequence[Value | None] | None:
    body, n, k = node.attrs["body"], node.attrs["n_consts"], node.attrs["n_carry"]
    wanted = [*carried(body, n, used[:k], used[k:]), *used[k:]]
    read = reads(body, wanted)
    read[n : n + k] = wanted[:k]
    if not any(used) or all([*read, *wanted]):
        return None
    attrs = {**node.attrs, "body": slim(body, read, wanted), "n_consts": sum(read[:n]), "n_carry": sum(wanted[:k])}
    return spread(scan(*picked(node.inputs, read), **attrs), wanted)


@scan.samples
def _(s: Samples) -> Iterator[Sample]:
    def step(w: Value, h: Value, x: Value) -> tuple[Value, Value]:
        new = h * w + x * h
        return new, new * x

    body = build.trace(step, [f64[2], f64[2], f64[2]])
    for length, reverse in ((3, False), (3, True), (0, False), (1, True)):
        xs = f64[length, 2]
        yield s(f64[2], f64[2], xs, body=body, n_consts=1, n_carry=1, length=length, reverse=reverse)
    count = build.trace(lambda n, x: (add(n, 1), x), [i32[()], f32[()]], "count")
    yield s(np.int32(0), f32[4], body=count, n_consts=0, n_carry=1, length=4, reverse=False)
    yield s(f64[2], f64[2], f64[3, 2], body=body, n_consts=1, n_carry=1, length=4, reverse=False, bad="E0174")
    yield s(f64[2], f64[3], f64[3, 2], body=body, n_consts=1, n_carry=1, length=3, reverse=False, bad="E0174")
