"""Shapes, joining, picking and making, as `mindspore.ops` has them."""

from __future__ import annotations

import math
from typing import Any

from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.compat.mindspore._missing import not_covered
from treadle.compat.mindspore._tensor import split_pieces, tag, tagged, together
from treadle.frontend import counting, scatter
from treadle.frontend import functions as fn
from treadle.frontend.lift import lift
from treadle.nn import functional as F


def reshape(input: Any, shape: Any) -> Any:
    """The elements in another shape; one size may be -1."""
    return tag(fn.reshape(input, shape))


def transpose(input: Any, input_perm: Any) -> Any:
    """The axes in this order."""
    return tag(fn.permute(input, tuple(input_perm)))


permute = transpose
swapaxes, squeeze, flip, roll = tagged(fn.swapaxes), tagged(fn.squeeze), tagged(fn.flip), tagged(fn.roll)
moveaxis, tril, triu, chunk = tagged(fn.moveaxis), tagged(fn.tril), tagged(fn.triu), tagged(fn.chunk)


def expand_dims(input_x: Any, axis: int) -> Any:
    """With a new axis of size 1."""
    return tag(fn.expand_dims(input_x, axis))


unsqueeze = expand_dims


def flatten(input: Any, order: str = "C", *, start_dim: int = 1, end_dim: int = -1) -> Any:
    """The axes from start_dim to end_dim as one axis; by default all but the first."""
    if order != "C":
        not_covered(f"flatten in order {order!r}", "transpose first")
    x = lift(input)
    return tag(fn.reshape(x, (-1,)) if x.ndim == 1 else fn.flatten(x, start_dim, end_dim))


def _common(tensors: Any) -> list[Any]:
    found = [lift(t) for t in tensors]
    for i in range(1, len(found)):
        found[0], found[i] = together(found[0], found[i])
    return [t if t.dtype is found[0].dtype else t.astype(found[0].dtype) for t in found]


def concat(tensors: Any, axis: int = 0) -> Any:
    """Tensors one after the other along an axis."""
    return tag(fn.concatenate(_common(tensors), axis))


def stack(tensors: Any, axis: int = 0) -> Any:
    """Tensors of one shape along a new axis."""
    return tag(fn.stack(_common(tensors), axis))


cat = concat


def unstack(input_x: Any, axis: int = 0) -> Any:
    """The slices along an axis, a tuple."""
    x = lift(input_x)
    return tag(tuple([fn.take(x, i, axis) for i in range(x.shape[axis])]))


unbind = unstack


def split(tensor: Any, split_size_or_sections: Any, axis: int = 0) -> Any:
    """Pieces of this size (the last one may be smaller), or of these sizes, a tuple."""
    return tag(split_pieces(lift(tensor), split_size_or_sections, axis))


def split_in(input_x: Any, axis: int = 0, output_num: int = 1) -> Any:
    """output_num equal pieces along an axis."""
    return tag(fn.split(input_x, output_num, axis))


def tile(input: Any, dims: Any) -> Any:
    """Repeated as a whole along each axis."""
    return tag(fn.tile(input, dims))


def repeat_interleave(input: Any, repeats: int, axis: int | None = None) -> Any:
    """Each element, or slice along the axis, repeated in place."""
    return tag(fn.repeat_interleave(input, repeats, axis))


def broadcast_to(input: Any, shape: Any) -> Any:
    """Repeated to a shape; -1 keeps a size."""
    return tag(fn.expand(input, tuple(shape)))


def pad(input_x: Any, padding: Any, mode: str = "constant", value: Any = None) -> Any:
    """With elements before and after the last axes: [low, high] of the last, then of the one before; or the older form
    ((low, high), ...) of every axis. mode: "constant", "reflect", "replicate" or "circular"."""
    if padding and isinstance(padding[0], tuple | list):
        return tag(fn.pad(input_x, tuple([tuple(p) for p in padding])))
    x, ends = lift(input_x), list(padding)
    if len(ends) % 2:
        raise UserError("E0103", f"padding is {ends}", fix="give two numbers for each axis, the last axis first")
    pairs = [(ends[i], ends[i + 1]) for i in range(0, len(ends), 2)][::-1]
    pairs = [(0, 0)] * (x.ndim - len(pairs)) + pairs
    return tag(fn.pad(x, tuple(pairs), 0 if value is None else value, mode))


def strided_slice(input_x: Any, begin: Any, end: Any, strides: Any = None) -> Any:
    """input_x[begin:end:strides] of the first axes."""
    strides = [1] * len(begin) if strides is None else strides
    return tag(lift(input_x)[tuple([slice(*p) for p in zip(begin, end, strides, strict=True)])])


def slice_sized(input_x: Any, begin: Any, size: Any) -> Any:
    """`size` elements of each axis from `begin` on; -1: all that are left."""
    spans = [slice(b, None if s == -1 else b + s) for b, s in zip(begin, size, strict=True)]
    return tag(lift(input_x)[tuple(spans)])


def narrow(input: Any, axis: int, start: int, length: int) -> Any:
    """`length` elements of one axis from `start` on."""
    x = lift(input)
    return tag(x[(slice(None),) * (axis % x.ndim) + (slice(start, start + length),)])


def gather(input_params: Any, input_indices: Any, axis: int, batch_dims: int = 0) -> Any:
    """The slices of an axis at these indices."""
    if batch_dims:
        not_covered("gather with batch_dims", "use ops.gather_elements, or td.vmap")
    return tag(fn.take(input_params, input_indices, axis))


def index_select(input: Any, axis: int, index: Any) -> Any:
    """As `gather`."""
    return tag(fn.take(input, index, axis))


def gather_elements(input: Any, dim: int, index: Any) -> Any:
    """out[i][j] = input[index[i][j]][j] for axis 0, and so on."""
    return tag(fn.gather(input, dim, index))


gather_d = gather_elements


def gather_nd(input_x: Any, indices: Any) -> Any:
    """input_x at the positions in the last axis of indices."""
    indices = lift(indices)
    return tag(lift(input_x)[tuple([indices[..., i] for i in range(indices.shape[-1])])])


def tensor_scatter_update(input_x: Any, indices: Any, updates: Any) -> Any:
    """input_x with updates at the positions in the last axis of indices, a new tensor."""
    x, indices = lift(input_x).copy(), lift(indices)
    x[tuple([indices[..., i] for i in range(indices.shape[-1])])] = updates
    return tag(x)


def masked_fill(input_x: Any, mask: Any, value: Any) -> Any:
    """`value` where the mask is true."""
    return tag(scatter.masked_fill(input_x, mask, value))


def masked_select(input: Any, mask: Any) -> Any:
    """The elements where the mask is true, flat; not in compiled code, as their number must be known."""
    return tag(counting.masked_select(input, mask))


def nonzero(input: Any) -> Any:
    """The positions of elements that are not zero: int64[n, axes]; not in compiled code."""
    return tag(counting.nonzero(input, as_tuple=False))


def select(condition: Any, input: Any, other: Any) -> Any:
    """input where the condition holds, other elsewhere."""
    return tag(fn.where(condition, *together(input, other)))


def one_hot(indices: Any, depth: int, on_value: Any = 1, off_value: Any = 0, axis: int = -1) -> Any:
    """on_value at the index and off_value elsewhere along a new axis; integers unless the values say otherwise."""
    on, off = lift(on_value), lift(off_value)
    hot = fn.one_hot(indices, depth, dtypes.float32) > 0
    made = fn.where(hot, on, off.astype(on.dtype))
    return tag(made if axis in (-1, made.ndim - 1) else fn.moveaxis(made, -1, axis))


def shape(input_x: Any) -> tuple[int, ...]:
    """The sizes."""
    return tuple(lift(input_x).shape)


def size(input_x: Any) -> int:
    """The number of elements."""
    return math.prod(lift(input_x).shape)


def rank(input_x: Any) -> int:
    """The number of axes."""
    return len(lift(input_x).shape)


def dtype(input_x: Any) -> Any:
    """The element type."""
    return lift(input_x).dtype


def identity(x: Any) -> Any:
    """x itself."""
    return x


def interpolate(
    input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: Any = None
) -> Any:
    """The last axes resized, as `td.nn.functional.interpolate`."""
    return tag(F.interpolate(input, size, scale_factor, mode, align_corners))


__all__ = [
    "broadcast_to", "cat", "chunk", "concat", "dtype", "expand_dims", "flatten", "flip", "gather", "gather_d",
    "gather_elements", "gather_nd", "identity", "index_select", "interpolate", "masked_fill", "masked_select",
    "moveaxis", "narrow", "nonzero", "one_hot", "pad", "permute", "rank", "repeat_interleave", "reshape", "roll",
    "select", "shape", "size", "split", "squeeze", "stack", "strided_slice", "swapaxes", "tensor_scatter_update",
    "tile", "transpose", "tril", "triu", "unbind", "unsqueeze", "unstack",
]  # fmt: skip
