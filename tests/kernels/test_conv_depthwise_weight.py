"""Weight gradients of depthwise convolutions where the images are: tasks, bands, kernels larger than registers."""

import numpy as np
import pytest
from tests.kernels.pages import at_page_end
from tests.kernels.test_conv import TARGETS, attributes, check, out_size, run, second, values, weights

from treadle.ir import build
from treadle.ir.types import bf16, f16, f32
from treadle.kernels import jit
from treadle.kernels.target import host
from treadle.kernels.templates.conv import plans
from treadle.kernels.templates.conv_depthwise_weight import rows_at_once
from treadle.ops.convolution import conv_weight_grad

CASES = {
    "one band": (3, 21, (7, 7), (3, 3), attributes(groups=21)),
    "blocks of channels": (2, 300, (9, 8), (3, 3), attributes(groups=300)),
    "bands": (2, 130, (37, 60), (3, 3), attributes(groups=130)),
    "strided bands": (1, 90, (95, 64), (3, 3), attributes(groups=90, stride=2)),
    "rows of the kernel in turn": (2, 33, (11, 19), (7, 7), attributes(groups=33, padding=((3, 3), (3, 3)))),
    "one place": (1, 48, (1, 1), (3, 3), attributes(groups=48)),
}


def gradient(case, t):
    n, c, size, kernel, attrs = CASES[case]
    return weights(attrs, kernel), [t[n, *size, c], t[n, *out_size(size, kernel, attrs), c]]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("t", [f32, bf16], ids=["f32", "bf16"])
def test_sums(t, case):
    fn, types = gradient(case, t)
    assert not plans(build.trace(fn, types), host())[0].name.endswith("copied")
    check(fn, types, most=1, threads=2)
    check(fn, types, most=1, special=(0, 1), seed=1)


@pytest.mark.parametrize("name", list(TARGETS)[1:])
@pytest.mark.parametrize("case", ["blocks of channels", "rows of the kernel in turn"])
def test_on_cpus_that_have_less(name, case):
    check(*gradient(case, f16 if case == "blocks of channels" else f32), target=TARGETS[name], most=1)


def test_what_registers_hold():
    assert [rows_at_once(k, 32) for k in ((3, 3), (7, 7), (1, 40))] == [3, 3, 0]
    assert [rows_at_once(k, 16) for k in ((3, 3), (5, 5), (2, 9))] == [3, 2, 1]


def test_what_follows():
    n, c, size, kernel, attrs = CASES["blocks of channels"]

    def update(x, dy, w):
        return w - conv_weight_grad(second(x), second(dy), kernel_size=kernel, **attrs) * 0.125

    check(update, [f32[n, *size, c], f32[n, *size, c], f32[c, 1, *kernel]], most=1)


@pytest.mark.parametrize("case", ["one band", "blocks of channels", "strided bands"])
def test_reads_end_with_the_images(case):
    fn, types = gradient(case, f32)
    body = build.trace(fn, types)
    kernel, arrays = plans(body, host())[0].build(), values(types, 1)
    outs = [at_page_end(np.zeros(o.shape, o.dtype.np)) for o in body.out_types]
    work = at_page_end(np.zeros(kernel.workspace, np.uint8))
    jit.load(kernel.text).run([*[at_page_end(a) for a in arrays], *outs, work])
    for threads in (1, 2):
        np.testing.assert_array_equal(outs[0], run(kernel, arrays, threads=threads)[0])
