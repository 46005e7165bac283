"""Data sets of NumPy arrays under `mindspore.dataset`'s names; of readers of files only that of MNIST."""

from typing import TYPE_CHECKING

from treadle.compat.mindspore._missing import missing as _missing
from treadle.compat.mindspore.dataset import transforms, vision
from treadle.compat.mindspore.dataset._core import Dataset, GeneratorDataset, NumpySlicesDataset
from treadle.compat.mindspore.dataset._mnist import MnistDataset

__all__ = ["Dataset", "GeneratorDataset", "MnistDataset", "NumpySlicesDataset", "transforms", "vision"]

if not TYPE_CHECKING:
    __getattr__ = _missing(__name__)
