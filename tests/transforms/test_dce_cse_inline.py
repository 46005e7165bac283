"""Dead code, common subexpressions and inlining: before and after, regions, functions, effects."""

import numpy as np
import pytest
from tests.transforms.support import check_pass, check_silent, module_of

from treadle.ir import interp, verify
from treadle.ir.build import append, trace
from treadle.ir.node import Fn, Module, Value
from treadle.ir.op import OPS, Op
from treadle.ir.types import bool_, f32
from treadle.ops.calls import call
from treadle.ops.control import if_
from treadle.ops.elementwise import add, mul, neg, sub
from treadle.ops.functions import exp, tanh
from treadle.transforms.cse import Cse
from treadle.transforms.dce import Dce
from treadle.transforms.inline import Inline

T = f32[3]
RULES = {"type": lambda x: x, "ref": lambda x: x, "effect": "prints"}
say = Op("say", "For tests: has an effect.", ("x",), RULES, "here")


def f(x):
    return call(x, callee="f", results=(T,))[0]


def with_fns(main, *fns: Fn) -> Module:
    return Module.of(main if isinstance(main, Fn) else trace(main, [T], "main"), {fn.name: fn for fn in fns})


def branches(then, orelse, *types):
    return {"then": trace(then, types, "then"), "orelse": trace(orelse, types, "orelse")}


def test_dce_leaves_out_what_is_unused():
    check_pass(Dce(), lambda x: (exp(x), neg(x))[1], lambda x: neg(x), T)
    check_silent(Dce(), lambda x: neg(exp(x)), T)


def test_dce_keeps_effects_and_what_they_need():
    check_silent(Dce(), lambda x: (say(exp(x)), neg(x))[1], T)


def test_dce_works_in_regions():
    one = branches(lambda x: (exp(x), neg(x))[1:], lambda x: (x,), T)
    two = branches(lambda x: (neg(x),), lambda x: (x,), T)
    check_pass(Dce(), lambda p, x: if_(p, x, **one)[0], lambda p, x: if_(p, x, **two)[0], bool_[()], T)


def test_dce_keeps_a_region_with_an_effect():
    loud = branches(lambda x: (say(x),), lambda x: (x,), T)
    check_silent(Dce(), lambda p, x: (if_(p, x, **loud), neg(x))[1], bool_[()], T)


def test_dce_drops_functions_that_nobody_calls():
    fn = trace(lambda x: neg(x), [T], "f")
    module = with_fns(lambda x: exp(x), fn, trace(f, [T], "g"))
    assert list(Dce()(module).fns) == ["main"]
    assert list(Dce()(with_fns(f, fn)).fns) == ["main", "f"]


def test_dce_drops_calls_only_of_functions_without_effect():
    quiet, loud = (trace(op, [T], "f") for op in (neg, say))
    assert not Dce()(with_fns(lambda x: (f(x), x)[1], quiet)).main.nodes
    module = with_fns(lambda x: (f(x), x)[1], loud)
    assert Dce()(module) is module


def test_dce_uses_the_prune_rule():
    def prune(node, used):
        return (neg(node.inputs[0]), None) if used == (True, False) else None

    both = Op("both", "For tests: -x and exp x.", ("x",), {
        "type": lambda x: (x, x), "ref": lambda x: (-x, np.exp(x)), "prune": prune, "has_regions": True,
    }, "here")  # fmt: skip
    both.rules["ref"] = lambda run, x: (-x, np.exp(x))
    check_pass(Dce(), lambda x: neg(both(x)[0]), lambda x: neg(neg(x)), T)
    check_silent(Dce(), lambda x: both(x), T)
    check_silent(Dce(), lambda x: both(x)[1], T)


def test_cse_merges_equal_nodes():
    check_pass(Cse(), lambda x: add(exp(neg(x)), exp(neg(x))), lambda x: (lambda y: add(y, y))(exp(neg(x))), T)
    check_silent(Cse(), lambda x, y: add(exp(x), exp(y)), T, T)
    check_silent(Cse(), lambda x, y: mul(sub(x, y), sub(y, x)), T, T)


def test_cse_compares_attributes_by_their_bits():
    check_silent(Cse(), lambda x: add(add(x, 0.0), add(x, -0.0)), T)
    check_silent(Cse(), lambda x: add(add(x, 1.0), add(x, 2.0)), T)


def test_cse_keeps_effects_apart():
    check_silent(Cse(), lambda x: add(say(x), say(x)), T)
    module = with_fns(lambda x: add(f(x), f(x)), trace(say, [T], "f"))
    assert Cse()(module) is module
    module = with_fns(lambda x: add(f(x), f(x)), trace(neg, [T], "f"))
    assert len(Cse()(module).main.nodes) == 2


def test_cse_works_in_regions_and_does_not_look_out_of_them():
    one = branches(lambda x: add(exp(x), exp(x)), lambda x: (x,), T)
    two = branches(lambda x: (lambda y: add(y, y))(exp(x)), lambda x: (x,), T)
    before, after = (lambda p, x, r=r: add(exp(x), if_(p, x, **r)[0]) for r in (one, two))
    check_pass(Cse(), before, after, bool_[()], T)


def test_inline():
    module = with_fns(lambda x: add(f(x), f(neg(x))), trace(lambda x: exp(tanh(x)), [T], "f"))
    check_pass(Inline(), module, lambda x: add(exp(tanh(x)), exp(tanh(neg(x)))), T)


def test_inline_keeps_the_order_of_arguments_and_results():
    def both(x, y):
        return call(x, y, callee="f", results=(T, T))

    module = Module.of(trace(both, [T, T], "main"), {"f": trace(lambda x, y: (sub(x, y), exp(y)), [T, T], "f")})
    check_pass(Inline(), module, lambda x, y: (sub(x, y), exp(y)), T, T)


def test_inline_through_functions_and_regions():
    region = branches(lambda x: f(x), lambda x: (x,), T)
    flat = branches(lambda x: neg(neg(x)), lambda x: (x,), T)
    main = trace(lambda p, x: if_(p, x, **region)[0], [bool_[()], T], "main")
    twice = trace(lambda x: call(call(x, callee="g", results=(T,))[0], callee="g", results=(T,))[0], [T], "f")
    module = with_fns(main, twice, trace(neg, [T], "g"))
    check_pass(Inline(), module, lambda p, x: if_(p, x, **flat)[0], bool_[()], T)


def test_inline_leaves_recursion_alone():
    def main(x):
        return f(x)

    def countdown(x):
        stop = {"then": trace(lambda x: (x,), [T], "then"), "orelse": trace(f, [T], "orelse")}
        zero = bool_[()]
        always = append(OPS["full"], (), {"value": True, "shape": (), "dtype": zero.dtype}, (zero,)).outputs[0]
        return if_(always, neg(x), **stop)[0]

    module = with_fns(main, trace(countdown, [T], "f"))
    assert Inline()(module) is module


@pytest.mark.parametrize("options, left", [({"max_nodes": 1}, 2), ({"max_nodes": 2}, 0), ({"only_once": True}, 2)])
def test_inline_options(options, left):
    module = with_fns(lambda x: add(f(x), f(neg(x))), trace(lambda x: exp(tanh(x)), [T], "f"))
    changed = verify.verify(Inline(**options)(module))
    assert sum(n.op.name == "call" for n in changed.main.nodes) == left
    x = np.array([1.0, 2.0, -1.0], np.float32)
    assert np.array_equal(interp.run(changed, x)[0], interp.run(module, x)[0])


def test_passes_share_what_they_do_not_change():
    module = module_of(lambda x: (exp(x), tanh(neg(x)))[1], (T,))
    kept = Dce()(module).main.nodes
    assert kept == module.main.nodes[1:]
    assert isinstance(kept[0].outputs[0], Value)
