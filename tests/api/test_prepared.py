"""Inference: what only the weights decide is computed once, and again when a weight has another value."""

import numpy as np

import treadle as td
from treadle import nn
from treadle.api.programs import Program


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
    assert program._prepare is not None and len(program.executable.inputs) == 3
    np.testing.assert_allclose(program([x]).numpy(), np.ones((2, 3)) * 3 * np.tanh(1.0), rtol=1e-6)
    assert [str(t) for t in program._prepare.inputs] == ["f32[3,3]"]
