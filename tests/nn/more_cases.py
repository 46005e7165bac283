"""More layers and losses that are compared with PyTorch; `python tests/nn/make_more_golden.py` writes their numbers.

name: (layer or loss, inputs, call). An input is a shape, filled and differentiated, or an array, taken as it is.
"""

from typing import Any

import numpy as np
from tests.nn.cases import EVEN, fill

SIGNS = np.array([1, -1, 1, -1], np.float32)
MANY = np.array([[1, 0, 1], [0, 1, 1]], np.float32)
COUNTS = np.array([[0, 3, 1], [2, 5, 0]], np.float32)
LOGS = np.log(EVEN + np.float32(0.1))


def like_chances(net: Any, x: Any, target: Any) -> Any:
    return net(x * x * 0.4 + 0.05, target)  # within 0 and 1


def squared(net: Any, x: Any, target: Any, v: Any) -> Any:
    return net(x, target, v * v + 0.1)


def act(make: Any, *shape: int) -> Any:
    return make, (shape or (2, 5),), None


def loss(make: Any, *inputs: Any, call: Any = None) -> Any:
    return make, inputs, call


CASES: dict[str, tuple[Any, tuple[Any, ...], Any]] = {
    "mish": act(lambda nn: nn.Mish()),
    "hardtanh": act(lambda nn: nn.Hardtanh(-0.7, 0.9)),
    "selu": act(lambda nn: nn.SELU()),
    "celu": act(lambda nn: nn.CELU(0.6)),
    "softsign": act(lambda nn: nn.Softsign()),
    "tanhshrink": act(lambda nn: nn.Tanhshrink()),
    "softshrink": act(lambda nn: nn.Softshrink(0.4)),
    "hardshrink": act(lambda nn: nn.Hardshrink(0.4)),
    "threshold": act(lambda nn: nn.Threshold(0.2, -3.0)),
    "logsigmoid": act(lambda nn: nn.LogSigmoid()),
    "glu": act(lambda nn: nn.GLU(1), 2, 4, 3),
    "softmin": act(lambda nn: nn.Softmin(dim=1), 2, 4, 3),
    "prelu": act(lambda nn: nn.PReLU()),
    "prelu of channels": act(lambda nn: nn.PReLU(3), 2, 3, 4),
    "zero pad": act(lambda nn: nn.ZeroPad2d((1, 2, 0, 1)), 1, 2, 3, 4),
    "constant pad": act(lambda nn: nn.ConstantPad1d(2, 3.5), 2, 3, 4),
    "constant pad 3d": act(lambda nn: nn.ConstantPad3d(1, 0.5), 1, 2, 2, 3, 2),
    "reflection pad": act(lambda nn: nn.ReflectionPad2d((2, 1, 1, 0)), 1, 2, 3, 4),
    "reflection pad 1d": act(lambda nn: nn.ReflectionPad1d(2), 2, 4),
    "replication pad": act(lambda nn: nn.ReplicationPad3d(1), 1, 2, 2, 3, 2),
    "circular pad": act(lambda nn: nn.CircularPad2d((1, 2, 2, 0)), 1, 2, 3, 4),
    "adaptive average 1d": act(lambda nn: nn.AdaptiveAvgPool1d(4), 2, 3, 7),
    "adaptive average 2d": act(lambda nn: nn.AdaptiveAvgPool2d((3, 4)), 2, 3, 5, 7),
    "adaptive average 2d, larger": act(lambda nn: nn.AdaptiveAvgPool2d((None, 5)), 3, 2, 3),
    "adaptive average 3d": act(lambda nn: nn.AdaptiveAvgPool3d((2, 2, 3)), 1, 2, 4, 3, 5),
    "adaptive max 1d": act(lambda nn: nn.AdaptiveMaxPool1d(3), 2, 3, 6),
    "adaptive max 2d": act(lambda nn: nn.AdaptiveMaxPool2d((3, 2)), 2, 3, 5, 7),
    "adaptive max 3d": act(lambda nn: nn.AdaptiveMaxPool3d(2), 1, 2, 4, 3, 5),
    "max pool 3d": act(lambda nn: nn.MaxPool3d(2, stride=1, padding=1), 1, 2, 3, 2, 3),
    "average pool 3d": act(lambda nn: nn.AvgPool3d((2, 1, 2)), 1, 2, 4, 3, 4),
    "unflatten": act(lambda nn: nn.Unflatten(1, (2, -1)), 2, 6, 3),
    "pixel shuffle": act(lambda nn: nn.PixelShuffle(2), 2, 8, 2, 3),
    "pixel unshuffle": act(lambda nn: nn.PixelUnshuffle(2), 1, 2, 4, 6),
    "cosine similarity": loss(lambda nn: nn.CosineSimilarity(dim=1), (2, 4, 3), (2, 4, 3)),
    "distance": loss(lambda nn: nn.PairwiseDistance(keepdim=True), (3, 4), (3, 4)),
    "distance of p": loss(lambda nn: nn.PairwiseDistance(p=3.0), (3, 4), (3, 4)),
    "bilinear": loss(lambda nn: nn.Bilinear(3, 4, 2), (2, 5, 3), (2, 5, 4)),
    "instance norm 1d": act(lambda nn: nn.InstanceNorm1d(3), 2, 3, 5),
    "instance norm 2d": act(lambda nn: nn.InstanceNorm2d(3, affine=True, track_running_stats=True), 2, 3, 2, 3),
    "instance norm 2d eval": (
        lambda nn: nn.InstanceNorm2d(3, affine=True, track_running_stats=True).eval(), ((2, 3, 2, 3),), None
    ),
    "instance norm without batch": act(lambda nn: nn.InstanceNorm3d(2), 2, 2, 3, 2),
    "local response norm": act(lambda nn: nn.LocalResponseNorm(3, alpha=0.5, beta=0.6, k=1.5), 2, 5, 3),
    "local response norm, even": act(lambda nn: nn.LocalResponseNorm(2, alpha=0.5), 2, 5, 2, 2),
    "dropout off": (lambda nn: nn.Dropout2d(0.5).eval(), ((2, 3, 2, 2),), None),
    "alpha dropout off": (lambda nn: nn.AlphaDropout(0.5).eval(), ((2, 3),), None),
    "rnn": loss(lambda nn: nn.RNN(3, 2, num_layers=2, bidirectional=True), (4, 2, 3)),
    "rnn relu": loss(lambda nn: nn.RNN(3, 2, nonlinearity="relu", batch_first=True, bias=False), (2, 4, 3)),
    "rnn cell": loss(lambda nn: nn.RNNCell(3, 2, nonlinearity="relu"), (4, 3), (4, 2)),
    "gru cell": loss(lambda nn: nn.GRUCell(3, 2), (4, 3), (4, 2)),
    "gru cell without batch": loss(lambda nn: nn.GRUCell(3, 2, bias=False), (3,)),
    "decoder layer": loss(
        lambda nn: nn.TransformerDecoderLayer(4, 2, 6, dropout=0.0, batch_first=True), (2, 3, 4), (2, 5, 4)
    ),
    "decoder layer, norm first": loss(
        lambda nn: nn.TransformerDecoderLayer(4, 2, 6, dropout=0.0, activation="gelu", norm_first=True),
        (3, 2, 4), (5, 2, 4),
    ),
    "encoder": loss(
        lambda nn: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True), 2, norm=nn.LayerNorm(4)
        ),
        (2, 3, 4),
    ),
    "transformer": loss(
        lambda nn: nn.Transformer(4, 2, 1, 2, 6, dropout=0.0, batch_first=True), (2, 3, 4), (2, 5, 4)
    ),
    "smooth l1": loss(lambda nn: nn.SmoothL1Loss(beta=0.6), (2, 3), fill((2, 3), 8.0)),
    "bce": loss(lambda nn: nn.BCELoss(), (5, 3), EVEN, call=like_chances),
    "kl": loss(lambda nn: nn.KLDivLoss(reduction="batchmean"), (5, 3), EVEN),
    "kl of logs": loss(lambda nn: nn.KLDivLoss(reduction="mean", log_target=True), (5, 3), LOGS),
    "soft margin": loss(lambda nn: nn.SoftMarginLoss(), (4,), SIGNS),
    "multilabel": loss(lambda nn: nn.MultiLabelSoftMarginLoss(reduction="none"), (2, 3), MANY),
    "hinge": loss(lambda nn: nn.HingeEmbeddingLoss(margin=0.8), (4,), SIGNS),
    "ranking": loss(lambda nn: nn.MarginRankingLoss(margin=0.3), (4,), (4,), SIGNS),
    "cosine": loss(lambda nn: nn.CosineEmbeddingLoss(margin=-0.5, reduction="sum"), (4, 3), (4, 3), SIGNS),
    "triplet": loss(lambda nn: nn.TripletMarginLoss(), (4, 3), (4, 3), (4, 3)),
    "triplet swap": loss(lambda nn: nn.TripletMarginLoss(margin=2.0, p=3, swap=True), (4, 3), (4, 3), (4, 3)),
    "poisson": loss(lambda nn: nn.PoissonNLLLoss(), (2, 3), COUNTS),
    "poisson full": loss(lambda nn: nn.PoissonNLLLoss(log_input=False, full=True), (2, 3), COUNTS, call=like_chances),
    "gaussian": loss(lambda nn: nn.GaussianNLLLoss(full=True), (2, 3), fill((2, 3), 8.0), (2, 3), call=squared),
    "gaussian shared": loss(lambda nn: nn.GaussianNLLLoss(), (2, 3), fill((2, 3), 8.0), (2, 1), call=squared),
}  # fmt: skip
