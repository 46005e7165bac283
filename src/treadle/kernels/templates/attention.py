"""Attention and its gradient: bodies of one attention node between views of parameters and outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from treadle.ir.node import Fn
from treadle.kernels import jit
from treadle.kernels.kernel import Kernel, Plan
from treadle.kernels.target import Target
from treadle.kernels.templates import _tiles
from treadle.kernels.templates._attention_backward import Backward
from treadle.kernels.templates._attention_forward import Forward
from treadle.kernels.templates._attention_shape import Problem, problem
from treadle.kernels.templates._tiles import Machine
from treadle.ops.attentions import attention, attention_fwd, attention_grad
from treadle.ops.dropped_attention import attention_dropout, attention_dropout_fwd, attention_dropout_grad

_GRADIENTS = (attention_grad, attention_dropout_grad)
_OPS = (attention, attention_fwd, attention_dropout, attention_dropout_fwd, *_GRADIENTS)
_KEYS = (64, 128)  # keys of a block
_QUERIES = (256, 128)  # queries of a task
_TASKS = 8  # a gradient has at least so many tasks if its heads can be cut


def plans(body: Fn, target: Target) -> list[Plan]:
    """The ways to compute a body around one attention node; none for other bodies."""
    anchors = [n for n in body.nodes if n.op in _OPS]
    p = problem(body, anchors[0]) if len(anchors) == 1 else None
    if p is None:
        return []
    if anchors[0].op in _GRADIENTS:
        return _gradient(p, body, target)
    m = _machine(p, target)
    copies = _copies(body, p.keys * (p.depth + p.width), lambda c: Forward(p, m, max(_KEYS), _QUERIES[0], c))
    ways = [] if copies is None else [(keys, queries) for keys in _KEYS for queries in _QUERIES]
    return [_forward(p, body, m, keys, queries, bool(copies)) for keys, queries in ways]


def _machine(p: Problem, target: Target, even: bool = True) -> Machine:
    """The tiles: of one vector of queries where there are no more."""
    m = _tiles.machine(target, even and p.kind == "bf16" and p.depth % 2 == 0)
    return m if p.rows > m.lanes else replace(m, wide=1, tall=m.tall * 3 // 2)


def _copies(body: Fn, floats: int, maker: Callable[[bool], Forward | Backward]) -> bool | None:
    """Whether rows that do not lie one after another are copied: if that fits into a worker's memory. None: nothing
    fits. floats: at most so many in the large arrays."""
    if floats * 4 + (1 << 21) <= jit.SLOT_BYTES:
        return True
    for copies in (True, False):
        made = maker(copies)
        made.kernel(body.in_types, body.out_types)
        if made.used <= jit.SLOT_BYTES:
            return copies
    return None


def _forward(p: Problem, body: Fn, m: Machine, keys: int, queries: int, copies: bool) -> Plan:
    def build() -> Kernel:
        return Forward(p, m, keys, queries, copies).kernel(body.in_types, body.out_types)

    return Plan(f"attention keys={keys} queries={queries}", build)


def _gradient(p: Problem, body: Fn, target: Target) -> list[Plan]:
    m = _machine(p, target, p.width % 2 == 0)
    floats = (p.rows + 32) * (3 * p.depth + 2 * p.width + 2) + p.keys * (p.depth + p.width)
    copies = _copies(body, floats, lambda c: Backward(p, m, max(_KEYS), 1, c))
    if copies is None:
        return []
    order = (32, 64, 128) if p.causal else (64, 128, 32)  # small blocks leave out more of what is hidden
    return [_backward(p, body, m, keys, copies) for keys in order]


def _backward(p: Problem, body: Fn, m: Machine, keys: int, copies: bool) -> Plan:
    groups = max(1, min(-(-_TASKS // p.heads), -(-p.keys // keys)))

    def build() -> Kernel:
        return Backward(p, m, keys, groups, copies).kernel(body.in_types, body.out_types)

    return Plan(f"attention gradient keys={keys} groups={groups}", build)
