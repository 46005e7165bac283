"""The gradient of attention's mask: `MaskGrad` keeps the slopes of the scores and, in a phase of its own, sums them.

Slopes lie in the kernel's workspace as float32, [heads][keys][queries]: as the tiles of the gradient have them, keys as
rows. Where the mask has one row for all queries, a key has a vector only, to which the queries of each block are added.
The last phase sums over the heads that share a part of the mask, in the order of the heads, and turns the axes.
"""

from __future__ import annotations

from math import prod

from treadle.kernels.launch import Phase
from treadle.kernels.llvm import Function, Module, Value
from treadle.kernels.templates import _tiles
from treadle.kernels.templates._attention_shape import Problem
from treadle.kernels.templates._tiles import Machine
from treadle.kernels.templates._views import View


class MaskGrad:
    """view: of the gradient, with the shape of the scores and stride 0 where the mask is repeated; start: where in the
    workspace (bytes) it begins. `bytes`: of the workspace."""

    def __init__(self, f: Function, p: Problem, m: Machine, view: View, start: int) -> None:
        self.f, self.p, self.m, self.view, self.start = f, p, m, view, start
        self.repeated = view.sizes[-2] > 1 and view.strides[-2] == 0
        self.row = (m.lanes if self.repeated else -(-p.rows // m.block) * m.block) * 4
        self.parts = -(-p.keys // m.lanes)
        self.head = self.parts * m.lanes * self.row
        self.bytes = p.heads * self.head
        # A tile may begin before them, or end after them: other tiles have those keys.
        self.keys: tuple[Value, Value] | None = None  # the first one of a tile's own, and where its block ends

    def _workspace(self, f: Function, *offsets: Value) -> Value:
        return f.offset(f.load(f.args[0], "ptr", 8 * self.p.buffers), self.start, *offsets)

    def begin(self, head: Value) -> None:
        """The part of a head."""
        self.place = self._workspace(self.f, head * self.head)

    def clear(self, key: Value, count: Value) -> None:
        """Zeros for so many keys, where not everything is written."""
        f, m = self.f, self.m
        if self.repeated or self.p.causal:
            with f.loop(key * self.row, (key + count) * self.row, m.bytes) as at:
                f.store(f.constant(0.0, m.floats), f.offset(self.place, at))

    def keep(self, slope: Value, key: Value, row: Value, c: int) -> None:
        """The vector c of a key's slopes, for the queries from `row` on."""
        f, m = self.f, self.m
        assert self.keys is not None
        first, end = self.keys
        with f.when(f.compare("ult", key - first, end - first)):
            here = f.offset(self.place, key * self.row)
            if self.repeated:
                f.store(f.load(here, m.floats) + slope, here)
            else:
                f.store(slope, f.offset(here, row * 4, c * m.bytes))

    def gather(self, module: Module) -> Phase:
        """The phase that sums and writes: a task has a vector of keys."""
        p, m, view = self.p, self.m, self.view
        f = Function(module, "mask_gradient", ["ptr", "i64", "ptr"])
        place, key = f.args[1] // self.parts, f.args[1] % self.parts * m.lanes
        kept, summed = list[tuple[int, int, int]](), list[tuple[int, int, int]]()  # size, bytes here and there
        for axis, n in enumerate(p.lead):
            one = n, prod(p.lead[axis + 1 :]) * self.head, view.strides[axis]
            if n > 1:
                (kept if view.strides[axis] else summed).append(one)
        sizes, mine, theirs = ([one[part] for one in kept] for part in range(3))
        here = self._workspace(f, _tiles.lead_offset(f, place, sizes, mine), key * self.row)
        out = f.load(f.args[0], "ptr", 8 * (p.params + view.buffer))
        to = f.offset(out, view.offset, _tiles.lead_offset(f, place, sizes, theirs), key * p.item)
        inside = f.mask(f.i64(p.keys) - key, m.lanes)
        heads, strides = [one[0] for one in summed], [one[1] for one in summed]
        with f.loop(0, self.row // 4, m.lanes) as row:
            sums = [f.variable(m.floats, 0.0) for _ in range(m.lanes)]
            with f.loop(0, prod(heads)) as i:
                there = f.offset(here, _tiles.lead_offset(f, i, heads, strides), row * 4)
                for k, each in enumerate(sums):
                    each.set(each.get() + f.load(there, m.floats, k * self.row))
            turned = _tiles.transposed(f, [each.get() for each in sums])
            if self.repeated:
                total = turned[0]
                for each_query in turned[1:]:
                    total = total + each_query
                turned = [total]
            for j, each_query in enumerate(turned):
                with f.when(f.compare("slt", row + j, p.rows)):
                    line = f.offset(to, (row + j) * view.strides[-2])
                    _tiles.store_floats(f, m, p.kind, each_query, line, inside)
        f.give()
        return Phase("mask_gradient", prod(sizes) * self.parts)
