"""Data for training: a small real data set and batches of NumPy arrays."""

from treadle.data.digits import load_digits
from treadle.data.loader import ArrayDataset, DataLoader

__all__ = ["ArrayDataset", "DataLoader", "load_digits"]
