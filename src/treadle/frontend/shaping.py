"""Functions that move elements without computing: other shapes, orders, joins, cuts. All give new tensors, never views.

`axis=` and `dim=` are the same argument; negative axes count from the back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from treadle.base import arguments, dtypes
from treadle.base.errors import UserError
from treadle.frontend import quick
from treadle.frontend.lift import (
    cast,
    either,
    fresh,
    index_along,
    integer,
    ints,
    lift,
    literal,
    many_axes,
    one_axis,
)
from treadle.frontend.pysrc import grown
from treadle.ir import build
from treadle.ops import compare, reduce
from treadle.ops import shape as ops
from treadle.ops.dynamic import dynamic_slice
from treadle.ops.index import take

Ints = tuple[int, ...]


def reshape(x: Any, *shape: Any) -> Any:
    """The elements, row by row, in another shape; one size may be -1. Raises E0112 when the counts do not fit."""
    found = quick.reshaped(x, shape)
    if found is not None:
        return found
    x, sizes = lift(x), ints(shape)
    if -1 in sizes:
        known = math.prod(n for n in sizes if n != -1)
        size = math.prod(x.shape)
        if sizes.count(-1) > 1 or known <= 0 or size % known:
            why = f"{size} elements in shape {list(sizes)}: the size -1 has no single value"
            raise UserError("E0112", why, fix="leave one size open, that the others divide")
        sizes = tuple([size // known if n == -1 else n for n in sizes])
    return _reshaped(x, sizes)


def _reshaped(x: Any, shape: Ints) -> Any:
    return fresh(x) if tuple(x.shape) == shape else ops.reshape(x, shape=shape)


def flatten(x: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    """The axes start_dim to end_dim (included) made one; a 0-d tensor gets one axis."""
    x = lift(x)
    if x.ndim == 0:
        return reshape(x, (1,))
    start, end = one_axis(start_dim, x.ndim), one_axis(end_dim, x.ndim)
    if start > end:
        raise UserError("E0107", f"axis {start_dim} comes after axis {end_dim}", fix="exchange them")
    return _reshaped(x, (*x.shape[:start], math.prod(x.shape[start : end + 1]), *x.shape[end + 1 :]))


def squeeze(x: Any, axis: Any = None, *, dim: Any = None) -> Any:
    """x without its axes of size 1, or without those named. Raises E0107 for a named axis of another size."""
    x, axis = lift(x), either("axis", axis, "dim", dim)
    gone = tuple(i for i, n in enumerate(x.shape) if n == 1) if axis is None else many_axes(axis, x.ndim)
    for i in gone:
        if x.shape[i] != 1:
            raise UserError("E0107", f"axis {i} of shape {list(x.shape)} has not size 1", fix="index it: x[:, 0]")
    return _reshaped(x, tuple([n for i, n in enumerate(x.shape) if i not in gone]))


def expand_dims(x: Any, axis: Any = None, *, dim: Any = None) -> Any:
    """x with new axes of size 1 at the places `axis` (an int or several) of the result."""
    x, axis = lift(x), either("axis", axis, "dim", dim)
    count = len(axis) if isinstance(axis, tuple | list) else 1
    new = many_axes(axis, x.ndim + count) if axis is not None else (0,)
    old = iter(x.shape)
    return _reshaped(x, tuple([1 if i in new else next(old) for i in range(x.ndim + count)]))


unsqueeze = expand_dims


def permute(x: Any, *axes: Any) -> Any:
    """Axis i of the result is axis axes[i] of x. Raises E0113 if axes is no permutation."""
    x = lift(x)
    perm = tuple([one_axis(a, x.ndim) for a in ints(axes, "an axis")])
    return fresh(x) if perm == tuple(range(x.ndim)) else ops.transpose(x, perm=perm)


def transpose(x: Any, *axes: Any) -> Any:
    """transpose(x): axes in opposite order; transpose(x, (2, 0, 1)): permuted; transpose(x, 0, 1): these exchanged."""
    x = lift(x)
    if not axes or axes == (None,):
        return permute(x, tuple(range(x.ndim))[::-1])
    if len(axes) == 2:
        return swapaxes(x, *axes)
    return permute(x, *axes)


def swapaxes(x: Any, axis0: int, axis1: int) -> Any:
    """x with two axes exchanged."""
    x = lift(x)
    perm = list(range(x.ndim))
    a, b = one_axis(axis0, x.ndim), one_axis(axis1, x.ndim)
    perm[a], perm[b] = b, a
    return permute(x, perm)


def moveaxis(x: Any, source: Any, destination: Any) -> Any:
    """x with the axes `source` moved to the places `destination` of the result; the others keep their order."""
    x = lift(x)
    wanted = [[one_axis(a, x.ndim) for a in ints((which,), "an axis")] for which in (source, destination)]
    if len(wanted[0]) != len(wanted[1]) or any(len(set(w)) < len(w) for w in wanted):
        raise UserError("E0107", f"axes {source} to places {destination}", fix="name as many places as axes, each once")
    perm = [i for i in range(x.ndim) if i not in wanted[0]]
    for to, axis in sorted(zip(wanted[1], wanted[0], strict=True)):
        perm.insert(to, axis)
    return permute(x, perm)


def matrix_transpose(x: Any) -> Any:
    """x with the last two axes exchanged. Raises E0107 for fewer than two."""
    return swapaxes(x, -1, -2)


def broadcast_to(x: Any, *shape: Any) -> Any:
    """x repeated to `shape` as NumPy does. Raises E0108 when it does not fit."""
    x, sizes = lift(x), ints(shape)
    return fresh(x) if tuple(x.shape) == sizes else reduce.broadcast_to(x, shape=sizes)


def expand(x: Any, *sizes: Any) -> Any:
    """Like broadcast_to; a size -1 keeps that of x."""
    x, wanted = lift(x), ints(sizes)
    skip = len(wanted) - x.ndim
    kept = [x.shape[i - skip] if n == -1 and i >= skip else n for i, n in enumerate(wanted)]
    return broadcast_to(x, kept)


# -------------------------------------------------------------------------------------------------- joins and cuts
def concatenate(xs: Sequence[Any], axis: Any = None, *, dim: Any = None) -> Any:
    """Tensors joined along an axis (0 unless named), after promotion. Raises E0132 when the other sizes differ."""
    axis = either("axis", axis, "dim", dim)
    parts = _operands(xs)
    return ops.concatenate(*parts, axis=one_axis(0 if axis is None else axis, len(parts[0].shape)))


cat = concatenate


def _operands(xs: Sequence[Any]) -> list[Any]:
    """The tensors of a sequence; E0103 for none."""
    if not isinstance(xs, Iterable) or isinstance(xs, str):
        raise UserError("E0103", f"what is to be joined is {arguments.brief(xs)}", fix="give a list of tensors")
    parts = [lift(x) for x in xs]
    if not parts:
        raise UserError("E0103", "no tensors are given to join", fix="give one or more")
    return parts


def stack(xs: Sequence[Any], axis: Any = None, *, dim: Any = None) -> Any:
    """Tensors of one shape joined along a new axis (0 unless named). Raises E0132 when the shapes differ."""
    axis = either("axis", axis, "dim", dim)
    parts = _operands(xs)
    place = one_axis(0 if axis is None else axis, parts[0].ndim + 1)
    if any(p.shape != parts[0].shape for p in parts):
        text = " and ".join(str(list(p.shape)) for p in parts)
        raise UserError("E0132", f"shapes {text} cannot be stacked", fix="make them equal")
    if place == 0 and (found := grown.joined(parts)):  # a list that has grown in a rolled loop
        return concatenate([x if is_stack else expand_dims(x, 0) for x, is_stack in found], 0)
    return concatenate([expand_dims(p, place) for p in parts], place)


def window(x: Any, starts: Ints, limits: Ints) -> Any:
    """x[start:limit] of every axis; positions are Python ints within the axes.

    Outside of traced functions the starts are operands, so that a loop over positions compiles one program.
    """
    if starts == (0,) * len(starts) and limits == tuple(x.shape):
        return fresh(x)
    if build.active():
        return ops.slice_(x, starts=starts, limits=limits, strides=(1,) * len(starts))
    kind = np.int32 if max(x.shape) < 2**31 else np.int64
    sizes = tuple([b - a for a, b in zip(starts, limits, strict=True)])
    return dynamic_slice(x, *[kind(s) for s in starts], sizes=sizes)


def cut(x: Any, axis: int, start: int, limit: int) -> Any:
    """The elements from start up to limit of one axis; positions are Python ints within the axis."""
    starts = tuple([start if i == axis else 0 for i in range(x.ndim)])
    return window(x, starts, tuple([limit if i == axis else n for i, n in enumerate(x.shape)]))


def split(x: Any, sections: Any, axis: Any = None, *, dim: Any = None) -> tuple[Any, ...]:
    """x cut along an axis (0 unless named): into `sections` equal parts (an int), or into parts of these sizes.

    Raises E0112 when the parts do not make up the axis.
    """
    x, axis = lift(x), either("axis", axis, "dim", dim)
    place = one_axis(0 if axis is None else axis, x.ndim)
    size = x.shape[place]
    if isinstance(sections, tuple | list):
        sizes = ints((sections,))
    else:
        count = integer(sections, "the number of sections")
        sizes = (size // count,) * count if count > 0 and size % count == 0 else ()
    if sum(sizes) != size or any(n < 0 for n in sizes) or (not sizes and not isinstance(sections, tuple | list)):
        why = f"an axis of size {size} split into {sections}"
        raise UserError("E0112", why, fix="give a divisor, or sizes that add up to it")
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return tuple([cut(x, place, end - n, end) for end, n in zip(ends, sizes, strict=True)])


def chunk(x: Any, chunks: int, axis: Any = None, *, dim: Any = None) -> tuple[Any, ...]:
    """x cut along an axis into at most `chunks` parts of equal size, the last one maybe smaller (as PyTorch)."""
    x, axis = lift(x), either("axis", axis, "dim", dim)
    place = one_axis(0 if axis is None else axis, x.ndim)
    size, count = x.shape[place], integer(chunks, "the number of chunks")
    if count < 1:
        raise UserError("E0103", f"{count} chunks", fix="give 1 or more")
    step = max(1, -(-size // count))
    return tuple([cut(x, place, i, min(i + step, size)) for i in range(0, max(size, 1), step)])


def tile(x: Any, *reps: Any) -> Any:
    """x repeated as a whole, reps[i] times along axis i; missing axes or counts are 1."""
    x, counts = lift(x), tuple([arguments.count(n, "a count") for n in ints(reps, "a count")])
    rank = max(x.ndim, len(counts))
    counts = (1,) * (rank - len(counts)) + counts
    sizes = (1,) * (rank - x.ndim) + tuple(x.shape)
    apart = [m for n in sizes for m in (1, n)]
    wide = [m for c, n in zip(counts, sizes, strict=True) for m in (c, n)]
    return reshape(broadcast_to(reshape(x, apart), wide), [c * n for c, n in zip(counts, sizes, strict=True)])


def repeat_interleave(x: Any, repeats: int, axis: Any = None, *, dim: Any = None) -> Any:
    """Each element (or slice along the axis) repeated in place, as `numpy.repeat`; without an axis x is flattened."""
    x, axis = lift(x), either("axis", axis, "dim", dim)
    if axis is None:
        x, axis = reshape(x, (-1,)) if math.prod(x.shape) else reshape(x, (0,)), 0
    place, count = one_axis(axis, x.ndim), arguments.count(repeats, "the count")
    wide = broadcast_to(expand_dims(x, place + 1), (*x.shape[: place + 1], count, *x.shape[place + 1 :]))
    return reshape(wide, (*x.shape[:place], x.shape[place] * count, *x.shape[place + 1 :]))


def flip(x: Any, axis: Any = None, *, dim: Any = None) -> Any:
    """x with the elements along the axes (all unless named) in the opposite order."""
    x = lift(x)
    return ops.reverse(x, axes=many_axes(either("axis", axis, "dim", dim), x.ndim))


def roll(x: Any, shift: int, axis: Any = None, *, dim: Any = None) -> Any:
    """x with the elements along one axis moved by `shift` places, around the end; without an axis over all elements."""
    x, axis = lift(x), either("axis", axis, "dim", dim)
    if axis is None:
        return reshape(roll(reshape(x, (math.prod(x.shape),)), shift, 0), x.shape)
    place = one_axis(axis, x.ndim)
    size = x.shape[place]
    at = -integer(shift, "the shift") % size if size else 0
    return concatenate([cut(x, place, at, size), cut(x, place, 0, at)], place) if at else fresh(x)


_PAD_MODES = {
    "reflect": "reflect",
    "symmetric": "symmetric",
    "edge": "edge",
    "replicate": "edge",
    "wrap": "wrap",
    "circular": "wrap",
}


def pad(x: Any, pad_width: Any, value: Any = 0, mode: str = "constant") -> Any:
    """x with more elements before and after it. pad_width: n, (before, after), or one such pair per axis.

    mode: "constant" (`value`), or from x itself: "reflect" (without repeating the edge), "symmetric" (repeating it),
    "edge" = "replicate", "wrap" = "circular". Raises E0103 for another mode or form, or an empty axis to copy from,
    E0135 for negative counts.
    """
    x = lift(x)
    if mode != "constant" and mode not in _PAD_MODES:
        raise UserError("E0103", f"pad mode {mode!r}", fix="use constant, " + ", ".join(_PAD_MODES))
    widths = pad_width if isinstance(pad_width, tuple | list) else (pad_width, pad_width)
    pairs = [widths] * x.ndim if not any(isinstance(w, tuple | list) for w in widths) else list(widths)
    if len(pairs) == 1:
        pairs = pairs * x.ndim
    if len(pairs) != x.ndim or any(not isinstance(p, tuple | list) or len(p) != 2 for p in pairs):
        raise UserError("E0103", f"pad_width {pad_width} for {x.ndim} axes", fix="give one (before, after) per axis")
    low, high = (tuple([integer(p[i], "a pad width") for p in pairs]) for i in (0, 1))
    if mode != "constant":
        return _copied(x, low, high, _PAD_MODES[mode])
    fill = cast(reshape(lift(value), ()), x.dtype)
    return ops.pad(x, fill, low=low, high=high, interior=(0,) * x.ndim)


def _copied(x: Any, low: Ints, high: Ints, mode: str) -> Any:
    """Padding with elements of x: each axis is taken at the positions that NumPy would copy."""
    if any(n < 0 for n in (*low, *high)):
        raise UserError("E0135", f"pad widths {low}, {high}", fix="give 0 or more; cut with indices")
    for axis, (before, after, n) in enumerate(zip(low, high, x.shape, strict=True)):
        if before or after:
            if not n:
                raise UserError("E0103", f"mode {mode!r} on the empty axis {axis}", fix='use mode="constant"')
            places = np.pad(np.arange(n, dtype=np.int32), (before, after), mode=mode)  # type: ignore[call-overload]
            x = take(x, literal(places), axis=axis)
    return fresh(x)


# ------------------------------------------------------------------------------------------------------- triangles
def _triangle(x: Any, diagonal: int, lower: bool) -> Any:
    if x.ndim < 2:
        raise UserError("E0107", f"a triangle of {x.ndim} axes", fix="give a matrix, or a batch of them")
    shape, diagonal = tuple(x.shape[-2:]), integer(diagonal, "the diagonal")
    rows, columns = (index_along(shape, i, dtypes.int32) for i in (0, 1))
    distance = columns - rows
    inside = distance <= diagonal if lower else distance >= diagonal
    return compare.select(inside, x, False if x.dtype is dtypes.bool_ else 0)


def tril(x: Any, diagonal: int = 0) -> Any:
    """The last two axes with zeros above the diagonal number `diagonal` (0: the main one, 1: the one above it)."""
    return _triangle(lift(x), diagonal, True)


def triu(x: Any, diagonal: int = 0) -> Any:
    """The last two axes with zeros below the diagonal number `diagonal`."""
    return _triangle(lift(x), diagonal, False)


def diagonal(x: Any, axis1: int = -2, axis2: int = -1) -> Any:
    """The elements with equal positions on two axes, as a new last axis. Raises E0107 when they are one axis."""
    x = lift(x)
    a, b = one_axis(axis1, x.ndim), one_axis(axis2, x.ndim)
    if a == b:
        raise UserError("E0107", f"axes {axis1} and {axis2} of shape {list(x.shape)}", fix="name two different axes")
    n = min(x.shape[a], x.shape[b])
    x = cut(cut(x, a, 0, n), b, 0, n)
    rest = [i for i in range(x.ndim) if i not in (a, b)]
    lead = tuple([x.shape[i] for i in rest])
    flat = reshape(permute(x, (*rest, a, b)), (*lead, n * n))
    ends = (*lead, n * n)
    return ops.slice_(flat, starts=(0,) * len(ends), limits=ends, strides=(*[1] * len(lead), n + 1))
