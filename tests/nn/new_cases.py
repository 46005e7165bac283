"""Layers and losses of the third table that is compared with PyTorch; `python tests/nn/make_new_golden.py` writes it.

name: (layer or loss, inputs, call), as in more_cases.
"""

import sys
from typing import Any

import numpy as np
from tests.nn.cases import fill
from tests.nn.more_cases import act, loss

CLASSES = np.array([0, 2, 1, 2])
MANY = np.array([[1, 0, -1], [2, -1, 0], [-1, 0, 1], [0, 1, 2]])
WEIGHT = np.array([0.5, 1.5, 1.0], np.float32)
LABELS = np.array([[1, 2, 2, 3], [3, 1, 0, 0], [2, 2, 0, 0]])
FLAT = np.array([1, 2, 2, 3, 3, 1, 2, 2])
SIZES = np.array([4, 2, 2])
BAG = np.array([[1, 2, 4], [0, 4, 4]])
ROW, OFFSETS = np.array([1, 2, 4, 5, 4, 3, 3]), np.array([0, 2, 2, 6])



def logs(x: Any) -> Any:
    """Log-softmax along the last axis, in either library."""
    return x - x.exp().sum(-1)[..., None].log()


def ctc(times: Any, sizes: Any = SIZES) -> Any:
    def call(net: Any, x: Any, targets: Any) -> Any:
        lengths = (tuple(map(int, times)), tuple(map(int, sizes)))
        return net(logs(x), targets, *lengths)

    return call


def bag(offsets: Any = None) -> Any:
    def call(net: Any, indices: Any, *rest: Any) -> Any:
        return net(indices) if offsets is None else net(indices, rest[0])

    return call


def weighed(net: Any, indices: Any, offsets: Any, factors: Any) -> Any:
    return net(indices, offsets, per_sample_weights=factors)


def first_axis(net: Any, x: Any, target: Any) -> Any:
    return net(x[0], target[0])


def attend(**options: Any) -> Any:
    def call(net: Any, q: Any, k: Any, v: Any, *masks: Any) -> Any:
        given = dict(zip(("attn_mask", "key_padding_mask"), masks, strict=False))
        return net(q, k, v, need_weights=True, **given, **options)

    return call


def functional(x: Any) -> Any:
    """The functions of the library that x is from."""
    return sys.modules[type(x).__module__.split(".")[0]].nn.functional


def twice_tanh(x: Any) -> Any:
    return 2 / (1 + (-x).exp()) - 1


GOAL = fill((2, 3), 8.0)
SHARES = np.array([[0.5, 2.0, 1.0], [0.0, 1.0, 3.0]], np.float32)
HIDDEN = np.array([[False, True, False], [False, False, True]])
PADDED = np.array([[False, False, True], [False, False, False]])


def cubes(a: Any, b: Any) -> Any:
    return (abs(a - b) ** 3).sum(-1)


CASES: dict[str, tuple[Any, tuple[Any, ...], Any]] = {
    "softmax 2d": act(lambda nn: nn.Softmax2d(), 2, 3, 2, 2),
    "rrelu off": act(lambda nn: nn.RReLU(0.1, 0.5).eval(), 2, 5),
    "channel shuffle": act(lambda nn: nn.ChannelShuffle(2), 1, 6, 2, 2),
    "feature alpha dropout off": act(lambda nn: nn.FeatureAlphaDropout(0.5).eval(), 2, 3, 2),
    "embedding padding": loss(lambda nn: nn.Embedding(6, 3, padding_idx=-2), BAG),
    "bag sum": loss(lambda nn: nn.EmbeddingBag(6, 3, mode="sum"), BAG, call=bag()),
    "bag mean, padding": loss(lambda nn: nn.EmbeddingBag(6, 3, padding_idx=4), BAG, call=bag()),
    "bag max, padding": loss(lambda nn: nn.EmbeddingBag(6, 3, mode="max", padding_idx=4), BAG, call=bag()),
    "bag offsets sum": loss(lambda nn: nn.EmbeddingBag(6, 3, mode="sum"), ROW, OFFSETS, call=bag(1)),
    "bag offsets mean": loss(lambda nn: nn.EmbeddingBag(6, 3, padding_idx=4), ROW, OFFSETS, call=bag(1)),
    "bag offsets max": loss(lambda nn: nn.EmbeddingBag(6, 3, mode="max", padding_idx=3), ROW, OFFSETS, call=bag(1)),
    "bag last offset": loss(
        lambda nn: nn.EmbeddingBag(6, 3, include_last_offset=True), ROW, np.append(OFFSETS, 7), call=bag(1)
    ),
    "bag last offset max": loss(
        lambda nn: nn.EmbeddingBag(6, 3, mode="max", include_last_offset=True), ROW, np.append(OFFSETS, 7), call=bag(1)
    ),
    "bag weights": loss(lambda nn: nn.EmbeddingBag(6, 3, mode="sum"), ROW, OFFSETS, (7,), call=weighed),
    "weight norm": act(lambda nn: nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)), 2, 3),
    "weight norm of columns": act(lambda nn: nn.utils.parametrizations.weight_norm(nn.Conv1d(2, 3, 2), dim=1), 2, 2, 5),
    "softplus": act(lambda nn: nn.Softplus(beta=3.0, threshold=2.0), 3, 4),
    "conv reflect": act(lambda nn: nn.Conv2d(2, 3, 3, padding=(1, 2), padding_mode="reflect"), 1, 2, 4, 5),
    "conv circular": act(lambda nn: nn.Conv1d(2, 2, 3, stride=2, padding=1, padding_mode="circular"), 2, 2, 5),
    "conv replicate, same": act(
        lambda nn: nn.Conv1d(2, 2, 4, padding="same", padding_mode="replicate", bias=False), 2, 2, 5
    ),
    "batch norm without bias": act(lambda nn: nn.BatchNorm1d(3, bias=False), 4, 3),
    "group norm without bias": act(lambda nn: nn.GroupNorm(2, 4, bias=False), 2, 4, 3),
    "attention of other sizes": loss(
        lambda nn: nn.MultiheadAttention(4, 2, kdim=3, vdim=5, batch_first=True),
        (2, 2, 4), (2, 3, 3), (2, 3, 5), call=attend(),
    ),
    "attention with more keys": loss(
        lambda nn: nn.MultiheadAttention(4, 2, add_bias_kv=True, add_zero_attn=True, batch_first=True),
        (2, 2, 4), (2, 3, 4), (2, 3, 4), HIDDEN, PADDED, call=attend(),
    ),
    "attention with a zero key": loss(
        lambda nn: nn.MultiheadAttention(4, 2, add_zero_attn=True, bias=False), (2, 2, 4), (3, 2, 4), (3, 2, 4),
        call=attend(),
    ),
    "encoder layer without bias": act(
        lambda nn: nn.TransformerEncoderLayer(
            4, 2, 6, dropout=0.0, activation=twice_tanh, layer_norm_eps=0.1, bias=False, batch_first=True
        ),
        2, 3, 4,
    ),
    "weighted mse": loss(
        lambda nn: nn.Identity(), (2, 3), GOAL, SHARES,
        call=lambda net, x, y, w: functional(x).mse_loss(x, y, reduction="mean", weight=w),
    ),
    "weighted l1": loss(
        lambda nn: nn.Identity(), (2, 3), GOAL, SHARES,
        call=lambda net, x, y, w: functional(x).l1_loss(x, y, reduction="sum", weight=w),
    ),
    "weighted huber": loss(
        lambda nn: nn.Identity(), (2, 3), GOAL, SHARES,
        call=lambda net, x, y, w: functional(x).huber_loss(x, y, reduction="mean", delta=0.4, weight=w),
    ),
    "linear cross entropy": loss(
        lambda nn: nn.LinearCrossEntropyLoss(4, 3, bias=True, label_smoothing=0.1, ignore_index=1),
        (4, 4), np.array([0, 2, 1, 2]),
    ),
    "lstm with projection": loss(
        lambda nn: nn.LSTM(3, 4, num_layers=2, bidirectional=True, proj_size=2), (5, 2, 3)
    ),
    "multi margin": loss(lambda nn: nn.MultiMarginLoss(), (4, 3), CLASSES),
    "multi margin squared": loss(lambda nn: nn.MultiMarginLoss(p=2, margin=0.7, reduction="none"), (4, 3), CLASSES),
    "multi margin single": loss(lambda nn: nn.MultiMarginLoss(reduction="none"), (4, 3), CLASSES, call=first_axis),
    "multilabel margin": loss(lambda nn: nn.MultiLabelMarginLoss(), (4, 3), MANY),
    "multilabel margin each": loss(lambda nn: nn.MultiLabelMarginLoss(reduction="none"), (4, 3), MANY),
    "multilabel margin single": loss(lambda nn: nn.MultiLabelMarginLoss(), (4, 3), MANY, call=first_axis),
    "triplet distance": loss(
        lambda nn: nn.TripletMarginWithDistanceLoss(distance_function=cubes, margin=2.0, swap=True, reduction="sum"),
        (4, 3), (4, 3), (4, 3),
    ),
    "triplet distance, default": loss(lambda nn: nn.TripletMarginWithDistanceLoss(), (4, 3), (4, 3), (4, 3)),
    "adaptive softmax": loss(
        lambda nn: nn.AdaptiveLogSoftmaxWithLoss(6, 9, [2, 5], div_value=2.0, head_bias=True),
        (5, 6), np.array([0, 8, 3, 1, 4]),
    ),
    "adaptive softmax, all classes": loss(
        lambda nn: nn.AdaptiveLogSoftmaxWithLoss(6, 9, [3]), (5, 6), call=lambda net, x: net.log_prob(x)
    ),
    "ctc": loss(lambda nn: nn.CTCLoss(), (7, 3, 5), LABELS, call=ctc((7, 6, 5))),
    "ctc each": loss(lambda nn: nn.CTCLoss(blank=4, reduction="none"), (7, 3, 5), LABELS, call=ctc((7, 4, 3))),
    "ctc flat": loss(lambda nn: nn.CTCLoss(reduction="sum"), (7, 3, 5), FLAT, call=ctc((7, 7, 4))),
    "ctc impossible": loss(lambda nn: nn.CTCLoss(zero_infinity=True), (7, 3, 5), LABELS, call=ctc((7, 6, 2))),
    "ctc empty target": loss(lambda nn: nn.CTCLoss(), (7, 3, 5), LABELS, call=ctc((7, 6, 2), (4, 0, 1))),
    "ctc one step": loss(lambda nn: nn.CTCLoss(), (1, 3, 5), LABELS[:, :1], call=ctc((1, 1, 1), (1, 0, 1))),
    "ctc single": loss(
        lambda nn: nn.CTCLoss(), (7, 5), LABELS[0], call=lambda net, x, t: net(logs(x), t, (6,), (4,))
    ),
}  # fmt: skip
