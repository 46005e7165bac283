"""The bench's models in Treadle: `make` gives (state, step), step(state, batch) -> (state, loss).

State is the pair (cell, optimiser), changed in place by the compiled step; weights come from weights.py by name.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import weights as W

import treadle as td
from treadle import nn
from treadle.api.programs import Program
from treadle.nn import functional as F
from treadle.runtime import pjrt


class MLP(nn.Cell):
    """Linear layers with ReLU between. x: float[batch, in] -> mean cross entropy, a scalar."""

    def __init__(self, cfg: W.Config):
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in zip(cfg["sizes"], cfg["sizes"][1:])])

    def forward(self, x: td.Tensor, labels: td.Tensor) -> td.Tensor:
        layers = list(self.layers)
        for layer in layers[:-1]:
            x = F.relu(layer(x))
        return F.cross_entropy(layers[-1](x), labels)


class Bottleneck(nn.Cell):
    """1x1, 3x3 (which carries the stride), 1x1 convolutions with batch norms, and the way around them."""

    def __init__(self, n_in: int, width: int, stride: int, down: bool):
        self.conv1, self.bn1 = nn.Conv2d(n_in, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.downsample = None
        if down:
            self.downsample = nn.Sequential(
                nn.Conv2d(n_in, 4 * width, 1, stride=stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x: td.Tensor) -> td.Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn3(self.conv3(F.relu(self.bn2(self.conv2(y)))))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet50(nn.Cell):
    """x: float[batch, 3, h, w], labels: int[batch] -> mean cross entropy, a scalar."""

    def __init__(self, cfg: W.Config):
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        rows = W.resnet_blocks(cfg)
        self.stages = sorted({name.split(".")[0] for name, *_ in rows})
        for stage in self.stages:
            blocks = [Bottleneck(*sizes) for name, *sizes in rows if name.startswith(stage + ".")]
            setattr(self, stage, nn.Sequential(*blocks))
        self.fc = nn.Linear(4 * rows[-1][2], cfg["classes"])

    def forward(self, x: td.Tensor, labels: td.Tensor) -> td.Tensor:
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, stride=2, padding=1)
        for name in self.stages:
            x = getattr(self, name)(x)
        return F.cross_entropy(self.fc(x.mean(axis=(2, 3))), labels)


class Block(nn.Cell):
    """Pre-norm transformer block. x: float[batch, seq, d] -> the same."""

    def __init__(self, d: int, heads: int):
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x: td.Tensor) -> td.Tensor:
        b, t, d = x.shape
        qkv = self.qkv(self.ln1(x)).reshape(b, t, 3, self.heads, d // self.heads).transpose(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], is_causal=True)
        x = x + self.out(mixed.transpose(0, 2, 1, 3).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class GPT(nn.Cell):
    """tokens, labels: int[batch, seq] -> mean cross entropy, a scalar. The head is the token table."""

    def __init__(self, cfg: W.Config):
        self.tok, self.pos = nn.Embedding(cfg["vocab"], cfg["d"]), nn.Embedding(cfg["seq"], cfg["d"])
        self.blocks = nn.ModuleList([Block(cfg["d"], cfg["heads"]) for _ in range(cfg["layers"])])
        self.ln_f = nn.LayerNorm(cfg["d"])

    def forward(self, tokens: td.Tensor, labels: td.Tensor) -> td.Tensor:
        x = self.tok(tokens) + self.pos.weight
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.tok.weight)
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))


class Dispatch(nn.Cell):
    """Many small parameters; the loss is the sum of their squares."""

    def __init__(self, cfg: W.Config):
        for i in range(cfg["parameters"]):
            setattr(self, f"p{i}", td.Parameter(np.zeros(cfg["width"], np.float32)))

    def forward(self) -> td.Tensor:
        loss = 0.0
        for p in self.parameters():
            loss = loss + (p * p).sum()
        return loss


CELLS = {"mlp": MLP, "resnet50": ResNet50, "gpt": GPT, "dispatch": Dispatch}


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
    net = CELLS[W.family(model)](cfg)
    _load(net, W.weights(model, cfg))
    net.train()
    params = list(net.parameters())
    if W.family(model) == "gpt":
        optimiser = td.optim.AdamW(
            params, lr=cfg["lr"], betas=tuple(cfg["betas"]), eps=cfg["eps"], weight_decay=cfg["weight_decay"]
        )
    else:
        optimiser = td.optim.SGD(params, lr=cfg["lr"], momentum=cfg.get("momentum", 0.0))

    def train(*batch: td.Tensor) -> td.Tensor:
        loss, grads = td.value_and_grad(lambda: net(*batch), params)()
        optimiser.step(grads)
        return loss

    return (net, optimiser), train


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


def compiled(model: str, cfg: W.Config) -> tuple[dict[str, float], Any, Callable[..., Any], tuple[td.Tensor, ...]]:
    """Seconds from the Python step to an executable; then state, the step that runs it, batch.

    `front_s`: tracing, differentiating, optimising, lowering; `backend_s`: XLA; `cpu_s`: of all cores. Treadle's
    device is up, holds the weights and has compiled a small program before, as with JAX. Runs with TREADLE_CACHE=0
    (train_steps.py sets it): otherwise the disk would answer.
    """
    state, train = _made(model, cfg)
    td.jit(lambda x: x + 1)(td.Tensor(np.zeros(2, np.float32)))
    batch = put(model, cfg, W.batch(model, cfg))
    start, busy = time.perf_counter(), time.process_time()
    program = Program("train", train, batch, {})
    total, busy = time.perf_counter() - start, time.process_time() - busy
    if program.executable.from_cache:
        raise RuntimeError("the program came from the cache on disk: set TREADLE_CACHE=0")
    backend = program.executable.compile_seconds

    def step(state: Any, batch: tuple[td.Tensor, ...]) -> tuple[Any, td.Tensor]:
        return state, program(batch)

    return {"front_s": total - backend, "backend_s": backend, "total_s": total, "cpu_s": busy}, state, step, batch


def versions() -> dict[str, str]:
    """Versions of this side."""
    import jaxlib

    return {"treadle": td.__version__, "jaxlib": jaxlib.__version__}
