"""Batches of NumPy arrays in an order that depends on the seed and the epoch alone, resumable between any two batches.

Arrays that share their first axis go in; tuples of arrays of at most `batch_size` rows come out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treadle.base import arguments
from treadle.base.errors import UserError

Array = NDArray[Any]


class ArrayDataset:
    """Arrays whose rows belong together: row i of each is sample i. Raises E0510 if lengths differ, E0512 if empty."""

    def __init__(self, *arrays: ArrayLike) -> None:
        self.arrays: tuple[Array, ...] = tuple(arguments.array(a, f"array {i}") for i, a in enumerate(arrays))
        shapes = ", ".join(str(list(a.shape)) for a in self.arrays)
        if not self.arrays or any(a.ndim == 0 for a in self.arrays):
            raise UserError("E0512", f"no rows: shapes {shapes or 'none'}", fix="give arrays with axes")
        if len({len(a) for a in self.arrays}) > 1:
            raise UserError("E0510", f"arrays of different lengths: shapes {shapes}", fix="one row per sample in each")
        if len(self.arrays[0]) == 0:
            raise UserError("E0512", f"no rows: shapes {shapes}", fix="give at least one sample")

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, rows: int | slice | Array) -> tuple[Array, ...]:
        """The given rows of each array. Raises E0506 for rows that are not there."""
        try:
            return tuple(a[rows] for a in self.arrays)
        except IndexError as error:
            raise UserError("E0506", f"rows {rows!r}: {error}", fix=f"use 0 to {len(self) - 1}") from None


class DataLoader:
    """Iterating gives the batches of one epoch, tuples with one array per array of `arrays`; then `epoch` is one more.

    arrays: an `ArrayDataset`, a sequence of arrays or one array. batch_size: rows per batch, 1 or more; the last batch
    is shorter where they do not divide, or left out with `drop_last`. Each `for` runs the current epoch from its
    start, the first one after `load_state_dict` from where that state was taken.
    Raises E0510 (lengths differ), E0511 (batch size), E0512 (nothing to iterate), E0513 (seed).
    """

    def __init__(
        self,
        arrays: ArrayDataset | Sequence[ArrayLike] | Array,
        batch_size: int,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if isinstance(arrays, ArrayDataset):
            self.dataset = arrays
        elif isinstance(arrays, tuple | list):
            self.dataset = ArrayDataset(*arrays)
        else:
            self.dataset = ArrayDataset(arguments.array(arrays))
        batch_size = arguments.count(batch_size, "batch_size", 1, "E0511")
        if drop_last and len(self.dataset) < batch_size:
            why = f"{len(self.dataset)} samples give no full batch of {batch_size}, and drop_last leaves out the rest"
            raise UserError("E0512", why, fix=f"give a batch_size of at most {len(self.dataset)}, or drop_last=False")
        seed = arguments.count(seed, "seed", 0, "E0513")
        self.batch_size, self.shuffle, self.seed, self.drop_last = batch_size, shuffle, seed, drop_last
        self.epoch = 0
        self._done = 0  # batches of this epoch that have been handed out
        self._start = 0  # batches that the next `for` leaves out

    def __len__(self) -> int:
        """Batches per epoch."""
        full, rest = divmod(len(self.dataset), self.batch_size)
        return full + (rest > 0 and not self.drop_last)

    def order(self, epoch: int) -> NDArray[np.intp]:
        """The rows in the order in which that epoch visits them: intp[samples]."""
        if not self.shuffle:
            return np.arange(len(self.dataset))
        return np.random.default_rng([self.seed, epoch]).permutation(len(self.dataset))

    def __iter__(self) -> Iterator[tuple[Array, ...]]:
        if self._done == len(self):  # the last batch went out and the loop was left there
            self.epoch, self._done = self.epoch + 1, 0
        epoch, order = self.epoch, self.order(self.epoch)
        self._done, self._start = self._start, 0
        for batch in range(self._done, len(self)):
            self._done = batch + 1  # before the batch is out: a state taken while it is worked on goes on after it
            yield self.dataset[order[batch * self.batch_size : (batch + 1) * self.batch_size]]
        self.epoch, self._done = epoch + 1, 0

    def state_dict(self) -> dict[str, int | bool]:
        """Where the iteration stands, and the settings that the order depends on; plain numbers, fit for JSON."""
        full = self._done == len(self)
        epoch, done = (self.epoch + 1, 0) if full else (self.epoch, max(self._done, self._start))
        return {"epoch": epoch, "batch": done, **self._settings()}

    def load_state_dict(self, state: Mapping[str, int | bool]) -> None:
        """Go on where `state` was taken. Raises E0514 if it is incomplete or of a loader with other settings."""
        if not isinstance(state, Mapping):
            raise UserError("E0514", f"the state is {arguments.brief(state)}", fix="give what state_dict gave")
        wanted = self._settings()
        if missing := [k for k in ("epoch", "batch", *wanted) if k not in state]:
            raise UserError("E0514", f"the loader's state lacks {', '.join(missing)}", fix="give what state_dict gave")
        if other := [f"{k} is {v}, the state says {state[k]}" for k, v in wanted.items() if state[k] != v]:
            why = "the state is of another loader: " + "; ".join(other)
            raise UserError("E0514", why, fix="use the same settings")
        if state["epoch"] < 0 or not 0 <= state["batch"] < len(self):
            why = f"the state says epoch {state['epoch']}, batch {state['batch']} of {len(self)}"
            raise UserError("E0514", why, fix="give what state_dict returned")
        self.epoch, self._start, self._done = int(state["epoch"]), int(state["batch"]), 0

    def _settings(self) -> dict[str, int | bool]:
        return {
            "samples": len(self.dataset),
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "seed": self.seed,
            "drop_last": self.drop_last,
        }
