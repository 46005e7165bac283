"""transforms/runs: which groups are gathered, what stays outside, and that the function computes what it did."""

import numpy as np
import pytest

from treadle.ir import build, interp
from treadle.ir.node import Module
from treadle.ir.types import f32
from treadle.ir.verify import verify
from treadle.ops.elementwise import add, mul
from treadle.ops.functions import tanh
from treadle.ops.groups import fused
from treadle.ops.products import matmul
from treadle.ops.reduce import reduce_sum
from treadle.ops.shape import reshape
from treadle.transforms.runs import LEAST, is_run, with_runs

SQUARE = f32[4, 4]
BODY = build.trace(lambda x, w: tanh(matmul(x, w)), [SQUARE, SQUARE], "product")
TWO = build.trace(lambda x, w: (tanh(x), add(x, w)), [SQUARE, SQUARE], "two")


def layer(x, w):
    return fused(x, w, body=BODY)[0]


def module_of(function, count=2, of=SQUARE):
    return Module.of(build.trace(function, [of] * count, "main"))


def shapes(module):
    """Each node of main: how many groups a run has, else its op."""
    return [
        sum(n.op is fused for n in node.attrs["body"].nodes) if _run(node) else node.op.name
        for node in module.main.nodes
    ]


def _run(node):
    return node.op is fused and is_run(node.attrs["body"])


def gathered(module, takes=lambda node: True):
    """The module with runs, which is legal and computes the same."""
    made = with_runs(module, takes)
    verify(made)
    arrays = [
        np.random.default_rng(i).normal(size=t.shape).astype(np.float32) for i, t in enumerate(module.main.in_types)
    ]
    for a, b in zip(interp.run(module, *arrays), interp.run(made, *arrays), strict=True):
        np.testing.assert_array_equal(a, b)
    return made


def test_groups_in_a_row_are_one():
    def function(x, w):
        return layer(layer(layer(x, w), w), w)

    made = gathered(module_of(function))
    assert shapes(made) == [3] and len(made.main.nodes[0].inputs) == 2


@pytest.mark.parametrize("count", [LEAST - 1, LEAST])
def test_a_run_has_at_least_so_many(count):
    def function(x, w):
        for _ in range(count):
            x = layer(x, w)
        return x

    module = module_of(function)
    assert shapes(gathered(module)) == ([count] if count >= LEAST else ["fused"] * count)
    if count < LEAST:
        assert with_runs(module, lambda node: True) is module


def test_what_needs_a_result_ends_the_run_and_what_does_not_goes_before_it():
    def function(x, w):
        y = layer(layer(x, w), w)
        other = mul(w, w)
        y = layer(y, other)
        total = reduce_sum(y, axes=(0, 1))
        z = layer(layer(layer(y, w), other), w)
        return z, total

    assert shapes(gathered(module_of(function))) == ["mul", 3, "reduce_sum", 3]


def test_groups_without_a_kernel_stay_outside():
    def function(x, w):
        a = layer(layer(layer(x, w), w), w)
        b = fused(a, w, body=TWO)[1]
        return layer(layer(layer(b, w), w), w)

    assert shapes(gathered(module_of(function), lambda node: node.attrs["body"] is not TWO)) == [3, "fused", 3]


def test_all_that_is_read_outside_is_a_result():
    def function(x, w):
        a = layer(x, w)
        b, c = fused(a, w, body=TWO)
        d = layer(c, b)
        return a, mul(d, a), d

    made = gathered(module_of(function))
    assert shapes(made) == [3, "mul"] and len(made.main.nodes[0].outputs) == 2


def test_reshapes_between_are_inside_and_made_again_for_others():
    def function(x, w):
        x = reshape(x, shape=(4, 4))
        a = reshape(reshape(layer(x, w), shape=(2, 8)), shape=(4, 4))
        b = layer(layer(a, w), w)
        flat = reshape(b, shape=(16,))
        return mul(a, a), flat, reshape(flat, shape=(8, 2))

    made = gathered(module_of(function, of=f32[4, 4]))
    (run,) = [n for n in made.main.nodes if _run(n)]
    assert len(run.outputs) == 2 and [n.op.name for n in run.attrs["body"].nodes].count("reshape") >= 2
    assert all(o.node.op is fused for o in run.attrs["body"].outputs)


def test_large_groups_stay_as_they_are():
    large = f32[1024, 1024]
    body = build.trace(matmul, [large, large], "large")

    def function(x, w):
        for _ in range(4):
            x = fused(x, w, body=body)[0]
        return x

    module = module_of(function, of=large)
    assert with_runs(module, lambda node: True) is module
