"""Weight gradients of 1x1 convolutions as matrix products: rows of dy times rows of x, summed over all places.

`product_plans` takes images with their channels last, whose places all lie one after the other. A large result is
computed by gemm, which shares it among tasks. For a small one (`Shared`) places are shared: a task multiplies some of
them, by gemm's tiles, into sums of its own in the workspace, and the last phase adds these, always in the same order,
and finishes them. There x may be on the left, where its channels fill vectors worse than those of dy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from treadle.base.dtypes import DType
from treadle.formula.expr import Axis, Placeholder
from treadle.ir.node import Fn, Node, Value
from treadle.ir.rewrite import rebuild
from treadle.ir.types import TensorType
from treadle.kernels import launch, llvm
from treadle.kernels.kernel import Kernel, Plan
from treadle.kernels.llvm import Function, Module
from treadle.kernels.microkernels import Isa, Tile
from treadle.kernels.target import Target
from treadle.kernels.templates import gemm
from treadle.kernels.templates.conv_finish import Tail
from treadle.kernels.templates.conv_micro import Arith, arith
from treadle.kernels.templates.conv_pack import transposed
from treadle.kernels.templates.conv_shape import Spec
from treadle.kernels.templates.gemm_finish import Finish
from treadle.kernels.templates.gemm_problem import Problem, Side
from treadle.kernels.templates.gemm_tile import Gemm, Place, Schedule
from treadle.ops.products import contract
from treadle.ops.shape import reshape

_TASKS = 4  # wanted for each core
_PLACES = 256  # of a task, at least
_MOST = 2  # plans of each kind
_PART = 4  # of what is read, at least, are the sums that tasks write


def product_plans(
    body: Fn, anchor: Node, spec: Spec, operands: tuple[int, int], tail: Tail, target: Target
) -> Iterator[Plan]:
    """Plans, the most promising first; none if it is no product. operands: numbers of x and dy among the inputs."""
    places = spec.n * spec.size[0] * spec.size[1]
    plain = spec.kernel == (1, 1) and spec.stride == (1, 1) and spec.size == spec.out and spec.groups == 1
    types = [body.params[i].type for i in operands]
    if not plain or any(map(any, spec.padding)) or [t.size for t in types] != [
        places * spec.channels, places * spec.outputs
    ]:  # fmt: skip
        return
    product = _rewritten(body, anchor, operands, places)
    whole = [replace(p, name=f"conv weight by {p.name}") for p in gemm.plans(product, target)[:_MOST]]
    shared = list(_shared(body, anchor, spec, operands, types[0].dtype, tail, target))
    yield from shared + whole


def _rewritten(body: Fn, anchor: Node, operands: tuple[int, int], places: int) -> Fn:
    """The body with a product in the place of the gradient."""

    def visit(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        if node is not anchor:
            return None
        x, dy = (body.params[i] for i in operands)
        rows = [reshape(v, shape=(places, v.type.size // places)) for v in (dy, x)]
        how = {k: v for k, v in anchor.attrs.items() if k == "precision"}
        return [reshape(contract(*rows, spec="ko,kc->oc", **how), shape=anchor.outputs[0].shape)]

    return rebuild(body, visit)


def _shared(
    body: Fn, anchor: Node, spec: Spec, operands: tuple[int, int], dtype: DType, tail: Tail, target: Target
) -> Iterator[Plan]:
    """Plans that share the places, where the result is too small to be shared."""
    places, wanted = spec.n * spec.size[0] * spec.size[1], _TASKS * target.cores
    parts = [p for p in range(2, 2 * wanted) if places % p == 0 and places // p >= _PLACES]
    if not parts:
        return
    splits = min(parts, key=lambda p: (p % target.cores != 0, abs(p - wanted)))
    sums = 2 * splits * spec.channels * spec.outputs * 4
    if sums * _PART > places * (spec.channels + spec.outputs) * dtype.bytes:
        return
    made = []
    for left in (1, 0):
        problem = _problem(spec, operands, dtype, anchor, left, splits)
        isa = Isa.of(target, gemm.multiplies_pairs(problem, target))
        if isa.pairs and target.has("amx"):  # whose tiles are many times as fast
            return
        schedules = (s for s in gemm.schedules_for(problem, _no_finish(problem), isa, target) if type(s) is Schedule)
        s = next(schedules)
        made.append((problem.m * -(-problem.n // isa.lanes), 1 - left, Shared(spec, problem, isa, s, not left)))
    for _, _, shared in sorted(made, key=lambda m: m[:2])[:_MOST]:
        yield Plan(f"conv weight {shared}", partial(_make, body, shared, tail, target))


def _problem(spec: Spec, operands: tuple[int, int], dtype: DType, anchor: Node, left: int, splits: int) -> Problem:
    """The products of all parts of the places. left: which of x and dy has its channels in rows of the result."""
    sizes, places = (spec.channels, spec.outputs), spec.n * spec.size[0] * spec.size[1] // splits
    sides = [Side(operands[i], dtype, dtype, 0, 1, sizes[i], (places * sizes[i],)) for i in range(2)]
    m, n = sizes[left], sizes[1 - left]
    dims = (("b", splits), ("m", m), ("n", n))
    return Problem((splits,), m, n, places, sides[left], sides[1 - left], dims, dtype, "highest", anchor)


def _no_finish(problem: Problem) -> Finish:
    """For gemm's choice of schedules: sums are stored as they are."""
    axes = {kind: [[Axis(kind, size)]] for kind, size in problem.dims}
    return Finish(problem, axes, Placeholder("product", TensorType(problem.dtype, ())))


def _make(body: Fn, shared: Shared, tail: Tail, target: Target) -> Kernel:
    module, buffers = Module(), len(body.params) + len(body.outputs)
    phases = shared.build(module, buffers, tail, target)
    text = launch.finish(module, phases, buffers + 1)
    return Kernel(body.in_types, body.out_types, text, shared.workspace, tail.finish.aliases())


@dataclass(frozen=True)
class Shared:
    """A product whose places are shared. turned: x is on the left; its sums are turned when they are added up."""

    spec: Spec
    problem: Problem
    isa: Isa
    schedule: Schedule
    turned: bool

    def __str__(self) -> str:
        return f"{'x dy' if self.turned else 'dy x'} in {self.problem.batches} parts {self.schedule}"

    @property
    def line(self) -> int:
        """Bytes of a row of sums: whole vectors."""
        return -(-self.problem.n // self.isa.lanes) * self.isa.bytes

    @property
    def workspace(self) -> int:
        """Bytes: the sums of all tasks."""
        return self.problem.batches * self.problem.m * self.line

    def build(self, module: Module, buffers: int, tail: Tail, target: Target) -> list[launch.Phase]:
        """Write the functions; returns the phases. buffers: inputs and outputs; the workspace is the next one."""

        def keep(f: Function, _: llvm.Value, place: Place, tile: Tile) -> None:
            to = f.offset(f.load(f.args[0], "ptr", 8 * buffers), place.batch * (self.problem.m * self.line))
            tile.store(f.offset(to, place.row * self.line, place.column * 4), self.line)

        made = Gemm(self.problem, self.isa, self.schedule, keep, buffers)
        f = Function(module, "accumulate", ["ptr", "i64", "ptr"])
        made.task(f)
        f.give()
        return [launch.Phase("accumulate", made.tasks), self._total(module, buffers, tail, target)]

    def _total(self, module: Module, buffers: int, tail: Tail, target: Target) -> launch.Phase:
        """Add the tasks' sums. A task takes an output, or, where they have to be turned, a vector of outputs."""
        f, how = Function(module, "total", ["ptr", "i64", "ptr"]), arith(target, self.problem.dtype.short)
        sums, places = f.load(f.args[0], "ptr", 8 * buffers), tail.places(f, f.args[0])
        channels, outputs, lanes = self.spec.channels, self.spec.outputs, how.lanes
        with f.loop(0, channels, lanes) as c:
            some = f.mask(f.i64(channels) - c, lanes) if channels % lanes else None
            if not self.turned:
                value = self._sum(f, how, f.offset(sums, f.args[1] * self.line, c * 4))
                tail.vector(f, places, {"o": f.args[1], "r": c}, value, some, how)
            else:
                first, rows = f.args[1] * lanes, []
                for i in range(lanes):
                    row = f.min_int(c + i, channels - 1)
                    rows.append(self._sum(f, how, f.offset(sums, row * self.line, first * 4)))
                for i, value in enumerate(transposed(f, rows)):
                    f.store(value, f.args[2], i * how.bytes)
                with f.loop(0, f.min_int(f.i64(outputs) - first, lanes)) as nth:
                    value = f.load(f.args[2], how.vector, nth * how.bytes)
                    tail.vector(f, places, {"o": first + nth, "r": c}, value, some, how)
        f.give()
        return launch.Phase("total", -(-outputs // lanes) if self.turned else outputs)

    def _sum(self, f: Function, how: Arith, place: llvm.Value) -> llvm.Value:
        """A vector of all tasks' sums."""
        total = f.variable(how.vector, 0.0)
        with f.loop(0, self.problem.batches) as split:
            total.set(total.get() + f.load(place, how.vector, split * (self.problem.m * self.line)))
        return total.get()
