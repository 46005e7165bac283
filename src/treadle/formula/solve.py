"""Sums over index variables under equations, solved for the variables: zero elimination by inverting index maps.

A `Term` is the sum of `value` over all points of `axes` where every one of `conds` holds. `solve(term, equations)` adds
`expression == 0` equations, and removes as many axes as it can: `i * s + k - p == j` becomes `i := (j + p - k) / s`
with `k` running over the one residue that makes the division exact; flattened positions are taken apart; what cannot be
inverted stays as a condition. The result is exact: conditions keep out every point that the sum did not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from treadle.formula.affine import (
    Linear,
    bounds,
    conjuncts,
    divided,
    every,
    facts,
    from_linear,
    linear,
    proves,
    settle,
    tidy,
)
from treadle.formula.expr import FALSE, TRUE, Axis, Call, Const, Expr, call, const, fold, free, index, substitute


@dataclass(frozen=True)
class Term:
    """The sum of `value` over `axes` where all `conds` hold."""

    axes: tuple[Axis, ...]
    conds: tuple[Expr, ...]
    value: Expr

    def where(self, *conds: Expr) -> Term:
        """The same with more conditions."""
        return Term(self.axes, (*self.conds, *[c for cond in conds for c in conjuncts(cond)]), self.value)

    def of(self, value: Expr) -> Term:
        """The same with another value."""
        return Term(self.axes, self.conds, value)

    def over(self, axes: Sequence[Axis]) -> Term:
        """The same, summed over more axes."""
        return Term((*self.axes, *axes), self.conds, self.value)

    def substituted(self, to: dict[Axis, Expr]) -> Term:
        """Axes replaced; those are summed over no more."""
        conds = tuple([substitute(c, to) for c in self.conds])
        return Term(tuple([a for a in self.axes if a not in to]), conds, substitute(self.value, to))

    def expr(self) -> Expr:
        """The sum as an expression."""
        cond = every(self.conds)
        if cond is FALSE:
            return const(0, self.value.dtype)
        value = self.value if cond is TRUE else call("select", cond, self.value, const(0, self.value.dtype))
        return fold("add", value, self.axes)


def solve(term: Term, equations: Sequence[Expr]) -> Term:
    """The same sum with every equation `e == 0` holding as well (int64 expressions)."""
    conds, left = [], [tidy(e) for e in equations]
    term = Term(term.axes, tuple([_with_targets(c, left, term.axes) for c in term.conds]), term.value)
    for c in term.conds:  # equations among the conditions are solved too
        if isinstance(c, Call) and c.op == "equal" and c.args[0].dtype is index(0).dtype:
            left.append(tidy(call("sub", *c.args)))
        else:
            conds.append(c)
    state = _Solver(Term(term.axes, tuple(conds), term.value), left)
    while state.step():
        pass
    term = tidied(state.term.where(*[_equation(e) for e in state.left]))
    known = [f for cond in term.conds for f in facts(cond)]
    for axis in term.axes:
        confined = _confined(term, axis, known)
        term = term if confined is None else tidied(confined)
    return term


def _confined(term: Term, axis: Axis, known: Sequence[Linear]) -> Term | None:
    """The same sum, over the one group of an axis that conditions leave: 0 <= e - per * (axis // every) < per, as the
    gradient of a grouped convolution has it. None where they leave more."""
    for low in known:
        for atom, c in low.terms.items():
            if not isinstance(atom, Call) or atom.op != "floor_div" or atom.args[0] is not axis or c >= 0:
                continue
            rest = Linear({a: k for a, k in low.terms.items() if a is not atom}, low.offset)
            high = Linear({}, -c - 1).plus(low, -1)
            if high not in known or any(axis in free(a) for a in rest.terms) or not isinstance(atom.args[1], Const):
                continue
            group, every = divided(from_linear(rest), -c)[0], int(atom.args[1].value)
            inner = Axis(axis.name, every)
            place = Linear({inner: 1}, 0).plus(linear(group), every)
            term = term.over((inner,))
            for claim in (place, Linear({}, axis.extent - 1).plus(place, -1)):
                if not proves(known, claim):
                    term = term.where(call("greater_equal", from_linear(claim), index(0)))
            return term.substituted({axis: tidy(from_linear(place))})
    return None


def _with_targets(cond: Expr, equations: Sequence[Expr], axes: Sequence[Axis]) -> Expr:
    """A comparison of sums in which an equation removes variables: `i + k - p >= 0` is `j >= 0` if it equals j."""
    if not facts(cond):
        return cond
    assert isinstance(cond, Call)
    gap, mine = linear(cond.args[0]).plus(linear(cond.args[1]), -1), frozenset(axes)
    for equation in equations:
        for sign in (1, -1):
            other = gap.plus(linear(equation), sign)
            if any(free(a) & mine for a in gap.terms) and not any(free(a) & mine for a in other.terms):
                return call(cond.op, from_linear(other), index(0))
    return cond


def tidied(term: Term) -> Term:
    """Conditions that follow from ranges and from the others are dropped; axes of one point are replaced by 0."""
    single: dict[Axis, Expr] = {a: index(0) for a in term.axes if a.extent == 1}
    term = term.substituted(single) if single else term
    conds = [c for each in term.conds for c in conjuncts(_tidy_inside(each))]
    conds = list(dict.fromkeys(conds))
    kept: list[Expr] = []
    for i, cond in enumerate(conds):
        known = [f for other in (*kept, *conds[i + 1 :]) for f in facts(other)]
        settled = settle(cond, known)
        if settled is not TRUE:
            kept.append(settled)
    return Term(term.axes, tuple(kept), term.value)


def _tidy_inside(cond: Expr) -> Expr:
    if isinstance(cond, Call) and cond.dtype is not index(0).dtype:
        return call(cond.op, *[_tidy_inside(a) for a in cond.args], **dict(cond.attrs))
    return tidy(cond)


def _equation(expr: Expr) -> Expr:
    """`expr == 0` as a readable comparison."""
    sum = linear(expr)
    plus = Linear({a: c for a, c in sum.terms.items() if c > 0}, max(sum.offset, 0))
    minus = Linear({a: -c for a, c in sum.terms.items() if c < 0}, max(-sum.offset, 0))
    return call("equal", from_linear(plus), from_linear(minus))


class _Solver:
    """One elimination: `left` are the equations that are not used yet."""

    def __init__(self, term: Term, left: list[Expr]) -> None:
        self.term, self.left = term, left

    def step(self) -> bool:
        """Use one equation; False when none can be used."""
        self.left = [e for e in self.left if not (isinstance(e, Const) and e.value == 0)]
        if any(isinstance(e, Const) for e in self.left):
            self.term, self.left = self.term.where(FALSE), []
            return False
        best = max(self._candidates(), default=None)
        if best is not None:
            self._solve_for(self.left.pop(best[2]), self.term.axes[-best[3]])
            return True
        return self._split()

    def _candidates(self) -> list[tuple[float, int, int, int]]:
        """(worth, -step, equation, -axis): axes that occur as such; worth is by how much the sum gets smaller."""
        places = {a: i for i, a in enumerate(self.term.axes)}
        found = []
        for number, equation in enumerate(self.left):
            sum = linear(equation)
            for atom, c in sum.terms.items():
                inside_others = any(atom in free(other) for other in sum.terms if other is not atom)
                if isinstance(atom, Axis) and atom in places and not inside_others:
                    coprime = any(
                        isinstance(b, Axis) and b in places and b is not atom and gcd(k, c) == 1
                        for b, k in sum.terms.items()
                    )
                    worth = atom.extent * abs(c) if coprime else atom.extent / abs(c)
                    found.append((worth, -abs(c), number, -places[atom]))
        return found

    def _solve_for(self, equation: Expr, axis: Axis) -> None:
        sum = linear(equation)
        c = sum.terms[axis]
        rest = Linear({a: k for a, k in sum.terms.items() if a is not axis}, sum.offset)
        n, m = rest.times(-1 if c > 0 else 1), abs(c)  # axis = n / m
        if m > 1:
            n = self._make_divisible(n, m, axis)
        value = tidy(divided(from_linear(n), m)[0])
        known = [f for cond in self.term.conds for f in facts(cond)]
        for claim in (linear(value), Linear({}, axis.extent - 1).plus(linear(value), -1)):
            if not proves(known, claim):
                self.term = self.term.where(self._nonnegative(claim, value, axis))
        self._replace({axis: value})

    @staticmethod
    def _nonnegative(claim: Linear, value: Expr, axis: Axis) -> Expr:
        if claim == linear(value):
            return call("greater_equal", value, index(0))
        return call("less", value, index(axis.extent))

    def _make_divisible(self, n: Linear, m: int, axis: Axis) -> Linear:
        """n as it is where m divides it: another axis is confined to the residue that makes it so, or a condition."""
        if all(k % m == 0 for k in n.terms.values()) and n.offset % m == 0:
            return n
        for other, b in n.terms.items():
            elsewhere = any(other in free(a) for a in n.terms if a is not other)
            if isinstance(other, Axis) and other in self.term.axes and gcd(b, m) == 1 and not elsewhere:
                u = Linear({a: k for a, k in n.terms.items() if a is not other}, n.offset)
                factor = -pow(b, -1, m) % m
                factor -= m if 2 * factor > m else 0
                residue = tidy(divided(from_linear(u.times(factor)), m)[1])
                steps = Axis(other.name, -(-other.extent // m))
                value = from_linear(Linear({steps: m}, 0).plus(linear(residue)))
                self.term = self.term.over((steps,))
                if not proves([], Linear({}, other.extent - 1).plus(linear(value), -1)):
                    self.term = self.term.where(call("less", value, index(other.extent)))
                self._replace({other: value})
                return u.plus(linear(value), b)
        remainder = divided(from_linear(n), m)[1]
        self.term = self.term.where(call("equal", remainder, index(0)))
        return n

    def _replace(self, to: dict[Axis, Expr]) -> None:
        self.term = self.term.substituted(to)
        self.left = [tidy(substitute(e, dict(to))) for e in self.left]

    # --- quotients and remainders ---

    def _split(self) -> bool:
        """An equation about `floor_div(e, n)` or `remainder(e, n)` becomes one about e."""
        parts = [self._division(e) for e in self.left]
        for i, rest in enumerate(parts):
            for j, whole in enumerate(parts):
                if rest is None or whole is None or rest[0].op != "remainder" or whole[0].op != "floor_div":
                    continue
                e, n = rest[0].args
                assert isinstance(n, Const)
                if divided(e, n.value)[0] is whole[0]:  # e = n * quotient + remainder
                    self._inside(rest[1], n.value)
                    both = linear(whole[1]).times(n.value).plus(linear(rest[1])).plus(linear(e), -1)
                    self.left = [x for k, x in enumerate(self.left) if k not in (i, j)]
                    self.left.append(tidy(from_linear(both)))
                    return True
        return any(part is not None and self._split_alone(i, *part) for i, part in enumerate(parts))

    def _split_alone(self, place: int, atom: Call, value: Expr) -> bool:
        e, n = atom.args
        low, high = bounds(e)
        assert isinstance(n, Const)
        if atom.op == "floor_div":
            extra = Axis("r", n.value)
            sum = linear(value).times(n.value).plus(Linear({extra: 1}, 0))
        elif abs(low) < float("inf") and high < float("inf"):
            first = int(low) // n.value
            extra = Axis("q", int(high) // n.value - first + 1)
            self._inside(value, n.value)
            sum = linear(value).plus(Linear({extra: n.value}, first * n.value))
        else:
            return False
        self.term = self.term.over((extra,))
        self.left[place] = tidy(from_linear(linear(e).plus(sum, -1)))
        return True

    def _inside(self, value: Expr, n: int) -> None:
        """The remainder must be one: 0 <= value < n."""
        self.term = self.term.where(call("greater_equal", value, index(0)), call("less", value, index(n)))

    def _division(self, equation: Expr) -> tuple[Call, Expr] | None:
        """(atom, value) of an equation `atom == value` with one division of this term's axes on one side."""
        sum = linear(equation)
        axes = frozenset(self.term.axes)
        mine = [a for a in sum.terms if free(a) & axes]
        if len(mine) != 1 or abs(sum.terms[mine[0]]) != 1:
            return None
        (atom,) = mine
        if not isinstance(atom, Call) or atom.op not in ("floor_div", "remainder"):
            return None
        if not isinstance(atom.args[1], Const) or atom.args[1].value <= 0:
            return None
        rest = Linear({a: k for a, k in sum.terms.items() if a is not atom}, sum.offset)
        return atom, from_linear(rest.times(-sum.terms[atom]))
