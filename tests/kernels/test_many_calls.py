"""Calls of a kernel leave nothing behind: memory before and after many of them."""

import gc
from pathlib import Path

import numpy as np
import pytest

import treadle as td
from treadle import driver
from treadle.base.flags import override
from treadle.ir import build
from treadle.ir.node import Module
from treadle.ir.types import f32
from treadle.kernels import engine, jit
from treadle.kernels.kernel import Kernel
from treadle.ops.norm import softmax

WARM, ALLOWED = 2000, 4 << 20  # a context of a call has at least 256 bytes: 100,000 of them would be 25 MB
pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads Linux's count of pages")


def resident():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def growth(call, count):
    """Bytes by which the process grows in so many calls: in the best of three rounds, because the heap grows once where
    results wait for each other; what is left behind by calls is left in every round."""
    for _ in range(WARM):
        call()
    grown = []
    while len(grown) < 3 and min(grown, default=ALLOWED) >= ALLOWED:
        before = resident()
        for _ in range(count):
            call()
        grown.append(resident() - before)
    return min(grown)


def body():
    return build.trace(lambda x: softmax(x, axis=1), [f32[64, 300]])  # two tasks


def test_calls_of_the_code_itself():
    kernel = engine.plans(body())[0].build()
    assert isinstance(kernel, Kernel)
    code = jit.load(kernel.text)
    x, out = np.ones((64, 300), np.float32), np.zeros((64, 300), np.float32)
    begin, worker = jit._entries()
    import ctypes

    places = (ctypes.c_void_p * 2)(x.ctypes.data, out.ctypes.data)
    describe = code.address("describe")
    assert growth(lambda: worker(begin(ctypes.addressof(places), describe, 1)), 100_000) < ALLOWED
    assert growth(lambda: code.run([x, out]), 20_000) < ALLOWED
    np.testing.assert_allclose(out, 1 / 300, rtol=1e-6)


@pytest.mark.parametrize("count", [20_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_calls_from_a_program(count):
    with override(fusion=3, cache=False):
        executable = driver.compile_module(Module.of(body()))
    assert "treadle." in executable.hlo_text()
    x = td.tensor(np.ones((64, 300), np.float32))._value
    assert growth(lambda: executable.call([x]), count) < ALLOWED


@pytest.mark.slow
def test_calls_of_a_compiled_function():
    with override(fusion=3, cache=False):
        x = td.tensor(np.ones((64, 300), np.float32))
        function = td.jit(lambda x: softmax(x, axis=1) * 2.0)
        assert growth(lambda: function(x), 100_000) < ALLOWED
        np.testing.assert_allclose(function(x).numpy(), 2 / 300, rtol=1e-6)
