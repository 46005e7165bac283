"""transforms/hoist: what depends on fixed parameters alone is taken out; together the two parts are the program."""

import numpy as np
import pytest
from tests.support.random_programs import random_arguments, random_module
from tests.transforms.support import assert_same_bits, module_of

from treadle.base import dtypes
from treadle.ir import interp
from treadle.ir.types import f32
from treadle.ir.verify import verify
from treadle.ops.casting import cast
from treadle.ops.compare import is_finite
from treadle.ops.elementwise import mul
from treadle.ops.functions import tanh
from treadle.ops.products import matmul
from treadle.ops.reduce import broadcast_to, reduce_and
from treadle.ops.shape import transpose
from treadle.transforms.hoist import hoist


def ops(module):
    return [n.op.name for n in module.main.nodes]


def run_both(parts, fixed, arrays):
    prepared = interp.run(parts.prepare, *[arrays[i] for i in sorted(fixed)])
    return interp.run(parts.main, *arrays, *prepared)


def test_casts_and_transposes_of_weights_are_taken_out():
    def layer(x, w, b):
        turned = cast(transpose(w, perm=(1, 0)), dtype=dtypes.bfloat16)
        return matmul(cast(x, dtype=dtypes.bfloat16), turned), broadcast_to(b, shape=(4, 5))

    parts = hoist(module_of(layer, (f32[4, 3], f32[5, 3], f32[5])), {1, 2})
    assert ops(parts.prepare) == ["transpose", "cast"] and ops(parts.main) == ["cast", "matmul", "broadcast_to"]
    assert [str(t) for t in parts.main.main.in_types] == ["f32[4,3]", "f32[5,3]", "f32[5]", "bf16[3,5]"]


def test_nothing_to_take_out():
    assert hoist(module_of(lambda x, w: matmul(x, w), (f32[4, 3], f32[3, 5])), {1}) is None
    assert hoist(module_of(lambda x, w: matmul(tanh(x), w), (f32[4, 3], f32[3, 5])), {1}) is None
    assert hoist(module_of(lambda x, w: matmul(x, tanh(w)), (f32[4, 3], f32[3, 5])), set()) is None


@pytest.mark.parametrize("seed", range(60))
def test_the_parts_give_what_the_whole_gives(seed):
    module = random_module(seed)
    fixed = set(np.random.default_rng(seed).permutation(len(module.main.params))[:2].tolist())
    parts = hoist(module, fixed)
    if parts is not None:
        verify(parts.prepare)
        verify(parts.main)
        arrays = random_arguments(module.main, seed)
        with np.errstate(all="ignore"):
            assert_same_bits(interp.run(module, *arrays), run_both(parts, fixed, arrays))


def test_what_grows_on_the_way_may_cross():
    def layer(x, w, s):
        return matmul(x, mul(w, broadcast_to(s, shape=(3, 5))))

    parts = hoist(module_of(layer, (f32[4, 3], f32[3, 5], f32[5])), {1, 2})
    assert ops(parts.prepare) == ["broadcast_to", "mul"] and ops(parts.main) == ["matmul"]


def test_what_is_larger_than_its_parameters_does_not_cross():
    def layer(x, s):
        wide = tanh(broadcast_to(s, shape=(40, 5)))
        return mul(x, mul(wide, wide))

    assert hoist(module_of(layer, (f32[40, 5], f32[5])), {1}) is None
    line = module_of(lambda x, s: mul(x, broadcast_to(tanh(s), shape=(40, 5))), (f32[40, 5], f32[5]))
    parts = hoist(line, {1})
    assert ops(parts.prepare) == ["tanh"] and ops(parts.main) == ["broadcast_to", "mul"]


def test_checks_are_results_of_the_first_part():
    def layer(x, w):
        return matmul(x, tanh(w)), reduce_and(is_finite(w), axes=(0, 1))

    parts = hoist(module_of(layer, (f32[4, 3], f32[3, 5])), {1}, checks=1)
    assert [str(t) for t in parts.prepare.main.out_types] == ["f32[3,5]", "bool[]"]
    assert [str(t) for t in parts.main.main.out_types] == ["f32[4,5]"] and ops(parts.main) == ["matmul"]
    alone = hoist(
        module_of(lambda x, w: (tanh(x), reduce_and(is_finite(w), axes=(0,))), (f32[4], f32[3])), {1}, checks=1
    )
    assert [str(t) for t in alone.prepare.main.out_types] == ["bool[]"] and len(alone.main.main.params) == 2
