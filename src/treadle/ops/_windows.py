"""Sizes and slices of windows that slide over trailing axes, shared by convolutions and poolings."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from treadle.base.errors import UserError

Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]


def check_windows(rank: int, window: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> None:
    """E0147 unless there is one positive window, stride and dilation and one (low, high) pair for each spatial axis."""
    for name, given in (("window", window), ("stride", stride), ("dilation", dilation)):
        if len(given) != rank or any(n < 1 for n in given):
            why = f"{name} {given} for {rank} spatial axes"
            raise UserError("E0147", why, fix=f"give {rank} positive integers")
    if len(padding) != rank or any(len(p) != 2 for p in padding):
        raise UserError("E0147", f"padding {padding} for {rank} spatial axes", fix="give one (low, high) pair for each")


def out_sizes(size: Ints, window: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> Ints:
    """How many windows fit along each axis. Raises E0148 where not even one does."""
    result = []
    for n, w, s, (low, high), d in zip(size, window, stride, padding, dilation):
        room = n + low + high - d * (w - 1) - 1
        if room < 0:
            why = f"a window of {d * (w - 1) + 1} does not fit into {n} elements padded by {low} and {high}"
            raise UserError("E0148", why, fix="use a smaller kernel, a larger input or more padding")
        result.append(room // s + 1)
    return tuple(result)


def dilated(n: int, by: int) -> int:
    """The extent of n elements set `by` apart."""
    return (n - 1) * by + 1


def padded(x: Any, padding: Pairs, fill: Any = 0) -> Any:
    """NumPy array with its trailing axes padded; negative amounts cut elements off."""
    lead = [(0, 0)] * (x.ndim - len(padding))
    x = np.pad(x, lead + [(max(a, 0), max(b, 0)) for a, b in padding], constant_values=fill)
    return x[(..., *[slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(x.shape[len(lead) :], padding)])]


def offsets(window: Ints) -> Iterator[Ints]:
    """Every position inside a window, row by row."""
    return product(*[range(w) for w in window])


def strided(at: Ints, out: Ints, stride: Ints, dilation: Ints) -> Any:
    """The index of the elements of the padded tensor that stand at position `at` of each window."""
    return (..., *[slice(p * d, p * d + dilated(n, s), s) for p, n, s, d in zip(at, out, stride, dilation)])


def opposite(padding: Pairs) -> Pairs:
    """What undoes `padded`."""
    return tuple([(-a, -b) for a, b in padding])


def letters(mark: str, count: int) -> str:
    """Names of spatial axes that are needed whole, for `axes` rules: `!s0 !s1`."""
    return " ".join(f"!{mark}{i}" for i in range(count))
