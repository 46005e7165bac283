"""Sums, means and maxima of rows of an embedding, bag by bag."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle.base import dtypes
from treadle.base.errors import UserError
from treadle.frontend import functions as fn
from treadle.frontend.create import zeros
from treadle.frontend.lift import cast, lift
from treadle.frontend.tensor import Tensor
from treadle.nn.functional.basic import embedding
from treadle.ops import index as index_ops
from treadle.ops.compare import equal, less, less_equal, logical_and, logical_not, select
from treadle.ops.elementwise import maximum


def embedding_bag(
    indices: Any,
    weight: Any,
    offsets: Any = None,
    mode: str = "mean",
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """The sum, mean or maximum of rows of `weight`, for each bag: float[B, D]; zeros of an empty bag.

    indices: int[B, L], or int[N] with offsets int[B], where each bag begins (include_last_offset: int[B + 1], the last
    one being where the last bag ends). per_sample_weights, of the shape of the indices: factors, for the sum only.
    Indices `padding_idx` do not count. Indices out of range as `embedding`. The maximum of bags with offsets takes
    memory for B * N * D numbers. Raises E0548 for shapes that do not fit, E0556 for another mode.
    """
    indices, weight = lift(indices), lift(weight)
    if mode not in ("sum", "mean", "max") or (per_sample_weights is not None and mode != "sum"):
        raise UserError("E0556", f"embedding_bag: mode is {mode!r}", fix="use 'sum', 'mean' or 'max'; weights: 'sum'")
    if indices.ndim != (2 if offsets is None else 1):
        fix = "give int[B, L], or int[N] with offsets"
        raise UserError("E0548", f"embedding_bag: the indices are {indices.type}", fix=fix)
    rows = embedding(indices, weight, padding_idx)
    counted = None if padding_idx is None else logical_not(equal(indices, padding_idx % max(weight.shape[0], 1)))
    if per_sample_weights is not None:
        factors = cast(lift(per_sample_weights), weight.dtype)
        if factors.shape != indices.shape:
            why = f"embedding_bag: the weights are {factors.type}, the indices {indices.type}"
            raise UserError("E0548", why, fix="make the shapes equal")
        rows = rows * factors.reshape((*factors.shape, 1))
    if offsets is None:
        return _even(rows, counted, mode)
    return _ragged(rows, counted, cast(lift(offsets), dtypes.int32), mode, include_last_offset)


def _even(rows: Tensor, counted: Any, mode: str) -> Tensor:
    """Bags of equal length: rows [B, L, D]."""
    zero = np.zeros((), rows.dtype.np)
    if rows.shape[1] == 0:
        none: Tensor = fn.sum(rows, 1)
        return none
    if counted is None:
        plain: Tensor = {"sum": fn.sum, "mean": fn.mean, "max": fn.max}[mode](rows, 1)
        return plain
    column = counted.reshape((*counted.shape, 1))
    if mode == "max":
        best = fn.max(select(column, rows, np.asarray(-np.inf, rows.dtype.np)), 1)
        made: Tensor = select(fn.any(column, 1), best, zero)
        return made
    total: Tensor = fn.sum(select(column, rows, zero), 1)
    return total if mode == "sum" else total / maximum(fn.sum(cast(column, rows.dtype), 1), 1)


def _ragged(rows: Tensor, counted: Any, offsets: Tensor, mode: str, include_last: bool) -> Tensor:
    """Bags one after the other: rows [N, D]."""
    count, zero = rows.shape[0], np.zeros((), rows.dtype.np)
    bags = offsets.shape[0] - include_last if offsets.ndim == 1 else -1
    if bags < 0:
        raise UserError("E0548", f"embedding_bag: the offsets are {offsets.type}", fix="give int[B], or [B + 1]")
    place = np.arange(count, dtype=np.int32)
    starts = offsets[:bags]
    inside = less(place, offsets[bags]) if include_last else lift(np.ones(count, bool))
    inside = inside if counted is None else logical_and(inside, counted)
    if mode == "max":
        ends = fn.concatenate([offsets[1:], np.full(1 - include_last, count, np.int32)])
        mine = logical_and(less_equal(starts.reshape((-1, 1)), place), less(place, ends.reshape((-1, 1))))
        mine = logical_and(mine, inside).reshape((bags, count, 1))
        if count == 0:
            return zeros((bags, rows.shape[1]), dtype=rows.dtype)  # type: ignore[no-any-return]
        best = fn.max(select(mine, rows, np.asarray(-np.inf, rows.dtype.np)), 1)
        largest: Tensor = select(fn.any(mine, 1), best, zero)
        return largest
    begun = fn.sum(cast(less_equal(starts, place.reshape((-1, 1))), dtypes.int32), 1)
    bag = cast(maximum(begun - 1, 0), dtypes.int32)
    kept = select(fn.reshape(inside, (count, 1)), rows, zero)
    total: Tensor = index_ops.index_sum(bag, kept, axis=0, size=bags)
    if mode == "sum":
        return total
    number = index_ops.index_sum(bag, cast(inside, rows.dtype).reshape((count, 1)), axis=0, size=bags)
    mean: Tensor = total / maximum(number, 1)
    return mean
