"""Convolutions against loops over every index, their adjointness, and the form in which one-element kernels are run."""

from itertools import product

import numpy as np
import pytest
from tests.ops.support import assert_close, execute

from treadle import ops
from treadle.driver import stablehlo
from treadle.ir import build, interp
from treadle.ir.node import Module
from treadle.ir.types import bf16, f32, type_of

CASES = [  # x, w, attributes
    ((2, 3, 9), (4, 3, 3), {"stride": (2,), "padding": ((2, 0),), "dilation": (2,), "groups": 1}),
    ((1, 4, 6, 5), (6, 2, 3, 2), {"stride": (2, 1), "padding": ((1, 2), (-1, 1)), "dilation": (1, 2), "groups": 2}),
    (
        (2, 2, 3, 4, 3),
        (2, 1, 2, 2, 2),
        {"stride": (1, 2, 1), "padding": ((0, 1),) * 3, "dilation": (1, 1, 2), "groups": 2},
    ),
]


def by_loops(x, w, stride, padding, dilation, groups):
    """The defining sum, one product at a time."""
    rank = x.ndim - 2
    sizes = [
        (n + sum(pad) - d * (k - 1) - 1) // s + 1
        for n, k, s, pad, d in zip(x.shape[2:], w.shape[2:], stride, padding, dilation)
    ]
    y = np.zeros((x.shape[0], w.shape[0], *sizes))
    per_group = w.shape[0] // groups
    for n, o, c, *rest in product(*map(range, (x.shape[0], w.shape[0], w.shape[1], *sizes, *w.shape[2:]))):
        t, k = rest[:rank], rest[rank:]
        place = [a * s + b * d - pad[0] for a, b, s, d, pad in zip(t, k, stride, dilation, padding)]
        if all(0 <= p < size for p, size in zip(place, x.shape[2:])):
            y[(n, o, *t)] += x[(n, o // per_group * w.shape[1] + c, *place)] * w[(o, c, *k)]
    return y


def run(function, *arrays):
    return interp.run(build.trace(function, [type_of(a) for a in arrays]), *arrays)[0]


@pytest.mark.parametrize("x_shape, w_shape, attrs", CASES)
def test_the_reference_is_the_defining_sum(x_shape, w_shape, attrs):
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal(x_shape), rng.standard_normal(w_shape)
    np.testing.assert_allclose(run(lambda x, w: ops.conv(x, w, **attrs), x, w), by_loops(x, w, **attrs), atol=1e-12)


@pytest.mark.parametrize("x_shape, w_shape, attrs", CASES)
def test_the_three_convolutions_are_adjoint(x_shape, w_shape, attrs):
    """<conv(x, w), d> = <x, input_grad(d, w)> = <w, weight_grad(x, d)>."""
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal(x_shape), rng.standard_normal(w_shape)
    y = run(lambda x, w: ops.conv(x, w, **attrs), x, w)
    d = rng.standard_normal(y.shape)
    dx = run(lambda d, w: ops.conv_input_grad(d, w, input_size=x_shape[2:], **attrs), d, w)
    dw = run(lambda x, d: ops.conv_weight_grad(x, d, kernel_size=w_shape[2:], **attrs), x, d)
    np.testing.assert_allclose([np.vdot(x, dx), np.vdot(w, dw)], np.vdot(y, d), rtol=1e-12)


def test_sixteen_bits_are_summed_in_thirty_two():
    """Summed in bf16, 4096 ones would stop at 256."""
    plain = {"stride": (1,), "padding": ((0, 0),), "dilation": (1,), "groups": 1}
    ones = [np.ones(shape, bf16[()].dtype.np) for shape in ((1, 4096, 1), (1, 4096, 1))]
    assert float(run(lambda x, w: ops.conv(x, w, **plain), *ones).item()) == 4096


@pytest.mark.parametrize(
    "shape, stride, padding, product",
    [((16, 16), 1, 0, True), ((15, 16), 1, 0, False), ((16, 16), 1, 1, False), ((32, 32), 2, 0, False)],
)
def test_one_element_kernels_become_matrix_products(shape, stride, padding, product):
    attrs = {"stride": (stride,) * 2, "padding": ((padding,) * 2,) * 2, "dilation": (1, 1), "groups": 1}
    fn = build.trace(lambda x, w: ops.conv(x, w, **attrs), [f32[2, 3, *shape], f32[4, 3, 1, 1]])
    text = stablehlo(Module.of(fn))
    assert ("dot_general" in text) == product
    assert ("convolution" in text) != product


SMALL_IMAGES = [  # x, w, attributes
    ((3, 32, 2, 2), (24, 32, 3, 3), {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}),
    ((2, 16, 5, 4), (32, 16, 3, 3), {"stride": (2, 2), "padding": ((1, 0), (0, 2)), "dilation": (1, 2)}),
    ((2, 48, 4, 3), (96, 48, 1, 1), {"stride": (3, 2), "padding": ((0, 0), (1, 1)), "dilation": (1, 1)}),
    ((2, 40, 7), (40, 40, 3), {"stride": (2,), "padding": ((0, 3),), "dilation": (3,)}),
    ((1, 16, 2, 3, 2), (12, 16, 3, 3, 3), {"stride": (1, 2, 1), "padding": ((1, 1),) * 3, "dilation": (1, 1, 1)}),
]


@pytest.mark.parametrize("kind", [f32, bf16])
@pytest.mark.parametrize("x_shape, w_shape, attrs", SMALL_IMAGES)
def test_small_images_are_unfolded_to_the_same_numbers(x_shape, w_shape, attrs, kind):
    attrs = {**attrs, "groups": 1}
    dtype, rng = kind[()].dtype.np, np.random.default_rng(2)
    x, w = rng.standard_normal(x_shape).astype(dtype), rng.standard_normal(w_shape).astype(dtype)
    d = run(lambda x, w: ops.conv(x, w, **attrs), x, w)

    def both(x, w, d):
        return ops.conv(x, w, **attrs), ops.conv_input_grad(d, w, input_size=x_shape[2:], **attrs)

    module = Module.of(build.trace(both, [type_of(a) for a in (x, w, d)]))
    assert "convolution" not in stablehlo(module)
    for found, wanted in zip(execute(module, (x, w, d), "both"), interp.run(module, x, w, d)):
        assert_close(found, wanted, "unfolded")


@pytest.mark.parametrize(
    "change, size, unfolded",
    [({}, 2, True), ({"groups": 2}, 2, False), ({"padding": ((-1, 3), (1, 1))}, 2, False), ({}, 4, False)],
)
def test_what_is_unfolded(change, size, unfolded):
    """Not: groups, a cropping pad, an image with as many places as the kernel has taps."""
    attrs = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1, **change}
    types = [f32[2, 32, size, size], f32[32, 32 // attrs["groups"], 3, 3]]
    fn = build.trace(lambda x, w: ops.conv(x, w, **attrs), types)
    assert ("convolution" not in stablehlo(Module.of(fn))) == unfolded
