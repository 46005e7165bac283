"""Normalisation layers. Running statistics are buffers, which training changes."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle.base import arguments, dtypes
from treadle.base.errors import UserError
from treadle.frontend.tensor import Tensor
from treadle.nn import functional as F
from treadle.nn.cell import Cell, Parameter


def _filled(value: float, shape: tuple[int, ...], dtype: Any) -> Parameter:
    sizes = [arguments.count(n, "a number of features") for n in shape]
    return Parameter(np.full(sizes, value, dtypes.of(dtypes.float32 if dtype is None else dtype).np))


class ChannelNorm(Cell):
    """Base of the norms of channels: weight and bias float[num_features], running statistics as buffers.

    momentum None: the running statistics are plain means over all batches so far, counted by a buffer.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        self.num_features, self.eps, self.momentum = arguments.count(num_features, "num_features"), eps, momentum
        self.weight = _filled(1, (num_features,), dtype) if affine else None
        self.bias = _filled(0, (num_features,), dtype) if affine and bias else None
        self.running_mean = Tensor(np.zeros(num_features, np.float32)) if track_running_stats else None
        self.running_var = Tensor(np.ones(num_features, np.float32)) if track_running_stats else None
        if track_running_stats and momentum is None:
            self.num_batches_tracked = Tensor(np.int64(0))

    def _momentum(self, training: bool) -> Any:
        """The share of the batch's statistics; counts the batch where it is one over their number."""
        if self.momentum is not None or self.running_mean is None or not training:
            return self.momentum or 0.0
        self.num_batches_tracked.assign(self.num_batches_tracked + 1)
        return 1 / self.num_batches_tracked.astype(np.float32)

    def extra_repr(self) -> str:
        text = f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.weight is not None}"
        return f"{text}, track_running_stats={self.running_mean is not None}"


class _BatchNorm(ChannelNorm):
    """(x - mean) / sqrt(var + eps) * weight + bias for each channel.

    In training the statistics are those of the batch, and running_mean and running_var become
    (1 - momentum) * old + momentum * new (variance: n - 1 in the divisor); in evaluation those are used.
    Source: Ioffe & Szegedy 2015, arXiv:1502.03167. Raises E0553 for another number of axes or channels.
    """

    ranks: tuple[int, ...] = ()

    def forward(self, x: Any) -> Any:
        if len(x.shape) not in self.ranks or x.shape[1] != self.num_features:
            why = f"{type(self).__name__}({self.num_features}) of a tensor of shape {list(x.shape)}"
            raise UserError("E0553", why, fix=f"shape it as [N, {self.num_features}, ...] with {self.ranks} axes")
        training = self.training or self.running_mean is None
        mean, var = self.running_mean, self.running_var
        return F.batch_norm(x, mean, var, self.weight, self.bias, training, self._momentum(training), self.eps)


class BatchNorm1d(_BatchNorm):
    __doc__ = f"float[N, C] or float[N, C, L]. {_BatchNorm.__doc__}"
    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    __doc__ = f"float[N, C, H, W]. {_BatchNorm.__doc__}"
    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    __doc__ = f"float[N, C, D, H, W]. {_BatchNorm.__doc__}"
    ranks = (5,)


class LayerNorm(Cell):
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axes, of sizes `normalized_shape`.

    Source: Ba et al. 2016, arXiv:1607.06450.
    """

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape, self.eps = shape, eps
        self.weight = _filled(1, shape, dtype) if elementwise_affine else None
        self.bias = _filled(0, shape, dtype) if elementwise_affine and bias else None

    def forward(self, x: Any) -> Any:
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.weight is not None}"


class RMSNorm(Cell):
    """x / sqrt(mean(x**2) + eps) * weight over the last axes. eps None: machine epsilon.

    Source: Zhang & Sennrich 2019, arXiv:1910.07467.
    """

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float | None = None,
        elementwise_affine: bool = True,
        dtype: Any = None,
    ) -> None:
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape, self.eps = shape, eps
        self.weight = _filled(1, shape, dtype) if elementwise_affine else None

    def forward(self, x: Any) -> Any:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.weight is not None}"


class GroupNorm(Cell):
    """Mean and variance over each group of channels and all spatial axes. float[N, C, *s].

    Source: Wu & He 2018, arXiv:1803.08494.
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        num_groups, num_channels = (arguments.count(n, "groups or channels", 1) for n in (num_groups, num_channels))
        if num_channels % num_groups:
            raise UserError("E0545", f"{num_groups} groups of {num_channels} channels", fix="use groups that divide")
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.weight = _filled(1, (num_channels,), dtype) if affine else None
        self.bias = _filled(0, (num_channels,), dtype) if affine and bias else None

    def forward(self, x: Any) -> Any:
        return F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.weight is not None}"
