"""Depthwise convolutions that read the source where it is, and what follows 1x1 convolutions over joined places."""

import numpy as np
import pytest
from tests.kernels.test_conv import TARGETS, all_three, attributes, check, forward, last, second, values

from treadle.driver import grouped
from treadle.ir import build, interp
from treadle.ir.node import Module
from treadle.ir.types import bf16, f16, f32
from treadle.kernels import jit
from treadle.kernels.target import host
from treadle.kernels.templates.conv import plans
from treadle.ops import activation
from treadle.ops.casting import cast
from treadle.ops.convolution import conv, conv_weight_grad
from treadle.ops.elementwise import maximum, minimum
from treadle.ops.groups import fused
from treadle.ops.norm_batch import batch_norm_inference
from treadle.ops.reduce import broadcast_to, reduce_mean
from treadle.ops.shape import reshape

DEEP = [  # channels, size, kernel, attributes: left, middle and right tiles
    (17, (9, 33), (3, 3), attributes(groups=17)),
    (32, (10, 41), (3, 3), attributes(groups=32, stride=2)),
    (5, (7, 50), (3, 5), attributes(groups=5, stride=(2, 1), dilation=(2, 3), padding=((2, 2), (6, 6)))),
    (16, (6, 40), (2, 2), attributes(groups=16, padding=((-1, 0), (2, -1)))),
    (19, (1, 30), (1, 7), attributes(groups=19, padding=((0, 0), (3, 3)))),
    (3, (4, 9), (3, 3), attributes(groups=3, padding=((4, 4), (12, 0)))),  # whole tiles outside
]


@pytest.mark.parametrize("case", range(len(DEEP)))
@pytest.mark.parametrize("t", [f32, bf16], ids=["f32", "bf16"])
def test_depthwise_where_it_is(t, case):
    c, size, kernel, attrs = DEEP[case]
    all_three(t, 2, c, c, size, kernel, attrs, special=(0, 1), most=1, threads=2)


@pytest.mark.parametrize("name", list(TARGETS)[1:])
def test_depthwise_on_cpus_that_have_less(name):
    for t in (f32, f16):
        check(forward(DEEP[1][3]), [t[1, 10, 41, 32], t[32, 1, 3, 3]], target=TARGETS[name], most=1)


def test_both_kinds_of_depthwise_schedules():
    attrs = attributes(groups=20)
    types = [f32[2, 12, 30, 20], f32[20, 1, 3, 3]]
    found = plans(build.trace(forward(attrs), types), host())
    assert {p.name.endswith("copied") for p in found} == {True, False}
    check(forward(attrs), types, most=9)


@pytest.mark.parametrize("t", [f32, bf16], ids=["f32", "bf16"])
def test_what_follows_depthwise(t):
    attrs = attributes(groups=24)

    def close(x, w, b, r):
        y = last(conv(second(x), w, **attrs))
        return activation.relu6(y + broadcast_to(b, shape=y.shape)) + r, y

    def far(x, w, b):
        y = conv(second(x), w, **attrs)
        return activation.relu(y + broadcast_to(reshape(b, shape=(1, 24, 1, 1)), shape=y.shape))

    check(close, [t[2, 9, 29, 24], t[24, 1, 3, 3], t[24], t[2, 9, 29, 24]], special=(0, 3))
    check(far, [t[2, 9, 29, 24], t[24, 1, 3, 3], t[24]])


@pytest.mark.parametrize("sizes", [(3, 5, 7), (1, 6, 9), (4, 7, 1), (3, 1, 8), (1, 1, 23), (2, 13, 17)])
@pytest.mark.parametrize("channels", [19, 32])
def test_what_follows_joined_places(sizes, channels):
    """Operands by channel, by place, by image and channel, by row: the places' number alone does for the first two."""
    attrs, shape = attributes(padding=((0, 0), (0, 0))), (*sizes, channels)

    def simple(x, w, b, r):
        y = last(conv(second(x), w, **attrs))
        return activation.relu(y * broadcast_to(b, shape=shape) + r)

    def by_image(x, w, s, q):
        y = last(conv(second(x), w, **attrs))
        return y * broadcast_to(reshape(s, shape=(sizes[0], 1, 1, channels)), shape=shape) + broadcast_to(
            q, shape=shape
        )

    x, w = f32[*sizes, 24], f32[channels, 24, 1, 1]
    check(simple, [x, w, f32[channels], f32[*shape]], most=1)
    check(by_image, [x, w, f32[sizes[0], channels], f32[1, sizes[1], 1, 1]], most=1)


def test_nothing_else_is_written_where_places_are_few():
    """Blocks of places are finished together; a tile that has fewer must not write behind them."""
    attrs = attributes(padding=((0, 0), (0, 0)))
    for places in (1, 2, 5, 13, 15):
        check(
            lambda x, w, b: last(conv(second(x), w, **attrs)) + b,
            [f32[1, 1, places, 33], f32[47, 33, 1, 1], f32[1, 1, places, 47]],
        )


@pytest.mark.parametrize("t", [f32, bf16], ids=["f32", "bf16"])
def test_norm_with_given_statistics_is_part_of_the_convolution(t):
    """And the mean over the places, which would ask for another order of the axes, does not undo the layout."""

    def net(x, w, *stats):
        y = activation.relu6(batch_norm_inference(conv(x, w, **attributes()), *stats, eps=1e-5))
        return reduce_mean(y, axes=(2, 3))

    types = [t[2, 24, 12, 12], t[40, 24, 3, 3], *[f32[40]] * 4]
    body = build.trace(net, types)
    made = grouped(Module.of(body)).main
    (group,) = [n.attrs["body"] for n in made.nodes if n.op is fused]
    assert "relu6" in [n.op.name for n in group.nodes]
    (result,) = group.out_types
    assert result.shape == (2, 12, 12, 40)
    arrays = values(group.in_types, 5)
    arrays = [np.abs(a) if a.shape == (40,) else a for a in arrays]
    kernel = plans(group, host())[0].build()
    out, work = np.zeros(result.shape, result.dtype.np), np.zeros(kernel.workspace, np.uint8)
    jit.load(kernel.text).run([*arrays, out, work])
    (want,) = interp.run(group, *arrays)
    scale = np.abs(want.astype(np.float64)).max()
    np.testing.assert_allclose(
        out.astype(np.float64), want.astype(np.float64), atol=scale * (1e-5 if t is f32 else 0.02)
    )


@pytest.mark.parametrize("t", [bf16, f16], ids=["bf16", "f16"])
def test_the_larger_one_may_be_taken_before_rounding(t):
    """Bit by bit: a convolution that gives its source, times float32 numbers that ask for rounding or are large."""

    def net(x, w, b):
        y = last(conv(second(x), w, **attributes(padding=((0, 0), (0, 0)), groups=16)))
        z = cast(cast(y, dtype="float32") * b, dtype=t.dtype)
        return activation.relu6(z), maximum(z, -z), minimum(z, x)

    types = [t[1, 8, 9, 16], t[16, 1, 1, 1], f32[1, 8, 9, 16]]
    x, _, b = values(types, 3)
    odd = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 3e38, -3e38, 6.0, 5.99, 6.01, 1e-40, -1e-45], np.float32)
    x, b = (
        np.abs(x.astype(np.float32)) + 0.5,
        np.where(np.arange(b.size) % 3 == 0, np.resize(odd, b.size), b.ravel() * 4),
    )
    arrays = [x.astype(t.dtype.np), np.ones((16, 1, 1, 1), t.dtype.np), b.astype(np.float32).reshape(types[2].shape)]
    body = build.trace(net, types)
    with np.errstate(all="ignore"):
        want = interp.run(body, *arrays)
    for plan in plans(body, host())[:1]:
        kernel = plan.build()
        outs, work = [np.zeros(o.shape, o.dtype.np) for o in body.out_types], np.zeros(kernel.workspace, np.uint8)
        jit.load(kernel.text).run([*arrays, *outs, work])
        for got, ref in zip(outs, want, strict=True):
            np.testing.assert_array_equal(got.astype(np.float32), ref.astype(np.float32))


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("name", list(TARGETS))
def test_few_channels_that_come_second(channels, name):
    """As in the first layer of a net; rows shorter and longer than vectors."""
    attrs = attributes(stride=(2, 1), padding=((1, 1), (1, 2)))
    for t, width in ((f32, 37), (bf16, 32), (f16, 7)):
        types = [t[2, channels, 8, width], t[6, channels, 3, 3]]
        check(lambda x, w: last(conv(x, w, **attrs)), types, most=1, target=TARGETS[name], special=(0,))


def test_few_channels_that_come_second_in_weight_gradients():
    attrs = attributes(stride=2)
    for t in (f32, bf16):
        check(
            lambda x, d: conv_weight_grad(x, second(d), kernel_size=(3, 3), **attrs),
            [t[2, 3, 13, 37], t[2, 7, 19, 8]],
            most=1,
        )
