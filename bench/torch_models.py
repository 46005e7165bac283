"""The bench's models in PyTorch: `make` gives (state, step), step(state, batch) -> (state, loss).

Config options: `compiled`: torch.compile for the loss function (backward included); the optimisers are torch's fused
ones either way. `channels_last`: images and the weights of convolutions in that layout. Precision bf16: autocast around
the loss, float32 parameters. State is the pair (module, optimiser), changed in place.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import weights as W
from torch import nn
from torch_nets import MODULES

DEVICE = "cuda" if os.environ.get("BENCH_DEVICE") == "gpu" else "cpu"


def module_of(model: str, cfg: W.Config) -> nn.Module:
    """The module with its first weights. Raises RuntimeError when a weight has no place in it."""
    module = MODULES[W.family(model)](cfg)
    arrays = {n: torch.from_numpy(a.copy()) for n, a in W.weights(model, cfg).items()}
    missing, unexpected = module.load_state_dict(arrays, strict=False)
    left = [n for n in missing if not n.endswith("num_batches_tracked")]
    if left or unexpected:
        raise RuntimeError(f"weights without a place: {unexpected}; places without weights: {left}")
    return module.to(DEVICE, memory_format=torch.channels_last if cfg.get("channels_last") else torch.preserve_format)


def precise(name: str) -> contextlib.AbstractContextManager[Any]:
    """The context in which the loss is computed. Raises RuntimeError for a precision that PyTorch lacks on a CPU."""
    if name == "high":
        raise RuntimeError("precision 'high': PyTorch's float32 products on a CPU are exact or bf16")
    return torch.autocast(DEVICE, dtype=torch.bfloat16) if name == "bf16" else contextlib.nullcontext()


def make(model: str, cfg: W.Config) -> tuple[Any, Callable[..., Any]]:
    """First state and the training step."""
    module = module_of(model, cfg).train()
    optimiser = _optimiser(cfg, list(module.parameters()))
    loss_of = torch.compile(module) if cfg.get("compiled") else module

    def step(state: Any, batch: tuple[torch.Tensor, ...]) -> tuple[Any, torch.Tensor]:
        optimiser.zero_grad(set_to_none=True)
        with precise(cfg["precision"]):
            loss = loss_of(*batch)
        loss.backward()
        optimiser.step()
        return state, loss.detach()

    return (module, optimiser), step


def inference(model: str, cfg: W.Config) -> Callable[..., torch.Tensor]:
    """The function from a batch's inputs to what the trained model is asked for. bf16: of a module cast as a whole."""
    module = module_of(model, cfg).eval()
    kind = torch.bfloat16 if cfg["precision"] == "bf16" else torch.float32
    module.to(kind)
    infer = torch.compile(module.infer) if cfg.get("compiled") else module.infer

    def run(*inputs: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return infer(*[x.to(kind) if x.is_floating_point() else x for x in inputs]).float()

    return run


def _optimiser(cfg: W.Config, params: list[torch.Tensor]) -> torch.optim.Optimizer:
    if "betas" in cfg:
        return torch.optim.AdamW(
            params,
            lr=cfg["lr"],
            betas=tuple(cfg["betas"]),
            eps=cfg["eps"],
            weight_decay=cfg["weight_decay"],
            fused=True,
        )
    return torch.optim.SGD(params, lr=cfg["lr"], momentum=cfg.get("momentum", 0.0), fused=True)


def put(model: str, cfg: W.Config, arrays: tuple[np.ndarray, ...]) -> tuple[torch.Tensor, ...]:
    """A batch as tensors; integers become int64, which torch's losses ask for."""
    tensors = [torch.from_numpy(a.copy()) for a in arrays]
    if cfg.get("channels_last"):
        tensors = [t.to(memory_format=torch.channels_last) if t.ndim == 4 else t for t in tensors]
    return tuple(t.to(DEVICE, torch.int64 if not t.is_floating_point() else None) for t in tensors)


def wait(values: Any) -> Any:
    """The same values, once they are computed."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return values


def gradients(state: Any, cfg: W.Config) -> W.Arrays:
    """What the first step made of the gradients, by name: all the optimiser's memory of them after exactly one step."""
    module, optimiser = state
    slot = "exp_avg" if "betas" in cfg else "momentum_buffer"
    found = {n: optimiser.state[p].get(slot) for n, p in module.named_parameters()}
    return {n: t.float().cpu().numpy() for n, t in found.items() if t is not None}


def compiled(model: str, cfg: W.Config) -> tuple[dict[str, float], Any, Callable[..., Any], tuple[torch.Tensor, ...]]:
    """Seconds of the first step less the better of two later ones, with empty caches; then state, step, batch.

    torch compiles inside its first call. Without torch.compile nothing is compiled, and the seconds are empty. With
    BENCH_CACHE that folder keeps what is compiled.
    """
    with tempfile.TemporaryDirectory() as empty:
        kept = os.environ.get("BENCH_CACHE")
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = kept or empty
        if not kept:
            os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
        state, step = make(model, cfg)
        batch = put(model, cfg, W.batch(model, cfg))
        times = []
        for _ in range(3):
            start = time.perf_counter()
            state, loss = step(state, batch)
            wait(loss)
            times.append(time.perf_counter() - start)
    seconds = {"total_s": times[0] - min(times[1:])} if cfg.get("compiled") else {}
    return seconds, state, step, batch


def versions() -> dict[str, str]:
    """Versions, threads and the device of this side."""
    return {"torch": torch.__version__, "threads": str(torch.get_num_threads()), "device": DEVICE}
