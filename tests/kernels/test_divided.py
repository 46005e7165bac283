"""Kernels in two: what one packs beforehand and the other takes gives, bit by bit, what the whole kernel gives."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from treadle.base import dtypes
from treadle.ir import build, interp
from treadle.ir.types import bf16, f32
from treadle.kernels import engine, jit
from treadle.kernels.divided import divide, named
from treadle.kernels.target import host
from treadle.ops.activation import relu
from treadle.ops.convolution import conv, conv_input_grad
from treadle.ops.elementwise import add
from treadle.ops.products import matmul
from treadle.ops.reduce import broadcast_to
from treadle.ops.shape import reshape, transpose

TARGETS = {
    "host": host(),
    "no pairs": host().without("avx512bf16"),
    "avx2": host().without("avx512f"),
    "plain": host().without("avx512f", "avx2", "fma", "avx", "f16c"),
}
ATTRS = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}


def linear(x, w, b):
    y = matmul(x, transpose(w, perm=(1, 0)))
    return relu(add(y, broadcast_to(b, shape=y.shape)))


def convolve(x, w, b, *, op=conv, planar=False, **attrs):
    attrs = {**ATTRS, **attrs}
    y = op(x if planar else transpose(x, perm=(0, 3, 1, 2)), w, **attrs)
    y = relu(add(y, broadcast_to(reshape(b, shape=(y.shape[1], 1, 1)), shape=y.shape)))
    return transpose(y, perm=(0, 2, 3, 1))


def image(channels, outputs, kernel=3, size=9, groups=1):
    return [f32[2, size, size, channels], f32[outputs, channels // groups, kernel, kernel], f32[outputs]]


CASES = {
    "product": (linear, [f32[61, 130], f32[67, 130], f32[67]]),
    "product in blocks": (linear, [f32[40, 1700], f32[33, 1700], f32[33]]),
    "product of pairs": (linear, [bf16[61, 131], bf16[67, 131], bf16[67]]),
    "3x3": (convolve, image(19, 37)),
    "3x3 large": (convolve, image(64, 64, size=14)),
    "1x1": (partial(convolve, padding=((0, 0), (0, 0))), image(48, 33, 1)),
    "strided": (partial(convolve, stride=(2, 2)), image(20, 24, size=11)),
    "grouped": (partial(convolve, groups=4), image(32, 64, groups=4)),
    "depthwise": (partial(convolve, groups=21), image(21, 21, groups=21)),
    "channels second": (partial(convolve, planar=True), [f32[2, 5, 11, 11], f32[18, 5, 3, 3], f32[18]]),
    "bfloat16": (convolve, [bf16[1, 8, 8, 34], bf16[50, 34, 3, 3], bf16[50]]),
}


def values(types, seed, odd=()):
    rng = np.random.default_rng(seed)
    arrays = [rng.normal(size=t.shape).astype(np.float32) for t in types]
    for i in odd:
        arrays[i].reshape(-1)[rng.integers(0, arrays[i].size, 3)] = [np.nan, np.inf, -np.inf]
    return [a.astype(t.dtype.np) for a, t in zip(arrays, types, strict=True)]


def outputs_of(body):
    return [np.empty(t.shape, t.dtype.np) for t in body.out_types]


def whole(kernel, body, arrays, target, threads):
    out = outputs_of(body)
    work = [np.empty(kernel.workspace, np.uint8)] if kernel.workspace else []
    jit.load(kernel.text, target).run([*arrays, *out, *work], threads)
    return out


def in_two(kernel, body, arrays, target, threads):
    """The outputs. The packed input is not given to the second kernel unless it says that it reads it."""
    pack, main = kernel.divided()
    at, out, panels = kernel.packs, outputs_of(body), np.full(kernel.workspace + 64, 0xA5, np.uint8)
    given = [np.empty(1, np.uint8)] * (len(arrays) + len(out)) + [panels]
    given[at] = arrays[at]
    jit.load(pack.text, target).run(given, threads)
    assert (panels[-64:] == 0xA5).all()
    before = panels.copy()
    rest = [a if i != at or kernel.reads else np.empty(1, np.uint8) for i, a in enumerate(arrays)]
    jit.load(main.text, target).run([*rest, *out, panels], threads)
    np.testing.assert_array_equal(panels, before)
    assert main.workspace == 0 and main.inputs[at if not kernel.reads else -1].dtype is dtypes.uint8
    return out


QUICK = [(n, "host") for n in CASES if n != "3x3 large"] + [("product of pairs", "avx2"), ("strided", "plain")]


@pytest.mark.parametrize(("name", "target"), QUICK)
def test_in_two_as_in_one(name, target):
    assert compared(name, target, 1) or name == "channels second"


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_all_plans_in_two_as_in_one(name, target):
    assert compared(name, target, 9) or name == "channels second"


def compared(name, target, count):
    """Compare the first plans; how many of them pack something."""
    made, types = CASES[name]
    body, machine = build.trace(made, types), TARGETS[target]
    divided = 0
    for plan in engine.plans(body, machine)[:count]:
        one = plan.build()
        kernel = plan.apart() if plan.apart else one
        if kernel.packs < 0:
            continue
        divided += 1
        for odd in ((), (0,), (1,)):
            arrays = values(types, len(name), odd)
            want = whole(one, body, arrays, machine, 1)
            for threads in (1, 2):
                for w, g in zip(want, in_two(kernel, body, arrays, machine, threads), strict=True):
                    np.testing.assert_array_equal(g.astype(np.float32), w.astype(np.float32))
    return divided


def test_a_data_gradient_in_two():
    types = [f32[2, 9, 9, 37], f32[37, 19, 3, 3], f32[19]]
    size = {"input_size": (9, 9)}
    body = build.trace(lambda x, w, b: convolve(x, w, b, op=partial(conv_input_grad, **size)), types)
    kernel, arrays = engine.plans(body)[0].build(), values(types, 3)
    for w, g in zip(whole(kernel, body, arrays, host(), 1), in_two(kernel, body, arrays, host(), 2), strict=True):
        np.testing.assert_array_equal(g, w)


def test_divide_gives_what_the_body_means():
    body = build.trace(linear, [f32[64, 96], f32[80, 96], f32[80]])
    with ThreadPoolExecutor(1) as pool:
        found = divide(body, pool)
        assert found is divide(body, pool) and found is named(found.name)
        x, w, b = values(body.in_types, 5)
        panels = found.panels(w)
        assert panels.dtype == np.uint8 and panels.shape == (found.bytes,) and found.operand == 1
        out = np.empty((64, 80), np.float32)
        found.code.run([x, panels, b, out, panels])
        np.testing.assert_allclose(out, interp.run(body, x, w, b)[0], rtol=1e-5, atol=1e-5)


def test_no_kernel_in_two():
    with ThreadPoolExecutor(1) as pool:
        assert divide(build.trace(matmul, [f32[64, 64], f32[64, 64]]), pool) is None  # B is read where it is
        body = build.trace(linear, [f32[64, 96], f32[80, 96], f32[80]])
        with engine.only("xla"):
            assert divide(body, pool) is None
    assert named("none of these") is None
