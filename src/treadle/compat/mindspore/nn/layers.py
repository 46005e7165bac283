"""Linear, convolution, pooling, embedding and the small layers, with MindSpore's arguments and initial values."""

from __future__ import annotations

import math
from typing import Any

from treadle.base import arguments, dtypes
from treadle.base.errors import UserError
from treadle.compat.mindspore._missing import not_covered
from treadle.compat.mindspore._tensor import Parameter
from treadle.compat.mindspore.common.initializer import HeUniform, Uniform, dense_bound, initializer
from treadle.compat.mindspore.nn.activation import get_activation
from treadle.compat.mindspore.nn.cell import Cell, parameter
from treadle.frontend import functions as fn
from treadle.frontend.lift import lift
from treadle.nn import functional as F
from treadle.nn.functional.window import per_axis
from treadle.ops.convolution import conv
from treadle.ops.pool import max_pool
from treadle.ops.pool_average import avg_pool

Pairs = tuple[tuple[int, int], ...]


class Dense(Cell):
    """x @ weight.T + bias, then the activation: float[..., in_channels] -> float[..., out_channels].

    weight: [out, in], HeUniform(sqrt(5)) unless told; bias: even in +-1 / sqrt(in_channels).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        weight_init: Any = None,
        bias_init: Any = None,
        has_bias: bool = True,
        activation: Any = None,
        dtype: Any = dtypes.float32,
    ) -> None:
        super().__init__()
        in_channels, out_channels = (arguments.count(n, "a number of channels") for n in (in_channels, out_channels))
        self.in_channels, self.out_channels, self.has_bias = in_channels, out_channels, has_bias
        rule = HeUniform(math.sqrt(5)) if weight_init is None else weight_init
        self.weight = parameter(rule, (out_channels, in_channels), dtype)
        start = Uniform(dense_bound(in_channels)) if bias_init is None else bias_init
        self.bias = parameter(start, (out_channels,), dtype) if has_bias else None
        self.activation = get_activation(activation) if isinstance(activation, str) else activation

    def construct(self, x: Any) -> Any:
        y = F.linear(x, self.as_type(self.weight, x), self.as_type(self.bias, x))
        return y if self.activation is None else self.activation(y)

    def extend_repr(self) -> str:
        return f"input_channels={self.in_channels}, output_channels={self.out_channels}, has_bias={self.has_bias}"


class Embedding(Cell):
    """Rows of `embedding_table` [vocab_size, embedding_size], normal with deviation 0.01 at first: int[...] indices."""

    def __init__(
        self,
        vocab_size: int,
        embedding_size: int,
        use_one_hot: bool = False,
        embedding_table: Any = "normal",
        dtype: Any = dtypes.float32,
        padding_idx: int | None = None,
    ) -> None:
        super().__init__()
        vocab_size, embedding_size = (arguments.count(n, "a size") for n in (vocab_size, embedding_size))
        self.vocab_size, self.embedding_size, self.padding_idx = vocab_size, embedding_size, padding_idx
        rows = initializer(embedding_table, (vocab_size, embedding_size), dtype)
        if padding_idx is not None:
            rows[padding_idx] = 0.0
        self.embedding_table = Parameter(rows)

    def construct(self, ids: Any) -> Any:
        return F.embedding(ids, self.embedding_table)

    def extend_repr(self) -> str:
        return f"vocab_size={self.vocab_size}, embedding_size={self.embedding_size}"


class Dropout(Cell):
    """In training each element is 0 with chance p, else divided by 1 - p. keep_prob (older): 1 - p, 0.5 unless told."""

    def __init__(self, keep_prob: float = 0.5, p: float | None = None, dtype: Any = dtypes.float32) -> None:
        super().__init__()
        self.p = 1.0 - keep_prob if p is None else p
        if not 0 <= self.p < 1:
            raise UserError("E0554", f"the chance p is {self.p!r}", fix="give a number from 0 up to, not with, 1")

    def construct(self, x: Any) -> Any:
        return F.dropout(x, self.p, self.training)

    def extend_repr(self) -> str:
        return f"p={self.p}"


class Flatten(Cell):
    """The axes from start_dim to end_dim as one axis; by default all but the first."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def construct(self, x: Any) -> Any:
        return fn.flatten(x, self.start_dim, self.end_dim)


class Identity(Cell):
    """x itself."""

    def construct(self, x: Any) -> Any:
        return x


def same_pads(sizes: Any, kernel: Any, stride: Any, dilation: Any) -> Pairs:
    """Padding with which ceil(size / stride) windows fit; the odd element at the end."""
    pairs = []
    for n, k, s, d in zip(sizes, kernel, stride, dilation, strict=True):
        total = max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
        pairs.append((total // 2, total - total // 2))
    return tuple(pairs)


def explicit_pads(padding: Any, rank: int) -> Pairs:
    """(low, high) per axis: of one int, of one int per axis, or of two ints per axis."""
    given = (padding,) * rank if isinstance(padding, int) else tuple(padding)
    if len(given) == 2 * rank:
        return tuple([(given[2 * i], given[2 * i + 1]) for i in range(rank)])
    return tuple([(n, n) for n in per_axis(given, rank, "padding")])


def check_pads(pad_mode: str, padding: Any, modes: tuple[str, ...] = ("same", "valid", "pad")) -> None:
    """Raise E0541 for an unknown pad_mode, or padding that the mode does not use."""
    if pad_mode not in modes:
        raise UserError("E0541", f"pad_mode is {pad_mode!r}", fix=f"use one of {', '.join(map(repr, modes))}")
    if pad_mode != "pad" and any((padding,) if isinstance(padding, int) else padding):
        raise UserError("E0541", f"padding={padding} with pad_mode={pad_mode!r}", fix="use pad_mode='pad'")


def window_pads(pad_mode: str, padding: Any, x: Any, kernel: Any, stride: Any, dilation: Any) -> Pairs:
    """The padding of a call."""
    rank = len(kernel)
    if pad_mode == "same":
        return same_pads(x.shape[2:], kernel, stride, dilation)
    return explicit_pads(padding if pad_mode == "pad" else 0, rank)


def only_nchw(data_format: str) -> None:
    """Raise E0592 for another order of the axes."""
    if data_format not in ("NCHW", "NCDHW", "NCL"):
        not_covered(f"data_format={data_format!r}", "transpose the data to [N, C, ...]")


class _Conv(Cell):
    """Cross-correlation of float[N, C, *s] with weight [O, C / group, *kernel], plus bias [O] if has_bias.

    pad_mode "same" (ceil(size / stride) outputs), "valid" or "pad" (as many as `padding` says, two ints per axis or
    one). Initial values as of `Dense`.
    """

    rank = 0

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        pad_mode: str = "same",
        padding: Any = 0,
        dilation: Any = 1,
        group: int = 1,
        has_bias: bool = False,
        weight_init: Any = None,
        bias_init: Any = None,
        data_format: str = "NCHW",
        dtype: Any = dtypes.float32,
    ) -> None:
        super().__init__()
        only_nchw(data_format)
        check_pads(pad_mode, padding)
        in_channels, out_channels = (arguments.count(n, "a number of channels") for n in (in_channels, out_channels))
        group = arguments.count(group, "group", 1)
        self.in_channels, self.out_channels, self.group, self.has_bias = in_channels, out_channels, group, has_bias
        if in_channels % group or out_channels % group:
            why = f"{in_channels} input and {out_channels} output channels in {group} groups"
            raise UserError("E0552", why, fix="use a group that divides both")
        self.kernel_size = per_axis(kernel_size, self.rank, "kernel_size")
        self.stride, self.dilation = per_axis(stride, self.rank, "stride"), per_axis(dilation, self.rank, "dilation")
        self.pad_mode, self.padding = pad_mode, padding
        shape = (out_channels, in_channels // group, *self.kernel_size)
        self.weight = parameter(HeUniform(math.sqrt(5)) if weight_init is None else weight_init, shape, dtype)
        start = Uniform(dense_bound(math.prod(shape[1:]))) if bias_init is None else bias_init
        self.bias = parameter(start, (out_channels,), dtype) if has_bias else None

    def construct(self, x: Any) -> Any:
        if len(x.shape) != self.rank + 2:
            raise UserError(
                "E0542", f"{type(self).__name__} of a tensor of shape {x.shape}", fix="shape it [N, C, ...]"
            )
        pairs = window_pads(self.pad_mode, self.padding, x, self.kernel_size, self.stride, self.dilation)
        weight = self.as_type(self.weight, x)
        y = conv(x, weight, stride=self.stride, padding=pairs, dilation=self.dilation, groups=self.group)
        if self.bias is None:
            return y
        return y + fn.reshape(self.as_type(self.bias, x), (-1, *[1] * self.rank))

    def extend_repr(self) -> str:
        sizes = f"input_channels={self.in_channels}, output_channels={self.out_channels}"
        text = f"{sizes}, kernel_size={self.kernel_size}, stride={self.stride}, pad_mode={self.pad_mode}"
        return f"{text}, padding={self.padding}, dilation={self.dilation}, group={self.group}, has_bias={self.has_bias}"


class Conv1d(_Conv):
    __doc__ = f"Over one axis. {_Conv.__doc__}"
    rank = 1


class Conv2d(_Conv):
    __doc__ = f"Over two axes. {_Conv.__doc__}"
    rank = 2


class Conv3d(_Conv):
    __doc__ = f"Over three axes. {_Conv.__doc__}"
    rank = 3


class Conv2dTranspose(Cell):
    """The gradient of Conv2d by its input: float[N, C, H, W] -> float[N, O, H', W']; weight [C, O / group, *kernel].

    pad_mode "same": stride times the size; "valid": what all windows cover; "pad": less `padding` on each side.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        pad_mode: str = "same",
        padding: Any = 0,
        output_padding: Any = 0,
        dilation: Any = 1,
        group: int = 1,
        has_bias: bool = False,
        weight_init: Any = None,
        bias_init: Any = None,
        dtype: Any = dtypes.float32,
    ) -> None:
        super().__init__()
        check_pads(pad_mode, padding)
        self.kernel_size, self.stride = per_axis(kernel_size, 2, "kernel_size"), per_axis(stride, 2, "stride")
        self.dilation, self.group = per_axis(dilation, 2, "dilation"), group
        self.pad_mode, self.padding, self.output_padding = pad_mode, padding, per_axis(output_padding, 2, "padding")
        shape = (in_channels, out_channels // group, *self.kernel_size)
        self.weight = parameter(HeUniform(math.sqrt(5)) if weight_init is None else weight_init, shape, dtype)
        start = Uniform(dense_bound(math.prod(shape[1:]))) if bias_init is None else bias_init
        self.bias = parameter(start, (out_channels,), dtype) if has_bias else None

    def construct(self, x: Any) -> Any:
        whole = [d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel_size, strict=True)]
        if self.pad_mode == "same":
            over = [max(w - s, 0) for w, s in zip(whole, self.stride, strict=True)]
            low, out = [t // 2 for t in over], [n * s for n, s in zip(x.shape[2:], self.stride, strict=True)]
        else:
            pairs = explicit_pads(self.padding if self.pad_mode == "pad" else 0, 2)
            low = [a for a, _ in pairs]
            full = [(n - 1) * s + w for n, s, w in zip(x.shape[2:], self.stride, whole, strict=True)]
            out = [f - a - b + o for f, (a, b), o in zip(full, pairs, self.output_padding, strict=True)]
        y = F.conv_transpose2d(x, self.weight, self.bias, self.stride, 0, 0, self.group, self.dilation)
        grow = [max(a + o - n, 0) for a, o, n in zip(low, out, y.shape[2:], strict=True)]
        y = fn.pad(y, ((0, 0), (0, 0), (0, grow[0]), (0, grow[1]))) if any(grow) else y
        return y[:, :, low[0] : low[0] + out[0], low[1] : low[1] + out[1]]


class _Pool(Cell):
    rank = 2
    largest = True

    def __init__(
        self,
        kernel_size: Any = 1,
        stride: Any = 1,
        pad_mode: str = "valid",
        padding: Any = 0,
        ceil_mode: bool = False,
        data_format: str = "NCHW",
        count_include_pad: bool = True,
        dilation: Any = 1,
        return_indices: bool = False,
        divisor_override: Any = None,
    ) -> None:
        super().__init__()
        only_nchw(data_format)
        check_pads(pad_mode.lower(), padding)
        if ceil_mode or return_indices or divisor_override is not None or dilation != 1:
            not_covered(
                "ceil_mode, return_indices, dilation or divisor_override", "use td.nn.MaxPool2d or td.nn.AvgPool2d"
            )
        self.kernel_size, self.stride = (per_axis(n, self.rank, "a window") for n in (kernel_size, stride))
        self.pad_mode, self.padding, self.count_include_pad = pad_mode.lower(), padding, count_include_pad

    def construct(self, x: Any) -> Any:
        x = lift(x)
        single = x.ndim == self.rank + 1
        if single:
            x = fn.expand_dims(x, 0)
        if x.ndim != self.rank + 2:
            raise UserError("E0542", f"{type(self).__name__} of a tensor {x.type}", fix="shape it [N, C, ...]")
        pairs = window_pads(self.pad_mode, self.padding, x, self.kernel_size, self.stride, (1,) * self.rank)
        if self.largest:
            y = max_pool(x, window=self.kernel_size, stride=self.stride, padding=pairs)
        else:
            counted = self.count_include_pad and self.pad_mode == "pad"
            y = avg_pool(x, window=self.kernel_size, stride=self.stride, padding=pairs, count_include_pad=counted)
        return fn.squeeze(y, 0) if single else y

    def extend_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, pad_mode={self.pad_mode.upper()}"


class MaxPool2d(_Pool):
    """The largest element of each window of the last two axes; stride 1 unless told. Padding never wins."""


class MaxPool1d(_Pool):
    """The largest element of each window of the last axis; stride 1 unless told."""

    rank = 1


class AvgPool2d(_Pool):
    """The mean of each window of the last two axes; with pad_mode "same" padding does not count."""

    largest = False


class AvgPool1d(AvgPool2d):
    """The mean of each window of the last axis."""

    rank = 1


class AdaptiveAvgPool2d(Cell):
    """The means of windows of the last two axes: [..., *output_size]; None keeps a size."""

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def construct(self, x: Any) -> Any:
        return F.adaptive_avg_pool2d(x, self.output_size)


class AdaptiveMaxPool2d(AdaptiveAvgPool2d):
    """The largest elements of windows of the last two axes: [..., *output_size]."""

    def construct(self, x: Any) -> Any:
        return F.adaptive_max_pool2d(x, self.output_size)


class Pad(Cell):
    """Padding ((low, high), ...) of every axis. mode "CONSTANT" (zeros), "REFLECT" or "SYMMETRIC"."""

    def __init__(self, paddings: Any, mode: str = "CONSTANT") -> None:
        super().__init__()
        if mode not in ("CONSTANT", "REFLECT", "SYMMETRIC"):
            raise UserError("E0541", f"mode is {mode!r}", fix="use 'CONSTANT', 'REFLECT' or 'SYMMETRIC'")
        self.paddings, self.mode = tuple([tuple(p) for p in paddings]), mode.lower()

    def construct(self, x: Any) -> Any:
        return fn.pad(x, self.paddings, 0, self.mode)


class ZeroPad2d(Cell):
    """Zeros around the last two axes: one int, or (left, right, top, bottom)."""

    def __init__(self, padding: Any) -> None:
        super().__init__()
        left, right, top, bottom = (padding,) * 4 if isinstance(padding, int) else padding
        self.pairs = ((top, bottom), (left, right))

    def construct(self, x: Any) -> Any:
        return fn.pad(x, ((0, 0),) * (len(x.shape) - 2) + self.pairs)


class Upsample(Cell):
    """The last axes resized to `size` or by `scale_factor`, as `td.nn.functional.interpolate`."""

    def __init__(
        self, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: Any = None
    ) -> None:
        super().__init__()
        self.size, self.scale_factor, self.mode, self.align_corners = size, scale_factor, mode, align_corners

    def construct(self, x: Any) -> Any:
        return F.interpolate(x, self.size, self.scale_factor, self.mode, self.align_corners)


__all__ = [
    "AdaptiveAvgPool2d",
    "AdaptiveMaxPool2d",
    "AvgPool1d",
    "AvgPool2d",
    "Conv1d",
    "Conv2d",
    "Conv2dTranspose",
    "Conv3d",
    "Dense",
    "Dropout",
    "Embedding",
    "Flatten",
    "Identity",
    "MaxPool1d",
    "MaxPool2d",
    "Pad",
    "Upsample",
    "ZeroPad2d",
]
