"""`fold_in` calls of one key become one: before and after, what stays apart, and that draws keep their bits."""

import numpy as np
from tests.transforms.support import check_pass, check_silent, module_of

import treadle as td
from treadle.ir import interp, verify
from treadle.ir.build import trace
from treadle.ir.op import Op
from treadle.ir.types import bool_, u32
from treadle.ops.control import if_
from treadle.ops.elementwise import add
from treadle.ops.random import fold_in
from treadle.ops.shape import concatenate, reshape, slice_
from treadle.transforms.gather_keys import GatherKeys
from treadle.transforms.pipeline import DEFAULT, Pipeline

KEY, NUMBER = u32[2], u32[()]
say = Op("say", "For tests: has an effect.", ("x",), {"type": lambda x: x, "ref": lambda x: x, "effect": "prints"}, "")


def rows(keys, n):
    return [reshape(slice_(keys, starts=(i, 0), limits=(i + 1, 2), strides=(1, 1)), shape=(2,)) for i in range(n)]


def merged(key, *numbers):
    return rows(fold_in(key, concatenate(*[reshape(n, shape=(1,)) for n in numbers], axis=0)), len(numbers))


def test_a_chain_of_counters():
    def before(key, n):
        found = []
        for _ in range(3):
            found.append(fold_in(key, n))
            n = add(n, 1)
        return [*found, n]

    def after(key, n):
        second = add(n, 1)
        third = add(second, 1)
        return [*merged(key, n, second, third), add(third, 1)]

    check_pass(GatherKeys(), before, after, KEY, NUMBER)


def test_each_key_has_its_own():
    def before(a, b, n, m):
        return fold_in(a, n), fold_in(b, n), fold_in(a, m), fold_in(b, m)

    def after(a, b, n, m):
        (first, third), (second, fourth) = merged(a, n, m), merged(b, n, m)
        return first, second, third, fourth

    check_pass(GatherKeys(), before, after, KEY, KEY, NUMBER, NUMBER)


def test_numbers_that_need_a_result_stay_apart():
    def word(key):
        return reshape(slice_(key, starts=(0,), limits=(1,), strides=(1,)), shape=())

    check_silent(GatherKeys(), lambda key, n: fold_in(key, word(fold_in(key, n))), KEY, NUMBER)
    check_silent(GatherKeys(), lambda key, n: fold_in(fold_in(key, n), n), KEY, NUMBER)

    def mixed(key, n, m):
        first = fold_in(key, n)
        return first, fold_in(key, word(first)), fold_in(key, m)

    def after(key, n, m):
        first, last = merged(key, n, m)
        return first, fold_in(key, word(first)), last

    check_pass(GatherKeys(), mixed, after, KEY, NUMBER, NUMBER)


def test_vectors_single_calls_and_effects_are_left_alone():
    check_silent(GatherKeys(), lambda key, n: fold_in(key, n), KEY, NUMBER)
    check_silent(GatherKeys(), lambda key, n, m: (fold_in(key, n), fold_in(key, m)), KEY, u32[3], u32[3])
    check_silent(GatherKeys(), lambda key, n, m: (fold_in(key, n), fold_in(key, say(m))), KEY, NUMBER, NUMBER)


def test_regions():
    def branches(then):
        return {"then": trace(then, (KEY, NUMBER), "then"), "orelse": trace(lambda k, n: (k, k), (KEY, NUMBER), "else")}

    before = branches(lambda k, n: (fold_in(k, n), fold_in(k, add(n, 1))))
    after = branches(lambda k, n: tuple(merged(k, n, add(n, 1))))
    types = (bool_[()], KEY, NUMBER)
    check_pass(GatherKeys(), lambda p, k, n: if_(p, k, n, **before), lambda p, k, n: if_(p, k, n, **after), *types)


def test_many_draws_need_no_deep_recursion():
    def f(key, n):
        for _ in range(3000):
            last = fold_in(key, n)
            n = add(n, 1)
        return last

    module = verify.verify(GatherKeys()(module_of(f, (KEY, NUMBER))))
    assert [n.op.name for n in module.main.nodes].count("fold_in") == 1
    given = np.array([3, 4], np.uint32), np.uint32(5)
    single = module_of(lambda key, n: fold_in(key, n), (KEY, NUMBER))
    wanted = interp.run(single, given[0], np.uint32(3004))[0]
    np.testing.assert_array_equal(interp.run(module, *given)[0], wanted)


def test_dropouts_of_a_network_make_their_keys_at_once():
    def f(x):
        for _ in range(4):
            x = td.nn.functional.dropout(x, 0.5)
        return x

    x = np.ones(64, np.float32)
    module = td.trace_module(f, x)
    ready = Pipeline.parse(DEFAULT).run(module)
    count = [[n.op.name for n in m.main.nodes].count("fold_in") for m in (module, ready)]
    assert count == [4, 1]
    td.manual_seed(7)
    eager = f(td.Tensor(x)).numpy()
    td.manual_seed(7)
    np.testing.assert_array_equal(td.jit(f)(x).numpy(), eager)
