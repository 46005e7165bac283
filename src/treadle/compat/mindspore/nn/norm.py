"""Normalisation with MindSpore's names (gamma, beta, moving_mean, moving_variance) and its meaning of momentum."""

from __future__ import annotations

from typing import Any

from treadle.base import arguments, dtypes
from treadle.base.errors import UserError
from treadle.compat.mindspore.nn.cell import Cell, fixed, parameter
from treadle.compat.mindspore.nn.layers import only_nchw
from treadle.frontend import functions as fn
from treadle.nn import functional as F


class _BatchNorm(Cell):
    """(x - mean) / sqrt(var + eps) * gamma + beta for each channel.

    In training by the batch's mean and variance, and moving becomes momentum * moving + (1 - momentum) * batch
    (variance: n - 1 in the divisor); in evaluation by the moving ones. use_batch_statistics: True or False fixes which.
    Source: Ioffe & Szegedy 2015, arXiv:1502.03167. Raises E0553 for another number of axes or channels.
    """

    ranks: tuple[int, ...] = ()

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.9,
        affine: bool = True,
        gamma_init: Any = "ones",
        beta_init: Any = "zeros",
        moving_mean_init: Any = "zeros",
        moving_var_init: Any = "ones",
        use_batch_statistics: bool | None = None,
        data_format: str = "NCHW",
        dtype: Any = dtypes.float32,
    ) -> None:
        super().__init__()
        only_nchw(data_format)
        if not 0 <= momentum <= 1:
            raise UserError("E0590", f"momentum is {momentum}", fix="give a number from 0 to 1")
        num_features = arguments.count(num_features, "num_features")
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.use_batch_statistics = use_batch_statistics
        shape = (num_features,)
        self.moving_mean = fixed(moving_mean_init, shape, dtype)
        self.moving_variance = fixed(moving_var_init, shape, dtype)
        self.gamma = parameter(gamma_init, shape, dtype) if affine else fixed(gamma_init, shape, dtype)
        self.beta = parameter(beta_init, shape, dtype) if affine else fixed(beta_init, shape, dtype)

    def construct(self, x: Any) -> Any:
        if len(x.shape) not in self.ranks or x.shape[1] != self.num_features:
            why = f"{type(self).__name__}({self.num_features}) of a tensor of shape {list(x.shape)}"
            raise UserError("E0553", why, fix=f"shape it as [N, {self.num_features}, ...] with {self.ranks} axes")
        training = self.training if self.use_batch_statistics is None else self.use_batch_statistics
        moving = (self.moving_mean, self.moving_variance)
        return F.batch_norm(x, *moving, self.gamma, self.beta, training, 1 - self.momentum, self.eps)

    def extend_repr(self) -> str:
        return f"num_features={self.num_features}, eps={self.eps}, momentum={self.momentum}"


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
    """(x - mean) / sqrt(var + epsilon) * gamma + beta, mean and variance over the axes from begin_norm_axis on.

    normalized_shape: the sizes of the axes from begin_params_axis on, for which gamma and beta are. epsilon is 1e-7
    unless told. Source: Ba et al. 2016, arXiv:1607.06450.
    """

    def __init__(
        self,
        normalized_shape: Any,
        begin_norm_axis: int = -1,
        begin_params_axis: int = -1,
        gamma_init: Any = "ones",
        beta_init: Any = "zeros",
        epsilon: float = 1e-7,
        dtype: Any = dtypes.float32,
    ) -> None:
        super().__init__()
        if not isinstance(normalized_shape, tuple | list):
            raise UserError("E0544", f"normalized_shape is {normalized_shape!r}", fix="give a tuple: (size,)")
        self.normalized_shape, self.epsilon = tuple(normalized_shape), epsilon
        self.begin_norm_axis, self.begin_params_axis = begin_norm_axis, begin_params_axis
        self.gamma = parameter(gamma_init, self.normalized_shape, dtype)
        self.beta = parameter(beta_init, self.normalized_shape, dtype)

    def construct(self, x: Any) -> Any:
        first = self.begin_norm_axis % len(x.shape)
        if first == self.begin_params_axis % len(x.shape):
            return F.layer_norm(x, self.normalized_shape, self.gamma, self.beta, self.epsilon)
        return F.layer_norm(x, x.shape[first:], None, None, self.epsilon) * self.gamma + self.beta

    def extend_repr(self) -> str:
        return f"normalized_shape={self.normalized_shape}, epsilon={self.epsilon}"


class GroupNorm(Cell):
    """Layer normalisation over each group of channels. Source: Wu & He 2018, arXiv:1803.08494."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        gamma_init: Any = "ones",
        beta_init: Any = "zeros",
        dtype: Any = dtypes.float32,
    ) -> None:
        super().__init__()
        if num_groups < 1 or num_channels % num_groups:
            raise UserError("E0545", f"{num_channels} channels in {num_groups} groups", fix="use groups that divide")
        self.num_groups, self.eps = num_groups, eps
        make = parameter if affine else fixed
        self.gamma, self.beta = make(gamma_init, (num_channels,), dtype), make(beta_init, (num_channels,), dtype)

    def construct(self, x: Any) -> Any:
        return F.group_norm(x, self.num_groups, self.gamma, self.beta, self.eps)


class InstanceNorm2d(Cell):
    """Each channel of each sample by its own mean and variance, then gamma and beta. Source: arXiv:1607.08022."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        gamma_init: Any = "ones",
        beta_init: Any = "zeros",
        dtype: Any = dtypes.float32,
    ) -> None:
        super().__init__()
        self.num_features, self.eps = num_features, eps
        make = parameter if affine else fixed
        self.gamma, self.beta = make(gamma_init, (num_features,), dtype), make(beta_init, (num_features,), dtype)

    def construct(self, x: Any) -> Any:
        y = F.layer_norm(x, x.shape[2:], None, None, self.eps)
        return y * fn.reshape(self.gamma, (-1, 1, 1)) + fn.reshape(self.beta, (-1, 1, 1))


__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "InstanceNorm2d", "LayerNorm"]
