"""Pooling where the generated tests cannot look: ties, NaN and infinities, in small and in large windows."""

import numpy as np
import pytest
from tests.ops.support import execute

import treadle as td
from treadle import ops
from treadle.ir import build, interp
from treadle.ir.node import Module
from treadle.ir.types import type_of

LARGE = 66  # more elements than are unrolled


def both(function, *arrays):
    """By the interpreter and by the back end."""
    fn = build.trace(function, [type_of(a) for a in arrays])
    (found,), (reference,) = execute(Module.of(fn), arrays, "pool"), interp.run(fn, *arrays)
    np.testing.assert_array_equal(found, reference)
    return found


@pytest.mark.parametrize("window", [3, LARGE])
def test_the_first_of_equal_maxima_takes_the_gradient(window):
    attrs = {"window": (window,), "stride": (window,), "padding": ((0, 0),)}
    x = np.zeros((1, 1, 2 * window))
    x[..., 1] = x[..., 2] = 5
    dx = both(lambda x, d: ops.max_pool_grad(x, d, **attrs), x, np.array([[[2.0, 3.0]]]))
    assert dx[0, 0, 1] == 2
    assert dx[0, 0, window] == 3
    assert np.count_nonzero(dx) == 2


@pytest.mark.parametrize("window", [3, LARGE])
def test_nan_passes_through_and_takes_the_gradient(window):
    attrs = {"window": (window,), "stride": (1,), "padding": ((0, 0),)}
    x = np.arange(window, dtype=np.float64).reshape(1, 1, window)
    x[..., 1] = np.nan
    assert np.isnan(both(lambda x: ops.max_pool(x, **attrs), x)).all()
    dx = both(lambda x, d: ops.max_pool_grad(x, d, **attrs), x, np.ones((1, 1, 1)))
    assert dx[0, 0].tolist() == [float(i == 1) for i in range(window)]


@pytest.mark.parametrize("window", [3, LARGE])
def test_padding_never_wins(window):
    """Not even against elements that are -inf."""
    attrs = {"window": (window,), "stride": (1,), "padding": ((window - 1, 0),)}
    x = np.full((1, 1, 2), -np.inf)
    assert (both(lambda x: ops.max_pool(x, **attrs), np.array([[[-7.0, -8.0]]])) == -7).all()
    dx = both(lambda x, d: ops.max_pool_grad(x, d, **attrs), x, np.ones((1, 1, 2)))
    assert dx.tolist() == [[[2, 0]]]


def test_the_mean_leaves_padding_out_or_counts_it():
    attrs = {"window": (2,), "stride": (1,), "padding": ((1, 1),)}
    x = np.array([[[4.0, 6.0]]])
    counted = both(lambda x: ops.avg_pool(x, count_include_pad=True, **attrs), x)
    assert counted.tolist() == [[[2, 5, 3]]]
    assert both(lambda x: ops.avg_pool(x, count_include_pad=False, **attrs), x).tolist() == [[[4, 5, 6]]]


def test_nan_survives_a_window_over_the_whole_plane():
    """XLA turns such a window into a reduction, whose library for CPUs loses NaN when it knows it as a maximum."""
    x = np.random.default_rng(0).normal(size=(2, 2, 64, 64)).astype(np.float32)
    x[0, 1, 40, 7] = x[1, 0, 0, 0] = np.nan
    found = td.nn.functional.max_pool2d(td.tensor(x), 64).numpy()
    np.testing.assert_array_equal(found[..., 0, 0], x.max(axis=(2, 3)))
