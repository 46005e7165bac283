"""Random steps of training: `layers(draw)` gives a loss of a few layers with its gradients, from which the groups of
models come, as a function of the IR with its arrays."""

import treadle as td
from treadle import driver
from treadle.api.programs import trace_module
from treadle.ir.types import bf16, f32, i32
from treadle.nn import functional as F


def layers(d):
    d.special, d.least = False, 1.0
    kind = d.one(f32, f32, bf16)
    loss, types, labels = d.one(perceptron, images, transformer)(d, kind)
    arrays = [d.values(t, 0.5) for t in types]
    if labels is not None:
        arrays.append(d.rng.integers(0, labels[1], labels[0]).astype(i32[()].dtype.np))
    step = td.value_and_grad(loss, tuple(range(len(types))))
    return driver.optimise(trace_module(step, *map(td.tensor, arrays))).main, arrays


def perceptron(d, kind):
    n, k, h, classes = (d.size() for _ in range(4))
    act = d.one(F.relu, F.gelu, F.silu, F.tanh, F.sigmoid)

    def loss(x, w1, b1, w2, b2, y):
        return F.cross_entropy(F.linear(act(F.linear(x, w1, b1)), w2, b2), y)

    return loss, [kind[n, k], kind[h, k], kind[h], kind[classes, h], kind[classes]], ((n,), classes)


def images(d, kind):
    n, c, o = d.rnd.randint(1, 3), d.rnd.randint(1, 40), d.rnd.randint(1, 40)
    size, a, b = (d.rnd.randint(5, 14), d.rnd.randint(5, 14)), d.one(1, 3), d.one(1, 3)
    stride, deep, pooled = d.one(1, 1, 2), d.chance(0.3), d.chance(0.5)
    act = d.one(F.relu, F.relu, F.relu6, F.silu)

    def loss(x, w1, s, t, w2):
        y = F.batch_norm(F.conv2d(x, w1, stride=stride, padding=a // 2), weight=s, bias=t, training=True)
        z = F.conv2d(act(y), w2, padding=b // 2, groups=o if deep else 1)
        z = act(z + y)
        z = F.max_pool2d(z, 2) if pooled else z
        return (z.mean((2, 3)) ** 2).mean()

    return loss, [kind[n, c, *size], kind[o, c, a, a], kind[o], kind[o], kind[o, 1 if deep else o, b, b]], None


def transformer(d, kind):
    n, t, heads, each = d.rnd.randint(1, 3), d.size(70), d.rnd.randint(1, 4), d.one(1, 4, 8, 16, 17, 32)
    c, causal = heads * each, d.chance(0.5)

    def loss(x, s, b, qkv, out, up, down):
        y = F.layer_norm(x, (c,), s, b)
        q, k, v = (p.reshape(n, t, heads, each).transpose(1, 2) for p in F.linear(y, qkv).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        x = x + F.linear(y.transpose(1, 2).reshape(n, t, c), out)
        x = x + F.linear(F.gelu(F.linear(F.layer_norm(x, (c,), s, b), up)), down)
        return (x * x).mean()

    return loss, [kind[n, t, c], kind[c], kind[c], kind[3 * c, c], kind[c, c], kind[2 * c, c], kind[c, 2 * c]], None
