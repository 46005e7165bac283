"""Treadle: deep learning in plain Python, compiled for every device.

`import treadle as td`; `td.jit`, `td.grad`, `td.nn`, `td.optim`, `td.train` are the way in (see the README).
"""

from treadle.api import (
    checkpoint,
    cond,
    context,
    custom_gradient,
    grad,
    grad_all,
    jit,
    scan,
    stop_gradient,
    value_and_grad,
    vjp,
    while_loop,
)
from treadle.base.errors import InternalError, UserError
from treadle.frontend import tree
from treadle.frontend.tensor import Tensor
