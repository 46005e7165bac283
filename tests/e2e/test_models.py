"""Whole models: the same losses in eager and graph mode, dropout and running statistics included; and they learn."""

import numpy as np
import pytest

import treadle as td
from treadle import nn


class Gpt(nn.Cell):
    """A two-layer language model. tokens: int[batch, length] -> float[batch, length, vocabulary]."""

    def __init__(self, vocabulary=16, width=16, length=8):
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.CellList([nn.TransformerBlock(width, 2, causal=True, dropout=0.1) for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Reader(nn.Cell):
    """An LSTM that classifies sequences. x: float[batch, length, 4] -> float[batch, 3]."""

    def __init__(self):
        self.lstm, self.drop, self.out = nn.LSTM(4, 8, batch_first=True), nn.Dropout(0.2), nn.Linear(8, 3)

    def forward(self, x):
        y, _ = self.lstm(x)
        return self.out(self.drop(y[:, -1]))


class Residual(nn.Cell):
    """A residual convolution block with batch norm. x: float[batch, 3, 8, 8] -> float[batch, 5]."""

    def __init__(self):
        self.first, self.bn1 = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8)
        self.second, self.bn2 = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.relu, self.head = nn.ReLU(), nn.Linear(8, 5)

    def forward(self, x):
        x = self.relu(self.bn1(self.first(x)))
        x = self.relu(x + self.bn2(self.second(x)))
        return self.head(x.mean(axis=(2, 3)))


def _data(kind):
    rng = np.random.default_rng(3)
    if kind is Gpt:
        tokens = (np.arange(9) + rng.integers(0, 16, (8, 1))) % 16
        return tokens[:, :-1].astype(np.int32), tokens[:, 1:].astype(np.int32)
    if kind is Reader:
        return rng.normal(size=(6, 5, 4)).astype(np.float32), rng.integers(0, 3, 6).astype(np.int32)
    return rng.normal(size=(6, 3, 8, 8)).astype(np.float32), rng.integers(0, 5, 6).astype(np.int32)


def _train(kind, wrap, steps):
    td.manual_seed(1)
    net = kind()
    params = net.parameters()
    optimizer = td.optim.AdamW(params, lr=1e-2)
    x, y = _data(kind)

    def loss_of(x, y):
        scores = net(x)
        return nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), y.reshape(-1))

    def step(x, y):
        loss, grads = td.value_and_grad(lambda: loss_of(x, y), params)()
        optimizer.step(grads)
        return loss

    step = wrap(step)
    losses = [step(x, y).item() for _ in range(steps)]
    return losses, {name: b.numpy() for name, b in net.named_buffers()}


@pytest.mark.parametrize("kind", [Gpt, Reader, Residual])
def test_eager_and_graph_train_alike(kind):
    eager, eager_buffers = _train(kind, lambda f: f, 4)
    graph, graph_buffers = _train(kind, td.jit, 4)
    np.testing.assert_allclose(eager, graph, rtol=1e-4)
    assert eager_buffers.keys() == graph_buffers.keys()
    for name, value in eager_buffers.items():
        np.testing.assert_allclose(value, graph_buffers[name], rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("kind", [Gpt, Reader, Residual])
def test_they_learn(kind):
    losses, _ = _train(kind, td.jit, 60)
    assert losses[-1] < losses[0] / 2
