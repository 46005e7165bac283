"""What a batch norm's gradient wants of a data gradient, taken by the convolution's kernel: against float64 of what is
written, on CPUs with less, with strides, and with numbers that are none."""

import numpy as np
import pytest
from tests.kernels.test_conv import TARGETS, attributes, last, out_size, run, second, values

from treadle import driver
from treadle.base.flags import override
from treadle.ir import build, interp
from treadle.ir.node import Module
from treadle.ir.types import bf16, bool_, f16, f32
from treadle.kernels.target import host
from treadle.kernels.templates.conv import plans
from treadle.ops.activation import relu
from treadle.ops.compare import select
from treadle.ops.convolution import conv, conv_input_grad
from treadle.ops.creation import full
from treadle.ops.groups import fused
from treadle.ops.norm_batch import batch_norm, channel_sums
from treadle.ops.reduce import reduce_sum
from treadle.transforms import fuse
from treadle.transforms.grad import vjp

NONE = ((0, 0), (0, 0))
CASES = {  # images, channels of dx, size, those of dy, kernel, attributes
    "wide": (2, 37, (9, 11), 5, (3, 3), attributes()),
    "many places": (1, 33, (40, 41), 4, (3, 3), attributes()),
    "pointwise": (3, 70, (7, 9), 20, (1, 1), attributes(padding=NONE)),
    "one channel": (2, 1, (6, 7), 3, (3, 3), attributes()),
    "strided": (2, 48, (13, 12), 16, (3, 3), attributes(stride=2)),
    "strided places": (2, 40, (9, 14), 16, (1, 1), attributes(stride=2, padding=NONE)),
    "strided down": (2, 20, (9, 8), 16, (3, 3), attributes(stride=(2, 1))),
    "strided across": (2, 20, (9, 8), 16, (3, 3), attributes(stride=(1, 3))),
    "winograd": (2, 40, (9, 12), 32, (3, 3), attributes()),
    "depthwise": (2, 21, (9, 11), 21, (3, 3), attributes(groups=21)),
    "depthwise strided": (2, 48, (15, 14), 48, (3, 3), attributes(stride=2, groups=48)),
    "depthwise strided places": (2, 19, (7, 6), 19, (1, 1), attributes(stride=2, groups=19, padding=NONE)),
}


def problem(case, dtype=f32, follow=None):
    """A body that gives dx, channels last, and the sums; and its types."""
    n, channels, size, outputs, kernel, attrs = CASES[case]
    image = dtype[n, *size, channels]
    types = [dtype[n, *out_size(size, kernel, attrs), outputs], dtype[outputs, channels // attrs["groups"], *kernel]]

    def body(dy, w, x, mean, *more):
        dx = last(conv_input_grad(second(dy), w, input_size=size, **attrs))
        dx = dx if follow is None else follow(dx, x, *more)
        return dx, *channel_sums(dx, x, mean, axis=3)

    return body, [*types, image, f32[channels]]


def masked(dx, x, mask):
    return select(mask, dx, full(shape=dx.shape, value=0.0, dtype=dx.dtype))


def drawn(types, seed):
    return [v > 0.3 if t.dtype.kind == "b" else v for t, v in zip(types, values(types, seed), strict=True)]


def check(body, types, target=None, threads=1, most=1, arrays=None):
    traced = build.trace(body, types)
    found = plans(traced, target or host())
    assert found, "no plan"
    given = drawn(types, 3) if arrays is None else arrays
    want = interp.run(traced, *given)[0].astype(np.float32)
    for plan in found[:most]:
        dx, total, along = run(plan.build(), given, target, threads)
        near = np.abs(want).max() * (2e-2 if dx.itemsize == 2 else 1e-5)
        np.testing.assert_allclose(dx.astype(np.float32), want, rtol=0, atol=near)
        wide, apart = dx.astype(np.float64), given[2].astype(np.float64) - given[3].astype(np.float64)
        for got, terms in ((total, wide), (along, wide * apart)):
            near = 2e-6 * np.abs(terms).sum((0, 1, 2)) + 1e-12
            assert (np.abs(got - terms.sum((0, 1, 2))) <= near).all(), plan.name
        yield plan.name, (dx, total, along)


@pytest.mark.parametrize("case", CASES)
def test_sums_of_what_is_written(case):
    names = [name for name, _ in check(*problem(case), most=9 if case == "winograd" else 1)]
    assert case != "winograd" or any("winograd" in name for name in names)


@pytest.mark.parametrize("target", list(TARGETS)[1:])
@pytest.mark.parametrize("case", ["strided", "depthwise"])
def test_cpus_that_have_less(case, target):
    for dtype in (f32, bf16):
        assert list(check(*problem(case, dtype), target=TARGETS[target]))


@pytest.mark.parametrize("case", ["wide", "pointwise", "strided", "depthwise strided"])
def test_they_are_of_the_rounded_values(case):
    for dtype in (bf16, f16):
        assert list(check(*problem(case, dtype)))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("target", TARGETS)
def test_every_plan(case, target):
    for dtype in (f32, bf16):
        assert list(check(*problem(case, dtype), target=TARGETS[target], most=9))


@pytest.mark.parametrize("case", ["pointwise", "strided", "winograd", "depthwise"])
def test_after_a_mask(case):
    body, types = problem(case, bf16, masked)
    assert list(check(body, [*types, bool_[types[2].shape]]))


def test_memory_of_what_is_read_afterwards_is_not_written():
    body, types = problem("pointwise", f32, lambda dx, x: dx + x)
    kernel = plans(build.trace(body, types), host())[0].build()
    assert all(read != 2 for _, read in kernel.aliases)
    assert list(check(body, types))


@pytest.mark.parametrize("case", ["wide", "winograd", "strided", "depthwise"])
def test_the_number_of_threads_changes_nothing(case):
    body, types = problem(case)
    one, two = ([r for _, r in check(body, types, threads=n)] for n in (1, 2))
    for first, second_ in zip(one, two, strict=True):
        for a, b in zip(first, second_, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("case", ["pointwise", "strided", "depthwise"])
def test_infinity_and_nan(case):
    body, types = problem(case)
    traced, arrays = build.trace(body, types), values(types, 7)
    arrays[0][0, 0, 0, 0] = np.inf
    arrays[2][1, 3, 3, 0] = np.nan
    arrays[1][:] = np.abs(arrays[1])
    with np.errstate(all="ignore"):
        want = interp.run(traced, *arrays)
    for got, right in zip(run(plans(traced, host())[0].build(), arrays), want, strict=True):
        np.testing.assert_array_equal(np.isnan(got), np.isnan(right))
        np.testing.assert_array_equal(np.isinf(got), np.isinf(right))


def test_what_is_not_taken():
    _, _, size, _, _, attrs = CASES["wide"]
    types = problem("wide")[1]
    gradient = lambda dy, w: last(conv_input_grad(second(dy), w, input_size=size, **attrs))

    def over_the_width(dy, w, x, mean):
        dx = gradient(dy, w)
        return dx, *channel_sums(dx, x, mean, axis=2)

    def of_what_is_computed(dy, w, x, mean):
        dx = gradient(dy, w)
        return dx, *channel_sums(dx, relu(x), mean, axis=3)

    def twice(dy, w, x, mean):
        dx = gradient(dy, w)
        return dx, *channel_sums(dx, x, mean, axis=3), *channel_sums(dx, x, mean * 2.0, axis=3)

    assert plans(build.trace(over_the_width, [*types[:3], f32[size[1]]]), host()) == []
    assert plans(build.trace(of_what_is_computed, types), host()) == []
    assert plans(build.trace(twice, types), host()) == []


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("deep", [False, True])
def test_in_a_program(monkeypatch, stride, deep):
    monkeypatch.setattr(fuse, "LEAST_GRAD", 0)
    monkeypatch.setattr(fuse, "LEAST_WHOLE", 0)
    taken = deep or stride == 1

    def layer(x, w, scale, bias, v):
        y = batch_norm(conv(x, w, **attributes()), scale, bias, eps=1e-3)[0]
        z = conv(relu(y), v, **attributes(stride=stride, groups=24 if deep else 1))
        return reduce_sum(z * z, axes=(0, 1, 2, 3))

    types = f32[2, 16, 9, 10], f32[24, 16, 3, 3], f32[24], f32[24], f32[24, 1 if deep else 24, 3, 3]
    module = vjp(Module.of(build.trace(layer, types)))
    arrays = [*values(types, 9), np.float32(1)]
    results = {}
    for level in (0, 3):
        with override(fusion=level):
            results[level] = [np.asarray(r) for r in driver.compile_module(module).call(arrays)]
            groups = [n.attrs["body"] for n in driver.grouped(module).main.nodes if n.op is fused]
            names = [{n.op.name for n in body.nodes} for body in groups]
            assert any({"channel_sums", "conv_input_grad"} <= found for found in names) == (level == 3 and taken)
            assert any("batch_norm_grad_summed" in found for found in names) == (level == 3 and taken)
    for a, b in zip(results[0], results[3], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * np.abs(a).max())
