"""Text for people: aligned tables, unified diffs, sizes and times."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """An aligned table; numbers are set to the right."""
    cells = [[str(c) for c in row] for row in rows]
    widths = [max(len(r[i]) for r in [list(head), *cells]) for i in range(len(head))]
    right = [all(_is_number(r[i]) for r in cells) and bool(cells) for i in range(len(head))]

    def line(row: Sequence[str]) -> str:
        parts = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True))
        return "  ".join(parts).rstrip()

    return "\n".join([line(head), "  ".join("-" * w for w in widths), *map(line, cells)])


def _is_number(text: str) -> bool:
    return text[:1].isdigit() or (text[:1] in "-+." and text[1:2].isdigit())


def diff(before: str, after: str, name: str = "") -> str:
    """The unified diff of two texts, "" when they are equal."""
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"{name} before", f"{name} after", lineterm=""
    )
    return "\n".join(lines)


def size(count: float) -> str:
    """Bytes in a unit a person can read: `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def seconds(value: float) -> str:
    """A duration in a unit a person can read: `3.2 ms`, `1:05` minutes."""
    if value < 1e-3:
        return f"{value * 1e6:.0f} us"
    if value < 1:
        return f"{value * 1e3:.1f} ms"
    return f"{value:.1f} s" if value < 60 else f"{int(value // 60)}:{int(value % 60):02d} min"
