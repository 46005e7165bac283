"""Instance and local response normalisation, and dropout of channels and for SELU."""

from __future__ import annotations

from typing import Any

from treadle.base.errors import UserError
from treadle.frontend.lift import lift
from treadle.nn import functional as F
from treadle.nn.cell import Cell
from treadle.nn.linear import Dropout
from treadle.nn.norm import ChannelNorm


class _InstanceNorm(ChannelNorm):
    """Mean and variance over the spatial axes of each channel of each sample; the axis N may be missing.

    With track_running_stats, evaluation uses running means of them. Source: Ulyanov et al. 2016, arXiv:1607.08022.
    Raises E0553 for another number of axes or, with parameters or running statistics, of channels.
    """

    rank = 0

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, bias, dtype)

    def forward(self, x: Any) -> Any:
        x = lift(x)
        single = x.ndim == self.rank + 1
        if x.ndim not in (self.rank + 1, self.rank + 2) or x.shape[0 if single else 1] != self.num_features:
            why = f"{type(self).__name__}({self.num_features}) of a tensor of shape {list(x.shape)}"
            raise UserError("E0553", why, fix=f"shape it as [N, {self.num_features}, ...], or without N")
        batched = x.reshape((1, *x.shape)) if single else x
        own = self.training or self.running_mean is None
        mean, var = self.running_mean, self.running_var
        y = F.instance_norm(batched, mean, var, self.weight, self.bias, own, self._momentum(own), self.eps)
        return y.reshape(tuple(x.shape)) if single else y


class InstanceNorm1d(_InstanceNorm):
    __doc__ = f"float[N, C, L]. {_InstanceNorm.__doc__}"
    rank = 1


class InstanceNorm2d(_InstanceNorm):
    __doc__ = f"float[N, C, H, W]. {_InstanceNorm.__doc__}"
    rank = 2


class InstanceNorm3d(_InstanceNorm):
    __doc__ = f"float[N, C, D, H, W]. {_InstanceNorm.__doc__}"
    rank = 3


class LocalResponseNorm(Cell):
    """x / (k + alpha * mean of squares over `size` neighbouring channels) ** beta. float[N, C, ...]."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, x: Any) -> Any:
        return F.local_response_norm(x, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class _ChannelDropout(Dropout):
    def forward(self, x: Any) -> Any:
        return F.channel_dropout(x, self.p, self.training)


class Dropout1d(_ChannelDropout):
    """Whole channels of float[N, C, L] are 0 with chance p, else divided by 1 - p; x itself in evaluation."""


class Dropout2d(_ChannelDropout):
    """Whole channels of float[N, C, H, W] are 0 with chance p, else divided by 1 - p; x itself in evaluation."""


class Dropout3d(_ChannelDropout):
    """Whole channels of float[N, C, D, H, W] are 0 with chance p, else divided by 1 - p; x itself in evaluation."""


class FeatureAlphaDropout(Dropout):
    """`AlphaDropout` of whole channels of float[N, C, ...]; x itself in evaluation."""

    def forward(self, x: Any) -> Any:
        return F.feature_alpha_dropout(x, self.p, self.training)


class AlphaDropout(Dropout):
    """Dropout that keeps the mean 0 and variance 1 of SELU networks; x itself in evaluation."""

    def forward(self, x: Any) -> Any:
        return F.alpha_dropout(x, self.p, self.training)
