"""`fused`: a group of nodes that is to be computed at once, by one kernel of our own where there is one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from treadle.base.dtypes import uint8
from treadle.ir import build
from treadle.ir.node import Fn, Value
from treadle.ir.types import TensorType, Types, f32, u8
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._regions import AXES, need
from treadle.ops.functions import tanh
from treadle.ops.reduce import reduce_sum


@op(has_regions=True, axes=AXES, onnx="expand")
def fused(*operands: Value, body: Fn, panels: str = "") -> Any:
    """body(*operands). Made by `transforms/fuse` after differentiation; where no kernel computes such a body, its nodes
    are lowered in their place. panels: the kernel that is to compute it, if it takes something that was packed for it
    beforehand (`transforms/panels`), behind the operands or in the place of the one that was packed: bytes that are
    nothing to anybody else. Raises E0175 when the operands do not have the types that the body takes, or where an
    operand is needed that is there only packed."""


@fused.type
def _(*operands: TensorType, body: Fn, panels: str = "") -> Types:
    wanted, given = body.in_types, operands
    if panels:
        packed = [i for i, t in enumerate(given) if t.dtype is uint8 and t.rank == 1 and wanted[i : i + 1] != (t,)]
        need(len(packed) == 1, "E0175", f"{panels} takes one packed operand, given {given}", "pass one")
        behind = () if len(given) > len(wanted) else wanted[packed[0] : packed[0] + 1]
        given = (*given[: packed[0]], *behind, *given[packed[0] + 1 :])
    need(wanted == given, "E0175", f"{body.name} takes {wanted}, given {operands}", "pass these types")
    return body.out_types


def _own(operands: Sequence[Any], body: Fn, panels: str) -> Sequence[Any]:
    """The operands that the body takes."""
    there = not panels or len(operands) > len(body.params)
    need(there, "E0175", f"an operand of {body.name} is there only packed, for {panels}", "use its unpacked form")
    return operands[: len(body.params)]


@fused.ref
def _(run: Any, *operands: Any, body: Fn, panels: str = "") -> Any:
    return run(body, *_own(operands, body, panels))


@fused.expand
def _(*operands: Value, body: Fn, panels: str = "") -> Any:
    return tuple(build.inline(body, _own(operands, body, panels)))


@fused.hlo
def _(b: Any, *operands: Any, body: Fn, panels: str = "") -> Any:
    return b.kernel(body, operands, panels)


@fused.samples
def _(s: Samples) -> Iterator[Sample]:
    body = build.trace(lambda x, y: (tanh(x * y), reduce_sum(x, axes=(0,))), [f32[2, 3], f32[2, 3]])
    yield s(f32[2, 3], f32[2, 3], body=body)
    yield s(f32[2, 3], f32[2, 3], u8[7], body=body, panels="gone")
    yield s(f32[3, 2], f32[2, 3], body=body, bad="E0175")
    yield s(f32[2, 3], f32[2, 3], u8[7], body=body, bad="E0175")
    yield s(f32[2, 3], f32[2, 3], body=body, panels="gone", bad="E0175")
