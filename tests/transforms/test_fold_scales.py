"""transforms/fold_scales: scales after convolutions and products go into fixed weights, where that changes nothing."""

import itertools

import numpy as np
import pytest
from tests.transforms.support import module_of

from treadle.base import dtypes
from treadle.ir import interp
from treadle.ir.types import bf16, f32, f64
from treadle.ir.verify import verify
from treadle.ops.casting import cast
from treadle.ops.convolution import conv
from treadle.ops.elementwise import add, mul, sub
from treadle.ops.norm_batch import batch_norm_inference
from treadle.ops.products import matmul
from treadle.ops.reduce import broadcast_to
from treadle.ops.shape import reshape, transpose
from treadle.transforms.fold_scales import fold_scales
from treadle.transforms.hoist import hoist

ATTRS = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}
CHANNELS = [f32[6]] * 4
IMAGE = (f32[2, 4, 5, 5], f32[6, 4, 3, 3], *CHANNELS)


def normed(x, w, scale, bias, mean, var):
    return batch_norm_inference(conv(x, w, **ATTRS), scale, bias, mean, var, eps=1e-3)


def spread(v, like):
    return broadcast_to(reshape(v, shape=(v.shape[0], 1, 1)), shape=like.shape)


def values(types, seed=0):
    rng = np.random.default_rng(seed)
    found = [rng.normal(size=t.shape).astype(t.dtype.np) for t in types]
    return found


def checked(arrays):
    """With a variance."""
    arrays[5] = np.abs(arrays[5]) + np.float32(0.1)
    return arrays


def ops(module):
    return [n.op.name for n in module.main.nodes]


def both(module, arrays, fixed):
    """The results of the module, of the folded one, and its verdict."""
    made = fold_scales(module, fixed)
    verify(made)
    with np.errstate(all="ignore"):
        *got, good = interp.run(made, *arrays)
        return interp.run(module, *arrays), got, bool(good)


def test_a_batch_norm_becomes_a_shift():
    module = module_of(normed, IMAGE)
    want, got, good = both(module, checked(values(IMAGE)), range(1, 6))
    assert good
    np.testing.assert_allclose(got[0], want[0], rtol=2e-5, atol=2e-5)
    parts = hoist(fold_scales(module, range(1, 6)), range(1, 6), checks=1)
    assert [n for n in ops(parts.main) if n not in ("broadcast_to", "cast")] == ["conv", "add"]
    assert [str(t) for t in parts.prepare.main.out_types][-1] == "bool[]"
    assert "f32[6,4,3,3]" in [str(t) for t in parts.prepare.main.out_types]


def test_bfloat16_is_folded_before_it_is_rounded():
    def net(x, w, *norm):
        y = conv(cast(x, dtype=dtypes.bfloat16), cast(w, dtype=dtypes.bfloat16), **ATTRS)
        return batch_norm_inference(y, *norm, eps=1e-3)

    arrays = checked(values(IMAGE, 1))
    want, got, good = both(module_of(net, IMAGE), arrays, range(1, 6))
    exact = interp.run(module_of(normed, IMAGE), *arrays)[0]
    errors = [np.abs(r[0].astype(np.float32) - exact).max() for r in (got, want)]
    assert good and errors[0] <= 1.5 * errors[1]
    new = next(n for n in fold_scales(module_of(net, IMAGE), range(1, 6)).main.nodes if n.op is conv).inputs[1]
    assert new.dtype is dtypes.bfloat16 and new.node.inputs[0].node.op is mul


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_groups_and_steps_in_any_order(groups):
    types = (f32[1, 4, 6, 6], f32[8, 4 // groups, 3, 3], *[f32[8]] * 3)
    for order in itertools.permutations((add, sub, mul)):

        def net(x, w, *each, order=order):
            y = conv(x, w, **{**ATTRS, "groups": groups})
            for op, v in zip(order, each, strict=True):
                y = op(y, spread(v, y)) if op is sub else op(spread(v, y), y)
            return y

        want, got, good = both(module_of(net, types), values(types, 2), range(1, 5))
        assert good
        np.testing.assert_allclose(got[0], want[0], rtol=2e-5, atol=2e-5)


def test_products_on_either_side():
    types = (f64[5, 7], f64[7, 3], f64[3])
    module = module_of(lambda x, w, s: mul(matmul(x, w), broadcast_to(s, shape=(5, 3))), types)
    want, got, good = both(module, values(types), {1, 2})
    assert good and ops(fold_scales(module, {1, 2})).index("mul") < ops(fold_scales(module, {1, 2})).index("matmul")
    np.testing.assert_allclose(got[0], want[0], rtol=1e-12)
    left = module_of(lambda x, w, s: mul(matmul(w, x), broadcast_to(reshape(s, shape=(5, 1)), shape=(5, 3))),
                     (f64[7, 3], f64[5, 7], f64[5]))  # fmt: skip
    want, got, good = both(left, values(left.main.in_types), {1, 2})
    assert good
    np.testing.assert_allclose(got[0], want[0], rtol=1e-12)


def test_what_is_not_folded():
    types = (f32[5, 7], f32[7, 3], f32[3], f32[5])

    def no(function, fixed=(1, 2, 3)):
        return fold_scales(module_of(function, types), fixed) is None

    def row(s):
        return broadcast_to(s, shape=(5, 3))

    assert not no(lambda x, w, s, t: mul(matmul(x, w), row(s)))
    assert no(lambda x, w, s, t: mul(matmul(x, w), row(s)), {1, 3})  # a scale that varies
    assert no(lambda x, w, s, t: mul(matmul(x, w), row(s)), {0, 1, 2, 3})  # all of it is done beforehand
    assert no(lambda x, w, s, t: mul(matmul(x, w), row(s)), {2, 3})  # weights that vary
    assert no(lambda x, w, s, t: add(matmul(x, w), row(s)))  # no scale
    assert no(lambda x, w, s, t: mul(matmul(x, w), broadcast_to(reshape(t, shape=(5, 1)), shape=(5, 3))))  # of x's rows
    assert no(lambda x, w, s, t: sub(row(s), matmul(x, w)))

    def twice(x, w, s, t):
        y = matmul(x, w)
        return y, mul(y, row(s))

    assert no(twice)  # the sums themselves are wanted
    square = (f32[6, 6], f32[6, 6], f32[6], f32[6])

    def turned(x, w, s, t):
        return mul(transpose(matmul(x, w), perm=(1, 0)), broadcast_to(s, shape=(6, 6)))

    assert fold_scales(module_of(turned, square), {1, 2}) is None


@pytest.mark.parametrize("place", range(1, 6))
@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan, 3e38])
def test_numbers_for_which_it_is_not_right_are_told(place, number):
    arrays = checked(values(IMAGE, 3))
    arrays[place].reshape(-1)[3] = number
    want, got, good = both(module_of(normed, IMAGE), arrays, range(1, 6))
    assert not good or number == 3e38 or (place == 5 and number > 0)  # an infinite variance: the scale is 0
    assert good or place < 3 or number != 3e38
    if good:
        np.testing.assert_allclose(got[0], want[0], rtol=2e-5, atol=2e-5)


def test_a_weight_that_becomes_zero_is_told():
    arrays = checked(values(IMAGE, 4))
    arrays[1][:] = 1e-30
    arrays[2][:] = 1e-20
    assert not both(module_of(normed, IMAGE), arrays, range(1, 6))[2]
    arrays[2][:] = 0
    assert both(module_of(normed, IMAGE), arrays, range(1, 6))[2]


@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan])
def test_odd_inputs_pass_as_before(number):
    arrays = checked(values(IMAGE, 5))
    arrays[0][0, 1, 2, 3] = number
    arrays[1][2, :, 1, 1] = 0
    arrays[2][4] = 0
    want, got, good = both(module_of(normed, IMAGE), arrays, range(1, 6))
    assert good
    np.testing.assert_array_equal(np.isnan(got[0]), np.isnan(want[0]))
    np.testing.assert_allclose(got[0], want[0], rtol=2e-5, atol=2e-5)


def test_sixteen_bits_all_the_way_stay():
    types = (bf16[2, 4, 5, 5], bf16[6, 4, 3, 3], bf16[6])
    assert fold_scales(module_of(lambda x, w, s: mul(y := conv(x, w, **ATTRS), spread(s, y)), types), {1, 2}) is None
