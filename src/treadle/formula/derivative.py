"""Derivatives of formulas, as formulas: reverse mode on tensors, each read's contribution solved for what it reads.

`pullback(outputs, heads, inputs)` gives the vector-Jacobian products, `jacobian(output, inputs)` the full derivatives
(axes of the output first). Each tensor is first made pointwise or one reduction (`graph.apart`). Then, from the outputs
back, the cotangent G of a tensor Y flows through its body to the reads in it: a read X[f(i, k)] with cotangent v adds
`sum over i, k of v where f(i, k) == j` to X's cotangent at j. Conditions of `select` are carried beside v, so that no
product with 0 is taken, and `solve` removes the axes that the equations determine. The derivative of a call is the
op's own gradient rule. The method is reverse accumulation; for the inversion of index maps see `solve`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from treadle.base.errors import UserError
from treadle.formula.affine import Linear, clamped, facts, linear, proves
from treadle.formula.expr import (
    Axis,
    Call,
    Combiner,
    Compute,
    Const,
    Expr,
    Param,
    Placeholder,
    Read,
    Reduce,
    Source,
    call,
    const,
    element,
    fold,
    post_order,
    read,
    reads,
    reduce,
    rewrite,
    sources,
    substitute,
    with_parts,
)
from treadle.formula.graph import apart, inlined, led, swapped
from treadle.formula.scalars import expanded, pull
from treadle.formula.simplify import simplify
from treadle.formula.solve import Term, solve

_MANY = 4  # differently conditioned cotangents of one expression that are kept apart
# What an override gives: the cotangents of its inputs for the cotangent of its output.
Override = tuple[Sequence[Source], Callable[[Source], Sequence[Compute]]]


def pullback(
    outputs: Sequence[Compute],
    heads: Sequence[Source | None],
    inputs: Sequence[Source],
    overrides: Mapping[Compute, Override] | None = None,
) -> list[Compute]:
    """The cotangents of the inputs, of their types, for cotangents `heads` of the outputs (None: zero)."""
    run = _Reverse(outputs, inputs, (), overrides or {})
    for output, head in zip(outputs, heads, strict=True):
        if head is not None:
            run.add(output, read(head, *run.axes_of(output)))
    return run.results(inputs, [o.name for o in outputs])


def jacobian(
    output: Compute, inputs: Sequence[Source], overrides: Mapping[Compute, Override] | None = None
) -> list[Compute]:
    """The derivative of `output` by each input: shape of the output, then shape of the input."""
    front = [Axis(a.name, a.extent) for a in output.axes]
    run = _Reverse((output,), inputs, front, overrides or {})
    one = Term((), (), const(1, output.type.dtype))
    run.add(output, one.where(*[_equal(a, b) for a, b in zip(front, run.axes_of(output), strict=True)]).expr())
    return run.results(inputs, [output.name])


class _Reverse:
    """One reverse pass. `front` are the axes that every cotangent has before its own (of a Jacobian)."""

    def __init__(
        self,
        outputs: Sequence[Compute],
        inputs: Sequence[Source],
        front: Sequence[Axis],
        overrides: Mapping[Compute, Override],
    ) -> None:
        self.front = tuple(front)
        wanted = [*outputs, *[s for s in inputs if isinstance(s, Compute)]]
        self.now = apart([*wanted, *overrides], expanded)
        self.overrides = {self.now[out]: rule for out, rule in overrides.items()}
        self.order = sources([self.now[s] for s in [*wanted, *overrides]])
        self.targets: dict[Source, tuple[Axis, ...]] = {}
        self.parts: dict[Source, list[Expr]] = {}
        self.active = self._active({self.now.get(s, s) for s in inputs})

    def _active(self, inputs: set[Source]) -> set[Source]:
        """What an input has an influence on."""
        found = {s for s in inputs if s.type.dtype.is_inexact}
        for source in self.order:
            if isinstance(source, Compute) and source.type.dtype.is_inexact:
                rule = self.overrides.get(source)
                near = [r.source for r in reads(source.body)] if rule is None else [self.now[s] for s in rule[0]]
                if any(n in found for n in near):
                    found.add(source)
        return found

    def axes_of(self, source: Source) -> tuple[Axis, ...]:
        """The axes at which the cotangent of a source is written."""
        source = self.now.get(source, source)
        if source not in self.targets:
            names = [a.name for a in source.axes] if isinstance(source, Compute) else "ijklmnop"
            sizes = source.type.shape
            self.targets[source] = tuple([Axis(names[d] if d < 8 else f"i{d}", n) for d, n in enumerate(sizes)])
        return self.targets[source]

    def add(self, source: Source, part: Expr) -> None:
        """One more contribution to a source's cotangent."""
        self.parts.setdefault(self.now.get(source, source), []).append(part)

    def cotangent(self, source: Source) -> Expr | None:
        """The sum of the contributions; None where there are none."""
        total: Expr | None = None
        for part in self.parts.get(source, []):
            total = part if total is None else call("add", total, part)
        return None if total is None else simplify(total)

    def results(self, inputs: Sequence[Source], names: Sequence[str]) -> list[Compute]:
        """Run the pass and give the cotangents of the inputs."""
        for source in reversed(self.order):
            if isinstance(source, Compute) and source in self.active:
                found = self.cotangent(source)
                if found is not None:
                    self._flow(source, found)
        made = []
        for each in inputs:
            source = self.now.get(each, each)
            found = self.cotangent(source) if source in self.active else None
            total = const(0, source.type.dtype) if found is None else found
            made.append(Compute(f"d{'_'.join(names)}_d{each.name}", (*self.front, *self.axes_of(source)), total))
        now = inlined(made)
        return [c for c in [now[m] for m in made] if isinstance(c, Compute)]

    # --- one tensor ---

    def _flow(self, source: Compute, found: Expr) -> None:
        """Hand the cotangent of a tensor on to what it reads."""
        if source in self.overrides:
            self._overridden(source, found)
            return
        if not any(r.source in self.active for r in reads(source.body)):
            return
        at = tuple([Axis(a.name, a.extent) for a in source.axes])
        body = element(source, at)
        value = self._value_at(source, found, at, isinstance(body, Reduce))
        if isinstance(body, Reduce):
            roots = list(self._reduction(source, body, at, value))
        else:
            roots = [(body, Term(at, (), value))]
        kept: dict[Expr, Expr] = {body: read(source, *at)} if isinstance(body, Call) else {}
        for leaf, term in spread(roots, self._leads):
            assert isinstance(leaf, Read)
            self._contribute(leaf, term.of(_replaced(term.value, kept)))

    def _leads(self, expr: Expr) -> bool:
        return isinstance(expr, Read) and expr.source in self.active

    def _value_at(self, source: Compute, found: Expr, at: tuple[Axis, ...], reduced: bool) -> Expr:
        """The cotangent at `at`: the expression, or a read of it as a tensor where computing it again would cost."""
        parts = list(post_order(found))
        heavy = any(isinstance(e, Reduce) for e in parts)
        if heavy or (reduced and not self.front and sum(isinstance(e, Call) for e in parts) > 2):
            return read(self._tensor(source, found), *self.front, *at)
        return substitute(found, dict(zip(self.axes_of(source), at, strict=True)))

    def _tensor(self, source: Compute, found: Expr) -> Compute:
        return Compute(f"d_{source.name}", (*self.front, *self.axes_of(source)), found)

    def _overridden(self, source: Compute, found: Expr) -> None:
        inputs, rule = self.overrides[source]
        grad = self._tensor(source, found)
        known = {old: new for old, new in self.now.items() if old is not new}
        if self.front:
            stand_in = Placeholder("grad", source.type)
            results = _swapped(rule(stand_in), known)
            now = led(results, {stand_in: grad}, [a.extent for a in self.front])
        else:
            results = _swapped(rule(grad), known)
            now = {r: r for r in results}
        for each, result in zip(inputs, results, strict=True):
            lead = self.front if now[result] is not result else ()
            self.add(each, read(now[result], *lead, *self.axes_of(each)))

    def _contribute(self, leaf: Read, term: Term) -> None:
        """What one read adds to the cotangent of its source."""
        known = [f for c in term.conds for f in facts(c)]
        equations = []
        for place, target, size in zip(leaf.indices, self.axes_of(leaf.source), leaf.source.type.shape, strict=True):
            if size == 1:
                continue
            sum = linear(place)
            if not (proves(known, sum) and proves(known, Linear({}, size - 1).plus(sum, -1))):
                place = clamped(place, size)
            equations.append(call("sub", place, target))
        solved = solve(term, equations)
        for part in _lifted(Term(solved.axes, solved.conds, simplify(solved.value))):
            self.add(leaf.source, part.expr())

    # --- reductions ---

    def _reduction(
        self, source: Compute, body: Reduce, at: tuple[Axis, ...], value: Expr
    ) -> Iterator[tuple[Expr, Term]]:
        """The bodies of a reduction with the cotangents they get."""
        term = Term((*at, *body.axes), (), value)
        kind = body.combiner.kind
        if kind == "add":
            yield body.parts[0], term
        elif kind in ("maximum", "minimum"):  # those that attain it share it, as reduce_max does
            hits = call("equal", body.parts[0], read(source, *at))
            one, zero = const(1, body.dtype), const(0, body.dtype)
            count = Compute(f"{source.name}_ties", at, fold("add", call("select", hits, one, zero), body.axes))
            yield body.parts[0], term.where(hits).of(call("div", value, read(count, *at)))
        else:
            for number, part in enumerate(body.parts):
                if part.dtype.is_inexact:
                    slope = self._slope(source, body, at, number)
                    yield part, term.of(call("mul", value, read(slope, *at, *body.axes)))

    @staticmethod
    def _slope(source: Compute, body: Reduce, at: tuple[Axis, ...], number: int) -> Compute:
        """The derivative of a reduction by the value of body `number` at each point: a reduction of dual numbers."""
        dual, places = tangent_combiner(body.combiner, [p.dtype for p in body.parts])
        inner = tuple([Axis(a.name, a.extent) for a in body.axes])
        to: dict[Axis, Expr] = dict(zip(body.axes, inner, strict=True))
        own = Term((), (), const(1, body.parts[number].dtype))
        own = own.where(*[_equal(a, b) for a, b in zip(inner, body.axes, strict=True)])
        tangents = [
            own.expr() if p == number else const(0, part.dtype)
            for p, part in enumerate(body.parts)
            if part.dtype.is_inexact
        ]
        bodies = [*[substitute(p, to) for p in body.parts], *tangents]
        found = reduce(dual, bodies, inner, places[body.index])
        axes = (*at, *body.axes)
        fresh = [Axis(a.name, a.extent) for a in axes]
        return Compute(f"{source.name}_slope", fresh, substitute(found, dict(zip(axes, fresh, strict=True))))


def _swapped(roots: Sequence[Compute], known: Mapping[Source, Source]) -> list[Source]:
    now = swapped(roots, known)
    return [now[r] for r in roots]


def _replaced(expr: Expr, known: Mapping[Expr, Expr]) -> Expr:
    """Subexpressions for which there is a shorter one."""
    return rewrite(expr, lambda old, parts: known.get(old) or with_parts(old, parts)) if known else expr


def tangent_combiner(combiner: Combiner, dtypes: Sequence[object]) -> tuple[Combiner, dict[int, int]]:
    """The combiner of (values, tangents of the inexact ones), and where each value's tangent is."""
    floats = [i for i, p in enumerate(combiner.left) if p.dtype.is_inexact]
    places = {i: len(combiner.left) + n for n, i in enumerate(floats)}
    left = {combiner.left[i]: Param(f"d{combiner.left[i].name}", combiner.left[i].dtype) for i in floats}
    right = {combiner.right[i]: Param(f"d{combiner.right[i].name}", combiner.right[i].dtype) for i in floats}
    tangents: dict[Expr, Param] = {k: v for side in (left, right) for k, v in side.items()}
    results: list[Expr] = []
    for i in floats:
        result = expanded(combiner.results[i])
        start = Term((), (), const(1, result.dtype))
        total: Expr = const(0, result.dtype)
        for leaf, term in spread([(result, start)], lambda e: e in tangents):
            total = call("add", total, call("mul", term.expr(), tangents[leaf]))
        results.append(simplify(total))
    zeros = [const(0, combiner.left[i].dtype) for i in floats]
    made = Combiner(
        (*combiner.left, *left.values()), (*combiner.right, *right.values()), (*combiner.results, *results),
        (*combiner.init, *zeros),
    )  # fmt: skip
    return made, places


def spread(roots: Sequence[tuple[Expr, Term]], is_leaf: Callable[[Expr], bool]) -> Iterator[tuple[Expr, Term]]:
    """The cotangents of the leaves inside pointwise expressions with given cotangents."""
    order = list(post_order(*[e for e, _ in roots]))
    live: set[Expr] = set()
    for each in order:
        if is_leaf(each) or (isinstance(each, Call) and any(p in live for p in each.parts)):
            live.add(each)
    pending: dict[Expr, list[Term]] = {}
    for expr, term in roots:
        pending.setdefault(expr, []).extend(_lifted(term))
    for each in reversed(order):
        for term in _merged(pending.pop(each, [])) if each in live else ():
            if is_leaf(each):
                yield each, term
            elif isinstance(each, Call):
                for part, found in _through(each, term):
                    if part in live and part.dtype.is_inexact:
                        pending.setdefault(part, []).extend(_lifted(found))


def _through(expr: Call, term: Term) -> Iterator[tuple[Expr, Term]]:
    if not expr.dtype.is_inexact:
        return
    if expr.op == "select":  # the condition goes beside the value
        cond, a, b = expr.args
        yield a, term.where(cond)
        yield b, term.where(call("logical_not", cond))
        return
    for part, grad in zip(expr.args, pull(expr, term.value), strict=True):
        if grad is not None:
            yield part, term.of(grad)


def _merged(terms: list[Term]) -> list[Term]:
    """Terms of equal axes and conditions added up; too many different ones become one."""
    sums: dict[tuple[tuple[Axis, ...], frozenset[Expr]], Term] = {}
    for t in terms:
        key = t.axes, frozenset(t.conds)
        sums[key] = sums[key].of(call("add", sums[key].value, t.value)) if key in sums else t
    found = list(sums.values())
    if len(found) <= _MANY or len({t.axes for t in found}) > 1:
        return found
    total = Term((), found[0].conds, found[0].value).expr()
    for t in found[1:]:
        total = call("add", total, Term((), t.conds, t.value).expr())
    return [Term(found[0].axes, (), total)]


def _lifted(term: Term) -> list[Term]:
    """`select(c, v, 0)` as v under the condition c; nothing for a cotangent of 0."""
    value = term.value
    if isinstance(value, Const) and value.value == 0:
        return []
    if isinstance(value, Call) and value.op == "select":
        cond, a, b = value.args
        if isinstance(b, Const) and b.value == 0:
            return _lifted(term.where(cond).of(a))
        if isinstance(a, Const) and a.value == 0:
            return _lifted(term.where(call("logical_not", cond)).of(b))
    if isinstance(value, Call) and value.op in ("neg", "cast"):
        inner = _lifted(term.of(value.args[0]))
        return [t.of(call(value.op, t.value, **dict(value.attrs))) for t in inner]
    return [term]


def _equal(a: Expr, b: Expr) -> Expr:
    return call("equal", a, b)


def check_inputs(outputs: Sequence[Compute], inputs: Sequence[Source]) -> None:
    """Raise E0307 for an input that no output depends on, and E0305 for one that is not float or complex."""
    known = set(sources(outputs))
    for each in inputs:
        if each not in known:
            why = f"{each.name} is not used by {outputs[0].name}"
            raise UserError("E0307", why, fix="differentiate by what the output is computed from")
        if not each.type.dtype.is_inexact:
            raise UserError("E0305", f"{each.name} is {each.type}, not float", fix="use a float tensor")
