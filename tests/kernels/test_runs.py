"""Runs of kernels: one call of XLA's gives, bit by bit, what a call for each kernel gives."""

import ctypes
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels.test_many_calls import ALLOWED, growth

import treadle as td
from treadle import driver, nn
from treadle.api import kernel_report
from treadle.base.flags import override
from treadle.ir import build
from treadle.ir.node import Module
from treadle.ir.types import f32
from treadle.kernels import engine, jit, launch, runs
from treadle.kernels.divided import Divided
from treadle.kernels.launch import Phase
from treadle.kernels.llvm import Function
from treadle.kernels.llvm import Module as Code
from treadle.nn import functional as F
from treadle.ops.elementwise import add, mul
from treadle.ops.functions import tanh
from treadle.ops.groups import fused
from treadle.ops.products import matmul
from treadle.ops.reduce import reduce_sum
from treadle.ops.shape import reshape

W = 24


@pytest.fixture(autouse=True)
def small():
    with override(cache=False, fusion=3):
        yield


def group(function, *operands):
    """A group of its own, as the pass `fuse` would make it."""
    return fused(*operands, body=build.trace(function, [v.type for v in operands], "group"))[0]


def chain(x, w, v):
    """Products of several widths, one value read late, one that leaves in the middle, a reshape between."""
    a = group(lambda x, w: tanh(matmul(x, w)), x, w)
    b = group(lambda a, v: matmul(a, v), a, v)
    c = group(lambda b, w: tanh(matmul(b, w)), reshape(reshape(b, shape=(W * W,)), shape=(W, W)), w)
    d = group(lambda c, a: tanh(add(c, a)), c, a)
    e = group(lambda d: tanh(reduce_sum(d, axes=(1,))), d)
    return d, mul(b, b), e


def compiled(module, monkeypatch, apart=False):
    """The program; apart: with a call for each kernel."""
    if apart:
        with monkeypatch.context() as patch:
            patch.setattr(driver, "with_runs", lambda module, takes: module)
            return driver.compile_grouped(module, "apart")
    return driver.compile_grouped(module, "together")


def operands(count=3, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(W, W)).astype(np.float32) for _ in range(count)]


def results(executable, arrays):
    return [np.asarray(a) for a in executable.call(list(arrays))]


@pytest.fixture
def both(monkeypatch):
    module = Module.of(build.trace(chain, [f32[W, W]] * 3))
    return compiled(module, monkeypatch), compiled(module, monkeypatch, apart=True)


def test_one_call_gives_what_many_give(both):
    together, apart = both
    assert together.hlo_text().count("treadle.run.") == 1 and "treadle.run." not in apart.hlo_text()
    for seed in range(5):
        arrays = operands(seed=seed)
        for a, b in zip(results(together, arrays), results(apart, arrays), strict=True):
            np.testing.assert_array_equal(a, b)


def test_many_threads_call_one_program(both):
    together, apart = both
    cases = [operands(seed=s) for s in range(6)]
    wanted = [results(apart, c) for c in cases]

    def many(i):
        for _ in range(200):
            for a, b in zip(results(together, cases[i]), wanted[i], strict=True):
                np.testing.assert_array_equal(a, b)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(many, range(6)))


def test_calls_leave_nothing_behind(both):
    together, _ = both
    arrays = [td.tensor(a)._value for a in operands()]
    assert growth(lambda: together.call(arrays), 10_000) < ALLOWED


def test_no_runs_where_operands_are_given_away():
    module = Module.of(build.trace(chain, [f32[W, W]] * 3))
    assert "treadle.run." not in driver.compile_grouped(module, "train", {0: 0}).hlo_text()


def test_weights_that_were_packed_and_then_change(monkeypatch):
    made = []
    monkeypatch.setattr(runs, "plan", lambda *args, plan=runs.plan: made.append(plan(*args)) or made[-1])
    net = nn.Sequential(*[nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()) for _ in range(4)]).eval()
    x = td.tensor(np.random.default_rng(0).normal(size=(1, 8, 20, 20)).astype(np.float32))
    function = td.jit(lambda x: net(x))
    for turn in range(3):
        for p in net.parameters():
            p.assign(np.random.default_rng(turn).normal(size=p.shape).astype(np.float32) * 0.2)
        with override(fusion=0):
            wanted = td.jit(lambda x: F.relu(net(x)))(x).numpy()
        for _ in range(2):
            np.testing.assert_allclose(function(x).numpy(), wanted, rtol=1e-4, atol=1e-5)
    assert [len(run.calls) for run in made] == [4]
    assert all(isinstance(kernel, Divided) for kernel, _ in made[0].calls)


def test_the_report_says_which_are_called_together():
    def function(x, w):
        for _ in range(4):
            x = tanh(matmul(x, w))
        return x

    said = kernel_report.report(Module.of(build.trace(function, [f32[W, W]] * 2)))
    assert "; 4 of them in 1 call of several" in said


def _nothing():
    done: Future = Future()
    done.set_result(None)
    return done


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_lives_at_once_has_places_of_its_own(data):
    """Random functions, whose kernels have scratch or none: no two values that are needed at a time overlap."""
    values = []

    def function(x, w):
        values[:] = [x, w]
        for _ in range(data.draw(st.integers(3, 12))):
            a, b = (values[data.draw(st.integers(0, len(values) - 1))] for _ in range(2))
            values.append(group(lambda p, q: tanh(add(p, q)), a, b))
        return values[-1]

    body = build.trace(function, [f32[3, 7]] * 2, "run")
    sizes = {n: data.draw(st.sampled_from([0, 0, 64, 200])) for n in body.nodes}
    made = runs.plan(body, lambda node: engine.Loaded(f"k{id(node)}", sizes[node], (), _nothing()))
    work = len(body.params) + len(body.outputs)
    last = {v: i for i, n in enumerate(body.nodes) for v in n.inputs}
    live = {}
    for i, (node, (_, places)) in enumerate(zip(body.nodes, made.calls, strict=True)):
        own = dict(zip([*node.inputs, *node.outputs, "scratch"], places, strict=False))
        for v in node.inputs:
            assert own[v] == ((body.params.index(v), 0) if v in body.params else live[v])
        fresh = {k: p for k, p in own.items() if k in node.outputs or k == "scratch"}
        for key, (buffer, at) in fresh.items():
            size = sizes[node] if key == "scratch" else key.type.bytes
            assert buffer != work or at + size <= made.workspace
            for other, (theirs, begin) in [*live.items(), *fresh.items()]:
                end = begin + (sizes[node] if other == "scratch" else other.type.bytes)
                assert other is key or theirs != buffer or at >= end or begin >= at + size
        live |= {k: p for k, p in fresh.items() if k != "scratch"}
        live = {v: p for v, p in live.items() if last.get(v, i) > i or v in body.outputs}


def test_a_group_without_a_kernel_is_no_part_of_a_run():
    body = build.trace(lambda x, w: group(lambda a, b: add(a, b), x, w), [f32[3, 3]] * 2)
    assert runs.plan(body, lambda node: None) is None


def test_a_helper_leaves_when_it_waits_for_long():
    """Its own thread holds the only task of a run's first phase: the helper goes, and the owner does the rest."""
    m = Code()
    f = Function(m, "held", ["ptr", "i64", "ptr"])
    flag = f.load(f.args[0], "ptr")
    f.store(f.i64(1), flag, 8)
    launch.wait(f, flag, f.i64(1), False)
    f.give()
    f = Function(m, "counted", ["ptr", "i64", "ptr"])
    place = f.load(f.args[0], "ptr", 8)
    f.emit(f"atomicrmw add ptr {place.name}, i64 1 monotonic", "i64")
    f.give()
    phases = [Phase("held", 1), Phase("counted", 5)]
    describe = jit.load(launch.finish(m, phases, 2)).address("describe")
    own, numbers, threads, tiles = launch.read(describe)
    assert (len(own), numbers, threads, tiles) == (2, [0, 1], 5, 0)
    table = [(function, tasks, 0) for function, tasks in own]
    words = np.array(launch.described(table, [(0, 0), (1, 0)], 2, threads, tiles), np.int64)
    flags, count = np.zeros(2, np.int64), np.zeros(1, np.int64)
    places = (ctypes.c_void_p * 2)(flags.ctypes.data, count.ctypes.data)
    begin, _ = jit._entries()
    shared, _ = jit._runtime()
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    worker, helper = (kind(shared.address(f"treadle_{name}")) for name in ("worker", "helper"))
    context = begin(ctypes.addressof(places), words.ctypes.data, 2)
    owner = threading.Thread(target=worker, args=(context,))
    owner.start()
    while not flags[1]:
        pass
    late = threading.Timer(20, lambda: flags.__setitem__(0, 1))
    late.start()
    helper(context)
    late.cancel()
    assert owner.is_alive() and count[0] == 0
    flags[0] = 1
    owner.join(30)
    assert not owner.is_alive() and count[0] == 5
