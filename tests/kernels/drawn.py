"""Random work for every template: `FAMILIES[name](draw)` gives a function of the IR and the arrays to run it on.

python -m tests.kernels.drawn SECONDS [SEED [FAMILY...]]     # draws and checks as long as told, counts what it saw
"""

import os
import sys
import time
import warnings
from collections import Counter
from functools import partial
from importlib import import_module
from math import prod

import numpy as np
from tests.kernels.checking import TARGETS, check_body, parts, tolerances, wanted, wrong
from tests.kernels.draw import FLOATS, MOST_PRODUCTS, OTHER, Draw
from tests.kernels.draw_attention import attentions
from tests.kernels.layers import layers
from tests.kernels.summed import summed
from tests.kernels.written import written
from tests.te import known

import treadle as td
from treadle import driver, ops, te
from treadle.api.programs import trace_module
from treadle.base.errors import UserError
from treadle.base.flags import override
from treadle.ir import build
from treadle.ir.node import Module
from treadle.ir.types import bf16, bool_, f16, f32, f64, i8, i32, i64
from treadle.kernels import engine, jit

SMOOTH = ("tanh", "sigmoid", "exp", "gelu", "silu", "softplus", "sin", "cos", "erf", "expm1", "abs", "square", "neg")
SHARP = ("relu", "relu6", "sign", "floor", "round", "sqrt", "log", "rsqrt", "reciprocal", "log1p", "elu", "leaky_relu")


def letters(sizes, text):
    return tuple([sizes[c] for c in text])


# -------------------------------------------------------------------------------------------------------- products
SPECS = (
    "mk,kn->mn", "mk,nk->mn", "km,kn->mn", "km,nk->mn", "mk,kn->nm", "bmk,bkn->bmn", "mbk,bnk->mbn", "bkm,kn->bmn",
    "btk,kn->btn", "btm,btn->mn", "bmk,nk->bmn", "mbk,kn->bmn", "k,kn->n", "mk,k->m", "bk,bnk->bn", "bqhd,bkhd->bhqk",
    "k,k->", "m,n->mn", "bmk,bk->bm",
)  # fmt: skip


def products(d):
    spec = d.one(*SPECS)
    x, y, out = spec.replace("->", ",").split(",")
    sizes = d.sizes(x + "".join(c for c in y if c not in x), small="bht")
    if d.chance(0.1) and "k" in sizes and prod(sizes.values()) < 2e5:
        sizes["k"] = d.one(600, 1031, 1700)
    kind = d.kind(without=(f64,))
    t = kind[letters(sizes, out)]
    operands = [kind[letters(sizes, x)], kind[letters(sizes, y)]]
    types, function = d.viewed(operands, lambda a, b: ops.contract(a, b, spec=spec))
    types, whole = d.followed(t, function, types)
    if d.chance(0.2) and len(out) > 1:
        inner, axes = whole, d.one(tuple(range(len(out) - 1)), (len(out) - 1,))

        def whole(*xs):
            made = inner(*xs)
            return (*made, ops.reduce_sum(made[0], axes=axes))

    return d.traced(whole, types)


# ---------------------------------------------------------------------------------------------------- convolutions
def convolutions(d, depthwise=False, three=False, few=False, volumes=False):
    """depthwise: with one channel in a group; three: with 3x3 taps side by side; few: channels, second in images."""
    axes = 3 if volumes else 2 if three else d.one(2, 2, 2, 1)
    each = lambda make: tuple([make() for _ in range(axes)])
    groups = 1 if three or few or d.chance(0.7) else d.one(2, 3, 4)
    size, kernel = each(lambda: d.size((130, 40, 14)[axes - 1])), each(lambda: d.one(1, 1, 2, 3, 3, 4, 5))
    if depthwise:
        groups, times = d.size(70) or 1, d.one(1, 1, 1, 2)
        c, o = groups, groups * times
    else:
        c, o = ((d.size(130 // groups) or groups) * groups for _ in range(2))
        c = d.one(1, 3, 5) if groups == 1 and d.chance(0.2) else c
        c, o = (d.one(2, 3, 4), d.size(20) or 1) if few else (c, o)
    attrs = {
        "stride": each(lambda: d.one(1, 1, 1, 2, 3)),
        "padding": each(lambda: (d.one(0, 1, 1, 2, -1), d.one(0, 1, 1, 2, -1))),
        "dilation": each(lambda: d.one(1, 1, 1, 2)),
        "groups": groups,
    }
    if three:
        kernel, attrs = (3, 3), attrs | {"stride": (1, 1), "dilation": (1, 1)}
        attrs |= {"precision": "high"} if d.chance(0.3) else {}
    rows = zip(size, kernel, attrs["padding"], attrs["stride"], attrs["dilation"], strict=True)
    out = tuple([(n + sum(p) - k * (r - 1) - 1) // s + 1 for n, r, p, s, k in rows])
    if min(out) < 1:
        return convolutions(d, depthwise, three, few, volumes)
    n = d.size(4)
    while n > 1 and n * prod(out) * prod(kernel) * o * c // groups > MOST_PRODUCTS:
        n //= 2
    if prod(out) * prod(kernel) * o * c // groups > 2 * MOST_PRODUCTS:
        return convolutions(d, depthwise, three, few, volumes)
    kind, last = d.kind(without=(f64,)), d.chance(0.6) and not few
    kind = f32 if few else kind
    image = lambda size, c: kind[n, *size, c] if last else kind[n, c, *size]
    second = lambda v: ops.transpose(v, perm=(0, v.ndim - 1, *range(1, v.ndim - 1))) if last else v
    back = lambda v: ops.transpose(v, perm=(0, *range(2, v.ndim), 1)) if last else v
    x, y, w = image(size, c), image(out, o), kind[o, c // groups, *kernel]
    what = d.one("forward", "data", "weights")
    if what == "forward":
        types, whole = d.followed(y, lambda a, b: back(ops.conv(second(a), b, **attrs)), [x, w])
    elif what == "data":
        # infinite weights beyond the border are not what a product with zeros gives
        function = lambda a, b: back(ops.conv_input_grad(second(a), b, input_size=size, **attrs))
        types, whole = d.followed(x, function, [y, w])
        return d.traced(whole, types, {1: d.values(w, special=False)})
    else:
        function = lambda a, b: ops.conv_weight_grad(second(a), second(b), kernel_size=kernel, **attrs)
        types, whole = d.followed(w, function, [x, y])
    return d.traced(whole, types)


def singles(d):
    """Weight gradients of 1x1 convolutions, of so many places that tasks share them."""
    c, o, n = d.size(90) or 1, d.size(90) or 1, d.rnd.randint(1, 4)
    size = (d.rnd.randint(8, 40), d.one(d.rnd.randint(8, 40), 16, 32))
    while n * prod(size) * c * o > 2 * MOST_PRODUCTS:
        c, o = max(c // 2, 1), max(o // 2, 1)
    attrs = {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1}
    attrs |= {"precision": d.one("high", "medium")} if d.chance(0.2) else {}
    kind = d.kind(without=(f64,))
    second = lambda v: ops.transpose(v, perm=(0, 3, 1, 2))
    function = lambda x, dy: ops.conv_weight_grad(second(x), second(dy), kernel_size=(1, 1), **attrs)
    types, whole = d.followed(kind[o, c, 1, 1], function, [kind[n, *size, c], kind[n, *size, o]])
    return d.traced(whole, types)


# ------------------------------------------------------------------------------------------------------ recurrence
def recurrences(d):
    kind = d.one(f32, f32, bf16)
    t, n, h = d.rnd.randint(1, 6), d.size(40), d.size(80)
    while t * n * h * h * 4 > MOST_PRODUCTS:
        h = max(1, h // 2)
    gates, reverse = d.one(4, 3), d.chance(0.5)
    x, state, w = kind[t, n, gates * h], kind[n, h], kind[gates * h, h]
    states = kind[t, n, h]
    weights = {i: (d.rng.normal(size=w.shape) / np.sqrt(max(h, 1))).astype(w.dtype.np) for i in (2, 3)}
    if gates == 4:
        if d.chance(0.5):
            op = ops.OPS[d.one("lstm", "lstm_fwd")]
            return d.traced(lambda *v: op(*v, reverse=reverse), [x, state, state, w], {3: weights[3]})
        d.special = False

        def both(x, h, c, w, dh, dc):
            hs, _, cs, gates = ops.lstm_fwd(x, h, c, w, reverse=reverse)
            return (hs, *ops.lstm_grad(c, w, cs, gates, dh, dc, reverse=reverse))

        return d.traced(both, [x, state, state, w, states, state], {3: weights[3]})
    bias = kind[gates * h]
    if d.chance(0.5):
        op = ops.OPS[d.one("gru", "gru_fwd")]
        return d.traced(lambda *v: op(*v, reverse=reverse), [x, state, w, bias], {2: weights[2]})
    d.special = False

    def both(x, h, w, b, dh):
        hs, gates = ops.gru_fwd(x, h, w, b, reverse=reverse)
        return (hs, *ops.gru_grad(h, w, hs, gates, dh, reverse=reverse))

    return d.traced(both, [x, state, w, bias, states], {2: weights[2]})


# --------------------------------------------------------------------------------------------------- rows and loops
def norms(d):
    kind, shape = d.kind(), d.shape(1, 4)
    x, rank = kind[shape], len(shape)
    what = d.one("softmax", "log_softmax", "layer_norm", "rms_norm", "batch_norm", "layer_norm", "softmax")
    grad = d.chance(0.5)
    if what in ("softmax", "log_softmax"):
        axis = d.rnd.randrange(rank)
        if grad:
            function = lambda v, g: ops.OPS[what + "_grad"](ops.OPS[what](v, axis=axis), g, axis=axis)
            types = [x, x]
        else:
            function, types = (lambda v: ops.OPS[what](v, axis=axis)), [x]
    elif what == "batch_norm":
        if rank < 2:
            return norms(d)
        c = kind[shape[1:2]]

        def function(v, s, b, *g):
            y, mean, var = ops.batch_norm(v, s, b, eps=1e-3)
            zero = ops.full(value=0.0, shape=c.shape, dtype=mean.dtype)
            return ops.batch_norm_grad(v, s, mean, var, g[0], zero, zero, eps=1e-3) if g else (y, mean, var)

        types = [x, c, c, *([x] if grad else [])]
    else:
        count = d.rnd.randint(1, rank)
        last = kind[shape[rank - count :]]
        attrs, layer = {"axes_count": count, "eps": 1e-2}, what == "layer_norm"
        types = [x, last, *([last] if layer else []), *([x] if grad else [])]

        def function(v, s, *rest):
            made = ops.OPS[what + "_fwd"](v, s, *(rest[:1] if layer else ()), **attrs)
            if not grad:
                return made
            return ops.OPS[what + "_grad"](v, s, *made[1:], rest[-1], axes_count=count)

    types, function = d.viewed(types, function) if d.chance(0.4) else (types, function)
    types, whole = d.followed(x, function, types)
    return d.traced(whole, types)


def losses(d):
    kind, shape = d.kind(), d.shape(1, 3)
    if not shape[-1]:
        return losses(d)
    lead, index = shape[:-1], d.one(i32, i64)
    ignored = d.one(None, -1, -100, 0)
    labels = d.rng.integers(-1 if d.chance(0.5) else 0, shape[-1] + d.one(0, 1), lead).astype(index[()].dtype.np)

    def function(x, y, *g):
        loss, shift, total = ops.cross_entropy_fwd(x, y, ignore_index=ignored)
        made = ops.cross_entropy_grad(x, y, shift, total, ops.cast(g[0], dtype=loss.dtype), ignore_index=ignored)
        return loss, made

    def forward(x, y, *g):
        return ops.cross_entropy(x, y, ignore_index=ignored)

    types, given = [kind[shape], index[lead], f32[lead]], {1: labels}
    return d.traced(d.one(function, function, forward), types, given)


def reductions(d):
    if d.chance(0.1):
        return extremes(d)
    shape = d.shape(1, 5)
    if d.chance(0.2):  # short rows, and columns of more than the second cache
        low, high = d.one(((64, 1), (400, 70)), ((900, 260), (1500, 400)))
        shape = tuple(map(d.rnd.randint, low, high))
    rank, name = len(shape), d.one("sum", "sum", "sum", "max", "min", "mean", "prod", "or", "and")
    axes = tuple(sorted(d.rnd.sample(range(rank), d.rnd.randint(0 if d.chance(0.1) else 1, rank))))
    empty = prod(shape) == 0
    if name in ("or", "and"):
        return d.traced(lambda x: ops.OPS["reduce_" + name](x > 0.0, axes=axes), [d.kind()[shape]])
    name = "sum" if empty else name
    kind = d.one(d.kind(), d.kind(), i32, i64, i8) if name != "mean" else d.kind()
    before = d.one(lambda v: v, lambda v: v * v, ops.tanh if kind in FLOATS else ops.abs)
    if name == "prod":
        before = (lambda v: ops.tanh(v) * 0.2 + 1.0) if kind in FLOATS else (lambda v: v)
    types, function = d.viewed([kind[shape]], lambda x: ops.OPS["reduce_" + name](before(x), axes=axes))
    t = build.trace(function, types).out_types[0]
    return d.traced(*reversed(d.followed(t, function, types))) if kind in FLOATS else d.traced(function, types)


def extremes(d):
    """Places of the largest and smallest; of what is exact, so that equal elements are equal everywhere."""
    shape = d.shape(1, 4)
    axis = d.rnd.randrange(len(shape))
    if not shape[axis]:
        return extremes(d)
    kind, name = d.one(d.kind(), d.kind(), i32, i8), d.one("argmax", "argmin")
    before = d.one(lambda v: v, ops.abs, ops.neg, lambda v: ops.maximum(v, v * 0 + 1))
    return d.traced(lambda x: ops.OPS[name](before(x), axis=axis), [kind[shape]])


def pools(d):
    axes = d.one(1, 2, 2)
    lead = d.shape(0, 2, 300)
    window = tuple([d.one(1, 2, 2, 3, 3, 5) for _ in range(axes)])
    padding = tuple([(d.rnd.randrange(k), d.rnd.randrange(k)) for k in window])
    stride = tuple([d.one(1, 2, 2, 3) for _ in range(axes)])
    size = tuple([max(d.size(30), k) for k in window])
    attrs = {"window": window, "stride": stride, "padding": padding}
    t = d.kind()[(*lead, *size)]
    what, count = d.one("max", "avg", "grad"), {"count_include_pad": d.chance(0.5)}
    if what == "max":
        function = lambda x: ops.max_pool(x, **attrs)
    else:
        function = lambda x: ops.avg_pool(x, **attrs, **count)
    made = build.trace(function, [t]).out_types[0]
    if what == "grad":
        return d.traced(lambda g: ops.avg_pool_grad(g, input_size=size, **attrs, **count), [made])
    types, whole = d.followed(made, function, [t])
    return d.traced(whole, types)


def maxima(d):
    """Of windows of channels-last images, and their gradient; many elements are equal."""
    window = d.one((3, 3), (3, 3), (2, 2), tuple([d.rnd.randint(1, 5) for _ in range(2)]))
    attrs = {"window": window, "padding": tuple([(d.rnd.randrange(k), d.rnd.randrange(k)) for k in window])}
    attrs["stride"] = d.one((2, 2), (1, 1), window, tuple([d.rnd.randint(1, 4) for _ in range(2)]))
    kind, size = d.kind(without=(f64,)), tuple([max(d.size(30), k) for k in window])
    x = kind[d.rnd.randint(1, 3), *size, d.rnd.randint(4, 80)]
    second = lambda v: ops.transpose(v, perm=(0, 3, 1, 2))
    last = lambda v: ops.transpose(v, perm=(0, 2, 3, 1))
    forward = lambda v: last(ops.max_pool(second(v), **attrs))
    y = build.trace(forward, [x]).out_types[0]
    rough = lambda t: np.where((v := d.values(t)) == v, np.round(v * 2), v).astype(t.dtype.np)
    if d.chance(0.4):
        types, whole = d.followed(y, forward, [x])
        return d.traced(whole, types, {0: rough(x)})
    types, whole = d.followed(x, lambda a, b: last(ops.max_pool_grad(second(a), second(b), **attrs)), [x, y])
    return d.traced(whole, types, {0: rough(x)})


def updates(d):
    kind, state = d.one((f32, f32), (f32, f32), (bf16, f32), (f16, f32), (f64, f64))
    shapes = [d.shape(1, 3, 3000) for _ in range(d.rnd.randint(1, 6))]
    adam = d.chance(0.6)
    if adam:
        attrs = {"beta1": 0.9, "beta2": 0.99, "eps": 1e-3, "weight_decay": d.one(0.0, 0.1), "decoupled": d.chance(0.5)}
    else:
        momentum = d.one(0.0, 0.9)
        attrs = {"momentum": momentum, "weight_decay": d.one(0.0, 0.1), "nesterov": d.chance(0.5) and momentum > 0}
    each = [kind, kind, *[state] * (2 if adam else 1)]
    types = [t[s] for s in shapes for t in each]
    extra = [i32[()], f32[()]] if adam else [f32[()]]

    def function(*values):
        found, numbers = [], values[len(types) :]
        for i in range(0, len(types), len(each)):
            op = ops.adam_update if adam else ops.sgd_update
            found += op(*values[i : i + len(each)], *numbers, **attrs)
        return found

    arrays = {i: np.abs(d.values(t, special=False)) for i, t in enumerate(types)}
    arrays |= {len(types): np.array(3, np.int32)} if adam else {}
    arrays[len(types) + len(extra) - 1] = np.array(0.01, np.float32)
    return d.traced(function, [*types, *extra], arrays)


def lookups(d):
    """Embeddings: rows by index, and the gradient."""
    rows, index, kind = d.size(), d.one(i32, i64), d.one(f32, f32, f64, bf16, i32)
    lead, rest = d.shape(0, 2, 300), d.shape(0, 2, 300)
    if not rows:
        return lookups(d)
    indices = d.rng.integers(-2, rows + 2, lead).astype(index[()].dtype.np)
    if d.chance(0.6):
        function = lambda i, u: ops.index_sum(i, u, axis=0, size=rows)
        return d.traced(function, [index[lead], kind[(*lead, *rest)]], {0: indices})
    types = [kind[(rows, *rest)], index[lead]]
    function = lambda x, i: ops.take(x, i, axis=0)
    return d.traced(function, types, {1: indices})


def pointwise(d):
    shape, kind = d.shape(0, 4), d.kind()
    t = kind[shape]
    views = [d.view(t) for _ in range(d.rnd.randint(1, 3))]
    picks = [d.rnd.random() for _ in range(30)]
    names = (*SMOOTH, *SHARP, *("add", "mul", "sub", "maximum", "minimum", "div", "select") * 3)
    steps = [d.one(*names) for _ in range(d.rnd.randint(1, 7))]
    count = d.rnd.randint(1, 3)

    def function(*xs):
        made = [v(x) for (_, v), x in zip(views, xs, strict=True)]
        chance = iter(picks)
        pick = lambda: made[int(next(chance) ** 0.5 * len(made))]
        for name in steps:
            x = pick()
            if name == "select":
                made.append(ops.select(x > 0.5, pick(), x))
            elif name == "div":
                y = pick()
                made.append(x / (y * y + 1.0))
            elif name in ("add", "mul", "sub", "maximum", "minimum"):
                made.append(ops.OPS[name](ops.tanh(x), pick()))
            elif name in ("exp", "expm1", "square", "sin", "cos"):
                made.append(ops.OPS[name](ops.tanh(x)))
            elif name in ("sqrt", "log", "rsqrt", "reciprocal", "log1p"):
                made.append(ops.OPS[name](ops.abs(x) + 0.25))
            elif name in ("floor", "round", "sign"):
                made.append(ops.OPS[name](x) + x)
            else:
                made.append(ops.OPS[name](x, **OTHER.get(name, {})))
        return made[-count:] if count < len(made) else made[-1:]

    return d.traced(function, [t for t, _ in views])


def moves(d):
    """Data that is only moved."""
    t = d.one(d.kind(), i32, i8, i64)[d.shape(1, 4)]
    what, rank = d.one("views", "pad", "concatenate", "reverse"), len(t.shape)
    first, v = d.view(t, 0.0)
    if what == "concatenate":
        axis = d.rnd.randrange(rank)
        other = t.with_shape((*t.shape[:axis], d.size(40), *t.shape[axis + 1 :]))
        return d.traced(lambda x, y: ops.concatenate(v(x), y, axis=axis), [first, other])
    if what == "pad":
        where = {k: tuple([d.one(0, 1, 2, 7) for _ in t.shape]) for k in ("low", "high")}
        inner = tuple([d.one(0, 0, 0, 1) for _ in t.shape])
        zero = t.with_shape(())
        return d.traced(lambda x, y: ops.pad(v(x), y, **where, interior=inner), [first, zero])
    if what == "reverse":
        axes = tuple(sorted(d.rnd.sample(range(rank), d.rnd.randint(1, rank))))
        return d.traced(lambda x: ops.reverse(v(x), axes=axes), [first])
    types, second = d.viewed([first], v)
    return d.traced(second, types)


def permutes(d):
    """One tensor whose axes change places, with a reshape, a slice or another transpose before."""
    t = d.one(d.kind(), f32, bf16, i8, i32, i64, bool_)[d.shape(2, 5)]
    if d.chance(0.3):  # an axis of few places
        t = t.with_shape(tuple(d.rnd.sample((*t.shape[1:], d.rnd.randint(1, 8)), len(t.shape))))
    order = lambda x: tuple(d.rnd.sample(range(x), x))
    rank, first = len(t.shape), d.one("", "", "", "slice", "reshape", "transpose")
    perm, before = order(rank), order(rank)
    low = tuple([d.rnd.randrange(n) if n and d.chance(0.5) else 0 for n in t.shape])
    steps = tuple([d.one(1, 1, 1, 2, 3) for _ in t.shape])

    def moved(x):
        if first == "slice":
            x = ops.slice_(x, starts=low, limits=t.shape, strides=steps)
        elif first == "reshape" and rank > 2:
            x = ops.reshape(x, shape=(t.shape[0] * t.shape[1], *t.shape[2:], 1))
        elif first == "transpose":
            x = ops.transpose(x, perm=before)
        return ops.transpose(x, perm=perm)

    return d.traced(moved, [t], {0: (d.rng.permutation(t.size) % 30011).astype(t.dtype.np).reshape(t.shape)})


def formulas(d):
    """Operators written in `te`."""
    n, m, w = d.size(), d.size(), d.one(1, 2, 3, 5)
    kind, by = d.one(np.float32, np.float32, np.float64), d.one(te.sum, te.max, te.min)
    s = d.one(1, 2, 3)
    flip = d.chance(0.5)

    def windows(x):
        k = te.reduce_axis((0, w))
        return te.compute((n, m), lambda i, j: by(x[i, j * s + k] * 0.5, axis=k))

    def crossed(x):
        return te.compute((m, n), lambda j, i: te.tanh(x[i, j]) + x[n - 1 - i, j if flip else m - 1 - j])

    def rows(x):
        k = te.reduce_axis((0, m))
        total = te.compute((n,), lambda i: te.sum(te.exp(x[i, k] * 0.1), axis=k))
        return te.compute((n, m), lambda i, j: te.exp(x[i, j] * 0.1) / total[i])

    def triangle(x):
        return te.compute((n, m), lambda i, j: te.if_then_else(i >= j, x[i, j] * 2.0, 0.0))

    function = d.one(windows, windows, crossed, rows, triangle)
    shape = (n, (max(m, 1) - 1) * s + w) if function is windows else (n, m)
    return operator(function, [d.values(f32[shape]).astype(kind)])


def operator(function, arrays):
    """An operator of `te` as a function of the IR."""
    return driver.optimise(trace_module(te.op(function), *map(td.tensor, arrays))).main, arrays


def known_formulas(d):
    """Known operators written in `te`."""
    n, m, k, o = d.size(), d.size(), d.size(60), d.size(60)
    side, kernel, step = d.rnd.randint(5, 20), d.one(1, 2, 3), d.one(1, 2)
    groups = d.one(1, 1, 2, 3)
    c, of = d.rnd.randint(1, 9) * groups, d.rnd.randint(1, 9) * groups
    how = {"stride": step, "padding": d.one(0, 1), "dilation": d.one(1, 2), "groups": groups}
    image = f32[d.rnd.randint(1, 3), c, side, d.rnd.randint(5, 20)]
    vector, matrix = f32[m], f32[n, m]
    cases = {
        known.softmax: [matrix],
        known.log_softmax: [matrix],
        known.layer_norm: [matrix, vector, vector],
        known.rms_norm: [matrix, vector],
        known.batch_norm: [image, f32[c], f32[c]],
        known.matmul: [f32[n, k], f32[k, o]],
        known.batched_matmul: [f32[3, n, k], f32[3, o, k]],
        known.conv2d(**how): [image, f32[of, c // groups, kernel, 2]],
        known.conv1d: [f32[2, 9, side], f32[7, 9, kernel]],
        known.pool(d.one("max", "mean"), kernel, step, kernel // 2): [image],
        known.upsample: [image],
        known.bilinear: [image],
        known.cumsum: [f32[k, o]],
        known.logsumexp: [f32[k, o]],
        known.attention: [f32[k, o], f32[n, o], f32[n, o]],
    }
    function = d.one(*cases)
    d.special = d.special and len(cases[function]) == 1  # 0 beyond a border times infinity is for the op to say
    return operator(function, [d.values(t) for t in cases[function]])


FAMILIES = {
    f.__name__: f
    for f in (
        products, convolutions, attentions, recurrences, norms, losses, reductions, pools, maxima, updates, lookups,
        pointwise, moves, formulas, known_formulas, layers,
    )
} | {
    "depthwise": lambda d: convolutions(d, depthwise=True), "first": lambda d: convolutions(d, few=True),
    "permutes": permutes, "threes": lambda d: convolutions(d, three=True), "summed": summed,
    "singles": singles, "volumes": lambda d: convolutions(d, volumes=True), "written": written,
}  # fmt: skip


def bodies(family, seed, empty=0.0):
    """What the engine is asked about for one draw: bodies with arrays; and the draw."""
    d = Draw(hash_of(family, seed), empty)
    fn, arrays = FAMILIES[family](d)
    whole, turned = d.chance(0.5), d.chance(0.5)
    if whole and engine.plans(fn):
        return d, [(fn, arrays)]
    return d, list(parts(fn, arrays, turned)) or [(fn, arrays)]


def hash_of(family, seed):
    """One number for both."""
    return seed * 100 + list(FAMILIES).index(family)


def check(family, seed):
    """The number of bodies of a draw for which there were kernels. Raises AssertionError where one is wrong."""
    d, found = bodies(family, seed)
    target = d.one("host", "host", *TARGETS)
    choose = lambda plans: plans[0] if d.chance(0.6) else d.one(*plans)
    divided = d.chance(0.3)
    try:
        return sum([check_body(body, arrays, TARGETS[target], choose, d.least, divided) for body, arrays in found])
    except Exception as error:
        error.add_note(f"draw {seed} of {family}, for {target}")
        raise


def check_program(family, seed, empty=0.15):
    """A whole program with axes that may be empty, compiled with kernels; False where the ops refuse such operands."""
    d = Draw(hash_of(family, seed), empty)
    d.special = False  # XLA's own code has other rules for NaN
    try:
        fn, arrays = FAMILIES[family](d)
    except UserError:
        return False
    with override(fusion=3, cache=False):
        executable = driver.compile_module(Module.of(fn))
    results = [np.asarray(r) for r in executable.call([np.asarray(a) for a in arrays])]
    for got, wants, limit in zip(results, wanted(fn, arrays), tolerances(fn), strict=True):
        places, worst = wrong(got, wants, limit, d.least)
        if len(places):
            raise AssertionError(f"draw {seed} of {family}: wrong by {worst:.3g} times what is allowed\n{fn}")
    return True


def alone(call):
    """What call() gives, as text, and "", from a process of its own, which may die; or "" and a text that says why."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # threads do not live in forks: kernels called directly need none
        child = os.fork()
    if not child:
        try:
            text = f"+{call()}"
        except BaseException as error:  # whatever it is, the parent says it
            text = f"-{type(error).__name__} {error} {getattr(error, '__notes__', '')}"
        os.write(write, text.encode()[:60000])
        os._exit(0)
    os.close(write)
    with os.fdopen(read, errors="replace") as said:
        text = said.read()
    status = os.waitpid(child, 0)[1]
    return (text[1:], "") if text.startswith("+") else ("", text[1:] or f"the process died: status {status}")


def main(seconds, seed=0, *names):
    end, taken, drawn = time.monotonic() + seconds, Counter(), Counter()
    names = names or tuple(FAMILIES)
    failures = 0
    jit._entries()
    for template in engine.templates():  # loaded once, not in each process
        import_module(f"treadle.kernels.templates.{template}")
    with override(cache=False):
        while time.monotonic() < end:
            for name in names:
                drawn[name] += 1
                found, why = alone(partial(check, name, seed))
                taken[name] += int(found or 0)
                if why:
                    failures += 1
                    print(f"{name} {seed}: {why}\n", flush=True)
            seed += 1
            if seed % 50 == 0:
                print(f"{sum(drawn.values())} draws until {seed}", flush=True)
    print(f"{sum(drawn.values())} draws, {failures} failed; kernels of {dict(taken)}; next seed {seed}")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), *map(int, sys.argv[2:3]), *sys.argv[3:]))
