"""Indices that the array API standard asks for beyond what `tests/frontend/test_indexing.py` has."""

import numpy as np
import pytest

from treadle import tensor


def test_a_mask_without_axes_keeps_all_or_nothing():
    for x in (np.float32(3), np.arange(6.0).reshape(2, 3)):
        for flag in (np.array(True), np.array(False)):
            for index in (flag, tensor(flag)):
                np.testing.assert_array_equal(tensor(x)[index].numpy(), x[flag])
                written, expected = tensor(x), np.array(x)
                written[index] = 7
                expected[flag] = 7
                np.testing.assert_array_equal(written.numpy(), expected)


def test_a_mask_of_size_0_takes_nothing():
    assert tensor(np.ones((3, 2)))[np.zeros(0, bool)].shape == (0, 2)


def test_wrong_positions_are_index_errors_too():
    for index in (5, [7], (0, 0, 0), np.ones(2, bool)):
        with pytest.raises(IndexError, match="E0506"):
            tensor(np.ones(3))[index]
