"""FLOPs of modules: products and convolutions by hand, loops by their trips, XLA's own count of a small network."""

import numpy as np

import treadle as td
from treadle import nn, ops
from treadle.api import trace_module
from treadle.ir import build
from treadle.ir.node import Module
from treadle.ir.types import f32
from treadle.ops._axes import flops


def test_products_and_convolutions():
    assert flops(build.trace(lambda x, y: x @ y, [f32[3, 4], f32[4, 5]])) == 2 * 3 * 4 * 5
    attrs = {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 2}
    fn = build.trace(lambda x, w: ops.conv(x, w, **attrs), [f32[2, 4, 8, 8], f32[6, 2, 3, 3]])
    assert flops(fn) == 2 * (2 * 6 * 6 * 6) * 2 * 9


def test_attention_is_its_products():
    q, k, v = f32[2, 3, 8, 4], f32[2, 3, 5, 4], f32[2, 3, 5, 6]
    attrs = {"scale": 0.5, "causal": False}
    scores = 2 * 3 * 8 * 5
    assert flops(build.trace(lambda *a: ops.attention(*a, **attrs), [q, k, v])) == scores * 2 * (4 + 6)
    made = build.trace(lambda *a: ops.attention_fwd(*a, **attrs), [q, k, v])
    assert flops(made) == scores * 2 * (4 + 6)
    types = [q, k, v, *made.out_types, made.out_types[0]]
    grads = build.trace(lambda *a: ops.attention_grad(*a, **attrs), types)
    assert flops(grads) == scores * 2 * (3 * 4 + 2 * 6)


def test_only_arithmetic_counts():
    def f(x):
        return ops.transpose(ops.reshape(x, shape=(2, 3)), perm=(1, 0)) + ops.reduce_sum(x, axes=(0,))

    assert flops(build.trace(f, [f32[6]])) == 6 + 6


def test_scans_count_their_trips_and_calls_their_function():
    body = build.trace(lambda w, h, x: (h @ w, h), [f32[4, 4], f32[2, 4], f32[2, 4]], "body")
    trips = {"n_consts": 1, "n_carry": 1, "length": 7, "reverse": False}
    scan = build.trace(lambda w, h, x: ops.scan(w, h, x, body=body, **trips), [f32[4, 4], f32[2, 4], f32[7, 2, 4]])
    assert flops(scan) == 7 * 2 * 2 * 4 * 4
    square = build.trace(lambda x: x @ x, [f32[4, 4]], "square")
    once = {"callee": "square", "results": (f32[4, 4],)}
    twice = build.trace(lambda x: ops.call(*ops.call(x, **once), **once), [f32[4, 4]])
    assert flops(Module.of(twice, {"square": square})) == 2 * 2 * 4**3


def test_a_network_as_xla_counts_it():
    net = nn.Sequential(nn.Linear(32, 64), nn.Linear(64, 16))
    module = trace_module(net, td.zeros(8, 32))
    counted = td.driver.compile_module(module).cost_analysis()["flops"]
    np.testing.assert_allclose(flops(module), counted, rtol=0.02)
