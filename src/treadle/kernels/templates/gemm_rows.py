"""A product whose rows are then reduced and changed: logits with their loss and its gradient, in one kernel.

A task computes some whole rows of the product, as gemm_tile does, into the memory of a result (the gradient, or the
product itself if it is one); while they are in the caches it takes each row through the phase that `_schedule` makes
of the rest of the body: reductions along the row, then what is written in its place. So the logits are written to
memory and read from it never, and need no memory of their own. Taken are bodies with an op whose rule `group` is
"loss", products of one matrix by one, sums of at most `_DEEPEST` elements, and right operands whose panels stay in the
third cache, because every task reads all of them, and take at most half of the memory that the rows would have taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from treadle.formula.affine import Linear, linear
from treadle.ir import build as ir_build
from treadle.ir.node import Fn, Node, Value
from treadle.kernels import launch
from treadle.kernels.kernel import Kernel, Plan
from treadle.kernels.llvm import Function, Module
from treadle.kernels.microkernels import Isa
from treadle.kernels.nests import nest, number_of
from treadle.kernels.target import Target
from treadle.kernels.templates import gemm, gemm_finish, gemm_problem
from treadle.kernels.templates._passes import Memory, Phase, write
from treadle.kernels.templates._schedule import schedule
from treadle.kernels.templates.gemm_finish import Finish, Store
from treadle.kernels.templates.gemm_problem import Problem
from treadle.kernels.templates.gemm_tile import Finish as Tiled
from treadle.kernels.templates.gemm_tile import Gemm, Schedule
from treadle.ops.shape import reshape

_DEEPEST = 4096  # elements of the sum: a task takes it in one block
_LEAST_ROWS, _MOST_ROWS = 16, 192  # of a task
_PANEL_BYTES = 1 << 20  # of the right operand's panels that are always allowed
_ROW_BYTES = 8 << 20  # that the rows of a task may take, in the third cache


@dataclass(frozen=True)
class Halves:
    """A body in two. product: its parameters -> the rows; rows: its parameters, then the rows -> its results, but for
    the rows themselves. outputs: which results of the body those are; home: the result in whose memory the rows lie."""

    product: Fn
    rows: Fn
    outputs: tuple[int, ...]
    home: int


def plans(body: Fn, target: Target) -> list[Plan]:
    """Ways to compute a product and what is made of its rows; [] if the body is none of ours."""
    halves = halves_of(body)
    if halves is None:
        return []
    found = _product(halves, target)
    if found is None:
        return []
    problem, finish, isa = found
    home = len(body.params) + halves.home
    finish.outputs[0] = replace(finish.outputs[0], buffer=home)
    rows = _row_phase(halves, problem, target, len(body.params), home)
    cut = _schedule_of(problem, finish, isa, target)
    if rows is None or cut is None:
        return []
    kind = "gemm rows pairs" if isa.pairs else "gemm rows"
    return [Plan(f"{kind} {cut}", partial(make, body, problem, finish, isa, target, cut, *rows))]


def halves_of(body: Fn) -> Halves | None:
    """The parts before and after the rows that the first loss takes; None for other bodies."""
    losses = [n for n in body.nodes if n.op.rules.get("group") == "loss"]
    anchors = [n for n in body.nodes if n.op.rules.get("group") == "product"]
    if not losses or len(anchors) != 1 or any(True for n in body.nodes for _ in n.regions()):
        return None
    y = losses[0].inputs[0]
    outputs = tuple([i for i, o in enumerate(body.outputs) if _bare(o) is not _bare(y)])
    before, after = _makers([y], None), _makers([_bare(body.outputs[i]) for i in outputs], y)
    if y.ndim != 2 or anchors[0] not in before or anchors[0] in after:
        return None
    itself = [i for i in range(len(body.outputs)) if i not in outputs]
    alike = [i for i in outputs if body.outputs[i].type.size == y.type.size and body.outputs[i].dtype is y.dtype]
    if len(itself) > 1 or not (itself or alike):
        return None
    product = _part(body, before, body.params, [y])
    rows = _part(body, after, (*body.params, y), [_bare(body.outputs[i]) for i in outputs])
    return Halves(product, rows, outputs, (itself or alike)[0])


def _bare(value: Value) -> Value:
    """The value without reshapes after it, which do not change its memory."""
    while value.node is not None and value.node.op is reshape:
        value = value.node.inputs[0]
    return value


def _makers(values: Iterable[Value], end: Value | None) -> set[Node]:
    """The nodes that values depend on, not looking behind `end`."""
    found, stack = set[Node](), list(values)
    while stack:
        value = stack.pop()
        if value is not end and value.node is not None and value.node not in found:
            found.add(value.node)
            stack += value.node.inputs
    return found


def _part(body: Fn, nodes: set[Node], params: Sequence[Value], outputs: Sequence[Value]) -> Fn:
    """A function of some of the body's nodes."""

    def run(*values: Value) -> list[Value]:
        known = dict(zip(params, values, strict=True))
        for n in body.nodes:
            if n in nodes:
                made = ir_build.emit(n, tuple([known[v] for v in n.inputs]))
                known.update({o: m for o, m in zip(n.outputs, made, strict=True) if o not in known})
        return [known[o] for o in outputs]

    return ir_build.trace(run, [v.type for v in params], body.name)


def _product(halves: Halves, target: Target) -> tuple[Problem, Finish, Isa] | None:
    """The product that gives the rows as they lie in memory."""
    rows, columns = halves.product.outputs[0].shape
    for swapped in (False, True):
        problem = gemm_problem.read(halves.product, swapped)
        if problem is None or problem.dims != (("m", rows), ("n", columns)) or problem.k > _DEEPEST:
            continue
        isa = Isa.of(target, gemm.multiplies_pairs(problem, target))
        finish = gemm_finish.read(halves.product, problem) if gemm.packable(problem) else None
        if finish is None or finish.outputs[0].summed or finish.width_divides() % isa.lanes:
            continue
        if finish.outputs[0].axes == (*finish.axes["m"][0], *finish.axes["n"][0]) and not _on_tiles(isa, target):
            return problem, finish, isa
    return None


def _on_tiles(isa: Isa, target: Target) -> bool:
    """Whether another template would multiply many times as fast."""
    return isa.pairs and target.has("amx")


def _schedule_of(problem: Problem, finish: Finish, isa: Isa, target: Target) -> Schedule | None:
    """Tasks of whole rows: as many rows as stay in a cache, the sum in one block."""
    usual = next((s for s in gemm.schedules_for(problem, finish, isa, target) if type(s) is Schedule), None)
    packed = problem.n * problem.k * 4 // isa.per_unit
    rows = problem.m * problem.n * problem.dtype.bytes
    empty = 0 in (problem.m, problem.n, problem.k)
    if usual is None or empty or packed > max(min(target.l3, rows // 2), _PANEL_BYTES):
        return None
    block = 2 * isa.lanes
    panels, columns = -(-problem.m // usual.rows), -(-problem.n // (usual.vectors * isa.lanes))
    most = min(max(_ROW_BYTES // (problem.n * problem.dtype.bytes), _LEAST_ROWS), _MOST_ROWS)
    tasks = max(-(-problem.m // most), 1)
    tasks = min(-(-tasks // target.cores) * target.cores, panels)
    depth = -(-problem.k // block) * block
    wide = max(1, min(columns, target.l2 // 2 // (depth // isa.per_unit * usual.vectors * isa.bytes)))
    return replace(usual, depth=depth, high=-(-panels // tasks), wide=wide, group=1, share=usual.pack_b)


def _row_phase(
    halves: Halves, problem: Problem, target: Target, params: int, home: int
) -> tuple[Phase, Memory] | None:  # fmt: skip
    """The phase that takes one row from the product to the results, and where its tensors are among the kernel's
    buffers. Every result of a row's size must be written where the row was, after all else has read it."""
    found = nest(halves.rows)
    made = found if isinstance(found, str) else schedule(found, target, hoist=False)
    if isinstance(made, str) or made.workspace or len(made.stages) != 1 or len(made.stages[0]) != 1:
        return None
    phase = made.stages[0][0]
    if not isinstance(phase, Phase) or phase.count != problem.m or not phase.levels or phase.columns or phase.chunk:
        return None
    flat, whole = made.nest.inputs[params]
    own, line = linear(number_of((*phase.rows, *phase.inner))), linear(number_of(phase.rows))
    if len(phase.inner) != 1 or phase.inner[0].extent != problem.n:
        return None
    for item in made.nest.items:
        reads = [linear(r.parts[0]) for r in item.reads if r.source is flat]
        if any(r.source is whole for r in item.reads) or not all(_in_row(r, line, problem.n) for r in reads):
            return None
        if item in phase.outs and any(place != own for place in (linear(item.number), *reads)):
            return None
    places = [*range(params), home, *[params + i for i in halves.outputs]]
    memory = Memory(home + 1, {s: (places[n], at) for s, (n, at) in made.memory.at.items()})
    return replace(phase, block=1, stream=False), memory


def _in_row(index: Linear, line: Linear, width: int) -> bool:
    """Whether an index into the rows stays in the row."""
    low, high = index.plus(line, -width).range
    return low >= 0 and high < width


class _Lines(Gemm):
    """Tasks of whole rows, which go through the columns in blocks: those of the schedule."""

    def __init__(self, problem: Problem, isa: Isa, schedule: Schedule, finish: Tiled, buffers: int) -> None:
        super().__init__(problem, isa, schedule, finish, buffers)
        self.tasks, self.parts = self.m_tasks, self.n_tasks

    def task(self, f: Function) -> None:
        a, b = (
            f.offset(f.load(f.args[0], "ptr", 8 * side.param), side.offset * side.dtype.bytes)
            for side in (self.p.left, self.p.right)
        )
        panels = f.args[1] * self.s.high, f.min_int((f.args[1] + 1) * self.s.high, self.row_panels)
        none = f.i64(0)
        with f.loop(0, self.parts) as part:
            columns = part * self.s.wide, f.min_int((part + 1) * self.s.wide, self.columns)
            self._block(f, none, none, a, b, panels, columns, f.args[2])


def make(
    body: Fn, problem: Problem, finish: Finish, isa: Isa, target: Target, cut: Schedule, phase: Phase, memory: Memory
) -> Kernel:
    """The kernel of a schedule."""
    module = Module()
    store = Store(finish, isa, target, module)
    buffers = len(body.params) + len(body.outputs)
    made = _Lines(problem, isa, cut, store.tile, buffers)
    write(module, "row", phase, memory, target)
    phases = []
    if cut.share:
        f = Function(module, "pack", ["ptr", "i64", "ptr"])
        phases.append(launch.Phase("pack", made.packing_task(f)))
        f.give()
    f = Function(module, "rows", ["ptr", "i64", "ptr"])
    made.task(f)
    first, end = made.rows_of(f, f.args[1])
    with f.loop(first, end) as row:
        f.call("@row", "void", f.args[0], row, f.args[2])
    f.give()
    phases.append(launch.Phase("rows", made.tasks))
    text = launch.finish(module, phases, buffers + bool(made.workspace))
    return Kernel(body.in_types, body.out_types, text, made.workspace)
