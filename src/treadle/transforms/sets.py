"""Sets of small numbers as integers with a bit for each."""

from __future__ import annotations

from collections.abc import Iterator


def bits(members: int) -> Iterator[int]:
    """The numbers in a set, ascending."""
    while members:
        low = members & -members
        yield low.bit_length() - 1
        members ^= low
