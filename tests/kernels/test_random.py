"""Random bodies for every template, on every path that this CPU has, and what such bodies have once shown.

`python -m tests.kernels.drawn SECONDS SEED` goes on for as long as wanted.
"""

import numpy as np
import pytest
from tests.kernels import drawn
from tests.kernels.checking import TARGETS, check_body
from tests.kernels.pages import Fenced

import treadle as td
from treadle import driver, ops, te
from treadle.api.programs import trace_module
from treadle.base.flags import override
from treadle.ir import build
from treadle.ir.types import bf16, f32
from treadle.kernels import engine

MANY = {"layers": 6}  # draws; each of them has a dozen kernels
USUAL = 40


@pytest.mark.parametrize("family", drawn.FAMILIES)
def test_random_bodies(family):
    with override(cache=False):
        taken = sum([drawn.check(family, seed) for seed in range(1 if family in MANY else 2)])
        assert taken or any(drawn.check(family, seed) for seed in range(2, 8))


@pytest.mark.slow
@pytest.mark.parametrize("family", drawn.FAMILIES)
def test_many_random_bodies(family):
    with override(cache=False):
        count = MANY.get(family, USUAL)
        taken = sum([drawn.check(family, seed) for seed in range(100, 100 + count)])
    assert taken > count // 4


@pytest.mark.slow
@pytest.mark.parametrize("family", drawn.FAMILIES)
def test_programs_with_empty_axes(family):
    assert sum([drawn.check_program(family, seed) for seed in range(8)])


# ----------------------------------------------------------------------------------------------- what was once wrong
def every_plan(body, arrays=None, seed=0):
    rng = np.random.default_rng(seed)
    arrays = arrays or [rng.normal(size=t.shape).astype(t.dtype.np) for t in body.in_types]
    for target in TARGETS.values():
        for plan in engine.plans(body, target):
            assert check_body(body, arrays, target, lambda _, plan=plan: plan)


def test_a_masked_load_before_an_instruction_under_the_same_mask_stays_masked():
    """LLVM made loads of whole vectors of the last elements of a row, and so read beyond the array."""

    def windows(x):
        k = te.reduce_axis((0, 2))
        return te.compute((32, 44), lambda i, j: te.sum(x[i, j + k] * 0.5, axis=k))

    x = np.random.default_rng(0).normal(size=(32, 45)).astype(np.float32)
    body = driver.optimise(trace_module(te.op(windows), td.tensor(x))).main
    assert drawn.alone(lambda: every_plan(body, [x])) == ("None", "")


def test_single_numbers_that_share_memory_are_read_before_they_are_written():
    def function(a, x):
        y = ops.tanh(ops.tanh(x) - x)
        return y, ops.minimum(ops.tanh(ops.tanh(x) - x + a), y)

    for shape in ((), (1,), (5,)):
        every_plan(build.trace(function, [f32[shape], f32[shape]]))


def test_operands_that_divide_the_axis_of_a_weight_gradient_s_vectors_are_not_taken():
    def function(x, dy, r):
        attrs = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}
        x, dy = (ops.transpose(v, perm=(0, 3, 1, 2)) for v in (x, dy))
        w = ops.conv_weight_grad(x, dy, kernel_size=(3, 4), **attrs)
        return w * ops.broadcast_to(r, shape=w.shape)

    for shape, taken in (((7, 1, 1, 1), True), ((7, 9, 3, 1), False), ((9, 3, 1), False), ((4,), False)):
        body = build.trace(function, [f32[2, 8, 11, 9], f32[2, 8, 10, 7], f32[shape]])
        assert bool(engine.plans(body)) == taken
        every_plan(body)


def test_what_the_checks_see():
    """A page that may not be touched, bytes beside an array, results that are a little wrong."""
    inside = Fenced(np.arange(5))
    assert inside.intact() and inside.array.tolist() == [0, 1, 2, 3, 4]
    inside.guard[-1] = 0
    assert not inside.intact()
    body = build.trace(lambda x: ops.relu(x) * 2.0, [bf16[33]])
    assert drawn.wrong(np.ones(3), [np.array([1, 1, 1.01])], 1e-3)[0].tolist() == [[2]]
    assert len(drawn.wrong(np.array([np.nan, 1, np.inf]), [np.array([1, np.nan, -np.inf])], 1e-3)[0]) == 3
    assert drawn.tolerances(body) == [3e-2]
