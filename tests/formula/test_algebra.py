"""Index arithmetic, elimination and simplification against brute force on random expressions."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import treadle.ops  # noqa: F401  (fills the table of ops)
from treadle.base.dtypes import float64
from treadle.formula.affine import affine, bounds, clamped, conjuncts, facts, linear, proves, settle, tidy
from treadle.formula.expr import (
    FALSE,
    TRUE,
    Axis,
    Compute,
    Placeholder,
    call,
    const,
    element,
    fold,
    free,
    index,
    post_order,
    read,
    substitute,
)
from treadle.formula.interp import evaluate
from treadle.formula.simplify import simplify
from treadle.formula.solve import Term, solve
from treadle.formula.text import Formula, parse
from treadle.ir.types import f64


def random_index(rng, axes, depth=3):
    """A random int64 expression of the axes."""
    if depth == 0 or rng.random() < 0.2:
        return axes[rng.integers(len(axes))] if rng.random() < 0.75 else index(int(rng.integers(-4, 9)))
    kind = rng.choice(["add", "sub", "mul", "floor_div", "remainder", "maximum", "minimum", "neg"])
    a = random_index(rng, axes, depth - 1)
    if kind == "neg":
        return call("neg", a)
    if kind in ("mul", "floor_div", "remainder"):
        return call(kind, a, index(int(rng.integers(1, 7)) if kind != "mul" else int(rng.integers(-4, 5))))
    return call(kind, a, random_index(rng, axes, depth - 1))


def values(expr, axes):
    return evaluate(Formula([], [Compute("v", axes, expr)]))[0]


@pytest.mark.parametrize("seed", range(150))
def test_tidy_keeps_the_value_and_bounds_hold(seed):
    rng = np.random.default_rng(seed)
    axes = [Axis(n, int(rng.integers(1, 6))) for n in "ij"]
    expr = random_index(rng, axes, 4)
    wanted = values(expr, axes)
    assert np.array_equal(values(tidy(expr), axes), wanted)
    low, high = bounds(expr)
    assert low <= wanted.min()
    assert wanted.max() <= high
    assert np.array_equal(values(clamped(expr, 3), axes), wanted.clip(0, 2))


@pytest.mark.parametrize("seed", range(150))
def test_a_settled_comparison_is_true_where_the_facts_hold(seed):
    rng = np.random.default_rng(seed)
    axes = [Axis(n, int(rng.integers(1, 6))) for n in "ij"]
    op = rng.choice(["less", "less_equal", "greater", "greater_equal", "equal", "not_equal"])
    given, claim = [call(k, random_index(rng, axes, 2), random_index(rng, axes, 2)) for k in ("less", op)]
    found = settle(claim, facts(given))
    holds = values(given, axes)
    if found is TRUE:
        assert values(claim, axes)[holds].all()
    if found is FALSE:
        assert not values(claim, axes)[holds].any()


def random_map(rng, axes):
    """An index map such as operators have: a sum of axes with steps, flattened, divided or not."""
    sum_ = index(int(rng.integers(-3, 4)))
    for a in axes:
        c = int(rng.choice([0, 0, 1, 1, -1, 2, 3, -2]))
        sum_ = call("add", sum_, call("mul", a, index(c)))
    kind = rng.integers(6)
    if kind == 0:
        return call("floor_div", sum_, index(int(rng.integers(2, 4))))
    return call("remainder", sum_, index(int(rng.integers(2, 4)))) if kind == 1 else sum_


@pytest.mark.parametrize("seed", range(250))
def test_elimination_keeps_the_sum(seed):
    """Random equations f(i, k, l) == j: the solved sum at every j is the sum over all points that fulfil them."""
    rng = np.random.default_rng(seed)
    axes = tuple(Axis(n, int(rng.integers(1, 6))) for n in "ikl"[: rng.integers(1, 4)])
    targets = [Axis(f"j{d}", int(rng.integers(1, 8))) for d in range(rng.integers(1, 3))]
    maps = [random_map(rng, axes) for _ in targets]
    if rng.random() < 0.25:  # a flattened position taken apart
        maps = [call("floor_div", maps[0], index(3)), call("remainder", maps[0], index(3))][: len(targets)]
    x = Placeholder("x", f64[tuple(a.extent for a in axes)])
    conds = [call("less", random_map(rng, axes), index(3))] if rng.random() < 0.5 else []
    plain = Term(axes, tuple(conds), read(x, *axes))
    equations = [call("sub", m, j) for m, j in zip(maps, targets, strict=True)]
    brute = plain.where(*[call("equal", m, j) for m, j in zip(maps, targets, strict=True)])
    solved = solve(plain, equations)
    array = rng.standard_normal(x.type.shape)
    formula = Formula([x], [Compute("a", targets, brute.expr()), Compute("b", targets, solved.expr())])
    a, b = evaluate(formula, array)
    assert_allclose(b, a, atol=1e-12, err_msg=str(formula))
    assert set(free(solved.expr())) <= set(targets)


def test_what_determines_an_axis_leaves_no_sum():
    i, k, j = Axis("i", 8), Axis("k", 3), Axis("j", 16)
    x = Placeholder("x", f64[8])
    inside = call("sub", call("add", call("mul", i, index(2)), k), j)
    solved = solve(Term((i, k), (), read(x, i)), [inside])
    assert [a.extent for a in solved.axes] == [2]  # two of three taps meet an output of stride 2
    assert not any(getattr(e, "op", "") == "equal" for c in solved.conds for e in post_order(c))
    plain = solve(Term((i,), (), read(x, i)), [call("sub", i, j)])
    assert plain.axes == ()
    assert plain.value is read(x, j)


def test_the_affine_form():
    i, k = Axis("i", 8), Axis("k", 3)
    place = call("sub", call("add", call("mul", i, index(2)), call("mul", index(3), k)), index(1))
    assert affine(place) == ({i: 2, k: 3}, -1)
    assert affine(call("mul", i, k)) is None
    assert tidy(call("remainder", call("add", call("mul", i, index(3)), k), index(3))) is k
    assert tidy(call("floor_div", call("add", call("mul", i, index(3)), k), index(3))) is i
    assert proves([linear(call("sub", i, k))], linear(call("add", call("sub", i, k), index(1))))
    not_or = call("logical_not", call("logical_or", call("less", i, k), call("less", k, i)))
    assert conjuncts(not_or) == [call("greater_equal", i, k), call("greater_equal", k, i)]


def random_value(rng, leaves, depth):
    if depth == 0 or rng.random() < 0.2:
        return leaves[rng.integers(len(leaves))] if rng.random() < 0.6 else const(rng.choice([-1, 0, 1, 2]), float64)
    kind = rng.choice(["add", "sub", "mul", "neg", "div", "select", "exp", "cast"])
    a, b = random_value(rng, leaves, depth - 1), random_value(rng, leaves, depth - 1)
    if kind == "select":
        i = next(iter(free(leaves[0])))
        return call("select", call("less", i, index(int(rng.integers(0, 6)))), a, b)
    if kind == "cast":
        return call("cast", a, dtype=float64)
    if kind in ("neg", "exp"):
        return call(kind, a)
    return call(kind, a, b)


@pytest.mark.parametrize("seed", range(150))
def test_simplification_keeps_the_value(seed):
    rng = np.random.default_rng(seed)
    i = Axis("i", 5)
    x, y = Placeholder("x", f64[5]), Placeholder("y", f64[5])
    expr = random_value(rng, [read(x, i), read(y, i)], 5)
    formula = Formula([x, y], [Compute("a", (i,), expr), Compute("b", (i,), simplify(expr))])
    a, b = evaluate(formula, rng.uniform(0.3, 1.2, 5), rng.uniform(0.3, 1.2, 5))
    assert_allclose(b, a, rtol=1e-9)
    assert parse(formula.text).text == formula.text


@pytest.mark.parametrize("k", [1.0, 0.5, 3.0])
def test_the_logistic_rule(k):
    """e * 1/(e + k) = 1 - k/(e + k) on random numbers, also where e overflows."""
    i, x = Axis("i", 6), Placeholder("x", f64[6])
    e = call("exp", read(x, i))
    inverse = call("reciprocal", call("add", e, const(k, float64)))
    expr = call("mul", call("mul", read(x, i), inverse), e)
    short = simplify(expr)
    assert short is not expr
    assert e not in [p for p in post_order(short) if getattr(p, "op", "") == "mul" for p in p.parts]
    formula = Formula([x], [Compute("a", (i,), expr), Compute("b", (i,), short)])
    a, b = evaluate(formula, np.array([-3.0, -0.5, 0.1, 2.0, 5.0, 800.0]))
    assert_allclose(b[:5], a[:5], rtol=1e-12)
    assert np.isnan(a[5])
    assert b[5] == 800.0


def test_expressions_are_interned_and_substitution_captures_nothing():
    i, j, k = Axis("i", 4), Axis("j", 4), Axis("k", 4)
    x = Placeholder("x", f64[4, 4])
    assert call("add", read(x, i, j), read(x, j, i)) is call("add", read(x, i, j), read(x, j, i))
    assert const(0.0, float64) is not const(-0.0, float64)
    inner = fold("add", read(x, i, k), (k,))
    swapped = substitute(inner, {i: k})
    assert free(swapped) == {k}
    assert swapped.axes[0] is not k
    row = Compute("row", (i,), inner)
    assert free(element(row, (k,))) == {k}


def test_text_with_an_unknown_name_is_refused():
    from treadle.base.errors import UserError

    with pytest.raises(UserError, match="E0192"):
        parse("formula(%a0: f64[3]) { %0[i0:3] = %a1[i0] return %0 }")


def test_large_tensors_are_computed_in_blocks(monkeypatch):
    from treadle.formula import interp

    i, j, k = Axis("i", 3), Axis("j", 7), Axis("k", 5)
    x = Placeholder("x", f64[3, 5, 7])
    formula = Formula([x], [Compute("y", (i, j), fold("add", read(x, i, k, j), (k,)))])
    array = np.random.default_rng(0).standard_normal((3, 5, 7))
    for most in (1, 5, 16, 40, 1000):
        monkeypatch.setattr(interp, "_CHUNK", most)
        sizes = [len(list(interp._blocks((i, j), max(1, most // 5))))]
        assert sizes == [{1: 21, 5: 21, 16: 9, 40: 3, 1000: 1}[most]]
        assert_allclose(evaluate(formula, array)[0], array.sum(1))
