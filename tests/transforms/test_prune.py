"""Results, carries and operands of region ops that nobody reads are left out of the bodies too."""

import numpy as np
from tests.transforms.support import check_pass, check_silent, module_of

import treadle as td
from treadle.ir.build import trace
from treadle.ir.node import Fn, Module
from treadle.ir.op import Op
from treadle.ir.types import bool_, f32, i32
from treadle.ir.walk import all_nodes
from treadle.ops.calls import call, remat
from treadle.ops.compare import less
from treadle.ops.control import if_, while_
from treadle.ops.elementwise import add, mul, neg
from treadle.ops.functions import exp, tanh
from treadle.ops.loops import scan
from treadle.transforms.dce import Dce

T, N, P = f32[3], i32[()], bool_[()]
RULES = {"type": lambda x: x, "ref": lambda x: x, "effect": "prints"}
say = Op("say", "For tests: has an effect.", ("x",), RULES, "here")


def fn(function, *types, name="body"):
    return trace(function, list(types), name)


def test_if_loses_results_and_operands():
    big = {
        "then": fn(lambda x, y, z: (neg(x), exp(y)), T, T, T),
        "orelse": fn(lambda x, y, z: (x, tanh(z)), T, T, T),
    }
    small = {"then": fn(neg, T), "orelse": fn(lambda x: x, T)}
    types = (P, T, T, T)
    check_pass(Dce(), lambda p, x, y, z: if_(p, x, y, z, **big)[0], lambda p, x, y, z: if_(p, x, **small)[0], *types)
    second = {"then": fn(lambda y, z: exp(y), T, T), "orelse": fn(lambda y, z: tanh(z), T, T)}
    check_pass(
        Dce(), lambda p, x, y, z: if_(p, x, y, z, **big)[1], lambda p, x, y, z: if_(p, y, z, **second)[0], *types
    )


def test_what_computes_a_lost_operand_goes_too():
    big = {"then": fn(lambda x, y: x, T, T), "orelse": fn(lambda x, y: neg(x), T, T)}
    small = {"then": fn(lambda x: x, T), "orelse": fn(neg, T)}
    check_pass(Dce(), lambda p, x: if_(p, x, exp(x), **big)[0], lambda p, x: if_(p, x, **small)[0], P, T)


def test_effects_keep_what_they_read():
    body = {"then": fn(lambda x, y: (say(x), y)[1], T, T), "orelse": fn(lambda x, y: y, T, T)}
    check_silent(Dce(), lambda p, x, y: if_(p, x, y, **body)[0], P, T, T)
    loud = {"then": fn(lambda x, y: (say(x), x), T, T), "orelse": fn(lambda x, y: (x, y), T, T)}
    kept = {"then": fn(lambda x, y: (say(x), x)[1], T, T), "orelse": fn(lambda x, y: y, T, T)}
    check_pass(Dce(), lambda p, x, y: if_(p, x, y, **loud)[1], lambda p, x, y: if_(p, x, y, **kept)[0], P, T, T)


def test_a_call_in_a_body_stays_with_what_it_reads():
    def body(x, y):
        call(x, callee="f", results=(T,))
        return x, y

    parts = {"then": fn(body, T, T), "orelse": fn(lambda x, y: (x, y), T, T)}
    f = Fn("f", *(lambda g: (g.params, g.nodes, g.outputs))(fn(say, T)))
    module = Module.of(trace(lambda p, x, y: if_(p, x, y, **parts)[1], [P, T, T], "main"), {"f": f})
    assert "say" in [n.op.name for n in all_nodes(Dce()(module))]


def test_while_loses_carries_that_only_feed_themselves():
    def step(w, u, n, x, y, z):
        return add(n, 1), mul(x, w), add(y, x), mul(z, u)

    types = (T, T, N, T, T, T)
    cond = fn(lambda w, u, n, x, y, z: less(n, 5), *types, name="cond")
    big = {"cond": cond, "body": fn(step, *types), "n_consts": 2}

    def pick(i):
        return lambda w, u, n, x, y, z: while_(w, u, n, x, y, z, **big)[i]

    only_x = {
        "cond": fn(lambda w, n, x: less(n, 5), T, N, T, name="cond"),
        "body": fn(lambda w, n, x: (add(n, 1), mul(x, w)), T, N, T),
        "n_consts": 1,
    }
    check_pass(Dce(), pick(1), lambda w, u, n, x, y, z: while_(w, n, x, **only_x)[1], *types)
    both = {
        "cond": fn(lambda w, n, x, y: less(n, 5), T, N, T, T, name="cond"),
        "body": fn(lambda w, n, x, y: (add(n, 1), mul(x, w), add(y, x)), T, N, T, T),
        "n_consts": 1,
    }
    check_pass(Dce(), pick(2), lambda w, u, n, x, y, z: while_(w, n, x, y, **both)[2], *types)
    only_n = {"cond": fn(lambda n: less(n, 5), N, name="cond"), "body": fn(lambda n: add(n, 1), N), "n_consts": 0}
    check_pass(Dce(), pick(0), lambda w, u, n, x, y, z: while_(n, **only_n)[0], *types)


def test_a_loop_whose_parts_are_all_read_is_left_alone():
    parts = {
        "cond": fn(lambda w, n, x: less(n, 5), T, N, T, name="cond"),
        "body": fn(lambda w, n, x: (add(n, 1), mul(x, w)), T, N, T),
        "n_consts": 1,
    }
    check_silent(Dce(), lambda w, n, x: while_(w, n, x, **parts)[1], T, N, T)


def test_scan_loses_constants_carries_slices_and_stacks():
    def step(w, u, h, g, x, v):
        new = mul(h, w)
        return new, add(g, v), add(new, x), mul(v, u)

    types = (T, T, T, T, f32[4, 3], f32[4, 3])
    inner = (T,) * 6
    big = {"body": fn(step, *inner), "n_consts": 2, "n_carry": 2, "length": 4, "reverse": True}

    def pick(i):
        return lambda *args: scan(*args, **big)[i]

    trips = {"length": 4, "reverse": True}
    carry = {"body": fn(lambda w, h: mul(h, w), T, T), "n_consts": 1, "n_carry": 1, **trips}
    check_pass(Dce(), pick(0), lambda w, u, h, g, x, v: scan(w, h, **carry)[0], *types)
    rows = {"body": fn(lambda w, h, x: (mul(h, w), add(mul(h, w), x)), T, T, T), "n_consts": 1, "n_carry": 1, **trips}
    found = Dce()(module_of(pick(2), types))
    wanted = Dce()(module_of(lambda w, u, h, g, x, v: scan(w, h, x, **rows)[1], types))
    assert len(found.main.nodes[0].inputs) == len(wanted.main.nodes[0].inputs) == 3
    last = {"body": fn(lambda u, v: mul(v, u), T, T), "n_consts": 1, "n_carry": 0, **trips}
    check_pass(Dce(), pick(3), lambda w, u, h, g, x, v: scan(u, v, **last)[0], *types)


def test_remat_loses_results_and_operands():
    big = fn(lambda x, y: (exp(x), tanh(y)), T, T)
    check_pass(Dce(), lambda x, y: remat(x, y, body=big)[0], lambda x, y: remat(x, body=fn(exp, T))[0], T, T)


def test_nested_bodies_shrink_from_the_inside():
    inner = {"then": fn(lambda x, y: (neg(x), exp(y)), T, T), "orelse": fn(lambda x, y: (x, y), T, T)}

    def step(p, n, x, y):
        a, _ = if_(p, x, y, **inner)
        return add(n, 1), a, neg(y)

    types = (P, N, T, T)
    big = {
        "cond": fn(lambda p, n, x, y: less(n, 3), *types, name="cond"),
        "body": fn(step, *types),
        "n_consts": 1,
    }
    module = Dce()(module_of(lambda p, n, x, y: while_(p, n, x, y, **big)[1], types))
    names = [n.op.name for n in all_nodes(module)]
    assert "exp" not in names
    assert "neg" in names
    loop = next(n for n in module.main.nodes if n.op.name == "while")
    assert len(loop.inputs) == 3


def test_gradients_of_pruned_loops_are_the_same_compiled():
    def f(x):
        def body(c):
            return c[0] + 1, c[1] * x, c[2] + c[1]

        _, a, _ = td.while_loop(lambda c: c[0] < 4, body, (0, td.ones(3), td.zeros(3)))
        carry, _ = td.scan(lambda h, row: (h * row, h + row), a, td.ones((2, 3)))
        return td.sum(carry)

    x = np.array([1.0, -2.0, 0.5], np.float32)
    np.testing.assert_allclose(td.grad(f)(x).numpy(), 4 * x**3, rtol=1e-6)
    np.testing.assert_allclose(td.jit(td.grad(f))(x).numpy(), 4 * x**3, rtol=1e-6)
