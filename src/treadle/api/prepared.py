"""Programs whose weights stay the same: what depends on nothing else is computed once, and again after a change.

`Prepared(module, fixed, name, names)` compiles a module whose parameters `fixed` seldom change; `make(values)` gives,
for the values of the fixed ones, an executable and its further arguments behind the module's parameters: casts,
transposes and the like (transforms/hoist), weights with scales in them (transforms/fold_scales), and what kernels pack
(transforms/panels).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from treadle import driver
from treadle.api import tuning
from treadle.base import events
from treadle.base.flags import flags
from treadle.ir.node import Module
from treadle.runtime import pjrt
from treadle.runtime.executable import Executable
from treadle.transforms.fold_scales import fold_scales
from treadle.transforms.hoist import hoist


class Prepared:
    """The program, and what makes its further arguments. prepare: the program that computes the hoisted ones, if any.
    fold: scales are folded into weights; weights for which that is not right get a program without."""

    def __init__(
        self, module: Module, fixed: Sequence[int], name: str, names: Sequence[str] = (), fold: bool = True
    ) -> None:
        self._given = module, fixed, name, names
        self._count = len(module.main.params)
        self._plain: Prepared | None = None
        self._lock = threading.Lock()
        folded = fold_scales(module, fixed) if fold else None
        self._checked = folded is not None
        parts = hoist(folded or module, fixed, checks=int(self._checked))
        main = self._main = module if parts is None else parts.main
        if flags.tune:
            tuning.tune(main)
        self._fixed = [*fixed, *range(self._count, len(main.main.params))]
        self.prepare: Executable | None = None
        if parts is not None:
            self.prepare = driver.compile_module(parts.prepare, f"{name}.prepare")
        self.executable, params = driver.compile_fixed(main, self._fixed, self._count, name, names=names)
        self._further = params[self._count :]

    @property
    def bytes(self) -> int:
        """Of the further arguments: what is held beside the weights."""
        return sum(t.bytes for t in self.executable.inputs[self._count :])

    def make(self, values: Sequence[Any]) -> tuple[Executable, list[Any]]:
        """The executable for these values of the fixed parameters (device arrays), and its further arguments."""
        made = [] if self.prepare is None else self.prepare.call(values)
        if self._checked and not pjrt.to_numpy(made.pop()).all():
            return self._without_folding().make(values)
        known = dict(zip(self._fixed, [*values, *made], strict=True))
        return self.executable, [
            known[p] if isinstance(p, int) else driver.panels(p, known[p.param]) for p in self._further
        ]

    def _without_folding(self) -> Prepared:
        with self._lock:
            if self._plain is None:
                events.record(
                    "jit", self._given[2], unfolded="a weight or a scale is not finite, or too large or small"
                )
                self._plain = Prepared(*self._given, fold=False)
            return self._plain
