"""The sweep's ops in Treadle: `prepare(case, dtype, ...)` gives a compiled call that works on several operand sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import op_cases

import treadle as td
from treadle.nn import functional as F
from treadle.ops.sequences import lstm
from treadle.runtime import pjrt


def _reduce(x: Any, op: str, axes: list[int] | None) -> Any:
    if op == "argmax":
        return x.argmax(axes[0]) if axes else x.argmax()
    return getattr(td, op)(x, None if axes is None else tuple(axes))


def _adam(p: Any, g: Any, m: Any, v: Any) -> Any:
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return p - 1e-3 * m / (v.sqrt() + 1e-8), m, v


CHAINS: dict[str, Callable[..., Any]] = {
    "add, relu": lambda x, y: F.relu(x + y),
    "add a row, gelu": lambda x, r: F.gelu(x + r, approximate="tanh"),
    "silu, multiply": lambda x, y: F.silu(x) * y,
    "scale and shift, add, relu": lambda x, y, a, b: F.relu(x * a + b + y),
    "adam": _adam,
    "gauss": lambda x, y, z: td.exp(-x * x) * y + z,
}


def _lstm(x: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
    """What nn.LSTM makes of one layer."""
    zero = td.zeros((x.shape[1], w_hh.shape[1]), dtype=x.dtype)
    return lstm(F.linear(x, w_ih, b_ih + b_hh), zero, zero, w_hh, reverse=False)[0]


def function(case: op_cases.Case) -> Callable[..., Any]:
    """The op itself."""
    attrs = case.attrs
    return {
        "gemm": td.matmul,
        "conv": lambda x, w: F.conv2d(x, w, **attrs),
        "softmax": lambda x: F.softmax(x, -1),
        "layer_norm": lambda x, w, b: F.layer_norm(x, x.shape[-1], w, b),
        "attention": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=attrs["causal"]),
        "lstm": _lstm,
        "reduce": lambda x: _reduce(x, attrs["op"], attrs["axes"]),
        "chain": lambda *xs: CHAINS[attrs["chain"]](*xs),
    }[case.kind]


def _form(case: op_cases.Case) -> Callable[..., Any]:
    """The op, or its gradients from that of the result, which is the last operand."""
    op = function(case)
    if case.form == "forward":
        return op
    if case.form in ("dgrad", "wgrad"):
        place = 0 if case.form == "dgrad" else 1

        def one(*xs: Any) -> Any:
            rest = list(xs[:-1])
            return td.vjp(lambda x: op(*rest[:place], x, *rest[place + 1 :]), rest[place])[1](xs[-1])

        return one

    def both(*xs: Any) -> Any:
        y, pull = td.vjp(op, *xs[:-1])
        return y, pull(xs[-1])

    return both


def _images(case: op_cases.Case) -> tuple[tuple[int, ...], bool]:
    """Which operands of a convolution are images, and whether its result is one."""
    return {"forward": ((0,), True), "dgrad": ((0, 2), True), "wgrad": ((0, 2), False)}[case.form]


def _channels_last(case: op_cases.Case, form: Callable[..., Any]) -> Callable[..., Any]:
    """The form with images [N, H, W, C] in and out, as a user of such images writes it."""
    images, gives = _images(case)

    def turned(*xs: Any) -> Any:
        found = form(*[x.transpose(0, 3, 1, 2) if i in images else x for i, x in enumerate(xs)])
        return [t.transpose(0, 2, 3, 1) for t in td.tree.flatten(found)[0]] if gives else found

    return turned


class Call:
    """A compiled call on `copies` operand sets; `result` of the first, `block` times it. channels_last: the images of
    convolutions are handed over, and given back, as [N, H, W, C]."""

    def __init__(self, case: op_cases.Case, dtype: str, copies: int, channels_last: bool = False):
        kind = td.bfloat16 if dtype == "bf16" else td.float32
        form = _form(case)
        arrays = [op_cases.operands(case, i) for i in range(copies)]
        turned = channels_last and case.kind == "conv"
        if turned:
            form, images = _channels_last(case, form), _images(case)[0]
            arrays = [[_last(a) if i in images else a for i, a in enumerate(row)] for row in arrays]
        self.gives_images = turned and _images(case)[1]
        sets = [[td.Tensor(a).astype(kind) for a in row] for row in arrays]
        self.flat = [_on_device(t) for row in sets for t in row]
        n = len(sets[0])
        self.run = td.jit(lambda *flat: [form(*flat[i * n : i * n + n]) for i in range(copies)])

    def once(self) -> Any:
        """One call, finished."""
        made = self.run(*self.flat)
        pjrt.block_until_ready([t._value for t in td.tree.flatten(made)[0]])
        return made

    def result(self) -> list[np.ndarray]:
        """All results of the first operand set; images as [N, C, H, W]."""
        found = [np.asarray(t).astype(np.float32) for t in td.tree.flatten(self.once()[0])[0]]
        return [a.transpose(0, 3, 1, 2) if self.gives_images else a for a in found]


def _last(a: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(a.transpose(0, 2, 3, 1))


def _on_device(tensor: Any) -> Any:
    tensor._set(td.Tensor._of(pjrt.put(tensor.numpy())))
    return tensor
