"""Scatters, segments, sets, counts and searches with their peers; more linear algebra; entries of the comparison."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .calls import Args, Entry
from .draw import FULL, Draw, Narrow
from .plain import SAME, entry

# --- scatters ---------------------------------------------------------------------------------------------------------


def _cut(array: Any, cuts: tuple[int, ...], shapes: list[tuple[int, ...]]) -> list[Any]:
    """Parts of a line of numbers, one for each shape."""
    if isinstance(array, Narrow):
        return [Narrow(part) for part in _cut(array.array, cuts, shapes)]
    return [part.reshape(s) for part, s in zip(np.split(array, cuts), shapes)]


def _elements(several: bool) -> Callable[[Draw], Args]:
    """x, places i along the axis a and numbers y for them, all different; `several`: a place may be named twice."""

    def draw(d: Draw) -> Args:
        shape = d.shape(1, 3, empty=False)
        axis = d.axis(shape)
        places = [d.int(1, n) for n in shape]
        if several:
            places[axis] = d.int(1, 5)
            index = d.ints(tuple(places), 0, shape[axis] - 1, "int64")
        else:
            order = np.argsort(d.rng.random(shape), axis=axis)
            index = order[tuple(map(slice, places))].astype("int64")
        x, y = _cut(d.apart((int(np.prod(shape)) + index.size,)), (int(np.prod(shape)),), [shape, index.shape])
        return {"x": x, "y": y, "i": index, "a": axis, "s": d.flag(), "v": d.pick(0.5, -2.0)}

    return draw


def _slices(several: bool) -> Callable[[Draw], Args]:
    """x, places i on its axis a, and slices y for them."""

    def draw(d: Draw) -> Args:
        shape = d.shape(1, 3, empty=False)
        axis = d.axis(shape)
        count = d.int(1, 5 if several else shape[axis])
        index = d.ints((count,), 0, shape[axis] - 1, "int64") if several else d.rng.permutation(shape[axis])[:count]
        other = [*shape]
        other[axis] = count
        size, more = int(np.prod(shape)), int(np.prod(other))
        x, y = _cut(d.apart((size + more,)), (size,), [shape, tuple(other)])
        return {"x": x, "y": y, "i": index.astype("int64"), "a": axis, "s": d.flag(), "v": d.pick(0.5, -2.0)}

    return draw


def _masked(d: Draw) -> Args:
    shape = d.shape(1, 3)
    return {"x": d.array(shape), "c": d.bools(shape), "v": d.pick(0.5, -2.0), "y": d.array((int(np.prod(shape)) + 1,))}


def scatters() -> list[Entry]:
    at = "x.at[tuple(i if k == a % x.ndim else g for k, g in enumerate(jnp.indices(i.shape)))]"
    along = "x.at[(slice(None),) * (a % x.ndim) + (i,)]"
    found = [
        entry("td.scatter_add(x, a, i, y)", _elements(True), jax=f"{at}.add(y)", count=10),
        entry("td.scatter(x, a, i, y)", _elements(False), jax=f"{at}.set(y)", count=10),
        entry("td.scatter(x, a, i, v)", _elements(False), jax=f"{at}.set(v)"),
        entry("td.put_along_axis(x, i, y, a)", _elements(False), "", "jnp.put_along_axis(x, i, y, a, inplace=False)"),
        entry("td.index_add(x, a, i, y)", _slices(True), jax=f"{along}.add(y)", count=10),
        entry("td.index_add(x, a, i, y, alpha=3)", _slices(True), jax=f"{along}.add(3 * y)"),
        entry("td.index_copy(x, a, i, y)", _slices(False), jax=f"{along}.set(y)"),
        entry("td.index_fill(x, a, i, v)", _slices(False), jax=f"{along}.set(v)"),
        entry("td.masked_fill(x, c, v)", _masked, jax="jnp.where(c, jnp.asarray(v, x.dtype), x)"),
        entry("td.masked_scatter(x, c, y)", _masked, jax=""),
        entry("td.masked_select(x, c)", _masked, jax="", fixed="*"),
    ]
    jaxes = {"sum": "add", "prod": "multiply", "amax": "max", "amin": "min"}
    for name in ("sum", "prod", "mean", "amax", "amin"):
        text = f"td.scatter_reduce(x, a, i, y, '{name}', include_self=s)"
        found.append(entry(text, _elements(True), jax="", count=10))
        if name in jaxes:
            text = f"td.scatter_reduce(x, a, i, y, '{name}')"
            found.append(entry(text, _elements(True), "", f"{at}.{jaxes[name]}(y)", count=5))
        if name != "sum":
            text = f"td.index_reduce(x, a, i, y, '{name}', include_self=s)"
            found.append(entry(text, _slices(True), jax="", count=6))
    return found


# --- segments, sets, counts, searches ---------------------------------------------------------------------------------


def _segments(d: Draw) -> Args:
    rows = d.int(1, 7)
    return {"x": d.apart((rows, *d.shape(0, 2, False))), "i": d.ints((rows,), 0, 4, "int32")}


def _whole(d: Draw) -> Args:
    shape = d.shape(1, 2, empty=False)
    return {"i": d.ints(shape, 0, 8), "j": d.ints((d.int(2, 9), 2), 0, 2), "a": d.axis(shape)}


def _sorted(d: Draw) -> Args:
    """A sorted line with equal neighbours, and numbers to look for, some of them in it."""
    line = np.sort(d.ints((d.int(1, 8),), -6, 6, "int64")) / 4
    return {"s": d.exact(line), "v": d.exact(d.ints(d.shape(0, 2), -7, 7, "int64") / 4), "f": d.flag()}


def _counted(d: Draw) -> Args:
    n = d.int(1, 30)
    return {"x": d.array((n,), -2.5, 2.5), "i": d.ints((n,), 0, 8, "int64"), "w": d.array((n,)), "n": d.int(1, 6)}


def sets() -> list[Entry]:
    side = "side='right' if f else 'left'"
    found = [
        entry(f"td.segment_{n}(x, i, 5)", _segments, "", f"jax.ops.segment_{n}(x, i, 5)")
        for n in ("sum", "prod", "max", "min")
    ]
    return [
        *found,
        entry("td.segment_sum(x, i, 5) + 0", _segments,
            "torch.zeros(5, *x.shape[1:]).to(x.dtype).index_add(0, i, x)", ""),
        entry("td.unique(i)", _whole, jax=""),
        entry("td.unique(i, return_inverse=True, return_counts=True)", _whole, jax=""),
        entry("td.unique(j, axis=0)", _whole, "torch.unique(j, dim=0)", ""),
        entry("td.unique(j, return_inverse=True, return_counts=True, axis=1)", _whole,
            "torch.unique(j, return_inverse=True, return_counts=True, dim=1)", ""),
        entry("td.unique(i, size=9, fill_value=-1)", _whole, ""),
        entry("td.argwhere(i % 3)", _whole, jax=""),
        entry("td.nonzero(i % 3)", _whole, "torch.nonzero(i % 3, as_tuple=True)", ""),
        entry("td.argwhere(i % 3, size=5)", _whole, ""),
        entry("td.count_nonzero(i % 3, a)", _whole),
        entry("td.bincount(i, length=9)", _counted, "torch.bincount(i, minlength=9)", fixed="*"),
        entry("td.bincount(i, w, length=9)", _counted, "torch.bincount(i, w, minlength=9)", types=FULL, fixed="x"),
        entry("td.histogram(x, n, (-2.0, 2.0))[0]", _counted, "torch.histc(x, n, -2.0, 2.0).long()",
            "jnp.histogram(x, n, (-2.0, 2.0))[0].astype(int)", types=FULL, fixed="*"),
        entry("td.histogram(x, n, (-2.0, 2.0), w, True)", _counted,
            "torch.histogram(x, n, range=(-2.0, 2.0), weight=w, density=True)",
            "jnp.histogram(x, n, (-2.0, 2.0), w, True)", types=FULL, fixed="*"),
        entry("td.searchsorted(s, v, right=f)", _sorted, jax=f"jnp.searchsorted(s, v, {side})", fixed="*", count=10),
        entry("td.bucketize(v, s, right=f)", _sorted, jax="", fixed="*"),
        entry("td.digitize(v, s, right=f)", _sorted, "", fixed="*"),
        entry("td.split(x, [1, n], 0)", lambda d: {"x": d.array(((n := d.int(1, 3)) + 1, 2)), "n": n},
            "torch.split(x, [1, n], 0)", "jnp.split(x, [1], 0)"),
        entry("td.dot(x, y)", _vectors, "torch.tensordot(x, y, ([-1], [0]))"),
        entry("td.isnan(x), td.isinf(x)", _odd, jax="(jnp.isnan(x), jnp.isinf(x))"),
        entry("td.logical_not(i), td.bitwise_not(i)", _whole, jax="(jnp.logical_not(i), jnp.bitwise_not(i))"),
    ]  # fmt: skip


def _vectors(d: Draw) -> Args:
    n = d.int(1, 5)
    return {"x": d.array((*d.shape(0, 2), n)), "y": d.array((n,))}


def _odd(d: Draw) -> Args:
    return {"x": d.exact(np.array([d.pick(0.0, 1.5, np.nan, np.inf, -np.inf) for _ in range(6)]))}


# --- more linear algebra ----------------------------------------------------------------------------------------------


def _square(d: Draw) -> Args:
    """Well conditioned square matrices x, right sides b, tall ones w, column scales m, the identity e."""
    n, batch = d.int(1, 5), d.shape(0, 2)
    x = d.array((*batch, n, n)) * 0.4 + 2 * np.eye(n, dtype=d.float)
    more = {"b": d.array((*batch, n, d.int(1, 3))), "w": d.array((*batch, n + d.int(0, 2), n))}
    return {"x": x, **more, "m": np.arange(1.0, n + 1, dtype=d.float), "e": np.eye(n, dtype=d.float)}


def _single(d: Draw) -> Args:
    """Matrices x [n, n] and w [n, k] and what else fits them."""
    n, k = d.int(1, 4), d.int(1, 4)
    x = d.array((n, n)) * 0.4 + 2 * np.eye(n, dtype=d.float)
    return {"x": x, "w": d.array((n, k)), "y": d.array((k, d.int(1, 3))), "v": d.array((d.int(1, 4),)),
            "n": d.int(1, 4), "p": d.pick(None, 1, -1, 2, -2, "fro", float("inf"))}  # fmt: skip


def _six(d: Draw) -> Args:
    x = (d.array((6, 6)) * 0.3 + 2 * np.eye(6, dtype=d.float)).reshape(2, 3, 6)
    return {"x": x, "y": d.array((2, 3)), "t": d.array((2,), 0.2, 1.0), "h": d.array((*d.shape(0, 1), 4, 2))}


def linalg() -> list[Entry]:
    """Vectors that are known up to a sign are compared by their absolute values."""
    one = lambda text, torch=SAME, jax=SAME, **more: entry(text, _square, torch, jax, types=FULL, **more)
    two = lambda text, torch=SAME, jax=SAME, **more: entry(text, _single, torch, jax, types=FULL, **more)
    six = lambda text, torch=SAME, jax=SAME, **more: entry(text, _six, torch, jax, types=FULL, count=5, **more)
    taus = "jnp.broadcast_to(t, (*h.shape[:-2], 2))"
    factor = lambda t: f"L.cholesky(x @ {t}.swapaxes(x, -1, -2) + e)"
    solved = lambda name, t, b="": f"{name}({b}{factor(t)})"
    reduced = "L.svd(w * m, full_matrices=False)"
    return [
        one(solved("L.cholesky_inverse", "td"), solved("torch.cholesky_inverse", "torch"), "", fixed="e"),
        one(solved("L.cholesky_solve", "td", "b, "), solved("torch.cholesky_solve", "torch", "b, "),
            f"SL.cho_solve(({factor('jnp')}, True), b)", fixed="e", count=10),
        one("L.lu(x)", jax="SL.lu(x)"),
        one("L.lu_solve(*L.lu_factor(x), b)", jax="SL.lu_solve(SL.lu_factor(x), b)"),
        one("td.abs(L.svd(w * m)[0]), td.abs(L.svd(w * m)[2])",
            f"(torch.abs({reduced}[0]), torch.abs({reduced}[2]))", f"(jnp.abs({reduced}[0]), jnp.abs({reduced}[2]))"),
        one("(L.eigvals(x) ** 3).sum(-1)", count=10),
        one("td.abs(L.eig(x)[0] ** 2).sum(-1)"),
        one("L.matrix_rank(w)", fixed="*"),
        one("L.adjoint(w)", "w.mH", "L.matrix_transpose(w).conj()"),
        two("L.cond(x, p)", count=12),
        two("td.linalg.kron(x, w)", "torch.kron(x, w)", "jnp.kron(x, w)"),
        two("L.multi_dot([x, w, y])"),
        two("L.norm(w)"),
        two("L.vander(v, n)", "L.vander(v, N=n)", "jnp.vander(v, n, increasing=True)"),
        two("td.outer(v, w[0])"),
        two("L.diagonal(w, 1)", "L.diagonal(w, offset=1)", "L.diagonal(w, offset=1)"),
        six("L.tensorinv(x, 2)", "L.tensorinv(x, 2)", "L.tensorinv(x, 2)"),
        six("L.tensorsolve(x, y)"),
        six("L.householder_product(h, td.broadcast_to(t, (*h.shape[:-2], 2)))",
            "L.householder_product(h, torch.broadcast_to(t, (*h.shape[:-2], 2)))",
            f"lax.linalg.householder_product(h, {taus})"),
        *[entry(f"T.{n}2(x)", lambda d: {"x": d.complex((*d.shape(0, 1), d.int(2, 4), 3))}, types=FULL, count=4)
          for n in ("fft", "ifft", "irfft")],
        entry("T.rfft2(x)", lambda d: {"x": d.array((*d.shape(0, 1), d.int(1, 4), 3))}, types=FULL, count=4),
        entry("T.fftfreq(n, 0.5), T.rfftfreq(n)", lambda d: {"n": d.int(1, 7)}, types=("float32",), count=3),
    ]  # fmt: skip
