"""Random programs: gradients against central differences in float64, before and after passes, second order, and on the
back end. The programs have branches, loops, scans, calls, rematerialised parts and derivatives given by hand.
"""

import numpy as np
import pytest
from tests.support.random_programs import SMOOTH, random_arguments, random_fn, random_module, together

from treadle import driver
from treadle.base import dtypes, flags
from treadle.ir import interp
from treadle.ir.verify import verify
from treadle.ir.walk import all_nodes
from treadle.transforms.grad import vjp
from treadle.transforms.pipeline import DEFAULT, Pipeline

EPS = 1e-6
COUNT, CHUNKS, MORE = 520, 8, 3000


def smooth(seed):
    return random_module(seed, SMOOTH, size=8, dtype=dtypes.float64)


def run(module, arrays):
    with np.errstate(all="ignore"):
        return interp.run(module, *arrays)


def directional(module, arrays, directions, cotangents):
    """sum of cotangents * (f(x + eps d) - f(x - eps d)) / 2 eps."""
    ahead, behind = (run(module, [a + s * d for a, d in zip(arrays, directions)]) for s in (EPS, -EPS))
    return sum(float(np.sum(c * (a - b))) for c, a, b in zip(cotangents, ahead, behind)) / (2 * EPS)


def close(found, wanted, size):
    return abs(found - wanted) <= 1e-5 * (1 + size)


def check_gradient(seed: int) -> None:
    module = smooth(seed)
    rng = np.random.default_rng(seed)
    arrays = random_arguments(module.main, seed)
    directions = [rng.normal(size=a.shape) for a in arrays]
    cotangents = [rng.normal(size=t.shape) for t in module.main.out_types]
    wanted = directional(module, arrays, directions, cotangents)
    gradient = verify(vjp(module))
    grads = run(gradient, [*arrays, *cotangents])
    found = sum(float(np.sum(g * d)) for g, d in zip(grads, directions))
    size = sum(float(np.sum(np.abs(g * d))) for g, d in zip(grads, directions))
    assert close(found, wanted, size), f"seed {seed}\n{module}\n{gradient}"
    before = verify(vjp(Pipeline.parse(DEFAULT).run(module)))
    after = verify(Pipeline.parse(f"{DEFAULT},outline{{min_nodes=3}}").run(gradient))
    for each in (before, after):
        for one, two in zip(grads, run(each, [*arrays, *cotangents]), strict=True):
            np.testing.assert_allclose(two, one, rtol=1e-9, atol=1e-11, err_msg=f"seed {seed}\n{module}\n{each}")


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_gradients_are_true_before_and_after_passes(chunk):
    for seed in range(chunk, COUNT, CHUNKS):
        check_gradient(seed)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_gradients_of_more_programs_are_true(chunk):
    for seed in range(COUNT + chunk, MORE, CHUNKS):
        check_gradient(seed)


@pytest.mark.parametrize("chunk", range(4))
def test_second_gradients_are_true(chunk):
    for seed in range(chunk, 60, 4):
        module = vjp(random_module(seed, SMOOTH, size=5, dtype=dtypes.float64))
        rng = np.random.default_rng(seed)
        arrays = random_arguments(module.main, seed)
        directions = [rng.normal(size=a.shape) for a in arrays]
        cotangents = [rng.normal(size=t.shape) for t in module.main.out_types]
        wanted = directional(module, arrays, directions, cotangents)
        grads = run(verify(vjp(module)), [*arrays, *cotangents])
        found = sum(float(np.sum(g * d)) for g, d in zip(grads, directions))
        size = sum(float(np.sum(np.abs(g * d))) for g, d in zip(grads, directions))
        assert close(found, wanted, size), f"seed {seed}\n{module}"


def test_the_back_end_gives_the_interpreters_gradients():
    seeds = range(24)
    modules = [vjp(random_module(seed, SMOOTH, size=5, dtype=dtypes.float64)) for seed in seeds]
    arguments = [random_arguments(module.main, seed) for module, seed in zip(modules, seeds)]
    with flags.override(cache=False):
        executable = driver.compile_module(driver.optimise(together(modules)))
    found = iter(executable([a for arrays in arguments for a in arrays]))
    for seed, module, arrays in zip(seeds, modules, arguments):
        for wanted in run(module, arrays):
            np.testing.assert_allclose(np.asarray(next(found)), wanted, rtol=1e-8, atol=1e-10, err_msg=f"seed {seed}")


def test_functions_without_calls_can_be_differentiated_too():
    fn = random_fn(5, SMOOTH, dtype=dtypes.float64)
    assert len(vjp(fn).main.outputs) == len(fn.params)


def test_what_is_differentiated_is_varied():
    used = {node.op.name for seed in range(COUNT) for node in all_nodes(smooth(seed))}
    assert {"if", "while", "scan", "call", "remat", "custom_vjp", "matmul", "concatenate"} <= used
