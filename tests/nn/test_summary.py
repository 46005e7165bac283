"""The table of a model: shapes, parameters, FLOPs and bytes counted by hand; the model is left as it was."""

from typing import Any

import numpy as np

import treadle as td
from treadle import nn


def test_counts_are_those_by_hand() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 16, 10))
    net[0].freeze()
    found = nn.summary(net, (2, 3, 4, 4))
    rows = {r.name: r for r in found.rows}
    assert rows["0"].outputs == ("f32[2, 8, 4, 4]",) and rows["0"].bytes == 2 * 8 * 16 * 4
    products = 2 * (2 * 8 * 16) * (3 * 9)
    assert rows["0"].flops == products + 2 * 8 * 16  # with the bias
    assert rows["3"].flops == 2 * 2 * 128 * 10 + 2 * 10
    assert rows[""].params == found.params == (27 * 8 + 8) + 16 + (1280 + 10)
    assert found.trainable == found.params - 224
    assert found.param_bytes == 4 * found.params and found.buffer_bytes == 4 * 16
    assert found.flops == rows[""].flops == sum(rows[n].flops for n in "0123")
    assert found.output_bytes == 4 * (3 * 2 * 128 + 2 * 10)
    text = str(found)
    assert "0: Conv2d" in text and "f32[2, 10]" in text and f"{found.flops:,}" in text and "224 of them frozen" in text


def test_the_model_is_left_as_it_was() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
    before = td.manual_seed(3).counter.item()
    nn.summary(net, np.ones((4, 3), np.float32))
    assert (net[1].running_mean.numpy() == 0).all() and "forward" not in net[0].__dict__
    assert td.manual_seed(3).counter.item() == before
    assert net.training and net(np.ones((4, 3), np.float32)).shape == (4, 3)


class Nested(nn.Cell):
    def __init__(self) -> None:
        self.inner = nn.CellList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.unused = nn.Linear(9, 9)

    def forward(self, x: Any, scale: float = 1.0) -> Any:
        for layer in self.inner:
            x = layer(x) * scale
        return {"y": x, "z": x.sum()}


def test_nested_shared_and_unused_layers() -> None:
    net = Nested()
    net.inner[1].weight = net.inner[0].weight
    found = nn.summary(net, td.Tensor(np.ones((2, 4), np.float16)), scale=2.0)
    rows = {r.name: r for r in found.rows}
    assert rows["unused"].outputs == () and rows["unused"].flops == 0
    assert len(rows[""].outputs) == 2 and rows["inner.1"].flops >= 2 * 2 * 16
    assert rows["inner"].flops == rows["inner.0"].flops + rows["inner.1"].flops


def test_recurrent_steps_count_as_often_as_they_run() -> None:
    short, long = (nn.summary(nn.LSTM(3, 4), (n, 2, 3)).flops for n in (5, 10))
    assert 1.9 < long / short < 2.1


def test_hooked_and_parametrised_layers_are_counted() -> None:
    net = nn.Sequential(nn.utils.weight_norm(nn.Linear(3, 4)), nn.Linear(4, 2))
    plain = nn.summary(net, (2, 3))
    net[1].register_forward_hook(lambda cell, args, y: y + 1)
    net[1].register_full_backward_hook(lambda cell, into, out: None)
    found = nn.summary(net, (2, 3))
    rows = {r.name: r for r in found.rows}
    assert found.params == (4 + 12 + 4) + 10 and rows["0.parametrizations.weight"].outputs == ("f32[4, 3]",)
    assert rows["1"].outputs == ("f32[2, 2]",) and rows["1"].flops == 2 * 2 * 4 * 2 + 2 * 2 + 2 * 2
    assert found.flops == plain.flops + 2 * 2
