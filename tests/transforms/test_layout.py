"""transforms/layout: images have their channels last between the ops that take them, and the numbers stay."""

import numpy as np
import pytest
from tests.transforms.support import check_silent, module_of

from treadle.ir import interp
from treadle.ir.types import f32
from treadle.ir.verify import verify
from treadle.ops._declare import Samples
from treadle.ops.activation import relu
from treadle.ops.convolution import conv
from treadle.ops.creation import full
from treadle.ops.elementwise import add, mul
from treadle.ops.groups import fused
from treadle.ops.norm_batch import batch_norm
from treadle.ops.reduce import broadcast_to, reduce_sum
from treadle.ops.shape import reshape
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
