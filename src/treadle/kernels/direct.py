"""Kernels that are called without XLA, on NumPy arrays: for eager mode.

`flat(fn)` makes one of an elementwise function that serves tensors of every size, so that a new shape compiles
nothing; `whole(body)` takes the kernel of a group of nodes for its shapes. Both give a `Direct`, whose `call(arrays)`
gives new arrays; this thread and the helpers (pool.py) share the tasks.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle.formula.expr import Source
from treadle.ir import build
from treadle.ir.node import Fn, Node, Value
from treadle.ir.types import TensorType, Types
from treadle.kernels import engine, jit, launch
from treadle.kernels.llvm import Function, Module
from treadle.kernels.nests import nest
from treadle.kernels.target import Target, host
from treadle.kernels.templates import _many

Array = np.ndarray[Any, Any]

_ALIGN = 64
_SIZE = 1 << 12  # elements of the tensors that a flat kernel's function is written for; the kernel does not know it
_LEAST = 1 << 13  # elements of a task
_lock = threading.Lock()
_flat: dict[str, jit.Code | None] = {}


class Direct:
    """outputs: types of the results. workspace: bytes that the kernel wants behind them. sized: it wants to know how
    many elements there are instead."""

    __slots__ = ("_code", "_describe", "_enter", "_outputs", "_size", "_workspace")

    def __init__(self, code: jit.Code, outputs: Types, workspace: int = 0, sized: bool = False) -> None:
        self._code, self._describe, self._enter = code, code.address("describe"), jit.entry()
        self._outputs = [(t.shape, t.dtype.np, t.bytes) for t in outputs]
        self._workspace = workspace
        self._size = ctypes.c_int64(outputs[0].size) if sized else None

    def call(self, arrays: Sequence[Array]) -> list[Array]:
        """The results, large ones at multiples of 64 bytes, of arrays of the types that it was made for (nothing is
        checked but that they are dense)."""
        given = [a if a.flags.c_contiguous else np.ascontiguousarray(a) for a in arrays]
        addresses = [a.__array_interface__["data"][0] for a in given]
        made = []
        for shape, dtype, bytes in self._outputs:
            room, start, address = _room(bytes)
            made.append(np.ndarray(shape, dtype, room, start))
            addresses.append(address)
        if self._size is not None:
            addresses.append(ctypes.addressof(self._size))
        elif self._workspace:
            room, _, address = _room(self._workspace)
            addresses.append(address)
        places = (ctypes.c_void_p * len(addresses))(*addresses)
        self._enter(ctypes.addressof(places), self._describe)
        return made


def _room(bytes: int) -> tuple[Array, int, int]:
    """Memory with so many bytes at a multiple of 64: the first of them, and its address."""
    room = np.empty(bytes + _ALIGN, np.uint8)
    address = room.__array_interface__["data"][0]
    start = -address % _ALIGN
    return room, start, address + start


def whole(body: Fn) -> Direct | None:
    """The kernel of a group's body; None where no template takes it."""
    loaded = engine.choose(body).loaded
    if loaded is None:
        return None
    return Direct(loaded.code, body.out_types, loaded.workspace)


def flat(fn: Fn) -> Direct | None:
    """A kernel of elementwise nodes over tensors of one shape, and over numbers that are spread over it; None where
    nodes are others, or have no vector code."""
    one = _of_one_axis(fn)
    if one is None:
        return None
    key = engine.key_of(one)
    with _lock:
        if key not in _flat:
            text = _text(one, host())
            _flat[key] = None if text is None else jit.load(text)
        code = _flat[key]
    return None if code is None else Direct(code, fn.out_types, sized=True)


_SPREAD = ("broadcast_to", "full")


def _is_elementwise(node: Node) -> bool:
    """Whether an element of a result comes from those at the same place, wherever that is: by the axes rule."""
    rule = node.op.rules.get("axes")
    return isinstance(rule, str) and not rule.replace("...", "").strip(" ,->") and not node.op.has_regions


def _of_one_axis(fn: Fn) -> Fn | None:
    """The function with one axis of _SIZE elements in place of all; None if it is not of that kind."""
    if not all(n.op.name in _SPREAD or _is_elementwise(n) for n in fn.nodes):
        return None
    shape = fn.outputs[0].type.shape

    def short(type: TensorType) -> TensorType:
        return type.with_shape((_SIZE,) if type.shape == shape else ())

    values = [*fn.params, *[o for n in fn.nodes for o in n.outputs]]
    if not shape or any(v.type.shape not in (shape, ()) for v in values):
        return None

    def run(*given: Value) -> list[Value]:
        twin: dict[Value, Value] = dict(zip(fn.params, given, strict=True))
        for node in fn.nodes:
            inputs = tuple([twin[v] for v in node.inputs])
            attrs = {**node.attrs, "shape": (_SIZE,)} if node.attrs.get("shape") == shape else node.attrs
            outputs = build.apply(node.op, inputs, attrs)
            twin.update(zip(node.outputs, outputs if isinstance(outputs, tuple) else (outputs,), strict=True))
        return [twin[o] for o in fn.outputs]

    return build.trace(run, tuple([short(p.type) for p in fn.params]))


def _text(one: Fn, target: Target) -> str | None:
    """The kernel's module: its buffers are operands, results and the number of elements."""
    found = nest(one)
    if isinstance(found, str) or any(i.reduced or len(i.axes) != 1 for i in found.items):
        return None
    axis = found.items[0].axes[0]
    if axis.extent != _SIZE or any(i.axes != (axis,) for i in found.items):
        return None
    if sorted(n for i in found.items for n in i.outs) != list(range(len(one.outputs))):
        return None
    made = _many.form_of(axis, found.items)
    if made is None:
        return None
    form, piece = made
    numbers: dict[Source, int] = {flat: n for n, (flat, _) in enumerate(found.inputs)}
    places = [numbers[s] for s in piece.sources] + [len(one.params) + n for i in found.items for n in i.outs]
    if len(places) != len(piece.sources) + len(form.exprs):  # one tensor that is two results
        return None
    module, tasks = Module(), max(16, 4 * target.cores)
    _many.loop(module, "elements", form, len(places), target)
    f = Function(module, "task", ["ptr", "i64", "ptr"])
    buffers = len(one.params) + len(one.outputs)
    count = f.load(f.load(f.args[0], "ptr", 8 * buffers), "i64")
    share = f.max_int((count + (64 * tasks - 1)) // (64 * tasks) * 64, _LEAST)
    low = f.args[1] * share
    with f.when(f.compare("slt", low, count)):
        tensors = [f.load(f.args[0], "ptr", 8 * n) for n in places]
        f.call("@elements", "void", *tensors, low, f.min_int(low + share, count))
    f.give()
    return launch.finish(module, [launch.Phase("task", tasks)], buffers + 1)
