"""Activations, losses, layers, random numbers and clipping as functions, as `mindspore.ops` has them."""

from __future__ import annotations

from typing import Any

from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.compat.mindspore._tensor import tag, tagged
from treadle.compat.mindspore.nn import layers
from treadle.compat.mindspore.nn import loss as losses
from treadle.frontend import create
from treadle.frontend import functions as fn
from treadle.frontend import random as draws
from treadle.frontend.lift import lift
from treadle.nn import functional as F
from treadle.nn.functional.window import per_axis
from treadle.ops.convolution import conv

relu, relu6, sigmoid, tanh = tagged(fn.relu), tagged(F.relu6), tagged(fn.sigmoid), tagged(fn.tanh)
silu, mish, hardswish, hardsigmoid = tagged(F.silu), tagged(F.mish), tagged(F.hardswish), tagged(F.hardsigmoid)
logsigmoid, softsign, softplus = tagged(F.logsigmoid), tagged(F.softsign), tagged(F.softplus)
gelu, elu, selu, glu = tagged(F.gelu), tagged(F.elu), tagged(F.selu), tagged(F.glu)


def leaky_relu(input: Any, alpha: float = 0.2) -> Any:
    """input where positive, else alpha * input."""
    return tag(F.leaky_relu(input, alpha))


def softmax(input: Any, axis: int = -1, *, dtype: Any = None) -> Any:
    """exp(input) over its sum along an axis."""
    return tag(fn.softmax(input if dtype is None else lift(input).astype(dtype), axis))


def log_softmax(logits: Any, axis: int = -1) -> Any:
    """The logarithm of softmax along an axis."""
    return tag(fn.log_softmax(logits, axis))


# ------------------------------------------------------------------------------------------------------------- losses
def cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """-log(softmax(input)) of int labels, or of probabilities of the input's shape."""
    return losses.CrossEntropyLoss(weight, ignore_index, reduction, label_smoothing)(input, target)


def nll_loss(inputs: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean") -> Any:
    """-inputs of the label."""
    return tag(F.nll_loss(inputs, target, weight, ignore_index, reduction))


def mse_loss(input: Any, target: Any, reduction: str = "mean") -> Any:
    """(input - target) ** 2."""
    return losses.MSELoss(reduction).get_loss(tag(fn.square(lift(input) - target)))


def l1_loss(input: Any, target: Any, reduction: str = "mean") -> Any:
    """|input - target|."""
    return tag(losses.L1Loss(reduction).get_loss(fn.abs(lift(input) - target)))


def smooth_l1_loss(input: Any, target: Any, beta: float = 1.0, reduction: str = "none") -> Any:
    """Squares below beta, distances above."""
    return tag(F.smooth_l1_loss(input, target, reduction, beta))


def binary_cross_entropy(logits: Any, labels: Any, weight: Any = None, reduction: str = "mean") -> Any:
    """-(y * log(x) + (1 - y) * log(1 - x)) of probabilities."""
    return tag(F.binary_cross_entropy(logits, labels, weight, reduction))


def binary_cross_entropy_with_logits(
    logits: Any, label: Any, weight: Any = None, pos_weight: Any = None, reduction: str = "mean"
) -> Any:
    """As `binary_cross_entropy`, of logits."""
    return tag(F.binary_cross_entropy_with_logits(logits, label, weight, reduction, pos_weight))


def kl_div(logits: Any, labels: Any, reduction: str = "mean") -> Any:
    """labels * (log(labels) - logits)."""
    return tag(F.kl_div(logits, labels, reduction))


def softmax_cross_entropy_with_logits(logits: Any, labels: Any) -> Any:
    """(the loss of each row against one-hot labels, its gradient by the logits)."""
    logits, labels = lift(logits), lift(labels)
    loss = -fn.sum(labels * fn.log_softmax(logits, -1), -1)
    return tag((loss, fn.softmax(logits, -1) - labels))


def sparse_softmax_cross_entropy(logits: Any, labels: Any, is_grad: bool = False) -> Any:
    """The mean loss against int labels; is_grad: its gradient by the logits."""
    logits = lift(logits)
    if is_grad:
        hot = fn.one_hot(labels, logits.shape[-1], logits.dtype)
        return tag((fn.softmax(logits, -1) - hot) / logits.shape[0])
    return tag(F.cross_entropy(logits, labels, ignore_index=None))


# ------------------------------------------------------------------------------------------------------------- layers
def conv2d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    pad_mode: str = "valid",
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """Cross-correlation of float[N, C, H, W] with float[O, C / groups, KH, KW]; pad_mode as of `nn.Conv2d`."""
    layers.check_pads(pad_mode, padding)
    x, w = lift(input), lift(weight)
    steps, gaps = per_axis(stride, 2, "stride"), per_axis(dilation, 2, "dilation")
    pairs = layers.window_pads(pad_mode, padding, x, w.shape[2:], steps, gaps)
    y = conv(x, w, stride=steps, padding=pairs, dilation=gaps, groups=groups)
    return tag(y if bias is None else y + fn.reshape(bias, (-1, 1, 1)))


def max_pool2d(x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0) -> Any:
    """The largest element of each window; stride: the window's size unless told."""
    return tag(F.max_pool2d(x, kernel_size, stride, padding))


def avg_pool2d(input_x: Any, kernel_size: Any = 1, stride: Any = 1, padding: Any = 0) -> Any:
    """The mean of each window; padding counts as zeros."""
    return tag(F.avg_pool2d(input_x, kernel_size, stride, padding))


adaptive_avg_pool2d = tagged(F.adaptive_avg_pool2d)


def layer_norm(input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """Layer normalisation over the last axes."""
    return tag(F.layer_norm(input, tuple(normalized_shape), weight, bias, eps))


def batch_norm(
    input_x: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any,
    bias: Any,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Batch normalisation; running becomes (1 - momentum) * running + momentum * batch."""
    return tag(F.batch_norm(input_x, running_mean, running_var, weight, bias, training, momentum, eps))


def l2_normalize(x: Any, axis: Any = 0, epsilon: float = 1e-4) -> Any:
    """x over the root of its sum of squares along an axis, or of epsilon where that is more."""
    x = lift(x)
    return tag(x * fn.rsqrt(fn.maximum(fn.sum(fn.square(x), axis, True), epsilon)))


# ------------------------------------------------------------------------------------------------------ random numbers
def dropout(input: Any, p: float = 0.5, training: bool = True, seed: int | None = None) -> Any:
    """Each element 0 with chance p, else divided by 1 - p."""
    return tag(F.dropout(input, p, training))


def _generator(seed: Any) -> Any:
    return None if seed is None else create.Generator(seed)


def normal(shape: Any, mean: Any, stddev: Any, seed: int | None = None) -> Any:
    """Normal numbers; of `set_seed`'s stream, or of a seed's own."""
    return tag(create.normal(mean, stddev, tuple(shape), generator=_generator(seed)))


def uniform(shape: Any, minval: Any, maxval: Any, seed: int | None = None, dtype: Any = dtypes.float32) -> Any:
    """Numbers even from minval up to maxval."""
    low, high = (n.item() if hasattr(n, "item") and n.ndim == 0 else n for n in (minval, maxval))
    if dtypes.of(dtype).is_integer:
        return tag(create.randint(int(low), int(high), tuple(shape), dtype, generator=_generator(seed)))
    return tag(create.uniform(low, high, tuple(shape), dtype, generator=_generator(seed)))


def standard_normal(shape: Any, seed: int | None = None) -> Any:
    """Standard normal numbers."""
    return tag(create.normal(0.0, 1.0, tuple(shape), generator=_generator(seed)))


def rand(*size: Any, dtype: Any = None, seed: int | None = None) -> Any:
    """Numbers even from 0 up to 1."""
    return tag(create.rand(*size, dtype=dtype or dtypes.float32, generator=_generator(seed)))


def randn(*size: Any, dtype: Any = None, seed: int | None = None) -> Any:
    """Standard normal numbers."""
    return tag(create.randn(*size, dtype=dtype or dtypes.float32, generator=_generator(seed)))


def randint(low: int, high: int, size: Any, seed: int | None = None, *, dtype: Any = None) -> Any:
    """Integers from low up to, not with, high."""
    return tag(create.randint(low, high, tuple(size), dtype or dtypes.int64, generator=_generator(seed)))


def randperm(n: int, seed: int | None = None, offset: int = 0, dtype: Any = dtypes.int64) -> Any:
    """0 to n - 1 in random order."""
    return tag(create.permutation(n, generator=_generator(seed)).astype(dtype))


def bernoulli(input: Any, p: Any = 0.5, seed: int | None = None) -> Any:
    """1 with chance p, else 0, in the shape and type of input."""
    x = lift(input)
    return tag(create.bernoulli(p, tuple(x.shape), x.dtype, generator=_generator(seed)))


def multinomial(input: Any, num_samples: int, replacement: bool = True, seed: int | None = None) -> Any:
    """Indices drawn with chances proportional to input, int32."""
    return tag(draws.multinomial(input, num_samples, replacement, _generator(seed)).astype(dtypes.int32))


# ------------------------------------------------------------------------------------------------------------ clipping
def _norm_of(tensors: Any) -> Any:
    total: Any = 0.0
    for t in tensors:
        total = total + fn.sum(fn.square(t))
    return fn.sqrt(total)


def clip_by_global_norm(x: Any, clip_norm: float = 1.0, use_norm: Any = None) -> Any:
    """Tensors times clip_norm / max(norm of all, clip_norm); use_norm takes the norm's place. Raises E0536."""
    if clip_norm <= 0:
        raise UserError("E0536", f"clip_norm is {clip_norm}", fix="give a number above 0")
    norm = _norm_of(x) if use_norm is None else use_norm
    scale = clip_norm / fn.maximum(norm, float(clip_norm))
    return tag(tuple([t * scale.astype(t.dtype) for t in x]))


def clip_by_norm(x: Any, clip_norm: Any, axis: Any = None) -> Any:
    """x times clip_norm / max(its norm over axes, clip_norm)."""
    x = lift(x)
    size = fn.sqrt(fn.sum(fn.square(x), axis, True))
    return tag(fn.reshape(x * (clip_norm / fn.maximum(size, clip_norm)), x.shape))


__all__ = [
    "adaptive_avg_pool2d", "avg_pool2d", "batch_norm", "bernoulli", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "clip_by_global_norm", "clip_by_norm", "conv2d", "cross_entropy", "dropout",
    "elu", "gelu", "glu", "hardsigmoid", "hardswish", "kl_div", "l1_loss", "l2_normalize", "layer_norm", "leaky_relu",
    "log_softmax", "logsigmoid", "max_pool2d", "mish", "mse_loss", "multinomial", "nll_loss", "normal", "rand",
    "randint", "randn", "randperm", "relu", "relu6", "selu", "sigmoid", "silu", "smooth_l1_loss", "softmax",
    "softmax_cross_entropy_with_logits", "softplus", "softsign", "sparse_softmax_cross_entropy", "standard_normal",
    "tanh", "uniform",
]  # fmt: skip
