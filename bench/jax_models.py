"""The bench's models as pure JAX functions: `make` gives (state, step), step(state, batch) -> (state, loss).

State is {"params", "buffers", "optimiser"}, each a dict by PyTorch's names; it is donated. Options in the config:
`layout` "NCHW" (default) or "NHWC" for resnet50, the second with weights kept as HWIO, which is JAX's own habit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import weights as W
from jax import lax

State = dict[str, Any]


def make(model: str, cfg: W.Config) -> tuple[State, Callable[..., Any]]:
    """First state (on the device) and the compiled training step, not yet compiled."""
    arrays = W.weights(model, cfg)
    if cfg.get("layout") == "NHWC":
        arrays = {n: a.transpose(2, 3, 1, 0) if a.ndim == 4 else a for n, a in arrays.items()}
    params = {n: jnp.array(a) for n, a in arrays.items() if not W.is_buffer(n)}
    buffers = {n: jnp.array(a) for n, a in arrays.items() if W.is_buffer(n)}
    start, update = _OPTIMISERS[W.family(model)]
    forward = _FORWARD[W.family(model)]

    def step(state: State, batch: tuple[jax.Array, ...]) -> tuple[State, jax.Array]:
        def loss_of(p: dict[str, jax.Array]) -> tuple[jax.Array, dict[str, jax.Array]]:
            return forward(p, state["buffers"], batch, cfg)

        (loss, new_buffers), grads = jax.value_and_grad(loss_of, has_aux=True)(state["params"])
        new_params, optimiser = update(state["params"], grads, state["optimiser"], cfg)
        return {"params": new_params, "buffers": new_buffers, "optimiser": optimiser}, loss

    state = {"params": params, "buffers": buffers, "optimiser": start(params)}
    return wait(state), jax.jit(step, donate_argnums=0)


def put(model: str, cfg: W.Config, arrays: tuple[np.ndarray, ...]) -> tuple[jax.Array, ...]:
    """A batch on the device, in the layout that the step expects."""
    if cfg.get("layout") == "NHWC":
        arrays = tuple(a.transpose(0, 2, 3, 1) if a.ndim == 4 else a for a in arrays)
    return wait(tuple(jnp.array(a) for a in arrays))


def wait(values: Any) -> Any:
    """The same values, once they are computed."""
    return jax.block_until_ready(values)


def compiled(model: str, cfg: W.Config) -> tuple[dict[str, float], State, Callable[..., Any], tuple[jax.Array, ...]]:
    """Seconds from the Python step to an executable, with no cache; then state, that executable, batch.

    `front_s`: tracing, differentiating, lowering; `backend_s`: XLA. JAX's device is up, holds the weights and has
    compiled a small program before.
    """
    jax.config.update("jax_enable_compilation_cache", False)
    jax.jit(lambda x: x + 1)(jnp.zeros(2, jnp.float32))
    state, step = make(model, cfg)
    batch = put(model, cfg, W.batch(model, cfg))
    start = time.perf_counter()
    lowered = step.lower(state, batch)
    middle = time.perf_counter()
    executable = lowered.compile()
    end = time.perf_counter()
    seconds = {"front_s": middle - start, "backend_s": end - middle, "total_s": end - start}
    return seconds, state, executable, batch


def versions() -> dict[str, str]:
    """Versions and the device of this side."""
    import jaxlib

    return {"jax": jax.__version__, "jaxlib": jaxlib.__version__, "device": jax.devices()[0].device_kind}


def _cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    logp = jax.nn.log_softmax(logits)
    return -jnp.mean(jnp.take_along_axis(logp, labels[..., None], axis=-1))


def _linear(p: dict[str, jax.Array], name: str, x: jax.Array) -> jax.Array:
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def _mlp(p: Any, buffers: Any, batch: Any, cfg: W.Config) -> tuple[jax.Array, Any]:
    x, labels = batch
    last = len(cfg["sizes"]) - 2
    for i in range(last + 1):
        x = _linear(p, f"layers.{i}", x)
        x = jax.nn.relu(x) if i < last else x
    return _cross_entropy(x, labels), buffers


class _Net:
    """Convolution and batch norm over a dict of parameters; collects the new running statistics."""

    def __init__(self, p: Any, buffers: Any, layout: str):
        self.p, self.buffers, self.new, self.layout = p, buffers, {}, layout
        self.kernel = "OIHW" if layout == "NCHW" else "HWIO"
        self.axes = (0, 2, 3) if layout == "NCHW" else (0, 1, 2)

    def conv(self, name: str, x: jax.Array, stride: int = 1, pad: int = 0) -> jax.Array:
        spec = (self.layout, self.kernel, self.layout)
        return lax.conv_general_dilated(
            x, self.p[f"{name}.weight"], (stride,) * 2, [(pad, pad)] * 2, dimension_numbers=spec
        )

    def norm(self, name: str, x: jax.Array) -> jax.Array:
        """Normalised by the batch's biased variance; the running one takes the unbiased, as PyTorch does."""
        mean, var = jnp.mean(x, self.axes), jnp.var(x, self.axes)
        n = x.size // mean.size
        for part, value in (("running_mean", mean), ("running_var", var * (n / (n - 1)))):
            old = self.buffers[f"{name}.{part}"]
            self.new[f"{name}.{part}"] = 0.9 * old + 0.1 * lax.stop_gradient(value)
        scale = self.p[f"{name}.weight"] * lax.rsqrt(var + 1e-5)
        shift = self.p[f"{name}.bias"] - mean * scale
        shape = (1, -1, 1, 1) if self.layout == "NCHW" else (1, 1, 1, -1)
        return x * scale.reshape(shape) + shift.reshape(shape)

    def pool(self, x: jax.Array) -> jax.Array:
        two = dict.fromkeys(self.axes[1:], 2)
        stride = tuple(two.get(i, 1) for i in range(4))
        window = tuple(3 if i in two else 1 for i in range(4))
        padding = tuple((1, 1) if i in two else (0, 0) for i in range(4))
        return lax.reduce_window(x, -jnp.inf, lax.max, window, stride, padding)


def _resnet50(p: Any, buffers: Any, batch: Any, cfg: W.Config) -> tuple[jax.Array, Any]:
    x, labels = batch
    net = _Net(p, buffers, cfg.get("layout", "NCHW"))
    x = net.pool(jax.nn.relu(net.norm("bn1", net.conv("conv1", x, 2, 3))))
    for name, _, _, stride, down in W.resnet_blocks(cfg):
        y = jax.nn.relu(net.norm(f"{name}.bn1", net.conv(f"{name}.conv1", x)))
        y = jax.nn.relu(net.norm(f"{name}.bn2", net.conv(f"{name}.conv2", y, stride, 1)))
        y = net.norm(f"{name}.bn3", net.conv(f"{name}.conv3", y))
        if down:
            x = net.norm(f"{name}.downsample.1", net.conv(f"{name}.downsample.0", x, stride))
        x = jax.nn.relu(x + y)
    return _cross_entropy(_linear(p, "fc", jnp.mean(x, net.axes[1:])), labels), net.new


def _layer_norm(p: Any, name: str, x: jax.Array) -> jax.Array:
    mean, var = jnp.mean(x, -1, keepdims=True), jnp.var(x, -1, keepdims=True)
    return (x - mean) * lax.rsqrt(var + 1e-5) * p[f"{name}.weight"] + p[f"{name}.bias"]


def _attention(p: Any, name: str, x: jax.Array, heads: int) -> jax.Array:
    b, t, d = x.shape
    q, k, v = jnp.split(_linear(p, f"{name}.qkv", x).reshape(b, t, 3 * heads, d // heads), 3, axis=2)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (d // heads) ** -0.5
    scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -jnp.inf)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
    return _linear(p, f"{name}.out", mixed.reshape(b, t, d))


def _gpt(p: Any, buffers: Any, batch: Any, cfg: W.Config) -> tuple[jax.Array, Any]:
    tokens, labels = batch
    x = p["tok.weight"][tokens] + p["pos.weight"]
    for i in range(cfg["layers"]):
        name = f"blocks.{i}"
        x = x + _attention(p, name, _layer_norm(p, f"{name}.ln1", x), cfg["heads"])
        h = jax.nn.gelu(_linear(p, f"{name}.up", _layer_norm(p, f"{name}.ln2", x)), approximate=True)
        x = x + _linear(p, f"{name}.down", h)
    return _cross_entropy(_layer_norm(p, "ln_f", x) @ p["tok.weight"].T, labels), buffers


def _dispatch(p: Any, buffers: Any, batch: Any, cfg: W.Config) -> tuple[jax.Array, Any]:
    return sum(jnp.sum(v * v) for v in p.values()), buffers


def _momentum_start(params: Any) -> Any:
    return {n: jnp.zeros_like(p) for n, p in params.items()}


def _momentum(params: Any, grads: Any, velocity: Any, cfg: W.Config) -> tuple[Any, Any]:
    velocity = {n: cfg["momentum"] * velocity[n] + grads[n] for n in params}
    return {n: p - cfg["lr"] * velocity[n] for n, p in params.items()}, velocity


def _adamw_start(params: Any) -> Any:
    zeros = _momentum_start
    return {"t": jnp.zeros((), jnp.int32), "m": zeros(params), "v": zeros(params)}


def _adamw(params: Any, grads: Any, state: Any, cfg: W.Config) -> tuple[Any, Any]:
    b1, b2 = cfg["betas"]
    t = state["t"] + 1
    m = {n: b1 * state["m"][n] + (1 - b1) * g for n, g in grads.items()}
    v = {n: b2 * state["v"][n] + (1 - b2) * g * g for n, g in grads.items()}
    c1, c2 = 1 - b1 ** t.astype(jnp.float32), 1 - b2 ** t.astype(jnp.float32)

    def moved(n: str, p: jax.Array) -> jax.Array:
        return p * (1 - cfg["lr"] * cfg["weight_decay"]) - cfg["lr"] / c1 * m[n] / (jnp.sqrt(v[n] / c2) + cfg["eps"])

    return {n: moved(n, p) for n, p in params.items()}, {"t": t, "m": m, "v": v}


def _sgd(params: Any, grads: Any, state: Any, cfg: W.Config) -> tuple[Any, Any]:
    return {n: p - cfg["lr"] * grads[n] for n, p in params.items()}, state


_FORWARD = {"mlp": _mlp, "resnet50": _resnet50, "gpt": _gpt, "dispatch": _dispatch}
_OPTIMISERS = {
    "mlp": (_momentum_start, _momentum),
    "resnet50": (_momentum_start, _momentum),
    "gpt": (_adamw_start, _adamw),
    "dispatch": (lambda params: {}, _sgd),
}
