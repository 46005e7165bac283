"""The bench's models as pure JAX functions over a `Net`: LOSS[family](net, *batch) -> the mean cross entropy, a scalar.

INFER[family](net, *inputs) gives what a user of the trained model asks for: logits, or the pooled text of an encoder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import weights as W
from jax import lax


class Net:
    """Layers over a dict of parameters. Precision bf16: products on bfloat16 operands, the rest in float32.

    Convolutions and batch norms follow the config's `layout`; `new` collects the new running statistics.
    """

    def __init__(self, p: Any, buffers: Any, cfg: W.Config, training: bool):
        self.p, self.buffers, self.new, self.cfg, self.training = p, buffers, {}, cfg, training
        self.layout = cfg.get("layout", "NCHW")
        if cfg["precision"] not in ("f32", "bf16"):
            raise RuntimeError(f"precision {cfg['precision']!r}: not on JAX's side, where it means nothing on a CPU")
        self.compute = jnp.bfloat16 if cfg["precision"] == "bf16" else jnp.float32
        self.kernel = "OIHW" if self.layout == "NCHW" else "HWIO"
        self.axes = (0, 2, 3) if self.layout == "NCHW" else (0, 1, 2)

    def linear(self, name: str, x: jax.Array) -> jax.Array:
        return self.product(x, self.p[f"{name}.weight"]) + self.p[f"{name}.bias"].astype(self.compute)

    def product(self, x: jax.Array, weight: jax.Array) -> jax.Array:
        """x @ weight.T in the precision of products."""
        return x.astype(self.compute) @ weight.astype(self.compute).T

    def conv(self, name: str, x: jax.Array, stride: int = 1, pad: int = 0, groups: int = 1) -> jax.Array:
        spec, weight = (self.layout, self.kernel, self.layout), self.p[f"{name}.weight"].astype(self.compute)
        return lax.conv_general_dilated(
            x.astype(self.compute), weight, (stride,) * 2, [(pad, pad)] * 2,
            dimension_numbers=spec, feature_group_count=groups,
        )  # fmt: skip

    def norm(self, name: str, x: jax.Array) -> jax.Array:
        """Normalised by the batch's biased variance; the running one takes the unbiased, as PyTorch does."""
        given, x = x.dtype, x.astype(jnp.float32)
        mean, var = (self.buffers[f"{name}.{part}"] for part in ("running_mean", "running_var"))
        if self.training:
            old_mean, old_var = mean, var
            mean, var = jnp.mean(x, self.axes), jnp.var(x, self.axes)
            n = x.size // mean.size
            for part, old, value in (("mean", old_mean, mean), ("var", old_var, var * (n / (n - 1)))):
                self.new[f"{name}.running_{part}"] = 0.9 * old + 0.1 * lax.stop_gradient(value)
        scale = self.p[f"{name}.weight"] * lax.rsqrt(var + 1e-5)
        shift = self.p[f"{name}.bias"] - mean * scale
        shape = (1, -1, 1, 1) if self.layout == "NCHW" else (1, 1, 1, -1)
        return (x * scale.reshape(shape) + shift.reshape(shape)).astype(given)

    def pool(self, x: jax.Array, size: int, stride: int, pad: int) -> jax.Array:
        """Largest element of each window."""
        spatial = {2, 3} if self.layout == "NCHW" else {1, 2}
        dims, strides, pads = zip(*[(size, stride, (pad, pad)) if i in spatial else (1, 1, (0, 0)) for i in range(4)])
        return lax.reduce_window(x, -jnp.inf, lax.max, dims, strides, pads)

    def layer_norm(self, name: str, x: jax.Array) -> jax.Array:
        x = x.astype(jnp.float32)
        mean, var = jnp.mean(x, -1, keepdims=True), jnp.var(x, -1, keepdims=True)
        return (x - mean) * lax.rsqrt(var + 1e-5) * self.p[f"{name}.weight"] + self.p[f"{name}.bias"]

    def attention(self, name: str, x: jax.Array, causal: bool) -> jax.Array:
        (b, t, d), heads = x.shape, self.cfg["heads"]
        q, k, v = jnp.split(self.linear(f"{name}.qkv", x).reshape(b, t, 3 * heads, d // heads), 3, axis=2)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) * (d // heads) ** -0.5
        if causal:
            scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -jnp.inf)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores).astype(self.compute), v)
        return self.linear(f"{name}.out", mixed.reshape(b, t, d))

    def feed(self, name: str, x: jax.Array, tanh: bool) -> jax.Array:
        return self.linear(f"{name}.down", jax.nn.gelu(self.linear(f"{name}.up", x), approximate=tanh))


def _cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    logp = jax.nn.log_softmax(logits.astype(jnp.float32))
    return -jnp.mean(jnp.take_along_axis(logp, labels[..., None], axis=-1))


def _mlp(net: Net, x: jax.Array) -> jax.Array:
    last = len(net.cfg["sizes"]) - 2
    for i in range(last):
        x = jax.nn.relu(net.linear(f"layers.{i}", x))
    return net.linear(f"layers.{last}", x)


def _lenet(net: Net, x: jax.Array) -> jax.Array:
    for name, pad in (("conv1", 2), ("conv2", 0)):
        bias = net.p[f"{name}.bias"].reshape((1, -1, 1, 1) if net.layout == "NCHW" else (1, 1, 1, -1))
        x = net.pool(jax.nn.relu(net.conv(name, x, 1, pad) + bias.astype(net.compute)), 2, 2, 0)
    if net.layout == "NHWC":
        x = x.transpose(0, 3, 1, 2)
    x = x.reshape(x.shape[0], -1)
    return net.linear("fc3", jax.nn.relu(net.linear("fc2", jax.nn.relu(net.linear("fc1", x)))))


def _resnet(net: Net, x: jax.Array) -> jax.Array:
    x = net.pool(jax.nn.relu(net.norm("bn1", net.conv("conv1", x, 2, 3))), 3, 2, 1)
    for name, _, _, stride, down in W.resnet_blocks(net.cfg):
        steps = [(1, stride, 1), (2, 1, 1)]
        if net.cfg["bottleneck"]:
            steps = [(1, 1, 0), (2, stride, 1), (3, 1, 0)]
        y = x
        for i, step, pad in steps:
            y = net.norm(f"{name}.bn{i}", net.conv(f"{name}.conv{i}", y, step, pad))
            y = jax.nn.relu(y) if i < len(steps) else y
        if down:
            x = net.norm(f"{name}.downsample.1", net.conv(f"{name}.downsample.0", x, stride))
        x = jax.nn.relu(x + y)
    return net.linear("fc", jnp.mean(x, net.axes[1:]))


def _mobilenet(net: Net, x: jax.Array) -> jax.Array:
    x = jax.nn.relu6(net.norm("stem_bn", net.conv("stem", x, 2, 1)))
    for name, n_in, wide, n_out, stride in W.mobilenet_blocks():
        y = x if wide == n_in else jax.nn.relu6(net.norm(f"{name}.expand_bn", net.conv(f"{name}.expand", x)))
        y = jax.nn.relu6(net.norm(f"{name}.depth_bn", net.conv(f"{name}.depth", y, stride, 1, wide)))
        y = net.norm(f"{name}.project_bn", net.conv(f"{name}.project", y))
        x = x + y if stride == 1 and n_in == n_out else y
    return net.linear("fc", jnp.mean(jax.nn.relu6(net.norm("head_bn", net.conv("head", x))), net.axes[1:]))


def _gpt_hidden(net: Net, tokens: jax.Array) -> jax.Array:
    x = net.p["tok.weight"][tokens] + net.p["pos.weight"]
    for i in range(net.cfg["layers"]):
        name = f"blocks.{i}"
        x = x + net.attention(name, net.layer_norm(f"{name}.ln1", x), True)
        x = x + net.feed(name, net.layer_norm(f"{name}.ln2", x), True)
    return net.layer_norm("ln_f", x)


def _gpt(net: Net, tokens: jax.Array) -> jax.Array:
    return net.product(_gpt_hidden(net, tokens)[:, -1], net.p["tok.weight"])


def _gpt_loss(net: Net, tokens: jax.Array, labels: jax.Array) -> jax.Array:
    return _cross_entropy(net.product(_gpt_hidden(net, tokens), net.p["tok.weight"]), labels)


def _bert_hidden(net: Net, tokens: jax.Array, sentence: jax.Array) -> jax.Array:
    x = net.p["tok.weight"][tokens] + net.p["pos.weight"] + net.p["sentence.weight"][sentence]
    x = net.layer_norm("ln", x)
    for i in range(net.cfg["layers"]):
        name = f"blocks.{i}"
        x = net.layer_norm(f"{name}.ln1", x + net.attention(name, x, False))
        x = net.layer_norm(f"{name}.ln2", x + net.feed(name, x, False))
    return x


def _bert(net: Net, tokens: jax.Array, sentence: jax.Array) -> jax.Array:
    return jnp.mean(_bert_hidden(net, tokens, sentence), 1)


def _bert_loss(net: Net, tokens: jax.Array, sentence: jax.Array, places: jax.Array, labels: jax.Array) -> jax.Array:
    x = _bert_hidden(net, tokens, sentence)
    x = x.reshape(-1, x.shape[-1])[places]
    x = net.layer_norm("head_ln", jax.nn.gelu(net.linear("head", x), approximate=False))
    return _cross_entropy(net.product(x, net.p["tok.weight"]) + net.p["head_bias"].astype(net.compute), labels)


def _lstm_loss(net: Net, tokens: jax.Array, labels: jax.Array) -> jax.Array:
    """All inputs of a layer meet its weights in one product; the recurrent one is in the scan. Gates: i, f, g, o."""
    xs = net.p["tok.weight"][tokens.T]
    zero = jnp.zeros(xs.shape[1:], jnp.float32)
    for i in range(net.cfg["layers"]):
        w_ih, w_hh, b_ih, b_hh = (net.p[f"lstm.{n}_l{i}"] for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
        inputs = net.product(xs, w_ih) + (b_ih + b_hh)

        def body(carry: Any, x: jax.Array, w_hh: jax.Array = w_hh) -> Any:
            h, c = carry
            a, f, g, o = jnp.split(x + net.product(h, w_hh).astype(jnp.float32), 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(a) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        xs = lax.scan(body, (zero, zero), inputs)[1]
    return _cross_entropy(net.linear("head", xs), labels.T)


def _dispatch_loss(net: Net) -> jax.Array:
    return sum(jnp.sum(v * v) for v in net.p.values())  # type: ignore[return-value]


def _classify(infer: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    return lambda net, x, labels: _cross_entropy(infer(net, x), labels)


INFER = {"mlp": _mlp, "lenet": _lenet, "resnet": _resnet, "mobilenet": _mobilenet, "gpt": _gpt, "bert": _bert}
LOSS = {
    **{family: _classify(INFER[family]) for family in ("mlp", "lenet", "resnet", "mobilenet")},
    "gpt": _gpt_loss,
    "bert": _bert_loss,
    "lstm": _lstm_loss,
    "dispatch": _dispatch_loss,
}
