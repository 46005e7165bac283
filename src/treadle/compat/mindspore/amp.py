"""Mixed precision: casting networks to 16 bits, scaling of the loss. Tensors in, tensors out."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.compat.mindspore._tensor import Parameter, tag
from treadle.compat.mindspore.nn.norm import GroupNorm, InstanceNorm2d, LayerNorm, _BatchNorm
from treadle.compat.mindspore.nn.wrap import (
    DynamicLossScaleUpdateCell,
    TrainOneStepCell,
    TrainOneStepWithLossScaleCell,
    WithLossCell,
    all_finite,
)
from treadle.frontend import functions as fn

_NORMS = (_BatchNorm, LayerNorm, GroupNorm, InstanceNorm2d)


def auto_mixed_precision(network: Any, amp_level: str = "O0", dtype: Any = dtypes.float16) -> Any:
    """The network, which computes in float16 (or bfloat16) from now on: "O0" not, "O1" and "auto" in products only (as
    `td.amp.autocast`), "O2" but for norms, "O3" all.

    Parameters stay float32. Raises E0592 for another level.
    """
    if amp_level not in ("O0", "O1", "O2", "O3", "auto"):
        raise UserError("E0592", f"amp_level {amp_level!r} is not covered", fix="use 'O0', 'O1', 'O2', 'O3' or 'auto'")
    if amp_level in ("O1", "auto"):
        network._products = dtypes.of(dtype)
    elif amp_level != "O0":
        network.to_float(dtype)
    if amp_level == "O2":
        for _, cell in network.cells_and_names():
            if isinstance(cell, _NORMS):
                cell.to_float(dtypes.float32)
    return network


def build_train_network(
    network: Any,
    optimizer: Any,
    loss_fn: Any = None,
    level: str = "O0",
    boost_level: str = "O0",
    loss_scale_manager: Any = None,
    **options: Any,
) -> Any:
    """The cell of one training step; with a loss_scale_manager its loss is scaled."""
    if boost_level != "O0" or any(v is not None for v in options.values()):
        raise UserError("E0592", "build_train_network with these options is not covered", fix="leave them out")
    net = auto_mixed_precision(network, level)
    return train_step(net if loss_fn is None else WithLossCell(net, loss_fn), optimizer, loss_scale_manager).set_train()


def train_step(net: Any, optimizer: Any, manager: Any) -> Any:
    """The cell of one step of a network that gives its loss, scaled as the manager (or None) says."""
    if manager is None:
        return TrainOneStepCell(net, optimizer)
    update = manager.get_update_cell()
    if update is None:
        return TrainOneStepCell(net, optimizer, manager.get_loss_scale())
    return TrainOneStepWithLossScaleCell(net, optimizer, update)


class StaticLossScaler:
    """A scale that stays."""

    def __init__(self, scale_value: float) -> None:
        self.scale_value: Any = Parameter(np.float32(scale_value), "scale_value", requires_grad=False)

    def scale(self, inputs: Any) -> Any:
        """Tensors times the scale."""
        return self._each(inputs, lambda t: t * self.scale_value.astype(t.dtype))

    def unscale(self, inputs: Any) -> Any:
        """Tensors over the scale."""
        return self._each(inputs, lambda t: t / self.scale_value.astype(t.dtype))

    @staticmethod
    def _each(inputs: Any, function: Any) -> Any:
        if isinstance(inputs, tuple | list):
            return tag(tuple([function(t) for t in inputs]))
        return tag(function(inputs))

    def adjust(self, grads_finite: Any) -> Any:
        """Nothing to adjust."""
        return False


class DynamicLossScaler(StaticLossScaler):
    """A scale: divided by scale_factor when gradients are not finite, multiplied after scale_window good ones."""

    def __init__(self, scale_value: float, scale_factor: int, scale_window: int) -> None:
        super().__init__(scale_value)
        self.scale_factor, self.scale_window = float(scale_factor), scale_window
        self.counter = Parameter(np.int32(0), "counter", requires_grad=False)

    def adjust(self, grads_finite: Any) -> Any:
        """Change the scale after a step; True."""
        finite = fn.where(grads_finite, True, False)
        good = fn.where(finite, self.counter + 1, 0)
        grown = good >= self.scale_window
        low = fn.maximum(self.scale_value / self.scale_factor, 1.0)
        high = fn.where(grown, self.scale_value * self.scale_factor, self.scale_value)
        self.scale_value.assign(fn.where(finite, high, low))
        self.counter.assign(fn.where(grown, 0, good))
        return True


class FixedLossScaleManager:
    """Says `Model` to scale the loss by a number."""

    def __init__(self, loss_scale: float = 128.0, drop_overflow_update: bool = True) -> None:
        self._scale, self._drop = float(loss_scale), drop_overflow_update

    def get_loss_scale(self) -> float:
        """The scale."""
        return self._scale

    def get_update_cell(self) -> Any:
        """The cell that says how the scale goes on, None if steps are never dropped."""
        return DynamicLossScaleUpdateCell(self._scale, 1, 1) if self._drop else None


class DynamicLossScaleManager:
    """Says `Model` to scale the loss, less after gradients that are not finite, more after scale_window good steps."""

    def __init__(self, init_loss_scale: float = 2.0**24, scale_factor: int = 2, scale_window: int = 2000) -> None:
        self._values = (float(init_loss_scale), scale_factor, scale_window)

    def get_loss_scale(self) -> float:
        """The scale to begin with."""
        return self._values[0]

    def get_update_cell(self) -> Any:
        """The cell that says how the scale goes on."""
        return DynamicLossScaleUpdateCell(*self._values)


__all__ = [
    "DynamicLossScaleManager",
    "DynamicLossScaler",
    "FixedLossScaleManager",
    "StaticLossScaler",
    "all_finite",
    "auto_mixed_precision",
    "build_train_network",
]
