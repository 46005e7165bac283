"""Decisions on disk: a later process needs neither templates nor LLVM; what decided them is part of the key."""

import json
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest

from treadle import driver
from treadle.base import cache
from treadle.base.flags import override
from treadle.ir import build
from treadle.ir.node import Module
from treadle.ir.types import f32
from treadle.kernels import engine, jit, recall, target, tunings
from treadle.ops.elementwise import add
from treadle.ops.functions import tanh
from treadle.ops.products import matmul

TYPES = f32[24, 40], f32[40, 56], f32[24, 56]


def function(x, w, r):
    return tanh(add(matmul(x, w), r))


held = []  # XLA knows the kernels' addresses: code must outlive the test


def fresh(monkeypatch):
    """As in a process that has just started."""
    held.append(jit._loaded)
    monkeypatch.setattr(engine, "_chosen", {})
    monkeypatch.setattr(engine, "_offers", {})
    monkeypatch.setattr(jit, "_loaded", {})
    monkeypatch.setattr(tunings, "_known", {})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    tmp_path.chmod(0o700)
    fresh(monkeypatch)
    with override(cache=True, cache_dir=str(tmp_path), fusion=3):
        yield tmp_path
    held.append(jit._loaded)


def refuse(*args):
    raise AssertionError("asked for again")


def run():
    rng = np.random.default_rng(0)
    x, w, r = (rng.standard_normal(t.shape).astype(np.float32) for t in TYPES)
    module = Module.of(build.trace(function, TYPES))
    (out,) = driver.compile_module(module).call([x, w, r])
    np.testing.assert_allclose(np.asarray(out), np.tanh(x @ w + r), rtol=1e-4, atol=1e-5)


def test_a_later_process_asks_neither_templates_nor_llvm(folder, monkeypatch):
    run()
    fresh(monkeypatch)
    monkeypatch.setattr(engine, "plans", refuse)
    monkeypatch.setattr(jit, "compile_object", refuse)
    run()
    assert [c.plan for c in engine._chosen.values() if c.loaded] != []


@pytest.mark.parametrize("damage", [b"{}", b"no JSON", b'{"plan": "x", "aliases": 3}'])
def test_what_cannot_be_read_is_decided_again(folder, monkeypatch, damage):
    body = build.trace(function, TYPES)
    first = engine.choose(body)
    store = cache.current()
    assert store is not None
    store.put(recall._key(engine._text(body), None), damage)
    fresh(monkeypatch)
    again = engine.choose(body)
    assert again.plan == first.plan and again.loaded is not None and again.loaded.name == first.loaded.name


def test_code_that_is_gone_is_made_again(folder, monkeypatch):
    body = build.trace(function, TYPES)
    engine.choose(body)
    for entry in folder.glob("*.xla"):
        if b"treadle_launch" in entry.read_bytes():  # object code
            entry.unlink()
    fresh(monkeypatch)
    assert engine.choose(body).loaded.code.handler


def test_source_cpu_and_wanted_plan_are_part_of_the_key(monkeypatch):
    first = recall._key("body", None)
    assert first == recall._key("body", None) and first != recall._key("body", "loops")
    with monkeypatch.context() as change:
        change.setattr(recall, "_sources", lambda: "other templates")
        assert recall._key("body", None) != first
    plain = target.host().without("avx512f", "avx2", "fma", "sse4.2")
    monkeypatch.setattr(target, "host", lambda: plain)
    assert recall._key("body", None) != first


def test_ops_of_others_are_not_kept(folder, monkeypatch):
    body = build.trace(function, TYPES)
    assert engine._all_ours(body)
    rule = tanh.rules["type"]
    monkeypatch.setitem(tanh.rules, "type", lambda *types, **attrs: rule(*types, **attrs))
    assert not engine._all_ours(body)
    assert engine.choose(body).loaded is not None
    assert recall.find(engine._text(body), None) is None


def test_a_body_that_no_template_takes_is_remembered_too(folder, monkeypatch):
    body = build.trace(function, TYPES)
    monkeypatch.setattr(engine, "plans", lambda body, machine=None: [])
    assert engine.choose(body).loaded is None
    fresh(monkeypatch)
    monkeypatch.setattr(engine, "plans", refuse)
    assert engine.choose(body).loaded is None and not engine.takes(body)
    key = recall._key(engine._text(body), None)
    assert json.loads(cache.current().get(key))["plan"] == ""


def test_kernels_compile_beside_each_other(folder, monkeypatch):
    """Two threads are inside LLVM at the same time: each waits there for the other."""
    both, compile = threading.Barrier(2, timeout=20), jit._unlocked

    def waiting(name, result):
        both.wait()
        return compile(name, result)

    bodies = [build.trace(function, (f32[n, 8], f32[8, 16], f32[n, 16])) for n in (6, 7)]
    jit._runtime()
    monkeypatch.setattr(jit, "_unlocked", waiting)
    with ThreadPoolExecutor(2) as pool:
        choices = [engine.choose(body, pool) for body in bodies]
    assert all(isinstance(c.loaded.pending, Future) and c.loaded.code.handler for c in choices)


def test_code_is_the_same_whatever_else_is_compiled(folder):
    bodies = [build.trace(function, (f32[n, 8], f32[8, 16], f32[n, 16])) for n in range(3, 11)]
    texts = [engine.plans(body)[0].build().text for body in bodies]
    alone = [jit.compile_object(text, target.host()) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda text: jit.compile_object(text, target.host()), texts))
    assert together == alone
