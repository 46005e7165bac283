"""Convolutions with short sums, which are finished in registers; when sums are rounded, and how
their work is shared out."""

from dataclasses import replace

import numpy as np
import pytest
from tests.kernels.test_conv import TARGETS, attributes, check, last, out_size, run, second, values

from treadle.ir import build
from treadle.ir.types import bf16, f16, f32
from treadle.kernels.target import host
from treadle.kernels.templates import conv_schedule
from treadle.kernels.templates.conv import plans
from treadle.ops import activation
from treadle.ops.casting import cast
from treadle.ops.convolution import conv
from treadle.ops.elementwise import maximum, minimum
from treadle.ops.reduce import broadcast_to

PLAIN = attributes(padding=((0, 0), (0, 0)))


def biased(attrs, most):
    """relu6 of a float32 sum with a bias, and with `most` a residual added."""

    def fn(x, w, b, *r):
        y = cast(last(conv(second(x), w, **attrs)), dtype=f32.dtype)
        y = activation.relu6(cast(y + broadcast_to(b, shape=y.shape), dtype=x.dtype))
        return r[0] + y if most else y

    return fn


CASES = [  # images, channels, outputs, size, kernel, attributes: joined places, with a rest; taps; strides; borders
    (1, 16, 40, (7, 7), (1, 1), PLAIN),
    (3, 24, 65, (5, 9), (1, 1), PLAIN),
    (2, 7, 16, (1, 31), (1, 1), PLAIN),
    (1, 3, 33, (9, 14), (3, 3), attributes()),
    (2, 4, 20, (8, 11), (2, 3), attributes(stride=2, dilation=(1, 2))),
    (2, 12, 24, (6, 7), (1, 1), attributes(padding=((0, 1), (2, 0)), groups=2)),
]


NAMES = ["bf16-0", "bf16-1", "bf16-2", "bf16-3", "bf16-4", "bf16-5", "f32-1", "f32-3", "f16-2"]  # type, number of case


@pytest.mark.parametrize("name", NAMES)
def test_what_follows_is_done_in_registers(name):
    t, case = {"f32": f32, "bf16": bf16, "f16": f16}[name[:-2]], int(name[-1])
    n, c, o, size, kernel, attrs = CASES[case]
    types = [t[n, *size, c], t[o, c // attrs["groups"], *kernel], f32[o]]
    result = t[n, *out_size(size, kernel, attrs), o]
    for most in (False, True):
        own = [*types, result][: 4 if most else 3]
        check(biased(attrs, most), own, most=1, special=(0, 2), threads=2)
        text = plans(build.trace(biased(attrs, most), own), host())[0].build().text
        assert "@finish" not in text or host().registers != 32 or t is f16, most


@pytest.mark.parametrize("name", list(TARGETS)[1:])
def test_on_cpus_that_have_less(name):
    for n, c, o, size, kernel, attrs in CASES[1:4]:
        check(
            biased(attrs, False), [bf16[n, *size, c], bf16[o, c, *kernel], f32[o]], target=TARGETS[name], special=(0,)
        )


@pytest.mark.parametrize(
    "channels, follow",
    [(300, activation.relu), (16, lambda y: activation.gelu(y, approximate=False))],
    ids=["long", "dear"],
)
def test_long_sums_and_dear_formulas_go_through_memory(channels, follow):
    def fn(x, w):
        return follow(last(conv(second(x), w, **PLAIN)))

    types = [bf16[1, 6, 9, channels], bf16[40, channels, 1, 1]]
    check(fn, types)
    assert "@finish" in plans(build.trace(fn, types), host())[0].build().text


def small(x, w, b):
    return activation.relu(last(conv(second(x), w, **PLAIN)) + b)


def with_sums(x, w, b):
    y = last(conv(second(x), w, **PLAIN))
    return activation.relu(y + b), y


def with_image(x, w, b):
    y = last(conv(second(x), w, **PLAIN))
    return activation.relu(y + broadcast_to(b, shape=y.shape)) + y


@pytest.mark.parametrize("fn, begins", [(small, True), (with_sums, False), (with_image, False)])
def test_a_bias_begins_the_sums_that_nothing_else_reads(fn, begins):
    types = [f32[2, 9, 11, 24], f32[40, 24, 1, 1], f32[40]]
    check(fn, types, special=(0, 2), threads=2)
    functions = plans(build.trace(fn, types), host())[0].build().text.split("define ")
    tiles = [text for text in functions if "@tile_" in text.split("(")[0]]
    assert tiles
    assert host().registers != 32 or all(("fadd" not in text) == begins for text in tiles)


def single(x, w, b):
    y = cast(last(conv(second(x), w, **PLAIN)), dtype=f32.dtype)
    return cast(y + broadcast_to(b, shape=y.shape), dtype=bf16.dtype)


def both(x, w, b):
    y = last(conv(second(x), w, **PLAIN))
    return cast(cast(y, dtype=f32.dtype) + broadcast_to(b, shape=y.shape), dtype=bf16.dtype), y


def parts(fn):
    """The kernel's results, with the sums of the same places in float64."""
    types = [bf16[1, 9, 11, 32], bf16[48, 32, 1, 1], f32[48]]
    arrays = values(types, 4)
    sums = np.einsum("nhwc,oc->nhwo", arrays[0].astype(np.float64), arrays[1].astype(np.float64)[:, :, 0, 0])
    return run(plans(build.trace(fn, types), host())[0].build(), arrays), sums, arrays[2].astype(np.float64)


def test_sums_that_are_only_widened_are_rounded_once():
    (got,), sums, bias = parts(single)
    once = (sums + bias).astype(np.float32).astype(bf16.dtype.np)
    twice = (sums.astype(np.float32).astype(bf16.dtype.np).astype(np.float64) + bias).astype(np.float32)
    assert (got != once).mean() < 0.01 < (got != twice.astype(bf16.dtype.np)).mean()


def test_sums_that_are_results_too_are_rounded_before():
    (got, y), _, bias = parts(both)
    assert (got == (y.astype(np.float32) + bias.astype(np.float32)).astype(bf16.dtype.np)).all()


@pytest.mark.parametrize("t", [f32, bf16], ids=["f32", "bf16"])
def test_the_larger_of_a_number_and_0(t):
    """NaN passes, whichever its sign, and infinity does what it should."""
    x = np.array([0, 1, -1, 7, np.inf, -np.inf, np.nan, -np.nan], np.float32).reshape(1, 1, 8, 1).astype(t.dtype.np)

    def fn(x, w):
        y = last(conv(second(x), w, **PLAIN))
        return maximum(y, 0), minimum(y, 0), maximum(minimum(y, 6), 0)

    types = [t[1, 1, 8, 1], t[1, 1, 1, 1]]
    found = plans(build.trace(fn, types), host())
    high, low, within = (
        o.astype(np.float32).ravel() for o in run(found[0].build(), [x, np.ones((1,) * 4, t.dtype.np)])
    )
    np.testing.assert_array_equal(high, [0, 1, 0, 7, np.inf, 0, np.nan, np.nan])
    np.testing.assert_array_equal(low, [0, 0, -1, 0, 0, -np.inf, np.nan, np.nan])
    np.testing.assert_array_equal(within, [0, 1, 0, 6, 6, 0, np.nan, np.nan])


def ends(rows, panels, shares, cores):
    """When the last of some cores is done that take tasks in order."""
    cut = lambda whole, part: [min(part, whole - at) for at in range(0, whole, part)]
    busy = [0.0] * cores
    for n in cut(panels, shares[1]):
        for r in cut(rows, shares[0]):
            busy[busy.index(min(busy))] += r * n + 0.3
    return max(busy)


def test_tasks_end_at_about_the_same_time():
    two = replace(host(), cores=2)
    for rows in (1, 7, 9, 33, 131, 523):
        for panels in (1, 2, 3, 5, 9, 15):
            for shares in ((rows, 1), (max(rows // 7, 1), panels), (-(-rows // 2), -(-panels // 2))):
                found = conv_schedule._even(rows, panels, shares, two)
                assert 1 <= found[0] <= rows
                assert 1 <= found[1] <= panels
                assert ends(rows, panels, found, 2) <= ends(rows, panels, shares, 2)
    assert ends(33, 9, conv_schedule._even(33, 9, (33, 1), two), 2) < 1.04 * 33 * 9 / 2
    assert ends(9, 5, conv_schedule._even(9, 5, (9, 1), two), 2) < 1.15 * 9 * 5 / 2
