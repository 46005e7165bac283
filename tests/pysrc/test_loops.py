"""Loops are rolled: 10 and 10,000 steps give programs of one size, gradients too; and `td.explain`."""

import pytest
from tests.pysrc import helpers, support

import treadle as td
from treadle import driver
from treadle.base.errors import UserError
from treadle.ir.walk import all_nodes


def cooled(x, steps):
    for i in range(steps):
        x = (x * 0.99 + i).sin()
    return x


def limited(x, steps):
    for i in range(steps):
        x = x * 1.01
        if x > 3:
            x = x - i
        if x < -50:
            break
    return x


def in_list(x, steps):
    state = [x, 0]
    for i in range(steps):
        state[0] = helpers.clip(state[0] * 0.9 + i)
        state[1] += 1
    return state[0] * state[1]


def gradient_of(f):
    return lambda x, steps: td.grad(f)(x, steps)


FUNCTIONS = [cooled, limited, in_list, *map(gradient_of, (cooled, limited, in_list))]


def size(f, steps):
    return sum(1 for _ in all_nodes(td.trace_module(f, td.tensor(0.5, dtype=td.float64), steps)))


@pytest.mark.parametrize("f", FUNCTIONS)
def test_the_size_does_not_depend_on_the_count(f):
    assert abs(size(f, 10_000) / size(f, 10) - 1) <= 0.1


def appended(x, steps):
    out = []
    for i in range(steps):
        x = (x * 0.99 + i).sin()
        out.append(x)
    return td.stack(out)


def appended_twice(x, steps):
    out = [x]
    for i in range(steps):
        x = (x * 0.99 + i).sin()
        out.append(x)
        out.append(x * 2)
    out.append(x)
    return out[3] * 1.5, out[-2] + len(out), td.stack(out)


def total(f):
    return lambda x, steps: td.grad(lambda x: sum(y.sum() for y in [*f(x, steps)]))(x)


@pytest.mark.parametrize("f", [appended, appended_twice])
def test_lists_that_grow_are_stacks(f):
    x = td.tensor(0.5, dtype=td.float64)
    sizes = [sum(1 for _ in all_nodes(driver.optimise(td.trace_module(f, x, n)))) for n in (9, 200)]
    assert sizes[0] == sizes[1] < 40
    both = [f(x, 12), td.jit(f)(x, 12)]
    assert support.differences(*map(support.plain, both)) == []
    gradients = [total(f)(x, 12), td.jit(total(f))(x, 12)]
    assert support.differences(*map(support.plain, gradients)) == []


def test_a_list_that_is_read_while_it_grows_is_none():
    def reads(x, steps):
        out = [x]
        for i in range(steps):
            x = (x * 0.99 + i).sin() + out[-1] * 0.5
            if len(out) > 4:
                x = x + 1
            out.append(x)
        return td.stack(out)

    def iterates(x, steps):
        out = [x]
        for _ in range(steps):
            out.append(sum(out) * 0.3)
        return td.stack(out)

    x = td.tensor(0.5, dtype=td.float64)
    for f in (reads, iterates):
        assert support.differences(*map(support.plain, [f(x, 12), td.jit(f)(x, 12)])) == []


def test_what_cannot_be_rolled_is_unrolled():
    def names(x, steps):
        found = {}
        for i in range(steps):
            found[f"k{i}"] = x * i
        return found

    assert td.jit(names)(td.tensor(2.0), 20)["k19"].item() == 38


@td.jit
def explained(x, k=2):
    return helpers.clip(x) * k


def test_explain():
    assert "no programs yet" in td.explain(explained)
    explained(td.tensor(1.0))
    explained(td.tensor([[1.0]]))
    report = td.explain(explained)
    assert "2 programs" in report
    assert "because     first call" in report
    assert "because     argument 0 is float32[1, 1], before float32[]" in report
    assert "compiled    clip (helpers.py:" in report
    assert "_td_.if_" in td.explain(helpers.clip, source=True)
    assert "put @td.jit" in td.explain(helpers.clip)


def test_explain_tells_what_python_runs():
    space = {}
    exec("def unseen(x):\n    return x * 2", space)
    f = td.jit(lambda x: space["unseen"](x) + helpers.clip(x))
    f(td.tensor(1.0))
    assert "unseen (<string>:1): run by Python: its source cannot be found" in td.explain(f)


def test_explain_answers_three_questions():
    """What was compiled, what ran as Python, why it was compiled again."""
    space = {}
    exec("def unseen(x):\n    return x * 2", space)

    @td.jit
    def f(x, power=1):
        return space["unseen"](helpers.clip(x)) ** power

    f(td.tensor(3.0))
    f(td.tensor([[3.0]]))
    f(td.tensor(3.0), power=2)
    report = td.explain(f)
    assert report.count("compiled    clip (helpers.py:") == 3
    assert report.count("not         unseen (<string>:1): run by Python: its source cannot be found") == 3
    reasons = [line.split("because")[1].strip() for line in report.splitlines() if "because" in line]
    assert reasons[:2] == ["first call", "argument 0 is float32[1, 1], before float32[]"]
    assert "power" in reasons[2] or "2" in reasons[2]
    assert f.cache_info().compiled == 3


def test_explain_refuses_what_is_not_called():
    with pytest.raises(UserError, match="E0213"):
        td.explain(3)
