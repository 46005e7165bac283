"""The bench's models as Treadle cells: `CELLS[family](cfg)` maps a batch to the mean cross entropy, a scalar.

`infer` gives what a user of the trained model asks for: logits, or the pooled text of an encoder. Names of parameters
are those of weights.py.
"""

from __future__ import annotations

import numpy as np
import weights as W

import treadle as td
from treadle import nn
from treadle.nn import functional as F


class MLP(nn.Cell):
    """Linear layers with ReLU between. x: float[batch, in]."""

    def __init__(self, cfg: W.Config):
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in zip(cfg["sizes"], cfg["sizes"][1:])])

    def infer(self, x: td.Tensor) -> td.Tensor:
        layers = list(self.layers)
        for layer in layers[:-1]:
            x = F.relu(layer(x))
        return layers[-1](x)

    def forward(self, x: td.Tensor, labels: td.Tensor) -> td.Tensor:
        return F.cross_entropy(self.infer(x), labels)


class LeNet(nn.Cell):
    """Two 5x5 convolutions with pooling, three linear layers; ReLU. x: float[batch, 1, 28, 28]."""

    def __init__(self, cfg: W.Config):
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        side = (cfg["image"] // 2 - 4) // 2
        self.fc1, self.fc2 = nn.Linear(16 * side * side, 120), nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, cfg["classes"])

    def infer(self, x: td.Tensor) -> td.Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc2(F.relu(self.fc1(x.reshape(x.shape[0], -1)))))
        return self.fc3(x)

    def forward(self, x: td.Tensor, labels: td.Tensor) -> td.Tensor:
        return F.cross_entropy(self.infer(x), labels)


class ResidualBlock(nn.Cell):
    """Convolutions with batch norms (1x1, 3x3, 1x1, or twice 3x3), and the way around them."""

    def __init__(self, cfg: W.Config, n_in: int, width: int, stride: int, down: bool):
        n_out, deep = W.resnet_out(cfg, width), cfg["bottleneck"]
        if deep:
            self.conv1 = nn.Conv2d(n_in, width, 1, bias=False)
            self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
            self.conv3, self.bn3 = nn.Conv2d(width, n_out, 1, bias=False), nn.BatchNorm2d(n_out)
        else:
            self.conv1 = nn.Conv2d(n_in, width, 3, stride=stride, padding=1, bias=False)
            self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.deep, self.downsample = deep, None
        if down:
            self.downsample = nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride=stride, bias=False), nn.BatchNorm2d(n_out))

    def forward(self, x: td.Tensor) -> td.Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.deep:
            y = self.bn3(self.conv3(F.relu(y)))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Cell):
    """x: float[batch, 3, h, w], labels: int[batch]."""

    def __init__(self, cfg: W.Config):
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        rows = W.resnet_blocks(cfg)
        self.stages = sorted({name.split(".")[0] for name, *_ in rows})
        for stage in self.stages:
            blocks = [ResidualBlock(cfg, *sizes) for name, *sizes in rows if name.startswith(stage + ".")]
            setattr(self, stage, nn.Sequential(*blocks))
        self.fc = nn.Linear(W.resnet_out(cfg, rows[-1][2]), cfg["classes"])

    def infer(self, x: td.Tensor) -> td.Tensor:
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, stride=2, padding=1)
        for name in self.stages:
            x = getattr(self, name)(x)
        return self.fc(x.mean((2, 3)))

    def forward(self, x: td.Tensor, labels: td.Tensor) -> td.Tensor:
        return F.cross_entropy(self.infer(x), labels)


class Inverted(nn.Cell):
    """1x1 expansion, 3x3 depthwise, 1x1 projection without activation; around them where the shapes allow."""

    def __init__(self, n_in: int, wide: int, n_out: int, stride: int):
        self.around, self.expand = stride == 1 and n_in == n_out, None
        if wide != n_in:
            self.expand, self.expand_bn = nn.Conv2d(n_in, wide, 1, bias=False), nn.BatchNorm2d(wide)
        self.depth = nn.Conv2d(wide, wide, 3, stride=stride, padding=1, groups=wide, bias=False)
        self.depth_bn = nn.BatchNorm2d(wide)
        self.project, self.project_bn = nn.Conv2d(wide, n_out, 1, bias=False), nn.BatchNorm2d(n_out)

    def forward(self, x: td.Tensor) -> td.Tensor:
        y = x if self.expand is None else F.relu6(self.expand_bn(self.expand(x)))
        y = self.project_bn(self.project(F.relu6(self.depth_bn(self.depth(y)))))
        return x + y if self.around else y


class MobileNetV2(nn.Cell):
    """Width 1, without dropout. x: float[batch, 3, h, w], labels: int[batch]."""

    def __init__(self, cfg: W.Config):
        self.stem = nn.Conv2d(3, 32, 3, stride=2, padding=1, bias=False)
        self.stem_bn = nn.BatchNorm2d(32)
        self.rows = [name for name, *_ in W.mobilenet_blocks()]
        for name, *sizes in W.mobilenet_blocks():
            setattr(self, name, Inverted(*sizes))
        self.head, self.head_bn = nn.Conv2d(320, 1280, 1, bias=False), nn.BatchNorm2d(1280)
        self.fc = nn.Linear(1280, cfg["classes"])

    def infer(self, x: td.Tensor) -> td.Tensor:
        x = F.relu6(self.stem_bn(self.stem(x)))
        for name in self.rows:
            x = getattr(self, name)(x)
        x = F.relu6(self.head_bn(self.head(x)))
        return self.fc(x.mean((2, 3)))

    def forward(self, x: td.Tensor, labels: td.Tensor) -> td.Tensor:
        return F.cross_entropy(self.infer(x), labels)


class Block(nn.Cell):
    """Transformer block; norms before each part (gpt, tanh GELU) or after (bert, exact GELU). float[batch, seq, d]."""

    def __init__(self, d: int, heads: int, gpt: bool):
        self.heads, self.gpt = heads, gpt
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def mix(self, x: td.Tensor) -> td.Tensor:
        b, t, d = x.shape
        qkv = self.qkv(x).reshape(b, t, 3, self.heads, d // self.heads).transpose(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], is_causal=self.gpt)
        return self.out(mixed.transpose(0, 2, 1, 3).reshape(b, t, d))

    def feed(self, x: td.Tensor) -> td.Tensor:
        return self.down(F.gelu(self.up(x), approximate="tanh" if self.gpt else "none"))

    def forward(self, x: td.Tensor) -> td.Tensor:
        if self.gpt:
            x = x + self.mix(self.ln1(x))
            return x + self.feed(self.ln2(x))
        x = self.ln1(x + self.mix(x))
        return self.ln2(x + self.feed(x))


class GPT(nn.Cell):
    """tokens, labels: int[batch, seq]. The head is the token table."""

    def __init__(self, cfg: W.Config):
        self.tok, self.pos = nn.Embedding(cfg["vocab"], cfg["d"]), nn.Embedding(cfg["seq"], cfg["d"])
        self.blocks = nn.ModuleList([Block(cfg["d"], cfg["heads"], True) for _ in range(cfg["layers"])])
        self.ln_f = nn.LayerNorm(cfg["d"])

    def hidden(self, tokens: td.Tensor) -> td.Tensor:
        x = self.tok(tokens) + self.pos.weight
        for block in self.blocks:
            x = block(x)
        return self.ln_f(x)

    def infer(self, tokens: td.Tensor) -> td.Tensor:
        """Logits of the token after the prompt."""
        return F.linear(self.hidden(tokens)[:, -1], self.tok.weight)

    def forward(self, tokens: td.Tensor, labels: td.Tensor) -> td.Tensor:
        logits = F.linear(self.hidden(tokens), self.tok.weight)
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))


class Bert(nn.Cell):
    """tokens, sentence: int[batch, seq]; places: int[n] in the flattened batch, labels: int[n]. Tied head."""

    def __init__(self, cfg: W.Config):
        d = cfg["d"]
        self.tok, self.pos = nn.Embedding(cfg["vocab"], d), nn.Embedding(cfg["seq"], d)
        self.sentence, self.ln = nn.Embedding(2, d), nn.LayerNorm(d)
        self.blocks = nn.ModuleList([Block(d, cfg["heads"], False) for _ in range(cfg["layers"])])
        if cfg["masked"]:
            self.head, self.head_ln = nn.Linear(d, d), nn.LayerNorm(d)
            self.head_bias = td.Parameter(np.zeros(cfg["vocab"], np.float32))

    def hidden(self, tokens: td.Tensor, sentence: td.Tensor) -> td.Tensor:
        x = self.ln(self.tok(tokens) + self.pos.weight + self.sentence(sentence))
        for block in self.blocks:
            x = block(x)
        return x

    def infer(self, tokens: td.Tensor, sentence: td.Tensor) -> td.Tensor:
        """The mean over the places of each text, as sentence encoders give it."""
        return self.hidden(tokens, sentence).mean(1)

    def forward(self, tokens: td.Tensor, sentence: td.Tensor, places: td.Tensor, labels: td.Tensor) -> td.Tensor:
        x = self.hidden(tokens, sentence)
        x = x.reshape(-1, x.shape[-1])[places]
        x = self.head_ln(F.gelu(self.head(x)))
        return F.cross_entropy(F.linear(x, self.tok.weight, self.head_bias), labels)


class LSTMModel(nn.Cell):
    """Language model: tokens, labels: int[batch, seq]; states begin at zero."""

    def __init__(self, cfg: W.Config):
        d = cfg["d"]
        self.tok, self.head = nn.Embedding(cfg["vocab"], d), nn.Linear(d, cfg["vocab"])
        self.lstm = nn.LSTM(d, d, cfg["layers"], batch_first=True)

    def forward(self, tokens: td.Tensor, labels: td.Tensor) -> td.Tensor:
        logits = self.head(self.lstm(self.tok(tokens))[0])
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


CELLS = {
    "mlp": MLP,
    "lenet": LeNet,
    "resnet": ResNet,
    "mobilenet": MobileNetV2,
    "gpt": GPT,
    "bert": Bert,
    "lstm": LSTMModel,
    "dispatch": Dispatch,
}
