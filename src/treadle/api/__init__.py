"""The functional tools: compile (`jit`), differentiate, control flow on tensors, modes.

Beside the driver this is the only place where stages meet.
"""

from treadle.api import context
from treadle.api.batching import vmap
from treadle.api.control import cond, scan, while_loop
from treadle.api.forward import hessian, jacfwd, jacrev, jvp
from treadle.api.gradients import checkpoint, custom_gradient, grad, grad_all, stop_gradient, value_and_grad, vjp
from treadle.api.programs import Jitted, jit, trace_module
from treadle.api.stages import stages

__all__ = [
    "Jitted",
    "checkpoint",
    "cond",
    "context",
    "custom_gradient",
    "grad",
    "grad_all",
    "hessian",
    "jacfwd",
    "jacrev",
    "jit",
    "jvp",
    "scan",
    "stages",
    "stop_gradient",
    "trace_module",
    "value_and_grad",
    "vjp",
    "vmap",
    "while_loop",
]
