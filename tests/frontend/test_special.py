"""The special, inverse, cumulative and random functions of the surface, eager and traced."""

import math

import numpy as np
import pytest
from tests.frontend.surface import both, close, eager, same

from treadle.base.errors import UserError
from treadle.frontend import create as c
from treadle.frontend import functions as F

X = np.array([[0.25, 1.5, 2.0], [3.25, 0.125, 7.0]])
N = np.array([[12, -18, 0], [5, 7, 100]], np.int32)


@pytest.mark.parametrize("name", ["arcsinh", "arctan", "sinh", "cosh", "exp2", "log2", "log10", "sinc"])
def test_functions_of_numpy(name):
    ours, numpy = getattr(F, name), getattr(np, name)
    close(both(ours, X), numpy(X))
    assert both(ours, np.array([1, 2])).dtype == np.float32


def test_inverse_functions_and_their_short_names():
    close(both(F.acosh, X + 1), np.arccosh(X + 1))
    for ours, numpy in ((F.asin, np.arcsin), (F.acos, np.arccos), (F.atanh, np.arctanh)):
        close(both(ours, X / 8), numpy(X / 8))
    assert F.asinh is F.arcsinh


def test_complex_numbers_where_they_are_meant():
    z = np.array([1 + 2j, -0.5j])
    for name in ("sinh", "cosh", "log2", "log10"):
        close(both(getattr(F, name), z), getattr(np, name)(z))


def test_pairs():
    for name in ("hypot", "logaddexp", "copysign", "nextafter", "arctan2"):
        ours, numpy = getattr(F, name), getattr(np, name)
        close(both(ours, X, -X[::-1]), numpy(X, -X[::-1]))
        close(both(lambda x: ours(x, -1.0), X), numpy(X, -1.0))  # noqa: B023
        assert both(ours, N, N).dtype == np.float32
    for name in ("gcd", "lcm"):
        same(both(getattr(F, name), N, N[:, ::-1]), getattr(np, name)(N, N[:, ::-1]))
        same(both(lambda x: getattr(F, name)(x, 6), N), getattr(np, name)(N, np.int32(6)))  # noqa: B023


def test_gamma_functions():
    close(both(F.lgamma, X), np.vectorize(math.lgamma)(X))
    close(both(F.erfc, X), np.vectorize(math.erfc)(X))
    same(both(lambda x: F.polygamma(0, x), X), both(F.digamma, X))
    close(eager(F.polygamma, 1, np.array(1.0)), math.pi**2 / 6)
    close(eager(F.digamma, np.array(1.0)), -np.euler_gamma)
    close(both(F.i0e, X), np.i0(X) * np.exp(-X))
    step = 1e-5
    slope = (np.i0(X + step) - np.i0(X - step)) / (2 * step)
    np.testing.assert_allclose(both(F.i1e, X), slope * np.exp(-X), rtol=1e-8)
    with pytest.raises(UserError, match="E0128"):
        eager(F.polygamma, -1, X)


def test_running_functions():
    for axis in (0, -1):
        close(both(lambda x: F.cumprod(x, axis), X), np.cumprod(X, axis))  # noqa: B023
        close(both(lambda x: F.cumprod(x, dim=axis), N), np.cumprod(N, axis))  # noqa: B023
        close(both(lambda x: F.logcumsumexp(x, axis), X), np.logaddexp.accumulate(X, axis))  # noqa: B023
        for ours, ufunc in ((F.cummax, np.maximum), (F.cummin, np.minimum)):
            values, places = both(lambda x: ours(x, axis), X)  # noqa: B023
            same(values, ufunc.accumulate(X, axis))
            same(np.take_along_axis(X, places, axis), values)
    close(both(F.cumprod, X), np.cumprod(X))


def test_nan_to_num():
    for type in (np.float16, np.float32, np.float64):
        x = np.array([np.nan, np.inf, -np.inf, 2.0], type)
        same(both(F.nan_to_num, x), np.nan_to_num(x))
    x = np.array([np.nan, np.inf, -np.inf, 2.0])
    same(both(lambda x: F.nan_to_num(x, 1.0, 5.0, -6.0), x), np.nan_to_num(x, nan=1.0, posinf=5.0, neginf=-6.0))
    same(both(F.nan_to_num, N), N)
    with pytest.raises(UserError, match="E0106"):
        eager(F.nan_to_num, np.array([1j]))


def test_draws():
    def draws(alpha):
        g = c.Generator(5)
        return (
            c.truncated_normal(-1.0, 0.5, (200,), generator=g),
            c.exponential(3.0, (200,), dtype="float64", generator=g),
            c.standard_gamma(alpha, generator=g),
            c.standard_gamma(2.0, (3, 4), generator=g),
            c.categorical([[0.0, -math.inf], [-math.inf, 0.0]], (6,), generator=g),
            c.permutation(9, generator=g),
        )

    normal, exponential, gamma, more, classes, order = both(draws, np.array([0.5, 30.0, -1.0]))
    assert normal.min() >= -1 and normal.max() <= 0.5
    assert exponential.dtype == np.float64 and 2 < exponential.mean() < 4
    assert gamma.dtype == np.float64 and np.isnan(gamma[2]) and (gamma[:2] > 0).all()
    assert more.shape == (3, 4) and more.dtype == np.float32
    same(classes, np.tile(np.array([0, 1]), (6, 1)))
    same(np.sort(order), np.arange(9))
    with pytest.raises(UserError, match="E0126"):
        eager(lambda: c.truncated_normal(6.0, 7.0, (3,)))
    with pytest.raises(UserError, match="E0107"):
        eager(lambda: c.categorical(1.0))
