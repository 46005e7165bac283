"""Lowering and running in the tests of this folder."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle.base import flags
from treadle.ir.node import Module
from treadle.lower.stablehlo import lower_module, to_text
from treadle.runtime import pjrt
from treadle.runtime.executable import Executable


def lowered(module: Module, **options: Any) -> str:
    """The StableHLO text with positions."""
    return to_text(lower_module(module, pjrt.mlir_context(), **options), debug=True)


def run(module: Module, *arrays: Any) -> list[np.ndarray[Any, Any]]:
    """The results of the compiled module."""
    with flags.override(cache=False):
        program = Executable(lower_module(module, pjrt.mlir_context()), module.main.in_types, module.main.out_types)
    return [pjrt.to_numpy(a) for a in program.call([np.asarray(a) for a in arrays])]
