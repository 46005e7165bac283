"""Functions of one array for `Dataset.map`: casts, one-hot, composition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle.base import dtypes
from treadle.base.errors import UserError

Array = np.ndarray[Any, Any]


class TypeCast:
    """In another element type."""

    def __init__(self, output_type: Any) -> None:
        self.dtype = dtypes.of(output_type).np

    def __call__(self, x: Any) -> Array:
        return np.asarray(x).astype(self.dtype)


class OneHot:
    """A vector with a one at the label."""

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes

    def __call__(self, label: Any) -> Array:
        if not 0 <= int(label) < self.num_classes:
            raise UserError("E0595", f"label {int(label)} of {self.num_classes} classes", fix="give more classes")
        made: Array = np.eye(self.num_classes, dtype=np.int32)[int(label)]
        return made


class Compose:
    """Functions one after the other."""

    def __init__(self, transforms: Sequence[Callable[..., Any]]) -> None:
        self.transforms = list(transforms)

    def __call__(self, *values: Any) -> Any:
        for step in self.transforms:
            made = step(*values)
            values = made if isinstance(made, tuple) else (made,)
        return values if len(values) > 1 else values[0]


__all__ = ["Compose", "OneHot", "TypeCast"]
