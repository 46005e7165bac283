"""Inference: what only the weights decide is computed once, and again when a weight has another value."""

import threading

import numpy as np
import pytest

import treadle as td
from treadle import nn
from treadle.api.programs import Program
from treadle.base.flags import flags
from treadle.ir.walk import all_nodes
from treadle.kernels.target import available
from treadle.nn import functional as F
from treadle.runtime.chain import Chain
from treadle.transforms import parts


def test_a_weight_that_changes_is_seen():
    w = td.tensor(np.eye(3, dtype=np.float32))

    @td.jit
    def product(x):
        return x @ td.tanh(w.T)

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for value in (1.0, 2.0, 2.0, -1.0):
        w.assign(np.full((3, 3), value, np.float32))
        for _ in range(2):
            np.testing.assert_allclose(product(x).numpy(), x @ np.tanh(np.full((3, 3), value)), rtol=1e-5)


def test_training_between_calls_is_seen():
    net = nn.Linear(3, 2)
    opt = td.optim.SGD(net.parameters(), lr=0.5)
    x = td.tensor(np.ones((4, 3), np.float32))

    @td.jit
    def predict(x):
        return x @ td.exp(net.weight.T)

    @td.jit
    def step(x):
        loss, grads = td.value_and_grad(lambda: (net(x) ** 2).sum(), net.parameters())()
        opt.step(grads)
        return loss

    for _ in range(3):
        np.testing.assert_allclose(predict(x).numpy(), x.numpy() @ np.exp(net.weight.numpy().T), rtol=1e-5)
        step(x)


def test_the_program_itself_leaves_it_out():
    w = td.tensor(np.ones((3, 3), np.float32))
    x = td.tensor(np.ones((2, 3), np.float32))
    program = Program("p", lambda x: x @ td.tanh(w), (x,), {})
    assert program.prepared is not None and len(program.executable.inputs) == 3
    np.testing.assert_allclose(program([x]).numpy(), np.ones((2, 3)) * 3 * np.tanh(1.0), rtol=1e-6)
    assert [str(t) for t in program.prepared.prepare.inputs] == ["f32[3,3]"]


def weights(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32) / 16


def packed(program):
    """Bytes of what the program has packed."""
    count = program.prepared._count
    return sum(t.bytes for t in program.executable.inputs[count:] if t.dtype is td.uint8)


needs_kernels = pytest.mark.skipif(not available(), reason="there are no kernels here")


@needs_kernels
def test_panels_follow_the_weights():
    w, x = td.tensor(weights(256, 192)), weights(130, 192, seed=1)

    @td.jit
    def product(x):
        return F.linear(x, w)

    for seed in (0, 2, 2, 3):
        w.assign(weights(256, 192, seed=seed))
        for _ in range(2):
            np.testing.assert_allclose(product(x).numpy(), x @ weights(256, 192, seed=seed).T, atol=1e-5)
    (program,) = product.programs()
    assert program.prepared.bytes == packed(program) >= w.numpy().nbytes
    assert [t.dtype for t in program.executable.inputs] == [td.float32, td.float32, td.uint8]


@needs_kernels
def test_panels_in_a_chain_of_equal_layers(monkeypatch):
    layers = [(td.tensor(weights(192, 192, seed=i)), td.tensor(weights(192, seed=i + 50))) for i in range(5)]
    x = weights(128, 192, seed=99)

    def deep(x):
        for w, b in layers:
            x = td.tanh(F.relu(F.gelu(F.linear(x, w, b)) * 2.0)) + x
        return x

    monkeypatch.setattr(parts, "MAX_RUNS_SHARE", 1e9)
    monkeypatch.setattr(parts, "MIN_RUN_S", 0.0)
    program = Program("deep", deep, (td.tensor(x),), {})
    assert isinstance(program.executable, Chain) and packed(program) >= 5 * 192 * 192 * 4
    monkeypatch.setattr(flags, "fusion", 0)
    plain = Program("plain", deep, (td.tensor(x),), {})
    assert packed(plain) == 0
    for seed in (0, 7):
        layers[3][0].assign(weights(192, 192, seed=seed))
        got, want = (p([td.tensor(x)]).numpy() for p in (program, plain))
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def convolutional():
    net = nn.Sequential(nn.Conv2d(8, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, 16, 1)).eval()
    rng = np.random.default_rng(3)
    for p in (*net.parameters(), *net.buffers()):
        if p.dtype is td.float32:
            p.assign((np.abs(rng.normal(size=p.shape)) + 0.1).astype(np.float32))
    return net, rng.normal(size=(2, 8, 20, 20)).astype(np.float32)


def test_a_batch_norm_is_folded_and_follows_its_parameters():
    net, x = convolutional()
    run = td.jit(lambda x: net(x))
    for scale in (1.0, 0.0, -2.0):
        net[1].weight.assign(np.full(24, scale, np.float32))
        np.testing.assert_allclose(run(x).numpy(), net(td.tensor(x)).numpy(), rtol=1e-4, atol=1e-4)
    (program,) = run.programs()
    assert program.prepared._checked and program.prepared._plain is None
    assert not [n for n in all_nodes(program.prepared._main) if n.op.name == "mul"]


@pytest.mark.parametrize("number", [np.inf, np.nan, 1e30])
def test_numbers_that_cannot_be_folded_run_as_they_are(number):
    net, x = convolutional()
    run = td.jit(lambda x: net(x))
    good = run(x).numpy()
    before = net[1].weight.numpy()
    odd = before.copy()
    odd[5] = number
    net[1].weight.assign(odd)
    want = net(td.tensor(x)).numpy()
    np.testing.assert_allclose(run(x).numpy(), want, rtol=1e-4)
    (program,) = run.programs()
    assert program.prepared._plain is not None
    net[1].weight.assign(before)
    np.testing.assert_array_equal(run(x).numpy(), good)


def test_nan_checks_run_prepared_programs_again(monkeypatch):
    w = td.tensor(np.eye(3, dtype=np.float32))
    run = td.jit(lambda x: td.log(x @ td.tanh(w)))
    run(np.ones((2, 3), np.float32))
    monkeypatch.setattr(flags, "debug_nans", True)
    with pytest.raises(td.UserError, match=r"E0415 .*log"):
        run(-np.ones((2, 3), np.float32))


def test_threads_that_call_while_weights_change():
    net, x = convolutional()
    run = td.jit(lambda x: net(x))
    run(x)
    wrong = []

    def call():
        for _ in range(30):
            y = run(x).numpy()
            if not np.isfinite(y).all():
                wrong.append(y)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for t in threads:
        t.start()
    for i in range(20):
        net[0].weight.assign(weights(24, 8, 3, 3, seed=i))
    for t in threads:
        t.join()
    assert not wrong
    np.testing.assert_allclose(run(x).numpy(), net(td.tensor(x)).numpy(), rtol=1e-4, atol=1e-4)


def test_half_precision_weights_are_prepared_once():
    net, x = convolutional()

    def half(x):
        with td.amp.autocast("O1"):
            return net(x)

    got = td.jit(half)(x).numpy().astype(np.float32)
    want = net(td.tensor(x)).numpy()
    assert np.linalg.norm(got - want) / np.linalg.norm(want) < 0.02


@needs_kernels
def test_a_cast_weight_is_kept_as_panels_alone():
    w, x = td.tensor(weights(256, 192)), td.tensor(weights(130, 192, seed=1))

    def half(x):
        with td.amp.autocast("O1"):
            return F.linear(x, w)

    program = Program("half", half, (x,), {})
    got = program([x]).numpy().astype(np.float32)
    np.testing.assert_allclose(got, x.numpy() @ w.numpy().T, atol=0.02)
    assert [t.dtype for t in program.executable.inputs] == [td.float32, td.float32, td.uint8]
