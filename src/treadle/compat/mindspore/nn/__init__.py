"""Cells, layers, losses, optimisers, rates, metrics and wrappers under `mindspore.nn`'s names."""

# ruff: noqa: F403 (each part lists its names)
from typing import TYPE_CHECKING

from treadle.compat.mindspore._missing import missing as _missing
from treadle.compat.mindspore.nn import (
    activation,
    layers,
    loss,
    metrics,
    norm,
    optim,
    rates,
    recurrent,
    wrap,
)
from treadle.compat.mindspore.nn.activation import *
from treadle.compat.mindspore.nn.cell import Cell, CellDict, CellList, GraphCell, SequentialCell
from treadle.compat.mindspore.nn.layers import *
from treadle.compat.mindspore.nn.loss import *
from treadle.compat.mindspore.nn.metrics import *
from treadle.compat.mindspore.nn.norm import *
from treadle.compat.mindspore.nn.optim import *
from treadle.compat.mindspore.nn.rates import *
from treadle.compat.mindspore.nn.recurrent import *
from treadle.compat.mindspore.nn.wrap import *

_PARTS = (activation, layers, loss, metrics, norm, optim, rates, recurrent, wrap)
__all__ = ["Cell", "CellDict", "CellList", "GraphCell", "SequentialCell"]
__all__ += [name for part in _PARTS for name in part.__all__]

if not TYPE_CHECKING:
    __getattr__ = _missing(__name__)
