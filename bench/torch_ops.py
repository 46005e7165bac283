"""The sweep's ops in PyTorch: a `Call` on several operand sets, eager or with torch.compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import op_cases
import torch
import torch.nn.functional as F


def _reduce(x: torch.Tensor, op: str, axes: list[int] | None) -> torch.Tensor:
    if op == "argmax":
        return x.argmax(axes[0]) if axes else x.argmax()
    if op == "max":
        return x.amax(axes or ())
    if op == "var":
        return x.var(axes, unbiased=False)
    return getattr(torch, op)(x, axes) if axes is not None else getattr(torch, op)(x)


def _adam(p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> Any:
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return p - 1e-3 * m / (v.sqrt() + 1e-8), m, v


CHAINS: dict[str, Callable[..., Any]] = {
    "add, relu": lambda x, y: F.relu(x + y),
    "add a row, gelu": lambda x, r: F.gelu(x + r, approximate="tanh"),
    "silu, multiply": lambda x, y: F.silu(x) * y,
    "scale and shift, add, relu": lambda x, y, a, b: F.relu(x * a + b + y),
    "adam": _adam,
    "gauss": lambda x, y, z: torch.exp(-x * x) * y + z,
}


def _lstm(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    zero = x.new_zeros(1, x.shape[1], weights[1].shape[1])
    return torch.lstm(x, (zero, zero), weights, True, 1, 0.0, torch.is_grad_enabled(), False, False)[0]


def function(case: op_cases.Case) -> Callable[..., Any]:
    """The op itself."""
    attrs = case.attrs
    return {
        "gemm": torch.matmul,
        "conv": lambda x, w: F.conv2d(x, w, **attrs),
        "softmax": lambda x: F.softmax(x, -1),
        "layer_norm": lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b),
        "attention": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=attrs["causal"]),
        "lstm": _lstm,
        "reduce": lambda x: _reduce(x, attrs["op"], attrs["axes"]),
        "chain": lambda *xs: CHAINS[attrs["chain"]](*xs),
    }[case.kind]


def _conv_gradient(case: op_cases.Case) -> Callable[..., Any]:
    """One gradient of a convolution alone, as autograd calls it."""
    stride, pad, groups = (case.attrs[n] for n in ("stride", "padding", "groups"))
    mask = [case.form == "dgrad", case.form == "wgrad", False]

    def run(x: torch.Tensor, w: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
        made = torch.ops.aten.convolution_backward(
            dy, x, w, None, [stride] * 2, [pad] * 2, [1, 1], False, [0, 0], groups, mask
        )
        return made[0] if mask[0] else made[1]

    return run


def _form(case: op_cases.Case, compiled: bool) -> Callable[..., Any]:
    """The op, or its gradients from that of the result, which is the last operand."""
    op = torch.compile(function(case), dynamic=False) if compiled else function(case)
    if case.form == "forward":
        return op
    if case.form in ("dgrad", "wgrad"):
        if case.kind == "conv":
            return _conv_gradient(case)
        if case.form == "dgrad":
            return lambda x, w, dy: dy @ w.T
        return lambda x, w, dy: x.T @ dy

    def both(*xs: torch.Tensor) -> Any:
        given = xs[:-1]
        with torch.enable_grad():
            y = op(*given)
            return y, torch.autograd.grad(y, given, xs[-1])

    return both


class Call:
    """A call on each of `copies` operand sets; `result` of the first."""

    def __init__(
        self, case: op_cases.Case, dtype: str, copies: int, compiled: bool = False, channels_last: bool = False
    ):
        kind = torch.bfloat16 if dtype == "bf16" else torch.float32
        arrays = [op_cases.operands(case, i) for i in range(copies)]
        self.sets = [[torch.from_numpy(a).to(kind) for a in row] for row in arrays]
        if channels_last:
            self.sets = [[t.to(memory_format=torch.channels_last) for t in row] for row in self.sets]
        if case.form == "both":
            for row in self.sets:
                for t in row[:-1]:
                    t.requires_grad_()
        self.form = _form(case, compiled)

    def once(self) -> Any:
        """One call."""
        with torch.no_grad():
            return [self.form(*row) for row in self.sets]

    def result(self) -> list[np.ndarray]:
        """All results of the first operand set."""
        with torch.no_grad():
            made = self.form(*self.sets[0])
        flat = [
            t
            for part in (made if isinstance(made, tuple) else (made,))
            for t in (part if isinstance(part, tuple) else (part,))
        ]
        return [t.detach().float().numpy() for t in flat]


def reference(case: op_cases.Case, dtype: str) -> list[np.ndarray]:
    """The result in float32, eager, of operands that were rounded to dtype."""
    call = Call(case, "f32", 1)
    if dtype == "bf16":
        rounded = [t.detach().bfloat16().float() for t in call.sets[0]]
        call.sets = [
            [t.requires_grad_() if case.form == "both" and i + 1 < len(rounded) else t for i, t in enumerate(rounded)]
        ]
    return call.result()
