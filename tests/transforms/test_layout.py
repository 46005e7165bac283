"""transforms/layout: images have their channels last between the ops that take them, and the numbers stay."""

import numpy as np
import pytest
from tests.transforms.support import check_silent, module_of

from treadle.ir import interp
from treadle.ir.types import bf16, f32
from treadle.ir.verify import verify
from treadle.ops._declare import Samples
from treadle.ops.activation import relu
from treadle.ops.convolution import conv, conv_input_grad, conv_weight_grad
from treadle.ops.creation import full
from treadle.ops.elementwise import add, mul
from treadle.ops.groups import fused
from treadle.ops.norm_batch import batch_norm
from treadle.ops.reduce import broadcast_to, reduce_sum
from treadle.ops.shape import reshape, transpose
from treadle.transforms.fuse import Fuse
from treadle.transforms.grad import vjp
from treadle.transforms.layout import Layout
from treadle.transforms.pipeline import Pipeline

PLAIN = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}


def net(x, w, v, scale, bias):
    y, mean, var = batch_norm(conv(x, w, **PLAIN), scale, bias, eps=1e-3)
    z = relu(y)
    z = add(z, broadcast_to(reshape(bias, shape=(4, 1, 1)), shape=z.shape))
    z = add(conv(z, v, **PLAIN), mul(z, full(value=0.5, shape=z.shape, dtype=z.dtype)))
    return reduce_sum(z, axes=(2, 3)), mean, var


TYPES = f32[2, 3, 5, 6], f32[4, 3, 3, 3], f32[4, 4, 3, 3], f32[4], f32[4]


def same(first, second):
    """Equal but for the order in which sums are taken."""
    arrays = [s.draw(t) for s in [Samples()] for t in first.main.in_types]
    for a, b in zip(interp.run(first, *arrays), interp.run(second, *arrays), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def turned(module):
    after = verify(Layout(small=True)(module))
    same(module, after)
    return after


def ops(fn):
    return [n.op.name for n in fn.nodes]


def test_what_is_between_two_convolutions_is_turned_once():
    after = Fuse(3)(turned(module_of(net, TYPES)))
    groups = [" ".join(ops(n.attrs["body"])) for n in after.main.nodes if n.op is fused]
    assert groups == [
        "transpose transpose conv transpose",
        "transpose batch_norm transpose relu reshape reshape transpose broadcast_to add full mul",
        "transpose conv transpose add",
    ]
    assert "transpose" not in ops(after.main)


def test_gradients_too():
    module = Pipeline.parse("inline,algebra,cse,dce").run(vjp(module_of(net, TYPES)))
    after = Fuse(3)(turned(module))
    same(module, after)
    names = [" ".join(ops(n.attrs["body"])) for n in after.main.nodes if n.op is fused]
    assert sum("conv_weight_grad" in n for n in names) == 2
    assert not [n for n in after.main.nodes if n.op.name == "transpose" and n.inputs[0].node is not None]


def test_a_value_that_something_else_needs_is_turned_back():
    turned(module_of(lambda x, w: (conv(x, w, **PLAIN), reshape(conv(x, w, **PLAIN), shape=(2, 120))), TYPES[:2]))


@pytest.mark.parametrize("sizes, kernel", [((7,), (3,)), ((3, 4, 5), (1, 2, 3))])
def test_any_number_of_spatial_axes(sizes, kernel):
    n = len(sizes)
    attrs = {"stride": (1,) * n, "padding": ((0, 0),) * n, "dilation": (1,) * n, "groups": 1}
    turned(module_of(lambda x, w: relu(conv(x, w, **attrs)), (f32[(2, 3, *sizes)], f32[(4, 3, *kernel)])))


def test_functions_without_a_convolution_stay():
    check_silent(Layout(small=True), lambda x: relu(x), f32[2, 3, 4, 5])
    few = f32[1, 1, 2, 2], f32[1, 1, 1, 1]
    nothing = {**PLAIN, "padding": ((0, 0), (0, 0))}
    check_silent(Layout(), lambda x, w: conv(x, w, **nothing), *few)  # too little work


def test_a_users_own_transposes_to_and_from_channels_last_cost_nothing():
    def given_last(x, w):
        y = transpose(conv(relu(transpose(x, perm=(0, 3, 1, 2))), w, **PLAIN), perm=(0, 2, 3, 1))
        return add(y, y), transpose(y, perm=(0, 3, 1, 2))

    after = turned(module_of(given_last, (f32[2, 5, 6, 3], f32[4, 3, 3, 3])))
    assert ops(after.main) == ["relu", "transpose", "conv", "transpose", "add", "transpose"]

    def other_ways(x, w):
        y = conv(transpose(x, perm=(0, 2, 3, 1)), w, **PLAIN)
        return transpose(y, perm=(0, 1, 3, 2)), transpose(y, perm=(0, 3, 1, 2)), y

    turned(module_of(other_ways, (f32[2, 5, 6, 3], f32[4, 6, 3, 3])))


def test_a_convolution_of_single_places_alone_is_a_product():
    attrs = {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1}
    types = f32[2, 5, 20, 30], f32[7, 5, 1, 1]
    after = turned(module_of(lambda x, w: conv(x, w, **attrs), types))
    assert ops(after.main) == ["reshape", "reshape", "contract", "reshape"]
    dy = lambda dy, w: conv_input_grad(dy, w, input_size=(20, 30), **attrs)
    assert ops(turned(module_of(dy, (f32[2, 7, 20, 30], f32[7, 5, 1, 1]))).main)[2] == "contract"
    exact = turned(module_of(lambda x, w: conv(x, w, precision="high", **attrs), types))
    assert [n.attrs.get("precision") for n in exact.main.nodes if n.op.name == "contract"] == ["high"]


def test_other_convolutions_stay_what_they_are():
    attrs = {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1}
    x, w = f32[2, 4, 20, 30], f32[8, 4, 1, 1]
    for function, types in (
        (lambda x, w: relu(conv(x, w, **attrs)), (x, w)),
        (lambda x, w: conv(relu(x), w, **attrs), (x, w)),
        (lambda x, w: conv(x, w, **{**attrs, "stride": (2, 1)}), (x, w)),
        (lambda x, w: conv(x, w, **{**attrs, "padding": ((0, 0), (1, 0))}), (x, w)),
        (lambda x, w: conv(x, w, **{**attrs, "groups": 2}), (x, f32[8, 2, 1, 1])),
        (lambda x, w: conv(x, w, **attrs), (x, f32[8, 4, 1, 3])),
        (lambda x, w: conv(x, w, **attrs), (f32[2, 4, 7, 7], w)),
        (lambda x, w: conv(x, w, **attrs), (bf16[2, 4, 20, 30], bf16[8, 4, 1, 1])),
    ):
        made = Layout(small=True)(module_of(function, types)).main
        assert "contract" not in ops(made) and "conv" in ops(made)


def test_depthwise_convolutions_and_first_layers_alone_keep_the_users_order():
    def kept(function, *types):
        made = turned(module_of(function, types))
        return "transpose" not in ops(made.main)

    deep = {**PLAIN, "groups": 6}
    x, w, few, v = f32[2, 6, 8, 9], f32[6, 1, 3, 3], f32[2, 3, 8, 9], f32[4, 3, 3, 3]
    assert kept(lambda x, w: conv(x, w, **deep), x, w)
    assert kept(lambda d, w: conv_input_grad(d, w, input_size=(8, 9), **deep), x, w)
    assert kept(lambda x, d: conv_weight_grad(x, d, kernel_size=(3, 3), **deep), x, x)
    assert kept(lambda x, w: conv(x, w, **PLAIN), few, v)
    assert kept(lambda x, d: relu(conv_weight_grad(x, d, kernel_size=(3, 3), **PLAIN)), few, f32[2, 4, 8, 9])
    assert not kept(lambda x, w: relu(conv(x, w, **deep)), x, w)
    assert not kept(lambda x, w: conv(relu(x), w, **deep), x, w)
    assert not kept(lambda x, w: conv(x, w, **{**deep, "stride": (1, 3)}), x, w)
    assert not kept(lambda x, w: conv(x, w, **{**PLAIN, "groups": 3}), x, f32[6, 2, 3, 3])
    assert not kept(lambda x, w: conv(x, w, **PLAIN), x, f32[4, 6, 3, 3])
    assert not kept(lambda x, w: conv(x, w, **PLAIN), bf16[2, 3, 8, 9], bf16[4, 3, 3, 3])
