"""Callbacks run once for each time that they are reached and in the order of the program, compiled as in eager mode."""

from collections import Counter

import numpy as np
import pytest
from tests.effects.support import Log

import treadle as td
from treadle import driver
from treadle.ir.walk import all_fns
from treadle.lower.ordering import ordered
from treadle.ops.effects import host_call

log = Log()
XS = (1.0, 2.0)


def straight(x):
    for name in "abcdef":
        td.callback(log(name), x)
        x = x + 1
    td.callback(log("nothing"))
    return x


def same_twice(x):
    """Equal nodes are not merged."""
    same = log("same")
    td.callback(same, x)
    td.callback(same, x)
    return x


def unused(x):
    """Nothing depends on it, and it stays."""
    td.callback(log("unused"), x * 5)
    return x


def loop(x):
    def test(carry):
        td.callback(log("test"), carry[0])
        return carry[0] < 3

    def body(carry):
        td.callback(log("before"), carry[0])
        td.callback(log("after"), carry[1])
        return carry[0] + 1, carry[1] * 2

    td.callback(log("start"), x)
    result = td.while_loop(test, body, (td.tensor(0), x))
    td.callback(log("end"), *result)
    return result[1]


def plain_test(x):
    """The condition has no effect, the body has."""

    def body(carry):
        td.callback(log("body"), carry[0])
        return carry[0] + 1, carry[1] * 2

    return td.while_loop(lambda c: c[0] < 4, body, (td.tensor(0), x))[1]


def no_trips(x):
    def test(carry):
        td.callback(log("test"), carry)
        return carry < 0

    return td.while_loop(test, lambda c: (td.callback(log("never"), c), c + 1)[1], x)


def branches(x):
    def small():
        td.callback(log("small"), x)
        return x

    def large():
        td.callback(log("large"), x)
        return td.cond(x > 5, very, lambda: x * 3)

    def very():
        td.callback(log("very"), x)
        return x * 2

    td.callback(log("first"), x)
    y = td.cond(x > 1.5, large, small)
    td.callback(log("last"), y)
    return y


def scanned(x):
    def step(h, item):
        td.callback(log("item"), h, item)
        return td.cond(h > 2, lambda: (td.callback(log("big"), h), h)[1], lambda: h + item), h

    h, ys = td.scan(step, x, td.tensor([1.0, 2.0, 3.0]))
    td.callback(log("ys"), ys)
    return h


def nested(x):
    def outer(carry):
        i, y = carry
        _, y = td.while_loop(
            lambda c: c[0] < 2, lambda c: (c[0] + 1, (td.callback(log("in"), i, c[0]), c[1] + 1)[1]), (td.tensor(0), y)
        )
        td.callback(log("out"), y)
        return i + 1, y

    return td.while_loop(lambda c: c[0] < 3, outer, (td.tensor(0), x))[1]


def jitted_inside(x):
    @td.jit
    def part(y):
        td.callback(log("part"), y)
        return y * 2

    return part(part(x))


FUNCTIONS = [straight, same_twice, unused, loop, plain_test, no_trips, branches, scanned, nested, jitted_inside]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_compiled_as_eager(function):
    compiled = td.jit(function)
    for number in (1.0, 2.0, 7.0, 2.0):
        x = td.tensor(number)
        wanted = list(log.of(function, x))
        assert wanted
        assert log.of(compiled, x) == wanted
        assert compiled(x).item() == function(x).item()
    assert compiled.cache_info().compiled == 1


@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_call_waits_for_the_one_before(function):
    """Every token is used once: by the next call, or as the last one. (Without, the order is right by chance.)"""
    module = ordered(driver.optimise(td.trace_module(function, td.tensor(1.0))))
    tokens = 0
    for fn in all_fns(module):
        uses = Counter([*[v for node in fn.nodes for v in node.inputs], *fn.outputs])
        for node in fn.nodes:
            if node.op is host_call:
                assert uses[node.outputs[0]] == 1
                assert uses[node.inputs[0]] == 1
                tokens += 1
    assert tokens


def test_the_orders_are_those_of_python():
    """The eager order itself, which the others are compared with."""
    x = td.tensor(1.0)
    assert [e[0] for e in log.of(straight, x)] == [*"abcdef", "nothing"]
    trips = [("test", i) for i in range(4)]
    seen = [e for e in log.of(loop, x) if e[0] == "test"]
    assert seen == trips
    assert [e[0] for e in log.of(branches, x)] == ["first", "small", "last"]
    assert log.of(no_trips, x) == [("test", 1.0)]


def test_nothing_to_return():
    """Programs, branches and loops that only act."""
    compiled = td.jit(lambda x: td.cond(x > 0, lambda: td.callback(log("yes"), x), lambda: td.callback(log("no"))))
    assert log.of(compiled, td.tensor(1.0)) == [("yes", 1.0)]
    assert log.of(compiled, td.tensor(-1.0)) == [("no",)]


def test_in_a_graph_with_many_threads():
    """XLA runs independent parts of this one in several threads."""

    def wide(*xs):
        ys = [td.cos(td.sin(x) @ x) for x in xs]
        for place in (11, 3, 7, 0):
            td.callback(log(str(place)), ys[place][0, 0])
        return [y @ y for y in ys]

    rng = np.random.default_rng(0)
    xs = [td.tensor(rng.random((200, 200), np.float32)) for _ in range(12)]
    compiled = td.jit(wide)
    for _ in range(5):
        assert [e[0] for e in log.of(compiled, *xs)] == ["11", "3", "7", "0"]


def test_between_programs():
    """A call returns when everything it does is done."""
    compiled = td.jit(lambda x: (td.callback(log("in"), x), x @ x)[1])
    x = td.ones((300, 300))

    def run():
        for _ in range(3):
            compiled(x)
            log.entries.append("between")

    found = log.of(run)
    assert [e if e == "between" else e[0] for e in found] == ["in", "between"] * 3


def test_a_thousand_trips():
    def count(x):
        def body(carry):
            td.callback(log("trip"), carry[0])
            return carry[0] + 1, carry[1] + x

        return td.while_loop(lambda c: c[0] < 1000, body, (td.tensor(0), x))[1]

    assert [e[1] for e in log.of(td.jit(count), td.tensor(1.0))] == list(range(1000))


def test_eager_control_flow_is_compiled_once(monkeypatch):
    """A branch with a print in it, run again and again in eager mode, is one program."""
    compiled = []
    real = driver.compile_module
    monkeypatch.setattr(driver, "compile_module", lambda *a, **k: compiled.append(1) or real(*a, **k))
    x = td.tensor(1.0)
    for i in range(5):
        td.cond(td.tensor(i % 2 == 0), lambda: td.debug_print("even {}", x), lambda: td.debug_print("odd"))
    assert len(compiled) == 1
