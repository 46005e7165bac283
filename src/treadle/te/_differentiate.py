"""`te.differentiate`: derivatives of te tensors, and of real tensors that te functions made; with overrides.

An override's function gives either the local derivative (d out / d input, element by element, as `out * (1 - out)`) or
the cotangents of its inputs, with `grad` in them. Which one it is, is found out by numbers: both readings are compared
with the derivative of the formula itself at random points.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.formula.derivative import Override, check_inputs, jacobian, pullback
from treadle.formula.expr import Axis, Compute, Placeholder, Source, call, read, sources
from treadle.formula.graph import swapped
from treadle.formula.interp import evaluate
from treadle.formula.text import Formula
from treadle.te._bridge import LIMIT, computed, forgotten, is_real, origin_of, run, source_of
from treadle.te._tensor import Tensor

Rule = tuple[Sequence[Any], Callable[..., Any]]


def differentiate(out: Any, inputs: Any, head: Any = None, override: Mapping[Any, Rule] | None = None) -> list[Any]:
    """The derivatives of `out` by each of `inputs`.

    head: a tensor of out's type; then the vector-Jacobian products, of the inputs' shapes. None: the Jacobians, shape
    of out and then of the input. override: {tensor: (its inputs, fn(out, inputs, grad) -> list)}, the derivative of one
    step or of a whole part of the formula by hand: the local derivatives or the cotangents. Raises E0307 for an input
    that out does not depend on, E0305 for one that is not float, E0308 for a head of another type, E0580 for an
    override that is neither.
    """
    inputs = inputs if isinstance(inputs, list | tuple) else [inputs]
    if is_real(out):
        return _of_real(out, inputs, head, override or {})
    root, wanted = computed(out.source), [i.source for i in inputs]
    if override:
        rules = {_compute(t): _rule(t, rule) for t, rule in override.items()}
        return [Tensor(g) for g in derivatives(root, wanted, None if head is None else head.source, rules)]
    return [Tensor(g) for g in derivatives(root, wanted, None if head is None else head.source, {})]


def derivatives(
    out: Compute, inputs: Sequence[Source], head: Source | None, rules: Mapping[Compute, Override]
) -> list[Compute]:
    """The same on sources."""
    check_inputs([out], inputs)
    if head is None:
        return jacobian(out, inputs, rules)
    if head.type != out.type:
        raise UserError("E0308", f"the head is {head.type}, the output {out.type}", fix="give a head of that type")
    return pullback([out], [head], inputs, rules)


def _of_real(out: Any, inputs: Sequence[Any], head: Any, override: Mapping[Any, Rule]) -> list[Any]:
    found = origin_of(out)
    if found is None or not isinstance(found.source, Compute):
        why = "the tensor to be differentiated was not made by a te function, or has been changed since"
        raise UserError("E0581", why, fix="td.grad differentiates any function")
    rules = {_compute(Tensor(source_of(t))): _rule_of_real(t, rule) for t, rule in override.items()}
    wanted = [source_of(i) for i in inputs]
    if forgotten([found.source], wanted):
        why = f"the tensor came from more than {LIMIT} steps of te functions, and the first are forgotten"
        raise UserError("E0581", why, fix="make one operator of them with te.op, or use td.grad")
    seed = None if head is None else source_of(head)
    grads = derivatives(found.source, wanted, seed, rules)
    return run(grads, [out, *inputs, *([] if head is None else [head])])


def _rule_of_real(tensor: Any, rule: Rule) -> Override:
    ins = [Tensor(source_of(i)) for i in rule[0]]
    return _rule(Tensor(source_of(tensor)), (ins, rule[1]))


def _compute(tensor: Any) -> Compute:
    if not (isinstance(tensor, Tensor) and isinstance(tensor.source, Compute)):
        raise UserError("E0580", "an override is for a tensor that a formula computes", fix="name an output of a step")
    return tensor.source


# --- overrides --------------------------------------------------------------------------------------------------------


def _rule(out: Tensor, rule: Rule) -> Override:
    """The override as a function from the cotangent's source to the cotangents of the inputs."""
    inputs, fn = rule
    ins = [i.source for i in inputs]
    root = _compute(out)
    check_inputs([root], ins)
    grad = Placeholder("grad", root.type)
    given = fn(out, list(inputs), Tensor(grad))
    given = list(given) if isinstance(given, list | tuple) else [given]
    if len(given) != len(ins) or not all(isinstance(g, Tensor) for g in given):
        why = f"the override of {root.name} gives {len(given)} results for {len(ins)} inputs"
        raise UserError("E0580", why, fix="return a list with one te tensor per input")
    whole = [computed(g.source) for g in given]
    local = [_times(g, grad, i) for g, i in zip(whole, ins, strict=True)]
    chosen = _fitting(root, ins, grad, whole, local)

    def apply(source: Source) -> list[Compute]:
        now = swapped(chosen, {grad: source})
        return [made for made in [now[c] for c in chosen] if isinstance(made, Compute)]

    return ins, apply


def _times(derivative: Compute, grad: Placeholder, source: Source) -> Compute | None:
    """A local derivative times the cotangent; None where the shapes do not say so."""
    if not derivative.type == grad.type == source.type:
        return None
    axes = [Axis(a.name, a.extent) for a in derivative.axes]
    return Compute(derivative.name, axes, call("mul", read(grad, *axes), read(derivative, *axes)))


def _fitting(
    out: Compute, inputs: Sequence[Source], grad: Placeholder, whole: Sequence[Compute], local: Sequence[Any]
) -> list[Compute]:
    """The reading that agrees with the formula's own derivative. Raises E0580 where neither does."""
    true = pullback([out], [grad], inputs)
    readings = [list(whole), list(local)]
    for reading in readings:
        fits = all(c is not None and c.type == i.type for c, i in zip(reading, inputs, strict=True))
        if fits and _agree(true, reading, out, inputs):
            return reading
    why = f"the override of {out.name} is neither its derivative nor its cotangents at random points"
    raise UserError("E0580", why, fix="return d out / d input element by element, or that times grad")


def _agree(true: Sequence[Compute], reading: Sequence[Compute], out: Compute, inputs: Sequence[Source]) -> bool:
    """Both formulas on random operands; what the override's inputs are is drawn too. At least one number must count."""
    cuts: dict[Source, Source] = {s: Placeholder(s.name, s.type) for s in inputs if isinstance(s, Compute)}
    roots = [*true, *reading]
    now = swapped(roots, cuts)
    wanted = [c for c in [now[r] for r in roots] if isinstance(c, Compute)]
    operands = [s for s in sources(wanted) if isinstance(s, Placeholder)]
    formula = Formula(operands, wanted)
    compared = 0
    for seed, low in ((0, -1.5), (1, 0.2)):
        rng = np.random.default_rng(seed)
        results = evaluate(formula, *[_drawn(rng, p, low) for p in operands])
        for a, b in zip(results[: len(true)], results[len(true) :], strict=True):
            counts = np.isfinite(a) & np.isfinite(b)
            compared += int(counts.sum())
            error = np.abs(a - b)[counts].astype(np.float64)
            if (error > _tolerance(out) * (1 + np.abs(a)[counts].astype(np.float64))).any():
                return False
    return compared > 0


def _tolerance(out: Compute) -> float:
    return {64: 1e-8, 32: 1e-3, 16: 5e-2}.get(out.type.dtype.bits, 1e-3)


def _drawn(rng: np.random.Generator, place: Placeholder, low: float) -> Any:
    dtype = place.type.dtype
    if dtype.kind in "biu":
        return rng.integers(0, 2, place.type.shape).astype(dtype.np)
    return rng.uniform(low, 1.5, place.type.shape).astype(dtype.np)
