"""Distances and likeness of vectors, bilinear maps, rearrangements of pixels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.frontend import functions as fn
from treadle.frontend.casting import follow
from treadle.frontend.lift import lift
from treadle.frontend.products import matmul
from treadle.frontend.shaping import permute, reshape
from treadle.frontend.tensor import Tensor
from treadle.ops.elementwise import maximum


def cosine_similarity(x: Any, y: Any, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """sum(x * y) / (|x| * |y|) along the axis, each norm at least eps. Shapes broadcast."""
    x, y = lift(x), lift(y)
    below = maximum(fn.norm(x, axis=dim), eps) * maximum(fn.norm(y, axis=dim), eps)
    likeness: Tensor = fn.sum(x * y, dim) / below
    return likeness


def pairwise_distance(x: Any, y: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """The p-norm of x - y + eps along the last axis."""
    distance: Tensor = fn.norm(lift(x) - lift(y) + eps, p, axis=-1, keepdims=keepdim)
    return distance


def normalize(x: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """x over its p-norm along the axis, which counts as at least eps."""
    x = lift(x)
    y: Tensor = x / maximum(fn.norm(x, p, axis=dim, keepdims=True), eps)
    return y


def bilinear(x: Any, y: Any, weight: Any, bias: Any = None) -> Tensor:
    """x[..., i] * weight[o, i, j] * y[..., j] + bias -> float[..., o]. Raises E0566 when the sizes do not fit."""
    x, y, weight = lift(x), lift(y), lift(weight)
    if weight.ndim != 3 or x.shape[-1:] + y.shape[-1:] != weight.shape[1:] or x.shape[:-1] != y.shape[:-1]:
        why = f"bilinear of {x.type} and {y.type} with weight {weight.type}"
        raise UserError("E0566", why, fix="give [..., i], [..., j] and [o, i, j]")
    outs, n, m = weight.shape
    lead = x.shape[:-1]
    flat = math.prod(lead)
    pairs = reshape(reshape(x, (flat, n, 1)) * reshape(y, (flat, 1, m)), (flat, n * m))
    made = reshape(matmul(pairs, permute(reshape(weight, (outs, n * m)), 1, 0)), (*lead, outs))
    out: Tensor = made if bias is None else made + follow(lift(bias), made)
    return out


def pixel_shuffle(x: Any, upscale_factor: int) -> Tensor:
    """float[..., C * r * r, H, W] -> float[..., C, H * r, W * r]. Source: Shi et al. 2016, arXiv:1609.05158.

    Raises E0566 when r * r does not divide the channels.
    """
    x, r = lift(x), upscale_factor
    if x.ndim < 3 or r < 1 or x.shape[-3] % (r * r):
        raise UserError("E0566", f"pixel_shuffle by {r} of {x.type}", fix="give channels that r * r divides")
    *lead, c, h, w = x.shape
    at = len(lead)
    parts = reshape(x, (*lead, c // (r * r), r, r, h, w))
    moved = permute(parts, *range(at), *[at + i for i in (0, 3, 1, 4, 2)])
    y: Tensor = reshape(moved, (*lead, c // (r * r), h * r, w * r))
    return y


def pixel_unshuffle(x: Any, downscale_factor: int) -> Tensor:
    """Undoes `pixel_shuffle`: float[..., C, H * r, W * r] -> float[..., C * r * r, H, W]. Raises E0566 as it."""
    x, r = lift(x), downscale_factor
    if x.ndim < 3 or r < 1 or x.shape[-1] % r or x.shape[-2] % r:
        raise UserError("E0566", f"pixel_unshuffle by {r} of {x.type}", fix="give height and width that r divides")
    *lead, c, h, w = x.shape
    at = len(lead)
    parts = reshape(x, (*lead, c, h // r, r, w // r, r))
    moved = permute(parts, *range(at), *[at + i for i in (0, 2, 4, 1, 3)])
    y: Tensor = reshape(moved, (*lead, c * r * r, h // r, w // r))
    return y


def channel_shuffle(x: Any, groups: int) -> Tensor:
    """Channels [g * k] read as [g, k] and written as [k, g]. x: float[N, C, ...].

    Source: Zhang et al. 2018, arXiv:1707.01083. Raises E0566 when the groups do not divide C.
    """
    x = lift(x)
    if x.ndim < 3 or groups < 1 or x.shape[1] % groups:
        raise UserError("E0566", f"channel_shuffle by {groups} of {x.type}", fix="give [N, C, ...], groups dividing C")
    n, c, *rest = x.shape
    parts = fn.swapaxes(reshape(x, (n, groups, c // groups, *rest)), 1, 2)
    y: Tensor = reshape(parts, (n, c, *rest))
    return y


def pdist(x: Any, p: float = 2.0) -> Tensor:
    """The p-norm distances of all pairs of rows i < j, in the order of (i, j). x: float[N, D] -> float[N (N - 1) / 2].

    Raises E0566 for another number of axes.
    """
    x = lift(x)
    if x.ndim != 2:
        raise UserError("E0566", f"pdist of {x.type}", fix="give float[N, D]")
    first, second = np.triu_indices(x.shape[0], 1)
    distance: Tensor = fn.norm(fn.take(x, first, 0) - fn.take(x, second, 0), p, axis=-1)
    return distance
