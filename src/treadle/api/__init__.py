"""The functional tools: compile (`jit`), differentiate, control flow on tensors, modes.

Beside the driver this is the only place where stages meet.
"""

from treadle.api import context
from treadle.api.control import cond, scan, while_loop
from treadle.api.gradients import checkpoint, custom_gradient, grad, grad_all, stop_gradient, value_and_grad, vjp
from treadle.api.jit import Jitted, jit, trace_module
from treadle.api.stages import stages

__all__ = [
    "Jitted",
    "checkpoint",
    "cond",
    "context",
    "custom_gradient",
    "grad",
    "grad_all",
    "jit",
    "scan",
    "stages",
    "stop_gradient",
    "trace_module",
    "value_and_grad",
    "vjp",
    "while_loop",
]
