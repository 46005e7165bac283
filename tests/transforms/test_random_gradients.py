"""Random programs: gradients against central differences in float64, before and after passes, and on the back end."""

import numpy as np
import pytest
from tests.support.random_programs import SMOOTH, random_arguments, random_fn, random_module

from treadle import driver
from treadle.base import dtypes
from treadle.ir import interp
from treadle.ir.verify import verify
from treadle.transforms.grad import vjp
from treadle.transforms.pipeline import DEFAULT, Pipeline

EPS = 1e-6


def smooth(seed):
    return random_module(seed, SMOOTH, size=8, dtype=dtypes.float64)


def run(module, arrays):
    with np.errstate(all="ignore"):
        return interp.run(module, *arrays)


def directional(module, arrays, directions, cotangents):
    """sum of cotangents * (f(x + eps d) - f(x - eps d)) / 2 eps."""
    ahead, behind = (run(module, [a + s * d for a, d in zip(arrays, directions)]) for s in (EPS, -EPS))
    return sum(float(np.sum(c * (a - b))) for c, a, b in zip(cotangents, ahead, behind)) / (2 * EPS)


@pytest.mark.parametrize("chunk", range(4))
def test_gradients_are_true_before_and_after_passes(chunk):
    for seed in range(chunk, 100, 4):
        module = smooth(seed)
        rng = np.random.default_rng(seed)
        arrays = random_arguments(module.main, seed)
        directions = [rng.normal(size=a.shape) for a in arrays]
        cotangents = [rng.normal(size=t.shape) for t in module.main.out_types]
        wanted = directional(module, arrays, directions, cotangents)
        gradient = verify(vjp(module))
        before = verify(vjp(Pipeline.parse(DEFAULT).run(module)))
        after = verify(Pipeline.parse(f"{DEFAULT},outline{{min_nodes=3}}").run(gradient))
        for each in (gradient, before, after):
            grads = run(each, [*arrays, *cotangents])
            found = sum(float(np.sum(g * d)) for g, d in zip(grads, directions))
            size = sum(float(np.sum(np.abs(g * d))) for g, d in zip(grads, directions))
            assert abs(found - wanted) <= 1e-5 * (1 + size), f"seed {seed}\n{module}\n{each}"


@pytest.mark.parametrize("chunk", range(2))
def test_the_back_end_gives_the_interpreters_numbers(chunk):
    for seed in range(chunk, 24, 2):
        module = verify(random_module(seed, SMOOTH, size=10, dtype=dtypes.float64))
        arrays = random_arguments(module.main, seed)
        executable = driver.compile_module(driver.optimise(module))
        for a, b in zip(executable(arrays), run(module, arrays), strict=True):
            np.testing.assert_allclose(np.asarray(a), b, rtol=1e-9, atol=1e-11, err_msg=f"seed {seed}\n{module}")


def test_functions_without_calls_can_be_differentiated_too():
    fn = random_fn(5, SMOOTH, dtype=dtypes.float64)
    assert len(vjp(fn).main.outputs) == len(fn.params)
