"""Some of the bench's models in MindSpore: `make` gives (state, step), step(state, batch) -> (state, loss).

Graph mode, float32; its threads follow the cores that the process may use. State is the pair (cell, optimiser), changed
in place. Models: those of weights.MINDSPORE.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import weights as W
from mindspore import nn, ops

_NAMES = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean", "moving_variance": "running_var"}


def _conv(n_in: int, n_out: int, kernel: int, stride: int = 1, pad: int = 0, bias: bool = False) -> nn.Cell:
    return nn.Conv2d(n_in, n_out, kernel, stride, pad_mode="pad", padding=pad, has_bias=bias)


class MLP(nn.Cell):
    """Linear layers with ReLU between."""

    def __init__(self, cfg: W.Config):
        super().__init__()
        self.layers = nn.CellList([nn.Dense(a, b) for a, b in zip(cfg["sizes"], cfg["sizes"][1:])])
        self.last = len(self.layers) - 1

    def construct(self, x: Any) -> Any:
        for i in range(self.last):
            x = ops.relu(self.layers[i](x))
        return self.layers[self.last](x)


class LeNet(nn.Cell):
    """Two convolutions with pooling, three linear layers."""

    def __init__(self, cfg: W.Config):
        super().__init__()
        self.conv1, self.conv2 = _conv(1, 6, 5, pad=2, bias=True), _conv(6, 16, 5, bias=True)
        side = (cfg["image"] // 2 - 4) // 2
        self.fc1, self.fc2, self.fc3 = nn.Dense(16 * side * side, 120), nn.Dense(120, 84), nn.Dense(84, cfg["classes"])
        self.pool = nn.MaxPool2d(2, 2)

    def construct(self, x: Any) -> Any:
        x = self.pool(ops.relu(self.conv1(x)))
        x = self.pool(ops.relu(self.conv2(x)))
        x = ops.relu(self.fc2(ops.relu(self.fc1(x.reshape((x.shape[0], -1))))))
        return self.fc3(x)


class ResidualBlock(nn.Cell):
    """Convolutions with batch norms, and the way around them."""

    def __init__(self, cfg: W.Config, n_in: int, width: int, stride: int, down: bool):
        super().__init__()
        n_out, self.deep, self.down = W.resnet_out(cfg, width), cfg["bottleneck"], down
        if self.deep:
            self.conv1, self.conv2 = _conv(n_in, width, 1), _conv(width, width, 3, stride, 1)
            self.conv3, self.bn3 = _conv(width, n_out, 1), nn.BatchNorm2d(n_out)
        else:
            self.conv1, self.conv2 = _conv(n_in, width, 3, stride, 1), _conv(width, width, 3, 1, 1)
        self.bn1, self.bn2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        if down:
            self.downsample = nn.SequentialCell(_conv(n_in, n_out, 1, stride), nn.BatchNorm2d(n_out))

    def construct(self, x: Any) -> Any:
        y = self.bn2(self.conv2(ops.relu(self.bn1(self.conv1(x)))))
        if self.deep:
            y = self.bn3(self.conv3(ops.relu(y)))
        if self.down:
            x = self.downsample(x)
        return ops.relu(y + x)


class ResNet(nn.Cell):
    """Images to logits."""

    def __init__(self, cfg: W.Config):
        super().__init__()
        self.conv1, self.bn1 = _conv(3, 64, 7, 2, 3), nn.BatchNorm2d(64)
        self.pool = nn.MaxPool2d(3, 2, pad_mode="pad", padding=1)
        rows = W.resnet_blocks(cfg)
        for stage in sorted({name.split(".")[0] for name, *_ in rows}):
            blocks = [ResidualBlock(cfg, *sizes) for name, *sizes in rows if name.startswith(stage + ".")]
            setattr(self, stage, nn.SequentialCell(blocks))
        self.fc = nn.Dense(W.resnet_out(cfg, rows[-1][2]), cfg["classes"])

    def construct(self, x: Any) -> Any:
        x = self.pool(ops.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


class LSTMModel(nn.Cell):
    """Tokens to logits, all places of all texts in one row."""

    def __init__(self, cfg: W.Config):
        super().__init__()
        d = cfg["d"]
        self.tok, self.head = nn.Embedding(cfg["vocab"], d), nn.Dense(d, cfg["vocab"])
        self.lstm = nn.LSTM(d, d, cfg["layers"], batch_first=True)

    def construct(self, tokens: Any) -> Any:
        hidden, _ = self.lstm(self.tok(tokens))
        return self.head(hidden.reshape((-1, hidden.shape[-1])))


_CELLS = {"mlp": MLP, "lenet": LeNet, "resnet": ResNet, "lstm": LSTMModel}


def _name(parameter: str) -> str:
    """A parameter's name among the bench's weights."""
    first, _, last = parameter.rpartition(".")
    last = "weight" if last == "embedding_table" else _NAMES.get(last, last)
    return f"{first}.{last}" if first else last


def _load(net: nn.Cell, arrays: W.Arrays) -> None:
    """Overwrite every parameter by name. Raises RuntimeError for a name without a partner."""
    places = {_name(p.name): p for p in net.get_parameters()}
    if odd := set(places) ^ set(arrays):
        raise RuntimeError(f"names without a partner: {sorted(odd)[:6]}")
    for name, array in arrays.items():
        places[name].set_data(ms.Tensor(array.reshape(places[name].shape)))


def make(model: str, cfg: W.Config) -> tuple[Any, Callable[..., Any]]:
    """First state and the training step, compiled at its first call."""
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")
    net = _CELLS[W.family(model)](cfg)
    _load(net, W.weights(model, cfg))
    net.set_train()
    params = net.trainable_params()
    optimiser = nn.Momentum(params, cfg["lr"], cfg["momentum"])

    def loss_of(x: Any, labels: Any) -> Any:
        return ops.cross_entropy(net(x), labels.reshape(-1))

    both = ms.value_and_grad(loss_of, None, params)

    @ms.jit
    def train(x: Any, labels: Any) -> Any:
        loss, grads = both(x, labels)
        optimiser(grads)
        return loss

    return (net, optimiser), lambda state, batch: (state, train(*batch))


def put(model: str, cfg: W.Config, arrays: tuple[np.ndarray, ...]) -> tuple[Any, ...]:
    """A batch as tensors."""
    return tuple(ms.Tensor(a) for a in arrays)


def wait(values: Any) -> Any:
    """The same values, once they are computed."""
    (net, _), loss = values if isinstance(values, tuple) else ((None, None), values)
    loss.asnumpy()
    if net is not None:
        net.trainable_params()[0].asnumpy()
    return values


def gradients(state: Any, cfg: W.Config) -> W.Arrays:
    """What the first step made of the gradients, by name: all the optimiser's memory of them after exactly one step."""
    net, optimiser = state
    return {_name(p.name): m.asnumpy().reshape(p.shape) for p, m in zip(net.trainable_params(), optimiser.moments)}


def compiled(model: str, cfg: W.Config) -> tuple[dict[str, float], Any, Callable[..., Any], tuple[Any, ...]]:
    """Seconds of the first step less the better of two later ones; then state, step, batch."""
    state, step = make(model, cfg)
    batch, times = put(model, cfg, W.batch(model, cfg)), []
    for _ in range(3):
        start = time.perf_counter()
        state, loss = step(state, batch)
        wait((state, loss))
        times.append(time.perf_counter() - start)
    return {"total_s": times[0] - min(times[1:])}, state, step, batch


def versions() -> dict[str, str]:
    """The version of this side."""
    return {"mindspore": ms.__version__}
