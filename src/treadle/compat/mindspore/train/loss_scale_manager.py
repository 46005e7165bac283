"""`mindspore.train.loss_scale_manager`."""

from treadle.compat.mindspore.amp import DynamicLossScaleManager, FixedLossScaleManager

__all__ = ["DynamicLossScaleManager", "FixedLossScaleManager"]
