"""Pruning: elements or slices of a parameter are held at zero by a mask, a parametrisation like any other.

Names as in torch.nn.utils.prune. Done again, it prunes a share of what is left. `remove` makes it permanent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.frontend.tensor import Tensor
from treadle.nn import init
from treadle.nn.cell import Cell, Parameter
from treadle.nn.utils.parametrize import is_parametrized, register_parametrization, remove_parametrizations

Array = Any
Amount = int | float


class _Mask(Cell):
    def __init__(self, mask: Array) -> None:
        self.mask = Tensor(mask)

    def forward(self, x: Any) -> Any:
        return x * self.mask


def _mask_of(cell: Cell, name: str) -> _Mask | None:
    """The mask of a tensor that is pruned already."""
    if not is_parametrized(cell, name):
        return None
    held: Any = cell.parametrizations[name]  # type: ignore[attr-defined]
    return next((part for part in held.parts() if isinstance(part, _Mask)), None)


def is_pruned(cell: Cell) -> bool:
    """Whether a tensor of the cell, or of a cell below it, is pruned."""
    return any(isinstance(part, _Mask) for part in cell.cells())


def custom_from_mask(cell: Cell, name: str, mask: Any) -> Cell:
    """Hold the elements where the mask is 0 at zero; returns the cell. Raises E0526 for a mask of another shape."""
    array, value = np.asarray(mask), _value(cell, name)
    if array.shape != tuple(value.shape):
        why = f"a mask of shape {list(array.shape)} for {type(cell).__name__}.{name}, {value.type}"
        raise UserError("E0526", why, fix="give one number for each element")
    known = _mask_of(cell, name)
    if known is None:
        return register_parametrization(cell, name, _Mask((array != 0).astype(value.dtype.np)))
    known.mask.assign(known.mask.numpy() * (array != 0))
    return cell


def l1_unstructured(cell: Cell, name: str, amount: Amount) -> Cell:
    """Prune the elements of the least absolute value. amount: a share (float) or a count (int) of what is left."""
    return _by_score(cell, name, amount, lambda x: np.abs(x))


def random_unstructured(cell: Cell, name: str, amount: Amount) -> Cell:
    """Prune elements drawn at random; amount as of `l1_unstructured`."""
    return _by_score(cell, name, amount, lambda x: init.uniform(x.shape, 0.0, 1.0))


def ln_structured(cell: Cell, name: str, amount: Amount, n: float = 2, dim: int = 0) -> Cell:
    """Prune whole slices along axis `dim`, those of the least n-norm; amount as of `l1_unstructured`, of the slices."""
    return _by_slice(cell, name, amount, dim, lambda rows: np.linalg.norm(rows, n, axis=1))


def random_structured(cell: Cell, name: str, amount: Amount, dim: int = 0) -> Cell:
    """Prune whole slices along axis `dim`, drawn at random; amount as of `l1_unstructured`, of the slices."""
    return _by_slice(cell, name, amount, dim, lambda rows: init.uniform(rows.shape[:1], 0.0, 1.0))


def global_unstructured(parameters: Iterable[tuple[Cell, str]], amount: Amount) -> None:
    """`l1_unstructured` over several tensors, (cell, name) each, as if they were one."""
    pairs = list(parameters)
    left = [_left(cell, name) for cell, name in pairs]
    scores = [np.where(m, np.abs(_value(c, n).numpy()), np.inf).ravel() for (c, n), m in zip(pairs, left, strict=True)]
    flat = np.concatenate([np.zeros(0), *scores])
    dropped = np.zeros(flat.size, bool)
    dropped[_least(flat, _count(amount, int(np.isfinite(flat).sum())))] = True
    start = 0
    for (cell, name), m in zip(pairs, left, strict=True):
        custom_from_mask(cell, name, ~dropped[start : start + m.size].reshape(m.shape))
        start += m.size


def remove(cell: Cell, name: str) -> Cell:
    """Make the zeros part of an ordinary parameter; returns the cell. Raises E0526 for what is not pruned."""
    if _mask_of(cell, name) is None:
        raise UserError("E0526", f"{type(cell).__name__}.{name} is not pruned", fix="name a pruned parameter")
    return remove_parametrizations(cell, name)


def _value(cell: Cell, name: str) -> Any:
    value = getattr(cell, name, None)
    if not isinstance(value, Parameter) and not is_parametrized(cell, name):
        raise UserError("E0526", f"{type(cell).__name__} has no parameter {name!r}", fix="name a parameter")
    return value


def _left(cell: Cell, name: str) -> Array:
    known = _mask_of(cell, name)
    return np.ones(tuple(_value(cell, name).shape), bool) if known is None else known.mask.numpy() != 0


def _count(amount: Amount, size: int) -> int:
    """How many to prune. Raises E0526 for a share outside 0 to 1 or a count above the size."""
    count = round(amount * size) if isinstance(amount, float) else amount
    if amount < 0 or count > size or (isinstance(amount, float) and amount > 1):
        raise UserError("E0526", f"amount is {amount} of {size}", fix="give a share from 0 to 1, or an int up to that")
    return count


def _least(scores: Array, count: int) -> Array:
    return np.argsort(scores, kind="stable")[:count]


def _by_score(cell: Cell, name: str, amount: Amount, score: Callable[[Array], Array]) -> Cell:
    left, value = _left(cell, name), _value(cell, name).numpy()
    scores = np.where(left, score(value), np.inf).ravel()
    mask = np.ones(scores.size)
    mask[_least(scores, _count(amount, int(left.sum())))] = 0
    return custom_from_mask(cell, name, mask.reshape(value.shape))


def _by_slice(cell: Cell, name: str, amount: Amount, dim: int, score: Callable[[Array], Array]) -> Cell:
    left, value = _left(cell, name), _value(cell, name).numpy()
    if not -value.ndim <= dim < value.ndim:
        raise UserError("E0526", f"there is no axis {dim} in {list(value.shape)}", fix=f"use 0 to {value.ndim - 1}")
    rows, alive = (np.moveaxis(a, dim, 0).reshape(value.shape[dim], -1) for a in (value, left))
    scores = np.where(alive.any(1), score(rows), np.inf)
    mask = np.ones(len(scores))
    mask[_least(scores, _count(amount, int(alive.any(1).sum())))] = 0
    shape = [1] * value.ndim
    shape[dim] = -1
    return custom_from_mask(cell, name, np.broadcast_to(mask.reshape(shape), value.shape))
