"""Data sets of NumPy arrays: rows in, batches out, by a chain of shuffle, map, batch, ...; all in this process."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.compat.mindspore._missing import not_covered
from treadle.compat.mindspore._seed import data_rng
from treadle.compat.mindspore._tensor import Tensor

Row = tuple[Any, ...]
_WORKERS = ("num_parallel_workers", "python_multiprocessing", "max_rowsize", "cache", "offload", "num_samples")


def _array(value: Any) -> np.ndarray[Any, Any]:
    """One column of a row; Python numbers as MindSpore takes them: int64, float64."""
    return value.numpy() if isinstance(value, Tensor) else np.asarray(value)


class Dataset:
    """Base of all data sets: `_rows` gives one pass, `_size` the number of its rows."""

    columns: list[str]

    def _rows(self) -> Iterator[Row]:
        raise UserError("E0595", "this data set has no rows", fix="use GeneratorDataset or NumpySlicesDataset")

    def _size(self) -> int:
        raise UserError("E0595", "the size of this data set is not known", fix="give a source with __len__")

    # ------------------------------------------------------------------------------------------------ chain
    def shuffle(self, buffer_size: int) -> Dataset:
        """Rows in random order: each is drawn from a buffer of buffer_size rows."""
        if buffer_size < 1:
            raise UserError("E0595", f"buffer_size is {buffer_size}", fix="give 1 or more")
        return _Shuffled(self, buffer_size)

    def batch(
        self, batch_size: int, drop_remainder: bool = False, num_parallel_workers: Any = None, **options: Any
    ) -> Dataset:
        """batch_size rows stacked; the last batch may be smaller unless drop_remainder."""
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise UserError("E0511", f"batch_size is {batch_size!r}", fix="give 1 or more")
        if bad := [k for k in options if k not in _WORKERS]:
            not_covered(f"batch with {', '.join(bad)}", "map before batching")
        return _Batched(self, batch_size, drop_remainder)

    def map(
        self,
        operations: Any,
        input_columns: Any = None,
        output_columns: Any = None,
        num_parallel_workers: Any = None,
        **options: Any,
    ) -> Dataset:
        """The columns (the first, unless named) through functions of arrays, one after the other."""
        if bad := [k for k in options if k not in _WORKERS]:
            not_covered(f"map with {', '.join(bad)}", "leave it out")
        steps = list(operations) if isinstance(operations, list | tuple) else [operations]
        if wrong := [f for f in steps if not callable(f)]:
            raise UserError("E0595", f"an operation is a {type(wrong[0]).__name__}", fix="give functions of arrays")
        inputs = [self.columns[0]] if input_columns is None else _names(input_columns)
        return _Mapped(self, steps, inputs, inputs if output_columns is None else _names(output_columns))

    def filter(
        self, predicate: Callable[..., Any], input_columns: Any = None, num_parallel_workers: Any = None
    ) -> Dataset:
        """The rows for whose columns the predicate is true."""
        return _Filtered(self, predicate, self.columns if input_columns is None else _names(input_columns))

    def repeat(self, count: int | None = None) -> Dataset:
        """`count` passes as one; None or -1: without end."""
        return _Repeated(self, -1 if count is None else count)

    def take(self, count: int = -1) -> Dataset:
        """The first `count` rows."""
        return _Part(self, 0, None if count == -1 else count)

    def skip(self, count: int) -> Dataset:
        """Without the first `count` rows."""
        return _Part(self, count, None)

    def project(self, columns: Any) -> Dataset:
        """These columns, in this order."""
        return _Projected(self, _names(columns), _names(columns))

    def rename(self, input_columns: Any, output_columns: Any) -> Dataset:
        """Columns under other names."""
        new = dict(zip(_names(input_columns), _names(output_columns), strict=True))
        return _Projected(self, self.columns, [new.get(c, c) for c in self.columns])

    def zip(self, datasets: Any) -> Dataset:
        """Rows of several data sets side by side."""
        return _Zipped([self, *(datasets if isinstance(datasets, tuple | list) else (datasets,))])

    def concat(self, datasets: Any) -> Dataset:
        """The rows of this data set, then those of others."""
        return _Joined([self, *(datasets if isinstance(datasets, tuple | list) else (datasets,))])

    __add__ = concat

    def split(self, sizes: Sequence[Any], randomize: bool = True) -> list[Dataset]:
        """Parts of these numbers of rows, or of these shares."""
        total = self._size()
        counts = [round(s * total) if isinstance(s, float) else s for s in sizes]
        if sum(counts) > total:
            raise UserError("E0595", f"{counts} of {total} rows", fix="give sizes that fit")
        rows = list(self._rows())
        order = data_rng().permutation(total) if randomize else np.arange(total)
        ends = list(itertools.accumulate(counts))
        parts = [[rows[i] for i in order[e - c : e]] for c, e in zip(counts, ends, strict=True)]
        return [_Rows(part, self.columns) for part in parts]

    # ------------------------------------------------------------------------------------------------ facts
    def get_dataset_size(self) -> int:
        """The number of rows, or of batches once they are made, of one pass."""
        return self._size()

    __len__ = get_dataset_size

    def get_col_names(self) -> list[str]:
        """The names of the columns."""
        return list(self.columns)

    def get_batch_size(self) -> int:
        """The rows of a batch, 1 if none are made."""
        return next((d.count for d in self._chain() if isinstance(d, _Batched)), 1)

    def get_repeat_count(self) -> int:
        """The number of passes that `repeat` made one, 1 without it."""
        return next((d.count for d in self._chain() if isinstance(d, _Repeated)), 1)

    def _chain(self) -> Iterator[Dataset]:
        current: Any = self
        while current is not None:
            yield current
            current = getattr(current, "source", None)

    def output_shapes(self) -> list[list[int]]:
        """The shapes of the columns of the first row."""
        return [list(c.shape) for c in self._first()]

    def output_types(self) -> list[Any]:
        """The NumPy types of the columns of the first row."""
        return [c.dtype for c in self._first()]

    def _first(self) -> Row:
        for row in self._rows():
            return row
        raise UserError("E0512", "the data set has no row", fix="give samples; drop_remainder=False")

    # ------------------------------------------------------------------------------------------------ passes
    def create_tuple_iterator(
        self, columns: Any = None, num_epochs: int = -1, output_numpy: bool = False, do_copy: bool = True
    ) -> _Passes:
        """One pass: tuples of tensors, or of arrays; iterated again, another pass."""
        chosen = self if columns is None else self.project(columns)
        return _Passes(chosen, lambda row: tuple(_out(row, output_numpy)))

    def create_dict_iterator(self, num_epochs: int = -1, output_numpy: bool = False, do_copy: bool = True) -> _Passes:
        """One pass: dicts of tensors, or of arrays, by column; iterated again, another pass."""
        return _Passes(self, lambda row: dict(zip(self.columns, _out(row, output_numpy), strict=True)))

    def __iter__(self) -> Iterator[Any]:
        return iter([list(_out(row, False)) for row in self._rows()])


def _out(row: Row, as_numpy: bool) -> list[Any]:
    return list(row) if as_numpy else [Tensor(c) if c.dtype.kind in "biufc" else c for c in row]  # texts stay


class _Passes:
    """An iterable of the rows of a data set; each `for` goes through anew, `next` goes on in the pass that is open."""

    def __init__(self, data: Dataset, make: Callable[[Row], Any]) -> None:
        self.data, self.make = data, make
        self._open: Iterator[Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        return map(self.make, self.data._rows())

    def __next__(self) -> Any:
        if self._open is None:
            self._open = iter(self)
        return next(self._open)


def _names(columns: Any) -> list[str]:
    return [columns] if isinstance(columns, str) else list(columns)


class _Rows(Dataset):
    """Rows that are there already."""

    def __init__(self, rows: list[Row], columns: list[str]) -> None:
        self.rows, self.columns = rows, list(columns)

    def _rows(self) -> Iterator[Row]:
        return iter(self.rows)

    def _size(self) -> int:
        return len(self.rows)


class GeneratorDataset(Dataset):
    """Rows of a source: an object with __getitem__ and __len__, an iterable, or a function that gives an iterator.

    shuffle: random order in each pass, by default where the source has __getitem__. Raises E0595 for a source that is
    none, or rows that do not fit the columns.
    """

    def __init__(
        self,
        source: Any,
        column_names: Any = None,
        column_types: Any = None,
        schema: Any = None,
        num_samples: int | None = None,
        num_parallel_workers: int = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        **options: Any,
    ) -> None:
        if column_names is None or schema is not None or sampler is not None:
            not_covered("GeneratorDataset with a sampler or schema, or without column_names", "shuffle=, column_names=")
        if bad := [k for k in options if k not in _WORKERS]:
            not_covered(f"GeneratorDataset with {', '.join(bad)}", "leave it out")
        self.columns = _names(column_names)
        self.random_access = hasattr(source, "__getitem__") and hasattr(source, "__len__")
        if not (self.random_access or callable(source) or isinstance(source, Iterable)):
            raise UserError("E0595", f"the source is a {type(source).__name__}", fix="give __getitem__, or an iterable")
        self.source_data, self.limit = source, num_samples
        self.shuffled = self.random_access if shuffle is None else shuffle
        if self.shuffled and not self.random_access:
            raise UserError("E0595", "shuffle=True of a source without __getitem__", fix="use .shuffle(buffer_size)")

    def _rows(self) -> Iterator[Row]:
        return itertools.islice(map(self._row, self._items()), self.limit)

    def _items(self) -> Iterator[Any]:
        source = self.source_data
        if not self.random_access:
            return iter(source() if callable(source) else source)
        count = len(source)
        order = data_rng().permutation(count).tolist() if self.shuffled else range(count)
        return (source[i] for i in order)

    def _row(self, item: Any) -> Row:
        row = tuple(item) if isinstance(item, tuple | list) else (item,)
        if len(row) != len(self.columns):
            why = f"a row has {len(row)} columns, the data set {len(self.columns)}: {self.columns}"
            raise UserError("E0595", why, fix="give one value for each column")
        return tuple(map(_array, row))

    def _size(self) -> int:
        count = len(self.source_data) if hasattr(self.source_data, "__len__") else sum(1 for _ in self._items())
        return count if self.limit is None else min(count, self.limit)


class NumpySlicesDataset(GeneratorDataset):
    """Rows of arrays: one array or list, a tuple of them, or a dict by column. shuffle: True unless told otherwise."""

    def __init__(
        self,
        data: Any,
        column_names: Any = None,
        num_samples: int | None = None,
        num_parallel_workers: int = 1,
        shuffle: bool | None = None,
        **options: Any,
    ) -> None:
        if isinstance(data, dict):
            column_names, data = list(data), tuple(data.values())
        parts = [_array(p) for p in (data if isinstance(data, tuple) else (data,))]
        if len({len(p) for p in parts}) > 1:
            why = f"arrays of {[len(p) for p in parts]} rows"
            raise UserError("E0510", why, fix="give one row per sample in each")
        names = [f"column_{i}" for i in range(len(parts))] if column_names is None else column_names
        super().__init__(_Slices(parts), names, num_samples=num_samples, shuffle=shuffle, **options)


class _Slices:
    def __init__(self, parts: list[np.ndarray[Any, Any]]) -> None:
        self.parts = parts

    def __len__(self) -> int:
        return len(self.parts[0])

    def __getitem__(self, i: int) -> Row:
        return tuple([p[i] for p in self.parts])


class _Step(Dataset):
    """A data set made of another one."""

    def __init__(self, source: Dataset) -> None:
        self.source, self.columns = source, source.columns

    def _size(self) -> int:
        return self.source._size()


class _Shuffled(_Step):
    def __init__(self, source: Dataset, buffer_size: int) -> None:
        super().__init__(source)
        self.buffer = buffer_size

    def _rows(self) -> Iterator[Row]:
        held: list[Row] = []
        rng = data_rng()
        for row in self.source._rows():
            if len(held) < self.buffer:
                held.append(row)
                continue
            place = int(rng.integers(len(held)))
            yield held[place]
            held[place] = row
        for place in rng.permutation(len(held)).tolist():
            yield held[place]


class _Batched(_Step):
    def __init__(self, source: Dataset, count: int, drop: bool) -> None:
        super().__init__(source)
        self.count, self.drop = count, drop

    def _rows(self) -> Iterator[Row]:
        rows = self.source._rows()
        while group := list(itertools.islice(rows, self.count)):
            if len(group) < self.count and self.drop:
                return
            yield tuple([self._stacked(i, column) for i, column in enumerate(zip(*group, strict=True))])

    def _stacked(self, i: int, column: Sequence[Any]) -> Any:
        if len({c.shape for c in column}) > 1:
            shapes = sorted({c.shape for c in column})[:3]
            why = f"rows of {self.columns[i]!r} have the shapes {shapes}"
            raise UserError("E0595", why, fix="bring them to one shape with map before batch")
        return np.stack(column)

    def _size(self) -> int:
        rows = self.source._size()
        return rows // self.count if self.drop else -(-rows // self.count)


class _Mapped(_Step):
    def __init__(self, source: Dataset, steps: list[Any], inputs: list[str], outputs: list[str]) -> None:
        super().__init__(source)
        self.steps, self.inputs, self.outputs = steps, inputs, outputs
        if unknown := [c for c in inputs if c not in source.columns]:
            raise UserError("E0595", f"there is no column {unknown[0]!r}", fix=f"use {', '.join(source.columns)}")
        rest = [c for c in source.columns if c not in inputs]
        same = len(inputs) == len(outputs)
        renamed = dict(zip(inputs, outputs, strict=False))
        self.columns = [renamed.get(c, c) for c in source.columns] if same else [*outputs, *rest]

    def _rows(self) -> Iterator[Row]:
        for row in self.source._rows():
            named = dict(zip(self.source.columns, row, strict=True))
            values: Any = [named.pop(c) for c in self.inputs]
            for step in self.steps:
                made = step(*values)
                values = list(made) if isinstance(made, tuple) else [made]
            if len(values) != len(self.outputs):
                why = f"map gives {len(values)} columns for {self.outputs}"
                raise UserError("E0595", why, fix="name one output column for each")
            named |= dict(zip(self.outputs, map(_array, values), strict=True))
            yield tuple([named[c] for c in self.columns])


class _Filtered(_Step):
    def __init__(self, source: Dataset, predicate: Any, inputs: list[str]) -> None:
        super().__init__(source)
        self.predicate, self.places = predicate, [source.columns.index(c) for c in inputs]

    def _rows(self) -> Iterator[Row]:
        return (row for row in self.source._rows() if bool(self.predicate(*[row[i] for i in self.places])))

    def _size(self) -> int:
        return sum(1 for _ in self._rows())


class _Repeated(_Step):
    def __init__(self, source: Dataset, count: int) -> None:
        super().__init__(source)
        if count != -1 and count < 1:
            raise UserError("E0595", f"repeat({count})", fix="give 1 or more, or -1")
        self.count = count

    def _rows(self) -> Iterator[Row]:
        passes = itertools.count() if self.count == -1 else range(self.count)
        return (row for _ in passes for row in self.source._rows())

    def _size(self) -> int:
        return self.source._size() * max(self.count, 1)


class _Part(_Step):
    def __init__(self, source: Dataset, start: int, count: int | None) -> None:
        super().__init__(source)
        self.start, self.count = start, count

    def _rows(self) -> Iterator[Row]:
        end = None if self.count is None else self.start + self.count
        return itertools.islice(self.source._rows(), self.start, end)

    def _size(self) -> int:
        left = max(self.source._size() - self.start, 0)
        return left if self.count is None else min(left, self.count)


class _Projected(_Step):
    def __init__(self, source: Dataset, chosen: list[str], names: list[str]) -> None:
        super().__init__(source)
        if unknown := [c for c in chosen if c not in source.columns]:
            raise UserError("E0595", f"there is no column {unknown[0]!r}", fix=f"use {', '.join(source.columns)}")
        self.places, self.columns = [source.columns.index(c) for c in chosen], names

    def _rows(self) -> Iterator[Row]:
        return (tuple([row[i] for i in self.places]) for row in self.source._rows())


class _Zipped(Dataset):
    def __init__(self, parts: list[Dataset]) -> None:
        self.parts, self.columns = parts, [c for p in parts for c in p.columns]

    def _rows(self) -> Iterator[Row]:
        for rows in zip(*[p._rows() for p in self.parts], strict=False):
            yield tuple([c for row in rows for c in row])

    def _size(self) -> int:
        return min(p._size() for p in self.parts)


class _Joined(Dataset):
    def __init__(self, parts: list[Dataset]) -> None:
        self.parts, self.columns = parts, copy.copy(parts[0].columns)

    def _rows(self) -> Iterator[Row]:
        return itertools.chain.from_iterable(p._rows() for p in self.parts)

    def _size(self) -> int:
        return sum(p._size() for p in self.parts)
