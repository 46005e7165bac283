"""Kernels that eager mode calls itself: the numbers of the references, one kernel for all sizes, arrays that live."""

import gc
import threading
from functools import partial

import numpy as np
import pytest
from tests.kernels.pages import Fenced

import treadle as td
from treadle import driver, ops
from treadle.base.dtypes import bfloat16
from treadle.base.flags import override
from treadle.ir import build, interp
from treadle.ir.node import Module
from treadle.ir.types import bf16, bool_, f16, f32, f64, i8, i32, i64
from treadle.kernels import direct
from treadle.nn import functional as F
from treadle.runtime import pjrt

SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30, -1e30, 0.5]


def of(function, *types):
    return build.trace(function, types)


def numbers(type, seed=0):
    rng = np.random.default_rng(seed)
    kind = type.dtype.kind
    if kind == "b":
        return rng.random(type.shape) < 0.5
    if kind in "iu":
        return rng.integers(-100, 100, type.shape).astype(type.dtype.np)
    a = rng.normal(0, 2, type.shape)
    if a.ndim:
        a.reshape(-1)[: len(SPECIAL)] = SPECIAL[: a.size]
    with np.errstate(all="ignore"):
        return a.astype(type.dtype.np)


def check(fn, arrays, made, rtol=2e-6, atol=2e-8):
    with np.errstate(all="ignore"):
        wanted = interp.run(fn, *arrays)
    found = made.call(arrays)
    assert len(found) == len(wanted)
    for f, w in zip(found, wanted, strict=True):
        assert f.dtype == w.dtype and f.shape == w.shape
        if w.dtype.kind not in "fV":
            np.testing.assert_array_equal(f, w)
        elif w.dtype.itemsize == 2:
            np.testing.assert_allclose(f.astype("f4"), w.astype("f4"), rtol=1e-2, atol=1e-6)
        else:
            np.testing.assert_allclose(f, w, rtol=rtol, atol=atol)


SHAPES = [(1,), (15,), (40_000,), (131_073,), (7, 5001), (3, 1, 20_011)]


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "f16"])
@pytest.mark.parametrize("shape", SHAPES)
def test_floats_of_any_size(dtype, shape):
    t = {"f32": f32, "f64": f64, "bf16": bf16, "f16": f16}[dtype][shape]
    x, y = numbers(t), numbers(t, 1)
    for function, arrays in [
        (ops.add, [x, y]),
        (ops.exp, [x]),
        (partial(ops.gelu, approximate=False), [x]),
        (ops.greater, [x, y]),
    ]:
        fn = of(function, *[t] * len(arrays))
        check(fn, arrays, direct.flat(fn), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("type", [i8, i32, i64])
def test_integers_and_bools(type):
    t = type[33_001]
    x, y, c = numbers(t), numbers(t, 1), numbers(bool_[33_001])
    for function in (ops.add, ops.mul, ops.maximum, ops.equal):
        fn = of(function, t, t)
        check(fn, [x, y], direct.flat(fn))
    fn = of(ops.select, bool_[33_001], t, t)
    check(fn, [c, x, y], direct.flat(fn))
    fn = of(ops.logical_not, bool_[33_001])
    check(fn, [c], direct.flat(fn))


def test_numbers_that_are_spread_and_several_results():
    t, one = f32[5, 9001], f32[()]

    def several(x, s, y):
        s = ops.broadcast_to(s, shape=x.type.shape)
        return ops.sub(y, s), ops.mul(x, y), ops.less(s, x)

    fn = of(several, t, one, t)
    check(fn, [numbers(t), np.array(1.5, "f4"), numbers(t, 1)], direct.flat(fn))


def test_one_kernel_serves_all_sizes():
    direct._flat.clear()
    for shape in [(40_000,), (300, 200), (3, 4, 5000)]:
        fn = of(ops.tanh, f32[shape])
        check(fn, [numbers(f32[shape])], direct.flat(fn))
    assert len(direct._flat) == 1
    assert direct.flat(of(ops.tanh, f64[40_000])) is not None and len(direct._flat) == 2


def test_what_is_not_elementwise_has_no_such_kernel():
    t = f32[200, 300]
    for function in [
        lambda x: ops.reduce_sum(x, axes=(0,)),
        lambda x: ops.reverse(x, axes=(1,)),
        lambda x: ops.softmax(x, axis=1),
        lambda x: ops.add(x, ops.broadcast_to(ops.reduce_max(x, axes=(0,)), shape=(200, 300))),
    ]:
        assert direct.flat(of(function, t)) is None
    rows = of(lambda x, r: ops.add(x, ops.broadcast_to(r, shape=(200, 300))), t, f32[300])
    assert direct.flat(rows) is None
    check(rows, [numbers(t), numbers(f32[300], 1)], direct.whole(rows))


def test_nothing_is_read_or_changed_outside():
    for size in (1, 17, 8193, 40_003):
        t = f32[size]
        fn = of(ops.add, t, t)
        x, y = Fenced(numbers(t)), Fenced(numbers(t, 1))
        check(fn, [x.array, y.array], direct.flat(fn))
        assert x.intact() and y.intact()


def test_only_the_results_are_written(monkeypatch):
    rooms = []

    def fenced(bytes):
        room = np.full(bytes + 128, 0xA5, np.uint8)
        rooms.append((room, bytes))
        return room, 64, room.__array_interface__["data"][0] + 64

    monkeypatch.setattr(direct, "_room", fenced)
    for size in (1, 17, 8193, 40_003):
        fn = of(lambda x: (ops.exp(x), ops.cast(x, dtype=bfloat16), ops.is_finite(x)), f32[size])
        check(fn, [numbers(f32[size])], direct.flat(fn))
    assert len(rooms) == 12
    assert all((r[:64] == 0xA5).all() and (r[64 + n :] == 0xA5).all() for r, n in rooms)


def test_operands_that_are_not_dense():
    fn = of(ops.add, f32[300, 200], f32[300, 200])
    x = numbers(f32[200, 300]).T
    check(fn, [x, numbers(f32[300, 400])[:, ::2]], direct.flat(fn))


def test_a_groups_kernel_gives_what_the_program_gives():
    x = numbers(f32[700, 130])
    x[:, :8] = 0.5
    for function in (lambda v: ops.softmax(v, axis=1), lambda v: ops.reduce_sum(v, axes=(1,))):
        fn = of(function, f32[700, 130])
        plan = driver.Plan(fn, "test", True)
        kernel = plan.kernel()
        assert kernel is not None
        (found,) = kernel.call([x])
        np.testing.assert_array_equal(found, pjrt.to_numpy(plan.compiled().call([x])[0]))


# ------------------------------------------------------------------------------------------------------- in eager mode
def eager(*shape):
    a = np.random.default_rng(3).uniform(-2, 2, shape).astype("f4")
    return a, td.Tensor(a)


def test_large_results_are_on_the_device_and_small_ones_on_the_host():
    a, x = eager(500, 100)
    y = td.exp(x)
    assert pjrt.is_array(y._value) and isinstance(x.sum()._value, np.ndarray)
    np.testing.assert_allclose(y.numpy(), np.exp(a), rtol=1e-6)
    np.testing.assert_allclose(td.jit(lambda v: v * 2)(y).numpy(), 2 * np.exp(a), rtol=1e-6)
    assert td.exp(td.Tensor(a.T)).numpy() == pytest.approx(np.exp(a.T), rel=1e-6)


def test_memory_is_kept_as_long_as_its_array():
    a, x = eager(400, 100)
    made = [td.exp(x + float(i)) for i in range(5)]
    gc.collect()
    for i, y in enumerate(made):
        np.testing.assert_allclose(y.numpy(), np.exp(a + np.float32(i)), rtol=1e-5)
    view = pjrt.to_numpy(made[2]._value, copy=False)
    del made
    gc.collect()
    others = [td.exp(x) for _ in range(5)]
    np.testing.assert_allclose(view, np.exp(a + np.float32(2)), rtol=1e-5)
    assert len(others) == 5


def test_an_adopted_array_that_is_donated_is_gone_and_others_keep_their_numbers():
    _, x = eager(50_000)
    y = td.exp(x)
    program = driver.compile_module(Module.of(of(ops.neg, f32[50_000])), donate={0: None})
    value, copy = y._value, y.numpy()
    view = pjrt.to_numpy(value, copy=False)
    np.testing.assert_array_equal(pjrt.to_numpy(program.call([value])[0]), -copy)
    np.testing.assert_array_equal(view, copy)
    del view
    value = td.exp(x)._value
    program.call([value])
    with pytest.raises(td.UserError, match="E0402"):
        program.call([value])


def test_exact_ops_give_the_same_bits_in_numpy_and_in_kernels():
    a, _ = eager(300, 300)
    b = a[::-1].copy()
    a[0, :4] = [np.nan, np.inf, -0.0, 0.0]
    for function in (
        lambda p, q: p + q, lambda p, q: p - 2.5, lambda p, q: p * q, lambda p, q: p / q, lambda p, q: -p,
        lambda p, q: 3 / p, lambda p, q: p > q, lambda p, q: p == 0.5, lambda p, q: p + q[0], lambda p, q: abs(p),
    ):  # fmt: skip
        short = function(td.Tensor(a), td.Tensor(b))
        assert isinstance(short._value, np.ndarray)
        other = function(*[td.Tensor._of(pjrt.put(v)) for v in (a, b)])
        assert pjrt.is_array(other._value)
        np.testing.assert_array_equal(short.numpy(), other.numpy())
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(short.numpy(), function(a, b))


def test_many_threads_call_one_kernel():
    _, x = eager(60_000)
    wanted, wrong = td.exp(x).numpy(), []

    def work():
        for _ in range(40):
            if not np.array_equal(td.exp(x).numpy(), wanted):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_gradients_of_large_arrays():
    _, x = eager(200, 300)
    value, grads = td.value_and_grad(lambda v: F.gelu(v).sum())(x)
    traced = td.jit(td.value_and_grad(lambda v: F.gelu(v).sum()))(x)
    np.testing.assert_allclose(value.numpy(), traced[0].numpy(), rtol=1e-4)
    np.testing.assert_allclose(grads.numpy(), traced[1].numpy(), rtol=1e-4, atol=1e-5)


def test_without_fusion_xla_computes_it():
    with override(fusion=0):
        assert driver.Plan(of(ops.exp, f32[40_000]), "exp", True).kernel() is None
