"""`fused`: a group of nodes that is to be computed at once, by one kernel of our own where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from treadle.ir import build
from treadle.ir.node import Fn, Value
from treadle.ir.types import TensorType, Types, f32
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._regions import AXES, need
from treadle.ops.functions import tanh
from treadle.ops.reduce import reduce_sum


@op(has_regions=True, axes=AXES, onnx="expand")
def fused(*operands: Value, body: Fn) -> Any:
    """body(*operands). Made by `transforms/fuse` after differentiation; where no kernel computes such a body, its nodes
    are lowered in their place. Raises E0175 when the operands do not have the types that the body takes."""


@fused.type
def _(*operands: TensorType, body: Fn) -> Types:
    need(body.in_types == operands, "E0175", f"{body.name} takes {body.in_types}, given {operands}", "pass these types")
    return body.out_types


@fused.ref
def _(run: Any, *operands: Any, body: Fn) -> Any:
    return run(body, *operands)


@fused.expand
def _(*operands: Value, body: Fn) -> Any:
    return tuple(build.inline(body, operands))


@fused.hlo
def _(b: Any, *operands: Any, body: Fn) -> Any:
    return b.kernel(body, operands)


@fused.samples
def _(s: Samples) -> Iterator[Sample]:
    body = build.trace(lambda x, y: (tanh(x * y), reduce_sum(x, axes=(0,))), [f32[2, 3], f32[2, 3]])
    yield s(f32[2, 3], f32[2, 3], body=body)
    yield s(f32[3, 2], f32[2, 3], body=body, bad="E0175")
