"""Normalisations, attention, losses and cells on hard inputs: large offsets, infinities, labels that name no class."""

import numpy as np
import pytest
from tests.ops.support import execute

from treadle import ops
from treadle.base.dtypes import bfloat16
from treadle.ir import build
from treadle.ir.node import Module
from treadle.ir.types import type_of
from treadle.transforms.grad import vjp


def on_back_end(function, *arrays):
    return execute(Module.of(build.trace(function, [type_of(a) for a in arrays])), arrays, "norm")


def gradients(function, *arrays):
    fn = build.trace(function, [type_of(a) for a in arrays[:-1]])
    return execute(vjp(fn), arrays, "norm_grad")


def test_softmax_of_large_and_infinite_numbers():
    x = np.array([[1000.0, 1001.0, -np.inf], [-np.inf, -np.inf, 3.0], [1.0, np.nan, 2.0]], np.float32)
    (y,) = on_back_end(lambda x: ops.softmax(x, axis=1), x)
    e = np.exp(1.0)
    np.testing.assert_allclose(y[:2], [[1 / (1 + e), e / (1 + e), 0], [0, 0, 1]], rtol=1e-6)
    assert np.isnan(y[2]).all()
    (z,) = on_back_end(lambda x: ops.log_softmax(x, axis=1), x)
    np.testing.assert_allclose(z[:2], [[-np.log(1 + e), 1 - np.log(1 + e), -np.inf], [-np.inf, -np.inf, 0]], rtol=1e-6)


def test_statistics_keep_their_digits_beside_a_large_mean():
    """A variance taken as mean(x**2) - mean(x)**2 would lose every digit here."""
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((8, 3, 64)) + 3000).astype(np.float32)
    exact = x.astype(np.float64)
    ones, zeros = np.ones(3, np.float32), np.zeros(3, np.float32)
    _, mean, var = on_back_end(lambda x, s, b: ops.batch_norm(x, s, b, eps=0.0), x, ones, zeros)
    np.testing.assert_allclose(mean, exact.mean((0, 2)), rtol=1e-6)
    np.testing.assert_allclose(var, exact.var((0, 2)), rtol=1e-3)
    row = np.ones(64, np.float32)
    (z,) = on_back_end(lambda x, s, b: ops.layer_norm(x, s, b, axes_count=1, eps=0.0), x, row, 0 * row)
    wanted = (exact - exact.mean(-1, keepdims=True)) / exact.std(-1, keepdims=True)
    np.testing.assert_allclose(z, wanted, atol=5e-3)


def test_statistics_of_sixteen_bits_are_kept_in_thirty_two():
    x = np.linspace(1, 2, 4096).astype(bfloat16.np).reshape(4096, 1)
    _, mean, var = on_back_end(lambda x, s, b: ops.batch_norm(x, s, b, eps=1e-5), x, *[np.ones(1, np.float32)] * 2)
    assert mean.dtype == var.dtype == np.float32
    np.testing.assert_allclose([mean[0], var[0]], [x.astype(np.float64).mean(), x.astype(np.float64).var()], rtol=1e-4)


def test_gradients_of_the_statistics_count():
    """d(mean) and d(var) of a batch norm reach x: their sum over the batch is that of the cotangents."""
    x, one = np.random.default_rng(1).standard_normal((5, 2)), np.ones(2)
    (dx, _, _) = gradients(lambda x, s, b: ops.batch_norm(x, s, b, eps=1e-3)[1:2], x, one, one, np.array([2.0, 3.0]))
    np.testing.assert_allclose(dx, np.tile([0.4, 0.6], (5, 1)), atol=1e-12)


def test_a_causal_place_does_not_see_the_future():
    rng = np.random.default_rng(2)
    q, k, v = (rng.standard_normal((2, 4, 3)) for _ in range(3))
    later = v.copy()
    later[:, 2:] = 100

    def attend(q, k, v):
        return ops.attention(q, k, v, scale=1.0, causal=True)

    (y,), (z,) = on_back_end(attend, q, k, v), on_back_end(attend, q, k, later)
    np.testing.assert_array_equal(y[:, :2], z[:, :2])
    np.testing.assert_allclose(y[:, 0], v[:, 0])


def test_a_mask_of_minus_infinity_is_causality():
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((2, 4, 3)) for _ in range(3))
    mask = np.triu(np.full((4, 4), -np.inf), 1)
    (y,) = on_back_end(lambda q, k, v: ops.attention(q, k, v, scale=0.5, causal=True), q, k, v)
    (z,) = on_back_end(lambda q, k, v, m: ops.attention(q, k, v, m, scale=0.5, causal=False), q, k, v, mask)
    np.testing.assert_allclose(y, z, rtol=1e-12)


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.int8, np.uint8])
def test_a_label_that_names_no_class_is_never_a_number(kind):
    x, labels = np.zeros((3, 3), np.float32), np.array([1, 3, 100]).astype(kind)
    loss, ignored = on_back_end(lambda x, y: [ops.cross_entropy(x, y, ignore_index=i) for i in (None, 100)], x, labels)
    np.testing.assert_allclose(loss, [np.log(3), np.nan, np.nan], rtol=1e-6)
    np.testing.assert_allclose(ignored, [np.log(3), np.nan, 0], rtol=1e-6)
    (dx,) = gradients(lambda x, y: ops.cross_entropy(x, y, ignore_index=100), x, labels, np.ones(3, np.float32))
    np.testing.assert_allclose(dx[0], [1 / 3, -2 / 3, 1 / 3], rtol=1e-6)
    assert np.isnan(dx[1]).all()
    assert (dx[2] == 0).all()


def test_cross_entropy_of_large_logits():
    x = np.array([[1e4, 0.0], [0.0, -np.inf]], np.float32)
    (loss,) = on_back_end(lambda x, y: ops.cross_entropy(x, y, ignore_index=None), x, np.array([1, 0], np.int32))
    assert loss.tolist() == [1e4, 0]
