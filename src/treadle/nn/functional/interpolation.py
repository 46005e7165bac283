"""Resizing of images, and reading them at places that are themselves tensors. Data [N, C, *spatial].

Arguments and coordinates are PyTorch's: the centre of the first element is at 0.5 of its width; with `align_corners`
the centres of the outer elements are the ends. Spatial transformers: Jaderberg et al. 2015, arXiv:1506.02025.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.frontend import functions as fn
from treadle.frontend.lift import cast, lift, literal
from treadle.frontend.logic import clip, where
from treadle.frontend.products import matmul
from treadle.frontend.shaping import moveaxis, permute, reshape, stack
from treadle.frontend.tensor import Tensor
from treadle.nn.functional.adaptive import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from treadle.ops.compare import greater_equal, less_equal, logical_and
from treadle.ops.elementwise import abs, floor, round
from treadle.ops.index import take
from treadle.ops.resizing import resize

Ints = tuple[int, ...]
Weight = tuple[Any, Any, Any]  # place on one axis, weight, whether it is inside

_KINDS = {
    "nearest": "nearest",
    "nearest-exact": "nearest-exact",
    "linear": "linear",
    "bilinear": "linear",
    "trilinear": "linear",
    "bicubic": "cubic",
}
_RANKS = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}


# ------------------------------------------------------------------------------------------------------- resizing
def interpolate(
    x: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """x resized to `size`, or by `scale_factor`: float[N, C, *s] -> float[N, C, *size].

    mode: "nearest", "nearest-exact" and "area" for one to three spatial axes, "linear" for one, "bilinear" and
    "bicubic" for two, "trilinear" for three. A scale factor is also the distance of the places that are read, unless
    recompute_scale_factor takes it from the sizes. antialias ("bilinear", "bicubic") widens the filter where x shrinks.
    Raises E0566 for a mode that does not fit, or sizes that do not.
    """
    x = lift(x)
    spatial = tuple(x.shape[2:])
    _check_mode(x, mode, align_corners, antialias)
    sizes, steps = _goal(spatial, size, scale_factor, bool(recompute_scale_factor))
    if any(n < 1 for n in (*sizes, *spatial)):
        raise UserError("E0566", f"interpolate {x.type} to {list(sizes)}", fix="keep all sizes at 1 or more")
    if mode == "area":
        pools = (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)
        return pools[len(spatial) - 1](x, sizes)
    corners = bool(align_corners)
    for i, (n, m, step) in enumerate(zip(spatial, sizes, steps, strict=True)):
        if corners:
            step = (n - 1) / (m - 1) if m > 1 else 0.0
        if (n, step) != (m, 1.0):
            x = resize(x, axis=i + 2, size=m, step=step, kind=_KINDS[mode], align_corners=corners, antialias=antialias)
    made: Tensor = x
    return made


def _check_mode(x: Any, mode: str, align_corners: bool | None, antialias: bool) -> None:
    rank = x.ndim - 2
    if mode not in (*_KINDS, "area") or not 1 <= rank <= 3 or _RANKS.get(mode, rank) != rank:
        fix = "give [N, C, L] to 'linear', [N, C, H, W] to 'bilinear' and 'bicubic', [N, C, D, H, W] to 'trilinear'"
        raise UserError("E0566", f"interpolate {x.type} with mode={mode!r}", fix=fix)
    if align_corners is not None and mode not in _RANKS:
        raise UserError("E0566", f"align_corners with mode={mode!r}", fix="leave it out: it is for the linear modes")
    if antialias and mode not in ("bilinear", "bicubic"):
        raise UserError("E0566", f"antialias with mode={mode!r}", fix="use 'bilinear' or 'bicubic'")


def _goal(spatial: Ints, size: Any, scale: Any, recompute: bool) -> tuple[Ints, tuple[float, ...]]:
    """The new sizes, and how far apart the places are that are read."""
    rank = len(spatial)
    if (size is None) == (scale is None):
        raise UserError("E0566", "interpolate needs either size or scale_factor", fix="give one of the two")
    given = size if scale is None else scale
    listed = tuple(given) if isinstance(given, tuple | list) else (given,) * rank
    if len(listed) != rank or (scale is not None and any(f <= 0 for f in listed)):
        raise UserError("E0566", f"{given} for {rank} spatial axes", fix="give one positive number, or one per axis")
    if scale is None:
        sizes = tuple([int(n) for n in listed])
    else:
        sizes = tuple([math.floor(n * f) for n, f in zip(spatial, listed, strict=True)])
        if not recompute:
            return sizes, tuple([1.0 / f for f in listed])
    return sizes, tuple([n / max(m, 1) for n, m in zip(spatial, sizes, strict=True)])


# ------------------------------------------------------------------------------------------------------- sampling
def affine_grid(theta: Any, size: Sequence[int], align_corners: bool = False) -> Tensor:
    """The places that `grid_sample` reads for an affine map. theta: float[N, 2, 3] -> float[N, H, W, 2] for a `size` of
    (N, C, H, W); float[N, 3, 4] -> float[N, D, H, W, 3] for (N, C, D, H, W). -1 and 1 are the ends of an axis.

    Raises E0566 when the sizes do not fit.
    """
    theta, spatial = lift(theta), tuple(size[2:])
    rank = len(spatial)
    if rank not in (2, 3) or tuple(theta.shape) != (size[0], rank, rank + 1) or min(spatial) < 1:
        why = f"affine_grid of {theta.type} for size {tuple(size)}"
        raise UserError("E0566", why, fix="give [N, 2, 3] and (N, C, H, W), or [N, 3, 4] and (N, C, D, H, W)")
    axes = []
    for n in spatial:
        ends = np.linspace(-1, 1, n) if n > 1 else np.zeros(1)
        axes.append(ends if align_corners else ends * (n - 1) / n)
    places = np.stack([*np.meshgrid(*axes, indexing="ij")][::-1] + [np.ones(spatial)], -1).reshape(-1, rank + 1)
    grid = matmul(literal(places.astype(theta.dtype.np)), permute(theta, 0, 2, 1))
    made: Tensor = reshape(grid, (size[0], *spatial, rank))
    return made


def grid_sample(
    x: Any,
    grid: Any,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> Tensor:
    """x read at the places in `grid`, whose last axis is (x, y) or (x, y, z), -1 and 1 the ends of an axis.

    x: float[N, C, H, W], grid: float[N, H', W', 2] -> float[N, C, H', W']; or with D and 3. mode: "bilinear" (of all
    spatial axes), "nearest", "bicubic" (two spatial axes). padding_mode: what is outside: "zeros", "border" (the
    nearest element) or "reflection". Raises E0566 for other modes or sizes.
    """
    x, grid = lift(x), lift(grid)
    _check_grid(x, grid, mode, padding_mode)
    if x.dtype.bits == 16:  # whose places would be too coarse
        wide, at = cast(x, dtypes.float32), cast(grid, dtypes.float32)
        narrow: Tensor = cast(grid_sample(wide, at, mode, padding_mode, align_corners), x.dtype)
        return narrow
    spatial, places = tuple(x.shape[2:]), tuple(grid.shape[1:-1])
    n, channels, count = x.shape[0], x.shape[1], math.prod(spatial)
    rows = reshape(moveaxis(x, 1, -1), (n * count, channels))
    first = literal(np.arange(n, dtype=np.int32).reshape(n, *[1] * len(places)) * count)
    columns = [grid[..., len(spatial) - 1 - i] for i in range(len(spatial))]
    reads = [_READS[mode](c, size, padding_mode, align_corners) for c, size in zip(columns, spatial, strict=True)]
    reads[0] = _stacked(reads[0])
    total: Any = None
    for corner in product(*reads):
        index, weight, inside = first, None, None
        for (at, share, is_in), after in zip(corner, _steps(spatial), strict=True):
            index = index + cast(at, dtypes.int32) * after
            weight = share if weight is None else weight * share
            if is_in is not None:
                inside = is_in if inside is None else logical_and(inside, is_in)
        part = take(rows, index, axis=0)
        if inside is not None:  # what is outside is not read: 0 times infinity would be NaN
            part = where(reshape(inside, (*inside.shape, 1)), part, 0.0)
        if weight is not None:
            part = part * reshape(weight, (*weight.shape, 1))
        total = part if total is None else total + part
    if total.ndim > len(places) + 2:
        total = fn.sum(total, 0)
    made: Tensor = moveaxis(total, -1, 1)
    return made


def _stacked(taps: list[Weight]) -> list[Weight]:
    """The four taps of a cubic as one, along a new first axis: a quarter of the scatters to compile in the gradient."""
    if len(taps) < 4:
        return taps
    at, share, inside = zip(*taps, strict=True)
    return [(stack(at, 0), stack(share, 0), None if inside[0] is None else stack(inside, 0))]


def _check_grid(x: Any, grid: Any, mode: str, padding_mode: str) -> None:
    rank = x.ndim - 2
    if mode not in _READS or padding_mode not in ("zeros", "border", "reflection") or (mode, rank) == ("bicubic", 3):
        why = f"grid_sample of {x.type} with mode={mode!r}, padding_mode={padding_mode!r}"
        raise UserError("E0566", why, fix="use 'bilinear', 'nearest' or, for images, 'bicubic'")
    fits = rank in (2, 3) and grid.ndim == x.ndim and grid.shape[0] == x.shape[0] and grid.shape[-1] == rank
    if not fits or x.dtype is not grid.dtype or not x.dtype.is_float or 0 in x.shape[2:]:
        why = f"grid_sample of {x.type} at {grid.type}"
        raise UserError("E0566", why, fix="give [N, C, H, W] and [N, H', W', 2] (or with D and 3) of one float type")
    if x.shape[0] * math.prod(x.shape[2:]) >= 2**31:
        raise UserError("E0131", f"{x.type} has too many places for int32", fix="split the batch")


def _steps(spatial: Ints) -> list[int]:
    """How many rows one step along each axis is."""
    return [math.prod(spatial[i + 1 :]) for i in range(len(spatial))]


def _place(g: Any, size: int, align_corners: bool) -> Any:
    """Element numbers of places from -1 to 1."""
    return (g + 1) * ((size - 1) / 2) if align_corners else ((g + 1) * size - 1) / 2


def _kept(at: Any, size: int, padding: str, align_corners: bool) -> Any:
    """Places outside moved to where padding reads; zeros: left as they are."""
    if padding == "reflection":
        low, span = (0.0, float(size - 1)) if align_corners else (-0.5, float(size))
        if not span:
            return at * 0
        off = abs(at - low)
        turns = floor(off / span)
        rest = off - turns * span
        odd = turns - floor(turns / 2) * 2
        at = where(greater_equal(odd, 1), span - rest, rest) + low
    return at if padding == "zeros" else clip(at, 0, size - 1)


def _tap(at: Any, share: Any, size: int, padding: str) -> Weight:
    """A place that may be outside as one that can be read."""
    inside = logical_and(greater_equal(at, 0), less_equal(at, size - 1)) if padding == "zeros" else None
    return clip(at, 0, size - 1), share, inside


def _read_linear(g: Any, size: int, padding: str, align_corners: bool) -> list[Weight]:
    at = _kept(_place(g, size, align_corners), size, padding, align_corners)
    first = floor(at)
    part = at - first
    return [_tap(first, 1 - part, size, padding), _tap(first + 1, part, size, padding)]


def _read_nearest(g: Any, size: int, padding: str, align_corners: bool) -> list[Weight]:
    at = _kept(_place(g, size, align_corners), size, padding, align_corners)
    return [_tap(round(at), None, size, padding)]


def _read_cubic(g: Any, size: int, padding: str, align_corners: bool) -> list[Weight]:
    """Four elements, each of which padding moves by itself."""
    at = _place(g, size, align_corners)
    first = floor(at)
    part = at - first
    far, near = (1 + part, 2 - part), (part, 1 - part)
    shares = (_far(far[0]), _near(near[0]), _near(near[1]), _far(far[1]))
    return [_tap(_kept(first + (i - 1), size, padding, align_corners), s, size, padding) for i, s in enumerate(shares)]


_A = -0.75  # Keys 1981, doi:10.1109/TASSP.1981.1163711, with PyTorch's value


def _near(d: Any) -> Any:
    return ((_A + 2) * d - (_A + 3)) * d * d + 1


def _far(d: Any) -> Any:
    return (((d - 5) * d + 8) * d - 4) * _A


_READS: dict[str, Callable[..., list[Weight]]] = {
    "bilinear": _read_linear,
    "nearest": _read_nearest,
    "bicubic": _read_cubic,
}
