"""The experiment with lists of native calls: the results of the programs with any threads; places that do not meet."""

import itertools

import numpy as np
import pytest

from treadle.base.flags import override
from treadle.ir import build
from treadle.ir.node import Module
from treadle.ir.types import f32
from treadle.ops.creation import full
from treadle.ops.elementwise import add, mul, sub
from treadle.ops.functions import tanh
from treadle.ops.products import matmul
from treadle.ops.reduce import broadcast_to, reduce_sum
from treadle.ops.shape import reshape, transpose
from treadle.ops.sorting import sort


def step(x, w, v, b):
    """A loss, new w and v (donated), new b; with a sort and a reshape between the products, and a constant."""
    h = tanh(add(matmul(x, w), broadcast_to(b, shape=(48, 32))))
    y = reshape(sort(reshape(h, shape=(32, 48)), axis=1, descending=False), shape=(48, 32))
    z = tanh(matmul(y, v))
    rate = broadcast_to(full(value=0.01, dtype=f32[1].dtype, shape=()), shape=(32, 32))
    dv = matmul(transpose(y, perm=(1, 0)), z)
    dw = matmul(transpose(x, perm=(1, 0)), h)
    loss = reduce_sum(mul(z, z), axes=(0, 1))
    return loss, sub(w, mul(rate, dw)), sub(v, mul(rate, dv)), mul(b, b)


@pytest.mark.parametrize("threads", [1, 2])
def test_list_and_programs_agree_step_after_step(bench, threads):
    call_list, call_plan = bench("call_list"), bench("call_plan")
    with override(fusion=3):
        module = Module.of(build.trace(step, [f32[48, 32], f32[32, 32], f32[32, 32], f32[32]]))
        rng = np.random.default_rng(0)
        arrays = [rng.standard_normal(p.type.shape).astype(np.float32) for p in module.main.params]
        donate = {1: 1, 2: 2, 3: 3}
        programs = call_list.Programs(call_list.Step(module, donate, arrays))
        calls = call_plan.CallList(module, donate, arrays, threads)
    counts = calls.counts()
    assert counts["calls"] >= 2 and counts["islands"] >= 1 and counts["runs"] >= 2
    first = arrays[1].copy()
    for _ in range(5):
        assert call_list.difference(programs, calls) < 1e-5
    assert np.abs(call_plan.as_type(calls.memory[calls.main.params[1]], f32[32, 32]) - first).max() > 1e-3
    assert calls.block(2) > 0 and calls.kernel_seconds(1) > 0 and calls.island_seconds(1) > 0
    assert calls.planned_bytes() > 0


def test_a_wrong_list_is_noticed(bench):
    call_list, call_plan = bench("call_list"), bench("call_plan")
    with override(fusion=3):
        module = Module.of(build.trace(step, [f32[48, 32], f32[32, 32], f32[32, 32], f32[32]]))
        arrays = [np.full(p.type.shape, 0.1, np.float32) for p in module.main.params]
        programs = call_list.Programs(call_list.Step(module, {1: 1}, arrays))
        calls = call_plan.CallList(module, {1: 1}, arrays, 1)
    calls.memory[calls.main.params[0]][:4] = 77
    assert call_list.difference(programs, calls) > 1e-3


@pytest.mark.parametrize("seed", range(8))
def test_places_in_the_arena_do_not_meet(bench, seed):
    call_plan = bench("call_plan")
    arena, rng = call_plan.Arena(), np.random.default_rng(seed)
    for number in range(60):
        if rng.random() < 0.5 and arena.used:
            arena.free(rng.choice(list(arena.used)))
        bytes = int(rng.integers(0, 900))
        at = arena.take(number, bytes)
        assert at % call_plan.ALIGN == 0 and at + bytes <= arena.size
        places = sorted(arena.used.values())
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(places))
