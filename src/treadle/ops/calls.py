"""Ops that run a function as it stands: `call` by name; `remat` and `custom_vjp`, which steer differentiation;
`barrier`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from treadle.base.dtypes import int32
from treadle.ir import build
from treadle.ir.node import Fn, Node, Value
from treadle.ir.op import No
from treadle.ir.quiet import quiet
from treadle.ir.types import TensorType, Types, f64
from treadle.ops import _padding
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._pruning import reads, slim
from treadle.ops._regions import AXES, Reversed, need, picked, region, spread
from treadle.ops.functions import tanh
from treadle.ops.reduce import reduce_sum


@op(has_regions=True, axes=AXES, onnx=No("the exporter inlines calls"))
def call(*operands: Value, callee: str, results: Types) -> Any:
    """The results of the module's function `callee` on the operands; `results` are its types (the verifier compares).

    A function may call itself; such a module is interpreted, and made a loop by transforms/recursion.py to be compiled.
    """


call.padded(_padding.call)


@call.type
def _(*operands: TensorType, callee: str, results: Types) -> Types:
    return results


@call.ref
def _(run: Any, *operands: Any, callee: str, results: Types) -> Any:
    return run(callee, *operands)


@call.hlo
def _(b: Any, *operands: Any, callee: str, results: Types) -> Any:
    return b.call(callee, operands, results)


@call.reverse
def _(run: Any, inputs: tuple[Value, ...], flags: tuple[bool, ...], *, callee: str, results: Types) -> Reversed:
    forward, backward, line = run.linearise_callee(callee, flags)
    outputs = call(*inputs, callee=forward, results=line.forward.out_types)
    n = len(results)

    def pullback(*cts: Value) -> list[Value | None]:
        live = [t.dtype.is_inexact for t in results]
        grads = call(*outputs[n:], *picked(cts, live), callee=backward, results=line.backward.out_types)
        return spread(grads, flags)

    return tuple(outputs[:n]), pullback


@call.jvp
def _(run: Any, inputs: tuple[Value, ...], tangents: Any, *, callee: str, results: Types) -> Any:
    flags = [t is not None for t in tangents]
    live = [t.dtype.is_inexact for t in results]
    pushed = run.callee(callee, flags)
    outputs = call(*inputs, *picked(tangents, flags), callee=pushed, results=(*results, *picked(results, live)))
    return outputs[: len(live)], spread(outputs[len(live) :], live)


@call.batch
def _(run: Any, inputs: tuple[Value, ...], flags: tuple[bool, ...], *, callee: str, results: Types) -> Any:
    outputs = call(*inputs, callee=run.callee(callee, flags), results=tuple([run.type(t) for t in results]))
    return outputs, [True] * len(results)


@call.samples
def _(s: Samples) -> Iterator[Sample]:
    yield from ()


@op(jvp="linear", axes=No("operands are of any types"), onnx=No("the barrier only matters to XLA"))
def barrier(*operands: Value) -> Any:
    """The operands themselves; the compiler may not move or merge work across (it keeps recomputation from being
    undone)."""


barrier.padded(_padding.barrier)


@barrier.type
def _(*operands: TensorType) -> Types:
    return operands


@barrier.ref
def _(*operands: Any) -> Any:
    return operands


@barrier.hlo
def _(b: Any, *operands: Any) -> Any:
    return b.op("optimization_barrier", *operands)


@barrier.grad
def _(*values: Value) -> tuple[Value, ...]:
    return values[2 * len(values) // 3 :]


@barrier.batch
def _(run: Any, inputs: tuple[Value, ...], flags: tuple[bool, ...]) -> Any:
    return barrier(*inputs), flags


@barrier.samples
def _(s: Samples) -> Iterator[Sample]:
    yield s(f64[2, 3], f64[3])
    yield s(f64[0])


@op(has_regions=True, axes=AXES)
def remat(*operands: Value, body: Fn) -> Any:
    """body(*operands); a gradient keeps only the operands and runs the body again (rematerialisation)."""


remat.padded(_padding.remat)


@remat.type
def _(*operands: TensorType, body: Fn) -> Types:
    need(body.in_types == operands, "E0175", f"{body.name} takes {body.in_types}, given {operands}", "pass these types")
    return body.out_types


@remat.ref
def _(run: Any, *operands: Any, body: Fn) -> Any:
    return run(body, *operands)


@remat.hlo
def _(b: Any, *operands: Any, body: Fn) -> Any:
    return b.inline(body, *operands)


@remat.onnx
def _(g: Any, *operands: str, body: Fn) -> Any:
    return g.inline(body, *operands)


@remat.prune
def _(node: Node, used: tuple[bool, ...]) -> Sequence[Value | None] | None:
    body = node.attrs["body"]
    read = reads(body, used)
    if not any(used) or all([*used, *read]):
        return None
    return spread(remat(*picked(node.inputs, read), body=slim(body, read, used)), used)


@remat.reverse
def _(run: Any, inputs: tuple[Value, ...], flags: tuple[bool, ...], *, body: Fn) -> Reversed:
    line = run.linearise(body, flags)
    live = [t.dtype.is_inexact for t in body.out_types]

    def pullback(*cts: Value) -> list[Value | None]:
        seeds = picked(cts, live)
        held = barrier(*inputs, *seeds)
        results = build.inline(quiet(line.forward, run.context.fns), held[: len(inputs)])
        residuals = results[len(body.outputs) :]
        return spread(build.inline(line.backward, [*residuals, *held[len(inputs) :]]), flags)

    return tuple(remat(*inputs, body=body)), pullback


@remat.jvp
def _(run: Any, inputs: tuple[Value, ...], tangents: Any, *, body: Fn) -> Any:
    flags = [t is not None for t in tangents]
    pushed, outs = run.region(body, flags)
    outputs = remat(*inputs, *picked(tangents, flags), body=pushed)
    return outputs[: len(outs)], spread(outputs[len(outs) :], outs)


@remat.batch
def _(run: Any, inputs: tuple[Value, ...], flags: tuple[bool, ...], *, body: Fn) -> Any:
    batched, outs = run.region(body, flags)
    return remat(*inputs, body=batched), outs


@remat.samples
def _(s: Samples) -> Iterator[Sample]:
    body = build.trace(lambda x, y: (tanh(x * y), x * x), [f64[2], f64[2]])
    yield s(f64[2], f64[2], body=body)
    yield s(f64[3], f64[2], body=body, bad="E0175")


@op(has_regions=True, axes=AXES)
def custom_vjp(*operands: Value, body: Fn, backward: Fn, n_outputs: int) -> Any:
    """The first n_outputs results of body(*operands); the others are residuals for a gradient given by hand.

    backward(operands, all results of body, cotangents of the outputs) -> one gradient for each float operand.
    Raises E0176 when the types of body and backward do not fit together.
    """


custom_vjp.padded(_padding.custom_vjp)


@custom_vjp.type
def _(*operands: TensorType, body: Fn, backward: Fn, n_outputs: int) -> Types:
    need(body.in_types == operands, "E0176", f"{body.name} takes {body.in_types}, given {operands}", "pass these types")
    outputs = body.out_types[:n_outputs]
    given = (*operands, *body.out_types, *[t for t in outputs if t.dtype.is_inexact])
    need(
        backward.in_types == given,
        "E0176",
        f"the gradient takes {backward.in_types}, given {given}",
        "take these types",
    )
    wanted = tuple([t for t in operands if t.dtype.is_inexact])
    need(backward.out_types == wanted, "E0176", f"the gradient returns {backward.out_types}", f"return {wanted}")
    return outputs


@custom_vjp.ref
def _(run: Any, *operands: Any, body: Fn, backward: Fn, n_outputs: int) -> Any:
    return run(body, *operands)[:n_outputs]


@custom_vjp.hlo
def _(b: Any, *operands: Any, body: Fn, backward: Fn, n_outputs: int) -> Any:
    return b.inline(body, *operands)[:n_outputs]


def _apart(results: Sequence[Value], inputs: Sequence[Value], n_outputs: int) -> list[Value]:
    """The results, but an output that is an operand or another output as a value of its own: its cotangent must not be
    taken for one of the other's."""
    seen, made = set(inputs), list(results)
    for i, value in enumerate(results[:n_outputs]):
        if value in seen:
            made[i] = barrier(value)[0]
        seen.add(value)
    return made


@custom_vjp.onnx
def _(g: Any, *operands: str, body: Fn, backward: Fn, n_outputs: int) -> Any:
    return g.inline(body, *operands)[:n_outputs]


@custom_vjp.reverse
def _(
    run: Any, inputs: tuple[Value, ...], flags: tuple[bool, ...], *, body: Fn, backward: Fn, n_outputs: int
) -> Reversed:
    results = _apart(build.inline(body, inputs), inputs, n_outputs)

    def pullback(*cts: Value) -> list[Value | None]:
        seeds = [c for c in cts if c.dtype.is_inexact]
        grads = iter(build.inline(backward, [*inputs, *results, *seeds]))
        found = [next(grads) if v.dtype.is_inexact else None for v in inputs]
        return [g if f else None for g, f in zip(found, flags, strict=True)]

    return tuple(results[:n_outputs]), pullback


@custom_vjp.batch
def _(run: Any, inputs: tuple[Value, ...], flags: tuple[bool, ...], *, body: Fn, backward: Fn, n_outputs: int) -> Any:
    """The gradient of an operand that the lanes share is the sum over the lanes."""
    wide, _ = run.region(body, flags, [True] * len(body.outputs))
    given = [*flags, *[True] * (len(backward.params) - len(flags))]
    lanes, _ = run.region(backward, given, [True] * len(backward.outputs))
    shared = [not f for v, f in zip(inputs, flags, strict=True) if v.dtype.is_inexact]

    def summed(*args: Value) -> list[Value]:
        grads = build.inline(lanes, args)
        return [reduce_sum(g, axes=(0,)) if s else g for g, s in zip(grads, shared, strict=True)]

    pulled = region(summed, lanes.in_types, lanes.name)
    return custom_vjp(*inputs, body=wide, backward=pulled, n_outputs=n_outputs), [True] * n_outputs


@custom_vjp.samples
def _(s: Samples) -> Iterator[Sample]:
    body = build.trace(lambda x, n: (x * x * x, x * x), [f64[2], TensorType(int32, ())], "cube")
    types = [*body.in_types, *body.out_types, f64[2]]
    backward = build.trace(lambda x, n, y, square, d: 3 * square * d, types, "cube_grad")
    yield s(f64[2], TensorType(int32, ()), body=body, backward=backward, n_outputs=1)
    yield s(f64[3], TensorType(int32, ()), body=body, backward=backward, n_outputs=1, bad="E0176")
    yield s(f64[2], TensorType(int32, ()), body=body, backward=body, n_outputs=1, bad="E0176")
