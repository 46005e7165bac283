"""Repeated layers become one function: forward, backward, shared constants; what must stay; numbers keep every bit."""

import time

import numpy as np
import pytest
from tests.transforms.support import assert_same_bits, check_same_numbers, check_silent, module_of

from treadle.base import where
from treadle.ir import interp, verify
from treadle.ir.node import Module
from treadle.ir.types import f32, f64
from treadle.ops.elementwise import add, div, mul, neg, sub
from treadle.ops.functions import exp, sqrt, tanh
from treadle.ops.products import matmul
from treadle.ops.reduce import broadcast_to, reduce_max, reduce_sum
from treadle.ops.shape import reshape, transpose
from treadle.transforms.grad import vjp
from treadle.transforms.outline import Outline
from treadle.transforms.pipeline import Pipeline

T, D, H = 4, 6, 2  # tokens, width, heads of the small transformer


def spread(x, like):
    return broadcast_to(reshape(x, shape=(*x.shape, 1)), shape=like.shape)


def norm(x, gain):
    centred = sub(x, spread(div(reduce_sum(x, axes=(1,)), float(D)), x))
    variance = div(reduce_sum(mul(centred, centred), axes=(1,)), float(D))
    return mul(div(centred, spread(sqrt(add(variance, 1e-5)), x)), gain)


def softmax(x):
    powers = exp(sub(x, broadcast_to(reshape(reduce_max(x, axes=(2,)), shape=(H, T, 1)), shape=x.shape)))
    total = broadcast_to(reshape(reduce_sum(powers, axes=(2,)), shape=(H, T, 1)), shape=x.shape)
    return div(powers, total)


def heads(x):
    return transpose(reshape(x, shape=(T, H, D // H)), perm=(1, 0, 2))


def layer(x, g1, wq, wk, wv, wo, g2, w1, w2):
    with where.scope("attention"):
        y = norm(x, g1)
        q, k, v = (heads(matmul(y, w)) for w in (wq, wk, wv))
        weights = softmax(div(matmul(q, transpose(k, perm=(0, 2, 1))), 2.0))
        x = add(x, matmul(reshape(transpose(matmul(weights, v), perm=(1, 0, 2)), shape=(T, D)), wo))
    with where.scope("mlp"):
        return add(x, matmul(tanh(matmul(norm(x, g2), w1)), w2))


def parameter_types(kind=f64):
    return [kind[D], *[kind[D, D]] * 4, kind[D], kind[D, 2 * D], kind[2 * D, D]]


def gpt(layers, scopes=True, kind=f64) -> Module:
    """x, then eight parameters per layer -> the mean of squares."""

    def main(x, *parameters):
        for i in range(layers):
            with where.scope(f"layers.{i}" if scopes else "net"):
                x = layer(x, *parameters[8 * i : 8 * i + 8])
        return reduce_sum(mul(x, x), axes=(0, 1))

    return module_of(main, (kind[T, D], *parameter_types(kind) * layers))


def calls(module, name="main"):
    return [n.attrs["callee"] for n in module.fns[name].nodes if n.op.name == "call"]


@pytest.mark.parametrize("scopes", [True, False])
@pytest.mark.parametrize("prepare", ["", "cse", "algebra,fold,algebra,cse,dce"])
def test_layers_of_a_transformer(prepare, scopes):
    module = Pipeline.parse(prepare).run(gpt(5, scopes))
    changed = verify.verify(Outline()(module))
    found = calls(changed)
    assert len(found) >= 4 and len(set(found)) == 1
    body = changed.fns[found[0]]
    assert len(changed.main.nodes) + len(body.nodes) < 0.5 * len(module.main.nodes)
    check_same_numbers(module, changed, special=False)
    assert_same_bits(results(Pipeline.parse("inline").run(changed)), results(module))
    assert str(Outline()(changed)) == str(changed)


def results(module):
    rng = np.random.default_rng(0)
    return interp.run(module, *[rng.normal(size=t.shape).astype(t.dtype.np) for t in module.main.in_types])


@pytest.mark.parametrize("prepare", ["", "algebra,fold,algebra,cse,dce"])
def test_forward_and_backward_of_a_transformer(prepare):
    module = Pipeline.parse(prepare).run(vjp(gpt(6)))
    changed = verify.verify(Outline()(module))
    found = calls(changed)
    assert len(found) >= 10
    nodes = {name: len(fn.nodes) for name, fn in changed.fns.items()}
    assert sum(nodes.values()) < 0.5 * len(module.main.nodes), nodes
    assert_same_bits(results(changed), results(module))


def test_the_function_is_named_after_the_scope():
    assert set(calls(Outline()(gpt(3)))) == {"layers"}
    unnamed = gpt(3, scopes=False)
    assert set(calls(Outline()(unnamed))) == {"net"}


def chain(*steps):
    """Each step is a function of (x, w_i)."""
    return lambda x, *ws: [x := step(x, w) for step, w in zip(steps, ws, strict=True)][-1]


def long(x, w):
    return tanh(add(mul(x, w), neg(exp(tanh(sub(x, w))))))


def test_few_nodes_or_few_copies_stay():
    check_silent(Outline(), chain(*[lambda x, w: tanh(mul(x, w))] * 6), *[f32[3]] * 7)
    check_silent(Outline(min_copies=4), chain(long, long, long), *[f32[3]] * 4)
    assert calls(Outline(min_nodes=7, min_copies=3)(module_of(chain(long, long, long), (f32[3],) * 4)))


def test_layers_of_other_wiring_types_or_attributes_stay():
    def other(x, w):
        product = mul(x, w)
        return tanh(add(neg(exp(tanh(sub(x, w)))), product))

    options = Outline(min_nodes=6)
    check_silent(options, chain(long, other), *[f32[3]] * 3)
    check_silent(options, chain(lambda x, w: long(x, mul(w, 2.0)), lambda x, w: long(x, mul(w, 3.0))), *[f32[3]] * 3)
    wider = chain(long, lambda x, w: reduce_sum(long(broadcast_to(x, shape=(2, 3)), w), axes=(0,)))
    check_silent(options, wider, *[f32[3]] * 3)


def test_one_odd_layer_is_left_out():
    def odd(x, w):
        product = mul(x, w)
        return tanh(add(neg(exp(tanh(sub(x, w)))), product))

    steps = [long, long, long, odd, long, long, long]
    module = module_of(chain(*steps), (f32[3],) * 8)
    changed = verify.verify(Outline(min_nodes=7)(module))
    assert len(calls(changed)) >= 5
    check_same_numbers(module, changed)


def test_a_value_read_twice_in_one_copy_and_two_values_in_another():
    def block(x, w, v):
        return tanh(add(mul(x, w), neg(exp(tanh(sub(x, v))))))

    def main(x, a, b, c):
        return block(block(block(x, a, a), b, c), c, a)

    module = module_of(main, (f32[3],) * 4)
    changed = verify.verify(Outline(min_nodes=7)(module))
    assert len(calls(changed)) == 3
    assert len(changed.fns[calls(changed)[0]].params) == 3
    check_same_numbers(module, changed)


def test_effects_are_left_alone():
    from tests.transforms.test_dce_cse_inline import say

    check_silent(Outline(min_nodes=7), chain(*[lambda x, w: long(say(x), w)] * 3), *[f32[3]] * 4)


@pytest.mark.slow
def test_time_grows_slowly_with_depth():
    module = vjp(gpt(32))
    start = time.perf_counter()
    changed = Outline()(module)
    assert len(calls(changed)) >= 60
    assert time.perf_counter() - start < 20
