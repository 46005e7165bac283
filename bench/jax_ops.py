"""The sweep's ops in JAX: a `Call`, compiled, on several operand sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import op_cases
from jax import lax


def _conv(x: jax.Array, w: jax.Array, stride: int, padding: int, groups: int) -> jax.Array:
    spec, pads = ("NCHW", "OIHW", "NCHW"), [(padding, padding)] * 2
    return lax.conv_general_dilated(x, w, (stride,) * 2, pads, dimension_numbers=spec, feature_group_count=groups)


def _layer_norm(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
    wide = x.astype(jnp.float32)
    mean, var = jnp.mean(wide, -1, keepdims=True), jnp.var(wide, -1, keepdims=True)
    return ((wide - mean) * lax.rsqrt(var + 1e-5) * w + b).astype(x.dtype)


def _attention(q: jax.Array, k: jax.Array, v: jax.Array, causal: bool) -> jax.Array:
    made = jax.nn.dot_product_attention(*[a.transpose(0, 2, 1, 3) for a in (q, k, v)], is_causal=causal)
    return made.transpose(0, 2, 1, 3)


def _lstm(xs: jax.Array, w_ih: jax.Array, w_hh: jax.Array, b_ih: jax.Array, b_hh: jax.Array) -> jax.Array:
    inputs, zero = xs @ w_ih.T + (b_ih + b_hh), jnp.zeros(xs.shape[1:], xs.dtype)

    def body(carry: Any, x: jax.Array) -> Any:
        h, c = carry
        a, f, g, o = jnp.split(x + h @ w_hh.T, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(a) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return lax.scan(body, (zero, zero), inputs)[1]


def _adam(p: jax.Array, g: jax.Array, m: jax.Array, v: jax.Array) -> Any:
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), m, v


CHAINS: dict[str, Callable[..., Any]] = {
    "add, relu": lambda x, y: jax.nn.relu(x + y),
    "add a row, gelu": lambda x, r: jax.nn.gelu(x + r, approximate=True),
    "silu, multiply": lambda x, y: jax.nn.silu(x) * y,
    "scale and shift, add, relu": lambda x, y, a, b: jax.nn.relu(x * a + b + y),
    "adam": _adam,
    "gauss": lambda x, y, z: jnp.exp(-x * x) * y + z,
}


def function(case: op_cases.Case) -> Callable[..., Any]:
    """The op itself."""
    attrs = case.attrs
    return {
        "gemm": jnp.matmul,
        "conv": lambda x, w: _conv(x, w, **attrs),
        "softmax": lambda x: jax.nn.softmax(x),
        "layer_norm": _layer_norm,
        "attention": lambda q, k, v: _attention(q, k, v, attrs["causal"]),
        "lstm": _lstm,
        "reduce": lambda x: getattr(jnp, attrs["op"])(x, _axes(attrs)),
        "chain": lambda *xs: CHAINS[attrs["chain"]](*xs),
    }[case.kind]


def _axes(attrs: dict[str, Any]) -> Any:
    axes = attrs["axes"]
    return axes if axes is None else axes[0] if attrs["op"] == "argmax" else tuple(axes)


def _form(case: op_cases.Case) -> Callable[..., Any]:
    """The op, or its gradients from that of the result, which is the last operand."""
    op = function(case)
    if case.form == "forward":
        return op

    def gradients(*xs: jax.Array) -> Any:
        y, pull = jax.vjp(op, *xs[:-1])
        made = pull(xs[-1])
        return (y, made) if case.form == "both" else made[0 if case.form == "dgrad" else 1]

    return gradients


class Call:
    """A compiled call on `copies` operand sets; `result` of the first."""

    def __init__(self, case: op_cases.Case, dtype: str, copies: int):
        kind, form = jnp.bfloat16 if dtype == "bf16" else jnp.float32, _form(case)
        sets = [[jnp.array(a, kind) for a in op_cases.operands(case, i)] for i in range(copies)]
        self.sets = jax.block_until_ready(sets)
        self.run = jax.jit(lambda sets: [form(*row) for row in sets])

    def once(self) -> Any:
        """One call, finished."""
        return jax.block_until_ready(self.run(self.sets))

    def result(self) -> list[np.ndarray]:
        """All results of the first operand set."""
        return [np.asarray(t, np.float32) for t in jax.tree.leaves(self.once()[0])]
