"""Layers, losses and optimisers that are compared with PyTorch, written once for both: `nn` is either library's.

`python tests/nn/make_golden.py` runs them in PyTorch and writes golden.json.
"""

from typing import Any

import numpy as np


def fill(shape: tuple[int, ...], seed: float) -> Any:
    """Numbers that both libraries can be given: float32, without pattern, no two alike, away from 0."""
    n = int(np.prod(shape))
    values = np.sin(np.arange(n) * 1.61 + seed * 2.3) * 1.3
    return (values + np.sign(values) * 0.02).astype(np.float32).reshape(shape)


def project(array: Any) -> float:
    """One number that changes when any element does."""
    flat = np.asarray(array, np.float64).ravel()
    return float(flat @ np.cos(np.arange(flat.size) * 0.77 + 0.1))


def cotangent(shape: tuple[int, ...]) -> Any:
    return np.cos(np.arange(int(np.prod(shape))) * 0.77 + 0.1).astype(np.float32).reshape(shape)


def attend(net: Any, x: Any) -> Any:
    return net(x, x, x, need_weights=False)[0]


# name: (layer, shapes of the inputs, training, how it is called)
LAYERS: dict[str, tuple[Any, tuple[tuple[int, ...], ...], bool, Any]] = {
    "linear": (lambda nn: nn.Linear(5, 3), ((4, 5),), True, None),
    "linear without bias, three axes": (lambda nn: nn.Linear(5, 3, bias=False), ((2, 3, 5),), True, None),
    "conv1d": (lambda nn: nn.Conv1d(2, 3, 3, padding=1), ((2, 2, 6),), True, None),
    "conv2d stride groups": (
        lambda nn: nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2), ((2, 2, 7, 6),), True, None
    ),
    "conv2d same": (lambda nn: nn.Conv2d(2, 3, (3, 2), padding="same", dilation=2), ((1, 2, 6, 5),), True, None),
    "conv2d same, even kernel": (lambda nn: nn.Conv2d(2, 3, (4, 2), padding="same"), ((1, 2, 6, 5),), True, None),
    "conv2d without batch": (lambda nn: nn.Conv2d(2, 3, 3), ((2, 5, 5),), True, None),
    "conv3d": (lambda nn: nn.Conv3d(1, 2, 2), ((1, 1, 3, 4, 3),), True, None),
    "batch_norm1d": (lambda nn: nn.BatchNorm1d(3), ((5, 3),), True, None),
    "batch_norm2d": (lambda nn: nn.BatchNorm2d(3, momentum=0.3), ((2, 3, 2, 3),), True, None),
    "batch_norm2d eval": (lambda nn: nn.BatchNorm2d(3), ((2, 3, 2, 3),), False, None),
    "layer_norm": (lambda nn: nn.LayerNorm((3, 4)), ((2, 3, 4),), True, None),
    "rms_norm": (lambda nn: nn.RMSNorm(4, eps=1e-5), ((2, 3, 4),), True, None),
    "group_norm": (lambda nn: nn.GroupNorm(2, 4), ((2, 4, 3),), True, None),
    "relu": (lambda nn: nn.ReLU(), ((2, 5),), True, None),
    "relu6": (lambda nn: nn.ReLU6(), ((2, 5),), True, None),
    "gelu": (lambda nn: nn.GELU(), ((2, 5),), True, None),
    "gelu tanh": (lambda nn: nn.GELU(approximate="tanh"), ((2, 5),), True, None),
    "silu": (lambda nn: nn.SiLU(), ((2, 5),), True, None),
    "leaky_relu": (lambda nn: nn.LeakyReLU(0.2), ((2, 5),), True, None),
    "elu": (lambda nn: nn.ELU(0.7), ((2, 5),), True, None),
    "softplus": (lambda nn: nn.Softplus(), ((2, 5),), True, None),
    "sigmoid": (lambda nn: nn.Sigmoid(), ((2, 5),), True, None),
    "tanh": (lambda nn: nn.Tanh(), ((2, 5),), True, None),
    "hardswish": (lambda nn: nn.Hardswish(), ((2, 5),), True, None),
    "hardsigmoid": (lambda nn: nn.Hardsigmoid(), ((2, 5),), True, None),
    "softmax": (lambda nn: nn.Softmax(dim=1), ((2, 5, 2),), True, None),
    "log_softmax": (lambda nn: nn.LogSoftmax(dim=-1), ((2, 5),), True, None),
    "max_pool1d": (lambda nn: nn.MaxPool1d(2), ((2, 3, 7),), True, None),
    "max_pool2d": (lambda nn: nn.MaxPool2d(3, stride=2, padding=1), ((1, 2, 6, 5),), True, None),
    "avg_pool1d": (lambda nn: nn.AvgPool1d(3, 2, 1), ((2, 3, 7),), True, None),
    "avg_pool2d": (lambda nn: nn.AvgPool2d(3, 2, 1, count_include_pad=False), ((1, 2, 6, 5),), True, None),
    "adaptive to 1": (lambda nn: nn.AdaptiveAvgPool2d(1), ((2, 3, 4, 5),), True, None),
    "adaptive to 2, 3": (lambda nn: nn.AdaptiveAvgPool2d((2, 3)), ((2, 3, 4, 6),), True, None),
    "flatten": (lambda nn: nn.Flatten(), ((2, 3, 2),), True, None),
    "lstm": (lambda nn: nn.LSTM(3, 4), ((5, 2, 3),), True, None),
    "lstm deep": (
        lambda nn: nn.LSTM(3, 2, num_layers=2, batch_first=True, bidirectional=True), ((2, 4, 3),), True, None
    ),
    "lstm without batch": (lambda nn: nn.LSTM(3, 2), ((4, 3),), True, None),
    "lstm given state": (
        lambda nn: nn.LSTM(3, 2, bias=False), ((4, 2, 3), (1, 2, 2), (1, 2, 2)), True,
        lambda net, x, h, c: net(x, (h, c)),
    ),
    "lstm cell": (
        lambda nn: nn.LSTMCell(3, 2), ((4, 3), (4, 2), (4, 2)), True, lambda net, x, h, c: net(x, (h, c))
    ),
    "gru": (lambda nn: nn.GRU(3, 2, num_layers=2), ((4, 2, 3),), True, None),
    "attention": (lambda nn: nn.MultiheadAttention(4, 2), ((3, 2, 4),), True, attend),
    "attention of three": (
        lambda nn: nn.MultiheadAttention(4, 2, batch_first=True), ((2, 3, 4), (2, 5, 4), (2, 5, 4)), True,
        lambda net, q, k, v: net(q, k, v, need_weights=True),
    ),
    "encoder layer": (
        lambda nn: nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True), ((2, 3, 4),), True, None
    ),
    "encoder layer, norm first": (
        lambda nn: nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, activation="gelu", norm_first=True),
        ((3, 2, 4),), True, None,
    ),
}  # fmt: skip

CLASSES = np.array([2, 0, 1, -100, 2], np.int64)
PLANES = np.array([[0, 2, 1], [1, -100, 0]], np.int64)
WEIGHT = np.array([0.5, 2.0, 1.0], np.float32)
EVEN = np.array([[0.2, 0.3, 0.5], [1, 0, 0], [0, 0.5, 0.5], [0.1, 0.1, 0.8], [0, 1, 0]], np.float32)

# name: (loss, shape of the input, target)
LOSSES: dict[str, tuple[Any, tuple[int, ...], Any]] = {
    "cross_entropy": (lambda nn, t: nn.CrossEntropyLoss(), (5, 3), CLASSES),
    "cross_entropy sum": (lambda nn, t: nn.CrossEntropyLoss(reduction="sum"), (5, 3), CLASSES),
    "cross_entropy none": (lambda nn, t: nn.CrossEntropyLoss(reduction="none"), (5, 3), CLASSES),
    "cross_entropy weighted": (lambda nn, t: nn.CrossEntropyLoss(t(WEIGHT)), (5, 3), CLASSES),
    "cross_entropy smooth": (lambda nn, t: nn.CrossEntropyLoss(label_smoothing=0.1), (5, 3), CLASSES),
    "cross_entropy smooth weighted": (
        lambda nn, t: nn.CrossEntropyLoss(t(WEIGHT), label_smoothing=0.2), (2, 3, 3), PLANES
    ),
    "cross_entropy planes": (lambda nn, t: nn.CrossEntropyLoss(), (2, 3, 3), PLANES),
    "cross_entropy other ignored": (lambda nn, t: nn.CrossEntropyLoss(ignore_index=2), (3, 3), CLASSES[:3]),
    "cross_entropy probabilities": (lambda nn, t: nn.CrossEntropyLoss(label_smoothing=0.1), (5, 3), EVEN),
    "nll": (lambda nn, t: nn.NLLLoss(), (5, 3), CLASSES),
    "nll weighted": (lambda nn, t: nn.NLLLoss(t(WEIGHT), reduction="sum"), (2, 3, 3), PLANES),
    "mse": (lambda nn, t: nn.MSELoss(), (2, 3), fill((2, 3), 8.0)),
    "l1": (lambda nn, t: nn.L1Loss(reduction="sum"), (2, 3), fill((2, 3), 8.0)),
    "huber": (lambda nn, t: nn.HuberLoss(delta=0.7), (2, 3), fill((2, 3), 8.0)),
    "bce": (lambda nn, t: nn.BCEWithLogitsLoss(), (5, 3), EVEN),
    "bce weighted": (
        lambda nn, t: nn.BCEWithLogitsLoss(weight=t(WEIGHT), pos_weight=t(WEIGHT * 2)), (5, 3), EVEN
    ),
}  # fmt: skip

OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda o, p: o.SGD(p, lr=0.1),
    "sgd decay": lambda o, p: o.SGD(p, lr=0.1, weight_decay=0.3),
    "sgd momentum": lambda o, p: o.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.3),
    "sgd nesterov": lambda o, p: o.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda o, p: o.Adam(p, lr=0.01),
    "adam decay": lambda o, p: o.Adam(p, lr=0.01, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.3),
    "adamw": lambda o, p: o.AdamW(p, lr=0.01, weight_decay=0.3),
    "adamw groups": lambda o, p: o.AdamW(
        [{"params": p[:1], "lr": 0.1}, {"params": p[1:], "weight_decay": 0.0}], lr=0.01
    ),
}
SHAPES = ((2, 3), (3,))
STEPS = 4


def gradients(step: int) -> list[Any]:
    return [fill(s, 3.0 + 2 * step + i) for i, s in enumerate(SHAPES)]


# name: (of torch.optim.lr_scheduler, of treadle.optim)
SCHEDULES: dict[str, tuple[Any, Any]] = {
    "step": (lambda s, o: s.StepLR(o, 3, 0.5), lambda s, o: s.StepLR(o, 3, 0.5)),
    "milestones": (lambda s, o: s.MultiStepLR(o, [2, 5], 0.5), lambda s, o: s.MultiStepLR(o, [2, 5], 0.5)),
    "exponential": (lambda s, o: s.ExponentialLR(o, 0.9), lambda s, o: s.ExponentialLR(o, 0.9)),
    "cosine": (lambda s, o: s.CosineAnnealingLR(o, 6, 0.1), lambda s, o: s.CosineAnnealingLR(o, 6, 0.1)),
    "lambda": (lambda s, o: s.LambdaLR(o, lambda t: 1 / (1 + t)), lambda s, o: s.LambdaLR(o, lambda t: 1 / (1 + t))),
    "warm up": (lambda s, o: s.LinearLR(o, 0.1, 1.0, 4), lambda s, o: s.LinearWarmup(o, 4, 0.1)),
    "one cycle": (
        lambda s, o: s.OneCycleLR(o, 2.0, total_steps=9, cycle_momentum=False),
        lambda s, o: s.OneCycleLR(o, 2.0, 9),
    ),
}
RATES = 8
