"""The engine under the kernels: IR text, code in memory, tasks shared among threads, the cache on disk."""

import threading
from dataclasses import replace

import numpy as np
import pytest

from treadle.base import cache
from treadle.base.flags import override
from treadle.kernels import jit, launch
from treadle.kernels.launch import Phase
from treadle.kernels.llvm import Function, Module
from treadle.kernels.target import host

BLOCK = 1024


def scaled_sum(tasks, factor=2.0):
    """out = (x + y) * factor in two phases, the second of which needs the first to be over."""
    m = Module()
    for name, last in (("first", False), ("second", True)):
        f = Function(m, name, ["ptr", "i64", "ptr"])
        buffers, task, _ = f.args
        x, y, out = (f.load(buffers, "ptr", 8 * i) for i in range(3))
        at = (f.i64(tasks - 1) - task if last else task) * (BLOCK * 4)
        with f.loop(0, BLOCK, 16) as i:
            places = [f.offset(p, at, i * 4) for p in (x, y, out)]
            if last:
                f.store(f.load(places[2], "<16 x float>") * factor, places[2])
            else:
                f.store(f.load(places[0], "<16 x float>") + f.load(places[1], "<16 x float>"), places[2])
        f.give()
    return launch.finish(m, [Phase("first", tasks), Phase("second", tasks)], 3)


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("tasks", [1, 64])
def test_phases_run_in_order_on_any_number_of_threads(tasks, threads):
    code = jit.load(scaled_sum(tasks))
    x, y = np.random.default_rng(0).normal(size=(2, tasks * BLOCK)).astype(np.float32)
    for _ in range(5):
        out = np.full_like(x, np.nan)
        code.run([x, y, out], threads)
        np.testing.assert_array_equal(out, (x + y) * 2)


def test_the_same_text_is_one_code():
    assert jit.load(scaled_sum(3)) is jit.load(scaled_sum(3))
    assert jit.load(scaled_sum(3)) is not jit.load(scaled_sum(4))


def test_codes_come_from_the_disk(tmp_path, monkeypatch):
    text = scaled_sum(2, factor=3.0)
    tmp_path.chmod(0o700)
    with override(cache=True, cache_dir=str(tmp_path)):
        jit.load(text)
        assert len(list(tmp_path.iterdir())) == 1
        monkeypatch.setattr(jit, "_loaded", {})
        monkeypatch.setattr(jit, "compile_object", None)  # a second compilation would fail
        x = np.ones(2 * BLOCK, np.float32)
        out = np.zeros_like(x)
        jit.load(text).run([x, x, out])
        assert (out == 6).all()


def test_a_damaged_entry_is_compiled_again(tmp_path, monkeypatch):
    text = scaled_sum(2, factor=5.0)
    tmp_path.chmod(0o700)
    with override(cache=True, cache_dir=str(tmp_path)):
        jit.load(text)
        (entry,) = tmp_path.iterdir()
        entry.write_bytes(entry.read_bytes()[:-20])
        monkeypatch.setattr(jit, "_loaded", {})
        assert jit.load(text).handler
        assert cache.current() is not None


def test_wrong_ir_is_an_error():
    with pytest.raises(RuntimeError, match="value doesn't match"):
        jit.load("define void @f() { ret i32 0 }")


def test_a_call_of_what_is_not_there_is_an_error():
    with pytest.raises(RuntimeError, match="no_such_function"):
        jit.load("declare void @no_such_function()\ndefine void @f() { call void @no_such_function() ret void }")
    assert jit.load(
        "declare double @cos(double)\ndefine double @f(double %x) { %y = call double @cos(double %x) ret double %y }"
    )


def test_many_threads_run_and_compile_at_once():
    failures = []

    def work(seed):
        code = jit.load(scaled_sum(4, factor=float(seed % 3)))
        x = np.full(4 * BLOCK, seed, np.float32)
        for _ in range(50):
            out = np.empty_like(x)
            code.run([x, x, out], 2)
            if not (out == 2 * seed * (seed % 3)).all():
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(s,)) for s in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert failures == []


def test_a_machine_may_pretend_less():
    plain = host().without("avx512f", "avx2")
    assert not plain.has("avx512") and not plain.has("avx512bf16") and not plain.has("amx") and plain.vector_bytes == 16
    narrow = jit.load(scaled_sum(2, factor=7.0), plain)
    x = np.ones(2 * BLOCK, np.float32)
    out = np.zeros_like(x)
    narrow.run([x, x, out])
    assert (out == 14).all()
    if host().has("avx512"):
        assert "zmm" in jit.assembly(scaled_sum(2), host()) and "zmm" not in jit.assembly(scaled_sum(2), plain)


def test_a_cpu_has_a_set_of_instructions_when_it_has_all_that_kernels_use_with_it():
    features = frozenset({"avx2", "fma", "bmi2", "avx512f", "avx512bw", "avx512dq", "avx512vl", "amx-tile"})
    server = replace(host(), triple="x86_64-unknown-linux-gnu", features=features)
    assert server.sets() == ["avx2", "avx512"]
    assert server.without("fma").sets() == [] and server.without("avx512f").sets() == ["avx2"]
