"""Rewriting of whole formulas: other sources for those that are read, reductions set apart, leading axes added.

Each function takes the tensors wanted and gives a map from every tensor they depend on to what stands for it now; what
need not change is itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from treadle.formula.affine import clamped
from treadle.formula.expr import (
    Axis,
    Compute,
    Const,
    Expr,
    Placeholder,
    Read,
    Reduce,
    Source,
    element,
    free,
    post_order,
    read,
    reads,
    rewrite,
    sources,
    substitute,
    with_parts,
)

Swaps = Mapping[Source, Source]


def reading(expr: Expr, swaps: Swaps, lead: Sequence[Expr] = ()) -> Expr:
    """`expr` with reads of other sources; a swapped one is read at `lead` and the old indices."""

    def step(old: Expr, parts: tuple[Expr, ...]) -> Expr:
        if isinstance(old, Read) and swaps.get(old.source, old.source) is not old.source:
            return read(swaps[old.source], *lead, *parts)
        return with_parts(old, parts)

    return rewrite(expr, step)


def mapped(
    roots: Iterable[Source], change: Callable[[Compute, Expr], Compute | None], given: Swaps | None = None
) -> dict[Source, Source]:
    """What stands for each source when `given` ones are swapped; change(compute, new body) may give another tensor."""
    now: dict[Source, Source] = dict(given or {})
    for source in sources(roots):
        if source in now:
            continue
        if isinstance(source, Placeholder):
            now[source] = source
            continue
        body = reading(source.body, now)
        made = change(source, body)
        if made is None:
            made = source if body is source.body else Compute(source.name, source.axes, body)
        now[source] = made
    return now


def swapped(roots: Iterable[Source], given: Swaps) -> dict[Source, Source]:
    """Sources replaced by others of the same type."""
    return mapped(roots, lambda source, body: None, given)


def apart(roots: Iterable[Source], prepare: Callable[[Expr], Expr]) -> dict[Source, Source]:
    """Every tensor either pointwise or one reduction of pointwise bodies; `prepare` rewrites the bodies first."""

    def change(source: Compute, body: Expr) -> Compute | None:
        body = prepare(body)
        if isinstance(body, Reduce):
            new = with_parts(body, tuple([_hoisted(p, source) for p in body.parts]))
        else:
            new = _hoisted(body, source)
        return source if new is source.body else Compute(source.name, source.axes, new)

    return mapped(roots, change)


def _hoisted(expr: Expr, owner: Compute) -> Expr:
    """The expression with each reduction inside turned into a tensor over what it depends on."""

    def step(old: Expr, parts: tuple[Expr, ...]) -> Expr:
        new = with_parts(old, parts)
        if not isinstance(new, Reduce):
            return new
        axes = [a for a in _ordered(new) if isinstance(a, Axis)]
        fresh = [Axis(a.name, a.extent) for a in axes]
        made = Compute(f"{owner.name}_part", fresh, substitute(new, dict(zip(axes, fresh, strict=True))))
        return read(made, *axes)

    return rewrite(expr, step)


def _ordered(expr: Expr) -> list[Expr]:
    """The free axes in the order in which they occur."""
    wanted, found = free(expr), dict[Expr, None]()
    stack = [expr]
    while stack:
        each = stack.pop()
        if each in wanted:
            found[each] = None
        stack.extend(p for p in reversed(each.parts) if free(p) & wanted)
    return list(found)


def inlined(roots: Sequence[Source]) -> dict[Source, Source]:
    """Tensors that are mere copies written into their readers, and pointwise ones with one pointwise reader."""
    uses: dict[Source, list[tuple[Compute, Read]]] = {}
    for source in sources(roots):
        if isinstance(source, Compute):
            for r in reads(source.body):
                uses.setdefault(r.source, []).append((source, r))
    gone = set()
    for source, places in uses.items():
        if isinstance(source, Compute) and source not in roots and not isinstance(source.body, Reduce):
            reader = places[0][0]
            alone = len(places) == 1 and not _reduces(reader.body) and reader.type.size <= source.type.size
            if isinstance(source.body, Read | Const) or (alone and not _reduces(source.body)):
                gone.add(source)

    def change(source: Compute, body: Expr) -> Compute | None:
        new = rewrite(body, lambda old, parts: _opened(with_parts(old, parts), was))
        made = source if new is source.body else Compute(source.name, source.axes, new)
        if source in gone:
            was.add(made)
        return made

    was: set[Source] = set()
    return mapped(roots, change)


def _reduces(expr: Expr) -> bool:
    return any(isinstance(e, Reduce) for e in post_order(expr))


def _opened(expr: Expr, gone: set[Source]) -> Expr:
    """A read of one of these tensors as its body, at indices inside it."""
    if not (isinstance(expr, Read) and isinstance(expr.source, Compute) and expr.source in gone):
        return expr
    places = [clamped(i, n) for i, n in zip(expr.indices, expr.source.type.shape, strict=True)]
    return element(expr.source, places)


def led(roots: Iterable[Source], given: Swaps, lead: Sequence[int]) -> dict[Source, Source]:
    """Leading axes of sizes `lead` on the `given` sources (swapped for such as have them) and on all that reads them.

    What depends on none of them stays as it is.
    """
    now: dict[Source, Source] = dict(given)
    for source in sources(roots):
        if source in now:
            continue
        now[source] = source
        if isinstance(source, Compute) and any(now[r.source] is not r.source for r in reads(source.body)):
            front = [Axis("b", n) for n in lead]
            axes = [Axis(a.name, a.extent) for a in source.axes]
            now[source] = Compute(source.name, (*front, *axes), reading(element(source, axes), now, front))
    return now
