"""One op for every formula: `compute(*operands, formula=text)`; the text is that of `treadle.formula.text`.

The reference is the formula's own evaluation with NumPy, the expansion the same in other ops (`_lanes.py`), the
gradient a formula again (`treadle.formula.derivative`). Batching adds a leading index. The axes rule is read off the
indices; an axis that it names may have another size than in the text, so that a part of the tensors can be computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from treadle.base.errors import UserError
from treadle.formula.derivative import pullback
from treadle.formula.expr import (
    Axis,
    Compute,
    Expr,
    Placeholder,
    Read,
    Reduce,
    Source,
    call,
    const,
    fold,
    index,
    post_order,
    read,
    reads,
    reduce,
    rewrite,
    substitute,
    with_parts,
)
from treadle.formula.graph import led, mapped, reading, swapped
from treadle.formula.interp import evaluate
from treadle.formula.rules import Operand, operand_of
from treadle.formula.text import Formula, parse
from treadle.ir.interp import expansion
from treadle.ir.node import Node, Value
from treadle.ir.types import TensorType, Types, bf16, f32, f64, i32, type_of
from treadle.ops import _lanes
from treadle.ops._declare import Sample, Samples, op


def _group(node: Node) -> str:
    """A formula that is a product or a convolution is computed as one."""
    body = expansion(node.op, tuple([v.type for v in node.inputs]), node.attrs)
    return "expand" if any(n.op.rules.get("group") in ("product", "convolution") for n in body.nodes) else "row"


@op(group=_group, onnx="expand")
def compute(*xs: Value, formula: str) -> Any:
    """The results of a formula (text, see docs/te.md) for operands of its placeholders' types; indices are clamped.

    Raises E0104 for operands of other types, E0192 for text that is no formula, E0139 for reads of an empty tensor.
    """


@compute.type
def _(*xs: TensorType, formula: str) -> TensorType | Types:
    found = fitted(formula, xs)
    for each in found.computes:
        for r in reads(each.body):
            if r.source.type.size == 0 and _runs(each, r):
                raise UserError("E0139", f"the formula reads from the empty {r.source.type}", fix="give it an element")
    return found.out_types if len(found.outputs) > 1 else found.out_types[0]


@lru_cache(maxsize=1024)
def fitted(text: str, types: Types) -> Formula:
    """The formula with the sizes of the operands where the axes rule lets them differ. Raises E0104 elsewhere."""
    formula = parse(text)
    if types == formula.in_types:
        return formula
    sizes = _new_sizes(formula, types)
    if sizes is None:
        names = [", ".join(map(str, t)) for t in (formula.in_types, types)]
        raise UserError("E0104", f"the formula takes ({names[0]}), got ({names[1]})", fix="cast or reshape them")
    (old,) = formula.computes
    swaps: dict[Source, Source] = {
        p: Placeholder(p.name, t) for p, t in zip(formula.placeholders, types, strict=True) if p.type != t
    }
    body = reading(old.body, swaps)
    bound = [*old.axes, *(body.axes if isinstance(body, Reduce) else ())]
    fresh = {a: Axis(a.name, sizes.get(a, a.extent)) for a in bound}
    if isinstance(body, Reduce):
        inner = [substitute(p, fresh) for p in body.parts]
        body = reduce(body.combiner, inner, [fresh[a] for a in body.axes], body.index)
    else:
        body = substitute(body, fresh)
    return Formula(
        [swaps.get(p, p) for p in formula.placeholders],  # type: ignore[misc]
        [Compute(old.name, [fresh[a] for a in old.axes], body)] * len(formula.outputs),
    )


def _new_sizes(formula: Formula, types: Types) -> dict[Axis, int] | None:
    """The extents that the operands ask for; None where they do not fit the formula."""
    old = formula.in_types
    if len(types) != len(old) or any(a.dtype is not b.dtype or a.rank != b.rank for a, b in zip(types, old)):
        return None
    names = _names(formula)
    sizes: dict[Axis, int] = {}
    for row, a, b in zip(names, types, old, strict=True):
        for axis, n, m in zip(row, a.shape, b.shape, strict=True):
            if n != m and axis is None:
                return None
            if axis is not None and sizes.setdefault(axis, n) != n:
                return None
    return sizes


def _runs(each: Compute, inside: Read) -> bool:
    """Whether there is a point at which the read is done."""
    around = [e for e in post_order(each.body) if isinstance(e, Reduce) and inside in set(post_order(*e.parts))]
    return all(a.extent for a in each.axes) and all(a.extent for e in around for a in e.axes)


@compute.ref
def _(*xs: Any, formula: str) -> Any:
    results = evaluate(fitted(formula, tuple([type_of(x) for x in xs])), *xs)
    return results if len(results) > 1 else results[0]


@compute.expand
def _(*xs: Value, formula: str) -> Any:
    results = _lanes.expand(fitted(formula, tuple([x.type for x in xs])), xs)
    return results if len(results) > 1 else results[0]


@compute.formula
def _(t: Any, *xs: Operand, formula: str) -> Any:
    """The formula itself, with the operands' elements in it."""
    found = fitted(formula, tuple([x.type for x in xs]))
    given = dict(zip(found.placeholders, xs, strict=True))

    def step(old: Expr, parts: tuple[Expr, ...]) -> Expr:
        known = given.get(old.source) if isinstance(old, Read) and isinstance(old.source, Placeholder) else None
        return with_parts(old, parts) if known is None else known(*parts)

    def change(source: Compute, body: Expr) -> Compute:
        return Compute(source.name, source.axes, rewrite(body, step))

    now = mapped(found.outputs, change)
    return [operand_of(now[o]) for o in found.outputs]


@lru_cache(maxsize=1024)
def _gradient(text: str, wanted: tuple[bool, ...]) -> tuple[str, tuple[int, ...]]:
    """The formula of the cotangents from operands, results and the cotangents flagged; and for which operands.

    The results are given, so the formula does not compute them again.
    """
    formula = parse(text)
    heads = [Placeholder(f"d{o.name}", o.type) for o in formula.outputs]
    inputs = [p for p in formula.placeholders if p.type.dtype.is_inexact]
    used = [h if w and h.type.dtype.is_inexact else None for h, w in zip(heads, wanted, strict=True)]
    grads = pullback(formula.outputs, used, inputs)
    given: dict[Source, Source] = {o: Placeholder(o.name, o.type) for o in formula.outputs}
    now = swapped(grads, given)
    operands = [*formula.placeholders, *[p for p in given.values() if isinstance(p, Placeholder)], *heads]
    results = [now[g] for g in grads]
    places = tuple([i for i, p in enumerate(formula.placeholders) if p.type.dtype.is_inexact])
    return Formula(operands, [r for r in results if isinstance(r, Compute)]).text, places


@compute.grad
def _(*args: Value, formula: str) -> Any:
    found = fitted(formula, tuple([a.type for a in args[: len(parse(formula).placeholders)]]))
    n, m = len(found.placeholders), len(found.outputs)
    if not any(p.type.dtype.is_inexact for p in found.placeholders):
        return (None,) * n
    cts = args[n + m :]
    text, places = _gradient(found.text, tuple([c is not None for c in cts]))
    results = compute(*args, formula=text)
    results = results if isinstance(results, tuple) else (results,)
    grads: list[Value | None] = [None] * n
    for place, result in zip(places, results, strict=True):
        grads[place] = result
    return tuple(grads)


@lru_cache(maxsize=1024)
def _batched(text: str, flags: tuple[bool, ...], size: int) -> tuple[str, tuple[bool, ...]]:
    formula = parse(text)
    lanes = [
        Placeholder(p.name, p.type.with_shape((size, *p.type.shape))) if f else p
        for p, f in zip(formula.placeholders, flags, strict=True)
    ]
    given: dict[Source, Source] = {p: q for p, q in zip(formula.placeholders, lanes, strict=True) if p is not q}
    now = led(formula.outputs, given, (size,))
    outputs = [now[o] for o in formula.outputs]
    found = tuple([n is not o for n, o in zip(outputs, formula.outputs, strict=True)])
    return Formula(lanes, [o for o in outputs if isinstance(o, Compute)]).text, found


@compute.batch
def _(run: Any, inputs: Any, flags: Any, *, formula: str) -> Any:
    types = [v.type.with_shape(v.shape[1:]) if f else v.type for v, f in zip(inputs, flags, strict=True)]
    text, found = _batched(fitted(formula, tuple(types)).text, tuple(flags), run.size)
    results = compute(*inputs, formula=text)
    return list(results) if isinstance(results, tuple) else [results], list(found)


@compute.flops
def _(ins: Types, outs: Types, *, formula: str) -> int:
    """One per call on floats at every point, and one per joined point of a reduction."""
    total = 0
    for each in fitted(formula, tuple(ins)).computes:
        total += _flops(each.body, math.prod(each.type.shape), {})
    return total


def _flops(expr: Expr, points: int, seen: dict[tuple[Expr, int], bool]) -> int:
    if (expr, points) in seen:
        return 0
    seen[expr, points] = True
    inner = points * math.prod([a.extent for a in expr.axes]) if isinstance(expr, Reduce) else points
    own = inner if isinstance(expr, Reduce) else points
    if isinstance(expr, Read) or not expr.dtype.is_inexact:
        return 0
    return (own if expr.parts else 0) + sum(_flops(p, inner, seen) for p in expr.parts)


@compute.axes
def _(*xs: TensorType, formula: str) -> str:
    return axes_text(fitted(formula, xs))


@lru_cache(maxsize=1024)
def axes_text(formula: Formula) -> str:
    """Axes of results and of an outermost sum are named by their variables, and an operand's axis likewise if every
    read has just the variable there.

    Where several tensors are computed, and for variables used in another way, the axis is not split.
    """
    names = _names(formula)
    found = {a: f"v{n}" for n, a in enumerate({a: None for row in names for a in row if a is not None})}
    ins = [
        " ".join([found[a] if a is not None else f"!p{n}_{d}" for d, a in enumerate(row)])
        for n, row in enumerate(names)
    ]
    outs = [" ".join([found.get(a, f"!o{n}_{d}") for d, a in enumerate(o.axes)]) for n, o in enumerate(formula.outputs)]
    return f"{', '.join(ins)} -> {', '.join(outs)}"


def _names(formula: Formula) -> list[list[Axis | None]]:
    """For each axis of each operand the variable that it stands for in the result or in an outermost sum, or None."""
    allowed: set[Axis] = set()
    if len(formula.computes) == 1:
        body = formula.outputs[0].body
        summed = body.axes if isinstance(body, Reduce) and body.combiner.kind == "add" else ()
        allowed = {*formula.outputs[0].axes, *summed} - _loose(body)
    rows: list[list[Axis | None]] = []
    for p in formula.placeholders:
        row: list[Axis | None] = []
        for d, size in enumerate(p.type.shape):
            seen = {r.indices[d] for c in formula.computes for r in reads(c.body) if r.source is p}
            axis = next(iter(seen)) if len(seen) == 1 else None
            fits = isinstance(axis, Axis) and axis in allowed and axis.extent == size and axis not in row
            row.append(axis if fits and isinstance(axis, Axis) else None)
        rows.append(row)
    return rows


def _loose(body: Expr) -> set[Axis]:
    """Variables used other than as the whole index of an operand's axis: their global value matters."""
    found: set[Axis] = set()
    for each in post_order(body):
        for p in each.parts:
            if isinstance(p, Axis) and not (isinstance(each, Read) and p.extent == _size(each, p)):
                found.add(p)
    if isinstance(body, Axis):
        found.add(body)
    return found


def _size(each: Read, axis: Axis) -> int:
    sizes = {n for i, n in zip(each.indices, each.source.type.shape, strict=True) if i is axis}
    return sizes.pop() if len(sizes) == 1 else -1


@compute.samples
def _(s: Samples) -> Iterator[Sample]:
    for t in (f64, f32, bf16):
        yield s(t[2, 3], t[3, 4], formula=_matmul(t[2, 3], t[3, 4]))
    yield s(f64[2, 5], formula=_window(f64[2, 5]))
    yield s(f64[0, 5], formula=_window(f64[0, 5]))
    yield s(f64[3, 4], formula=_softmax(f64[3, 4]))
    yield s(f64[4, 2], i32[3], formula=_lookup(f64[4, 2], i32[3]))
    yield s(f64[2, 4], f64[3, 4], formula=_matmul(f64[2, 3], f64[3, 4]), bad="E0104")
    yield s(f64[2], formula="no formula", bad="E0192")


def _matmul(x: TensorType, w: TensorType) -> str:
    a, b = Placeholder("x", x), Placeholder("w", w)
    i, j, k = Axis("i", x.shape[0]), Axis("j", w.shape[1]), Axis("k", x.shape[1])
    body = fold("add", call("mul", read(a, i, k), read(b, k, j)), (k,))
    return Formula((a, b), (Compute("y", (i, j), body),)).text


def _window(x: TensorType) -> str:
    """A sum of three neighbours, zero outside."""
    a = Placeholder("x", x)
    i, j, k = Axis("i", x.shape[0]), Axis("j", x.shape[1]), Axis("k", 3)
    place = call("sub", call("add", j, k), index(1))
    inside = call(
        "logical_and", call("greater_equal", place, index(0)), call("less", place, index(x.shape[1]))
    )  # fmt: skip
    body = fold("add", call("select", inside, read(a, i, place), const(0, x.dtype)), (k,))
    return Formula((a,), (Compute("y", (i, j), body),)).text


def _softmax(x: TensorType) -> str:
    a = Placeholder("x", x)
    i, j, k, m = Axis("i", x.shape[0]), Axis("j", x.shape[1]), Axis("k", x.shape[1]), Axis("m", x.shape[0])
    most = Compute("most", (m,), fold("maximum", read(a, m, k), (k,)))
    e = Compute("e", (i, j), call("exp", call("sub", read(a, i, j), read(most, i))))
    total = Compute("total", (m,), fold("add", read(e, m, k), (k,)))
    y = Compute("y", (i, j), call("div", read(e, i, j), read(total, i)))
    return Formula((a,), (y, total)).text


def _lookup(x: TensorType, places: TensorType) -> str:
    a, b = Placeholder("x", x), Placeholder("at", places)
    i, j = Axis("i", places.shape[0]), Axis("j", x.shape[1])
    return Formula((a, b), (Compute("y", (i, j), read(a, read(b, i), j)),)).text
