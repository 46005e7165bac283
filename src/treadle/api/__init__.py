"""The functional tools: compile (`jit`), differentiate, control flow on tensors, modes. The only place, with the driver,
where stages meet."""

from treadle.api import context
from treadle.api.control import cond, scan, while_loop
from treadle.api.gradients import checkpoint, custom_gradient, grad, grad_all, stop_gradient, value_and_grad, vjp
from treadle.api.jit import Jitted, jit, trace_module
