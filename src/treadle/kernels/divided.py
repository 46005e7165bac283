"""Kernels in two, for operands that seldom change: `divide(body)` gives a `Divided` where the plan of the body's kernel
packs an operand: one kernel makes panels of it, the other takes them (see Kernel.divided).

Which plan that is follows from the same measurements as `engine.choose`.
"""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any

import numpy as np

from treadle.ir.node import Fn
from treadle.kernels import engine, jit, tunings
from treadle.kernels.kernel import Kernel

_lock = threading.RLock()
_found: dict[tuple[str, str | None], Divided | None] = {}
_by_name: dict[str, Divided] = {}


@dataclass(frozen=True)
class Divided:
    """plan: that made the kernels. name: of the main one among the targets of custom calls; operand: number of the
    input of the body that is packed; bytes: of its panels, u8[bytes]; inputs: of the body; kernel: the main one; pack,
    main: the code of both, which other threads may still be compiling."""

    plan: str
    name: str
    operand: int
    bytes: int
    inputs: int
    kernel: Kernel
    pack: Future[jit.Code]
    main: Future[jit.Code]

    @property
    def reads(self) -> bool:
        """Whether the main kernel takes the operand beside its panels."""
        return len(self.kernel.inputs) > self.inputs

    @property
    def code(self) -> jit.Code:
        """The main kernel's code, once it is there. Raises RuntimeError where LLVM refuses it."""
        return self.main.result()

    def panels(self, operand: np.ndarray[Any, Any], threads: int = 1) -> np.ndarray[Any, Any]:
        """The panels of the operand, an array of the type that the body takes."""
        made = np.empty(self.bytes, np.uint8)
        buffers = [made] * (self.inputs + len(self.kernel.outputs) + 1)  # the others are not looked at
        buffers[self.operand] = np.ascontiguousarray(operand)
        self.pack.result().run(buffers, threads)
        return made


def divide(body: Fn, pool: Executor) -> Divided | None:
    """The two kernels of a body; None where its plan packs no operand as a whole, or there is no kernel. pool: its
    threads compile them."""
    key = engine.key_of(body)
    wanted = engine.forced() or tunings.fastest(key)
    known = key, wanted
    with _lock:
        if known not in _found:
            made = _found[known] = _divide(body, wanted, pool)
            if made is not None:
                _by_name[made.name] = made
        return _found[known]


def named(name: str) -> Divided | None:
    """What `divide` gave, by the name of the main kernel; None if it gave no such one."""
    return _by_name.get(name)


def _divide(body: Fn, wanted: str | None, pool: Executor) -> Divided | None:
    offers = [] if wanted == tunings.XLA else engine.plans(body)
    if not offers:
        return None
    plan = next((p for p in offers if p.name == wanted), offers[0])
    kernel = (plan.apart or plan.build)()
    if kernel.packs < 0:
        return None
    first, rest = kernel.divided()
    name = f"treadle.{hashlib.sha256(rest.text.encode()).hexdigest()[:24]}"
    code = (engine.compiled(each.text, pool) for each in (first, rest))
    return Divided(plan.name, name, kernel.packs, kernel.workspace, len(kernel.inputs), rest, *code)
