"""Reductions where the generated tests do not look: ties, NaN in large tensors, products of zeros, extreme numbers."""

import ml_dtypes
import numpy as np
import pytest
from tests.ops.support import execute

from treadle import ops
from treadle.ir import build, interp
from treadle.ir.node import Module
from treadle.ir.types import type_of
from treadle.transforms.grad import vjp


def module(function, *arrays):
    return Module.of(build.trace(function, [type_of(a) for a in arrays], "main"))


def both(function, *arrays):
    """The interpreter's and the back end's results of a function with one result."""
    arrays = [np.asarray(a) for a in arrays]
    made = module(function, *arrays)
    return interp.run(made, *arrays)[0], execute(made, arrays, "test")[0]


def gradient(function, x, d):
    return interp.run(vjp(module(function, x)), x, np.asarray(d))[0]


@pytest.mark.parametrize("op", [ops.reduce_max, ops.reduce_min])
def test_equal_extremes_share_the_gradient(op):
    x = np.array([[3.0, 3.0, 3.0], [1.0, 2.0, 2.0]]) * (1 if op is ops.reduce_max else -1)
    found = gradient(lambda x: op(x, axes=(1,)), x, [6.0, 8.0])
    np.testing.assert_allclose(found, [[2.0, 2.0, 2.0], [0.0, 4.0, 4.0]])


@pytest.mark.parametrize("op", [ops.reduce_max, ops.reduce_min])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_nan_passes_through_large_reductions(op, dtype, axes):
    """A library that XLA uses on CPUs for reductions of this size drops NaN."""
    x = np.random.default_rng(0).normal(size=(64, 1000)).astype(np.dtype(dtype))
    x[3, 500] = x[63, 999] = np.nan
    plain, compiled = both(lambda x: op(x, axes=axes), x)
    where = np.isnan(x.astype(np.float32)).any(axis=axes)
    for found in (plain, compiled):
        assert np.array_equal(np.isnan(found.astype(np.float32)), where)
    assert np.array_equal(plain, compiled, equal_nan=True)


def test_infinities_are_extremes():
    x = np.array([[-np.inf, -np.inf], [np.inf, -np.inf]], np.float32)
    for found in both(lambda x: ops.reduce_max(x, axes=(1,)), x):
        assert found.tolist() == [-np.inf, np.inf]
    for found in both(lambda x: ops.reduce_min(x, axes=(0,)), x):
        assert found.tolist() == [-np.inf, -np.inf]


@pytest.mark.parametrize(
    "x, first, second",
    [
        ([2.0, 3.0, 4.0], [12, 8, 6], [[0, 4, 3], [4, 0, 2], [3, 2, 0]]),
        ([0.0, 3.0, 4.0], [12, 0, 0], [[0, 4, 3], [4, 0, 0], [3, 0, 0]]),
        ([0.0, 0.0, 4.0], [0, 0, 0], [[0, 4, 0], [4, 0, 0], [0, 0, 0]]),
        ([0.0, 0.0, 0.0], [0, 0, 0], [[0, 0, 0], [0, 0, 0], [0, 0, 0]]),
    ],
)
def test_derivatives_of_products_with_zeros(x, first, second):
    x = np.array(x)
    once = vjp(module(lambda x: ops.reduce_prod(x, axes=(0,)), x))
    assert interp.run(once, x, np.array(1.0))[0].tolist() == first
    for row, unit in zip(second, np.eye(3)):
        assert interp.run(vjp(once), x, np.array(1.0), unit)[0].tolist() == row


def test_logsumexp_of_extreme_numbers():
    inf = np.inf
    x = np.array([[1000.0, 1000.0], [-1000.0, -1001.0], [-inf, -inf], [inf, 0.0], [-inf, 2.0], [np.nan, 0.0]])
    wanted = [1000 + np.log(2), -1000 + np.log1p(np.exp(-1)), -inf, inf, 2.0, np.nan]
    for found in both(lambda x: ops.logsumexp(x, axes=(1,)), x):
        np.testing.assert_allclose(found, wanted, rtol=1e-14)
    found = gradient(lambda x: ops.logsumexp(x, axes=(1,)), x[:3], np.ones(3))
    np.testing.assert_allclose(found, [[0.5, 0.5], [1 / (1 + np.exp(-1)), 1 / (1 + np.e)], [0.0, 0.0]])
    undefined = gradient(lambda x: ops.logsumexp(x, axes=(1,)), x[3:4], np.ones(1))
    np.testing.assert_array_equal(undefined, [[np.nan, 0.0]])


def test_narrow_floats_are_summed_in_float32():
    many = np.full(4096, 20.0, np.float16)
    for found in both(lambda x: ops.reduce_mean(x, axes=(0,)), many):
        assert found == 20  # their sum is no float16
    ones = np.ones(1000, ml_dtypes.bfloat16)
    for found in both(lambda x: ops.reduce_sum(x, axes=(0,)), ones):
        assert found == 1000  # adding one by one stops at 256
    for found in both(lambda x: ops.cumsum(x, axis=0, reverse=False), ones):
        assert found[-1] == 1000


def test_the_mean_of_nothing_is_nan():
    for found in both(lambda x: ops.reduce_mean(x, axes=(0,)), np.zeros((0, 2))):
        assert found.shape == (2,)
        assert np.isnan(found).all()


@pytest.mark.parametrize("reverse", [False, True])
def test_long_running_sums(reverse):
    x = np.random.default_rng(1).integers(-9, 9, (3, 5000))
    plain, compiled = both(lambda x: ops.cumsum(x, axis=1, reverse=reverse), x)
    wanted = np.cumsum(x[:, ::-1], axis=1)[:, ::-1] if reverse else np.cumsum(x, axis=1)
    assert np.array_equal(plain, wanted)
    assert np.array_equal(compiled, wanted)
