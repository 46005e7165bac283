"""Layers that take their number of input features or channels from the first input that they see.

Each is made with its parent's arguments but for the first, has no parameters until it is called, and is then of its
parent's class. So call the model once, in eager mode, before an optimiser takes its parameters.
"""

from __future__ import annotations

import inspect
from typing import Any

from treadle.base.errors import UserError
from treadle.frontend import trace as tracing
from treadle.frontend.lift import lift
from treadle.frontend.trace import clock
from treadle.nn.cell import Cell
from treadle.nn.conv import Conv1d, Conv2d, Conv3d
from treadle.nn.conv_transposed import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from treadle.nn.linear import Linear
from treadle.nn.norm import BatchNorm1d, BatchNorm2d, BatchNorm3d
from treadle.nn.norm_more import InstanceNorm1d, InstanceNorm2d, InstanceNorm3d


class _Lazy(Cell):
    """`whole`: the class that it becomes. `axis`: where the input has what that class's first argument counts.

    Raises TypeError for wrong arguments, E0561 when the first input comes inside a compiled function, E0553 when it has
    no such axis.
    """

    whole: Any
    axis = 1

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        inspect.signature(self.whole.__init__).bind(self, 1, *args, **kwargs)
        self._args, self._kwargs = args, kwargs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = type(self).__name__
        if tracing.current() is not None:
            why = f"{name} sees its first input inside a compiled function"
            raise UserError("E0561", why, fix="call the model once in eager mode before")
        x = lift(args[0] if args else next(iter(kwargs.values())))
        if not -x.ndim <= self.axis < x.ndim:
            why = f"{name} of a tensor {x.type}"
            raise UserError("E0553", why, fix=f"give it the axis {self.axis}, whose size it takes")
        whole = self.whole
        made = whole(x.shape[self.axis], *self._args, **self._kwargs)
        del self._args, self._kwargs
        object.__setattr__(self, "__class__", whole)
        self.__dict__.update(made.__dict__)
        clock.tick()
        return self(*args, **kwargs)

    def extra_repr(self) -> str:
        named = [f"{name}={value!r}" for name, value in self._kwargs.items()]
        return ", ".join([*map(repr, self._args), *named])


class LazyLinear(_Lazy, Linear):
    """Linear(in_features, ...) with in_features from the first input's last axis."""

    whole, axis = Linear, -1


class LazyConv1d(_Lazy, Conv1d):
    """Conv1d(in_channels, ...) with in_channels from the first input, [N, C, L] or [C, L]."""

    whole, axis = Conv1d, -2


class LazyConv2d(_Lazy, Conv2d):
    """Conv2d(in_channels, ...) with in_channels from the first input, [N, C, H, W] or [C, H, W]."""

    whole, axis = Conv2d, -3


class LazyConv3d(_Lazy, Conv3d):
    """Conv3d(in_channels, ...) with in_channels from the first input, [N, C, D, H, W] or [C, D, H, W]."""

    whole, axis = Conv3d, -4


class LazyConvTranspose1d(_Lazy, ConvTranspose1d):
    """ConvTranspose1d(in_channels, ...) with in_channels from the first input, [N, C, L] or [C, L]."""

    whole, axis = ConvTranspose1d, -2


class LazyConvTranspose2d(_Lazy, ConvTranspose2d):
    """ConvTranspose2d(in_channels, ...) with in_channels from the first input, [N, C, H, W] or [C, H, W]."""

    whole, axis = ConvTranspose2d, -3


class LazyConvTranspose3d(_Lazy, ConvTranspose3d):
    """ConvTranspose3d(in_channels, ...) with in_channels from the first input, [N, C, D, H, W] or [C, D, H, W]."""

    whole, axis = ConvTranspose3d, -4


class LazyBatchNorm1d(_Lazy, BatchNorm1d):
    """BatchNorm1d(num_features, ...) with num_features from the first input, [N, C] or [N, C, L]."""

    whole = BatchNorm1d


class LazyBatchNorm2d(_Lazy, BatchNorm2d):
    """BatchNorm2d(num_features, ...) with num_features from the first input, [N, C, H, W]."""

    whole = BatchNorm2d


class LazyBatchNorm3d(_Lazy, BatchNorm3d):
    """BatchNorm3d(num_features, ...) with num_features from the first input, [N, C, D, H, W]."""

    whole = BatchNorm3d


class LazyInstanceNorm1d(_Lazy, InstanceNorm1d):
    """InstanceNorm1d(num_features, ...) with num_features from the first input, [N, C, L] or [C, L]."""

    whole, axis = InstanceNorm1d, -2


class LazyInstanceNorm2d(_Lazy, InstanceNorm2d):
    """InstanceNorm2d(num_features, ...) with num_features from the first input, [N, C, H, W] or [C, H, W]."""

    whole, axis = InstanceNorm2d, -3


class LazyInstanceNorm3d(_Lazy, InstanceNorm3d):
    """InstanceNorm3d(num_features, ...) with num_features from the first input, [N, C, D, H, W] or [C, D, H, W]."""

    whole, axis = InstanceNorm3d, -4
