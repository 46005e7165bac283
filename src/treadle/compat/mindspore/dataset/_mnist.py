"""`MnistDataset`: the files of the MNIST digits in a folder; rows (image uint8[28, 28, 1], label uint32) come out."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.compat.mindspore.dataset._core import GeneratorDataset, _Slices

Array = np.ndarray[Any, Any]
_PARTS = {"train": ("train",), "test": ("t10k",), "all": ("train", "t10k")}


def _read(folder: Path, part: str, what: str, axes: int) -> Array:
    """One idx file: big-endian, two zeros, 8 for bytes, the number of axes, the sizes, the bytes. Raises E0595."""
    file = folder / f"{part}-{what}-idx{axes}-ubyte"
    data = file.read_bytes()
    head = 4 + 4 * axes
    right = len(data) >= head and data[:4] == bytes([0, 0, 8, axes])
    sizes = np.frombuffer(data[4:head], ">u4").tolist() if right else []
    if not right or len(data) - head != math.prod(sizes):
        raise UserError("E0595", f"{file} is no idx file of {axes} axes", fix="unpack the files of the data set")
    return np.frombuffer(data, np.uint8, offset=head).reshape(sizes)


class MnistDataset(GeneratorDataset):
    """The digits of a folder with unpacked files. usage: "train", "test", "all" or None, what there is.

    Random order in each pass unless shuffle=False. Raises E0595 where the files are missing or damaged.
    """

    def __init__(
        self,
        dataset_dir: Any,
        usage: str | None = None,
        num_samples: int | None = None,
        num_parallel_workers: Any = None,
        shuffle: bool | None = None,
        **options: Any,
    ) -> None:
        if usage is not None and usage not in _PARTS:
            raise UserError("E0595", f"usage is {usage!r}", fix="use 'train', 'test' or 'all'")
        folder = Path(os.fspath(dataset_dir))
        wanted = [p for p in _PARTS[usage or "all"] if (folder / f"{p}-images-idx3-ubyte").is_file()]
        if not wanted or (usage is not None and len(wanted) < len(_PARTS[usage])):
            raise UserError("E0595", f"there are no files of {usage or 'MNIST'} in {folder}", fix="unpack them there")
        images = np.concatenate([_read(folder, p, "images", 3) for p in wanted])[..., None]
        labels = np.concatenate([_read(folder, p, "labels", 1) for p in wanted]).astype(np.uint32)
        if len(images) != len(labels):
            raise UserError("E0595", f"{len(images)} images, {len(labels)} labels", fix="unpack the files again")
        rows = _Slices([images, labels])
        super().__init__(rows, ["image", "label"], num_samples=num_samples, shuffle=shuffle, **options)
