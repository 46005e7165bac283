"""The bench's models as pure JAX functions: `make` gives (state, step), step(state, batch) -> (state, loss).

State is {"params", "buffers", "optimiser"}, each a dict by PyTorch's names; it is donated. Options in the config:
`layout` "NCHW" (default) or "NHWC" for resnet50, the second with weights kept as HWIO, which is JAX's own habit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax_nets as N
import numpy as np
import weights as W

State = dict[str, Any]


def make(model: str, cfg: W.Config) -> tuple[State, Callable[..., Any]]:
    """First state (on the device) and the compiled training step, not yet compiled."""
    params, buffers = _arrays(model, cfg)
    start, update = (_adamw_start, _adamw) if "betas" in cfg else (_momentum_start, _momentum)
    if not cfg.get("momentum") and "betas" not in cfg:
        start, update = (lambda params: {}), _sgd
    loss_fn = N.LOSS[W.family(model)]

    def step(state: State, batch: tuple[jax.Array, ...]) -> tuple[State, jax.Array]:
        def loss_of(p: dict[str, jax.Array]) -> tuple[jax.Array, dict[str, jax.Array]]:
            net = N.Net(p, state["buffers"], cfg, training=True)
            return loss_fn(net, *batch), {**state["buffers"], **net.new}

        (loss, new_buffers), grads = jax.value_and_grad(loss_of, has_aux=True)(state["params"])
        new_params, optimiser = update(state["params"], grads, state["optimiser"], cfg)
        return {"params": new_params, "buffers": new_buffers, "optimiser": optimiser}, loss

    state = {"params": params, "buffers": buffers, "optimiser": start(params)}
    return wait(state), jax.jit(step, donate_argnums=0)


def _arrays(model: str, cfg: W.Config) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    """First parameters and running statistics."""
    arrays = W.weights(model, cfg)
    if cfg.get("layout") == "NHWC":
        arrays = {n: a.transpose(2, 3, 1, 0) if a.ndim == 4 else a for n, a in arrays.items()}
    params = {n: jnp.array(a) for n, a in arrays.items() if not W.is_buffer(n)}
    return params, {n: jnp.array(a) for n, a in arrays.items() if W.is_buffer(n)}


def inference(model: str, cfg: W.Config) -> Callable[..., jax.Array]:
    """The compiled function from a batch's inputs to what the trained model is asked for."""
    params, buffers = _arrays(model, cfg)
    infer = jax.jit(lambda p, b, *inputs: N.INFER[W.family(model)](N.Net(p, b, cfg, training=False), *inputs))
    return lambda *inputs: infer(params, buffers, *inputs)


def gradients(state: State, cfg: W.Config) -> W.Arrays:
    """What the first step made of the gradients, by name: all the optimiser's memory of them after exactly one step."""
    found = state["optimiser"].get("m", {}) if "betas" in cfg else state["optimiser"]
    arrays = {n: np.asarray(a) for n, a in found.items()}
    if cfg.get("layout") == "NHWC":
        arrays = {n: a.transpose(3, 2, 0, 1) if a.ndim == 4 else a for n, a in arrays.items()}
    return arrays


def put(model: str, cfg: W.Config, arrays: tuple[np.ndarray, ...]) -> tuple[jax.Array, ...]:
    """A batch on the device, in the layout that the step expects."""
    if cfg.get("layout") == "NHWC":
        arrays = tuple(a.transpose(0, 2, 3, 1) if a.ndim == 4 else a for a in arrays)
    return wait(tuple(jnp.array(a) for a in arrays))


def wait(values: Any) -> Any:
    """The same values, once they are computed."""
    return jax.block_until_ready(values)


def compiled(model: str, cfg: W.Config) -> tuple[dict[str, float], State, Callable[..., Any], tuple[jax.Array, ...]]:
    """Seconds from the Python step to an executable, with no cache but BENCH_CACHE; then state, executable, batch.

    `front_s`: tracing, differentiating, lowering; `backend_s`: XLA. JAX's device is up, holds the weights and has
    compiled a small program before.
    """
    if cache := os.environ.get("BENCH_CACHE"):
        jax.config.update("jax_compilation_cache_dir", cache)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_enable_compilation_cache", bool(cache))
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
