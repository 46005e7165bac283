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

_SGD = {"lr": 2e-3, "momentum": 0.9}
_ADAMW = {"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01}
_GPT = {"family": "gpt", "heads": 4, "seq": 128, "batch": 8, "vocab": 1000, **_ADAMW}
_IMAGES = {"batch": 8, "image": 224, "classes": 1000, **_SGD}

# `lr` is small enough that float32 noise does not grow over the steps that are compared.
CONFIGS: dict[str, Config] = {
    "mlp": {"family": "mlp", "sizes": [784, 512, 512, 10], "batch": 128, "lr": 0.05, "momentum": 0.9},
    "lenet": {"family": "lenet", "batch": 128, "image": 28, "classes": 10, "lr": 0.01, "momentum": 0.9},
    "resnet18": {"family": "resnet", "blocks": [2, 2, 2, 2], "bottleneck": False, **_IMAGES},
    "resnet50": {"family": "resnet", "blocks": [3, 4, 6, 3], "bottleneck": True, **_IMAGES},
    # A 64x64 image keeps all 161 parameters of ResNet-50; only areas shrink.
    "resnet50_64": {"family": "resnet", "blocks": [3, 4, 6, 3], "bottleneck": True, **_IMAGES, "image": 64},
    "mobilenet_v2": {"family": "mobilenet", **_IMAGES},
    # The head is tied to the token table; weight decay acts on every parameter, norms and biases too.
    "gpt": {"layers": 4, "d": 256, **_GPT},
    "gpt24": {"layers": 24, "d": 256, **_GPT},
    "gpt_small": {"layers": 6, "d": 512, **_GPT, "heads": 8, "seq": 256, "batch": 4, "vocab": 8192},
    # BERT-base's width, heads, vocabulary; 2 of its 12 layers. `masked`: places of a sequence that are predicted.
    "bert": {"family": "bert", "layers": 2, "d": 768, "heads": 12, "seq": 128, "batch": 8, "vocab": 30522, "masked": 20}
    | _ADAMW,
    # The medium model of Zaremba et al. 2014, arXiv:1409.2329, without dropout.
    "lstm_lm": {"family": "lstm", "layers": 2, "d": 650, "seq": 35, "batch": 20, "vocab": 10000}
    | {"lr": 0.1, "momentum": 0.9},
    "dispatch": {"family": "dispatch", "parameters": 200, "width": 8, "lr": 1e-3},
    # For inference only.
    "minilm": {
        "family": "bert",
        "layers": 6,
        "d": 384,
        "heads": 12,
        "seq": 128,
        "batch": 8,
        "vocab": 30522,
        "masked": 0,
    }
    | _ADAMW,
}
PRECISIONS = ("f32", "bf16", "high")
BUFFERS = ("running_mean", "running_var")


def config(model: str, **changes: Any) -> Config:
    """The sizes of a model, some of them changed, and "precision", one of PRECISIONS, "f32" unless changed.

    Raises KeyError for a model or a size that does not exist.
    """
    cfg = {"precision": "f32", **CONFIGS[model]}
    for name, value in changes.items():
        if name not in cfg:
            raise KeyError(f"{model} has no size {name!r}; it has {', '.join(cfg)}")
        cfg[name] = value
    return cfg


def family(model: str) -> str:
    """The architecture behind a model's name: gpt24 is a gpt."""
    return str(CONFIGS[model]["family"])


def weights(model: str, cfg: Config, seed: int = 0) -> Arrays:
    """First weights and running statistics, float32, in the order of the layers."""
    return _WEIGHTS[family(model)](cfg, np.random.default_rng(seed))


def batch(model: str, cfg: Config, seed: int = 1) -> tuple[np.ndarray, ...]:
    """One batch: (x float32, labels int32), (tokens int32, next tokens int32), or nothing for `dispatch`.

    bert: (tokens, which of two sentences, masked places in the flattened batch, the tokens there), all int32.
    """
    rng, kind = np.random.default_rng(seed), family(model)
    if kind == "dispatch":
        return ()
    if kind in ("gpt", "lstm"):
        text = rng.integers(0, cfg["vocab"], (cfg["batch"], cfg["seq"] + 1)).astype(np.int32)
        return np.ascontiguousarray(text[:, :-1]), np.ascontiguousarray(text[:, 1:])
    if kind == "bert":
        return _sentences(cfg, rng)
    shape = (cfg["batch"], cfg["sizes"][0]) if kind == "mlp" else image_shape(model, cfg)
    classes = cfg["sizes"][-1] if kind == "mlp" else cfg["classes"]
    x = rng.standard_normal(shape, np.float32)
    if kind in ("resnet", "mobilenet"):  # noise on large patches: images that differ after averaging, as real ones do
        patches = rng.standard_normal((cfg["batch"], 3, 4, 4), np.float32)
        size = -(-cfg["image"] // 4)
        x = 0.5 * x + patches.repeat(size, 2).repeat(size, 3)[:, :, : cfg["image"], : cfg["image"]]
    return x, rng.integers(0, classes, cfg["batch"]).astype(np.int32)


def inputs(model: str, cfg: Config, seed: int = 1) -> tuple[np.ndarray, ...]:
    """The part of a batch that a trained model is given."""
    return batch(model, cfg, seed)[: 2 if family(model) == "bert" else 1]


def image_shape(model: str, cfg: Config) -> tuple[int, int, int, int]:
    """Shape of a batch of images."""
    return (cfg["batch"], 1 if family(model) == "lenet" else 3, cfg["image"], cfg["image"])


def _sentences(cfg: Config, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    n, seq = cfg["batch"], cfg["seq"]
    tokens = rng.integers(0, cfg["vocab"], (n, seq)).astype(np.int32)
    sentence = (np.arange(seq) >= rng.integers(1, seq, (n, 1))).astype(np.int32)
    places = np.stack([i * seq + np.sort(rng.choice(seq, cfg["masked"], replace=False)) for i in range(n)])
    labels = rng.integers(0, cfg["vocab"], places.size).astype(np.int32)
    return tokens, sentence, places.reshape(-1).astype(np.int32), labels


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


def _conv(out: Arrays, name: str, n_in: int, n_out: int, kernel: int, rng: np.random.Generator, fan: int = 0) -> None:
    std = (2 / (fan or n_out * kernel * kernel)) ** 0.5  # He, fan out
    out[f"{name}.weight"] = rng.standard_normal((n_out, n_in, kernel, kernel), np.float32) * np.float32(std)


def _batch_norm(out: Arrays, name: str, n: int, gain: float = 1.0) -> None:
    for part, value in (("weight", gain), ("bias", 0), ("running_mean", 0), ("running_var", 1)):
        out[f"{name}.{part}"] = np.full(n, value, np.float32)


def resnet_blocks(cfg: Config) -> list[tuple[str, int, int, int, bool]]:
    """Every block as (name, channels in, inner width, stride, has a downsampling path); out: `resnet_out` channels."""
    rows, n_in = [], 64
    for stage, count in enumerate(cfg["blocks"]):
        width = 64 * 2**stage
        for i in range(count):
            stride = 2 if stage and i == 0 else 1
            n_out = resnet_out(cfg, width)
            rows.append((f"layer{stage + 1}.{i}", n_in, width, stride, stride > 1 or n_in != n_out))
            n_in = n_out
    return rows


def resnet_out(cfg: Config, width: int) -> int:
    """Channels that leave a block of inner width `width`."""
    return 4 * width if cfg["bottleneck"] else width


def _resnet(cfg: Config, rng: np.random.Generator) -> Arrays:
    out: Arrays = {}
    _conv(out, "conv1", 3, 64, 7, rng)
    _batch_norm(out, "bn1", 64)
    for name, n_in, width, _, down in resnet_blocks(cfg):
        n_out = resnet_out(cfg, width)
        sizes = [(n_in, width, 3), (width, width, 3)]
        if cfg["bottleneck"]:
            sizes = [(n_in, width, 1), (width, width, 3), (width, n_out, 1)]
        for i, (a, b, kernel) in enumerate(sizes, 1):
            _conv(out, f"{name}.conv{i}", a, b, kernel, rng)
            # With gain 1 float32 gradients are 1 % off float64's in every framework (8 images, random weights) and
            # losses part after two steps; a small gain on each residual branch keeps the error below 0.2 %.
            _batch_norm(out, f"{name}.bn{i}", b, 0.1 if i == len(sizes) else 1.0)
        if down:
            _conv(out, f"{name}.downsample.0", n_in, n_out, 1, rng)
            _batch_norm(out, f"{name}.downsample.1", n_out)
    _linear(out, "fc", resnet_out(cfg, 64 * 2 ** (len(cfg["blocks"]) - 1)), cfg["classes"], rng)
    return out


# Expansion, channels out, repeats, first stride. Source: Sandler et al. 2018, arXiv:1801.04381, table 2.
_INVERTED = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)
)  # fmt: skip


def mobilenet_blocks() -> list[tuple[str, int, int, int, int]]:
    """Every inverted residual as (name, channels in, expanded channels, channels out, stride)."""
    rows, n_in = [], 32
    for expansion, n_out, count, first in _INVERTED:
        for i in range(count):
            rows.append((f"block{len(rows)}", n_in, expansion * n_in, n_out, first if i == 0 else 1))
            n_in = n_out
    return rows


def _mobilenet(cfg: Config, rng: np.random.Generator) -> Arrays:
    out: Arrays = {}
    _conv(out, "stem", 3, 32, 3, rng)
    _batch_norm(out, "stem_bn", 32)
    for name, n_in, wide, n_out, stride in mobilenet_blocks():
        if wide != n_in:
            _conv(out, f"{name}.expand", n_in, wide, 1, rng)
            _batch_norm(out, f"{name}.expand_bn", wide)
        _conv(out, f"{name}.depth", 1, wide, 3, rng, fan=9)
        _batch_norm(out, f"{name}.depth_bn", wide)
        _conv(out, f"{name}.project", wide, n_out, 1, rng)
        _batch_norm(out, f"{name}.project_bn", n_out, 0.1 if stride == 1 and n_in == n_out else 1.0)  # as in ResNet
    _conv(out, "head", 320, 1280, 1, rng)
    _batch_norm(out, "head_bn", 1280)
    _linear(out, "fc", 1280, cfg["classes"], rng)
    return out


def _lenet(cfg: Config, rng: np.random.Generator) -> Arrays:
    out: Arrays = {}
    for name, n_in, n_out in (("conv1", 1, 6), ("conv2", 6, 16)):
        _conv(out, name, n_in, n_out, 5, rng)
        out[f"{name}.bias"] = np.zeros(n_out, np.float32)
    side = (cfg["image"] // 2 - 4) // 2
    for name, n_in, n_out in (("fc1", 16 * side * side, 120), ("fc2", 120, 84), ("fc3", 84, cfg["classes"])):
        _linear(out, name, n_in, n_out, rng)
    return out


class _Transformer:
    """Collects the tables, norms and linear layers of width d of a transformer, all from a normal of deviation 0.02."""

    def __init__(self, d: int, rng: np.random.Generator):
        self.d, self.rng, self.out = d, rng, {}

    def table(self, name: str, *shape: int) -> None:
        self.out[name] = self.rng.standard_normal(shape, np.float32) * np.float32(0.02)

    def norm(self, name: str) -> None:
        self.out[f"{name}.weight"], self.out[f"{name}.bias"] = np.ones(self.d, np.float32), np.zeros(self.d, np.float32)

    def linear(self, name: str, n_in: int, n_out: int) -> None:
        self.table(f"{name}.weight", n_out, n_in)
        self.out[f"{name}.bias"] = np.zeros(n_out, np.float32)

    def blocks(self, count: int) -> None:
        d = self.d
        for i in range(count):
            self.norm(f"blocks.{i}.ln1")
            self.linear(f"blocks.{i}.qkv", d, 3 * d)
            self.linear(f"blocks.{i}.out", d, d)
            self.norm(f"blocks.{i}.ln2")
            self.linear(f"blocks.{i}.up", d, 4 * d)
            self.linear(f"blocks.{i}.down", 4 * d, d)


def _gpt(cfg: Config, rng: np.random.Generator) -> Arrays:
    net = _Transformer(cfg["d"], rng)
    net.table("tok.weight", cfg["vocab"], cfg["d"])
    net.table("pos.weight", cfg["seq"], cfg["d"])
    net.blocks(cfg["layers"])
    net.norm("ln_f")
    return net.out


def _bert(cfg: Config, rng: np.random.Generator) -> Arrays:
    d = cfg["d"]
    net = _Transformer(d, rng)
    for name, rows in (("tok", cfg["vocab"]), ("pos", cfg["seq"]), ("sentence", 2)):
        net.table(f"{name}.weight", rows, d)
    net.norm("ln")
    net.blocks(cfg["layers"])
    if cfg["masked"]:  # the head that guesses masked tokens; its last matrix is the token table
        net.linear("head", d, d)
        net.norm("head_ln")
        net.out["head_bias"] = np.zeros(cfg["vocab"], np.float32)
    return net.out


def _lstm(cfg: Config, rng: np.random.Generator) -> Arrays:
    d = cfg["d"]
    bound = d**-0.5
    out: Arrays = {"tok.weight": rng.uniform(-0.1, 0.1, (cfg["vocab"], d)).astype(np.float32)}
    for i in range(cfg["layers"]):
        for name, shape in (
            ("weight_ih", (4 * d, d)),
            ("weight_hh", (4 * d, d)),
            ("bias_ih", 4 * d),
            ("bias_hh", 4 * d),
        ):
            out[f"lstm.{name}_l{i}"] = rng.uniform(-bound, bound, shape).astype(np.float32)
    _linear(out, "head", d, cfg["vocab"], rng)
    return out


def _dispatch(cfg: Config, rng: np.random.Generator) -> Arrays:
    return {f"p{i}": rng.standard_normal(cfg["width"], np.float32) for i in range(cfg["parameters"])}


_WEIGHTS = {
    "mlp": _mlp,
    "lenet": _lenet,
    "resnet": _resnet,
    "mobilenet": _mobilenet,
    "gpt": _gpt,
    "bert": _bert,
    "lstm": _lstm,
    "dispatch": _dispatch,
}
MINDSPORE = ("mlp", "lenet", "resnet", "lstm")  # families that are written for MindSpore too
