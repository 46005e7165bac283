"""A trace's view of state is its own: other threads, tracing or eager, see what the tensors hold."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import treadle as td
from treadle import Tensor, UserError, nn


def test_others_see_the_old_value_while_a_thread_traces():
    w = Tensor(np.ones(3, np.float32))
    inside, seen = threading.Event(), threading.Event()

    @td.jit
    def slow(x):
        w.assign(w + x)
        w[0] = 7.0
        inside.set()
        assert seen.wait(60)
        return td.sum(w)

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(slow, np.float32(1))
        assert inside.wait(60)
        try:
            assert w.tolist() == [1, 1, 1]
            assert (w + 1).tolist() == [2, 2, 2]
            assert "1." in repr(w)
            assert td.jit(lambda x: x * w)(np.float32(3)).tolist() == [3, 3, 3]
            assert td.grad(lambda: td.sum(w * w), [w])()[0].tolist() == [2, 2, 2]
        finally:
            seen.set()
        assert future.result().item() == 11
    assert w.tolist() == [7, 2, 2]


def test_a_failed_trace_leaves_state_alone():
    w = Tensor(np.ones(2, np.float32))

    def step(x):
        w.assign(w + x)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        td.jit(step)(np.float32(1))
    assert w.tolist() == [1, 1]


def test_inner_functions_see_what_the_outer_one_wrote():
    w = Tensor(np.ones(2, np.float32))

    @td.jit
    def step(x):
        w.assign(w * 3)
        grads = td.grad(lambda: td.sum(w * w * x), [w])()
        td.cond(x > 0, lambda: w.assign(w + 1), lambda: w)
        return grads[0], w.astype(td.float64), w.copy()

    for old in (1.0, 4.0):
        grad, wide, copy = step(np.float32(1))
        assert grad.tolist() == [6 * old] * 2
        assert wide.tolist() == copy.tolist() == w.tolist() == [3 * old + 1] * 2


def test_numbers_of_changed_state_are_unknown_in_the_trace():
    w = Tensor(np.ones(2, np.float32))

    def step(x, use):
        w.assign(w + x)
        return use(w)

    for use in (lambda w: w.numpy(), lambda w: w.tolist(), np.asarray):
        with pytest.raises(UserError, match="E0204"):
            td.jit(lambda x, use=use: step(x, use))(np.float32(1))
    number = td.jit(lambda x: step(x, lambda w: w[0].item()))  # a number of the program
    assert [number(np.float32(1)) for _ in range(2)] == [2, 3]


def test_numbers_that_python_read_while_tracing_are_watched():
    table, traces = Tensor(np.arange(3.0)), []

    @td.jit
    def f(x):
        traces.append(1)
        local = Tensor(np.ones(2)).numpy()
        return x * float(table.numpy()[1]) + local[0]

    assert [f(2.0).item() for _ in range(2)] == [3, 3]
    table + 1  # brings it to the device
    assert f(2.0).item() == 3
    assert len(traces) == 1
    table.assign(table * 5)
    assert f(2.0).item() == 11
    assert len(traces) == 2


def test_a_cast_of_state_is_read_at_each_call():
    w = Tensor(np.ones(2, np.float32))
    f = td.jit(lambda x: x * td.sum(w.astype(td.float64)))
    assert f(np.float64(1)).item() == 2
    w.assign(w * 4)
    assert f(np.float64(1)).item() == 8


def test_many_threads_trace_on_shared_parameters():
    net = nn.Linear(4, 4)
    start = net.weight.numpy()
    x = np.ones((2, 4), np.float32)
    stop, errors = threading.Event(), []

    def eager():
        while not stop.is_set():
            found = net.weight.numpy()
            shift = found - start
            if not np.allclose(shift, shift.flat[0]) or net(Tensor(x)).shape != (2, 4):
                errors.append(found)

    def traced(i):
        @td.jit
        def step(x):
            y = net(x) * i
            net.weight.assign(net.weight + 1)
            return td.sum(y)

        for n in range(3):
            step(np.ones((n + 1, 4), np.float32))
        for _ in range(3):
            td.value_and_grad(lambda: td.sum(net(Tensor(x)) * i), net.parameters())()

    with ThreadPoolExecutor(4) as pool:
        reader = pool.submit(eager)
        list(pool.map(traced, range(1, 7)))
        stop.set()
        reader.result()
    assert not errors
    np.testing.assert_allclose(net.weight.numpy(), start + 18, rtol=1e-5)


def test_parts_of_state_are_read_while_another_thread_trains():
    """A program takes the memory of what it changes; whoever indexes it just then waits instead of failing."""
    w = Tensor(np.zeros(300_000, np.float32))
    stop = threading.Event()

    @td.jit
    def step():
        w.assign(w + 1)

    def train():
        while not stop.is_set():
            step()

    step()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(train)
        try:
            seen = [w[i].item() for i in range(2000)]
        finally:
            stop.set()
        future.result()
    assert seen == sorted(seen) and seen[0] < seen[-1]
