"""`summary(net, *inputs)`: a table of a model's layers with result shapes, parameters, FLOPs and memory.

The call is traced, not run: inputs may be arrays, tensors, or shapes of float32; nothing in the model changes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from treadle.api.programs import trace_module
from treadle.base import arguments
from treadle.base.errors import UserError
from treadle.frontend import tree
from treadle.frontend.tensor import Tensor
from treadle.ir.node import Module
from treadle.nn.cell import Cell, Parameter
from treadle.ops._axes import node_flops


@dataclass(frozen=True)
class Row:
    """A layer: its name, class, the types of its first call's results, elements of its parameters, FLOPs, bytes of the
    results. Parameters and FLOPs include the layers inside; a parameter that is shared counts in each layer."""

    name: str
    kind: str
    outputs: tuple[str, ...]
    params: int
    flops: int
    bytes: int
    depth: int


@dataclass(frozen=True)
class Summary:
    """rows: one per layer, outer ones first. params, trainable: elements, each parameter once; flops: of one call.

    param_bytes, buffer_bytes: what the model holds; output_bytes: the results of its innermost layers.
    """

    rows: tuple[Row, ...] = field(repr=False)
    params: int
    trainable: int
    flops: int
    param_bytes: int
    buffer_bytes: int
    output_bytes: int

    def __str__(self) -> str:
        head = ("layer", "result", "parameters", "FLOPs", "memory")
        lines = [
            (f"{'  ' * r.depth}{r.name or '(net)'}: {r.kind}", ", ".join(r.outputs), f"{r.params:,}", f"{r.flops:,}",
             _size(r.bytes))
            for r in self.rows
        ]  # fmt: skip
        widths = [max(len(line[i]) for line in (head, *lines)) for i in range(len(head))]
        text = [_line(head, widths), "  ".join("-" * w for w in widths), *[_line(line, widths) for line in lines]]
        frozen = self.params - self.trainable
        text += [
            "",
            f"parameters {self.params:,} ({_size(self.param_bytes)}), {frozen:,} of them frozen",
            f"buffers {_size(self.buffer_bytes)}, results of the layers {_size(self.output_bytes)}",
            f"FLOPs {self.flops:,}",
        ]
        return "\n".join(text)


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    """Texts to the left, numbers to the right."""
    placed = [c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))]
    return "  ".join(placed).rstrip()


def _size(count: int) -> str:
    """Bytes as people read them."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def _bytes(tensors: Any) -> int:
    return sum(t.size * max(t.dtype.bits // 8, 1) for t in tensors)


def _example(x: Any) -> Any:
    """A shape stands for float32 zeros."""
    if isinstance(x, tuple | list) and all(isinstance(n, int) for n in x):
        return np.zeros(tuple(x), np.float32)
    return x


def summary(net: Cell, *inputs: Any, **kwargs: Any) -> Summary:
    """The layers of `net` when called as net(*inputs, **kwargs); print it for the table.

    inputs: tensors or arrays, or shapes (tuples of ints), which stand for float32. The net's mode (training or
    evaluation) is kept. Layers that the call does not use have no results. FLOPs count as in `ops`: two per
    multiply-add.
    """
    if not isinstance(net, Cell):
        raise UserError("E0550", f"{arguments.brief(net)} is no cell", fix="pass the net: summary(net, (1, 28, 28))")
    results: dict[int, tuple[Tensor, ...]] = {}
    cells = list(net.named_cells())
    own = {id(cell): cell.__dict__["forward"] for _, cell in cells if "forward" in cell.__dict__}
    for _, cell in cells:
        forward = getattr(cell, "forward", None) or getattr(cell, "construct", None)
        if forward is not None:
            cell.__dict__["forward"] = _watched(forward, cell, results)
    try:
        module = trace_module(lambda *args: net(*args, **kwargs), *[_example(x) for x in inputs])
    finally:
        for _, cell in cells:
            cell.__dict__.pop("forward", None)
            if id(cell) in own:
                cell.__dict__["forward"] = own[id(cell)]
    work = _flops_by_scope(module)
    root = type(net).__name__
    rows = []
    for name, cell in cells:
        scope = f"{root}/{name.replace('.', '/')}" if name else root
        inside = sum(n for where, n in work.items() if where == scope or where.startswith(scope + "/"))
        made = results.get(id(cell), ())
        types = tuple([f"{t.dtype}[{', '.join(map(str, t.shape))}]" for t in made])
        depth = name.count(".") + 1 if name else 0
        rows.append(Row(name, type(cell).__name__, types, cell.num_parameters, inside, _bytes(made), depth))
    params = net.parameters()
    leaves = [results.get(id(cell), ()) for _, cell in cells if not cell.children()]
    return Summary(
        rows=tuple(rows),
        params=sum(p.size for p in params),
        trainable=sum(p.size for p in params if p.requires_grad),
        flops=sum(work.values()),
        param_bytes=_bytes(params),
        buffer_bytes=_bytes([b for b in net.buffers() if not isinstance(b, Parameter)]),
        output_bytes=sum(_bytes(made) for made in leaves),
    )


def _watched(forward: Callable[..., Any], cell: Cell, results: dict[int, tuple[Tensor, ...]]) -> Callable[..., Any]:
    """`forward` that notes the tensors of its first result."""

    @functools.wraps(forward)
    def run(*args: Any, **kwargs: Any) -> Any:
        made = forward(*args, **kwargs)
        results.setdefault(id(cell), tuple([t for t in tree.flatten(made)[0] if isinstance(t, Tensor)]))
        return made

    return run


def _flops_by_scope(module: Module) -> dict[str, int]:
    found: dict[str, int] = {}
    for node in module.main.nodes:
        found[node.where.scope] = found.get(node.where.scope, 0) + node_flops(node, module)
    return found
