"""`Model`, callbacks, metrics and checkpoints under `mindspore.train`'s names."""

# ruff: noqa: F403 (each part lists its names)
from typing import TYPE_CHECKING

from treadle.compat.mindspore import amp
from treadle.compat.mindspore._missing import missing as _missing
from treadle.compat.mindspore.nn import metrics as _metrics
from treadle.compat.mindspore.nn.metrics import *
from treadle.compat.mindspore.train import callback, serialization
from treadle.compat.mindspore.train.callback import *
from treadle.compat.mindspore.train.model import Model
from treadle.compat.mindspore.train.serialization import *

__all__ = ["Model", "amp", *callback.__all__, *serialization.__all__, *_metrics.__all__]

if not TYPE_CHECKING:
    __getattr__ = _missing(__name__)
