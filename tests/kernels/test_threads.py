"""Several threads and processes that compile and run kernels at once."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import treadle as td
from treadle.base.flags import override
from treadle.ir import build
from treadle.ir.types import f32
from treadle.kernels import engine, jit
from treadle.nn import functional as F
from treadle.ops.activation import relu
from treadle.ops.norm import softmax
from treadle.ops.products import matmul
from treadle.ops.shape import transpose

ROUNDS = 6


def at_once(works):
    """The results of functions that begin together, each in a thread of its own; what one raises is raised."""
    gate = threading.Barrier(len(works))

    def begun(work):
        gate.wait(60)
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return [f.result(120) for f in [pool.submit(begun, w) for w in works]]


def product(n):
    """A kernel's text, its operands and what comes out."""
    body = build.trace(lambda x, w: relu(matmul(x, w)), [f32[n, 20], f32[20, 33]])
    rng = np.random.default_rng(n)
    x, w = (rng.normal(size=t.shape).astype(np.float32) for t in body.in_types)
    return engine.plans(body)[0].build().text, [x, w], np.maximum(x @ w, 0)


def test_kernels_that_differ_and_kernels_that_do_not_are_loaded_and_run_at_once():
    with override(cache=False):
        for turn in range(ROUNDS):
            cases = [product(30 + 4 * turn + k) for k in (0, 1, 0, 1, 2)]

            def work(text, arrays, want):
                code, out = jit.load(text), np.zeros(want.shape, np.float32)
                for _ in range(20):
                    out[:] = 7
                    code.run([*arrays, out], 2)
                    np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-5)
                return code

            codes = at_once([lambda c=c: work(*c) for c in cases])
            assert codes[0] is codes[2] and codes[1] is codes[3] and len(set(codes)) == 3


def test_functions_are_compiled_and_called_at_once(monkeypatch):
    monkeypatch.setattr(engine, "_chosen", {})
    shared = td.jit(lambda x, w: F.softmax(F.gelu(x @ w), 1))
    rng = np.random.default_rng(0)

    def work(n):
        x, w = (td.tensor(rng.normal(size=s).astype(np.float32)) for s in ((40 + n % 2, 64), (64, 96)))
        own = td.jit(lambda x, w: F.softmax(F.gelu(x @ w), 1))
        found = [f(x, w).numpy() for _ in range(30) for f in (shared, own)]
        assert all(np.array_equal(found[0], other) for other in found)
        return x, w, found[0]

    with override(fusion=3, cache=False):
        results = at_once([lambda n=n: work(n) for n in range(4)])
    assert any(c.loaded is not None for c in engine._chosen.values())
    with override(fusion=0, cache=False):
        for x, w, found in results:
            plain = td.jit(lambda x, w: F.softmax(F.gelu(x @ w), 1))(x, w).numpy()
            np.testing.assert_allclose(found, plain, rtol=1e-4, atol=1e-6)


def test_more_calls_at_once_than_there_are_places_for_scratch():
    body = build.trace(lambda x, w: matmul(x, transpose(w, perm=(1, 0))), [f32[99, 300], f32[200, 300]])
    (plan, *_) = [p for p in engine.plans(body) if "pack:b" in p.name]  # into scratch
    code, rng = jit.load(plan.build().text), np.random.default_rng(0)

    def work(x, w, want):
        out = np.zeros((99, 200), np.float32)
        for _ in range(60):
            code.run([x, w, out], 2)
            np.testing.assert_allclose(out, want, rtol=1e-3, atol=1e-3)

    cases = [[rng.normal(size=t.shape).astype(np.float32) for t in body.in_types] for _ in range(12)]
    at_once([lambda x=x, w=w, want=x @ w.T: work(x, w, want) for x, w in cases])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a process cannot be doubled here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*fork.*:RuntimeWarning")
def test_a_forked_process_runs_and_loads_kernels():
    """Loaded ones and new ones, called directly: XLA itself does not live in forks."""
    text, arrays, want = product(50)
    code = jit.load(text)
    new = product(51)
    child = os.fork()
    if not child:
        status = 1
        try:
            for one, given, wanted in ((code, arrays, want), (None, *new[1:])):
                out = np.zeros(wanted.shape, np.float32)
                (one or jit.load(new[0])).run([*given, out], 2)
                np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-5)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


PROGRAM = """
import numpy as np, treadle as td
from treadle.kernels import engine
x = np.random.default_rng(0).normal(size=(300, 400)).astype(np.float32)
found = td.jit(lambda x: (x @ x.T).tanh().sum(1))(td.tensor(x)).numpy()
want = np.tanh(x @ x.T).sum(1)
assert np.abs(found - want).max() < 1e-3 * np.abs(want).max(), np.abs(found - want).max()
assert any(c.loaded for c in engine._chosen.values())
"""


@pytest.mark.slow
def test_processes_that_begin_at_once_share_an_empty_cache(tmp_path):
    tmp_path.chmod(0o700)
    settings = {**os.environ, "TREADLE_CACHE_DIR": str(tmp_path), "TREADLE_FUSION": "3"}
    for _ in range(2):  # the second time the programs are there
        running = [subprocess.Popen([sys.executable, "-c", PROGRAM], env=settings) for _ in range(3)]
        assert [p.wait(120) for p in running] == [0, 0, 0]


def test_softmax_of_one_thread_beside_products_of_another():
    """Kernels with several phases, whose threads wait for each other."""
    body = build.trace(lambda x: softmax(x, axis=0), [f32[200_000]])
    code = jit.load(engine.plans(body)[0].build().text)
    x = np.random.default_rng(0).normal(size=200_000).astype(np.float32)
    kernel = engine.plans(body)[0].build()

    def rows():
        outs = []
        for _ in range(20):
            out = np.zeros_like(x)
            code.run([x, out, np.zeros(kernel.workspace, np.uint8)], 2)
            outs.append(out.tobytes())
        assert len(set(outs)) == 1
        return out

    text, arrays, want = product(120)
    other = jit.load(text)

    def products():
        out = np.zeros(want.shape, np.float32)
        for _ in range(200):
            other.run([*arrays, out], 2)
        return out

    found, made = at_once([rows, products])
    assert abs(found.sum() - 1) < 1e-4
    np.testing.assert_allclose(made, want, rtol=1e-4, atol=1e-5)
