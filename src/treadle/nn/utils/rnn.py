"""Sequences of different lengths as one padded tensor, and back. Packed sequences are absent: use lengths or masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.frontend.lift import lift
from treadle.frontend.shaping import pad, stack, swapaxes
from treadle.frontend.tensor import Tensor


def pad_sequence(
    sequences: Sequence[Any], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Tensors [L_i, ...] side by side: [max L, N, ...], or [N, max L, ...] with batch_first; shorter ones are padded.

    Raises E0555 for no sequences or ones that differ in more than their length, E0103 for another side than "left" and
    "right".
    """
    if padding_side not in ("left", "right"):
        raise UserError("E0103", f"padding_side={padding_side!r}", fix="use 'left' or 'right'")
    tensors = [lift(s) for s in sequences]
    if not tensors or any(t.ndim < 1 or t.shape[1:] != tensors[0].shape[1:] for t in tensors):
        found = ", ".join(str(t.type) for t in tensors) or "nothing"
        raise UserError("E0555", f"pad_sequence of {found}", fix="give tensors [L, ...] that differ in L only")
    longest = max(t.shape[0] for t in tensors)
    rows = []
    for t in tensors:
        missing = longest - t.shape[0]
        around = (0, missing) if padding_side == "right" else (missing, 0)
        rows.append(pad(t, [around, *[(0, 0)] * (t.ndim - 1)], padding_value))
    y: Tensor = stack(rows, 0)
    return y if batch_first else swapaxes(y, 0, 1)


def unpad_sequence(padded: Any, lengths: Any, batch_first: bool = False) -> list[Tensor]:
    """Undoes `pad_sequence` on the right: the first lengths[i] rows of sequence i. lengths: numbers, one per sequence.

    Raises E0555 when there are more or fewer of them.
    """
    padded = lift(padded)
    padded = padded if batch_first else swapaxes(padded, 0, 1)
    sizes = np.asarray(lengths).reshape(-1).tolist()
    if len(sizes) != padded.shape[0]:
        why = f"unpad_sequence: {len(sizes)} lengths for {padded.shape[0]} sequences"
        raise UserError("E0555", why, fix="give one length per sequence")
    return [padded[i, : int(n)] for i, n in enumerate(sizes)]
