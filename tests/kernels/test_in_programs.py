"""Kernels inside compiled programs: groups lowered to calls of XLA's, with scratch; without a kernel, node by node."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import treadle as td
from treadle import driver
from treadle.base.flags import override
from treadle.ir import build
from treadle.ir.node import Module
from treadle.ir.types import f32
from treadle.kernels import engine, launch, tunings
from treadle.kernels.kernel import Kernel, Plan
from treadle.kernels.launch import Phase
from treadle.kernels.llvm import Function
from treadle.kernels.llvm import Module as Code
from treadle.ops.elementwise import add
from treadle.ops.functions import tanh
from treadle.ops.products import matmul
from treadle.ops.reduce import broadcast_to

M, N, K = 5, 3, 4


def plain_product(scale=1.0, workspace=0):
    """x @ w (+ anything that is ignored): one task per row; with a workspace, by way of it."""
    m = Code()
    f = Function(m, "rows", ["ptr", "i64", "ptr"])
    buffers, row, _ = f.args
    x, w, out = (f.load(buffers, "ptr", 8 * i) for i in range(3))
    place = f.load(buffers, "ptr", 24) if workspace else out
    with f.loop(0, N) as j:
        total = f.variable("float", 0.0)
        with f.loop(0, K) as k:
            total.set(total.get() + f.load(x, "float", (row * K + k) * 4) * f.load(w, "float", (k * N + j) * 4))
        f.store(total.get() * scale, place, (row * N + j) * 4)
        f.store(f.load(place, "float", (row * N + j) * 4), out, (row * N + j) * 4)
    f.give()
    text = launch.finish(m, [Phase("rows", M)], 3 + bool(workspace))
    return Kernel((f32[M, K], f32[K, N]), (f32[M, N],), text, workspace)


@pytest.fixture
def plans(monkeypatch):
    """The plans that the engine offers for any body; a list to be filled."""
    offers = []
    monkeypatch.setattr(engine, "plans", lambda body, machine=None: offers if len(body.nodes) == 1 else [])
    monkeypatch.setattr(engine, "_chosen", {})
    monkeypatch.setattr(tunings, "_known", {None: {}})
    with override(cache=False, fusion=3):
        yield offers


def product(x, w):
    return matmul(x, w)


def run(function, *arrays, types):
    executable = driver.compile_module(Module.of(build.trace(function, types)))
    return executable, [np.asarray(r) for r in executable.call([np.asarray(a) for a in arrays])]


@pytest.mark.parametrize("workspace", [0, 4096])
def test_a_group_is_one_call(plans, workspace):
    plans.append(Plan("plain", lambda: plain_product(workspace=workspace)))
    x, w = np.random.default_rng(0).normal(size=(2, 20)).astype(np.float32)
    x, w = x.reshape(M, K), w[: K * N].reshape(K, N)
    executable, (out,) = run(product, x, w, types=(f32[M, K], f32[K, N]))
    np.testing.assert_allclose(out, x @ w, rtol=1e-5)
    assert "treadle." in executable.hlo_text()


def test_it_is_our_kernel_that_ran(plans):
    plans.append(Plan("doubled", lambda: plain_product(scale=2.0)))
    x, w = np.ones((M, K), np.float32), np.ones((K, N), np.float32)
    assert (run(product, x, w, types=(f32[M, K], f32[K, N]))[1][0] == 2 * K).all()


def test_a_group_without_a_kernel_is_tried_in_smaller_ones(plans):
    plans.append(Plan("doubled", lambda: plain_product(scale=2.0)))

    def layer(x, w, b):
        return tanh(add(matmul(x, w), broadcast_to(b, shape=(M, N))))

    x, w, b = np.full((M, K), 0.1, np.float32), np.full((K, N), 0.2, np.float32), np.ones(N, np.float32)
    executable, (out,) = run(layer, x, w, b, types=(f32[M, K], f32[K, N], f32[N]))
    np.testing.assert_allclose(out, np.tanh(2 * (x @ w) + b), rtol=1e-5)
    assert executable.hlo_text().count("treadle.") >= 1


@pytest.mark.parametrize("level", [0, 3])
def test_the_flag_turns_kernels_off(plans, level):
    plans.append(Plan("doubled", lambda: plain_product(scale=2.0)))
    x, w = np.ones((M, K), np.float32), np.ones((K, N), np.float32)
    with override(fusion=level):
        out = run(product, x, w, types=(f32[M, K], f32[K, N]))[1][0]
    assert (out == (2 * K if level else K)).all()


def test_a_measurement_decides(plans):
    plans += [Plan("doubled", lambda: plain_product(scale=2.0)), Plan("thrice", lambda: plain_product(scale=3.0))]
    body = build.trace(product, (f32[M, K], f32[K, N]))
    x, w = np.ones((M, K), np.float32), np.ones((K, N), np.float32)
    for times, factor in (({"xla": 2.0, "thrice": 1.0, "doubled": 3.0}, 3), ({"xla": 0.5}, 1)):
        tunings.add({engine.key_of(body): times})
        engine.forget()
        assert (run(product, x, w, types=(f32[M, K], f32[K, N]))[1][0] == factor * K).all()


def test_tuning_measures_every_plan_and_xla(plans):
    from treadle.api import tuning

    plans += [Plan("plain", plain_product), Plan("roundabout", lambda: plain_product(workspace=4096))]
    module = Module.of(build.trace(product, (f32[M, K], f32[K, N])))
    measured = tuning.tune(module)
    (times,) = measured.values()
    assert set(times) == {"xla", "plain", "roundabout"} and all(t > 0 for t in times.values())
    assert tuning.tune(module) == {}
    assert tunings.fastest(next(iter(measured))) in times


def test_measurements_stay_on_disk(tmp_path, monkeypatch):
    tmp_path.chmod(0o700)
    monkeypatch.setattr(tunings, "_known", {})
    with override(cache=True, cache_dir=str(tmp_path)):
        tunings.add({"body": {"xla": 2.0, "ours": 1.0}})
        tunings.add({"other": {"xla": 1.0, "ours": 2.0}})
        monkeypatch.setattr(tunings, "_known", {})
        assert tunings.fastest("body") == "ours" and tunings.fastest("other") == "xla"
        assert tunings.fastest("third") is None
        (file,) = tmp_path.glob("kernels-*.json")
        file.write_text("{")
        monkeypatch.setattr(tunings, "_known", {})
        assert tunings.fastest("body") is None


def test_kernels_run_in_programs_that_run_at_once(plans):
    plans.append(Plan("plain", plain_product))
    x, w = np.ones((M, K), np.float32), np.ones((K, N), np.float32)
    executable, _ = run(product, x, w, types=(f32[M, K], f32[K, N]))

    def many(_):
        return all((np.asarray(executable.call([x, w])[0]) == K).all() for _ in range(100))

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(many, range(6)))


def test_a_program_from_the_disk_finds_its_kernel(plans, tmp_path):
    plans.append(Plan("plain", plain_product))
    tmp_path.chmod(0o700)
    x, w = np.ones((M, K), np.float32), np.ones((K, N), np.float32)
    with override(cache=True, cache_dir=str(tmp_path), fusion=3):
        run(product, x, w, types=(f32[M, K], f32[K, N]))
        executable, (out,) = run(product, x, w, types=(f32[M, K], f32[K, N]))
    assert executable.from_cache and (out == K).all()


def test_without_llvmlite_everything_is_xlas(monkeypatch):
    monkeypatch.setattr(driver, "kernels_available", lambda: False)
    x = td.tensor(np.ones((300, 300), np.float32))
    assert ((x @ x).numpy() == 300).all()
