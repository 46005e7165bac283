"""Operators of the language in compiled programs on CPUs: kernels of their own, or of the product that they are."""

import numpy as np
import pytest

import treadle as td
from treadle import driver, te
from treadle.api.programs import trace_module
from treadle.base.flags import override
from treadle.kernels import engine
from treadle.ops.groups import fused


@te.op
def blurred(x):
    rows, columns = x.shape
    return te.compute(
        (rows - 2, columns), lambda i, j: (x[i, j] + te.exp(x[i + 1, j]) + x[i + 2, columns - 1 - j]) * 0.5
    )


@te.op
def product(x, y):
    k = te.reduce_axis((0, x.shape[1]))
    return te.compute((x.shape[0], y.shape[1]), lambda i, j: te.sum(x[i, k] * y[k, j], axis=k))


@te.op
def largest(x):
    k = te.reduce_axis((0, x.shape[1]))
    return te.compute((x.shape[0],), lambda i: te.max(x[i, k] * 2.0, axis=k))


CASES = [(blurred, [(66, 70)], "loops"), (product, [(40, 50), (50, 30)], "gemm"), (largest, [(50, 90)], "loops")]


@pytest.mark.parametrize("function, shapes, template", CASES, ids=["blurred", "product", "largest"])
def test_a_kernel_computes_it(function, shapes, template):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    with override(fusion=3, cache=False):
        module = driver.grouped(driver.optimise(trace_module(function, *map(td.tensor, arrays))))
        plans = [engine.choose(n.attrs["body"]).plan for n in module.main.nodes if n.op is fused]
        found = td.jit(function)(*map(td.tensor, arrays)).numpy()
    with override(fusion=0, cache=False):
        wanted = td.jit(lambda *xs: function(*xs))(*map(td.tensor, arrays)).numpy()
    assert [p.split()[0] for p in plans] == [template]
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-5)
