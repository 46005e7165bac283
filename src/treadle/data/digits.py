"""The 1,797 handwritten digits that come with the package, as NumPy arrays split into two parts.

Source and licence: digits.LICENSE.md beside this file (Alpaydin and Kaynak 1998, doi:10.24432/C50P49, CC BY 4.0).
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from treadle.base import arguments
from treadle.base.errors import UserError

Images = NDArray[np.float32]
Labels = NDArray[np.int32]
Part = tuple[Images, Labels]

SHA256 = "b2dab7b501728c22e9119ad76740b2e17c77a231e42d1e592380d90886f1a05e"


def load_digits(held_out: float = 0.2, seed: int = 0) -> tuple[Part, Part]:
    """((x_train, y_train), (x_test, y_test)). x: float32[n, 1, 8, 8], ink, 0 (none) to 1 (full); y: int32[n], 0 to 9.

    held_out: the share of every digit that goes to the test part, 0 < held_out < 1. The split and the order of both
    parts depend on held_out and seed alone. Raises E0513 for a bad share or seed, E0601 if the file is damaged.
    """
    if not arguments.is_real(held_out) or not 0 < held_out < 1:
        raise UserError("E0513", f"load_digits: held_out is {held_out!r}", fix="give a share between 0 and 1")
    seed = arguments.count(seed, "load_digits: seed", 0, "E0513")
    images, labels = _read(Path(__file__).with_name("digits.npz").read_bytes())
    x = (images.astype(np.float32) / np.float32(16))[:, None]
    y = labels.astype(np.int32)
    train, test = _split(y, held_out, np.random.default_rng(seed))
    return (x[train], y[train]), (x[test], y[test])


def _read(content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256:
        why = f"the file digits.npz is damaged: its SHA-256 is {found}, not {SHA256}"
        raise UserError("E0601", why, fix="install treadle again")
    with np.load(io.BytesIO(content)) as file:
        return file["images"], file["labels"]


def _split(y: Labels, held_out: float, rng: np.random.Generator) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Positions of the two parts: every digit gives the same share of its samples, drawn at random."""
    train, test = [], []
    for digit in range(10):
        where = rng.permutation(np.flatnonzero(y == digit))
        count = min(max(round(held_out * len(where)), 1), len(where) - 1)
        test.append(where[:count])
        train.append(where[count:])
    return rng.permutation(np.concatenate(train)), rng.permutation(np.concatenate(test))
