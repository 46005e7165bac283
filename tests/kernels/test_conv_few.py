"""First layers with channels second in both images: tiles and bands, borders, outputs that are left over."""

import numpy as np
import pytest
from tests.kernels.pages import at_page_end
from tests.kernels.test_conv import TARGETS, attributes, check, out_size, run, values

from treadle.ir import build
from treadle.ir.types import bf16, f32
from treadle.kernels import jit
from treadle.kernels.target import host
from treadle.kernels.templates.conv import plans
from treadle.ops import activation
from treadle.ops.convolution import conv, conv_weight_grad
from treadle.ops.reduce import broadcast_to
from treadle.ops.shape import reshape

CASES = {
    "every second place": (2, 3, 17, (23, 22), (7, 7), attributes(2, ((3, 3), (3, 3)))),
    "tiles and what is left": (3, 3, 14, (40, 138), (3, 3), attributes(2)),
    "side by side": (2, 2, 9, (9, 37), (3, 3), attributes()),
    "steps that differ": (2, 4, 6, (20, 130), (5, 3), attributes((1, 2), ((0, 1), (1, 0)), (2, 1))),
    "inside": (1, 3, 4, (12, 66), (2, 4), attributes(2, ((-1, 0), (0, -1)))),
}


def both(case):
    """The output's function and types, and the weight gradient's."""
    n, c, o, size, kernel, attrs = CASES[case]
    x, w, y = f32[n, c, *size], f32[o, c, *kernel], f32[n, o, *out_size(size, kernel, attrs)]
    return [
        (lambda x, w: conv(x, w, **attrs), [x, w]),
        (lambda x, d: conv_weight_grad(x, d, kernel_size=kernel, **attrs), [x, y]),
    ]


def first_plan(fn, types, target=None):
    return plans(build.trace(fn, types), target or host())[0]


@pytest.mark.parametrize("case", CASES)
def test_sizes(case):
    for fn, types in both(case):
        assert "few channels" in first_plan(fn, types).name
        check(fn, types, most=1, threads=2)
        check(fn, types, most=1, special=(0, 1), seed=1)


@pytest.mark.parametrize("name", list(TARGETS)[1:])
@pytest.mark.parametrize("case", ["every second place", "side by side"])
def test_on_cpus_that_have_less(case, name):
    for fn, types in both(case):
        assert "few channels" in first_plan(fn, types, TARGETS[name]).name
        check(fn, types, target=TARGETS[name], most=1)


def test_what_follows():
    n, c, o, size, kernel, attrs = CASES["tiles and what is left"]
    out = out_size(size, kernel, attrs)

    def after(x, w, b, r):
        y = conv(x, w, **attrs)
        return activation.relu(y + broadcast_to(reshape(b, shape=(1, o, 1, 1)), shape=y.shape)) * r, y

    check(after, [f32[n, c, *size], f32[o, c, *kernel], f32[o], f32[n, o, *out]], most=1)

    def update(x, dy, w):
        return w - conv_weight_grad(x, dy, kernel_size=kernel, **attrs) * 0.125

    check(update, [f32[n, c, *size], f32[n, o, *out], f32[o, c, *kernel]], most=1)


@pytest.mark.parametrize("case", ["every second place", "side by side", "inside"])
def test_nothing_is_read_behind_an_array(case):
    for fn, types in both(case):
        body, kernel, arrays = build.trace(fn, types), first_plan(fn, types).build(), values(types, 1)
        outs = [at_page_end(np.zeros(o.shape, o.dtype.np)) for o in body.out_types]
        work = [at_page_end(np.zeros(kernel.workspace, np.uint8))] if kernel.workspace else []
        jit.load(kernel.text).run([*[at_page_end(a) for a in arrays], *outs, *work])
        for threads in (1, 2):
            np.testing.assert_array_equal(outs[0], run(kernel, arrays, threads=threads)[0])


def test_what_is_not_taken():
    for t, c, stride in ((bf16, 3, 2), (f32, 5, 2), (f32, 3, 3)):
        attrs = attributes(stride)
        x, w, y = t[1, c, 20, 20], t[4, c, 3, 3], t[1, 4, *out_size((20, 20), (3, 3), attrs)]
        for fn, types in (
            (lambda x, w, a=attrs: conv(x, w, **a), [x, w]),
            (lambda x, d, a=attrs: conv_weight_grad(x, d, kernel_size=(3, 3), **a), [x, y]),
        ):
            assert all("few" not in p.name for p in plans(build.trace(fn, types), host()))
