"""Which elements of an axis make up each element of the resized axis, and with what weights. NumPy in, NumPy out.

A table is (places, weights), both [size, taps]: result[o] = sum over t of weights[o, t] * x[places[o, t]]. A tap of
weight 0 is not read. Coordinates and filters are PyTorch's; `step` is how far the place in x moves from one element of
the result to the next. Cubic: Keys 1981, doi:10.1109/TASSP.1981.1163711, with a = -3/4, or -1/2 with antialias.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Table = tuple[Array, Array]

KINDS = ("nearest", "nearest-exact", "linear", "cubic")


@lru_cache(maxsize=256)
def taps(count: int, size: int, step: float, kind: str, align_corners: bool, antialias: bool) -> Table:
    """The table that makes `size` elements of `count`."""
    if kind.startswith("nearest"):
        return _nearest(count, size, step, 0.5 if kind == "nearest-exact" else 0.0)
    if size == count and (kind == "linear" or antialias):  # x itself, whatever the step
        return np.arange(size, dtype=np.int32)[:, None], np.ones((size, 1))
    if antialias:
        return _filtered(count, size, step, kind)
    at = np.arange(size) * step if align_corners else (np.arange(size) + 0.5) * step - 0.5
    if kind == "linear":
        at = np.maximum(at, 0)
        first = np.minimum(np.floor(at), count - 1)
        part = np.clip(at - first, 0, 1)
        places, weights = first[:, None] + [0, 1], np.stack([1 - part, part], 1)
    else:
        first = np.floor(at)
        places = first[:, None] + [-1, 0, 1, 2]
        weights = _cubic(at[:, None] - places, -0.75)
    return np.clip(places, 0, count - 1).astype(np.int32), weights


@lru_cache(maxsize=256)
def transposed(count: int, size: int, step: float, kind: str, align_corners: bool, antialias: bool) -> Table:
    """The table of the opposite map: for each of the `count` elements, which of the `size` ones it went into."""
    places, weights = taps(count, size, step, kind, align_corners, antialias)
    outs, ins = np.nonzero(weights)[0], places[weights != 0]
    order = np.argsort(ins, kind="stable")
    outs, ins, values = outs[order], ins[order], weights[weights != 0][order]
    found = np.bincount(ins, minlength=count)
    rank = np.arange(ins.size) - (np.cumsum(found) - found)[ins]
    back = np.zeros((count, found.max()), np.int32), np.zeros((count, found.max()))
    back[0][ins, rank], back[1][ins, rank] = outs, values
    return back


def _nearest(count: int, size: int, step: float, shift: float) -> Table:
    """One element each. In float32, as PyTorch does: where rounding decides, both take the same element."""
    at = (np.arange(size, dtype=np.float32) + np.float32(shift)) * np.float32(step)
    places = np.minimum(np.floor(at), count - 1).astype(np.int32)
    return places[:, None], np.ones((size, 1))


def _filtered(count: int, size: int, step: float, kind: str) -> Table:
    """Weights that widen with the step, so that no element is left out. Source: Pillow's and PyTorch's antialias."""
    weight: Callable[[Array], Array] = _triangle if kind == "linear" else _sharper_cubic
    spread = max(step, 1.0)
    reach = spread * (1 if kind == "linear" else 2)
    centre = (np.arange(size) + 0.5) * step
    first = np.maximum((centre - reach + 0.5).astype(np.int64), 0)
    last = np.minimum((centre + reach + 0.5).astype(np.int64), count)
    places = first[:, None] + np.arange(max(int((last - first).max()), 1))
    weights = np.where(places < last[:, None], weight((places - centre[:, None] + 0.5) / spread), 0.0)
    total = weights.sum(1, keepdims=True)
    return np.minimum(places, count - 1).astype(np.int32), weights / np.where(total == 0, 1, total)


def _triangle(d: Array) -> Array:
    return np.asarray(np.maximum(1 - np.abs(d), 0))


def _sharper_cubic(d: Array) -> Array:
    return _cubic(d, -0.5)


def _cubic(d: Array, a: float) -> Array:
    """The cubic of two pieces at distance d; 0 from 2 on."""
    d = np.abs(d)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = (((d - 5) * d + 8) * d - 4) * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))
