"""Choices, and what has as many results as the numbers say: positions of non-zeros, distinct elements.

The latter are found on the host by NumPy, so that they need known numbers: in a traced function they raise E0204.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from treadle.base import dtypes
from treadle.frontend import counting
from treadle.frontend import functions as td
from treadle.frontend.lift import cast, lift, make_tensor


class UniqueAll(NamedTuple):
    """Distinct values, where each is first, which one each element is, and how often each occurs."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """Distinct values and how often each occurs."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """Distinct values and which one each element is."""

    values: Any
    inverse_indices: Any


def where(condition: Any, x1: Any, x2: Any, /) -> Any:
    """x1 where condition is true, else x2; all three broadcast."""
    return td.where(condition, x1, x2)


def nonzero(x: Any, /) -> tuple[Any, ...]:
    """The positions (int64) of the elements that are not zero, one vector per axis. Raises E0204 while tracing."""
    return tuple([make_tensor(places.astype(np.int64)) for places in np.nonzero(lift(x).numpy())])


def searchsorted(x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Any:
    """Where in the sorted vector x1 each element of x2 belongs, int64: before ("left") or after ("right") its equals.

    sorter: the order that sorts x1. Raises E0103 for another side.
    """
    return cast(counting.searchsorted(x1, x2, side, sorter=sorter), dtypes.int64)


def unique_all(x: Any, /) -> UniqueAll:
    """Distinct values (every NaN is one), sorted, with first positions in row order, inverse and counts (int64).

    Raises E0204 while tracing.
    """
    array = x.numpy()
    values, first, inverse, counts = np.unique(
        array, return_index=True, return_inverse=True, return_counts=True, equal_nan=False
    )
    found = [make_tensor(v.astype(np.int64)) for v in (first, inverse.reshape(array.shape), counts)]
    return UniqueAll(make_tensor(values), *found)


def unique_counts(x: Any, /) -> UniqueCounts:
    """Distinct values (every NaN is one), sorted, and their counts (int64). Raises E0204 while tracing."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Any, /) -> UniqueInverse:
    """Distinct values (every NaN is one), sorted, and which one each element is (int64). Raises E0204 while tracing."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Any, /) -> Any:
    """Distinct values (every NaN is one), sorted. Raises E0204 while tracing."""
    return unique_all(x).values
