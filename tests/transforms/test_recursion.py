"""Recursive functions as loops: against the interpreter, which really calls; compiled; gradients of first and second
order against finite differences; random programs."""

import random

import numpy as np
import pytest

from treadle import driver, ops
from treadle.base import flags
from treadle.base.errors import UserError
from treadle.ir import build, interp
from treadle.ir.node import Module
from treadle.ir.types import bool_, f64, i32
from treadle.ir.verify import verify
from treadle.ir.walk import all_nodes
from treadle.transforms.grad import vjp
from treadle.transforms.recursion import as_loop

I, X = i32[()], f64[()]
V = f64[2]


def call(*args, name="f", results=(X,)):
    found = ops.call(*args, callee=name, results=results)
    return found[0] if len(results) == 1 else found


def choose(pred, args, then, orelse):
    types = [a.type for a in args]
    found = ops.if_(pred, *args, then=build.trace(then, types, "then"), orelse=build.trace(orelse, types, "orelse"))
    return found[0] if len(found) == 1 else found


def loop_of(fn, fns=None, capacity=0):
    fns = {fn.name: fn, **(fns or {})}
    made = as_loop(fn, fn.name, fns, capacity)
    stay = {k: f for k, f in fns.items() if not recursive(k, fns)}
    verify(Module.of(made, stay))
    return Module.of(made, stay)


def recursive(name, fns):
    """Whether it comes to a function that calls itself."""
    paths = [(name,)]
    while paths:
        path = paths.pop()
        for node in all_nodes(fns[path[-1]]):
            if "callee" in node.attrs:
                if node.attrs["callee"] in path:
                    return True
                paths.append((*path, node.attrs["callee"]))
    return False


def direct(fn, arrays, fns=None):
    """By real calls."""
    with np.errstate(all="ignore"):
        return interp.run(Module({fn.name: fn, **(fns or {}), "main": fn}), *arrays)


def compiled(module, arrays):
    with flags.override(cache=False):
        return driver.compile_module(driver.optimise(module)).call(arrays)


def check(fn, *argument_sets, fns=None, capacity=0, run=False):
    """The loop gives what the calls give; run: compiled too."""
    made = loop_of(fn, fns, capacity)
    ways = [lambda arrays: interp.run(made, *arrays)]
    if run:
        with flags.override(cache=False):
            ways.append(driver.compile_module(driver.optimise(made)).call)
    for arrays in argument_sets:
        wanted = direct(fn, arrays, fns)
        for way in ways:
            for a, b in zip(way(arrays), wanted, strict=True):
                np.testing.assert_allclose(np.asarray(a), b, rtol=1e-12)
    return made


def counted(made, op="exchange"):
    return sum(n.op.name == op for n in all_nodes(made))


def n(*values):
    return [np.array(v, np.int32) for v in values]


# ------------------------------------------------------------------------------------------------- the known functions
def factorial():
    body = lambda n: choose(n <= 1, [n], lambda n: n * 0 + 1, lambda n: n * call(n - 1, results=(I,)))
    return build.trace(body, [I], "f")


def fibonacci():
    both = lambda n: call(n - 1, results=(I,)) + call(n - 2, results=(I,))
    return build.trace(lambda n: choose(n < 2, [n], lambda n: n, both), [I], "f")


def test_factorial():
    made = check(factorial(), *[n(v) for v in (-3, 0, 1, 2, 5, 12)], run=True)
    assert counted(made) == 2, "one stack for n, one for where to go on"


def test_fibonacci():
    check(fibonacci(), *[n(v) for v in range(9)])
    assert compiled(loop_of(fibonacci()), n(20))[0] == 6765


def test_a_call_in_an_argument_of_a_call():
    def more(m, n):
        inner = lambda m, n: call(m - 1, call(m, n - 1, results=(I,)), results=(I,))
        return choose(ops.equal(n, 0), [m, n], lambda m, n: call(m - 1, n * 0 + 1, results=(I,)), inner)

    fn = build.trace(lambda m, n: choose(ops.equal(m, 0), [m, n], lambda m, n: n + 1, more), [I, I], "f")
    check(fn, *[n(a, b) for a, b in ((0, 0), (1, 3), (2, 2), (2, 0))])
    assert compiled(loop_of(fn), n(2, 9))[0] == 21


def test_tail_calls_need_no_stack():
    def body(n, x):
        return choose(n <= 0, [n, x], lambda n, x: x, lambda n, x: call(n - 1, ops.sin(x) + x))

    fn = build.trace(body, [I, X], "f")
    made = check(fn, *[[*n(v), np.float64(0.3)] for v in (0, 1, 50)], run=True)
    assert counted(made) == 0 and counted(made, "host_call") == 0
    deep = compiled(made, [*n(100_000), np.float64(0.3)])
    assert abs(float(deep[0]) - np.pi) < 1e-9


def test_what_never_changes_is_not_on_a_stack():
    row, w = f64[1, 4], f64[4, 4]

    def more(n, x, w):
        return call(n - 1, ops.tanh(x @ w), w, results=(row,)) * ops.reduce_sum(w, axes=(0,))

    body = lambda n, x, w: choose(n <= 0, [n, x, w], lambda n, x, w: x, more)
    made = check(
        build.trace(body, [I, row, w], "f"), [*n(7), np.ones((1, 4)) / 3, np.linspace(-1, 1, 16).reshape(4, 4)]
    )
    (loop,) = [node for node in made.main.nodes if node.op.name == "while"]
    carried = [v.type for v in loop.inputs[loop.attrs["n_consts"] :]]
    assert w not in carried
    assert [t for t in carried if t.shape[0:1] == (1026,)] == [i32[1026]], "the sums of w are made again, not kept"


def mutual():
    even = lambda n: choose(
        n <= 0, [n], lambda n: ops.equal(n, 0), lambda n: call(n - 1, name="odd", results=(bool_[()],))
    )
    odd = lambda n: choose(n <= 0, [n], lambda n: ops.less(n, 0), lambda n: call(n - 1, name="f", results=(bool_[()],)))
    return build.trace(even, [I], "f"), {"odd": build.trace(odd, [I], "odd")}


def test_functions_that_call_each_other():
    fn, fns = mutual()
    check(fn, *[n(v) for v in (0, 1, 6, 7)], fns=fns, run=True)


def test_functions_that_call_each_other_and_keep_values():
    def f(n, x):
        more = lambda n, x: call(n - 1, x * 1.5, name="g", results=(I, X))[1] - x
        return choose(n <= 0, [n, x], lambda n, x: x, more)

    def g(n, x):
        more = lambda n, x: (n + 3, ops.sin(call(n - 2, x) * x + call(n - 1, x + 1.0)))
        return choose(n <= 0, [n, x], lambda n, x: (n, x * x), more)

    fns = {"g": build.trace(g, [I, X], "g")}
    fn = build.trace(f, [I, X], "f")
    check(fn, *[[*n(v), np.float64(0.4)] for v in (0, 1, 2, 7)], fns=fns, run=True)
    gradient(fn, [*n(6), np.float64(0.4)], fns=fns)


def test_other_functions_stay_called():
    fns = {"square": build.trace(lambda x: x * x, [X], "square")}
    more = lambda n, x: call(call(n - 1, x * 0.5), name="square") + 1.0
    fn = build.trace(lambda n, x: choose(n <= 0, [n, x], lambda n, x: x, more), [I, X], "f")
    made = as_loop(fn, "f", fns)
    verify(Module.of(made, fns))
    arrays = [*n(4), np.float64(0.7)]
    assert interp.run(Module.of(made, fns), *arrays) == direct(fn, arrays, fns)


def test_what_calls_recursive_functions_is_part_of_the_loop():
    fns = {"f": factorial(), "g": build.trace(lambda n: call(n, results=(I,)), [I], "g")}
    fns["h"] = build.trace(lambda n: call(n + 1, name="g", results=(I,)) * 2, [I], "h")
    fn = build.trace(lambda n: call(n, name="h", results=(I,)) - call(n, name="g", results=(I,)), [I], "start")
    check(fn, *[n(v) for v in (0, 1, 4)], fns=fns, run=True)


def test_a_function_without_recursion_is_left_alone():
    fn = build.trace(lambda x: x * x, [X], "f")
    assert as_loop(fn, "f", {}) is fn


# ---------------------------------------------------------------------------------------------------------------- trees
def tree_sum():
    """sum over a binary tree of value * 2 ** (turns to the right)."""

    def at(stack, i):
        sizes = (1, *stack.shape[1:])
        return ops.reshape(ops.dynamic_slice(stack, i, sizes=sizes), shape=())

    def both(i, left, right, v):
        rest = (left, right, v)
        return call(at(left, i), *rest) + call(at(right, i), *rest) * 2.0 * ops.sin(at(v, i))

    def body(i, left, right, v):
        args = [i, left, right, v]
        return choose(at(left, i) < 0, args, lambda i, left, right, v: at(v, i), both)

    return build.trace(body, [I, i32[15], i32[15], f64[15]], "f")


def a_tree(seed):
    """A random binary tree of at most 15 nodes: root 0, children by index, -1 at leaves."""
    rng = np.random.default_rng(seed)
    left, right = np.full(15, -1, np.int32), np.full(15, -1, np.int32)
    leaves, used = [0], 1
    while used + 2 <= 15 and leaves and rng.uniform() < 0.9:
        i = leaves.pop(rng.integers(len(leaves)))
        left[i], right[i] = used, used + 1
        leaves += [used, used + 1]
        used += 2
    return [np.int32(0), left, right, rng.normal(size=15)]


def test_trees_and_their_gradients():
    fn = tree_sum()
    made = check(fn, *[a_tree(seed) for seed in range(6)])
    for seed in range(4):
        gradient(fn, a_tree(seed), made=made)
    with flags.override(cache=False):
        program = driver.compile_module(driver.optimise(made))
    for seed in range(10):
        np.testing.assert_allclose(np.asarray(program.call(a_tree(seed))[0]), direct(fn, a_tree(seed))[0], rtol=1e-12)


# ---------------------------------------------------------------------------------------------------------- in loops
def in_while():
    def again(m, n, i, acc):
        return i < m

    def step(m, n, i, acc):
        return i + 1, ops.tanh(acc + call(n - 1, acc * 0.5 + 0.1))

    def more(n, x):
        types = [I, I, I, X]
        bodies = {"cond": build.trace(again, types, "again"), "body": build.trace(step, types, "step")}
        _, acc = ops.while_(n, n, n * 0, x, **bodies, n_consts=2)
        return acc * x

    return build.trace(lambda n, x: choose(n <= 0, [n, x], lambda n, x: x + 1.0, more), [I, X], "f")


def in_scan():
    def step(n, acc, x):
        new = acc + call(n - 1, x) * x
        return new, new * acc

    def more(n, x):
        xs = ops.concatenate(ops.reshape(x, shape=(1,)), ops.reshape(x * 0.5, shape=(1,)), axis=0)
        body = build.trace(step, [I, X, X], "step")
        last, all_ = ops.scan(n, x, xs, body=body, n_consts=1, n_carry=1, length=2, reverse=True)
        return last + ops.reduce_sum(all_, axes=(0,))

    return build.trace(lambda n, x: choose(n <= 0, [n, x], lambda n, x: ops.sin(x), more), [I, X], "f")


def in_remat():
    body = build.trace(lambda n, x: ops.sin(call(n - 1, x * 1.1)) * x, [I, X], "again")
    more = lambda n, x: ops.remat(n, x, body=body)[0]
    return build.trace(lambda n, x: choose(n <= 0, [n, x], lambda n, x: x, more), [I, X], "f")


@pytest.mark.parametrize("make", [in_while, in_scan, in_remat])
def test_calls_in_bodies(make):
    fn = make()
    made = check(fn, *[[*n(v), np.float64(0.3)] for v in (0, 1, 2, 3)])
    check(fn, [*n(3), np.float64(-0.2)], run=True)
    gradient(fn, [*n(3), np.float64(0.3)], made=made)


def test_a_call_in_a_condition():
    def again(n, i, x):
        return ops.logical_and(i < 4, call(n - 1, x) < 3.0)

    def more(n, x):
        types = [I, I, X]
        bodies = {"cond": build.trace(again, types), "body": build.trace(lambda n, i, x: (i + 1, x * 1.2), types)}
        return ops.while_(n, n * 0, x, **bodies, n_consts=1)[1]

    fn = build.trace(lambda n, x: choose(n <= 0, [n, x], lambda n, x: x + 0.5, more), [I, X], "f")
    check(fn, *[[*n(v), np.float64(x)] for v in (0, 1, 3) for x in (0.9, 2.9)], run=True)


def test_a_body_that_cannot_be_taken_apart_is_refused():
    body = build.trace(lambda x: call(x), [X], "inner")
    backward = build.trace(lambda x, y, d: d, [X, X, X], "back")
    fn = build.trace(lambda x: ops.custom_vjp(x, body=body, backward=backward, n_outputs=1), [X], "f")
    with pytest.raises(UserError, match=r"E0313.*custom_vjp"):
        as_loop(fn, "f", {})


# --------------------------------------------------------------------------------------------------------------- depth
def test_as_deep_as_the_stack_and_no_deeper():
    made = loop_of(factorial(), capacity=5)
    assert interp.run(made, *n(6))[0] == 720
    with pytest.raises(UserError, match=r"E0312.*f called itself more than 5 deep"):
        interp.run(made, *n(7))
    program = driver.compile_module(driver.optimise(made))
    assert program.call(n(6))[0] == 720
    with pytest.raises(UserError, match="E0312"):
        np.asarray(program.call(n(7))[0])
    assert program.call(n(4))[0] == 24


def test_the_flag_sets_the_depth():
    with flags.override(recursion=3):
        made = loop_of(factorial())
    with pytest.raises(UserError, match="more than 3 deep"):
        interp.run(made, *n(9))
    assert counted(made, "host_call") == 1


def test_large_frames_make_a_shorter_stack():
    t = f64[1 << 20]
    more = lambda n, x: call(n - 1, x * 2.0, results=(t,)) * x
    made = loop_of(build.trace(lambda n, x: choose(n <= 0, [n, x], lambda n, x: x, more), [I, t], "f"))
    (loop,) = [node for node in made.main.nodes if node.op.name == "while"]
    assert max(v.type.bytes for v in loop.inputs) == 66 * t.bytes


# ----------------------------------------------------------------------------------------------------------- gradients
def gradient(fn, arrays, fns=None, made=None, second=True):
    """The gradients of the loop against differences of real calls, and those of these gradients against differences."""
    made = loop_of(fn, fns) if made is None else made
    module = verify(vjp(made))
    rng = np.random.default_rng(7)
    floats = [i for i, a in enumerate(arrays) if np.asarray(a).dtype == np.float64]
    cts = [rng.normal(size=t.shape) for t in made.main.out_types]
    against(lambda a: direct(fn, a, fns), arrays, floats, cts, interp.run(module, *arrays, *cts), rng)
    if second:
        more = [rng.normal(size=t.shape) for t in module.main.out_types]
        wrt = list(range(len(module.main.params)))
        floats = [i for i in wrt if module.main.in_types[i].dtype.is_inexact]
        inputs = [*arrays, *cts]
        found = interp.run(verify(vjp(module)), *inputs, *more)
        against(lambda a: interp.run(module, *a), inputs, floats, more, found, rng)


def against(function, arrays, floats, cts, grads, rng, eps=1e-6):
    directions = {i: rng.normal(size=np.shape(arrays[i])) for i in floats}
    sides = []
    for sign in (eps, -eps):
        moved = [a + sign * directions[i] if i in directions else a for i, a in enumerate(arrays)]
        sides.append(sum(float(np.sum(c * y)) for c, y in zip(cts, function(moved), strict=True)))
    wanted = (sides[0] - sides[1]) / (2 * eps)
    parts = [float(np.sum(g * directions[i])) for g, i in zip(grads, floats, strict=True)]
    assert abs(sum(parts) - wanted) <= 1e-5 * (1 + sum(map(abs, parts))), (parts, wanted)


def powers():
    more = lambda n, x, y: ops.sin(call(n - 1, x * 0.9, y) * x) + call(n - 2, x + 0.1, y) * y
    body = lambda n, x, y: choose(n <= 0, [n, x, y], lambda n, x, y: x * x, more)
    return build.trace(body, [I, X, X], "f")


@pytest.mark.parametrize("depth", [0, 1, 2, 6])
def test_gradients(depth):
    gradient(powers(), [*n(depth), np.float64(0.7), np.float64(0.4)])


def test_gradients_of_tail_calls():
    more = lambda n, x, y: call(n - 1, ops.sin(x * y) + x, y)
    fn = build.trace(lambda n, x, y: choose(n <= 0, [n, x, y], lambda n, x, y: x, more), [I, X, X], "f")
    gradient(fn, [*n(5), np.float64(0.3), np.float64(0.8)])


def test_compiled_gradients():
    arrays = [*n(7), np.float64(0.7), np.float64(0.4)]
    module = vjp(loop_of(powers()))
    second = vjp(module)
    cts = [np.ones(t.shape) * 0.7 for t in second.main.in_types[3:]]
    for a, b in zip(compiled(second, [*arrays, *cts]), interp.run(second, *arrays, *cts), strict=True):
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-9)


def test_no_stack_among_the_residuals():
    module = vjp(loop_of(powers(), capacity=333))
    types = {v.type for node in all_nodes(module.main) for v in node.outputs}
    sizes = {t.shape[0] for t in types if t.rank > 1}
    assert sizes == set(), f"a stack of stacks: {sizes}"
    assert {t.shape[0] for t in types if t.rank == 1} == {1, 335, 1024}


def test_more_trips_than_residuals_are_kept_for():
    more = lambda n, x: call(n - 1, x * 0.999) * 0.999 + ops.sin(x) * 1e-3
    fn = build.trace(lambda n, x: choose(n <= 0, [n, x], lambda n, x: x, more), [I, X], "f")
    arrays = [*n(1000), np.float64(0.7)]
    module = vjp(loop_of(fn))
    k = np.arange(1000)
    wanted = 0.999**2000 + np.sum(0.999**k * np.cos(0.999**k * 0.7) * 0.999**k) * 1e-3
    np.testing.assert_allclose(np.asarray(compiled(module, [*arrays, np.float64(1)])[0]), wanted, rtol=1e-9)


# ------------------------------------------------------------------------------------------------------ random programs
class Program:
    """Random functions f and g of (n, x, w), which call each other with a smaller n; `calls` are left to be made."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.calls = 0
        self.inside = 0  # bodies around

    def group(self):
        fns = {name: build.trace(self.body, [I, V, V], name) for name in ("f", "g")}
        return fns.pop("f"), fns

    def body(self, n, x, w):
        self.calls = 3
        stop = lambda n, x, w: ops.tanh(x * w) + x
        return choose(n <= 0, [n, x, w], stop, lambda n, x, w: self.steps(n, [x, w], self.rng.randrange(3, 7)))

    def steps(self, n, pool, count):
        pool = list(pool)
        for _ in range(count):
            kinds = [self.plain, self.plain, self.call, self.call]
            kinds += [self.branch, self.loop, self.scan, self.remat] if self.inside < 2 else []
            pool.append(self.rng.choice(kinds)(n, pool))
        return ops.tanh(pool[-1] + self.rng.choice(pool) * 0.5)

    def plain(self, n, pool):
        x, y = self.rng.choice(pool), self.rng.choice(pool)
        return self.rng.choice([lambda: x * y, lambda: ops.sin(x) + y, lambda: x - y * 0.5, lambda: x * 1.25])()

    def call(self, n, pool):
        if not self.calls:
            return self.plain(n, pool)
        self.calls -= 1
        w = pool[1] if self.rng.random() < 0.6 else self.rng.choice(pool)
        less = self.rng.choice([1, 1, 2])
        return call(n - less, self.rng.choice(pool), w, name=self.rng.choice("ffg"), results=(V,))

    def inner(self, pool):
        """A function of (n, *pool) with one value."""
        count = self.rng.randrange(1, 3)

        def function(n, *pool):
            self.inside += 1
            result = self.steps(n, pool, count)
            self.inside -= 1
            return result

        return function

    def branch(self, n, pool):
        args = [n, *pool[:2], pool[-1]]
        x = self.rng.choice(pool)
        total = ops.reduce_sum(x, axes=(0,))
        pred = self.rng.choice([lambda: total > 0.05, lambda: ops.equal(n, 2)])()
        return choose(pred, args, self.inner(pool), self.inner(pool))

    def loop(self, n, pool):
        types = [I, V, V, I, V]
        trips = self.rng.randrange(0, 3)
        test = build.trace(lambda n, a, w, i, c: i < trips, types, "again")
        inner = self.inner(pool)
        step = build.trace(lambda n, a, w, i, c: (i + 1, inner(n, a, w, c)), types, "step")
        return ops.while_(n, pool[0], pool[1], n * 0, pool[-1], cond=test, body=step, n_consts=3)[1]

    def scan(self, n, pool):
        inner = self.inner(pool)
        body = build.trace(lambda n, w, c: (inner(n, c, w), ops.sin(c)), [I, V, V], "step")
        trips = {"length": self.rng.randrange(0, 3), "reverse": False}
        last, rows = ops.scan(n, pool[1], pool[-1], body=body, n_consts=2, n_carry=1, **trips)
        return last + ops.reduce_sum(rows, axes=(0,))

    def remat(self, n, pool):
        args = [n, *pool[:2]]
        body = build.trace(self.inner(pool), [a.type for a in args], "again")
        return ops.remat(*args, body=body)[0]


def random_case(seed):
    fn, fns = Program(seed).group()
    rng = np.random.default_rng(seed)
    return fn, fns, [[*n(depth), rng.normal(size=2), rng.normal(size=2)] for depth in (0, 1, 3)]


@pytest.mark.parametrize("chunk", range(4))
def test_random_programs(chunk):
    for seed in range(chunk, 40, 4):
        fn, fns, cases = random_case(seed)
        check(fn, *cases, fns=fns)


def test_random_programs_compiled():
    for seed in range(60, 62):
        fn, fns, cases = random_case(seed)
        check(fn, cases[-1], fns=fns, run=True)


def test_random_gradients():
    for seed in range(100, 106):
        fn, fns, cases = random_case(seed)
        gradient(fn, cases[1], fns=fns, second=seed == 104)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(4))
def test_more_random_programs(chunk):
    for seed in range(1000 + chunk, 1400, 4):
        fn, fns, cases = random_case(seed)
        check(fn, *cases, fns=fns, run=seed % 10 == 0)
        gradient(fn, cases[2], fns=fns, second=seed % 5 == 0)
