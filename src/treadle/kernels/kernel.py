"""What a template makes: a `Kernel`, the finished module of one group of nodes; and a `Plan`, a kernel not made yet.

A template is a file of `templates/` with `plans(body, target) -> list[Plan]`: the ways in which it can compute the IR
function `body` (a group that `transforms/fuse` has made), the most promising first, none if it does not take it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from treadle.base.dtypes import uint8
from treadle.ir.types import TensorType, Types
from treadle.kernels import launch


@dataclass(frozen=True)
class Kernel:
    """inputs, outputs: the body's types, in order; the kernel's buffers are these, then one of `workspace` bytes if
    that is not 0. aliases: (output, input) pairs that may share memory: the kernel reads an element before it writes
    it. packs: the input that the first phase packs into the workspace, which the other phases do not write to; -1:
    there is none; reads: the other phases read that input too. text: what launch.finish gave."""

    inputs: Types
    outputs: Types
    text: str = field(repr=False)
    workspace: int = 0
    aliases: tuple[tuple[int, int], ...] = ()
    packs: int = -1
    reads: bool = False

    def divided(self) -> tuple[Kernel, Kernel]:
        """Two kernels: one makes panels, u8[workspace], of the packed input, the other takes them instead of it, or, if
        it `reads` the input too, behind all inputs. What is in panels concerns nobody but these two."""
        panels, at = TensorType(uint8, (self.workspace,)), self.packs
        first, rest = launch.divided(self.text, len(self.inputs), len(self.outputs), at, self.reads)
        inputs = (*self.inputs, panels) if self.reads else (*self.inputs[:at], panels, *self.inputs[at + 1 :])
        return Kernel((self.inputs[at],), (panels,), first), Kernel(inputs, self.outputs, rest, 0, self.aliases)


@dataclass(frozen=True)
class Plan:
    """name: template and schedule, to be read and to be kept in the cache of measurements; build: makes the kernel.
    apart: makes one that does the same and `packs` an operand, where that of `build` does not pack it as a whole."""

    name: str
    build: Callable[[], Kernel] = field(repr=False, compare=False)
    apart: Callable[[], Kernel] | None = field(default=None, repr=False, compare=False)
