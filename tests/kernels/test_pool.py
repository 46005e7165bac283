"""Threads of our own that help in calls of kernels: every call is right whether they look, sleep, work or are gone."""

import ctypes
import os
import random
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

from treadle import driver
from treadle.base.flags import override
from treadle.ir import build
from treadle.ir.node import Module as Program
from treadle.ir.types import f32
from treadle.kernels import jit, pool
from treadle.kernels.llvm import Function, Module
from treadle.ops.norm import softmax
from treadle.runtime import pjrt

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere XLA's threads help")
ROWS, COLUMNS = 64, 300
CORE, THREAD, CORES = 6, 7, 8  # words of a box


@pytest.fixture(scope="module")
def program():
    """A program of one kernel with two tasks."""
    with override(fusion=3, cache=False):
        made = driver.compile_module(Program.of(build.trace(lambda x: softmax(x, axis=1), [f32[ROWS, COLUMNS]])))
    assert "treadle." in made.hlo_text()
    return made


def cases(count):
    """Inputs on the device, and what comes out."""
    arrays = np.random.default_rng(0).normal(size=(count, ROWS, COLUMNS)).astype(np.float32)
    powers = np.exp(arrays.astype(np.float64))
    return [pjrt.put(a) for a in arrays], powers / powers.sum(2, keepdims=True)


def right(program, x, want):
    (out,) = program.call([x])
    return np.allclose(pjrt.to_numpy(out, copy=False), want, rtol=1e-5, atol=1e-7)


@pytest.fixture(scope="module")
def ask():
    """pool.ask as a function: (boxes, context, number)."""
    m = Module()
    f = Function(m, "ask_boxes", ["ptr", "ptr", "i64"])
    pool.ask(f, *f.args)
    f.give()
    address = jit.load(m.text()).address("ask_boxes")
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(address)


def empty_boxes(count):
    """Boxes of helpers that look, nobody knows where."""
    boxes = np.zeros((count, pool.BOX // 8), np.int64)
    boxes[:, CORE] = -1
    return boxes


def test_a_full_box_stays_as_it_is_and_the_call_goes_on_without_its_helper(ask):
    boxes, context = empty_boxes(3), np.array([4], np.int64)
    boxes[1, 0] = 12345
    before = boxes.copy()
    ask(boxes.ctypes.data, context.ctypes.data, 3)
    assert boxes[:, 0].tolist() == [context.ctypes.data, 12345, context.ctypes.data]
    assert context[0] == 3 and (boxes[:, 1:] == before[:, 1:]).all()
    ask(boxes.ctypes.data, context.ctypes.data, 2)
    assert context[0] == 1


def test_a_helper_that_sleeps_is_woken_once(ask):
    boxes, context = empty_boxes(1), np.array([2], np.int64)
    process, posts = ctypes.CDLL(None), ctypes.c_int()
    semaphore = ctypes.c_void_p(boxes.ctypes.data + 16)
    process.sem_init(semaphore, 0, 0)
    for asleep in (1, 0):
        boxes[0, :2] = 0, asleep
        ask(boxes.ctypes.data, context.ctypes.data, 1)
        assert boxes[0, :2].tolist() == [context.ctypes.data, 0]
        process.sem_getvalue(semaphore, ctypes.byref(posts))
        assert posts.value == 1
    assert context[0] == 2


@pytest.fixture
def sleeper():
    """A thread that does nothing: its number for the system, its pthread_t, the cores on which it may run."""
    told, end = [], threading.Event()

    def sleep():
        told.append((threading.get_native_id(), threading.get_ident()))
        end.wait()

    thread = threading.Thread(target=sleep)
    thread.start()
    while not told:
        time.sleep(0.001)
    yield *told[0], os.sched_getaffinity(told[0][0])
    end.set()
    thread.join()


@pytest.mark.parametrize("known", [True, False])
def test_a_helper_on_the_callers_core_is_sent_to_the_others(ask, sleeper, known):
    """If it has others; and one that looks elsewhere stays."""
    number, handle, cores = sleeper
    boxes, context = empty_boxes(1), np.array([9], np.int64)
    mask = sum(1 << core for core in cores) if known else 0
    before = os.sched_getaffinity(0)
    try:
        for core in sorted(cores)[:2]:
            os.sched_setaffinity(0, {core})
            boxes[0, CORES:] = np.frombuffer(mask.to_bytes(pool.BOX - pool.LINE, "little"), np.int64)
            boxes[0, THREAD] = handle
            for noted, left in ((-1, cores), (core + 1, cores), (core, (cores - {core} or cores) if known else cores)):
                os.sched_setaffinity(number, cores)
                boxes[0, 0], boxes[0, CORE] = 0, noted
                ask(boxes.ctypes.data, context.ctypes.data, 1)
                assert os.sched_getaffinity(number) == left
                assert boxes[0, CORE] == (-1 if noted == core else noted)
    finally:
        os.sched_setaffinity(0, before)


def test_many_threads_at_once(program):
    inputs, wanted = cases(8)
    wrong, gate = [], threading.Barrier(8)

    def work(mine):
        gate.wait(60)
        wrong.extend(mine for _ in range(300) if not right(program, inputs[mine], wanted[mine]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    [t.start() for t in threads]
    [t.join(120) for t in threads]
    assert wrong == [] and not any(t.is_alive() for t in threads)


@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_calls_after_pauses_of_all_lengths(program, count):
    """Around the time after which helpers fall asleep, too: none of these calls may wait for one for ever."""
    inputs, wanted = cases(5)
    rng = random.Random(1)
    for turn in range(count):
        end = time.perf_counter() + rng.choice([0, 3e-4, 2e-3]) * rng.random()
        if rng.random() < 0.5:
            time.sleep(max(end - time.perf_counter(), 0))
        while time.perf_counter() < end:
            pass
        assert right(program, inputs[turn % 5], wanted[turn % 5])


def test_calls_start_no_threads(program):
    inputs, wanted = cases(1)
    count = lambda: len(os.listdir("/proc/self/task"))
    for _ in range(50):
        right(program, inputs[0], wanted[0])
    before = count()
    for _ in range(1000):
        program.call(inputs)
    assert right(program, inputs[0], wanted[0]) and count() == before


BEGIN = """
    import ctypes, os, sys, time, warnings
    import numpy as np
    from treadle import driver
    from treadle.base.flags import override
    from treadle.ir import build
    from treadle.ir.node import Module
    from treadle.ir.types import f32
    from treadle.kernels import engine, jit
    from treadle.ops.norm import softmax
    from treadle.runtime import pjrt

    body = build.trace(lambda x: softmax(x, axis=1), [f32[64, 300]])
    with override(fusion=3):
        program = driver.compile_module(Module.of(body))
    assert "treadle." in program.hlo_text()
    x = pjrt.put(np.ones((64, 300), np.float32))

    def call():
        (out,) = program.call([x])
        return np.allclose(pjrt.to_numpy(out), 1 / 300)

    assert all([call() for _ in range(20)])
"""
FORK = """
    code = jit.load(engine.plans(body)[0].build().text)
    warnings.simplefilter("ignore")
    for pause in (0.0, 0.0, 0.02, 0.02):
        assert call()
        time.sleep(pause)
        child = os.fork()
        if child == 0:
            good = True
            for threads in (1, 2):
                out = np.zeros((64, 300), np.float32)
                code.run([np.ones((64, 300), np.float32), out], threads)
                good = good and np.allclose(out, 1 / 300)
            os._exit(0 if good else 3)
        assert os.waitpid(child, 0)[1] == 0
        assert all([call() for _ in range(20)])
    print("done")
"""


def run(text, *words):
    """A process of its own. One that never ends fails the test."""
    command = [sys.executable, "-c", textwrap.dedent(BEGIN) + textwrap.dedent(text), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_forked_child_computes_without_helpers():
    done = run(FORK)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("pause", [0.0, 0.05])
def test_a_process_ends_while_helpers_look_and_while_they_sleep(pause, times):
    for _ in range(times):
        done = run(f"call()\ntime.sleep({pause})")
        assert done.returncode == 0, done.stderr
