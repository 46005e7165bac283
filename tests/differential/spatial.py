"""Transposed convolutions, resizing, sampling, patches, unpooling, bags and rarer losses with their peers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .calls import Args, Entry
from .draw import FULL, Draw
from .plain import entry


def _transposed(n: int) -> Callable[[Draw], Args]:
    def draw(d: Draw) -> Args:
        groups = d.pick(1, 1, 2)
        ins, outs = groups * d.int(1, 2), d.int(1, 2)
        kernel, sizes = (tuple(d.int(low, 3) for _ in range(n)) for low in (1, 2))
        stride, dilation = (tuple(d.int(1, 2) for _ in range(n)) for _ in range(2))
        padding = tuple(d.int(0, min(1, k - 1)) for k in kernel)
        extra = tuple(d.int(0, max(s, e) - 1) for s, e in zip(stride, dilation))
        x, w = d.array((d.int(1, 2), ins, *sizes)), d.array((ins, outs, *kernel))
        more = {"s": stride, "p": padding, "o": extra, "g": groups, "d": dilation}
        return {"x": x, "w": w, "b": d.array((outs * groups,)), **more}

    return draw


def _image(n: int) -> Callable[[Draw], Args]:
    """An image with n spatial axes and a new size."""

    def draw(d: Draw) -> Args:
        sizes = tuple(d.int(1, 6) for _ in range(n))
        x = d.array((d.int(1, 2), d.int(1, 2), *sizes))
        return {"x": x, "k": tuple(d.int(1, 9) for _ in range(n)), "f": d.flag(), "v": d.pick(0.5, 1.5, 2.0, 1.3)}

    return draw


def resizing() -> list[Entry]:
    found = []
    for n in (1, 2, 3):
        found.append(entry(f"F.conv_transpose{n}d(x, w, b, s, p, o, g, d)", _transposed(n), jax="", count=12))
        smooth = ("linear", "bilinear", "trilinear")[n - 1]
        for mode in ("nearest", "nearest-exact", "area"):
            found.append(entry(f"F.interpolate(x, k, mode='{mode}')", _image(n), jax="", count=5))
        found += [
            entry(f"F.interpolate(x, k, mode='{smooth}', align_corners=f)", _image(n), jax="", types=FULL, count=8),
            entry(
                f"F.interpolate(x, k, mode='{smooth}')", _image(n), "",
                "jax.image.resize(x, (*x.shape[:2], *k), 'linear', antialias=False)", types=FULL, count=4,
            ),
            entry(f"F.interpolate(x, scale_factor=v, mode='{smooth}')", _image(n), jax="", types=FULL, count=6),
        ]  # fmt: skip
    return [
        *found,
        entry("F.interpolate(x, k, mode='bicubic', align_corners=f)", _image(2), jax="", types=FULL, count=10),
        entry("F.interpolate(x, k, mode='bilinear', antialias=True)", _image(2), jax="", types=FULL),
        entry("F.interpolate(x, k, mode='bicubic', antialias=True)", _image(2), jax="", types=FULL),
    ]


def _sampled(n: int) -> Callable[[Draw], Args]:
    def draw(d: Draw) -> Args:
        batch = d.int(1, 2)
        places = tuple(d.int(1, 3) for _ in range(n))
        x = d.array((batch, 2, *[d.int(2, 4) for _ in range(n)]))
        mode = d.pick("bilinear", "nearest", *["bicubic"] * (n == 2))
        grid = d.array((batch, *places, n), -1.3, 1.3)
        return {"x": x, "y": grid, "m": mode, "p": d.pick("zeros", "border", "reflection"), "f": d.flag()}

    return draw


def _affine(n: int) -> Callable[[Draw], Args]:
    def draw(d: Draw) -> Args:
        return {"x": d.array((2, n, n + 1)), "k": (2, 3, *[d.int(2, 4) for _ in range(n)]), "f": d.flag()}

    return draw


def _windows(d: Draw) -> Args:
    ranges = (1, 3), (1, 2), (0, 1), (1, 2)
    kernel, stride, padding, dilation = (tuple(d.int(low, high) for _ in "hw") for low, high in ranges)
    sizes = tuple((k - 1) * e + 1 + d.int(0, 3) for k, e in zip(kernel, dilation))
    x = d.array((d.int(1, 2), d.int(1, 2), *sizes))
    return {"x": x, "k": kernel, "s": stride, "p": padding, "d": dilation, "o": sizes}


def _pooled(n: int) -> Callable[[Draw], Args]:
    def draw(d: Draw) -> Args:
        kernel, stride = tuple(d.int(1, 3) for _ in range(n)), tuple(d.int(1, 3) for _ in range(n))
        sizes = tuple(k + d.int(0, 4) for k in kernel)
        out = tuple(d.int(1, s) for s in sizes)
        x = d.apart((2, d.int(1, 2), *sizes))
        return {"x": x, "k": kernel, "s": stride, "p": tuple(d.int(0, k // 2) for k in kernel), "o": out, "f": d.flag()}

    return draw


def _powers(n: int) -> Callable[[Draw], Args]:
    def draw(d: Draw) -> Args:
        x = d.array((2, 2, *[d.int(2, 5) for _ in range(n)]), 0.3, 1.5)
        return {"x": x, "k": d.int(1, 2), "s": d.int(1, 2), "q": d.pick(1.0, 2.0, 3.0), "f": d.flag()}

    return draw


def _fractions(d: Draw) -> Args:
    x = d.apart((2, 2, d.int(5, 8), d.int(5, 8)))
    return {"x": x, "k": (d.int(2, 3), d.int(2, 3)), "r": d.array((2, 2, 2), 0.05, 0.95)}


def patches() -> list[Entry]:
    found = [entry("F.grid_sample(x, y, m, p, f)", _sampled(2), jax="", types=FULL, count=24)]
    found.append(entry("F.grid_sample(x, y, m, p, f) * 1", _sampled(3), jax="", types=FULL, count=12))
    found += [entry(f"F.affine_grid(x, k, f)  # {n}", _affine(n), jax="", types=FULL, count=4) for n in (2, 3)]
    unfold = "lax.conv_general_dilated_patches(x, k, s, [(q, q) for q in p], rhs_dilation=d)"
    unfold = f"{unfold}.reshape(x.shape[0], x.shape[1] * k[0] * k[1], -1)"
    found += [
        entry("F.unfold(x, k, d, p, s)", _windows, jax=unfold, count=10),
        entry("F.fold(F.unfold(x, k, d, p, s), o, k, d, p, s)", _windows, jax="", count=10),
        entry("F.adaptive_max_pool2d(x, o, return_indices=True)", _pooled(2), jax="", count=6),
        entry("F.fractional_max_pool2d(x, 2, k, _random_samples=r)", _fractions, jax="", types=FULL, fixed="r"),
        entry("F.channel_shuffle(x, 2)", lambda d: {"x": d.array((2, 4, *d.shape(1, 2, False)))},
            "torch.channel_shuffle(x, 2)", ""),
        entry("F.unflatten(x, 1, (2, -1))", lambda d: {"x": d.array((2, 2 * d.int(1, 3), 2))},
            "torch.unflatten(x, 1, (2, -1))", ""),
    ]  # fmt: skip
    for n in (1, 2, 3):
        found.append(entry(f"F.max_pool{n}d(x, k, s, p, 1, f, return_indices=True)", _pooled(n),
                           f"F.max_pool{n}d(x, k, s, p, 1, f, True)", "", count=8))  # fmt: skip
        text = f"F.max_unpool{n}d(*F.max_pool{n}d(x, k, k, return_indices=True), k, k, 0, x.shape[2:])"
        found.append(entry(text, _pooled(n), jax="", types=FULL, count=6))
        found.append(entry(f"F.lp_pool{n}d(x, q, k, s, f)", _powers(n), jax="", types=FULL, count=6))
    return found


# --- bags and losses --------------------------------------------------------------------------------------------------


def _bags(d: Draw) -> Args:
    shape = (d.int(1, 3), d.int(1, 4))
    line = d.ints((d.int(3, 8),), 0, 4, "int64")
    starts = np.array([0, *np.sort(d.ints((2,), 0, len(line), "int64"))])
    arrays = {"i": d.ints(shape, 0, 4, "int64"), "w": d.apart((5, 3)), "y": d.array(shape), "j": line, "s": starts}
    return {**arrays, "m": d.pick("sum", "mean", "max")}


def _margins(d: Draw) -> Args:
    n, c = d.int(1, 4), d.int(2, 5)
    rows = [[*d.rng.permutation(c)[: d.int(0, c)], *[-1] * c][:c] for _ in range(n)]
    more = {"r": d.pick("none", "mean", "sum"), "v": d.pick(0.5, 1.0), "p": d.pick(1, 2), "f": d.flag()}
    x, y, z = (d.array((n, c), low, low + 1) for low in (0.0, 1.5, 3.0))
    return {"x": x, "y": y, "z": z, "w": d.array((c,), 0.5, 2), "i": d.ints((n,), 0, c - 1, "int64"),
            "j": np.array(rows, "int64"), **more}  # fmt: skip


def _rows(d: Draw) -> Args:
    n, c, k = d.int(1, 5), d.int(2, 5), d.int(1, 4)
    labels = d.ints((n,), 0, c - 1, "int64")
    labels[1:][d.rng.random(n - 1) < 0.2] = -100
    arrays = {"x": d.array((n, k)), "w": d.array((c, k)), "b": d.array((c,)), "u": d.array((c,), 0.5, 2)}
    return {**arrays, "i": labels, "r": d.pick("none", "mean", "sum"), "e": d.pick(0.0, 0.1)}


def _speech(d: Draw) -> Args:
    t, n, c, s = d.int(4, 8), d.int(1, 3), d.int(3, 5), d.int(1, 3)
    given = {"x": d.array((t, n, c)), "i": d.ints((n, s), 1, c - 1, "int64"), "m": d.ints((n,), 3, t, "int64")}
    return {**given, "k": d.ints((n,), 0, s, "int64"), "r": d.pick("none", "mean", "sum"), "f": d.flag()}


def losses() -> list[Entry]:
    whole = "F.cross_entropy(F.linear(x, w, b), i"
    rest = "reduction=r, label_smoothing=e)"
    return [
        entry("F.embedding_bag(i, w, mode=m)", _bags, jax="", types=FULL, count=10),
        entry("F.embedding_bag(j, w, s, m)", _bags, "F.embedding_bag(j, w, s, mode=m)", "", types=FULL, count=10),
        entry("F.embedding_bag(i, w, mode='sum', per_sample_weights=y)", _bags, jax="", types=FULL),
        entry("F.multi_margin_loss(x, i, p, v, None, reduction=r)", _margins, jax="", types=FULL),
        entry("F.multi_margin_loss(x, i, p, v, w, reduction=r)", _margins, jax="", types=FULL, fixed="w"),
        entry("F.multilabel_margin_loss(x, j, reduction=r)", _margins, jax="", types=FULL),
        entry("F.triplet_margin_with_distance_loss(x, y, z, margin=v, swap=f, reduction=r)", _margins, jax="",
            types=FULL),
        entry(f"F.linear_cross_entropy(x, w, i, b, {rest}", _rows, f"{whole}, {rest}", "", types=FULL, count=10),
        entry(f"F.linear_cross_entropy(x, w, i, b, u, {rest}", _rows, f"{whole}, u, {rest}", "", types=FULL, fixed="u"),
        entry("F.ctc_loss(F.log_softmax(x, -1), i, m, k, reduction=r, zero_infinity=f)", _speech, jax="",
            types=FULL, count=16),
        entry("F.pdist(x, q)", lambda d: {"x": d.apart((d.int(1, 5), d.int(1, 4))), "q": d.pick(1.0, 2.0, 3.0)}, jax="",
            types=FULL),
        entry("F.log_softmax(x, -1)", lambda d: {"x": d.array(d.shape(1, 3))}, "F.log_softmax(x, -1)"),
    ]  # fmt: skip
