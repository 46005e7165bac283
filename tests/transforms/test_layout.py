"""transforms/layout: images have their channels last between the ops that take them, and the numbers stay."""

import numpy as np
import pytest
from tests.kernels.checking import along_rows
from tests.transforms.support import check_silent, module_of

from treadle import driver
from treadle.base.flags import override
from treadle.ir import interp
from treadle.ir.types import bf16, f32, f64
from treadle.ir.verify import verify
from treadle.kernels import engine
from treadle.ops._declare import Samples
from treadle.ops.activation import relu
from treadle.ops.convolution import conv, conv_input_grad, conv_weight_grad
from treadle.ops.creation import full
from treadle.ops.elementwise import add, mul
from treadle.ops.groups import fused
from treadle.ops.norm_batch import batch_norm
from treadle.ops.reduce import broadcast_to, reduce_sum
from treadle.ops.shape import reshape, transpose
from treadle.transforms._volumes import as_planes
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


def turned(module, takes=lambda node: False):
    after = verify(Layout(small=True)(module, takes))
    same(module, after)
    return after


def ops(fn):
    return [n.op.name for n in fn.nodes]


def convolved(made):
    """The bodies of groups that have a convolution."""
    bodies = [n.attrs["body"] for n in made.nodes if n.op is fused]
    return [b for b in bodies if any("conv" in name for name in ops(b))]


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


@pytest.mark.parametrize("channels", [3, 16])
def test_a_kernel_takes_a_strided_gradient_of_the_users_images(channels):
    def gradient(y, w):
        return conv_input_grad(relu(y), w, input_size=(9, 8), **{**PLAIN, "stride": (2, 2)})

    made = Fuse(3)(turned(module_of(gradient, (f32[2, 8, 5, 4], f32[8, channels, 3, 3])))).main
    (body,) = convolved(made)
    assert engine.takes(body) and ops(made)[-1] == "transpose"


def test_a_kernel_takes_a_convolution_whose_weights_the_user_has_in_another_order():
    def made(x, w):
        return conv(x, reshape(transpose(w, perm=(3, 2, 0, 1)), shape=(4, 3, 3, 3)), **PLAIN)

    module = Fuse(3)(turned(module_of(made, (f32[2, 3, 5, 6], f32[3, 3, 3, 4]))))
    (body,) = convolved(module.main)
    assert engine.takes(body)


ATTRIBUTES = {
    "plain": {"padding": ((1, 1), (1, 1), (1, 1))},
    "strided": {"stride": (2, 1, 2), "padding": ((0, 1), (1, 0), (1, 1))},
    "dilated": {"dilation": (2, 1, 1), "padding": ((3, 2), (0, 0), (1, 0)), "stride": (3, 1, 1)},
    "cut": {"padding": ((-1, 0), (0, -1), (1, 1))},
    "groups": {"padding": ((2, 0), (1, 1), (1, 1)), "groups": 2},
}


@pytest.mark.parametrize("kernel", [(3, 3, 2), (1, 2, 3), (2, 1, 1)])
@pytest.mark.parametrize("case", ATTRIBUTES)
def test_convolutions_over_three_axes_become_ones_over_two(case, kernel):
    attrs = {"stride": (1,) * 3, "dilation": (1,) * 3, "groups": 1, **ATTRIBUTES[case]}
    size = (7, 5, 6)
    out = [
        (n + sum(p) - d * (k - 1) - 1) // s + 1
        for n, k, p, s, d in zip(size, kernel, attrs["padding"], attrs["stride"], attrs["dilation"], strict=True)
    ]
    x, y, w = f32[(2, 4, *size)], f32[(2, 6, *out)], f32[(6, 4 // attrs["groups"], *kernel)]
    for function, types in (
        (lambda x, w: conv(x, w, **attrs), (x, w)),
        (lambda d, w: conv_input_grad(d, w, input_size=size, **attrs), (y, w)),
        (lambda x, d: conv_weight_grad(x, d, kernel_size=kernel, **attrs), (x, y)),
    ):
        module = module_of(function, types)
        planes = as_planes(module.main)
        assert [n.inputs[0].ndim for n in planes.nodes if "conv" in n.op.name] == [4]
        assert as_planes(planes) is planes
        after = Fuse(3)(turned(module))
        same(module, after)
        (body,) = convolved(after.main)
        assert engine.takes(body) or (body.name == "conv_weight_grad" and y.size < 6000)  # too small to be turned


def test_a_program_with_convolutions_over_three_axes():
    attrs = {"stride": (1, 2, 2), "padding": ((1, 1),) * 3, "dilation": (1,) * 3, "groups": 1}

    def net(x, w, v):
        y = conv(relu(conv(x, w, **attrs)), v, **attrs)
        return reduce_sum(mul(y, y), axes=(0, 1, 2, 3, 4))

    types = f32[2, 8, 6, 24, 26], f32[24, 8, 3, 3, 3], f32[16, 24, 3, 3, 3]
    module = Pipeline.parse("inline,algebra,cse,dce").run(vjp(module_of(net, types)))
    arrays = [*[s.draw(t) for s in [Samples()] for t in types], np.float32(1)]
    results = {}
    for level in (0, 2):
        with override(fusion=level):
            bodies = convolved(driver.grouped(module).main)
            assert len(bodies) == (6 if level else 0) and all(map(engine.takes, bodies))
            results[level] = [np.asarray(r) for r in driver.compile_module(module).call(arrays)]
    for a, b in zip(results[0], results[2], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * np.abs(a).max())


def test_other_convolutions_over_three_axes_stay():
    attrs = {"stride": (1,) * 3, "padding": ((0, 0),) * 3, "dilation": (1,) * 3, "groups": 1}
    made = lambda x, w: conv(x, w, **attrs)
    for x, w in (
        (f64[2, 3, 4, 5, 6], f64[4, 3, 2, 2, 2]),
        (f32[0, 3, 4, 5, 6], f32[4, 3, 2, 2, 2]),
        (f32[64, 64, 64, 64, 64], f32[4, 64, 3, 2, 2]),  # 4 GiB of x, twelve of copies
    ):
        fn = module_of(made, (x, w)).main
        assert as_planes(fn) is fn


def test_what_a_kernel_takes_along_rows_alone_keeps_the_users_order():
    taken = []

    def kept(function, *types):
        made = turned(module_of(function, types), lambda node: taken.append(node.op) or True)
        return "transpose" not in ops(made.main)

    x, w = f32[2, 3, 8, 9], f32[3, 3, 3, 3]
    assert kept(lambda x, w: conv(x, w, **PLAIN), x, w)
    assert kept(lambda d, w: conv_input_grad(d, w, input_size=(8, 9), **PLAIN), x, w)
    assert kept(lambda x, d: relu(conv_weight_grad(x, d, kernel_size=(3, 3), **PLAIN)), x, x)
    assert taken == [conv, conv_input_grad, conv_weight_grad]
    assert not kept(lambda x, w: relu(conv(x, w, **PLAIN)), x, w)
    assert not kept(lambda x, w: conv(relu(x), w, **PLAIN), x, w)
    assert not kept(lambda x, d: conv_weight_grad(x, relu(d), kernel_size=(3, 3), **PLAIN), x, x)


def test_depthwise_convolutions_and_first_layers_are_taken_along_rows():
    def taken(function, *types):
        (node,) = module_of(function, types).main.nodes
        return along_rows(node)

    deep = {**PLAIN, "groups": 6}
    line = {"stride": (2,), "padding": ((4, 3),), "dilation": (1,), "groups": 6}
    x, w, few, v, y = f32[2, 6, 8, 9], f32[6, 1, 3, 3], f32[2, 3, 8, 9], f32[4, 3, 3, 3], f32[2, 4, 8, 9]
    assert taken(lambda x, w: conv(x, w, **deep), x, w)
    assert taken(lambda d, w: conv_input_grad(d, w, input_size=(8, 9), **deep), x, w)
    assert taken(lambda x, d: conv_weight_grad(x, d, kernel_size=(3, 3), **deep), x, x)
    assert taken(lambda x, w: conv(x, w, **{**deep, "padding": ((9, 0), (2, 1)), "dilation": (2, 1)}), x, w)
    assert taken(lambda x, w: conv(x, w, **line), f32[2, 6, 40], f32[6, 1, 7])
    assert taken(lambda x, w: conv(x, w, **PLAIN), few, v)
    assert taken(lambda x, d: conv_weight_grad(x, d, kernel_size=(3, 3), **PLAIN), few, y)
    assert not taken(lambda x: relu(x), x)
    assert not taken(lambda d, w: conv_input_grad(d, w, input_size=(8, 9), **PLAIN), y, v)
    assert not taken(lambda x, w: conv(x, w, **{**deep, "stride": (1, 3)}), x, w)
    assert not taken(lambda x, w: conv(x, w, **{**PLAIN, "groups": 3}), x, f32[6, 2, 3, 3])
    assert not taken(lambda x, w: conv(x, w, **PLAIN), x, f32[4, 6, 3, 3])
    assert not taken(lambda x, w: conv(x, w, **PLAIN), bf16[2, 3, 8, 9], bf16[4, 3, 3, 3])
    assert not taken(lambda x, w: conv(x, w, **PLAIN), f32[2, 1, 8, 9], f32[4, 1, 3, 3])  # either order is the same
    cube = {"stride": (1,) * 3, "padding": ((0, 0),) * 3, "dilation": (1,) * 3, "groups": 6}
    assert not taken(lambda x, w: conv(x, w, **cube), f32[2, 6, 8, 9, 4], f32[6, 1, 3, 3, 3])
