"""Norms that are written out: which of their nodes become one group, and that it computes the same."""

import numpy as np
import pytest
from tests.transforms.test_leftover import grouped, needs_kernels

import treadle as td
from treadle.base.flags import override
from treadle.ir.types import bf16, f32
from treadle.ops.elementwise import square
from treadle.ops.functions import sqrt
from treadle.ops.reduce import broadcast_to, reduce_max, reduce_mean, reduce_sum
from treadle.ops.shape import reshape

ROWS, IMAGES = f32[128, 512], f32[4, 16, 24, 24]
CHANNEL = (0, 2, 3)


def spread(small, like, axes):
    shape = tuple([1 if a in axes else n for a, n in enumerate(like.shape)])
    return broadcast_to(reshape(small, shape=shape), shape=like.shape)


def centred(x, axes):
    return x - spread(reduce_mean(x, axes=axes), x, axes)


def variance(x, axes):
    return reduce_mean(square(centred(x, axes)), axes=axes)


def normed(x, axes):
    return centred(x, axes) / spread(sqrt(variance(x, axes) + 1e-3), x, axes)


@pytest.mark.parametrize(("t", "axes"), [(ROWS, (1,)), (IMAGES, CHANNEL), (IMAGES, (2, 3)), (bf16[128, 512], (1,))])
def test_reductions_of_the_same_rows_and_what_is_made_of_them_are_one_group(t, axes):
    (of_variance,) = grouped(lambda x: variance(x, axes), t)
    assert {"reduce_mean", "broadcast_to", "square"} <= set(of_variance)
    (whole,) = grouped(lambda x: normed(x, axes), t)
    assert {"reduce_mean", "square", "sqrt", "div"} <= set(whole)

    def with_statistics(x):
        mean = reduce_mean(x, axes=axes)
        rest = x - spread(mean, x, axes)
        return rest, mean, reduce_sum(square(rest), axes=axes)

    assert len(grouped(with_statistics, t)) == 1


def test_scales_are_spread_inside():
    (whole,) = grouped(lambda x, w: normed(x, (1,)) * broadcast_to(w, shape=ROWS.shape), ROWS, f32[512])
    assert whole.count("broadcast_to") == 5


@pytest.mark.parametrize(
    ("t", "axes"),
    [(f32[16, 64], (1,)), (f32[64, 64, 7, 7], CHANNEL), (f32[16, 4, 64, 64], CHANNEL)],
    ids=["little", "short runs through memory", "few rows"],
)
def test_rows_that_a_kernel_does_not_read_better_are_left(t, axes):
    assert all(names.count("reduce_mean") < 2 for names in grouped(lambda x: variance(x, axes), t))


def test_reductions_of_other_axes_are_other_groups():
    both = grouped(lambda x: (variance(x, (1,)), reduce_sum(x, axes=(0,))), ROWS)
    assert sorted("reduce_mean" in names for names in both) == [False, True]
    longer = grouped(lambda x: (variance(x, (2,)), variance(x, (1, 2))), f32[32, 16, 128])
    assert [names.count("reduce_mean") for names in longer] == [2, 2]


def test_rows_that_are_only_moved_are_not_stored():
    def moved(x):
        top = reduce_max(x, axes=(1,))
        wide = spread(top, x, (1,))
        return x - wide, reduce_sum(x, axes=(1,)), wide

    assert not any({"reduce_max", "broadcast_to"} <= set(names) for names in grouped(moved, ROWS))

    def at_the_end(x):
        return reshape(reduce_sum(x, axes=(1,)), shape=(128, 1)), reduce_max(x, axes=(1,))

    assert grouped(at_the_end, ROWS) == [["reduce_sum", "reduce_max"]]


@needs_kernels
@pytest.mark.parametrize(("shape", "axes"), [((128, 512), -1), ((4, 16, 24, 24), CHANNEL)])
def test_kernels_compute_them(shape, axes):
    def norm(x):
        mean = td.mean(x, axis=axes, keepdims=True)
        return (x - mean) * td.rsqrt(td.var(x, axis=axes, keepdims=True) + 1e-3)

    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    want = x.astype(np.float64)
    want = (want - want.mean(axes, keepdims=True)) / np.sqrt(want.var(axes, keepdims=True) + 1e-3)
    np.testing.assert_allclose(np.asarray(td.jit(norm)(td.tensor(x))), want, rtol=1e-5, atol=1e-5)
    grad = td.grad(lambda v: td.sum(norm(v) * td.sin(v)))
    made = np.asarray(td.jit(grad)(td.tensor(x)))
    with override(fusion=0):
        np.testing.assert_allclose(made, np.asarray(td.jit(grad)(td.tensor(x))), rtol=1e-4, atol=1e-5)
