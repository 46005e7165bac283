"""Known operators written in te, each with the framework's own function and the operands to compare them on.

KNOWN: name -> (function of te tensors, function of tensors, shapes; ("int", shape, below) draws integers).
"""

import numpy as np

import treadle as td
from treadle import te
from treadle.nn import functional as F


def drawn(specs):
    """Random float64 operands away from kinks, integers where asked for."""
    rng = np.random.default_rng(0)
    found = []
    for spec in specs:
        if spec[0] == "int":
            found.append(rng.integers(0, spec[2], spec[1]).astype(np.int32))
        elif spec[0] == "pos":
            found.append(rng.uniform(0.3, 1.4, spec[1]))
        else:
            found.append(rng.uniform(0.2, 1.5, spec) * rng.choice([-1.0, 1.0], spec))
    return found


def element(fn):
    """An elementwise operator of one tensor."""
    return lambda x: te.compute(x.shape, lambda *i: fn(x[i]))


def softmax(x):
    n, m = x.shape
    k = te.reduce_axis(m)
    most = te.compute((n,), lambda i: te.max(x[i, k], axis=k))
    e = te.compute((n, m), lambda i, j: te.exp(x[i, j] - most[i]))
    total = te.compute((n,), lambda i: te.sum(e[i, k], axis=k))
    return te.compute((n, m), lambda i, j: e[i, j] / total[i])


def log_softmax(x):
    n, m = x.shape
    k = te.reduce_axis(m)
    most = te.compute((n,), lambda i: te.max(x[i, k], axis=k))
    total = te.compute((n,), lambda i: te.sum(te.exp(x[i, k] - most[i]), axis=k))
    return te.compute((n, m), lambda i, j: x[i, j] - most[i] - te.log(total[i]))


def layer_norm(x, w, b):
    n, m = x.shape
    k = te.reduce_axis(m)
    mean = te.compute((n,), lambda i: te.sum(x[i, k], axis=k) / m)
    var = te.compute((n,), lambda i: te.sum((x[i, k] - mean[i]) * (x[i, k] - mean[i]), axis=k) / m)
    return te.compute((n, m), lambda i, j: (x[i, j] - mean[i]) * te.rsqrt(var[i] + 1e-5) * w[j] + b[j])


def rms_norm(x, w):
    n, m = x.shape
    k = te.reduce_axis(m)
    square = te.compute((n,), lambda i: te.sum(x[i, k] * x[i, k], axis=k) / m)
    return te.compute((n, m), lambda i, j: x[i, j] * te.rsqrt(square[i] + 1e-6) * w[j])


def batch_norm(x, w, b):
    n, c, h, v = x.shape
    r = [te.reduce_axis(s) for s in (n, h, v)]
    count = n * h * v
    mean = te.compute((c,), lambda f: te.sum(x[r[0], f, r[1], r[2]], axis=r) / count)
    var = te.compute((c,), lambda f: te.sum(te.square(x[r[0], f, r[1], r[2]] - mean[f]), axis=r) / count)
    return te.compute(x.shape, lambda i, f, y, z: (x[i, f, y, z] - mean[f]) * te.rsqrt(var[f] + 1e-5) * w[f] + b[f])


def matmul(x, w):
    k = te.reduce_axis(x.shape[1])
    return te.compute((x.shape[0], w.shape[1]), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k))


def batched_matmul(x, w):
    k = te.reduce_axis(x.shape[2])
    return te.compute((*x.shape[:2], w.shape[1]), lambda b, i, j: te.sum(x[b, i, k] * w[b, j, k], axis=k))


def conv2d(stride=1, padding=0, dilation=1, groups=1):
    """The operator of a convolution, NCHW with weights OIHW."""

    def write(x, w):
        n, _, h, v = x.shape
        o, per, a, b = w.shape
        rows = (h + 2 * padding - dilation * (a - 1) - 1) // stride + 1
        columns = (v + 2 * padding - dilation * (b - 1) - 1) // stride + 1
        rc, ry, rx = te.reduce_axis(per, "c"), te.reduce_axis(a, "y"), te.reduce_axis(b, "x")

        def value(i, f, y, z):
            p, q = y * stride + ry * dilation - padding, z * stride + rx * dilation - padding
            inside = te.all(p >= 0, p < h, q >= 0, q < v)
            group = f // (o // groups) * per if groups > 1 else 0
            return te.sum(te.if_then_else(inside, x[i, group + rc, p, q], 0.0) * w[f, rc, ry, rx], axis=[rc, ry, rx])

        return te.compute((n, o, rows, columns), value, "conv")

    return write


def conv1d(x, w):
    rc, rk = te.reduce_axis(x.shape[1]), te.reduce_axis(w.shape[2])
    size = x.shape[2] - w.shape[2] + 1
    return te.compute(
        (x.shape[0], w.shape[0], size), lambda i, f, y: te.sum(x[i, rc, y + rk] * w[f, rc, rk], axis=[rc, rk])
    )


def pool(kind, size, stride, padding=0):
    """The operator of a pooling."""

    def write(x):
        n, c, h, v = x.shape
        rows, columns = (h + 2 * padding - size) // stride + 1, (v + 2 * padding - size) // stride + 1
        ry, rx = te.reduce_axis(size), te.reduce_axis(size)

        def value(i, f, y, z):
            p, q = y * stride + ry - padding, z * stride + rx - padding
            inside = te.all(p >= 0, p < h, q >= 0, q < v)
            if kind == "max":
                return te.max(te.if_then_else(inside, x[i, f, p, q], float("-inf")), axis=[ry, rx])
            return te.sum(te.if_then_else(inside, x[i, f, p, q], 0.0), axis=[ry, rx]) / (size * size)

        return te.compute((n, c, rows, columns), value)

    return write


def upsample(x):
    n, c, h, w = x.shape
    return te.compute((n, c, 2 * h, 2 * w), lambda i, f, y, z: x[i, f, y // 2, z // 2])


def bilinear(x):
    """Twice the size, corners aligned: every second element is an element, those between are means."""
    n, c, h, w = x.shape

    def value(i, f, y, z):
        iy, iz = y * (h - 1) // (2 * h - 1), z * (w - 1) // (2 * w - 1)
        dy = (y * (h - 1) % (2 * h - 1)).astype("float64") / (2 * h - 1)
        dz = (z * (w - 1) % (2 * w - 1)).astype("float64") / (2 * w - 1)
        top = x[i, f, iy, iz] * (1.0 - dz) + x[i, f, iy, iz + 1] * dz
        low = x[i, f, iy + 1, iz] * (1.0 - dz) + x[i, f, iy + 1, iz + 1] * dz
        return top * (1.0 - dy) + low * dy

    return te.compute((n, c, 2 * h, 2 * w), value)


def gather(x, at):
    return te.compute((at.shape[0], x.shape[1]), lambda i, j: x[at[i], j])


def along(x, at):
    return te.compute(at.shape, lambda i, j: x[i, at[i, j]])


def cumsum(x):
    k = te.reduce_axis(x.shape[1])
    return te.compute(x.shape, lambda i, j: te.sum(te.if_then_else(k <= j, x[i, k], 0.0), axis=k))


def cumprod(x):
    k = te.reduce_axis(x.shape[1])
    return te.compute(x.shape, lambda i, j: te.prod(te.if_then_else(k <= j, x[i, k], 1.0), axis=k))


def over(fn):
    """A reduction over the last axis of a matrix."""

    def write(x):
        k = te.reduce_axis(x.shape[1])
        return te.compute((x.shape[0],), lambda i: fn(x, i, k))

    return write


def logsumexp(x):
    join = te.comm_reducer(
        lambda a, b: te.maximum(a, b) + te.log1p(te.exp(te.minimum(a, b) - te.maximum(a, b))), lambda t: -1e30
    )
    k = te.reduce_axis(x.shape[1])
    return te.compute((x.shape[0],), lambda i: join(x[i, k], axis=k))


def attention(q, k, v):
    n, d = q.shape
    r, s = te.reduce_axis(d), te.reduce_axis(k.shape[0])
    scores = te.compute((n, k.shape[0]), lambda i, j: te.sum(q[i, r] * k[j, r], axis=r) / d**0.5)
    p = softmax(scores)
    return te.compute((n, d), lambda i, j: te.sum(p[i, s] * v[s, j], axis=s))


def cross_entropy(x, labels):
    n = x.shape[0]
    logs, k = log_softmax(x), te.reduce_axis(n)
    return te.compute((), lambda: -te.sum(logs[k, labels[k]], axis=k) / n)


def concat(x, y):
    n = x.shape[1]
    return te.compute(
        (x.shape[0], n + y.shape[1]), lambda i, j: te.if_then_else(j < n, x[i, j], y[i, j - n])
    )  # fmt: skip


def padded(x):
    n, m = x.shape
    return te.compute(
        (n + 2, m + 3), lambda i, j: te.if_then_else(te.all(i >= 1, i < n + 1, j >= 2, j < m + 2), x[i - 1, j - 2], 0.0)
    )


def diagonal(x):
    return te.compute((x.shape[0],), lambda i: x[i, i])


S = (3, 4)
I4, W3 = (2, 3, 7, 6), (4, 3, 3, 3)
KNOWN = {
    "exp": (element(te.exp), td.exp, [S]),
    "log": (element(te.log), td.log, [("pos", S)]),
    "sqrt": (element(te.sqrt), td.sqrt, [("pos", S)]),
    "rsqrt": (element(te.rsqrt), td.rsqrt, [("pos", S)]),
    "sin": (element(te.sin), td.sin, [S]),
    "tanh": (element(te.tanh), td.tanh, [S]),
    "sigmoid": (element(lambda x: 1.0 / (1.0 + te.exp(-x))), td.sigmoid, [S]),
    "erf": (element(te.erf), td.erf, [S]),
    "abs": (element(te.abs), td.abs, [S]),
    "relu": (element(lambda x: te.maximum(x, 0.0)), F.relu, [S]),
    "leaky_relu": (
        element(lambda x: te.if_then_else(x > 0.0, x, 0.1 * x)), lambda x: F.leaky_relu(x, 0.1), [S],
    ),
    "softplus": (element(lambda x: te.log1p(te.exp(x))), F.softplus, [S]),
    "silu": (element(lambda x: x / (1.0 + te.exp(-x))), F.silu, [S]),
    "gelu": (element(lambda x: 0.5 * x * (1.0 + te.erf(x / 2.0**0.5))), F.gelu, [S]),
    "power": (lambda x, y: te.compute(x.shape, lambda i, j: te.power(x[i, j], y[j])), lambda x, y: x**y,
              [("pos", S), (4,)]),
    "divide": (lambda x, y: te.compute(x.shape, lambda i, j: x[i, j] / y[i, 0]), lambda x, y: x / y, [S, (3, 1)]),
    "atan2": (lambda x, y: te.compute(x.shape, lambda i, j: te.atan2(x[i, j], y[i, j])), td.atan2, [S, S]),
    "broadcast": (lambda x: te.compute((2, 3, 4), lambda b, i, j: x[i, 0]), lambda x: td.broadcast_to(x, (2, 3, 4)),
                  [(3, 1)]),
    "transpose": (lambda x: te.compute((4, 3), lambda i, j: x[j, i]), lambda x: td.transpose(x), [S]),
    "reshape": (lambda x: te.compute((12,), lambda i: x[i // 4, i % 4]), lambda x: td.reshape(x, (12,)), [S]),
    "flatten_in": (lambda x: te.compute((3, 4), lambda i, j: x[i * 4 + j]), lambda x: td.reshape(x, S), [(12,)]),
    "reverse": (lambda x: te.compute(S, lambda i, j: x[i, 3 - j]), lambda x: td.flip(x, 1), [S]),
    "strided": (lambda x: te.compute((3, 3), lambda i, j: x[i, 1 + 2 * j]), lambda x: x[:, 1:7:2], [(3, 7)]),
    "pad": (padded, lambda x: td.pad(x, ((1, 1), (2, 1))), [S]),
    "concat": (concat, lambda x, y: td.concatenate([x, y], axis=1), [S, (3, 2)]),
    "diagonal": (diagonal, lambda x: td.diagonal(x), [(4, 4)]),
    "sum": (over(lambda x, i, k: te.sum(x[i, k], axis=k)), lambda x: td.sum(x, axis=1), [S]),
    "max": (over(lambda x, i, k: te.max(x[i, k], axis=k)), lambda x: td.max(x, axis=1), [S]),
    "min": (over(lambda x, i, k: te.min(x[i, k], axis=k)), lambda x: td.min(x, axis=1), [S]),
    "prod": (over(lambda x, i, k: te.prod(x[i, k], axis=k)), lambda x: td.prod(x, axis=1), [S]),
    "mean_square": (over(lambda x, i, k: te.sum(x[i, k] * x[i, k], axis=k) / 4.0),
                    lambda x: td.mean(x * x, axis=1), [S]),
    "logsumexp": (logsumexp, lambda x: td.logsumexp(x, axis=1), [S]),
    "cumsum": (cumsum, lambda x: td.cumsum(x, axis=1), [S]),
    "cumprod": (cumprod, lambda x: td.cumprod(x, axis=1), [S]),
    "softmax": (softmax, lambda x: F.softmax(x, axis=1), [S]),
    "log_softmax": (log_softmax, lambda x: F.log_softmax(x, axis=1), [S]),
    "cross_entropy": (cross_entropy, F.cross_entropy, [S, ("int", (3,), 4)]),
    "layer_norm": (layer_norm, lambda x, w, b: F.layer_norm(x, (4,), w, b), [S, (4,), (4,)]),
    "rms_norm": (rms_norm, lambda x, w: F.rms_norm(x, (4,), w, eps=1e-6), [S, (4,)]),
    "batch_norm": (batch_norm, lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
                   [(2, 3, 2, 2), (3,), (3,)]),
    "matmul": (matmul, lambda x, w: x @ w, [(3, 4), (4, 5)]),
    "batched_matmul": (batched_matmul, lambda x, w: x @ td.swapaxes(w, 1, 2), [(2, 3, 4), (2, 5, 4)]),
    "attention": (attention, lambda q, k, v: F.softmax(q @ td.transpose(k) / 2.0, axis=1) @ v,
                  [(3, 4), (5, 4), (5, 4)]),
    "conv1d": (conv1d, F.conv1d, [(2, 3, 8), (4, 3, 3)]),
    "conv2d": (conv2d(), F.conv2d, [I4, W3]),
    "conv2d_same": (conv2d(padding=1), lambda x, w: F.conv2d(x, w, padding=1), [I4, W3]),
    "conv2d_strided": (conv2d(2, 1), lambda x, w: F.conv2d(x, w, stride=2, padding=1), [I4, W3]),
    "conv2d_stride3": (conv2d(3, 2), lambda x, w: F.conv2d(x, w, stride=3, padding=2), [I4, W3]),
    "conv2d_dilated": (conv2d(1, 2, 2), lambda x, w: F.conv2d(x, w, padding=2, dilation=2), [I4, W3]),
    "conv2d_strided_dilated": (conv2d(3, 2, 2), lambda x, w: F.conv2d(x, w, stride=3, padding=2, dilation=2),
                               [I4, W3]),
    "conv2d_grouped": (conv2d(1, 1, 1, 2), lambda x, w: F.conv2d(x, w, padding=1, groups=2),
                       [(2, 4, 5, 5), (6, 2, 3, 3)]),
    "conv2d_depthwise": (conv2d(2, 1, 1, 3), lambda x, w: F.conv2d(x, w, stride=2, padding=1, groups=3),
                         [I4, (3, 1, 3, 3)]),
    "max_pool": (pool("max", 2, 2), lambda x: F.max_pool2d(x, 2), [(2, 2, 6, 6)]),
    "max_pool_overlapping": (pool("max", 3, 2, 1), lambda x: F.max_pool2d(x, 3, stride=2, padding=1), [(1, 2, 6, 6)]),
    "avg_pool": (pool("avg", 2, 2), lambda x: F.avg_pool2d(x, 2), [(2, 2, 6, 6)]),
    "avg_pool_overlapping": (pool("avg", 3, 2, 1), lambda x: F.avg_pool2d(x, 3, stride=2, padding=1), [(1, 2, 6, 6)]),
    "resize_nearest": (upsample, lambda x: F.interpolate(x, scale_factor=2, mode="nearest"), [(1, 2, 3, 4)]),
    "resize_bilinear": (bilinear, lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
                        [(1, 2, 3, 4)]),
    "gather": (gather, lambda x, i: td.take(x, i, axis=0), [(5, 3), ("int", (4,), 5)]),
    "gather_along": (along, lambda x, i: td.take_along_axis(x, i, axis=1), [(3, 5), ("int", (3, 2), 5)]),
}  # fmt: skip
