"""What the samples of linear algebra cannot say: gradients known by hand, and where LAPACK comes from."""

import numpy as np
import pytest

from treadle import ops
from treadle.base.errors import UserError
from treadle.ir import build, interp
from treadle.ir.node import Module
from treadle.ir.types import TensorType, f64
from treadle.runtime import pjrt
from treadle.transforms.grad import vjp

RNG = np.random.default_rng(5)


def gradient(function, x):
    """The gradient of a function with one number as result, by the interpreter."""
    fn = build.trace(function, [TensorType(f64[()].dtype, x.shape)])
    return interp.run(vjp(Module.of(fn)), x, np.array(1.0))[0]


def test_the_sum_of_eigenvalues_of_equal_eigenvalues():
    total = lambda x: ops.reduce_sum(ops.eigh(x)[0], axes=(0,))
    np.testing.assert_allclose(gradient(total, np.eye(3)), np.eye(3), atol=1e-14)


def test_a_matrix_function_made_of_equal_eigenvalues():
    """x^2 = V diag(w^2) V^T; its trace does not depend on the choice of V: the gradient is 2 x."""

    def trace_of_square(x):
        w, v = ops.eigh(x)
        wide = ops.broadcast_to(ops.reshape(w * w, shape=(1, 3)), shape=(3, 3))
        return ops.reduce_sum((v * wide) * v, axes=(0, 1))

    np.testing.assert_allclose(gradient(trace_of_square, 2 * np.eye(3)), 4 * np.eye(3), atol=1e-13)


def test_nuclear_norm_has_the_polar_factor_as_gradient():
    x = RNG.standard_normal((4, 3))
    u, _, vh = np.linalg.svd(x, full_matrices=False)
    found = gradient(lambda x: ops.reduce_sum(ops.svd(x)[1], axes=(0,)), x)
    np.testing.assert_allclose(found, u @ vh, atol=1e-13)


def test_trace_is_the_sum_of_eigenvalues_of_any_matrix():
    x = RNG.standard_normal((4, 4))
    found = gradient(lambda x: ops.reduce_sum(ops.real(ops.eig(x)[0]), axes=(0,)), x)
    np.testing.assert_allclose(found, np.eye(4), atol=1e-12)


def test_determinant_is_the_product_of_eigenvalues():
    x = RNG.standard_normal((4, 4))
    found = gradient(lambda x: ops.det(x), x)
    np.testing.assert_allclose(found, np.linalg.det(x) * np.linalg.inv(x).T, atol=1e-12)


def test_the_exponential_of_many_sizes():
    """exp(-x) exp(x) = 1, with none, some and many squarings."""
    for size in (0.0, 1e-3, 1.0, 10.0, 100.0):
        x = size * np.array([[0.0, 1.0], [-1.0, 0.0]])
        fn = build.trace(lambda x: ops.matmul(ops.matrix_exp(-x), ops.matrix_exp(x)), [f64[2, 2]])
        np.testing.assert_allclose(interp.run(fn, x)[0], np.eye(2), atol=1e-11)


def test_pivots_are_those_of_the_product():
    x = RNG.standard_normal((3, 5, 5))
    fn = build.trace(lambda x: (ops.lu(x)[0], ops.permutation_of_pivots(ops.lu(x)[1])), [f64[3, 5, 5]])
    packed, order = interp.run(fn, x)
    product = (np.tril(packed, -1) + np.eye(5)) @ np.triu(packed)
    np.testing.assert_allclose(product, np.take_along_axis(x, order[..., None], 1), atol=1e-13)


def test_other_devices_are_refused():
    pjrt.register_lapack(b"a program without", "cuda")
    with pytest.raises(UserError) as caught:
        pjrt.register_lapack(b"calls lapack_sgetrf_ffi", "cuda")
    assert caught.value.code == "E0414"
