"""Indexing where the generated tests do not look: out of range, equal indices, narrow floats; both ways of running."""

import ml_dtypes
import numpy as np
import pytest
from tests.ops.test_reduce import both, module

from treadle import ops
from treadle.base.dtypes import float32
from treadle.ir import interp
from treadle.transforms.grad import vjp

BEYOND = np.array([-7, -1, 0, 2, 3, 2**31 - 1, -(2**31)], np.int32)
CLAMPED = [0, 0, 0, 2, 2, 2, 0]


def same(function, *arrays):
    """The result, the same from the interpreter and the back end."""
    plain, compiled = both(function, *arrays)
    np.testing.assert_array_equal(plain, compiled)
    return plain


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_out_of_range_indices_are_clamped(dtype):
    x, index = np.array([10.0, 20.0, 30.0]), BEYOND.astype(dtype)
    assert same(lambda x, i: ops.take(x, i, axis=0), x, index).tolist() == x[CLAMPED].tolist()
    assert same(lambda x, i: ops.take_along_axis(x, i, axis=0), x, index).tolist() == x[CLAMPED].tolist()
    ones = np.ones(7)
    assert same(lambda i, u: ops.index_sum(i, u, axis=0, size=3), index, ones).tolist() == [4, 0, 3]
    assert same(lambda x, i, u: ops.index_add(x, i, u, axis=0), x, index, ones).tolist() == [14, 20, 33]
    assert same(lambda x, i, u: ops.scatter_add_along(x, i, u, axis=0), x, index, ones).tolist() == [14, 20, 33]


def test_one_hot_gives_zeros_out_of_range():
    found = same(lambda i: ops.one_hot(i, depth=2, dtype=float32), np.array([-1, 0, 1, 2], np.int32))
    assert found.tolist() == [[0, 0], [1, 0], [0, 1], [0, 0]]


def test_narrow_floats_add_up_in_float32():
    """One by one, 1 added to 256 is 256 in bfloat16."""
    index, ones = np.zeros(1000, np.int32), np.ones(1000, ml_dtypes.bfloat16)
    zero = np.zeros(1, ml_dtypes.bfloat16)
    assert same(lambda i, u: ops.index_sum(i, u, axis=0, size=1), index, ones) == 1000
    assert same(lambda x, i, u: ops.scatter_add_along(x, i, u, axis=0), zero, index, ones) == 1000


@pytest.mark.parametrize("start, first", [(-5, 0), (0, 0), (1, 1), (2, 2), (3, 2), (2**31 - 1, 2)])
def test_starts_are_clamped(start, first):
    x, start = np.arange(5.0), np.int32(start)
    assert same(lambda x, s: ops.dynamic_slice(x, s, sizes=(3,)), x, start).tolist() == x[first : first + 3].tolist()
    update = np.array([7.0, 8.0, 9.0])
    found = same(lambda x, u, s: ops.dynamic_update_slice(x, u, s), x, update, start)
    assert found.tolist() == [*x[:first], 7, 8, 9, *x[first + 3 :]]


def test_gradients_go_to_the_clamped_places():
    x, update, start = np.arange(5.0), np.ones(3), np.int32(9)
    back = vjp(module(lambda x, s: ops.dynamic_slice(x, s, sizes=(3,)), x, start))
    assert interp.run(back, x, start, np.array([1.0, 2.0, 3.0]))[0].tolist() == [0, 0, 1, 2, 3]
    back = vjp(module(lambda x, u, s: ops.dynamic_update_slice(x, u, s), x, update, start))
    dx, du = interp.run(back, x, update, start, np.arange(5.0))
    assert (dx.tolist(), du.tolist()) == ([0, 1, 0, 0, 0], [2, 3, 4])
    back = vjp(module(lambda x, i: ops.take(x, i, axis=0), x[:3], BEYOND))
    assert interp.run(back, x[:3], BEYOND, np.ones(7))[0].tolist() == [4, 0, 3]


def test_the_gradient_of_padding_reaches_the_value_and_only_the_border():
    x, value = np.array([1.0, 2.0]), np.array(0.0)
    back = vjp(module(lambda x, v: ops.pad(x, v, low=(1,), high=(1,), interior=(1,)), x, value))
    dx, dvalue = interp.run(back, x, value, np.array([1.0, np.inf, 2.0, -np.inf, 4.0]))
    assert (dx.tolist(), float(dvalue)) == ([np.inf, -np.inf], 7.0)


def test_a_large_table_agrees_with_numpy():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(1000, 16)).astype(np.float32)
    index = rng.integers(0, 1000, (8, 32)).astype(np.int32)
    np.testing.assert_array_equal(same(lambda t, i: ops.take(t, i, axis=0), table, index), table[index])
