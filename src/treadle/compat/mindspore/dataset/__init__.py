"""Data sets of NumPy arrays under `mindspore.dataset`'s names; readers of file formats are not covered."""

from typing import TYPE_CHECKING

from treadle.compat.mindspore._missing import missing as _missing
from treadle.compat.mindspore.dataset import transforms, vision
from treadle.compat.mindspore.dataset._core import Dataset, GeneratorDataset, NumpySlicesDataset

__all__ = ["Dataset", "GeneratorDataset", "NumpySlicesDataset", "transforms", "vision"]

if not TYPE_CHECKING:
    __getattr__ = _missing(__name__)
