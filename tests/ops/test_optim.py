"""Optimiser steps against their formulas over several steps, and the digits of the bias correction in float32."""

import numpy as np
import pytest
from tests.ops.support import execute
from tests.ops.test_reduce import module

from treadle import ops
from treadle.ir import interp

STEPS = 5


def numbers(seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(3, 4)), rng.normal(size=(STEPS, 3, 4))


@pytest.mark.parametrize("momentum, decay, nesterov", [(0.0, 0.0, False), (0.9, 0.1, False), (0.9, 0.1, True)])
def test_sgd_over_several_steps(momentum, decay, nesterov):
    param, grads = numbers()
    wanted, buffer = param.copy(), None
    for g in grads:
        g = g + decay * wanted
        if momentum:
            buffer = g if buffer is None else momentum * buffer + g  # the first step takes the gradient itself
            g = g + momentum * buffer if nesterov else buffer
        wanted = wanted - 0.1 * g
    attrs = {"momentum": momentum, "weight_decay": decay, "nesterov": nesterov}
    state = (param, np.zeros_like(param))
    step = module(lambda p, g, b, lr: ops.sgd_update(p, g, b, lr, **attrs), param, param, param, np.float64(0.1))
    for g in grads:
        state = interp.run(step, state[0], g, state[1], np.float64(0.1))
    np.testing.assert_allclose(state[0], wanted, rtol=1e-13)


@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adam_over_several_steps(decoupled, decay):
    param, grads = numbers()
    wanted, m, v = param.copy(), np.zeros_like(param), np.zeros_like(param)
    for t, g in enumerate(grads, 1):
        wanted = wanted * (1 - 0.01 * decay) if decoupled else wanted
        g = g if decoupled else g + decay * wanted
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        wanted = wanted - 0.01 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    attrs = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": decay, "decoupled": decoupled}
    state = (param, np.zeros_like(param), np.zeros_like(param))
    lr, count = np.float64(0.01), np.int32(1)
    step = module(lambda *a: ops.adam_update(*a, **attrs), param, param, param, param, count, lr)
    for t, g in enumerate(grads, 1):
        state = interp.run(step, state[0], g, *state[1:], np.int32(t), lr)
    for found, value in zip(state, (wanted, m, v)):
        np.testing.assert_allclose(found, value, rtol=1e-12)


def test_the_first_adam_step_keeps_the_digits_of_float32():
    """The first step is lr * sign(g) exactly; 1 - 0.999 ** 1 taken in float32 would be wrong in the fifth digit."""
    zero, g = np.zeros(4, np.float32), np.array([1.0, -2.0, 0.5, 300.0], np.float32)
    attrs = {"beta1": 0.9, "beta2": 0.999, "eps": 0.0, "weight_decay": 0.0, "decoupled": False}
    arrays = [zero, g, zero, zero, np.int32(1), np.float32(1.0)]
    step = module(lambda *a: ops.adam_update(*a, **attrs), *arrays)
    for found in (interp.run(step, *arrays)[0], execute(step, arrays, "test")[0]):
        np.testing.assert_allclose(found, -np.sign(g), rtol=1e-6)
