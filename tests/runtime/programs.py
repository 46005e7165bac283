"""StableHLO texts that the tests of this folder run."""

from __future__ import annotations

from treadle.ir.types import TensorType
from treadle.runtime.executable import Executable, mlir_type


def binary(op: str, type: TensorType, donate: str = "", where: str = "model.py") -> str:
    """main(a, b) = op(a, b); donate: attribute of the first argument."""
    t = mlir_type(type)
    return f"""module @m {{ func.func public @main(%a: {t}{f" {{{donate}}}" if donate else ""}, %b: {t}) -> {t} {{
      %r = stablehlo.{op} %a, %b : {t} loc("{where}":3:1)
      return %r : {t} }} }}"""


def add(type: TensorType) -> Executable:
    return Executable(binary("add", type), [type, type], [type], name="add")


def add_donating(type: TensorType) -> Executable:
    text = binary("add", type, "tf.aliasing_output = 0 : i32")
    return Executable(text, [type, type], [type], [0], "step", argument_names=["net.w", "grad"])
