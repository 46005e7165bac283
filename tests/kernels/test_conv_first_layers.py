"""Convolutions of pairs with very few channels: the taps of a row of the kernel are one run of channels."""

import pytest
from tests.kernels.test_conv import TARGETS, attributes, check, forward, last, second

from treadle.ir import build
from treadle.ir.types import bf16, f32
from treadle.kernels.target import host
from treadle.kernels.templates.conv import plans
from treadle.kernels.templates.conv_micro import Arith
from treadle.kernels.templates.conv_pack import taps_across
from treadle.kernels.templates.conv_shape import Spec
from treadle.kernels.templates.conv_shape import forward as problem
from treadle.ops import activation
from treadle.ops.convolution import conv
from treadle.ops.reduce import broadcast_to

PAIRS = Arith("bf16", 16, True, True, True)
CASES = {  # channels, outputs, size, kernel, attributes
    "3x3 strided": (3, 32, (20, 33), (3, 3), attributes(stride=2)),
    "7x7 strided": (3, 40, (23, 30), (7, 7), attributes(stride=2, padding=((3, 3), (3, 3)))),
    "even run": (3, 16, (9, 17), (2, 2), attributes(padding=((0, 1), (1, 0)))),
    "one channel": (1, 20, (14, 14), (5, 5), attributes(padding=((2, 2), (2, 2)))),
    "rows apart": (5, 33, (12, 31), (3, 3), attributes(dilation=(2, 1), padding=((2, 2), (1, 1)))),
    "less than the image": (3, 17, (11, 16), (3, 3), attributes(padding=((-1, 0), (0, -1)))),
    "wide tiles": (3, 16, (4, 7), (3, 3), attributes()),
}


@pytest.mark.parametrize("case", CASES)
def test_numbers_and_what_is_none(case):
    c, o, size, kernel, attrs = CASES[case]
    types = [bf16[2, *size, c], bf16[o, c, *kernel]]
    check(forward(attrs), types, threads=2)
    for seed in range(3):  # NaN and infinity: also in what lies behind a run
        check(forward(attrs), types, most=1, special=(0,), seed=seed)
        check(forward(attrs), types, most=1, special=(0, 1), seed=seed)


def test_channels_second_and_what_follows():
    c, o, size, kernel, attrs = CASES["3x3 strided"]

    def layer(x, w, b):
        y = last(conv(x, w, **attrs))
        return activation.relu(y + broadcast_to(b, shape=y.shape)), y

    check(layer, [bf16[2, c, *size], bf16[o, c, *kernel], bf16[o]], most=2, special=(0,))
    check(lambda x, w: conv(second(x), w, **attrs), [bf16[2, *size, c], bf16[o, c, *kernel]], most=1)


@pytest.mark.parametrize("name", list(TARGETS)[1:])
def test_on_cpus_without_pairs(name):
    c, o, size, kernel, attrs = CASES["3x3 strided"]
    check(forward(attrs), [bf16[1, *size, c], bf16[o, c, *kernel]], target=TARGETS[name], most=1)


def test_which_taps_are_one():
    def across(c, kernel, how=PAIRS, **more):
        given = attributes(**more)
        return taps_across(problem(Spec(1, c, 8, (20, 20), (20, 20), kernel, **given)), how)

    assert [across(c, (3, 3)) for c in (1, 2, 3, 4, 5, 9)] == [3, 1, 3, 1, 3, 1]
    assert across(3, (7, 1)) == across(3, (3, 3), dilation=2) == across(9, (3, 3), groups=3) == 1
    assert across(3, (3, 3), Arith("f32", 16, True, True, True)) == 1
    body = build.trace(forward(attributes()), [f32[1, 9, 9, 3], f32[8, 3, 3, 3]])
    assert plans(body, host())
