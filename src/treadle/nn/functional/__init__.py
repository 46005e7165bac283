"""The layers as functions of tensors, with PyTorch's names and arguments."""

from treadle.frontend.functions import log_softmax, one_hot, softmax
from treadle.frontend.shaping import flatten
from treadle.nn.functional.activation import (
    elu,
    gelu,
    hardsigmoid,
    hardswish,
    leaky_relu,
    logsigmoid,
    relu,
    relu6,
    sigmoid,
    silu,
    softplus,
    tanh,
)
from treadle.nn.functional.attention import scaled_dot_product_attention
from treadle.nn.functional.basic import dropout, embedding, linear
from treadle.nn.functional.loss import (
    binary_cross_entropy_with_logits,
    cross_entropy,
    huber_loss,
    l1_loss,
    mse_loss,
    nll_loss,
)
from treadle.nn.functional.norm import batch_norm, group_norm, layer_norm, rms_norm
from treadle.nn.functional.window import (
    adaptive_avg_pool2d,
    avg_pool1d,
    avg_pool2d,
    conv1d,
    conv2d,
    conv3d,
    max_pool1d,
    max_pool2d,
)

__all__ = [
    "adaptive_avg_pool2d",
    "avg_pool1d",
    "avg_pool2d",
    "batch_norm",
    "binary_cross_entropy_with_logits",
    "conv1d",
    "conv2d",
    "conv3d",
    "cross_entropy",
    "dropout",
    "elu",
    "embedding",
    "flatten",
    "gelu",
    "group_norm",
    "hardsigmoid",
    "hardswish",
    "huber_loss",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "linear",
    "log_softmax",
    "logsigmoid",
    "max_pool1d",
    "max_pool2d",
    "mse_loss",
    "nll_loss",
    "one_hot",
    "relu",
    "relu6",
    "rms_norm",
    "scaled_dot_product_attention",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "tanh",
]
