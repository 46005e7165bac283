"""How many programs a jitted function keeps, and what it says when they get many."""

import gc
import threading
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import treadle as td
from treadle import driver
from treadle.base import events
from treadle.base.flags import override


def call(f, n):
    assert f(np.ones(n, np.float32)).item() == n


def test_the_programs_used_longest_ago_are_dropped():
    f = td.jit(lambda x: td.sum(x))
    with override(max_programs=3):
        for n in (1, 2, 3, 1, 4, 1):
            call(f, n)
        assert f.cache_info() == (4, 3, 3)
        call(f, 2)  # was dropped, 3 goes now
        assert f.cache_info() == (5, 3, 3)
        for n in (1, 4, 2):
            call(f, n)
        assert f.cache_info().compiled == 5
    with override(max_programs=0):
        for n in range(1, 7):
            call(f, n)
        assert f.cache_info().kept == 6


def test_a_dropped_program_is_freed():
    f = td.jit(lambda x: td.sum(x))
    with override(max_programs=1):
        call(f, 1)
        old = weakref.ref(f.programs()[0])
        call(f, 2)
        gc.collect()
        assert old() is None
        assert "dropped" in events.events("jit")[-1].payload


def test_stale_programs_of_one_key_count_too():
    factor = 0
    f = td.jit(lambda x: td.sum(x) * factor)
    with override(max_programs=2):
        for factor in range(5):
            assert f(np.ones(1, np.float32)).item() == factor
        assert f.cache_info() == (5, 2, 2)


def test_clear_forgets_programs_of_functions_and_methods():
    class Model:
        @td.jit
        def run(self, x):
            return td.sum(x)

    model = Model()
    call(model.run, 2)
    assert model.run.cache_info().kept == 1
    Model.run.clear()
    assert model.run.cache_info()[:2] == (1, 0)
    call(model.run, 2)
    assert model.run.cache_info()[:2] == (2, 1)


def test_one_warning_when_a_function_is_compiled_often():
    f = td.jit(lambda x, n: td.sum(x) * n, name="varying")
    x = np.ones(1, np.float32)
    with pytest.warns(RuntimeWarning, match="varying was compiled 32 times.*argument 1 is 31") as caught:
        [f(x, n) for n in range(36)]
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_threads_may_drop_each_others_programs():
    f = td.jit(lambda x: td.sum(x))
    errors = []

    def work(start):
        try:
            for i in range(12):
                call(f, 1 + (start + i) % 4)
        except Exception as error:
            errors.append(error)

    with override(max_programs=2), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert not errors
    assert f.cache_info().kept <= 2


def test_the_plans_of_eager_mode_have_a_limit(monkeypatch):
    monkeypatch.setattr(driver, "_MAX_PLANS", 8)
    monkeypatch.setattr(driver, "_plans", {})

    def total(n):
        assert td.cumsum(td.ones((n, 2)), 0)[-1].tolist() == [n, n]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(total, [*range(1, 40), *range(1, 40)]))
    assert 4 <= len(driver._plans) <= 8
