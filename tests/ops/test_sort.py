"""Order where the generated tests do not look: ties, signed zeros, NaN, long axes, and gradients through ties."""

import numpy as np
import pytest
from tests.ops.support import execute
from tests.ops.test_reduce import gradient, module

from treadle import ops
from treadle.ir import interp

SPECIAL = np.array([0.0, -0.0, 1.0, np.nan, -0.0, 0.0, -np.inf, np.inf, -np.nan, -1.0, 1.0])
ASCENDING = [6, 9, 0, 1, 4, 5, 2, 10, 7, 3, 8]
DESCENDING = [3, 8, 7, 2, 10, 0, 1, 4, 5, 9, 6]


def both(function, *arrays):
    made = module(function, *arrays)
    return interp.run(made, *arrays), execute(made, arrays, "test")


def equal_bits(a, b):
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("descending", [False, True])
def test_sorting_is_stable_and_nan_is_the_greatest(dtype, descending):
    x = SPECIAL.astype(np.dtype(dtype))
    order = DESCENDING if descending else ASCENDING
    for values, index in both(lambda x: ops.sort_with_index(x, axis=0, descending=descending), x):
        assert index.tolist() == order
        assert equal_bits(values, x[order])
    for (values,) in both(lambda x: ops.sort(x, axis=0, descending=descending), x):
        assert equal_bits(values, x[order])


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("k", [1, 4, 11])
def test_top_k_is_the_head_of_the_descending_order(dtype, k):
    x = SPECIAL.astype(np.dtype(dtype))
    for values, index in both(lambda x: ops.top_k(x, k=k), x):
        assert index.tolist() == DESCENDING[:k]
        assert equal_bits(values, x[DESCENDING[:k]])


def test_top_k_of_long_rows_with_many_ties():
    x = np.random.default_rng(0).integers(0, 50, (3, 20000)).astype(np.float32)
    (a, i), (b, j) = both(lambda x: ops.top_k(x, k=1000), x)
    assert np.array_equal(a, b)
    assert np.array_equal(i, j)
    assert np.array_equal(i, np.argsort(-x, axis=1, kind="stable")[:, :1000])


@pytest.mark.parametrize("op, numpy_op", [(ops.argmax, np.argmax), (ops.argmin, np.argmin)])
def test_the_first_extreme_wins_and_nan_before_all(op, numpy_op):
    x = np.random.default_rng(0).integers(0, 5, (64, 1000)).astype(np.float32)
    x[0, 900] = x[1, 0] = x[2, 500] = x[2, 700] = np.nan
    x[3], x[4] = np.inf, -np.inf
    for axis in (0, 1):
        for (found,) in both(lambda x: op(x, axis=axis), x):  # noqa: B023
            assert np.array_equal(found, numpy_op(x, axis))


def test_gradients_follow_the_order():
    x, d = np.array([2.0, 1.0, 2.0, 0.0]), [10.0, 20.0, 30.0, 40.0]
    assert gradient(lambda x: ops.sort(x, axis=0, descending=False), x, d).tolist() == [30, 20, 40, 10]
    assert gradient(lambda x: ops.sort(x, axis=0, descending=True), x, d).tolist() == [10, 30, 20, 40]
    assert gradient(lambda x: ops.top_k(x, k=2)[0], x, d[:2]).tolist() == [10, 0, 20, 0]
