"""Winograd's convolutions against sums in float64 and against the direct kernels; what overflows or is not finite."""

import numpy as np
import pytest
from tests.kernels.pages import at_page_end
from tests.kernels.test_conv import TARGETS, attributes, backward, forward, last, run, second, values, weights

from treadle.ir import build, interp
from treadle.ir.types import f32, f64
from treadle.kernels import jit
from treadle.kernels.target import host
from treadle.kernels.templates.conv import plans
from treadle.ops import activation
from treadle.ops.convolution import conv, conv_input_grad, conv_weight_grad
from treadle.ops.reduce import broadcast_to
from treadle.ops.shape import reshape


def both(body, target=None):
    """Plans of either kind."""
    found = plans(body, target or host())
    ours = [p for p in found if "winograd" in p.name]
    return ours, [p for p in found if p not in ours]


def far(got, want):
    """The largest error, for the largest number."""
    return float(np.abs(got - want).max() / np.abs(want).max())


def check(fn, types, target=None, most=1, threads=1, seed=0):
    """Errors are at most 4 times those of the direct kernel, against float64."""
    body = build.trace(fn, types)
    wide = build.trace(fn, [f64[t.shape] for t in types])
    arrays = values(types, seed)
    want = interp.run(wide, *[a.astype(np.float64) for a in arrays])
    ours, direct = both(body, target)
    assert ours and direct
    known = run(direct[0].build(), arrays, target)
    for plan in ours[:most]:
        for got, ref, exact in zip(run(plan.build(), arrays, target, threads), known, want, strict=True):
            assert far(got, exact) <= max(4 * far(ref, exact), 1e-6), plan.name


def directions(n, c, o, size, padding=((1, 1), (1, 1))):
    """(function, types) of the outputs and of both gradients."""
    attrs = attributes(padding=padding)
    out = tuple(a + sum(p) - 2 for a, p in zip(size, padding, strict=True))
    x, dy, w = f32[n, *size, c], f32[n, *out, o], f32[o, c, 3, 3]
    return [(forward(attrs), [x, w]), (backward(attrs, size), [dy, w]), (weights(attrs, (3, 3)), [x, dy])]


CASES = [
    (2, 16, 32, (8, 14)),
    (1, 33, 19, (9, 13), ((0, 2), (1, 0))),
    (3, 130, 67, (7, 5)),
    (1, 5, 3, (1, 1)),
    (5, 40, 17, (3, 4), ((2, 2), (2, 1))),
    (1, 64, 48, (21, 1), ((0, 0), (1, 1))),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_sizes(case):
    for fn, types in directions(*CASES[case]):
        check(fn, types, threads=2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_random_sizes_by_every_plan(seed):
    rng = np.random.default_rng(seed)
    c, o = (int(n) for n in rng.integers(1, 130, 2))
    size = tuple(int(n) for n in rng.integers(3, 30, 2))
    padding = tuple((int(a), int(b)) for a, b in rng.integers(0, 3, (2, 2)))
    for fn, types in directions(int(rng.integers(1, 4)), c, o, size, padding):
        check(fn, types, most=9)


@pytest.mark.parametrize("name", list(TARGETS)[2:])
def test_cpus_that_have_less(name):
    for fn, types in directions(2, 21, 35, (9, 6)):
        check(fn, types, TARGETS[name])


def test_channels_second_and_what_follows():
    attrs = attributes()

    def close(x, w, b, r):
        y = last(conv(second(x), w, **attrs))
        return activation.relu(y + broadcast_to(b, shape=y.shape) + r), y

    check(close, [f32[3, 7, 9, 24], f32[40, 24, 3, 3], f32[40], f32[3, 7, 9, 40]])

    def second_(x, w, b, r):
        y = conv(x, w, **attrs)
        return activation.relu(y + broadcast_to(reshape(b, shape=(1, 40, 1, 1)), shape=y.shape)) * r

    check(second_, [f32[3, 24, 7, 19], f32[40, 24, 3, 3], f32[40], f32[3, 40, 7, 19]])
    size = (21, 9)
    check(
        lambda d, w: conv_input_grad(d, w, input_size=size, **attrs), [f32[2, 40, *size], f32[40, 24, 3, 3]], threads=2
    )

    def update(x, dy, w):
        return w - conv_weight_grad(x, second(dy), kernel_size=(3, 3), **attrs) * 0.125

    check(update, [f32[3, 24, 7, 9], f32[3, 7, 9, 40], f32[40, 24, 3, 3]], threads=2)


def test_gradients_with_channels_second():
    """Both images of a weight gradient; the direct kernels take no such gradients of outputs."""
    fn = lambda x, dy: conv_weight_grad(x, dy, kernel_size=(3, 3), **attributes())
    body = build.trace(fn, [f32[3, 24, 7, 9], f32[3, 40, 7, 9]])
    ours, direct = both(body)
    assert ours and not direct
    arrays = values(body.in_types, 0)
    for large in (1.0, 1e20):
        given = [arrays[0] * np.float32(large), arrays[1]]
        want = interp.run(
            build.trace(fn, [f64[t.shape] for t in body.in_types]), *[a.astype(np.float64) for a in given]
        )
        assert far(run(ours[0].build(), given, threads=2)[0], want[0]) < 1e-6
    few = plans(build.trace(fn, [f32[3, 4, 7, 9], f32[3, 40, 7, 9]]), host())
    assert few and all("few channels" in plan.name for plan in few)


def same(a, b):
    """What is not finite must be the same in both; returns how much is not."""
    odd = ~np.isfinite(a) | ~np.isfinite(b)
    np.testing.assert_array_equal(a[odd], b[odd])
    return int(odd.sum())


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, 3e38, -1e30])
def test_what_is_not_finite_is_where_the_direct_kernel_has_it(which, special):
    """In images and in weights; numbers that overflow when they are added or multiplied."""
    for fn, types in directions(2, 20, 35, (11, 10)):
        body, arrays = build.trace(fn, types), values(types, 3)
        some = arrays[which].reshape(-1)
        some[np.random.default_rng(0).integers(0, some.size, 7)] = special
        if abs(special) < np.inf:
            arrays[1 - which] *= 1e3
        ours, direct = both(body)
        assert same(run(ours[0].build(), arrays)[0], run(direct[0].build(), arrays)[0]) > 0 or special == -1e30


@pytest.mark.parametrize("name", ["host", "avx2", "plain"])
def test_where_all_is_large_results_are_those_of_the_direct_kernel(name):
    target = TARGETS[name]
    for fn, types in directions(1, 9, 35, (6, 7))[:2]:
        body, arrays = build.trace(fn, types), values(types, 5)
        ours, direct = both(body, target)
        for one in (0, 1):
            large = [a * np.float32(1e30 if i == one else 3e7) for i, a in enumerate(arrays)]
            got, want = (run(p.build(), large, target)[0] for p in (ours[0], direct[0]))
            np.testing.assert_array_equal(got, want)
            assert 0 < np.isfinite(want).sum() < want.size


@pytest.mark.parametrize("sizes", [(1e19, 1e16), (1e-3, 1e37)])
def test_sums_of_weights_that_would_overflow_between(sizes):
    fn, types = directions(1, 9, 35, (6, 7))[2]
    body = build.trace(fn, types)
    arrays = [a * np.float32(size) for a, size in zip(values(types, 5), sizes, strict=True)]
    ours, direct = both(body)
    got, want = (run(p.build(), arrays)[0] for p in (ours[0], direct[0]))
    assert np.isfinite(got).all() and far(got, want) < 1e-6


def test_a_number_alone_is_not_made_less_exact_by_its_neighbours():
    """Of a tile's four results each is as exact as what it reads: errors are no larger next to large numbers."""
    fn, types = directions(1, 16, 16, (8, 8))[0]
    body, arrays = build.trace(fn, types), values(types, 1)
    arrays[0][0, 3, 4] *= 1e9
    got = run(both(body)[0][0].build(), arrays)[0]
    want = interp.run(body, *arrays)[0]
    away = np.ones((8, 8), bool)
    away[2:5, 3:6] = False
    assert np.abs(got - want)[0][away].max() < 1e-4 < np.abs(want)[0][~away].max()


def test_nothing_is_read_behind_an_array():
    attrs = attributes()
    bodies = [*directions(1, 21, 19, (7, 5)), (lambda x, w: conv(x, w, **attrs), [f32[1, 21, 7, 5], f32[19, 21, 3, 3]])]
    for fn, types in bodies:
        body, arrays = build.trace(fn, types), values(types, 1)
        kernel = both(body)[0][0].build()
        outs = [at_page_end(np.zeros(o.shape, o.dtype.np)) for o in body.out_types]
        work = at_page_end(np.zeros(kernel.workspace, np.uint8))
        jit.load(kernel.text).run([*[at_page_end(a) for a in arrays], *outs, work])
        np.testing.assert_array_equal(outs[0], run(kernel, arrays)[0])


def test_threads_change_nothing():
    for fn, types in directions(3, 40, 70, (13, 12)):
        body, arrays = build.trace(fn, types), values(types, 2)
        kernel = both(body)[0][0].build()
        np.testing.assert_array_equal(run(kernel, arrays, threads=1)[0], run(kernel, arrays, threads=2)[0])


def test_where_it_is_offered():
    def names(t, c, o, size, **how):
        body = build.trace(forward(attributes(**how)), [t[2, *size, c], t[o, c // how.get("groups", 1), 3, 3]])
        return ["winograd" in p.name for p in plans(body, host())]

    assert names(f32, 64, 64, (14, 14))[0]
    assert names(f32, 64, 64, (7, 7))[0]
    for few in (names(f32, 4, 64, (14, 14)), names(f32, 64, 64, (2, 2))):
        assert not few[0] and few[-1]
    for other in ({"stride": 2}, {"dilation": 2, "padding": ((2, 2), (2, 2))}, {"groups": 2}):
        assert not any(names(f32, 64, 64, (14, 14), **other))
    assert not any(names(f32, 40000, 64, (14, 14)))
