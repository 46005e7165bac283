"""Running products, extremes and logarithms of sums: against NumPy at many lengths, and the gradient at zeros."""

import numpy as np
import pytest
from tests.ops.test_special import both

from treadle import ops
from treadle.ir import build, interp
from treadle.ir.types import f64
from treadle.transforms.grad import vjp

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 33])
def test_numpys_running_functions(size):
    x = RNG.normal(size=(2, size))
    cases = [(ops.cumprod, np.multiply), (ops.cumlogsumexp, np.logaddexp)]
    for op, ufunc in cases:
        for result in both(op, x, axis=1, reverse=False):
            np.testing.assert_allclose(result, ufunc.accumulate(x, 1), rtol=1e-13)
        for result in both(op, x, axis=1, reverse=True):
            np.testing.assert_allclose(result, ufunc.accumulate(x[:, ::-1], 1)[:, ::-1], rtol=1e-12)


@pytest.mark.parametrize("op, ufunc", [(ops.cummax, np.maximum), (ops.cummin, np.minimum)])
def test_running_extremes_and_the_latest_places(op, ufunc):
    x = RNG.integers(0, 4, (3, 12)).astype(np.float32)
    x[1, 5] = np.nan
    for result in both(op, x, axis=1, reverse=False):
        np.testing.assert_array_equal(result, ufunc.accumulate(x, 1))
    fn = build.trace(lambda v: op(v, axis=1, reverse=False), [interp.type_of(x)])
    values, places = interp.run(fn, x)
    np.testing.assert_array_equal(np.take_along_axis(x, places, 1), values)
    for row, (value, place) in enumerate(zip(values, places, strict=True)):
        for i in range(12):
            same = [j for j in range(i + 1) if x[row, j] == value[i] or (np.isnan(x[row, j]) and np.isnan(value[i]))]
            assert place[i] == same[-1]


def test_the_gradient_of_a_product_with_zeros():
    """d(sum of running products)/dx_k is the sum over i >= k of the products of the others up to i."""
    x = np.array([2.0, 0.0, 3.0, 0.0, 5.0])
    module = vjp(build.trace(lambda v: ops.cumprod(v, axis=0, reverse=False), [f64[5]], "main"))
    (found,) = interp.run(module, x, np.ones(5))
    wanted = [sum(np.prod(np.delete(x[: i + 1], k)) for i in range(k, 5)) for k in range(5)]
    np.testing.assert_allclose(found, wanted, rtol=1e-15)
