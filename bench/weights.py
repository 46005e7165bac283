"""The bench's models as numbers: sizes, first weights, one batch, so that every side starts from the same arrays.

`config(model)` gives the sizes; `weights(model, cfg)` a dict name -> float32 array under PyTorch's names and layouts
(linear [out, in], convolution OIHW, running_mean/running_var among them); `batch(model, cfg)` the arrays of one batch.
Everything comes from a seed; nothing is read from disk.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Config = dict[str, Any]
Arrays = dict[str, np.ndarray]

# `k`: steps in one timed block; `lr` small enough that float32 noise does not grow over the steps that are compared.
CONFIGS: dict[str, Config] = {
    "mlp": {"sizes": [784, 512, 512, 10], "batch": 128, "lr": 0.05, "momentum": 0.9, "k": 50},
    # Scaled down from batch 32 or more at 224x224: a 64x64 image keeps all 161 parameters; only areas shrink.
    "resnet50": {"blocks": [3, 4, 6, 3], "batch": 8, "image": 64, "classes": 1000, "lr": 2e-3, "momentum": 0.9, "k": 2},
    # The head is tied to the token table; weight decay acts on every parameter, norms and biases too.
    "gpt": {
        "layers": 4,
        "d": 256,
        "heads": 4,
        "seq": 128,
        "batch": 8,
        "vocab": 1000,
        "lr": 1e-3,
        "betas": [0.9, 0.999],
        "eps": 1e-8,
        "weight_decay": 0.01,
        "k": 3,
    },
    "dispatch": {"parameters": 200, "width": 8, "lr": 1e-3, "k": 500},
}
CONFIGS["gpt24"] = {**CONFIGS["gpt"], "layers": 24, "k": 1}
BUFFERS = ("running_mean", "running_var")


def config(model: str, **changes: Any) -> Config:
    """The sizes of a model, some of them changed. Raises KeyError for a model or a size that does not exist."""
    cfg = dict(CONFIGS[model])
    for name, value in changes.items():
        if name not in cfg:
            raise KeyError(f"{model} has no size {name!r}; it has {', '.join(cfg)}")
        cfg[name] = value
    return cfg


def family(model: str) -> str:
    """The architecture behind a model's name: gpt24 is a gpt."""
    return "gpt" if model.startswith("gpt") else model


def weights(model: str, cfg: Config, seed: int = 0) -> Arrays:
    """First weights and running statistics, float32, in the order of the layers."""
    return _WEIGHTS[family(model)](cfg, np.random.default_rng(seed))


def batch(model: str, cfg: Config, seed: int = 1) -> tuple[np.ndarray, ...]:
    """One batch: (x float32, labels int32), (tokens int32, next tokens int32), or nothing for `dispatch`."""
    rng, kind = np.random.default_rng(seed), family(model)
    if kind == "dispatch":
        return ()
    if kind == "gpt":
        text = rng.integers(0, cfg["vocab"], (cfg["batch"], cfg["seq"] + 1)).astype(np.int32)
        return np.ascontiguousarray(text[:, :-1]), np.ascontiguousarray(text[:, 1:])
    shape = (cfg["batch"], cfg["sizes"][0]) if kind == "mlp" else (cfg["batch"], 3, cfg["image"], cfg["image"])
    classes = cfg["sizes"][-1] if kind == "mlp" else cfg["classes"]
    x = rng.standard_normal(shape, np.float32)
    if kind == "resnet50":  # noise on large patches: images that differ after averaging, as real ones do
        patches = rng.standard_normal((cfg["batch"], 3, 4, 4), np.float32)
        size = -(-cfg["image"] // 4)
        x = 0.5 * x + patches.repeat(size, 2).repeat(size, 3)[:, :, : cfg["image"], : cfg["image"]]
    return x, rng.integers(0, classes, cfg["batch"]).astype(np.int32)


def is_buffer(name: str) -> bool:
    """Whether the array is a running statistic, which the step updates but the optimiser does not."""
    return name.endswith(BUFFERS)


def _linear(out: Arrays, name: str, n_in: int, n_out: int, rng: np.random.Generator) -> None:
    bound = n_in**-0.5
    out[f"{name}.weight"] = rng.uniform(-bound, bound, (n_out, n_in)).astype(np.float32)
    out[f"{name}.bias"] = rng.uniform(-bound, bound, n_out).astype(np.float32)


def _mlp(cfg: Config, rng: np.random.Generator) -> Arrays:
    out: Arrays = {}
    for i, (n_in, n_out) in enumerate(zip(cfg["sizes"], cfg["sizes"][1:])):
        _linear(out, f"layers.{i}", n_in, n_out, rng)
    return out


def _conv(out: Arrays, name: str, n_in: int, n_out: int, kernel: int, rng: np.random.Generator) -> None:
    std = (2 / (n_out * kernel * kernel)) ** 0.5  # He, fan out
    out[f"{name}.weight"] = rng.standard_normal((n_out, n_in, kernel, kernel), np.float32) * np.float32(std)


def _batch_norm(out: Arrays, name: str, n: int, gain: float = 1.0) -> None:
    for part, value in (("weight", gain), ("bias", 0), ("running_mean", 0), ("running_var", 1)):
        out[f"{name}.{part}"] = np.full(n, value, np.float32)


def resnet_blocks(cfg: Config) -> list[tuple[str, int, int, int, bool]]:
    """Every bottleneck as (name, channels in, inner width, stride, has a downsampling path); channels out = 4 width."""
    rows, n_in = [], 64
    for stage, count in enumerate(cfg["blocks"]):
        width = 64 * 2**stage
        for i in range(count):
            stride = 2 if stage and i == 0 else 1
            rows.append((f"layer{stage + 1}.{i}", n_in, width, stride, i == 0))
            n_in = 4 * width
    return rows


def _resnet50(cfg: Config, rng: np.random.Generator) -> Arrays:
    out: Arrays = {}
    _conv(out, "conv1", 3, 64, 7, rng)
    _batch_norm(out, "bn1", 64)
    for name, n_in, width, _, down in resnet_blocks(cfg):
        sizes = [(n_in, width, 1), (width, width, 3), (width, 4 * width, 1)]
        for i, (a, b, kernel) in enumerate(sizes, 1):
            _conv(out, f"{name}.conv{i}", a, b, kernel, rng)
            # With gain 1 float32 gradients are 1 % off float64's in every framework (8 images, random weights) and
            # losses part after two steps; a small gain on each residual branch keeps the error below 0.2 %.
            _batch_norm(out, f"{name}.bn{i}", b, 0.1 if i == 3 else 1.0)
        if down:
            _conv(out, f"{name}.downsample.0", n_in, 4 * width, 1, rng)
            _batch_norm(out, f"{name}.downsample.1", 4 * width)
    _linear(out, "fc", 256 * 2 ** len(cfg["blocks"]) // 2, cfg["classes"], rng)
    return out


def _gpt(cfg: Config, rng: np.random.Generator) -> Arrays:
    out: Arrays = {}
    d = cfg["d"]

    def table(name: str, *shape: int) -> None:
        out[name] = rng.standard_normal(shape, np.float32) * np.float32(0.02)

    def norm(name: str) -> None:
        out[f"{name}.weight"], out[f"{name}.bias"] = np.ones(d, np.float32), np.zeros(d, np.float32)

    def linear(name: str, n_in: int, n_out: int) -> None:
        table(f"{name}.weight", n_out, n_in)
        out[f"{name}.bias"] = np.zeros(n_out, np.float32)

    table("tok.weight", cfg["vocab"], d)
    table("pos.weight", cfg["seq"], d)
    for i in range(cfg["layers"]):
        norm(f"blocks.{i}.ln1")
        linear(f"blocks.{i}.qkv", d, 3 * d)
        linear(f"blocks.{i}.out", d, d)
        norm(f"blocks.{i}.ln2")
        linear(f"blocks.{i}.up", d, 4 * d)
        linear(f"blocks.{i}.down", 4 * d, d)
    norm("ln_f")
    return out


def _dispatch(cfg: Config, rng: np.random.Generator) -> Arrays:
    return {f"p{i}": rng.standard_normal(cfg["width"], np.float32) for i in range(cfg["parameters"])}


_WEIGHTS = {"mlp": _mlp, "resnet50": _resnet50, "gpt": _gpt, "dispatch": _dispatch}
