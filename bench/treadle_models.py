"""The bench's models in Treadle: `make` gives (state, step), step(state, batch) -> (state, loss).

State is the pair (cell, optimiser), changed in place by the compiled step; weights come from weights.py by name. The
config's "precision" is f32, bf16 (`amp.autocast`: bf16 products, float32 parameters) or high (`precision("high")`).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import weights as W
from treadle_nets import CELLS

import treadle as td
from treadle.api import _apply
from treadle.api.programs import Program
from treadle.ir.node import Module
from treadle.runtime import pjrt


def precise(name: str) -> contextlib.AbstractContextManager[Any]:
    """The context in which a model of that precision is traced."""
    if name == "f32":
        return contextlib.nullcontext()
    made = td.amp.autocast("O1") if name == "bf16" else td.precision(name)
    return made  # type: ignore[no-any-return]


def _load(cell: td.Cell, arrays: W.Arrays) -> None:
    """Overwrite every parameter and buffer by name. Raises RuntimeError for a name without a partner, a wrong shape."""
    places = {**dict(cell.named_parameters()), **dict(cell.named_buffers())}
    places = {n: p for n, p in places.items() if not n.endswith("num_batches_tracked")}
    if odd := set(places) ^ set(arrays):
        raise RuntimeError(f"names without a partner: {sorted(odd)}")
    for name, array in arrays.items():
        if tuple(places[name].shape) != array.shape:
            raise RuntimeError(f"{name}: {places[name].shape} in the cell, {array.shape} in the weights")
        places[name].assign(array)


def make(model: str, cfg: W.Config) -> tuple[Any, Callable[..., Any]]:
    """First state (on the device) and the compiled training step, not yet compiled."""
    state, train = _made(model, cfg)
    jitted = td.jit(train)

    def step(state: Any, batch: tuple[td.Tensor, ...]) -> tuple[Any, td.Tensor]:
        return state, jitted(*batch)

    return state, step


def training(model: str, cfg: W.Config) -> tuple[Any, Callable[..., td.Tensor]]:
    """State and the plain Python step on a batch, which changes the state and gives the loss."""
    net = _net(model, cfg).train()
    params = list(net.parameters())
    if "betas" in cfg:
        optimiser = td.optim.AdamW(
            params, lr=cfg["lr"], betas=tuple(cfg["betas"]), eps=cfg["eps"], weight_decay=cfg["weight_decay"]
        )
    else:
        optimiser = td.optim.SGD(params, lr=cfg["lr"], momentum=cfg.get("momentum", 0.0))

    def loss_of(*batch: td.Tensor) -> td.Tensor:
        with precise(cfg["precision"]):
            return net(*batch)

    def train(*batch: td.Tensor) -> td.Tensor:
        loss, grads = td.value_and_grad(lambda: loss_of(*batch), params)()
        optimiser.step(grads)
        return loss

    return (net, optimiser), train


def _net(model: str, cfg: W.Config) -> td.Cell:
    net = CELLS[W.family(model)](cfg)
    _load(net, W.weights(model, cfg))
    return net


def inference(model: str, cfg: W.Config) -> Callable[..., td.Tensor]:
    """The compiled function from a batch's inputs to what the trained model is asked for."""
    net = _net(model, cfg).eval()
    for tensor in [*net.parameters(), *net.buffers()]:
        _on_device(tensor)

    def infer(*inputs: td.Tensor) -> td.Tensor:
        with precise(cfg["precision"]):
            return net.infer(*inputs)

    return td.jit(infer)


def _made(model: str, cfg: W.Config) -> tuple[Any, Callable[..., td.Tensor]]:
    """The same with the whole state on the device, as the peers have it before their first step."""
    (net, optimiser), train = training(model, cfg)
    slots = [t for tensors in optimiser.state.values() for t in tensors]
    for tensor in [*net.parameters(), *net.buffers(), *slots]:
        _on_device(tensor)
    return (net, optimiser), train


def _on_device(tensor: td.Tensor) -> td.Tensor:
    """The tensor itself, its elements on the device from now on (else they go there at its first use)."""
    tensor._set(td.Tensor._of(pjrt.put(tensor.numpy())))
    return tensor


def put(model: str, cfg: W.Config, arrays: tuple[np.ndarray, ...]) -> tuple[td.Tensor, ...]:
    """A batch on the device."""
    return tuple(_on_device(td.Tensor(a)) for a in arrays)


def wait(values: Any) -> Any:
    """The same values, once the loss is computed and the state is changed: a chain of programs gives the loss first."""
    state, loss = values if isinstance(values, tuple) and len(values) == 2 else (None, values)
    np.asarray(loss)
    if state is not None:
        net, optimiser = state
        slots = [t for tensors in optimiser.state.values() for t in tensors]
        pjrt.block_until_ready([t._value for t in [*net.parameters(), *net.buffers(), *slots]])
    return values


def gradients(state: Any, cfg: W.Config) -> W.Arrays:
    """What the first step made of the gradients, by name: all the optimiser's memory of them after exactly one step."""
    net, optimiser = state
    slot = optimiser.state.get("m" if "betas" in cfg else "momentum")
    return {} if slot is None else {n: m.numpy() for (n, _), m in zip(net.named_parameters(), slot, strict=True)}


def compiled(model: str, cfg: W.Config) -> tuple[dict[str, float], Any, Callable[..., Any], tuple[td.Tensor, ...]]:
    """Seconds from the Python step to an executable; then state, the step that runs it, batch.

    `front_s`: tracing, differentiating, optimising, lowering; `backend_s`: XLA; `cpu_s`: of all cores. Treadle's
    device is up, holds the weights and has compiled a small program before, as with JAX. Without BENCH_CACHE it must
    run with TREADLE_CACHE=0 (harness.py sets both): otherwise the disk would answer.
    """
    state, train = _made(model, cfg)
    td.jit(lambda x: x + 1)(td.Tensor(np.zeros(2, np.float32)))
    batch = put(model, cfg, W.batch(model, cfg))
    start, busy = time.perf_counter(), time.process_time()
    program = Program("train", train, batch, {})
    total, busy = time.perf_counter() - start, time.process_time() - busy
    if program.executable.from_cache and not os.environ.get("BENCH_CACHE"):
        raise RuntimeError("the program came from the cache on disk: set TREADLE_CACHE=0")
    backend = program.executable.compile_seconds

    def step(state: Any, batch: tuple[td.Tensor, ...]) -> tuple[Any, td.Tensor]:
        return state, program(batch)

    return {"front_s": total - backend, "backend_s": backend, "total_s": total, "cpu_s": busy}, state, step, batch


def module(model: str, cfg: W.Config) -> Module:
    """The training step as it is traced, with its gradients."""
    _, train = training(model, cfg)
    traced = _apply.trace(train, put(model, cfg, W.batch(model, cfg)))
    return Module.of(traced.fn, traced.fns)


def versions() -> dict[str, str]:
    """Versions of this side."""
    import jaxlib

    return {"treadle": td.__version__, "jaxlib": jaxlib.__version__}
