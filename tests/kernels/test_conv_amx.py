"""Convolutions by AMX: their logic run by emulated tiles on any CPU, their code assembled for one that has them."""

from dataclasses import replace

import numpy as np
import pytest
from tests.kernels.test_conv import attributes, backward, forward, last, out_size, second, values

from treadle.ir import build, interp
from treadle.ir.types import bf16
from treadle.kernels import jit
from treadle.kernels.emulate import emulated
from treadle.kernels.target import host
from treadle.kernels.templates.conv import plans
from treadle.ops import activation
from treadle.ops.convolution import conv
from treadle.ops.reduce import broadcast_to

NEEDED = {"amx-tile", "amx-bf16", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512bf16", "fma", "avx2", "bmi2"}
SAPPHIRE = replace(host(), cpu="sapphirerapids", features=host().features | NEEDED, l2=2 << 20)
pytestmark = pytest.mark.skipif(not host().triple.startswith("x86"), reason="AMX is of x86")


def check(fn, types, special=(), most=2):
    body = build.trace(fn, types)
    offers = [p for p in plans(body, SAPPHIRE) if "amx" in p.name]
    assert offers
    arrays = values(types, 2, special)
    with np.errstate(all="ignore"):
        want = interp.run(body, *arrays)[0].astype(np.float64)
    for plan in offers[:most]:
        kernel = plan.build()
        code = jit.load(emulated(kernel.text))
        for threads in (1, 2):
            got = np.full(want.shape, 77, bf16[1].dtype.np)
            code.run([*arrays, got, np.full(kernel.workspace, 255, np.uint8)], threads)
            scale = np.abs(want[np.isfinite(want)]).max()
            np.testing.assert_allclose(got.astype(np.float64), want, rtol=0, atol=1.2e-2 * scale, err_msg=plan.name)


@pytest.mark.parametrize(
    "n, c, o, size, kernel, attrs",
    [
        (2, 32, 40, (7, 14), (3, 3), attributes()),
        (1, 45, 19, (9, 35), (3, 2), attributes(stride=(2, 1), padding=((1, 0), (1, 1)))),
        (3, 64, 70, (7, 7), (1, 1), attributes(padding=((0, 0), (0, 0)))),
        (1, 66, 36, (6, 9), (3, 3), attributes(groups=2, dilation=2, padding=((2, 2), (2, 2)))),
    ],
)
def test_sizes(n, c, o, size, kernel, attrs):
    w = bf16[o, c // attrs["groups"], *kernel]
    check(forward(attrs), [bf16[n, *size, c], w], special=(0,))
    check(backward(attrs, size), [bf16[n, *out_size(size, kernel, attrs), o], w], special=(0,), most=1)


def test_channels_second_and_what_follows():
    attrs = attributes()
    check(lambda x, w: conv(x, w, **attrs), [bf16[2, 21, 9, 19], bf16[40, 21, 3, 3]], special=(0,))

    def close(x, w, b):
        y = last(conv(second(x), w, **attrs))
        return activation.relu(y + broadcast_to(b, shape=y.shape))

    check(close, [bf16[2, 5, 9, 24], bf16[40, 24, 3, 3], bf16[40]])


def test_the_code_is_made_for_a_cpu_that_has_tiles():
    body = build.trace(forward(attributes()), [bf16[2, 14, 14, 64], bf16[64, 64, 3, 3]])
    plan = plans(body, SAPPHIRE)[0]
    assert "amx" in plan.name
    assert "tdpbf16ps" in jit.assembly(plan.build().text, SAPPHIRE)
