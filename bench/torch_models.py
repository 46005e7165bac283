"""The bench's models in PyTorch: `make` gives (state, step), step(state, batch) -> (state, loss).

Config option `compiled`: torch.compile for the loss function (backward included); the optimisers are torch's fused
ones either way. State is the pair (module, optimiser), changed in place.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import weights as W
from torch import nn

DEVICE = "cuda" if os.environ.get("BENCH_DEVICE") == "gpu" else "cpu"


class MLP(nn.Module):
    """Linear layers with ReLU between. x: float[batch, in] -> mean cross entropy, a scalar."""

    def __init__(self, cfg: W.Config):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(cfg["sizes"], cfg["sizes"][1:]))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return F.cross_entropy(self.layers[-1](x), labels)


class Bottleneck(nn.Module):
    """1x1, 3x3 (which carries the stride), 1x1 convolutions with batch norms, and the way around them."""

    def __init__(self, n_in: int, width: int, stride: int, down: bool):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(n_in, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.downsample = None
        if down:
            self.downsample = nn.Sequential(
                nn.Conv2d(n_in, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn3(self.conv3(F.relu(self.bn2(self.conv2(y)))))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet50(nn.Module):
    """x: float[batch, 3, h, w], labels: int[batch] -> mean cross entropy, a scalar."""

    def __init__(self, cfg: W.Config):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        rows = W.resnet_blocks(cfg)
        for stage in sorted({name.split(".")[0] for name, *_ in rows}):
            blocks = [Bottleneck(*sizes) for name, *sizes in rows if name.startswith(stage + ".")]
            setattr(self, stage, nn.Sequential(*blocks))
        self.stages = [name for name, _ in self.named_children() if name.startswith("layer")]
        self.fc = nn.Linear(4 * rows[-1][2], cfg["classes"])

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        for name in self.stages:
            x = getattr(self, name)(x)
        return F.cross_entropy(self.fc(x.mean((2, 3))), labels)


class Block(nn.Module):
    """Pre-norm transformer block. x: float[batch, seq, d] -> the same."""

    def __init__(self, d: int, heads: int):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d)
        x = x + self.out(mixed)
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class GPT(nn.Module):
    """tokens, labels: int[batch, seq] -> mean cross entropy, a scalar. The head is the token table."""

    def __init__(self, cfg: W.Config):
        super().__init__()
        self.tok, self.pos = nn.Embedding(cfg["vocab"], cfg["d"]), nn.Embedding(cfg["seq"], cfg["d"])
        self.blocks = nn.ModuleList(Block(cfg["d"], cfg["heads"]) for _ in range(cfg["layers"]))
        self.ln_f = nn.LayerNorm(cfg["d"])

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.tok(tokens) + self.pos.weight
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.tok.weight)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


class Dispatch(nn.Module):
    """Many small parameters; the loss is the sum of their squares."""

    def __init__(self, cfg: W.Config):
        super().__init__()
        for i in range(cfg["parameters"]):
            self.register_parameter(f"p{i}", nn.Parameter(torch.zeros(cfg["width"])))

    def forward(self) -> torch.Tensor:
        return sum((p * p).sum() for p in self.parameters())  # type: ignore[return-value]


MODULES = {"mlp": MLP, "resnet50": ResNet50, "gpt": GPT, "dispatch": Dispatch}


def make(model: str, cfg: W.Config) -> tuple[Any, Callable[..., Any]]:
    """First state and the training step. Raises RuntimeError when a weight has no place in the module."""
    module = MODULES[W.family(model)](cfg)
    arrays = {n: torch.from_numpy(a.copy()) for n, a in W.weights(model, cfg).items()}
    missing, unexpected = module.load_state_dict(arrays, strict=False)
    left = [n for n in missing if not n.endswith("num_batches_tracked")]
    if left or unexpected:
        raise RuntimeError(f"weights without a place: {unexpected}; places without weights: {left}")
    module.to(DEVICE).train()
    optimiser = _optimiser(model, cfg, list(module.parameters()))
    loss_of = torch.compile(module) if cfg.get("compiled") else module

    def step(state: Any, batch: tuple[torch.Tensor, ...]) -> tuple[Any, torch.Tensor]:
        optimiser.zero_grad(set_to_none=True)
        loss = loss_of(*batch)
        loss.backward()
        optimiser.step()
        return state, loss.detach()

    return (module, optimiser), step


def _optimiser(model: str, cfg: W.Config, params: list[torch.Tensor]) -> torch.optim.Optimizer:
    if W.family(model) == "gpt":
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
    tensors = (torch.from_numpy(a.copy()) for a in arrays)
    return tuple(t.to(DEVICE, torch.int64 if not t.is_floating_point() else None) for t in tensors)


def wait(values: Any) -> Any:
    """The same values, once they are computed."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return values


def compiled(model: str, cfg: W.Config) -> tuple[dict[str, float], Any, Callable[..., Any], tuple[torch.Tensor, ...]]:
    """Seconds of the first step less the better of two later ones, with empty caches; then state, step, batch.

    torch compiles inside its first call. Without torch.compile nothing is compiled, and the seconds are empty.
    """
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
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
