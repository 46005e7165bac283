"""How many of the machine's cores this process may run on: `usable()`."""

from __future__ import annotations

import os


def usable() -> int:
    """Number of cores, those that the process was forbidden left out."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
