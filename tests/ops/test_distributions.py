"""Statistics of the draws of further distributions. Bounds are 5 standard errors or more; the draws never change."""

import math

import numpy as np
import pytest
from tests.ops.support import execute

from treadle import ops
from treadle.base import dtypes
from treadle.ir import build, interp
from treadle.ir.node import Module

KEY = np.array([11, 12], np.uint32)
N = 20000


def draw(op, *arrays, key=KEY, **attrs):
    """One draw on the back end."""
    arrays = [key, *map(np.asarray, arrays)]
    fn = build.trace(lambda *v: op(*v, **attrs), [interp.type_of(a) for a in arrays])
    return execute(Module.of(fn), arrays, op.name)[0]


def assert_distributed(found, cdf, factor=1.0):
    """The test of Kolmogorov: the largest distance of the distribution functions, beyond 2.2 / sqrt(n) once in 10**4
    draws."""
    x = np.sort(found.astype(np.float64))
    n = len(x)
    theory = cdf(x)
    steps = np.arange(n + 1) / n
    distance = max(np.max(np.abs(theory - steps[1:])), np.max(np.abs(theory - steps[:-1])))
    assert distance < factor * 2.2 / math.sqrt(n)


def erf(x):
    return np.array([math.erf(v) for v in x])


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
def test_exponential(dtype):
    x = draw(ops.random_exponential, shape=(N,), dtype=dtype)
    assert x.min() > 0
    assert_distributed(x, lambda x: 1 - np.exp(-x))


@pytest.mark.parametrize("low, high", [(-2.0, 2.0), (-0.5, 1.5), (2.0, math.inf), (-math.inf, -1.0)])
def test_truncated_normal(low, high):
    x = draw(ops.random_truncated_normal, shape=(N,), dtype=dtypes.float32, low=low, high=high)
    assert low <= x.min() and x.max() <= high and np.isfinite(x).all()
    first, last = (math.erf(b / math.sqrt(2)) for b in (low, high))
    assert_distributed(x, lambda x: (erf(x / math.sqrt(2)) - first) / (last - first))


def test_categorical():
    chances = np.array([0.5, 0.2, 0.0, 0.3])
    with np.errstate(divide="ignore"):
        x = draw(ops.random_categorical, np.log(chances).astype(np.float32), shape=(N,))
    counts = np.bincount(x, minlength=4)
    assert counts[2] == 0
    assert np.all(np.abs(counts - N * chances) <= 5 * np.sqrt(N * chances * (1 - chances)))
    rows = draw(ops.random_categorical, np.array([[50.0, 0.0], [0.0, 50.0]], np.float32), shape=(7, 2))
    np.testing.assert_array_equal(rows, np.tile([0, 1], (7, 1)))


def test_permutation():
    x = draw(ops.random_permutation, count=500)
    np.testing.assert_array_equal(np.sort(x), np.arange(500))
    places = np.array([draw_small(i) for i in range(600)])
    counts = np.array([np.bincount(places[:, k], minlength=3) for k in range(3)])
    assert np.all(np.abs(counts - 200) <= 5 * math.sqrt(600 * (1 / 3) * (2 / 3)))


def draw_small(seed):
    key = np.array([seed, 0], np.uint32)
    fn = build.trace(lambda k: ops.random_permutation(k, count=3), [interp.type_of(key)])
    return interp.run(fn, key)[0]


@pytest.mark.parametrize("type", [np.float32, np.float64])
def test_gamma_of_whole_parameters(type):
    """For whole alpha the distribution function is 1 - exp(-x) times the first terms of exp(x)."""
    draws = draw(ops.random_gamma, np.repeat(np.array([1, 3, 10], type), N))
    for alpha, x in zip((1, 3, 10), np.split(draws, 3), strict=True):
        assert_distributed(x, lambda x: 1 - np.exp(-x) * sum(x**k / math.factorial(k) for k in range(alpha)))  # noqa: B023


def test_gamma_of_one_half_is_half_a_squared_normal_number():
    x = draw(ops.random_gamma, np.full(N, 0.5, np.float32))
    assert_distributed(x, lambda x: erf(np.sqrt(x)))


def test_mean_and_variance_of_gamma():
    alphas = [0.1, 2.5, 1e3, 1e6]
    draws = draw(ops.random_gamma, np.repeat(np.array(alphas, np.float32), N)).astype(np.float64)
    for alpha, x in zip(alphas, np.split(draws, 4), strict=True):
        assert abs(x.mean() - alpha) < 5 * math.sqrt(alpha / N)
        assert abs(x.var() / alpha - 1) < 6 * math.sqrt((2 + 6 / alpha) / N)


def test_each_element_has_its_own_gamma_draw():
    x = draw(ops.random_gamma, np.full(1000, 2.0, np.float64))
    assert len(np.unique(x)) == 1000
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 0.16
    np.testing.assert_array_equal(draw(ops.random_gamma, np.full(10, 2.0, np.float64)), x[:10])
