"""What a template makes: a `Kernel`, the finished module of one group of nodes; and a `Plan`, a kernel not made yet.

A template is a file of `templates/` with `plans(body, target) -> list[Plan]`: the ways in which it can compute the IR
function `body` (a group that `transforms/fuse` has made), the most promising first, none if it does not take it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from treadle.ir.types import Types


@dataclass(frozen=True)
class Kernel:
    """inputs, outputs: the body's types, in order; the kernel's buffers are these, then one of `workspace` bytes if
    that is not 0. aliases: (output, input) pairs that may share memory: the kernel reads an element before it writes
    it. text: what launch.finish gave."""

    inputs: Types
    outputs: Types
    text: str = field(repr=False)
    workspace: int = 0
    aliases: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Plan:
    """name: template and schedule, to be read and to be kept in the cache of measurements; build: makes the kernel."""

    name: str
    build: Callable[[], Kernel] = field(repr=False, compare=False)
