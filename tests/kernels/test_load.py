"""Kernels while ten other processes want the cores: results are right and nothing waits for ever."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest
from tests.kernels import drawn, test_recurrent
from tests.kernels.test_threads import at_once

import treadle as td
from treadle.base.flags import override
from treadle.kernels import jit
from treadle.kernels.templates import recurrent
from treadle.nn import functional as F

OTHERS, LIMIT = 10, 300.0  # seconds: what takes longer hangs
pytestmark = pytest.mark.slow


@pytest.fixture
def crowd():
    """Ten processes that compute without end; they end when this one does."""
    parent = os.getpid()
    text = f"import os\nwhile os.getppid() == {parent}:\n for _ in range(100000): pass"
    running = [subprocess.Popen([sys.executable, "-c", text]) for _ in range(OTHERS)]
    start = time.monotonic()
    yield
    took = time.monotonic() - start
    for process in running:
        process.kill()
        process.wait()
    assert took < LIMIT


def test_steps_that_wait_for_each_other(crowd):
    """The recurrent kernels: their threads meet at every step, with one core for twelve."""
    for name in ("lstm_fwd", "gru_grad"):
        body = test_recurrent.body_of(name, test_recurrent.f32, (60, 16, 48))
        arrays = test_recurrent.given(body, np.random.default_rng(2))
        kernel = recurrent.plans(body, test_recurrent.host())[0].build()
        code, results = jit.load(kernel.text), []
        for threads in (1, 2, 4, 2, 4):
            outs = [np.zeros(t.shape, np.float32) for t in body.out_types]
            code.run([*arrays, *outs, np.zeros(kernel.workspace, np.uint8)], threads)
            results.append(b"".join([o.tobytes() for o in outs]))
        assert len(set(results)) == 1


@pytest.mark.parametrize("family", [f for f in drawn.FAMILIES if f != "layers"])
def test_random_work(crowd, family):
    with override(cache=False):
        assert sum([drawn.check(family, seed) for seed in range(900, 904)])


def test_functions_of_several_threads(crowd):
    rng = np.random.default_rng(0)
    x, w = (td.tensor(rng.normal(size=s).astype(np.float32)) for s in ((200, 300), (300, 400)))
    with override(fusion=3, cache=False):
        function = td.jit(lambda x, w: F.softmax(F.relu(x @ w), 1))
        first = function(x, w).numpy()

        def work():
            return all(np.array_equal(function(x, w).numpy(), first) for _ in range(30))

        assert all(at_once([work] * 4))
    y = np.maximum(x.numpy() @ w.numpy(), 0)
    e = np.exp(y - y.max(1, keepdims=True))
    np.testing.assert_allclose(first, e / e.sum(1, keepdims=True), rtol=1e-3, atol=1e-6)
