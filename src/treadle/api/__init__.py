"""The functional tools: compile (`jit`), differentiate, control flow on tensors, modes.

Beside the driver this is the only place where stages meet.
"""

from treadle.api import context, recursing, staging
from treadle.api.batching import vmap
from treadle.api.checks import debug_nans, deterministic
from treadle.api.control import cond, scan, while_loop
from treadle.api.effects import callback, debug_check, debug_print, pure_callback
from treadle.api.explain import explain
from treadle.api.forward import hessian, jacfwd, jacrev, jvp
from treadle.api.gradient_check import GradientReport, check_gradients
from treadle.api.gradients import checkpoint, custom_gradient, grad, grad_all, stop_gradient, value_and_grad, vjp
from treadle.api.precision import get_precision, precision, set_precision
from treadle.api.programs import Jitted, jit, trace_module
from treadle.api.shapes import check_shapes
from treadle.api.stages import stages
from treadle.api.tensor_hooks import hook_gradient

staging.install()
recursing.install()

__all__ = [
    "GradientReport",
    "Jitted",
    "callback",
    "check_gradients",
    "check_shapes",
    "checkpoint",
    "cond",
    "context",
    "custom_gradient",
    "debug_check",
    "debug_nans",
    "debug_print",
    "deterministic",
    "explain",
    "get_precision",
    "grad",
    "grad_all",
    "hessian",
    "hook_gradient",
    "jacfwd",
    "jacrev",
    "jit",
    "jvp",
    "precision",
    "pure_callback",
    "scan",
    "set_precision",
    "stages",
    "stop_gradient",
    "trace_module",
    "value_and_grad",
    "vjp",
    "vmap",
    "while_loop",
]
