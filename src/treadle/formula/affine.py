"""Index arithmetic: sums of multiples, ranges, and what conditions prove. All about int64 expressions.

`linear(e)` writes any integer expression as offset + sum of coefficient * atom; atoms are axes or what is not a sum
(`floor_div`, `remainder`, reads). `affine(e)` is the same where every atom is an axis, else None. Index arithmetic is
taken not to overflow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import gcd

from treadle.base.dtypes import int64
from treadle.formula.expr import FALSE, TRUE, Axis, Call, Const, Expr, Read, call, index

Range = tuple[float, float]
_INF = float("inf")
_FLIP = {"less": "greater_equal", "less_equal": "greater", "greater": "less_equal", "greater_equal": "less"}


@dataclass(frozen=True)
class Linear:
    """offset + sum of coefficient * atom; no coefficient is 0."""

    terms: Mapping[Expr, int]
    offset: int

    def plus(self, other: Linear, times: int = 1) -> Linear:
        """self + times * other."""
        terms = dict(self.terms)
        for atom, c in other.terms.items():
            terms[atom] = terms.get(atom, 0) + times * c
        return Linear({a: c for a, c in terms.items() if c}, self.offset + times * other.offset)

    def times(self, factor: int) -> Linear:
        """factor * self."""
        return Linear({}, 0).plus(self, factor)

    @property
    def range(self) -> Range:
        """Bounds from those of the atoms alone."""
        low = high = float(self.offset)
        for atom, c in self.terms.items():
            a, b = atom_range(atom)
            low, high = low + min(c * a, c * b), high + max(c * a, c * b)
        return low, high


def linear(expr: Expr) -> Linear:
    """Any int64 expression as a sum."""
    if isinstance(expr, Const):
        return Linear({}, int(expr.value))
    if isinstance(expr, Call) and expr.dtype is int64:
        if expr.op in ("add", "sub"):
            return linear(expr.args[0]).plus(linear(expr.args[1]), 1 if expr.op == "add" else -1)
        if expr.op == "neg":
            return linear(expr.args[0]).times(-1)
        if expr.op == "mul":
            a, b = linear(expr.args[0]), linear(expr.args[1])
            if not a.terms or not b.terms:
                return b.times(a.offset) if not a.terms else a.times(b.offset)
    return Linear({expr: 1}, 0)


def affine(expr: Expr) -> tuple[dict[Axis, int], int] | None:
    """Coefficient of each axis and the offset; None when the expression is no such sum."""
    found = linear(expr)
    if not all(isinstance(a, Axis) for a in found.terms):
        return None
    return {a: c for a, c in found.terms.items() if isinstance(a, Axis)}, found.offset


def atom_range(atom: Expr) -> Range:
    """Bounds of an atom; infinite where nothing is known."""
    if isinstance(atom, Axis):
        return 0, max(atom.extent - 1, 0)
    if isinstance(atom, Call) and len(atom.args) == 2:
        (a, b), (c, d) = bounds(atom.args[0]), bounds(atom.args[1])
        if atom.op == "remainder" and c == d and c > 0:
            return (a, b) if a >= 0 and b < c else (0, c - 1)
        if atom.op == "floor_div" and c == d and c > 0:
            return (a if a == -_INF else a // c), (b if b == _INF else b // c)
        if atom.op == "maximum":
            return max(a, c), max(b, d)
        if atom.op == "minimum":
            return min(a, c), min(b, d)
    if isinstance(atom, Call) and atom.op == "clamp":
        (a, _), (_, b) = bounds(atom.args[0]), bounds(atom.args[2])
        return a, b
    if isinstance(atom, Call) and atom.op == "select":
        (a, b), (c, d) = bounds(atom.args[1]), bounds(atom.args[2])
        return min(a, c), max(b, d)
    return -_INF, _INF


def bounds(expr: Expr) -> Range:
    """Least and largest value that an integer expression can have."""
    return linear(expr).range


def clamped(place: Expr, size: int) -> Expr:
    """The index confined to 0..size-1, as far as its range asks for it."""
    low, high = bounds(place)
    if low < 0:
        place = call("maximum", place, index(0))
    return call("minimum", place, index(max(size - 1, 0))) if high > size - 1 else place


def from_linear(sum: Linear) -> Expr:
    """The expression in one fixed order: axes first as they were met, then others, the offset last."""
    result: Expr | None = None
    if sum.offset > 0 and sum.terms and max(sum.terms.values()) < 0:  # 1 - i
        result, sum = index(sum.offset), Linear(sum.terms, 0)
    for atom, c in sorted(sum.terms.items(), key=lambda item: (item[1] < 0, not isinstance(item[0], Axis))):
        if result is None:
            result = atom if c == 1 else call("mul", atom, index(c))
        elif c < 0:
            result = call("sub", result, atom if c == -1 else call("mul", atom, index(-c)))
        else:
            result = call("add", result, atom if c == 1 else call("mul", atom, index(c)))
    if result is None:
        return index(sum.offset)
    if sum.offset:
        name = "add" if sum.offset > 0 else "sub"
        result = call(name, result, index(abs(sum.offset)))
    return result


def tidy(expr: Expr) -> Expr:
    """An integer expression in its normal form: sums collected, divisions and remainders that cancel removed."""
    if expr.dtype is not int64 or isinstance(expr, Axis | Const | Read):
        return expr
    total = Linear({}, linear(expr).offset)
    for atom, c in linear(expr).terms.items():
        total = total.plus(linear(_tidy_atom(atom)), c)
    return from_linear(_regrouped(total))


def _tidy_atom(atom: Expr) -> Expr:
    if not isinstance(atom, Call) or atom.op not in ("floor_div", "remainder", "maximum", "minimum"):
        return atom
    a, b = tidy(atom.args[0]), tidy(atom.args[1])
    if atom.op in ("maximum", "minimum"):
        (low, high), (low2, high2) = bounds(a), bounds(b)
        upper, lower = (a, b) if low >= high2 else (b, a) if low2 >= high else (None, None)
        if upper is None or lower is None:
            return call(atom.op, a, b)
        return upper if atom.op == "maximum" else lower
    if not isinstance(b, Const) or b.value <= 0:
        return call(atom.op, a, b)
    return divided(a, b.value)[0 if atom.op == "floor_div" else 1]


def divided(expr: Expr, n: int) -> tuple[Expr, Expr]:
    """floor_div and remainder of an integer expression by n > 0, simplified.

    With e = n * q + r, `floor(e / n) = q + floor(r / n)` and `e mod n = r mod n`; r in 0..n-1 makes both exact.
    """
    if n == 1:
        return expr, index(0)
    whole = linear(expr)
    for atom, c in list(whole.terms.items()):  # x mod m is x - m * floor(x / m); so multiples of n are seen
        if isinstance(atom, Call) and atom.op == "remainder" and isinstance(atom.args[1], Const):
            m = atom.args[1].value
            if (c * m) % n == 0 and m > 0:
                inner = linear(atom.args[0]).plus(linear(call("floor_div", *atom.args)), -m)
                whole = whole.plus(Linear({atom: 1}, 0), -c).plus(inner, c)
    quotient = Linear({a: c // n for a, c in whole.terms.items() if c % n == 0}, whole.offset // n)
    rest = whole.plus(quotient, -n)
    low, high = rest.range
    if low >= 0 and high < n:
        return from_linear(_regrouped(quotient)), from_linear(rest)
    if not rest.terms:
        return from_linear(quotient.plus(Linear({}, rest.offset // n))), index(rest.offset % n)
    r = from_linear(rest)
    inner_atom = _nested(r, n)
    return from_linear(_regrouped(quotient.plus(linear(inner_atom)))), call("remainder", r, index(n))


def _nested(r: Expr, n: int) -> Expr:
    """floor(floor(x / m) / n) = floor(x / (m n)) for m, n > 0."""
    if isinstance(r, Call) and r.op == "floor_div" and isinstance(r.args[1], Const) and r.args[1].value > 0:
        return call("floor_div", r.args[0], index(r.args[1].value * n))
    return call("floor_div", r, index(n))


def _regrouped(sum: Linear) -> Linear:
    """n * floor(x / n) + (x mod n) is x; x - n * floor(x / n) is x mod n."""
    for atom, c in sum.terms.items():
        if isinstance(atom, Call) and atom.op == "floor_div" and isinstance(atom.args[1], Const) and atom.args[1].value:
            times, odd = divmod(-c, atom.args[1].value)
            x = linear(atom.args[0]).times(times)
            if not odd and times and all(sum.terms.get(a) == k for a, k in x.terms.items()):
                less = sum.plus(x, -1).plus(Linear({atom: c}, 0), -1)
                return _regrouped(less.plus(Linear({call("remainder", *atom.args): 1}, 0), times))
        if isinstance(atom, Call) and atom.op == "remainder" and isinstance(atom.args[1], Const):
            n = atom.args[1].value
            down = call("floor_div", *atom.args)
            if sum.terms.get(down) == c * n:
                less = sum.plus(Linear({atom: 1}, 0), -c).plus(Linear({down: 1}, 0), -c * n)
                return _regrouped(less.plus(linear(atom.args[0]), c))
    return sum


# --- conditions -------------------------------------------------------------------------------------------------------


def conjuncts(cond: Expr) -> list[Expr]:
    """The conditions that hold together; `not (a < b)` of integers is written `a >= b`."""
    if isinstance(cond, Call) and cond.op == "logical_and":
        return [*conjuncts(cond.args[0]), *conjuncts(cond.args[1])]
    if isinstance(cond, Call) and cond.op == "logical_not":
        inner = cond.args[0]
        if isinstance(inner, Call) and inner.op == "logical_not":
            return conjuncts(inner.args[0])
        if isinstance(inner, Call) and inner.op == "logical_or":
            return [c for a in inner.args for c in conjuncts(call("logical_not", a))]
        if isinstance(inner, Call) and inner.op in _FLIP and not inner.args[0].dtype.is_inexact:
            return [call(_FLIP[inner.op], *inner.args)]
    return [] if cond is TRUE else [cond]


def facts(cond: Expr) -> list[Linear]:
    """Sums that are >= 0 where the condition holds, as far as it is about integers."""
    if not isinstance(cond, Call) or len(cond.args) != 2 or cond.args[0].dtype is not int64:
        return []
    a, b = linear(cond.args[0]), linear(cond.args[1])
    up, down, one = b.plus(a, -1), a.plus(b, -1), Linear({}, 1)
    known = {
        "less": [up.plus(one, -1)], "less_equal": [up], "greater": [down.plus(one, -1)], "greater_equal": [down],
        "equal": [up, down],
    }  # fmt: skip
    return known.get(cond.op, [])


def proves(known: Iterable[Linear], claim: Linear) -> bool:
    """Whether `claim >= 0` follows from the ranges of its atoms, or from one of the known sums being >= 0."""
    return claim.range[0] >= 0 or any(claim.plus(k, -1).range[0] >= 0 for k in known)


def settle(cond: Expr, known: Iterable[Linear] = ()) -> Expr:
    """TRUE or FALSE where a comparison of integers is decided by ranges and known sums, else the condition."""
    if not isinstance(cond, Call) or cond.op not in (*_FLIP, "equal", "not_equal") or cond.args[0].dtype is not int64:
        return cond
    known = list(known)
    if cond.op == "not_equal":
        opposite = settle(call("equal", *cond.args), known)
        return FALSE if opposite is TRUE else TRUE if opposite is FALSE else cond
    if all(proves(known, f) for f in facts(cond)):
        return TRUE
    if any(proves(known, f.times(-1).plus(Linear({}, -1))) for f in facts(cond)):
        return FALSE
    if cond.op == "equal":
        gap = linear(cond.args[0]).plus(linear(cond.args[1]), -1)
        if gap.terms and gap.offset % _gcd(gap):
            return FALSE
    return cond


def _gcd(sum: Linear) -> int:
    return gcd(*sum.terms.values())


def every(conds: Iterable[Expr]) -> Expr:
    """All conditions together."""
    left = [c for c in dict.fromkeys(conds) if c is not TRUE]
    if not left or FALSE in left:
        return FALSE if left else TRUE
    result = left[0]
    for c in left[1:]:
        result = call("logical_and", result, c)
    return result
