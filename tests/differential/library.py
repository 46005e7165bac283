"""The functions of `td.nn.functional`, `td.linalg` and `td.fft` with their peers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .calls import Args, Entry
from .draw import FULL, Draw
from .plain import SAME, entry

# --- nn.functional: elementwise ---------------------------------------------------------------------------------------

# the text of the call, JAX's text
ACTIVATIONS = {
    "F.celu(x, v)": SAME, "F.elu(x, v)": SAME, "F.hardshrink(x, v)": "", "F.hardsigmoid(x)": "F.hard_sigmoid(x)",
    "F.hardswish(x)": "F.hard_swish(x)", "F.hardtanh(x)": "F.hard_tanh(x)", "F.leaky_relu(x, v)": SAME,
    "F.logsigmoid(x)": "F.log_sigmoid(x)", "F.mish(x)": SAME, "F.relu(x)": SAME, "F.relu6(x)": SAME, "F.selu(x)": SAME,
    "F.sigmoid(x)": SAME, "F.silu(x)": SAME, "F.softplus(x)": SAME, "F.softshrink(x, v)": "",
    "F.softsign(x)": "F.soft_sign(x)", "F.tanh(x)": SAME, "F.tanhshrink(x)": "x - jnp.tanh(x)",
    "F.threshold(x, v, 2.0)": "", "F.gelu(x)": "F.gelu(x, False)",
    "F.gelu(x, approximate='tanh')": "F.gelu(x, True)",
}  # fmt: skip


def activations() -> list[Entry]:
    draw = lambda d: {"x": d.array(d.shape(), -6, 6), "v": d.pick(0.3, 0.7)}
    along = lambda d: {"x": d.array(s := (*d.shape(1, 3), 4)), "a": d.pick(-1, len(s) - 1)}
    return [
        *[entry(text, draw, jax=jax) for text, jax in ACTIVATIONS.items()],
        entry("F.glu(x, a)", along, jax="F.glu(x, a)"),
        entry("F.softmax(x, a)", along, "F.softmax(x, a)", "F.softmax(x, a)"),
        entry("F.softmin(x, a)", along, "F.softmin(x, a)", "F.softmax(-x, a)"),
        entry("F.prelu(x, w)", lambda d: {"x": d.array((2, 3, *d.shape(0, 2))), "w": d.array((3,))}, jax=""),
        entry("F.normalize(x, p, a)", _along_axis, jax=""),
        entry("F.cosine_similarity(x, y, a)", _along_axis, jax=""),
        entry("F.pairwise_distance(x, y, p)", _along_axis, jax="", types=FULL),
    ]


def _along_axis(d: Draw) -> Args:
    shape = tuple(n + 1 for n in d.shape(1, 3, empty=False))
    return {"x": d.array(shape, 0.2, 2), "y": d.array(shape, 2.2, 3), "a": d.axis(shape), "p": d.pick(1.0, 2.0, 3.0)}


# --- nn.functional: windows -------------------------------------------------------------------------------------------


def _conv(n: int) -> Callable[[Draw], Args]:
    def draw(d: Draw) -> Args:
        groups = d.pick(1, 1, 2, 3)
        ins, outs = groups * d.int(1, 2), groups * d.int(1, 2)
        kernel = tuple(d.int(1, 3) for _ in range(n))
        dilation = tuple(d.int(1, 2) for _ in range(n))
        sizes = tuple((k - 1) * e + 1 + d.int(0, 3) for k, e in zip(kernel, dilation))
        x, w = d.array((d.int(1, 2), ins, *sizes)), d.array((outs, ins // groups, *kernel))
        stride, padding = tuple(d.int(1, 2) for _ in range(n)), tuple(d.int(0, 2) for _ in range(n))
        return {"x": x, "w": w, "b": d.array((outs,)), "s": stride, "p": padding, "d": dilation, "g": groups}

    return draw


def _pool(n: int, count: bool = False) -> Callable[[Draw], Args]:
    def draw(d: Draw) -> Args:
        kernel = tuple(d.int(1, 3) for _ in range(n))
        sizes = tuple(k + d.int(0, 4) for k in kernel)
        padding = tuple(d.int(0, k // 2) for k in kernel)
        stride = tuple(d.int(1, 3) for _ in range(n))
        return {"x": d.apart((2, d.int(1, 2), *sizes)), "k": kernel, "s": stride, "p": padding, "c": d.flag()}

    return draw


def _adaptive(n: int) -> Callable[[Draw], Args]:
    def draw(d: Draw) -> Args:
        sizes = tuple(d.int(1, 7) for _ in range(n))
        return {"x": d.apart((2, 2, *sizes)), "k": tuple(d.int(1, s) for s in sizes)}

    return draw


def windows() -> list[Entry]:
    found = []
    for n in (1, 2, 3):
        size = ("NCH", "NCHW", "NCHWD")[n - 1]
        numbers = (size, size.replace("N", "O").replace("C", "I"), size)
        conv = f"F.conv{n}d(x, w, b, s, p, d, g)"
        call = f"lax.conv_general_dilated(x, w, s, [(q, q) for q in p], None, d, {numbers}, g)"
        found.append(entry(conv, _conv(n), jax=f"{call} + b[(slice(None),) + (None,) * {n}]", count=14))
        found.append(entry(f"F.max_pool{n}d(x, k, s, p)", _pool(n), jax="", count=10))
        average = f"F.avg_pool{n}d(x, k, s, p, count_include_pad=c)"
        found.append(entry(average, _pool(n), average.replace("k, s, p", "k, s, p, False"), "", count=10))
        found.append(entry(f"F.adaptive_avg_pool{n}d(x, k)", _adaptive(n), jax="", count=6))
        found.append(entry(f"F.adaptive_max_pool{n}d(x, k)", _adaptive(n), jax="", count=6))
    found += [
        entry("F.pad(x, p, m)", _torch_pad, jax=""),
        entry("F.pixel_shuffle(x, 2)", lambda d: {"x": d.array((*d.shape(0, 2), 8, 2, 3))}, jax="", count=5),
        entry("F.pixel_unshuffle(x, 2)", lambda d: {"x": d.array((*d.shape(0, 2), 2, 4, 6))}, jax="", count=5),
        entry(
            "F.local_response_norm(x, n)", lambda d: {"x": d.array((2, 5, 3, 2)), "n": d.int(1, 4)}, jax="", types=FULL
        ),
    ]
    return found


def _torch_pad(d: Draw) -> Args:
    mode = d.pick("constant", "reflect", "replicate", "circular")
    return {"x": d.array((2, 3, d.int(4, 6), 5)), "p": tuple(d.int(0, 3) for _ in range(4)), "m": mode}


# --- nn.functional: norms, attention, embedding -----------------------------------------------------------------------


def _normal(d: Draw) -> Args:
    shape = (d.int(2, 3), 4, d.int(1, 3), d.int(4, 6))
    last = shape[-d.int(1, 2) :]
    arrays = {"x": d.array(shape), "w": d.array(last), "b": d.array(last), "u": d.array((4,)), "v": d.array((4,))}
    return {**arrays, "s": last, "g": d.pick(1, 2, 4), "m": d.array((4,)), "r": d.array((4,), 0.5, 2)}


def _attention(d: Draw) -> Args:
    batch, l, s, e = d.shape(1, 2, False), d.int(1, 4), d.int(1, 5), d.int(1, 4)
    q, k = d.array((*batch, l, e)), d.array((*batch, s, e))
    mask = d.bools((l, s)) | (np.arange(s) == 0)
    return {
        "q": q,
        "k": k,
        "v": d.array((*batch, s, d.int(1, 3))),
        "m": mask,
        "n": d.array((l, s)),
        "c": d.pick(None, 0.3),
    }


def norms() -> list[Entry]:
    attend = "F.scaled_dot_product_attention(q, k, v"
    text = lambda rest: f"{attend}{rest}, scale=c)"
    drawn = lambda d: {"x": d.array((*d.shape(0, 2), 4)), "w": d.array((3, 4)), "b": d.array((3,))}
    looked = lambda d: {"i": d.ints(d.shape(0, 3), 0, 4, "int64"), "w": d.array((5, 3))}
    paired = lambda d: {"x": d.array((2, 3)), "y": d.array((2, 4)), "w": d.array((5, 3, 4)), "b": d.array((5,))}
    return [
        entry("F.layer_norm(x, s, w, b)", _normal, jax="", count=10),
        entry("F.rms_norm(x, s, w, 1e-5)", _normal, jax="", count=10),
        entry("F.group_norm(x, g, u, v)", _normal, jax="", count=10),
        entry("F.instance_norm(x, None, None, u, v)", _normal, jax=""),
        entry("F.batch_norm(x, m, r, u, v)", _normal, jax="", fixed="m r"),
        entry("F.batch_norm(x, None, None, u, v, True)", _normal, jax=""),
        entry(text(""), _attention, jax="", types=FULL, count=10),
        entry(text(", m"), _attention, jax="", types=FULL, count=10),
        entry(text(", n"), _attention, jax="", types=FULL, count=10),
        entry(text(", is_causal=True"), _attention, jax="", types=FULL),
        entry("F.linear(x, w, b)", drawn, jax="x @ w.T + b"),
        entry("F.embedding(i, w)", looked, jax="w[i]"),
        entry("F.bilinear(x, y, w, b)", paired, jax="jnp.einsum('bi,oij,bj->bo', x, w, y) + b", count=6),
    ]


# --- nn.functional: losses --------------------------------------------------------------------------------------------


def _loss(d: Draw) -> Args:
    shape = (d.int(1, 4), d.int(2, 4), *d.shape(0, 1, False))
    x, y = d.array(shape), d.array(shape)
    return {
        "x": x,
        "y": y,
        "p": d.array(shape, 0.1, 0.9),
        "r": d.pick("none", "mean", "sum"),
        "v": d.pick(0.5, 1.0, 1.5),
    }


def _classes(d: Draw) -> Args:
    n, c, rest = d.int(1, 4), d.int(2, 5), d.shape(0, 2, False)
    labels = d.ints((n, *rest), 0, c - 1, "int64")
    labels.reshape(-1)[1:][d.rng.random(labels.size - 1) < 0.2] = -100
    args = {"x": d.array((n, c, *rest)), "i": labels, "w": d.array((c,), 0.5, 2), "e": d.pick(0.0, 0.1)}
    return {**args, "p": d.array((n, c, *rest), 0.1, 0.9), "r": d.pick("none", "mean", "sum")}


def _signed(d: Draw) -> Args:
    n, c = d.int(1, 4), d.int(2, 4)
    x, y, z = (d.array((n, c), low, low + 1) for low in (0.0, 1.5, 3.0))
    signs = d.exact(np.where(d.bools((n,)), 1.0, -1.0))
    grid = d.exact(np.where(d.bools((n, c)), 1.0, -1.0))
    return {"x": x, "y": y, "z": z, "t": signs, "s": grid, "r": d.pick("none", "mean", "sum"), "v": d.pick(0.3, 0.8)}


LOSSES = (
    "F.mse_loss(x, y, reduction=r)", "F.l1_loss(x, y, reduction=r)", "F.smooth_l1_loss(x, y, reduction=r, beta=v)",
    "F.huber_loss(x, y, reduction=r, delta=v)", "F.binary_cross_entropy(p, p * 0.5, reduction=r)",
    "F.binary_cross_entropy_with_logits(x, p, reduction=r)", "F.kl_div(x, p, reduction=r)",
    "F.kl_div(x, y, reduction=r, log_target=True)", "F.poisson_nll_loss(x, p, reduction=r)",
    "F.gaussian_nll_loss(x, y, p, reduction=r)", "F.multilabel_soft_margin_loss(x, p, reduction=r)",
)  # fmt: skip
SIGNED = (
    "F.margin_ranking_loss(x[:, 0], y[:, 0], t, v, reduction=r)", "F.hinge_embedding_loss(x, s, v, reduction=r)",
    "F.soft_margin_loss(x, s, reduction=r)", "F.cosine_embedding_loss(x, y, t, 0.1, reduction=r)",
    "F.triplet_margin_loss(x, y, z, v, reduction=r)", "F.triplet_margin_loss(x, y, z, v, swap=True, reduction=r)",
)  # fmt: skip


def losses() -> list[Entry]:
    """The targets of kl_div and of the margins are drawn as data: PyTorch has no gradient for some of them."""
    return [
        *[entry(text, _loss, jax="") for text in LOSSES],
        *[entry(text, _signed, jax="", fixed="t s") for text in SIGNED],
        entry("F.cross_entropy(x, i, reduction=r, label_smoothing=e)", _classes, jax="", count=12),
        entry("F.cross_entropy(x, i, w, reduction=r)", _classes, jax="", fixed="w", count=10),
        entry("F.cross_entropy(x, p, reduction=r)", _classes, jax=""),
        entry("F.nll_loss(x, i, reduction=r)", _classes, jax=""),
    ]


# --- linear algebra ---------------------------------------------------------------------------------------------------


def _square(d: Draw) -> Args:
    """Well conditioned square matrices x, symmetric ones s, right sides b, wide ones w."""
    n, batch = d.int(1, 5), d.shape(0, 2)
    x = d.array((*batch, n, n)) * 0.4 + 2 * np.eye(n, dtype=d.float)
    more = {"b": d.array((*batch, n, d.int(1, 3))), "w": d.array((*batch, n + d.int(0, 2), n)), "p": d.int(-2, 4)}
    return {"x": x, **more, "m": np.arange(1.0, n + 1, dtype=d.float), "e": np.eye(n, dtype=d.float)}


def _normed_matrix(d: Draw) -> Args:
    shape = (*d.shape(0, 1, False), d.int(1, 4), d.int(1, 4))
    return {"x": d.array(shape), "o": d.pick("fro", "nuc", 1, -1, 2, float("inf")), "k": d.flag()}


def linalg() -> list[Entry]:
    """Eigenvectors and singular vectors are compared up to their sign."""
    t = lambda x: f"td.swapaxes({x}, -1, -2)"
    positive, symmetric = f"(x @ {t('x')} + e)", f"(x + {t('x')} + 3 * td.linalg.matmul(e, e) * m)"
    one = lambda text, torch=SAME, jax=SAME, **more: entry(text, _square, torch, jax, types=FULL, **more)
    x3 = lambda d: {"x": d.array((*(s := d.shape(0, 2)), 3)), "y": d.array((*s, 3))}
    return [
        one(f"L.cholesky({positive})", count=10),
        one("L.det(x)"),
        one("L.slogdet(x)", jax="tuple(L.slogdet(x))"),
        one("L.inv(x)"),
        one("L.solve(x, b)", count=10),
        one("L.matrix_power(x, p)"),
        one("L.pinv(w)"),
        one("L.svdvals(w + m)"),
        one(f"L.eigvalsh({symmetric})"),
        one(f"td.abs(L.eigh({symmetric})[1])"),
        one("td.abs(L.qr(w)[0]), td.abs(L.qr(w)[1])"),
        one("L.matrix_exp(x)", jax="SL.expm(x)", count=6),
        one(
            "L.solve_triangular(td.tril(x), b, upper=False)",
            jax="SL.solve_triangular(jnp.tril(x), b, lower=True)", count=6,
        ),
        one("L.lstsq(w, w @ b + td.abs(w)[..., :1])", "L.lstsq(w, w @ b + torch.abs(w)[..., :1])[0]", "", count=6),
        entry("L.cross(x, y)", x3),
        entry("L.vecdot(x, y)", x3),
        entry("L.matrix_norm(x, o, keepdims=k)", _normed_matrix, "L.matrix_norm(x, o, keepdim=k)",
            "L.matrix_norm(x, ord=o, keepdims=k)", types=FULL),
        entry(
            "L.vector_norm(x, 3, axis=-1, keepdims=k)", _normed_matrix, "L.vector_norm(x, 3, -1, k)",
            "L.vector_norm(x, ord=3, axis=-1, keepdims=k)", types=FULL
        ),
    ]  # fmt: skip


# --- Fourier transforms -----------------------------------------------------------------------------------------------


def _signal(real: bool, several: bool) -> Callable[[Draw], Args]:
    def draw(d: Draw) -> Args:
        shape = tuple(n + 1 for n in d.shape(2 if several else 1, 3, empty=False))
        norm = d.pick(None, "ortho", "forward", "backward")
        args: dict[str, Any] = {"x": d.array(shape) if real else d.complex(shape), "o": norm}
        if several:
            return {**args, "a": d.pick((-2, -1), (0, 1), (1, 0), (-1,)), "n": None}
        return {**args, "a": d.axis(shape), "n": d.pick(None, 3, 6)}

    return draw


def fourier() -> list[Entry]:
    found = []
    for name in ("fft", "ifft", "rfft", "irfft"):
        found.append(entry(f"T.{name}(x, n, a, o)", _signal(name == "rfft", False), types=FULL, count=10))
        found.append(entry(f"T.{name}n(x, n, a, o)", _signal(name == "rfft", True), types=FULL))
    shifted = lambda d: {"x": d.array(s := d.shape(1, 3)), "a": d.axis(s)}
    found += [entry(f"T.{name}(x, a)", shifted, count=5) for name in ("fftshift", "ifftshift")]
    return found


def entries() -> list[Entry]:
    return [*activations(), *windows(), *norms(), *losses(), *linalg(), *fourier()]
