"""Weight gradients of 1x1 convolutions as products: which are taken, both orders of operands, shared places."""

import pytest
from tests.kernels.test_conv import TARGETS, attributes, check, second, weights

from treadle.ir import build
from treadle.ir.node import Module
from treadle.ir.types import bf16, f16, f32
from treadle.kernels import engine
from treadle.kernels.target import host
from treadle.kernels.templates.conv import plans
from treadle.ops.convolution import conv_weight_grad
from treadle.ops.groups import fused
from treadle.ops.shape import slice_
from treadle.transforms.fuse import Fuse
from treadle.transforms.layout import Layout

PLAIN = attributes(padding=((0, 0), (0, 0)))
CASES = {  # images, channels of x and dy, size
    "x on the left": (2, 24, 144, (32, 32)),
    "dy on the left": (4, 40, 9, (16, 32)),
    "odd parts": (3, 17, 33, (37, 15)),
    "the result is shared": (2, 130, 129, (7, 7)),
    "one channel": (2, 1, 70, (16, 40)),
}


def gradient(case, t):
    n, c, o, size = CASES[case]
    return weights(PLAIN, (1, 1)), [t[n, *size, c], t[n, *size, o]]


def names(fn, types, target=None):
    return [p.name for p in plans(build.trace(fn, types), target or host())]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("t", [f32, bf16], ids=["f32", "bf16"])
def test_sums(t, case):
    fn, types = gradient(case, t)
    check(fn, types, most=4, threads=2)
    check(fn, types, most=1, special=(0, 1), seed=1)


@pytest.mark.parametrize("name", list(TARGETS)[1:])
def test_on_cpus_that_have_less(name):
    check(*gradient("odd parts", f16), target=TARGETS[name], most=2)
    check(*gradient("x on the left", f32), target=TARGETS[name], most=2)


def test_what_is_on_the_left_fills_no_vectors():
    for case, first in (("x on the left", "conv weight x dy in"), ("dy on the left", "conv weight dy x in")):
        assert names(*gradient(case, f32))[0].startswith(first)
    assert names(*gradient("the result is shared", f32))[0].startswith("conv weight by gemm")


def test_what_is_no_product():
    x, dy = f32[2, 32, 32, 24], f32[2, 16, 16, 40]
    strided = names(weights(attributes(padding=((0, 0), (0, 0)), stride=2), (1, 1)), [x, dy])
    padded = names(weights(attributes(), (1, 1)), [x, f32[2, 34, 34, 40]])
    assert strided and padded and not any("gemm" in n or "parts" in n for n in strided + padded)
    shifted = attributes(padding=((1, -1), (0, 0)))
    check(weights(shifted, (1, 1)), [x, f32[2, 32, 32, 40]], most=1)
    some = lambda x, dy: weights(PLAIN, (1, 1))(
        slice_(x, starts=(0,) * 4, limits=(2, 32, 32, 24), strides=(1,) * 4), dy
    )
    check(some, [f32[3, 32, 32, 24], f32[2, 32, 32, 40]], most=1)  # the first of more images


@pytest.mark.parametrize("t", [f32, bf16], ids=["f32", "bf16"])
@pytest.mark.parametrize("case", ["x on the left", "dy on the left", "the result is shared"])
def test_what_follows(case, t):
    n, c, o, size = CASES[case]

    def update(x, dy, w):
        return w - conv_weight_grad(second(x), second(dy), kernel_size=(1, 1), **PLAIN) * 0.125

    check(update, [t[n, *size, c], t[n, *size, o], t[o, c, 1, 1]], most=2)


def test_small_images_of_users_are_turned_by_kernels():
    def gradient(x, dy):
        return conv_weight_grad(x, dy, kernel_size=(1, 1), **PLAIN)

    module = Module.of(build.trace(gradient, [bf16[8, 96, 14, 14], bf16[8, 24, 14, 14]]))  # 73 KiB of dy
    groups = [n.attrs["body"] for n in Fuse(2)(Layout()(module)).main.nodes if n.op is fused]
    found = [" ".join(n.op.name for n in g.nodes) for g in groups]
    assert sorted(found) == ["transpose", "transpose", "transpose transpose conv_weight_grad"]
    assert all(engine.plans(g) for g in groups)
