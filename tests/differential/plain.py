"""The functions of `td` and `td.linalg`, `td.fft` with their peers: elementwise, reductions, shapes, products."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .calls import Args, Entry
from .draw import FULL, Draw

SAME = "="
WIDE = ("float32", "float64")


def entry(
    ours: str, draw: Callable[[Draw], Args], torch: str = SAME, jax: str = SAME, count: int = 8, **rest: Any
) -> Entry:
    """An entry; SAME: the peer's text is ours with the name of its module."""
    torch = ours.replace("td.", "torch.") if torch == SAME else torch
    jax = ours.replace("td.", "jnp.") if jax == SAME else jax
    return Entry(ours, torch, jax, draw, count=count, **rest)


# --- elementwise ------------------------------------------------------------------------------------------------------

# name: (low, high) of the arguments, PyTorch's text, JAX's text
UNARY: dict[str, tuple[float | None, float, str, str]] = {
    "abs": (None, 0, SAME, SAME),
    "acos": (-0.95, 0.95, SAME, "jnp.arccos(x)"),
    "acosh": (1.1, 4, SAME, "jnp.arccosh(x)"),
    "asin": (-0.95, 0.95, SAME, "jnp.arcsin(x)"),
    "asinh": (None, 0, SAME, "jnp.arcsinh(x)"),
    "atan": (None, 0, SAME, "jnp.arctan(x)"),
    "atanh": (-0.95, 0.95, SAME, "jnp.arctanh(x)"),
    "cbrt": (0.3, 4, "", SAME),
    "ceil": (-5, 5, SAME, SAME),
    "cos": (-8, 8, SAME, SAME),
    "cosh": (None, 0, SAME, SAME),
    "digamma": (0.2, 6, SAME, "S.digamma(x)"),
    "erf": (None, 0, SAME, "S.erf(x)"),
    "erfc": (None, 0, SAME, "S.erfc(x)"),
    "erfinv": (-0.9, 0.9, SAME, "S.erfinv(x)"),
    "exp": (-5, 5, SAME, SAME),
    "exp2": (-5, 5, SAME, SAME),
    "expm1": (None, 0, SAME, SAME),
    "floor": (-5, 5, SAME, SAME),
    "i0e": (-6, 6, "torch.special.i0e(x)", "S.i0e(x)"),
    "i1e": (-6, 6, "torch.special.i1e(x)", "S.i1e(x)"),
    "lgamma": (0.2, 6, SAME, "S.gammaln(x)"),
    "log": (0.1, 6, SAME, SAME),
    "log10": (0.1, 6, SAME, SAME),
    "log1p": (-0.8, 3, SAME, SAME),
    "log2": (0.1, 6, SAME, SAME),
    "nan_to_num": (None, 0, SAME, SAME),
    "neg": (None, 0, SAME, "jnp.negative(x)"),
    "reciprocal": (0.3, 3, SAME, SAME),
    "relu": (None, 0, SAME, "F.relu(x)"),
    "round": (-5, 5, SAME, SAME),
    "rsqrt": (0.2, 5, SAME, "lax.rsqrt(x)"),
    "sigmoid": (-6, 6, SAME, "F.sigmoid(x)"),
    "sign": (None, 0, SAME, SAME),
    "sin": (-8, 8, SAME, SAME),
    "sinc": (-3, 3, SAME, SAME),
    "sinh": (None, 0, SAME, SAME),
    "sqrt": (0.1, 6, SAME, SAME),
    "square": (None, 0, SAME, SAME),
    "tan": (-1.3, 1.3, SAME, SAME),
    "tanh": (-4, 4, SAME, SAME),
    "trunc": (-5, 5, SAME, SAME),
    "isfinite": (None, 0, SAME, SAME),
}

BINARY: dict[str, tuple[float | None, float, str, str]] = {
    "add": (None, 0, SAME, SAME),
    "sub": (None, 0, SAME, "jnp.subtract(x, y)"),
    "mul": (None, 0, SAME, "jnp.multiply(x, y)"),
    "div": (0.3, 3, SAME, "jnp.divide(x, y)"),
    "pow": (0.3, 2, SAME, SAME),
    "atan2": (0.2, 2, SAME, "jnp.arctan2(x, y)"),
    "hypot": (0.2, 2, SAME, SAME),
    "maximum": (None, 0, SAME, SAME),
    "minimum": (None, 0, SAME, SAME),
    "remainder": (0.4, 3, SAME, SAME),
    "fmod": (0.4, 3, SAME, SAME),
    "floor_divide": (0.4, 3, SAME, SAME),
    "copysign": (None, 0, SAME, SAME),
    "logaddexp": (None, 0, SAME, SAME),
    "nextafter": (None, 0, SAME, SAME),
    "less": (None, 0, SAME, SAME),
    "less_equal": (None, 0, SAME, SAME),
    "greater": (None, 0, SAME, SAME),
    "greater_equal": (None, 0, SAME, SAME),
}

INTEGER = {  # name: the largest absolute number, whether negative ones take part
    "add": (50, True), "sub": (50, True), "mul": (10, True), "floor_divide": (20, True), "remainder": (20, True),
    "fmod": (20, True), "maximum": (50, True), "minimum": (50, True), "bitwise_and": (99, True),
    "bitwise_or": (99, True), "bitwise_xor": (99, True), "bitwise_left_shift": (5, False), "gcd": (60, True),
    "bitwise_right_shift": (5, False), "lcm": (30, True), "equal": (2, True), "not_equal": (2, True), "less": (3, True),
}  # fmt: skip
NAMES = {"sub": "subtract", "mul": "multiply", "bitwise_left_shift": "left_shift", "bitwise_right_shift": "right_shift"}


def _unary(low: float | None, high: float) -> Callable[[Draw], Args]:
    return lambda d: {"x": d.array(d.shape(), low, high)}


def _binary(low: float | None, high: float) -> Callable[[Draw], Args]:
    def draw(d: Draw) -> Args:
        x, y = d.pair()
        return {"x": d.array(x, low, high), "y": d.array(y, low, high)}

    return draw


def _integers(largest: int, signed: bool, name: str) -> Callable[[Draw], Args]:
    def draw(d: Draw) -> Args:
        x, y = d.pair()
        dtype = d.pick("int32", "int64", "int16", "uint8" if name not in ("sub", "lcm") else "int32")
        low = -largest if signed and dtype != "uint8" else 0
        divisor = name in ("floor_divide", "remainder", "fmod")
        right = d.ints(y, low, largest, dtype)
        return {
            "x": d.ints(x, low, largest, dtype),
            "y": np.where(right == 0, 3, right).astype(dtype) if divisor else right,
        }

    return draw


def elementwise() -> list[Entry]:
    found = [entry(f"td.{n}(x)", _unary(low, high), t, j) for n, (low, high, t, j) in UNARY.items()]
    found += [entry(f"td.{n}(x, y)", _binary(low, high), t, j, count=10) for n, (low, high, t, j) in BINARY.items()]
    for name, (largest, signed) in INTEGER.items():
        text = f"td.{name}(x, y)"
        torch = {"equal": "torch.eq(x, y)"}.get(name, SAME)
        jax = f"jnp.{NAMES.get(name, name)}(x, y)"
        # the call differs from the one on floats by a space, and so has its own numbers
        found.append(entry(text.replace("(x", "( x"), _integers(largest, signed, name), torch, jax, fixed="*"))
    bools = lambda d: dict(zip("xy", map(d.bools, d.pair())))
    found += [entry(f"td.logical_{n}(x, y)", bools, count=4) for n in ("and", "or", "xor")]
    complexes = lambda d: {"x": d.complex(d.shape(0, 3))}
    names = ("abs", "real", "imag", "conj", "square", "exp", "log", "tanh", "neg", "reciprocal")
    jaxes = {"neg": "jnp.negative( x)", "reciprocal": "1 / x"}
    found += [entry(f"td.{n}( x)", complexes, jax=jaxes.get(n, SAME), count=5, types=FULL) for n in names]
    found += [
        entry("x * y + x / (y + 3)", _complex_pair, count=6, types=FULL),
        entry("td.clamp(x, a, b)", lambda d: {"x": d.array(d.shape()), "a": -0.5, "b": 0.7}, jax="jnp.clip(x, a, b)"),
        entry("td.where(c, x, y)", _where),
        entry("x ** n", lambda d: {"x": d.array(d.shape(), 0.4, 2), "n": d.pick(-2, -1, 0, 1, 2, 3, 0.5, 2.5)}),
        entry("td.polygamma(n, x)", _polygamma, jax="S.polygamma(n, x)", types=FULL),
    ]
    return found


def _complex_pair(d: Draw) -> Args:
    return dict(zip("xy", map(d.complex, d.pair())))


def _where(d: Draw) -> Args:
    x, y = d.pair()
    return {"c": d.bools(d.pick(x, y)), "x": d.array(x), "y": d.array(y)}


def _polygamma(d: Draw) -> Args:
    return {"x": d.array(d.shape(), 0.5, 5), "n": d.pick(1, 2, 3)}


# --- reductions -------------------------------------------------------------------------------------------------------


def _reduced(kind: str, empty: bool = True) -> Callable[[Draw], Args]:
    def draw(d: Draw) -> Args:
        shape = d.shape(0, 4, empty)
        x = {"apart": d.apart, "any": d.array, "bool": d.bools}.get(kind, lambda s: d.array(s, 0.5, 1.5))(shape)
        return {"x": x, "a": d.axes(shape), "k": d.flag()}

    return draw


def _one(kind: str, low: int = 1, empty: bool = True) -> Callable[[Draw], Args]:
    def draw(d: Draw) -> Args:
        shape = d.shape(low, 4, empty)
        x = {"apart": d.apart, "any": d.array}.get(kind, lambda s: d.array(s, 0.5, 1.5))(shape)
        return {"x": x, "a": d.axis(shape) if shape else -1, "k": d.flag()}

    return draw


def _order(d: Draw) -> Args:
    """An axis of a tensor whose numbers differ, a count of places along it, and a direction."""
    shape = d.shape(1, 3, empty=False)
    axis = d.axis(shape)
    return {"x": d.apart(shape), "a": axis, "n": d.int(1, shape[axis]), "f": d.flag()}


def reductions() -> list[Entry]:
    dims = "dim=a, keepdim=k"
    full = "tuple(range(x.ndim)) if a is None else a"  # where PyTorch takes no None
    found = [
        entry("td.sum(x, axis=a, keepdims=k)", _reduced("any"), f"torch.sum(x, {dims})", count=12),
        entry("td.mean(x, axis=a, keepdims=k)", _reduced("any"), f"torch.mean(x, {dims})", count=12),
        entry("td.prod(x, axis=a, keepdims=k)", _reduced("near"), f"torch.prod(x, {dims})", count=10),
        entry("td.amax(x, axis=a, keepdims=k)", _reduced("apart", False), f"torch.amax(x, dim={full}, keepdim=k)"),
        entry("td.amin(x, axis=a, keepdims=k)", _reduced("apart", False), f"torch.amin(x, dim={full}, keepdim=k)"),
        entry("td.max(x, axis=a, keepdims=k)", _one("apart", 1, False), f"torch.max(x, {dims})[0]"),
        entry("td.min(x, axis=a, keepdims=k)", _one("apart", 1, False), f"torch.min(x, {dims})[0]"),
        entry("td.argmax(x, axis=a, keepdims=k)", _one("apart", 1, False), f"torch.argmax(x, {dims})"),
        entry("td.argmin(x, axis=a, keepdims=k)", _one("apart", 1, False), f"torch.argmin(x, {dims})"),
        entry("td.all(x, axis=a, keepdims=k)", _reduced("bool"), f"torch.all(x, {dims})"),
        entry("td.any(x, axis=a, keepdims=k)", _reduced("bool"), f"torch.any(x, {dims})"),
        entry(
            "td.logsumexp(x, axis=a, keepdims=k)", _reduced("any", False), f"torch.logsumexp(x, dim={full}, keepdim=k)",
            "S.logsumexp(x, axis=a, keepdims=k)", count=10,
        ),
        entry("td.var(x, axis=a, keepdims=k)", _reduced("any", False), f"torch.var(x, {dims}, correction=0)", count=10),
        entry("td.std(x, axis=a, keepdims=k, ddof=n)", _spread, f"torch.std(x, {dims}, correction=n)", count=10),
        entry("td.norm(x, n, axis=a, keepdims=k)", _normed, "L.vector_norm(x, n, a, k)", "L.norm(x, n, a, k)"),
        entry("td.cumsum(x, axis=a)", _one("any"), "torch.cumsum(x, a)"),
        entry("td.cumprod(x, axis=a)", _one("near"), "torch.cumprod(x, a)"),
        entry("td.cummax(x, axis=a)[0]", _one("apart", 1, False), "torch.cummax(x, a)[0]", "lax.cummax(x, a % x.ndim)"),
        entry("td.cummin(x, axis=a)[0]", _one("apart", 1, False), "torch.cummin(x, a)[0]", "lax.cummin(x, a % x.ndim)"),
        entry("td.logcumsumexp(x, axis=a)", _one("any"), "torch.logcumsumexp(x, a)", "lax.cumlogsumexp(x, a % x.ndim)"),
        entry("td.softmax(x, axis=a)", _one("any"), "torch.softmax(x, a)", "F.softmax(x, axis=a)"),
        entry("td.log_softmax(x, axis=a)", _one("any"), "torch.log_softmax(x, a)", "F.log_softmax(x, axis=a)"),
        entry("td.sort(x, axis=a, descending=f)", _order, "torch.sort(x, a, f)[0]"),
        entry("td.argsort(x, axis=a, descending=f)", _order, "torch.argsort(x, a, f)", fixed="*"),
        entry("td.topk(x, n, axis=a, largest=f)", _order, "torch.topk(x, n, a, f)", ""),
    ]  # fmt: skip
    ints = lambda d: {"x": d.ints(s := d.shape(1, 3), -9, 9), "a": d.axis(s)}
    jaxes = {"amax": "jnp.max", "amin": "jnp.min"}
    for name in ("sum", "prod", "cumsum", "amax", "amin", "sort"):
        draw = ints if name in ("sum", "prod", "cumsum") else _filled_ints
        torch = f"torch.{name}(x, a)" + "[0]" * (name == "sort")
        found.append(entry(f"td.{name}(x, a)", draw, torch, f"{jaxes.get(name, 'jnp.' + name)}(x, a)", count=5))
    return found


def _filled_ints(d: Draw) -> Args:
    shape = d.shape(1, 3, empty=False)
    return {"x": d.ints(shape, -9, 9), "a": d.axis(shape)}


def _spread(d: Draw) -> Args:
    shape = tuple(n + 1 for n in d.shape(1, 3, empty=False))
    return {"x": d.array(shape), "a": d.axes(shape), "k": d.flag(), "n": d.pick(0, 1)}


def _normed(d: Draw) -> Args:
    shape = d.shape(1, 3, empty=False)
    return {"x": d.apart(shape), "a": d.axis(shape), "k": d.flag(), "n": d.pick(1, 2, 3, 0.5, math.inf, -math.inf, 0)}


# --- shapes and places ------------------------------------------------------------------------------------------------


def _moved(d: Draw) -> Args:
    """A tensor with two of its axes, an order of all, and a count."""
    shape = d.shape(1, 4)
    order = tuple(int(a) for a in d.rng.permutation(len(shape)))
    return {
        "x": d.array(shape),
        "a": d.axis(shape),
        "b": d.axis(shape),
        "p": order,
        "n": d.int(-3, 3),
        "m": d.int(1, 3),
    }


def _joined(d: Draw) -> Args:
    """Three tensors that differ in size along one axis only; a fourth of the size of the first."""
    shape = list(d.shape(1, 3))
    axis = d.axis(tuple(shape))
    more = [[*shape] for _ in range(2)]
    for other in more:
        other[axis] = d.int(1, 3)
    arrays = [d.array(tuple(s)) for s in (shape, *more, shape)]
    return {**dict(zip("xyzw", arrays)), "a": axis}


def _broadcast(d: Draw) -> Args:
    shape = d.shape()
    return {"x": d.array(d.narrower(shape)), "s": shape}


def _ones(d: Draw) -> Args:
    """A shape with an axis of size 1."""
    shape = list(d.shape(1, 4))
    axis = d.axis(tuple(shape))
    shape[axis] = 1
    return {"x": d.array(tuple(shape)), "a": axis}


def _matrix(d: Draw) -> Args:
    return {"x": d.array(d.shape(2, 4)), "n": d.int(-2, 2)}


def _padded(d: Draw) -> Args:
    shape = d.shape(1, 3, empty=False)
    return {"x": d.array(shape), "w": tuple((d.int(0, 2), d.int(0, 3)) for _ in shape), "v": d.pick(0.0, 1.5)}


def _copied(d: Draw) -> Args:
    shape = tuple(n + 3 for n in d.shape(1, 3, empty=False))
    widths = tuple((d.int(0, 2), d.int(0, 3)) for _ in shape)
    return {"x": d.array(shape), "w": widths, "m": d.pick("reflect", "symmetric", "edge", "wrap")}


def _along(d: Draw) -> Args:
    shape = d.shape(1, 3, empty=False)
    axis = d.axis(shape)
    places = [*shape]
    places[axis] = d.int(1, 4)
    return {"x": d.array(shape), "i": d.ints(tuple(places), 0, shape[axis] - 1, "int64"), "a": axis}


def _taken(d: Draw) -> Args:
    shape = d.shape(1, 3, empty=False)
    axis = d.axis(shape)
    return {"x": d.array(shape), "i": d.ints((d.int(1, 5),), 0, shape[axis] - 1, "int64"), "a": axis}


def _indexed(d: Draw) -> Args:
    shape = (d.int(3, 5), d.int(3, 5), d.int(3, 4))
    return {"x": d.array(shape), "i": d.ints((d.int(1, 4),), -3, 2, "int64"), "j": d.ints((1,), -3, 2, "int64")}


INDEXES = (
    "x[1]", "x[-2, 1:]", "x[:, ::2]", "x[..., None, -1]", "x[i]", "x[:, i]", "x[i, j]", "x[i, :, j]", "x[1:, i, 0]",
    "x[None, 2:1]", "x[..., :-1, 1:3]", "x[i[:, None], i]",
)  # fmt: skip


def shapes() -> list[Entry]:
    found = [
        entry("td.transpose(x, p)", _moved, "torch.permute(x, p)"),
        entry("td.permute(x, p)", _moved, jax="jnp.transpose(x, p)"),
        entry("td.swapaxes(x, a, b)", _moved),
        entry("td.moveaxis(x, a, b)", _moved),
        entry("td.flip(x, a)", _moved, "torch.flip(x, (a,))"),
        entry("td.roll(x, n, a)", _moved),
        entry("td.roll(x, n)", _moved),
        entry("td.tile(x, (m, 2))", _moved),
        entry("td.repeat_interleave(x, m, a)", _moved, jax="jnp.repeat(x, m, a)"),
        entry("td.expand_dims(x, a)", _moved, "torch.unsqueeze(x, a)"),
        entry("td.reshape(x, (-1,)) if x.shape and 0 not in x.shape else x * 1", _moved),
        entry("td.flatten(x)", _moved, jax="jnp.ravel(x)"),
        entry("td.chunk(x, m, a)", _moved, jax=""),
        entry("td.squeeze(x, a)", _ones),
        entry("td.squeeze(x)", _ones),
        entry("td.cat((x, y, z), a)", _joined, jax="jnp.concatenate((x, y, z), a)"),
        entry("td.stack((x, w), a)", _joined),
        entry("td.broadcast_to(x, s)", _broadcast),
        entry("td.expand(x, s)", _broadcast, "x.expand(s)", "jnp.broadcast_to(x, s)"),
        entry("td.tril(x, n)", _matrix),
        entry("td.triu(x, n)", _matrix),
        entry("td.diagonal(x)", _matrix, "torch.diagonal(x, 0, -2, -1)", "jnp.diagonal(x, 0, -2, -1)"),
        entry("td.matrix_transpose(x)", _matrix, "x.mT"),
        entry(
            "td.pad(x, w, v)", _padded, "F.pad(x, [n for p in reversed(w) for n in p], value=v)",
            "jnp.pad(x, w, constant_values=v)",
        ),
        entry("td.pad(x, w, mode=m)", _copied, "", "jnp.pad(x, w, mode=m)"),
        entry("td.gather(x, a, i)", _along, "torch.gather(x, a, i)", "jnp.take_along_axis(x, i, a)"),
        entry("td.take_along_axis(x, i, a)", _along, "torch.take_along_dim(x, i, a)"),
        entry("td.take(x, i, a)", _taken, "torch.index_select(x, a, i)"),
        entry("td.one_hot(i, 5)", _taken, "F.one_hot(i, 5).float()", "F.one_hot(i, 5, dtype=jnp.float32)", fixed="*"),
    ]  # fmt: skip
    found += [entry(text, _indexed, count=4) for text in INDEXES]
    numbers = lambda d: {"m": d.int(0, 5), "n": d.int(1, 7), "v": d.pick(0.25, -1.5), "k": d.int(-2, 2)}
    found += [
        entry("td.arange(m, m + n, 2)", numbers, count=4),
        entry("td.linspace(v, 3.0, n)", numbers, count=4),
        entry("td.eye(n, m + 1)", numbers, count=4),
        entry("td.full((m, n), v)", numbers, count=4),
    ]
    return found


# --- products ---------------------------------------------------------------------------------------------------------


def _product(d: Draw) -> Args:
    """matmul's operands of any rank."""
    n, k, m = (d.int(1, 5) for _ in range(3))
    batch = d.shape(0, 2)
    x = d.pick((k,), (n, k), (*batch, n, k))
    y = d.pick((k,), (k, m), (*d.narrower(batch), k, m))
    return {"x": d.array(x), "y": d.array(y)}


def _contracted(d: Draw) -> Args:
    b, i, j, k = (d.int(0 if d.flag() else 1, 4) for _ in range(4))
    return {"x": d.array((b, i, j)), "y": d.array((b, j, k)), "z": d.array((i, j))}


def products() -> list[Entry]:
    two = "torch.tensordot(x, z, 2)"
    return [
        entry("td.matmul(x, y)", _product, count=20),
        entry("td.einsum('bij,bjk->bik', x, y)", _contracted),
        entry("td.einsum('bij,bjk->ik', x, y)", _contracted),
        entry("td.einsum('bij,ij->b', x, z)", _contracted),
        entry("td.einsum('...ij->...ji', x)", _contracted),
        entry("td.einsum('bij,bjk,ij->k', x, y, z)", _contracted),
        entry("td.tensordot(x, z, 2)", _contracted, two),
        entry("td.outer(x[0, 0], y[0, 0])", lambda d: {"x": d.array((1, 1, d.int(0, 4))), "y": d.array((1, 1, 3))}),
        entry("td.trace(z)", _contracted),
    ]


def entries() -> list[Entry]:
    return [*elementwise(), *reductions(), *shapes(), *products()]
