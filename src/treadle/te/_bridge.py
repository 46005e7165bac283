"""Formulas on real tensors: how functions of te tensors run on `treadle.Tensor`s, and from which formula each came.

`on_tensors(build, *args)` runs `build` on te tensors that stand for the arguments, and the op `compute` on the
arguments themselves. The result remembers its formula, as long as it lives and keeps its value and for `LIMIT` steps
back, so that `te.differentiate` can be asked about it. Inside `td.jit`, `td.grad` and `td.vmap` nothing is different:
the op is traced.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from treadle.base.errors import UserError
from treadle.formula.expr import Axis, Compute, Placeholder, Source, read, reads, sources
from treadle.formula.graph import swapped
from treadle.formula.text import Formula
from treadle.frontend import trace as tracing
from treadle.frontend.lift import is_array, lift
from treadle.ops.computes import compute as compute_op
from treadle.te._tensor import Tensor


@dataclass(frozen=True)
class _Origin:
    """The formula that a tensor is, its value at that time, and the tensors that the formula's parts are."""

    source: Source
    value: Any
    known: Mapping[Source, Any]
    steps: int


LIMIT = 64  # steps that are remembered: a loop must not keep everything that it ever computed
_cuts: weakref.WeakSet[Placeholder] = weakref.WeakSet()  # stand for results of more steps than that
_origins: dict[int, tuple[weakref.ref[Any], _Origin]] = {}


def is_real(x: Any) -> bool:
    """Whether x has numbers (a tensor of Treadle, or an array), or will have when the traced program runs."""
    return hasattr(type(x), "__treadle_op__") or (is_array(x) and x.ndim > 0)


def _value(tensor: Any) -> Any:
    trace = tracing.current()
    return tensor._value if trace is None else trace.read(tensor)


def origin_of(tensor: Any) -> _Origin | None:
    """Where a tensor came from; None where nothing is known or it has got another value since."""
    entry = _origins.get(id(tensor))
    if entry is None or entry[0]() is not tensor or entry[1].value is not _value(tensor):
        return None
    return entry[1]


def _remember(tensor: Any, source: Source, known: Mapping[Source, Any]) -> None:
    found = [origin_of(t) for t in known.values()]
    steps = 1 + max([o.steps for o in found if o is not None], default=-1)
    if steps > LIMIT:
        source, known, steps = Placeholder(source.name, source.type), {}, 0
        _cuts.add(source)
    key = id(tensor)
    ref = weakref.ref(tensor, lambda dead: _forget(key, dead))
    _origins[key] = ref, _Origin(source, _value(tensor), known, steps)


def forgotten(outputs: Sequence[Source], wanted: Sequence[Source]) -> bool:
    """Whether the outputs depend on steps that are no longer remembered, other than through `wanted`."""
    seen, stack = set(wanted), list(outputs)
    while stack:
        source = stack.pop()
        if source in _cuts and source not in seen:
            return True
        if isinstance(source, Compute) and source not in seen:
            stack.extend(r.source for r in reads(source.body))
        seen.add(source)
    return False


def _forget(key: int, dead: Any) -> None:
    if key in _origins and _origins[key][0] is dead:
        del _origins[key]


def source_of(tensor: Any) -> Source:
    """What stands for a tensor in formulas: what it came from, else a placeholder that from now on stands for it."""
    found = origin_of(tensor)
    if found is None:
        _remember(tensor, Placeholder("x", tensor.type), {})
        found = origin_of(tensor)
        assert found is not None
    return found.source


def _all_known(tensors: Sequence[Any]) -> dict[Source, Any]:
    """Every formula part of which a tensor is at hand: the tensors and what they came from."""
    known: dict[Source, Any] = {}
    stack = list(tensors)
    while stack:
        tensor = stack.pop()
        found = origin_of(tensor)
        if found is not None and found.source not in known:
            known[found.source] = tensor
            stack.extend(found.known.values())
    return known


def run(outputs: Sequence[Compute], tensors: Sequence[Any]) -> list[Any]:
    """The tensors that the outputs are, computed from `tensors` and from what those came from."""
    known = _all_known(tensors)
    cuts = {s: Placeholder(s.name, s.type) for s in known if s not in outputs}
    now = swapped(outputs, dict(cuts))
    wanted = [now[o] for o in outputs]
    used = set(sources(wanted))
    feeds = {p: known[s] for s, p in cuts.items() if p in used}
    loose = [s.name for s in used if isinstance(s, Placeholder) and s not in feeds]
    if loose:
        why = f"placeholder {', '.join(loose)} beside tensors that have numbers"
        raise UserError("E0581", why, fix="give placeholders only, or tensors only; te.op makes an operator of tensors")
    text = Formula(list(feeds), [w for w in wanted if isinstance(w, Compute)]).text
    results = compute_op(*feeds.values(), formula=text)
    results = results if isinstance(results, tuple) else (results,)
    inputs = {s: known[s] for s, p in cuts.items() if p in used}
    for output, result in zip(outputs, results, strict=True):
        _remember(result, output, inputs)
    return list(results)


def on_tensors(build: Callable[..., Any], *args: Any) -> Any:
    """`build` on the arguments; those that are real tensors are stood for by te tensors, and the result is real."""
    real = [lift(a) if is_real(a) else a for a in args]
    tensors = [a for a in real if is_real(a)]
    if not tensors:
        return build(*args)
    if any(isinstance(a, Tensor) for a in real):
        why = "te placeholders beside tensors that have numbers"
        raise UserError("E0581", why, fix="give placeholders only, or tensors only; te.op makes an operator of tensors")
    made = build(*[Tensor(source_of(a)) if is_real(a) else a for a in real])
    several = isinstance(made, tuple | list)
    results = run([computed(m.source) for m in (made if several else [made])], tensors)
    return tuple(results) if several else results[0]


def computed(source: Source) -> Compute:
    """The source as a computed tensor: a placeholder is copied."""
    if isinstance(source, Compute):
        return source
    axes = [Axis("ijklmnop"[d % 8], n) for d, n in enumerate(source.type.shape)]
    return Compute(source.name, axes, read(source, *axes))
