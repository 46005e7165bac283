"""`import treadle.compat.mindspore as ms`: MindSpore's interface over Treadle, for programs that were written for it.

Tensors, cells and programs are Treadle's; names, arguments, defaults and formulas are MindSpore's. docs/mindspore.md
lists what is covered and what differs. What is not raises E0592, which names the nearest function of Treadle.
"""

# ruff: noqa: F403 (each part lists its names)
from typing import TYPE_CHECKING

from treadle.compat.mindspore import _grad as _grads
from treadle.compat.mindspore import amp, common, context, dataset, nn, numpy, ops, train
from treadle.compat.mindspore._missing import missing as _missing
from treadle.compat.mindspore._seed import get_seed, set_seed
from treadle.compat.mindspore._tensor import Parameter, ParameterTuple, Tensor
from treadle.compat.mindspore.common import dtype
from treadle.compat.mindspore.common.dtype import *
from treadle.compat.mindspore.context import (
    GRAPH_MODE,
    LAX,
    PYNATIVE_MODE,
    STRICT,
    get_context,
    reset_auto_parallel_context,
    set_auto_parallel_context,
    set_context,
    set_device,
)
from treadle.compat.mindspore.nn.cell import Cell
from treadle.compat.mindspore.train.callback import *
from treadle.compat.mindspore.train.model import Model
from treadle.compat.mindspore.train.serialization import *

mstype = dtype
grad, value_and_grad, get_grad, jit = _grads.grad, _grads.value_and_grad, _grads.get_grad, _grads.jit
ms_function, jit_class, ms_class = _grads.jit, _grads.jit_class, _grads.jit_class
vmap, jvp, vjp, jacrev, recompute = _grads.vmap, _grads.jvp, _grads.vjp, _grads.jacrev, _grads.recompute
FixedLossScaleManager, DynamicLossScaleManager = amp.FixedLossScaleManager, amp.DynamicLossScaleManager
tensor = Tensor

__all__ = [
    "Cell", "DynamicLossScaleManager", "FixedLossScaleManager", "GRAPH_MODE", "LAX", "Model", "PYNATIVE_MODE",
    "Parameter", "ParameterTuple", "STRICT", "Tensor", "amp", "common", "context", "dataset", "dtype", "get_context",
    "get_grad", "get_seed", "grad", "jacrev", "jit", "jit_class", "jvp", "ms_class", "ms_function", "mstype", "nn",
    "numpy", "ops", "recompute", "reset_auto_parallel_context", "set_auto_parallel_context", "set_context",
    "set_device", "set_seed", "tensor", "train", "value_and_grad", "vjp", "vmap",
    *dtype.__all__, *train.callback.__all__, *train.serialization.__all__,
]  # fmt: skip

if not TYPE_CHECKING:
    __getattr__ = _missing(__name__)
