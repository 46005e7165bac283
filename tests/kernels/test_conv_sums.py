"""Mean and variance of what a convolution writes, taken by its kernel: against float64, on CPUs with less, for means
that are far from zero, and with numbers that are none."""

import numpy as np
import pytest
from tests.kernels.test_conv import TARGETS, attributes, last, out_size, run, second, values

from treadle import driver
from treadle.base.flags import override
from treadle.ir import build, interp
from treadle.ir.node import Module
from treadle.ir.types import TensorType, bf16, f16, f32
from treadle.kernels.target import host
from treadle.kernels.templates.conv import plans
from treadle.ops.activation import relu
from treadle.ops.convolution import conv
from treadle.ops.groups import fused
from treadle.ops.norm_batch import batch_norm, channel_moments
from treadle.ops.reduce import broadcast_to
from treadle.transforms import fuse

CASES = {  # images, channels, size, outputs, kernel, attributes
    "wide": (2, 5, (9, 11), 37, (3, 3), attributes()),
    "many places": (1, 4, (40, 41), 33, (3, 3), attributes()),
    "pointwise": (3, 20, (7, 9), 70, (1, 1), attributes(padding=((0, 0), (0, 0)))),
    "one channel": (2, 3, (6, 7), 1, (3, 3), attributes()),
    "strided": (2, 16, (13, 12), 48, (3, 3), attributes(stride=2)),
    "winograd": (2, 32, (9, 12), 40, (3, 3), attributes()),
    "depthwise": (2, 21, (9, 11), 21, (3, 3), attributes(groups=21)),
    "depthwise strided": (2, 48, (14, 14), 48, (3, 3), attributes(stride=2, groups=48)),
}


def problem(case, dtype=f32, follow=None):
    """A body that gives the convolution's result, channels last, and the moments; and its types."""
    n, channels, size, outputs, kernel, attrs = CASES[case]
    types = [dtype[n, *size, channels], dtype[outputs, channels // attrs["groups"], *kernel]]
    shape = (n, *out_size(size, kernel, attrs), outputs)

    def body(x, w, *more):
        y = last(conv(second(x), w, **attrs))
        y = y if follow is None else follow(y, shape, *more)
        return y, *channel_moments(y, axis=3)

    return body, types


def exact(y):
    """Mean and variance in float64, of values as they were written."""
    y = y.astype(np.float64).reshape(-1, y.shape[-1])
    return y.mean(0), y.var(0)


def check(body, types, target=None, threads=1, most=1, arrays=None):
    traced = build.trace(body, types)
    found = plans(traced, target or host())
    assert found, "no plan"
    given = values(types, 3) if arrays is None else arrays
    want = interp.run(traced, *given)[0].astype(np.float32)
    for plan in found[:most]:
        y, mean, var = run(plan.build(), given, target, threads)
        np.testing.assert_allclose(y.astype(np.float32), want, rtol=2e-2 if y.dtype.itemsize == 2 else 1e-3, atol=1e-3)
        right, square = exact(y)
        scale = np.sqrt(square) + 1e-30
        assert np.abs(mean - right).max() <= 3e-6 * (scale + np.abs(right)).max(), plan.name
        assert (np.abs(var - square) <= 4e-6 * square + 1e-12).all(), plan.name
        yield plan.name, (y, mean, var)


@pytest.mark.parametrize("case", CASES)
def test_moments_of_what_is_written(case):
    names = [name for name, _ in check(*problem(case), most=9 if case == "winograd" else 1)]
    assert case != "winograd" or any("winograd" in name for name in names)


@pytest.mark.parametrize("target", list(TARGETS)[1:])
@pytest.mark.parametrize("case", ["wide", "depthwise"])
def test_cpus_that_have_less(case, target):
    for dtype in (f32, bf16):
        assert list(check(*problem(case, dtype), target=TARGETS[target]))


@pytest.mark.parametrize("case", ["wide", "pointwise", "depthwise"])
def test_they_are_of_the_rounded_values(case):
    for dtype in (bf16, f16):
        assert list(check(*problem(case, dtype)))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("target", TARGETS)
def test_every_plan(case, target):
    for dtype in (f32, bf16):
        assert list(check(*problem(case, dtype), target=TARGETS[target], most=9))


@pytest.mark.parametrize("case", ["wide", "depthwise"])
def test_after_what_follows_the_convolution(case):
    def follow(y, shape, bias):
        return relu(y + broadcast_to(bias, shape=shape))

    body, types = problem(case, follow=follow)
    assert list(check(body, [*types, f32[types[1].shape[0]]]))


@pytest.mark.parametrize("case", ["winograd", "pointwise", "depthwise"])
def test_a_mean_far_from_zero(case):
    def follow(y, shape, bias):
        return y + broadcast_to(bias, shape=shape)

    body, types = problem(case, follow=follow)
    types = [*types, f32[types[1].shape[0]]]
    arrays = values(types, 5)
    arrays[2] = np.full_like(arrays[2], 30000.0)
    assert list(check(body, types, arrays=arrays))


def test_some_values_may_lie_far_from_the_others():
    body, types = problem("pointwise")
    arrays = values(types, 6)
    arrays[0][:, 0, 0, :] *= 1e4  # the corner of each image
    assert list(check(body, types, arrays=arrays))


@pytest.mark.parametrize("case", ["wide", "winograd", "depthwise"])
def test_the_number_of_threads_changes_nothing(case):
    body, types = problem(case)
    one, two = ([r for _, r in check(body, types, threads=n)] for n in (1, 2))
    for first, second_ in zip(one, two, strict=True):
        for a, b in zip(first, second_, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("case", ["wide", "pointwise", "winograd", "depthwise"])
def test_infinity_and_nan(case):
    body, types = problem(case)
    traced = build.trace(body, types)
    arrays = values(types, 7)
    arrays[0][0, 0, 0, 0] = np.inf
    arrays[0][1, 3, 3, 2] = np.nan
    arrays[1][:] = np.abs(arrays[1])
    with np.errstate(all="ignore"):
        want = interp.run(traced, *arrays)
    for plan in plans(traced, host())[:1]:
        _, mean, var = run(plan.build(), arrays)
        np.testing.assert_array_equal(np.isnan(mean), np.isnan(want[1]))
        np.testing.assert_array_equal(np.isinf(mean), np.isinf(want[1]))
        np.testing.assert_array_equal(np.isfinite(var), np.isfinite(want[2]))


def test_moments_that_nobody_wants_are_not_written():
    body, types = problem("pointwise")
    traced = build.trace(lambda x, w: body(x, w)[:2], types)
    arrays = values(types, 8)
    y, mean = run(plans(traced, host())[0].build(), arrays)
    np.testing.assert_allclose(mean, exact(y)[0], rtol=1e-4, atol=1e-5)


def test_what_is_not_taken():
    n, channels, size, outputs, kernel, attrs = CASES["wide"]
    types = [f32[n, *size, channels], f32[outputs, channels, *kernel]]

    def over_the_width(x, w):
        y = last(conv(second(x), w, **attrs))
        return y, *channel_moments(y, axis=2)

    def of_what_is_kept(x, w):
        y = last(conv(second(x), w, **attrs))
        return relu(y), *channel_moments(y, axis=3)

    def in_groups(x, w):
        y = last(conv(second(x), w, **attributes(groups=2)))
        return y, *channel_moments(y, axis=3)

    assert plans(build.trace(over_the_width, types), host()) == []
    assert plans(build.trace(of_what_is_kept, types), host()) == []
    assert plans(build.trace(in_groups, [f32[2, 6, 6, 8], TensorType(f32.dtype, (6, 4, 3, 3))]), host()) == []


def test_in_a_program(monkeypatch):
    monkeypatch.setattr(fuse, "LEAST_NORM", 0)

    def layer(x, w, scale, bias):
        y, mean, var = batch_norm(conv(x, w, **attributes()), scale, bias, eps=1e-3)
        return relu(y), mean, var

    types = f32[2, 16, 9, 10], f32[24, 16, 3, 3], f32[24], f32[24]
    module = Module.of(build.trace(layer, types))
    arrays = values(types, 9)
    results = {}
    for level in (0, 3):
        with override(fusion=level):
            results[level] = [np.asarray(r) for r in driver.compile_module(module).call(arrays)]
            bodies = [n.attrs["body"] for n in driver.grouped(module).main.nodes if n.op is fused]
            names = [n.op.name for body in bodies for n in body.nodes]
            assert ("channel_moments" in names) == (level == 3)
    for a, b in zip(results[0], results[3], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
