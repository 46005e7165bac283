"""Sentences of many lengths in batches of several sizes: a few programs, with the loss and gradients of plain calls."""

import numpy as np
import pytest

import treadle as td
from treadle import nn

F = nn.functional
WORDS, WIDTH = 20, 8
DIMS = {0: "batch", 1: "length"}


class Pooled(td.Cell):
    """The mean of the words that a mask of the user's keeps."""

    def __init__(self):
        self.words, self.out = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, 3)

    def forward(self, ids, mask):
        m = mask[:, :, None]
        return self.out((self.words(ids) * m).sum(1) / m.sum(1))


class Recurrent(td.Cell):
    """An LSTM in both directions: the last state and the mean of all."""

    def __init__(self):
        self.words, self.out = nn.Embedding(WORDS, WIDTH), nn.Linear(8, 3)
        self.layer = nn.LSTM(WIDTH, 4, batch_first=True, bidirectional=True)

    def forward(self, ids, mask):
        y, _ = self.layer(self.words(ids))
        return self.out(y[:, -1] + y.mean(1))


class Encoder(td.Cell):
    """A small transformer with learned places, causal, its loss over all words at once."""

    def __init__(self):
        self.words, self.places = nn.Embedding(WORDS, WIDTH), td.Parameter(td.ones((64, WIDTH)) * 0.1)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout=0.0, batch_first=True)
        self.layers, self.out = nn.TransformerEncoder(layer, 2), nn.Linear(WIDTH, 3)

    def forward(self, ids, mask):
        h = self.layers(self.words(ids) + self.places[: ids.shape[1]], is_causal=True)
        return self.out(h).mean(1)


def steps(net):
    def step(ids, mask, y):
        return td.value_and_grad(lambda: F.cross_entropy(net(ids, mask), y), net.parameters())()

    return step, td.jit(step, dynamic={"ids": DIMS, "mask": DIMS, "y": {0: "batch"}})


def batch(rng, rows, length):
    mask = (rng.random((rows, length)) < 0.8).astype(np.float32)
    mask[:, 0] = 1
    return td.tensor(rng.integers(0, WORDS, (rows, length))), td.tensor(mask), td.tensor(rng.integers(0, 3, rows))


def check(net, lengths, programs):
    step, compiled = steps(net)
    rng = np.random.default_rng(0)
    for i, length in enumerate(lengths):
        args = batch(rng, (5, 6, 8)[i % 3], int(length))
        (loss, grads), (wanted, wanted_grads) = compiled(*args), step(*args)
        np.testing.assert_allclose(loss.item(), wanted.item(), rtol=1e-5)
        assert len(grads) == len(wanted_grads) == len(list(net.parameters()))
        for found, each in zip(td.tree.flatten(grads)[0], td.tree.flatten(wanted_grads)[0], strict=True):
            np.testing.assert_allclose(found.numpy(), each.numpy(), rtol=1e-4, atol=1e-6)
    assert compiled.cache_info().compiled <= programs


def test_fifty_lengths_are_at_most_six_programs():
    check(Pooled(), np.random.default_rng(1).permutation(np.arange(1, 51)), 6)


def test_layers_over_time():
    check(Recurrent(), (5, 7), 1)


def test_transformer():
    check(Encoder(), (64, 40, 5), 2)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "lengths"), [(Recurrent, np.arange(3, 53, 7)), (Encoder, np.arange(3, 53))])
def test_many_lengths_of_larger_models(model, lengths):
    check(model(), lengths, 4)
