"""What a group of nodes computes, as items over common axes: `nest(body)` gives a `Nest`, or the reason for none.

The body's formula is taken apart into items, each a reduction of pointwise terms or pointwise itself. Index variables
that run through the same memory are made one (`domain`), tensors are read by the number of their element, and
neighbouring axes that every item treats as one become one. Templates make loops of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from treadle.formula.affine import Linear, from_linear, linear
from treadle.formula.expr import (
    Axis,
    Compute,
    Expr,
    Placeholder,
    Read,
    Reduce,
    Source,
    element,
    free,
    index,
    post_order,
    read,
    reduce,
    rewrite,
    sources,
    substitute,
    with_parts,
)
from treadle.formula.graph import apart
from treadle.formula.of_fn import of_fn
from treadle.ir.node import Fn
from treadle.ir.types import TensorType
from treadle.kernels.expr import flat, inside_bounds, lowered, refuses


@dataclass(frozen=True)
class Item:
    """A tensor to be computed: its element at `axes` (row-major; extents of 1 left out) is `expr`. place: the flat
    tensor that holds it; outs: which results of the kernel it is."""

    place: Placeholder
    axes: tuple[Axis, ...]
    expr: Expr
    outs: tuple[int, ...] = ()

    @property
    def reduced(self) -> tuple[Axis, ...]:
        """The axes that a reduction runs over; () for a pointwise item."""
        return self.expr.axes if isinstance(self.expr, Reduce) else ()

    @property
    def terms(self) -> tuple[Expr, ...]:
        """The pointwise expressions inside."""
        return self.expr.parts if isinstance(self.expr, Reduce) else (self.expr,)

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        """All reads inside."""
        return tuple([e for e in post_order(*self.terms) if isinstance(e, Read)])

    @cached_property
    def number(self) -> Expr:
        """The number of the element at `axes`."""
        return number_of(self.axes)


@dataclass(frozen=True)
class Nest:
    """inputs: the tensors that are read, flat and as they are, for each parameter. items: each after those it reads.
    domain: all axes, outermost in memory first."""

    inputs: tuple[tuple[Placeholder, Placeholder], ...]
    items: tuple[Item, ...]
    domain: tuple[Axis, ...]
    results: tuple[TensorType, ...] = field(default=())

    @property
    def stats(self) -> list[Item]:
        """The reductions."""
        return [i for i in self.items if i.reduced]

    def uses(self, item: Item) -> list[Item]:
        """The items that it reads."""
        return [self._places[s] for s in dict.fromkeys(r.source for r in item.reads) if s in self._places]

    @cached_property
    def _places(self) -> dict[Source, Item]:
        return {i.place: i for i in self.items}


def number_of(axes: Sequence[Axis]) -> Expr:
    """The row-major number of the element at these axes."""
    sum, step = Linear({}, 0), 1
    for a in reversed(axes):
        sum = sum.plus(Linear({a: step}, 0))
        step *= a.extent
    return from_linear(sum)


def nest(body: Fn) -> Nest | str:
    """The items of a body. A text is the reason why there are none."""
    if any(t.size == 0 for t in (*body.in_types, *body.out_types)):
        return "empty tensors"
    formula = of_fn(body)
    if formula is None:
        return "an op without a formula"
    now = apart(formula.outputs, lowered)
    outputs = [now[o] for o in formula.outputs]
    items = _items(outputs)
    why = refuses([t for i in items for t in i.terms])
    if why:
        return why
    if any(isinstance(e, Reduce) for i in items for t in i.terms for e in post_order(t)):
        return "reductions inside each other"
    inputs = tuple([(Placeholder(p.name, TensorType(p.type.dtype, (p.type.size,))), p) for p in formula.placeholders])
    made = Nest(inputs, tuple(items), (), body.out_types)
    common = _common(_flattened(made))
    return common if isinstance(common, str) else _merged(common)


def _items(outputs: Sequence[Source]) -> list[Item]:
    """Items of the outputs and of the reductions that they read; pointwise tensors between are written in place."""
    outs: dict[Source, list[int]] = {}
    for n, o in enumerate(outputs):
        outs.setdefault(o, []).append(n)
    places: dict[Source, Placeholder] = {}
    items = []
    for c in sources(outputs):
        if not isinstance(c, Compute) or not (isinstance(c.body, Reduce) or c in outs):
            continue
        own = {a: _renewed(a) for a in c.axes}  # formulas of one shape may share axes
        place = places[c] = Placeholder(c.name, TensorType(c.type.dtype, (c.type.size,)))
        expr = _inlined(c.body, places, c)
        if isinstance(expr, Reduce):
            inner = {a: _renewed(a) for a in expr.axes}
            bodies = [substitute(b, {**own, **inner}) for b in expr.bodies]
            expr = reduce(expr.combiner, bodies, [a for a in inner.values() if isinstance(a, Axis)], expr.index)
        else:
            expr = substitute(expr, own)
        axes = tuple([a for a in own.values() if isinstance(a, Axis)])
        items.append(Item(place, axes, expr, tuple(outs.get(c, ()))))
    return items


def _renewed(axis: Axis) -> Expr:
    return index(0) if axis.extent == 1 else Axis(axis.name, axis.extent)


def _inlined(expr: Expr, places: Mapping[Source, Placeholder], owner: Compute) -> Expr:
    """Reads of items by the number of the element; reads of other computed tensors as what they are."""

    def step(old: Expr, parts: tuple[Expr, ...]) -> Expr:
        new = with_parts(old, parts)
        if not isinstance(new, Read) or not isinstance(new.source, Compute):
            return new
        if new.source in places:
            return read(places[new.source], from_linear(flat(new, [])))
        return _inlined(element(new.source, inside_bounds(new, [])), places, owner)

    return rewrite(expr, step)


def _flattened(nest: Nest) -> Nest:
    """Reads that are surely inside, by the number of the element."""
    flats = {whole: one for one, whole in nest.inputs}

    def step(old: Expr, parts: tuple[Expr, ...]) -> Expr:
        new = with_parts(old, parts)
        one = flats.get(new.source) if isinstance(new, Read) and isinstance(new.source, Placeholder) else None
        if one is None or not isinstance(new, Read) or list(new.indices) != inside_bounds(new, []):
            return new
        return read(one, from_linear(flat(new, [])))

    return replace(nest, items=tuple([_mapped(i, lambda e: rewrite(e, step)) for i in nest.items]))


def _mapped(item: Item, change: Callable[[Expr], Expr], axes: Mapping[Axis, Axis] | None = None) -> Item:
    """The item with changed terms and renamed axes."""
    to = axes or {}
    terms = [change(t) for t in item.terms]
    expr = terms[0]
    if isinstance(item.expr, Reduce):
        own = tuple(dict.fromkeys(to.get(a, a) for a in item.reduced))
        expr = reduce(item.expr.combiner, terms, own, item.expr.index)
    return replace(item, axes=tuple(dict.fromkeys(to.get(a, a) for a in item.axes)), expr=expr)


# --- one set of axes --------------------------------------------------------------------------------------------------


def _common(nest: Nest) -> Nest | str:
    """Axes of different items that run through the same elements of a tensor are made one."""
    forms: dict[Source, list[dict[int, Axis]]] = {}
    domain: list[Axis] = []
    items: list[Item] = []
    axes_of: dict[Source, tuple[Axis, ...]] = {}
    for item in nest.items:
        own = _by_stride(item)
        to: dict[Axis, Axis] = {}
        for r in item.reads:
            found = _axes_in(r)
            known = [dict(enumerate_strides(axes_of[r.source]))] if r.source in axes_of else forms.get(r.source, [])
            for form in known:
                for stride, axis in found.items():
                    twin = form.get(stride)
                    if twin and twin.extent == axis.extent and axis not in to and twin not in to.values():
                        to[axis] = twin
        for axis in own:
            if axis not in to:
                fits = [d for d in domain if d.extent == axis.extent and d not in to.values()]
                spare = fits if nest.stats else []
                to[axis] = spare[0] if spare else axis
                if not spare:
                    domain.append(axis)
        item = _mapped(item, partial(substitute, to=to), to)
        for r in item.reads:
            forms.setdefault(r.source, []).append(_axes_in(r))
        axes_of[item.place] = item.axes
        items.append(item)
    return replace(nest, items=tuple(items), domain=tuple(domain))


def enumerate_strides(axes: Sequence[Axis]) -> list[tuple[int, Axis]]:
    """(stride, axis) of a row-major tensor."""
    found, step = [], 1
    for a in reversed(axes):
        found.append((step, a))
        step *= a.extent
    return found


def _axes_in(r: Read) -> dict[int, Axis]:
    """The axes of a flat read by their strides."""
    if len(r.indices) != 1:
        return {}
    return {c: a for a, c in linear(r.indices[0]).terms.items() if isinstance(a, Axis)}


def _by_stride(item: Item) -> list[Axis]:
    """The item's axes, the one with the largest steps through memory first."""
    own = [*item.axes, *item.reduced]
    best: dict[Axis, int] = {}
    for r in item.reads:
        strides = {a: c for c, a in _axes_in(r).items()}
        if len([a for a in own if a in strides]) > len(best):
            best = {a: abs(strides[a]) for a in own if a in strides}
    places = {a: c for c, a in enumerate_strides(own)}
    return sorted(own, key=lambda a: -best.get(a, places[a]))


# --- fewer axes -------------------------------------------------------------------------------------------------------


def _merged(nest: Nest) -> Nest:
    """Neighbouring axes (a, b) made one wherever every read takes them as a * extent of b + b."""
    items: dict[Item, Item] = {}
    domain: list[Axis] = []
    for part in _separate(nest):
        whole = _merged_part(part)
        items.update(zip(part.items, whole.items, strict=True))
        domain += whole.domain
    return replace(nest, items=tuple([items[i] for i in nest.items]), domain=tuple(domain))


def _separate(nest: Nest) -> list[Nest]:
    """The items that share no axis apart from each other."""
    parts: list[tuple[set[Axis], list[Item]]] = []
    for item in nest.items:
        axes, members = {*item.axes, *item.reduced}, [item]
        joined = [p for p in parts if p[0] & axes]
        for other in joined:
            axes |= other[0]
            members = other[1] + members
            parts.remove(other)
        parts.append((axes, members))
    found = []
    for axes, members in parts:
        own = set(members)
        found.append(
            replace(
                nest,
                items=tuple([i for i in nest.items if i in own]),
                domain=tuple([d for d in nest.domain if d in axes]),
            )
        )
    return found


def _merged_part(nest: Nest) -> Nest:
    pairs = [(a, b) for a in nest.domain for b in nest.domain if a is not b]
    for a, b in pairs:
        if _mergeable(nest, a, b):
            return _merged_part(_merge(nest, a, b))
    return nest


def _mergeable(nest: Nest, a: Axis, b: Axis) -> bool:
    if a.extent * b.extent >= 2**31:
        return False
    for item in nest.items:
        for axes in (item.axes, item.reduced):
            if (a in axes) != (b in axes):
                return False
        if a in item.axes and item.axes.index(b) != item.axes.index(a) + 1:
            return False
        for term in item.terms:
            if not _together(term, a, b):
                return False
    return True


def _together(term: Expr, a: Axis, b: Axis) -> bool:
    """Whether the axes occur in flat reads only, as one."""
    if a in free(term) or b in free(term):
        for e in post_order(term):
            if isinstance(e, Read):
                terms = linear(e.indices[0]).terms if len(e.indices) == 1 else {}
                if terms.get(a, 0) != terms.get(b, 0) * b.extent:
                    return False
                if any(not isinstance(t, Axis) and {a, b} & free(t) for t in terms):
                    return False
        return not _bare(term, {a, b})
    return True


def _bare(term: Expr, axes: set[Axis]) -> bool:
    """Whether one of the axes occurs outside flat reads."""
    stack, seen = [term], set[Expr]()
    while stack:
        e = stack.pop()
        if e in seen:
            continue
        seen.add(e)
        if isinstance(e, Axis) and e in axes:
            return True
        if isinstance(e, Read) and len(e.indices) == 1:
            continue
        stack.extend(e.parts)
    return False


def _merge(nest: Nest, a: Axis, b: Axis) -> Nest:
    both = Axis(f"{a.name}{b.name}", a.extent * b.extent)

    def step(old: Expr, parts: tuple[Expr, ...]) -> Expr:
        if isinstance(old, Read) and len(old.indices) == 1:
            sum = linear(old.indices[0])
            terms = {(both if t is b else t): c for t, c in sum.terms.items() if t is not a}
            return read(old.source, from_linear(Linear(terms, sum.offset)))
        return with_parts(old, parts)

    to = {a: both, b: both}
    items = tuple([_mapped(i, lambda e: rewrite(e, step), to) for i in nest.items])
    return replace(nest, items=items, domain=tuple(dict.fromkeys(to.get(d, d) for d in nest.domain)))
