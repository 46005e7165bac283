"""Depthwise convolutions of images with their channels second: strips, vectors, borders, remainders by the stride."""

import numpy as np
import pytest
from tests.kernels.pages import at_page_end
from tests.kernels.test_conv import TARGETS, attributes, check, out_size, run, values

from treadle.ir import build
from treadle.ir.types import bf16, f16, f32
from treadle.kernels import jit
from treadle.kernels.target import host
from treadle.kernels.templates.conv import plans
from treadle.kernels.templates.conv_planes import Pieces, pieces
from treadle.ops import activation
from treadle.ops.convolution import conv, conv_input_grad, conv_weight_grad
from treadle.ops.reduce import broadcast_to
from treadle.ops.shape import reshape

CASES = {
    "half a vector": (2, 5, (7, 7), (3, 3), attributes(groups=5)),
    "one strip": (2, 3, (14, 14), (3, 3), attributes(groups=3)),
    "strips and vectors": (1, 3, (37, 70), (3, 3), attributes(groups=3)),
    "every second place": (2, 3, (41, 75), (3, 3), attributes(groups=3, stride=2)),
    "the last place of its vector": (1, 4, (9, 33), (3, 3), attributes(groups=4, stride=2)),
    "steps that differ": (1, 5, (12, 31), (2, 5), attributes((1, 2), ((1, 0), (2, 3)), groups=5)),
    "only columns": (1, 2, (1, 64), (1, 7), attributes(padding=((0, 0), (3, 3)), groups=2)),
    "inside": (2, 4, (11, 20), (3, 3), attributes(padding=((-1, 0), (0, -1)), groups=4)),
}


def three(case, t):
    """Functions and types: outputs, data gradient, weight gradient."""
    n, c, size, kernel, attrs = CASES[case]
    x, y, w = t[n, c, *size], t[n, c, *out_size(size, kernel, attrs)], t[c, 1, *kernel]
    return [
        (lambda x, w: conv(x, w, **attrs), [x, w]),
        (lambda d, w: conv_input_grad(d, w, input_size=size, **attrs), [y, w]),
        (lambda x, d: conv_weight_grad(x, d, kernel_size=kernel, **attrs), [x, y]),
    ]


def first_plan(fn, types, target=None):
    return plans(build.trace(fn, types), target or host())[0]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("t", [f32, bf16], ids=["f32", "bf16"])
def test_sizes(t, case):
    for (fn, types), special in zip(three(case, t), [(0, 1), (0,), (0, 1)], strict=True):
        assert "planes" in first_plan(fn, types).name
        check(fn, types, most=1, threads=2)
        check(fn, types, most=1, special=special, seed=1)


@pytest.mark.parametrize("name", list(TARGETS)[1:])
@pytest.mark.parametrize("t", [f32, f16], ids=["f32", "f16"])
def test_on_cpus_that_have_less(name, t):
    for fn, types in three("the last place of its vector", t):
        assert "planes" in first_plan(fn, types, TARGETS[name]).name
        check(fn, types, target=TARGETS[name], most=1)


def test_what_follows():
    n, c, size, kernel, attrs = CASES["strips and vectors"]

    def after(x, w, b, r):
        y = conv(x, w, **attrs)
        return activation.relu(y + broadcast_to(reshape(b, shape=(1, c, 1, 1)), shape=y.shape)) * r, y

    check(after, [f32[n, c, *size], f32[c, 1, *kernel], f32[c], f32[n, c, *size]], most=1)

    def update(x, dy, w):
        return w - conv_weight_grad(x, dy, kernel_size=kernel, **attrs) * 0.125

    check(update, [f32[n, c, *size], f32[n, c, *size], f32[c, 1, *kernel]], most=1)


@pytest.mark.parametrize("case", ["half a vector", "every second place", "the last place of its vector", "inside"])
@pytest.mark.parametrize("t", [f32, bf16], ids=["f32", "bf16"])
def test_nothing_is_read_behind_an_array(t, case):
    for fn, types in three(case, t):
        body, kernel, arrays = build.trace(fn, types), first_plan(fn, types).build(), values(types, 1)
        outs = [at_page_end(np.zeros(o.shape, o.dtype.np)) for o in body.out_types]
        jit.load(kernel.text).run([*[at_page_end(a) for a in arrays], *outs])
        for threads in (1, 2):
            np.testing.assert_array_equal(outs[0], run(kernel, arrays, threads=threads)[0])


def test_pieces():
    assert pieces(30, 8, lambda s: 0 < s < 20) == Pieces(30, 8, range(8, 24, 8), (0, 24))
    assert pieces(7, 8, lambda s: True) == Pieces(7, 8, range(0), (0,))
    assert pieces(16, 8, lambda s: True) == Pieces(16, 8, range(0, 16, 8), ())


def test_what_is_not_taken():
    n, c, size, kernel, _ = CASES["one strip"]
    for attrs in (attributes(groups=c, stride=3), attributes(groups=c, padding=((1, 1), (300, 300)))):
        fn, types = (lambda x, w, a=attrs: conv(x, w, **a)), [f32[n, c, *size], f32[c, 1, *kernel]]
        assert all("planes" not in p.name for p in plans(build.trace(fn, types), host()))
